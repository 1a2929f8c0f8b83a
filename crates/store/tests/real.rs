//! The store on the operating system's own files: processes that die, disks that are full, folders that are copied.

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use windlass_log::{
    Chain, Drain, DrainState, Epoch, Handoff, LogId, Lsn, MemberId, RecordKind, ReserveError,
    SEGMENT_BYTES_MIN, Tenure,
};
use windlass_store::disk::{Disk, RealDisk};
use windlass_store::{
    Condition, CreateError, Founding, Inspection, OpenError, Opened, Options, PrepareError, Prepared, Read,
    Store, Surroundings,
};

const AROUND: Surroundings = Surroundings { boot_id: [1; 16], incarnation: 7 };

fn founding(segment_bytes: u64) -> Founding {
    Founding {
        log_id: LogId([3; 16]),
        member: MemberId(0),
        incarnation: 1,
        segment_bytes,
        epoch: Some(Epoch::new(1, MemberId(0))),
        configuration: Vec::new(),
    }
}

struct Log {
    store: Arc<Store<RealDisk>>,
    handoff: Arc<Handoff>,
    drain: Drain,
}

impl Log {
    fn over(store: Store<RealDisk>, opened: &Opened) -> Log {
        let store = Arc::new(store);
        store.begin().unwrap();
        let chain: Chain = opened.chain.unwrap();
        let (handoff, drain) = Handoff::new(Tenure {
            geometry: store.geometry(),
            log_id: store.log_id(),
            epoch: opened.epoch.unwrap(),
            tail: opened.tail,
            chain,
            persisted: store.persisted().lsn(),
            slots: 8,
        });
        for (segment, memory) in store.ready() {
            handoff.install(segment, memory).unwrap();
        }
        handoff.set_limit(Lsn(1 << 60));
        Log { store, handoff, drain }
    }

    fn prepare(&self) -> Result<(), PrepareError> {
        loop {
            match self.store.prepare_step(self.handoff.tail())? {
                Prepared::Segment { segment, memory } => self.handoff.install(segment, memory).unwrap(),
                Prepared::Idle => return Ok(()),
                Prepared::Allocated { .. }
                | Prepared::Populated { .. }
                | Prepared::Marked { .. }
                | Prepared::Recycled { .. } => {}
            }
        }
    }

    fn drain(&mut self) {
        while matches!(self.drain.poll(1 << 20).unwrap().state, DrainState::More) {}
    }

    fn append(&mut self, payload: &[u8]) -> Result<Lsn, PrepareError> {
        loop {
            match self.handoff.append(RecordKind::Data, payload) {
                Ok(appended) => return Ok(appended.end),
                Err(ReserveError::NotReady { .. }) => {
                    self.drain();
                    self.handoff.retire();
                    self.prepare()?;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn count(store: &Arc<Store<RealDisk>>, end: Lsn) -> u64 {
    let mut reader = store.reader(store.trimmed());
    let mut records = 0;
    while let Read::Record(record) = reader.next(end).unwrap() {
        records += u64::from(record.header.kind == RecordKind::Data);
    }
    records
}

/// What the child process of the tests below does: it appends for ever, and prints the number of each record once it is durable.
#[test]
fn child_appends_until_it_is_killed() {
    let Some(folder) = std::env::var_os("WINDLASS_STORE_CHILD") else { return };
    let disk = RealDisk::open(Path::new(&folder)).unwrap();
    let (store, opened) = Store::open(disk, &AROUND, &Options::default()).unwrap();
    let mut log = Log::over(store, &opened);
    for number in 0_u64.. {
        log.append(&number.to_le_bytes().repeat(20)).unwrap();
        log.drain();
        log.store.flush(log.handoff.drained()).unwrap();
        println!("durable {number}");
    }
}

#[test]
fn kind_32_two_processes_and_kind_33_the_killed_one_is_no_obstacle() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    drop(Store::create(disk, &founding(SEGMENT_BYTES_MIN), &AROUND, &Options::default()).unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_appends_until_it_is_killed", "--exact", "--nocapture"])
        .env("WINDLASS_STORE_CHILD", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut durable = 0;
    while durable < 2000 {
        let line = lines.next().unwrap().unwrap();
        durable = line.strip_prefix("durable ").map_or(durable, |number| number.parse().unwrap());
    }
    let error =
        Store::open(RealDisk::open(folder.path()).unwrap(), &AROUND, &Options::default()).unwrap_err();
    assert!(
        matches!(error, OpenError::InUse { holder: Some(holder), .. } if holder == child.id()),
        "{error}"
    );
    // A tool looks at it meanwhile, and finds no tear.
    let mut inspection = Inspection::open(RealDisk::open(folder.path()).unwrap(), None).unwrap();
    assert_eq!(inspection.owner(), Some(child.id()));
    if inspection.in_use().is_some() {
        assert_eq!(inspection.in_use(), Some(true));
        for _ in 0..5 {
            let report = inspection.verify().unwrap();
            assert_eq!(report.condition, Condition::InUse, "{report:?}");
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines.map_while(Result::ok) {
        durable = line.strip_prefix("durable ").map_or(durable, |number| number.parse().unwrap());
    }
    let (store, opened) =
        Store::open(RealDisk::open(folder.path()).unwrap(), &AROUND, &Options::default()).unwrap();
    assert!(!opened.clean && !opened.memory_lost);
    // Nothing is left to be written again only if it was killed just after the mark was written down.
    assert!(opened.rewritten_bytes > 0 || store.superblock().persisted == opened.tail);
    assert!(count(&Arc::new(store), opened.tail) > durable, "an acknowledged record is gone");
}

/// Whether there is one of so many bytes. Where `CI` is set there has to be.
fn mount_tmpfs(folder: &Path, bytes: u64) -> bool {
    let size = format!("size={bytes}");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
    let refused = match mount {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    assert!(std::env::var_os("CI").is_none(), "no tmpfs: {refused}");
    println!("SKIPPED: mounting a tmpfs needs root (the same is tested on the disk in memory): {refused}");
    false
}

#[test]
fn kind_20_a_full_filesystem_is_an_error_and_never_a_bus_error() {
    let folder = tempfile::tempdir().unwrap();
    if !mount_tmpfs(folder.path(), 8 * SEGMENT_BYTES_MIN + (1 << 20)) {
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let disk = RealDisk::open(folder.path()).unwrap();
        let (store, opened) =
            Store::create(disk, &founding(SEGMENT_BYTES_MIN), &AROUND, &Options::default()).unwrap();
        let mut log = Log::over(store, &opened);
        let mut records = 0;
        let error = loop {
            match log.append(&[5; 1000]) {
                Ok(_) => records += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, PrepareError::Full { .. }), "{error}");
        log.drain();
        log.store.flush(log.handoff.drained()).unwrap();
        log.store.close(log.handoff.drained()).unwrap();
        drop(log);
        // Not a byte is left for others either.
        std::fs::write(folder.path().join("filler"), vec![1; 4 << 20]).unwrap_err();
        let (store, opened) =
            Store::open(RealDisk::open(folder.path()).unwrap(), &AROUND, &Options::default()).unwrap();
        let store = Arc::new(store);
        assert_eq!(count(&store, opened.tail), records);
        store.trim(opened.tail, opened.tail).unwrap();
        drop(store);
        let (store, opened) =
            Store::open(RealDisk::open(folder.path()).unwrap(), &AROUND, &Options::default()).unwrap();
        let mut log = Log::over(store, &opened);
        log.append(&[6; 1000]).unwrap();
    });
    Command::new("umount").arg(folder.path()).status().unwrap();
    outcome.unwrap();
}

/// A segment is restored by `cp --sparse=always`, and then the filesystem fills up.
#[test]
fn kind_20_a_sparse_copy_of_a_segment_is_filled_or_refused_and_never_a_bus_error() {
    let folder = tempfile::tempdir().unwrap();
    if !mount_tmpfs(folder.path(), 4 << 20) {
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let place = folder.path().join("log");
        let disk = RealDisk::create(&place).unwrap();
        let segment_bytes = 1 << 20;
        let options = Options { segments_ahead: 1, ..Options::default() };
        let (store, opened) = Store::create(disk, &founding(segment_bytes), &AROUND, &options).unwrap();
        let mut log = Log::over(store, &opened);
        log.append(&[5; 1000]).unwrap();
        log.drain();
        log.store.close(log.handoff.drained()).unwrap();
        drop(log);
        let (segment, backup) = (place.join("0000000000000000.segment"), folder.path().join("backup"));
        for (from, to) in [(&segment, &backup), (&backup, &segment)] {
            let copied = Command::new("cp").arg("--sparse=always").arg(from).arg(to).status().unwrap();
            assert!(copied.success());
        }
        std::fs::write(folder.path().join("filler"), vec![1; 8 << 20]).unwrap_err();
        let open = || Store::open(RealDisk::open(&place).unwrap(), &AROUND, &options);
        let error = open().map(|_| ()).unwrap_err();
        assert!(matches!(&error, OpenError::Disk(error) if error.is_full()), "{error}");
        std::fs::remove_file(folder.path().join("filler")).unwrap();
        let (store, opened) = open().unwrap();
        // Full again: what is mapped has its blocks.
        std::fs::write(folder.path().join("filler"), vec![1; 8 << 20]).unwrap_err();
        let mut log = Log::over(store, &opened);
        for _ in 0..900 {
            log.append(&[6; 1000]).unwrap();
        }
    });
    Command::new("umount").arg(folder.path()).status().unwrap();
    outcome.unwrap();
}

/// A process that may make files of less than a segment (`ulimit -f`): the system would end it by SIGXFSZ.
#[test]
fn kind_20_a_file_that_this_process_may_not_make_so_long_is_an_error_and_never_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    drop(Store::create(disk, &founding(SEGMENT_BYTES_MIN), &AROUND, &Options::default()).unwrap());
    let child = Command::new("sh")
        // In units of 512 or 1024 bytes, as the shell has it: room for a superblock, and for no segment of 1 MiB.
        .args(["-c", "ulimit -f 900; exec \"$0\" child_may_not_make_a_segment --exact --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env("WINDLASS_STORE_LIMITED", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("refused"), "{}: {said}", child.status);
}

#[test]
fn child_may_not_make_a_segment() {
    let Some(folder) = std::env::var_os("WINDLASS_STORE_LIMITED") else { return };
    let place = Path::new(&folder).join("larger");
    let made =
        Store::create(RealDisk::create(&place).unwrap(), &founding(1 << 20), &AROUND, &Options::default());
    let Err(CreateError::Disk(error)) = made.map(|_| ()) else { panic!("it was made") };
    assert_eq!(error.errno, windlass_store::disk::Errno::FBIG, "{error}");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    // A log of smaller segments is none the worse for it.
    let disk = RealDisk::open(Path::new(&folder)).unwrap();
    let (store, opened) = Store::open(disk, &AROUND, &Options::default()).unwrap();
    Log::over(store, &opened).append(&[1; 1000]).unwrap();
    println!("refused");
}

#[test]
fn kind_37_a_folder_that_cannot_be_reached_is_not_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let missing = RealDisk::open(&folder.path().join("no")).map(|_| ()).unwrap_err();
    assert_eq!(missing, windlass_store::disk::Errno::NOENT);
    std::fs::write(folder.path().join("file"), b"x").unwrap();
    let file = RealDisk::open(&folder.path().join("file")).map(|_| ()).unwrap_err();
    assert_eq!(file, windlass_store::disk::Errno::NOTDIR);
    let made = RealDisk::create(&folder.path().join("log")).unwrap();
    drop(Store::create(made, &founding(SEGMENT_BYTES_MIN), &AROUND, &Options::default()).unwrap());
    let again = RealDisk::create(&folder.path().join("log")).unwrap();
    let error = Store::create(again, &founding(SEGMENT_BYTES_MIN), &AROUND, &Options::default()).unwrap_err();
    assert!(matches!(error, CreateError::Exists { .. }), "{error}");
}

#[test]
fn a_folder_copied_by_cp_is_found_out_and_a_renamed_one_is_not_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (original, copy) = (folder.path().join("a"), folder.path().join("b"));
    let disk = RealDisk::create(&original).unwrap();
    let (store, opened) =
        Store::create(disk, &founding(SEGMENT_BYTES_MIN), &AROUND, &Options::default()).unwrap();
    store.close(opened.tail).unwrap();
    assert!(Command::new("cp").arg("-a").args([&original, &copy]).status().unwrap().success());
    let opened = Store::open(RealDisk::open(&copy).unwrap(), &AROUND, &Options::default()).unwrap().1;
    assert!(opened.copied);
    std::fs::rename(&original, folder.path().join("c")).unwrap();
    let opened = Store::open(RealDisk::open(&folder.path().join("c")).unwrap(), &AROUND, &Options::default())
        .unwrap()
        .1;
    assert!(!opened.copied);
}

#[test]
fn kind_60_a_forked_child_does_not_inherit_the_mapping() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    let (store, opened) =
        Store::create(disk, &founding(SEGMENT_BYTES_MIN), &AROUND, &Options::default()).unwrap();
    store.begin().unwrap();
    let memory = store.memory(store.geometry().segment_of(opened.tail)).unwrap();
    let mut smaps = String::new();
    std::fs::File::open("/proc/self/smaps").unwrap().read_to_string(&mut smaps).unwrap();
    let start = format!("{:x}-", memory.address());
    let mapping = smaps.split_once(&start).expect("the mapping is listed").1;
    let flags = mapping.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
    assert!(flags.contains(" dc"), "MADV_DONTFORK: {flags}");
    assert!(store.disk().is_locked() != Some(false));
}
