//! What one end must know of the other to connect: a few numbers in a fixed layout, carried by the control plane.
//!
//! ```text
//! offset  bytes  field (integers little-endian)
//!      0      4  "WLV2"
//!      4      4  queue pair number
//!      8      4  first packet sequence number, 24 bits, random
//!     12     16  GID
//!     28      2  LID (0 on Ethernet)
//!     30      1  active MTU as ibv_mtu counts it (1 = 256 … 5 = 4096)
//!     31      1  reads that this end serves at once
//!     32      1  how packets travel (0 InfiniBand, 1 RoCE v1, 2 RoCE v2)
//!     33      1  transfers of mapped files: 0 any, otherwise whole pages of 2^n bytes
//!     34      2  0
//! ```

use windlass_fabric::Transfer;

use crate::address::Link;

/// Bytes of an endpoint.
pub(crate) const ENDPOINT_BYTES: usize = 36;

const MAGIC: [u8; 4] = *b"WLV2";
/// Pages are 4 KiB to 16 MiB.
const PAGE_SHIFTS: std::ops::RangeInclusive<u8> = 12..=24;

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) queue_pair: u32,
    pub(crate) sequence: u32,
    pub(crate) gid: [u8; 16],
    pub(crate) lid: u16,
    pub(crate) mtu: u8,
    pub(crate) reads: u8,
    pub(crate) link: Link,
    pub(crate) transfer: Transfer,
}

impl Endpoint {
    pub(crate) fn encode(&self) -> [u8; ENDPOINT_BYTES] {
        let mut bytes = [0; ENDPOINT_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.queue_pair.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.gid);
        bytes[28..30].copy_from_slice(&self.lid.to_le_bytes());
        bytes[30] = self.mtu;
        bytes[31] = self.reads;
        bytes[32] = self.link.code();
        bytes[33] = match self.transfer {
            Transfer::Any => 0,
            Transfer::WholePages { page_bytes } => page_bytes.trailing_zeros().to_le_bytes()[0],
        };
        bytes
    }

    /// Reads a peer's bytes. The error says what is wrong with them.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Endpoint, &'static str> {
        let bytes: &[u8; ENDPOINT_BYTES] = bytes.try_into().map_err(|_| "not 36 bytes long")?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MAGIC {
            return Err("not of the verbs provider, or of another version");
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[12..28]);
        let transfer = match bytes[33] {
            0 => Transfer::Any,
            shift if PAGE_SHIFTS.contains(&shift) => Transfer::WholePages { page_bytes: 1 << shift },
            _ => return Err("a page size outside 4 KiB to 16 MiB"),
        };
        let endpoint = Endpoint {
            queue_pair: word(4),
            sequence: word(8),
            gid,
            lid: u16::from_le_bytes([bytes[28], bytes[29]]),
            mtu: bytes[30],
            reads: bytes[31],
            link: Link::of_code(bytes[32]).ok_or("an unknown kind of link")?,
            transfer,
        };
        if endpoint.queue_pair >= 1 << 24 || endpoint.sequence >= 1 << 24 {
            return Err("a queue pair number or packet sequence number of more than 24 bits");
        }
        if !(1..=5).contains(&endpoint.mtu) {
            return Err("an MTU outside 1 to 5");
        }
        if bytes[34..] != [0, 0] {
            return Err("bytes that must be zero are not");
        }
        Ok(endpoint)
    }
}

#[cfg(test)]
impl Default for Endpoint {
    fn default() -> Endpoint {
        Endpoint {
            queue_pair: 1,
            sequence: 0,
            gid: [0; 16],
            lid: 0,
            mtu: 5,
            reads: 1,
            link: Link::RoceV2,
            transfer: Transfer::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Endpoint = Endpoint {
        queue_pair: 0x12_3456,
        sequence: 0xab_cdef,
        gid: [9; 16],
        lid: 0x0102,
        mtu: 5,
        reads: 16,
        link: Link::RoceV2,
        transfer: Transfer::WholePages { page_bytes: 4096 },
    };

    #[test]
    fn an_endpoint_comes_back_as_it_was() {
        for link in [Link::InfiniBand, Link::RoceV1, Link::RoceV2] {
            for transfer in [Transfer::Any, Transfer::WholePages { page_bytes: 65536 }] {
                let endpoint = Endpoint { link, transfer, ..SAMPLE };
                assert_eq!(Endpoint::parse(&endpoint.encode()), Ok(endpoint));
            }
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let mut golden = Vec::from(*b"WLV2\x56\x34\x12\x00\xef\xcd\xab\x00");
        golden.extend([9; 16]);
        golden.extend([0x02, 0x01, 5, 16, 2, 12, 0, 0]);
        assert_eq!(SAMPLE.encode().as_slice(), golden);
    }

    #[test]
    fn a_peers_garbage_is_refused_with_the_reason() {
        let good = SAMPLE.encode();
        for len in (0..ENDPOINT_BYTES).chain([ENDPOINT_BYTES + 1]) {
            let mut bytes = good.to_vec();
            bytes.resize(len, 0);
            assert!(Endpoint::parse(&bytes).is_err(), "{len} bytes");
        }
        let bad = [
            (0, b'X'),
            (3, b'1'),
            (7, 1),
            (11, 1),
            (30, 0),
            (30, 6),
            (32, 3),
            (33, 11),
            (33, 25),
            (34, 1),
            (35, 1),
        ];
        for (at, value) in bad {
            let mut bytes = good;
            bytes[at] = value;
            assert!(Endpoint::parse(&bytes).is_err(), "byte {at} = {value}");
        }
    }
}
