//! Recovery's verdict over an image: the facts, for the decision table.
//!
//! The scan says where the whole records end and what is there instead. Whether that is the log's end, a torn tail or damage, the durable
//! watermark decides: nothing below it can have been torn, for it was flushed. These speak for what was flushed:
//!
//! * the persisted mark of the superblock, which trails;
//! * the [live mark](crate::LiveMark), which follows each flush while a process lives;
//! * its clean mark, after a clean close: then everything is below it;
//! * the durable lag in the header of a whole record behind the stop, if this member wrote that record;
//! * a whole record in a segment whose header is damaged or blank: the header was flushed before the first record was written.
//!
//! From these facts [`Facts::row`] decides: [the decision table](crate::Row) is in one place.
//!
//! A verdict is a pure function of the image and the marks: any number of crashes while it is acted upon end in the same state as none (I-7). It changes
//! nothing. DESIGN.md section 6.

#[cfg(all(test, not(loom)))]
mod tests;

use crate::decision::{Action, Class, CleanMark, Facts, Found, Holder, OpenMode, Row};
use crate::image::{Image, Shape};
use crate::record::HeaderError;
use crate::scan::{Record, Scan, ScanError, Step, Stop, StopReason};
use crate::segment::SegmentHeaderError;
use crate::superblock::LSN_MAX;
use crate::{Chain, Epoch, Lsn, MemberId, RECORD_ALIGN};

/// What superblock and live mark say about what was flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Everything below is released; its bytes need not even be whole.
    pub trimmed: Lsn,
    /// Everything below was flushed. The scan of an opening begins in its segment.
    pub persisted: Lsn,
    /// Everything below was flushed, by the live mark; 0 if that says nothing.
    pub live: Lsn,
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

/// What recovery found. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What the decision table was asked about: of the log's bytes and marks alone, for a lone log in its own place.
    pub facts: Facts,
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
        self.row.class()
    }

    /// What to do in this mode.
    #[must_use]
    pub fn action(&self, mode: OpenMode, holder: Holder) -> Action {
        self.row.action(mode, holder)
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
    let marked = marks.persisted.max(marks.live).max(marks.clean.unwrap_or_default());
    let behind =
        if stop.lsn < marked { Behind::default() } else { look_behind(&mut scan, image, stop, marks)? };
    let flushed = marked.max(behind.flushed);
    let facts = Facts {
        found: found(&stop.reason, shape),
        flushed: stop.lsn < flushed,
        clean: match marks.clean {
            None => CleanMark::Absent,
            Some(clean) if stop.lsn > clean => CleanMark::BelowStop,
            Some(_) => CleanMark::AtStop,
        },
        behind: behind.first.is_some(),
        ..Facts::SOUND
    };
    let mut history = shape.history.clone();
    history.cut(stop.lsn);
    let last_epoch = history.last().map(|last| last.epoch).filter(|_| stop.lsn > trimmed);
    Ok(Verdict {
        facts,
        row: facts.row(),
        from,
        stop,
        flushed,
        chain,
        last_epoch,
        records,
        behind: behind.first,
    })
}

/// What whole records behind a stop say.
#[derive(Clone, Copy, Default)]
struct Behind {
    first: Option<Lsn>,
    /// Their writer, this member, had flushed everything below.
    flushed: Lsn,
}

/// Looks for whole records behind the stop: in its segment, also where that has lost its header, and on through every segment whose first record is whole. Ends at the
/// first that proves damage.
fn look_behind<I: Image>(
    scan: &mut Scan,
    image: &mut I,
    stop: Stop,
    marks: &Marks,
) -> Result<Behind, ScanError<I::Error>> {
    let geometry = scan.shape().geometry;
    let mut behind = Behind::default();
    let mut segment = geometry.segment_of(stop.lsn);
    let is_headless = matches!(
        (&stop.reason, found(&stop.reason, scan.shape())),
        (StopReason::SegmentHeader { .. }, Found::NoSegment | Found::BadSegmentHeader)
    );
    let mut headless;
    let scan = if is_headless {
        headless = Scan::new(scan.shape().clone(), stop.lsn, None).flat().without_headers();
        &mut headless
    } else {
        scan.seek(geometry.normalize(Lsn(stop.lsn.0 + RECORD_ALIGN)));
        scan
    };
    loop {
        while let Some(first) = scan.resync(image, segment + 1)? {
            behind.first = behind.first.or(Some(first));
            if is_headless && segment == geometry.segment_of(stop.lsn) {
                // At least this far: it is there.
                behind.flushed = Lsn(first.0 + RECORD_ALIGN);
            }
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
        | StopReason::BeyondEnd { .. } => Found::Begun,
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
