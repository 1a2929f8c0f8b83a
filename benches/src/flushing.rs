//! The comparison of ways to flush that DESIGN.md section 5 chose from, on the medium at hand.

use std::time::Instant;

use windlass_store::disk::flushing::{self, Way};

use crate::Settings;
use crate::error::{BenchError, During};
use crate::measure::{Report, Series};

const FILE_BYTES: u64 = 64 << 20;

pub(crate) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let epoch = Instant::now();
    let now_ns = move || u64::try_from(epoch.elapsed().as_nanos()).expect("not 500 years");
    let mut times = Way::ALL.map(|way| Series::new(way_name(way)));
    let mut bytes = times.clone();
    let mut fills = times.clone();
    for _ in 0..settings.rounds() {
        for (at, way) in Way::ALL.into_iter().enumerate() {
            let folder = settings.folder()?;
            let (file_bytes, appends) = (settings.choose(FILE_BYTES, 4 << 20), settings.choose(300, 20));
            let outcome = flushing::run(way, folder.path(), file_bytes, appends, &now_ns)
                .during("flushing in one of the ways")?;
            // Nanoseconds and bytes, far below 2^52.
            times[at].push(outcome.median_ns as f64 / 1e3);
            fills[at].push(outcome.fill_ns as f64 / 1e6);
            bytes[at].push(outcome.device_bytes_each.map_or(f64::NAN, |bytes| bytes as f64));
        }
    }
    let mut report = Report::default();
    report.compare("256 B made durable, p50", "µs", &times);
    // Nothing is said where the kernel tells nothing.
    if bytes.iter().all(|series| series.runs.iter().all(|run| run.is_finite())) {
        report.compare("bytes that reach the device for each", "B", &bytes);
    }
    report.compare("filling the file with zeros", "ms", &fills);
    Ok(report)
}

pub(crate) fn way_name(way: Way) -> &'static str {
    match way {
        Way::SmallFoliosMsync => "zeros by pages, mapping, msync (the store's)",
        Way::LargeFoliosMsync => "zeros by 1 MiB, mapping, msync",
        Way::DirectZerosMsync => "zeros by O_DIRECT, mapping, msync",
        Way::PwriteFdatasync => "pwrite + fdatasync",
        Way::DirectDsync => "O_DIRECT, O_DSYNC, whole page",
    }
}
