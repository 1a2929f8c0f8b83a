//! Control connections, and who is at their other end: members with the incarnation that the configuration names and the superblock remembers, and no
//! second process of one folder.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use windlass_log::MemberId;

use super::Engine;
use super::core::Core;
use crate::{Event, Identity, PeerRecord, Refusal, Token};

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug, Default)]
pub(super) struct Links {
    links: BTreeMap<MemberId, Link>,
}

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
struct Link {
    identity: Identity,
    state: LinkState,
    /// The identity is on its way to the superblock, for all that is known.
    is_unsaved: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkState {
    Down,
    /// Up once this save is durable.
    Meeting(Token),
    Up,
}

impl Links {
    pub(super) fn is_up(&self, peer: MemberId) -> bool {
        self.links.get(&peer).is_some_and(|link| link.state == LinkState::Up)
    }

    /// The peer's link came up with this identity. Whether it is good at once; it is not before a new identity is durable.
    fn up(&mut self, core: &mut Core, peer: MemberId, identity: Identity) -> Result<bool, Refusal> {
        let known = core.state.peers.iter().position(|record| record.member == peer);
        judge(core, &self.links, peer, identity)?;
        // It may be a member of a configuration that is not known here: each thing it says is judged by that. Who is no member leaves no trace.
        if !core.other_members().iter().any(|entry| entry.id == peer) {
            self.links.insert(peer, Link { identity, state: LinkState::Up, is_unsaved: false });
            return Ok(true);
        }
        let record =
            PeerRecord { member: peer, incarnation: identity.incarnation, opening: identity.opening };
        let is_known = match known {
            // Known, and still on its way to the superblock if the link went down or came up again meanwhile.
            Some(at) if core.state.peers[at] == record => {
                !self.links.get(&peer).is_some_and(|link| link.is_unsaved)
            }
            Some(at) => {
                core.state.peers[at] = record;
                false
            }
            None => {
                core.state.peers.push(record);
                false
            }
        };
        let state = if is_known { LinkState::Up } else { LinkState::Meeting(core.save()) };
        self.links.insert(peer, Link { identity, state, is_unsaved: !is_known });
        Ok(is_known)
    }

    /// Those that are up and of whom the superblock knows nothing, although they are members now.
    pub(super) fn guests(&self, core: &Core) -> Vec<(MemberId, Identity)> {
        let is_known = |peer: &MemberId| core.state.peers.iter().any(|record| record.member == *peer);
        let members = core.other_members();
        let links = self.links.iter().filter(|(peer, link)| link.state == LinkState::Up && !is_known(peer));
        let guests = links.filter(|(peer, _)| members.iter().any(|entry| entry.id == **peer));
        guests.map(|(peer, link)| (*peer, link.identity)).collect()
    }

    /// Takes down the links of those that are another disk than the configuration names by now, and says why: they came up before it did.
    fn take_disowned(&mut self, core: &Core) -> Vec<(MemberId, Refusal)> {
        let mut disowned = Vec::new();
        for (peer, link) in self.links.iter_mut().filter(|(_, link)| link.state != LinkState::Down) {
            if let Err(reason) = judge_disk(core, *peer, link.identity) {
                link.state = LinkState::Down;
                disowned.push((*peer, reason));
            }
        }
        disowned
    }

    fn down(&mut self, peer: MemberId) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.state = LinkState::Down;
        }
    }

    /// A save is durable: the peer that was waiting for it, if one was.
    fn saved(&mut self, token: Token) -> Option<MemberId> {
        let met = self.links.iter_mut().find(|(_, link)| link.state == LinkState::Meeting(token));
        met.map(|(peer, link)| {
            (link.state, link.is_unsaved) = (LinkState::Up, false);
            *peer
        })
    }
}

#[cfg(feature = "explore")]
impl Links {
    pub(super) fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        for link in self.links.values_mut() {
            if let LinkState::Meeting(token) = &mut link.state {
                visit(token);
            }
        }
    }
}

/// Whether it is the disk that the configuration names under its number, if one does. What was met first counts beside that: where the two differ another disk was
/// counted with under this number, and neither is taken.
fn judge_disk(core: &Core, peer: MemberId, identity: Identity) -> Result<(), Refusal> {
    let entries = core.configurations().filter_map(|configuration| configuration.member(peer));
    let named = entries.map(|entry| entry.incarnation).filter(|named| *named != 0).last();
    match named.filter(|named| *named != identity.incarnation) {
        Some(known) => Err(Refusal::OtherIncarnation { known, found: identity.incarnation }),
        None => Ok(()),
    }
}

fn judge(
    core: &Core,
    links: &BTreeMap<MemberId, Link>,
    peer: MemberId,
    identity: Identity,
) -> Result<(), Refusal> {
    if peer == core.me() {
        return Err(Refusal::Myself);
    }
    judge_disk(core, peer, identity)?;
    let Some(known) = core.state.peers.iter().find(|record| record.member == peer) else {
        return Ok(());
    };
    if known.incarnation != identity.incarnation {
        let (known, found) = (known.incarnation, identity.incarnation);
        return Err(Refusal::OtherIncarnation { known, found });
    }
    let other_process =
        |link: &Link| link.identity.opening == identity.opening && link.identity.nonce != identity.nonce;
    if identity.opening < known.opening || links.get(&peer).is_some_and(other_process) {
        return Err(Refusal::Clone { known: known.opening, found: identity.opening });
    }
    Ok(())
}

impl Engine {
    pub(super) fn peer_up(&mut self, peer: MemberId, identity: Identity) {
        match self.links.up(&mut self.core, peer, identity) {
            Ok(true) => self.link_ready(peer, false),
            Ok(false) => {}
            // A clone must not take over the original's link.
            Err(reason) => self.refuse(peer, reason),
        }
    }

    pub(super) fn refuse(&mut self, peer: MemberId, reason: Refusal) {
        if self.refused.insert(peer, reason) != Some(reason) {
            self.core.event(Event::Refused { peer, reason });
        }
    }

    /// A configuration came into force: who is another disk than it names under its number is listened to no more (kind 55).
    pub(super) fn refuse_disowned(&mut self) {
        for (peer, reason) in self.links.take_disowned(&self.core) {
            self.refuse(peer, reason);
        }
    }

    pub(super) fn peer_down(&mut self, peer: MemberId) {
        self.links.down(peer);
    }

    pub(super) fn link_saved(&mut self, token: Token) -> bool {
        let met = self.links.saved(token);
        if let Some(peer) = met {
            self.link_ready(peer, true);
        }
        met.is_some()
    }

    fn link_ready(&mut self, peer: MemberId, is_new_process: bool) {
        self.refused.remove(&peer);
        self.tenure_link_ready(peer, is_new_process);
        self.takeover_link_ready(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::tests::{core, opening};
    use super::*;
    use crate::{Change, Configuration, ConfigurationRecord};
    use windlass_log::Lsn;

    fn identity(incarnation: u64, opening: u64, nonce: u64) -> Identity {
        Identity { incarnation, opening, nonce }
    }

    #[test]
    fn guests_are_members_by_now_that_came_up_as_none() {
        let mut core = core(false);
        let mut links = Links::default();
        assert_eq!(links.up(&mut core, MemberId(1), identity(101, 1, 1)), Ok(false));
        assert_eq!(links.up(&mut core, MemberId(7), identity(107, 1, 1)), Ok(true));
        assert!(links.guests(&core).is_empty(), "one is being saved, one is no member");
        let token = core.next_token - 1;
        assert_eq!(links.saved(Token(token)), Some(MemberId(1)));
        assert!(links.guests(&core).is_empty(), "known");
        let up = |state| Link { identity: identity(102, 1, 1), state, is_unsaved: false };
        links.links.insert(MemberId(2), up(LinkState::Down));
        assert!(links.guests(&core).is_empty(), "gone");
        links.links.insert(MemberId(2), up(LinkState::Up));
        assert_eq!(links.guests(&core), [(MemberId(2), identity(102, 1, 1))]);
    }

    #[test]
    fn kind_55_a_disk_is_known_by_the_configuration_and_by_who_was_met() {
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let learns = founding.after(&Change::Add { member: MemberId(3), address: None }).unwrap();
        let votes = learns.promoted(103).unwrap();
        let record =
            |end, configuration| ConfigurationRecord { start: Lsn(end - 96), end: Lsn(end), configuration };
        let (config, opening) = opening(false, 6000, 6000, &[record(5000, learns), record(5200, votes)]);
        let mut core = Core::new(config, opening, 0);
        let mut links = Links::default();
        let other = |known, found| Err(Refusal::OtherIncarnation { known, found });
        assert_eq!(links.up(&mut core, MemberId(0), identity(1, 1, 1)), Err(Refusal::Myself));
        assert_eq!(links.up(&mut core, MemberId(3), identity(104, 1, 1)), other(103, 104));
        assert_eq!(links.up(&mut core, MemberId(3), identity(103, 1, 1)), Ok(false));
        // Of those whose disk no configuration names the first that was met counts.
        assert_eq!(links.up(&mut core, MemberId(1), identity(101, 5, 1)), Ok(false));
        assert_eq!(links.up(&mut core, MemberId(1), identity(102, 5, 1)), other(101, 102));
        let copy = |known, found| Err(Refusal::Clone { known, found });
        assert_eq!(links.up(&mut core, MemberId(1), identity(101, 5, 2)), copy(5, 5), "beside the other");
        assert_eq!(links.up(&mut core, MemberId(1), identity(101, 4, 1)), copy(5, 4), "set back");
        assert_eq!(links.up(&mut core, MemberId(1), identity(101, 5, 1)), Ok(false), "not durable yet");
        links.down(MemberId(1));
        assert_eq!(links.up(&mut core, MemberId(1), identity(101, 5, 1)), Ok(false), "nor after a new link");
        assert_eq!(links.saved(Token(core.next_token - 1)), Some(MemberId(1)));
        assert_eq!(links.up(&mut core, MemberId(1), identity(101, 5, 1)), Ok(true));
        assert_eq!(links.up(&mut core, MemberId(1), identity(101, 6, 2)), Ok(false), "opened again");
    }
}
