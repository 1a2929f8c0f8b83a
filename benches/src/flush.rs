//! What a flush costs on this medium, by the system calls alone: the floor under every durable append.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

use rustix::fs::OFlags;

use crate::Settings;
use crate::measure::{Comparison, Contender, compare, median_of};

/// Bytes of a record.
const RECORD_BYTES: usize = 256;
/// Flushes of one run.
const FLUSHES: usize = 400;
/// Bytes of the file, all of them written before.
const FILE_BYTES: usize = 4 << 20;

/// The median time to make one record durable, in µs, by `pwrite` and `fdatasync` and by `pwrite` alone into a file
/// opened with `O_DSYNC`.
///
/// # Errors
///
/// The first error of the medium.
pub(crate) fn raw(settings: &Settings) -> io::Result<Comparison> {
    let folder = tempfile::tempdir_in(&settings.dir)?;
    let plain = filled(&folder.path().join("plain"), OFlags::empty())?;
    let synchronous = filled(&folder.path().join("synchronous"), OFlags::DSYNC)?;
    let by_flush = Contender {
        name: "pwrite + fdatasync".into(),
        run: Box::new(|| {
            one_run(|at| {
                plain.write_all_at(&[0xA5; RECORD_BYTES], at)?;
                plain.sync_data()
            })
        }),
    };
    let by_write = Contender {
        name: "pwrite, O_DSYNC".into(),
        run: Box::new(|| one_run(|at| synchronous.write_all_at(&[0xA5; RECORD_BYTES], at))),
    };
    compare("µs", vec![by_flush, by_write])
}

/// A file whose every byte is allocated and written, in small writes so that the page cache keeps small folios.
fn filled(path: &std::path::Path, flags: OFlags) -> io::Result<File> {
    let mut file = File::create_new(path)?;
    for _ in 0..FILE_BYTES / 4096 {
        file.write_all(&[0; 4096])?;
    }
    file.sync_all()?;
    let flags = i32::try_from(flags.bits()).expect("the flags of open(2) are of this size");
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

fn one_run(mut flush: impl FnMut(u64) -> io::Result<()>) -> io::Result<f64> {
    let mut times = Vec::with_capacity(FLUSHES);
    for number in 0..FLUSHES {
        let at = number * RECORD_BYTES % FILE_BYTES;
        let start = Instant::now();
        flush(u64::try_from(at).expect("a file of 4 MiB"))?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median_of(&mut times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let comparison = raw(&Settings { dir: folder.path().to_path_buf() }).unwrap();
        assert_eq!(comparison.figures.len(), 2);
        assert!(comparison.figures.iter().all(|figure| figure.median() > 0.0));
    }
}
