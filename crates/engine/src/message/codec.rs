//! Messages as bytes: little-endian, versioned, bounded. Decoding never panics and never allocates by a length that it has
//! not checked against the bytes at hand.
//!
//! ```text
//!  0        2      4
//!  version  kind   fields in the order of their declaration; lists are a u32 count and their items
//! ```

use alloc::vec::Vec;

use windlass_log::{Epoch, EpochHistory, HISTORY_ENTRIES_MAX, HistoryError, Lsn, MemberId};

use super::{Mark, Message, Summary, Witness};
use crate::{
    CONFIGURATION_BYTES_MAX, Configuration, ConfigurationDecodeError, ConfigurationRecord, LsnRange,
    Persisted, Session,
};

/// The version of the message layouts.
pub const MESSAGE_VERSION: u16 = 2;

/// No encoded message is longer: a reader may refuse a frame by its length alone.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Epochs count up by one with each takeover: no group gets here, and a member that took a counter near 2^56 for true could
/// never take a higher one (R-7).
pub const EPOCH_COUNTER_MAX: u64 = 1 << 48;

const ENTRY_BYTES: usize = 16;
const WITNESS_BYTES: usize = 17;
/// Those of a configuration, one that learns and one that has left.
const WITNESSES_MAX: usize = 2 * Configuration::MEMBERS_MAX;
/// The configurations of a log that matter: the last that is committed and the one behind it.
const CONFIGURATIONS_MAX: usize = 3;
/// A configuration's place and length.
const CONFIGURATION_HEAD_BYTES: usize = 18;

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// It ends too early.
    #[error("the message ends at byte {length}, inside a field")]
    Truncated {
        /// Its length.
        length: usize,
    },
    /// Bytes follow its end.
    #[error("{extra} bytes follow the message")]
    TrailingBytes {
        /// How many.
        extra: usize,
    },
    /// Longer than any message.
    #[error("{length} bytes, no message is longer than {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// Another format version.
    #[error("message version {found}, this release reads {MESSAGE_VERSION}: run compatible releases")]
    Version {
        /// In the message.
        found: u16,
    },
    /// No such kind in this version.
    #[error("message kind {found} is unknown in version {MESSAGE_VERSION}")]
    Kind {
        /// In the message.
        found: u16,
    },
    /// A list is longer than the format allows.
    #[error("a list of {found} items, at most {max} are allowed")]
    ListTooLong {
        /// In the message.
        found: u32,
        /// Allowed.
        max: usize,
    },
    /// No group counts so far.
    #[error("the epoch {found} is beyond any that a group reaches")]
    Epoch {
        /// In the message.
        found: Epoch,
    },
    /// A truth value that is neither 0 nor 1.
    #[error("{found} is no truth value")]
    Bool {
        /// In the message.
        found: u8,
    },
    /// A range that ends before it starts.
    #[error("a range from {start} to {end}")]
    Range {
        /// Its start.
        start: Lsn,
        /// Its end.
        end: Lsn,
    },
    /// Two entries of a history start at one LSN.
    #[error("history entry {index} starts where the one before it does")]
    HistoryStart {
        /// Which one.
        index: usize,
    },
    /// The history is forged.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A configuration in it is none.
    #[error(transparent)]
    Configuration(#[from] ConfigurationDecodeError),
}

impl Message {
    /// The message's bytes, at most [`MESSAGE_BYTES_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer { bytes: Vec::with_capacity(64) };
        w.u16(MESSAGE_VERSION);
        match self {
            Message::PreVote { epoch, configuration } => w.kind(1).epoch(*epoch).u64(*configuration),
            Message::PreVoteReply { epoch, granted, promised } => {
                w.kind(2).epoch(*epoch).bool(*granted).epoch(*promised)
            }
            Message::Fence { epoch, configuration } => w.kind(3).epoch(*epoch).u64(*configuration),
            Message::Promise { epoch, summary } => w.kind(4).epoch(*epoch).summary(summary),
            Message::Rejected { epoch, promised } => w.kind(5).epoch(*epoch).epoch(*promised),
            Message::Working { epoch, progress } => w.kind(6).epoch(*epoch).u64(*progress),
            Message::Campaign { epoch } => w.kind(7).epoch(*epoch),
            Message::Adopt { session, history, tail, trimmed, durable, configurations } => {
                w.kind(8).session(*session).history(history).lsn(*tail).lsn(*trimmed).lsn(*durable);
                w.configurations(configurations)
            }
            Message::Adopted { session, valid_tail, persisted } => {
                w.kind(9).session(*session).lsn(*valid_tail).lsn(persisted.0)
            }
            Message::SnapshotNeeded { session, valid_tail } => w.kind(10).session(*session).lsn(*valid_tail),
            Message::Resync { session } => w.kind(11).session(*session),
            Message::Alive { epoch, sequence, pending_ns, drained } => {
                w.kind(12).epoch(*epoch).u64(*sequence).u64(*pending_ns).lsn(*drained)
            }
            Message::AliveReply { epoch, sequence } => w.kind(13).epoch(*epoch).u64(*sequence),
            Message::FetchRequest { session, range } => {
                w.kind(14).session(*session).lsn(range.start).lsn(range.end)
            }
            Message::NotAMember { configuration } => w.kind(15).u64(*configuration),
            Message::Keep { epoch, from } => w.kind(16).epoch(*epoch).lsn(*from),
        };
        debug_assert!(w.bytes.len() <= MESSAGE_BYTES_MAX);
        w.bytes
    }

    /// Reads a message; all of `bytes` must be it.
    ///
    /// # Errors
    ///
    /// [`MessageError`]: drop the message and close the connection, the peer speaks garbage or another version.
    pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong { length: bytes.len() });
        }
        let mut r = Reader { bytes, at: 0 };
        let version = r.u16()?;
        if version != MESSAGE_VERSION {
            return Err(MessageError::Version { found: version });
        }
        let message = match r.u16()? {
            1 => Message::PreVote { epoch: r.epoch()?, configuration: r.u64()? },
            2 => Message::PreVoteReply { epoch: r.epoch()?, granted: r.bool()?, promised: r.epoch()? },
            3 => Message::Fence { epoch: r.epoch()?, configuration: r.u64()? },
            4 => Message::Promise { epoch: r.epoch()?, summary: r.summary()? },
            5 => Message::Rejected { epoch: r.epoch()?, promised: r.epoch()? },
            6 => Message::Working { epoch: r.epoch()?, progress: r.u64()? },
            7 => Message::Campaign { epoch: r.epoch()? },
            8 => Message::Adopt {
                session: r.session()?,
                history: r.history()?,
                tail: r.lsn()?,
                trimmed: r.lsn()?,
                durable: r.lsn()?,
                configurations: r.configurations()?,
            },
            9 => Message::Adopted {
                session: r.session()?,
                valid_tail: r.lsn()?,
                persisted: Persisted(r.lsn()?),
            },
            10 => Message::SnapshotNeeded { session: r.session()?, valid_tail: r.lsn()? },
            11 => Message::Resync { session: r.session()? },
            12 => Message::Alive {
                epoch: r.epoch()?,
                sequence: r.u64()?,
                pending_ns: r.u64()?,
                drained: r.lsn()?,
            },
            13 => Message::AliveReply { epoch: r.epoch()?, sequence: r.u64()? },
            14 => Message::FetchRequest { session: r.session()?, range: r.range()? },
            15 => Message::NotAMember { configuration: r.u64()? },
            16 => Message::Keep { epoch: r.epoch()?, from: r.lsn()? },
            found => return Err(MessageError::Kind { found }),
        };
        match bytes.len() - r.at {
            0 => Ok(message),
            extra => Err(MessageError::TrailingBytes { extra }),
        }
    }
}

struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Writer {
        self.put(&value.to_le_bytes())
    }

    fn kind(&mut self, kind: u16) -> &mut Writer {
        self.u16(kind)
    }

    fn count(&mut self, count: usize) -> &mut Writer {
        let count = u32::try_from(count).expect("lists are bounded far below 2^32");
        self.put(&count.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Writer {
        self.put(&value.to_le_bytes())
    }

    fn bool(&mut self, value: bool) -> &mut Writer {
        self.put(&[u8::from(value)])
    }

    fn epoch(&mut self, epoch: Epoch) -> &mut Writer {
        self.u64(epoch.to_bits())
    }

    fn lsn(&mut self, lsn: Lsn) -> &mut Writer {
        self.u64(lsn.0)
    }

    fn session(&mut self, session: Session) -> &mut Writer {
        self.epoch(session.epoch).put(&session.attempt.to_le_bytes())
    }

    fn mark(&mut self, mark: Mark) -> &mut Writer {
        self.epoch(mark.epoch).lsn(mark.lsn)
    }

    fn history(&mut self, history: &EpochHistory) -> &mut Writer {
        self.count(history.entries().len());
        for entry in history.entries() {
            self.epoch(entry.epoch).lsn(entry.start);
        }
        self
    }

    fn summary(&mut self, summary: &Summary) -> &mut Writer {
        self.epoch(summary.last_epoch).lsn(summary.valid_tail).lsn(summary.trimmed);
        self.mark(summary.mark).bool(summary.memory_lost).mark(summary.durable);
        self.count(summary.witnessed.len());
        for witness in &summary.witnessed {
            self.put(&[witness.member.0]).mark(witness.mark);
        }
        self.history(&summary.history).configurations(&summary.configurations)
    }

    fn configurations(&mut self, records: &[ConfigurationRecord]) -> &mut Writer {
        self.count(records.len());
        for record in records {
            let bytes = record.configuration.encode();
            let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            self.lsn(record.start).lsn(record.end).u16(length).put(&bytes);
        }
        self
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let truncated = MessageError::Truncated { length: self.bytes.len() };
        let rest = self.bytes.get(self.at..).ok_or(truncated)?;
        let taken = rest.first_chunk::<N>().ok_or(truncated)?;
        self.at += N;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, MessageError> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn bool(&mut self) -> Result<bool, MessageError> {
        match self.take::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => Err(MessageError::Bool { found }),
        }
    }

    fn epoch(&mut self) -> Result<Epoch, MessageError> {
        let found = Epoch::from_bits(self.u64()?);
        if found.counter() > EPOCH_COUNTER_MAX { Err(MessageError::Epoch { found }) } else { Ok(found) }
    }

    fn lsn(&mut self) -> Result<Lsn, MessageError> {
        Ok(Lsn(self.u64()?))
    }

    fn session(&mut self) -> Result<Session, MessageError> {
        Ok(Session { epoch: self.epoch()?, attempt: self.u32()? })
    }

    fn range(&mut self) -> Result<LsnRange, MessageError> {
        let (start, end) = (self.lsn()?, self.lsn()?);
        if start > end {
            return Err(MessageError::Range { start, end });
        }
        Ok(LsnRange { start, end })
    }

    fn mark(&mut self) -> Result<Mark, MessageError> {
        Ok(Mark { epoch: self.epoch()?, lsn: self.lsn()? })
    }

    /// A list's length, checked against the format's limit and against the bytes that are there.
    fn count(&mut self, max: usize, item_bytes: usize) -> Result<usize, MessageError> {
        let found = self.u32()?;
        let count = usize::try_from(found).unwrap_or(usize::MAX);
        if count > max {
            return Err(MessageError::ListTooLong { found, max });
        }
        if count * item_bytes > self.bytes.len() - self.at {
            return Err(MessageError::Truncated { length: self.bytes.len() });
        }
        Ok(count)
    }

    fn history(&mut self) -> Result<EpochHistory, MessageError> {
        let count = self.count(HISTORY_ENTRIES_MAX, ENTRY_BYTES)?;
        let mut history = EpochHistory::new();
        for index in 0..count {
            let before = history.entries().len();
            history.extend(self.epoch()?, self.lsn()?)?;
            if history.entries().len() == before {
                // Two entries that start at one LSN: `extend` replaces, an encoder never writes it.
                return Err(MessageError::HistoryStart { index });
            }
        }
        Ok(history)
    }

    fn summary(&mut self) -> Result<Summary, MessageError> {
        let (last_epoch, valid_tail, trimmed) = (self.epoch()?, self.lsn()?, self.lsn()?);
        let (mark, memory_lost, durable) = (self.mark()?, self.bool()?, self.mark()?);
        let count = self.count(WITNESSES_MAX, WITNESS_BYTES)?;
        let mut witnessed = Vec::with_capacity(count);
        for _ in 0..count {
            let [member] = self.take()?;
            witnessed.push(Witness { member: MemberId(member), mark: self.mark()? });
        }
        let (history, configurations) = (self.history()?, self.configurations()?);
        Ok(Summary {
            last_epoch,
            valid_tail,
            trimmed,
            mark,
            memory_lost,
            durable,
            witnessed,
            history,
            configurations,
        })
    }

    fn configurations(&mut self) -> Result<Vec<ConfigurationRecord>, MessageError> {
        let count = self.count(CONFIGURATIONS_MAX, CONFIGURATION_HEAD_BYTES)?;
        let mut records = Vec::with_capacity(count);
        for _ in 0..count {
            let LsnRange { start, end } = self.range()?;
            let length = usize::from(self.u16()?);
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let bytes = rest.get(..length).ok_or(MessageError::Truncated { length: self.bytes.len() })?;
            if length > CONFIGURATION_BYTES_MAX {
                return Err(MessageError::TooLong { length });
            }
            self.at += length;
            records.push(ConfigurationRecord { start, end, configuration: Configuration::decode(bytes)? });
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_that_no_group_reaches_is_refused_r_7() {
        let reached = Epoch::new(EPOCH_COUNTER_MAX, MemberId(1));
        let message = Message::Fence { epoch: reached, configuration: 7 };
        assert_eq!(Message::decode(&message.encode()), Ok(message));
        let found = reached.next_for(MemberId(1));
        let beyond = Message::Rejected { epoch: reached, promised: found };
        assert_eq!(Message::decode(&beyond.encode()), Err(MessageError::Epoch { found }));
    }

    #[test]
    fn a_range_may_be_empty_and_does_not_end_before_it_starts() {
        let session = Session { epoch: Epoch::NONE, attempt: 1 };
        let fetch = |start, end| {
            let range = LsnRange { start: Lsn(start), end: Lsn(end) };
            Message::decode(&Message::FetchRequest { session, range }.encode()).map(|_| ())
        };
        assert_eq!(fetch(5000, 5000), Ok(()));
        let (start, end) = (Lsn(5000), Lsn(4992));
        assert_eq!(fetch(5000, 4992), Err(MessageError::Range { start, end }));
    }

    #[test]
    fn what_is_longer_than_any_message_is_not_looked_at() {
        let zeros = alloc::vec![0; MESSAGE_BYTES_MAX + 2];
        let decode = |length: usize| Message::decode(&zeros[..length]);
        let too_long = |length| Err(MessageError::TooLong { length });
        assert_eq!(decode(MESSAGE_BYTES_MAX + 2), too_long(MESSAGE_BYTES_MAX + 2));
        assert_eq!(decode(MESSAGE_BYTES_MAX + 1), too_long(MESSAGE_BYTES_MAX + 1));
        assert_eq!(decode(MESSAGE_BYTES_MAX), Err(MessageError::Version { found: 0 }));
    }
}
