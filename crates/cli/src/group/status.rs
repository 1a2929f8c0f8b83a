//! `windlass group status`: where every member stands.

use serde::Serialize;

use super::members::view;
use super::{Group, stranger};
use crate::client::Standing;
use crate::exit::Failure;
use crate::log::output::Output;
use crate::view::View;

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
    let mut standings: Vec<_> = group.members().iter().map(|member| group.standing(member)).collect();
    let leads = |(_, standing): &(_, &std::io::Result<Standing>)| {
        standing.as_ref().is_ok_and(|standing| standing.role == "primary")
    };
    if let Some((primary, _)) = group.members().iter().zip(&standings).find(leads) {
        let known = view(group, primary).ok().filter(|known| known.committed);
        for standing in standings.iter_mut().flatten() {
            known.iter().for_each(|known| judge(standing, known));
        }
    }
    if !json {
        output.line(format_args!("member  answers  role       epoch     durable          tail"))?;
    }
    // Who leads may run on another machine: then it is followed.
    let is_led =
        standings.iter().flatten().any(|standing| standing.role == "primary" || standing.follows.is_some());
    for (member, standing) in group.members().iter().zip(standings) {
        failure = failure.or(standing.as_ref().err().and_then(|error| stranger(member.number, error)));
        has_primary |= standing.as_ref().is_ok_and(|standing| standing.role == "primary");
        for why in standing.iter().flat_map(|standing| &standing.kept_out).filter(|_| !json) {
            kept_out.push(format!("m{} is kept out {why}", member.number));
        }
        if let Some(why) = standing.iter().find_map(|standing| standing.outside.as_ref()).filter(|_| !json) {
            kept_out.push(format!("m{} is no member of the group: {why}", member.number));
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

/// Who has left, or whose place was taken, may not know it: what the primary has committed counts, and advice on how to come back is none.
fn judge(standing: &mut Standing, known: &View) {
    if known.member(standing.by).is_none() {
        standing.standing = String::from("outside");
        standing.kept_out.clear();
        // One that waits to be added never was in it.
        if standing.by <= known.highest && standing.outside.is_none() {
            let why = format!(
                "configuration {} is without it, and it does not know that: stop it; its folder can be removed",
                known.configuration
            );
            standing.outside = Some(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Windows;
    use crate::view::ViewMember;

    #[test]
    fn a_member_that_does_not_know_that_it_has_left_is_shown_outside_and_without_advice() {
        let known = View {
            by: 3,
            primary: Some(3),
            configuration: 2,
            committed: true,
            write_quorum: 2,
            takeover_quorum: 2,
            highest: 5,
            outside: None,
            members: [1, 3, 5].map(ViewMember::voter).into(),
        };
        let standing = |by| Standing {
            by,
            role: "candidate".into(),
            epoch: "e1.m2".into(),
            durable: 4096,
            trimmed: 4096,
            tail: 5000,
            payload_bytes_max: None,
            void_batches: 0,
            damaged: false,
            follows: None,
            standing: "voter".into(),
            outside: None,
            voters: vec![1, 2, 3],
            quorum: 2,
            kept_out: vec!["by m1: use `windlass group replace`".into()],
            windows: Windows::default(),
        };
        let (mut stays, mut left) = (standing(1), standing(2));
        judge(&mut stays, &known);
        judge(&mut left, &known);
        assert_eq!(stays, standing(1));
        let why = left.outside.take().unwrap();
        assert!(why.contains("configuration 2 is without it") && why.contains("stop it"), "{why}");
        assert_eq!(left, Standing { standing: "outside".into(), kept_out: Vec::new(), ..standing(2) });
    }
}
