//! Looking at a folder: what is amiss, and what is to be done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use windlass_log::{Geometry, Lsn, SegmentHeaderError, Superblock};

use super::fill::Fill;
use super::survey::{Mended, Survey, survey};
use super::{Finding, RepairError, Repaired, quarantine};
use crate::disk::{Access, Disk};
use crate::examine::{Identified, holder_of, identify_forgiving};
use crate::folder;
use crate::image::{Forgiving, Unreadable};
use crate::names;
use crate::newer;
use crate::open::BadHeader;
use crate::open_damaged::is_mendable;
use crate::past;

/// What is to be done beside what the report says.
pub(super) struct Plan {
    /// The superblock that the log needs, where the one that is there is older: all else is planned under it.
    pub(super) accepted: Option<Superblock>,
    /// Where the clean mark is that the log has gone on behind, and where that ends: why it is older then.
    pub(super) past: Option<(Lsn, Lsn)>,
    pub(super) copies: Vec<usize>,
    headers: BTreeSet<u64>,
    /// By the LSN in their names, with their lengths.
    misfits: BTreeMap<Lsn, u64>,
    pub(super) unreadable: Vec<Range<Lsn>>,
    pub(super) survey: Survey,
}

pub(super) fn look<D: Disk>(disk: &D, quarantine: &Option<D>) -> Result<(Repaired, Plan), RepairError> {
    let Identified { now, geometry, copies, live, .. } = identify_forgiving(disk, Access::Read)?;
    let listing = folder::list(disk)?;
    let older = newer::accepted(disk, &now, geometry, &listing)??;
    let past = if older.is_none() { past::accepted(disk, &now, geometry, &listing)? } else { None };
    let file_at = |base: Lsn| disk.path().join(names::segment_at(base));
    let mut findings = Vec::new();
    if let Some(quarantine) = quarantine
        && quarantine::begun(quarantine, now.log_id)?.is_some_and(|begun| begun.fill.is_for(&now))
    {
        findings.push(Finding::Interrupted);
    }
    let copies = copies.to_mend(&now);
    findings.extend(copies.iter().map(|copy| Finding::SuperblockCopy { copy: *copy }));
    findings.extend(older.as_ref().map(|accepted| {
        let lsn = accepted.history.entries().iter().find(|entry| entry.epoch > now.promised);
        let lsn = lsn.expect("what is accepted is above the promise").start;
        Finding::SuperblockOlder { promised: now.promised, lsn, newest: accepted.promised }
    }));
    findings.extend(past.as_ref().map(|past| {
        let past::Accepted { clean, first, tail, .. } = *past;
        Finding::PastCleanMark { clean, lsn: first, tail }
    }));
    let ends = past.as_ref().map(|past| (past.clean, past.tail));
    let accepted = older.or(past.map(|past| past.superblock));
    let now = accepted.clone().unwrap_or(now);
    let live = live.flushed(&now.history);
    findings.extend(listing.no_files.iter().map(|base| Finding::NoFile { file: file_at(*base) }));
    let mut image = Mended::new(disk, geometry, now.log_id, &listing);
    let mut misfits = BTreeMap::new();
    for (base, len_bytes) in &listing.segments {
        let (number, file) = (geometry.segment_of(*base), file_at(*base));
        let is_segment = geometry.offset_of(*base) == 0;
        let header = if is_segment { image.header(number)? } else { Ok(()) };
        match header {
            Err(cause) if !is_mendable(&cause) => {
                findings.push(Finding::Foreign { file, cause });
                image.forgiving.absent.insert(number);
                continue;
            }
            Ok(()) | Err(_) => {}
        }
        if !is_segment || *len_bytes != geometry.segment_bytes() {
            misfits.insert(*base, *len_bytes);
            findings.push(Finding::Misfit { file: file.clone(), len_bytes: *len_bytes, is_segment });
        }
        let Err(cause) = header else { continue };
        // Ahead of the log, where a header may not have got there: nothing was written behind it then.
        let is_ahead = matches!(cause, BadHeader::Unreadable(SegmentHeaderError::Blank))
            && geometry.first_record(number) >= now.persisted.max(live)
            && image.is_readable(*base);
        if !is_ahead || image.has_record(&now, number)? {
            findings.push(Finding::SegmentHeader { file, cause });
            image.headers.insert(number);
        }
    }
    let survey = survey(&mut image, &now, live, geometry, disk.path())?;
    let Mended { forgiving: Forgiving { unreadable, .. }, headers, .. } = image;
    if unreadable.has_more() {
        return Err(RepairError::TooMuch { ranges: Unreadable::LISTED_MAX });
    }
    // Ranges may join over the end of a file.
    let unreadable = unreadable.ranges().iter().flat_map(|range| by_segment(geometry, range));
    let unreadable: Vec<Range<Lsn>> = unreadable.collect();
    findings.extend(unreadable.iter().map(|range| {
        let number = geometry.segment_of(range.start);
        let base = geometry.base(number);
        Finding::Unreadable { file: file_at(base), offsets: range.start.0 - base.0..range.end.0 - base.0 }
    }));
    findings.extend(survey.torn.as_ref().map(|stop| Finding::Torn { lsn: stop.lsn, reason: stop.reason }));
    findings.extend(survey.damage.iter().cloned().map(Finding::Damaged));
    let left = survey.damage.iter().map(|damage| damage.start..damage.end).collect();
    let repaired = Repaired {
        findings,
        kept: survey.kept,
        trimmed: now.trimmed,
        tail: survey.tail,
        holder: holder_of(&now),
        torn: survey.torn.as_ref().map(|stop| stop.lsn),
        given_up: Vec::new(),
        left,
        quarantined: Vec::new(),
    };
    Ok((repaired, Plan { accepted, past: ends, copies, headers, misfits, unreadable, survey }))
}

/// The parts of a range in one segment each.
fn by_segment(geometry: Geometry, range: &Range<Lsn>) -> Vec<Range<Lsn>> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let end = range.end.min(geometry.base(geometry.segment_of(at) + 1));
        parts.push(at..end);
        at = end;
    }
    parts
}

impl Plan {
    fn misfit_segments(&self, now: &Superblock) -> BTreeSet<u64> {
        self.misfits.keys().map(|base| base.0 / now.segment_bytes).collect()
    }

    /// The orders for what is found.
    pub(super) fn fill(&self, now: &Superblock, is_member: bool, gives_up: bool) -> Fill {
        let mut fill = Fill::new(now.log_id, now.generation);
        let is_left = !self.survey.damage.is_empty() && !gives_up;
        // What the files lack reads as zeros then: of a log that nobody repairs, that would pass for its end.
        if is_member || !is_left {
            fill.misfits = self.misfits.iter().map(|(base, len)| (*base, *len)).collect();
            fill.unreadable.clone_from(&self.unreadable);
        }
        let has_its_length = |number: &&u64| {
            fill.misfits.len() == self.misfits.len() || !self.misfit_segments(now).contains(number)
        };
        fill.headers = self.headers.iter().filter(has_its_length).copied().collect();
        if gives_up {
            let interior = self.survey.damage.iter().filter(|damage| damage.is_whole_behind);
            fill.ranges = interior.map(|damage| damage.start..damage.end).collect();
            fill.cut.clone_from(&self.survey.cut);
        }
        fill.torn = self.survey.torn.as_ref().map(|stop| stop.lsn).filter(|_| !is_left);
        fill
    }
}
