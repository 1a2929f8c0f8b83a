//! What is given up becomes filler: pads in place of the damaged records, so that the log is one again from end to end. The chain behind them, which spoke of what was there,
//! is made to speak of what is there now.

use std::ops::Range;
use std::path::Path;

use windlass_log::{
    Chain, FEATURES_KNOWN, Geometry, HEADER_BYTES, Lag, LogId, Lsn, RECORD_ALIGN, RecordHeader, RecordKind,
    SEGMENT_START_BYTES, Salt, Scan, SegmentHeader, Shape, Step, Superblock,
};

use super::survey::{failed, from_trim};
use super::{RepairError, sync};
use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError};
use crate::folder;
use crate::image::{Files, PAGE_BYTES};

use crate::names;
use crate::prepare::write_header;
use crate::scrub::mend_header;

const PIECE: usize = 64 << 10;
const _: () = assert!(PAGE_BYTES == 4096);

/// What a repair is to do to the log: as it is noted in the quarantine before it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fill {
    /// Whose orders they are.
    pub(super) log_id: LogId,
    /// The superblock's generation when the repair began.
    pub(super) generation: u64,
    /// Files of a wrong length or at no segment's place: the LSNs in their names, and their lengths. The first get a segment's length, the others go.
    pub(super) misfits: Vec<(Lsn, u64)>,
    /// Pages that the medium does not give: written again as zeros.
    pub(super) unreadable: Vec<Range<Lsn>>,
    /// Segments whose headers are written again.
    pub(super) headers: Vec<u64>,
    /// Given up, with whole records behind.
    pub(super) ranges: Vec<Range<Lsn>>,
    /// Given up up to the end: cut where it starts.
    pub(super) cut: Option<Range<Lsn>>,
    /// A torn record's start.
    pub(super) torn: Option<Lsn>,
}

impl Fill {
    /// Orders to do nothing.
    pub(super) fn new(log_id: LogId, generation: u64) -> Fill {
        Fill {
            log_id,
            generation,
            misfits: Vec::new(),
            unreadable: Vec::new(),
            headers: Vec::new(),
            ranges: Vec::new(),
            cut: None,
            torn: None,
        }
    }

    /// Whether these orders still are for the log as it is. Whoever opens it, trims it or cuts it writes a superblock before it changes anything else: then recovery has
    /// decided what the log is, and what lies where the orders point may have been acknowledged since.
    pub(super) fn is_for(&self, now: &Superblock) -> bool {
        let cut = self.cut.as_ref().map(|range| range.start);
        let has_cut = cut.is_some() && now.history.last().map(|last| last.start) == cut;
        self.log_id == now.log_id
            && (now.generation == self.generation
                || (has_cut && now.generation.checked_sub(1) == Some(self.generation)))
    }

    /// What these orders give up.
    pub(super) fn given_up(&self) -> impl Iterator<Item = Range<Lsn>> + '_ {
        self.ranges.iter().chain(&self.cut).cloned()
    }

    /// Whether a repair of this log can have given such orders: what they name lies in the log, at places where records are.
    pub(super) fn fits<D: Disk>(
        &self,
        disk: &D,
        now: &Superblock,
        geometry: Geometry,
    ) -> Result<bool, DiskError> {
        let segments = folder::list(disk)?.segments;
        let is_place = |lsn: Lsn| {
            lsn >= now.trimmed
                && lsn.0 < u64::MAX - 2 * geometry.segment_bytes()
                && lsn.0.is_multiple_of(RECORD_ALIGN)
                && geometry.normalize(lsn) == lsn
        };
        // A whole record was found at the end of each range.
        let is_range = |range: &Range<Lsn>| {
            range.start < range.end
                && is_place(range.start)
                && is_place(range.end)
                && now.history.epoch_at(range.start).is_some()
                && segments.contains_key(&geometry.base(geometry.segment_of(range.end)))
        };
        let is_cut = |range: &Range<Lsn>| range.start < range.end && is_place(range.start);
        let is_pages = |range: &Range<Lsn>| {
            range.start < range.end
                && range.start.0.is_multiple_of(PAGE_BYTES)
                && range.end.0.is_multiple_of(PAGE_BYTES)
        };
        Ok(self.ranges.iter().all(is_range)
            && self.cut.iter().all(is_cut)
            && self.torn.into_iter().all(is_place)
            && self.unreadable.iter().all(is_pages))
    }
}

pub(super) fn header(geometry: Geometry, log_id: LogId, number: u64) -> SegmentHeader {
    SegmentHeader {
        log_id,
        base: geometry.base(number),
        segment_bytes: geometry.segment_bytes(),
        features: FEATURES_KNOWN,
    }
}

pub(super) fn fill<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    fill: &Fill,
    note: &Path,
) -> Result<(), RepairError> {
    let Some(first) = fill.ranges.iter().map(|range| range.start).min() else { return Ok(()) };
    let log = Filler { disk, now, geometry, salt: Salt::new(now.log_id), note };
    let mut last = first;
    for range in &fill.ranges {
        log.pad(range)?;
        last = last.max(range.end);
    }
    log.chain_on(first, fill.cut.as_ref().map(|range| range.start))
}

/// A file at a segment's place that has another length gets a segment's: what it lacks is zeros, and what is too much goes. Only what reads as zeros is written.
pub(super) fn restore_length<D: Disk>(
    disk: &D,
    geometry: Geometry,
    base: Lsn,
    len_bytes: u64,
) -> Result<(), DiskError> {
    let (name, segment_bytes) = (names::segment_at(base), geometry.segment_bytes());
    let file = match disk.open(&name, Access::ReadWrite) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno).at(DiskCall::Open, disk.path(), &name),
    };
    file.shorten(segment_bytes).at(DiskCall::Allocate, disk.path(), &name)?;
    // Also where the length is right already: of a repair before, which was cut short, it may have reached the medium without the blocks.
    let (mut piece, mut at) = (vec![0; PIECE], len_bytes);
    while at < segment_bytes {
        let end = segment_bytes.min((at / PIECE as u64 + 1) * PIECE as u64);
        let piece = &mut piece[..usize::try_from(end - at).expect("a piece fits memory")];
        let count = file.read_at(piece, at).at(DiskCall::Read, disk.path(), &name)?;
        if piece[..count].iter().all(|byte| *byte == 0) {
            file.allocate_part(at..end, segment_bytes).at(DiskCall::Allocate, disk.path(), &name)?;
        }
        at = end;
    }
    sync(disk, &file, &name)
}

/// Pages that the medium does not give are written again as zeros, whole, so that it gives them. What it gives stays.
pub(super) fn blank<D: Disk>(disk: &D, geometry: Geometry, range: &Range<Lsn>) -> Result<(), DiskError> {
    let zeros = [0; 4096];
    let mut page = zeros;
    let mut at = range.start;
    while at < range.end {
        let number = geometry.segment_of(at);
        let (name, end) = (names::segment(geometry, number), range.end.min(geometry.base(number + 1)));
        match disk.open(&name, Access::ReadWrite) {
            Ok(file) => {
                for lsn in (at.0..end.0).step_by(zeros.len()) {
                    let offset = geometry.offset_of(Lsn(lsn));
                    match file.read_at(&mut page, offset) {
                        Ok(_) => {}
                        Err(Errno::IO) => {
                            file.write_at(&zeros, offset).at(DiskCall::Write, disk.path(), &name)?;
                        }
                        Err(errno) => return Err(errno).at(DiskCall::Read, disk.path(), &name),
                    }
                }
                sync(disk, &file, &name)?;
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).at(DiskCall::Open, disk.path(), &name),
        }
        at = end;
    }
    Ok(())
}

struct Filler<'a, D: Disk> {
    disk: &'a D,
    now: &'a Superblock,
    geometry: Geometry,
    salt: Salt,
    /// Where the orders are.
    note: &'a Path,
}

impl<D: Disk> Filler<'_, D> {
    /// What is ordered can't be done in this log: no repair has ordered it.
    fn no_orders(&self) -> RepairError {
        RepairError::Note { file: self.note.to_path_buf() }
    }

    /// Pads from one whole record to the next.
    fn pad(&self, range: &Range<Lsn>) -> Result<(), RepairError> {
        let geometry = self.geometry;
        let mut at = range.start;
        while at < range.end {
            let number = geometry.segment_of(at);
            let (file, name) = self.segment(number)?;
            if geometry.is_first_record(at) {
                // What the chain is comes later.
                let chain = Chain { hash: 0, records: 0 };
                self.write_start(&file, &name, at, chain)?;
                at = Lsn(at.0 + SEGMENT_START_BYTES);
            }
            let segment_end = geometry.base(number + 1);
            let next_epoch =
                self.now.history.entries().iter().map(|entry| entry.start).find(|start| *start > at);
            let end = range.end.min(segment_end).min(next_epoch.unwrap_or(segment_end));
            if end.0 >= at.0 + HEADER_BYTES {
                self.write_pad(&file, &name, at, end.0 - at.0)?;
            }
            sync(self.disk, &file, &name)?;
            at = geometry.normalize(end);
        }
        Ok(())
    }

    /// A segment's file, with its header: made if there is none.
    fn segment(&self, number: u64) -> Result<(D::File, String), RepairError> {
        let (disk, geometry) = (self.disk, self.geometry);
        let name = names::segment(geometry, number);
        let header = header(geometry, self.now.log_id, number);
        mend_header(disk, geometry, number, header)?;
        match disk.open(&name, Access::ReadWrite) {
            Ok(file) => return Ok((file, name)),
            Err(Errno::NOENT) => {}
            Err(errno) => {
                return Err(DiskError { call: DiskCall::Open, file: disk.path().join(&name), errno }.into());
            }
        }
        let temporary = names::temporary(geometry, number);
        match disk.remove(&temporary) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => {
                return Err(
                    DiskError { call: DiskCall::Remove, file: disk.path().join(&temporary), errno }.into()
                );
            }
        }
        let file = disk.create(&temporary).at(DiskCall::Create, disk.path(), &temporary)?;
        file.allocate(geometry.segment_bytes()).at(DiskCall::Allocate, disk.path(), &temporary)?;
        write_header::<D>(&file, header).at(DiskCall::Write, disk.path(), &temporary)?;
        sync(disk, &file, &temporary)?;
        disk.rename(&temporary, &name).at(DiskCall::Rename, disk.path(), &name)?;
        disk.sync_folder().at(DiskCall::SyncFolder, disk.path(), "")?;
        Ok((file, name))
    }

    fn write_pad(&self, file: &D::File, name: &str, at: Lsn, bytes: u64) -> Result<(), RepairError> {
        let zeros = [0; PIECE];
        let payload = bytes - HEADER_BYTES;
        let (mut hasher, mut done) = (crc32fast::Hasher::new(), 0);
        while done < payload {
            let piece = usize::try_from(payload - done).map_or(PIECE, |left| left.min(PIECE));
            hasher.update(&zeros[..piece]);
            let offset = self.geometry.offset_of(at) + HEADER_BYTES + done;
            file.write_at(&zeros[..piece], offset).at(DiskCall::Write, self.disk.path(), name)?;
            done += piece as u64;
        }
        let checksum = hasher.finalize() ^ self.salt.payload_salt(at);
        let payload = u32::try_from(payload).map_err(|_| self.no_orders())?;
        self.write_record_header(file, name, at, RecordKind::Pad, payload, checksum)
    }

    fn write_start(&self, file: &D::File, name: &str, at: Lsn, chain: Chain) -> Result<(), RepairError> {
        let payload = chain.encode();
        let offset = self.geometry.offset_of(at) + HEADER_BYTES;
        file.write_at(&payload, offset).at(DiskCall::Write, self.disk.path(), name)?;
        let checksum = self.salt.payload_checksum(at, &payload);
        self.write_record_header(file, name, at, RecordKind::SegmentStart, 16, checksum)
    }

    fn write_record_header(
        &self,
        file: &D::File,
        name: &str,
        lsn: Lsn,
        kind: RecordKind,
        payload_bytes: u32,
        payload_checksum: u32,
    ) -> Result<(), RepairError> {
        let epoch = self.now.history.epoch_at(lsn).ok_or_else(|| self.no_orders())?;
        let header = RecordHeader { lsn, epoch, kind, lag: Lag::UNKNOWN, payload_bytes, payload_checksum };
        let bytes = header.encode(&self.salt.key(epoch));
        Ok(file.write_at(&bytes, self.geometry.offset_of(lsn)).at(DiskCall::Write, self.disk.path(), name)?)
    }

    /// Makes each segment-start record from the one behind `from` on say what the records before it give.
    fn chain_on(&self, from: Lsn, cut: Option<Lsn>) -> Result<(), RepairError> {
        let geometry = self.geometry;
        let shape = Shape { geometry, log_id: self.now.log_id, history: self.now.history.clone() };
        let trimmed = geometry.normalize(self.now.trimmed);
        let mut number = geometry.segment_of(from).saturating_sub(1).max(geometry.segment_of(trimmed));
        let (mut expected, mut open): (Option<Chain>, _) = (None, None);
        loop {
            let first = geometry.first_record(number).max(trimmed);
            if cut.is_some_and(|cut| first >= cut) {
                return Ok(());
            }
            if let Some(chain) = self.chain_at(first, expected)
                && geometry.is_first_record(first)
                && !self.set_chain(first, chain)?
            {
                return Ok(());
            }
            let mut files = Files::new(self.disk, geometry, &mut open);
            let begun = if first == trimmed {
                from_trim(&mut files, shape.clone(), trimmed)
            } else {
                Ok(Scan::new(shape.clone(), first, expected).flat())
            };
            let mut scan = begun.map_err(failed)?;
            while geometry.segment_of(scan.at()) == number {
                match scan.step(&mut files) {
                    Ok(Step::Record(_)) => {}
                    // The end; if it is none, whoever looks next says so.
                    Ok(Step::Stop(_)) => return Ok(()),
                    Err(error) => return Err(failed(error)),
                }
            }
            expected = scan.chain();
            number += 1;
        }
    }

    /// The chain before the record at a segment's start.
    fn chain_at(&self, first: Lsn, expected: Option<Chain>) -> Option<Chain> {
        let begins = self.now.history.entries().iter().find(|entry| entry.start == first);
        begins.map(|entry| Chain::begin(&self.salt.key(entry.epoch), first)).or(expected)
    }

    /// Makes a segment-start record say this. `false`: there is none, the log has ended.
    fn set_chain(&self, first: Lsn, chain: Chain) -> Result<bool, RepairError> {
        let name = names::segment(self.geometry, self.geometry.segment_of(first));
        let file = match self.disk.open(&name, Access::ReadWrite) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => {
                return Err(
                    DiskError { call: DiskCall::Open, file: self.disk.path().join(&name), errno }.into()
                );
            }
        };
        let offset = self.geometry.offset_of(first);
        let (mut bytes, mut payload) = ([0; 32], [0; 16]);
        file.read_at(&mut bytes, offset).at(DiskCall::Read, self.disk.path(), &name)?;
        file.read_at(&mut payload, offset + HEADER_BYTES).at(DiskCall::Read, self.disk.path(), &name)?;
        let key = self.now.history.epoch_at(first).map(|epoch| self.salt.key(epoch));
        let found =
            key.and_then(|key| RecordHeader::decode(&bytes, first, self.geometry.room(first), &key).ok());
        let found = found.filter(|header| header.kind == RecordKind::SegmentStart);
        // Half of it may have been written when a repair before this one was cut short: the header says what it is.
        let is_ours = key.is_some_and(|key| bytes[..8] == key.publish_word(first).to_le_bytes());
        if found.is_none() && !is_ours {
            return Ok(false);
        }
        let checksum = self.salt.payload_checksum(first, &payload);
        let is_whole = found.is_some_and(|header| header.payload_checksum == checksum);
        if !is_whole || Chain::decode(&payload) != Some(chain) {
            self.write_start(&file, &name, first, chain)?;
            sync(self.disk, &file, &name)?;
        }
        Ok(true)
    }
}
