//! What an operator's word is answered with (DESIGN.md section 8.5): it is taken by who may take it and refused for what is so, and who says that it waits for something of a word holds one.

use windlass::engine::{LossError, Role, Status, Undecided};
use windlass::{Epoch, MemberId};

use super::{Checked, Invariant, violated};

/// How a member stood, before it was asked to take a word or behind its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stood {
    pub(crate) status: Status,
    /// Whether it votes, where that can be told from outside.
    pub(crate) votes: Option<bool>,
}

/// A word, and who was asked to take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) at: usize,
    pub(crate) memory_only: bool,
    pub(crate) before: Stood,
    pub(crate) now: Stood,
    /// Nobody had led it, as its superblock said.
    pub(crate) is_empty: bool,
    /// It follows one that leads, and nothing has kept it from hearing that.
    pub(crate) hears_primary: bool,
    /// It holds a word already that gives up all: it lacks nothing by that.
    pub(crate) holds_all: bool,
}

fn is_led(status: &Status) -> bool {
    matches!(status.role, Role::Primary | Role::Sealing) || status.primary.is_some()
}

/// Whether it may lead already: until its tenure's first record is written it is called a candidate.
fn may_begin(status: &Status, at: usize) -> bool {
    status.role == Role::Candidate && usize::from(status.promised.member().0) == at
}

/// A member answers a word: refused as section 8.5 says, and only so.
pub(crate) fn answered(asked: &Asked, answer: Result<bool, LossError>) -> Checked {
    let Asked { at, memory_only, before, now, is_empty, hears_primary, holds_all } = *asked;
    // What was so before and behind was so in between.
    let both = |is: &dyn Fn(&Status) -> bool| is(&before.status) && is(&now.status);
    let has_shown = |status: &Status| !memory_only && status.durable > status.tail;
    let lacks = |status: &Status| memory_only && status.persisted < status.mark;
    let both_vote = |vote: bool| before.votes == Some(vote) && now.votes == Some(vote);
    let is_right = match answer {
        Ok(_) => {
            let leads = |status: &Status| matches!(status.role, Role::Primary | Role::Sealing);
            let primaries = [before, now].map(|stood| stood.status.primary);
            let hears = primaries[0].is_some() && primaries[0] == primaries[1] && hears_primary;
            let has_promised_nothing = |status: &Status| status.promised == Epoch::NONE;
            let is_refused = both(&leads)
                || hears
                || now.status.stopped.is_some()
                || both_vote(false)
                || both(&has_promised_nothing);
            !is_refused && !both(&has_shown) && (holds_all || !both(&lacks))
        }
        Err(LossError::Led) => !both(&|status| !is_led(status) && !may_begin(status, at)),
        Err(LossError::Damaged { .. }) => !both(&|status| !lacks(status)),
        Err(LossError::Published) => !both(&|status| !has_shown(status)),
        Err(LossError::Stopped) => now.status.stopped.is_some(),
        Err(LossError::NoVoter) => !both_vote(true),
        Err(LossError::Empty { .. }) => is_empty,
    };
    if is_right {
        return Ok(());
    }
    violated(
        Invariant::WordAnswers,
        format!(
            "m{at} answers {answer:?}, and stood {:?} {:?}, stands {:?} {:?}",
            before.status, before.votes, now.status, now.votes
        ),
    )
}

/// A member answers, and was not asked for this kind of word in this life.
pub(crate) fn unasked(at: usize, answer: Result<bool, LossError>) -> Checked {
    violated(Invariant::WordAnswers, format!("m{at} answers a word that nobody gave: {answer:?}"))
}

/// A candidate can't choose, for this. `has_word`: it has taken one, in this life. `may_vote`: whether who is missing votes in the configuration that was lost.
pub(crate) fn undecided(
    at: usize,
    reason: &Undecided,
    has_word: bool,
    may_vote: &dyn Fn(u64, MemberId) -> bool,
) -> Checked {
    match *reason {
        Undecided::ConfigurationLost { number, missing, .. } if !has_word || !may_vote(number, missing) => {
            violated(
                Invariant::WordAnswers,
                format!(
                    "m{at} waits for {missing}, which has no vote in configuration {number}, or without a word"
                ),
            )
        }
        Undecided::TooFewVotes { .. } if !has_word => violated(
            Invariant::WordAnswers,
            format!("m{at} says what a word waits for, and has none: {reason}"),
        ),
        Undecided::ConfigurationLost { .. }
        | Undecided::TooFewVotes { .. }
        | Undecided::Released { .. }
        | Undecided::NoVote { .. }
        | Undecided::MemoryLost
        | Undecided::MarkNotReached { .. }
        | Undecided::DurableNotReached { .. }
        | Undecided::Lost { .. }
        | Undecided::Damaged { .. }
        | Undecided::TooFewPromises { .. }
        | Undecided::OtherConfiguration { .. }
        | Undecided::HistoryFull => Ok(()),
    }
}
