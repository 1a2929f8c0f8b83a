//! Puts as fast as they go, and what the same machine does with redb alone.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use embed_redb::Store;
use hdrhistogram::Histogram;
use redb::{Database, TableDefinition};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For how long each of both is measured
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Threads that put
    #[arg(long, default_value_t = 4)]
    writers: u64,
    /// The length of a value
    #[arg(long, default_value_t = 256)]
    value_bytes: usize,
}

/// Latencies above this are counted as this.
const LATENCY_MAX_US: u64 = 60_000_000;
const ALONE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");

pub(crate) fn run(
    store: &Store,
    folder: &Path,
    args: &Args,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let before = store.log_metrics();
    measure("embed_redb", args, out, |key, value| Ok(store.put(key, value)?))?;
    let (after, stats) = (store.log_metrics(), store.stats());
    writeln!(
        out,
        "  operations in each flush of the log {:.1}, in each transaction of the tables {:.1}; checkpoints {}",
        ratio(after.records - before.records, after.flushes - before.flushes),
        ratio(stats.operations, stats.transactions),
        stats.checkpoints
    )?;

    let file = folder.join("alone.redb");
    let alone = Database::create(&file)?;
    measure("redb alone", args, out, |key, value| {
        let transaction = alone.begin_write()?;
        transaction.open_table(ALONE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    })?;
    drop(alone);
    std::fs::remove_file(&file)?;
    Ok(())
}

/// Runs `put` on all threads and prints one line.
fn measure(
    name: &str,
    args: &Args,
    out: &mut impl Write,
    put: impl Fn(&[u8], &[u8]) -> Result<(), Box<dyn Error>> + Sync,
) -> Result<(), Box<dyn Error>> {
    let value = vec![b'v'; args.value_bytes];
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(args.seconds);
    let mut all = Histogram::<u64>::new_with_max(LATENCY_MAX_US, 3)?;
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let threads: Vec<_> = (0..args.writers)
            .map(|writer| {
                scope.spawn({
                    let (put, value) = (&put, &value);
                    move || one_writer(writer, until, value, put).map_err(|error| error.to_string())
                })
            })
            .collect();
        for thread in threads {
            all.add(thread.join().map_err(|_| "a writer panicked")??)?;
        }
        Ok(())
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    writeln!(
        out,
        "{name}: {:.0} puts/s, p50 {} µs, p99 {} µs ({} writers, {} B)",
        ratio(all.len(), 1) / seconds,
        all.value_at_quantile(0.5),
        all.value_at_quantile(0.99),
        args.writers,
        args.value_bytes
    )?;
    Ok(())
}

fn one_writer(
    writer: u64,
    until: Instant,
    value: &[u8],
    put: impl Fn(&[u8], &[u8]) -> Result<(), Box<dyn Error>>,
) -> Result<Histogram<u64>, Box<dyn Error>> {
    let mut latencies = Histogram::new_with_max(LATENCY_MAX_US, 3)?;
    let mut number = writer;
    loop {
        let begun = Instant::now();
        if begun >= until {
            return Ok(latencies);
        }
        // Keys spread over the tables, and come again after a while.
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
        put(&key.to_be_bytes(), value)?;
        let spent = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        latencies.saturating_record(spent);
        number = number.wrapping_add(256);
    }
}

#[expect(clippy::cast_precision_loss, reason = "printed with one digit")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
