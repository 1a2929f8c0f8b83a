//! One of three members stopped: commits go on, and the primary's memory stays as it is.

use std::time::Instant;

use windlass::{Level, Log};

use crate::Settings;
use crate::child;
use crate::error::{BenchError, During};
use crate::group::member::soon;
use crate::group::{Answer, Group, Request};
use crate::measure::{Report, Series, Target};

const RECORD_BYTES: usize = 4096;
/// Records that are committed together.
const GROUP: u64 = 64;
/// The application trims each time so much more has been appended.
const TRIM_BYTES: u64 = 64 << 20;

/// In the primary's process: appends so many bytes, committing and trimming on the way, and looks at its own memory.
pub(crate) fn bulk(log: &Log, bytes: u64) -> Result<Answer, BenchError> {
    let record = [0xA5; RECORD_BYTES];
    let before = child::anonymous_bytes()?;
    let (mut peak, mut trimmed) = (before, 0);
    let start = Instant::now();
    for number in 1..=bytes / RECORD_BYTES as u64 {
        let appended = log.append_wait_blocking(&record, soon()).during("appending")?;
        if number % GROUP != 0 {
            continue;
        }
        let _committed = log.commit_until(appended.end, Level::Durable, soon()).during("committing")?;
        peak = peak.max(child::anonymous_bytes()?);
        if appended.end.0 >= trimmed + TRIM_BYTES {
            trimmed = appended.end.0;
            log.trim(appended.end).during("trimming")?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Answer::Bulk { seconds, grown_bytes: peak - before })
}

pub(crate) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let folder = settings.folder()?;
    let mut group = Group::windlass(settings, folder.path())?;
    let bytes = settings.choose(1 << 30, 8 << 20);
    let mut rates = [Series::new("all three members"), Series::new("one of three stopped")];
    let mut grown = Vec::new();
    for stopped in [false, true] {
        if stopped {
            group.others[1].stop(true)?;
        }
        let Answer::Bulk { seconds, grown_bytes } = group.ask(&Request::Bulk { bytes })? else {
            panic!("another answer than asked for");
        };
        rates[usize::from(stopped)].push(bytes as f64 / 1e6 / seconds);
        if stopped {
            grown.push(grown_bytes as f64 / f64::from(1 << 20));
        }
    }
    group.others[1].stop(false)?;
    let mut report = Report::default();
    report.compare("durable appends of 4 KiB, 64 committed together", "MB/s", &rates);
    report.judge(
        "growth of the primary's memory with a member stopped for 1 GiB, MiB",
        Target::AtMost(64.0),
        grown,
    );
    Ok(report)
}
