//! Messages of the control plane, the frames they travel in, and the slots that are written across the fabric.

use windlass::control::{ENDPOINT_BYTES_MAX, Frame, KEYS_MAX, MEMBERS_MAX};
use windlass_engine::{Acknowledgement, Heartbeat, Message, Notice};

/// `data` as a message, as a frame, and as each of the slots with its checksum mended.
pub fn control_messages(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data, "one message, one encoding: {message:?}");
    }
    if let Ok(frame) = Frame::decode(data) {
        let bytes = frame.encode();
        assert_eq!(Frame::decode(&bytes[4..]).as_ref(), Ok(&frame));
        assert_eq!(bytes.len() - 4, data.len(), "{frame:?}");
        match &frame {
            Frame::Offer { endpoint, .. } | Frame::Accept { endpoint, .. } => {
                assert!(endpoint.len() <= ENDPOINT_BYTES_MAX);
            }
            Frame::Keys { segments, .. } => assert!(segments.len() <= KEYS_MAX),
            Frame::Members { members, .. } => assert!(members.len() <= MEMBERS_MAX),
            Frame::Ping
            | Frame::Engine(_)
            | Frame::AcknowledgeKey { .. }
            | Frame::Broken { .. }
            | Frame::Excluded(_) => {}
        }
    }
    if let Ok(notice) = Notice::decode(&slot(data)) {
        assert_eq!(Notice::decode(&notice.encode()), Ok(notice));
    }
    if let Ok(heartbeat) = Heartbeat::decode(&slot(data)) {
        assert_eq!(Heartbeat::decode(&heartbeat.encode()), Ok(heartbeat));
    }
    if let Ok(acknowledgement) = Acknowledgement::decode(&slot(data)) {
        assert_eq!(Acknowledgement::decode(&acknowledgement.encode()), Ok(acknowledgement));
    }
}

/// The start of `data` with zeros behind it, and the checksum of a slot of this length.
fn slot<const BYTES: usize>(data: &[u8]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let there = data.len().min(BYTES - 4);
    bytes[..there].copy_from_slice(&data[..there]);
    let checksum = crc32fast::hash(&bytes[..BYTES - 4]);
    bytes[BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}
