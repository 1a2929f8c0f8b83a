//! An engine among peers that say whatever they like: messages, slots, notices and grants in any order, of any epoch, true or
//! not, while its own driver does its work. A lying peer may keep a group from working; it must not bring a member down.
//!
//! ```text
//!  input  | group size | event (what, four bytes) ...
//! ```

use std::collections::VecDeque;

use windlass_engine::{
    Acknowledgement, Change, Command, Config, Configuration, ConfigurationRecord, DurableState, Engine,
    Heartbeat, Identity, Input as Happened, Limits, LsnRange, Mark, Message, Notice, Opening, Persisted,
    Placed, Quorums, Role, Session, StopReason, Summary, Timing, Token, Witness,
};
use windlass_log::{Epoch, EpochHistory, Geometry, HEADER_BYTES, Lsn, MemberId, SEGMENT_BYTES_MIN};

use crate::input::Input;

const ME: MemberId = MemberId(0);
const MS: u64 = 1_000_000;
/// The most events of one input.
const EVENTS_MAX: usize = 120;

/// The events in `data`, one after the other.
pub fn engine_peers(data: &[u8]) {
    run(data, |_| {});
}

/// Runs the events; `seen` sees the member after each.
fn run(data: &[u8], mut seen: impl FnMut(&Member)) {
    let mut input = Input::new(data);
    let mut member = Member::new(input.u8());
    for _ in 0..EVENTS_MAX {
        if input.is_empty() {
            return;
        }
        let event = Event { what: input.u8(), who: input.u8(), choice: input.u8(), number: input.u16() };
        member.event(&event);
        member.poll();
        seen(&member);
    }
}

/// A few numbers that decide what happens.
struct Event {
    what: u8,
    who: u8,
    choice: u8,
    number: u16,
}

/// An engine and a driver that does what it is asked, sooner or later.
struct Member {
    engine: Engine,
    geometry: Geometry,
    peers: Vec<MemberId>,
    now: u64,
    tail: Lsn,
    is_open: bool,
    /// Commands that take effect in their order, and others.
    serial: VecDeque<Command>,
    free: VecDeque<Command>,
    sessions: Vec<Session>,
    commits: u64,
}

impl Member {
    fn new(size: u8) -> Member {
        let geometry = Geometry::new(SEGMENT_BYTES_MIN).expect("the smallest");
        let voters: Vec<MemberId> = (0..[3, 5, 2, 1][usize::from(size % 4)]).map(MemberId).collect();
        let config = Config {
            me: ME,
            identity: Identity { incarnation: 1, opening: 1, nonce: 1 },
            founding: Configuration::founding(voters.iter().copied()),
            geometry,
            replicated_allowed: size & 4 == 0,
            seed: 1,
            timing: Timing::default(),
            limits: Limits { retention_bytes: 4 * SEGMENT_BYTES_MIN, ..Limits::default() },
        };
        let state = DurableState::genesis(geometry);
        let tail = state.trimmed;
        let engine = Engine::new(config, Opening { state, valid_tail: tail }, 0);
        let peers = voters.into_iter().filter(|voter| *voter != ME).collect();
        let mut member = Member {
            engine,
            geometry,
            peers,
            now: 0,
            tail,
            is_open: false,
            serial: VecDeque::new(),
            free: VecDeque::new(),
            sessions: Vec::new(),
            commits: 0,
        };
        member.poll();
        member
    }

    fn tell(&mut self, happened: Happened) {
        self.engine.handle_input(self.now, happened);
    }

    /// Takes what the engine asks for.
    fn poll(&mut self) {
        while let Some(command) = self.engine.poll_command() {
            match command {
                Command::Save { .. }
                | Command::Cut { .. }
                | Command::Reset { .. }
                | Command::Revoke { .. }
                | Command::StartTenure { .. }
                | Command::Seal { .. } => self.serial.push_back(command),
                Command::Flush { .. }
                | Command::Parse { .. }
                | Command::Fetch { .. }
                | Command::AppendConfiguration(_)
                | Command::Members(_)
                | Command::Replicate { .. }
                | Command::Acknowledge { .. } => self.free.push_back(command),
                Command::Connect { session, .. } | Command::Grant { session, .. } => {
                    self.sessions.push(session);
                    self.free.push_back(command);
                }
                Command::StepDown { .. } => self.is_open = false,
                Command::Committed(_) => self.commits += 1,
                Command::Send { .. }
                | Command::Trim { .. }
                | Command::Disconnect { .. }
                | Command::Beat { .. }
                | Command::Ungrant { .. }
                | Command::Learned { .. }
                | Command::GrantRead { .. }
                | Command::Event(_) => {}
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let peer = self.peers.get(usize::from(event.who) % self.peers.len().max(1)).copied();
        match (event.what % 16, peer) {
            (0..=2, _) => self.finish_serial(),
            (3..=5, _) => self.finish_free(event),
            (6, _) => {
                self.now += u64::from(event.number % 1024) * MS;
                self.engine.handle_timeout(self.now);
            }
            (7, _) => self.local(event),
            (_, None) => {}
            (8, Some(peer)) => {
                let odd = u64::from(event.choice % 8 == 7);
                let identity =
                    Identity { incarnation: 2 + odd, opening: 1 + odd, nonce: u64::from(event.choice / 64) };
                self.tell(Happened::PeerUp { peer, identity });
            }
            (9, Some(peer)) if event.choice.is_multiple_of(4) => self.tell(Happened::PeerDown { peer }),
            (9, Some(peer)) => {
                let session = self.session(event);
                self.tell(Happened::FabricDown { peer, session });
            }
            (10, Some(peer)) => self.slots(peer, event),
            (_, Some(peer)) => {
                // By way of its bytes: what decoding refuses never arrives.
                if let Ok(message) = Message::decode(&self.message(peer, event).encode()) {
                    self.tell(Happened::Message { peer, message: Box::new(message) });
                }
            }
        }
    }

    // ---- what peers say --------------------------------------------------------------------------------------------

    /// An epoch near those that matter.
    fn epoch(&self, event: &Event) -> Epoch {
        let promised = self.engine.status().promised;
        let member = MemberId(event.who % 6);
        match event.choice % 8 {
            0 => Epoch::NONE,
            1..=3 => promised,
            4..=5 => higher(promised, member),
            6 => Epoch::new(1 + u64::from(event.number % 16), member),
            _ if event.number & 1 == 0 => Epoch::from_bits(u64::MAX - u64::from(event.number)),
            _ => Epoch::from_bits(u64::from(event.number) << 40 | u64::from(event.who)),
        }
    }

    fn session(&self, event: &Event) -> Session {
        let known =
            self.sessions.len().checked_sub(1 + usize::from(event.who / 64)).map(|at| self.sessions[at]);
        match known {
            Some(session) if event.choice & 16 == 0 => session,
            Some(_) | None => Session { epoch: self.epoch(event), attempt: u32::from(event.choice / 32) },
        }
    }

    /// A position near those that matter, a record's end or not.
    fn lsn(&self, event: &Event) -> Lsn {
        let status = self.engine.status();
        match event.number % 12 {
            0 | 1 => status.tail,
            2 => status.durable,
            3 => status.persisted.0,
            4 => self.geometry.first_record(0),
            5 => Lsn(status.tail.0 + u64::from(event.number & !7)),
            6 => Lsn(status.tail.0.saturating_sub(u64::from(event.number & !7))),
            7 => self.geometry.base(u64::from(event.number / 12 % 64)),
            8 => Lsn(u64::from(event.number)),
            9 => Lsn(0),
            10 => Lsn(u64::MAX - u64::from(event.number)),
            _ => Lsn(u64::from(event.number) << 46),
        }
    }

    fn history(&self, event: &Event) -> EpochHistory {
        let mut history = EpochHistory::new();
        let starts = [self.geometry.first_record(0), self.lsn(event), Lsn(self.engine.status().tail.0 + 8)];
        let epoch = self.epoch(event);
        for (start, step) in starts.into_iter().zip(0..) {
            if event.who >> step & 1 == 0 {
                // What does not follow is left out, as decoding would refuse it.
                let _ = history.extend(Epoch::from_bits(epoch.to_bits().wrapping_add(step << 8)), start);
            }
        }
        history
    }

    fn summary(&self, event: &Event) -> Summary {
        if event.choice & 64 != 0 {
            // A member whose log is empty, as at the beginning.
            let start = self.geometry.first_record(0);
            let nothing = Mark { epoch: Epoch::NONE, lsn: start };
            return Summary {
                last_epoch: Epoch::NONE,
                valid_tail: start,
                trimmed: start,
                mark: nothing,
                memory_lost: false,
                durable: nothing,
                witnessed: Vec::new(),
                history: EpochHistory::new(),
                configurations: self.configurations(event),
            };
        }
        let (epoch, lsn) = (self.epoch(event), self.lsn(event));
        let mark = Mark { epoch, lsn };
        let witnesses = self.peers.iter().chain([&ME]).map(|member| Witness { member: *member, mark });
        Summary {
            last_epoch: epoch,
            valid_tail: if event.who & 8 == 0 { lsn } else { self.tail },
            trimmed: if event.who & 16 == 0 { self.geometry.first_record(0) } else { lsn },
            mark,
            memory_lost: event.who & 32 != 0,
            durable: if event.who & 64 == 0 { Mark { epoch: Epoch::NONE, lsn: Lsn(0) } } else { mark },
            witnessed: if event.who & 128 == 0 { Vec::new() } else { witnesses.collect() },
            history: self.history(event),
            configurations: self.configurations(event),
        }
    }

    /// The group's founding configuration, and perhaps another one somewhere in the log.
    fn configurations(&self, event: &Event) -> Vec<ConfigurationRecord> {
        let founding = self.engine.config().founding.clone();
        let change = match event.who % 4 {
            0 => Change::Remove { member: ME },
            1 => Change::Add { member: MemberId(200), address: None },
            2 => Change::Quorums { quorums: Quorums::Sizes { write: 2, takeover: 2 } },
            _ => Change::Remove { member: MemberId(1) },
        };
        let start = self.lsn(event);
        let end = Lsn(start.0.saturating_add(96));
        let next =
            founding.after(&change).map(|configuration| ConfigurationRecord { start, end, configuration });
        let first = ConfigurationRecord::founding(founding);
        match (event.choice & 128, next) {
            (0, _) | (_, Err(_)) => vec![first],
            (_, Ok(next)) if event.who & 64 == 0 => vec![first, next],
            (_, Ok(next)) => vec![next],
        }
    }

    fn message(&self, peer: MemberId, event: &Event) -> Message {
        let (epoch, session, lsn) = (self.epoch(event), self.session(event), self.lsn(event));
        let flag = event.choice & 32 == 0;
        let adopted =
            Session { epoch: if flag { higher(epoch, peer) } else { epoch }, attempt: u32::from(event.who) };
        match event.what / 16 {
            0 => Message::PreVote { epoch, configuration: u64::from(event.who & 3) },
            1 => Message::PreVoteReply { epoch, granted: flag, promised: epoch },
            2 => Message::Fence {
                epoch: if flag { higher(epoch, peer) } else { epoch },
                configuration: u64::from(event.who & 3),
            },
            3 | 4 => Message::Promise { epoch, summary: self.summary(event) },
            5 => Message::Rejected { epoch, promised: higher(epoch, peer) },
            6 => Message::Working { epoch, progress: u64::from(event.number) },
            7 => Message::Campaign { epoch },
            8 | 9 => Message::Adopt {
                session: adopted,
                history: self.history(event),
                tail: lsn,
                trimmed: if event.who & 1 == 0 { self.geometry.first_record(0) } else { lsn },
                durable: if event.who & 2 == 0 { self.geometry.first_record(0) } else { lsn },
                configurations: self.configurations(event),
            },
            10 => Message::Adopted { session, valid_tail: lsn, persisted: Persisted(lsn) },
            11 if event.number.is_multiple_of(4) => Message::Keep { epoch, from: lsn },
            11 => Message::SnapshotNeeded { session, valid_tail: lsn },
            12 if event.number.is_multiple_of(8) => {
                Message::NotAMember { configuration: u64::from(event.who & 3) }
            }
            12 => Message::Resync { session },
            13 => Message::Alive { epoch, sequence: u64::from(event.number), pending_ns: 0, drained: lsn },
            14 => Message::AliveReply { epoch, sequence: u64::from(event.number) },
            _ => {
                let end = Lsn(lsn.0.saturating_add(u64::from(event.number)));
                Message::FetchRequest { session: adopted, range: LsnRange { start: lsn, end } }
            }
        }
    }

    /// What a peer wrote into a slot that it may write.
    fn slots(&mut self, peer: MemberId, event: &Event) {
        let (session, lsn, sequence) = (self.session(event), self.lsn(event), u64::from(event.number));
        match event.what / 16 % 4 {
            0 => {
                let acknowledgement = Acknowledgement {
                    session,
                    sequence,
                    consumed: u64::from(event.number % 40),
                    valid_tail: lsn,
                    persisted: Persisted(lsn),
                    heartbeat: sequence,
                };
                self.tell(Happened::Acknowledged { peer, acknowledgement });
            }
            1 => {
                let sequence = u64::from(event.number % 40);
                let notice =
                    Notice { session, sequence, tail: lsn, replicated: lsn, durable: lsn, wanted: lsn };
                let notice = (event.choice & 64 == 0).then_some(notice);
                self.tell(Happened::Notice { session, notice });
            }
            2 => {
                let heartbeat = Heartbeat {
                    session,
                    sequence,
                    drained: lsn,
                    tail: lsn,
                    replicated: lsn,
                    durable: lsn,
                    trimmed: lsn,
                    pending_ns: u64::from(event.choice) << 26,
                };
                self.tell(Happened::Heartbeat { heartbeat });
            }
            _ => {
                let up_to = self.geometry.base(u64::from(event.number % 64));
                self.tell(Happened::Granted { peer, session, up_to });
            }
        }
    }

    // ---- what the driver does ----------------------------------------------------------------------------------------

    #[expect(clippy::wildcard_enum_match_arm, reason = "`poll` has sorted them")]
    fn finish_serial(&mut self) {
        let Some(command) = self.serial.pop_front() else { return };
        match command {
            Command::Save { token, .. } => self.tell(Happened::Saved { token }),
            Command::Cut { token, at, .. } | Command::Reset { token, at, .. } => {
                self.tail = at;
                self.tell(Happened::Saved { token });
            }
            Command::Revoke { token } => self.tell(Happened::Revoked { token, valid_tail: self.tail }),
            Command::StartTenure { token, at, .. } => {
                assert_eq!(at, self.tail, "a tenure starts at the valid tail");
                self.tail = self.behind(at, HEADER_BYTES);
                self.is_open = true;
                self.tell(Happened::TenureStarted { token, end: self.tail });
            }
            Command::Seal { token } => {
                self.is_open = false;
                self.tell(Happened::Sealed { token, tail: self.tail });
            }
            other => unreachable!("not a serial command: {other:?}"),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "`poll` has sorted them")]
    fn finish_free(&mut self, event: &Event) {
        let Some(command) = self.free.pop_front() else { return };
        let is_good = event.choice % 8 != 7;
        match command {
            Command::Flush { token, to } => self.tell(Happened::Flushed { token, persisted: Persisted(to) }),
            Command::Parse { token, to } => {
                self.receive(token, to, event, |token, valid_tail| Happened::Parsed { token, valid_tail });
            }
            Command::Fetch { token, range, .. } if is_good => {
                self.receive(token, range.end, event, |token, valid_tail| Happened::Fetched {
                    token,
                    valid_tail,
                });
            }
            Command::Fetch { token, .. } => self.tell(Happened::FetchFailed { token }),
            Command::Connect { peer, session } if is_good => {
                let ahead = [1, 2, 0, 9][usize::from(event.choice / 64)];
                let up_to = self.geometry.base(self.geometry.segment_of(self.tail) + ahead);
                self.tell(Happened::Granted { peer, session, up_to });
            }
            Command::Replicate { peer, session, range, .. } if is_good => {
                self.tell(Happened::Placed { peer, session, to: Placed(range.end) });
            }
            Command::Connect { peer, session } | Command::Replicate { peer, session, .. } => {
                self.tell(Happened::FabricDown { peer, session });
            }
            Command::Grant { token, .. } => self.tell(Happened::GrantDone { token }),
            Command::Acknowledge { acknowledgement, .. } => {
                self.tell(Happened::AcknowledgeDone { session: acknowledgement.session });
            }
            other => unreachable!("not a free command: {other:?}"),
        }
    }

    /// Finds some of the records up to `to` valid: those of a peer that lies need not be there.
    fn receive(&mut self, token: Token, to: Lsn, event: &Event, answer: fn(Token, Lsn) -> Happened) {
        let records = u64::from(event.number % 8);
        for _ in 0..records {
            let end = self.behind(self.tail, HEADER_BYTES + u64::from(event.choice & !7));
            if end <= to {
                self.tail = end;
            }
        }
        if event.choice & 1 == 0
            && to > self.tail
            && self.geometry.normalize(to) == to
            && to.0.is_multiple_of(8)
        {
            self.tail = to;
        }
        self.tell(answer(token, self.tail));
    }

    /// Where the record behind one of `bytes` bytes starts.
    fn behind(&self, lsn: Lsn, bytes: u64) -> Lsn {
        let start = if self.geometry.room(lsn) < bytes {
            self.geometry.first_record(self.geometry.segment_of(lsn) + 1)
        } else {
            lsn
        };
        self.geometry.record_end(start, bytes)
    }

    /// The application and the operator.
    fn local(&mut self, event: &Event) {
        let is_primary = self.is_open && self.engine.status().role == Role::Primary;
        match event.choice % 8 {
            0..=2 if is_primary => {
                self.tail = self.behind(self.tail, HEADER_BYTES + u64::from(event.number & !7) % 4096);
                self.tell(Happened::Drained { to: self.tail, tail: self.tail });
            }
            3 if is_primary => self.tell(Happened::DurableWanted { to: self.tail }),
            4 => self.tell(Happened::Trim { to: self.engine.status().durable }),
            5 if is_primary => {
                let to = MemberId(event.who % 6);
                if event.number.is_multiple_of(2) {
                    self.tell(Happened::Handover { to });
                } else {
                    self.tell(Happened::Resign { reason: StopReason::Asked });
                }
            }
            6 => self.tell(Happened::AcceptMemoryLoss),
            _ => self.tell(Happened::Suspect),
        }
    }
}

/// A higher epoch of this member, as a peer might make it up: there is no limit that it keeps.
fn higher(epoch: Epoch, member: MemberId) -> Epoch {
    Epoch::from_bits((epoch.to_bits() & !0xff).saturating_add(0x100) | u64::from(member.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The roles that a seed goes through, and how often a watermark moved.
    fn course(seed: &str) -> (Vec<Role>, u64) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/engine_peers").join(seed);
        let data = std::fs::read(path).unwrap();
        let (mut roles, mut commits) = (Vec::new(), 0);
        run(&data, |member| {
            roles.push(member.engine.status().role);
            commits = member.commits;
        });
        roles.dedup();
        (roles, commits)
    }

    #[test]
    fn the_seeds_reach_the_roles_and_commit() {
        let (roles, commits) = course("lead");
        assert_eq!(roles, [Role::Backup, Role::Candidate, Role::Primary]);
        assert!(commits > 0);
        let (roles, commits) = course("alone");
        assert_eq!(roles, [Role::Candidate, Role::Primary]);
        assert!(commits > 0);
        let (roles, commits) = course("follow");
        assert_eq!((roles, commits), (vec![Role::Backup], 0));
    }
}
