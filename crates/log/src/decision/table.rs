//! The table itself.

use alloc::string::String;

use super::{CleanMark, Facts, Found, Holder, Older, Place, Row, Superblocks};

/// One condition of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    /// The superblock is so.
    Superblocks(Superblocks),
    /// The folder is, or is not, a copy that must not be opened.
    CopyRefused(bool),
    /// There is, or is no, segment file that is none.
    Misfit(bool),
    /// There is, or is no, whole record of an epoch above the promise.
    Newer(bool),
    /// The segments that are not read are so.
    Older(Older),
    /// The superblock is usable and not older than the log, the folder is no copy that must not be opened, the files fit and older segments are whole.
    Log,
    /// One of these stands at the stop.
    Found(&'static [Found]),
    /// The stop is, or is not, below what was flushed.
    Flushed(bool),
    /// There is, or is no, clean mark.
    Marked(bool),
    /// There are, or are no, whole records beyond a clean mark.
    BeyondMark(bool),
    /// The log is, or is not, a member's that ends below what it may have acknowledged.
    Missed(bool),
    /// There are, or are no, whole records behind the stop.
    Behind(bool),
}

/// A row and when it matches: all conditions hold.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) row: Row,
    pub(super) when: &'static [Condition],
}

const fn rule(row: Row, when: &'static [Condition]) -> Rule {
    Rule { row, when }
}

const RECORD: Condition = Condition::Found(&[Found::Blank, Found::Leftover, Found::Begun]);
const SEGMENT: Condition = Condition::Found(&[Found::NoSegment, Found::BadSegmentHeader]);
const ANY: Condition = Condition::Found(&[
    Found::Blank,
    Found::Leftover,
    Found::Begun,
    Found::NoSegment,
    Found::BadSegmentHeader,
]);

const PAST: Condition = Condition::Found(&[
    Found::Blank,
    Found::Leftover,
    Found::Begun,
    Found::NoSegment,
    Found::BadSegmentHeader,
    Found::WrongChain,
]);

/// The decision table. A row's label is its number here, from 1.
pub(super) const TABLE: [Rule; 26] = {
    use Condition::{
        Behind, BeyondMark, CopyRefused, Flushed, Log, Marked, Misfit, Missed, Newer, Older as Old,
    };
    use Condition::{Found as Stop, Superblocks as Super};
    [
        rule(Row::NoLog, &[Super(Superblocks::Absent)]),
        rule(Row::SuperblockMissing, &[Super(Superblocks::AbsentBesideSegments)]),
        rule(Row::SuperblockDamaged, &[Super(Superblocks::Damaged)]),
        rule(Row::SuperblockForeign, &[Super(Superblocks::Foreign)]),
        rule(Row::OtherLog, &[Super(Superblocks::OtherLog)]),
        rule(Row::FolderCopied, &[Super(Superblocks::Usable), CopyRefused(true)]),
        rule(Row::SegmentMisfit, &[Super(Superblocks::Usable), CopyRefused(false), Misfit(true)]),
        rule(
            Row::SuperblockOlder,
            &[Super(Superblocks::Usable), CopyRefused(false), Misfit(false), Newer(true)],
        ),
        rule(
            Row::OlderSegmentMissing,
            &[
                Super(Superblocks::Usable),
                CopyRefused(false),
                Misfit(false),
                Newer(false),
                Old(Older::Missing),
            ],
        ),
        rule(
            Row::OlderSegmentDamaged,
            &[
                Super(Superblocks::Usable),
                CopyRefused(false),
                Misfit(false),
                Newer(false),
                Old(Older::BadHeader),
            ],
        ),
        rule(
            Row::OlderSegmentForeign,
            &[
                Super(Superblocks::Usable),
                CopyRefused(false),
                Misfit(false),
                Newer(false),
                Old(Older::Foreign),
            ],
        ),
        rule(Row::ForeignSegment, &[Log, Stop(&[Found::ForeignSegment])]),
        rule(Row::LaterVersion, &[Log, Stop(&[Found::LaterRecord])]),
        rule(Row::ChainBroken, &[Log, Stop(&[Found::WrongChain]), BeyondMark(false)]),
        rule(Row::HistoryGap, &[Log, Stop(&[Found::NoEpoch])]),
        rule(Row::HistoryLost, &[Log, Stop(&[Found::NoEpochs]), Flushed(true)]),
        rule(Row::NeverLed, &[Log, Stop(&[Found::NoEpochs]), Flushed(false)]),
        rule(Row::RecordDamaged, &[Log, RECORD, Flushed(true), BeyondMark(false)]),
        rule(Row::SegmentLost, &[Log, SEGMENT, Flushed(true), BeyondMark(false)]),
        rule(Row::PastCleanMark, &[Log, PAST, BeyondMark(true)]),
        rule(Row::CleanEnd, &[Log, ANY, Flushed(false), Marked(true), BeyondMark(false), Missed(false)]),
        rule(
            Row::EndBlank,
            &[
                Log,
                Stop(&[Found::Blank, Found::NoSegment]),
                Flushed(false),
                Marked(false),
                Behind(false),
                Missed(false),
            ],
        ),
        rule(
            Row::EndLeftover,
            &[Log, Stop(&[Found::Leftover]), Flushed(false), Marked(false), Behind(false), Missed(false)],
        ),
        rule(
            Row::TornTail,
            &[
                Log,
                Stop(&[Found::Begun, Found::BadSegmentHeader]),
                Flushed(false),
                Marked(false),
                Behind(false),
                Missed(false),
            ],
        ),
        rule(Row::HoleBehind, &[Log, ANY, Flushed(false), Marked(false), Behind(true), Missed(false)]),
        rule(Row::EndMissed, &[Log, ANY, Flushed(false), BeyondMark(false), Missed(true)]),
    ]
};

/// The one row that matches.
pub(super) fn row_of(facts: &Facts) -> Row {
    let mut rows = TABLE.iter().filter(|rule| rule.matches(facts)).map(|rule| rule.row);
    let row = rows.next();
    assert!(row.is_some() && rows.next().is_none(), "exactly one row matches {facts:?}");
    row.expect("just asserted")
}

impl Rule {
    pub(super) fn matches(&self, facts: &Facts) -> bool {
        self.when.iter().all(|condition| condition.holds(facts))
    }
}

impl Condition {
    fn holds(self, facts: &Facts) -> bool {
        let copy_refused = facts.place == Place::Copy && facts.holder == Holder::Member;
        match self {
            Condition::Superblocks(superblocks) => facts.superblocks == superblocks,
            Condition::CopyRefused(refused) => copy_refused == refused,
            Condition::Misfit(misfit) => facts.misfit == misfit,
            Condition::Newer(newer) => facts.newer == newer,
            Condition::Older(older) => facts.older == older,
            Condition::Log => {
                facts.superblocks == Superblocks::Usable
                    && !copy_refused
                    && !facts.misfit
                    && !facts.newer
                    && facts.older == Older::Whole
            }
            Condition::Found(any) => any.contains(&facts.found),
            Condition::Flushed(flushed) => facts.flushed == flushed,
            Condition::Marked(marked) => (facts.clean != CleanMark::Absent) == marked,
            Condition::BeyondMark(beyond) => {
                let is_beyond = match facts.clean {
                    CleanMark::Absent => false,
                    CleanMark::AtStop => facts.behind,
                    CleanMark::BelowStop => true,
                };
                is_beyond == beyond
            }
            Condition::Behind(behind) => facts.behind == behind,
            Condition::Missed(missed) => (facts.holder == Holder::Member && facts.missed) == missed,
        }
    }

    /// The condition in words; none where an earlier step has settled it.
    fn words(self) -> Option<String> {
        let fixed = match self {
            Condition::Superblocks(Superblocks::Absent) => "no superblock and no segment",
            Condition::Superblocks(Superblocks::AbsentBesideSegments) => "no superblock, but segments",
            Condition::Superblocks(Superblocks::Damaged) => "neither copy of the superblock is whole",
            Condition::Superblocks(Superblocks::Foreign) => {
                "a copy of the superblock is whole and another version's, or the copies are two members'"
            }
            Condition::Superblocks(Superblocks::OtherLog) => "not the log asked for",
            Condition::CopyRefused(true) => "a copy of a member's folder, not to be taken over",
            Condition::Misfit(true) => {
                "what has a segment's name is no plain file, or of a wrong length or place"
            }
            Condition::Newer(true) => "a whole record of an epoch above the superblock's promise",
            Condition::Older(Older::Missing) => "a segment that is not read is missing",
            Condition::Older(Older::BadHeader) => "a segment that is not read has a damaged header",
            Condition::Older(Older::Foreign) => {
                "a segment that is not read has a whole header of another log, place, version or byte order"
            }
            Condition::Superblocks(Superblocks::Usable)
            | Condition::CopyRefused(false)
            | Condition::Misfit(false)
            | Condition::Newer(false)
            | Condition::Older(Older::Whole)
            | Condition::Log => return None,
            Condition::Found(any) => return Some(found_words(any)),
            Condition::Flushed(true) => "flushed",
            Condition::Flushed(false) => "not flushed",
            Condition::Marked(true) => "a clean mark",
            Condition::Marked(false) => "no clean mark",
            Condition::BeyondMark(true) => "whole records beyond the clean mark",
            Condition::BeyondMark(false) => "none beyond a clean mark",
            Condition::Missed(true) => "a member that may have acknowledged more",
            Condition::Missed(false) => "nothing missed",
            Condition::Behind(true) => "whole records behind the stop",
            Condition::Behind(false) => "none behind the stop",
        };
        Some(String::from(fixed))
    }
}

fn found_words(any: &[Found]) -> String {
    let mut words = String::new();
    for (index, found) in any.iter().enumerate() {
        if index > 0 {
            words.push_str(if index + 1 == any.len() { " or " } else { ", " });
        }
        words.push_str(match found {
            Found::Blank => "blank",
            Found::Leftover => "a leftover",
            Found::Begun => "a record begun",
            Found::NoSegment => "no segment",
            Found::BadSegmentHeader => "a damaged segment header",
            Found::ForeignSegment => "a whole segment header of another log, place, version or byte order",
            Found::LaterRecord => "a whole record of an unknown kind",
            Found::WrongChain => {
                "a segment-start record that follows other records, or a record where none of its kind may be"
            }
            Found::NoEpoch => "an LSN without an epoch, in a log that has some",
            Found::NoEpochs => "no epoch at all",
        });
    }
    words
}

impl Row {
    /// Every row, in the table's order.
    #[must_use]
    pub fn all() -> [Row; 26] {
        TABLE.map(|rule| rule.row)
    }

    fn number(self) -> usize {
        let place = TABLE.iter().position(|rule| rule.row == self);
        place.expect("each row has its rule") + 1
    }

    /// The row's label in DESIGN.md: `D-1` and so on.
    #[must_use]
    pub fn label(self) -> String {
        alloc::format!("D-{}", self.number())
    }

    /// When the row matches, in words: all of it holds, and nothing that an earlier row of another step says.
    #[must_use]
    pub fn when(self) -> String {
        let mut words = String::new();
        for condition in TABLE[self.number() - 1].when {
            let Some(condition) = condition.words() else { continue };
            if !words.is_empty() {
                words.push_str("; ");
            }
            words.push_str(&condition);
        }
        words
    }
}
