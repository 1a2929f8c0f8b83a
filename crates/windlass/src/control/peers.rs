//! Which connection speaks for which peer: at most one, the newest that may.
//!
//! Two live processes from copies of one folder would otherwise take turns in throwing each other out: the first one stays.

use std::collections::BTreeMap;

use windlass_engine::Identity;
use windlass_log::MemberId;

use super::Refused;

/// Counts connections; names one in [`Peers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connection(pub(crate) u64);

/// Who is connected.
#[derive(Debug)]
pub(crate) struct Peers<S> {
    made: u64,
    known: BTreeMap<MemberId, Known<S>>,
}

#[derive(Debug)]
struct Known<S> {
    identity: Identity,
    live: Option<(Connection, S)>,
}

impl<S> Peers<S> {
    pub(crate) fn new() -> Peers<S> {
        Peers { made: 0, known: BTreeMap::new() }
    }

    /// Takes a connection whose hello was judged well. What it replaces is dropped.
    pub(crate) fn admit(
        &mut self,
        peer: MemberId,
        identity: Identity,
        sender: S,
    ) -> Result<Connection, Refused> {
        if let Some(known) = self.known.get(&peer) {
            judge(peer, known, identity)?;
        }
        self.made += 1;
        let connection = Connection(self.made);
        self.known.insert(peer, Known { identity, live: Some((connection, sender)) });
        Ok(connection)
    }

    /// Notes that a connection is over. Whether it still spoke for the peer.
    pub(crate) fn remove(&mut self, peer: MemberId, connection: Connection) -> bool {
        let Some(known) = self.known.get_mut(&peer) else { return false };
        let was_live = known.live.as_ref().is_some_and(|(live, _)| *live == connection);
        if was_live {
            known.live = None;
        }
        was_live
    }

    /// Whether this connection speaks for the peer.
    pub(crate) fn is_live(&self, peer: MemberId, connection: Connection) -> bool {
        self.sender_of(peer).is_some_and(|(live, _)| *live == connection)
    }

    /// Whether this process is connected as the peer.
    pub(crate) fn is_connected(&self, peer: MemberId, identity: Identity) -> bool {
        self.known.get(&peer).is_some_and(|known| known.live.is_some() && known.identity == identity)
    }

    /// Those that speak for somebody.
    pub(crate) fn senders(&self) -> impl Iterator<Item = &S> {
        self.known.values().filter_map(|known| known.live.as_ref().map(|(_, sender)| sender))
    }

    /// The connection that speaks for a peer.
    pub(crate) fn sender_of(&self, peer: MemberId) -> Option<&(Connection, S)> {
        self.known.get(&peer)?.live.as_ref()
    }
}

/// Whether a process of this identity may take the place of the one that is known.
fn judge<S>(member: MemberId, known: &Known<S>, found: Identity) -> Result<(), Refused> {
    if found.incarnation != known.identity.incarnation {
        // A replaced disk: the engine judges that, but not while the other process lives.
        return if known.live.is_some() { Err(Refused::OtherDisk { member }) } else { Ok(()) };
    }
    let is_same = found.opening == known.identity.opening && found.nonce == known.identity.nonce;
    if is_same || found.opening > known.identity.opening {
        return Ok(());
    }
    Err(Refused::Clone { member, known: known.identity.opening, found: found.opening })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: MemberId = MemberId(2);

    fn identity(incarnation: u64, opening: u64, nonce: u64) -> Identity {
        Identity { incarnation, opening, nonce }
    }

    #[test]
    fn a_reconnection_and_a_restart_replace_the_connection() {
        let mut peers = Peers::new();
        let first = peers.admit(PEER, identity(1, 5, 9), "first").unwrap();
        let again = peers.admit(PEER, identity(1, 5, 9), "again").unwrap();
        assert!(!peers.remove(PEER, first), "replaced already: its end is no news");
        assert!(peers.is_live(PEER, again));
        let restarted = peers.admit(PEER, identity(1, 6, 10), "restarted").unwrap();
        assert_eq!(peers.sender_of(PEER), Some(&(restarted, "restarted")));
        assert!(peers.remove(PEER, restarted));
        assert_eq!(peers.sender_of(PEER), None);
    }

    #[test]
    fn a_clone_is_refused_and_the_first_stays() {
        let mut peers = Peers::new();
        let first = peers.admit(PEER, identity(1, 5, 9), ()).unwrap();
        let clone = Refused::Clone { member: PEER, known: 5, found: 5 };
        assert_eq!(peers.admit(PEER, identity(1, 5, 10), ()), Err(clone));
        let set_back = Refused::Clone { member: PEER, known: 5, found: 4 };
        assert_eq!(peers.admit(PEER, identity(1, 4, 11), ()), Err(set_back));
        assert!(peers.is_live(PEER, first));
        peers.remove(PEER, first);
        assert_eq!(peers.admit(PEER, identity(1, 4, 11), ()), Err(set_back), "also when the first is away");
    }

    #[test]
    fn kind_55_another_disk_under_the_old_name_waits_until_the_old_process_is_gone() {
        let mut peers = Peers::new();
        let first = peers.admit(PEER, identity(1, 5, 9), ()).unwrap();
        assert_eq!(peers.admit(PEER, identity(2, 1, 1), ()), Err(Refused::OtherDisk { member: PEER }));
        peers.remove(PEER, first);
        assert!(peers.admit(PEER, identity(2, 1, 1), ()).is_ok(), "then the engine judges it");
    }
}
