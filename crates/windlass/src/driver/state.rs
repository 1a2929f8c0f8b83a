//! The engine's share of the superblock, both ways.
//!
//! ```text
//!  configuration:  version (1) | count (2) | peers, each: member (1), incarnation (8), opening (8)
//! ```

use windlass_engine::{DurableState, PeerRecord, Persisted};
use windlass_log::{EpochHistory, Lsn, MemberId, Superblock};

const VERSION: u8 = 1;
const PEER_BYTES: usize = 17;

/// A superblock's configuration can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the superblock's configuration of {bytes} bytes can't be read: was the folder made by another release?"
)]
pub struct ConfigurationError {
    /// Its length.
    pub bytes: usize,
}

/// Puts the engine's state into the superblock. The store keeps its own marks and the trim point.
///
/// The engine trims its history when it orders a trim. Where the store has refused that one, the history keeps what speaks for the log
/// from the store's trim point on: without, the log would begin where no epoch owns it, and would not open.
pub(crate) fn put(superblock: &mut Superblock, state: &DurableState) {
    let before = (superblock.trimmed < state.trimmed).then(|| superblock.history.clone());
    put_state(superblock, state);
    if let Some(history) = before.and_then(|before| with_older(&before, &state.history)) {
        superblock.history = history;
    }
}

/// A history with the entries of `before` that start below its first one. `None`: there is no room.
fn with_older(before: &EpochHistory, history: &EpochHistory) -> Option<EpochHistory> {
    let first = history.entries().first()?;
    let older =
        before.entries().iter().filter(|entry| entry.start < first.start && entry.epoch < first.epoch);
    let mut whole = EpochHistory::new();
    for entry in older.chain(history.entries()) {
        whole.extend(entry.epoch, entry.start).ok()?;
    }
    Some(whole)
}

fn put_state(superblock: &mut Superblock, state: &DurableState) {
    superblock.promised = state.promised;
    superblock.history = state.history.clone();
    superblock.acknowledged = superblock.acknowledged.max(state.mark.0);
    superblock.caught_up = !state.memory_lost;
    superblock.configuration = encode(&state.peers);
}

/// The engine's state as the superblock has it. `memory_lost`: the machine was booted since, without a clean stop.
pub(crate) fn take(superblock: &Superblock, memory_lost: bool) -> Result<DurableState, ConfigurationError> {
    Ok(DurableState {
        promised: superblock.promised,
        history: superblock.history.clone(),
        trimmed: superblock.trimmed,
        mark: Persisted(superblock.acknowledged.max(superblock.persisted)),
        memory_lost: memory_lost || !superblock.caught_up,
        peers: decode(&superblock.configuration)?,
    })
}

/// The configuration of a member that has met nobody.
pub(crate) fn encode(peers: &[PeerRecord]) -> Vec<u8> {
    let count = u16::try_from(peers.len()).expect("a group is small");
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&count.to_le_bytes());
    for peer in peers {
        bytes.push(peer.member.0);
        bytes.extend_from_slice(&peer.incarnation.to_le_bytes());
        bytes.extend_from_slice(&peer.opening.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Result<Vec<PeerRecord>, ConfigurationError> {
    let refused = ConfigurationError { bytes: bytes.len() };
    let [VERSION, low, high, peers @ ..] = bytes else { return Err(refused) };
    let count = usize::from(u16::from_le_bytes([*low, *high]));
    if peers.len() != count * PEER_BYTES {
        return Err(refused);
    }
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    Ok(peers
        .chunks_exact(PEER_BYTES)
        .map(|peer| PeerRecord {
            member: MemberId(peer[0]),
            incarnation: word(&peer[1..9]),
            opening: word(&peer[9..17]),
        })
        .collect())
}

/// A cut's superblock: the engine's state, with no mark beyond the cut.
pub(crate) fn put_cut(superblock: &mut Superblock, state: &DurableState, at: Lsn) {
    put_state(superblock, state);
    superblock.acknowledged = state.mark.0.min(at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_log::Epoch;

    #[test]
    fn a_history_never_begins_behind_the_stores_trim_point_kind_46() {
        let history = |entries: &[(u64, u64)]| {
            let mut history = EpochHistory::new();
            for (epoch, start) in entries {
                history.extend(Epoch::new(*epoch, MemberId(0)), Lsn(*start)).unwrap();
            }
            history
        };
        let full = history(&[(1, 4096), (2, 6000), (5, 9000)]);
        let trimmed = history(&[(5, 9000)]);
        assert_eq!(with_older(&full, &trimmed), Some(full.clone()));
        assert_eq!(
            with_older(&full, &history(&[(5, 9000), (7, 9500)])),
            Some(history(&[(1, 4096), (2, 6000), (5, 9000), (7, 9500)]))
        );
        assert_eq!(with_older(&trimmed, &trimmed), Some(trimmed.clone()));
        assert_eq!(with_older(&full, &EpochHistory::new()), None);
    }

    #[test]
    fn the_peers_come_back_as_they_went_and_damage_is_refused() {
        let peers = vec![
            PeerRecord { member: MemberId(1), incarnation: 7, opening: 9 },
            PeerRecord { member: MemberId(2), incarnation: u64::MAX, opening: 1 },
        ];
        let bytes = encode(&peers);
        assert_eq!(decode(&bytes), Ok(peers));
        assert_eq!(decode(&encode(&[])), Ok(Vec::new()));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Err(ConfigurationError { bytes: end }));
        }
        assert_eq!(decode(&[]), Err(ConfigurationError { bytes: 0 }));
    }
}
