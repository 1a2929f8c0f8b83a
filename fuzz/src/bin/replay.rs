//! Gives inputs to a target without a fuzzer: `cargo run --manifest-path fuzz/Cargo.toml --bin replay -- TARGET FILE_OR_FOLDER ...`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_fuzz::plant();
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_default();
    let Some((_, target)) = windlass_fuzz::TARGETS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = windlass_fuzz::TARGETS.iter().map(|(known, _)| *known).collect();
        eprintln!("replay TARGET FILE_OR_FOLDER ...: the targets are {}", known.join(", "));
        return ExitCode::from(64);
    };
    let mut count = 0_u64;
    for path in words {
        match inputs(Path::new(&path)) {
            Ok(files) => {
                for file in files {
                    let Ok(data) = std::fs::read(&file) else {
                        eprintln!("{}: it can't be read", file.display());
                        return ExitCode::FAILURE;
                    };
                    target(&data);
                    count += 1;
                }
            }
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{name} took {count} inputs");
    ExitCode::SUCCESS
}

fn inputs(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(path)?.flatten().map(|entry| entry.path()).collect();
    files.sort_unstable();
    Ok(files)
}
