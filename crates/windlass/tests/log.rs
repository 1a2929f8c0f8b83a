//! The log of one node through its public interface, on a real folder.

#[path = "support/lines.rs"]
mod lines;
#[path = "support/records.rs"]
mod records;

use std::future::Future as _;
use std::time::{Duration, Instant};

use lines::Lines;
use windlass::{
    AppendError, CommitError, CreateError, Epoch, Level, Log, Lsn, OpenError, OpenMode, Options, Outcome,
    ReadError, ReadOnly, TrimError, TruncateError, Verified,
};

fn small() -> Options {
    Options::new().segment_bytes(64 << 10)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn payloads(log: &Log, from: Lsn, level: Level) -> Vec<Vec<u8>> {
    records::rest(log.read_at(from, level).unwrap())
}

#[test]
fn what_is_appended_is_read_back_across_segments_and_openings() {
    let folder = folder();
    let log = small().open_or_create(folder.path()).unwrap();
    let mut want = Vec::new();
    for i in 0..2000usize {
        let payload = vec![u8::try_from(i % 251).unwrap(); i % 300];
        let appended = log.append_wait_blocking(&payload, soon()).unwrap();
        assert!(appended.end > appended.start);
        want.push(payload);
        if i % 97 == 0 {
            let proof = log.commit_blocking(appended.end, Level::Local).unwrap();
            assert_eq!((proof.end(), proof.level()), (appended.end, Level::Local));
        }
    }
    let tail = log.info().tail;
    let first = log.info().trimmed;
    assert_eq!(payloads(&log, first, Level::Buffered), want);
    let _proof = log.commit_blocking(tail, Level::Durable).unwrap();
    assert_eq!(payloads(&log, first, Level::Durable), want);
    let epoch = log.info().epoch;
    log.close().unwrap();

    let log = Log::open(folder.path(), small()).unwrap();
    assert_eq!(
        (log.info().tail, log.info().persisted, log.info().epoch),
        (tail, tail, epoch),
        "a clean close"
    );
    assert_eq!(payloads(&log, first, Level::Durable), want);
    log.close().unwrap();
}

#[test]
fn a_batch_is_one_record_whose_items_have_lsns_of_their_own() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let batch = log.append_batch(&[b"one", b"", b"three"]).unwrap();
    let single = log.append(b"four").unwrap();
    assert_eq!(batch.end, single.start);
    let mut reader = log.read_at(log.info().trimmed, Level::Buffered).unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let record = reader.next().unwrap();
        seen.push((record.item, record.payload.to_vec(), record.lsn, record.end));
    }
    assert_eq!(
        seen.iter().map(|(item, payload, ..)| (*item, payload.as_slice())).collect::<Vec<_>>(),
        [(Some(0), &b"one"[..]), (Some(1), b""), (Some(2), b"three"), (None, b"four")]
    );
    assert!(seen[..3].iter().all(|(.., end)| *end == batch.end));
    assert!(batch.start < seen[0].2 && seen[0].2 < seen[1].2 && seen[2].2 < batch.end);
    assert!(matches!(reader.next(), Err(ReadError::AtEnd { end }) if end == single.end));
    let long = vec![0u8; usize::try_from(log.payload_bytes_max()).unwrap()];
    assert!(
        matches!(log.append_batch(&[&long]), Err(AppendError::TooLarge { .. })),
        "its frame no longer fits"
    );
    log.close().unwrap();
}

#[test]
fn a_reservation_is_written_in_place_and_a_dropped_one_is_never_seen() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    drop(log.reserve(100).unwrap());
    let mut reservation = log.reserve(11).unwrap();
    reservation.write(6, b"world");
    reservation.write(0, b"hello ");
    let start = reservation.start();
    let appended = reservation.publish();
    assert_eq!(appended.start, start);
    let _proof = log.commit_blocking(appended.end, Level::Local).unwrap();
    assert_eq!(payloads(&log, log.info().trimmed, Level::Local), [b"hello world".to_vec()]);
    log.close().unwrap();
}

#[test]
fn bad_input_of_an_append_or_commit_is_a_typed_error_and_the_log_goes_on() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let max = usize::try_from(log.payload_bytes_max()).unwrap();
    let error = log.append(&vec![1; max + 1]).unwrap_err();
    assert!(matches!(error, AppendError::TooLarge { payload_bytes, payload_bytes_max }
        if payload_bytes == max as u64 + 1 && payload_bytes_max == max as u64));
    let longest = log.append_wait_blocking(&vec![1; max], soon()).unwrap();
    let empty = log.append_wait_blocking(b"", soon()).unwrap();
    assert!(longest.end <= empty.start && empty.start < empty.end, "an empty record is legal (kind 40)");
    assert!(matches!(log.commit_blocking(empty.end, Level::Replicated), Err(CommitError::NoGroup)));
    let beyond = Lsn(empty.end.0 + 8);
    assert!(matches!(log.commit_blocking(beyond, Level::Local), Err(CommitError::BeyondTail { .. })));
    let _proof = log.commit_blocking(empty.end, Level::Durable).unwrap();
    assert_eq!(payloads(&log, log.info().trimmed, Level::Durable).len(), 2);
    log.close().unwrap();
}

#[test]
fn purged_at_end_inside_and_beyond_are_different_answers_kind_48() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let records: Vec<_> = (0..1000).map(|_| log.append_wait_blocking(&[7; 200], soon()).unwrap()).collect();
    let end = records.last().unwrap().end;
    let _proof = log.commit_blocking(end, Level::Local).unwrap();
    let (lsn, record) = (Lsn(records[500].start.0 + 8), Some(records[500].start..records[500].end));
    assert_eq!(log.trim(lsn), Err(TrimError::InsideRecord { lsn, record }));
    // Of a header page no record is named.
    let lsn = Lsn(65_536 + 8);
    assert_eq!(log.trim(lsn), Err(TrimError::InsideRecord { lsn, record: None }));
    assert!(matches!(log.trim(Lsn(end.0 + 8)), Err(TrimError::Beyond { .. })));
    let mut old = log.read_from(records[0].start).unwrap();
    log.trim(records[500].start).unwrap();
    assert_eq!(log.info().trimmed, records[500].start);
    let purged =
        |error: ReadError| matches!(error, ReadError::Purged { first, .. } if first == records[500].start);
    assert!(purged(log.read_from(records[0].start).unwrap_err()));
    let truncated = log.truncate(records[0].start).map(|_| ());
    assert!(matches!(truncated, Err(TruncateError::Purged { .. })), "{truncated:?}");
    assert!(purged(old.next().unwrap_err()), "a reader that is overtaken is told so");
    let mut inside = log.read_from(Lsn(records[600].start.0 + 16)).unwrap();
    assert!(
        matches!(inside.next(), Err(ReadError::InsideRecord { record, .. }) if record == records[600].start)
    );
    assert!(matches!(log.read_from(Lsn(end.0 + 8)), Err(ReadError::Beyond { .. })));
    let mut at_end = log.read_from(end).unwrap();
    assert!(matches!(at_end.next(), Err(ReadError::AtEnd { end: at }) if at == end));
    let mut rest = log.read_from(records[500].start).unwrap();
    for record in &records[500..] {
        assert_eq!(rest.next().unwrap().lsn, record.start);
    }
    log.close().unwrap();
    let reopened = small().open(folder.path()).unwrap();
    assert_eq!(reopened.info().trimmed, records[500].start, "the trim is durable");
    reopened.close().unwrap();
}

/// A third answer beside purged and at the end, with the place: to a reader and to a subscription, which go no further.
#[test]
fn damaged_is_an_answer_of_its_own_and_names_the_place_kind_48() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let records: Vec<_> = (0..1000).map(|_| log.append_wait_blocking(&[7; 200], soon()).unwrap()).collect();
    log.close().unwrap();
    let hurt = &records[300];
    let file = folder.path().join(format!("{:016x}.segment", hurt.start.0 / 65_536 * 65_536));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[usize::try_from(hurt.start.0 % 65_536).unwrap() + 100] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let log = small().open(folder.path()).unwrap();
    log.trim(records[100].start).unwrap();
    let is_told = |error: ReadError| {
        let ReadError::Damaged { file: at, offset, lsn, .. } = &error else { panic!("{error}") };
        assert_eq!((at, *offset, *lsn), (&file, hurt.start.0 % 65_536, hurt.start));
    };
    assert!(matches!(log.read_from(records[0].start), Err(ReadError::Purged { .. })));
    let mut reader = log.read_from(records[100].start).unwrap();
    let mut following = log.subscribe(records[100].start, Level::Local).unwrap();
    for record in &records[100..300] {
        assert_eq!(reader.next().unwrap().lsn, record.start);
        assert_eq!(following.next_blocking(Some(soon())).unwrap().lsn, record.start);
    }
    is_told(reader.next().unwrap_err());
    is_told(reader.next().unwrap_err());
    is_told(following.next_blocking(Some(soon())).unwrap_err());
    let mut behind = log.read_from(hurt.end).unwrap();
    for record in &records[301..] {
        assert_eq!(behind.next().unwrap().lsn, record.start);
    }
    assert!(matches!(behind.next(), Err(ReadError::AtEnd { .. })));
    log.close().unwrap();
}

#[test]
fn the_level_of_the_options_is_that_of_commits_and_readers_that_name_none() {
    for level in [None, Some(Level::Buffered)] {
        let folder = folder();
        let options = small().threads(false);
        let log = level.map_or(options.clone(), |level| options.level(level)).create(folder.path()).unwrap();
        while log.step() == windlass::Step::Progress {}
        let appended = log.append(b"one").unwrap();
        while log.step() == windlass::Step::Progress {}
        let mut commit = Box::pin(log.commit_default(appended.end));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let read =
            || log.read_from(appended.start).and_then(|mut reader| reader.next().map(|record| record.lsn));
        if level.is_none() {
            assert!(commit.as_mut().poll(&mut cx).is_pending(), "nothing is flushed yet");
            assert!(read().is_err(), "nor shown");
            log.step_flush();
        }
        let std::task::Poll::Ready(Ok(proof)) = commit.as_mut().poll(&mut cx) else { panic!("{level:?}") };
        assert_eq!((proof.end(), proof.level()), (appended.end, level.unwrap_or(Level::Durable)));
        assert_eq!(read(), Ok(appended.start));
        assert_eq!(log.metrics().flushes, u64::from(level.is_none()));
        drop(commit);
        log.close().unwrap();
    }
}

/// The log's identity is new with each log, also in the same place; epochs go on from where a log was closed, killed, cut or trimmed empty.
#[test]
fn kind_18_no_log_and_no_epoch_comes_twice() {
    let folder = folder();
    let place = folder.path().join("log");
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let log = small().create(&place).unwrap();
        assert!(ids.insert(log.info().log_id.0), "{ids:?}");
        let _ = log.append(b"x").unwrap();
        log.close().unwrap();
        std::fs::remove_dir_all(&place).unwrap();
    }
    let log = small().create(&place).unwrap();
    let (log_id, mut epochs) = (log.info().log_id, vec![log.info().epoch]);
    let appended = log.append(b"x").unwrap();
    let log = log.truncate(appended.start).unwrap();
    epochs.push(log.info().epoch);
    let appended = log.append(b"y").unwrap();
    let _proof = log.commit_blocking(appended.end, Level::Local).unwrap();
    log.trim(appended.end).unwrap();
    // What a kill leaves, three times over.
    let mut left = crate_copy(&place);
    log.close().unwrap();
    for _ in 0..3 {
        let log = small().open(left.path()).unwrap();
        assert_eq!(log.info().log_id, log_id);
        epochs.push(log.info().epoch);
        let next = crate_copy(left.path());
        log.close().unwrap();
        left = next;
    }
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "{epochs:?}");
}

#[test]
fn trimming_everything_keeps_the_lsn_and_the_epoch_going_kind_46() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    for _ in 0..700 {
        log.append_wait_blocking(&[1; 250], soon()).unwrap();
    }
    let tail = log.info().tail;
    log.trim(tail).unwrap();
    let epoch = log.info().epoch;
    log.close().unwrap();
    let log = small().open(folder.path()).unwrap();
    assert_eq!((log.info().tail, log.info().trimmed, log.info().epoch), (tail, tail, epoch));
    assert!(log.append(b"on").unwrap().start >= tail);
    log.close().unwrap();
}

#[test]
fn the_cap_is_an_error_of_append_a_warning_and_ends_with_a_trim() {
    let folder = folder();
    let log = small().retention_bytes(256 << 10).create(folder.path()).unwrap();
    let mut last = None;
    let error = loop {
        match log.append_wait_blocking(&[3; 1000], soon()) {
            Ok(appended) => last = Some(appended),
            Err(error) => break error,
        }
    };
    let AppendError::Full { retained_bytes, retention_bytes, .. } = error else { panic!("{error}") };
    assert_eq!(retention_bytes, 256 << 10);
    // Entering a segment costs its header page as well.
    assert!(retained_bytes <= retention_bytes && retained_bytes > retention_bytes - 8192, "{retained_bytes}");
    let metrics = log.metrics();
    assert!(metrics.retention_warning && metrics.retention_warnings == 1 && metrics.append_full >= 1);
    let last = last.unwrap();
    let _proof = log.commit_blocking(last.end, Level::Local).unwrap();
    log.trim(last.start).unwrap();
    log.append_wait_blocking(&[4; 1000], soon()).unwrap();
    assert!(!log.metrics().retention_warning, "calm again");
    log.close().unwrap();
}

#[test]
fn a_log_that_is_nearly_full_says_so_in_one_line_and_counts_what_it_does() {
    let folder = folder();
    let lines = Lines::default();
    let log = small().retention_bytes(256 << 10).logger(lines.logger()).create(folder.path()).unwrap();
    let mut payload_bytes = 0;
    let mut records = 0;
    while log.append_wait_blocking(&[3; 1000], soon()).is_ok() {
        (records, payload_bytes) = (records + 1, payload_bytes + 1000);
        let metrics = log.metrics();
        let is_above = metrics.retained_bytes * 100 > metrics.retention_bytes * 80;
        assert_eq!(metrics.retention_warning, is_above, "{} bytes", metrics.retained_bytes);
    }
    let _proof = log.commit_blocking(log.info().tail, Level::Local).unwrap();
    assert_eq!(lines.take(slog::Level::Warning).len(), 1);
    let metrics = log.metrics();
    assert_eq!(metrics.payload_bytes, payload_bytes);
    assert!(metrics.records >= records, "with segment starts and filler");
    assert_eq!(metrics.group_commits.count, metrics.flushes);
    assert!(metrics.flush_ns.sum > 0 && metrics.flush_bytes.sum > 0);
    assert_eq!(metrics.persisted, metrics.tail);
    if let Some(ratio) = metrics.device_bytes_per_payload_byte() {
        assert!(ratio >= 0.0);
    }
    let text = metrics.to_prometheus("log=\"test\"");
    assert!(
        text.contains(&format!("windlass_payload_bytes_total{{log=\"test\"}} {payload_bytes}\n")),
        "{text}"
    );
    assert!(text.contains("windlass_retention_warning{log=\"test\"} 1\n"));
    let info = log.info();
    for (name, lsn) in [
        ("trimmed", info.trimmed),
        ("persisted", info.persisted),
        ("durable", info.tail),
        ("drained", info.tail),
        ("tail", info.tail),
    ] {
        assert!(text.contains(&format!("windlass_{name}_lsn{{log=\"test\"}} {lsn}\n")), "{name}: {text}");
    }
    log.close().unwrap();
}

#[test]
fn a_truncation_is_durable_before_it_returns_and_its_suffix_never_comes_back_kind_42() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let records: Vec<_> =
        (0..900u32).map(|i| log.append_wait_blocking(&i.to_le_bytes().repeat(40), soon()).unwrap()).collect();
    let first_epoch = log.info().epoch;
    let cut = records[400].start;
    assert!(
        matches!(log.truncate(Lsn(cut.0 + 8)), Err(TruncateError::InsideRecord { record, .. }) if record == cut)
    );
    assert!(matches!(log.truncate(Lsn(records[899].end.0 + 8)), Err(TruncateError::Beyond { .. })));
    let _proof = log.commit_blocking(records[899].end, Level::Local).unwrap();
    let mut behind = log.read_from(records[390].start).unwrap();
    let mut following = log.subscribe(records[899].end, Level::Local).unwrap();
    let pending = log.commit(records[899].end, Level::Local);
    let next = log.truncate(cut).unwrap();
    assert_eq!(next.info().tail, cut);
    assert!(next.info().epoch > first_epoch);
    assert!(
        matches!(log.append(b"old handle"), Err(AppendError::Sealed { tail, .. }) if tail == records[899].end)
    );
    assert!(matches!(log.truncate(cut), Err(TruncateError::Sealed { .. })));
    drop(pending);
    for record in &records[390..400] {
        assert_eq!(behind.next().unwrap().lsn, record.start);
    }
    assert!(matches!(behind.next(), Err(ReadError::Ended { end }) if end == cut), "an end, not damage");
    assert!(matches!(following.next_blocking(None), Err(ReadError::Ended { .. })));
    assert_eq!(next.outcome(first_epoch, records[400].start), Outcome::Cut);
    assert_eq!(next.outcome(first_epoch, records[399].start), Outcome::Committed);
    assert_eq!(next.outcome(first_epoch, records[899].start), Outcome::Cut);
    drop(log);
    // A crash right after: what was cut stays cut.
    let copy = crate_copy(folder.path());
    let report = ReadOnly::open(copy.path(), OpenMode::Tail).unwrap().verify().unwrap();
    assert_eq!((report.found, report.lsn), (Verified::Clean, cut), "{report:?}");
    let new: Vec<_> = (0..900u32)
        .map(|i| next.append_wait_blocking(&(!i).to_le_bytes().repeat(20), soon()).unwrap())
        .collect();
    let _proof = next.commit_blocking(new[899].end, Level::Local).unwrap();
    assert_eq!(next.outcome(next.info().epoch, new[0].start), Outcome::Committed);
    let read = payloads(&next, records[0].start, Level::Local);
    assert_eq!(read.len(), 400 + 900);
    assert_eq!(read[399], 399u32.to_le_bytes().repeat(40));
    assert_eq!(read[400], (!0u32).to_le_bytes().repeat(20));
    next.close().unwrap();
}

/// A copy of the folder's files as they are in the page cache: what another process would see after a crash of this one.
fn crate_copy(from: &std::path::Path) -> tempfile::TempDir {
    let to = folder();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match std::fs::copy(entry.path(), to.path().join(entry.file_name())) {
            Ok(_) => {}
            // A segment ahead that was made meanwhile has another name by now.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{error}"),
        }
    }
    to
}

#[test]
fn a_crash_is_recovered_in_a_new_epoch_and_the_outcomes_are_told_r12() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let epoch = log.info().epoch;
    let records: Vec<_> = (0..600).map(|_| log.append_wait_blocking(&[9; 180], soon()).unwrap()).collect();
    let _proof = log.commit_blocking(records[599].end, Level::Buffered).unwrap();
    let copy = crate_copy(folder.path());
    let crashed = small().open(copy.path()).unwrap();
    assert_eq!(crashed.info().tail, records[599].end, "buffered records survive the process");
    assert!(crashed.info().epoch > epoch, "R-12");
    assert_eq!(
        crashed.info().persisted,
        records[599].end,
        "R-11: all of it is durable before the first append"
    );
    assert_eq!(crashed.outcome(epoch, records[599].start), Outcome::Committed);
    assert_eq!(crashed.outcome(epoch, records[599].end), Outcome::Cut, "the epoch ended there");
    crashed.close().unwrap();
    log.close().unwrap();
}

#[test]
fn a_second_opener_is_refused_and_a_reader_works_beside_kind_32() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let appended = log.append(b"here").unwrap();
    let _proof = log.commit_blocking(appended.end, Level::Buffered).unwrap();
    let error = small().open(folder.path()).unwrap_err();
    let OpenError::Store(windlass::store::OpenError::InUse { holder, .. }) = error else { panic!("{error}") };
    assert_eq!(holder, Some(std::process::id()), "it says who has it");
    let reader = ReadOnly::open(folder.path(), OpenMode::Strict).unwrap();
    let mut records = reader.read_from(reader.info().trimmed).unwrap();
    assert_eq!(records.next().unwrap().payload, b"here");
    assert!(matches!(records.next(), Err(ReadError::AtEnd { end }) if end == appended.end));
    let report = reader.verify().unwrap();
    assert_eq!((report.found, report.in_use), (Verified::Clean, true));
    let again = small().create(folder.path()).unwrap_err();
    assert!(matches!(again, CreateError::Store(windlass::store::CreateError::Exists { .. })), "{again}");
    log.close().unwrap();
    small().open(folder.path()).unwrap().close().unwrap();
}

/// What a producer has reserved and not published yet, and what others have published behind it, is no tear while the log is in use; left by a process that died it is one.
#[test]
fn the_unpublished_tail_of_a_log_in_use_is_no_tear_and_is_one_once_nobody_has_it() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let first = log.append(b"published").unwrap();
    let _proof = log.commit_blocking(first.end, Level::Buffered).unwrap();
    let mut reservation = log.reserve(300).unwrap();
    reservation.write(0, &[5; 100]);
    let behind = log.append(b"behind the hole").unwrap();
    for mode in [OpenMode::Strict, OpenMode::Tail] {
        let looking = ReadOnly::open(folder.path(), mode).unwrap();
        let report = looking.verify().unwrap();
        assert_eq!(
            (report.found, report.in_use, report.lsn),
            (Verified::Clean, true, first.end),
            "{report:?}"
        );
        let mut reader = looking.read_from(first.start).unwrap();
        assert_eq!(reader.next().unwrap().payload, b"published");
        assert!(matches!(reader.next(), Err(ReadError::AtEnd { end }) if end == first.end));
    }
    let left = crate_copy(folder.path());
    let report = ReadOnly::open(left.path(), OpenMode::Tail).unwrap().verify().unwrap();
    assert_eq!((report.found, report.in_use, report.lsn), (Verified::Torn, false, first.end), "{report:?}");
    reservation.write(100, &[6; 200]);
    let _ = reservation.publish();
    let _proof = log.commit_blocking(behind.end, Level::Buffered).unwrap();
    let report = ReadOnly::open(folder.path(), OpenMode::Strict).unwrap().verify().unwrap();
    assert_eq!((report.found, report.lsn, report.records), (Verified::Clean, behind.end, 3), "{report:?}");
    log.close().unwrap();
}

#[test]
fn whoever_looks_at_a_log_that_grows_and_is_trimmed_meets_its_end_or_its_trim_point_and_never_damage() {
    // Whether the appender trims, and how closely behind the end.
    for keep_bytes in [None, Some(400 << 10)] {
        let folder = folder();
        let log = small().create(folder.path()).unwrap();
        let end = std::sync::atomic::AtomicBool::new(false);
        let ends = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0u64;
                while !end.load(std::sync::atomic::Ordering::Relaxed) {
                    let payload = number.to_le_bytes().repeat(12);
                    let appended = log.append_wait_blocking(&payload, soon()).unwrap();
                    number += 1;
                    if number.is_multiple_of(64) {
                        let _proof = log.commit_blocking(appended.end, Level::Local).unwrap();
                        if let Some(keep) = keep_bytes
                            && appended.end.0 > keep + 2 * (64 << 10)
                        {
                            // Refused inside a record: then the next one may do.
                            let _ = log.trim(Lsn((appended.end.0 - keep) / (64 << 10) * (64 << 10)));
                        } else if appended.end.0 > 16 << 20 {
                            // So that a look at all of it stays short.
                            log.trim(appended.end).unwrap();
                        }
                    }
                }
            });
            let (mut ends, start) = (0, Instant::now());
            while start.elapsed() < Duration::from_secs(3) || ends < 20 {
                let looking = ReadOnly::open(folder.path(), OpenMode::Strict).unwrap();
                let Ok(mut reader) = looking.read_from(looking.info().trimmed) else { continue };
                let mut last = None;
                loop {
                    match reader.next() {
                        Ok(record) => {
                            let number = u64::from_le_bytes(record.payload[..8].try_into().unwrap());
                            assert_eq!(record.payload, number.to_le_bytes().repeat(12), "{keep_bytes:?}");
                            assert!(last.is_none_or(|last| number == last + 1), "{keep_bytes:?}: {number}");
                            last = Some(number);
                        }
                        Err(ReadError::AtEnd { .. }) => {
                            ends += 1;
                            break;
                        }
                        Err(ReadError::Purged { .. }) => break,
                        Err(error) => {
                            end.store(true, std::sync::atomic::Ordering::Relaxed);
                            panic!("{keep_bytes:?}: {error}");
                        }
                    }
                }
            }
            end.store(true, std::sync::atomic::Ordering::Relaxed);
            ends
        });
        assert!(ends >= 20, "{keep_bytes:?}");
        log.close().unwrap();
    }
}

#[test]
fn a_log_that_was_closed_answers_so() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let other = log.clone();
    let appended = log.append(b"x").unwrap();
    log.close().unwrap();
    assert!(matches!(other.append(b"y"), Err(AppendError::Sealed { .. })));
    let _proof = other.commit_blocking(appended.end, Level::Local).unwrap();
    assert_eq!(other.outcome(Epoch::NONE, Lsn(0)), Outcome::Purged);
    other.close().unwrap();
    let log = small().open(folder.path()).unwrap();
    assert_eq!(payloads(&log, log.info().trimmed, Level::Local), [b"x".to_vec()]);
    drop(log);
    let clean = ReadOnly::open(folder.path(), OpenMode::Strict).unwrap();
    assert!(clean.clean_tail().is_some(), "dropping the last handle closes cleanly");
}

/// The folder is the next owner's by then, and what it has trimmed is gone or used again: that is no damage of the log's.
#[test]
fn a_reader_of_a_closed_log_meets_its_end_where_the_next_owner_has_trimmed_kind_48() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    let mut end = log.info().tail;
    for _ in 0..400 {
        end = log.append_wait_blocking(&[1; 1000], soon()).unwrap().end;
    }
    let _ = log.commit_blocking(end, Level::Local).unwrap();
    let mut reader = log.read_from(log.info().trimmed).unwrap();
    let mut at_once = log.read_from(log.info().trimmed).unwrap();
    let _ = reader.next().unwrap();
    log.close().unwrap();
    let log = small().open(folder.path()).unwrap();
    log.trim(end).unwrap();
    for reader in [&mut reader, &mut at_once] {
        let error = loop {
            match reader.next() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ReadError::Ended { .. }), "{error}");
    }
    log.close().unwrap();
}

#[test]
fn a_folder_of_another_log_is_refused() {
    let (folder, other) = (folder(), folder());
    let log = small().create(folder.path()).unwrap();
    let log_id = log.info().log_id;
    log.close().unwrap();
    small().log_id(log_id).open(folder.path()).unwrap().close().unwrap();
    small().create(other.path()).unwrap().close().unwrap();
    let error = small().log_id(log_id).open(other.path()).unwrap_err();
    let OpenError::Store(windlass::store::OpenError::ForeignLog { expected, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!(expected, log_id);
}

#[test]
fn only_an_empty_folder_and_an_explicit_create_make_a_log_kind_37() {
    let folder = folder();
    let absent = folder.path().join("absent");
    assert!(matches!(small().open(&absent), Err(OpenError::Store(windlass::store::OpenError::Disk(_)))));
    assert!(!absent.exists());
    std::fs::write(folder.path().join("precious"), b"data").unwrap();
    let error = small().open_or_create(folder.path()).unwrap_err();
    assert!(error.to_string().contains("holds no log"), "{error}");
    let error = small().create(folder.path()).unwrap_err();
    assert!(matches!(error, CreateError::Store(windlass::store::CreateError::NotEmpty { .. })), "{error}");
    let error = Options::new().segment_bytes(100_000).create(&absent).unwrap_err();
    assert!(matches!(error, CreateError::Store(windlass::store::CreateError::Geometry(_))), "{error}");
}

#[test]
fn a_log_without_threads_is_stepped_by_hand() {
    let folder = folder();
    let log = small().threads(false).create(folder.path()).unwrap();
    let mut want = 0;
    for i in 0..2000 {
        match log.append(&[5; 500]) {
            Ok(_) => want += 1,
            Err(AppendError::NotReady { .. }) => while log.step() == windlass::Step::Progress {},
            Err(error) => panic!("{error}"),
        }
        if i % 100 == 0 {
            log.step();
            log.step_flush();
        }
    }
    let mut commit = Box::pin(log.commit(log.info().tail, Level::Durable));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(commit.as_mut().poll(&mut cx).is_pending());
    log.step_flush();
    assert!(matches!(commit.as_mut().poll(&mut cx), std::task::Poll::Ready(Ok(_))));
    assert_eq!(payloads(&log, log.info().trimmed, Level::Durable).len(), want);
    drop(commit);
    log.close().unwrap();
}

#[test]
fn runs_lend_what_single_records_do_and_what_is_not_taken_comes_again() {
    let folder = folder();
    let log = small().create(folder.path()).unwrap();
    for i in 0..1500usize {
        let payload = vec![u8::try_from(i % 251).unwrap(); i % 400];
        if i % 10 == 3 {
            while let Err(AppendError::NotReady { .. }) =
                log.append_batch(&[&payload, b"", &payload[..payload.len().min(i % 7)]])
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        } else {
            log.append_wait_blocking(&payload, soon()).unwrap();
        }
    }
    let tail = log.info().tail;
    let _proof = log.commit_blocking(tail, Level::Local).unwrap();
    let first = log.info().trimmed;
    let (mut one, mut many) = (log.read_from(first).unwrap(), log.read_from(first).unwrap());
    let (mut records, mut turn) = (0, 0);
    let end = loop {
        turn += 1;
        match many.next_run() {
            Ok(run) => {
                let mut lent = 0;
                // Sometimes a run is given up in its middle.
                for record in run.take(if turn % 3 == 0 { 5 } else { usize::MAX }) {
                    assert_eq!(one.next().unwrap(), record);
                    lent += 1;
                }
                assert!(lent > 0, "a run is never empty");
                // It may have passed filler besides.
                assert!(many.position() >= one.position());
                records += lent;
            }
            Err(ReadError::AtEnd { end }) => break end,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((records, end), (1350 + 3 * 150, tail));
    // Both ways of reading may take turns.
    let mut reader = log.read_from(first).unwrap();
    let start = reader.next_run().unwrap().next().unwrap().end;
    assert_eq!(reader.next().unwrap().lsn, start);
    log.trim(tail).unwrap();
    assert!(matches!(reader.next_run(), Err(ReadError::Purged { first, .. }) if first == tail));
    log.close().unwrap();
}

#[test]
fn much_is_read_ahead_by_a_thread_and_is_the_same() {
    let folder = folder();
    let log = Options::new().segment_bytes(1 << 20).create(folder.path()).unwrap();
    let payload =
        |i: u32| [i.to_le_bytes(), (!i).to_le_bytes()].concat().repeat(usize::try_from(i % 90).unwrap());
    let (mut number, mut end) = (0, Lsn(0));
    while end.0 < 24 << 20 {
        end = log.append_wait_blocking(&payload(number), soon()).unwrap().end;
        number += 1;
    }
    let _proof = log.commit_blocking(end, Level::Local).unwrap();
    let mut reader = log.read_from(log.info().trimmed).unwrap();
    let mut expected = 0..number;
    loop {
        match reader.next_run() {
            Ok(run) => {
                for record in run {
                    assert!(record.payload == payload(expected.next().unwrap()));
                }
            }
            Err(ReadError::AtEnd { end: at }) => break assert_eq!(at, end),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(expected.next(), None);
    let mut again = log.read_from(log.info().trimmed).unwrap();
    for i in 0..number {
        assert!(again.next().unwrap().payload == payload(i));
    }
    log.close().unwrap();
}
