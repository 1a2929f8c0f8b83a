//! Every row of the decision table from the files of a real folder, and what opening then does with them. DESIGN.md section 6.1.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use windlass_log::{
    Action, Class, Epoch, EpochHistory, Extent, Holder, Lag, LogId, Lsn, MemberId, Onward, OpenMode,
    RecordHeader, RecordKind, Row, SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES, Salt, Superblock,
};

use super::testlog::{AROUND, TestLog, founding, options};
use crate::disk::RealDisk;
use crate::{CopiedFolder, Founding, Inspection, OpenError, Opened, Options, Store};

const SEGMENT: u64 = SEGMENT_BYTES_MIN;
const COPY: usize = 64 << 10;
const PAGE: u64 = 4096;

/// A folder of real files in a state that some row is about.
struct Case {
    folder: TempDir,
    options: Options,
}

fn disk(folder: &Path) -> RealDisk {
    RealDisk::open(folder).unwrap()
}

fn segment(number: u64) -> String {
    format!("{:016x}.segment", number * SEGMENT)
}

impl Case {
    fn of(folder: TempDir) -> Case {
        Case { folder, options: options() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path(name)).unwrap();
        change(&mut bytes);
        fs::write(self.path(name), bytes).unwrap();
    }

    fn flip(&self, name: &str, offset: u64) {
        self.edit(name, |bytes| bytes[usize::try_from(offset).unwrap()] ^= 1);
    }

    fn flip_record(&self, lsn: Lsn) {
        self.flip(&segment(lsn.0 / SEGMENT), lsn.0 % SEGMENT + 24);
    }

    /// Rewrites both copies of the superblock.
    fn superblock(&self, change: impl FnOnce(&mut Superblock)) {
        self.edit("superblock", |bytes| {
            let mut superblock = Superblock::decode(&bytes[..COPY]).unwrap();
            change(&mut superblock);
            let encoded = superblock.encode().unwrap();
            for copy in [0, COPY] {
                bytes[copy..copy + encoded.len()].copy_from_slice(&encoded);
            }
        });
    }

    /// The same log as that of a group's member, which may have acknowledged so much.
    fn with_member(self, acknowledged: u64) -> Case {
        self.superblock(|superblock| {
            superblock.configuration = b"three members".to_vec();
            superblock.acknowledged = Lsn(acknowledged);
        });
        self
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // Who has it open is written down by whoever tries.
        names
            .filter(|name| name != "owner")
            .map(|name| (name.clone(), fs::read(self.path(&name)).unwrap()))
            .collect()
    }

    fn open(&self, mode: OpenMode) -> Result<Opened, OpenError> {
        let options = Options { mode, ..self.options };
        Store::open(disk(self.folder.path()), &AROUND, &options).map(|(_, opened)| opened)
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A log of `count` records of 1000 bytes, and where each starts.
fn log(folder: &TempDir, count: u32, payload: u8) -> (TestLog<RealDisk>, Vec<Lsn>) {
    let mut log = TestLog::create(disk(folder.path())).unwrap();
    let starts = (0..count).map(|_| log.append(&[payload; 1000]).unwrap().start).collect();
    log.flush().unwrap();
    (log, starts)
}

fn closed(count: u32) -> (Case, Vec<Lsn>) {
    let folder = folder();
    let (log, starts) = log(&folder, count, 1);
    log.close().unwrap();
    (Case::of(folder), starts)
}

/// Not closed, and within the first half segment, so that no mark was written down.
fn crashed(count: u32) -> (Case, Vec<Lsn>) {
    let folder = folder();
    let (log, starts) = log(&folder, count, 1);
    drop(log);
    (Case::of(folder), starts)
}

/// Killed with half of its records not flushed: nothing vouches for those.
fn unflushed(count: u32) -> (Case, Vec<Lsn>) {
    let folder = folder();
    let (mut log, mut starts) = log(&folder, count / 2, 1);
    starts.extend((count / 2..count).map(|_| log.append(&[1; 1000]).unwrap().start));
    drop(log);
    (Case::of(folder), starts)
}

fn member() -> Founding {
    Founding { configuration: b"three members".to_vec(), epoch: None, ..founding() }
}

fn member_closed() -> Case {
    let folder = folder();
    let (store, opened) = Store::create(disk(folder.path()), &member(), &AROUND, &options()).unwrap();
    store.begin().unwrap();
    store.close(opened.tail).unwrap();
    Case::of(folder)
}

fn member_crashed() -> Case {
    let folder = folder();
    let (store, _) = Store::create(disk(folder.path()), &member(), &AROUND, &options()).unwrap();
    store.begin().unwrap();
    drop(store);
    Case::of(folder)
}

fn copy_of(case: &Case) -> Case {
    let folder = folder();
    for (name, bytes) in case.files() {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    Case { folder, options: case.options }
}

fn whole(case: Case) -> Case {
    Case { options: Options { extent: Extent::Whole, ..case.options }, ..case }
}

/// A folder in the state that the row is about.
fn case(row: Row) -> Case {
    match row {
        Row::NoLog => Case::of(folder()),
        Row::SuperblockMissing => {
            let (case, _) = closed(3);
            fs::remove_file(case.path("superblock")).unwrap();
            case
        }
        Row::SuperblockDamaged => {
            let (case, _) = closed(3);
            case.edit("superblock", |bytes| (bytes[200], bytes[COPY + 200]) = (0xFF, 0xFF));
            case
        }
        Row::SuperblockForeign => {
            let (case, _) = closed(3);
            // One copy alone, of a version to come.
            case.edit("superblock", |bytes| {
                bytes[12] = 99;
                let length = u32::from_le_bytes(bytes[24..28].try_into().unwrap());
                let checksum = crc32fast::hash(&bytes[12..usize::try_from(length).unwrap()]);
                bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
            });
            case
        }
        Row::OtherLog => {
            let (case, _) = closed(3);
            let options = Options { log_id: Some(LogId([1; 16])), ..case.options };
            Case { options, ..case }
        }
        Row::FolderCopied => copy_of(&member_closed()),
        Row::SegmentMisfit => {
            let (case, _) = closed(3);
            case.edit(&segment(0), |bytes| bytes.truncate(bytes.len() - 4096));
            case
        }
        Row::SuperblockOlder => older_superblock(),
        Row::OlderSegmentMissing => {
            let (case, _) = closed(150);
            fs::remove_file(case.path(&segment(0))).unwrap();
            case
        }
        Row::OlderSegmentDamaged => {
            let (case, _) = closed(150);
            case.flip(&segment(0), 20);
            case
        }
        Row::OlderSegmentForeign => {
            let (case, _) = closed(150);
            fs::copy(case.path(&segment(1)), case.path(&segment(0))).unwrap();
            case
        }
        Row::ForeignSegment => {
            let (case, starts) = closed(150);
            let last = starts.last().unwrap().0 / SEGMENT;
            fs::copy(case.path(&segment(0)), case.path(&segment(last))).unwrap();
            case
        }
        Row::LaterVersion => later_version(),
        Row::ChainBroken => {
            // The records of a log that is the same by name, from its second segment on.
            let (case, _) = closed(150);
            let stranger = folder();
            let (log, _) = log(&stranger, 150, 2);
            log.close().unwrap();
            fs::copy(stranger.path().join(segment(1)), case.path(&segment(1))).unwrap();
            whole(case)
        }
        Row::HistoryGap => {
            let (case, starts) = closed(10);
            case.superblock(|superblock| {
                superblock.history = EpochHistory::new();
                superblock.history.extend(Epoch::new(1, MemberId(0)), starts[4]).unwrap();
            });
            case
        }
        Row::HistoryLost => {
            let (case, _) = closed(10);
            case.superblock(|superblock| superblock.history = EpochHistory::new());
            case
        }
        Row::NeverLed => member_crashed(),
        Row::RecordDamaged => {
            let (case, starts) = closed(150);
            case.flip_record(starts[148]);
            case
        }
        Row::SegmentLost => {
            let (case, starts) = closed(150);
            fs::remove_file(case.path(&segment(starts[149].0 / SEGMENT))).unwrap();
            case
        }
        Row::PastCleanMark => {
            let (case, starts) = closed(10);
            case.superblock(|superblock| {
                (superblock.persisted, superblock.clean) = (starts[5], Some(starts[5]));
            });
            case
        }
        Row::CleanEnd => closed(150).0,
        Row::EndBlank => crashed(20).0,
        Row::EndLeftover => leftover(),
        Row::TornTail => {
            let (case, starts) = unflushed(20);
            case.flip_record(starts[19]);
            case
        }
        Row::HoleBehind => {
            let (case, starts) = unflushed(20);
            case.flip_record(starts[11]);
            case
        }
        Row::EndMissed => {
            let (case, starts) = crashed(20);
            case.with_member(starts[19].0 + 8192)
        }
    }
}

/// Killed, and gone on in a new epoch; then the superblock from before, with its live mark, is put back in place.
fn older_superblock() -> Case {
    let (case, _) = crashed(20);
    let before = fs::read(case.path("superblock")).unwrap();
    let mut log = TestLog::open(disk(case.folder.path())).unwrap();
    for _ in 0..3 {
        log.append(&[2; 1000]).unwrap();
    }
    log.close().unwrap();
    fs::write(case.path("superblock"), before).unwrap();
    case
}

/// A record of a kind to come at the end of a log.
fn later_version() -> Case {
    let folder = folder();
    let (log, _) = log(&folder, 3, 1);
    let (lsn, epoch) = (log.handoff.tail(), log.handoff.epoch());
    let key = Salt::new(log.store.log_id()).key(epoch);
    drop(log);
    let header = RecordHeader {
        lsn,
        epoch,
        kind: RecordKind::Data,
        lag: Lag(0),
        payload_bytes: 0,
        payload_checksum: key.salt().payload_checksum(lsn, b""),
    };
    let case = Case::of(folder);
    let at = usize::try_from(lsn.0 % SEGMENT).unwrap();
    let bytes = header.encode_of_kind(&key, 77);
    case.edit(&segment(lsn.0 / SEGMENT), |file| file[at..at + bytes.len()].copy_from_slice(&bytes));
    case
}

/// The log was cut, and a record of the next epoch ends where one that went started.
fn leftover() -> Case {
    let folder = folder();
    let (mut log, starts) = log(&folder, 20, 1);
    log.handoff.seal();
    log.drain();
    let superblock = log.store.superblock();
    let epoch = superblock.promised.next_for(MemberId(0));
    let mut history = superblock.history;
    history.cut(starts[10]);
    history.extend(epoch, starts[10]).unwrap();
    log.store.cut(starts[10], history, epoch).unwrap();
    drop(log);
    let mut log = TestLog::open(disk(folder.path())).unwrap();
    log.append(&[2; 1000]).unwrap();
    log.flush().unwrap();
    drop(log);
    Case::of(folder)
}

/// Not closed, with the mark in the midst of its records.
fn crashed_behind_mark() -> Case {
    let (case, starts) = crashed(20);
    case.superblock(|superblock| superblock.persisted = starts[10]);
    case
}

/// A folder that goes on by this row of the second part.
fn onward_case(row: Onward) -> Case {
    match row {
        Onward::Closed => closed(20).0,
        Onward::ClosedUnchained => {
            // Trimmed beyond a damage in the segment of the mark: the scan begins at the trim point.
            let folder = folder();
            let (log, starts) = log(&folder, 20, 1);
            log.handoff.retire();
            log.store.trim(starts[10], log.handoff.drained()).unwrap();
            log.close().unwrap();
            let case = Case::of(folder);
            case.flip_record(starts[3]);
            case
        }
        Onward::Crashed => crashed_behind_mark(),
        Onward::Copied => copy_of(&closed(20).0),
        Onward::MemberClosed => closed(20).0.with_member(4096),
        Onward::MemberCrashed => crashed_behind_mark().with_member(4096),
        Onward::MemberCopied => {
            let case = copy_of(&closed(20).0.with_member(4096));
            Case { options: Options { copied_folder: CopiedFolder::TakeOver, ..case.options }, ..case }
        }
    }
}

/// One named test for each row.
macro_rules! rows {
    ($($name:ident: $row:ident,)*) => {
        $(#[test] fn $name() { opens_as_the_table_says(Row::$row); })*
        const NAMED: &[(&str, Row)] = &[$((stringify!($name), Row::$row)),*];
    };
}

rows! {
    d_1_no_log: NoLog,
    d_2_segments_without_a_superblock: SuperblockMissing,
    d_3_both_copies_of_the_superblock_damaged: SuperblockDamaged,
    d_4_a_superblock_of_another_version: SuperblockForeign,
    d_5_not_the_log_asked_for: OtherLog,
    d_6_a_copy_of_a_members_folder: FolderCopied,
    d_7_a_segment_file_that_was_cut_short: SegmentMisfit,
    d_8_a_superblock_that_is_older_than_the_log: SuperblockOlder,
    d_9_an_older_segment_is_missing: OlderSegmentMissing,
    d_10_an_older_segment_has_lost_its_header: OlderSegmentDamaged,
    d_11_an_older_segment_belongs_elsewhere: OlderSegmentForeign,
    d_12_a_segment_that_belongs_elsewhere: ForeignSegment,
    d_13_a_record_of_a_later_version: LaterVersion,
    d_14_a_segment_that_follows_other_records: ChainBroken,
    d_15_a_history_that_does_not_reach_back: HistoryGap,
    d_16_no_history_though_there_was_a_log: HistoryLost,
    d_17_a_member_that_nobody_has_led: NeverLed,
    d_18_a_flushed_record_is_damaged: RecordDamaged,
    d_19_a_segment_with_flushed_records_is_gone: SegmentLost,
    d_20_records_behind_the_clean_mark: PastCleanMark,
    d_21_closed_cleanly: CleanEnd,
    d_22_a_crash_between_records: EndBlank,
    d_23_a_crash_before_leftovers: EndLeftover,
    d_24_a_torn_last_record: TornTail,
    d_25_records_behind_a_hole: HoleBehind,
    d_26_a_members_log_ends_below_what_it_may_have_acknowledged: EndMissed,
}

#[test]
fn every_row_has_a_case_in_a_real_folder() {
    let rows: Vec<Row> = NAMED.iter().map(|named| named.1).collect();
    assert_eq!(rows, Row::all());
    for (name, row) in NAMED {
        let label = row.label().to_lowercase().replace('-', "_") + "_";
        assert!(name.starts_with(&label), "{name} is the test of {}", row.label());
    }
}

/// Opens the row's folder in each mode that it is for: what is found and done is what the table says, and a refusal changes nothing.
fn opens_as_the_table_says(row: Row) {
    let context = format!("{}, {row:?}", row.label());
    for mode in [OpenMode::Strict, OpenMode::Tail] {
        // Anew for each: what opens is changed.
        let case = case(row);
        let holder = holder(&case);
        let before = case.files();
        let action = row.action(mode, holder);
        // The strict mode reads every segment.
        let expected = if mode == OpenMode::Strict { read_whole(row) } else { row };
        match case.open(mode) {
            Ok(opened) => {
                assert!(
                    matches!(action, Action::Open | Action::Cut | Action::Repair),
                    "{context}, {mode:?}: opened"
                );
                let cut = action == Action::Cut;
                assert_eq!((opened.verdict.row, opened.cut), (expected, cut), "{context}, {mode:?}");
            }
            Err(error) => {
                assert_eq!(error.row(), Some(expected), "{context}, {mode:?}: {error}");
                assert_eq!(action, Action::Refuse, "{context}, {mode:?}: {error}");
                assert!(case.files() == before, "{context}, {mode:?}: a refusal changes nothing");
            }
        }
    }
}

#[test]
fn a_members_log_opens_for_repair_where_the_table_says_so_and_is_refused_elsewhere() {
    let mut repaired = 0;
    for row in Row::all() {
        let action = row.action(OpenMode::Tail, Holder::Member);
        if row.class() != Class::Damage || row == Row::SuperblockMissing || row == Row::SuperblockDamaged {
            assert_ne!(action, Action::Repair, "{row:?}");
            continue;
        }
        let case = case(row);
        let acknowledged = if row == Row::EndMissed { (1 << 20) + 8192 } else { 4096 };
        let case = case.with_member(acknowledged);
        let before = case.files();
        match case.open(OpenMode::Tail) {
            Ok(opened) => {
                assert_eq!((action, opened.verdict.row), (Action::Repair, row), "{row:?}");
                assert!(opened.tail <= opened.verdict.stop.lsn, "{row:?}");
                let after = Inspection::open(disk(case.folder.path()), None).unwrap().superblock().clone();
                assert!(
                    after.acknowledged > opened.tail,
                    "R-18: {row:?}: it neither leads nor votes with what it lost"
                );
                repaired += 1;
            }
            Err(error) => {
                assert_eq!((action, error.row()), (Action::Refuse, Some(row)), "{error}");
                assert!(case.files() == before, "{row:?}: a refusal changes nothing");
            }
        }
    }
    assert_eq!(repaired, 6);
}

/// What is behind the gap is written again, and the gap has nothing to write.
#[test]
fn a_members_log_that_was_not_closed_opens_for_repair_without_a_segment_before_others_r_11() {
    let (case, starts) = closed(150);
    let case = case.with_member(4096);
    case.superblock(|superblock| superblock.clean = None);
    fs::remove_file(case.path(&segment(1))).unwrap();
    let opened = case.open(OpenMode::Tail).unwrap();
    assert_eq!((opened.verdict.row, opened.onward), (Row::OlderSegmentMissing, Onward::MemberCrashed));
    assert_eq!(opened.tail, Lsn(SEGMENT + 4096));
    assert!(
        opened.damage[0].is_whole_behind && opened.rewritten_bytes > starts[149].0 % SEGMENT,
        "{opened:?}"
    );
}

/// Also what lies behind a second gap was flushed by nobody that is known: it is written again before it can count.
#[test]
fn a_members_log_is_written_again_behind_every_gap_r_11() {
    let (case, starts) = closed(400);
    let case = case.with_member(4096);
    case.superblock(|superblock| superblock.clean = None);
    let last = starts[399].0 / SEGMENT;
    assert!(last >= 3, "the case needs a segment between the gaps and one behind them");
    fs::remove_file(case.path(&segment(last - 1))).unwrap();
    let once = case.open(OpenMode::Tail).unwrap().rewritten_bytes;
    fs::remove_file(case.path(&segment(1))).unwrap();
    let twice = case.open(OpenMode::Tail).unwrap();
    assert_eq!(twice.tail, Lsn(SEGMENT + 4096));
    assert!(twice.rewritten_bytes > starts[399].0 % SEGMENT, "{once} then {twice:?}");
}

/// What a damaged member may have acknowledged ends where its last whole record does, also at the next opening; unless that end is damaged itself.
#[test]
fn a_damaged_member_knows_how_far_it_may_have_acknowledged_unless_its_end_is_damaged_r18() {
    type Hurt<'a> = &'a dyn Fn(&Case, &[Lsn], u64);
    let cases: [(&str, bool, Hurt<'_>); 8] = [
        ("a record in the middle", true, &|case, starts, _| case.flip_record(starts[130])),
        ("two of them", true, &|case, starts, _| {
            [130, 140].iter().for_each(|at| case.flip_record(starts[*at]))
        }),
        ("the last but one", true, &|case, starts, _| case.flip_record(starts[148])),
        ("the last one", false, &|case, starts, _| case.flip_record(starts[149])),
        ("one and the last one", false, &|case, starts, _| {
            [130, 149].iter().for_each(|at| case.flip_record(starts[*at]));
        }),
        ("the header of the last segment", false, &|case, _, last| case.flip(&segment(last), 10)),
        ("the last segment", false, &|case, _, last| fs::remove_file(case.path(&segment(last))).unwrap()),
        ("a segment before it", false, &|case, _, last| {
            fs::remove_file(case.path(&segment(last - 1))).unwrap();
        }),
    ];
    for clean in [true, false] {
        for (what, is_known, hurt) in cases {
            let (case, starts) = closed(150);
            let case = case.with_member(4096);
            let mut tail = Lsn(0);
            case.superblock(|superblock| tail = superblock.clean.unwrap());
            let last = starts[149].0 / SEGMENT;
            assert!(last >= 1 && starts[130].0 / SEGMENT == last, "opening reads the segment of the mark");
            if !clean {
                // Flushed up to its last record, as one that was killed behind a flush.
                case.superblock(|superblock| (superblock.clean, superblock.persisted) = (None, tail));
            }
            hurt(&case, &starts, last);
            let expected = is_known.then_some(tail);
            let opened = case.open(OpenMode::Tail).unwrap();
            assert!(opened.tail < tail, "{what}, clean {clean}");
            assert_eq!(opened.acknowledged_max, expected, "{what}, clean {clean}");
            // A header is made again: then what is whole behind it tells.
            let expected = expected.or(what.starts_with("the header").then_some(tail));
            let again = case.open(OpenMode::Tail).unwrap();
            assert_eq!(again.acknowledged_max, expected, "{what}, clean {clean}, again");
        }
    }
    let opened = closed(150).0.with_member(4096).open(OpenMode::Tail).unwrap();
    assert_eq!(opened.acknowledged_max, Some(opened.tail));
}

/// No kill takes away a header that was flushed before the first record: whole records in a segment without one are damage, of a log that was killed, too.
#[test]
fn records_in_a_segment_whose_header_is_gone_are_damage_and_no_torn_end_kind_11() {
    for (at, lost) in [(10, 1), (0, 48), (0, 4096)] {
        for count in [20, 150] {
            let folder = folder();
            let (log, starts) = log(&folder, count, 1);
            drop(log);
            let case = Case::of(folder);
            case.superblock(|superblock| (superblock.clean, superblock.persisted) = (None, Lsn(4096)));
            let last = segment(starts.last().unwrap().0 / SEGMENT);
            let mut bytes = fs::read(case.path(&last)).unwrap();
            bytes[at..at + lost].fill(if lost == 1 { 0xff } else { 0 });
            fs::write(case.path(&last), bytes).unwrap();
            for mode in [OpenMode::Strict, OpenMode::Tail] {
                let refused = case.open(mode).unwrap_err();
                assert_eq!(refused.row(), Some(Row::SegmentLost), "{at} {lost} {count}: {refused}");
            }
            let member = case.with_member(4096).open(OpenMode::Tail).unwrap();
            // A member has it sent again, and counts for nothing of it before.
            assert!(!member.damage.is_empty(), "{member:?}");
        }
    }
}

#[test]
fn every_row_is_read_by_salvage_as_the_table_says() {
    for row in Row::all() {
        let case = case(row);
        let before = case.files();
        let inspection = Inspection::open(disk(case.folder.path()), case.options.log_id);
        let reads = row.action(OpenMode::Salvage, Holder::Lone) == Action::ReadOnly;
        assert_eq!(inspection.is_ok(), reads, "{}, {row:?}", row.label());
        match inspection.and_then(|mut inspection| inspection.verify()) {
            Err(error) => assert_eq!(error.row(), Some(row), "{error}"),
            Ok(report) => {
                // Looking reads all of it, and does not ask where the folder comes from, nor what a member has answered for.
                let expected = if row == Row::FolderCopied {
                    Row::NeverLed
                } else if row == Row::EndMissed {
                    Row::EndBlank
                } else {
                    read_whole(row)
                };
                assert_eq!(report.verdict.row, expected);
            }
        }
        assert!(case.files() == before, "{row:?}");
    }
}

/// What an older segment's row is to who reads all of the log.
fn read_whole(row: Row) -> Row {
    if row == Row::OlderSegmentForeign {
        Row::ForeignSegment
    } else if matches!(row, Row::OlderSegmentMissing | Row::OlderSegmentDamaged) {
        Row::SegmentLost
    } else {
        row
    }
}

fn holder(case: &Case) -> Holder {
    let inspection = Inspection::open(disk(case.folder.path()), None);
    let lone = inspection.map_or(true, |inspection| inspection.superblock().configuration.is_empty());
    if lone { Holder::Lone } else { Holder::Member }
}

#[test]
fn every_row_of_the_second_part_has_a_case_in_a_real_folder() {
    for row in Onward::all() {
        let case = onward_case(row);
        let before = Inspection::open(disk(case.folder.path()), None).unwrap().superblock().clone();
        let opened = case.open(OpenMode::Tail).unwrap_or_else(|error| panic!("{}: {error}", row.label()));
        assert_eq!(opened.onward, row, "{}", row.label());
        let after = Inspection::open(disk(case.folder.path()), None).unwrap().superblock().clone();
        assert_eq!(after != before, row.settles(), "{row:?}");
        assert_eq!(after.incarnation != before.incarnation, row.reincarnates(), "{row:?}");
        let begun = after
            .history
            .last()
            .is_some_and(|last| last.start == opened.tail && after.history != before.history);
        assert_eq!(begun, row.begins_epoch(), "{row:?}");
        // R-11, in whole pages; of a copy to the end of the tail's segment, as who copied it may have left anything there.
        let written = match row {
            Onward::Closed | Onward::ClosedUnchained | Onward::MemberClosed => 0,
            Onward::Crashed | Onward::MemberCrashed => {
                assert!(before.persisted.0 >= 2 * PAGE && before.persisted < opened.tail, "{row:?}");
                opened.tail.0.next_multiple_of(PAGE) - before.persisted.0 / PAGE * PAGE
            }
            Onward::Copied | Onward::MemberCopied => SEGMENT - SEGMENT_HEADER_BYTES,
        };
        assert_eq!(opened.rewritten_bytes, written, "{row:?}");
    }
}
