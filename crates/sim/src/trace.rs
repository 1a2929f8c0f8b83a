//! What happened, in lines: a running hash of all of it always, the lines themselves where somebody reads them.

use std::fmt::{self, Write as _};

/// The lines of a run. See the module.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: u64,
    kept: Option<Vec<String>>,
    buffer: String,
}

impl Trace {
    pub(crate) fn new(keeps: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: 0, kept: keeps.then(Vec::new), buffer: String::new() }
    }

    /// One line.
    pub(crate) fn say(&mut self, now: u64, line: fmt::Arguments<'_>) {
        self.buffer.clear();
        // Writing into a string does not fail.
        let _ = write!(self.buffer, "{:>10}.{:03} {line}", now / 1_000_000, now / 1_000 % 1_000);
        self.lines += 1;
        let mut hash = self.hash;
        for byte in self.buffer.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        self.hash = hash;
        if let Some(kept) = &mut self.kept {
            kept.push(self.buffer.clone());
        }
    }

    /// Whether somebody reads the lines.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// A line that is shown and belongs to nothing: what a member's own log says.
    pub(crate) fn aside(&mut self, now: u64, line: fmt::Arguments<'_>) {
        if let Some(kept) = &mut self.kept {
            kept.push(format!("{:>10}.{:03}     {line}", now / 1_000_000, now / 1_000 % 1_000));
        }
    }

    /// Something too frequent for a line changes the hash alone.
    pub(crate) fn note(&mut self, now: u64, what: u64) {
        self.hash = (self.hash ^ now).wrapping_mul(0x100_0000_01b3);
        self.hash = (self.hash ^ what).wrapping_mul(0x100_0000_01b3);
    }

    /// All of it as one number, and how many lines there were.
    pub(crate) fn digest(&self) -> (u64, u64) {
        (self.hash, self.lines)
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        self.kept.take().unwrap_or_default()
    }
}
