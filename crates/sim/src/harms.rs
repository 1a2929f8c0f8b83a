//! Rows of recovery's decision table (DESIGN.md section 6.1) that nothing in this world brings about in place: files that are lost, cut short, copied or put elsewhere, a superblock without its history. At openings one such
//! harm is done to a copy of the disk, and the copy must come to the harm's row, and do with it what the table says. The run goes on without it, and nothing is drawn for it from the world's generator.

use windlass::{LogId, Lsn};
use windlass_log::{
    EpochHistory, Holder, Lag, Onward, RecordHeader, RecordKind, Row, SEGMENT_HEADER_BYTES, Salt,
    SegmentHeader, Superblock,
};
use windlass_store::disk::testing::TestDisk;
use windlass_store::{CopiedFolder, Options, Surroundings};

use crate::coverage::Mark;
use crate::oracle::Checked;
use crate::oracle::decision_table::{comes_to, goes_on};
use crate::random::Random;
use crate::rows;
use crate::setting::SEGMENT_BYTES;

/// A copy of the superblock, in bytes of its file.
const COPY: usize = 64 << 10;
/// The room that a record without a payload takes, and more.
const RECORD_BYTES: u64 = 64;
/// A kind of record that no version has yet.
const KIND_TO_COME: u8 = 77;
/// A harm is done at so many openings of a hundred: a copy takes as long as a small part of a run.
const OF_HUNDRED: u64 = 15;

/// The rows whose harms are done to members' copies.
pub(crate) const ROWS: [Row; 18] = [
    Row::NoLog,
    Row::SuperblockMissing,
    Row::SuperblockDamaged,
    Row::SuperblockForeign,
    Row::OtherLog,
    Row::FolderCopied,
    Row::SegmentMisfit,
    Row::OlderSegmentMissing,
    Row::OlderSegmentDamaged,
    Row::OlderSegmentForeign,
    Row::ForeignSegment,
    Row::LaterVersion,
    Row::ChainBroken,
    Row::HistoryGap,
    Row::HistoryLost,
    Row::SegmentLost,
    // Twice: many a log has no segment that is not read.
    Row::OlderSegmentMissing,
    Row::OlderSegmentDamaged,
];

/// Which harm a seed's openings do next: by a generator of its own.
#[derive(Debug)]
pub(crate) struct Harms(Random);

impl Harms {
    pub(crate) fn of(seed: u64) -> Harms {
        Harms(Random::new(seed ^ 0x0068_6172_6d73))
    }

    /// The next opening's, if it has one.
    pub(crate) fn next(&mut self) -> Option<Harm> {
        let is_now = self.0.percent(OF_HUNDRED);
        is_now.then(|| Harm { row: ROWS[self.0.index(ROWS.len())], pick: self.0.number() })
    }
}

/// A harm, by the row that it is to come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Harm {
    pub(crate) row: Row,
    pick: u64,
}

/// A whole log of a member that was just opened.
pub(crate) struct Whole<'a> {
    pub(crate) disk: &'a TestDisk,
    pub(crate) around: Surroundings,
    pub(crate) options: Options,
    pub(crate) superblock: &'a Superblock,
    pub(crate) tail: Lsn,
    /// Another member's superblock, its file.
    pub(crate) stranger: Vec<u8>,
}

fn segment(base: u64) -> String {
    format!("{base:016x}.segment")
}

fn edit(disk: &TestDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.read_file(name);
    change(&mut bytes);
    disk.write_file(name, &bytes);
}

/// A copy whose superblock was changed, in both of its copies.
fn with_superblock(log: &Whole<'_>, change: impl FnOnce(&mut Superblock)) -> Option<TestDisk> {
    let mut superblock = log.superblock.clone();
    change(&mut superblock);
    let encoded = superblock.encode().ok()?;
    let disk = log.disk.copied_in_place();
    edit(&disk, "superblock", |bytes| {
        for copy in [0, COPY] {
            bytes[copy..copy + encoded.len()].copy_from_slice(&encoded);
        }
    });
    Some(disk)
}

/// A copy with the header of a record at its end, whole and of this kind.
fn with_record(log: &Whole<'_>, kind: u8) -> Option<TestDisk> {
    let (lsn, offset) = (log.tail, log.tail.0 % SEGMENT_BYTES);
    // A history may reach beyond the log, as a candidate's does until it has fetched the rest.
    let epoch = log.superblock.history.epoch_at(lsn)?;
    let has_room = offset > SEGMENT_HEADER_BYTES && offset + RECORD_BYTES <= SEGMENT_BYTES;
    let name = segment(lsn.0 - offset);
    if !has_room || !log.disk.names().contains(&name) {
        return None;
    }
    let key = Salt::new(log.superblock.log_id).key(epoch);
    let payload_checksum = key.salt().payload_checksum(lsn, b"");
    let header =
        RecordHeader { lsn, epoch, kind: RecordKind::Data, lag: Lag(0), payload_bytes: 0, payload_checksum };
    let encoded = header.encode_of_kind(&key, kind);
    let disk = log.disk.copied_in_place();
    let at = usize::try_from(offset).unwrap_or(0);
    edit(&disk, &name, |bytes| bytes[at..at + encoded.len()].copy_from_slice(&encoded));
    Some(disk)
}

/// A copy whose segment there has the header of another log's.
fn with_foreign_header(log: &Whole<'_>, base: u64) -> TestDisk {
    let log_id = LogId(log.superblock.log_id.0.map(|byte| !byte));
    let header =
        SegmentHeader { log_id, base: Lsn(base), segment_bytes: SEGMENT_BYTES, features: 0 }.encode();
    let disk = log.disk.copied_in_place();
    edit(&disk, &segment(base), |bytes| bytes[..header.len()].copy_from_slice(&header));
    disk
}

impl Whole<'_> {
    /// The log's segments, as their names say.
    fn bases(&self) -> Vec<u64> {
        let names = self.disk.names();
        let bases = names.iter().filter_map(|name| name.strip_suffix(".segment"));
        bases.filter_map(|base| u64::from_str_radix(base, 16).ok()).collect()
    }

    /// The segment of the persisted mark, if something in it is below: an opening reads from there on.
    fn read_first(&self) -> Option<u64> {
        let (persisted, trimmed) = (self.superblock.persisted.0, self.superblock.trimmed.0);
        let base = persisted / SEGMENT_BYTES * SEGMENT_BYTES;
        (persisted > trimmed.max(base + SEGMENT_HEADER_BYTES)).then_some(base)
    }

    /// A segment of the log that an opening does not read.
    fn unread(&self, pick: u64) -> Option<u64> {
        let from = self.superblock.trimmed.0 / SEGMENT_BYTES * SEGMENT_BYTES;
        // Where the mark stands at a first record the segment before is read, too.
        let to = self.read_first()?.checked_sub(SEGMENT_BYTES)?;
        let bases: Vec<u64> = self.bases().into_iter().filter(|base| (from..to).contains(base)).collect();
        let at = pick.checked_rem(u64::try_from(bases.len()).unwrap_or(0))?;
        bases.get(usize::try_from(at).unwrap_or(0)).copied()
    }
}

impl Harm {
    /// The harmed copy and what it is opened with. `None`: this log has nothing to harm so.
    fn done(self, log: &Whole<'_>) -> Option<(TestDisk, Options)> {
        let (copy, pick) = (|| log.disk.copied_in_place(), self.pick);
        let disk = match self.row {
            Row::NoLog => {
                let disk = copy();
                disk.names().iter().for_each(|name| disk.remove_file(name));
                disk
            }
            Row::SuperblockMissing if !log.bases().is_empty() => {
                let disk = copy();
                disk.remove_file("superblock");
                disk
            }
            Row::SuperblockDamaged => {
                let disk = copy();
                for (copy, byte) in [(0, pick % 152), (64 << 10, (pick >> 8) % 152)] {
                    disk.flip("superblock", copy + byte, u8::try_from(1 + (pick >> 16) % 255).unwrap_or(1));
                }
                disk
            }
            // One copy of the file is another member's: the folder was put together from two.
            Row::SuperblockForeign => {
                Superblock::decode(&log.stranger[COPY..]).ok()?;
                let disk = copy();
                edit(&disk, "superblock", |bytes| bytes[COPY..].copy_from_slice(&log.stranger[COPY..]));
                disk
            }
            Row::OtherLog => {
                let log_id = Some(LogId(log.superblock.log_id.0.map(|byte| !byte)));
                return Some((copy(), Options { log_id, ..log.options }));
            }
            Row::FolderCopied => log.disk.copied(),
            Row::SegmentMisfit => {
                let bases = log.bases();
                let at = pick.checked_rem(u64::try_from(bases.len()).unwrap_or(0))?;
                let name = segment(bases[usize::try_from(at).unwrap_or(0)]);
                let disk = copy();
                edit(&disk, &name, |bytes| bytes.truncate(bytes.len() - 4096));
                disk
            }
            Row::OlderSegmentMissing => {
                let name = segment(log.unread(pick)?);
                let disk = copy();
                disk.remove_file(&name);
                disk
            }
            Row::OlderSegmentDamaged => {
                let name = segment(log.unread(pick)?);
                let disk = copy();
                disk.flip(&name, 20, 1);
                disk
            }
            Row::OlderSegmentForeign => with_foreign_header(log, log.unread(pick)?),
            Row::ForeignSegment => with_foreign_header(log, log.read_first()?),
            Row::LaterVersion => with_record(log, KIND_TO_COME)?,
            // The first record of a segment, in the middle of one.
            Row::ChainBroken => with_record(log, RecordKind::SegmentStart.number())?,
            Row::HistoryGap => {
                log.read_first()?;
                let last = log.superblock.history.last()?;
                let mut history = EpochHistory::new();
                history.extend(last.epoch, log.tail).ok()?;
                with_superblock(log, |superblock| superblock.history = history)?
            }
            Row::HistoryLost => {
                log.read_first()?;
                log.superblock.history.last()?;
                with_superblock(log, |superblock| superblock.history = EpochHistory::new())?
            }
            Row::SegmentLost => {
                let name = segment(log.read_first()?);
                let disk = copy();
                disk.remove_file(&name);
                disk
            }
            // Met in place or in the lone log, or what this log has nothing for.
            Row::SuperblockMissing
            | Row::SuperblockOlder
            | Row::NeverLed
            | Row::RecordDamaged
            | Row::PastCleanMark
            | Row::CleanEnd
            | Row::EndBlank
            | Row::EndLeftover
            | Row::TornTail
            | Row::HoleBehind
            | Row::EndMissed => return None,
        };
        Some((disk, log.options))
    }

    /// Does the harm to a copy of a member's log, if there is something to harm, and opens that.
    ///
    /// # Errors
    ///
    /// It did not come to its row, or did something else than the table says.
    pub(crate) fn tried(self, log: &Whole<'_>, mut mark: impl FnMut(Mark)) -> Checked {
        let Some((disk, options)) = self.done(log) else { return Ok(()) };
        let is_member = !log.superblock.configuration.is_empty();
        let holder = if is_member { Holder::Member } else { Holder::Lone };
        comes_to(self.row, holder, disk, &log.around, &options)?;
        mark(rows::found(self.row));
        if self.row == Row::FolderCopied {
            let options = Options { copied_folder: CopiedFolder::TakeOver, ..options };
            goes_on(Onward::MemberCopied, log.disk.copied(), &log.around, &options)?;
            mark(rows::went_on(Onward::MemberCopied));
        }
        Ok(())
    }
}
