//! What a driver sends comes back from its bytes (DESIGN.md section 9.2).

use windlass::control::Frame;

use super::{Invariant, Violation};

/// What a member has sent, as whoever it was sent to reads it.
pub(crate) fn sent(from: u8, frame: &Frame) -> Result<Frame, Violation> {
    let bytes = frame.encode();
    Frame::decode(&bytes[4..]).map_err(|error| {
        let what = format!("member {from} sends a frame that can't be read: {error}");
        Violation { invariant: Invariant::Frames, what }
    })
}
