//! Tests of the disks themselves.

use super::testing::{Call, Survive, TestDisk};
use super::{Access, Disk, DiskFile, DiskMap, Errno, Locked, RealDisk};

fn exercise<D: Disk>(disk: &D) {
    let file = disk.create("a").unwrap();
    assert_eq!(disk.create("a").map(|_| ()), Err(Errno::EXIST));
    file.allocate(3 << 16).unwrap();
    assert_eq!(file.len_bytes(), Ok(3 << 16));
    let map = file.map(3 << 16).unwrap();
    assert!(!map.is_shared());
    let part = map.memory().slice(4096, 4096);
    assert!(map.is_shared(), "R-2: a slice is held");
    part.copy_in(8, b"through the mapping");
    drop(part);
    assert!(!map.is_shared());
    map.populate(0..8192).unwrap();
    map.flush_range(4096..4200).unwrap();
    let mut bytes = [0; 19];
    assert_eq!(file.read_at(&mut bytes, 4104), Ok(19));
    assert_eq!(&bytes, b"through the mapping");
    file.write_at(b"by pwrite", 4104).unwrap();
    map.memory().copy_out(4104, &mut bytes);
    assert_eq!(&bytes, b"by pwritehe mapping");
    assert_eq!(file.read_at(&mut bytes, (3 << 16) - 5), Ok(5));
    file.sync().unwrap();
    disk.rename("a", "b").unwrap();
    disk.create("c").unwrap();
    assert_eq!(disk.rename("b", "c"), Err(Errno::EXIST));
    disk.sync_folder().unwrap();
    let mut names: Vec<_> =
        disk.list().unwrap().into_iter().map(|entry| (entry.name, entry.len_bytes)).collect();
    names.sort();
    assert_eq!(names, [("b".to_owned(), 3 << 16), ("c".to_owned(), 0)]);
    disk.remove("c").unwrap();
    assert_eq!(disk.open("c", Access::Read).map(|_| ()), Err(Errno::NOENT));
    let identity = disk.open("b", Access::Read).unwrap().identity().unwrap();
    assert_eq!(identity, file.identity().unwrap());
    let lock = disk.lock().unwrap();
    assert!(matches!(lock, Locked::Held(_)));
    assert!(matches!(disk.lock().unwrap(), Locked::Busy), "kind 32: one opener, in one process too");
    drop(lock);
    assert!(matches!(disk.lock().unwrap(), Locked::Held(_)));
}

#[test]
fn the_real_and_the_test_disk_answer_alike() {
    let folder = tempfile::tempdir().unwrap();
    exercise(&RealDisk::open(folder.path()).unwrap());
    exercise(&TestDisk::new());
}

#[test]
fn a_real_disk_counts_what_its_device_writes_or_says_that_it_cannot() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    let Some(before) = disk.device_written_bytes() else { return };
    let file = disk.create("a").unwrap();
    file.allocate(1 << 20).unwrap();
    file.sync().unwrap();
    assert!(disk.device_written_bytes().unwrap() >= before + (1 << 20));
}

#[test]
fn a_loss_of_power_keeps_what_was_flushed_and_of_the_rest_what_the_seed_says() {
    let disk = TestDisk::new();
    let file = disk.create("a").unwrap();
    file.allocate(8192).unwrap();
    file.sync().unwrap();
    disk.sync_folder().unwrap();
    let map = file.map(8192).unwrap();
    map.memory().copy_in(0, &[7; 4096]);
    map.memory().copy_in(4096, &[8; 4096]);
    map.flush_range(0..1).unwrap();
    disk.create("b").unwrap();
    let nothing = disk.after_power_loss(Survive::Nothing);
    assert_eq!(nothing.names(), ["a"]);
    assert_eq!(nothing.read_file("a"), [[7; 4096], [0; 4096]].concat());
    let everything = disk.after_power_loss(Survive::Everything);
    assert_eq!(everything.names(), ["a", "b"]);
    assert_eq!(everything.read_file("a"), [[7; 4096], [8; 4096]].concat());
    let torn =
        (0..64).map(|seed| disk.after_power_loss(Survive::Seeded(seed)).read_file("a")).find(|bytes| {
            let eights = bytes[4096..].iter().filter(|byte| **byte == 8).count();
            eights > 0 && eights < 4096
        });
    assert_eq!(torn.expect("one of 64 seeds tears the page").len(), 8192);
}

#[test]
fn kind_24_a_failed_flush_leaves_clean_pages_that_a_second_flush_does_not_write() {
    let disk = TestDisk::new();
    let file = disk.create("a").unwrap();
    file.allocate(4096).unwrap();
    file.sync().unwrap();
    disk.sync_folder().unwrap();
    let map = file.map(4096).unwrap();
    map.memory().copy_in(0, b"lost");
    disk.fail(Call::FlushRange, 0, Errno::IO);
    assert_eq!(map.flush_range(0..4096), Err(Errno::IO));
    assert_eq!(map.flush_range(0..4096), Ok(()));
    assert_eq!(disk.after_power_loss(Survive::Nothing).read_file("a")[..4], [0; 4]);
    // Written again, if with the same bytes, they are dirty again: what R-11 relies on.
    file.write_at(b"lost", 0).unwrap();
    assert_eq!(map.flush_range(0..4096), Ok(()));
    assert_eq!(&disk.after_power_loss(Survive::Nothing).read_file("a")[..4], b"lost");
}

#[test]
fn kind_20_a_full_disk_is_an_error_of_allocation() {
    let disk = TestDisk::new();
    disk.set_capacity(Some(64 << 10));
    let file = disk.create("a").unwrap();
    assert_eq!(file.allocate(65 << 10), Err(Errno::NOSPC));
    assert_eq!(file.allocate(64 << 10), Ok(()));
    assert_eq!(disk.create("b").unwrap().write_at(b"x", 0), Err(Errno::NOSPC));
    disk.remove("a").unwrap();
    assert_eq!(disk.used_bytes(), 0);
}

#[test]
fn kind_7_and_37_a_pipe_in_place_of_a_file_is_an_error_and_never_a_wait() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = tempfile::tempdir().unwrap();
    mknodat(CWD, folder.path().join("superblock"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let file = disk.open("superblock", Access::Read).unwrap();
        sender.send(file.read_at(&mut [0; 8], 0).map(drop)).unwrap();
    });
    let answer = answer.recv_timeout(std::time::Duration::from_secs(20));
    assert_eq!(answer.expect("nobody writes into the pipe, and nobody waits for it"), Err(Errno::SPIPE));
}

#[test]
fn what_happened_to_a_disk_is_what_it_answered_and_not_what_was_armed() {
    let disk = TestDisk::new();
    let file = disk.create("a").unwrap();
    file.allocate(8192).unwrap();
    let none = disk.happened();
    // Armed, and gone with the process before anybody asked.
    disk.fail(Call::Sync, 0, Errno::IO);
    disk.fail(Call::Read, 0, Errno::IO);
    disk.set_capacity(Some(0));
    disk.write_back_between(Some(1));
    assert_eq!(disk.after_kill().happened(), none);
    assert_eq!((file.sync(), file.read_at(&mut [0; 8], 0)), (Ok(()), Ok(8)));
    assert_eq!(disk.happened().flushes_failed + disk.happened().reads_failed, 0);
    disk.fail(Call::Sync, 0, Errno::IO);
    disk.fail(Call::Read, 0, Errno::IO);
    assert_eq!((file.sync(), file.read_at(&mut [0; 8], 0)), (Err(Errno::IO), Err(Errno::IO)));
    assert_eq!(file.allocate(16_384), Err(Errno::NOSPC));
    disk.set_capacity(None);
    for at in 0..64 {
        file.write_at(&[1 + at; 8], 0).unwrap();
    }
    let happened = disk.happened();
    assert_eq!((happened.flushes_failed, happened.reads_failed, happened.full), (1, 1, 1));
    assert!(happened.written_back > 0, "{happened:?}");
    assert_eq!(disk.after_power_loss(Survive::Nothing).happened(), happened, "it is the same disk");
    assert_eq!(disk.copied_in_place().happened(), none, "another disk");
}
