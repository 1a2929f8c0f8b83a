//! Small worlds, all of them: every state that a few members, epochs and records can come to, over the production engine.
//!
//! A world is the members (`member.rs`), what is on its way between them (`packet.rs`), what an all-knowing oracle has seen
//! (`oracle.rs`), and how much of each kind of event was spent. `explore.rs` goes through all orders of all events.
//! Time does not pass: what it would bring about may happen at any moment. A frozen member is one at which nothing happens
//! for a while, which is among the orders; what it has posted goes on landing at the others.

pub mod explore;
mod image;
mod member;
mod oracle;
mod packet;
mod show;

use windlass_engine::Configuration;
use windlass_log::MemberId;

pub use member::Facts;

/// The bounds of a world: how often each kind of event happens at most, in total.
#[derive(Clone, Debug)]
pub struct Setting {
    pub members: u8,
    /// How many epochs are asked for, the first one among them, by whomever and whenever.
    pub epochs: u8,
    /// Appends of the application, beside the records that begin a tenure.
    pub records: u8,
    /// Deaths of a process, each at any step of its store.
    pub crashes: u8,
    /// Losses of power, each with any part of what was not flushed kept.
    pub power_losses: u8,
    /// Fabric connections that break by themselves, with and without what was on its way, and fetches that take too long.
    pub breaks: u8,
    /// Control connections that are cut and made again, with all that was on its way lost.
    pub cuts: u8,
    /// Heartbeats.
    pub beats: u8,
    /// Tenures that end by themselves, as without a quorum.
    pub resigns: u8,
    pub handovers: u8,
    /// Of the members those that are not in the group at first: the last ones.
    pub spares: u8,
    /// Changes of members that a primary is asked for.
    pub changes: u8,
    /// Whether a member is added, removed, and replaced by such a change.
    pub adds: bool,
    pub removes: bool,
    pub replaces: bool,
    /// Whether the group allows `Replicated`; every second record is then asked for at that level.
    pub replicated: bool,
    /// Operations of the store (superblock, cut, revocation, seal, grant, opening of a tenure) take effect one by one, with
    /// anything else between them; else they are done together with what asked for them, up to a death in between.
    pub store_in_steps: bool,
    /// A flush takes its time, with anything else before its end; else it is done with what asked for it.
    pub flush_apart: bool,
    /// A completion of the fabric takes its time; else it is seen when its write lands.
    pub completions_apart: bool,
    /// A notice is read some time after its write has landed.
    pub notices_apart: bool,
    /// Begin with members that have just met; else with the first member as primary, whose first record is durable everywhere.
    pub from_genesis: bool,
    /// The commit rule is broken on purpose.
    pub placed_is_durable: bool,
    /// Hold the tokens that the canonical form visits against those that an engine shows.
    pub counts_tokens: bool,
    /// Say after each step in depth how far it has come.
    pub says_how_far: bool,
    /// Orders that come to the same are gone through once (`explore/reduce.rs`).
    pub reduced: bool,
    /// What arrives in vain at first is always taken for one that says nothing new, though it may not be.
    pub absorbs_too_much: bool,
    /// Report which members and oracles were seen together, and go on behind what does not hold.
    pub lists_reached: bool,
    /// Only look at so many states.
    pub states_max: usize,
}

impl Setting {
    /// Who the group begins with.
    pub fn founders(&self) -> impl Iterator<Item = MemberId> + use<> {
        (0..self.members - self.spares).map(MemberId)
    }

    fn founding(&self, member: MemberId) -> Configuration {
        if self.founders().any(|founder| founder == member) {
            Configuration::founding(self.founders())
        } else {
            Configuration::unknown()
        }
    }

    /// Bounds that no walk comes to.
    pub fn wide() -> Setting {
        let most = u8::MAX;
        Setting {
            epochs: most,
            records: most,
            crashes: most,
            power_losses: most,
            breaks: most,
            cuts: most,
            beats: most,
            resigns: most,
            handovers: most,
            flush_apart: true,
            completions_apart: true,
            notices_apart: true,
            ..Setting::default()
        }
    }
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            members: 3,
            epochs: 2,
            records: 1,
            crashes: 0,
            power_losses: 0,
            breaks: 0,
            cuts: 0,
            beats: 0,
            resigns: 0,
            handovers: 0,
            spares: 0,
            changes: 0,
            adds: false,
            removes: false,
            replaces: false,
            replicated: false,
            store_in_steps: false,
            flush_apart: false,
            completions_apart: false,
            notices_apart: false,
            from_genesis: false,
            placed_is_durable: false,
            counts_tokens: false,
            says_how_far: false,
            reduced: false,
            absorbs_too_much: false,
            lists_reached: false,
            states_max: usize::MAX,
        }
    }
}
