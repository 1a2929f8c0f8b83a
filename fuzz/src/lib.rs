//! What the fuzz targets do with their input, and the seeds they start from.
//!
//! Each target takes any bytes at all. It must not panic, and it asserts more than that: what parses is written again as the
//! same bytes, and a changed byte is found out. Checksums would keep a fuzzer out of everything behind them, so each target
//! also takes its input as what a writer was given, or mends the checksum of a damaged original.
//!
//! Everything here is plain functions, so that seeds and found inputs are replayed by `cargo test` with no fuzzer at all.
#![forbid(unsafe_code)]

mod control;
mod folder;
mod input;
mod peers;
mod record;
mod scan;
mod scenario;
pub mod seeds;
mod superblock;
mod tcp;
mod whole;

pub use control::control_messages;
pub use folder::folder;
pub use peers::engine_peers;
pub use record::record_parser;
pub use scan::segment_scan;
pub use superblock::superblock;
pub use tcp::tcp_frames;
pub use whole::engine_world;

/// In a build with `--cfg planted`: takes away the rule that `WINDLASS_PLANTED` names, to see that a target notices (DESIGN.md section 9.9). Elsewhere nothing.
///
/// # Panics
///
/// If there is no such rule.
pub fn plant() {
    #[cfg(planted)]
    if let Ok(name) = std::env::var("WINDLASS_PLANTED") {
        use windlass_log::planted::{Bug, plant};
        let found = Bug::ALL.iter().find(|bug| bug.name() == name);
        plant(*found.unwrap_or_else(|| panic!("no planted bug is called {name}")));
    }
}

/// A target's name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target: `fuzz_targets/NAME.rs` runs it, `seeds/NAME/` holds its seeds, `corpus/NAME/` what runs have added to them in small, and `regressions/NAME/`
/// what it once failed on.
pub const TARGETS: &[Target] = &[
    ("record_parser", record_parser),
    ("superblock", superblock),
    ("control_messages", control_messages),
    ("tcp_frames", tcp_frames),
    ("segment_scan", segment_scan),
    ("folder", folder),
    ("engine_peers", engine_peers),
    ("engine_world", engine_world),
];
