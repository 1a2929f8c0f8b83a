//! What a log's reader yields.

use windlass::{ReadError, Reader};

/// The payloads of everything from where the reader stands up to its end.
pub(crate) fn rest(mut reader: Reader) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    loop {
        match reader.next() {
            Ok(record) => payloads.push(record.payload.to_vec()),
            Err(ReadError::AtEnd { .. }) => return payloads,
            Err(error) => panic!("{error}"),
        }
    }
}
