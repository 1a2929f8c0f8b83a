//! A repair stopped at each of its steps, by a kill or a loss of power.

use crate::disk::testing::{Survive, TestDisk};
use crate::{RepairError, RepairOrders, Repaired, Store};

/// What stops it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    Kill,
    /// A kill; a loss of power that leaves nothing of what was not flushed, and one that leaves some of it.
    KillOrPower,
}

pub(super) fn repair(disk: &TestDisk, orders: &RepairOrders) -> Result<Repaired, RepairError> {
    Store::repair(disk, &|_| Ok(Some(disk.folder("quarantine"))), orders)
}

/// What a repair finds. Nothing is changed.
pub(super) fn looked(disk: &TestDisk) -> Repaired {
    repair(disk, &RepairOrders { dry_run: true, ..RepairOrders::default() }).unwrap()
}

/// Repairs copies of a folder by these orders, stopped at each step, and behind the last; then what is left has to be as `holds` says, which is told of where it was stopped.
/// What the repair comes to that nothing stops.
pub(super) fn at_each_step(
    disk: &TestDisk,
    orders: &RepairOrders,
    by: By,
    mut holds: impl FnMut(&TestDisk, &str),
) -> Repaired {
    let undisturbed = disk.copied_in_place();
    let before = undisturbed.steps();
    let repaired = repair(&undisturbed, orders).unwrap();
    let steps = undisturbed.steps() - before;
    assert!(steps > 1, "{repaired:?}");
    for step in 0..=steps {
        let losses: &[Option<Survive>] = match by {
            By::Kill => &[None],
            By::KillOrPower => &[None, Some(Survive::Nothing), Some(Survive::Seeded(step))],
        };
        for power in losses {
            let run = disk.copied_in_place();
            run.stop_at(run.steps() + step);
            let stopped = repair(&run, orders);
            assert_eq!(stopped.is_err(), step < steps, "{step} of {steps}: {stopped:?}");
            let left = match power {
                None => run.after_kill(),
                Some(survive) => run.after_power_loss(*survive),
            };
            holds(&left, &format!("step {step} of {steps}, power lost: {power:?}"));
        }
    }
    repaired
}

/// The same orders again are no error, and then nothing is amiss.
pub(super) fn is_repaired_again(disk: &TestDisk, orders: &RepairOrders, told: &str) {
    let repaired = repair(disk, orders).unwrap();
    assert!(repaired.left.is_empty() && repaired.torn.is_none(), "{told}: {repaired:?}");
    let found = looked(disk);
    assert!(found.findings.is_empty(), "{told}: {found:?}");
}
