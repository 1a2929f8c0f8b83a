//! Durable appends on one node: alone against the raw ways to flush one record, and by many committers against a plain
//! group commit.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use windlass::{Level, Log, Options};
use windlass_store::disk::flushing::{Appender, Way};
use windlass_store::disk::{Disk, RealDisk};

use crate::Settings;
use crate::error::{BenchError, During};
use crate::flushing::way_name;
use crate::measure::{Report, Series, Target, median_of, side_by_side};
use crate::plain::PlainLog;

const RECORD_BYTES: usize = 256;
const FILE_BYTES: u64 = 64 << 20;
/// The raw ways that one durable append is held against; the best of them counts. Large folios are left out: no log should flush so.
const WAYS: [Way; 4] = [Way::SmallFoliosMsync, Way::DirectZerosMsync, Way::PwriteFdatasync, Way::DirectDsync];
const COMMITTERS: [usize; 4] = [1, 4, 16, 64];

/// One durable append at a time. Raw and measured operations alternate one by one, and who begins changes from turn to turn, so that nobody always
/// comes behind the same one.
pub(crate) fn alone(settings: &Settings) -> Result<Report, BenchError> {
    let folder = settings.folder()?;
    let disk = RealDisk::open(folder.path()).during("opening the folder")?;
    let log = Options::new().open_or_create(&folder.path().join("log")).during("making the log")?;
    let file_bytes = settings.choose(FILE_BYTES, 4 << 20);
    let record = [0xA5; RECORD_BYTES];
    let mut contenders = Vec::new();
    for way in WAYS {
        let place = folder.path().join(format!("{way:?}"));
        std::fs::create_dir(&place)?;
        // A filesystem in memory has no O_DIRECT.
        if let Ok(mut raw) = Appender::new(way, &place, file_bytes) {
            contenders.push(Contender::new(way_name(way), move || Ok(raw.append()?)));
        }
    }
    contenders.push(Contender::new("windlass: append + commit", || {
        let appended = log.append(&record).during("appending")?;
        let _committed = log.commit_blocking(appended.end, Level::Durable).during("committing")?;
        Ok(())
    }));
    rest(&log, settings);
    for _ in 0..settings.rounds() {
        for turn in 0..settings.choose(400, 20) {
            let first = turn % contenders.len();
            let (behind, front) = contenders.split_at_mut(first);
            for contender in front.iter_mut().chain(behind) {
                contender.once(&disk)?;
            }
        }
        contenders.iter_mut().for_each(Contender::end_round);
    }
    let times: Vec<Series> = contenders.iter().map(|contender| contender.p50.clone()).collect();
    let bytes: Vec<Series> = contenders.iter().map(|contender| contender.device.clone()).collect();
    drop(contenders);
    log.close().during("closing the log")?;

    let (ours, raws) = times.split_last().expect("one of them is ours");
    let best =
        raws.iter().min_by(|a, b| a.median().total_cmp(&b.median())).expect("some way works everywhere");
    let mut report = Report::default();
    report.compare("256 B made durable, alone, p50", "µs", &times);
    report.judge("durable append alone, p50 ÷ best raw flush p50", Target::AtMost(1.1), ours.over(best));
    // Nothing is judged where the kernel tells nothing.
    if bytes.iter().all(|series| series.runs.iter().all(|run| *run > 0.0)) {
        report.compare("bytes that reach the device for each", "B", &bytes);
        let ours = bytes.last().expect("one of them is ours").runs.clone();
        report.judge("bytes that reach the device per durable 256 B append", Target::AtMost(8192.0), ours);
    }
    Ok(report)
}

/// Waits until the log has made the segments that it keeps ready: filling them with zeros is no part of an append.
fn rest(log: &Log, settings: &Settings) {
    let mut made = u64::MAX;
    while !settings.quick && made != log.metrics().segments_made {
        made = log.metrics().segments_made;
        std::thread::sleep(Duration::from_millis(700));
    }
}

/// One way to make a record durable, with what it took in this round and in the rounds before.
struct Contender<'a> {
    append: Box<dyn FnMut() -> Result<(), BenchError> + 'a>,
    p50: Series,
    device: Series,
    times: Vec<f64>,
    written_bytes: u64,
}

impl<'a> Contender<'a> {
    fn new(name: &str, append: impl FnMut() -> Result<(), BenchError> + 'a) -> Contender<'a> {
        let (p50, device) = (Series::new(name), Series::new(name));
        Contender { append: Box::new(append), p50, device, times: Vec::new(), written_bytes: 0 }
    }

    fn once(&mut self, disk: &RealDisk) -> Result<(), BenchError> {
        let before = disk.device_written_bytes();
        let start = Instant::now();
        (self.append)()?;
        self.times.push(start.elapsed().as_secs_f64() * 1e6);
        let written = disk.device_written_bytes().zip(before).map(|(after, before)| after - before);
        self.written_bytes += written.unwrap_or(0);
        Ok(())
    }

    fn end_round(&mut self) {
        self.device.push(self.written_bytes as f64 / self.times.len() as f64);
        self.p50.push(median_of(&mut self.times));
        self.times.clear();
        self.written_bytes = 0;
    }
}

/// Many at once, each waiting for its own.
pub(crate) fn committers(settings: &Settings) -> Result<Report, BenchError> {
    let folder = settings.folder()?;
    let log = Options::new().open_or_create(&folder.path().join("log")).during("making the log")?;
    let file_bytes = settings.choose(FILE_BYTES, 4 << 20);
    let plain = PlainLog::new(filled(&folder.path().join("plain"), file_bytes)?, file_bytes);
    let record = [0xA5; RECORD_BYTES];
    let put_plain = || plain.put(&record).during("the plain group commit");
    let put_ours = || put(&log, &record);
    let mut report = Report::default();
    rest(&log, settings);
    for committers in COMMITTERS {
        let name = |who: &str| format!("{who}, {committers} committers");
        let (plain_name, ours_name) = (name("pwrite + fdatasync"), name("windlass"));
        let mut rates = [Series::new(&plain_name), Series::new(&ours_name)];
        let mut p50s = [Series::new(&plain_name), Series::new(&ours_name)];
        for _ in 0..settings.rounds() {
            let outcomes = [
                drive(committers, settings.slice(), &put_plain)?,
                drive(committers, settings.slice(), &put_ours)?,
            ];
            for (at, outcome) in outcomes.into_iter().enumerate() {
                rates[at].push(outcome.rate);
                p50s[at].push(outcome.p50_us);
            }
        }
        report.compare("durable appends", "records/s", &rates);
        report.compare("durable appends, p50", "µs", &p50s);
        if committers == 16 {
            report.judge(
                "durable appends per s, 16 committers ÷ plain group commit",
                Target::AtLeast(1.5),
                rates[1].over(&rates[0]),
            );
        }
    }
    log.close().during("closing the log")?;
    Ok(report)
}

fn put(log: &Log, record: &[u8]) -> Result<(), BenchError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let appended = log.append_wait_blocking(record, deadline).during("appending")?;
    let _committed = log.commit_blocking(appended.end, Level::Durable).during("committing")?;
    Ok(())
}

/// What callers at work side by side came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driven {
    /// Calls per second, all callers together.
    pub(crate) rate: f64,
    /// The median of one call in µs.
    pub(crate) p50_us: f64,
}

/// Calls `put` again and again from `callers` threads at once.
pub(crate) fn drive(
    callers: usize,
    how_long: Duration,
    put: &(impl Fn() -> Result<(), BenchError> + Sync),
) -> Result<Driven, BenchError> {
    let (took, answers) = side_by_side(callers, |_| {
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < how_long {
            let start = Instant::now();
            put()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok::<_, BenchError>(times)
    });
    let times: Result<Vec<_>, _> = answers.into_iter().collect();
    let mut times = times?.concat();
    Ok(Driven { rate: times.len() as f64 / took.as_secs_f64(), p50_us: median_of(&mut times) })
}

/// A file whose every byte is allocated and written, in small writes so that the page cache keeps small folios.
pub(crate) fn filled(path: &std::path::Path, file_bytes: u64) -> Result<File, BenchError> {
    let mut file = File::create_new(path)?;
    for _ in 0..file_bytes / 4096 {
        file.write_all(&[0; 4096])?;
    }
    file.sync_all()?;
    Ok(file)
}
