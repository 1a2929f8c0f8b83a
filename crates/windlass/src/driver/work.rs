//! What a completion answers: the kind of work, in the high byte of its id.

/// The kind of a posted request or receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkKind {
    /// The last request of a batch.
    Batch = 1,
    /// A heartbeat.
    Beat = 2,
    /// An acknowledgement.
    Acknowledge = 3,
    /// A window's bind; the low bits say which.
    Bind = 4,
    /// A window's invalidation.
    Invalidate = 5,
    /// A read of a fetch.
    Read = 6,
    /// A receive.
    Receive = 7,
    /// The write that tries the path.
    Trial = 8,
}

const SHIFT: u32 = 56;

/// The id of a request; `low` is the caller's own, below 2^56.
pub(crate) fn id(kind: WorkKind, low: u64) -> u64 {
    debug_assert!(low < 1 << SHIFT);
    (kind as u64) << SHIFT | low
}

/// What [`id`] was given as `low`.
pub(crate) fn low(id: u64) -> u64 {
    id & ((1 << SHIFT) - 1)
}

/// The kind behind an id.
pub(crate) fn kind(id: u64) -> Option<WorkKind> {
    Some(match id >> SHIFT {
        1 => WorkKind::Batch,
        2 => WorkKind::Beat,
        3 => WorkKind::Acknowledge,
        4 => WorkKind::Bind,
        5 => WorkKind::Invalidate,
        6 => WorkKind::Read,
        7 => WorkKind::Receive,
        8 => WorkKind::Trial,
        _ => return None,
    })
}
