//! A log of one node, without the group: what was flushed is there, what is read is what was appended, and no place carries other content in the same epoch (R-12, I-6).

use std::collections::BTreeMap;
use std::fmt::Display;

use windlass::{Epoch, Lsn};

use super::{Checked, Invariant, Violation};

/// What one lone log must have.
pub(crate) struct Known {
    /// What an append at a place of an epoch had.
    appended: BTreeMap<(Epoch, Lsn), u64>,
    /// Flushed up to here.
    pub(crate) flushed: Lsn,
}

impl Known {
    /// A new log that begins here.
    pub(crate) fn from(first: Lsn) -> Known {
        Known { appended: BTreeMap::new(), flushed: first }
    }

    /// The log was opened again, up to this tail.
    pub(crate) fn opened(&self, tail: Lsn) -> Checked {
        if tail < self.flushed {
            return Err(wrong(format!("opens up to {tail}, flushed was {}", self.flushed)));
        }
        Ok(())
    }

    /// A record of this epoch is read.
    pub(crate) fn read(&self, epoch: Epoch, lsn: Lsn, hash: u64) -> Checked {
        if self.appended.get(&(epoch, lsn)) == Some(&hash) {
            return Ok(());
        }
        Err(wrong(format!("other content at {lsn} of {epoch:?}")))
    }

    /// An append was given this place.
    pub(crate) fn appended(&mut self, epoch: Epoch, start: Lsn, hash: u64) -> Checked {
        match self.appended.insert((epoch, start), hash) {
            None => Ok(()),
            Some(_) => Err(wrong(format!("{start} is given out twice in {epoch:?}"))),
        }
    }

    /// Where something was appended, by epoch and place.
    pub(crate) fn places(&self) -> impl Iterator<Item = &(Epoch, Lsn)> {
        self.appended.keys()
    }
}

pub(crate) fn wrong(what: String) -> Violation {
    Violation { invariant: Invariant::LoneLog, what }
}

/// What has to succeed did not.
pub(crate) fn failed(what: &str, error: &dyn Display) -> Checked {
    Err(wrong(format!("{what}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_flushed_and_is_gone_and_other_content_of_one_epoch_are_found_i6_r12() {
        let epoch = Epoch::from_bits(1 << 8);
        let mut known = Known::from(Lsn(4096));
        known.appended(epoch, Lsn(4096), 1).unwrap();
        known.flushed = Lsn(4160);
        assert!(known.opened(Lsn(4160)).is_ok() && known.opened(Lsn(4152)).is_err());
        assert!(known.read(epoch, Lsn(4096), 1).is_ok() && known.read(epoch, Lsn(4096), 2).is_err());
        assert!(known.read(epoch, Lsn(4104), 1).is_err(), "nobody appended that");
        assert!(known.appended(epoch, Lsn(4096), 2).is_err());
        assert!(known.appended(Epoch::from_bits(2 << 8), Lsn(4096), 2).is_ok(), "in another epoch");
    }
}
