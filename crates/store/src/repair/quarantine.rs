//! The quarantine: a folder with copies of what a repair changes or takes out, a note for people, and the orders for a repair that goes on after a crash.
//!
//! ```text
//! 0001-0000000000010000.segment-0x7530-96   bytes as they were: of which file, from which offset, how many
//! 0001.json                                  what, from where, when, why
//! 0001.begun                                 what is being done to the log; renamed to 0001.done once that is durable, or to 0001.void where
//!                                            the log was opened before that
//! ```

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;

use windlass_log::{Geometry, LogId, Lsn, SEGMENT_HEADER_BYTES};

use super::RepairError;
use super::fill::Fill;
use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError};
use crate::image::{Unreadable, read_pages};
use crate::names;

const PIECE: usize = 64 << 10;

/// One repair's share of the quarantine.
pub(super) struct Quarantine<'a, D: Disk> {
    log: &'a D,
    folder: D,
    number: u32,
    at_s: u64,
    files: Vec<String>,
    entries: String,
}

/// A repair that was cut short.
pub(super) struct Begun {
    number: u32,
    pub(super) fill: Fill,
    /// Where the orders are.
    pub(super) note: PathBuf,
}

fn next_number<D: Disk>(folder: &D) -> Result<u32, DiskError> {
    let numbers = numbered(folder)?.into_iter().map(|(number, _)| number);
    Ok(numbers.max().unwrap_or(0).saturating_add(1))
}

fn copy_name(number: u32, name: &str, offset: u64, bytes: u64) -> String {
    format!("{number:04}-{name}-{offset:#x}-{bytes}")
}

fn note_name(number: u32) -> String {
    format!("{number:04}.json")
}

fn begun_name(number: u32) -> String {
    format!("{number:04}.begun")
}

/// The names of files in the quarantine and the numbers that they begin with.
fn numbered<D: Disk>(folder: &D) -> Result<Vec<(u32, String)>, DiskError> {
    let entries = folder.list().at(DiskCall::List, folder.path(), "")?;
    let number = |name: &str| name.split(['.', '-']).next().and_then(|digits| digits.parse().ok());
    Ok(entries.into_iter().filter_map(|e| Some((number(&e.name)?, e.name))).collect())
}

/// The repair of this log that was cut short, if there is one.
pub(super) fn begun<D: Disk>(folder: &D, log_id: LogId) -> Result<Option<Begun>, RepairError> {
    for (number, name) in numbered(folder)? {
        if name == begun_name(number) {
            let fill = orders(folder, &name)?;
            if fill.log_id == log_id {
                return Ok(Some(Begun { number, fill, note: folder.path().join(name) }));
            }
        }
    }
    Ok(None)
}

/// What repairs of this log before have given up. Notes that can't be read say nothing.
pub(super) fn given_up_before<D: Disk>(folder: &D, log_id: LogId) -> Result<Vec<Range<Lsn>>, DiskError> {
    let mut ranges = Vec::new();
    for (_, name) in numbered(folder)? {
        let is_orders = [".done", ".void", ".begun"].iter().any(|end| name.ends_with(end));
        if is_orders
            && let Ok(fill) = orders(folder, &name)
            && fill.log_id == log_id
        {
            ranges.extend(fill.given_up());
        }
    }
    Ok(ranges)
}

fn orders<D: Disk>(folder: &D, name: &str) -> Result<Fill, RepairError> {
    let file = folder.open(name, Access::Read).at(DiskCall::Open, folder.path(), name)?;
    let len = file.len_bytes().at(DiskCall::Stat, folder.path(), name)?;
    let note = || RepairError::Note { file: folder.path().join(name) };
    let mut bytes = vec![0; usize::try_from(len.min(1 << 20)).map_err(|_| note())?];
    let count = file.read_at(&mut bytes, 0).at(DiskCall::Read, folder.path(), name)?;
    let text = std::str::from_utf8(&bytes[..count]).map_err(|_| note())?;
    parse(text).ok_or_else(note)
}

/// The orders as lines; the last one is `end` with the CRC of the lines before it. Only what is byte for byte as [`text_of`] writes it is taken.
fn parse(text: &str) -> Option<Fill> {
    let mut fill = Fill::new(LogId([0; 16]), 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let range = |at: usize| Some(Lsn(number(at)?)..Lsn(number(at + 1)?));
        match *words.first()? {
            "log" => fill.log_id = LogId(u128::from_str_radix(words.get(1)?, 16).ok()?.to_be_bytes()),
            "generation" => fill.generation = number(1)?,
            "give-up" => fill.ranges.push(range(1)?),
            "cut" => fill.cut = Some(range(1)?),
            "misfit" => fill.misfits.push((Lsn(number(1)?), number(2)?)),
            "unreadable" => fill.unreadable.push(range(1)?),
            "header" => fill.headers.push(number(1)?),
            "torn" => fill.torn = Some(Lsn(number(1)?)),
            "end" => {}
            _ => return None,
        }
    }
    // With that the last line is there, and its CRC is right.
    (text_of(&fill) == text).then_some(fill)
}

fn text_of(fill: &Fill) -> String {
    let id = u128::from_be_bytes(fill.log_id.0);
    let mut text = format!("log {id:032x}\ngeneration {}\n", fill.generation);
    for (base, len) in &fill.misfits {
        // Writing to a String can't fail; nor below.
        let _ = writeln!(text, "misfit {} {len}", base.0);
    }
    for range in &fill.unreadable {
        let _ = writeln!(text, "unreadable {} {}", range.start.0, range.end.0);
    }
    for number in &fill.headers {
        let _ = writeln!(text, "header {number}");
    }
    for range in &fill.ranges {
        let _ = writeln!(text, "give-up {} {}", range.start.0, range.end.0);
    }
    if let Some(lsn) = fill.torn {
        let _ = writeln!(text, "torn {}", lsn.0);
    }
    if let Some(range) = &fill.cut {
        let _ = writeln!(text, "cut {} {}", range.start.0, range.end.0);
    }
    let crc = crc32fast::hash(text.as_bytes());
    let _ = writeln!(text, "end {crc:08x}");
    text
}

impl Begun {
    pub(super) fn done<D: Disk>(&self, folder: &D) -> Result<(), DiskError> {
        finish(folder, self.number, "done")
    }

    /// The log has gone on without it.
    pub(super) fn void<D: Disk>(&self, folder: &D) -> Result<(), DiskError> {
        finish(folder, self.number, "void")
    }
}

fn finish<D: Disk>(folder: &D, number: u32, how: &str) -> Result<(), DiskError> {
    let (from, to) = (begun_name(number), format!("{number:04}.{how}"));
    folder.rename(&from, &to).at(DiskCall::Rename, folder.path(), &to)?;
    folder.sync_folder().at(DiskCall::SyncFolder, folder.path(), "")
}

/// The places in a file that could not be read, for the note.
fn unreadable_text(unreadable: &Unreadable) -> String {
    if unreadable.ranges().is_empty() {
        return String::new();
    }
    let places = unreadable.ranges().iter();
    let places: Vec<String> =
        places.map(|place| format!("[{}, {}]", place.start.0, place.end.0 - place.start.0)).collect();
    let more = if unreadable.has_more() { "\"unreadable_is_not_all\": true, " } else { "" };
    format!("\"unreadable_offset_and_bytes\": [{}], {more}", places.join(", "))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ")
}

/// Where what is going to change is kept.
pub(super) trait Keep {
    /// Copies a part of a file. What is not there any more is said so in the note, and what the medium does not give: it is zeros in the copy.
    fn range(
        &mut self,
        name: &str,
        offset: u64,
        bytes: u64,
        lsns: Option<Range<Lsn>>,
        why: &str,
    ) -> Result<(), RepairError>;

    /// Copies a part of the log, segment by segment.
    fn log_range(&mut self, geometry: Geometry, lsns: Range<Lsn>, why: &str) -> Result<(), RepairError> {
        let mut at = lsns.start;
        while at < lsns.end {
            let number = geometry.segment_of(at);
            let end = lsns.end.min(geometry.base(number + 1));
            // A header page belongs to nothing in the log, and may be what is damaged.
            let offset = geometry.offset_of(at);
            let offset = if offset == SEGMENT_HEADER_BYTES { 0 } else { offset };
            let bytes = end.0 - geometry.base(number).0 - offset;
            self.range(&names::segment(geometry, number), offset, bytes, Some(at..end), why)?;
            at = geometry.normalize(end);
        }
        Ok(())
    }
}

/// What a repair would keep, by the names that it would give it.
pub(super) struct Rehearsal<'a, D: Disk> {
    log: &'a D,
    number: u32,
    files: Vec<String>,
}

impl<'a, D: Disk> Rehearsal<'a, D> {
    /// Of the next repair, as the quarantine is now.
    pub(super) fn new(log: &'a D, quarantine: &Option<D>) -> Result<Rehearsal<'a, D>, DiskError> {
        let number = quarantine.as_ref().map_or(Ok(1), next_number)?;
        Ok(Rehearsal { log, number, files: Vec::new() })
    }

    /// All of this repair is named; what follows would be the next one's.
    pub(super) fn end(&mut self) {
        self.files.push(note_name(self.number));
        self.number = self.number.saturating_add(1);
    }

    /// The names of the files.
    pub(super) fn files(self) -> Vec<String> {
        self.files
    }
}

impl<D: Disk> Keep for Rehearsal<'_, D> {
    fn range(
        &mut self,
        name: &str,
        offset: u64,
        bytes: u64,
        _: Option<Range<Lsn>>,
        _: &str,
    ) -> Result<(), RepairError> {
        match self.log.open(name, Access::Read) {
            Ok(_) => self.files.push(copy_name(self.number, name, offset, bytes)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Ok(Err(errno).at(DiskCall::Open, self.log.path(), name)?),
        }
        Ok(())
    }
}

impl<D: Disk> Keep for Quarantine<'_, D> {
    fn range(
        &mut self,
        name: &str,
        offset: u64,
        bytes: u64,
        lsns: Option<Range<Lsn>>,
        why: &str,
    ) -> Result<(), RepairError> {
        let copy = copy_name(self.number, name, offset, bytes);
        let mut unreadable = Unreadable::default();
        let copied = match self.log.open(name, Access::Read) {
            Ok(from) => self.copy(&from, name, &copy, offset..offset + bytes, &mut unreadable)?,
            Err(Errno::NOENT) => 0,
            Err(errno) => return Ok(Err(errno).at(DiskCall::Open, self.log.path(), name)?),
        };
        if !self.entries.is_empty() {
            self.entries.push_str(",\n");
        }
        let lsns = lsns.map_or_else(String::new, |lsns| {
            format!("\"lsn_start\": {}, \"lsn_end\": {}, ", lsns.start.0, lsns.end.0)
        });
        let kept = if copied > 0 { format!("\"{copy}\"") } else { "null".to_owned() };
        // Writing to a String can't fail.
        let _ = write!(
            self.entries,
            "    {{\"file\": \"{}\", \"offset\": {offset}, \"bytes\": {bytes}, {lsns}\"kept_in\": {kept}, \"kept_bytes\": {copied}, {}\"why\": \"{}\"}}",
            escaped(name),
            unreadable_text(&unreadable),
            escaped(why)
        );
        Ok(())
    }
}

impl<'a, D: Disk> Quarantine<'a, D> {
    pub(super) fn new(log: &'a D, folder: D, at_s: u64) -> Result<Quarantine<'a, D>, DiskError> {
        let number = next_number(&folder)?;
        Ok(Quarantine { log, folder, number, at_s, files: Vec::new(), entries: String::new() })
    }

    fn copy(
        &mut self,
        from: &D::File,
        name: &str,
        copy: &str,
        part: Range<u64>,
        unreadable: &mut Unreadable,
    ) -> Result<u64, RepairError> {
        let folder = self.folder.path().to_path_buf();
        match self.folder.remove(copy) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Ok(Err(errno).at(DiskCall::Remove, &folder, copy)?),
        }
        let to = self.folder.create(copy).at(DiskCall::Create, &folder, copy)?;
        let (mut piece, mut done) = (vec![0; PIECE], 0);
        while part.start + done < part.end {
            let (at, left) = (part.start + done, part.end - part.start - done);
            let piece = &mut piece[..usize::try_from(left).map_or(PIECE, |left| left.min(PIECE))];
            let read = match from.read_at(piece, at) {
                // An offset in a file is noted like a place in the log.
                Err(Errno::IO) => read_pages::<D>(from, at, piece, |page| {
                    unreadable.note(Lsn(page.start)..Lsn(page.end));
                }),
                read => read,
            };
            let count = read.at(DiskCall::Read, self.log.path(), name)?;
            if count == 0 {
                break;
            }
            to.write_at(&piece[..count], done).at(DiskCall::Write, &folder, copy)?;
            done += count as u64;
        }
        to.sync().at(DiskCall::Sync, &folder, copy)?;
        self.files.push(copy.to_owned());
        Ok(done)
    }

    /// Everything is copied: the note, and the orders, after which the log may be changed. The names of this repair's files.
    pub(super) fn begin(&mut self, fill: &Fill) -> Result<Vec<String>, DiskError> {
        let note = note_name(self.number);
        let text = format!(
            "{{\n  \"log\": \"{}\",\n  \"at_seconds_since_1970\": {},\n  \"kept\": [\n{}\n  ]\n}}\n",
            escaped(&self.log.path().display().to_string()),
            self.at_s,
            self.entries
        );
        self.write(&note, &text)?;
        // The note and the copies have their names before the orders have theirs.
        self.folder.sync_folder().at(DiskCall::SyncFolder, self.folder.path(), "")?;
        self.log.sync_folder().at(DiskCall::SyncFolder, self.log.path(), "")?;
        let temporary = format!("{:04}.orders", self.number);
        self.write(&temporary, &text_of(fill))?;
        let name = begun_name(self.number);
        self.folder.rename(&temporary, &name).at(DiskCall::Rename, self.folder.path(), &name)?;
        self.folder.sync_folder().at(DiskCall::SyncFolder, self.folder.path(), "")?;
        Ok(std::mem::take(&mut self.files))
    }

    fn write(&mut self, name: &str, text: &str) -> Result<(), DiskError> {
        let folder = self.folder.path().to_path_buf();
        let file = self.folder.create(name).at(DiskCall::Create, &folder, name)?;
        file.write_at(text.as_bytes(), 0).at(DiskCall::Write, &folder, name)?;
        file.sync().at(DiskCall::Sync, &folder, name)?;
        if !name.ends_with(".orders") {
            self.files.push(name.to_owned());
        }
        Ok(())
    }

    /// Where the orders are, once they have begun.
    pub(super) fn note(&self) -> PathBuf {
        self.folder.path().join(begun_name(self.number))
    }

    /// The log is repaired, durably.
    pub(super) fn done(&self) -> Result<(), DiskError> {
        finish(&self.folder, self.number, "done")
    }
}
