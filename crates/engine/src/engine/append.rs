//! Append at the primary: batches to each peer, as large as what came while the last one was in flight.
//!
//! An idle link sends at once. While `batches_in_flight` batches of a peer are not placed, or its credits are used up, the
//! next batch grows; once it has grown to `stream_bytes` it goes out behind them all the same, so that a stream never waits for an answer.
//! A peer that is slow or gone holds nobody else up.

use windlass_log::{Lsn, MemberId};

use super::Engine;
use super::peer::Peer;
use super::tenure::Tenure;
use crate::{Acknowledgement, Command, Config, LsnRange, Notice, Placed, Session, Stall, StallCause};

/// Where the next batch of a peer ends, given how far the log is drained; `None` if there is nothing to say.
fn batch_end(config: &Config, tenure: &Tenure, peer: &Peer, drained: Lsn) -> Option<Lsn> {
    let limits = &config.limits;
    let geometry = config.geometry;
    let posted = peer.posted();
    let in_flight = u32::try_from(peer.batches_in_flight()).unwrap_or(u32::MAX);
    if !peer.is_streaming() || peer.credits(u64::from(limits.notice_slots)) == 0 {
        return None;
    }
    // Two pieces at most, inside the windows.
    let two_segments = geometry.base(geometry.segment_of(posted) + 2);
    let reachable = drained.min(peer.granted_to.max(posted)).min(two_segments);
    let is_stream = reachable.0 - posted.0 >= limits.stream_bytes;
    let most = if is_stream { limits.stream_batches_in_flight } else { 0 }.max(limits.batches_in_flight);
    if in_flight >= most {
        return None;
    }
    let end = if reachable.0 - posted.0 <= limits.batch_bytes {
        reachable
    } else {
        let most = Lsn((posted.0 + limits.batch_bytes) & !7);
        // A record end if one is known, any aligned position otherwise: the backup parses on when the rest is there.
        let floor = tenure.boundaries.floor(most);
        if floor > posted { floor } else { most }
    };
    let end = geometry.normalize(end);
    let has_bytes = end > posted;
    let is_idle = in_flight == 0;
    let has_demand = tenure.wanted.min(posted) > peer.wanted_said;
    (has_bytes || (is_idle && (has_demand || peer.nudge))).then_some(end.max(posted))
}

/// What a batch waits for that has bytes to carry and nothing in flight before it.
fn stall_cause(config: &Config, peer: &Peer, drained: Lsn) -> Option<StallCause> {
    let in_flight = u32::try_from(peer.batches_in_flight()).unwrap_or(u32::MAX);
    if !peer.is_streaming() || in_flight >= config.limits.batches_in_flight || peer.posted() >= drained {
        return None;
    }
    if peer.credits(u64::from(config.limits.notice_slots)) == 0 {
        return Some(StallCause::Credits);
    }
    (peer.posted() >= peer.granted_to).then_some(StallCause::Window)
}

impl Engine {
    pub(super) fn drained(&mut self, to: Lsn, tail: Lsn) {
        let Some(tenure) = &mut self.tenure else { return };
        if tenure.start_end.is_none() {
            return;
        }
        assert!(to >= self.core.log.tail, "the drain went back from {} to {to}", self.core.log.tail);
        assert!(to <= tail, "drained {to} beyond the reserved tail {tail}");
        tenure.reserved = tenure.reserved.max(tail);
        if to > self.core.log.tail {
            self.core.log.tail = to;
            tenure.boundaries.push(to);
            tenure.progress_at = self.core.now;
        }
    }

    pub(super) fn durable_wanted(&mut self, to: Lsn) {
        if let Some(tenure) = &mut self.tenure {
            tenure.wanted = tenure.wanted.max(to);
        }
    }

    pub(super) fn placed(&mut self, peer: MemberId, session: Session, to: Placed) {
        let geometry = self.core.config.geometry;
        let cold_end = geometry.base(geometry.segment_of(self.core.log.persisted.0));
        if let Some(peer) = self.streaming(peer, session) {
            peer.batch_placed(to, cold_end);
        }
    }

    pub(super) fn acknowledged(&mut self, from: MemberId, word: &Acknowledgement) {
        let now = self.core.now;
        if let Some(peer) = self.streaming(from, word.session)
            && !peer.acknowledged(word, now)
        {
            self.restart_session(from);
        }
    }

    /// The peer, if this is its session and it streams. Completions of anything older count nothing.
    fn streaming(&mut self, peer: MemberId, session: Session) -> Option<&mut Peer> {
        let tenure = self.tenure.as_mut()?;
        tenure.peers.get_mut(&peer).filter(|peer| peer.is_streaming() && peer.session == session)
    }

    /// Sends what can be sent to every peer.
    pub(super) fn pump_batches(&mut self) {
        let Engine { core, tenure, .. } = self;
        let Some(tenure) = tenure.as_mut().filter(|tenure| tenure.start_end.is_some()) else { return };
        let slots = u64::from(core.config.limits.notice_slots);
        let members: alloc::vec::Vec<MemberId> = tenure.peers.keys().copied().collect();
        for member in members {
            while let Some(end) = batch_end(&core.config, tenure, &tenure.peers[&member], core.log.tail) {
                let wanted = tenure.wanted;
                let Some(peer) = tenure.peers.get_mut(&member) else { break };
                let range = LsnRange::new(peer.posted(), end);
                assert!(end <= core.log.tail, "I-1: a batch up to {end}, beyond the tail {}", core.log.tail);
                let sequence = peer.post(range, slots);
                if !range.is_empty() {
                    peer.moved_at = core.now;
                }
                peer.wanted_said = wanted.min(end);
                let notice = Notice {
                    session: peer.session,
                    sequence,
                    tail: end,
                    replicated: core.replicated,
                    durable: core.durable,
                    wanted,
                };
                let slot = u32::try_from(sequence % slots).unwrap_or(0);
                core.push(Command::Replicate { peer: member, session: peer.session, range, notice, slot });
            }
            let Some(peer) = tenure.peers.get_mut(&member) else { continue };
            let cause = stall_cause(&core.config, peer, core.log.tail);
            if let Some((cause, waited_ns)) = peer.stalls(core.now, cause) {
                core.stalled(Stall { peer: member, cause, waited_ns });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::tests::opening;
    use super::*;
    use windlass_log::Epoch;

    #[test]
    fn a_batch_waits_for_what_is_missing_only_with_bytes_to_carry_and_none_before_it() {
        let mut config = opening(false, 6000, 6000, &[]).0;
        config.limits.notice_slots = 2;
        let mut peer = Peer::new(Epoch::new(1, MemberId(0)), 0);
        peer.next_session(0);
        peer.adopted(Lsn(5000), crate::Persisted(Lsn(5000)), 0);
        assert_eq!(stall_cause(&config, &peer, Lsn(6000)), None, "it does not stream");
        peer.granted_to = Lsn(8192);
        assert_eq!(stall_cause(&config, &peer, Lsn(6000)), None);
        peer.post(LsnRange::new(Lsn(5000), Lsn(8192)), 2);
        assert_eq!(stall_cause(&config, &peer, Lsn(9000)), None, "one is in flight");
        peer.batch_placed(Placed(Lsn(8192)), Lsn(0));
        assert_eq!(stall_cause(&config, &peer, Lsn(8192)), None, "there is nothing to carry");
        assert_eq!(stall_cause(&config, &peer, Lsn(9000)), Some(StallCause::Window));
        peer.granted_to = Lsn(65536);
        assert_eq!(stall_cause(&config, &peer, Lsn(9000)), None);
        peer.post(LsnRange::new(Lsn(8192), Lsn(9000)), 2);
        peer.batch_placed(Placed(Lsn(9000)), Lsn(0));
        assert_eq!(stall_cause(&config, &peer, Lsn(9040)), Some(StallCause::Credits));
    }
}
