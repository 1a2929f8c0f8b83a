//! Reading ahead changes when bytes are read, and no answer.

use std::sync::Arc;

use windlass_log::{Lsn, Placed};

use super::testlog::TestLog;
use super::{filled, payload};
use crate::disk::Errno;
use crate::disk::testing::{Call, TestDisk};
use crate::{ReadError, Reader};

/// What a reader answers up to `end`: each record's place and payload, and the error that it ends with.
fn answers(mut reader: Reader<TestDisk>, end: Lsn) -> (Vec<(Lsn, Vec<u8>)>, Option<ReadError>) {
    let (mut found, mut run) = (Vec::new(), Vec::new());
    loop {
        match reader.next_run(end, &mut run) {
            Ok(()) if run.is_empty() => return (found, None),
            Ok(()) => {
                found.extend(
                    run.iter().map(|placed| (placed.lsn, reader.held(placed.payload.clone()).to_vec())),
                );
            }
            Err(error) => return (found, Some(error)),
        }
    }
}

/// The same, with a thread that reads ahead from the first record on, or one that never comes to it.
fn answers_ahead(
    log: &TestLog<TestDisk>,
    from: Lsn,
    end: Lsn,
    runs: bool,
) -> (Vec<(Lsn, Vec<u8>)>, Option<ReadError>) {
    let mut reader = log.store.reader(from);
    let work = reader.read_ahead(end);
    assert!(reader.is_ahead());
    std::thread::scope(|scope| {
        if runs {
            scope.spawn(|| work.run());
        }
        answers(reader, end)
    })
}

/// A log over many segments, with records of all lengths, some longer than a piece has free bytes in front.
fn long() -> (TestDisk, TestLog<TestDisk>, Vec<Lsn>) {
    let (disk, mut log, mut starts) = filled(900);
    for number in 0..200 {
        let long = vec![7; usize::try_from(number % 9 * 2500).unwrap()];
        starts.push(log.append(if number % 3 == 0 { &long } else { b"short" }).unwrap().start);
        log.flush().unwrap();
    }
    (disk, log, starts)
}

#[test]
fn what_is_read_ahead_is_what_is_there_from_any_record_on() {
    let (_disk, log, starts) = long();
    let end = log.handoff.drained();
    for from in starts.iter().step_by(151) {
        let expected = answers(log.store.reader(*from), end);
        assert!(expected.1.is_none() && !expected.0.is_empty());
        for runs in [true, false] {
            assert_eq!(answers_ahead(&log, *from, end, runs), expected, "from {from}, runs: {runs}");
        }
    }
}

#[test]
fn kind_2_damage_that_was_read_ahead_is_answered_as_damage_with_its_place() {
    let (disk, log, starts) = long();
    let end = log.handoff.drained();
    let hurt = starts[700];
    disk.flip(&format!("{:016x}.segment", hurt.0 / 65536 * 65536), hurt.0 % 65536 + 34, 1);
    let expected = answers(log.store.reader(starts[0]), end);
    assert!(matches!(expected.1, Some(ReadError::Damaged { lsn, .. }) if lsn == hurt));
    for runs in [true, false] {
        assert_eq!(answers_ahead(&log, starts[0], end, runs), expected);
    }
}

#[test]
fn damage_that_is_gone_when_the_reader_comes_to_it_is_none() {
    let (disk, log, starts) = filled(40);
    let end = log.handoff.drained();
    let name = format!("{:016x}.segment", 0);
    disk.flip(&name, starts[20].0 + 34, 1);
    let mut reader = log.store.reader(starts[0]);
    let work = reader.read_ahead(end);
    // All of it is one piece or two.
    work.run();
    disk.flip(&name, starts[20].0 + 34, 1);
    assert_eq!(answers(reader, end), answers(log.store.reader(starts[0]), end));
}

/// Simulator, seed 4000458: what a reader had copied out behind the records that it took was repaired before it came to it.
#[test]
fn kind_12_damage_that_was_copied_out_and_is_gone_when_the_reader_comes_to_it_is_none() {
    let (disk, log, starts) = filled(40);
    let end = log.handoff.drained();
    let name = format!("{:016x}.segment", 0);
    let flip = || disk.flip(&name, starts[20].0 + 34, 1);
    for (in_runs, is_asked_before) in [(true, false), (true, true), (false, false), (false, true)] {
        flip();
        let mut reader = log.store.reader(starts[0]);
        let mut step = || {
            let stepped =
                if in_runs { reader.next_run(end, &mut Vec::new()) } else { reader.next(end).map(|_| ()) };
            (stepped, reader.at())
        };
        // It holds what lies behind, too.
        while step().1 < starts[20] {}
        for _ in 0..if is_asked_before { 2 } else { 0 } {
            assert!(matches!(step().0, Err(ReadError::Damaged { lsn, .. }) if lsn == starts[20]));
        }
        flip();
        assert_eq!(step().0, Ok(()), "in runs: {in_runs}, asked before: {is_asked_before}");
    }
}

#[test]
fn kind_7_an_error_of_reading_ahead_is_the_readers_only_if_it_meets_it_too() {
    let (disk, log, starts) = long();
    let end = log.handoff.drained();
    let expected = answers(log.store.reader(starts[0]), end);
    for nth in [0, 1, 5] {
        let mut reader = log.store.reader(starts[0]);
        let work = reader.read_ahead(end);
        disk.fail(Call::Read, nth, Errno::IO);
        let thread = std::thread::spawn(|| work.run());
        let mut run: Vec<Placed> = Vec::new();
        let mut found = Vec::new();
        // The one that meets it may be the thread, whose error is nobody's, or the reader, which stands where it stood.
        loop {
            match reader.next_run(end, &mut run) {
                Ok(()) if run.is_empty() => break,
                Ok(()) => found.extend(
                    run.iter().map(|placed| (placed.lsn, reader.held(placed.payload.clone()).to_vec())),
                ),
                Err(ReadError::Disk(error)) => assert_eq!(error.errno, Errno::IO),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(found, expected.0, "call {nth}");
        drop(reader);
        thread.join().unwrap();
    }
}

#[test]
fn kind_48_what_was_read_ahead_and_trimmed_since_is_gone() {
    let (_disk, log, starts) = long();
    let end = log.handoff.drained();
    let mut reader = log.store.reader(starts[0]);
    let work = reader.read_ahead(end);
    let thread = std::thread::spawn(|| work.run());
    let mut run = Vec::new();
    reader.next_run(end, &mut run).unwrap();
    let first = starts[1000];
    log.store.trim(first, end).unwrap();
    assert!(
        reader.trimmed() == first && run[0].lsn < first,
        "who lends a record out can see that it is gone"
    );
    assert!(
        matches!(reader.next_run(end, &mut run), Err(ReadError::Purged { first: at, .. }) if at == first)
    );
    assert!(run.is_empty());
    reader.seek(first);
    assert_eq!(answers(reader, end), answers(log.store.reader(first), end));
    thread.join().unwrap();
}

#[test]
fn a_thread_that_reads_ahead_ends_with_its_reader() {
    let (_disk, log, starts) = long();
    let end = log.handoff.drained();
    let mut reader = log.store.reader(starts[0]);
    let work = reader.read_ahead(end);
    let thread = std::thread::spawn(|| work.run());
    drop(reader);
    thread.join().unwrap();
    assert_eq!(Arc::strong_count(&log.store), 1, "nor does it keep the store");
    assert!(payload(1).len() > 4);
}
