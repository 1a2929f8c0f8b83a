//! `windlass group status`: where every member stands.

use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;

use super::members::view;
use super::{Asked, Group, stranger};
use crate::client::Standing;
use crate::exit::{Failure, Status};
use crate::log::output::Output;
use crate::node::config::MemberConfig;
use crate::view::View;

#[derive(Serialize)]
struct Row<'a> {
    member: u8,
    answers: bool,
    /// The word of the table's row.
    state: &'a str,
    #[serde(flatten)]
    standing: Option<&'a Standing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// What a person is to know and to do about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Prints the table. Fails if no member is primary.
pub(super) fn run(group: &Group, json: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    let mut failure = None;
    let mut asked = group.ask_all();
    let has_primary = asked.answers().any(|standing| standing.role == "primary");
    let known = known(group, &asked);
    for standing in asked.standings.iter_mut().flat_map(|(_, standing)| standing) {
        known.iter().for_each(|known| judge(standing, known));
    }
    if !json {
        output.line(format_args!("member  answers  state         epoch     durable          tail"))?;
    }
    // Who leads may run on another machine: then it is followed.
    let is_led = asked.answers().any(|standing| standing.role == "primary" || standing.follows.is_some());
    let file = group.file();
    let mut told = Vec::new();
    for (member, (_, standing)) in group.members().iter().zip(&asked.standings) {
        failure = failure.or(standing.as_ref().err().and_then(|error| stranger(member.number, error)));
        let shared = shares_folder(group.members(), member, known.as_ref());
        let (state, notes) = notes(&file, member.number, standing, known.as_ref(), shared);
        match (standing, json) {
            (_, true) => output.json(&Row {
                member: member.number,
                answers: standing.is_ok(),
                state,
                standing: standing.as_ref().ok(),
                why: standing.as_ref().err().map(ToString::to_string),
                notes,
            })?,
            (Ok(s), false) => {
                output.line(format_args!(
                    "{:<7} yes      {:<13} {:<9} {:<16} {}{}{}",
                    format!("m{}", member.number),
                    match s.follows {
                        Some(primary) if state == "backup" => format!("backup of m{primary}"),
                        _ => state.to_owned(),
                    },
                    s.epoch,
                    s.durable,
                    s.tail,
                    match s.damaged {
                        true if is_led => "  damaged: its peers send it again what it lacks",
                        true => "  damaged: lacks what it may have acknowledged",
                        false => "",
                    },
                    if s.standing == "learner" { "  learns: votes once it has caught up" } else { "" }
                ))?;
                told.extend(notes);
            }
            (Err(_), false) => {
                output.line(format_args!("{:<7} no       {state}", format!("m{}", member.number)))?;
                told.extend(notes);
            }
        }
    }
    if !json && asked.answers().next().is_none() {
        told.push(format!(
            "nobody answers, so this is what {} says, also of members that have left the group since: once one runs, this command says who",
            file.display()
        ));
    }
    for line in told {
        output.line(format_args!("{line}"))?;
    }
    output.flush()?;
    match failure {
        Some(failure) => Err(failure),
        None if has_primary => Ok(()),
        // How each stands is said above.
        None => Err(Failure::new(
            Status::System,
            format_args!("no member is primary now: {}", group.needs(&asked)),
        )),
    }
}

/// The group as who knows it best has it, of those that answered: a committed configuration. Who has left is no member for ever, whoever of the group says
/// so; who was added since only the primary knows for sure.
pub(super) fn known(group: &Group, asked: &Asked) -> Option<View> {
    let counting = group.members().iter().zip(&asked.standings).filter(|(_, (_, standing))| {
        standing.as_ref().is_ok_and(|standing| standing.outside.is_none() && standing.kept_out.is_empty())
    });
    let views = counting.filter_map(|(member, _)| view(group, member).ok()).filter(|known| known.committed);
    views.max_by_key(|known| (known.primary == Some(known.by), known.configuration))
}

/// Another member of the file that has not left, and whose table names the same folder: on the same machine it is that one's.
fn shares_folder(members: &[MemberConfig], of: &MemberConfig, known: Option<&View>) -> Option<u8> {
    let real = |folder: &Path| folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let folder = real(&of.folder);
    let stays =
        |number: u8| known.is_none_or(|known| known.member(number).is_some() || number > known.highest);
    let other = members.iter().filter(|other| other.number != of.number && stays(other.number));
    other.filter(|other| real(&other.folder) == folder).map(|other| other.number).next_back()
}

/// The word for a member's row, and what is to be said of it beside: why it is so, and what is to be done.
fn notes<'a>(
    file: &Path,
    number: u8,
    standing: &'a std::io::Result<Standing>,
    known: Option<&View>,
    shared: Option<u8>,
) -> (&'a str, Vec<String>) {
    let start = || format!("`windlass node --config {} --member {number}`", file.display());
    let add = || super::adding(file, number);
    let standing = match standing {
        Ok(standing) => standing,
        Err(error) => {
            let is_none = known.filter(|known| known.member(number).is_none());
            return match (is_none, error.kind()) {
                (Some(known), _) if number <= known.highest => (
                    "left",
                    vec![format!(
                        "m{number} does not run, and is no member of the group (configuration {} is without it), nor can it be under this number: nothing is to be done; {}",
                        known.configuration,
                        match shared {
                            Some(other) => format!(
                                "leave its folder: m{other}'s table names the same one, and on the same machine it is m{other}'s by now"
                            ),
                            None => String::from("its folder can be removed"),
                        }
                    )],
                ),
                (Some(known), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
                    if known.primary == Some(known.by) =>
                {
                    (
                        "new",
                        vec![format!(
                            "m{number} was never added to the group, and does not run, or is still starting ({error}): start it with {}, then {}",
                            start(),
                            add()
                        )],
                    )
                }
                (_, ErrorKind::NotFound | ErrorKind::ConnectionRefused) => (
                    "down",
                    vec![format!(
                        "m{number} does not run, or is still starting ({error}): start it, on its machine, with {}",
                        start()
                    )],
                ),
                (_, ErrorKind::TimedOut) => (
                    "stuck",
                    vec![format!(
                        "m{number} does not answer ({error}): let its process go on (`kill -CONT`), or end it and start it with {}",
                        start()
                    )],
                ),
                _ => ("unknown", vec![format!("m{number} does not answer: {error}")]),
            };
        }
    };
    if standing.is_kept_out() {
        ("kept out", standing.kept_out.iter().map(|why| format!("m{number} is kept out {why}")).collect())
    } else if let Some(why) = &standing.outside {
        // Who knows of no configuration has still to come.
        if !standing.voters.is_empty() {
            ("outside", vec![format!("m{number} is no member of the group: {why}")])
        } else {
            let (state, why) = without_configuration(file, number, known);
            (state, vec![why])
        }
    } else if standing.standing == "outside" {
        let (state, why) = without_configuration(file, number, known);
        (state, vec![why])
    } else if standing.role == "stopped" {
        let why = standing.stopped.as_deref().unwrap_or("its lines say why");
        let why = format!(
            "m{number} runs and takes part in nothing: {why}. Once that is mended end it, and start it with {}",
            start()
        );
        ("stopped", vec![why])
    } else if let Some(from) = standing.checkpoint_from {
        let why = format!(
            "m{number} can't go on with the primary's log (what it lacks is trimmed, or it had trimmed what an operator's word has given up; its lines say which): it needs a \
             checkpoint of the application that reaches at least LSN {from} (`NodeOptions::checkpoints`; `windlass node` has none); a new member in its place ({}) needs \
             none as long as the primary's log has never been trimmed",
            super::command(file, &format_args!("replace {number} NEW"))
        );
        ("waits", vec![why])
    } else if standing.role == "candidate" {
        let why = format!(
            "m{number} hears of no primary, and asks the others whether it may lead: that passes once enough of them answer, or a primary is heard of; the lines of its \
             node say whom it does not reach"
        );
        ("candidate", vec![why])
    } else if standing.role == "sealing" {
        let why = format!(
            "m{number} leads and takes no more appends: it hands over, was asked to follow another one, or ends; that passes by itself"
        );
        ("sealing", vec![why])
    } else {
        (&standing.role, Vec::new())
    }
}

/// The word for a member that runs and knows of no configuration, and what is to be done, by what the group knows of it.
pub(super) fn without_configuration(file: &Path, number: u8, known: Option<&View>) -> (&'static str, String) {
    match known {
        Some(known) if known.member(number).is_some() => (
            "waits",
            format!(
                "m{number} is in the group (configuration {}), and the primary has not reached it yet: it takes part once that does; where that lasts, its `control` address in {} is not \
                 the one where the primary's machine reaches it, or the lines of one of them say why",
                known.configuration,
                file.display()
            ),
        ),
        Some(known) if number <= known.highest => (
            "outside",
            format!(
                "m{number} is no member of the group, and can't be added any more: numbers rise, and {} was given by now. Stop it, remove its folder, and give it a table with a number above {} \
                 and `joins = true`",
                known.highest, known.highest
            ),
        ),
        Some(_) | None => {
            let add = super::adding(file, number);
            ("waits", format!("m{number} is no member of the group: it waits to be added ({add})"))
        }
    }
}

/// Who has left, or whose place was taken, may not know it: what the primary has committed counts, and advice on how to come back is none.
fn judge(standing: &mut Standing, known: &View) {
    let is_new = standing.by > known.highest && known.primary != Some(known.by);
    if known.member(standing.by).is_none() && !is_new {
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
    use crate::client::{Batches, LostCompletions, Windows};
    use crate::view::ViewMember;

    /// As the primary of a group knows it that m2 and m4 have left.
    fn known() -> View {
        View {
            by: 3,
            primary: Some(3),
            configuration: 2,
            committed: true,
            write_quorum: 2,
            takeover_quorum: 2,
            highest: 5,
            outside: None,
            members: [1, 3, 5].map(ViewMember::voter).into(),
        }
    }

    fn standing(by: u8) -> Standing {
        Standing {
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
            stopped: None,
            checkpoint_from: None,
            windows: Windows::default(),
            batches: Batches::default(),
            completions_lost: LostCompletions::default(),
        }
    }

    #[test]
    fn each_row_has_a_state_and_where_that_is_no_ordinary_one_a_reason_and_what_to_do() {
        let down = || Err(std::io::Error::new(ErrorKind::NotFound, "no process answers at m.sock"));
        let late = Err(std::io::Error::new(ErrorKind::TimedOut, "did not answer in time"));
        let with = |change: fn(&mut Standing)| {
            let mut standing = Standing { kept_out: Vec::new(), ..standing(1) };
            change(&mut standing);
            Ok(standing)
        };
        let start = "`windlass node --config g.toml --member";
        for (number, standing, known, state, words) in [
            (1, down(), Some(known()), "down", &["still starting (no process answers at m.sock)", start][..]),
            (1, down(), None, "down", &["start it", start]),
            (4, down(), Some(known()), "left", &["nothing is to be done", "configuration 2"]),
            (
                6,
                down(),
                Some(known()),
                "new",
                &[
                    "never added",
                    start,
                    "`windlass group --config g.toml add 6`",
                    "`windlass group --config g.toml replace OLD 6`",
                ],
            ),
            (1, late, None, "stuck", &["kill -CONT", start]),
            (1, Err(std::io::Error::other("m2 answers at m.sock")), None, "unknown", &["m2 answers"]),
            (1, Ok(standing(1)), None, "kept out", &["m1 is kept out by m1: use `windlass group replace`"]),
            (1, with(|s| s.role = "stopped".into()), None, "stopped", &["its lines say why", start]),
            (
                1,
                with(|s| (s.role, s.stopped) = ("stopped".into(), Some("a flush failed".into()))),
                None,
                "stopped",
                &["takes part in nothing: a flush failed. Once", start],
            ),
            (
                1,
                with(|s| (s.role, s.checkpoint_from) = ("backup".into(), Some(8008))),
                None,
                "waits",
                &["reaches at least LSN 8008", "`windlass group --config g.toml replace 1 NEW`"],
            ),
            (
                1,
                with(|s| s.standing = "outside".into()),
                None,
                "waits",
                &["waits to be added", "g.toml add 1`"],
            ),
            (
                1,
                with(|s| (s.outside, s.voters) = (Some("it waits".into()), Vec::new())),
                None,
                "waits",
                &["it waits to be added (`windlass group --config g.toml add 1`"],
            ),
            // Added, and not reached yet.
            (
                5,
                with(|s| (s.outside, s.voters) = (Some("it waits".into()), Vec::new())),
                Some(known()),
                "waits",
                &["m5 is in the group (configuration 2)", "`control` address in g.toml"],
            ),
            (
                5,
                with(|s| s.standing = "outside".into()),
                Some(known()),
                "waits",
                &["the primary has not reached it yet"],
            ),
            // Its number is spent.
            (
                4,
                with(|s| s.standing = "outside".into()),
                Some(known()),
                "outside",
                &["can't be added any more", "a number above 5"],
            ),
            (
                4,
                with(|s| (s.outside, s.voters) = (Some("it waits".into()), Vec::new())),
                Some(known()),
                "outside",
                &["can't be added any more", "5 was given", "a number above 5"],
            ),
            (1, with(|s| s.outside = Some("it has left: stop it".into())), None, "outside", &["stop it"]),
            (
                1,
                Ok(Standing { standing: "outside".into(), ..standing(1) }),
                None,
                "kept out",
                &["by m1: use"],
            ),
            (1, with(|_| ()), None, "candidate", &["hears of no primary", "that passes once"]),
            (1, with(|s| s.role = "sealing".into()), None, "sealing", &["takes no more appends"]),
            (1, with(|s| s.role = "backup".into()), None, "backup", &[]),
        ] {
            let (told, notes) = notes(Path::new("g.toml"), number, &standing, known.as_ref(), None);
            assert_eq!((told, notes.len()), (state, usize::from(!words.is_empty())), "{notes:?}");
            assert!(words.iter().all(|words| notes[0].contains(words)), "{words:?}: {notes:?}");
        }
    }

    #[test]
    fn a_folder_that_another_member_has_by_now_is_not_to_be_removed() {
        let member = |number: u8, folder: &str| MemberConfig {
            number,
            control: "127.0.0.1:7002".parse().unwrap(),
            client: "m.sock".into(),
            folder: folder.into(),
            joins: number > 3,
        };
        // m2 and m4 have left, and m5 is in m2's place.
        let members = [member(1, "m1"), member(2, "m2"), member(4, "m2"), member(5, "m2")];
        let known = known();
        assert_eq!(shares_folder(&members, &members[1], Some(&known)), Some(5));
        assert_eq!(shares_folder(&members[..3], &members[1], Some(&known)), None);
        assert_eq!(shares_folder(&members, &members[0], Some(&known)), None);
        let gone = || Err(std::io::Error::other("m5 answers at m.sock"));
        let (_, told) = notes(Path::new("g.toml"), 2, &gone(), Some(&known), Some(5));
        assert!(
            told[0].contains("leave its folder: m5's table names") && !told[0].contains("can be removed")
        );
        let (_, told) = notes(Path::new("g.toml"), 2, &gone(), Some(&known), None);
        assert!(told[0].ends_with("its folder can be removed"), "{told:?}");
    }

    #[test]
    fn a_member_that_does_not_know_that_it_has_left_is_shown_outside_and_without_advice() {
        let known = known();
        let (mut stays, mut left) = (standing(1), standing(2));
        judge(&mut stays, &known);
        judge(&mut left, &known);
        assert_eq!(stays, standing(1));
        let why = left.outside.take().unwrap();
        assert!(why.contains("configuration 2 is without it") && why.contains("stop it"), "{why}");
        assert_eq!(left, Standing { standing: "outside".into(), kept_out: Vec::new(), ..standing(2) });
    }
}
