//! What comes from peers: frames of the control plane, what sessions at either end find out, what a fetch has brought.

use slog::{info, warn};
use windlass_engine::{Identity, Input, LsnRange, Message, Refusal, Token};
use windlass_fabric::Fabric;
use windlass_log::{Lsn, MemberId};
use windlass_store::disk::Disk;

use super::executor::Executor;
use super::first_page::Held;
use super::news::Call;
use super::outgoing::{SessionError, Turn};
use super::{Driver, DriverEvent};
use crate::clock::Clock;
use crate::control::{ControlEvent, ControlPlane, Exclusion, Frame, Purpose};

impl<F, D, C, N, X> Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
    pub(super) fn take_frames(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.control.poll() {
            any = true;
            match event {
                ControlEvent::Up { peer, identity } => {
                    self.news.up(peer);
                    self.port.set_excluded(peer, None);
                    self.exclude_again(peer, identity);
                    self.sessions.control_lost(peer, &mut self.inputs);
                    self.inputs.push_back(Input::PeerUp { peer, identity });
                    self.sessions.control_up(&mut self.control, peer);
                }
                ControlEvent::Down { peer } => {
                    self.news.down(peer);
                    self.sessions.control_lost(peer, &mut self.inputs);
                    self.inputs.push_back(Input::PeerDown { peer });
                }
                // A hint for people, and not for the engine: who says so may itself have heard of less, or of more than will be committed.
                ControlEvent::Outside { by } => {
                    let exclusion = Exclusion::Outside;
                    self.port.set_excluded(by, Some(exclusion));
                    self.events.push_back(DriverEvent::Excluded { by, exclusion });
                }
                ControlEvent::Frame { peer, frame } => self.take_frame(peer, frame),
            }
        }
        any
    }

    fn take_frame(&mut self, peer: MemberId, frame: Frame) {
        match frame {
            // The control plane's own.
            Frame::Ping | Frame::Members { .. } => {}
            Frame::Engine(message) => {
                if matches!(*message, Message::Campaign { .. }) {
                    self.news.called(Call::By(peer));
                }
                self.inputs.push_back(Input::Message { peer, message });
            }
            Frame::Offer { session, purpose, endpoint } => {
                self.sessions.offered(peer, session, purpose, endpoint);
            }
            Frame::Accept { session, purpose, endpoint } => {
                if let Some(link) = self.sessions.outgoing(peer, session, purpose) {
                    let accepted = link.accepted(&endpoint);
                    self.check_outgoing(peer, session, purpose, accepted);
                }
            }
            Frame::Keys { session, purpose, slots, up_to, segments } => {
                if let Some(link) = self.sessions.outgoing(peer, session, purpose) {
                    let granted = link.granted(slots, up_to, &segments);
                    self.check_outgoing(peer, session, purpose, granted);
                }
            }
            Frame::AcknowledgeKey { session, slot } => {
                if let Some(link) = self.sessions.incoming(peer, session, Purpose::Replicate) {
                    link.set_acknowledgement_slot(slot);
                }
            }
            Frame::Excluded(exclusion) => {
                self.news.excluded(&self.options.logger, peer, exclusion);
                self.port.set_excluded(peer, Some(exclusion));
                self.events.push_back(DriverEvent::Excluded { by: peer, exclusion });
            }
            Frame::Broken { session, purpose, by_initiator: true } => {
                if self.sessions.incoming(peer, session, purpose).is_some() && !self.is_revoking() {
                    self.sessions.drop_incoming(peer, session, purpose, &mut self.inputs);
                }
            }
            Frame::Broken { session, purpose, by_initiator: false } => {
                self.sessions.drop_outgoing(peer, session, purpose, &mut self.inputs);
            }
        }
    }

    /// Tells a peer that it is kept out. The engine says so once; a peer that connects again as the same one is told again.
    pub(super) fn exclude(&mut self, peer: MemberId, refusal: Refusal) {
        self.excluded.insert(peer, refusal);
        self.control.send(peer, Frame::Excluded(refusal.into()));
    }

    fn exclude_again(&mut self, peer: MemberId, identity: Identity) {
        let is_same = |refusal: &Refusal| match Exclusion::from(*refusal) {
            Exclusion::OtherDisk { found, .. } => found == identity.incarnation,
            Exclusion::Copied { found, .. } => found == identity.opening,
            Exclusion::Configuration | Exclusion::Outside => true,
        };
        if let Some(refusal) = self.excluded.remove(&peer).filter(is_same) {
            self.exclude(peer, refusal);
        }
    }

    /// Drops an initiator's end after an error, and says so once.
    pub(super) fn check_outgoing(
        &mut self,
        peer: MemberId,
        session: windlass_engine::Session,
        purpose: Purpose,
        result: Result<(), SessionError>,
    ) {
        if let Err(error) = result {
            info!(self.options.logger, "a session to {} ended: {}", peer, error; "session" => %session);
            self.group_meters.sessions_broken.add(1);
            self.sessions.drop_outgoing(peer, session, purpose, &mut self.inputs);
            self.control.send(peer, Frame::Broken { session, purpose, by_initiator: true });
        }
    }

    pub(super) fn turn_sessions(&mut self, now: u64) {
        self.turn_outgoing(now);
        self.turn_incoming(now);
    }

    fn turn_outgoing(&mut self, now: u64) {
        let mut at = 0;
        while let Some(link) = self.sessions.outgoing.get_mut(at) {
            let (peer, session, purpose) = (link.peer, link.session, link.purpose);
            match link.turn(now) {
                Ok(None) => at += 1,
                Ok(Some(Turn::AcknowledgeKey(slot))) => {
                    self.control.send(peer, Frame::AcknowledgeKey { session, slot });
                }
                Ok(Some(Turn::Granted(up_to))) => {
                    if purpose == Purpose::Replicate {
                        self.inputs.push_back(Input::Granted { peer, session, up_to });
                    }
                }
                Ok(Some(Turn::Acknowledged(acknowledgement))) => {
                    self.inputs.push_back(Input::Acknowledged { peer, acknowledgement });
                }
                Ok(Some(Turn::PageRead(held))) => {
                    for Held { range, notice, slot } in held {
                        self.replicate(peer, session, range, &notice, slot, now);
                    }
                }
                Ok(Some(Turn::ReadsDone)) => {
                    if let Some(fetching) = link.fetching.take() {
                        self.fetched(fetching.token, fetching.range);
                    }
                }
                Err(error) => self.check_outgoing(peer, session, purpose, Err(error)),
            }
        }
    }

    fn turn_incoming(&mut self, now: u64) {
        if self.is_revoking() {
            return;
        }
        let mut at = 0;
        while let Some(link) = self.sessions.incoming.get_mut(at) {
            let (peer, session, purpose) = (link.peer, link.session, link.purpose);
            let result = link.turn(now, &mut self.frames, &mut self.inputs);
            for frame in self.frames.drain(..) {
                self.control.send(peer, frame);
            }
            match result {
                Ok(()) => at += 1,
                Err(error) => self.incoming_broke(peer, session, purpose, &error),
            }
        }
    }

    pub(super) fn incoming_broke(
        &mut self,
        peer: MemberId,
        session: windlass_engine::Session,
        purpose: Purpose,
        error: &SessionError,
    ) {
        info!(self.options.logger, "a session of {} ended: {}", peer, error; "session" => %session);
        self.group_meters.sessions_broken.add(1);
        self.sessions.drop_incoming(peer, session, purpose, &mut self.inputs);
        self.control.send(peer, Frame::Broken { session, purpose, by_initiator: false });
    }

    /// All reads of a fetch are done: verify what they brought.
    fn fetched(&mut self, token: Token, range: LsnRange) {
        let before = self.local.valid_tail();
        let input = match self.scan(Some(range.end)) {
            Ok(scanned) => {
                let is_whole = scanned.valid_tail >= range.end
                    || matches!(scanned.reason, windlass_log::StopReason::BeyondEnd { .. })
                    || is_cut_header(range.end, scanned.valid_tail);
                if is_whole && (scanned.valid_tail > before || range.is_empty()) {
                    Input::Fetched { token, valid_tail: scanned.valid_tail }
                } else if is_whole {
                    // Less than one record: more is to be asked for.
                    Input::Fetched { token, valid_tail: before }
                } else {
                    warn!(self.options.logger, "what was fetched is not valid"; "range" => %range, "cause" => %scanned.reason);
                    // The engine goes on from where it was.
                    self.local.restart(before);
                    Input::FetchFailed { token }
                }
            }
            Err(error) => {
                warn!(self.options.logger, "what was fetched can't be read"; "range" => %range, "cause" => %error);
                self.local.restart(before);
                Input::FetchFailed { token }
            }
        };
        self.inputs.push_back(input);
    }
}

/// Whether fewer bytes than a header lie between a scan's stop and the end that it was given: the rest is to be fetched.
pub(super) fn is_cut_header(end: Lsn, stop: Lsn) -> bool {
    end.0.saturating_sub(stop.0) < windlass_log::HEADER_BYTES
}
