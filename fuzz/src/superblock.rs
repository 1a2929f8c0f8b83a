//! Superblocks: both copies, as they are and with their checksums mended.

use windlass_log::{
    CONFIGURATION_BYTES_MAX, Epoch, EpochHistory, FORMAT_VERSION, Lsn, MemberId, SUPERBLOCK_ALIGN,
    SUPERBLOCK_BYTES_MAX, Superblock, newest,
};

use crate::input::Input;
use crate::record::LOG_ID;

/// The two copies in `data`, the second from where the first number in it says.
pub fn superblock(data: &[u8]) {
    let mut input = Input::new(data);
    let split = usize::from(input.u16());
    let rest = input.rest();
    let (first, second) = rest.split_at(split.min(rest.len()));
    let mut decoded = Vec::new();
    for copy in [first, second] {
        let _ = Superblock::decode(copy);
        let mended = Superblock::decode(&mended(copy));
        if let Ok(superblock) = &mended {
            round_trip(superblock);
        }
        decoded.push(mended);
    }
    if let [first, second] = &decoded[..] {
        let chosen = newest(first.clone(), second.clone());
        if let Ok(chosen) = chosen {
            let good: Vec<_> = decoded.iter().flatten().collect();
            assert!(good.contains(&&chosen), "neither of the two");
            assert!(good.iter().all(|other| other.generation <= chosen.generation), "the older one");
        }
    }
}

/// What was read is whole, and written again reads the same.
fn round_trip(superblock: &Superblock) {
    assert_eq!(superblock.promise_gap(), None, "R-5");
    assert!(superblock.configuration.len() <= CONFIGURATION_BYTES_MAX);
    let bytes = superblock.encode().expect("it was read with a configuration of this size");
    assert_eq!(Superblock::decode(&bytes).as_ref(), Ok(superblock));
    let cut_short = &bytes[..bytes.len() - 1];
    assert!(Superblock::decode(cut_short).is_err(), "a byte short, and accepted");
    let mut changed = bytes.clone();
    let at = usize::try_from(superblock.generation).unwrap_or(0) % bytes.len();
    changed[at] ^= 1;
    assert!(Superblock::decode(&changed).is_err(), "byte {at} changed, and accepted");
}

/// `copy` over a superblock's length, with everything in front of its fields as a writer would have it, and its checksum.
fn mended(copy: &[u8]) -> Vec<u8> {
    let align = usize::try_from(SUPERBLOCK_ALIGN).expect("a page");
    let max = usize::try_from(SUPERBLOCK_BYTES_MAX).expect("a few pages");
    let mut bytes = copy.to_vec();
    bytes.resize(copy.len().max(1).next_multiple_of(align).min(max), 0);
    let good = example(1).encode().expect("no configuration");
    bytes[..24].copy_from_slice(&good[..24]);
    let total = u32::try_from(bytes.len()).expect("a few pages");
    bytes[24..28].copy_from_slice(&total.to_le_bytes());
    bytes[12..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[12..]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// A superblock with a bit of everything.
pub(crate) fn example(generation: u64) -> Superblock {
    let mut history = EpochHistory::new();
    history.extend(Epoch::new(1, MemberId(0)), Lsn(4096)).expect("the first");
    history.extend(Epoch::new(3, MemberId(1)), Lsn(70_000)).expect("a later one");
    Superblock {
        generation,
        log_id: LOG_ID,
        member: MemberId(1),
        incarnation: 7,
        place: 9,
        boot_id: *b"a machine's boot",
        promised: Epoch::new(3, MemberId(1)),
        history,
        trimmed: Lsn(4096),
        persisted: Lsn(70_400),
        clean: Some(Lsn(70_400)),
        acknowledged: Lsn(70_400),
        caught_up: true,
        segment_bytes: 64 << 10,
        features: 0,
        configuration: Vec::new(),
    }
}
