//! A [`LoneLog`] over a test disk that may stop, and what is read of it.

use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;

use windlass_log::{Appended, Chain, Epoch, LogId, Lsn, MemberId, RecordKind, SEGMENT_BYTES_MIN, Salt};
use windlass_store::disk::testing::TestDisk;
use windlass_store::testing::{LoneLog, hand_off};
use windlass_store::{Founding, Opened, Options, Read, Store, Surroundings};

use crate::oracle::{Content, Found};

/// The boot in which a log lives until it is stopped.
pub(crate) const BOOT: u8 = 1;
pub(crate) const AROUND: Surroundings = around(BOOT);
pub(crate) const SEGMENT: u64 = SEGMENT_BYTES_MIN;

pub(crate) const fn around(boot: u8) -> Surroundings {
    Surroundings { boot_id: [boot; 16], incarnation: 77 }
}

/// The power went, or something else that a crash point brings: what the call answered.
#[derive(Debug)]
pub(crate) struct Gone(pub(crate) String);

pub(crate) fn gone<E: Display>(error: E) -> Gone {
    Gone(error.to_string())
}

pub(crate) fn options() -> Options {
    Options { retention_bytes: 3 * SEGMENT, segments_ahead: 1, ..Options::default() }
}

pub(crate) fn founding(member: u8) -> Founding {
    Founding {
        log_id: LogId([9; 16]),
        member: MemberId(member),
        incarnation: 5,
        segment_bytes: SEGMENT,
        epoch: Some(Epoch::new(1, MemberId(member))),
        configuration: Vec::new(),
    }
}

/// An open log, whose disk may stop at any call.
pub(crate) struct Lone(LoneLog<TestDisk>);

impl Deref for Lone {
    type Target = LoneLog<TestDisk>;

    fn deref(&self) -> &LoneLog<TestDisk> {
        &self.0
    }
}

impl Lone {
    pub(crate) fn create(disk: &TestDisk, member: u8) -> Result<Lone, Gone> {
        let (store, opened) =
            Store::create(disk.clone(), &founding(member), &AROUND, &options()).map_err(gone)?;
        Lone::over(store, opened)
    }

    pub(crate) fn over(store: Store<TestDisk>, opened: Opened) -> Result<Lone, Gone> {
        LoneLog::over(store, opened).map(Lone).map_err(gone)
    }

    /// The helper's work, until there is none.
    pub(crate) fn prepare(&self) -> Result<(), Gone> {
        self.0.prepare().map_err(gone)
    }

    pub(crate) fn append(&mut self, content: &Content) -> Result<Appended, Gone> {
        let items: Vec<Vec<u8>> = (0..content.items.max(1)).map(|item| content.item(item)).collect();
        let parts: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        let appended = self.0.append_by(|handoff| match content.items {
            0 => handoff.append(RecordKind::Data, parts[0]),
            _ => handoff.append_batch(&parts),
        });
        appended.map_err(gone)
    }

    pub(crate) fn drain(&mut self) {
        self.0.drain();
    }

    pub(crate) fn flush(&self) -> Result<Lsn, Gone> {
        let persisted = self.store.flush(self.handoff.drained()).map_err(gone)?.lsn();
        self.handoff.set_persisted(persisted);
        Ok(persisted)
    }

    /// Takes away everything from `lsn` on and goes on there in a new epoch.
    pub(crate) fn cut(&mut self, lsn: Lsn) -> Result<(), Gone> {
        self.handoff.seal();
        self.drain();
        let superblock = self.store.superblock();
        let epoch = superblock.promised.next_for(superblock.member);
        let mut history = superblock.history;
        history.cut(lsn);
        history.extend(epoch, lsn).map_err(gone)?;
        self.store.cut(lsn, history, epoch).map_err(gone)?;
        let key = Salt::new(self.store.log_id()).key(epoch);
        (self.0.handoff, self.0.drain) = hand_off(&self.0.store, lsn, epoch, Chain::begin(&key, lsn));
        Ok(())
    }

    pub(crate) fn close(self) -> Result<(), Gone> {
        self.0.close().map_err(gone)
    }
}

/// What was appended, as it reads from the trim point to `end`.
pub(crate) fn records(store: &Arc<Store<TestDisk>>, end: Lsn) -> Result<Vec<Found>, String> {
    let mut reader = store.reader(store.trimmed());
    let mut found = Vec::new();
    loop {
        match reader.next(end) {
            Ok(Read::Record(record)) => {
                if let (RecordKind::Data | RecordKind::Batch, Some(payload)) =
                    (record.header.kind, record.payload)
                {
                    let (lsn, kind) = (record.header.lsn, record.header.kind);
                    found.push(Found { lsn, kind, payload: payload.to_vec() });
                }
            }
            Ok(Read::AtEnd { .. }) => return Ok(found),
            Err(error) => return Err(format!("reading: {error}")),
        }
    }
}
