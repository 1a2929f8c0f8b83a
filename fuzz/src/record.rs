//! Record headers and batches.
//!
//! ```text
//!  input  0      8       16     20               52
//!         | lsn  | epoch | room | a header       | a batch's payload
//! ```

use windlass_log::{
    Epoch, EpochKey, HEADER_BYTES, Lag, LogId, Lsn, RecordHeader, RecordKind, Salt, batch_items,
};

use crate::input::Input;

/// The log of all records here.
pub(crate) const LOG_ID: LogId = LogId(*b"fuzzed windlass!");

/// The header and the batch in `data`: as bytes from a disk, and as what an appender was given.
pub fn record_parser(data: &[u8]) {
    let mut input = Input::new(data);
    let lsn = Lsn(input.u64() & !7);
    let epoch = Epoch::from_bits(input.u64());
    let room = u64::from(input.u32());
    let header = input.array();
    let payload = input.rest();
    let key = Salt::new(LOG_ID).key(epoch);
    as_read(&header, lsn, room, &key);
    as_written(&header, lsn, &key);
    batch(payload, Lsn(lsn.0 & (u64::MAX >> 2)));
}

/// Whatever parses fits its room and is written again as the same bytes.
fn as_read(bytes: &[u8; 32], lsn: Lsn, room: u64, key: &EpochKey) {
    let Ok(header) = RecordHeader::decode(bytes, lsn, room, key) else { return };
    assert!(header.record_bytes() <= room, "a record beyond its room: {header:?}");
    assert_eq!((header.lsn, header.epoch), (lsn, key.epoch()));
    assert_eq!(header.encode(key), *bytes, "{header:?}");
}

/// The same bytes taken as fields: what is written is read again, and not with a byte changed, at another LSN, or under
/// another epoch.
fn as_written(fields: &[u8; 32], lsn: Lsn, key: &EpochKey) {
    let mut fields = Input::new(fields);
    let Some(kind) = RecordKind::from_number(fields.u8() % 8) else { return };
    let header = RecordHeader {
        lsn,
        epoch: key.epoch(),
        kind,
        lag: Lag(fields.u16()),
        payload_bytes: fields.u32(),
        payload_checksum: fields.u32(),
    };
    let bytes = header.encode(key);
    let room = header.record_bytes();
    assert_eq!(RecordHeader::decode(&bytes, lsn, room, key), Ok(header));
    assert!(RecordHeader::decode(&bytes, lsn, room - 1, key).is_err(), "no room, and accepted");

    let (at, change) = (usize::from(fields.u8() % 32), fields.u8().max(1));
    let mut changed = bytes;
    changed[at] ^= change;
    assert!(RecordHeader::decode(&changed, lsn, room, key).is_err(), "byte {at} changed by {change:02x}");
    let elsewhere = Lsn(lsn.0 ^ (u64::from(fields.u16()) + 1) << 3);
    assert!(RecordHeader::decode(&bytes, elsewhere, room, key).is_err(), "R-3: accepted at {elsewhere}");
    let other = key.salt().key(Epoch::from_bits(key.epoch().to_bits() ^ (u64::from(fields.u16()) + 1)));
    assert!(RecordHeader::decode(&bytes, lsn, room, &other).is_err(), "R-4: accepted in {}", other.epoch());
}

/// The items of a batch lie in its payload, in order, and end with the first error.
fn batch(payload: &[u8], start: Lsn) {
    let mut least = Lsn(start.0 + HEADER_BYTES);
    let mut failed = false;
    for item in batch_items(payload, start) {
        assert!(!failed, "an item behind an error");
        match item {
            Ok((lsn, bytes)) => {
                assert_eq!(lsn, least, "items follow one another");
                let at = usize::try_from(lsn.0 - start.0 - HEADER_BYTES).expect("inside the payload") + 8;
                assert_eq!(
                    payload.get(at..at + bytes.len()),
                    Some(bytes),
                    "the item is that part of the payload"
                );
                let end = (at + bytes.len()).next_multiple_of(8);
                assert!(end <= payload.len().next_multiple_of(8));
                least = Lsn(start.0 + HEADER_BYTES + u64::try_from(end).expect("inside the payload"));
            }
            Err(_) => failed = true,
        }
    }
}
