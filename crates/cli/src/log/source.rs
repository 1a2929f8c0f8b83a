//! What both `append` commands take: where records come from, how they are cut, and whether each is told of.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use super::frame::{FrameError, Frames, Framing};
use crate::exit::{Failure, Status};

/// How much input is read at once.
const INPUT_BYTES: usize = 256 << 10;

/// An input, opened.
pub(crate) type Input = BufReader<Box<dyn Read>>;

/// Where records come from.
#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// Where the records come from; `-` is standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// A record every BYTES bytes instead of a record a line
    #[arg(long, value_name = "BYTES", value_parser = super::at_least_one, allow_negative_numbers = true)]
    frame: Option<u64>,
    /// Print nothing for each record
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl Source {
    /// Opens the file, or takes standard input.
    pub(crate) fn open(&self) -> Result<Input, Failure> {
        let input: Box<dyn Read> = if self.file == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(&self.file).map_err(|error| self.not_opened(&error))?)
        };
        Ok(BufReader::with_capacity(INPUT_BYTES, input))
    }

    /// Why the file is not opened: where it is not there, the command line is wrong.
    fn not_opened(&self, error: &io::Error) -> Failure {
        let file = self.file.display();
        if error.kind() != io::ErrorKind::NotFound {
            return Failure::io(format_args!("opening {file}"), error);
        }
        Failure::new(
            Status::Usage,
            format_args!(
                "there is no file {file}: name the file with the records (`--file`), or `-` for standard input"
            ),
        )
    }

    /// The records of the input; none may be longer than `longest` bytes.
    pub(crate) fn frames(&self, input: Input, longest: u64) -> Frames<Input> {
        Frames::new(input, self.frame.map_or(Framing::Lines, Framing::Bytes), longest)
    }

    /// Reads the next record into `record`; `false` at the end. One that is too long is refused with the `remedy`.
    pub(crate) fn next(
        &self,
        frames: &mut Frames<Input>,
        record: &mut Vec<u8>,
        remedy: &str,
    ) -> Result<bool, Failure> {
        frames.next(record).map_err(|error| match error {
            FrameError::TooLong { number, longest } => {
                let what = format_args!(
                    "record {number} of the input is longer than the {longest} bytes that are taken: {remedy}"
                );
                Failure::new(Status::Refused, what)
            }
            FrameError::Io(error) => Failure::io(format_args!("reading {}", self.file.display()), &error),
        })
    }
}
