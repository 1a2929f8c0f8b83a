//! The watermarks (I-1): `trimmed ≤ durable ≤ replicated ≤ tail`, readers are told of no more than `durable`, and of the peers that a primary streams to
//! `persisted ≤ placed ≤ posted ≤ tail`; those that may not go back don't. `replicated` may, by a takeover. A member that was found damaged lacks some of it until
//! its peers have sent it again. (`applied` is looked at with each record that an application is shown: [`super::shown`].)

use windlass::Lsn;
use windlass::engine::{PeerMarks, Status};

use super::{Checked, Invariant, violated};

/// Looks at a member's status, the one before in the same life, and what its readers are told to be durable.
pub(crate) fn check(member: u8, before: Option<&Status>, now: &Status, published: Lsn) -> Checked {
    let is_ordered = now.trimmed <= now.durable
        && now.durable <= now.replicated
        && (now.damaged || now.replicated <= now.tail);
    if !is_ordered || published > now.durable || !are_ordered(&now.peers, now.tail) {
        return violated(Invariant::Watermarks, format!("member {member}, published {published}: {now:?}"));
    }
    let Some(before) = before else { return Ok(()) };
    let stays =
        before.durable <= now.durable && before.trimmed <= now.trimmed && before.promised <= now.promised;
    if stays {
        Ok(())
    } else {
        violated(Invariant::Watermarks, format!("member {member} went back: {before:?} then {now:?}"))
    }
}

/// Of the peers that are streamed to, if there are any.
fn are_ordered(peers: &PeerMarks, tail: Lsn) -> bool {
    let is_ordered =
        peers.persisted.0 <= peers.placed.0 && peers.placed.0 <= peers.posted && peers.posted <= tail;
    peers.streaming == 0 || is_ordered
}

#[cfg(test)]
mod tests {
    use windlass::engine::{Persisted, Placed};

    use super::*;

    #[test]
    fn of_each_peer_what_is_persisted_was_placed_and_what_is_placed_was_posted_i1() {
        let of = |streaming: usize, persisted: u64, placed: u64, posted: u64| {
            let (persisted, placed) = (Persisted(Lsn(persisted)), Placed(Lsn(placed)));
            are_ordered(&PeerMarks { streaming, posted: Lsn(posted), placed, persisted }, Lsn(9_000))
        };
        assert!(of(1, 5_000, 5_000, 9_000) && of(2, 5_000, 6_000, 7_000));
        assert!(!of(1, 6_008, 6_000, 7_000) && !of(1, 5_000, 7_008, 7_000) && !of(1, 5_000, 6_000, 9_008));
        assert!(of(0, 3, 2, 1), "nobody");
    }
}
