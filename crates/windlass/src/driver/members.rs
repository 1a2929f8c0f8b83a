//! Configurations of the group in the local log: found by scans, appended for the engine; and whom the control plane keeps a connection
//! with.

use slog::{info, warn};
use windlass_engine::{Change, ChangeError, Configuration, ConfigurationRecord, Input, Role, StopReason};
use windlass_fabric::Fabric;
use windlass_log::{Lsn, RecordKind, ReserveError};
use windlass_store::disk::Disk;

use super::answer::Answer;
use super::executor::Executor;
use super::local::Scanned;
use super::memory::SegmentError;
use super::{Driver, lead::Lead};
use crate::clock::Clock;
use crate::control::ControlPlane;

/// A configuration record as it lies in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RawConfiguration {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) payload: Vec<u8>,
}

impl RawConfiguration {
    /// What it says, with its place.
    pub(crate) fn decode(&self) -> Result<ConfigurationRecord, windlass_engine::ConfigurationDecodeError> {
        let configuration = Configuration::decode(&self.payload)?;
        Ok(ConfigurationRecord { start: self.start, end: self.end, configuration })
    }
}

/// Why a change of the group that was asked for is not known to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChangeFailure {
    /// Nothing has happened.
    Refused(ChangeError),
    /// The log took no record: it is full. Nothing has happened.
    Full { tail: Lsn, limit: Lsn },
    /// The tenure ended first: the configuration of this number may be committed by the next one, or not.
    Unknown { number: u64 },
}

/// A change that somebody waits for.
#[derive(Debug)]
pub(super) struct Waiting {
    change: Change,
    /// What it makes of the configuration.
    next: Configuration,
    answer: Answer<Result<Configuration, ChangeFailure>>,
}

impl<F, D, C, N, X> Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
    /// Asks the engine for a change of the group. One at a time is waited for.
    pub(super) fn ask_change(
        &mut self,
        change: Change,
        answer: Answer<Result<Configuration, ChangeFailure>>,
    ) {
        let checked = match &self.waiting {
            Some(waiting) => Err(ChangeError::Pending { number: waiting.next.number() }),
            None => self.check_change(&change),
        };
        match checked {
            Ok(next) => {
                self.inputs.push_back(Input::Change(change));
                self.waiting = Some(Waiting { change, next, answer });
            }
            Err(refused) => answer.give(Err(ChangeFailure::Refused(refused))),
        }
    }

    fn answer_change(&mut self, answer: Result<Configuration, ChangeFailure>) {
        if let Some(waiting) = self.waiting.take() {
            waiting.answer.give(answer);
        }
    }

    /// The engine, or the log, does not make this change.
    pub(super) fn change_refused(&mut self, change: &Change, reason: ChangeError) {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.change == *change) {
            self.answer_change(Err(ChangeFailure::Refused(reason)));
        }
    }

    fn configuration_refused(&mut self, number: u64, failure: ChangeFailure) {
        self.appending = None;
        self.inputs.push_back(Input::ConfigurationRefused { number });
        if self.waiting.as_ref().is_some_and(|waiting| waiting.next.number() == number) {
            self.answer_change(Err(failure));
        }
    }

    /// Whoever waits for a change is told once it is committed, or can't be committed by this tenure any more. The engine has seen it.
    pub(super) fn settle_change(&mut self) {
        let Some(waiting) = &self.waiting else { return };
        let (newest, committed) = (self.engine.configuration(), self.engine.is_configuration_committed());
        // But for the disks that it names: a voter may have been met since it was asked for.
        if newest.is_alike(&waiting.next) && committed {
            let next = newest.clone();
            return self.answer_change(Ok(next));
        }
        if self.engine.status().role != Role::Primary {
            let number = waiting.next.number();
            self.answer_change(Err(ChangeFailure::Unknown { number }));
        }
    }

    /// Scans the local log, and tells the engine of the configurations that it meets, before it hears how far the log goes.
    pub(super) fn scan(&mut self, until: Option<Lsn>) -> Result<Scanned, SegmentError> {
        let scanned = self.local.scan(&self.fabric, until);
        for raw in self.local.take_configurations() {
            match raw.decode() {
                Ok(found) => self.inputs.push_back(Input::ConfigurationFound(found)),
                Err(error) => {
                    warn!(self.options.logger, "a configuration record can't be read"; "lsn" => %raw.start, "cause" => %error);
                    let reason = StopReason::ConfigurationUnreadable { at: raw.start };
                    self.inputs.push_back(Input::Failed { reason });
                }
            }
        }
        scanned
    }

    /// Appends the configuration that is waiting, if the log takes it now.
    pub(super) fn append_configuration(&mut self) {
        let Some(configuration) = &self.appending else { return };
        let number = configuration.number();
        let appended = match self.lead.as_ref().filter(|lead| lead.takes_records()) {
            Some(lead) => lead.tenure.handoff.append(RecordKind::Configuration, &configuration.encode()),
            None => {
                let failure = ChangeFailure::Refused(ChangeError::NotPrimary);
                return self.configuration_refused(number, failure);
            }
        };
        match appended {
            Ok(appended) => {
                let (start, end) = (appended.start, appended.end);
                if let Some(configuration) = self.appending.take() {
                    self.inputs.push_back(Input::ConfigurationFound(ConfigurationRecord {
                        start,
                        end,
                        configuration,
                    }));
                    self.inputs.push_back(Input::DurableWanted { to: end });
                }
            }
            // The next segment is being made.
            Err(ReserveError::NotReady { .. }) => {}
            Err(ReserveError::Sealed { .. } | ReserveError::TooLarge { .. }) => {
                let failure = ChangeFailure::Refused(ChangeError::NotPrimary);
                self.configuration_refused(number, failure);
            }
            Err(ReserveError::Full { tail, limit }) => {
                self.configuration_refused(number, ChangeFailure::Full { tail, limit });
            }
        }
    }

    /// The group has changed, or what is known of it.
    pub(super) fn configuration_changed(&mut self, configuration: &Configuration, committed: bool) {
        self.news.configured(configuration);
        self.port.set_configuration(configuration, committed);
        let voters: Vec<String> = configuration.voters().map(|voter| voter.to_string()).collect();
        let learner =
            configuration.learner().map_or_else(|| String::from("nobody"), |learner| learner.id.to_string());
        info!(self.options.logger, "configuration {}: {}", configuration.number(), voters.join(", ");
            "committed" => committed, "learner" => learner);
    }

    /// The newest configuration of this member's log, and whether it is known to be committed.
    #[must_use]
    pub fn configuration(&self) -> (&Configuration, bool) {
        (self.engine.configuration(), self.engine.is_configuration_committed())
    }

    /// What a change would make of the configuration now; [`Driver::ask`] for it with [`Input::Change`].
    ///
    /// # Errors
    ///
    /// [`ChangeError`]: why it can't be made.
    pub fn check_change(&self, change: &Change) -> Result<Configuration, ChangeError> {
        if self.appending.is_some() {
            return Err(ChangeError::Pending { number: self.engine.configuration().number() + 1 });
        }
        self.engine.check_change(change)
    }
}

impl Lead {
    /// Whether its tenure has begun and its log is not sealed.
    fn takes_records(&self) -> bool {
        self.has_started() && !self.is_sealed()
    }
}
