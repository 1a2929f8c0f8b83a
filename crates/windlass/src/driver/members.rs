//! Configurations of the group in the local log: found by scans, appended for the engine; and whom the control plane keeps a connection
//! with.

use slog::{info, warn};
use windlass_engine::{Change, ChangeError, Configuration, ConfigurationRecord, Input, StopReason};
use windlass_fabric::Fabric;
use windlass_log::{Lsn, RecordKind, ReserveError};
use windlass_store::disk::Disk;

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

impl<F, D, C, N, X> Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
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
                self.appending = None;
                return self.inputs.push_back(Input::ConfigurationRefused { number });
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
            Err(ReserveError::Sealed { .. } | ReserveError::Full { .. } | ReserveError::TooLarge { .. }) => {
                self.appending = None;
                self.inputs.push_back(Input::ConfigurationRefused { number });
            }
        }
    }

    /// The group has changed, or what is known of it.
    pub(super) fn configuration_changed(&mut self, configuration: &Configuration, committed: bool) {
        self.news.configured(configuration);
        let voters: Vec<String> = configuration.voters().map(|voter| voter.to_string()).collect();
        info!(self.options.logger, "configuration {}: {}", configuration.number(), voters.join(", ");
            "committed" => committed, "learner" => configuration.learner().map(|learner| learner.id.to_string()));
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
