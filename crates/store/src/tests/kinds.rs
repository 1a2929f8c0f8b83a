//! One test for each kind of failure of DESIGN.md section 13 that is the store's, and for its rules, beyond what the crash sweep covers.

use std::sync::Arc;

use windlass_log::{
    Class, Epoch, Extent, LogId, Lsn, MemberId, OpenMode, RecordKind, Row, SEGMENT_BYTES_MIN,
};

use super::testlog::{AROUND, TestLog, founding, options};
use super::{filled, payload};
use crate::disk::testing::{Call, Survive, TestDisk};
use crate::disk::{Disk, Errno};
use crate::{
    Condition, CopiedFolder, CreateError, Inspection, OpenError, Options, PrepareError, Prepared, Read,
    ReadError, Store, StoreError, Surroundings, TrimError, UnsafeFilesystem, UpdateError, Vouch,
};

const SEGMENT: u64 = SEGMENT_BYTES_MIN;

fn segment_name(number: u64) -> String {
    format!("{:016x}.segment", number * SEGMENT)
}

/// Where in which file a record lies.
fn place(lsn: Lsn) -> (String, u64) {
    (segment_name(lsn.0 / SEGMENT), lsn.0 % SEGMENT)
}

fn strict() -> Options {
    Options { mode: OpenMode::Strict, ..options() }
}

fn whole() -> Options {
    Options { extent: Extent::Whole, ..options() }
}

#[test]
fn kind_1_a_torn_last_record_is_cut_and_said_so_and_strict_refuses() {
    let (disk, mut log, starts) = filled(50);
    let last = log.append(&[7; 700]).unwrap();
    drop(log);
    let disk = disk.after_power_loss(Survive::Everything);
    let (name, offset) = place(last.start);
    disk.flip(&name, offset + 100, 1);
    let refused = Store::open(disk.copied_in_place(), &AROUND, &strict()).unwrap_err();
    let OpenError::Refused { verdict, offset: at, file } = &refused else { panic!("{refused}") };
    assert_eq!((verdict.row, *at), (Row::TornTail, offset));
    assert!(file.ends_with(&name), "{refused}");
    let log = TestLog::open(disk).unwrap();
    assert!(log.opened.cut);
    assert_eq!(log.opened.tail, last.start);
    assert_eq!(log.payloads().len(), starts.len());
}

#[test]
fn kind_2_damage_below_the_mark_refuses_with_file_offset_and_lsn() {
    let (disk, log, starts) = filled(200);
    log.close().unwrap();
    let (name, offset) = place(starts[10]);
    disk.flip(&name, offset + 40, 0x80);
    let refused = Store::open(disk.clone(), &AROUND, &whole()).unwrap_err();
    let text = refused.to_string();
    let OpenError::Refused { verdict, .. } = refused else { panic!("{text}") };
    assert_eq!((verdict.row, verdict.stop.lsn), (Row::RecordDamaged, starts[10]));
    assert!(text.contains(&name) && text.contains(&format!("LSN {}, offset {offset}", starts[10])), "{text}");
    // From the mark on there is no damage; who reads the old record meets it, and never the end.
    let log = TestLog::open(disk).unwrap();
    let mut reader = log.store.reader(starts[9]);
    assert!(matches!(reader.next(log.handoff.drained()), Ok(Read::Record(_))));
    for _ in 0..2 {
        let damaged = reader.next(log.handoff.drained()).map(|_| ()).unwrap_err();
        let ReadError::Damaged { lsn, offset: at, .. } = &damaged else { panic!("{damaged}") };
        assert_eq!((*lsn, *at), (starts[10], offset));
    }
}

#[test]
fn kind_2_a_segment_that_is_missing_or_another_s_refuses() {
    let (disk, log, _) = filled(300);
    log.close().unwrap();
    let missing = disk.copied_in_place();
    missing.remove_file(&segment_name(1));
    let refused = Store::open(missing, &AROUND, &options()).unwrap_err();
    assert!(matches!(refused, OpenError::SegmentMissing { base: Lsn(SEGMENT), .. }), "{refused}");
    let swapped = disk.copied_in_place();
    swapped.write_file(&segment_name(1), &disk.read_file(&segment_name(0)));
    let refused = Store::open(swapped.copied_in_place(), &AROUND, &options()).unwrap_err();
    assert!(matches!(refused, OpenError::SegmentHeader { base: Lsn(SEGMENT), .. }), "{refused}");
    let refused = Store::open(swapped, &AROUND, &whole()).unwrap_err();
    let OpenError::Refused { verdict, .. } = refused else { panic!("{refused}") };
    assert_eq!(verdict.row, Row::ForeignSegment);
    let last = (0..).take_while(|number| disk.names().contains(&segment_name(*number))).count() as u64 - 1;
    let tail = Inspection::open(disk.clone(), None).unwrap().superblock().clean.unwrap();
    assert!(tail.0 / SEGMENT <= last);
    disk.remove_file(&segment_name(tail.0 / SEGMENT));
    let refused = Store::open(disk, &AROUND, &options()).unwrap_err();
    let OpenError::Refused { verdict, .. } = refused else { panic!("{refused}") };
    assert_eq!((verdict.row, verdict.class()), (Row::SegmentLost, Class::Damage));
}

#[test]
fn verifying_counts_records_and_copies_and_names_a_header_by_its_place() {
    let (disk, log, starts) = filled(200);
    log.close().unwrap();
    let verify = || Inspection::open(disk.clone(), None).unwrap().verify().unwrap();
    let report = verify();
    assert_eq!((report.condition, report.superblock_copies), (Condition::Clean, 2));
    assert_eq!(report.appended_records, 200);
    let mut own = 0;
    let inspection = Inspection::open(disk.clone(), None).unwrap();
    let mut walk = inspection.walk(report.trimmed);
    while let Ok(record) = walk.step().unwrap() {
        own += u64::from(record.header.kind != RecordKind::Data);
    }
    assert!(own > 2, "some segments: {own}");
    assert_eq!(report.own_records, own);
    for copy in [0, 64 << 10] {
        disk.flip("superblock", copy + 200, 1);
        let report = verify();
        assert_eq!((report.condition, report.superblock_copies), (Condition::Clean, 1));
        disk.flip("superblock", copy + 200, 1);
    }
    // A damaged header is where it is, not where its segment's first record is; a damaged record is where that is.
    for (number, at) in [(0, 3), (1, 20)] {
        disk.flip(&segment_name(number), at, 1);
        let report = verify();
        assert_eq!((report.condition, report.offset), (Condition::Damaged, 0), "{report:?}");
        assert!(report.file.ends_with(segment_name(number)), "{report:?}");
        disk.flip(&segment_name(number), at, 1);
    }
    let (name, offset) = place(starts[7]);
    disk.flip(&name, offset + 20, 1);
    let report = verify();
    assert_eq!((report.offset, report.appended_records), (offset, 7));
}

#[test]
fn kind_3_salvage_reads_round_a_hole_and_changes_nothing() {
    let (disk, log, starts) = filled(120);
    log.close().unwrap();
    let (name, offset) = place(starts[20]);
    disk.flip(&name, offset + 40, 4);
    let before: Vec<_> = disk.names().into_iter().map(|name| disk.read_file(&name)).collect();
    let steps = disk.steps();
    let mut inspection = Inspection::open(disk.clone(), None).unwrap();
    let report = inspection.verify().unwrap();
    assert_eq!(
        (report.condition, report.verdict.stop.lsn, report.offset),
        (Condition::Damaged, starts[20], offset)
    );
    let mut walk = inspection.walk(report.trimmed);
    let mut read = 0;
    let mut holes = Vec::new();
    loop {
        match walk.step().unwrap() {
            Ok(record) => read += u32::from(record.header.kind == RecordKind::Data),
            Err(stop) => match walk.skip_damage().unwrap() {
                Some(next) => holes.push((stop.lsn, next)),
                None => break,
            },
        }
    }
    assert_eq!((read, holes), (119, vec![(starts[20], starts[21])]));
    assert!(Store::open(disk.clone(), &AROUND, &Options { mode: OpenMode::Salvage, ..options() }).is_err());
    assert_eq!(disk.steps(), steps, "kind 37: looking changes nothing");
    assert_eq!(disk.names().into_iter().map(|name| disk.read_file(&name)).collect::<Vec<_>>(), before);
}

#[test]
fn kind_5_24_25_the_first_failed_flush_is_final_and_its_lsns_never_carry_other_content_in_the_same_epoch() {
    let (disk, mut log, _) = filled(10);
    let acknowledged = log.store.persisted();
    let unknown = log.append(b"unknown").unwrap();
    disk.fail(Call::FlushRange, 0, Errno::IO);
    let failed = log.flush().unwrap_err();
    assert!(
        matches!(&failed, StoreError::MediumFailed(failed) if failed.cause.errno == Errno::IO),
        "{failed}"
    );
    for _ in 0..2 {
        assert_eq!(log.flush().unwrap_err(), failed, "a later flush, which the kernel would let pass");
    }
    assert_eq!(log.store.persisted(), acknowledged);
    assert!(matches!(log.store.update(|_| {}), Err(UpdateError::Store(StoreError::MediumFailed(_)))));
    assert!(matches!(log.store.prepare_step(unknown.end), Err(PrepareError::Store(_))));
    assert!(matches!(log.store.trim(unknown.start, unknown.end), Err(TrimError::Store(_))));
    assert!(log.store.close(log.handoff.drained()).is_err(), "no clean mark after a failure");
    let epoch = log.handoff.epoch();
    drop(log);
    // The page cache still holds the record, the medium does not: the next opening writes it again and goes on in a new epoch.
    let log = TestLog::open(disk.after_kill()).unwrap();
    assert_eq!(log.opened.tail, unknown.end);
    assert!(log.handoff.epoch() > epoch);
    drop(log);
    let log = TestLog::open(disk.after_power_loss(Survive::Nothing)).unwrap();
    assert_eq!(log.payloads().last().map(Vec::as_slice), Some(&b"unknown"[..]), "R-11");
}

#[test]
fn kind_7_an_error_of_reading_is_never_the_end_of_the_log() {
    let (disk, log, starts) = filled(200);
    let drained = log.handoff.drained();
    let mut reader = log.store.reader(starts[0]);
    disk.fail(Call::Read, 0, Errno::IO);
    assert!(matches!(reader.next(drained), Err(ReadError::Disk(error)) if error.errno == Errno::IO));
    assert!(matches!(reader.next(drained), Ok(Read::Record(_))), "the reader stands where it stood");
    log.close().unwrap();
    let reads = {
        let before = disk.calls(Call::Read);
        drop(Store::open(disk.clone(), &AROUND, &whole()).unwrap());
        disk.calls(Call::Read) - before
    };
    assert!(reads > 5);
    let names = disk.names();
    for nth in 0..reads {
        disk.fail(Call::Read, nth, Errno::IO);
        match Store::open(disk.clone(), &AROUND, &whole()) {
            // The second opener's pid, and nothing else, may be unreadable.
            Ok((store, opened)) => drop((store, assert!(opened.clean))),
            Err(OpenError::Disk(error)) => assert_eq!(error.errno, Errno::IO),
            Err(error) => panic!("read {nth}: {error}"),
        }
    }
    assert_eq!(disk.names(), names);
    assert_eq!(TestLog::open(disk).unwrap().payloads().len(), 200);
}

#[test]
fn kind_11_r_5_a_superblock_that_cannot_be_used_is_refused_and_one_bad_copy_is_mended() {
    let (disk, log, _) = filled(5);
    log.close().unwrap();
    for copy in [0, 64 << 10] {
        let one = disk.copied_in_place();
        one.flip("superblock", copy + 200, 1);
        drop(Store::open(one.clone(), &AROUND, &options()).unwrap());
        // Mended: the other copy may go now.
        one.flip("superblock", (64 << 10) - copy + 200, 1);
        assert_eq!(TestLog::open(one).unwrap().payloads().len(), 5);
    }
    let both = disk.copied_in_place();
    both.flip("superblock", 200, 1);
    both.flip("superblock", (64 << 10) + 200, 1);
    let blank = disk.copied_in_place();
    blank.write_file("superblock", &[]);
    let version = disk.copied_in_place();
    let mut bytes = disk.read_file("superblock");
    for copy in [0, 64 << 10] {
        bytes[copy + 12] = 99;
        let length =
            usize::try_from(u32::from_le_bytes(bytes[copy + 24..copy + 28].try_into().unwrap())).unwrap();
        let checksum = crc32fast::hash(&bytes[copy + 12..copy + length]);
        bytes[copy + 8..copy + 12].copy_from_slice(&checksum.to_le_bytes());
    }
    version.write_file("superblock", &bytes);
    for (disk, word) in [(both, "checksum"), (blank, "blank"), (version, "version 99")] {
        let before = disk.read_file("superblock");
        let error = Store::open(disk.clone(), &AROUND, &options()).unwrap_err();
        assert!(matches!(error, OpenError::Superblock { .. }) && error.to_string().contains(word), "{error}");
        let error = Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap_err();
        assert!(matches!(error, CreateError::Exists { .. }), "never initialised: {error}");
        assert_eq!(disk.read_file("superblock"), before);
    }
    let other = Options { log_id: Some(LogId([1; 16])), ..options() };
    let error = Store::open(disk, &AROUND, &other).unwrap_err();
    assert!(matches!(error, OpenError::ForeignLog { .. }), "{error}");
}

#[test]
fn kind_15_a_ready_segment_without_a_header_is_only_blocks_to_reuse() {
    let (disk, log, starts) = filled(5);
    let next = segment_name(1);
    assert!(disk.names().contains(&next), "a segment is ready ahead");
    log.close().unwrap();
    disk.write_file(&next, &vec![0; usize::try_from(SEGMENT).unwrap()]);
    disk.write_file("0000000000090000.tmp", b"half a segment");
    let log = TestLog::open(disk.clone()).unwrap();
    assert_eq!(log.payloads().len(), starts.len());
    assert!(!disk.names().iter().any(|name| name.ends_with(".tmp")));
    assert_eq!(log.store.counters().segments_made, 0, "its blocks were used again");
}

#[test]
fn kind_17_19_recycled_segments_show_nothing_of_their_former_life_and_suffice() {
    let (disk, mut log, _) = filled(5);
    let mut number = 5;
    for _ in 0..24 {
        // Nearly a retention's worth, then everything is released.
        for _ in 0..200 {
            log.append(&payload(number)).unwrap();
            number += 1;
        }
        log.flush().unwrap();
        let tail = log.handoff.drained();
        log.handoff.retire();
        log.store.trim(tail, tail).unwrap();
        log.prepare().unwrap();
        assert!(log.payloads().is_empty(), "kind 17");
    }
    let counters = log.store.counters();
    assert!(
        counters.segments_made < 6,
        "kind 19: only as many as the retention asks for are ever made: {counters:?}"
    );
    assert!(counters.segments_recycled > 60, "{counters:?}");
    assert!(disk.used_bytes() < 8 * SEGMENT + (1 << 20), "and no more files than the retention asks for");
    // Kind 46: the log is empty and its numbering goes on.
    let tail = log.handoff.drained();
    log.close().unwrap();
    assert_eq!(TestLog::open(disk).unwrap().opened.tail, tail);
}

#[test]
fn kind_19_a_free_file_that_is_still_mapped_is_used_before_one_that_is_not() {
    let fill_and_trim = |log: &mut TestLog<TestDisk>| {
        for number in 0..600 {
            log.append(&payload(number)).unwrap();
        }
        log.flush().unwrap();
        let tail = log.handoff.drained();
        log.handoff.retire();
        log.store.trim(tail, tail).unwrap();
    };
    let (disk, mut log, _) = filled(5);
    fill_and_trim(&mut log);
    log.close().unwrap();
    let mut log = TestLog::open(disk).unwrap();
    fill_and_trim(&mut log);
    let mut pool = crate::store::locked(&log.store.pool);
    // The mapped one is not the last one either.
    let mapped = pool.free.iter().position(|free| free.open.is_some()).unwrap();
    let mapped = pool.free.remove(mapped);
    pool.free.insert(0, mapped);
    let unmapped = crate::pool::Free { number: pool.number_unused(), open: None };
    pool.free.push(unmapped);
    assert!(pool.take_free().unwrap().open.is_some());
}

#[test]
fn kind_20_21_22_a_full_disk_is_an_answer_and_everything_but_growing_still_works() {
    let (disk, mut log, starts) = filled(60);
    disk.set_capacity(Some(disk.used_bytes()));
    let mut starts = starts;
    let full = loop {
        match log.append(&payload(5)) {
            Ok(appended) => starts.push(appended.start),
            Err(error) => break error,
        }
        assert!(starts.len() < 1000);
    };
    let last = *starts.last().unwrap();
    assert!(last.0 > SEGMENT);
    assert!(matches!(full, PrepareError::Full { reserve_given_back: true, .. }), "{full}");
    disk.set_capacity(Some(disk.used_bytes()));
    log.flush().unwrap();
    assert_eq!(log.payloads().len(), starts.len());
    log.close().unwrap();
    // Kind 21: opening, reading, verifying and trimming with not a byte free.
    let mut inspection = Inspection::open(disk.clone(), None).unwrap();
    assert_eq!(inspection.verify().unwrap().condition, Condition::Clean);
    let (store, opened) = Store::open(disk.clone(), &AROUND, &options()).unwrap();
    let store = Arc::new(store);
    store.begin().unwrap();
    let error = loop {
        match store.prepare_step(opened.tail) {
            Ok(Prepared::Idle) => panic!("there is no room for a segment"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PrepareError::Full { .. }), "{error}");
    store.trim(last, opened.tail).unwrap();
    drop(store);
    // Kind 22: nothing is latched; once there is room it goes on, here with the blocks that the trim released.
    let mut log = TestLog::open(disk.clone()).unwrap();
    log.append(&payload(5)).unwrap();
    disk.set_capacity(None);
    log.flush().unwrap();
    log.prepare().unwrap();
    assert!(disk.names().contains(&"reserve".to_owned()), "the reserve is made again");
}

/// A log whose disk got full exactly where a segment ends, all of it persisted, so that nothing of it need stay mapped.
fn full_at_a_segments_end() -> (TestDisk, TestLog<TestDisk>) {
    let (disk, mut log, _) = filled(60);
    disk.set_capacity(Some(disk.used_bytes()));
    while log.append(&payload(5)).is_ok() {}
    // The reserve was given back.
    disk.set_capacity(Some(disk.used_bytes()));
    // What is left of the last segment.
    let geometry = log.store.geometry();
    let mut end = log.handoff.tail();
    while geometry.offset_of(end) != windlass_log::SEGMENT_HEADER_BYTES {
        let room = usize::try_from(geometry.room(end)).unwrap();
        end = log.append(&vec![5; (room - 32).min(1000)]).unwrap().end;
    }
    log.flush().unwrap();
    assert_eq!(log.store.persisted().lsn(), end);
    (disk, log)
}

/// Steps until there is no room; the segment there was none for.
fn without_room(store: &Store<TestDisk>, tail: Lsn) -> u64 {
    loop {
        match store.prepare_step(tail) {
            Ok(Prepared::Idle | Prepared::Segment { .. }) => panic!("there is no room for a segment"),
            Ok(
                Prepared::Allocated { .. }
                | Prepared::Populated { .. }
                | Prepared::Marked { .. }
                | Prepared::Recycled { .. },
            ) => {}
            Err(PrepareError::Full { segment, .. }) => return segment,
            Err(error @ (PrepareError::Store(_) | PrepareError::Disk(_))) => panic!("{error}"),
        }
    }
}

#[test]
fn kind_22_29_once_a_full_disk_has_room_the_missing_segment_is_made_first_however_far_the_need_reaches() {
    let (disk, log) = full_at_a_segments_end();
    let TestLog { store, handoff, drain, .. } = log;
    let tail = handoff.tail();
    let missing = store.geometry().segment_of(tail);
    drop((handoff, drain));
    // A primary that wants to write further ahead.
    let wanted = store.geometry().first_record(missing + 1);
    assert_eq!(without_room(&store, wanted), missing);
    disk.set_capacity(None);
    let mut made = Vec::new();
    loop {
        match store.prepare_step(wanted).unwrap() {
            Prepared::Segment { segment, .. } => made.push(segment),
            Prepared::Idle => break,
            Prepared::Allocated { .. }
            | Prepared::Populated { .. }
            | Prepared::Marked { .. }
            | Prepared::Recycled { .. } => {}
        }
    }
    assert_eq!(made, [missing, missing + 1, missing + 2]);
}

#[test]
fn kind_22_45_a_segment_opened_again_to_be_read_leads_to_no_other_being_made_anew_over_it() {
    let (disk, log) = full_at_a_segments_end();
    let before = log.payloads();
    let TestLog { store, handoff, drain, .. } = log;
    let (tail, drained) = (handoff.tail(), handoff.drained());
    drop((handoff, drain));
    without_room(&store, tail);
    // A backup that lags is sent the beginning.
    let held = store.memory(0).unwrap();
    disk.set_capacity(None);
    while !matches!(store.prepare_step(tail).unwrap(), Prepared::Idle) {}
    drop(held);
    let mut reader = store.reader(store.trimmed());
    let mut after = Vec::new();
    while let Read::Record(record) = reader.next(drained).expect("the log is whole") {
        if record.header.kind == windlass_log::RecordKind::Data {
            after.push(record.payload.unwrap().to_vec());
        }
    }
    assert!(after == before, "{} of {} records are left", after.len(), before.len());
}

#[test]
fn kind_23_a_file_that_was_cut_short_is_refused_before_it_is_mapped() {
    let (disk, log, _) = filled(200);
    log.close().unwrap();
    let name = segment_name(1);
    let bytes = disk.read_file(&name);
    disk.write_file(&name, &bytes[..bytes.len() - 4096]);
    let error = Store::open(disk, &AROUND, &options()).unwrap_err();
    assert!(matches!(error, OpenError::SegmentFile { base: Lsn(SEGMENT), .. }), "{error}");
}

#[test]
fn kind_27_the_old_segment_is_flushed_before_the_new_one() {
    let (disk, mut log, _) = filled(5);
    let before = log.store.persisted();
    while log.handoff.tail().0 < SEGMENT + 20_000 {
        log.append(&payload(6)).unwrap();
    }
    let flushes = disk.calls(Call::FlushRange);
    // The second of the two: the new segment's.
    disk.fail(Call::FlushRange, 1, Errno::IO);
    log.flush().unwrap_err();
    assert_eq!(disk.calls(Call::FlushRange) - flushes, 2);
    assert_eq!(log.store.persisted(), before);
    drop(log);
    // The old one was first: the log is whole up to its end.
    let log = TestLog::open(disk.after_power_loss(Survive::Nothing)).unwrap();
    assert!(log.opened.tail.0 >= SEGMENT, "{}", log.opened.tail);
}

#[test]
fn kind_32_33_a_second_opener_is_told_who_has_it_and_a_dead_holder_is_no_obstacle() {
    let (disk, log, _) = filled(5);
    let error = Store::open(disk.clone(), &AROUND, &options()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { holder: Some(1), .. }), "{error}");
    assert_eq!(Inspection::open(disk.clone(), None).unwrap().in_use(), Some(true));
    drop(log);
    assert_eq!(disk.read_file("owner").len(), 11, "its note is still there");
    drop(TestLog::open(disk.after_kill()).unwrap());
}

/// Whoever empties the folder of a log that runs takes away what is acknowledged: the log says so with the next update of its superblock, at the latest
/// where it would mark itself clean, and acknowledges nothing more.
#[test]
fn a_log_whose_superblock_was_removed_while_it_runs_fails_and_acknowledges_nothing_more() {
    let (disk, mut log, _) = filled(5);
    log.store.update(|_| {}).unwrap();
    disk.remove_file("superblock");
    let upto = log.append(&[1; 100]).unwrap().end;
    log.store.flush(upto).unwrap();
    let error = log.store.update(|_| {}).unwrap_err();
    assert!(error.to_string().contains("which somebody has removed, of"), "{error}");
    let upto = log.append(&[1; 100]).unwrap().end;
    let error = log.store.flush(upto).unwrap_err();
    assert!(matches!(error, StoreError::MediumFailed(_)), "{error}");
    assert!(log.close().is_err());
    // Without any update: at its end, and where pages ahead of the tail are made present.
    let (disk, log, _) = filled(5);
    disk.remove_file("superblock");
    assert!(log.close().is_err());
    let (disk, mut log, _) = filled(5);
    disk.remove_file("superblock");
    let stopped = (0..60).find_map(|_| {
        log.append(&[1; 1000]).unwrap();
        log.prepare().err()
    });
    assert!(matches!(stopped, Some(PrepareError::Store(_))), "{stopped:?}");
}

/// A segment of other records is whole by itself: only the chain tells, and it does so while a process appends, too, which can't have written that.
#[test]
fn kind_2_a_broken_chain_is_damage_also_beside_whoever_appends() {
    let of = |first: u8| {
        let disk = TestDisk::new();
        let mut log = TestLog::create(disk.clone()).unwrap();
        let starts: Vec<Lsn> = (0..200).map(|_| log.append(&[first; 1000]).unwrap().start).collect();
        log.flush().unwrap();
        (disk, log, *starts.last().unwrap())
    };
    let ((disk, open, last), (other, ..)) = (of(1), of(2));
    assert!(last.0 > 3 * SEGMENT);
    let mut looked = Inspection::open(disk.clone(), None).unwrap();
    assert!(matches!(looked.verify().unwrap().condition, Condition::InUse));
    disk.write_file(&segment_name(1), &other.read_file(&segment_name(1)));
    let report = looked.verify().unwrap();
    assert!(matches!(report.condition, Condition::Damaged), "{report:?}");
    assert_eq!(report.verdict.row, Row::ChainBroken);
    drop(open);
}

#[test]
fn kind_34_network_and_copy_on_write_filesystems_are_refused_unless_allowed() {
    for magic in [0x6969, 0x9123_683E] {
        let disk = TestDisk::new();
        disk.set_filesystem(magic);
        let error = Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap_err();
        assert!(matches!(error, CreateError::Filesystem { .. }), "{error}");
        assert!(disk.names().is_empty());
        let allowed = Options { unsafe_filesystem: UnsafeFilesystem::Use, ..options() };
        drop(Store::create(disk.clone(), &founding(), &AROUND, &allowed).unwrap());
        let error = Store::open(disk, &AROUND, &options()).unwrap_err();
        assert!(matches!(error, OpenError::Filesystem { .. }), "{error}");
    }
}

#[test]
fn kind_34_a_create_that_fails_leaves_nothing() {
    let steps = {
        let disk = TestDisk::new();
        drop(Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap());
        disk.steps()
    };
    assert!(steps > 10);
    for call in [Call::Create, Call::Write, Call::Allocate, Call::Sync, Call::SyncFolder, Call::Rename] {
        for nth in 0..4 {
            let disk = TestDisk::new();
            disk.fail(call, nth, Errno::NOSPC);
            if let Err(error) = Store::create(disk.clone(), &founding(), &AROUND, &options()) {
                assert!(
                    disk.names().is_empty() || matches!(error, CreateError::Open(_)),
                    "{call:?} {nth}: {error}: {:?}",
                    disk.names()
                );
            }
        }
    }
    let disk = TestDisk::new();
    disk.set_capacity(Some(100 << 10));
    let error = Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap_err();
    assert!(matches!(&error, CreateError::Disk(error) if error.is_full()), "{error}");
    assert!(disk.names().is_empty());
}

/// Killed, or without power, at any step of making a log: whoever opens or makes one finds the log, or may make it.
#[test]
fn kind_34_a_create_that_is_cut_off_at_any_step_is_begun_again_by_who_opens_or_creates() {
    let steps = {
        let disk = TestDisk::new();
        drop(Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap());
        disk.steps()
    };
    let (mut again, mut whole) = (0, 0);
    for step in 0..steps {
        let stopped = TestDisk::new();
        stopped.stop_at(step);
        let _ = Store::create(stopped.clone(), &founding(), &AROUND, &options());
        let left = [
            stopped.after_kill(),
            stopped.after_power_loss(Survive::Nothing),
            stopped.after_power_loss(Survive::Everything),
        ];
        for disk in left {
            match Store::open(disk.clone(), &AROUND, &options()) {
                Ok(opened) => {
                    whole += 1;
                    drop(opened);
                }
                Err(OpenError::NoLog { empty: true, .. }) => {
                    again += 1;
                    drop(Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap());
                    drop(Store::open(disk, &AROUND, &options()).unwrap());
                }
                Err(error) => panic!("step {step}: {error}: {:?}", disk.names()),
            }
        }
    }
    assert!(again > 10 && whole > 10, "{again} {whole}");
}

#[test]
fn kind_35_37_only_an_empty_folder_becomes_a_log_and_a_mount_point_is_one() {
    let disk = TestDisk::new();
    let error = Store::open(disk.clone(), &AROUND, &options()).unwrap_err();
    assert!(matches!(error, OpenError::NoLog { empty: true, .. }), "{error}");
    assert_eq!(disk.steps(), 0);
    disk.write_file("holiday.jpg", b"x");
    let error = Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap_err();
    assert!(matches!(&error, CreateError::NotEmpty { name, .. } if name == "holiday.jpg"), "{error}");
    let error = Store::open(disk, &AROUND, &options()).unwrap_err();
    assert!(matches!(error, OpenError::NoLog { empty: false, .. }), "{error}");
    // A log that lost its superblock is not an empty folder.
    let (disk, log, _) = filled(5);
    log.close().unwrap();
    disk.remove_file("superblock");
    let error = Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap_err();
    assert!(matches!(error, CreateError::NotEmpty { .. }), "{error}");
    let error = Store::open(disk.clone(), &AROUND, &options()).unwrap_err();
    assert!(matches!(error, OpenError::SuperblockMissing { .. }), "{error}");
    let error = Inspection::open(disk, None).unwrap_err();
    assert!(matches!(error, OpenError::SuperblockMissing { .. }), "{error}");
    let mounted = TestDisk::new();
    mounted.write_file("lost+found", b"");
    drop(Store::create(mounted, &founding(), &AROUND, &options()).unwrap());
}

#[test]
fn kind_36_maps_and_descriptors_stay_bounded() {
    let (_disk, mut log, starts) = filled(2000);
    log.handoff.retire();
    log.prepare().unwrap();
    assert!(log.handoff.tail().0 > 10 * SEGMENT);
    assert!(log.store.segments().len() <= 4, "{}", log.store.segments().len());
    // A cold segment is mapped when asked for, and closed again when nobody holds it.
    let cold = log.store.memory(2).unwrap();
    let mut bytes = [0; 8];
    cold.copy_out(0, &mut bytes);
    assert_eq!(&bytes, b"WINDLSEG");
    log.prepare().unwrap();
    assert!(log.store.segments().contains_key(&2), "held");
    drop(cold);
    log.append(b"x").unwrap();
    log.prepare().unwrap();
    assert!(!log.store.segments().contains_key(&2), "no longer held");
    assert_eq!(log.payloads_from(starts[1990]).len(), 11);
}

#[test]
fn kind_42_43_a_cut_is_durable_when_it_returns_also_behind_the_last_flush() {
    let (disk, mut log, starts) = filled(40);
    log.handoff.seal();
    log.drain();
    let superblock = log.store.superblock();
    let epoch = superblock.promised.next_for(MemberId(0));
    let mut history = superblock.history;
    history.cut(starts[30]);
    history.extend(epoch, starts[30]).unwrap();
    log.store.cut(starts[30], history, epoch).unwrap();
    assert_eq!(log.store.persisted().lsn(), starts[30]);
    drop(log);
    for survive in [Survive::Nothing, Survive::Everything, Survive::Seeded(1)] {
        let log = TestLog::open(disk.after_power_loss(survive)).unwrap();
        assert_eq!(log.payloads().len(), 30, "{survive:?}");
    }
}

#[test]
fn kind_44_45_47_trim_releases_whole_segments_in_order_and_a_failure_is_counted_and_tried_again() {
    let (disk, log, starts) = filled(300);
    log.handoff.retire();
    let keep = starts[250];
    disk.fail(Call::Rename, 0, Errno::ACCESS);
    log.store.trim(keep, log.handoff.drained()).unwrap();
    assert_eq!(log.store.counters().recycle_failures, 1);
    assert!(disk.names().contains(&segment_name(0)), "the one that failed is still there");
    log.prepare().unwrap();
    assert!(!disk.names().contains(&segment_name(0)), "tried again");
    assert_eq!(log.payloads().len(), 50);
    let error = log.store.trim(Lsn(keep.0 + 8), log.handoff.drained()).unwrap_err();
    assert!(
        matches!(&error, TrimError::InsideRecord { lsn, record: Some(record) } if *lsn == Lsn(keep.0 + 8) && record.start == keep),
        "{error:?}"
    );
    let beyond = Lsn(log.handoff.drained().0 + 4096);
    assert!(matches!(log.store.trim(beyond, log.handoff.drained()), Err(TrimError::BeyondEnd { .. })));
}

#[test]
fn kind_48_gone_at_end_and_inside_a_record_are_different_answers() {
    let (_disk, log, starts) = filled(300);
    let end = log.handoff.drained();
    let mut early = log.store.reader(starts[3]);
    assert!(matches!(early.next(end), Ok(Read::Record(_))));
    log.handoff.retire();
    log.store.trim(starts[250], end).unwrap();
    let purged = early.next(end).map(|_| ()).unwrap_err();
    assert_eq!(purged, ReadError::Purged { lsn: starts[4], first: starts[250] });
    assert!(matches!(log.store.reader(end).next(end), Ok(Read::AtEnd { lsn }) if lsn == end));
    let inside = log.store.reader(Lsn(starts[260].0 + 8)).next(end).map(|_| ()).unwrap_err();
    let ReadError::InsideRecord { lsn, start, end } = inside else { panic!("{inside}") };
    assert_eq!((lsn, start), (Lsn(starts[260].0 + 8), starts[260]));
    assert!(end > start && end <= starts[261]);
}

#[test]
fn r_2_a_segment_whose_memory_is_held_is_not_recycled() {
    let (disk, log, starts) = filled(300);
    let region = log.store.memory(0).unwrap();
    log.handoff.retire();
    log.store.trim(starts[250], log.handoff.drained()).unwrap();
    log.prepare().unwrap();
    assert!(
        disk.names().contains(&segment_name(0)) && disk.names().contains(&segment_name(1)),
        "and none behind it"
    );
    assert!(log.store.counters().segments_held >= 2);
    drop(region);
    log.prepare().unwrap();
    assert!(!disk.names().contains(&segment_name(0)) && !disk.names().contains(&segment_name(1)));
    assert_eq!(log.store.counters().segments_held, 0);
}

#[test]
fn r_6_the_clean_mark_is_durably_gone_before_memory_is_given_out() {
    let (disk, log, _) = filled(5);
    log.close().unwrap();
    let (store, opened) = Store::open(disk.clone(), &AROUND, &options()).unwrap();
    assert!(opened.clean);
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.ready().len()));
    assert!(asked.is_err(), "R-6 is asserted");
    let clean = |disk: &TestDisk| {
        Inspection::open(disk.after_power_loss(Survive::Nothing), None).unwrap().superblock().clean
    };
    assert!(clean(&disk).is_some(), "opening alone leaves the log clean");
    store.begin().unwrap();
    assert_eq!(clean(&disk), None);
    let writes = store.counters().superblock_writes;
    store.begin().unwrap();
    assert_eq!(store.counters().superblock_writes, writes, "once");
}

#[test]
fn r_11_the_persisted_mark_trails_by_less_than_a_segment() {
    let (_disk, mut log, _) = filled(5);
    for number in 0..1000 {
        log.append(&payload(number)).unwrap();
        if number % 20 == 0 {
            log.flush().unwrap();
            log.prepare().unwrap();
            let mark = log.store.superblock().persisted;
            assert!(log.store.persisted().lsn().0 - mark.0 < SEGMENT, "mark {mark}");
        }
    }
}

/// A log that was killed with records that no mark vouches for, opened with R-11 left for later.
fn unvouched() -> (TestDisk, Arc<Store<TestDisk>>, crate::Opened) {
    let (disk, mut log, _) = filled(5);
    for number in 0..300 {
        log.append(&payload(number)).unwrap();
    }
    drop(log);
    let disk = disk.after_kill();
    let later = Options { vouch: Vouch::Later, ..options() };
    let (store, opened) = Store::open(disk.clone(), &AROUND, &later).unwrap();
    assert!(!store.is_vouched() && store.persisted().lsn() < opened.tail && opened.rewritten_bytes == 0);
    (disk, Arc::new(store), opened)
}

#[test]
fn r_11_left_for_later_the_log_reads_to_its_end_and_all_that_writes_or_claims_does_it_first() {
    type Does = fn(&Arc<Store<TestDisk>>, Lsn);
    let all: [(&str, Does); 6] = [
        ("flush", |store, tail| assert_eq!(store.flush(tail).unwrap().lsn(), tail)),
        ("begin", |store, _| store.begin().unwrap()),
        ("update", |store, _| store.update(|_| {}).unwrap()),
        ("trim", |store, tail| store.trim(tail, tail).unwrap()),
        ("close", |store, tail| store.close(tail).unwrap()),
        ("vouch", |store, _| assert!(store.vouch().unwrap() > 0)),
    ];
    for (name, does) in all {
        let (disk, store, opened) = unvouched();
        let mark = store.persisted().lsn();
        let mut reader = store.reader(store.trimmed());
        let mut records = 0;
        while let Read::Record(_) = reader.next(opened.tail).unwrap() {
            records += 1;
        }
        assert!(records > 300 && reader.at() == opened.tail, "{name}");
        assert!(!store.is_vouched() && store.persisted().lsn() == mark, "{name}: reading claims nothing");
        assert!(store.flush(mark).is_ok() && !store.is_vouched(), "{name}: a flush of what is flushed");
        does(&store, opened.tail);
        assert!(store.is_vouched() && store.persisted().lsn() == opened.tail, "{name}");
        let superblock = store.superblock();
        assert!(
            superblock.persisted == opened.tail && Some(superblock.promised) == opened.epoch,
            "{name}: R-12"
        );
        drop((reader, store));
        let lost = TestLog::open(disk.after_power_loss(Survive::Nothing)).unwrap();
        assert_eq!(lost.opened.tail, opened.tail, "{name}");
    }
}

#[test]
#[should_panic(expected = "R-6")]
fn r_11_left_for_later_no_memory_is_given_out_before() {
    let (_disk, store, _) = unvouched();
    let _ = store.ready();
}

#[test]
fn kind_24_a_failure_of_r_11_left_for_later_is_final_for_the_opening() {
    for call in [Call::Write, Call::Sync] {
        let (disk, store, opened) = unvouched();
        let mark = store.persisted().lsn();
        disk.fail(call, 0, Errno::IO);
        let failed = store.vouch().unwrap_err();
        assert!(
            matches!(&failed, StoreError::MediumFailed(failed) if failed.cause.errno == Errno::IO),
            "{failed}"
        );
        for _ in 0..2 {
            assert_eq!(
                store.vouch().unwrap_err(),
                failed,
                "{call:?}: a later flush, which the kernel would let pass"
            );
            assert_eq!(store.flush(opened.tail).unwrap_err(), failed);
        }
        assert!(store.begin().is_err() && store.update(|_| {}).is_err() && store.close(opened.tail).is_err());
        assert!(!store.is_vouched() && store.persisted().lsn() == mark);
        drop(store);
        let log = TestLog::open(disk.after_kill()).unwrap();
        assert!(log.opened.tail == opened.tail && !log.opened.clean, "{call:?}: the next opening does it");
    }
}

#[test]
fn r_12_a_lone_log_that_was_not_closed_goes_on_in_a_new_epoch_and_a_closed_one_in_its_own() {
    let (disk, log, _) = filled(5);
    let epoch = log.handoff.epoch();
    log.close().unwrap();
    let log = TestLog::open(disk.clone()).unwrap();
    assert_eq!(log.handoff.epoch(), epoch);
    drop(log);
    let log = TestLog::open(disk.after_kill()).unwrap();
    assert!(!log.opened.clean && log.handoff.epoch() > epoch);
    let superblock = log.store.superblock();
    assert_eq!(superblock.promised, log.handoff.epoch(), "R-5");
    assert_eq!(superblock.history.epoch_at(log.opened.tail), Some(log.handoff.epoch()));
    assert!(!log.opened.memory_lost);
    drop(log);
    let booted = Surroundings { boot_id: [2; 16], ..AROUND };
    let (_store, opened) = Store::open(disk.after_power_loss(Survive::Nothing), &booted, &options()).unwrap();
    assert!(opened.memory_lost);
}

#[test]
fn a_kill_after_a_clean_stop_and_a_restart_of_the_machine_lost_no_memory_r19() {
    let (disk, log, _) = filled(5);
    log.close().unwrap();
    let booted = Surroundings { boot_id: [2; 16], ..AROUND };
    let (store, opened) = Store::open(disk.clone(), &booted, &options()).unwrap();
    assert!(opened.clean && !opened.memory_lost);
    store.begin().unwrap();
    drop(store);
    // The process is killed; the machine runs on.
    let (store, opened) = Store::open(disk.after_kill(), &booted, &options()).unwrap();
    assert!(!opened.clean && !opened.memory_lost);
    drop(store);
    // A machine that really lost its memory in between is still told.
    let again = Surroundings { boot_id: [3; 16], ..AROUND };
    let (_store, opened) = Store::open(disk.after_power_loss(Survive::Nothing), &again, &options()).unwrap();
    assert!(opened.memory_lost);
}

#[test]
fn a_copied_folder_is_found_out() {
    let (disk, log, _) = filled(5);
    let epoch = log.handoff.epoch();
    log.close().unwrap();
    let log = TestLog::open(disk.copied()).unwrap();
    assert!(
        log.opened.copied && log.handoff.epoch() > epoch,
        "a lone log's copy goes on in an epoch of its own"
    );
    // A member of a group must not vote from a copy.
    let member = TestDisk::new();
    let founding = crate::Founding { configuration: b"three members".to_vec(), epoch: None, ..founding() };
    drop(Store::create(member.clone(), &founding, &AROUND, &options()).unwrap());
    let copy = member.copied();
    let error = Store::open(copy.clone(), &AROUND, &options()).unwrap_err();
    assert!(matches!(error, OpenError::Copied { .. }), "{error}");
    let taken = Options { copied_folder: CopiedFolder::TakeOver, ..options() };
    let (store, opened) = Store::open(copy.clone(), &AROUND, &taken).unwrap();
    assert!(opened.copied);
    assert_eq!(store.superblock().incarnation, AROUND.incarnation);
    drop(store);
    assert!(!Store::open(copy, &AROUND, &options()).unwrap().1.copied, "once");
    assert!(!Store::open(member, &AROUND, &options()).unwrap().1.copied);
}

#[test]
fn a_forked_child_may_not_use_the_store() {
    let (disk, log, _) = filled(5);
    disk.fork();
    let error = log.store.flush(Lsn(1 << 40)).unwrap_err();
    assert!(matches!(error, StoreError::Forked { .. }), "{error}");
    assert!(matches!(log.store.update(|_| {}), Err(UpdateError::Store(StoreError::Forked { .. }))));
}

#[test]
fn r_5_a_promise_is_in_both_copies_before_the_call_returns() {
    let (disk, log, _) = filled(5);
    let promised = Epoch::new(9, MemberId(2));
    log.store.update(|superblock| superblock.promised = promised).unwrap();
    drop(log);
    for copy in [0, 64 << 10] {
        let lost = disk.after_power_loss(Survive::Nothing);
        lost.flip("superblock", copy + 300, 1);
        let (store, _) = Store::open(lost, &AROUND, &options()).unwrap();
        assert!(store.superblock().promised > promised, "and R-12's own is above it");
        assert_eq!(store.superblock().promised.counter(), 10);
    }
    let back = TestLog::open(disk.after_kill()).unwrap();
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = back.store.update(|superblock| superblock.promised = promised);
    }));
    assert!(asked.is_err(), "R-7: a promise never goes back");
    assert!(back.store.disk().is_locked() == Some(true));
}

#[test]
fn kind_6_r_12_an_epoch_that_began_behind_bytes_that_are_gone_is_no_obstacle() {
    for flushed in [0, 3] {
        let (disk, mut log, _) = filled(flushed);
        for number in flushed..10 {
            log.append(&payload(number)).unwrap();
        }
        let cut = log.append(b"goes").unwrap().start;
        log.handoff.seal();
        log.drain();
        let superblock = log.store.superblock();
        let epoch = superblock.promised.next_for(MemberId(0));
        let mut history = superblock.history;
        history.cut(cut);
        history.extend(epoch, cut).unwrap();
        // The power goes when the cut is in the superblock, and nothing of what lies below it and was never flushed is on the medium.
        disk.stop_at(disk.steps() + 4);
        log.store.cut(cut, history.clone(), epoch).unwrap_err();
        drop(log);
        let disk = disk.after_power_loss(Survive::Nothing);
        assert_eq!(Inspection::open(disk.clone(), None).unwrap().superblock().history, history);
        let log = TestLog::open(disk).unwrap();
        assert_eq!(log.payloads().len(), usize::try_from(flushed).unwrap());
        assert!(log.opened.tail < cut && log.handoff.epoch() > epoch, "{:?}", log.opened);
    }
}

#[test]
fn kind_30_r_11_nothing_vouches_for_the_bytes_of_a_copied_folder() {
    let (disk, mut log, starts) = filled(150);
    log.handoff.retire();
    log.store.trim(starts[20], log.handoff.drained()).unwrap();
    for closed in [false, true] {
        log.append(b"one more").unwrap();
        log.flush().unwrap();
        let tail = log.handoff.tail();
        if closed {
            log.close().unwrap();
            log = TestLog::open(disk.after_kill()).unwrap();
        }
        let expected = log.payloads();
        let copy = disk.copied_just_now();
        let (store, opened) = Store::open(copy.clone(), &AROUND, &options()).unwrap();
        assert_eq!((opened.copied, opened.tail), (true, tail));
        drop(store);
        // What the marks of the original say of its medium is not so here, until opening has written it again.
        let copy = TestLog::open(copy.after_power_loss(Survive::Nothing)).unwrap();
        assert_eq!(copy.payloads(), expected, "closed: {closed}");
    }
}

#[test]
fn kind_44_a_trim_and_what_a_member_changes_with_it_are_one_update_of_the_superblock() {
    let (disk, log, starts) = filled(300);
    let before = (log.store.counters().superblock_writes, log.store.superblock());
    let end = log.handoff.drained();
    log.store.trim_with(starts[250], end, |superblock| superblock.acknowledged = end).unwrap();
    let after = log.store.superblock();
    assert_eq!(log.store.counters().superblock_writes, before.0 + 1, "no crash can part the two");
    assert_eq!((after.trimmed, after.acknowledged), (starts[250], end));
    // What can't be trimmed changes nothing.
    let inside = Lsn(starts[260].0 + 8);
    let error =
        log.store.trim_with(inside, end, |superblock| superblock.acknowledged = starts[0]).unwrap_err();
    assert!(
        matches!(&error, TrimError::InsideRecord { lsn, record: Some(record) } if *lsn == inside && record.contains(lsn)),
        "{error:?}"
    );
    assert_eq!(log.store.superblock(), after);
    // The store's own fields stay its own; below the trim point the change alone is made.
    log.store.trim_with(starts[100], end, |superblock| superblock.trimmed = starts[0]).unwrap();
    assert_eq!(log.store.superblock().trimmed, starts[250]);
    let log = TestLog::open(disk.after_power_loss(Survive::Nothing)).unwrap();
    assert_eq!(log.store.trimmed(), starts[250]);
}

/// A segment that is wholly persisted may be unmapped by the helper; a flush under way that finds it gone takes it for released if the trim point says so, and
/// for a failure of the medium otherwise: in between, the mark must never be above a trim point that takes it along.
#[test]
fn kind_44_the_trim_point_moves_before_the_persisted_mark_that_it_takes_along() {
    let mut log = TestLog::create(TestDisk::new()).unwrap();
    let starts: Vec<Lsn> = (0..300).map(|number| log.append(&payload(number)).unwrap().start).collect();
    let (store, flushed) = (&log.store, log.store.persisted().lsn());
    let to = starts[299];
    assert!(flushed < to, "nothing of it is flushed");
    let mut between = None;
    store.pass_marks(to, || between = Some((store.persisted().lsn(), store.trimmed())));
    assert_eq!(between, Some((flushed, to)));
    assert_eq!((store.persisted().lsn(), store.trimmed()), (to, to));
}

/// A flush that was on its way when damage was found raises the mark in memory; on the medium it stays at the damage until that is cut off, or an opening would take
/// the log for whole.
#[test]
fn kind_12_a_flush_behind_damage_that_was_found_does_not_hide_it_again_r_18() {
    let (disk, log, starts) = filled(200);
    let _flushed = log.flush().unwrap();
    log.prepare().unwrap();
    let end = log.store.superblock().persisted;
    let hurt = starts[20];
    assert!(end.0 > hurt.0 + SEGMENT, "the mark is behind: {end}");
    log.store.distrust(hurt..starts[21]).unwrap();
    let _flushed = log.flush().unwrap();
    assert!(log.store.persisted().lsn() > hurt);
    log.prepare().unwrap();
    assert_eq!(log.store.superblock().persisted, hurt);
    // Nor does closing, before the damage is cut off.
    let copy = disk.copied_in_place();
    log.close().unwrap();
    let closed = Inspection::open(disk.copied_in_place(), None).unwrap();
    assert_eq!((closed.superblock().persisted, closed.superblock().clean), (hurt, None));
    let log = TestLog::open(copy).unwrap();
    log.store.distrust(hurt..starts[21]).unwrap();
    log.store.cut_with(hurt, |_| {}).unwrap();
    assert_eq!(log.store.mark_max.load(std::sync::atomic::Ordering::Relaxed), u64::MAX);
}

/// Between the reading that found damage and the word that lowers the mark to it the log may have been trimmed or cut: then nothing of it is missed, and nobody may be
/// told that it is.
#[test]
fn kind_12_damage_that_was_trimmed_or_cut_off_since_it_was_found_is_none_any_more() {
    let (_, log, starts) = filled(200);
    let end = log.flush().unwrap().lsn();
    let before = log.store.superblock().persisted;
    log.store.trim_with(starts[30], end, |_| {}).unwrap();
    assert_eq!(log.store.distrust(starts[20]..starts[21]), Ok(None));
    assert!(log.store.superblock().persisted >= before, "a mark was lowered for what is released");
    log.store.cut_with(starts[150], |_| {}).unwrap();
    assert_eq!(log.store.distrust(starts[160]..starts[161]), Ok(None));
    assert_eq!(log.store.distrust(starts[40]..starts[42]), Ok(Some(starts[40])));
    assert_eq!(log.store.persisted().lsn(), starts[40]);
    // Or trimmed right behind that word: then no cut will come, and the mark may rise again.
    let mark_max = || log.store.mark_max.load(std::sync::atomic::Ordering::Relaxed);
    log.store.trim_with(starts[35], starts[150], |_| {}).unwrap();
    assert_eq!(mark_max(), starts[40].0, "the damage is not below");
    log.store.trim_with(starts[41], starts[150], |_| {}).unwrap();
    assert_eq!(mark_max(), starts[41].0, "the rest of it is not below");
    log.store.trim_with(starts[60], starts[150], |_| {}).unwrap();
    assert_eq!(mark_max(), u64::MAX);
}

/// What this process stores itself makes its pages dirty. What others may have stored, or a process before, is written again by the flush and by nobody else.
#[test]
fn r_11_what_is_taken_over_behind_the_tail_is_written_again_by_the_flush_alone_in_pieces_kind_24() {
    let (disk, log, _) = filled(5);
    drop(log);
    let disk = disk.after_kill();
    let mut log = TestLog::open(disk.clone()).unwrap();
    let writes = |disk: &TestDisk| disk.calls(Call::Write);
    let append = |log: &mut TestLog<TestDisk>| {
        for number in 0..20 {
            log.append(&payload(number)).unwrap();
        }
        log.handoff.drained()
    };
    append(&mut log);
    let (before, steps) = (writes(&disk), disk.steps());
    log.flush().unwrap();
    assert_eq!((writes(&disk), disk.steps()), (before, steps + 1), "its own: the segment's flush alone");
    let end = append(&mut log);
    assert!(end.0 - log.store.persisted().lsn().0 > 3 * 4096, "several pages");
    log.store.take_over(end);
    assert_eq!(writes(&disk), before, "not by who says so");
    assert_eq!(log.flush().unwrap().lsn(), end);
    assert_eq!(writes(&disk), before + 1, "in one piece");
    append(&mut log);
    log.flush().unwrap();
    assert_eq!(writes(&disk), before + 1, "what comes behind was not taken over");
    let persisted = log.store.persisted();
    let end = append(&mut log);
    log.store.take_over(end);
    disk.fail(Call::Write, 0, Errno::IO);
    let flushes = disk.calls(Call::FlushRange);
    assert!(log.flush().is_err());
    assert!(log.store.failure().is_some() && log.store.persisted() == persisted, "final");
    assert_eq!(disk.calls(Call::FlushRange), flushes, "nothing was flushed over it");
}

/// A log that goes past 2 GiB, 4 GiB and farther, as far as its beginning was released: LSNs are as wide everywhere.
#[test]
fn kind_39_a_log_goes_on_past_two_and_four_gib_and_farther() {
    for boundary in [1_u64 << 31, 1 << 32, 3 << 32, 1 << 48] {
        let disk = TestDisk::new();
        let log = TestLog::create(disk.clone()).unwrap();
        log.handoff.retire();
        log.store.reset_with(Lsn(boundary - SEGMENT_BYTES_MIN + 4096), |_| {}).unwrap();
        drop(log);
        let disk = disk.after_kill();
        let mut log = TestLog::open(disk.clone()).unwrap();
        let begins = log.opened.tail;
        let starts: Vec<Lsn> = (0..300).map(|number| log.append(&payload(number)).unwrap().start).collect();
        assert!(starts[0].0 < boundary && starts[299].0 > boundary + SEGMENT_BYTES_MIN, "{starts:?}");
        let end = log.flush().unwrap().lsn();
        let all: Vec<_> = (0..300).map(payload).collect();
        assert!(log.payloads_from(begins) == all, "{boundary:#x}");
        drop(log);
        let disk = disk.after_kill();
        let report = Inspection::open(disk.clone(), None).unwrap().verify().unwrap();
        assert_eq!(report.verdict.tail(), end, "{boundary:#x}: {report:?}");
        let log = TestLog::open(disk).unwrap();
        assert_eq!((log.opened.tail, log.opened.cut), (end, false), "{boundary:#x}");
        assert!(log.payloads_from(begins) == all, "{boundary:#x}");
        log.store.trim(starts[250], end).unwrap();
        assert!(log.payloads() == all[250..], "{boundary:#x}");
    }
}
