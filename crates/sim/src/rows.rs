//! Rows of recovery's decision table (DESIGN.md section 6.1) that openings here come to, each a mark of the coverage. What this world does not bring about is
//! reached elsewhere: by the crash sweep, and all rows from files of a real folder.

use windlass_log::{Onward, Row};
use windlass_store::Opened;

use crate::coverage::Mark;

/// Marks both rows of a log that was opened.
pub(crate) fn opened(opened: &Opened, mut mark: impl FnMut(Mark)) {
    found(opened.verdict.row).into_iter().chain(went_on(opened.onward)).for_each(&mut mark);
}

/// The mark of what an opening found.
fn found(row: Row) -> Option<Mark> {
    match row {
        Row::SuperblockOlder => Some(Mark::OlderSuperblock),
        Row::NeverLed => Some(Mark::FoundNeverLed),
        Row::RecordDamaged => Some(Mark::FoundRecordDamaged),
        Row::CleanEnd => Some(Mark::FoundCleanEnd),
        Row::EndBlank => Some(Mark::FoundEndBlank),
        Row::EndLeftover => Some(Mark::FoundEndLeftover),
        Row::TornTail => Some(Mark::FoundTornTail),
        Row::HoleBehind => Some(Mark::FoundHoleBehind),
        Row::EndMissed => Some(Mark::FoundEndMissed),
        // No file is lost, put elsewhere, cut short or of another log or version, and no header of a segment rots.
        Row::NoLog
        | Row::SuperblockMissing
        | Row::SuperblockForeign
        | Row::OtherLog
        | Row::FolderCopied
        | Row::SegmentMisfit
        | Row::OlderSegmentMissing
        | Row::OlderSegmentDamaged
        | Row::OlderSegmentForeign
        | Row::ForeignSegment
        | Row::LaterVersion
        | Row::SegmentLost => None,
        // One copy of a superblock is damaged at most, and none is put back in place but in copies of a disk.
        Row::SuperblockDamaged | Row::HistoryGap | Row::HistoryLost | Row::PastCleanMark => None,
        // Rot strikes a record, and what follows it lies behind damage.
        Row::ChainBroken => None,
    }
}

/// The mark of how a log went on.
fn went_on(onward: Onward) -> Option<Mark> {
    match onward {
        Onward::Closed => Some(Mark::WentOnClosed),
        Onward::Crashed => Some(Mark::WentOnCrashed),
        Onward::MemberClosed => Some(Mark::WentOnMemberClosed),
        Onward::MemberCrashed => Some(Mark::WentOnMemberCrashed),
        // A lone log is not trimmed here: its last record tells the chain. No folder is copied.
        Onward::ClosedUnchained | Onward::Copied | Onward::MemberCopied => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark says which row it is by the row's label.
    #[test]
    fn a_mark_of_the_recovery_table_names_its_row() {
        let rows = Row::all().into_iter().filter_map(|row| Some((row.label(), found(row)?)));
        let onward = Onward::all().into_iter().filter_map(|row| Some((row.label(), went_on(row)?)));
        for (label, mark) in rows.chain(onward) {
            let is_named = mark.name().starts_with(&format!("recovery: {label}, "));
            assert!(is_named || mark == Mark::OlderSuperblock, "{}: {label}", mark.name());
        }
    }
}
