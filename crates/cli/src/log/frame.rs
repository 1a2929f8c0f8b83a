//! Cutting an input stream into records: a line each, or a fixed number of bytes each.

use std::io::{self, BufRead, Read as _};

/// How the input is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// A record a line, without its newline; a last line without one counts too.
    Lines,
    /// A record every so many bytes; the last may be shorter.
    Bytes(u64),
}

/// Why the next record could not be cut.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// A record is longer than the log takes.
    TooLong {
        /// Its number in the input, from 1.
        number: u64,
        /// The longest payload the log takes.
        longest: u64,
    },
    Io(io::Error),
}

/// Records of an input stream, read with bounded memory: never more than the longest record.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    input: R,
    framing: Framing,
    longest: u64,
    number: u64,
}

impl<R: BufRead> Frames<R> {
    pub(crate) fn new(input: R, framing: Framing, longest: u64) -> Frames<R> {
        Frames { input, framing, longest, number: 0 }
    }

    /// Reads the next record into `record`. `false` at the end of the input.
    pub(crate) fn next(&mut self, record: &mut Vec<u8>) -> Result<bool, FrameError> {
        record.clear();
        self.number += 1;
        let too_long = FrameError::TooLong { number: self.number, longest: self.longest };
        match self.framing {
            Framing::Lines => {
                // One more for the newline, one more to see that it is too long.
                let read = (&mut self.input).take(self.longest.saturating_add(1)).read_until(b'\n', record);
                if read.map_err(FrameError::Io)? == 0 {
                    return Ok(false);
                }
                if record.last() == Some(&b'\n') {
                    record.pop();
                } else if record.len() as u64 > self.longest {
                    return Err(too_long);
                }
            }
            Framing::Bytes(bytes) => {
                if bytes > self.longest {
                    return Err(too_long);
                }
                let read = (&mut self.input).take(bytes).read_to_end(record).map_err(FrameError::Io)?;
                if read == 0 {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether the next record may be had without waiting for more input.
    pub(crate) fn has_more_buffered(&mut self, buffered: impl Fn(&R) -> &[u8]) -> bool {
        let buffer = buffered(&self.input);
        match self.framing {
            Framing::Lines => buffer.contains(&b'\n'),
            Framing::Bytes(bytes) => buffer.len() as u64 >= bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8], framing: Framing, longest: u64) -> Result<Vec<Vec<u8>>, u64> {
        let mut frames = Frames::new(input, framing, longest);
        let (mut records, mut record) = (Vec::new(), Vec::new());
        loop {
            match frames.next(&mut record) {
                Ok(true) => records.push(record.clone()),
                Ok(false) => return Ok(records),
                Err(FrameError::TooLong { number, .. }) => return Err(number),
                Err(FrameError::Io(error)) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn lines_keep_every_byte_but_the_newline() {
        let want: Vec<Vec<u8>> = vec![b"a".to_vec(), vec![], b"\r".to_vec(), vec![0, 255], b"last".to_vec()];
        assert_eq!(all(b"a\n\n\r\n\x00\xff\nlast", Framing::Lines, 100), Ok(want));
        assert_eq!(all(b"", Framing::Lines, 100), Ok(vec![]));
    }

    #[test]
    fn a_line_as_long_as_the_longest_passes_and_one_byte_more_does_not() {
        assert_eq!(all(b"12345\n12345", Framing::Lines, 5), Ok(vec![b"12345".to_vec(), b"12345".to_vec()]));
        assert_eq!(all(b"123\n123456\n", Framing::Lines, 5), Err(2));
        assert_eq!(all(b"123456", Framing::Lines, 5), Err(1));
    }

    #[test]
    fn a_longest_record_that_no_input_has_passes_over_none() {
        for longest in [u64::MAX - 1, u64::MAX] {
            assert_eq!(all(b"a\nb", Framing::Lines, longest), Ok(vec![b"a".to_vec(), b"b".to_vec()]));
            assert_eq!(all(b"ab", Framing::Bytes(longest), longest), Ok(vec![b"ab".to_vec()]));
        }
    }

    #[test]
    fn frames_are_cut_by_length_and_the_last_may_be_short() {
        let want = vec![b"ab".to_vec(), b"\n\n".to_vec(), b"c".to_vec()];
        assert_eq!(all(b"ab\n\nc", Framing::Bytes(2), 10), Ok(want));
        assert_eq!(all(b"ab", Framing::Bytes(11), 10), Err(1));
    }
}
