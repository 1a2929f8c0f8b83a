//! What readers and subscriptions are shown is the log, record by record: at each LSN what was appended there in that epoch, nothing twice, nothing left out and nothing
//! beyond what its level has come to (I-1: `applied ≤ durable`). At `Durable` it is also what is committed.
//!
//! Who has not heard of an operator's word shows the line that was given up: what it shows was appended all the same, and what lies behind the place where the lines part
//! is missed by nobody. What a member has published and the oracle could not read yet, for rot or a read error, is compared with what was appended alone.

use std::fmt;

use windlass::{Epoch, Level, Lsn, ReadError, Record};
use windlass_log::{EpochHistory, HEADER_BYTES, RecordKind, frame_bytes};

use super::{Checked, Content, Invariant, Oracle, batch_with, hash_of, violated};

/// A record, or an item of a batch, as it was shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    lsn: Lsn,
    end: Lsn,
    epoch: Epoch,
    item: Option<u32>,
    bytes: usize,
    hash: u64,
}

impl From<&Record<'_>> for Seen {
    fn from(record: &Record<'_>) -> Seen {
        Seen {
            lsn: record.lsn,
            end: record.end,
            epoch: record.epoch,
            item: record.item,
            bytes: record.payload.len(),
            hash: hash_of(record.payload),
        }
    }
}

/// What one reader was shown so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Everything below, since where it began.
    to: Lsn,
    /// The batch that it was shown last, as far as that came.
    batch: Option<Batch>,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    appended: Content,
    hash: u64,
    item_next: u32,
    lsn_next: Lsn,
}

/// Who is shown something, and what there is to show.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) member: u8,
    pub(crate) who: &'static str,
    pub(crate) level: Level,
    /// What this level has come to, at most.
    pub(crate) limit: Lsn,
    /// Of the log that is read.
    pub(crate) history: &'a EpochHistory,
    /// From here on the oracle has not read what this member has published.
    pub(crate) unread_from: Lsn,
}

/// How the log stands that a reader has come to an end of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) trimmed: Lsn,
    pub(crate) has_rot: bool,
    /// Everything below, a reader at an end has been shown.
    pub(crate) owed_to: Lsn,
}

impl fmt::Display for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of member {} at {}", self.who, self.member, self.level)
    }
}

impl Shown {
    /// Nothing yet, from here on.
    pub(crate) fn from(at: Lsn) -> Shown {
        Shown { to: at, batch: None }
    }
}

impl Oracle {
    /// A reader is shown this next.
    pub(crate) fn shown(&self, reading: &Reading<'_>, shown: &mut Shown, seen: &Seen) -> Checked {
        if seen.end > reading.limit {
            let limit = reading.limit;
            return violated(
                Invariant::Shown,
                format!("{reading} is shown {seen:?}, and that has come to {limit}"),
            );
        }
        let Some(item) = seen.item else {
            let appended = self.shown_record(reading, shown, seen, seen.lsn, RecordKind::Data)?;
            return match appended.hash == seen.hash {
                true => Ok(()),
                false => violated(
                    Invariant::Shown,
                    format!("{reading} is shown {seen:?}, appended was {appended:?}"),
                ),
            };
        };
        if item == 0 {
            let start = Lsn(seen.lsn.0.saturating_sub(HEADER_BYTES));
            let appended = self.shown_record(reading, shown, seen, start, RecordKind::Batch)?;
            shown.batch = Some(Batch { appended, hash: 0, item_next: 0, lsn_next: seen.lsn });
        }
        let fits = |batch: &&mut Batch| {
            (batch.item_next, batch.lsn_next) == (item, seen.lsn)
                && (batch.appended.end, batch.appended.epoch) == (seen.end, seen.epoch)
        };
        match shown.batch.as_mut().filter(fits) {
            Some(batch) => {
                batch.hash = batch_with(batch.hash, seen.hash);
                batch.item_next += 1;
                batch.lsn_next.0 += frame_bytes(seen.bytes).unwrap_or(u64::MAX >> 1);
                Ok(())
            }
            None => violated(Invariant::Shown, format!("{reading} is shown {seen:?} behind {shown:?}")),
        }
    }

    /// A reader has nothing more to show, and says why. `position`: where it stands.
    pub(crate) fn shown_end(
        &self,
        reading: &Reading<'_>,
        shown: &mut Shown,
        position: Lsn,
        error: &ReadError,
        log: &Standing,
    ) -> Checked {
        self.shown_whole_batch(reading, shown)?;
        let is_right = match error {
            ReadError::AtEnd { .. } | ReadError::Ended { .. } => {
                if position < shown.to || position > shown.to.max(reading.limit) {
                    return violated(
                        Invariant::Shown,
                        format!("{reading} stands at {position}: {reading:?}, {shown:?}"),
                    );
                }
                return self.shown_up_to(reading, shown, log.owed_to);
            }
            // Whether a read has failed is known elsewhere.
            ReadError::Io { .. } => true,
            ReadError::Purged { lsn, first } => lsn < first && *first == log.trimmed,
            ReadError::Damaged { .. } => log.has_rot,
            ReadError::Torn { .. } | ReadError::InsideRecord { .. } | ReadError::Beyond { .. } => {
                // Another line may be there already.
                log.has_rot || self.given_up_from(reading.member).is_some()
            }
        };
        if is_right {
            Ok(())
        } else {
            violated(Invariant::Shown, format!("{reading} ends at {position}, {log:?}: {error}"))
        }
    }

    /// A reader has been shown all that lies below this LSN.
    pub(crate) fn shown_up_to(&self, reading: &Reading<'_>, shown: &Shown, end: Lsn) -> Checked {
        self.shown_nothing_between(reading, shown.to, end)
    }

    /// A reader waits, and was shown all that lies below `log.owed_to`. It was woken for nothing (`is_idle`) only where there is more than it was shown: filler.
    pub(crate) fn shown_on(
        &self,
        reading: &Reading<'_>,
        shown: &mut Shown,
        is_idle: bool,
        log: &Standing,
    ) -> Checked {
        self.shown_whole_batch(reading, shown)?;
        if is_idle && reading.limit <= shown.to {
            let to = shown.to;
            return violated(
                Invariant::Shown,
                format!("{reading} is woken, and there is nothing beyond {to}: {reading:?}"),
            );
        }
        self.shown_up_to(reading, shown, log.owed_to)
    }

    /// A client that subscribes where a member's application stands is refused.
    pub(crate) fn not_subscribed(&self, member: u8, from: Lsn, error: &ReadError) -> Checked {
        violated(Invariant::Shown, format!("nobody may subscribe at {from} to member {member}: {error}"))
    }

    /// A tenure has ended, and who follows its log waits on.
    pub(crate) fn not_ended(&self, member: u8, shown: &Shown) -> Checked {
        violated(
            Invariant::Shown,
            format!("a subscriber of member {member} waits behind its tenure, shown up to {}", shown.to),
        )
    }

    /// A record begins: it follows the one before, and was appended there. What was.
    fn shown_record(
        &self,
        reading: &Reading<'_>,
        shown: &mut Shown,
        seen: &Seen,
        start: Lsn,
        kind: RecordKind,
    ) -> Result<Content, super::Violation> {
        self.shown_whole_batch(reading, shown)?;
        let wrong = |what: String| super::Violation { invariant: Invariant::Shown, what };
        if start < shown.to {
            return Err(wrong(format!("{reading} is shown {seen:?}, and was shown all up to {}", shown.to)));
        }
        self.shown_nothing_between(reading, shown.to, start)?;
        shown.to = seen.end;
        let appended = self.appends.get(&(seen.epoch, start)).map(|append| append.content);
        let Some(appended) = appended.filter(|appended| appended.end == seen.end && appended.kind == kind)
        else {
            return Err(wrong(format!("{reading} is shown {seen:?}, appended at {start} was {appended:?}")));
        };
        let committed = self.committed.get(&start);
        let is_judged = reading.level == Level::Durable
            && start < reading.unread_from
            && !self.is_unheard(reading.member, seen.epoch, start);
        if is_judged && committed != Some(&appended) {
            return Err(wrong(format!("{reading} is shown {seen:?}, committed at {start} is {committed:?}")));
        }
        Ok(appended)
    }

    /// The batch that a reader was shown last is all that was appended in it.
    fn shown_whole_batch(&self, reading: &Reading<'_>, shown: &mut Shown) -> Checked {
        match shown.batch.take() {
            Some(batch) if batch.hash != batch.appended.hash => {
                violated(Invariant::Shown, format!("{reading} is shown {batch:?}, which is no more"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// No record of a client's lies in `[from, to)`: none that is committed, for `Durable`, and none that was appended in the epoch that the log has there.
    fn shown_nothing_between(&self, reading: &Reading<'_>, from: Lsn, to: Lsn) -> Checked {
        let to = self.given_up_from(reading.member).map_or(to, |given_up| given_up.min(to));
        if from >= to {
            return Ok(());
        }
        let is_owed = |content: &&Content| {
            matches!(content.kind, RecordKind::Data | RecordKind::Batch) && content.end <= to
        };
        let of_all = (reading.level == Level::Durable).then(|| self.committed.range(from..to));
        let mut committed = of_all.into_iter().flatten().map(|(start, content)| (*start, content));
        let left_out = committed.find(|(_, content)| is_owed(content)).map(|(at, content)| (at, *content));
        match left_out.or_else(|| self.appended_between(reading.history, from, to, &is_owed)) {
            Some((at, content)) => violated(
                Invariant::Shown,
                format!("{reading} is shown nothing of {content:?} at {at}, between {from} and {to}"),
            ),
            None => Ok(()),
        }
    }

    /// The first such append in `[from, to)` of the epoch that a log with this history has there.
    fn appended_between(
        &self,
        history: &EpochHistory,
        from: Lsn,
        to: Lsn,
        is_it: &dyn Fn(&&Content) -> bool,
    ) -> Option<(Lsn, Content)> {
        let mut from = history.entries().first()?.start.max(from);
        while from < to {
            let (entry, next) = history.span_at(from)?;
            let end = next.map_or(to, |next| next.min(to));
            let mut of_epoch = self.appends.range((entry.epoch, from)..(entry.epoch, end));
            if let Some(((_, at), append)) = of_epoch.find(|(_, append)| is_it(&&append.content)) {
                return Some((*at, append.content));
            }
            from = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch_hash;
    use super::*;

    const FIRST: u64 = 4096;
    const RECORDS: u64 = 4;
    const ITEMS: [&[u8]; 3] = [b"one", b"two and more", b""];

    fn epoch() -> Epoch {
        Epoch::from_bits(1 << 8)
    }

    fn history() -> EpochHistory {
        let mut history = EpochHistory::new();
        history.extend(epoch(), Lsn(FIRST)).unwrap();
        history
    }

    /// Records of 40 bytes that hold their number, with 24 bytes of filler in front of each.
    fn start(number: u64) -> Lsn {
        Lsn(FIRST + 24 + 64 * number)
    }

    fn record(number: u64) -> Seen {
        let (lsn, hash) = (start(number), hash_of(&number.to_le_bytes()));
        Seen { lsn, end: Lsn(lsn.0 + 40), epoch: epoch(), item: None, bytes: 8, hash }
    }

    fn batch() -> Vec<Seen> {
        let mut lsn = Lsn(start(RECORDS).0 + HEADER_BYTES);
        let end = Lsn(ITEMS.iter().fold(lsn.0, |lsn, item| lsn + frame_bytes(item.len()).unwrap()));
        let mut items = Vec::new();
        for (item, bytes) in (0..).zip(ITEMS) {
            let hash = hash_of(bytes);
            items.push(Seen { lsn, end, epoch: epoch(), item: Some(item), bytes: bytes.len(), hash });
            lsn.0 += frame_bytes(bytes.len()).unwrap();
        }
        items
    }

    fn all() -> Vec<Seen> {
        (0..RECORDS).map(record).chain(batch()).collect()
    }

    fn end() -> Lsn {
        batch()[0].end
    }

    /// Records and a batch, appended and published by member 1.
    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        let data =
            |seen: &Seen| Content { end: seen.end, epoch: epoch(), kind: RecordKind::Data, hash: seen.hash };
        let of_batch = batch_hash(ITEMS.into_iter());
        let records = (0..RECORDS).map(|number| (start(number), data(&record(number))));
        let batch = Content { end: end(), epoch: epoch(), kind: RecordKind::Batch, hash: of_batch };
        for (start, content) in records.chain([(start(RECORDS), batch)]) {
            oracle.appended(start, content).unwrap();
            oracle.published(1, epoch(), start, content).unwrap();
        }
        oracle
    }

    fn reading(level: Level, limit: Lsn, history: &EpochHistory) -> Reading<'_> {
        Reading { member: 1, who: "a reader", level, limit, history, unread_from: Lsn(u64::MAX) }
    }

    /// What is said of this being shown, then the end.
    fn said(oracle: &Oracle, level: Level, seen: &[Seen]) -> Checked {
        let history = history();
        let reading = reading(level, end(), &history);
        let mut shown = Shown::from(Lsn(FIRST));
        for seen in seen {
            oracle.shown(&reading, &mut shown, seen)?;
        }
        ends(oracle, &reading, &mut shown, end())
    }

    fn ends(oracle: &Oracle, reading: &Reading<'_>, shown: &mut Shown, position: Lsn) -> Checked {
        let log = Standing { trimmed: Lsn(FIRST), has_rot: false, owed_to: reading.limit };
        oracle.shown_end(reading, shown, position, &ReadError::AtEnd { end: position }, &log)
    }

    fn each_level(is_good: bool, change: impl Fn(&mut Vec<Seen>)) {
        let oracle = oracle();
        for level in [Level::Local, Level::Replicated, Level::Durable] {
            let mut seen = all();
            change(&mut seen);
            let said = said(&oracle, level, &seen);
            assert_eq!(said.is_ok(), is_good, "{level}: {said:?}");
        }
    }

    #[test]
    fn the_whole_log_in_order_is_what_is_to_be_shown() {
        each_level(true, |_| {});
    }

    #[test]
    fn whatever_is_left_out_is_found() {
        for at in 0..all().len() {
            each_level(false, |seen| {
                seen.remove(at);
            });
        }
        each_level(false, |seen| seen.truncate(3));
        each_level(false, |seen| drop(seen.drain(4..)));
    }

    #[test]
    fn whatever_is_shown_twice_or_too_early_is_found() {
        for at in 0..all().len() {
            each_level(false, |seen| seen.insert(at, seen[at]));
            each_level(false, |seen| seen.push(seen[at]));
        }
        for at in 1..all().len() {
            each_level(false, |seen| seen.swap(at - 1, at));
        }
    }

    #[test]
    fn other_content_is_found_also_where_it_is_that_of_another_record() {
        for at in 0..all().len() {
            each_level(false, |seen| seen[at].hash ^= 1);
            each_level(false, |seen| seen[at].epoch = Epoch::from_bits(2 << 8));
            each_level(false, |seen| seen[at].end.0 += 8);
            each_level(false, |seen| seen[at].lsn.0 += 8);
        }
        each_level(false, |seen| seen[1] = Seen { hash: seen[2].hash, ..seen[1] });
        each_level(false, |seen| seen[5] = Seen { hash: seen[4].hash, bytes: seen[4].bytes, ..seen[5] });
        // A record in place of a batch.
        each_level(false, |seen| seen[4] = Seen { lsn: start(RECORDS), item: None, ..seen[4] });
    }

    #[test]
    fn nothing_is_shown_beyond_what_its_level_has_come_to_i1() {
        let (oracle, history) = (oracle(), history());
        let reading = reading(Level::Durable, record(1).end, &history);
        let mut shown = Shown::from(Lsn(FIRST));
        oracle.shown(&reading, &mut shown, &record(0)).unwrap();
        oracle.shown(&reading, &mut shown, &record(1)).unwrap();
        assert!(ends(&oracle, &reading, &mut shown, record(1).end).is_ok(), "more is not there yet");
        assert!(ends(&oracle, &reading, &mut shown, start(2)).is_err(), "it stands beyond");
        assert!(oracle.shown(&reading, &mut shown, &record(2)).is_err());
    }

    #[test]
    fn at_durable_what_was_appended_and_not_committed_is_found() {
        let mut oracle = oracle();
        let (lsn, hash) = (end(), hash_of(b"late"));
        let late = Seen { lsn, end: Lsn(lsn.0 + 40), epoch: epoch(), item: None, bytes: 4, hash };
        let content = Content { end: late.end, epoch: epoch(), kind: RecordKind::Data, hash };
        oracle.appended(lsn, content).unwrap();
        let history = history();
        let said = |level, unread_from| {
            let mut shown = Shown::from(lsn);
            let reading = Reading { unread_from, ..reading(level, late.end, &history) };
            oracle.shown(&reading, &mut shown, &late)
        };
        assert!(said(Level::Durable, Lsn(u64::MAX)).is_err());
        assert!(said(Level::Replicated, Lsn(u64::MAX)).is_ok());
        assert!(said(Level::Durable, lsn).is_ok(), "nobody has read there what this member has published");
    }

    #[test]
    fn an_end_that_is_none_is_found() {
        let (oracle, history) = (oracle(), history());
        let reading = reading(Level::Durable, end(), &history);
        let said = |error: ReadError, has_rot| {
            let log = Standing { trimmed: start(2), has_rot, owed_to: end() };
            oracle.shown_end(&reading, &mut Shown::from(Lsn(FIRST)), Lsn(FIRST), &error, &log)
        };
        let purged = |first| ReadError::Purged { lsn: Lsn(FIRST), first };
        assert!(said(purged(start(2)), false).is_ok());
        assert!(said(purged(start(3)), false).is_err(), "more is there than it says");
        let damaged = || {
            let what = "checksum".to_owned();
            ReadError::Damaged { file: "file".into(), offset: 0, lsn: Lsn(FIRST), what }
        };
        assert!(said(damaged(), true).is_ok() && said(damaged(), false).is_err());
        assert!(said(ReadError::InsideRecord { lsn: Lsn(FIRST), record: Lsn(FIRST) }, false).is_err());
        assert!(said(ReadError::Ended { end: Lsn(FIRST) }, false).is_err(), "it was shown nothing");
    }

    /// Who has not heard of a word is shown its own line, and misses nothing of the other one behind the place where they part.
    #[test]
    fn who_has_not_heard_of_a_word_is_shown_what_was_appended_in_its_line() {
        let mut oracle = oracle();
        let left = super::super::words::Left {
            trimmed: Lsn(FIRST),
            read_to: start(2),
            end: start(2),
            history: history(),
            records: (0..2).map(|number| (start(number), oracle.committed[&start(number)])).collect(),
        };
        oracle.give_up(2, Epoch::from_bits(2 << 8), &left, false).unwrap();
        let durable = |seen: &[Seen]| said(&oracle, Level::Durable, seen);
        let (mut other, mut first_left_out) = (all(), all());
        assert!(durable(&other).is_ok(), "all of its line");
        other[3].hash ^= 1;
        assert!(durable(&other).is_err(), "not what was appended");
        first_left_out.remove(0);
        assert!(durable(&first_left_out).is_err(), "that one is of both lines");
        oracle.hears_of_words(1, Epoch::from_bits(2 << 8));
        assert!(said(&oracle, Level::Durable, &all()).is_err(), "it knows better");
    }
}
