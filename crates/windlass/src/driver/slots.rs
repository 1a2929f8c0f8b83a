//! Where the three kinds of slots lie in registered memory, and the word that travels with two of them.
//!
//! ```text
//!  backup:   | notice 0 | notice 1 | ... | heartbeat |    each 128 bytes:
//!            0          64: a notice ends   80: a heartbeat ends   96: receives that the primary posted again (8)
//!            and behind them 8 KiB that the primary writes once, to try the path; at its own end it then has room there for a page
//!            (first_page)
//!  primary:  | acknowledgement |                          one for each backup, 64 bytes
//! ```
//!
//! An acknowledgement is written with an immediate, so that it wakes a sleeping primary; each immediate needs a posted
//! receive there. The word at 96 gives these receives back. Without one at hand a backup writes plainly, and the primary sees
//! the slot on its next turn.

use std::sync::Arc;

use windlass_fabric::{Access, Fabric, HeapMemory, Local, Memory, RegisterError, Source};

/// Bytes from one slot to the next.
pub(crate) const STRIDE_BYTES: u64 = 128;
/// Where in its slot the returned receives are counted.
pub(crate) const RETURNED_AT: u64 = 96;
/// Bytes of a notice or heartbeat as it is written, the count of returned receives included.
pub(crate) const POST_BYTES: usize = 104;
/// Receives that a primary keeps posted for the acknowledgements of one backup.
pub(crate) const ACKNOWLEDGEMENT_RECEIVES: u32 = 32;

/// Bytes of the write that tries the path: more than any device's path MTU, so that it takes packets as long as they get (failure kind 69).
pub(crate) const TRIAL_BYTES: u64 = 8 << 10;

/// Bytes of a backup's slots, the room for the trial included.
pub(crate) fn slots_bytes(notice_slots: u32) -> u64 {
    trial_at(notice_slots) + TRIAL_BYTES
}

/// Where the trial of the path goes, and what it is sent from.
pub(crate) fn trial_at(notice_slots: u32) -> u64 {
    (u64::from(notice_slots) + 1) * STRIDE_BYTES
}

/// Where a page of the peer's lies at the primary's end: nothing is sent from there any more once the path was tried.
pub(crate) fn page_at(notice_slots: u32) -> u64 {
    trial_at(notice_slots)
}

/// Where notice `slot` lies.
pub(crate) fn notice_at(slot: u32) -> u64 {
    u64::from(slot) * STRIDE_BYTES
}

/// Where the heartbeat lies.
pub(crate) fn heartbeat_at(notice_slots: u32) -> u64 {
    u64::from(notice_slots) * STRIDE_BYTES
}

/// A slot's bytes with the count of returned receives behind.
pub(crate) fn with_returned(slot: &[u8], returned: u64) -> [u8; POST_BYTES] {
    let mut bytes = [0; POST_BYTES];
    bytes[..slot.len()].copy_from_slice(slot);
    bytes[POST_BYTES - 8..].copy_from_slice(&returned.to_le_bytes());
    bytes
}

/// Registered heap memory.
pub(crate) struct Buffer<F: Fabric> {
    pub(crate) memory: Arc<HeapMemory>,
    pub(crate) region: F::Region,
}

impl<F: Fabric> Buffer<F> {
    pub(crate) fn new(fabric: &F, bytes: u64, access: Access) -> Result<Buffer<F>, RegisterError> {
        let memory = Arc::new(HeapMemory::new(bytes));
        let region = fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, access)?;
        Ok(Buffer { memory, region })
    }

    /// The source of a small write: inline where the connection takes it, otherwise from this buffer at `offset`, which must not
    /// be in use by a request that may still be read.
    pub(crate) fn source<'a>(&'a self, offset: u64, bytes: &'a [u8], inline: bool) -> Source<'a, F::Region> {
        if inline {
            return Source::Inline(bytes);
        }
        self.memory.write(offset, bytes);
        let bytes = u32::try_from(bytes.len()).expect("a slot is short");
        Source::Region(Local { region: &self.region, offset, bytes })
    }
}
