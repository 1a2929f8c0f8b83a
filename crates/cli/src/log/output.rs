//! Standard output: buffered, flushed before the command waits or ends, a closed pipe ends the command quietly.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::exit::{Failure, Status};

/// Where a record lies.
#[derive(Serialize)]
struct Range {
    start: u64,
    end: u64,
}

/// Standard output.
pub(crate) struct Output {
    writer: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { writer: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(|error| failure(&error))
    }

    pub(crate) fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        writeln!(self.writer, "{line}").map_err(|error| failure(&error))
    }

    /// One JSON object on a line of its own.
    pub(crate) fn json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.writer, object).map_err(|error| failure(&error.into()))?;
        self.bytes(b"\n")
    }

    /// Where a record lies: `START END`, or an object.
    pub(crate) fn range(&mut self, start: u64, end: u64, json: bool) -> Result<(), Failure> {
        if json { self.json(&Range { start, end }) } else { self.line(format_args!("{start} {end}")) }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| failure(&error))
    }
}

/// A line that stands by itself, written at once.
///
/// # Errors
///
/// As for all of standard output: quiet where nobody reads it any more.
pub(crate) fn say(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut output = Output::new();
    output.line(line)?;
    output.flush()
}

fn failure(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::new(Status::Pipe, "");
    }
    Failure::io("writing standard output", error)
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8], into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    into.clear();
    for byte in bytes {
        into.push(char::from(DIGITS[usize::from(byte >> 4)]));
        into.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn hexadecimal_is_two_digits_a_byte() {
        let mut text = "old".to_owned();
        super::hex(&[0, 0x0f, 0xa0, 0xff], &mut text);
        assert_eq!(text, "000fa0ff");
    }
}
