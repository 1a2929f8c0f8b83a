//! `windlass group accept-loss`: a group that lost more than it survives goes on with what is left, by an operator's word.

use std::time::Instant;

use super::{Group, LOOK, PATIENCE, unanswered};
use crate::client::{self, Reply, Request};
use crate::exit::{Failure, Status};
use crate::log::output::say;

/// Has a member lead, and waits until somebody does.
pub(super) fn run(group: &Group, number: u8) -> Result<(), Failure> {
    let member = group.config.member(number)?;
    // The word is for this member, and not for another that was given its socket.
    group.standing_within(member, PATIENCE).map_err(|error| unanswered(member, error))?;
    match client::ask(&member.client, &group.pass, &Request::AcceptLoss, PATIENCE) {
        Ok(Reply::LossAccepted { from, to }) if from == to => {
            say(format_args!(
                "m{number} lacks nothing itself; what others may have acknowledged beyond the log that it finds is given up"
            ))?;
        }
        Ok(Reply::LossAccepted { from, to: u64::MAX }) => {
            say(format_args!(
                "m{number} gives up what it had acknowledged from LSN {from} on, unless another member has it; nobody can tell how far that went"
            ))?;
        }
        Ok(Reply::LossAccepted { from, to }) => {
            say(format_args!(
                "m{number} gives up what it may have acknowledged from LSN {from} to {to}, unless another member has it"
            ))?;
        }
        Ok(Reply::Failed { why }) => {
            return Err(Failure::new(Status::Refused, format_args!("m{number}: {why}")));
        }
        Ok(other) => {
            return Err(Failure::new(Status::System, format_args!("m{number} answered {other:?}")));
        }
        Err(error) => return Err(unanswered(member, error)),
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some((at, standing)) = group.primary()? {
            let leader = group.members()[at].number;
            say(format_args!(
                "m{leader} is primary, epoch {}; the log goes on at LSN {}",
                standing.epoch, standing.tail
            ))?;
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(group.no_primary(&format_args!(
                "{} s after m{number} took the word, which it keeps until somebody leads or its process ends: once as many members answer as a takeover needs, it \
                 leads and gives up what they lack. Starting m{number} again takes the word back",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(LOOK);
    }
}
