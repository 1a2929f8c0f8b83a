//! The README's program, as it stands there, compiled and run: with an executor of a few lines, because any will do.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

// README: from here
use std::error::Error;
use std::path::Path;

use windlass::{Level, Lsn, Options, ReadError};

/// The application's part: its tables.
trait Tables {
    /// Applies one record that ends at `end`.
    fn apply(&mut self, payload: &[u8], end: Lsn);
    /// Makes them durable, and says up to which LSN they hold the log.
    fn checkpoint(&mut self) -> Lsn;
}

async fn run(folder: &Path, tables: &mut impl Tables) -> Result<(), Box<dyn Error>> {
    let log = Options::new().open_or_create(folder)?;

    // At start: replay.
    let mut reader = log.read_from(log.info().trimmed)?;
    loop {
        match reader.next() {
            Ok(record) => tables.apply(record.payload, record.end),
            Err(ReadError::AtEnd { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }

    // No lock, no system call, no allocation.
    let appended = log.append(b"put k v")?;
    // Or commit_blocking: then this thread leads the flush.
    let _proof = log.commit(appended.end, Level::Durable).await?;
    tables.apply(b"put k v", appended.end);

    // Whole segments below are reused.
    log.trim(tables.checkpoint())?;
    log.close()?;
    Ok(())
}
// README: to here

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Tables that are never behind, and checkpoint only what they are told to.
#[derive(Default)]
struct List {
    applied: Vec<Vec<u8>>,
    durable: Lsn,
}

impl Tables for List {
    fn apply(&mut self, payload: &[u8], _end: Lsn) {
        self.applied.push(payload.to_vec());
    }

    fn checkpoint(&mut self) -> Lsn {
        self.durable
    }
}

#[test]
fn the_readmes_programs_are_the_one_above_and_the_first_example() {
    let source = include_str!("readme.rs");
    let here =
        source.split("// README: from here\n").nth(1).unwrap().split("// README: to here").next().unwrap();
    let readme = include_str!("../../../README.md");
    let program = |number| readme.split("```rust\n").nth(number).unwrap().split("```").next().unwrap();
    assert_eq!(program(2), here);
    // The first is an example, which is compiled beside this.
    let first = include_str!("../examples/first.rs").split_once("\n\n").unwrap().1;
    assert_eq!(program(1), first);
}

#[test]
fn the_readmes_program_replays_what_it_committed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path().join("log");
    let mut applied = Vec::new();
    for round in 1..=2 {
        let mut tables = List { durable: Lsn(4096), ..List::default() };
        block_on(run(&folder, &mut tables)).unwrap();
        assert_eq!(tables.applied.len(), round, "the records before, and one more");
        applied = tables.applied;
    }
    assert!(applied.iter().all(|payload| payload == b"put k v"));
}
