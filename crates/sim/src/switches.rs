//! Each fault has a switch (`--off`), and is gone with it. Looked at behind a run over many seeds: of each fault in the seed that met it most often for what happened there, so that no
//! list of seeds grows old.

use std::collections::BTreeMap;

use crate::coverage::Mark;
use crate::run::{Report, run_with};
use crate::setting::Setting;

/// What switches each fault off: all ways that it comes about here.
const SWITCHES: &[(Mark, &[&str])] = &[
    (Mark::Delayed, &["fabric.delayed"]),
    (Mark::SlowMember, &["SlowMember"]),
    (Mark::ConnectionBroken, &["fabric.broken", "BreakConnection"]),
    (Mark::Partitioned, &["Cut", "CutOff", "Hands"]),
    (Mark::AnswerCut, &["Cut", "CutOff", "Hands"]),
    (Mark::CompletedEarly, &["fabric.completed_early"]),
    (Mark::LandedInPieces, &["fabric.landed_in_pieces"]),
    (Mark::LandedSlowly, &["fabric.landed_slowly"]),
    (Mark::LandedAfterInvalidation, &["fabric.landed_after_invalidation", "fabric.completed_early"]),
    (Mark::FailedButDone, &["fabric.failed_but_done", "Cut", "CutOff", "Hands"]),
    (Mark::ReceiverNotReady, &["fabric.receiver_not_ready"]),
    (Mark::CompletionLost, &["fabric.completion_lost"]),
    (Mark::ReceiveLost, &["fabric.receive_lost"]),
    (Mark::KeysWrapped, &["KeysNearEnd"]),
    (Mark::WindowUsedUp, &["KeysNearEnd"]),
    (Mark::Misplaced, &["fabric.misplaced"]),
    (Mark::MisplacedBehind, &["fabric.misplaced"]),
    (Mark::ControlLost, &["control.lost", "LoseControl"]),
    (Mark::FrameTwice, &["control.duplicated"]),
    (Mark::Cut, &["Cut", "CutOff", "Hands"]),
    (Mark::CutOneWay, &["Cut", "CutOff", "Hands"]),
    (Mark::SlowDisk, &["SlowDisk", "Exceeds"]),
    (Mark::FlushFailed, &["FlushFails"]),
    (Mark::ReadFailed, &["ReadFails"]),
    (Mark::ScrubUnread, &["disk.read_failed"]),
    (Mark::DistrustUnread, &["disk.read_failed"]),
    (Mark::TrimUnread, &["disk.read_failed"]),
    (Mark::OwnTrimUnread, &["disk.read_failed"]),
    (Mark::ResendUnread, &["disk.read_failed"]),
    (Mark::ReaderUnread, &["disk.read_failed"]),
    (Mark::SubscriptionUnread, &["disk.read_failed"]),
    (Mark::GiverUnread, &["disk.read_failed"]),
    (Mark::CloseUnread, &["disk.read_failed"]),
    (Mark::ReadShort, &["ReadsCut"]),
    (Mark::Rotted, &["Rot", "RotWhileDown", "Unsent", "Words", "Exceeds"]),
    (Mark::RottedUnsent, &["Unsent"]),
    (Mark::SectorLost, &["Rot", "RotWhileDown", "Unsent"]),
    (Mark::SectorMisdirected, &["Rot", "RotWhileDown", "Unsent"]),
    (Mark::WrittenBack, &["WritesBack"]),
    (Mark::DiskFull, &["DiskFull"]),
    (Mark::SuperblockDamaged, &["SuperblockDamaged"]),
    (Mark::DiskEmptied, &["DiskEmptied", "Words", "Exceeds"]),
    (Mark::PowerLostEverywhere, &["PowerLossEverywhere"]),
    (Mark::CrashInRecovery, &["OpeningsCut"]),
    (Mark::Paused, &["Pause", "PausePrimary", "Hands"]),
    (Mark::Drifted, &["Drift"]),
    (Mark::KilledInWork, &["WorkCut"]),
    (Mark::KilledInUpdate, &["WorkCut"]),
];

/// Which seed of a run has met each fault most often for what happened there.
#[derive(Default, Debug)]
pub struct Densest(BTreeMap<Mark, Met>);

/// The fault so often for each million events.
#[derive(Clone, Copy, Debug)]
struct Met {
    seed: u64,
    of_million: u64,
}

impl Densest {
    /// A seed was run.
    pub fn note(&mut self, report: &Report) {
        for (mark, _) in SWITCHES {
            let count = report.coverage.count(*mark);
            if count == 0 || report.violation.is_some() {
                continue;
            }
            let of_million = count.saturating_mul(1_000_000) / report.events.max(1);
            self.met(*mark, Met { seed: report.seed, of_million });
        }
    }

    /// Keeps the denser seed, and of two that are as dense the lower: whatever the order that threads run them in.
    fn met(&mut self, mark: Mark, met: Met) {
        let is_denser = |kept: &Met| {
            met.of_million > kept.of_million || met.of_million == kept.of_million && met.seed < kept.seed
        };
        if self.0.get(&mark).is_none_or(is_denser) {
            self.0.insert(mark, met);
        }
    }

    /// Runs these seeds again, each without its fault. What is not gone with its switch.
    #[must_use]
    pub fn not_gone(&self) -> Vec<String> {
        let known = SWITCHES.iter().filter_map(|(mark, switches)| Some((mark, switches, self.0.get(mark)?)));
        known.filter_map(|(mark, switches, met)| is_gone(*mark, switches, met.seed).err()).collect()
    }
}

/// Whether a fault that a seed meets is not met there with these switches off, and nothing else is amiss.
///
/// # Errors
///
/// What is, in a line.
pub fn is_gone(mark: Mark, switches: &[&str], seed: u64) -> Result<(), String> {
    let mut setting = Setting::of(seed);
    let is_off: Vec<bool> = switches.iter().map(|name| setting.switch_off(name)).collect();
    let without = format!("seed {seed} without {}", switches.join(", "));
    if !is_off.contains(&true) {
        return Err(format!("{without} is as it was: there is no such switch, or nothing to switch off"));
    }
    let report = run_with(seed, setting, false);
    if let Some(violation) = report.violation {
        return Err(format!("{without}: VIOLATION {violation}"));
    }
    match report.coverage.count(mark) {
        0 => Ok(()),
        count => Err(format!("{without} has met {count} times: {}", mark.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;

    /// Faults that come about without a switch of their own: who has stopped is killed and started again, with power or without.
    const UNSWITCHED: &[Mark] = &[Mark::Killed, Mark::PowerLost];
    /// What has a switch and counts for no kind of fault: a way that others strike in.
    const WAYS: &[Mark] = &[Mark::KeysWrapped, Mark::WindowUsedUp, Mark::KilledInWork, Mark::KilledInUpdate];

    #[test]
    fn each_fault_has_a_switch_or_is_named_as_one_without() {
        let is_listed = |mark: &Mark| SWITCHES.iter().any(|(of, _)| of == mark);
        for mark in Mark::ALL.iter().filter(|mark| mark.is_fault()) {
            assert_ne!(is_listed(mark), UNSWITCHED.contains(mark), "{}", mark.name());
        }
        assert!(SWITCHES.iter().all(|(mark, _)| mark.is_fault() != WAYS.contains(mark)));
    }

    #[test]
    fn a_fault_that_is_still_there_with_a_switch_off_is_told() {
        let met = |report: &Report| report.coverage.count(Mark::Paused) > 0;
        let seed = (1..60).map(|seed| run(seed, false)).find(met).expect("members stand still").seed;
        assert_eq!(is_gone(Mark::Paused, &["Pause", "PausePrimary", "Hands"], seed), Ok(()));
        let told = |switches: &[&str]| is_gone(Mark::Paused, switches, seed).unwrap_err();
        assert!(told(&["stream.cut"]).ends_with("times: paused"), "{}", told(&["stream.cut"]));
        assert!(told(&["Pauses"]).contains("no such switch"), "{}", told(&["Pauses"]));
    }

    #[test]
    fn of_a_fault_the_seed_is_taken_that_meets_it_most_often_for_what_happens_there() {
        let mut densest = Densest::default();
        let mut taken = |seed, of_million| {
            densest.met(Mark::Paused, Met { seed, of_million });
            densest.0[&Mark::Paused].seed
        };
        assert_eq!([taken(5, 10), taken(6, 9), taken(9, 10), taken(3, 10), taken(8, 11)], [5, 5, 5, 3, 8]);
        assert!(!densest.0.contains_key(&Mark::Cut));
    }
}
