//! A member whose files were damaged while it was down.

mod support;

use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use support::{Group, PATIENCE, append_all, read_all};
use windlass::Level;

fn payload(number: u64) -> Vec<u8> {
    format!("record {number}").into_bytes()
}

/// Until the member has everything that it may have acknowledged, and says so.
fn wait_trusted(group: &Group, at: usize) {
    let deadline = Instant::now() + PATIENCE;
    while group.node(at).status().damaged || group.node(at).status().primary.is_none() {
        assert!(Instant::now() < deadline, "it stays damaged: {:#?}", group.statuses());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_member_that_lost_bytes_it_had_acknowledged_is_filled_up_and_trusted_again_r18() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let end = append_all(&log, (0..200).map(payload), Level::Durable);
    group.wait_durable(end);
    let hurt = (first + 1) % 3;
    group.kill(hurt);
    // Above the mark that is written down, below what was acknowledged: taken for torn, and cut.
    let file = group.folder_of(hurt).join("0000000000000000.segment");
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4096 + 8).unwrap();
    file.write_all_at(&[!byte[0]], 4096 + 8).unwrap();
    group.open(hurt);
    let end = append_all(&log, (200..300).map(payload), Level::Durable).max(end);
    group.wait_durable(end);
    assert_eq!(read_all(group.node(hurt)), (0..300).map(payload).collect::<Vec<_>>());
    wait_trusted(&group, hurt);
    // It counts again, also after another start: with the old primary gone, its promise is one of the two that are needed.
    group.kill(hurt);
    group.open(hurt);
    group.wait_durable(end);
    wait_trusted(&group, hurt);
    drop(log);
    group.kill(first);
    let (_, log) = group.primary();
    let end = append_all(&log, (300..400).map(payload), Level::Durable);
    group.wait_durable(end);
    assert_eq!(read_all(group.node(hurt)), (0..400).map(payload).collect::<Vec<_>>());
}
