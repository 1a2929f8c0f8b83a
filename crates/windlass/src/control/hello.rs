//! The first frame after the proof: who speaks, to whom, about which log, in which formats.

use windlass_engine::{Identity, MESSAGE_VERSION, SLOT_VERSION};
use windlass_log::{FEATURES_KNOWN, FORMAT_VERSION, LogId, MemberId};

use super::{Refused, Terms};

/// Bytes of a hello.
pub(crate) const HELLO_BYTES: usize = 64;

/// What each end says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) log_id: LogId,
    pub(crate) from: MemberId,
    /// Whom the speaker believes to speak to.
    pub(crate) to: MemberId,
    pub(crate) identity: Identity,
    /// Of segments and superblocks.
    pub(crate) format_version: u32,
    /// Of the engine's messages and slots: high and low half.
    pub(crate) protocol_version: u32,
    pub(crate) features: u64,
    pub(crate) terms: Terms,
}

impl Hello {
    /// What this build says.
    pub(crate) fn new(
        log_id: LogId,
        from: MemberId,
        to: MemberId,
        identity: Identity,
        terms: Terms,
    ) -> Hello {
        Hello {
            log_id,
            from,
            to,
            identity,
            terms,
            format_version: FORMAT_VERSION,
            protocol_version: u32::from(MESSAGE_VERSION) << 16 | u32::from(SLOT_VERSION),
            features: FEATURES_KNOWN,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..16].copy_from_slice(&self.log_id.0);
        bytes[16] = self.from.0;
        bytes[17] = self.to.0;
        // A segment size is a power of two.
        bytes[18] = self.terms.segment_bytes.trailing_zeros().to_le_bytes()[0];
        bytes[19] = u8::from(self.terms.replicated);
        bytes[28..32].copy_from_slice(&self.terms.notice_slots.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.format_version.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.protocol_version.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.features.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.identity.incarnation.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.identity.opening.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.identity.nonce.to_le_bytes());
        bytes
    }

    /// Any bytes are some hello; [`Hello::check`] judges it.
    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES]) -> Hello {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let half = |at: usize| {
            let mut half = [0; 4];
            half.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(half)
        };
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&bytes[..16]);
        Hello {
            log_id: LogId(log_id),
            from: MemberId(bytes[16]),
            to: MemberId(bytes[17]),
            identity: Identity { incarnation: word(40), opening: word(48), nonce: word(56) },
            format_version: half(20),
            protocol_version: half(24),
            features: word(32),
            terms: Terms {
                segment_bytes: 1_u64.checked_shl(u32::from(bytes[18])).unwrap_or(0),
                replicated: bytes[19] != 0,
                notice_slots: half(28),
            },
        }
    }

    /// Judges the peer's hello against ours. `known` says who is a member of the group.
    pub(crate) fn check(&self, peer: &Hello, known: impl Fn(MemberId) -> bool) -> Result<(), Refused> {
        if peer.log_id != self.log_id {
            return Err(Refused::LogId { expected: self.log_id, found: peer.log_id });
        }
        if peer.format_version != self.format_version {
            return Err(Refused::FormatVersion { expected: self.format_version, found: peer.format_version });
        }
        if peer.protocol_version != self.protocol_version {
            return Err(Refused::ProtocolVersion {
                expected: self.protocol_version,
                found: peer.protocol_version,
            });
        }
        if peer.features & !self.features != 0 {
            return Err(Refused::Features { unknown: peer.features & !self.features });
        }
        if peer.from == self.from {
            return Err(Refused::Myself { member: peer.from });
        }
        if !known(peer.from) {
            return Err(Refused::NotAMember { member: peer.from });
        }
        if peer.to != self.from {
            return Err(Refused::OtherMember { expected: peer.to, found: self.from });
        }
        if peer.terms != self.terms {
            return Err(Refused::Terms { expected: self.terms, found: peer.terms });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(from: u8, to: u8) -> Hello {
        let identity = Identity { incarnation: 5, opening: 6, nonce: 7 };
        let terms = Terms { segment_bytes: 1 << 20, replicated: true, notice_slots: 16 };
        Hello::new(LogId([3; 16]), MemberId(from), MemberId(to), identity, terms)
    }

    #[test]
    fn a_hello_comes_back_as_it_went() {
        let hello = hello(1, 2);
        assert_eq!(Hello::decode(&hello.encode()), hello);
    }

    #[test]
    fn each_mismatch_is_its_own_refusal() {
        let (mine, good) = (hello(1, 2), hello(2, 1));
        let known = |member: MemberId| member.0 < 3;
        assert_eq!(mine.check(&good, known), Ok(()));
        let log = Hello { log_id: LogId([4; 16]), ..good };
        assert!(matches!(mine.check(&log, known), Err(Refused::LogId { .. })));
        let format = Hello { format_version: 99, ..good };
        assert!(matches!(mine.check(&format, known), Err(Refused::FormatVersion { found: 99, .. })));
        let protocol = Hello { protocol_version: 99, ..good };
        assert!(matches!(mine.check(&protocol, known), Err(Refused::ProtocolVersion { found: 99, .. })));
        let features = Hello { features: 1 << 63, ..good };
        assert!(matches!(mine.check(&features, known), Err(Refused::Features { .. })));
        assert!(matches!(mine.check(&hello(1, 1), known), Err(Refused::Myself { .. })));
        assert!(matches!(mine.check(&hello(9, 1), known), Err(Refused::NotAMember { member: MemberId(9) })));
        assert!(matches!(mine.check(&hello(2, 0), known), Err(Refused::OtherMember { .. })));
        let same = good.terms;
        for terms in [
            Terms { segment_bytes: 1 << 21, ..same },
            Terms { segment_bytes: 0, ..same },
            Terms { replicated: false, ..same },
            Terms { notice_slots: 17, ..same },
        ] {
            let refused = mine.check(&Hello { terms, ..good }, known);
            assert_eq!(refused, Err(Refused::Terms { expected: same, found: terms }));
        }
    }
}
