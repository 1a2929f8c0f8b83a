//! The engine's share of the superblock, both ways.
//!
//! ```text
//!  configuration:  version (1) | count (2) | peers, each: member (1), incarnation (8), opening (8)
//!                  | count (1) | configurations of the log, each: start (8), end (8), length (2), bytes as in their records
//! ```

use windlass_engine::{Configuration, ConfigurationRecord, DurableState, PeerRecord, Persisted};
use windlass_log::{EpochHistory, Lsn, MemberId, Superblock};

const VERSION: u8 = 2;
/// That of folders from before configurations were in the log: it ends with the peers.
const VERSION_OF_PEERS: u8 = 1;
const PLACE_BYTES: usize = 18;
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
/// from the store's trim point on, also through a cut: without, the log would begin where no epoch owns it, and would not open.
pub(crate) fn put(superblock: &mut Superblock, state: &DurableState) {
    let before = (superblock.trimmed < state.trimmed).then(|| superblock.history.clone());
    put_reset(superblock, state);
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

/// The superblock of a log that is empty from here on: the engine's state, also its history as it is. A mark beyond its end is what damage took, not what is cut (R-18).
pub(crate) fn put_reset(superblock: &mut Superblock, state: &DurableState) {
    superblock.promised = state.promised;
    superblock.history = state.history.clone();
    // An adoption lowers it: what was acknowledged of another tenure and is cut was never committed.
    superblock.acknowledged = acknowledged(state.mark);
    superblock.caught_up = !state.memory_lost;
    superblock.configuration = encode(&state.peers, &state.configurations);
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
    let (peers, configurations) = decode(&superblock.configuration)?;
    Ok(DurableState {
        promised: superblock.promised,
        history: superblock.history.clone(),
        trimmed: superblock.trimmed,
        mark: mark(superblock),
        memory_lost: memory_lost || !superblock.caught_up,
        peers,
        configurations,
    })
}

/// What the superblock of a new member has: it has met nobody, and this is the configuration that its group begins with
/// ([`Configuration::unknown`] for a member that is to be added to a group).
#[must_use]
pub fn founding_bytes(founding: &Configuration) -> Vec<u8> {
    encode(&[], &[ConfigurationRecord::founding(founding.clone())])
}

/// The number of the newest configuration that a superblock knows to be committed.
///
/// # Errors
///
/// [`ConfigurationError`]: another release wrote it.
pub fn committed_configuration(superblock: &Superblock) -> Result<u64, ConfigurationError> {
    let (_, configurations) = decode(&superblock.configuration)?;
    Ok(configurations.first().map_or(0, |record| record.configuration.number()))
}

/// Notes a configuration record, met by an opening behind what the superblock vouches for, in the superblock that the opening is about to
/// write: for [`Options::configure`](windlass_store::Options::configure). `false`: it, or the superblock's own, can't be read.
#[must_use]
pub fn note_configuration(superblock: &mut Superblock, start: Lsn, end: Lsn, payload: &[u8]) -> bool {
    let Ok(mut state) = take(superblock, false) else { return false };
    let Ok(configuration) = Configuration::decode(payload) else { return false };
    if state.note_configuration(ConfigurationRecord { start, end, configuration }) {
        superblock.configuration = encode(&state.peers, &state.configurations);
    }
    true
}

pub(crate) fn encode(peers: &[PeerRecord], configurations: &[ConfigurationRecord]) -> Vec<u8> {
    let count = u16::try_from(peers.len()).expect("a group is small");
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&count.to_le_bytes());
    for peer in peers {
        bytes.push(peer.member.0);
        bytes.extend_from_slice(&peer.incarnation.to_le_bytes());
        bytes.extend_from_slice(&peer.opening.to_le_bytes());
    }
    bytes.push(u8::try_from(configurations.len()).expect("three at most"));
    for record in configurations {
        let configuration = record.configuration.encode();
        let length = u16::try_from(configuration.len()).expect("a configuration is short");
        bytes.extend_from_slice(&record.start.0.to_le_bytes());
        bytes.extend_from_slice(&record.end.0.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&configuration);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Result<(Vec<PeerRecord>, Vec<ConfigurationRecord>), ConfigurationError> {
    let refused = ConfigurationError { bytes: bytes.len() };
    let (version, peers, rest) = match bytes {
        [version @ (VERSION | VERSION_OF_PEERS), low, high, rest @ ..] => {
            let count = usize::from(u16::from_le_bytes([*low, *high]));
            let (peers, rest) = rest.split_at_checked(count * PEER_BYTES).ok_or(refused)?;
            (*version, peers, rest)
        }
        _ => return Err(refused),
    };
    let peers = peers.as_chunks::<PEER_BYTES>().0.iter().map(|peer| PeerRecord {
        member: MemberId(peer[0]),
        incarnation: word(&peer[1..9]),
        opening: word(&peer[9..17]),
    });
    let configurations = match (version, rest) {
        (VERSION_OF_PEERS, []) => Vec::new(),
        (VERSION, [count, rest @ ..]) => decode_configurations(usize::from(*count), rest).ok_or(refused)?,
        _ => return Err(refused),
    };
    Ok((peers.collect(), configurations))
}

fn decode_configurations(count: usize, mut rest: &[u8]) -> Option<Vec<ConfigurationRecord>> {
    let mut records = Vec::new();
    for _ in 0..count {
        let (head, behind) = rest.split_at_checked(PLACE_BYTES)?;
        let (bytes, behind) =
            behind.split_at_checked(usize::from(u16::from_le_bytes([head[16], head[17]])))?;
        let configuration = Configuration::decode(bytes).ok()?;
        records.push(ConfigurationRecord {
            start: Lsn(word(&head[..8])),
            end: Lsn(word(&head[8..16])),
            configuration,
        });
        rest = behind;
    }
    rest.is_empty().then_some(records)
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_log::{Epoch, FEATURES_KNOWN, LogId};

    fn history(entries: &[(u64, u64)]) -> EpochHistory {
        let mut history = EpochHistory::new();
        for (epoch, start) in entries {
            history.extend(Epoch::new(*epoch, MemberId(0)), Lsn(*start)).unwrap();
        }
        history
    }

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
            configuration: encode(&[], &[]),
        }
    }

    #[test]
    fn a_history_never_begins_behind_the_stores_trim_point_kind_46() {
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

    /// The store has refused the trim that the engine ordered, and a cut comes before the next one.
    #[test]
    fn a_cut_keeps_the_epochs_from_the_stores_trim_point_on_and_a_log_that_begins_anew_has_the_engines_kind_46()
     {
        let mut before = superblock(64 << 10);
        before.history = history(&[(1, 4096), (2, 6000), (5, 9000), (6, 9800)]);
        let mut state = take(&before, false).unwrap();
        state.trimmed = Lsn(9000);
        // Adopted: what the sixth epoch had is cut, and the seventh comes there.
        state.history = history(&[(5, 9000), (7, 9500)]);
        let (mut cut, mut begun) = (before.clone(), before.clone());
        put(&mut cut, &state);
        assert_eq!(cut.history, history(&[(1, 4096), (2, 6000), (5, 9000), (7, 9500)]));
        put_reset(&mut begun, &state);
        assert_eq!(begun.history, state.history);
    }

    #[test]
    fn a_mark_that_damage_took_is_written_kept_by_a_cut_and_forgotten_once_caught_up_r18() {
        for segment_bytes in [64 << 10, 4 << 30] {
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
            put_reset(&mut superblock, &state);
            assert_eq!(take(&written(&superblock), false).unwrap().mark, DurableState::MARK_UNKNOWN);
            state.mark = Persisted(Lsn(9000));
            put(&mut superblock, &state);
            assert_eq!(take(&written(&superblock), false).unwrap().mark, Persisted(Lsn(9000)));
            // An adoption lowers it, with a cut or without one.
            state.mark = Persisted(Lsn(8192));
            put_reset(&mut superblock, &state);
            assert_eq!(take(&written(&superblock), false).unwrap().mark, Persisted(Lsn(8192)));
            state.mark = Persisted(Lsn(8000));
            put(&mut superblock, &state);
            assert_eq!(take(&written(&superblock), false).unwrap().mark, Persisted(Lsn(8000)));
        }
    }

    #[test]
    fn the_peers_come_back_as_they_went_and_damage_is_refused() {
        let peers = vec![
            PeerRecord { member: MemberId(1), incarnation: 7, opening: 9 },
            PeerRecord { member: MemberId(2), incarnation: u64::MAX, opening: 1 },
        ];
        let founding = Configuration::founding([1, 2].map(MemberId));
        let next = founding.after(&windlass_engine::Change::Remove { member: MemberId(2) }).unwrap();
        let configurations = vec![
            ConfigurationRecord::founding(founding),
            ConfigurationRecord { start: Lsn(5000), end: Lsn(5088), configuration: next },
        ];
        let bytes = encode(&peers, &configurations);
        assert_eq!(decode(&bytes), Ok((peers.clone(), configurations)));
        assert_eq!(decode(&encode(&[], &[])), Ok((Vec::new(), Vec::new())));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Err(ConfigurationError { bytes: end }));
        }
        assert_eq!(decode(&[]), Err(ConfigurationError { bytes: 0 }));
        // A folder of the former version.
        let mut former = encode(&peers, &[]);
        former.pop();
        former[0] = VERSION_OF_PEERS;
        assert_eq!(decode(&former), Ok((peers, Vec::new())));
    }

    #[test]
    fn an_opening_notes_what_a_save_had_not_reached_r20() {
        let founding = Configuration::founding([1, 2].map(MemberId));
        let next = founding.after(&windlass_engine::Change::Remove { member: MemberId(2) }).unwrap();
        let mut superblock = superblock(64 << 10);
        superblock.configuration = founding_bytes(&founding);
        assert!(note_configuration(&mut superblock, Lsn(5000), Lsn(5088), &next.encode()));
        let noted = take(&superblock, false).unwrap().configurations;
        assert_eq!(noted.last().map(|record| record.configuration.clone()), Some(next.clone()));
        assert!(
            note_configuration(&mut superblock, Lsn(5000), Lsn(5088), &next.encode()),
            "as often as it is met"
        );
        assert_eq!(take(&superblock, false).unwrap().configurations, noted);
        assert!(!note_configuration(&mut superblock, Lsn(6000), Lsn(6088), &[9; 48]));
    }
}
