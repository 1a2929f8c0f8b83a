//! The small formats: every changed byte is seen, and each refusal says what it is.

use std::collections::HashSet;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use crate::testing::{GENESIS, LOG, S, epoch};
use crate::{
    BatchError, EpochHistory, EpochKey, HeaderError, Lag, LogId, Lsn, MemberId, NoSuperblock, RecordHeader,
    RecordKind, Salt, SegmentHeader, SegmentHeaderError, Superblock, SuperblockEncodeError, SuperblockError,
    batch_items, newest,
};

fn superblock() -> Superblock {
    let mut history = EpochHistory::new();
    history.extend(epoch(1), GENESIS).unwrap();
    history.extend(epoch(3), Lsn(8000)).unwrap();
    Superblock {
        generation: 7,
        log_id: LOG,
        member: MemberId(1),
        incarnation: 11,
        place: 12,
        boot_id: [4; 16],
        promised: epoch(3),
        history,
        trimmed: GENESIS,
        persisted: Lsn(9000),
        clean: None,
        acknowledged: Lsn(9000),
        caught_up: false,
        segment_bytes: S,
        features: 0,
        configuration: vec![1, 2, 3],
    }
}

#[test]
fn kind_11_every_changed_byte_of_a_superblock_is_seen() {
    let whole = superblock().encode().unwrap();
    assert_eq!(Superblock::decode(&whole).unwrap(), superblock());
    let mut longer = whole.clone();
    longer.resize(whole.len() + 4096, 0xee);
    assert_eq!(Superblock::decode(&longer).unwrap(), superblock());
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x04;
        Superblock::decode(&changed).unwrap_err();
    }
    for bytes in [0, 1, 100, 152, 4095] {
        Superblock::decode(&whole[..bytes]).unwrap_err();
    }
    assert_eq!(Superblock::decode(&[]), Err(SuperblockError::Blank));
    assert_eq!(Superblock::decode(&[0; 8192]), Err(SuperblockError::Blank));
}

#[test]
fn the_copy_with_the_higher_generation_counts() {
    let older = superblock();
    let newer = Superblock { generation: 8, clean: Some(Lsn(9000)), ..superblock() };
    assert_eq!(newest(Ok(older.clone()), Ok(newer.clone())).unwrap(), newer);
    assert_eq!(newest(Ok(newer.clone()), Ok(older.clone())).unwrap(), newer);
    let torn = SuperblockError::Checksum { expected: 1, found: 2 };
    assert_eq!(newest(Ok(older.clone()), Err(torn)).unwrap(), older);
    assert_eq!(newest(Err(SuperblockError::Blank), Ok(older.clone())).unwrap(), older);
    let both = NoSuperblock::Both { first: SuperblockError::Blank, second: torn };
    assert_eq!(newest(Err(SuperblockError::Blank), Err(torn)), Err(both));
    assert!(both.to_string().contains("both copies"));
    let stranger = Superblock { log_id: LogId([1; 16]), ..superblock() };
    assert!(matches!(newest(Ok(older.clone()), Ok(stranger)), Err(NoSuperblock::Strangers { .. })));
    let foreign = SuperblockError::Version { found: 2 };
    assert_eq!(newest(Ok(older), Err(foreign)), Err(NoSuperblock::Foreign { foreign }));
    assert_eq!(newest(Err(foreign), Err(torn)), Err(NoSuperblock::Foreign { foreign }));
}

/// The superblock with some bytes replaced and its checksum made right again.
fn forged(at: usize, bytes: &[u8]) -> Result<Superblock, SuperblockError> {
    let mut whole = superblock().encode().unwrap();
    whole[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = crc32fast::hash(&whole[12..]);
    whole[8..12].copy_from_slice(&checksum.to_le_bytes());
    Superblock::decode(&whole)
}

#[test]
fn kind_80_and_81_another_version_or_byte_order_is_refused_as_such() {
    assert_eq!(forged(12, &9_u32.to_le_bytes()), Err(SuperblockError::Version { found: 9 }));
    assert_eq!(forged(136, &[4]), Err(SuperblockError::Features { unknown: 4 }));
    assert_eq!(forged(16, &0x0102_0304_0506_0708_u64.to_be_bytes()), Err(SuperblockError::ByteOrder));
}

#[test]
fn r5_a_promise_below_the_logs_own_epochs_is_neither_written_nor_read() {
    let below = epoch(2).to_bits().to_le_bytes();
    assert_eq!(forged(88, &below), Err(SuperblockError::Field { field: "promised epoch" }));
    assert_eq!(superblock().promise_gap(), None);
    let gap = Superblock { promised: epoch(2), ..superblock() };
    assert_eq!(gap.promise_gap(), Some(epoch(3)));
    assert_eq!(gap.encode(), Err(SuperblockEncodeError::Field { field: "promised epoch" }));
}

#[test]
fn nothing_is_encoded_that_could_not_be_read_back() {
    let refused = |superblock: Superblock, field| {
        assert_eq!(superblock.encode(), Err(SuperblockEncodeError::Field { field }));
    };
    refused(Superblock { acknowledged: Lsn(0), ..superblock() }, "acknowledged mark");
    refused(Superblock { persisted: Lsn(9001), ..superblock() }, "persisted mark");
    refused(Superblock { clean: Some(Lsn(S)), ..superblock() }, "clean mark");
    refused(Superblock { trimmed: Lsn(u64::MAX - 7), ..superblock() }, "trimmed LSN");
    refused(Superblock { segment_bytes: 1, ..superblock() }, "segment size");
    refused(Superblock { features: 1, ..superblock() }, "features");
    let mut history = EpochHistory::new();
    history.extend(epoch(1), Lsn(9001)).unwrap();
    refused(Superblock { history, ..superblock() }, "epoch history");
}

#[test]
fn fields_that_make_no_sense_are_refused_whatever_the_checksum() {
    let field = |field| Err(SuperblockError::Field { field });
    assert_eq!(forged(104, &u64::MAX.to_le_bytes()), field("persisted mark"));
    assert_eq!(forged(112, &9001_u64.to_le_bytes()), field("clean mark"));
    assert_eq!(forged(96, &8_u64.to_le_bytes()), field("trimmed LSN"));
    assert_eq!(forged(128, &3_u64.to_le_bytes()), field("segment size"));
    assert_eq!(forged(144, &u32::MAX.to_le_bytes()), field("history length"));
    assert_eq!(forged(144, &2000_u32.to_le_bytes()), field("history length"));
    assert_eq!(forged(148, &u32::MAX.to_le_bytes()), field("configuration length"));
    assert_eq!(forged(148, &16_000_u32.to_le_bytes()), field("configuration length"));
    assert_eq!(forged(29, &[2]), field("flags"));
    assert!(matches!(forged(152, &[0; 8]), Err(SuperblockError::History(_))));
    assert!(matches!(forged(24, &4095_u32.to_le_bytes()), Err(SuperblockError::Length { .. })));
    assert!(matches!(forged(24, &u32::MAX.to_le_bytes()), Err(SuperblockError::Length { .. })));
}

#[test]
fn the_largest_superblock_fits_and_a_larger_configuration_does_not() {
    let mut history = EpochHistory::new();
    for n in 0..u64::try_from(crate::HISTORY_ENTRIES_MAX).unwrap() {
        history.extend(epoch(n + 1), Lsn(4096 + n * 64)).unwrap();
    }
    let promised = history.last().unwrap().epoch;
    let largest = Superblock {
        history,
        promised,
        configuration: vec![9; crate::CONFIGURATION_BYTES_MAX],
        segment_bytes: 4 << 30,
        ..superblock()
    };
    let bytes = largest.encode().unwrap();
    assert!(u64::try_from(bytes.len()).unwrap() <= crate::SUPERBLOCK_BYTES_MAX);
    assert_eq!(Superblock::decode(&bytes).unwrap(), largest);
    let configuration = vec![9; crate::CONFIGURATION_BYTES_MAX + 1];
    let bytes = configuration.len();
    let refused = Superblock { configuration, ..superblock() }.encode();
    assert_eq!(refused, Err(SuperblockEncodeError::Configuration { bytes }));
}

#[test]
fn every_changed_byte_of_a_segment_header_is_seen() {
    let header = SegmentHeader { log_id: LOG, base: Lsn(S), segment_bytes: S, features: 0 };
    let whole = header.encode();
    assert_eq!(SegmentHeader::decode(&whole), Ok(header));
    for at in 0..whole.len() {
        let mut changed = whole;
        changed[at] ^= 0x80;
        SegmentHeader::decode(&changed).unwrap_err();
    }
    assert_eq!(SegmentHeader::decode(&whole[..63]), Err(SegmentHeaderError::Short { bytes: 63 }));
    assert_eq!(SegmentHeader::decode(&[0; 64]), Err(SegmentHeaderError::Blank));
    let forged = |at: usize, bytes: &[u8]| {
        let mut bytes_of_header = whole;
        bytes_of_header[at..at + bytes.len()].copy_from_slice(bytes);
        let checksum = crc32fast::hash(&bytes_of_header[12..]);
        bytes_of_header[8..12].copy_from_slice(&checksum.to_le_bytes());
        SegmentHeader::decode(&bytes_of_header)
    };
    assert_eq!(forged(12, &[2]), Err(SegmentHeaderError::Version { found: 2 }));
    assert_eq!(forged(16, &[1, 2, 3, 4, 5, 6, 7, 8]), Err(SegmentHeaderError::ByteOrder));
    assert_eq!(forged(56, &[1]), Err(SegmentHeaderError::Features { unknown: 1 }));
}

#[test]
fn kind_8_and_9_frames_that_lie_end_a_batch_with_an_error() {
    fn read(payload: &[u8]) -> Vec<Result<(Lsn, &[u8]), BatchError>> {
        batch_items(payload, Lsn(4096)).collect()
    }
    let frame = |bytes: u32, number: u32, item: &[u8]| {
        let mut frame = Vec::new();
        frame.extend_from_slice(&bytes.to_le_bytes());
        frame.extend_from_slice(&number.to_le_bytes());
        frame.extend_from_slice(item);
        frame
    };
    let first = Lsn(4096 + 32);
    assert_eq!(read(&frame(3, 0, b"abc\0\0\0\0\0")), [Ok((first, &b"abc"[..]))]);
    let too_long = BatchError::Length { lsn: first, item_bytes: u32::MAX, left: 8 };
    assert_eq!(read(&frame(u32::MAX, 0, &[0; 8])), [Err(too_long)]);
    assert_eq!(read(&frame(0, 1, &[])), [Err(BatchError::Frame { lsn: first, number: 0 })]);
    assert_eq!(read(&[0; 7]), [Err(BatchError::Frame { lsn: first, number: 0 })]);
    // The item fits and the zeros behind it don't.
    assert!(matches!(read(&frame(3, 0, b"abc"))[..], [Err(BatchError::Length { .. })]));
}

/// A record's header for the tests below, with its key.
fn record_header(lsn: Lsn) -> (RecordHeader, EpochKey) {
    let key = Salt::new(LOG).key(epoch(5));
    let header = RecordHeader {
        lsn,
        epoch: key.epoch(),
        kind: RecordKind::Data,
        lag: Lag(3),
        payload_bytes: 1000,
        payload_checksum: 0x1234_5678,
    };
    (header, key)
}

#[test]
fn one_or_two_changed_bits_of_a_record_header_are_seen() {
    let lsn = Lsn(1 << 30);
    let (header, key) = record_header(lsn);
    let whole = header.encode(&key);
    assert_eq!(RecordHeader::decode(&whole, lsn, S, &key), Ok(header));
    for first in 0..256 {
        for second in first..256 {
            let mut changed = whole;
            changed[first / 8] ^= 1 << (first % 8);
            if second != first {
                changed[second / 8] ^= 1 << (second % 8);
            }
            RecordHeader::decode(&changed, lsn, S, &key).unwrap_err();
        }
    }
}

#[test]
fn r3_a_header_is_good_at_its_own_lsn_log_and_epoch_only() {
    let lsn = Lsn(1 << 30);
    let (header, key) = record_header(lsn);
    let whole = header.encode(&key);
    for shift in 3..40 {
        let other = Lsn(lsn.0 ^ (1 << shift));
        assert!(matches!(RecordHeader::decode(&whole, other, S, &key), Err(HeaderError::NoRecord { .. })));
        let payload = [7; 64];
        assert_ne!(key.salt().payload_checksum(lsn, &payload), key.salt().payload_checksum(other, &payload));
    }
    let stranger = Salt::new(LogId([8; 16])).key(key.epoch());
    assert!(matches!(RecordHeader::decode(&whole, lsn, S, &stranger), Err(HeaderError::NoRecord { .. })));
    let later = Salt::new(LOG).key(epoch(6));
    let other = HeaderError::OtherEpoch { lsn, assigned: epoch(6), found: epoch(5) };
    assert_eq!(RecordHeader::decode(&whole, lsn, S, &later), Err(other));
}

#[test]
fn kind_14_no_publish_word_is_zero_and_masks_differ_by_epoch() {
    let salt = Salt::new(LOG);
    let masks: HashSet<u64> = (1..2000).map(|n| salt.key(epoch(n)).publish_word(Lsn(0))).collect();
    assert_eq!(masks.len(), 1999);
    assert!(masks.iter().all(|mask| mask % 2 == 1), "LSNs are multiples of 8: no word is ever zero");
}
