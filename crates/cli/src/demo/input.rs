//! Where the demo's records come from: a file that is really there, cut into records and repeated as needed.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::client::PAYLOAD_BYTES_MAX;
use crate::exit::{Failure, Status};
use crate::log::frame::{FrameError, Frames, Framing};

/// Bytes in front of each record's own: its sequence number.
pub(super) const SEQUENCE_BYTES: usize = 8;
/// The longest record of the input.
const RECORD_BYTES_MAX: u64 = (PAYLOAD_BYTES_MAX - SEQUENCE_BYTES) as u64;

/// The records, held in memory.
#[derive(Debug)]
pub(super) struct Input {
    /// Where they come from, for people.
    pub(super) name: String,
    bytes: Vec<u8>,
    /// Where each record ends in `bytes`.
    ends: Vec<usize>,
}

impl Input {
    /// Reads a file, or standard input for `-`, and cuts it.
    pub(super) fn read(file: &Path, framing: Framing) -> Result<Input, Failure> {
        if file == Path::new("-") {
            return Input::cut(String::from("standard input"), std::io::stdin().lock(), framing);
        }
        let opened = File::open(file).map_err(|error| {
            let message = format_args!(
                "the input {} can't be opened: {error}; name another with --input, or leave --input out for windlass's own sources",
                file.display()
            );
            Failure::new(Status::System, message)
        })?;
        Input::cut(file.display().to_string(), opened, framing)
    }

    /// What is read when nothing is named: windlass's own sources where they are there, else its program file.
    pub(super) fn default(payload_bytes: u64) -> Result<Input, Failure> {
        let framing = Framing::Bytes(payload_bytes);
        let sources = sources();
        if sources.is_empty() {
            let program = std::env::current_exe().map_err(|error| Failure::io("the program file", &error))?;
            return Input::read(&program, framing);
        }
        let mut all = Vec::new();
        for file in &sources {
            let opened = File::open(file).map_err(|error| Failure::io(file.display(), &error))?;
            BufReader::new(opened)
                .read_to_end(&mut all)
                .map_err(|error| Failure::io(file.display(), &error))?;
        }
        Input::cut(format!("windlass's own {} source files", sources.len()), &all[..], framing)
    }

    fn cut(name: String, from: impl Read, framing: Framing) -> Result<Input, Failure> {
        let mut frames = Frames::new(BufReader::new(from), framing, RECORD_BYTES_MAX);
        let mut input = Input { name, bytes: Vec::new(), ends: Vec::new() };
        let mut record = Vec::new();
        loop {
            match frames.next(&mut record) {
                Ok(true) => {
                    input.bytes.extend_from_slice(&record);
                    input.ends.push(input.bytes.len());
                }
                Ok(false) => break,
                Err(FrameError::Io(error)) => return Err(Failure::io(&input.name, &error)),
                Err(FrameError::TooLong { number, longest }) => {
                    let message = format_args!(
                        "record {number} of {} is longer than the demo's {longest} bytes: cut it with --frame BYTES",
                        input.name
                    );
                    return Err(Failure::new(Status::Refused, message));
                }
            }
        }
        if input.ends.is_empty() {
            let message = format_args!("{} is empty: name a file with at least one record", input.name);
            return Err(Failure::new(Status::Refused, message));
        }
        Ok(input)
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Input {
        Input::cut(String::from("test"), &b"one\n\nthree"[..], Framing::Lines).expect("three records")
    }

    /// How many records there are before they repeat.
    pub(super) fn records(&self) -> usize {
        self.ends.len()
    }

    /// Puts together the payload with this sequence number: the number (8 bytes, little-endian) and the record.
    pub(super) fn payload(&self, sequence: u64, into: &mut Vec<u8>) {
        let at = usize::try_from(sequence % self.ends.len() as u64).expect("below a length");
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        into.clear();
        into.extend_from_slice(&sequence.to_le_bytes());
        into.extend_from_slice(&self.bytes[from..self.ends[at]]);
    }
}

/// The sequence number at the front of a payload.
pub(super) fn sequence_of(payload: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(payload.get(..SEQUENCE_BYTES)?.try_into().ok()?))
}

/// The workspace's Rust files, in order; none where the command was installed without them.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !path.ends_with("target") => folders.push(path),
                Ok(kind) if kind.is_file() && path.extension().is_some_and(|end| end == "rs") => {
                    found.push(path)
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_repeat_and_carry_their_sequence_number() {
        let input = Input::for_tests();
        assert_eq!(input.records(), 3);
        let mut payload = Vec::new();
        for (sequence, want) in [(0, &b"one"[..]), (1, b""), (2, b"three"), (3, b"one"), (302, b"three")] {
            input.payload(sequence, &mut payload);
            assert_eq!(sequence_of(&payload), Some(sequence));
            assert_eq!(&payload[SEQUENCE_BYTES..], want);
        }
        assert_eq!(sequence_of(b"short"), None);
    }

    #[test]
    fn an_empty_input_and_a_record_too_long_are_refused() {
        assert!(Input::cut(String::from("test"), &b""[..], Framing::Lines).is_err());
        let long = vec![b'x'; PAYLOAD_BYTES_MAX];
        assert!(Input::cut(String::from("test"), &long[..], Framing::Lines).is_err());
        assert!(Input::cut(String::from("test"), &long[..], Framing::Bytes(4096)).is_ok());
    }

    #[test]
    fn the_default_input_is_really_there() {
        let input = Input::default(256).unwrap();
        assert!(input.records() > 100, "{} has {} records", input.name, input.records());
    }
}
