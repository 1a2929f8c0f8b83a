//! Messages of the control plane, and the slots that are written across the fabric.

use windlass_engine::{Acknowledgement, Heartbeat, Message, Notice};

/// `data` as a message, and as each of the slots with its checksum mended.
pub fn control_messages(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data, "one message, one encoding: {message:?}");
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
