//! An operation, and its bytes in the log.
//!
//! ```text
//!  0      1        5
//!  |kind  |key len |key ... |value ... up to the end of the record or item      (little-endian)
//! ```
//!
//! Putting and deleting say what is to be, not what is to change, so an operation doesn't depend on what was there.

/// Bytes in front of the key.
const HEAD_BYTES: usize = 5;
const PUT: u8 = 1;
const DELETE: u8 = 2;

/// One change of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// The key has this value from now on.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// The key is not there from now on.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

/// Why a record, whole by its checksums, is not an operation: something else wrote into this log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedOp {
    /// Shorter than the shortest operation.
    #[error("{bytes} bytes are too short for an operation")]
    Short {
        /// The length found.
        bytes: usize,
    },
    /// A kind of operation that this version doesn't know.
    #[error("operation kind {kind} is unknown")]
    Kind {
        /// The kind found.
        kind: u8,
    },
    /// A key that ends behind the record, or a delete with a value.
    #[error("a key of {key_bytes} bytes doesn't fit an operation of {bytes} bytes")]
    Length {
        /// The length of the key, as stored.
        key_bytes: u32,
        /// The length of the operation.
        bytes: usize,
    },
}

impl Op {
    /// An operation that stores a value.
    #[must_use]
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Op {
        Op::Put { key: key.into(), value: value.into() }
    }

    /// An operation that takes a key away.
    #[must_use]
    pub fn delete(key: impl Into<Vec<u8>>) -> Op {
        Op::Delete { key: key.into() }
    }

    /// The bytes for the log.
    ///
    /// # Panics
    ///
    /// If the key has 4 GiB or more.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, key, value) = match self {
            Op::Put { key, value } => (PUT, key, value.as_slice()),
            Op::Delete { key } => (DELETE, key, [].as_slice()),
        };
        let key_bytes = u32::try_from(key.len()).expect("a key is shorter than 4 GiB");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + key.len() + value.len());
        bytes.push(kind);
        bytes.extend_from_slice(&key_bytes.to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        bytes
    }

    /// Reads what [`Op::encode`] wrote, without copying: the key, and the value or `None` for a delete.
    ///
    /// # Errors
    ///
    /// [`MalformedOp`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<(&[u8], Option<&[u8]>), MalformedOp> {
        let short = MalformedOp::Short { bytes: bytes.len() };
        let (&kind, rest) = bytes.split_first().ok_or(short)?;
        let (key_bytes, rest) = rest.split_first_chunk().ok_or(short)?;
        let key_bytes = u32::from_le_bytes(*key_bytes);
        let length = MalformedOp::Length { key_bytes, bytes: bytes.len() };
        let key_length = usize::try_from(key_bytes).map_err(|_| length)?;
        let (key, value) = rest.split_at_checked(key_length).ok_or(length)?;
        match kind {
            PUT => Ok((key, Some(value))),
            DELETE if value.is_empty() => Ok((key, None)),
            DELETE => Err(length),
            kind => Err(MalformedOp::Kind { kind }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_comes_back() {
        for (op, value) in [
            (Op::put("k", "v"), Some("v")),
            (Op::put("", ""), Some("")),
            (Op::put("key", ""), Some("")),
            (Op::delete("k"), None),
            (Op::delete(""), None),
        ] {
            let bytes = op.encode();
            let (Op::Put { key, .. } | Op::Delete { key }) = &op;
            assert_eq!(Op::decode(&bytes), Ok((key.as_slice(), value.map(str::as_bytes))));
        }
    }

    #[test]
    fn kind_9_lengths_that_lie_are_refused_and_never_panic() {
        let whole = Op::put("key", "value").encode();
        for end in 0..8 {
            assert!(Op::decode(&whole[..end]).is_err(), "{end} bytes");
        }
        assert_eq!(
            Op::decode(&[PUT, 255, 255, 255, 255]),
            Err(MalformedOp::Length { key_bytes: u32::MAX, bytes: 5 })
        );
        assert_eq!(Op::decode(&[7, 0, 0, 0, 0]), Err(MalformedOp::Kind { kind: 7 }));
        assert_eq!(Op::decode(&[DELETE, 0, 0, 0, 0, 1]), Err(MalformedOp::Length { key_bytes: 0, bytes: 6 }));
    }
}
