//! What is posted: requests, receives, and the places they name.

/// Bytes of an encoded [`RemoteRange`].
pub const REMOTE_RANGE_BYTES: usize = 20;

/// A key to a peer's memory. The low 8 bits change with each bind of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

/// A stretch of a peer's memory that its owner has opened: what a bind gives, to be carried to the peer out of band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRange {
    /// Where it begins, in the owner's terms; only sums `address + k` with `k ≤ bytes` mean anything.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The key that opens it, on the connection it was bound on.
    pub key: RemoteKey,
}

impl RemoteRange {
    /// The place `offset` bytes behind its start. Not checked against the end: the peer's fabric does that.
    #[must_use]
    pub const fn at(self, offset: u64) -> Remote {
        Remote { address: self.address.wrapping_add(offset), key: self.key }
    }

    /// Little-endian address, length, key.
    #[must_use]
    pub fn encode(self) -> [u8; REMOTE_RANGE_BYTES] {
        let mut bytes = [0; REMOTE_RANGE_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.key.0.to_le_bytes());
        bytes
    }

    /// The reverse of [`encode`](Self::encode). Any bytes are some range; a wrong one is refused by the peer's fabric.
    #[must_use]
    pub fn decode(bytes: [u8; REMOTE_RANGE_BYTES]) -> Self {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[..8]);
        let address = u64::from_le_bytes(word);
        word.copy_from_slice(&bytes[8..16]);
        let len = u64::from_le_bytes(word);
        let mut key = [0; 4];
        key.copy_from_slice(&bytes[16..]);
        Self { address, bytes: len, key: RemoteKey(u32::from_le_bytes(key)) }
    }
}

/// A place in a peer's memory: where a request begins to write or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// In the owner's terms.
    pub address: u64,
    /// The key that opens it.
    pub key: RemoteKey,
}

/// A stretch of a region of this end, `[offset, offset + bytes)`.
#[derive(Debug)]
pub struct Local<'a, R> {
    /// The region.
    pub region: &'a R,
    /// Bytes from the start of its memory.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

impl<R> Clone for Local<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Local<'_, R> {}

/// Where a request takes its payload from.
#[derive(Debug)]
pub enum Source<'a, R> {
    /// From a region. The bytes may be read at any time until the request has completed: don't change them, keep the region.
    Region(Local<'a, R>),
    /// Copied while posting, at most [`ConnectionOptions::inline_bytes`](crate::ConnectionOptions) of them; the slice is free at once.
    Inline(&'a [u8]),
}

impl<R> Source<'_, R> {
    /// Length of the payload in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Region(local) => u64::from(local.bytes),
            Self::Inline(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        }
    }
}

impl<R> Clone for Source<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Source<'_, R> {}

/// One posted request.
#[derive(Debug)]
pub struct Request<'a, R> {
    /// The caller's own number; comes back in the completion.
    pub id: u64,
    /// What is to be done.
    pub operation: Operation<'a, R>,
    /// Whether its *success* makes a completion. A request that fails or is flushed always makes one.
    ///
    /// The slot of an unsignalled request comes back only with the completion of a later signalled one.
    pub signalled: bool,
}

impl<R> Clone for Request<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Request<'_, R> {}

/// What a request does. A payload of zero bytes is legal everywhere; a zero-length write may or may not have its key checked.
#[derive(Debug)]
pub enum Operation<'a, R> {
    /// Places the payload in the peer's memory.
    Write {
        /// The payload.
        source: Source<'a, R>,
        /// Where it goes.
        to: Remote,
    },
    /// Places the payload, then consumes one receive of the peer, whose completion carries the immediate
    /// ([`Opcode::ReceiveWrite`](crate::Opcode)). The receive's own buffer is not touched.
    WriteImmediate {
        /// The payload.
        source: Source<'a, R>,
        /// Where it goes.
        to: Remote,
        /// Carried to the peer's receive completion.
        immediate: u32,
    },
    /// Fetches from the peer's memory into a region of this end ([`Access::LOCAL_WRITE`](crate::Access)).
    Read {
        /// Where the bytes go.
        into: Local<'a, R>,
        /// Where they come from.
        from: Remote,
    },
    /// Places the payload in the buffer of the peer's next receive, which it must fit.
    Send {
        /// The payload.
        source: Source<'a, R>,
        /// Carried to the peer's receive completion.
        immediate: Option<u32>,
    },
}

impl<R> Operation<'_, R> {
    /// Where the payload comes from; a read has none.
    #[must_use]
    pub const fn source(&self) -> Option<&Source<'_, R>> {
        match self {
            Self::Write { source, .. } | Self::WriteImmediate { source, .. } | Self::Send { source, .. } => {
                Some(source)
            }
            Self::Read { .. } => None,
        }
    }

    /// Bytes that posting copies.
    #[must_use]
    pub fn inline_bytes(&self) -> u64 {
        match self.source() {
            Some(Source::Inline(bytes)) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Some(Source::Region(_)) | None => 0,
        }
    }
}

impl<R> Clone for Operation<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Operation<'_, R> {}

/// One posted receive. Receives are consumed in the order posted.
#[derive(Debug)]
pub struct Receive<'a, R> {
    /// The caller's own number; comes back in the completion.
    pub id: u64,
    /// Where a send's payload goes ([`Access::LOCAL_WRITE`](crate::Access)). `None` serves writes with immediate and empty sends.
    pub into: Option<Local<'a, R>>,
}

impl<R> Clone for Receive<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Receive<'_, R> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_range_has_these_bytes() {
        let range =
            RemoteRange { address: 0x0102_0304_0506_0708, bytes: 0x1000, key: RemoteKey(0xa1a2_a3a4) };
        let golden = [8, 7, 6, 5, 4, 3, 2, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0xa4, 0xa3, 0xa2, 0xa1];
        assert_eq!(range.encode(), golden);
        assert_eq!(RemoteRange::decode(golden), range);
        assert_eq!(range.at(8).address, 0x0102_0304_0506_0710);
    }
}
