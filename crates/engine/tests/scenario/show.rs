//! Commands as scenario lines.

use std::fmt::Write;

use windlass_engine::{
    Command, Configuration, ConfigurationRecord, DurableState, Event, LsnRange, Mark, MemberEntry, Message,
    Quorums, Session, Standing, Token,
};
use windlass_log::EpochHistory;

struct Shown<T>(T);

impl std::fmt::Display for Shown<Token> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t{}", self.0.0)
    }
}

impl std::fmt::Display for Shown<&EpochHistory> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self.0.entries().iter().map(|entry| format!("{}@{}", entry.epoch, entry.start));
        let text = entries.collect::<Vec<_>>().join(",");
        f.write_str(if text.is_empty() { "-" } else { &text })
    }
}

impl std::fmt::Display for Shown<&DurableState> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0;
        write!(f, "promised {} history {} trimmed {}", state.promised, Shown(&state.history), state.trimmed)?;
        match state.mark {
            DurableState::MARK_UNKNOWN => write!(f, " mark unknown")?,
            mark => write!(f, " mark {}", mark.0)?,
        }
        if state.memory_lost {
            write!(f, " lost")?;
        }
        for peer in &state.peers {
            write!(f, " {}:{}/{}", peer.member, peer.incarnation, peer.opening)?;
        }
        if let [record] = &state.configurations[..]
            && record.configuration.number() > 0
        {
            write!(f, " sole")?;
        }
        for record in state.configurations.iter().filter(|record| record.configuration.number() > 0) {
            write!(f, " {}", placed(record))?;
        }
        Ok(())
    }
}

/// A configuration: its number, its voters and which disks of theirs it names, who learns, the sizes of its quorums.
fn configuration(configuration: &Configuration) -> String {
    let voters = configuration.members().iter().filter(|entry| entry.standing == Standing::Voter);
    let voter = |entry: &MemberEntry| match entry.incarnation {
        0 => entry.id.to_string(),
        incarnation => format!("{}={incarnation}", entry.id),
    };
    let voters = voters.map(voter).collect::<Vec<_>>().join(",");
    let mut text = format!("c{}:{voters}", configuration.number());
    if let Some(learner) = configuration.learner() {
        match learner.standing {
            Standing::Learner { replaces: Some(old) } => write!(text, "+{}-{old}", learner.id).unwrap(),
            Standing::Learner { replaces: None } | Standing::Voter => {
                write!(text, "+{}", learner.id).unwrap()
            }
        }
    }
    if let Quorums::Sizes { write, takeover } = configuration.quorums() {
        write!(text, ":{write}/{takeover}").unwrap();
    }
    text
}

fn placed(record: &ConfigurationRecord) -> String {
    format!("{}@{}-{}", configuration(&record.configuration), record.start, record.end)
}

fn range(range: LsnRange) -> String {
    format!("[{}, {})", range.start, range.end)
}

fn session(session: Session) -> String {
    session.to_string()
}

fn mark(mark: Mark) -> String {
    format!("{}@{}", mark.epoch, mark.lsn)
}

pub fn command(command: &Command) -> String {
    let token = |token: &Token| Shown(*token).to_string();
    match command {
        Command::Send { peer, message: m } => format!("send {peer} {}", message(m)),
        Command::Save { token: t, state } => format!("save {} {}", token(t), Shown(&**state)),
        Command::Flush { token: t, to } => format!("flush {} to {to}", token(t)),
        Command::Cut { token: t, at, state } => format!("cut {} at {at} {}", token(t), Shown(&**state)),
        Command::Reset { token: t, at, state } => format!("reset {} at {at} {}", token(t), Shown(&**state)),
        Command::Trim { state } => format!("trim to {}", state.trimmed),
        Command::StartTenure { token: t, quorum, at } => {
            let members = quorum.promised().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            format!("start_tenure {} {} at {at} promised by {members}", token(t), quorum.epoch())
        }
        Command::Seal { token: t } => format!("seal {}", token(t)),
        Command::StepDown { epoch, reason } => format!("step_down {epoch}: {reason}"),
        Command::Connect { peer, session: s } => format!("connect {peer} {}", session(*s)),
        Command::Disconnect { peer, session: s } => format!("disconnect {peer} {}", session(*s)),
        Command::Replicate { peer, session: s, range: r, notice: n, slot } => format!(
            "replicate {peer} {} {} slot {slot} notice {} replicated {} durable {} wanted {}",
            session(*s),
            range(*r),
            n.sequence,
            n.replicated,
            n.durable,
            n.wanted
        ),
        Command::Beat { peer, heartbeat: h, .. } => format!(
            "beat {peer} {} drained {} replicated {} durable {} pending_ms {}",
            h.sequence,
            h.drained,
            h.replicated,
            h.durable,
            h.pending_ns / 1_000_000
        ),
        Command::Committed(proof) => {
            format!(
                "committed {} replicated {} durable {}",
                proof.epoch(),
                proof.replicated(),
                proof.durable()
            )
        }
        Command::Revoke { token: t } => format!("revoke {}", token(t)),
        Command::Grant { token: t, primary, session: s, from, up_to } => {
            format!("grant {} {primary} {} from {from} up_to {up_to}", token(t), session(*s))
        }
        Command::Ungrant { session: s, below } => format!("ungrant {} below {below}", session(*s)),
        Command::Parse { token: t, to } => format!("parse {} to {to}", token(t)),
        Command::Acknowledge { primary, acknowledgement: a } => format!(
            "acknowledge {primary} consumed {} valid {} persisted {} beat {}",
            a.consumed, a.valid_tail, a.persisted.0, a.heartbeat
        ),
        Command::Learned { replicated, durable } => {
            format!("learned replicated {replicated} durable {durable}")
        }
        Command::Fetch { token: t, peer, session: s, range: r } => {
            format!("fetch {} {peer} {} {}", token(t), session(*s), range(*r))
        }
        Command::GrantRead { peer, session: s, range: r } => {
            format!("grant_read {peer} {} {}", session(*s), range(*r))
        }
        Command::AppendConfiguration(c) => format!("append {}", configuration(c)),
        Command::Members(members) => {
            let members = members.iter().map(|entry| entry.id.to_string()).collect::<Vec<_>>();
            format!("members {}", members.join(","))
        }
        Command::Event(e) => format!("event {}", event(e)),
    }
}

fn event(event: &Event) -> String {
    match event {
        Event::Role { role, epoch } => format!("role {role:?} {epoch}"),
        Event::Stopped { reason } => format!("stopped: {reason}"),
        Event::Peer { peer, status } => format!("peer {peer} {status:?}"),
        Event::ReleasedGivenUp { primary, released, expected, found } => {
            format!("released and given up below {released}: {found}, {expected} primary {primary}")
        }
        Event::SnapshotNeeded { primary, from, .. } => {
            format!("snapshot needed from {from} primary {primary}")
        }
        Event::SnapshotOtherLine { primary, at, expected, found } => {
            format!("snapshot of another line at {at}: {found}, {expected} primary {primary}")
        }
        Event::Refused { peer, reason } => format!("refused {peer}: {reason}"),
        Event::Configuration { configuration: c, committed } => {
            format!("configuration {}{}", configuration(c), if *committed { " committed" } else { "" })
        }
        Event::ChangeRefused { reason, .. } => format!("change refused: {reason}"),
        Event::NotAMember { configuration } => format!("no member of c{configuration}"),
        Event::LossAccepted { lost } => format!("loss accepted from {} to {}", lost.start, lost.end),
        Event::MemoryLossAccepted => String::from("memory loss accepted"),
        Event::LossNotAccepted { reason } => format!("loss not accepted: {reason}"),
        Event::HandoverFailed { to, reason } => format!("handover to {to} failed: {reason}"),
        Event::Undecided { epoch, reason } => format!("undecided {epoch}: {reason}"),
    }
}

/// A configuration's number, unless it is the founding one.
fn numbered(number: u64) -> String {
    if number == 0 { String::new() } else { format!(" c{number}") }
}

fn message(message: &Message) -> String {
    match message {
        Message::PreVote { epoch, configuration } => format!("pre_vote {epoch}{}", numbered(*configuration)),
        Message::PreVoteReply { epoch, granted, promised } => {
            format!("vote {epoch} {} promised {promised}", if *granted { "yes" } else { "no" })
        }
        Message::Fence { epoch, configuration } => format!("fence {epoch}{}", numbered(*configuration)),
        Message::NotAMember { configuration } => format!("not_a_member{}", numbered(*configuration)),
        Message::Promise { epoch, summary: s } => {
            let mut text = format!("promise {epoch} tail {} last {}", s.valid_tail, s.last_epoch);
            write!(text, " history {} mark {} durable {}", Shown(&s.history), mark(s.mark), mark(s.durable))
                .unwrap();
            if s.memory_lost {
                write!(text, " lost").unwrap();
            }
            for record in s.configurations.iter().filter(|record| record.configuration.number() > 0) {
                write!(text, " {}", placed(record)).unwrap();
            }
            for witness in &s.witnessed {
                write!(text, " witness {} {}", witness.member, mark(witness.mark)).unwrap();
            }
            text
        }
        Message::Rejected { epoch, promised } => format!("rejected {epoch} promised {promised}"),
        Message::Working { epoch, progress } => format!("working {epoch} {progress}"),
        Message::Campaign { epoch } => format!("campaign {epoch}"),
        Message::Adopt { session: s, history, tail, trimmed, durable, configurations } => {
            let mut text = format!(
                "adopt {} tail {tail} trimmed {trimmed} durable {durable} history {}",
                session(*s),
                Shown(history)
            );
            for record in configurations.iter().filter(|record| record.configuration.number() > 0) {
                write!(text, " {}", placed(record)).unwrap();
            }
            text
        }
        Message::Adopted { session: s, valid_tail, persisted } => {
            format!("adopted {} {valid_tail} persisted {}", session(*s), persisted.0)
        }
        Message::SnapshotNeeded { session: s, valid_tail } => {
            format!("snapshot_needed {} {valid_tail}", session(*s))
        }
        Message::Keep { epoch, from } => format!("keep {epoch} {from}"),
        Message::Resync { session: s } => format!("resync {}", session(*s)),
        Message::Alive { epoch, sequence, pending_ns, drained } => {
            format!("alive {epoch} {sequence} drained {drained} pending_ms {}", pending_ns / 1_000_000)
        }
        Message::AliveReply { epoch, sequence } => format!("alive_reply {epoch} {sequence}"),
        Message::FetchRequest { session: s, range: r } => format!("fetch {} {}", session(*s), range(*r)),
    }
}
