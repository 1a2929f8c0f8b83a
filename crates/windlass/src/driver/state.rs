//! The engine's share of the superblock, both ways.
//!
//! ```text
//!  configuration:  version (1) | count (2) | peers, each: member (1), incarnation (8), opening (8)
//! ```

use windlass_engine::{DurableState, PeerRecord, Persisted};
use windlass_log::{EpochHistory, Lsn, MemberId, Superblock};

const VERSION: u8 = 1;
const PEER_BYTES: usize = 17;
/// [`DurableState::MARK_UNKNOWN`] as a superblock has it, whose LSNs end at 2^62: on a record's place for any segment size.
const ACKNOWLEDGED_UNKNOWN: Lsn = Lsn((1 << 62) - 4096);

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
    superblock.acknowledged = if superblock.acknowledged == ACKNOWLEDGED_UNKNOWN {
        // The engine knows it again once it has caught up, at less than what stands for unknown.
        acknowledged(state.mark)
    } else {
        superblock.acknowledged.max(acknowledged(state.mark))
    };
    superblock.caught_up = !state.memory_lost;
    superblock.configuration = encode(&state.peers);
}

fn acknowledged(mark: Persisted) -> Lsn {
    if mark == DurableState::MARK_UNKNOWN { ACKNOWLEDGED_UNKNOWN } else { mark.0 }
}

fn mark(superblock: &Superblock) -> Persisted {
    if superblock.acknowledged == ACKNOWLEDGED_UNKNOWN {
        DurableState::MARK_UNKNOWN
    } else {
        Persisted(superblock.acknowledged.max(superblock.persisted))
    }
}

/// The engine's state as the superblock has it. `memory_lost`: the machine was booted since, without a clean stop.
pub(crate) fn take(superblock: &Superblock, memory_lost: bool) -> Result<DurableState, ConfigurationError> {
    Ok(DurableState {
        promised: superblock.promised,
        history: superblock.history.clone(),
        trimmed: superblock.trimmed,
        mark: mark(superblock),
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

/// A cut's superblock: the engine's state, with no mark beyond the cut. One that is unknown stays it (R-18): what damage took is not what is cut.
pub(crate) fn put_cut(superblock: &mut Superblock, state: &DurableState, at: Lsn) {
    put_state(superblock, state);
    superblock.acknowledged = match state.mark {
        DurableState::MARK_UNKNOWN => ACKNOWLEDGED_UNKNOWN,
        known => known.0.min(at),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_log::{Epoch, FEATURES_KNOWN, LogId};

    fn superblock(segment_bytes: u64) -> Superblock {
        Superblock {
            generation: 1,
            log_id: LogId([3; 16]),
            member: MemberId(1),
            incarnation: 5,
            place: 6,
            boot_id: [7; 16],
            promised: Epoch::new(1, MemberId(0)),
            history: EpochHistory::new(),
            trimmed: Lsn(4096),
            persisted: Lsn(4096),
            clean: None,
            acknowledged: Lsn(4096),
            caught_up: true,
            segment_bytes,
            features: FEATURES_KNOWN,
            configuration: encode(&[]),
        }
    }

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
    fn a_mark_that_damage_took_is_written_kept_by_a_cut_and_forgotten_once_caught_up_r18() {
        for segment_bytes in [64 << 10, 4 << 30] {
            let geometry = windlass_log::Geometry::new(segment_bytes).unwrap();
            let mut superblock = superblock(segment_bytes);
            superblock.acknowledged = Lsn(8192);
            // What every write of a superblock goes through.
            let written =
                |superblock: &Superblock| Superblock::decode(&superblock.encode().unwrap()).unwrap();
            let mut state = take(&superblock, false).unwrap();
            assert_eq!(state.mark, Persisted(Lsn(8192)));
            state.mark = DurableState::MARK_UNKNOWN;
            put(&mut superblock, &state);
            assert_eq!(take(&written(&superblock), false).unwrap().mark, DurableState::MARK_UNKNOWN);
            put_cut(&mut superblock, &state, geometry.first_record(0));
            assert_eq!(take(&written(&superblock), false).unwrap().mark, DurableState::MARK_UNKNOWN);
            state.mark = Persisted(Lsn(9000));
            put(&mut superblock, &state);
            assert_eq!(take(&written(&superblock), false).unwrap().mark, Persisted(Lsn(9000)));
            put_cut(&mut superblock, &state, Lsn(8192));
            assert_eq!(take(&written(&superblock), false).unwrap().mark, Persisted(Lsn(8192)));
        }
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
