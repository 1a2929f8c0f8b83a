//! Salvage of real folders in which something can't be read: it is told and passed over, and never a reason to refuse.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use windlass::{Level, Log, Lsn, Options, ReadError, Salvaged};
use windlass_log::{SEGMENT_HEADER, SegmentHeader};

const SEGMENT: u64 = 64 << 10;

fn small() -> Options {
    Options::new().segment_bytes(SEGMENT)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A record's number, in its payload.
fn payload(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(250)
}

fn append(log: &Log, numbers: std::ops::Range<u32>) -> Vec<std::ops::Range<Lsn>> {
    let places = numbers.map(|number| {
        let deadline = Instant::now() + Duration::from_secs(60);
        let appended = log.append_wait_blocking(&payload(number), deadline).unwrap();
        appended.start..appended.end
    });
    let places: Vec<_> = places.collect();
    let _committed = log.commit_blocking(places.last().unwrap().end, Level::Local).unwrap();
    places
}

/// What is in a log.
fn numbers(path: &Path) -> Vec<u32> {
    let log = small().open(path).unwrap();
    let mut reader = log.read_from(log.info().trimmed).unwrap();
    let mut numbers = Vec::new();
    loop {
        match reader.next() {
            Ok(record) => {
                let number = u32::from_le_bytes(record.payload[..4].try_into().unwrap());
                assert!(record.payload == payload(number), "as it was appended");
                numbers.push(number);
            }
            Err(ReadError::AtEnd { .. }) => return numbers,
            Err(error) => panic!("{error}"),
        }
    }
}

fn salvage(path: &Path) -> (Salvaged, Vec<u32>) {
    let before = contents(path);
    let to = folder();
    let to = to.path().join("new");
    let salvaged = windlass::salvage(path, &to, Options::new()).unwrap();
    assert!(contents(path) == before, "the log that is read stays as it is");
    let numbers = numbers(&to);
    assert_eq!(numbers.len() as u64, salvaged.records);
    (salvaged, numbers)
}

fn contents(path: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut contents: Vec<_> =
        entries.map(|path| (path.display().to_string(), fs::read(&path).ok())).collect();
    contents.sort();
    contents
}

fn segment(path: &Path, number: u64) -> std::path::PathBuf {
    path.join(format!("{:016x}.segment", number * SEGMENT))
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// A log of some segments, closed, and where its records are.
fn log(count: u32) -> (tempfile::TempDir, Vec<std::ops::Range<Lsn>>) {
    let folder = folder();
    let log = small().open_or_create(folder.path()).unwrap();
    let places = append(&log, 0..count);
    log.close().unwrap();
    (folder, places)
}

#[test]
fn kind_3_salvage_takes_what_is_whole_in_files_that_are_cut_short_or_without_a_header() {
    for len in [0, 50, 4096, 4096 + 30, 20_000, 50_000, SEGMENT - 1, SEGMENT, SEGMENT + 1000] {
        for headless in [false, true] {
            let (folder, places) = log(200);
            change(&segment(folder.path(), 1), |bytes| {
                bytes.resize(usize::try_from(len).unwrap(), 0xee);
                if headless {
                    bytes.iter_mut().take(4096).for_each(|byte| *byte = 0);
                }
            });
            let is_lost =
                |place: &std::ops::Range<Lsn>| place.start.0 / SEGMENT == 1 && place.end.0 > SEGMENT + len;
            let left: Vec<u32> = (0..200).filter(|n| !is_lost(&places[*n as usize])).collect();
            let (salvaged, numbers) = salvage(folder.path());
            assert_eq!(numbers, left, "{len} bytes");
            assert_eq!(salvaged.lost_ranges > 0, len < SEGMENT - 1, "{len} bytes: {salvaged:?}");
            if len < SEGMENT - 1 {
                assert!(salvaged.lost.iter().any(|lost| lost.what.contains("cut short")), "{salvaged:?}");
            }
        }
    }
}

#[test]
fn kind_3_salvage_passes_over_what_is_no_file_in_a_segments_place() {
    let (folder, places) = log(200);
    for (number, what) in [(1, "a folder"), (2, "a link to nowhere")] {
        let path = segment(folder.path(), number);
        fs::remove_file(&path).unwrap();
        match what {
            "a folder" => fs::create_dir(&path).unwrap(),
            _ => std::os::unix::fs::symlink("/nowhere/at/all", &path).unwrap(),
        }
        let left: Vec<u32> =
            (0..200).filter(|n| !(1..=number).contains(&(places[*n as usize].start.0 / SEGMENT))).collect();
        let (salvaged, numbers) = salvage(folder.path());
        assert_eq!(numbers, left, "{what}");
        assert_eq!(salvaged.lost_ranges, 1, "{what}: {salvaged:?}");
    }
}

/// No superblock, or one that is none: segments and records say themselves what they are. What a truncation cut off is of an older epoch than what came behind, and stays away.
#[test]
fn kind_11_salvage_does_without_a_superblock() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("zeros", |file| fs::write(file, vec![0; 128 << 10]).unwrap()),
        ("rot in both copies", |file| {
            change(file, |bytes| {
                bytes[100] ^= 1;
                bytes[(64 << 10) + 100] ^= 1;
            });
        }),
        ("none", |file| fs::remove_file(file).unwrap()),
        ("a folder", |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
    ];
    for (what, harm) in harms {
        let folder = folder();
        let log = small().open_or_create(folder.path()).unwrap();
        let places = append(&log, 0..150);
        let log = log.truncate(places[100].start).unwrap();
        let _places = append(&log, 200..210);
        log.close().unwrap();
        harm(&folder.path().join("superblock"));
        let (salvaged, numbers) = salvage(folder.path());
        let left: Vec<u32> = (0..100).chain(200..210).collect();
        assert_eq!(numbers, left, "{what}");
        assert!(salvaged.is_guessed, "{what}");
    }
    // A stray file under a name that is far from all others, or that no segment has.
    for base in [0x2000_0000_0000_0000_u64, 0x3fff_ffff_ffff_0000, 0xffff_ffff_ffff_0000] {
        for has_superblock in [false, true] {
            let (folder, _) = log(100);
            if !has_superblock {
                fs::remove_file(folder.path().join("superblock")).unwrap();
            }
            let mut stray = fs::read(segment(folder.path(), 0)).unwrap();
            let header = SegmentHeader::decode(&stray).unwrap();
            stray[..SEGMENT_HEADER].copy_from_slice(&SegmentHeader { base: Lsn(base), ..header }.encode());
            fs::write(folder.path().join(format!("{base:016x}.segment")), stray).unwrap();
            let (salvaged, numbers) = salvage(folder.path());
            assert_eq!(numbers, (0..100).collect::<Vec<_>>(), "{base:x}: {salvaged:?}");
            assert_eq!(salvaged.is_guessed, !has_superblock, "{salvaged:?}");
        }
    }
    // Of no log at all nothing can be told.
    let empty = folder();
    fs::write(empty.path().join("superblock"), vec![0; 128 << 10]).unwrap();
    assert!(windlass::salvage(empty.path(), &empty.path().join("new"), Options::new()).is_err());
}
