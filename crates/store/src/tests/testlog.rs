//! A log of one node for the tests: store, hand-off and drain joined as the facade does it, on one thread.

use std::sync::Arc;

use windlass_log::{
    Appended, Drain, DrainState, Epoch, Handoff, LogId, Lsn, MemberId, RecordKind, ReserveError,
    SEGMENT_BYTES_MIN, Tenure,
};

use crate::disk::Disk;
use crate::{
    CreateError, Founding, OpenError, Opened, Options, Persisted, PrepareError, Prepared, Read, Store,
    StoreError, Surroundings,
};

pub(crate) const AROUND: Surroundings = Surroundings { boot_id: [1; 16], incarnation: 77 };

pub(crate) fn founding() -> Founding {
    Founding {
        log_id: LogId([9; 16]),
        member: MemberId(0),
        incarnation: 5,
        segment_bytes: SEGMENT_BYTES_MIN,
        epoch: Some(Epoch::new(1, MemberId(0))),
        configuration: Vec::new(),
    }
}

pub(crate) fn options() -> Options {
    Options { retention_bytes: 4 * SEGMENT_BYTES_MIN, segments_ahead: 1, ..Options::default() }
}

/// An open log.
pub(crate) struct TestLog<D: Disk> {
    pub(crate) store: Arc<Store<D>>,
    pub(crate) opened: Opened,
    pub(crate) handoff: Arc<Handoff>,
    pub(crate) drain: Drain,
}

impl<D: Disk> TestLog<D> {
    pub(crate) fn create(disk: D) -> Result<TestLog<D>, CreateError> {
        let (store, opened) = Store::create(disk, &founding(), &AROUND, &options())?;
        Ok(TestLog::over(store, opened).expect("a log that was just made can be used"))
    }

    pub(crate) fn open(disk: D) -> Result<TestLog<D>, OpenError> {
        let (store, opened) = Store::open(disk, &AROUND, &options())?;
        Ok(TestLog::over(store, opened).expect("a log that was just opened can be used"))
    }

    pub(crate) fn try_open(
        disk: D,
        options: &Options,
    ) -> Result<Result<TestLog<D>, PrepareError>, OpenError> {
        let (store, opened) = Store::open(disk, &AROUND, options)?;
        Ok(TestLog::over(store, opened))
    }

    pub(crate) fn try_create(disk: D) -> Result<Result<TestLog<D>, PrepareError>, CreateError> {
        let (store, opened) = Store::create(disk, &founding(), &AROUND, &options())?;
        Ok(TestLog::over(store, opened))
    }

    pub(crate) fn over(store: Store<D>, opened: Opened) -> Result<TestLog<D>, PrepareError> {
        let store = Arc::new(store);
        store.begin()?;
        let epoch = opened.epoch.expect("a lone log has an epoch");
        let (handoff, drain) = hand_off(&store, opened.tail, epoch, opened.chain);
        let log = TestLog { store, opened, handoff, drain };
        log.prepare()?;
        Ok(log)
    }

    /// The helper's work, until there is none.
    pub(crate) fn prepare(&self) -> Result<(), PrepareError> {
        loop {
            match self.store.prepare_step(self.handoff.tail())? {
                Prepared::Segment { segment, memory } => {
                    self.handoff.install(segment, memory).expect("in order")
                }
                Prepared::Idle => return Ok(()),
                Prepared::Allocated { .. }
                | Prepared::Populated { .. }
                | Prepared::Marked { .. }
                | Prepared::Recycled { .. } => {}
            }
        }
    }

    /// Appends and drains; helps itself to segments.
    pub(crate) fn append(&mut self, payload: &[u8]) -> Result<Appended, PrepareError> {
        loop {
            match self.handoff.append(RecordKind::Data, payload) {
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

    pub(crate) fn flush(&self) -> Result<Persisted, StoreError> {
        self.store.flush(self.handoff.drained())
    }

    /// All payloads of data records from `from` to the drained LSN.
    pub(crate) fn payloads_from(&self, from: Lsn) -> Vec<Vec<u8>> {
        let mut reader = self.store.reader(from);
        let mut payloads = Vec::new();
        while let Read::Record(record) = reader.next(self.handoff.drained()).expect("the log is whole") {
            if record.header.kind == RecordKind::Data {
                payloads.push(record.payload.expect("not a flat scan").to_vec());
            }
        }
        payloads
    }

    pub(crate) fn payloads(&self) -> Vec<Vec<u8>> {
        self.payloads_from(self.store.trimmed())
    }

    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        self.handoff.seal();
        self.drain();
        self.store.close(self.handoff.tail())
    }
}

pub(crate) fn hand_off<D: Disk>(
    store: &Store<D>,
    tail: Lsn,
    epoch: Epoch,
    chain: Option<windlass_log::Chain>,
) -> (Arc<Handoff>, Drain) {
    let (handoff, drain) = Handoff::new(Tenure {
        geometry: store.geometry(),
        log_id: store.log_id(),
        epoch,
        tail,
        chain: chain.expect("a lone log's chain is known"),
        persisted: store.persisted().lsn(),
        slots: 4,
    });
    for (segment, memory) in store.ready() {
        handoff.install(segment, memory).expect("in order from the tail");
    }
    handoff.set_limit(Lsn(1 << 60));
    (handoff, drain)
}
