//! A log of one node for tests: store, hand-off and drain joined as the facade does it, on one thread.

use std::sync::Arc;

use windlass_log::{
    Appended, Chain, Drain, DrainState, Epoch, Handoff, Lsn, RecordKind, ReserveError, Tenure,
};

use crate::disk::Disk;
use crate::{Opened, PrepareError, Prepared, Store, StoreError};

/// An open log.
#[derive(Debug)]
pub struct LoneLog<D: Disk> {
    /// Its store.
    pub store: Arc<Store<D>>,
    /// What its opening has found.
    pub opened: Opened,
    /// Where records are appended.
    pub handoff: Arc<Handoff>,
    /// What makes them count.
    pub drain: Drain,
}

impl<D: Disk> LoneLog<D> {
    /// Begins a session of an opened log, with room to append.
    ///
    /// # Errors
    ///
    /// The disk's.
    ///
    /// # Panics
    ///
    /// If it is no log of one node.
    pub fn over(store: Store<D>, opened: Opened) -> Result<LoneLog<D>, PrepareError> {
        let store = Arc::new(store);
        store.begin()?;
        let epoch = opened.epoch.expect("a lone log has an epoch");
        let chain = opened.chain.expect("a lone log's chain is known");
        let (handoff, drain) = hand_off(&store, opened.tail, epoch, chain);
        let log = LoneLog { store, opened, handoff, drain };
        log.prepare()?;
        Ok(log)
    }

    /// The helper's work, until there is none, and what is ready installed.
    ///
    /// # Errors
    ///
    /// The disk's.
    pub fn prepare(&self) -> Result<(), PrepareError> {
        while !matches!(self.store.prepare_step(self.handoff.tail())?, Prepared::Idle) {}
        install(&self.store, &self.handoff);
        Ok(())
    }

    /// Appends a record and drains; helps itself to segments.
    ///
    /// # Errors
    ///
    /// The disk's.
    ///
    /// # Panics
    ///
    /// If the log takes none.
    pub fn append(&mut self, payload: &[u8]) -> Result<Appended, PrepareError> {
        self.append_by(|handoff| handoff.append(RecordKind::Data, payload))
    }

    /// Appends in this way and drains; helps itself to segments.
    ///
    /// # Errors
    ///
    /// The disk's.
    ///
    /// # Panics
    ///
    /// If the log takes none.
    pub fn append_by(
        &mut self,
        append: impl Fn(&Handoff) -> Result<Appended, ReserveError>,
    ) -> Result<Appended, PrepareError> {
        loop {
            match append(&self.handoff) {
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

    /// Drains all that is published.
    ///
    /// # Panics
    ///
    /// If something is damaged.
    pub fn drain(&mut self) {
        while matches!(self.drain.poll(1000).expect("nothing is damaged").state, DrainState::More) {}
    }

    /// Closes it.
    ///
    /// # Errors
    ///
    /// The disk's.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.handoff.seal();
        self.drain();
        self.store.close(self.handoff.tail())
    }
}

/// What appends to a log from its tail on.
///
/// # Panics
///
/// If the store's segments don't come in order.
pub fn hand_off<D: Disk>(store: &Store<D>, tail: Lsn, epoch: Epoch, chain: Chain) -> (Arc<Handoff>, Drain) {
    let (handoff, drain) = Handoff::new(Tenure {
        geometry: store.geometry(),
        log_id: store.log_id(),
        epoch,
        tail,
        chain,
        persisted: store.persisted().lsn(),
        slots: 4,
    });
    install(store, &handoff);
    handoff.set_limit(Lsn(1 << 60));
    (handoff, drain)
}

/// Installs what is ready, as far as the hand-off has room: a loss of power can leave more segments behind the tail than it holds.
///
/// # Panics
///
/// If the store's segments don't come in order.
pub fn install<D: Disk>(store: &Store<D>, handoff: &Handoff) {
    for (segment, memory) in store.ready() {
        let next = store.geometry().segment_of(handoff.ready());
        if segment >= next && handoff.install(segment, memory).is_err() {
            return;
        }
    }
}
