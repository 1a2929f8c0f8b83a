//! The README's first program: a log and one durable record.

use std::path::Path;

use windlass::{Level, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log = Options::new().open_or_create(Path::new("my-log"))?;
    let appended = log.append(b"put k v")?;
    // From here on the record survives a loss of power.
    let _proof = log.commit_blocking(appended.end, Level::Local)?;
    println!("LSN {} to {}", appended.start, appended.end);
    log.close()?;
    Ok(())
}
