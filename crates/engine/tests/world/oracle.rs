//! What must hold in every state, whatever happened: it has seen all, and tells nobody.

use std::collections::BTreeMap;

use windlass_engine::Configuration;
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
