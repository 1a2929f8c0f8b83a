//! `windlass group status`: where every member stands.

use serde::Serialize;

use super::{Group, stranger};
use crate::client::Standing;
use crate::exit::Failure;
use crate::log::output::Output;

#[derive(Serialize)]
struct Row<'a> {
    member: u8,
    answers: bool,
    #[serde(flatten)]
    standing: Option<&'a Standing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Prints the table. Fails if no member is primary.
pub(super) fn run(group: &Group, json: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    let mut has_primary = false;
    let (mut failure, mut kept_out) = (None, Vec::new());
    if !json {
        output.line(format_args!("member  answers  role       epoch     durable          tail"))?;
    }
    let standings: Vec<_> = group.members().iter().map(|member| (member, group.standing(member))).collect();
    // Who leads may run on another machine: then it is followed.
    let is_led = standings
        .iter()
        .flat_map(|(_, standing)| standing)
        .any(|standing| standing.role == "primary" || standing.follows.is_some());
    for (member, standing) in standings {
        failure = failure.or(standing.as_ref().err().and_then(|error| stranger(member.number, error)));
        has_primary |= standing.as_ref().is_ok_and(|standing| standing.role == "primary");
        for why in standing.iter().flat_map(|standing| &standing.kept_out).filter(|_| !json) {
            kept_out.push(format!("m{} is kept out {why}", member.number));
        }
        match (&standing, json) {
            (_, true) => output.json(&Row {
                member: member.number,
                answers: standing.is_ok(),
                standing: standing.as_ref().ok(),
                why: standing.as_ref().err().map(ToString::to_string),
            })?,
            (Ok(s), false) => output.line(format_args!(
                "{:<7} yes      {:<10} {:<9} {:<16} {}{}{}",
                format!("m{}", member.number),
                s.role,
                s.epoch,
                s.durable,
                s.tail,
                match s.damaged {
                    true if is_led => "  damaged: its peers send it again what it lacks",
                    true => "  damaged: lacks what it may have acknowledged",
                    false => "",
                },
                match s.standing.as_str() {
                    "learner" => "  learns: votes once it has caught up",
                    "outside" => "  no member of the group",
                    _ => "",
                }
            ))?,
            (Err(error), false) => {
                output.line(format_args!("{:<7} no       ({error})", format!("m{}", member.number)))?;
            }
        }
    }
    for line in kept_out {
        output.line(format_args!("{line}"))?;
    }
    output.flush()?;
    match failure {
        Some(failure) => Err(failure),
        None if has_primary => Ok(()),
        None => Err(group.no_primary(&"now")),
    }
}
