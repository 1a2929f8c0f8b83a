//! What the clients saw, and whether one log explains it.
//!
//! An acknowledgement names the LSN of its record, so the order of a linearization is given and need not be searched for: it is the log's own.
//! What is left to check is that this order contains what it must, nothing else, and never turns real time round. DESIGN.md section 9.8.

use std::collections::HashMap;

/// How an append ended, as its client saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Nothing certain was heard of it: it may be in the log.
    Unknown,
    /// Refused: it is not in the log.
    Refused,
    /// Committed at `start`, heard at this time.
    Acknowledged { start: u64, end: u64, at_ns: u64 },
}

/// One append, never sent again under the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Append {
    pub(super) id: u64,
    pub(super) invoked_ns: u64,
    pub(super) outcome: Outcome,
}

/// A read of `[from, to)`, where `to` was committed when it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Read {
    pub(super) invoked_ns: u64,
    pub(super) returned_ns: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Start and number of each record; no number for one that no client sent so.
    pub(super) records: Vec<(u64, Option<u64>)>,
}

/// All that the clients saw.
#[derive(Clone, Default, Debug)]
pub(super) struct History {
    pub(super) appends: Vec<Append>,
    pub(super) reads: Vec<Read>,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Verdict {
    pub(super) acknowledged: u64,
    pub(super) unknown: u64,
    pub(super) refused: u64,
    /// Unknown ones that are in the log.
    pub(super) unknown_there: u64,
    pub(super) reads: u64,
    /// Acknowledged records that are not where they were acknowledged.
    pub(super) lost: u64,
    /// Whatever else one log does not explain.
    pub(super) violations: Vec<String>,
}

impl History {
    /// Takes in what another client saw.
    pub(super) fn merge(&mut self, mut other: History) {
        self.appends.append(&mut other.appends);
        self.reads.append(&mut other.reads);
    }

    /// The end of what is acknowledged.
    pub(super) fn end(&self) -> u64 {
        let ends = self.appends.iter().map(|append| match append.outcome {
            Outcome::Acknowledged { end, .. } => end,
            Outcome::Unknown | Outcome::Refused => 0,
        });
        ends.max().unwrap_or(0)
    }

    /// Holds the history against the log, in the order of its LSNs: start and number of each record.
    pub(super) fn judge(&self, log: &[(u64, Option<u64>)]) -> Verdict {
        let mut verdict = Verdict { reads: self.reads.len() as u64, ..Verdict::default() };
        let by_id: HashMap<u64, &Append> = self.appends.iter().map(|append| (append.id, append)).collect();
        let mut places: HashMap<u64, u64> = HashMap::with_capacity(log.len());
        // The latest moment at which a record so far was asked for: what follows in the log can't have ended before.
        let mut invoked_max_ns = 0;
        for (start, id) in log {
            let append = id.and_then(|id| by_id.get(&id));
            let Some(append) = append else {
                verdict.violations.push(format!("the record at {start} was never sent"));
                continue;
            };
            if let Some(first) = places.insert(append.id, *start) {
                verdict.violations.push(format!("record {} is at {first} and at {start}", append.id));
            }
            match append.outcome {
                Outcome::Refused => {
                    verdict.violations.push(format!("record {} at {start} was refused", append.id))
                }
                Outcome::Unknown => verdict.unknown_there += 1,
                Outcome::Acknowledged { at_ns, .. } if at_ns < invoked_max_ns => {
                    verdict.violations.push(format!(
                        "record {} at {start} had been acknowledged before one below it was sent",
                        append.id
                    ));
                }
                Outcome::Acknowledged { .. } => {}
            }
            invoked_max_ns = invoked_max_ns.max(append.invoked_ns);
        }
        for append in &self.appends {
            match append.outcome {
                Outcome::Unknown => verdict.unknown += 1,
                Outcome::Refused => verdict.refused += 1,
                Outcome::Acknowledged { start, .. } => {
                    verdict.acknowledged += 1;
                    verdict.lost += u64::from(places.get(&append.id) != Some(&start));
                }
            }
        }
        self.judge_reads(log, &by_id, &mut verdict);
        verdict
    }

    fn judge_reads(&self, log: &[(u64, Option<u64>)], by_id: &HashMap<u64, &Append>, verdict: &mut Verdict) {
        for read in &self.reads {
            let from = log.partition_point(|(start, _)| *start < read.from);
            let to = log.partition_point(|(start, _)| *start < read.to);
            if log.get(from..to) != Some(&read.records[..]) {
                verdict
                    .violations
                    .push(format!("a read of [{}, {}) is not what the log has there", read.from, read.to));
            }
            let appends = read.records.iter().filter_map(|(_, id)| by_id.get(&(*id)?));
            if appends.into_iter().any(|append| append.invoked_ns > read.returned_ns) {
                verdict.violations.push(format!("a read up to {} has seen what was sent after it", read.to));
            }
        }
        // What had ended before a read began is below its end: the highest end so far, by time of the answer.
        let mut ends: Vec<(u64, u64)> = self.reads.iter().map(|read| (read.returned_ns, read.to)).collect();
        ends.extend(self.appends.iter().filter_map(|append| match append.outcome {
            Outcome::Acknowledged { end, at_ns, .. } => Some((at_ns, end)),
            Outcome::Unknown | Outcome::Refused => None,
        }));
        ends.sort_unstable();
        let mut highest = 0;
        for (_, end) in &mut ends {
            highest = highest.max(*end);
            *end = highest;
        }
        for read in &self.reads {
            let before = ends.partition_point(|(at_ns, _)| *at_ns < read.invoked_ns);
            let known = before.checked_sub(1).map_or(0, |at| ends[at].1);
            if known > read.to {
                let to = read.to;
                verdict
                    .violations
                    .push(format!("a read up to {to} came after {known} had been acknowledged or read"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(id: u64, invoked_ns: u64, at_ns: u64) -> Append {
        Append { id, invoked_ns, outcome: Outcome::Acknowledged { start: id * 10, end: id * 10 + 10, at_ns } }
    }

    fn log(ids: &[u64]) -> Vec<(u64, Option<u64>)> {
        ids.iter().map(|id| (id * 10, Some(*id))).collect()
    }

    fn read(invoked_ns: u64, to: u64, ids: &[u64]) -> Read {
        Read { invoked_ns, returned_ns: invoked_ns + 5, from: 0, to, records: log(ids) }
    }

    /// Three appends that overlap in pairs, one unknown, one refused, and a read.
    fn good() -> History {
        let unknown = Append { id: 4, invoked_ns: 40, outcome: Outcome::Unknown };
        let refused = Append { id: 9, invoked_ns: 45, outcome: Outcome::Refused };
        let appends =
            vec![acknowledged(1, 10, 25), acknowledged(2, 20, 35), acknowledged(3, 30, 50), unknown, refused];
        History { appends, reads: vec![read(36, 30, &[1, 2])] }
    }

    fn only(history: &History, log: &[(u64, Option<u64>)], words: &str) {
        let verdict = history.judge(log);
        assert_eq!(verdict.violations.len(), 1, "{verdict:?}");
        assert!(verdict.violations[0].contains(words), "{verdict:?}");
    }

    #[test]
    fn a_log_that_explains_what_was_seen_is_right_with_and_without_what_is_unknown() {
        for (ids, there) in [(&[1, 2, 3][..], 0), (&[1, 2, 3, 4], 1)] {
            let verdict = good().judge(&log(ids));
            assert_eq!((verdict.lost, &verdict.violations[..]), (0, &[][..]), "{verdict:?}");
            assert_eq!((verdict.acknowledged, verdict.unknown, verdict.refused), (3, 1, 1));
            assert_eq!((verdict.unknown_there, verdict.reads), (there, 1));
        }
    }

    #[test]
    fn a_record_that_is_missing_or_elsewhere_is_lost() {
        assert_eq!(good().judge(&log(&[1, 2])).lost, 1);
        let mut moved = log(&[1, 2, 3]);
        moved[2].0 += 8;
        assert_eq!(good().judge(&moved).lost, 1);
    }

    #[test]
    fn what_is_there_twice_or_unasked_or_refused_is_seen() {
        let mut twice = log(&[1, 2, 3]);
        twice.push((60, Some(3)));
        only(&good(), &twice, "is at 30 and at 60");
        only(&good(), &log(&[1, 2, 3, 7]), "was never sent");
        let mut altered = log(&[1, 2, 3]);
        altered.push((50, None));
        only(&good(), &altered, "was never sent");
        only(&good(), &log(&[1, 2, 3, 9]), "was refused");
    }

    #[test]
    fn real_time_that_is_turned_round_is_seen() {
        // 3 had ended before 2 was asked for, and lies behind it.
        let mut history = good();
        history.reads.clear();
        history.appends[2] = acknowledged(3, 1, 15);
        only(&history, &log(&[1, 2, 3]), "had been acknowledged before one below it was sent");
        // An unknown one below it counts as well: it is in the log.
        let appends =
            vec![Append { id: 1, invoked_ns: 30, outcome: Outcome::Unknown }, acknowledged(2, 10, 20)];
        only(&History { appends, reads: Vec::new() }, &log(&[1, 2]), "had been acknowledged before");
    }

    #[test]
    fn a_read_that_is_stale_or_false_or_sees_the_future_is_seen() {
        let with = |read: Read| History { reads: vec![read], ..good() };
        only(&with(read(60, 30, &[1, 2])), &log(&[1, 2, 3]), "a read up to 30 came after 40");
        only(&with(read(36, 30, &[1])), &log(&[1, 2, 3]), "is not what the log has there");
        only(&with(read(36, 30, &[1, 7])), &log(&[1, 2, 3]), "is not what the log has there");
        only(&with(read(20, 40, &[1, 2, 3])), &log(&[1, 2, 3]), "has seen what was sent after it");
        // Two reads, the later one shorter.
        let mut shrinks = with(read(36, 40, &[1, 2, 3]));
        shrinks.reads.push(read(45, 30, &[1, 2]));
        only(&shrinks, &log(&[1, 2, 3]), "a read up to 30 came after 40");
    }
}
