//! The comparison of ways to flush, on the medium under the build folder.

use std::time::Instant;

use windlass_store::disk::flushing::{Way, run};

#[test]
#[ignore = "a measurement: run it on a quiet machine with --release --ignored --nocapture"]
fn ways_to_flush() {
    let began = Instant::now();
    let now = || u64::try_from(began.elapsed().as_nanos()).unwrap();
    for round in 0..3 {
        for way in Way::ALL {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let outcome = run(way, folder.path(), 64 << 20, 1000, &now).unwrap();
            println!(
                "{round} {way:?}: p50 {} µs, {:?} device bytes each, fill {} ms",
                outcome.median_ns / 1000,
                outcome.device_bytes_each,
                outcome.fill_ns / 1_000_000
            );
        }
    }
}
