//! Opening: what it replays, and what it refuses.

use std::fs;
use std::path::Path;

use embed_redb::{ApplyError, Op, OpenError, Options, Store};
use windlass::{Level, Lsn, OpenOrCreateError};

fn options() -> Options {
    Options { log: windlass::Options::new().segment_bytes(64 << 10), ..Options::default() }
}

fn open(folder: &Path) -> Store {
    Store::open(folder, options()).unwrap()
}

fn pairs(store: &Store) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    store
        .scan(|key, value| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            pairs.push((text(key), text(value)));
            true
        })
        .unwrap();
    pairs
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.into(), value.into())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// What a crash of redb leaves: its last durable commit. The file as it was then is the same thing.
struct Tables {
    saved: Vec<u8>,
}

impl Tables {
    fn save(folder: &Path) -> Tables {
        Tables { saved: fs::read(folder.join("tables.redb")).unwrap() }
    }

    fn put_back(&self, folder: &Path) {
        fs::write(folder.join("tables.redb"), &self.saved).unwrap();
    }
}

#[test]
fn writes_are_seen_at_once_and_after_closing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.put(b"a", b"1").unwrap();
    store.put(b"b", b"2").unwrap();
    store.delete(b"a").unwrap();
    store.write(&[]).unwrap();
    store.write(&[Op::put("c", "3"), Op::delete("b"), Op::put("c", "4"), Op::put("", "")]).unwrap();
    assert_eq!(store.get(b"a").unwrap(), None);
    let expected = vec![pair("", ""), pair("c", "4")];
    assert_eq!(pairs(&store), expected);
    store.close().unwrap();
    let store = open(folder.path());
    assert_eq!(store.stats().replayed, 0, "closing made a checkpoint");
    assert_eq!(pairs(&store), expected);
}

#[test]
fn tables_from_before_are_brought_to_the_end_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.put(b"gone", b"1").unwrap();
    store.put(b"kept", b"1").unwrap();
    store.close().unwrap();
    let before = Tables::save(folder.path());
    let store = open(folder.path());
    store.put(b"kept", b"2").unwrap();
    store.delete(b"gone").unwrap();
    store.write(&[Op::put("x", "1"), Op::put("y", "1")]).unwrap();
    // Dropped without a checkpoint, so nothing was trimmed: redb is put back to where a crash would have left it.
    drop(store);
    before.put_back(folder.path());
    let store = open(folder.path());
    assert_eq!(store.stats().replayed, 4);
    assert_eq!(pairs(&store), [pair("kept", "2"), pair("x", "1"), pair("y", "1")]);
    // And again from the very beginning of this log's retained part.
    drop(store);
    before.put_back(folder.path());
    assert_eq!(pairs(&open(folder.path())), [pair("kept", "2"), pair("x", "1"), pair("y", "1")]);
}

#[test]
fn kind_83_a_long_replay_is_applied_in_runs_and_makes_progress_durable() {
    let folder = tempfile::tempdir().unwrap();
    let large = || Options {
        log: windlass::Options::new().segment_bytes(4 << 20).retention_bytes(64 << 20),
        ..Options::default()
    };
    let store = Store::open(folder.path(), large()).unwrap();
    store.put(b"first", b"1").unwrap();
    store.checkpoint().unwrap();
    let before = {
        drop(store);
        Tables::save(folder.path())
    };
    let store = Store::open(folder.path(), large()).unwrap();
    let value = vec![7; 64 << 10];
    for number in 0..100_u32 {
        // Batches of two: a run must not end inside one.
        let (key, twin) = (format!("a{number:03}"), format!("b{number:03}"));
        store.write(&[Op::put(key, value.clone()), Op::put(twin, value.clone())]).unwrap();
    }
    drop(store);
    before.put_back(folder.path());
    let opened = Store::open(folder.path(), Options { checkpoint_bytes: 1 << 20, ..large() }).unwrap();
    let stats = opened.stats();
    assert_eq!(stats.replayed, 200);
    assert!(stats.checkpoints >= 3, "{stats:?}: 13 MB are several runs, and each is kept");
    let mut count = 0;
    opened
        .scan(|_, found| {
            count += 1;
            found == value || found == b"1"
        })
        .unwrap();
    assert_eq!(count, 201);
}

#[test]
fn a_checkpoint_by_itself_keeps_the_log_below_its_cap() {
    let folder = tempfile::tempdir().unwrap();
    let log = windlass::Options::new().segment_bytes(64 << 10).retention_bytes(256 << 10);
    // Larger than the cap: only a full log brings a checkpoint about.
    let store =
        Store::open(folder.path(), Options { checkpoint_bytes: 1 << 30, log, ..Options::default() }).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..40 {
                    store.put(format!("{writer} {number}").as_bytes(), &[1; 20_000]).unwrap();
                }
            });
        }
    });
    let stats = store.stats();
    assert!(stats.checkpoints > 0, "{stats:?}");
    assert_eq!(stats.checkpoint_failure, None);
    assert_eq!(pairs(&store).len(), 80);
}

#[test]
fn tables_behind_the_trim_point_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.put(b"a", b"1").unwrap();
    store.close().unwrap();
    let old = Tables::save(folder.path());
    let store = open(folder.path());
    store.put(b"a", b"2").unwrap();
    let trimmed = store.checkpoint().unwrap();
    store.put(b"a", b"3").unwrap();
    store.close().unwrap();
    let last = Tables::save(folder.path());
    old.put_back(folder.path());
    let error = Store::open(folder.path(), options()).unwrap_err();
    assert!(
        matches!(error, OpenError::TablesBehind { applied, first } if applied < trimmed && first >= trimmed),
        "{error:?}"
    );
    fs::remove_file(folder.path().join("tables.redb")).unwrap();
    let error = Store::open(folder.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::TablesBehind { .. }), "no tables, trimmed log: {error:?}");
    last.put_back(folder.path());
    assert_eq!(pairs(&open(folder.path())), [pair("a", "3")]);
}

#[test]
fn tables_ahead_of_the_log_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.put(b"a", b"1").unwrap();
    let cut = store.stats().applied;
    store.put(b"a", b"2").unwrap();
    let applied = store.stats().applied;
    // Not closed: nothing was trimmed, but redb made its last transaction durable when it was dropped.
    drop(store);
    let log_folder = folder.path().join("log");
    let log = windlass::Options::new().open(&log_folder).unwrap();
    log.truncate(cut).unwrap().close().unwrap();
    let error = Store::open(folder.path(), options()).unwrap_err();
    assert!(
        matches!(error, OpenError::TablesAhead { applied: told, end } if told == applied && end == cut),
        "{error:?}"
    );
    // The log grows past the mark with other records: the tables' last record is still not its own.
    let log = windlass::Options::new().open(&log_folder).unwrap();
    for _ in 0..10 {
        log.append(&Op::put("a", "other").encode()).unwrap();
    }
    log.close().unwrap();
    let error = Store::open(folder.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::TablesAhead { end, .. } if end > applied), "{error:?}");
}

#[test]
fn an_older_copy_of_the_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (log, saved) = (folder.path().join("log"), folder.path().join("saved"));
    let store = open(folder.path());
    store.put(b"a", b"1").unwrap();
    store.close().unwrap();
    copy(&log, &saved);
    let store = open(folder.path());
    store.put(b"a", b"2").unwrap();
    drop(store);
    fs::remove_dir_all(&log).unwrap();
    fs::rename(&saved, &log).unwrap();
    // windlass finds the copy out by itself; a backup that kept the files' identity is found out by the mark.
    let error = Store::open(folder.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::Log(_) | OpenError::TablesAhead { .. }), "{error:?}");
}

#[test]
fn tables_and_log_of_different_stores_are_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&one, &other] {
        let store = open(folder.path());
        store.put(b"a", b"1").unwrap();
        store.close().unwrap();
    }
    fs::remove_dir_all(one.path().join("log")).unwrap();
    let error = Store::open(one.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::Log(OpenOrCreateError::Open(_))), "{error:?}");
    assert!(!one.path().join("log").exists(), "no new log is made in place of one that is gone");
    fs::rename(other.path().join("log"), one.path().join("log")).unwrap();
    let error = Store::open(one.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::TablesOfAnotherLog { .. }), "{error:?}");
}

#[test]
fn kind_2_damage_in_the_log_is_an_error_and_never_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.put(b"a", b"1").unwrap();
    store.close().unwrap();
    let before = Tables::save(folder.path());
    let store = open(folder.path());
    let from = store.stats().applied;
    for number in 0..10 {
        store.put(b"a", format!("value {number}").as_bytes()).unwrap();
    }
    drop(store);
    before.put_back(folder.path());
    let segment = folder.path().join("log").join(format!("{:016x}.segment", 0));
    let mut bytes = fs::read(&segment).unwrap();
    let place = usize::try_from(from.0).unwrap() + 200;
    bytes[place] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let error = Store::open(folder.path(), options()).unwrap_err();
    // What every opening checks again is refused by the log; what a mark vouches for is found by replay.
    assert!(
        matches!(
            error,
            OpenError::Replay(ApplyError::Log(windlass::ReadError::Damaged { .. }))
                | OpenError::Log(OpenOrCreateError::Open(_))
        ),
        "{error:?}"
    );
    bytes[place] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    assert_eq!(pairs(&open(folder.path())), [pair("a", "value 9")]);
}

#[test]
fn a_record_of_somebody_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.put(b"a", b"1").unwrap();
    store.close().unwrap();
    let log = windlass::Options::new().open(&folder.path().join("log")).unwrap();
    let at = log.append(b"not an operation").unwrap();
    log.close().unwrap();
    let error = Store::open(folder.path(), options()).unwrap_err();
    assert!(
        matches!(error, OpenError::Replay(ApplyError::Malformed { lsn, .. }) if lsn == at.start),
        "{error:?}"
    );
}

#[test]
fn at_buffered_the_log_is_flushed_before_the_tables_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options { level: Level::Buffered, ..options() }).unwrap();
    store.put(b"a", b"1").unwrap();
    let (metrics, applied) = (store.log_metrics(), store.stats().applied);
    assert!(metrics.drained >= applied);
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(b"1".as_slice()), "seen, whatever is flushed");
    let trimmed = store.checkpoint().unwrap();
    assert_eq!(trimmed, applied);
    assert!(store.log_metrics().durable >= applied);
    store.put(b"b", b"2").unwrap();
    drop(store);
    assert_eq!(pairs(&open(folder.path())), [pair("a", "1"), pair("b", "2")]);
}

#[test]
fn a_second_opener_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let error = Store::open(folder.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::Tables(redb::Error::DatabaseAlreadyOpen)), "{error:?}");
    store.put(b"a", b"1").unwrap();
    assert!(store.stats().applied > Lsn(4096));
}
