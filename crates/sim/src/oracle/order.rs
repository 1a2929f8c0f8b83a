//! Order and content: what is committed of an epoch is what was appended in it, in that order and with nothing left out; and an LSN carries, in one
//! epoch, what the append that was given it had, or nothing (I-6).

use std::collections::BTreeMap;

use windlass::{Epoch, Lsn};
use windlass_log::RecordKind;

use super::{Checked, Content, Invariant, Oracle, violated};

/// What an append returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Append {
    pub(crate) content: Content,
    pub(crate) fate: Fate,
}

/// What the application was told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Nothing yet.
    Open,
    /// It was acknowledged.
    Acknowledged,
    /// Unknown.
    Unknown,
}

impl Oracle {
    /// An append was given this place.
    pub(crate) fn appended(&mut self, start: Lsn, content: Content) -> Checked {
        let key = (content.epoch, start);
        let before = self.appends.range(..key).next_back();
        if let Some(((epoch, before), append)) = before
            && *epoch == content.epoch
            && append.content.end > start
        {
            return violated(
                Invariant::Order,
                format!("{start} was given out inside the append at {before} of {epoch:?}"),
            );
        }
        if self.appends.insert(key, Append { content, fate: Fate::Open }).is_some() {
            return violated(Invariant::Order, format!("{start} was given out twice in {:?}", content.epoch));
        }
        Ok(())
    }

    /// A record is published for the first time.
    pub(super) fn ordered(&self, start: Lsn, found: &Content) -> Checked {
        match found.kind {
            RecordKind::Data | RecordKind::Batch => match self.appends.get(&(found.epoch, start)) {
                Some(append) if append.content == *found => Ok(()),
                Some(append) => violated(
                    Invariant::Order,
                    format!("committed at {start} is {found:?}, appended was {:?}", append.content),
                ),
                None => violated(
                    Invariant::Order,
                    format!("committed at {start} is {found:?}, which nobody appended"),
                ),
            },
            RecordKind::Pad
            | RecordKind::SegmentStart
            | RecordKind::EpochStart
            | RecordKind::Configuration => match self.appends.get(&(found.epoch, start)) {
                None => Ok(()),
                Some(append) => violated(
                    Invariant::Order,
                    format!("committed at {start} is filler, appended was {:?}", append.content),
                ),
            },
        }
    }

    /// What is committed between two records of an epoch is all that was appended there; looked at once the run is over.
    pub(crate) fn nothing_left_out(&self) -> Checked {
        let mut last = BTreeMap::new();
        for (start, record) in &self.committed {
            last.insert(record.epoch, *start);
        }
        for ((epoch, start), append) in &self.appends {
            let inside = self.committed.range(..=*start).next_back();
            let Some((at, record)) = inside else { continue };
            if record.epoch == *epoch && *start < record.end && at != start {
                return violated(
                    Invariant::Order,
                    format!("{append:?} at {start} lies inside the committed record at {at}"),
                );
            }
            let follows = last.get(epoch).is_some_and(|last| last >= start);
            if follows && !self.committed.contains_key(start) {
                return violated(
                    Invariant::Order,
                    format!("{append:?} at {start} was left out of {epoch:?}"),
                );
            }
        }
        Ok(())
    }

    pub(super) fn fate(&mut self, epoch: Epoch, start: Lsn) -> Option<&mut Append> {
        self.appends.get_mut(&(epoch, start))
    }
}
