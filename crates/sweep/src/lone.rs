//! A log of one node over a test disk: store, hand-off and drain joined on one thread as the facade does it.

use std::fmt::Display;
use std::sync::Arc;

use windlass_log::{
    Appended, Chain, Drain, DrainState, Epoch, Handoff, LogId, Lsn, MemberId, RecordKind, ReserveError,
    SEGMENT_BYTES_MIN, Salt, Tenure,
};
use windlass_store::disk::testing::TestDisk;
use windlass_store::{Founding, Opened, Options, Prepared, Read, Store, Surroundings};

use crate::oracle::{Content, Found};

pub(crate) const AROUND: Surroundings = Surroundings { boot_id: [1; 16], incarnation: 77 };
pub(crate) const SEGMENT: u64 = SEGMENT_BYTES_MIN;

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

/// An open log.
pub(crate) struct Lone {
    pub(crate) store: Arc<Store<TestDisk>>,
    pub(crate) opened: Opened,
    pub(crate) handoff: Arc<Handoff>,
    pub(crate) drain: Drain,
}

impl Lone {
    pub(crate) fn create(disk: &TestDisk, member: u8) -> Result<Lone, Gone> {
        let (store, opened) =
            Store::create(disk.clone(), &founding(member), &AROUND, &options()).map_err(gone)?;
        Lone::over(store, opened)
    }

    pub(crate) fn over(store: Store<TestDisk>, opened: Opened) -> Result<Lone, Gone> {
        let store = Arc::new(store);
        store.begin().map_err(gone)?;
        let epoch = opened.epoch.expect("a lone log has an epoch");
        let chain = opened.chain.expect("a lone log's chain is known");
        let (handoff, drain) = hand_off(&store, opened.tail, epoch, chain);
        let log = Lone { store, opened, handoff, drain };
        log.prepare()?;
        Ok(log)
    }

    /// The helper's work, until there is none.
    pub(crate) fn prepare(&self) -> Result<(), Gone> {
        loop {
            match self.store.prepare_step(self.handoff.tail()).map_err(gone)? {
                Prepared::Segment { segment, memory } => {
                    self.handoff.install(segment, memory).expect("segments come in order");
                }
                Prepared::Idle => return Ok(()),
                Prepared::Allocated { .. }
                | Prepared::Populated { .. }
                | Prepared::Marked { .. }
                | Prepared::Recycled { .. } => {}
            }
        }
    }

    pub(crate) fn append(&mut self, content: &Content) -> Result<Appended, Gone> {
        let items: Vec<Vec<u8>> = (0..content.items.max(1)).map(|item| content.item(item)).collect();
        let parts: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        loop {
            let appended = match content.items {
                0 => self.handoff.append(RecordKind::Data, parts[0]),
                _ => self.handoff.append_batch(&parts),
            };
            match appended {
                Ok(appended) => {
                    self.drain();
                    return Ok(appended);
                }
                Err(ReserveError::NotReady { .. }) => {
                    self.drain();
                    self.handoff.retire();
                    self.prepare()?;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn drain(&mut self) {
        while matches!(self.drain.poll(1000).expect("nothing is damaged").state, DrainState::More) {}
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
        (self.handoff, self.drain) = hand_off(&self.store, lsn, epoch, Chain::begin(&key, lsn));
        Ok(())
    }

    pub(crate) fn close(mut self) -> Result<(), Gone> {
        self.handoff.seal();
        self.drain();
        self.store.close(self.handoff.tail()).map_err(gone)
    }
}

fn hand_off(store: &Store<TestDisk>, tail: Lsn, epoch: Epoch, chain: Chain) -> (Arc<Handoff>, Drain) {
    let (handoff, drain) = Handoff::new(Tenure {
        geometry: store.geometry(),
        log_id: store.log_id(),
        epoch,
        tail,
        chain,
        persisted: store.persisted().lsn(),
        slots: 4,
    });
    let first = store.geometry().segment_of(tail);
    for (segment, memory) in store.ready().into_iter().filter(|(segment, _)| *segment >= first) {
        handoff.install(segment, memory).expect("segments come in order from the tail");
    }
    handoff.set_limit(Lsn(1 << 60));
    (handoff, drain)
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
