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
    use windlass::Epoch;
    use windlass::engine::{Persisted, Placed, Role};

    use super::*;

    /// A member with something between any two of its marks.
    fn sound() -> Status {
        Status {
            role: Role::Backup,
            promised: Epoch::from_bits(2 << 8),
            primary: None,
            tail: Lsn(9_000),
            persisted: Persisted(Lsn(8_000)),
            replicated: Lsn(7_000),
            durable: Lsn(6_000),
            trimmed: Lsn(5_000),
            damaged: false,
            mark: Persisted(Lsn(8_000)),
            stopped: None,
            peers: PeerMarks::default(),
        }
    }

    /// What is said of this, behind a sound look and alone, with this told to readers.
    fn said(published: u64, change: impl Fn(&mut Status)) -> [Checked; 2] {
        let (before, mut now) = (sound(), sound());
        change(&mut now);
        [Some(&before), None].map(|before| check(1, before, &now, Lsn(published)))
    }

    #[test]
    fn each_mark_beyond_the_next_is_found_and_what_readers_are_told_beyond_durable_i1() {
        let holds = |published, change: fn(&mut Status)| said(published, change) == [Ok(()), Ok(())];
        let is_found = |published, change: fn(&mut Status), what: &str| {
            said(published, change).into_iter().all(|said| {
                said.is_err_and(|violation| {
                    violation.invariant == Invariant::Watermarks && violation.what.starts_with(what)
                })
            })
        };
        assert!(holds(6_000, |_| {}) && holds(0, |_| {}));
        assert!(is_found(6_008, |_| {}, "member 1, published 6008: "));
        assert!(holds(6_000, |now| now.durable = Lsn(7_000)));
        assert!(is_found(6_000, |now| now.durable = Lsn(7_008), "member 1, published"));
        assert!(is_found(0, |now| now.trimmed = Lsn(6_008), "member 1, published"));
        assert!(holds(6_000, |now| now.replicated = Lsn(9_000)));
        assert!(is_found(6_000, |now| now.replicated = Lsn(9_008), "member 1, published"));
        // What a damaged member has shown and lacks it has again from its peers.
        assert!(holds(6_000, |now| (now.replicated, now.damaged) = (Lsn(9_008), true)));
        let peers = |posted: u64| PeerMarks { streaming: 1, posted: Lsn(posted), ..PeerMarks::default() };
        let with_peers = |posted| said(6_000, |now| now.peers = peers(posted)).map(|said| said.is_ok());
        assert_eq!((with_peers(9_000), with_peers(9_008)), ([true; 2], [false; 2]));
    }

    #[test]
    fn what_may_not_go_back_and_does_is_found_i1() {
        let went_back = |change: fn(&mut Status)| {
            let [behind, alone] = said(0, change);
            assert!(alone.is_ok(), "{alone:?}");
            behind.is_err_and(|violation| violation.what.starts_with("member 1 went back: "))
        };
        assert!(went_back(|now| now.durable = Lsn(5_992)));
        assert!(went_back(|now| now.trimmed = Lsn(4_992)));
        assert!(went_back(|now| now.promised = Epoch::from_bits(1 << 8)));
        // A takeover may take `replicated` back, and a cut the tail.
        assert!(!went_back(|now| (now.replicated, now.tail) = (Lsn(6_000), Lsn(6_000))));
    }

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
