//! Words of a scenario line into inputs.

use windlass_engine::{
    Acknowledgement, Change, Configuration, ConfigurationRecord, DurableState, Heartbeat, Identity, Input,
    LsnRange, Mark, Message, Notice, Persisted, Placed, Quorums, Session, StopReason, Summary, Token,
    Witness,
};
use windlass_log::{Epoch, EpochHistory, Lsn, MemberId};

use super::MS;

pub struct Words<'a> {
    words: Vec<&'a str>,
    place: &'a str,
    /// What stands where a message names no configuration.
    founding: &'a Configuration,
}

impl<'a> Words<'a> {
    pub fn new(line: &'a str, place: &'a str, founding: &'a Configuration) -> Words<'a> {
        Words { words: line.split_whitespace().collect(), place, founding }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{}: {what}; left are {:?}", self.place, self.words)
    }

    pub fn next_if_any(&mut self) -> Option<&'a str> {
        if self.words.is_empty() { None } else { Some(self.words.remove(0)) }
    }

    pub fn word(&mut self) -> &'a str {
        self.next_if_any().unwrap_or_else(|| self.fail("a word is missing"))
    }

    pub fn end(&self) {
        if !self.words.is_empty() && !self.words[0].starts_with('#') {
            self.fail("words nobody asked for");
        }
    }

    pub fn number(&mut self) -> u64 {
        let word = self.word();
        word.parse().unwrap_or_else(|_| self.fail(&format!("{word} is no number")))
    }

    fn lsn(&mut self) -> Lsn {
        Lsn(self.number())
    }

    pub fn duration(&mut self) -> u64 {
        let word = self.word();
        let number = word.strip_suffix("ms").and_then(|number| number.parse::<u64>().ok());
        number.unwrap_or_else(|| self.fail("a duration ends in ms")) * MS
    }

    fn token(&mut self) -> Token {
        let word = self.word();
        let number = word.strip_prefix('t').and_then(|number| number.parse().ok());
        Token(number.unwrap_or_else(|| self.fail("a token starts with t")))
    }

    fn parse_member(word: &str) -> Option<MemberId> {
        word.strip_prefix('m')?.parse().ok().map(MemberId)
    }

    fn parse_epoch(word: &str) -> Option<Epoch> {
        if word == "none" {
            return Some(Epoch::NONE);
        }
        let (counter, member) = word.strip_prefix('e')?.split_once('.')?;
        Some(Epoch::new(counter.parse().ok()?, Words::parse_member(member)?))
    }

    fn member(&mut self) -> MemberId {
        let word = self.word();
        Words::parse_member(word).unwrap_or_else(|| self.fail("a member is m0, m1, …"))
    }

    pub fn members(&mut self) -> Vec<MemberId> {
        let mut members = Vec::new();
        while let Some(member) = self.words.first().and_then(|word| Words::parse_member(word)) {
            self.words.remove(0);
            members.push(member);
        }
        members
    }

    fn epoch(&mut self) -> Epoch {
        let word = self.word();
        Words::parse_epoch(word).unwrap_or_else(|| self.fail("an epoch is e1.m0"))
    }

    fn session(&mut self) -> Session {
        let word = self.word();
        let session = word.split_once('#').and_then(|(epoch, attempt)| {
            Some(Session { epoch: Words::parse_epoch(epoch)?, attempt: attempt.parse().ok()? })
        });
        session.unwrap_or_else(|| self.fail("a session is e1.m0#1"))
    }

    /// Whether this word is there.
    pub fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| *word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// The word behind this one, both taken out.
    fn after(&mut self, name: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|word| *word == name)?;
        self.words.remove(at);
        Some(self.words.remove(at))
    }

    pub fn lsn_after(&mut self, name: &str) -> Option<Lsn> {
        self.after(name).map(|word| Lsn(word.parse().unwrap_or_else(|_| self.fail("no LSN"))))
    }

    /// The sizes behind this word: `3/1` is a write quorum of 3 and a takeover quorum of 1.
    pub fn sizes_after(&mut self, name: &str) -> Option<Quorums> {
        self.after(name).map(|word| {
            let sizes = word.split_once('/').and_then(|(write, takeover)| {
                Some(Quorums::Sizes { write: write.parse().ok()?, takeover: takeover.parse().ok()? })
            });
            sizes.unwrap_or_else(|| self.fail("sizes are 3/1"))
        })
    }

    pub fn epoch_after(&mut self, name: &str) -> Option<Epoch> {
        self.after(name).map(|word| Words::parse_epoch(word).unwrap_or_else(|| self.fail("no epoch")))
    }

    fn parse_mark(&self, word: &str) -> Mark {
        let mark = word.split_once('@').and_then(|(epoch, lsn)| {
            Some(Mark { epoch: Words::parse_epoch(epoch)?, lsn: Lsn(lsn.parse().ok()?) })
        });
        mark.unwrap_or_else(|| self.fail("a mark is e1.m0@4096"))
    }

    /// An LSN, or `unknown`.
    pub fn persisted_after(&mut self, name: &str) -> Option<Persisted> {
        match self.after(name)? {
            "unknown" => Some(DurableState::MARK_UNKNOWN),
            word => Some(Persisted(Lsn(word.parse().unwrap_or_else(|_| self.fail("an LSN, or unknown"))))),
        }
    }

    fn mark_after(&mut self, name: &str) -> Option<Mark> {
        self.after(name).map(|word| self.parse_mark(word))
    }

    pub fn history_after(&mut self, name: &str) -> Option<EpochHistory> {
        self.after(name).map(|word| {
            let mut history = EpochHistory::new();
            for entry in word.split(',') {
                let mark = self.parse_mark(entry);
                history.extend(mark.epoch, mark.lsn).unwrap_or_else(|error| self.fail(&error.to_string()));
            }
            history
        })
    }

    fn range(&mut self) -> LsnRange {
        LsnRange::new(self.lsn(), self.lsn())
    }

    pub fn input(&mut self) -> Input {
        match self.word() {
            "up" => {
                let peer = self.member();
                let mut identity = Identity { incarnation: 100 + u64::from(peer.0), opening: 1, nonce: 1 };
                identity.incarnation =
                    self.lsn_after("incarnation").map_or(identity.incarnation, |lsn| lsn.0);
                identity.opening = self.lsn_after("opening").map_or(1, |lsn| lsn.0);
                identity.nonce = self.lsn_after("nonce").map_or(1, |lsn| lsn.0);
                Input::PeerUp { peer, identity }
            }
            "down" => Input::PeerDown { peer: self.member() },
            "from" => Input::Message { peer: self.member(), message: Box::new(self.message()) },
            "drained" => {
                let to = self.lsn();
                Input::Drained { to, tail: self.lsn_after("tail").unwrap_or(to) }
            }
            "want" => Input::DurableWanted { to: self.lsn() },
            "started" => Input::TenureStarted { token: self.token(), end: self.lsn() },
            "sealed" => Input::Sealed { token: self.token(), tail: self.lsn() },
            "flushed" => Input::Flushed { token: self.token(), persisted: Persisted(self.lsn()) },
            "saved" => Input::Saved { token: self.token() },
            "failed" => match self.word() {
                "flush" => Input::Failed { reason: StopReason::FlushFailed },
                "seal" => Input::Failed { reason: StopReason::SealStuck },
                _ => self.fail("failed flush, or failed seal"),
            },
            "damaged" => Input::Damaged { at: self.lsn() },
            "whole_behind" => Input::WholeBehind { from: self.lsn() },
            "granted" => Input::Granted { peer: self.member(), session: self.session(), up_to: self.lsn() },
            "placed" => {
                Input::Placed { peer: self.member(), session: self.session(), to: Placed(self.lsn()) }
            }
            "acked" => self.acknowledged(),
            "fabric_down" => Input::FabricDown { peer: self.member(), session: self.session() },
            "notice" => self.notice(),
            "beat" => self.beat(),
            "parsed" => Input::Parsed { token: self.token(), valid_tail: self.lsn() },
            "grant_done" => Input::GrantDone { token: self.token() },
            "revoked" => Input::Revoked { token: self.token(), valid_tail: self.lsn() },
            "ack_done" => Input::AcknowledgeDone { session: self.session() },
            "fetched" => Input::Fetched { token: self.token(), valid_tail: self.lsn() },
            "fetch_failed" => Input::FetchFailed { token: self.token() },
            "trim" => Input::Trim { to: self.lsn() },
            "installed" => Input::SnapshotInstalled { at: self.lsn(), epoch: self.epoch() },
            "coming" => Input::SnapshotComing { at: self.lsn() },
            "suspect" => Input::Suspect,
            "change" => Input::Change(self.change()),
            "found" => Input::ConfigurationFound(self.placed()),
            "configuration_refused" => Input::ConfigurationRefused { number: self.number() },
            "handover" => Input::Handover { to: self.member() },
            "resign" => Input::Resign { reason: StopReason::Asked },
            "stuck_reservation" => Input::Resign { reason: StopReason::StuckReservation },
            "accept_memory_loss" => Input::AcceptMemoryLoss,
            "accept_loss" => Input::AcceptLoss,
            _ => self.fail("no such input"),
        }
    }

    fn change(&mut self) -> Change {
        match self.word() {
            "add" => Change::Add { member: self.member(), address: None },
            "remove" => Change::Remove { member: self.member() },
            "replace" => Change::Replace { old: self.member(), new: self.member(), address: None },
            "quorums" => {
                self.words.insert(0, "quorums");
                Change::Quorums { quorums: self.sizes_after("quorums").unwrap() }
            }
            _ => self.fail("add, remove, replace or quorums"),
        }
    }

    /// A configuration as it is shown: `c2:m0=100,m1+m4-m1:2/1`, with what was not changed by it as founded.
    fn configuration(&self, text: &str) -> Configuration {
        let fail = || -> ! { self.fail("a configuration is c2:m0,m1+m4-m1:2/1") };
        let mut parts = text.split(':');
        let number = parts.next().and_then(|part| part.strip_prefix('c')?.parse::<u64>().ok());
        let (Some(number), Some(members)) = (number, parts.next()) else { fail() };
        let (voters, learner) = members.split_once('+').map_or((members, None), |(v, l)| (v, Some(l)));
        let named = |word: &str| -> Option<(MemberId, u64)> {
            let (member, disk) = word.split_once('=').unwrap_or((word, "0"));
            Some((Words::parse_member(member)?, disk.parse().ok()?))
        };
        let named: Vec<(MemberId, u64)> = voters.split(',').filter_map(named).collect();
        let voters = named.iter().map(|(voter, _)| *voter);
        let sizes = parts.next().and_then(|part| part.split_once('/')).and_then(|(write, takeover)| {
            Some(Quorums::Sizes { write: write.parse().ok()?, takeover: takeover.parse().ok()? })
        });
        let quorums = sizes.unwrap_or_default();
        let mut configuration =
            Configuration::founding(voters).with_quorums(quorums).unwrap_or_else(|_| fail());
        // The number counts changes: as many that change nothing.
        for _ in 0..number - u64::from(learner.is_some()) {
            configuration = configuration.after(&Change::Quorums { quorums }).unwrap_or_else(|_| fail());
        }
        if let Some(learner) = learner {
            let (new, old) = learner.split_once('-').map_or((learner, None), |(new, old)| (new, Some(old)));
            let Some(new) = Words::parse_member(new) else { fail() };
            let change = match old.and_then(Words::parse_member) {
                Some(old) => Change::Replace { old, new, address: None },
                None => Change::Add { member: new, address: None },
            };
            configuration = configuration.after(&change).unwrap_or_else(|_| fail());
        }
        configuration.naming(|member| named.iter().find(|(voter, _)| *voter == member).map(|(_, disk)| *disk))
    }

    /// A configuration and its record's place: `c1:m0,m1@5000-5100`.
    fn placed(&mut self) -> ConfigurationRecord {
        let word = self.word();
        let place = word.split_once('@').and_then(|(text, place)| {
            let (start, end) = place.split_once('-')?;
            Some((text, Lsn(start.parse().ok()?), Lsn(end.parse().ok()?)))
        });
        let (text, start, end) = place.unwrap_or_else(|| self.fail("c1:m0,m1@5000-5100"));
        ConfigurationRecord { start, end, configuration: self.configuration(text) }
    }

    /// The configurations behind the word, each named by it. With `sole` before it the one given is known to be committed: none before it is known.
    pub fn configurations(&mut self) -> Vec<ConfigurationRecord> {
        let mut records = vec![ConfigurationRecord::founding(self.founding.clone())];
        if let Some(at) = self.words.iter().position(|word| *word == "sole") {
            self.words.remove(at);
            records.clear();
        }
        while let Some(at) = self.words.iter().position(|word| word.starts_with('c') && word.contains('@')) {
            let word = self.words.remove(at);
            self.words.insert(0, word);
            let record = self.placed();
            if record.end == Lsn(0) {
                // Another founding one.
                records.clear();
            }
            records.push(record);
        }
        if records.len() > 2 {
            records.remove(0);
        }
        records
    }

    /// A configuration's number; 0 if there is none.
    fn numbered(&mut self) -> u64 {
        let number = self.words.first().and_then(|word| word.strip_prefix('c')?.parse().ok());
        if number.is_some() {
            self.words.remove(0);
        }
        number.unwrap_or(0)
    }

    fn acknowledged(&mut self) -> Input {
        let (peer, session) = (self.member(), self.session());
        let consumed = self.lsn_after("consumed").map_or(0, |lsn| lsn.0);
        let persisted = Persisted(self.lsn_after("persisted").unwrap_or_else(|| self.fail("persisted")));
        let valid_tail = self.lsn_after("valid").unwrap_or(persisted.0);
        let heartbeat = self.lsn_after("beat").map_or(0, |lsn| lsn.0);
        let sequence = 1;
        let acknowledgement =
            Acknowledgement { session, sequence, consumed, valid_tail, persisted, heartbeat };
        Input::Acknowledged { peer, acknowledgement }
    }

    fn notice(&mut self) -> Input {
        let session = self.session();
        if self.flag("torn") {
            return Input::Notice { session, notice: None };
        }
        let sequence = self.number();
        let mut lsn = |name| self.lsn_after(name).unwrap_or(Lsn(0));
        let (tail, replicated, durable, wanted) =
            (lsn("tail"), lsn("replicated"), lsn("durable"), lsn("wanted"));
        Input::Notice {
            session,
            notice: Some(Notice { session, sequence, tail, replicated, durable, wanted }),
        }
    }

    fn beat(&mut self) -> Input {
        let (session, sequence) = (self.session(), self.number());
        let pending_ns = self.lsn_after("pending_ms").map_or(0, |lsn| lsn.0 * MS);
        let mut lsn = |name| self.lsn_after(name).unwrap_or(Lsn(0));
        let (drained, replicated, durable, trimmed) =
            (lsn("drained"), lsn("replicated"), lsn("durable"), lsn("trimmed"));
        let tail = drained;
        let heartbeat =
            Heartbeat { session, sequence, drained, tail, replicated, durable, trimmed, pending_ns };
        Input::Heartbeat { heartbeat }
    }

    fn message(&mut self) -> Message {
        match self.word() {
            "pre_vote" => Message::PreVote { epoch: self.epoch(), configuration: self.numbered() },
            "vote" => {
                let epoch = self.epoch();
                let granted = self.word() == "yes";
                Message::PreVoteReply {
                    epoch,
                    granted,
                    promised: self.epoch_after("promised").unwrap_or_default(),
                }
            }
            "fence" => Message::Fence { epoch: self.epoch(), configuration: self.numbered() },
            "not_a_member" => Message::NotAMember { configuration: self.numbered() },
            "promise" => Message::Promise { epoch: self.epoch(), summary: self.summary() },
            "rejected" => Message::Rejected { epoch: self.epoch(), promised: self.epoch() },
            "working" => Message::Working { epoch: self.epoch(), progress: self.number() },
            "campaign" => Message::Campaign { epoch: self.epoch() },
            "adopt" => {
                let session = self.session();
                let tail = self.lsn_after("tail").unwrap_or_else(|| self.fail("tail"));
                let trimmed = self.lsn_after("trimmed").unwrap_or(Lsn(4096));
                let durable = self.lsn_after("durable").unwrap_or(trimmed);
                let history = self.history_after("history").unwrap_or_else(|| self.fail("history"));
                let configurations = self.configurations();
                Message::Adopt { session, history, tail, trimmed, durable, configurations }
            }
            "adopted" => {
                let (session, valid_tail) = (self.session(), self.lsn());
                let persisted = Persisted(self.lsn_after("persisted").unwrap_or(valid_tail));
                Message::Adopted { session, valid_tail, persisted }
            }
            "snapshot_needed" => Message::SnapshotNeeded { session: self.session(), valid_tail: self.lsn() },
            "keep" => Message::Keep { epoch: self.epoch(), from: self.lsn() },
            "resync" => Message::Resync { session: self.session() },
            "alive" => {
                let (epoch, sequence) = (self.epoch(), self.number());
                let pending_ns = self.lsn_after("pending_ms").map_or(0, |lsn| lsn.0 * MS);
                Message::Alive { epoch, sequence, pending_ns, drained: Lsn(0) }
            }
            "alive_reply" => Message::AliveReply { epoch: self.epoch(), sequence: self.number() },
            "fetch" => Message::FetchRequest { session: self.session(), range: self.range() },
            _ => self.fail("no such message"),
        }
    }

    fn summary(&mut self) -> Summary {
        let valid_tail = self.lsn_after("tail").unwrap_or_else(|| self.fail("tail"));
        let history = self.history_after("history").unwrap_or_default();
        let last_epoch = history.epoch_at(Lsn(valid_tail.0 - 1)).unwrap_or_default();
        let own = Mark { epoch: last_epoch, lsn: valid_tail };
        let nothing = Mark { epoch: Epoch::NONE, lsn: Lsn(4096) };
        let mut witnessed = Vec::new();
        while let Some(member) = self.after("witness") {
            let member =
                Words::parse_member(member).unwrap_or_else(|| self.fail("witness m1 mark_of e1.m0@5000"));
            let mark = self.mark_after("mark_of").unwrap_or_else(|| self.fail("mark_of"));
            witnessed.push(Witness { member, mark });
        }
        Summary {
            last_epoch,
            valid_tail,
            trimmed: self.lsn_after("trimmed").unwrap_or(Lsn(4096)),
            mark: self.mark_after("mark").unwrap_or(own),
            memory_lost: self.flag("lost"),
            durable: self.mark_after("durable").unwrap_or(nothing),
            witnessed,
            configurations: self.configurations(),
            history,
        }
    }
}
