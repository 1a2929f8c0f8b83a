//! What must hold in every state, whatever happened: it has seen all, and tells nobody.

use std::collections::BTreeMap;

use windlass_engine::{Configuration, Status, StopReason};
use windlass_log::{Epoch, Lsn, MemberId};

use super::image::Record;

/// What one step of one member showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Something was put at an LSN in an epoch.
    Appended(Record),
    /// A tenure begins behind these records.
    Tenure { member: MemberId, epoch: Epoch, log: Vec<Record> },
    /// A primary commits.
    Committed { member: MemberId, epoch: Epoch },
    /// A member says that these records are durable, as primary of this epoch or behind one.
    Published { member: MemberId, epoch: Epoch, records: Vec<Record> },
    /// An append was answered with success, at `Durable` or else at `Replicated`.
    Acknowledged { record: Record, epoch: Epoch, durable: bool },
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Oracle {
    /// What stands at an LSN in an epoch (I-6).
    contents: BTreeMap<(Epoch, Lsn), Record>,
    /// What is published as durable, and the epoch in which it was first.
    committed: BTreeMap<Lsn, (Record, Epoch)>,
    /// What was acknowledged, in which epoch, and whether at `Durable`.
    acknowledged: BTreeMap<Lsn, (Record, Epoch, bool)>,
    committers: BTreeMap<Epoch, MemberId>,
}

impl Oracle {
    /// # Errors
    ///
    /// What does not hold.
    pub fn see(&mut self, seen: &Seen) -> Result<(), String> {
        match seen {
            Seen::Appended(record) => {
                let known = *self.contents.entry((record.epoch, record.start)).or_insert(*record);
                if known != *record {
                    return Err(format!(
                        "I-6: {} has two contents in one epoch: {known:?}, {record:?}",
                        record.start
                    ));
                }
            }
            Seen::Tenure { member, epoch, log } => {
                // What a newer tenure has committed meanwhile is not missing: this one is fenced already.
                let committed = self.committed.values().map(|(record, first)| (record, first));
                let acknowledged = self.acknowledged.values().map(|(record, first, _)| (record, first));
                for (record, _) in committed.chain(acknowledged).filter(|(_, first)| *first < epoch) {
                    if !log.contains(record) {
                        return Err(format!("I-2: {member} leads in {epoch} without {record:?}"));
                    }
                }
            }
            Seen::Committed { member, epoch } => {
                let known = *self.committers.entry(*epoch).or_insert(*member);
                if known != *member {
                    return Err(format!("I-3: {known} and {member} commit in {epoch}"));
                }
            }
            Seen::Published { member, epoch, records } => {
                for record in records {
                    let known = self.committed.entry(record.start).or_insert((*record, *epoch));
                    if known.0 != *record {
                        return Err(format!(
                            "I-2: {member} publishes {record:?}, committed is {:?}",
                            known.0
                        ));
                    }
                }
                self.check_chain()?;
            }
            Seen::Acknowledged { record, epoch, durable } => {
                let known = self.acknowledged.entry(record.start).or_insert((*record, *epoch, *durable));
                if known.0 != *record {
                    return Err(format!("I-2: {record:?} is acknowledged where {:?} was", known.0));
                }
                known.2 |= durable;
            }
        }
        Ok(())
    }

    /// Of what is committed each configuration follows from the one before it.
    fn check_chain(&self) -> Result<(), String> {
        let found = self.committed.values().filter_map(|(record, _)| record.configuration());
        for (before, found) in (0..).zip(found) {
            if found.configuration.number() != before + 1 {
                return Err(format!("R-20: {found:?} is committed, behind configuration {before}"));
            }
        }
        Ok(())
    }

    /// The newest that is committed, if the group was ever changed.
    pub fn configuration(&self) -> Option<Configuration> {
        let found = self.committed.values().rev().find_map(|(record, _)| record.configuration());
        found.map(|found| found.configuration)
    }

    /// What was acknowledged at `Durable`, and so is on a quorum's media from then on.
    pub fn durable(&self) -> impl Iterator<Item = &Record> {
        self.acknowledged.values().filter(|(_, _, durable)| *durable).map(|(record, _, _)| record)
    }

    /// Acknowledged at `Replicated` or more, and so in a quorum's memories as long as none of them loses power.
    pub fn replicated(&self) -> impl Iterator<Item = &Record> {
        self.acknowledged.values().map(|(record, _, _)| record)
    }
}

/// I-1, and what never goes back.
///
/// # Errors
///
/// What does not hold.
pub fn watermarks(before: &Status, after: &Status) -> Result<(), String> {
    let peers = &after.peers;
    let are_peers_ordered = peers.streaming == 0
        || peers.persisted.0 <= peers.placed.0
            && peers.placed.0 <= peers.posted
            && peers.posted <= after.tail;
    let is_ordered = after.trimmed <= after.durable && after.durable <= after.replicated && are_peers_ordered;
    let is_onward = before.durable <= after.durable
        && before.trimmed <= after.trimmed
        && before.promised <= after.promised;
    if let Some(StopReason::Contradiction { at, durable }) = after.stopped {
        return Err(format!("I-2: a cut at {at} below durable {durable} was asked for"));
    }
    if is_ordered && is_onward {
        return Ok(());
    }
    Err(format!("I-1: from {before:?} to {after:?}"))
}

#[cfg(test)]
mod tests {
    use windlass_engine::{PeerMarks, Persisted, Placed, Role};

    use super::*;

    fn sound() -> Status {
        Status {
            role: Role::Primary,
            promised: Epoch::from_bits(2 << 8),
            primary: Some(MemberId(0)),
            tail: Lsn(9_000),
            persisted: Persisted(Lsn(8_000)),
            replicated: Lsn(7_000),
            durable: Lsn(6_000),
            trimmed: Lsn(5_000),
            damaged: false,
            mark: Persisted(Lsn(8_000)),
            stopped: None,
            peers: PeerMarks {
                streaming: 2,
                posted: Lsn(8_000),
                placed: Placed(Lsn(7_000)),
                persisted: Persisted(Lsn(6_000)),
            },
        }
    }

    /// What begins what is said of such a step of a sound member; nothing is said where it holds.
    fn said(change: impl Fn(&mut Status)) -> String {
        let mut after = sound();
        change(&mut after);
        let said = watermarks(&sound(), &after).err().unwrap_or_default();
        said.split([':', ' ']).next().unwrap_or_default().to_owned()
    }

    #[test]
    fn each_mark_of_a_peer_beyond_the_next_is_found_i1() {
        assert_eq!(said(|_| {}), "");
        assert_eq!(said(|now| now.peers.persisted.0 = Lsn(7_000)), "");
        assert_eq!(said(|now| now.peers.persisted.0 = Lsn(7_008)), "I-1", "persisted beyond placed");
        assert_eq!(said(|now| now.peers.placed.0 = Lsn(8_000)), "");
        assert_eq!(said(|now| now.peers.placed.0 = Lsn(8_008)), "I-1", "placed beyond posted");
        assert_eq!(said(|now| now.peers.posted = Lsn(9_000)), "");
        assert_eq!(said(|now| now.peers.posted = Lsn(9_008)), "I-1", "posted beyond the tail");
        // Where nobody is streamed to the marks say nothing.
        assert_eq!(said(|now| (now.peers.streaming, now.peers.posted) = (0, Lsn(9_008))), "");
    }

    #[test]
    fn a_members_marks_out_of_order_or_back_are_found_and_a_cut_below_durable_i1() {
        assert_eq!(said(|now| now.durable = Lsn(7_000)), "");
        assert_eq!(said(|now| now.durable = Lsn(7_008)), "I-1", "durable beyond replicated");
        assert_eq!(said(|now| now.trimmed = Lsn(6_008)), "I-1", "trimmed beyond durable");
        assert_eq!(said(|now| now.durable = Lsn(5_992)), "I-1", "durable went back");
        assert_eq!(said(|now| now.trimmed = Lsn(4_992)), "I-1", "trimmed went back");
        assert_eq!(said(|now| now.promised = Epoch::from_bits(1 << 8)), "I-1", "a promise went back");
        let contradiction = StopReason::Contradiction { at: Lsn(5_992), durable: Lsn(6_000) };
        assert_eq!(said(|now| now.stopped = Some(contradiction)), "I-2");
    }
}
