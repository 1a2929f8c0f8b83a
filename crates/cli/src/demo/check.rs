//! The last word: every member's log, read from its files, against what the client had acknowledged, byte for byte.

use std::path::Path;

use windlass::{Lsn, OpenMode, ReadError, ReadOnly};

use super::input::{Input, sequence_of};
use super::ledger::Ledger;

/// What one member's log holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Checked {
    /// Acknowledged records that are there once, in order, at their LSN, with their bytes.
    pub(super) same: u64,
    /// Acknowledged records that are not there.
    pub(super) lost: u64,
    /// Records that are there again.
    pub(super) duplicated: u64,
    /// Records at their place with other bytes, or not at their LSN.
    pub(super) altered: u64,
    /// Records that were never acknowledged.
    pub(super) extra: u64,
    /// Why the log could not be read to its end.
    pub(super) unreadable: Option<String>,
}

impl Checked {
    /// Whether the log is exactly what was acknowledged.
    pub(super) fn is_right(&self) -> bool {
        let Checked { same: _, lost, duplicated, altered, extra, unreadable } = self;
        (*lost, *duplicated, *altered, *extra, unreadable) == (0, 0, 0, 0, &None)
    }
}

/// Reads the log in `folder`.
pub(super) fn check(folder: &Path, start: u64, input: &Input, ledger: &Ledger) -> Checked {
    let mut comparison = Comparison::new(input, ledger.starts());
    match read(folder, start, &mut comparison) {
        Ok(()) => comparison.finish(None),
        Err(why) => comparison.finish(Some(why)),
    }
}

fn read(folder: &Path, start: u64, comparison: &mut Comparison<'_>) -> Result<(), String> {
    let log = ReadOnly::open(folder, OpenMode::Strict).map_err(|error| error.to_string())?;
    let mut reader = log.read_from(Lsn(start)).map_err(|error| error.to_string())?;
    loop {
        match reader.next() {
            Ok(record) => comparison.record(record.lsn.0, record.payload),
            Err(ReadError::AtEnd { .. }) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// One log against the book, record by record.
struct Comparison<'a> {
    input: &'a Input,
    starts: &'a [u64],
    /// The next acknowledged record to come.
    next: u64,
    checked: Checked,
    payload: Vec<u8>,
}

impl<'a> Comparison<'a> {
    fn new(input: &'a Input, starts: &'a [u64]) -> Comparison<'a> {
        Comparison { input, starts, next: 0, checked: Checked::default(), payload: Vec::new() }
    }

    fn record(&mut self, lsn: u64, payload: &[u8]) {
        let Some(sequence) = sequence_of(payload) else {
            self.checked.extra += 1;
            return;
        };
        let start = usize::try_from(sequence).ok().and_then(|at| self.starts.get(at));
        let Some(start) = start else {
            self.checked.extra += 1;
            return;
        };
        if sequence < self.next {
            self.checked.duplicated += 1;
            return;
        }
        self.checked.lost += sequence - self.next;
        self.next = sequence + 1;
        self.input.payload(sequence, &mut self.payload);
        if *start == lsn && self.payload == payload {
            self.checked.same += 1;
        } else {
            self.checked.altered += 1;
        }
    }

    fn finish(mut self, unreadable: Option<String>) -> Checked {
        self.checked.lost += self.starts.len() as u64 - self.next;
        self.checked.unreadable = unreadable;
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(records: &[(u64, u64)], acknowledged: usize) -> Checked {
        let input = Input::for_tests();
        let starts: Vec<u64> = (0..acknowledged as u64).map(|at| 1000 + at).collect();
        let mut comparison = Comparison::new(&input, &starts);
        let mut payload = Vec::new();
        for (sequence, lsn) in records {
            input.payload(*sequence, &mut payload);
            comparison.record(*lsn, &payload);
        }
        comparison.finish(None)
    }

    #[test]
    fn exactly_what_was_acknowledged_is_right() {
        let checked = compare(&[(0, 1000), (1, 1001), (2, 1002)], 3);
        assert!(checked.is_right() && checked.same == 3, "{checked:?}");
    }

    #[test]
    fn every_departure_is_seen() {
        let wrong = [
            (compare(&[(0, 1000), (2, 1002)], 3), Checked { same: 2, lost: 1, ..Checked::default() }),
            (compare(&[(0, 1000)], 3), Checked { same: 1, lost: 2, ..Checked::default() }),
            (compare(&[(0, 1000), (0, 1000)], 1), Checked { same: 1, duplicated: 1, ..Checked::default() }),
            (compare(&[(0, 1001)], 1), Checked { altered: 1, ..Checked::default() }),
            (compare(&[(0, 1000), (1, 1001)], 1), Checked { same: 1, extra: 1, ..Checked::default() }),
            (
                compare(&[(1, 1001), (0, 1000)], 2),
                Checked { same: 1, lost: 1, duplicated: 1, ..Checked::default() },
            ),
        ];
        for (found, want) in wrong {
            assert_eq!(found, want);
            assert!(!found.is_right());
        }
        let input = Input::for_tests();
        let mut comparison = Comparison::new(&input, &[1000]);
        comparison.record(1000, b"\0\0\0\0\0\0\0\0other bytes");
        assert_eq!(comparison.finish(None).altered, 1);
        let comparison = Comparison::new(&input, &[]);
        assert!(!comparison.finish(Some(String::from("gone"))).is_right());
    }
}
