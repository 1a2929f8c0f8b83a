//! The state machine's own file: what an engine is made of, and where each input goes.

use alloc::collections::VecDeque;

use windlass_log::{Epoch, Lsn, MemberId};

use crate::{Command, Config, Input, Opening, Persisted, Role};

/// One member's share of the replication protocol. See the crate's documentation for the order of the calls.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    commands: VecDeque<Command>,
    opening: Opening,
}

/// Where an engine stands, for metrics and for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The role.
    pub role: Role,
    /// The highest epoch promised.
    pub promised: Epoch,
    /// Who is followed, if anybody (as primary: this member).
    pub primary: Option<MemberId>,
    /// The drained tail as primary, the valid tail otherwise.
    pub tail: Lsn,
    /// On this member's medium.
    pub persisted: Persisted,
    /// Watermark.
    pub replicated: Lsn,
    /// Watermark.
    pub durable: Lsn,
    /// Released below.
    pub trimmed: Lsn,
}

impl Engine {
    /// An engine for a member whose folder has just been opened. It starts as a backup that hears nobody.
    ///
    /// # Panics
    ///
    /// If the configuration is impossible (this member is no voter, a limit is zero, …) or the opening contradicts
    /// itself (a valid tail below the trim point, a log with an epoch above the promised one: R-5).
    #[must_use]
    pub fn new(config: Config, opening: Opening, now: u64) -> Engine {
        config.check();
        let _ = now;
        Engine { config, commands: VecDeque::new(), opening }
    }

    /// Something happened at `now`, nanoseconds of a monotonic clock that never goes back between two calls.
    pub fn handle_input(&mut self, now: u64, input: Input) {
        let _ = (now, input);
    }

    /// The time that [`Engine::poll_timeout`] named has come. Calling it early or often does no harm.
    pub fn handle_timeout(&mut self, now: u64) {
        let _ = now;
    }

    /// The next thing to do, in order; `None` if there is nothing until the next input or timeout.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// When [`Engine::handle_timeout`] is to be called at the latest; `None` for never.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        None
    }

    /// Where this engine stands.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            role: Role::Backup,
            promised: self.opening.state.promised,
            primary: None,
            tail: self.opening.valid_tail,
            persisted: Persisted(self.opening.valid_tail),
            replicated: self.opening.state.trimmed,
            durable: self.opening.state.trimmed,
            trimmed: self.opening.state.trimmed,
        }
    }

    /// What this engine was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}
