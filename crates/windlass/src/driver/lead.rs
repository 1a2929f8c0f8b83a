//! Being primary, as far as the driver is concerned: the tenure's hand-off, its segments, its seal.

use std::sync::Arc;
use std::time::Duration;

use windlass_engine::{Input, StopReason, Token};
use windlass_log::{
    Chain, Epoch, Handoff, InstallError, Lsn, RecordKind, ReserveError, Salt, Tenure as Start,
};

use crate::clock::Clock;
use crate::commit::{Failure, Stopped};
use crate::log::tenure::{Drained, Tenure, Watermarks};
use crate::metrics::Meters;

/// A tenure of this member, from the order to start it until its log is sealed.
pub(crate) struct Lead {
    pub(crate) tenure: Arc<Tenure>,
    /// The order to start, until the epoch-start record is drained.
    start: Option<Token>,
    start_end: Option<Lsn>,
    /// The order to seal, and by when.
    seal: Option<(Token, Duration)>,
    /// What the engine was told last.
    told: (Lsn, Lsn),
    /// The sealed tail, once nothing is in flight.
    sealed: Option<Lsn>,
    /// The engine has ended the tenure.
    stepped_down: bool,
    /// The tenure's failure was reported.
    is_failed: bool,
}

impl Lead {
    /// Opens a hand-off at `at`, without any segment yet.
    pub(crate) fn new(start: Start, durable: Lsn, limit: Lsn, token: Token, meters: &Arc<Meters>) -> Lead {
        let (at, persisted) = (start.tail, start.persisted);
        let (handoff, drain) = Handoff::new(start);
        handoff.set_limit(limit);
        let marks = Watermarks::member(persisted, at, durable, handoff.ready());
        let tenure = Arc::new(Tenure::new(drain, marks, Arc::clone(meters)));
        Lead {
            tenure,
            start: Some(token),
            start_end: None,
            seal: None,
            told: (at, at),
            sealed: None,
            stepped_down: false,
            is_failed: false,
        }
    }

    /// What a tenure starts from, given the log's own facts.
    pub(crate) fn start_of(
        geometry: windlass_log::Geometry,
        log_id: windlass_log::LogId,
        epoch: Epoch,
        at: Lsn,
        persisted: Lsn,
        slots: usize,
    ) -> Start {
        // The history's entry of this epoch starts here, so its chain begins here.
        let chain = Chain::begin(&Salt::new(log_id).key(epoch), at);
        Start { geometry, log_id, epoch, tail: at, chain, persisted, slots }
    }

    /// Where the epoch-start record of a tenure that starts at `at` ends at most.
    pub(crate) fn start_reach(geometry: windlass_log::Geometry, at: Lsn) -> Lsn {
        let bytes = windlass_log::SEGMENT_START_BYTES + windlass_log::Geometry::record_bytes(0);
        if geometry.room(at) >= bytes {
            Lsn(at.0 + bytes)
        } else {
            Lsn(geometry.first_record(geometry.segment_of(at) + 1).0 + bytes)
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.tenure.epoch
    }

    /// The segment to install next.
    pub(crate) fn next_segment(&self) -> u64 {
        self.tenure.handoff.geometry().segment_of(self.tenure.handoff.ready())
    }

    /// Installs the next segment. Whether there was room.
    pub(crate) fn install(&self, segment: u64, memory: windlass_log::Memory) -> bool {
        match self.tenure.handoff.install(segment, memory) {
            Ok(()) => {
                self.tenure.watermarks.ready.advance(self.tenure.handoff.ready()).wake();
                true
            }
            Err(InstallError::RingFull { .. }) => false,
        }
    }

    /// Orders the seal.
    pub(crate) fn seal(&mut self, token: Token, deadline: Duration) {
        self.tenure.handoff.seal();
        self.seal = Some((token, deadline));
    }

    /// Whether the epoch-start record is in the log.
    pub(super) fn has_started(&self) -> bool {
        self.start_end.is_some() && self.start.is_none()
    }

    /// Whether the log takes appends, or may again hand out what producers left.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Looks at what producers have published, and says what is new.
    pub(crate) fn turn(&mut self, clock: &dyn Clock, limit: Duration, meters: &Meters) -> Option<Input> {
        if let Some(token) = self.start.filter(|_| self.start_end.is_none()) {
            return self.append_start(token, clock, limit, meters);
        }
        let drained = match self.tenure.drain(clock, limit, meters) {
            Ok(drained) => drained,
            Err(failure) => return self.failed(&failure, clock.now()),
        };
        if windlass_log::planted!(R10)
            && let (Drained::Waiting(lsn), Some((token, _)), None) = (drained, self.seal, self.sealed)
        {
            self.sealed = Some(lsn);
            return Some(Input::Sealed { token, tail: lsn });
        }
        if let (Drained::Closed(tail), Some((token, _))) = (drained, self.seal) {
            self.seal = Some((token, Duration::MAX));
            self.tenure.handoff.retire();
            if self.sealed.replace(tail).is_some() {
                return None;
            }
            return Some(Input::Sealed { token, tail });
        }
        if let Some((_, deadline)) = self.seal
            && clock.now() >= deadline
        {
            return self.stuck();
        }
        let now = (self.tenure.watermarks.drained.value(), self.tenure.handoff.tail());
        if now == self.told {
            return None;
        }
        self.told = now;
        Some(Input::Drained { to: now.0, tail: now.1 })
    }

    /// Appends the epoch-start record as soon as its segment is there, and drains it.
    fn append_start(
        &mut self,
        token: Token,
        clock: &dyn Clock,
        limit: Duration,
        meters: &Meters,
    ) -> Option<Input> {
        match self.tenure.handoff.append(RecordKind::EpochStart, &[]) {
            Ok(appended) => self.start_end = Some(appended.end),
            Err(ReserveError::NotReady { .. }) => return None,
            // Sealed: superseded before it began. Full or too large can't be.
            Err(ReserveError::Sealed { .. } | ReserveError::Full { .. } | ReserveError::TooLarge { .. }) => {
                self.start = None;
                return None;
            }
        }
        match self.tenure.drain(clock, limit, meters) {
            Ok(drained) => {
                self.start = None;
                self.told = (drained.lsn(), drained.lsn());
                Some(Input::TenureStarted { token, end: drained.lsn() })
            }
            Err(failure) => self.failed(&failure, clock.now()),
        }
    }

    /// the tenure ends with a named error; R-10: a seal that can't complete ends this opening.
    fn failed(&mut self, failure: &Failure, now: Duration) -> Option<Input> {
        self.tenure.fail(failure);
        if let Some((_, deadline)) = self.seal {
            return if now >= deadline { self.stuck() } else { None };
        }
        if std::mem::replace(&mut self.is_failed, true) {
            return None;
        }
        Some(Input::Resign { reason: StopReason::StuckReservation })
    }

    /// the mapping is leaked, since a producer may still write into it.
    fn stuck(&mut self) -> Option<Input> {
        self.seal = None;
        std::mem::forget(Arc::clone(&self.tenure));
        Some(Input::Failed { reason: StopReason::SealStuck })
    }

    /// Whether nothing is in flight and nothing can follow.
    pub(crate) fn is_quiet(&self) -> bool {
        self.tenure.handoff.is_quiet()
    }

    /// The sealed tail, if the tenure is over and nothing of it is in flight.
    pub(crate) fn is_over(&self) -> Option<Lsn> {
        self.sealed.filter(|_| self.stepped_down)
    }

    /// Commits that wait end as unknown.
    pub(crate) fn step_down(&mut self) {
        self.stepped_down = true;
        self.tenure.watermarks.stop(&Stopped::Fenced(self.tenure.epoch));
    }
}
