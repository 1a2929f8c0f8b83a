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

/// What is whole behind damage is looked at a piece at a time, once the session that filled the damage is over, and not sent again: what that session may write is three segments.
#[test]
fn much_that_is_whole_behind_damage_is_taken_as_it_is_r18() {
    let mut group = Group::start_with(3, |options| options.backup_retention_bytes(64 << 20));
    let (first, log) = group.primary();
    let long = |number: u64| vec![u8::try_from(number % 251).unwrap(); 100_000];
    let end = append_all(&log, (0..120).map(long), Level::Durable);
    group.wait_durable(end);
    let hurt = (first + 1) % 3;
    group.kill(hurt);
    std::fs::remove_file(group.folder_of(hurt).join("0000000000100000.segment")).unwrap();
    let before = group.node(first).metrics().group.batch_bytes.sum;
    group.open(hurt);
    wait_trusted(&group, hurt);
    group.wait_durable(end);
    let again = group.node(first).metrics().group.batch_bytes.sum - before;
    assert!(again > 0 && again < 4 << 20, "{again} bytes sent again");
    assert_eq!(read_all(group.node(hurt)), (0..120).map(long).collect::<Vec<_>>());
}

#[test]
fn a_member_reads_its_cold_segments_at_the_rate_that_its_options_say_and_none_at_none() {
    for rate in [1 << 30, 0] {
        let group = Group::start_with(1, move |options| options.scrub_bytes_per_second(rate));
        let (_, log) = group.primary();
        let segment = log.info().segment_bytes;
        let payloads = (0..2 * segment / 1000).map(|_| vec![7; 1000]);
        append_all(&log, payloads, Level::Durable);
        let scrub = || group.node(0).metrics().log.scrub;
        let deadline = Instant::now() + if rate > 0 { PATIENCE } else { Duration::from_secs(3) };
        while scrub().bytes < segment / 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        // A pass begins each second, and one at the default's pace would have begun by now.
        assert_eq!(scrub().bytes >= segment / 2, rate > 0, "at {rate} a second: {:?}", scrub());
        assert!(rate > 0 || scrub().bytes == 0, "{:?}", scrub());
    }
}
