//! A backup whose missing range is released everywhere: the application's checkpoint stands for it, the log starts again.

use windlass_log::Lsn;

use super::Engine;
use crate::history::{epoch_before, trim};
use crate::{Command, Event, Persisted, Token};

impl Engine {
    pub(super) fn snapshot_installed(&mut self, at: Lsn) {
        let Some(offer) = self.snapshot.as_ref().filter(|_| !self.work_in_progress()) else { return };
        let (primary, from) = (offer.primary, offer.trimmed);
        if at < from || at > offer.tail {
            return self.core.event(Event::SnapshotNeeded { primary, from });
        }
        let mut history = offer.history.clone();
        // What was acknowledged beyond the checkpoint is still missed, unless it was another tenure's that was cut.
        let mark = self.core.state.mark.0;
        let is_kept =
            mark > at && epoch_before(&self.core.state.history, mark) == epoch_before(&history, mark);
        trim(&mut history, at);
        let core = &mut self.core;
        core.state.mark = Persisted(if is_kept { mark } else { at });
        core.state.history = history;
        core.state.trimmed = at;
        core.damage = None;
        core.witnessed.clear();
        core.log.flush = None;
        core.log.tail = at;
        core.log.persisted = Persisted(at);
        core.durable = core.durable.max(at);
        core.durable_known = core.durable_known.max(at);
        core.replicated = core.durable;
        if core.durable > at {
            core.set_tail(at);
        }
        let (token, state) = (core.token(), core.saved_state());
        core.push(Command::Reset { token, at, state });
        self.reset = Some(token);
    }

    pub(super) fn reset_saved(&mut self, token: Token) {
        if self.reset == Some(token) {
            self.reset = None;
            if let Some(offer) = self.snapshot.take() {
                self.resync = Some((offer.primary, offer.session));
                self.send_resync();
            }
        }
    }
}
