//! Little-endian fields at checked places. Nothing here panics on bytes from a disk or a peer: a field that lies outside
//! is `None`.

/// The `N` bytes at `at`.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    let end = at.checked_add(N)?;
    bytes.get(at..end)?.try_into().ok()
}

/// The 32-bit number at `at`.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// The 64-bit number at `at`.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Puts `field` at `at` of a buffer that this crate made itself.
///
/// # Panics
///
/// If it does not fit: the caller's layout is wrong.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// So many zeros at once are passed over where something is looked for in what may never have been written.
pub(crate) const ZEROS_BYTES: usize = 512;

/// Whether there is nothing but zeros. Without a way out before the end, so that it becomes vector instructions.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

/// A length as an index. Lengths of memory always fit: only 64-bit targets are built.
#[inline]
pub(crate) fn index(bytes: u64) -> usize {
    const { assert!(size_of::<usize>() == size_of::<u64>(), "windlass needs a 64-bit target") };
    usize::try_from(bytes).expect("a 64-bit target")
}

/// A length in memory as a 64-bit number.
#[inline]
pub(crate) fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a length fits 64 bits")
}
