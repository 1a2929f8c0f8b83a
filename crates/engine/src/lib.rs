//! The replication protocol of windlass as a sans-IO, deterministic state machine.
//!
//! An [`Engine`] is one member's share of the protocol: append, commit, being backup, takeover. It moves no byte, reads no
//! clock and holds no payload: it knows LSN ranges. What happens goes in as an [`Input`], what is to be done comes out as a
//! [`Command`]. The same inputs at the same times with the same seed give the same commands. DESIGN.md section 8.
//!
//! # The four families, and the order to poll them in
//!
//! 1. [`Engine::handle_input`] for each thing that happened, with the time now;
//! 2. [`Engine::handle_timeout`] when the time that [`Engine::poll_timeout`] named has come (sooner does no harm);
//! 3. after one or several of these: [`Engine::poll_command`] until it answers `None`, executing in that order;
//! 4. then [`Engine::poll_timeout`] for when to call again at the latest.
//!
//! Inputs may be handled in a batch before commands are polled. Commands that wait for something (a flush, a superblock
//! save, a revocation) carry a [`Token`] or a [`Session`] and are answered by an input; what must be durable before a
//! message leaves is enforced here: the message comes out as a command only after the answer went in.
//!
//! # A tour
//!
//! [`Config`], [`Opening`] and [`DurableState`] are what an engine starts from. [`Input`] and [`Command`] are its two
//! sides. [`Message`] is what members say on the control plane; [`Notice`], [`Heartbeat`] and [`Acknowledgement`] are the
//! slots written across the fabric. [`Placed`] and [`Persisted`] are different types; [`FenceQuorum`] and [`CommitProof`]
//! are values that only a fence and a commit can make.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod command;
mod config;
mod configuration;
mod engine;
mod history;
mod input;
mod message;
mod proof;
mod slot;
mod watermark;

pub use command::{
    Command, Event, HandoverError, LossError, PeerStatus, Refusal, Role, Session, Stall, StallCause,
    StopReason, Token, Undecided,
};
pub use config::{Config, ConfigurationRecord, DurableState, Identity, Limits, Opening, PeerRecord, Timing};
pub use configuration::{
    CONFIGURATION_BYTES_MAX, CONFIGURATION_VERSION, Change, ChangeError, Configuration,
    ConfigurationDecodeError, MemberEntry, QuorumError, Quorums, Standing,
};
pub use engine::{Engine, PeerMarks, SnapshotNeed, SnapshotState, Status};
pub use input::Input;
pub use message::{
    EPOCH_COUNTER_MAX, MESSAGE_BYTES_MAX, MESSAGE_VERSION, Mark, Message, MessageError, Summary, Witness,
};
pub use proof::{CommitProof, FenceQuorum};
pub use slot::{Acknowledgement, Heartbeat, Notice, SLOT_VERSION, SlotError};
pub use watermark::{LsnRange, Persisted, Placed};
