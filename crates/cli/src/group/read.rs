//! `windlass group read`: what is committed of the log, from one member.

use std::time::{Duration, Instant};

use serde::Serialize;
use windlass::Lsn;

use super::{ANSWER, Format, Group, LOOK, Notice, unanswered};
use crate::client::{self, Reply, Request};
use crate::exit::{Failure, Status, tell};
use crate::log::errors;
use crate::log::output::{self, Output};
use crate::node::config::MemberConfig;
use crate::session::Session;

/// How long the next record may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Serialize)]
struct JsonRecord<'a> {
    lsn: u64,
    end: u64,
    bytes: usize,
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// The payload in hexadecimal, if it isn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<&'a str>,
}

/// Prints the records from `from` (default: the trim point) to what is committed now.
pub(super) fn run(
    group: &Group,
    from: Option<u64>,
    member: Option<u8>,
    format: Format,
) -> Result<(), Failure> {
    let (member, trimmed, to) = match member {
        Some(number) => {
            let member = group.config.member(number)?;
            let standing = group.standing(member).map_err(|error| silent(group, member, error))?;
            // In a group that has a primary it hears of it with the next batch.
            if standing.follows.is_none() && standing.role != "primary" && standing.durable < standing.tail {
                tell(format_args!(
                    "m{number} follows no primary now, and knows its log to be durable up to LSN {}: what it has behind that, up to {}, may be acknowledged, and \
                     is not printed before a primary is there",
                    standing.durable, standing.tail
                ));
            }
            (member, standing.trimmed, standing.durable)
        }
        None => at_primary(group)?,
    };
    let name = format!("m{}", member.number);
    let io = |error: &std::io::Error| Failure::io(format_args!("reading from {name}"), error);
    let from = from.unwrap_or(trimmed);
    if from < trimmed {
        return Err(errors::purged(Lsn(from), Lsn(trimmed)));
    }
    if from > to {
        let message =
            format_args!("LSN {from} lies beyond {to}, up to which {name} knows the log to be committed");
        return Err(Failure::new(Status::Refused, message));
    }
    let mut session = client::connect(&member.client, &group.pass, ANSWER)
        .and_then(|stream| Session::new(0, stream))
        .map_err(|error| unanswered(member, error))?;
    session.ask(&Request::Read { from, to }).map_err(|error| io(&error))?;
    let (mut output, mut hex) = (Output::new(), String::new());
    loop {
        match session.hear(PATIENCE) {
            Some(Ok(Reply::Record { start, end, payload })) => {
                print(start, end, &payload, format, &mut output, &mut hex)?;
            }
            Some(Ok(Reply::ReadEnd)) => return output.flush(),
            Some(Ok(Reply::Failed { why })) => {
                output.flush()?;
                return Err(Failure::new(Status::Refused, format_args!("{name}: {why}")));
            }
            Some(Ok(other)) => {
                output.flush()?;
                return Err(Failure::new(Status::System, format_args!("{name} answered {other:?}")));
            }
            Some(Err(error)) => {
                output.flush()?;
                return Err(io(&error));
            }
            None => {
                output.flush()?;
                return Err(io(&std::io::ErrorKind::TimedOut.into()));
            }
        }
    }
}

/// The failure of a member that did not answer: that it is none of the group any more, where who runs knows so.
fn silent(group: &Group, member: &MemberConfig, error: std::io::Error) -> Failure {
    let number = member.number;
    match super::status::known(group, &group.ask_all()) {
        Some(known) if number <= known.highest && known.member(number).is_none() => Failure::new(
            Status::Refused,
            format_args!(
                "m{number} does not answer ({error}), and is no member of the group (configuration {} is without it): read from a member; what its folder has is \
                 printed by `windlass log read {}`",
                known.configuration,
                member.folder.display()
            ),
        ),
        Some(_) | None => unanswered(member, error),
    }
}

/// The primary, where its log begins, and up to where everything is committed that was acknowledged before now. A primary that has just taken
/// over knows only with its first commit what is durable: hence a barrier.
fn at_primary(group: &Group) -> Result<(&MemberConfig, u64, u64), Failure> {
    let _notice = Notice::new(group);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (at, standing) = group.wait_for_primary()?;
        let member = &group.members()[at];
        let why = match client::ask(&member.client, &group.pass, &Request::Barrier, PATIENCE) {
            Ok(Reply::Barrier { end }) => return Ok((member, standing.trimmed, end)),
            Ok(Reply::Full { why }) => {
                let read = group.command(&format_args!("read --member {}", member.number));
                return Err(Failure::new(
                    Status::Refused,
                    format_args!(
                        "m{}, the primary, can't commit the record by which it shows that it still leads: {why}. {read} prints what is known to be durable, and writes nothing",
                        member.number
                    ),
                ));
            }
            Ok(Reply::Failed { why }) => why,
            Ok(other) => format!("it answered {other:?}"),
            Err(error) => error.to_string(),
        };
        if Instant::now() > deadline {
            return Err(Failure::new(Status::System, format_args!("m{} can't commit: {why}", member.number)));
        }
        std::thread::sleep(LOOK);
    }
}

fn print(
    start: u64,
    end: u64,
    payload: &[u8],
    format: Format,
    output: &mut Output,
    hex: &mut String,
) -> Result<(), Failure> {
    match format {
        Format::Lines => {
            output.bytes(payload)?;
            output.bytes(b"\n")
        }
        Format::Raw => output.bytes(payload),
        Format::Hex => {
            output::hex(payload, hex);
            output.line(format_args!("{start} {end} {hex}"))
        }
        Format::Json => {
            let text = std::str::from_utf8(payload).ok();
            if text.is_none() {
                output::hex(payload, hex);
            }
            output.json(&JsonRecord {
                lsn: start,
                end,
                bytes: payload.len(),
                text,
                hex: text.is_none().then_some(hex.as_str()),
            })
        }
    }
}
