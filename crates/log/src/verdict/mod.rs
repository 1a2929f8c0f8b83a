//! Recovery's verdict over an image: one labelled decision table.
//!
//! The scan says where the whole records end and what is there instead. Whether that is the log's end, a torn tail or damage, the durable
//! watermark decides: nothing below it can have been torn, for it was flushed. Three things speak for what was flushed:
//!
//! * the persisted mark of the superblock;
//! * its clean mark, after a clean close: then everything is below it;
//! * the durable lag in the header of a whole record behind the stop, if this member wrote that record.
//!
//! The table ([`Row`]): the first four rows are about what is found, whatever the marks; the others about found and marks. Exactly one row matches
//! any facts; that is asserted.
//!
//! | row | found at the stop | flushed | clean mark | whole records behind | class |
//! |---|---|---|---|---|---|
//! | `ForeignSegment` | a whole header of another log, place or version | any | any | any | foreign |
//! | `LaterVersion` | a whole record of an unknown kind | any | any | any | foreign |
//! | `ChainBroken` | a segment-start record that follows other records, or none where one must be | any | any | any | damage |
//! | `HistoryGap` | an LSN that the history gives no epoch, though it has some | any | any | any | damage |
//! | `NeverLed` | no epoch at all | any | any | any | end |
//! | `RecordDamaged` | blank, leftover or torn | yes | any | any | damage |
//! | `SegmentLost` | no segment, or none with a header | yes | any | any | damage |
//! | `PastCleanMark` | anything else | no | set, and records beyond it | any | damage |
//! | `CleanEnd` | anything else | no | here | no | end |
//! | `EndBlank` | blank, or no segment | no | none | no | end |
//! | `EndLeftover` | an earlier life, or another epoch | no | none | no | end |
//! | `TornTail` | a record begun, or a damaged segment header | no | none | no | torn |
//! | `HoleBehind` | anything else | no | none | yes | torn |
//!
//! A verdict is a pure function of the image and the marks: any number of crashes while it is acted upon end in the same state as none (I-7). It changes
//! nothing. DESIGN.md section 6.

#[cfg(all(test, not(loom)))]
mod tests;

use crate::image::{Image, Shape};
use crate::record::HeaderError;
use crate::scan::{Record, Scan, ScanError, Step, Stop, StopReason};
use crate::segment::SegmentHeaderError;
use crate::superblock::LSN_MAX;
use crate::{Chain, Epoch, Lsn, MemberId, RECORD_ALIGN};

/// What the superblock says about what was flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Everything below is released; its bytes need not even be whole.
    pub trimmed: Lsn,
    /// Everything below was flushed.
    pub persisted: Lsn,
    /// Where the log ended when it was closed cleanly.
    pub clean: Option<Lsn>,
    /// This member: the lag in a record speaks only for the member that wrote it.
    pub member: MemberId,
}

/// How much of the log to read for a verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All from the trim point: what `verify` and strict opening do.
    Whole,
    /// From the segment of the persisted mark on: what opening needs. Damage below is found by who reads it.
    FromMark,
}

/// How to open a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OpenMode {
    /// Any damage and any torn tail refuses.
    Strict,
    /// A torn tail is cut; damage refuses.
    #[default]
    Tail,
    /// Read-only: whatever is whole, holes marked.
    Salvage,
}

/// A row of the decision table; see the module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Row {
    /// A segment's file is whole and belongs elsewhere.
    ForeignSegment,
    /// A whole record that this version does not know.
    LaterVersion,
    /// The records before a segment are not the ones that it followed.
    ChainBroken,
    /// The superblock's history does not cover the log.
    HistoryGap,
    /// The log has no epoch yet, hence no records.
    NeverLed,
    /// A record that was flushed is not whole.
    RecordDamaged,
    /// A segment that held flushed records is gone or has lost its header.
    SegmentLost,
    /// The log goes on behind the clean mark, which is cleared before the first append.
    PastCleanMark,
    /// The log ends at its clean mark.
    CleanEnd,
    /// The log ends in memory that nobody wrote.
    EndBlank,
    /// The log ends in what an earlier life of the file, or a suffix that was cut, left there.
    EndLeftover,
    /// The log ends in a record that was being written.
    TornTail,
    /// Records behind a hole, none of them known to be flushed: pages reached the medium out of order.
    HoleBehind,
}

/// What a row means for opening.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// The log simply ends.
    End,
    /// Something unflushed was lost; nothing that was promised.
    Torn,
    /// Something that was flushed is lost.
    Damage,
    /// Not for this library, or not for this log.
    Foreign,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Open at the tail.
    Open,
    /// Open at the tail, having cut what is behind it: durably, and before the first append (failure kind 4).
    Cut,
    /// Don't open. Nothing is changed.
    Refuse,
    /// Open read-only; whole records behind the stop are found by [`Scan::resync`].
    ReadOnly,
}

/// What recovery found. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The row that matched.
    pub row: Row,
    /// Where the scan began: a segment's first record, or the trim point if what is before it in its segment is not whole.
    pub from: Lsn,
    /// Where the whole records end, and what is there.
    pub stop: Stop,
    /// Everything below was flushed, by what is known.
    pub flushed: Lsn,
    /// The chain at the stop; `None` if there was no segment-start record or epoch start to begin with. Then a new epoch has to start there.
    pub chain: Option<Chain>,
    /// The epoch of the last whole record; `None` if there is none.
    pub last_epoch: Option<Epoch>,
    /// Whole records from `from` to the stop, of every kind.
    pub records: u64,
    /// The first whole record behind the stop, if one was looked for and found.
    pub behind: Option<Lsn>,
}

impl Verdict {
    /// The log's valid tail.
    #[must_use]
    pub fn tail(&self) -> Lsn {
        self.stop.lsn
    }

    /// What the row means.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.row {
            Row::NeverLed | Row::CleanEnd | Row::EndBlank | Row::EndLeftover => Class::End,
            Row::TornTail | Row::HoleBehind => Class::Torn,
            Row::ChainBroken
            | Row::HistoryGap
            | Row::RecordDamaged
            | Row::SegmentLost
            | Row::PastCleanMark => Class::Damage,
            Row::ForeignSegment | Row::LaterVersion => Class::Foreign,
        }
    }

    /// What to do in this mode.
    #[must_use]
    pub fn action(&self, mode: OpenMode) -> Action {
        match (mode, self.class()) {
            (OpenMode::Salvage, _) => Action::ReadOnly,
            (OpenMode::Strict | OpenMode::Tail, Class::End) => Action::Open,
            (OpenMode::Tail, Class::Torn) => Action::Cut,
            (OpenMode::Strict, Class::Torn)
            | (OpenMode::Strict | OpenMode::Tail, Class::Damage | Class::Foreign) => Action::Refuse,
        }
    }
}

/// What the scan found at its stop, by what it can mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Blank,
    Leftover,
    Torn,
    NoSegment,
    BadSegmentHeader,
    ForeignSegment,
    LaterRecord,
    WrongChain,
    NoEpoch,
    NoEpochs,
}

/// What the table is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Facts {
    found: Found,
    flushed: bool,
    clean_set: bool,
    past_clean: bool,
    behind: bool,
}

impl Facts {
    fn is_record(&self) -> bool {
        matches!(self.found, Found::Blank | Found::Leftover | Found::Torn)
    }

    fn is_segment(&self) -> bool {
        matches!(self.found, Found::NoSegment | Found::BadSegmentHeader)
    }

    /// Undecided by what was found or flushed alone.
    fn is_open(&self) -> bool {
        (self.is_record() || self.is_segment()) && !self.flushed
    }

    fn is_unmarked(&self) -> bool {
        self.is_open() && !self.clean_set
    }

    fn beyond_clean(&self) -> bool {
        self.past_clean || self.behind
    }
}

type Rule = (Row, fn(&Facts) -> bool);

/// The decision table, in the order of the module's picture.
const TABLE: [Rule; 13] = [
    (Row::ForeignSegment, |f| f.found == Found::ForeignSegment),
    (Row::LaterVersion, |f| f.found == Found::LaterRecord),
    (Row::ChainBroken, |f| f.found == Found::WrongChain),
    (Row::HistoryGap, |f| f.found == Found::NoEpoch),
    (Row::NeverLed, |f| f.found == Found::NoEpochs),
    (Row::RecordDamaged, |f| f.is_record() && f.flushed),
    (Row::SegmentLost, |f| f.is_segment() && f.flushed),
    (Row::PastCleanMark, |f| f.is_open() && f.clean_set && f.beyond_clean()),
    (Row::CleanEnd, |f| f.is_open() && f.clean_set && !f.beyond_clean()),
    (Row::EndBlank, |f| f.is_unmarked() && !f.behind && matches!(f.found, Found::Blank | Found::NoSegment)),
    (Row::EndLeftover, |f| f.is_unmarked() && !f.behind && f.found == Found::Leftover),
    (Row::TornTail, |f| {
        f.is_unmarked() && !f.behind && matches!(f.found, Found::Torn | Found::BadSegmentHeader)
    }),
    (Row::HoleBehind, |f| f.is_unmarked() && f.behind),
];

impl Facts {
    /// The one row that matches.
    ///
    /// # Panics
    ///
    /// If none does, or more than one: the table has a defect.
    fn row(&self) -> Row {
        let mut rows = TABLE.iter().filter(|(_, matches)| matches(self)).map(|(row, _)| *row);
        let row = rows.next();
        assert!(row.is_some() && rows.next().is_none(), "exactly one row matches {self:?}");
        row.expect("just asserted")
    }
}

/// Judges the log in `image`. `visit` sees every whole record from the start of the scan on, records below the trim point included; payloads longer than 64 KiB are
/// checked and not shown.
///
/// # Errors
///
/// [`ScanError`]: the image could not be read. That is never taken for an end or for damage (failure kind 7).
pub fn judge<I: Image>(
    image: &mut I,
    shape: &Shape,
    marks: &Marks,
    extent: Extent,
    mut visit: impl FnMut(&Record<'_>),
) -> Result<Verdict, ScanError<I::Error>> {
    let geometry = shape.geometry;
    let normal = |lsn: Lsn| geometry.normalize(Lsn(lsn.0.min(LSN_MAX)));
    let trimmed = normal(marks.trimmed);
    let goal = match extent {
        Extent::Whole => trimmed,
        Extent::FromMark => trimmed.max(normal(marks.persisted)),
    };
    // A mark at a segment's first record knows nothing of the chain: the segment before it does.
    let before = u64::from(geometry.is_first_record(goal) && goal > trimmed);
    let mut from = geometry.first_record(geometry.segment_of(goal) - before);
    let mut scan = Scan::new(shape.clone(), from, None).flat();
    let mut records = 0;
    let mut run = |scan: &mut Scan, image: &mut I| loop {
        match scan.step(image)? {
            Step::Record(record) => {
                records += 1;
                visit(&record);
            }
            Step::Stop(stop) => return Ok(stop),
        }
    };
    let mut stop = run(&mut scan, image)?;
    if stop.lsn < trimmed {
        // Released bytes need not be whole: a trim may pass what was flushed.
        from = trimmed;
        scan.seek(trimmed);
        stop = run(&mut scan, image)?;
    }
    let chain = scan.chain();
    let marked = marks.persisted.max(marks.clean.unwrap_or_default());
    let behind =
        if stop.lsn < marked { Behind::default() } else { look_behind(&mut scan, image, stop, marks)? };
    let flushed = marked.max(behind.flushed);
    let facts = Facts {
        found: found(&stop.reason, shape),
        flushed: stop.lsn < flushed,
        clean_set: marks.clean.is_some(),
        past_clean: marks.clean.is_some_and(|clean| stop.lsn > clean),
        behind: behind.first.is_some(),
    };
    let mut history = shape.history.clone();
    history.cut(stop.lsn);
    let last_epoch = history.last().map(|last| last.epoch).filter(|_| stop.lsn > trimmed);
    Ok(Verdict { row: facts.row(), from, stop, flushed, chain, last_epoch, records, behind: behind.first })
}

/// What whole records behind a stop say.
#[derive(Clone, Copy, Default)]
struct Behind {
    first: Option<Lsn>,
    /// Their writer, this member, had flushed everything below.
    flushed: Lsn,
}

/// Looks for whole records behind the stop: in its segment, and on through every segment whose first record is whole. Ends at the first that proves damage.
fn look_behind<I: Image>(
    scan: &mut Scan,
    image: &mut I,
    stop: Stop,
    marks: &Marks,
) -> Result<Behind, ScanError<I::Error>> {
    let geometry = scan.shape().geometry;
    let mut behind = Behind::default();
    let mut segment = geometry.segment_of(stop.lsn);
    scan.seek(geometry.normalize(Lsn(stop.lsn.0 + RECORD_ALIGN)));
    loop {
        while let Some(first) = scan.resync(image, segment + 1)? {
            behind.first = behind.first.or(Some(first));
            // Looking for the next one is dear, and most often it follows at once.
            while geometry.segment_of(scan.at()) == segment
                && let Step::Record(Record { header, .. }) = scan.step(image)?
            {
                let own = header.epoch.member() == marks.member;
                let persisted = header.lag.persisted_below(header.lsn).filter(|_| own);
                behind.flushed = behind.flushed.max(persisted.unwrap_or_default());
                if behind.flushed > stop.lsn {
                    return Ok(behind);
                }
            }
            if scan.at() == first {
                break;
            }
        }
        segment += 1;
        scan.seek(geometry.first_record(segment));
        if !matches!(scan.step(image)?, Step::Record(_)) {
            return Ok(behind);
        }
        scan.seek(geometry.first_record(segment));
    }
}

/// What the stop's reason can mean.
fn found(reason: &StopReason, shape: &Shape) -> Found {
    match reason {
        StopReason::NoEpoch if shape.history.entries().is_empty() => Found::NoEpochs,
        StopReason::NoEpoch => Found::NoEpoch,
        StopReason::Blank | StopReason::Reached => Found::Blank,
        StopReason::Header(HeaderError::NoRecord { .. } | HeaderError::OtherEpoch { .. })
        | StopReason::BeyondEpoch { .. } => Found::Leftover,
        StopReason::Header(HeaderError::Unknown { .. }) => Found::LaterRecord,
        StopReason::Header(HeaderError::Checksum { .. } | HeaderError::Length { .. })
        | StopReason::Payload { .. }
        | StopReason::Filler
        | StopReason::BeyondEnd { .. } => Found::Torn,
        StopReason::SegmentMissing { .. }
        | StopReason::SegmentHeader { error: SegmentHeaderError::Blank, .. } => Found::NoSegment,
        StopReason::SegmentShort { .. } => Found::BadSegmentHeader,
        StopReason::SegmentHeader { error, .. } => match error {
            SegmentHeaderError::ByteOrder
            | SegmentHeaderError::Version { .. }
            | SegmentHeaderError::Features { .. } => Found::ForeignSegment,
            SegmentHeaderError::Blank
            | SegmentHeaderError::Magic { .. }
            | SegmentHeaderError::Short { .. }
            | SegmentHeaderError::Checksum { .. } => Found::BadSegmentHeader,
        },
        StopReason::SegmentForeign { .. } => Found::ForeignSegment,
        StopReason::Misplaced { .. } | StopReason::ChainBroken { .. } => Found::WrongChain,
    }
}
