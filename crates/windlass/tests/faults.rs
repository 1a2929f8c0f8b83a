//! The log of one node on a disk that fails, fills up and loses power, and among producers that don't keep to the rules.

#[path = "support/lines.rs"]
mod lines;
#[path = "support/records.rs"]
mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lines::Lines;
use windlass::{
    AppendError, Clock, CloseError, CommitError, Epoch, Failure, Level, Log, LogId, Lsn, MemberId,
    MonotonicClock, OpenError, OpenTrimmedError, Options, Outcome, Place, ReadError, Step, Surroundings,
    TrimError, TruncateError,
};
use windlass_log::{EpochHistory, HISTORY_ENTRIES_MAX, HISTORY_ENTRIES_NEARLY_FULL, HistoryError};
use windlass_store::disk::testing::{Call, Survive, TestDisk};
use windlass_store::disk::{Disk, Errno};

const SEGMENT_BYTES: u64 = 64 << 10;

fn options() -> Options {
    Options::new().segment_bytes(SEGMENT_BYTES).threads(false)
}

fn place_at<D: Disk>(disk: D, clock: impl Clock) -> Place<D> {
    let around = Surroundings { boot_id: [1; 16], incarnation: 7 };
    Place { disk, around, log_id: LogId([3; 16]), clock: Box::new(clock) }
}

fn place(disk: &TestDisk) -> Place<TestDisk> {
    place_at(disk.clone(), MonotonicClock::new())
}

fn create(disk: &TestDisk, options: Options) -> Log {
    Log::create_in(place(disk), options).unwrap()
}

/// Does the helper's work until there is none.
fn help(log: &Log) {
    while log.step() == windlass::Step::Progress {}
}

/// Appends, with the helper's work done where it is needed.
fn append(log: &Log, payload: &[u8]) -> windlass::Appended {
    loop {
        match log.append(payload) {
            Ok(appended) => return appended,
            Err(AppendError::NotReady { .. }) => help(log),
            Err(error) => panic!("{error}"),
        }
    }
}

fn payloads(log: &Log) -> Vec<Vec<u8>> {
    records::rest(log.read_from(log.info().trimmed).unwrap())
}

#[test]
fn after_a_failed_flush_nothing_is_acknowledged_until_the_log_is_opened_again_kind_24() {
    let disk = TestDisk::new();
    let log = create(&disk, options());
    let safe = append(&log, b"safe");
    let _proof = log.commit_blocking(safe.end, Level::Local).unwrap();
    let lost = append(&log, b"lost, perhaps");
    disk.fail(Call::FlushRange, 0, Errno::IO);
    let error = log.commit_blocking(lost.end, Level::Local).unwrap_err();
    assert!(matches!(&error, CommitError::Failed { failure: Failure::Flush { .. }, .. }), "{error}");
    // The device answers again: that changes nothing.
    assert_eq!(log.commit_blocking(lost.end, Level::Local).unwrap_err(), error);
    let mut future = Box::pin(log.commit(lost.end, Level::Durable));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(matches!(std::future::Future::poll(future.as_mut(), &mut cx), std::task::Poll::Ready(Err(_))));
    drop(future);
    assert!(matches!(log.append(b"more"), Err(AppendError::Failed(Failure::Flush { .. }))));
    assert_eq!(log.metrics().trim_failures, 0);
    assert!(matches!(log.trim(safe.end), Err(TrimError::Failed(_))));
    assert_eq!(log.metrics().trim_failures, 1, "kind 47");
    assert!(matches!(log.truncate(safe.end), Err(TruncateError::Failed(_))));
    let _still = log.commit_blocking(safe.end, Level::Local).expect("what was flushed stays flushed");
    let epoch = log.info().epoch;
    assert_eq!(log.outcome(epoch, lost.start), Outcome::Unknown, "unknown, never `did not happen` (kind 25)");
    assert!(matches!(log.close(), Err(CloseError::Failed(_))));

    let log = Log::open_in(place(&disk.after_power_loss(Survive::Nothing)), options()).unwrap();
    assert_eq!(payloads(&log), [b"safe".to_vec()]);
    assert_eq!(log.outcome(epoch, safe.start), Outcome::Committed);
    assert_eq!(log.outcome(epoch, lost.start), Outcome::Cut);
    log.close().unwrap();
}

#[test]
fn each_level_survives_what_it_promises() {
    for (level, lose_power) in [(Level::Buffered, false), (Level::Local, true), (Level::Durable, true)] {
        for seed in 0..20 {
            let disk = TestDisk::new();
            let log = create(&disk, options());
            let mut acknowledged = 0;
            for i in 0..700u32 {
                let appended = append(&log, &i.to_le_bytes().repeat(30));
                if i % 7 == 0 && i < 690 {
                    let _proof = log.commit_blocking(appended.end, level).unwrap();
                    acknowledged = i + 1;
                }
            }
            let after =
                if lose_power { disk.after_power_loss(Survive::Seeded(seed)) } else { disk.after_kill() };
            let again = Log::open_in(place(&after), options()).unwrap();
            let read = payloads(&again);
            assert!(
                read.len() >= acknowledged as usize,
                "{level} seed {seed}: {} of {acknowledged}",
                read.len()
            );
            for (i, payload) in (0u32..).zip(&read) {
                assert_eq!(*payload, i.to_le_bytes().repeat(30), "{level} seed {seed}: no hole, no change");
            }
            let next = append(&again, b"next");
            let _proof = again.commit_blocking(next.end, Level::Local).unwrap();
            again.close().unwrap();
        }
    }
}

#[test]
fn a_full_disk_is_an_error_of_append_that_ends_by_itself_kinds_20_21_22() {
    let disk = TestDisk::new();
    let log = create(&disk, options());
    help(&log);
    disk.set_capacity(Some(disk.used_bytes()));
    let error = loop {
        match log.append(&[1; 500]) {
            Ok(_) => {}
            Err(AppendError::NotReady { .. }) => help(&log),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, AppendError::DiskFull { .. }), "{error}");
    assert!(error.to_string().contains("free space or trim"), "{error}");
    let tail = log.info().tail;
    let _proof = log.commit_blocking(tail, Level::Local).expect("what is there can be made durable");
    let count = payloads(&log).len();
    // A restart on the full disk: opening, reading and trimming work.
    log.close().unwrap();
    let log = Log::open_in(place(&disk), options()).unwrap();
    assert_eq!(payloads(&log).len(), count);
    log.trim(tail).unwrap();
    // The trim gave room: nothing else is needed.
    for _ in 0..500 {
        append(&log, &[2; 500]);
        let _proof = log.commit_blocking(log.info().tail, Level::Local).unwrap();
        log.trim(log.info().tail).unwrap();
    }
    // And so does space that somebody else frees.
    while !matches!(log.append(&[3; 500]), Err(AppendError::DiskFull { .. })) {
        help(&log);
    }
    disk.set_capacity(None);
    help(&log);
    append(&log, &[4; 500]);
    log.close().unwrap();
}

/// A clock that a test turns.
#[derive(Clone, Debug, Default)]
struct Turned(Arc<AtomicU64>);

impl Turned {
    fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Turned {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

#[test]
fn a_reservation_that_is_never_published_fails_the_log_by_name_r9() {
    let disk = TestDisk::new();
    let clock = Turned::default();
    let log = Log::create_in(
        place_at(disk.clone(), clock.clone()),
        options().reservation_limit(Duration::from_secs(10)),
    )
    .unwrap();
    let before = append(&log, b"before");
    let _proof = log.commit_blocking(before.end, Level::Local).unwrap();
    let reservation = log.reserve(100).unwrap();
    let stuck = reservation.start();
    std::mem::forget(reservation);
    let behind = append(&log, b"behind it");
    let soon = Instant::now() + Duration::from_millis(20);
    assert!(matches!(log.commit_until(behind.end, Level::Local, soon), Err(CommitError::Deadline { .. })));
    clock.pass(9);
    log.step();
    assert!(log.info().failure.is_none(), "within the limit");
    clock.pass(2);
    log.step();
    let error = log.commit_blocking(behind.end, Level::Local).unwrap_err();
    let CommitError::Failed { failure: Failure::StuckReservation { lsn, waited_ms }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((lsn, waited_ms), (stuck, 11_000));
    assert!(matches!(log.append(b"x"), Err(AppendError::Failed(Failure::StuckReservation { .. }))));
    // the folder stays locked, for the producer may still write into the mapping.
    assert!(log.close().is_err());
    let error = Log::open_in(place(&disk), options()).unwrap_err();
    assert!(matches!(error, windlass::OpenError::Store(windlass::store::OpenError::InUse { .. })), "{error}");
    let log = Log::open_in(place(&disk.after_kill()), options()).unwrap();
    assert_eq!(payloads(&log), [b"before".to_vec()], "a restart brings it back");
    log.close().unwrap();
}

#[test]
fn a_truncation_waits_for_reservations_in_flight_r10() {
    let disk = TestDisk::new();
    let log = create(&disk, options().reservation_limit(Duration::from_secs(60)));
    let kept = append(&log, b"kept");
    let mut reservation = log.reserve(5).unwrap();
    let next = std::thread::scope(|scope| {
        let cutter = scope.spawn(|| log.truncate(kept.end));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!cutter.is_finished(), "nothing is cut while a reservation is in flight");
        reservation.write(0, b"flies");
        reservation.publish();
        cutter.join().unwrap()
    });
    let next = next.unwrap();
    assert_eq!(next.info().tail, kept.end);
    append(&next, b"on");
    let _proof = next.commit_blocking(next.info().tail, Level::Local).unwrap();
    assert_eq!(payloads(&next), [b"kept".to_vec(), b"on".to_vec()]);
    next.close().unwrap();
}

#[test]
fn a_cut_survives_every_loss_of_power_after_it_returned_kind_42() {
    for seed in 0..50 {
        let disk = TestDisk::new();
        let log = create(&disk, options());
        let ends: Vec<Lsn> = (0..500u32).map(|i| append(&log, &i.to_le_bytes().repeat(50)).end).collect();
        if seed % 2 == 0 {
            let _proof = log.commit_blocking(ends[499], Level::Local).unwrap();
        }
        let next = log.truncate(ends[99]).unwrap();
        for _ in 0..seed % 5 {
            append(&next, b"after the cut");
        }
        let again = Log::open_in(place(&disk.after_power_loss(Survive::Seeded(seed))), options()).unwrap();
        let read = payloads(&again);
        assert!(read.len() >= 100, "seed {seed}: the records before the cut are durable");
        assert!(read[100..].iter().all(|payload| payload == b"after the cut"), "seed {seed}");
        again.close().unwrap();
    }
}

#[test]
fn the_persisted_mark_trails_by_about_a_segment_without_any_commit_r11() {
    let disk = TestDisk::new();
    let log = create(&disk, options());
    for _ in 0..3000 {
        append(&log, &[8; 300]);
        log.step();
        log.step_flush();
        let info = log.info();
        assert!(info.persisted.0 + 2 * SEGMENT_BYTES > info.drained.0, "{info:?}");
        assert!(
            info.trimmed <= info.persisted && info.persisted <= info.drained && info.drained <= info.tail,
            "I-1"
        );
    }
    let metrics = log.metrics();
    assert!(metrics.background_flushes > 10 && metrics.flushes == 0, "{metrics:?}");
    let copy = Log::open_in(place(&disk.after_power_loss(Survive::Nothing)), options()).unwrap();
    assert!(copy.info().tail >= log.info().persisted);
    copy.close().unwrap();
    log.close().unwrap();
}

#[test]
fn what_is_trimmed_soon_is_never_written() {
    let disk = TestDisk::new();
    let log = create(&disk, options());
    for i in 0..6000u64 {
        let appended = append(&log, &[9; 300]);
        log.step();
        log.step_flush();
        if i % 400 == 399 {
            log.trim(appended.start).unwrap();
        }
    }
    let metrics = log.metrics();
    // The first round has to be learned from.
    assert!(metrics.background_flushes <= 6, "{}", metrics.background_flushes);
    assert!(metrics.segments_made <= 8 && metrics.segments_recycled > 15, "{metrics:?}");
    log.close().unwrap();
}

type Form = fn(&Log, Instant) -> Result<Lsn, AppendError>;

/// Each form that waits: a record, a batch, a reservation, each on a thread and as a future. All take the same room.
fn waiting_forms() -> [Form; 6] {
    fn future<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }
    [
        |log, until| log.append_wait_blocking(&[1; 1000], until).map(|appended| appended.end),
        |log, until| future(log.append_wait(&[1; 1000], until)).map(|appended| appended.end),
        |log, until| {
            log.append_batch_wait_blocking(&[&[1; 400], &[2; 576]], until).map(|appended| appended.end)
        },
        |log, until| {
            future(log.append_batch_wait(&[&[1; 400], &[2; 576]], until)).map(|appended| appended.end)
        },
        |log, until| log.reserve_wait_blocking(1000, until).map(|reservation| reservation.publish().end),
        |log, until| future(log.reserve_wait(1000, until)).map(|reservation| reservation.publish().end),
    ]
}

/// What each of the waiting forms, parked for want of a segment, comes to once `step` was done.
fn parked(log: &Log, step: impl FnOnce()) -> Vec<Result<Lsn, AppendError>> {
    let late = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let waiting = waiting_forms().map(|form| scope.spawn(move || form(log, late)));
        // Whoever isn't parked by then gets the same answer without.
        std::thread::sleep(Duration::from_millis(30));
        step();
        waiting.into_iter().map(|form| form.join().unwrap()).collect()
    })
}

#[test]
fn who_waits_for_a_segment_is_told_at_once_why_none_can_be_made_kind_22() {
    let disk = TestDisk::new();
    let log = create(&disk, options());
    help(&log);
    let fill = || while log.append(&[1; 1000]).is_ok() {};
    fill();
    disk.set_capacity(Some(0));
    for answer in parked(&log, || help(&log)) {
        assert!(matches!(answer, Err(AppendError::DiskFull { .. })), "{answer:?}");
    }
    // Known to be full: nobody waits, either.
    for form in waiting_forms() {
        let answer = form(&log, Instant::now() + Duration::from_secs(60));
        assert!(matches!(answer, Err(AppendError::DiskFull { .. })), "{answer:?}");
    }
    // Room comes back while nobody looks: the helper finds it, and who comes then waits again.
    disk.set_capacity(None);
    help(&log);
    fill();
    assert!(parked(&log, || help(&log)).into_iter().all(|answer| answer.is_ok()));

    // No room for the name of a file, which is the same to whoever appends.
    fill();
    disk.fail(Call::Create, 0, Errno::NOSPC);
    for answer in parked(&log, || help(&log)) {
        assert!(matches!(answer, Err(AppendError::DiskFull { .. })), "{answer:?}");
    }
    // A call that fails and promises nothing.
    help(&log);
    fill();
    disk.fail(Call::Allocate, 0, Errno::IO);
    for answer in parked(&log, || help(&log)) {
        assert!(matches!(answer, Err(AppendError::NoSegment { .. })), "{answer:?}");
    }
    // A trim may have made room: what was known before it counts no more, and one waits for the helper's answer.
    let tail = log.info().tail;
    let _proof = log.commit_blocking(tail, Level::Local).unwrap();
    log.trim(tail).unwrap();
    assert!(parked(&log, || help(&log)).into_iter().all(|answer| answer.is_ok()));
    // The medium fails: the end of the log (kind 24).
    fill();
    disk.fail(Call::SyncFolder, 0, Errno::IO);
    for answer in parked(&log, || help(&log)) {
        assert!(matches!(answer, Err(AppendError::Failed(Failure::Store { .. }))), "{answer:?}");
    }
    assert!(log.close().is_err());
}

/// Where in its work the helper is when the disk is full depends on the size of the disk and on the threads: a producer may find no segment
/// before the helper has found that there is no room.
#[test]
fn a_disk_of_any_size_that_fills_up_under_a_waiting_append_is_an_error_and_no_hang_kinds_20_22() {
    const FORMS: usize = 6;
    for size in 0..36 {
        let disk = TestDisk::new();
        let log = create(&disk, options().threads(true));
        disk.set_capacity(Some(disk.used_bytes() + size * 3 * SEGMENT_BYTES / 8));
        let form = waiting_forms()[usize::try_from(size).unwrap() % FORMS];
        let mut appended = 0;
        let error = loop {
            match form(&log, Instant::now() + Duration::from_secs(60)) {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AppendError::DiskFull { .. }), "{size}: {error}");
        let _proof = log.commit_blocking(log.info().tail, Level::Durable).unwrap();
        assert!(payloads(&log).len() >= appended, "{size}");
        // Room comes back, and nothing else is needed: the helper tries again by itself.
        disk.set_capacity(None);
        let again = Instant::now() + Duration::from_secs(60);
        while let Err(error) = form(&log, again) {
            assert!(matches!(error, AppendError::DiskFull { .. }), "{size}: {error}");
            assert!(Instant::now() < again, "{size}: there is room");
        }
        log.close().unwrap();
    }
}

#[test]
fn waiting_for_room_ends_at_the_deadline_or_when_the_helper_has_come() {
    let disk = TestDisk::new();
    // Without threads nobody prepares segments but those who step.
    let log = create(&disk, options());
    let forms = waiting_forms();
    while log.append(&[1; 1000]).is_ok() {}
    let tail = log.info().tail;
    for form in forms {
        let error = form(&log, Instant::now() + Duration::from_millis(10)).unwrap_err();
        assert!(matches!(error, AppendError::Deadline { .. }), "{error}");
    }
    assert_eq!(log.info().tail, tail, "nothing was appended");
    let late = Instant::now() + Duration::from_secs(60);
    let ends: std::collections::BTreeSet<Lsn> = std::thread::scope(|scope| {
        let log = &log;
        let waiting = forms.map(|form| scope.spawn(move || form(log, late).unwrap()));
        std::thread::sleep(Duration::from_millis(10));
        help(log);
        waiting.into_iter().map(|form| form.join().unwrap()).collect()
    });
    assert_eq!(ends.len(), forms.len());
    // What waiting can't mend is answered at once.
    let longest = usize::try_from(log.payload_bytes_max()).unwrap();
    let refused = log.append_batch_wait_blocking(&[&vec![1; longest]], late).unwrap_err();
    assert!(matches!(refused, AppendError::TooLarge { .. }), "{refused}");
    let refused = log.reserve_wait_blocking(longest + 1, late).map(|_| ()).unwrap_err();
    assert!(matches!(refused, AppendError::TooLarge { .. }), "{refused}");
    log.close().unwrap();
}

#[test]
fn subscriptions_follow_the_log_across_segments_and_end_with_it() {
    let disk = TestDisk::new();
    let log = create(&disk, options().threads(true));
    let first = log.info().trimmed;
    let late = || Instant::now() + Duration::from_secs(20);
    const RECORDS: u32 = 2000;
    let (at_end, seen_at_end) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let followers: Vec<_> = [Level::Buffered, Level::Local, Level::Durable]
            .into_iter()
            .map(|level| {
                let mut subscription = log.subscribe(first, level).unwrap();
                let at_end = at_end.clone();
                scope.spawn(move || {
                    for i in 0..RECORDS {
                        let record = subscription.next_blocking(Some(late())).unwrap();
                        assert_eq!(record.payload, i.to_le_bytes().repeat(20), "{level}");
                    }
                    let end = subscription.position();
                    let soon = Instant::now() + Duration::from_millis(5);
                    assert!(matches!(subscription.next_blocking(Some(soon)), Err(ReadError::AtEnd { .. })));
                    at_end.send(()).unwrap();
                    (end, subscription.next_blocking(None).map(|record| record.lsn))
                })
            })
            .collect();
        let mut awaiting = log.subscribe(first, Level::Local).unwrap();
        let awaiting = scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                for i in 0..RECORDS {
                    assert_eq!(awaiting.next().await.unwrap().payload, i.to_le_bytes().repeat(20));
                }
                awaiting.next().await.map(|record| record.lsn)
            })
        });
        let mut last = Lsn(0);
        for i in 0..RECORDS {
            last = log.append_wait_blocking(&i.to_le_bytes().repeat(20), late()).unwrap().end;
            if i % 50 == 0 {
                let _proof = log.commit_blocking(last, Level::Local).unwrap();
            }
        }
        let _proof = log.commit_blocking(last, Level::Durable).unwrap();
        assert_eq!(log.metrics().flushes, log.metrics().group_commits.count);
        for _ in &followers {
            seen_at_end.recv_timeout(Duration::from_secs(20)).expect("every follower comes to the end");
        }
        log.clone().close().unwrap();
        for follower in followers {
            let (end, ended) = follower.join().unwrap();
            assert_eq!((end, ended), (last, Err(ReadError::Ended { end: last })));
        }
        assert_eq!(awaiting.join().unwrap(), Err(ReadError::Ended { end: last }));
    });
}

#[test]
fn commits_as_futures_all_arrive_and_a_dropped_one_is_in_the_log_all_the_same_kind_82() {
    let disk = TestDisk::new();
    let log = create(&disk, options().threads(true));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for i in 0..300u32 {
            let appended =
                log.append_wait(&i.to_le_bytes(), Instant::now() + Duration::from_secs(20)).await.unwrap();
            let level = [Level::Buffered, Level::Local, Level::Durable][usize::try_from(i % 3).unwrap()];
            let mut commit = Box::pin(log.commit(appended.end, level));
            if i % 5 == 0 {
                let polled =
                    std::future::poll_fn(|cx| std::task::Poll::Ready(commit.as_mut().poll(cx))).await;
                drop(polled);
                drop(commit);
                continue;
            }
            let proof = commit.await.unwrap();
            assert_eq!((proof.end(), proof.level()), (appended.end, level));
        }
        let _proof = log.commit_default(log.info().tail).await.unwrap();
    });
    let read = payloads(&log);
    assert_eq!(read, (0..300u32).map(|i| i.to_le_bytes().to_vec()).collect::<Vec<_>>());
    log.close().unwrap();
}

#[test]
fn a_handle_of_a_cut_tenure_trims_nothing_that_the_next_one_has_not_reached_kind_42() {
    let disk = TestDisk::new();
    let old = create(&disk, options());
    let kept = append(&old, b"kept");
    let cut = append(&old, b"cut");
    let next = old.truncate(kept.end).unwrap();
    // The end of the old tenure lies beyond the log's: trimmed to there, what follows would be taken for released, and for flushed.
    let error = old.trim(cut.end).unwrap_err();
    assert_eq!(error, TrimError::Beyond { lsn: cut.end, end: kept.end });
    let after = append(&next, b"after");
    let _proof = next.commit_blocking(after.end, Level::Local).unwrap();
    assert!(next.info().trimmed < kept.end);
    let again = Log::open_in(place(&disk.after_power_loss(Survive::Nothing)), options()).unwrap();
    assert_eq!(payloads(&again), [b"kept".to_vec(), b"after".to_vec()]);
    again.close().unwrap();
    // What the next tenure has reached may be trimmed through either.
    old.trim(after.start).unwrap();
    assert_eq!(next.info().trimmed, after.start);
    next.close().unwrap();
}

#[test]
fn a_reader_of_a_cut_tenure_never_yields_what_the_next_one_appends() {
    let disk = TestDisk::new();
    let old = create(&disk, options());
    let kept = append(&old, b"kept");
    append(&old, b"cut");
    let _proof = old.commit_blocking(old.info().tail, Level::Durable).unwrap();
    let next = old.truncate(kept.end).unwrap();
    // In memory alone, and below what the old tenure had made durable.
    append(&next, b"new");
    let mut reader = old.read_at(kept.start, Level::Durable).unwrap();
    assert_eq!(reader.next().unwrap().payload, b"kept");
    assert_eq!(reader.next().map(|record| record.lsn), Err(ReadError::Ended { end: kept.end }));
    next.close().unwrap();
}

#[test]
fn a_log_that_failed_keeps_its_folder_while_a_producer_may_still_write_r10() {
    let disk = TestDisk::new();
    let log = create(&disk, options().reservation_limit(Duration::from_millis(20)));
    let producer = log.clone();
    let safe = append(&log, b"safe");
    let _proof = log.commit_blocking(safe.end, Level::Local).unwrap();
    append(&log, b"more");
    let mut reservation = producer.reserve(6).unwrap();
    disk.fail(Call::FlushRange, 0, Errno::IO);
    assert!(log.commit_blocking(reservation.start(), Level::Local).is_err());
    assert!(matches!(log.close(), Err(CloseError::Failed(Failure::Flush { .. }))));
    // Opened now, the log would hand out the bytes that the reservation is about to be written to.
    let error = Log::open_in(place(&disk), options()).unwrap_err();
    assert!(matches!(error, windlass::OpenError::Store(windlass::store::OpenError::InUse { .. })), "{error}");
    reservation.write(0, b"late..");
    reservation.publish();
    drop(producer);

    // With nothing in flight a log that failed gives its folder up.
    let disk = disk.after_kill();
    let log = Log::open_in(place(&disk), options()).unwrap();
    append(&log, b"more");
    disk.fail(Call::FlushRange, 0, Errno::IO);
    assert!(log.commit_blocking(log.info().tail, Level::Local).is_err());
    assert!(log.close().is_err());
    Log::open_in(place(&disk), options()).unwrap().close().unwrap();
}

#[test]
fn a_waker_may_use_the_log_at_once() {
    struct Uses(Log, AtomicU64);
    impl std::task::Wake for Uses {
        fn wake(self: Arc<Self>) {
            let drained = self.0.info().drained;
            let _proof = self.0.commit_blocking(drained, Level::Buffered).unwrap();
            self.1.store(drained.0, Ordering::Relaxed);
        }
    }
    let disk = TestDisk::new();
    let log = create(&disk, options());
    let reservation = log.reserve(8).unwrap();
    let end = reservation.end();
    let uses = Arc::new(Uses(log.clone(), AtomicU64::new(0)));
    let waker = std::task::Waker::from(Arc::clone(&uses));
    let mut commit = Box::pin(log.commit(end, Level::Buffered));
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(std::future::Future::poll(commit.as_mut(), &mut cx).is_pending());
    reservation.publish();
    // The drain finds it and wakes: with a lock held this would never come back.
    log.step();
    assert_eq!(uses.1.load(Ordering::Relaxed), end.0);
    drop((commit, waker, uses));
    log.close().unwrap();
}

#[test]
fn a_closed_log_says_so_to_whoever_trims_and_has_not_failed() {
    let lines = Lines::default();
    let disk = TestDisk::new();
    let log = create(&disk, options().logger(lines.logger()));
    let one = append(&log, b"one");
    let other = log.clone();
    log.close().unwrap();
    assert_eq!(other.trim(one.end), Err(TrimError::Closed));
    assert!(matches!(other.append(b"two"), Err(AppendError::Sealed { .. })));
    assert_eq!((other.step(), other.step()), (Step::Idle, Step::Idle), "nor has stepping it anything to do");
    assert_eq!(other.info().failure, None);
    drop(other);
    assert_eq!(lines.count(slog::Level::Error), 0, "nothing has failed");
    let log = Log::open_in(place(&disk), options()).unwrap();
    log.trim(one.end).unwrap();
    log.close().unwrap();
}

/// A history holds so many epochs. When it is full, a truncation is refused before anything is sealed.
#[test]
fn a_truncation_that_the_history_has_no_room_for_leaves_the_log_as_it_is() {
    let disk = TestDisk::new();
    let mut log = create(&disk, options());
    let refused = loop {
        // An epoch that owns nothing is replaced by the next: each gets a record.
        let end = append(&log, b"x").end;
        match log.truncate(end) {
            Ok(next) => log = next,
            Err(error) => break error,
        }
        help(&log);
    };
    assert!(matches!(refused, TruncateError::History(_)), "{refused}");
    let epoch = log.info().epoch;
    let more = append(&log, b"goes on");
    let _proof = log.commit_blocking(more.end, Level::Local).unwrap();
    // Trimming forgets epochs, and then there is room.
    log.trim(more.start).unwrap();
    let log = log.truncate(more.end).unwrap();
    assert!(log.info().epoch > epoch);
    assert_eq!(payloads(&log), [b"goes on"]);
    log.close().unwrap();
}

#[test]
fn whoever_closes_a_log_finds_it_closed_when_the_call_returns_also_beside_another() {
    for round in 0..200 {
        let disk = TestDisk::new();
        let log = create(&disk, options().threads(true));
        append(&log, b"one");
        if round % 2 == 1 {
            disk.fail(Call::FlushRange, 0, Errno::IO);
        }
        let results: Vec<Result<(), CloseError>> = std::thread::scope(|scope| {
            let closers: Vec<_> = (0..3)
                .map(|_| {
                    let (log, disk) = (log.clone(), disk.clone());
                    scope.spawn(move || {
                        let closed = log.close();
                        assert_eq!(disk.is_locked(), Some(false), "round {round}: it can be opened again");
                        closed
                    })
                })
                .collect();
            closers.into_iter().map(|closer| closer.join().unwrap()).collect()
        });
        assert!(results.iter().all(|result| result.is_ok() == (round % 2 == 0)), "{results:?}");
        assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    }
}

/// A log that was killed with `records` that no mark vouches for, behind others; where its first record is, and its end.
fn killed(records: u32) -> (TestDisk, Lsn, Lsn) {
    let disk = TestDisk::new();
    let log = create(&disk, options());
    let first = append(&log, b"first");
    let mut safe = first;
    while safe.end.0 < SEGMENT_BYTES {
        safe = append(&log, &[8; 1000]);
    }
    let _proof = log.commit_blocking(safe.end, Level::Local).unwrap();
    // The mark is written down.
    help(&log);
    for number in 0..records {
        append(&log, &[7; 100][..usize::try_from(number % 100).unwrap()]);
    }
    let killed = disk.after_kill();
    let tail = log.info().tail;
    drop(log);
    (killed, first.start, tail)
}

#[test]
fn while_r_11_waits_for_the_device_the_log_reads_up_to_its_mark_and_whatever_needs_more_waits_for_it() {
    let (disk, first, tail) = killed(500);
    let log;
    let held = disk.hold_syncs();
    // An opening that waited for R-11 would not come back.
    log = Log::open_in(place(&disk), options().threads(true)).unwrap();
    let info = log.info();
    assert!(info.tail == tail && first < info.persisted && info.persisted < tail, "{info:?}");
    assert_eq!(info.persisted, info.durable);
    // All of it at `Buffered`, which promises no more than the process had.
    let mut reader = log.read_at(first, Level::Buffered).unwrap();
    let mut records = 0;
    let end = loop {
        match reader.next() {
            Ok(_) => records += 1,
            Err(ReadError::AtEnd { end }) => break end,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(records > 500 && end == tail);
    // A subscription and a commit wait without blocking, and an append that may wait until its deadline gives up at it.
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut commit = Box::pin(log.commit(tail, Level::Local));
    assert!(std::future::Future::poll(commit.as_mut(), &mut cx).is_pending());
    let soon = Instant::now() + Duration::from_millis(20);
    assert!(matches!(log.append_wait_blocking(b"later", soon), Err(AppendError::Deadline { .. })));
    let mut follower = log.subscribe(first, Level::Durable).unwrap();
    while follower.next_blocking(Some(Instant::now())).is_ok() {}
    assert_eq!(follower.position(), info.persisted);
    assert_eq!(log.info().persisted, info.persisted, "nothing was claimed meanwhile");

    // Each of these waits, and has its answer when the device has.
    std::thread::scope(|scope| {
        let read = scope.spawn(|| payloads(&log).len());
        let appended = scope.spawn(|| log.append(b"first of the new epoch").map(|appended| appended.start));
        let outcome = scope.spawn(|| log.outcome(windlass::Epoch::new(1, windlass::MemberId(0)), first));
        let committed = scope.spawn(|| log.commit_blocking(tail, Level::Durable).is_ok());
        std::thread::sleep(Duration::from_millis(20));
        assert!(![read.is_finished(), appended.is_finished(), committed.is_finished()].contains(&true));
        drop(held);
        assert!(read.join().unwrap() >= records);
        assert_eq!(appended.join().unwrap().unwrap(), tail);
        assert_eq!(outcome.join().unwrap(), Outcome::Committed);
        assert!(committed.join().unwrap());
    });
    assert!(log.info().persisted >= tail);
    log.close().unwrap();
    let lost = disk.after_power_loss(Survive::Nothing);
    let log = Log::open_in(place(&lost), options()).unwrap();
    assert_eq!(payloads(&log).len(), records + 1);
}

#[test]
fn a_failure_of_r_11_behind_an_opening_reaches_its_first_append_commit_and_reader_kind_24() {
    let (disk, first, tail) = killed(500);
    let log;
    let held = disk.hold_syncs();
    log = Log::open_in(place(&disk), options().threads(true)).unwrap();
    let mark = log.info().persisted;
    assert!(first < mark && mark < tail);
    disk.fail(Call::Sync, 0, Errno::IO);
    drop(held);
    assert!(matches!(log.append(b"more"), Err(AppendError::Failed(Failure::Store { .. }))));
    assert!(matches!(log.commit_blocking(tail, Level::Local), Err(CommitError::Failed { .. })));
    let mut reader = log.read_from(first).unwrap();
    let error = loop {
        match reader.next() {
            Ok(record) => assert!(record.end <= mark),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReadError::Io { lsn, .. } if lsn == mark), "never the end of the log: {error}");
    let epoch = windlass::Epoch::new(1, windlass::MemberId(0));
    assert_eq!(log.outcome(epoch, mark), Outcome::Unknown);
    assert!(matches!(log.trim(tail), Err(TrimError::Failed(_))));
    assert!(matches!(log.truncate(first), Err(TruncateError::Failed(_))));
    assert_eq!(log.info().persisted, mark);
    assert!(log.close().is_err());
    let log = Log::open_in(place(&disk.after_kill()), options()).unwrap();
    assert!(log.info().tail == tail && payloads(&log).len() > 500);
}

/// A log in which so many epochs have begun already, before the place where it begins now.
fn with_epochs(count: usize) -> TestDisk {
    let disk = TestDisk::new();
    create(&disk, options()).close().unwrap();
    let around = Surroundings { boot_id: [1; 16], incarnation: 7 };
    let (store, _) =
        windlass_store::Store::open(disk.clone(), &around, &windlass::store::Options::default()).unwrap();
    let mut history = EpochHistory::new();
    for number in 1..=u64::try_from(count).unwrap() {
        history.extend(Epoch::new(number, MemberId(0)), Lsn(4096 + 8 * number)).unwrap();
    }
    store
        .reset_with(Lsn(SEGMENT_BYTES + 4096), |superblock| {
            superblock.promised = history.last().unwrap().epoch;
            superblock.history = history;
        })
        .unwrap();
    disk
}

/// Truncations leave room in the history for those epochs that can't be refused; and where that is used up, a trim at the opening makes room.
#[test]
fn r_12_a_log_whose_history_is_full_was_not_filled_by_truncations_and_opens_trimmed() {
    let disk = with_epochs(HISTORY_ENTRIES_NEARLY_FULL - 2);
    let mut log = Log::open_in(place(&disk.after_kill()), options()).unwrap();
    // Who watches sees it before anything is refused, and whatever comes first.
    let warns = |log: &Log| {
        let metrics = log.metrics();
        assert!(
            metrics
                .to_prometheus("")
                .contains(&format!("windlass_history_epochs {}", metrics.history_epochs))
        );
        assert_eq!(metrics.history_warning, metrics.history_epochs >= HISTORY_ENTRIES_NEARLY_FULL as u64);
        metrics.history_warning
    };
    assert!(!warns(&log));
    let refused = loop {
        let end = append(&log, b"x").end;
        match log.truncate(end) {
            Ok(next) => log = next,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.to_string(), TruncateError::History(HistoryError::NearlyFull).to_string());
    // Nothing was sealed.
    let _ = append(&log, b"goes on");
    assert!(log.metrics().history_epochs >= HISTORY_ENTRIES_NEARLY_FULL as u64 - 1);
    // A cut that takes epochs away has room.
    let first = log.info().trimmed;
    let log = log.truncate(first).unwrap();
    assert!(!warns(&log));
    log.close().unwrap();

    let disk = with_epochs(HISTORY_ENTRIES_MAX - 6);
    let mut kept = Lsn(0);
    let mut kills = 0;
    let error = loop {
        let log = match Log::open_in(place(&disk.after_kill()), options()) {
            Ok(log) => log,
            Err(error) => break error,
        };
        assert!(warns(&log), "before it does not open any more");
        kept = append(&log, b"x").end;
        let _proof = log.commit_blocking(kept, Level::Local).unwrap();
        kills += 1;
        std::mem::forget(log);
    };
    assert_eq!(kills, 6);
    assert!(error.to_string().contains("`Log::open_trimmed`"), "{error}");
    let full = |error: &OpenError| {
        matches!(error, OpenError::Store(windlass::store::OpenError::History(HistoryError::TooMany)))
    };
    assert!(full(&error), "{error}");
    let trimmed = |lsn| Log::open_trimmed_in(place(&disk.after_kill()), options(), lsn);
    assert!(matches!(trimmed(Lsn(0)), Err(OpenTrimmedError::Open(error)) if full(&error)));
    assert!(matches!(trimmed(Lsn(kept.0 + 8)), Err(OpenTrimmedError::Beyond { end, .. }) if end == kept));
    assert!(matches!(trimmed(Lsn(kept.0 - 8)), Err(OpenTrimmedError::InsideRecord { record: Some(_), .. })));
    let log = trimmed(kept).unwrap();
    assert_eq!((log.info().trimmed, log.info().tail), (kept, kept));
    let _ = append(&log, b"goes on");
    log.close().unwrap();
    assert_eq!(payloads(&Log::open_in(place(&disk), options()).unwrap()), [b"goes on"]);
}
