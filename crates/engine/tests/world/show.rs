//! What happens as lines of a scenario file (`tests/scenario`): inputs as that parser reads them.

use windlass_engine::{DurableState, Input, Mark, Message, StopReason, Summary};
use windlass_log::{Epoch, EpochHistory, Lsn};

pub use crate::scenario::show::command;

fn epoch(epoch: Epoch) -> String {
    if epoch == Epoch::NONE { "none".into() } else { epoch.to_string() }
}

fn mark(mark: Mark) -> String {
    format!("{}@{}", epoch(mark.epoch), mark.lsn)
}

fn history(history: &EpochHistory) -> String {
    let entries = history.entries().iter().map(|entry| format!("{}@{}", entry.epoch, entry.start));
    let entries: Vec<String> = entries.collect();
    if entries.is_empty() { String::new() } else { format!(" history {}", entries.join(",")) }
}

pub fn opening(state: &DurableState, valid_tail: Lsn) -> String {
    let lost = if state.memory_lost { " lost" } else { "" };
    let history = history(&state.history);
    format!("open tail {valid_tail} promised {}{history} mark {}{lost}", epoch(state.promised), state.mark.0)
}

pub fn input(input: &Input) -> String {
    match input {
        Input::PeerUp { peer, identity: i } => {
            format!("up {peer} incarnation {} opening {} nonce {}", i.incarnation, i.opening, i.nonce)
        }
        Input::PeerDown { peer } => format!("down {peer}"),
        Input::Message { peer, message: m } => format!("from {peer} {}", message(m)),
        Input::Drained { to, tail } => format!("drained {to} tail {tail}"),
        Input::DurableWanted { to } => format!("want {to}"),
        Input::TenureStarted { token, end } => format!("started t{} {end}", token.0),
        Input::Sealed { token, tail } => format!("sealed t{} {tail}", token.0),
        Input::Flushed { token, persisted } => format!("flushed t{} {}", token.0, persisted.0),
        Input::Saved { token } => format!("saved t{}", token.0),
        Input::Granted { peer, session, up_to } => format!("granted {peer} {session} {up_to}"),
        Input::Placed { peer, session, to } => format!("placed {peer} {session} {}", to.0),
        Input::Acknowledged { peer, acknowledgement: a } => format!(
            "acked {peer} {} consumed {} persisted {} valid {} beat {}",
            a.session, a.consumed, a.persisted.0, a.valid_tail, a.heartbeat
        ),
        Input::FabricDown { peer, session } => format!("fabric_down {peer} {session}"),
        Input::Notice { session, notice: None } => format!("notice {session} torn"),
        Input::Notice { session, notice: Some(n) } => format!(
            "notice {session} {} tail {} replicated {} durable {} wanted {}",
            n.sequence, n.tail, n.replicated, n.durable, n.wanted
        ),
        Input::Heartbeat { heartbeat: h } => format!(
            "beat {} {} drained {} replicated {} durable {} trimmed {}",
            h.session, h.sequence, h.drained, h.replicated, h.durable, h.trimmed
        ),
        Input::Parsed { token, valid_tail } => format!("parsed t{} {valid_tail}", token.0),
        Input::GrantDone { token } => format!("grant_done t{}", token.0),
        Input::Revoked { token, valid_tail } => format!("revoked t{} {valid_tail}", token.0),
        Input::AcknowledgeDone { session } => format!("ack_done {session}"),
        Input::Fetched { token, valid_tail } => format!("fetched t{} {valid_tail}", token.0),
        Input::FetchFailed { token } => format!("fetch_failed t{}", token.0),
        Input::Suspect => "suspect".into(),
        Input::Handover { to } => format!("handover {to}"),
        Input::Resign { reason: StopReason::Asked } => "resign".into(),
        other => format!("{other:?}"),
    }
}

fn message(message: &Message) -> String {
    match message {
        Message::Fence { epoch, configuration: _ } => format!("fence {epoch}"),
        Message::Promise { epoch, summary } => format!("promise {epoch} {}", self::summary(summary)),
        Message::Rejected { epoch, promised } => format!("rejected {epoch} {promised}"),
        Message::Campaign { epoch } => format!("campaign {epoch}"),
        Message::Adopt { session, history: h, tail, trimmed, durable, configurations: _ } => {
            format!("adopt {session} tail {tail} trimmed {trimmed} durable {durable}{}", history(h))
        }
        Message::Adopted { session, valid_tail, persisted } => {
            format!("adopted {session} {valid_tail} persisted {}", persisted.0)
        }
        Message::SnapshotNeeded { session, valid_tail } => format!("snapshot_needed {session} {valid_tail}"),
        Message::Resync { session } => format!("resync {session}"),
        Message::Alive { epoch, sequence, .. } => format!("alive {epoch} {sequence}"),
        Message::FetchRequest { session, range } => format!("fetch {session} {} {}", range.start, range.end),
        other => format!("{other:?}"),
    }
}

fn summary(summary: &Summary) -> String {
    let lost = if summary.memory_lost { " lost" } else { "" };
    let witnessed =
        summary.witnessed.iter().map(|w| format!(" witness {} mark_of {}", w.member, mark(w.mark)));
    format!(
        "tail {} trimmed {}{} mark {} durable {}{lost}{}",
        summary.valid_tail,
        summary.trimmed,
        history(&summary.history),
        mark(summary.mark),
        mark(summary.durable),
        witnessed.collect::<String>()
    )
}
