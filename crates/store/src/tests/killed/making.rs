//! Two processes make a log in one folder at once, and one of them is killed (kind 34).

use std::path::Path;

use windlass_log::LogId;

use super::worker::{RECORDS, Stands, Task, Worker, calls_of, founded_by};
use super::{another, disk, room};
use crate::disk::RealDisk;
use crate::tests::payload;
use crate::tests::testlog::{AROUND, TestLog, options};
use crate::{CreateError, Store};

/// What became of a maker: whether it got a log, and how many records were acknowledged to it.
struct Maker {
    number: u8,
    has_made: bool,
    acknowledged: usize,
}

fn maker(number: u8, worker: &Worker) -> Maker {
    Maker { number, has_made: worker.has_said("made") == 1, acknowledged: worker.has_said("acknowledged") }
}

/// All makers are gone: the folder holds the log of the one who got it, with all that was acknowledged, or the next maker gets it.
fn is_whole(place: &Path, makers: &[Maker], told: &str) {
    let owners: Vec<&Maker> = makers.iter().filter(|maker| maker.has_made).collect();
    assert!(owners.len() < 2, "{told}: both have made a log");
    let next = RealDisk::create(place).unwrap();
    let made = match Store::create(next, &founded_by(9), &AROUND, &options()) {
        Ok((store, opened)) => {
            assert!(owners.is_empty(), "{told}: a log that was made is gone");
            let mut log = TestLog::over(store, opened).unwrap();
            log.append(b"the next maker's").unwrap();
            log.flush().unwrap();
            LogId([9; 16])
        }
        // Somebody's, who may have been killed before it could say so.
        Err(CreateError::Exists { .. }) => {
            let by = |maker: &&Maker| maker.has_made;
            let owner = makers.iter().find(by);
            let log_id = Store::open(disk(place), &AROUND, &options()).unwrap().0.log_id();
            assert!(owner.is_none_or(|owner| log_id == LogId([owner.number; 16])), "{told}: another's log");
            assert!(makers.iter().any(|maker| log_id == LogId([maker.number; 16])), "{told}: {log_id:?}");
            log_id
        }
        Err(error) => panic!("{told}: {error}"),
    };
    let mut log = TestLog::open(disk(place)).unwrap();
    let payloads = log.payloads();
    assert_eq!(log.store.log_id(), made, "{told}");
    if made == LogId([9; 16]) {
        assert_eq!(payloads, [b"the next maker's"], "{told}");
    } else {
        let acknowledged = owners.first().map_or(0, |owner| owner.acknowledged);
        assert!(payloads.len() >= acknowledged, "{told}: {} of {acknowledged}", payloads.len());
        let expected = (0..u32::try_from(payloads.len()).unwrap()).map(payload);
        assert_eq!(payloads, expected.collect::<Vec<_>>(), "{told}");
    }
    // And can be used.
    log.append(b"more").unwrap();
    log.flush().unwrap();
}

fn calls() -> u64 {
    let above = room();
    let calls = calls_of(&above.path().join("log"), Task::Make(1));
    assert!(calls > 20, "{calls}");
    calls
}

/// The first maker stands at a call while the second one does all that it can, and is killed there.
#[test]
fn kind_34_a_maker_that_is_killed_at_any_call_beside_another_one_loses_nothing_of_the_others_log() {
    let calls = calls();
    let (mut seconds, mut nobodys) = (0, 0);
    for at in 0..=calls {
        let above = room();
        let place = above.path().join("log");
        let mut first = Worker::start(&place, Task::Make(1), at);
        let stands = first.stands();
        let mut second = Worker::start(&place, Task::Make(2), u64::MAX);
        assert!(matches!(second.stands(), Stands::Done(_)));
        let makers = [maker(1, &first), maker(2, &second)];
        let told = format!("the first at {at}, {stands:?}; the second: {:?}", second.said);
        assert!(makers[1].has_made == (makers[1].acknowledged == RECORDS as usize), "{told}");
        seconds += usize::from(makers[1].has_made);
        nobodys += usize::from(!makers[0].has_made && !makers[1].has_made);
        first.kill();
        second.kill();
        is_whole(&place, &makers, &told);
    }
    assert!(seconds > 2 && nobodys > 10, "{seconds}, {nobodys} of {calls}");
}

/// The first maker has seen an empty folder and is about to lock it, or before, when the second one comes and is killed at any call. Then the first one goes on.
#[test]
fn kind_34_a_maker_goes_on_where_another_one_was_killed_at_any_call() {
    let calls = calls();
    let (mut firsts, mut seconds) = (0, 0);
    for at in 0..calls {
        let above = room();
        let place = above.path().join("log");
        // Up to the lock, which the second one has otherwise.
        let mut first = Worker::start(&place, Task::Make(1), another(at, 3));
        let before = first.stands();
        let mut second = Worker::start(&place, Task::Make(2), at);
        let stands = second.stands();
        let second_maker = maker(2, &second);
        second.kill();
        first.go_on();
        assert!(matches!(first.stands(), Stands::Done(_)));
        let makers = [maker(1, &first), second_maker];
        let told = format!("the first from {before:?} on: {:?}; the second at {at}, {stands:?}", first.said);
        firsts += usize::from(makers[0].has_made);
        seconds += usize::from(makers[1].has_made);
        first.kill();
        is_whole(&place, &makers, &told);
    }
    assert!(firsts > 5 && seconds > 0, "{firsts}, {seconds} of {calls}");
}
