//! The sweep finds nothing where nothing is wrong, and what is planted where something is.

use windlass_sweep::{Kind, Lie, Plan, Report, Workload, sample, sweep};

fn swept(workload: Workload, images: u64, lie: Option<Lie>) -> Report {
    sweep(workload, &Plan { images, whole: false, seed: 1, lie, wrong_max: 1 })
}

/// The first finding, which has to be there.
fn found(workload: Workload, lie: Lie) -> String {
    let report = swept(workload, 600, Some(lie));
    assert!(!report.wrong.is_empty(), "{lie:?} went unnoticed by {} images", report.images());
    report.wrong[0].text.clone()
}

#[test]
fn each_workload_crashed_in_each_way_is_what_was_acknowledged() {
    for workload in Workload::ALL {
        let plan = Plan { images: u64::MAX, whole: false, seed: 1, lie: None, wrong_max: 1 };
        let report = sample(workload, &plan, 9);
        assert_eq!(report.wrong, Vec::new(), "{workload:?}");
        assert_eq!(report.steps[&workload], 9, "{workload:?}: from its first step to its last");
        for kind in Kind::ALL {
            let count = report.counts[&(workload, kind)];
            // Before there is a log its making is stopped, and there is nothing to recover.
            let recovered = if workload == Workload::Create { 1 } else { 9 };
            assert!(count.images >= 9 && count.again >= recovered, "{workload:?}, {kind:?}: {count:?}");
        }
    }
}

#[test]
fn kind_26_a_disk_that_answers_flushes_and_forgets_them_is_found_as_a_loss() {
    let text = found(Workload::Append, Lie::FlushForgotten);
    assert!(text.contains("LOST"), "{text}");
}

#[test]
fn kind_28_a_mark_that_is_durable_before_what_it_points_to_is_found() {
    // What was flushed too late is taken for damage, since the superblock speaks for it.
    let text = found(Workload::Close, Lie::FlushLate);
    assert!(text.contains("LOST") || text.contains("CALLED DAMAGE"), "{text}");
    let text = found(Workload::Rollover, Lie::FlushLate);
    assert!(text.contains("LOST") || text.contains("CALLED DAMAGE"), "{text}");
}

#[test]
fn r_5_a_superblock_whose_flush_is_forgotten_is_found_as_a_promise_lost() {
    let text = found(Workload::Superblock, Lie::SyncForgotten);
    assert!(text.contains("LOST") || text.contains("CALLED DAMAGE"), "{text}");
}

#[test]
fn kind_29_names_that_are_not_made_durable_are_found() {
    let text = found(Workload::Rollover, Lie::FolderForgotten);
    assert!(text.contains("LOST") || text.contains("CALLED DAMAGE"), "{text}");
}

#[test]
fn r_11_bytes_that_recovery_writes_again_and_that_never_arrive_are_found() {
    let text = found(Workload::Deferred, Lie::RewriteForgotten);
    assert!(
        text.contains("LOST") || text.contains("CALLED DAMAGE") || text.contains("in place of"),
        "{text}"
    );
}

#[test]
fn the_same_seed_gives_the_same_sweep() {
    assert_eq!(swept(Workload::Truncate, 100, None), swept(Workload::Truncate, 100, None));
}

#[test]
fn a_sweep_that_ends_early_says_what_it_has_not_reached() {
    let missed = swept(Workload::Append, 60, None).missed();
    let is_told = |what: &str| missed.iter().any(|missed| missed.contains(what));
    assert!(is_told("append: every subset at 0 of "), "{missed:?}");
    assert!(is_told("append: no recovery of ") || is_told(" steps of the recovery of "), "{missed:?}");
}
