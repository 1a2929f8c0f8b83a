//! A batch: several items in the payload of one record, so that one reservation and one checksum hold them all and they
//! stand or fall together (failure kind 8).
//!
//! ```text
//!  payload  0       4       8                     8-aligned
//!           |bytes  |number | item ... zeros      |bytes  |number | item ...
//!           '------- frame of item 0 -------------'------- frame of item 1 ...
//! ```
//!
//! An item's LSN is where its frame starts. The payload ends with the last frame. DESIGN.md section 2.3.

use crate::bytes::{index, length, u32_at};
use crate::{HEADER_BYTES, Lsn, RECORD_ALIGN};

/// Bytes in front of each item.
pub(crate) const FRAME: usize = 8;

/// The bytes of the frame of an item of this length; `None` if no batch can hold it.
#[must_use]
pub fn frame_bytes(item_bytes: usize) -> Option<u64> {
    let item = u64::from(u32::try_from(item_bytes).ok()?);
    Some((length(FRAME) + item).next_multiple_of(RECORD_ALIGN))
}

/// What stands in front of an item: its length, its number in the batch.
///
/// # Panics
///
/// If the item is longer than any record.
pub(crate) fn frame(item_bytes: usize, number: u32) -> [u8; FRAME] {
    let item_bytes = u32::try_from(item_bytes).expect("an item is shorter than a record");
    let [a, b, c, d] = item_bytes.to_le_bytes();
    let [e, f, g, h] = number.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Why a batch's payload, whole by its checksum, can't be taken apart: it was not written by this library.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// A frame reaches beyond the payload.
    #[error("the batch item at LSN {lsn} claims {item_bytes} bytes, the batch has {left} left")]
    Length {
        /// Where the frame starts.
        lsn: Lsn,
        /// What the frame says.
        item_bytes: u32,
        /// Bytes left behind the frame's header.
        left: u64,
    },
    /// Fewer bytes than a frame's header, or items out of order.
    #[error("no batch item {number} starts at LSN {lsn}")]
    Frame {
        /// Where it should start.
        lsn: Lsn,
        /// The item's number in its batch, from 0.
        number: u32,
    },
}

/// The items of a batch, in order.
#[derive(Clone, Debug)]
pub struct BatchItems<'a> {
    payload: &'a [u8],
    start: Lsn,
    at: usize,
    number: u32,
}

/// Takes apart the payload of the batch record that starts at `start`.
///
/// Yields each item with its LSN; after the first error nothing more.
#[must_use]
pub fn batch_items(payload: &[u8], start: Lsn) -> BatchItems<'_> {
    BatchItems { payload, start, at: 0, number: 0 }
}

impl<'a> Iterator for BatchItems<'a> {
    type Item = Result<(Lsn, &'a [u8]), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.payload.len() {
            return None;
        }
        let item = self.frame();
        if item.is_err() {
            self.at = self.payload.len();
        }
        Some(item)
    }
}

impl<'a> BatchItems<'a> {
    fn frame(&mut self) -> Result<(Lsn, &'a [u8]), BatchError> {
        let lsn = Lsn(self.start.0.wrapping_add(HEADER_BYTES).wrapping_add(length(self.at)));
        let number = self.number;
        let rest = &self.payload[self.at..];
        let (Some(item_bytes), Some(found)) = (u32_at(rest, 0), u32_at(rest, 4)) else {
            return Err(BatchError::Frame { lsn, number });
        };
        if found != number {
            return Err(BatchError::Frame { lsn, number });
        }
        let body = &rest[FRAME..];
        let too_long = BatchError::Length { lsn, item_bytes, left: length(body.len()) };
        let wanted = usize::try_from(item_bytes).map_err(|_| too_long)?;
        let item = body.get(..wanted).ok_or(too_long)?;
        let frame = frame_bytes(wanted).ok_or(too_long)?;
        if frame > length(rest.len()) {
            return Err(too_long);
        }
        self.at += index(frame);
        self.number = number.wrapping_add(1);
        Ok((lsn, item))
    }
}
