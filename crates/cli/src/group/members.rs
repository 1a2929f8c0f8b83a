//! `windlass group members`, `add`, `remove`, `replace` and `quorums`: who belongs to the group.
//!
//! A change is asked of the primary, which answers once it is committed. If that one dies meanwhile the next one's members tell what came of it; where they
//! don't show it, it is asked for again, which is safe: no number is given twice, and nobody leaves twice.

use std::fmt;
use std::time::{Duration, Instant};

use windlass::MemberId;
use windlass::engine::{Change, Quorums};

use super::{ANSWER, Group, LOOK, Notice, PATIENCE, SILENCE};
use crate::client::{self, NotChanged, Reply, Request, Standing};
use crate::exit::{Failure, Status, counted, tell};
use crate::log::output::{Output, say};
use crate::node::config::MemberConfig;
use crate::view::View;

/// How often is looked while a member catches up.
const PAUSE: Duration = Duration::from_millis(50);
/// How often it is said for what is waited.
const AGAIN: Duration = Duration::from_secs(10);

/// What is to be changed, as the command line has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Add { member: u8 },
    Remove { member: u8 },
    Replace { old: u8, new: u8 },
    Quorums { quorums: Quorums },
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Wanted::Add { member } => write!(f, "m{member} is to be added"),
            Wanted::Remove { member } => write!(f, "m{member} is to leave"),
            Wanted::Replace { old, new } => write!(f, "m{new} is to take the place of m{old}"),
            Wanted::Quorums { .. } => f.write_str("the quorums are to change"),
        }
    }
}

/// How far the group is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    Nothing,
    /// The change is committed; this member catches up, and does not vote yet.
    Learns(u8),
    All,
}

/// What came of asking.
enum Answered {
    /// The change is committed in the configuration of this number; this member catches up.
    Learns { learner: u8, number: u64 },
    /// The group is what is wanted.
    Done(View),
    /// It was so before anybody asked: the member that is to leave is none.
    Gone(View),
}

impl Wanted {
    /// The change to ask for. The file has the addresses of new members.
    fn change(self, group: &Group) -> Result<Change, Failure> {
        Ok(match self {
            Wanted::Add { member } => {
                let address = Some(joining(group, member)?.control);
                Change::Add { member: MemberId(member), address }
            }
            Wanted::Remove { member } => Change::Remove { member: MemberId(member) },
            Wanted::Replace { old, new } if old == new => {
                let message = format_args!(
                    "m{old} can't take its own place: name the number of the new member, whose table has `joins = true`"
                );
                return Err(Failure::new(Status::Usage, message));
            }
            Wanted::Replace { old, new } => {
                let address = Some(joining(group, new)?.control);
                Change::Replace { old: MemberId(old), new: MemberId(new), address }
            }
            Wanted::Quorums { quorums } => Change::Quorums { quorums },
        })
    }

    /// Who is to vote in the end and did not before.
    fn new_member(self) -> Option<u8> {
        match self {
            Wanted::Add { member: new } | Wanted::Replace { new, .. } => Some(new),
            Wanted::Remove { .. } | Wanted::Quorums { .. } => None,
        }
    }

    /// How far the group is, if this is what it is.
    fn reached(self, view: &View) -> Reached {
        if !view.committed {
            return Reached::Nothing;
        }
        let new = |number: u8, replaces: Option<u8>| match view.member(number) {
            Some(member) if member.votes() => match replaces {
                // Somebody else's doing: the new one votes beside the old one.
                Some(old) if view.member(old).is_some() => Reached::Nothing,
                Some(_) | None => Reached::All,
            },
            Some(member) if member.replaces == replaces => Reached::Learns(number),
            Some(_) | None => Reached::Nothing,
        };
        match self {
            Wanted::Add { member } => new(member, None),
            Wanted::Replace { old, new: number } => new(number, Some(old)),
            Wanted::Remove { member } if view.member(member).is_none() => Reached::All,
            Wanted::Remove { .. } => Reached::Nothing,
            Wanted::Quorums { quorums } => {
                let sizes = quorums.sizes(view.voters().count());
                if sizes == (view.write_quorum, view.takeover_quorum) {
                    Reached::All
                } else {
                    Reached::Nothing
                }
            }
        }
    }

    /// The line once it is done.
    fn done(self, view: &View) -> String {
        let what = match self {
            Wanted::Add { member } => format!("m{member} votes"),
            Wanted::Remove { member } => format!("m{member} has left"),
            Wanted::Replace { old, new } => format!("m{new} votes in the place of m{old}"),
            Wanted::Quorums { .. } => {
                let (write, takeover) = (view.write_quorum, view.takeover_quorum);
                format!("{write} of {} {}", view.voters().count(), quorums(write, takeover))
            }
        };
        format!("{what}: configuration {} of {}", view.configuration, voters(view))
    }
}

/// The table of a member that is to join.
fn joining(group: &Group, number: u8) -> Result<&MemberConfig, Failure> {
    let members = group.members();
    match members.iter().find(|member| member.number == number) {
        Some(member) if member.joins => Ok(member),
        Some(_) => {
            let known = members
                .iter()
                .filter_map(|member| view(group, member).ok())
                .max_by_key(|view| view.configuration);
            let in_file = members.iter().map(|member| member.number).max().unwrap_or(0);
            Err(Failure::new(Status::Usage, no_joiner(number, in_file, known.as_ref())))
        }
        None => Err(Failure::new(
            Status::Usage,
            format_args!(
                "the group's file has no member {number}: add its table, for the new member to be started with the same file:\n\n\
                 [[members]]\nnumber = {number}\njoins = true\ncontrol = \"ADDRESS:PORT\"\nclient = \"SOCKET\"\nfolder = \"FOLDER\"\n"
            ),
        )),
    }
}

/// Why a member whose table has no `joins = true` is not to be added, by what the group itself knows, and what to do.
fn no_joiner(number: u8, highest_in_file: u8, known: Option<&View>) -> String {
    let sets = "set `joins = true` in its [[members]] table, and start it with that and an empty folder";
    let highest = known.map_or(0, |view| view.highest).max(highest_in_file);
    let other = format!(
        "a number belongs to one disk for ever: give the new member its own [[members]] table, with `joins = true` and a number above {highest}"
    );
    match known {
        Some(view) if number > view.highest => format!(
            "m{number} never was in the group (configuration {} of {}), and its table says that the group began with it: {sets}",
            view.configuration,
            voters(view)
        ),
        Some(view) if view.member(number).is_some() => {
            format!("m{number} is in the group already (configuration {}); {other}", view.configuration)
        }
        Some(view) => {
            format!("m{number} is not in the group any more (configuration {}); {other}", view.configuration)
        }
        None => format!(
            "the file says that the group began with m{number}, and no member answers here that could tell. If it did, {other}. If it never was in the group, {sets}"
        ),
    }
}

/// What so many voters do.
fn quorums(write: usize, takeover: usize) -> String {
    let ends = |count: usize| if count == 1 { "s" } else { "" };
    format!(
        "hold{} what is committed, and {takeover} promise{} before one leads",
        ends(write),
        ends(takeover)
    )
}

fn voters(view: &View) -> String {
    let voters: Vec<String> = view.voters().map(|voter| format!("m{voter}")).collect();
    voters.join(", ")
}

/// What a member knows of the group.
pub(super) fn view(group: &Group, member: &MemberConfig) -> std::io::Result<View> {
    match client::ask(&member.client, &group.pass, &Request::Members, ANSWER) {
        Ok(Reply::Members(view)) => Group::answered(member, view.by).map(|()| view),
        Ok(Reply::Failed { why }) => Err(std::io::Error::other(why)),
        Ok(other) => Err(std::io::Error::other(format!("an answer to something else: {other:?}"))),
        Err(error) => Err(Group::down(member, error)),
    }
}

/// Changes the group, and waits until a new member votes unless that is not wanted.
pub(super) fn change(group: &Group, wanted: Wanted, waits: bool) -> Result<(), Failure> {
    let change = wanted.change(group)?;
    let learner = match ask(group, wanted, change)? {
        Answered::Learns { learner, number } => {
            say(format_args!("m{learner} learns: configuration {number}; it votes once it has caught up"))?;
            learner
        }
        Answered::Done(view) => {
            say(format_args!("{}", wanted.done(&view)))?;
            return wanted.new_member().map_or(Ok(()), |number| check_comes(group, number));
        }
        Answered::Gone(view) => {
            let Wanted::Remove { member } = wanted else { return Ok(()) };
            say(format_args!(
                "m{member} is no member: configuration {} of {}",
                view.configuration,
                voters(&view)
            ))?;
            return Ok(());
        }
    };
    if waits { wait_for_vote(group, wanted, learner) } else { Ok(()) }
}

/// Fails if what runs as this member, which votes already, is kept out: its folder is not the one that it became a member with.
fn check_comes(group: &Group, number: u8) -> Result<(), Failure> {
    let standing = group.config.member(number).ok().and_then(|member| group.standing(member).ok());
    let Some(standing) = standing.filter(Standing::is_kept_out) else { return Ok(()) };
    let message = format_args!(
        "m{number} was in the group before, so that nothing was changed, and what runs as m{number} is kept out {}",
        standing.kept_out.join("; ")
    );
    Err(Failure::new(Status::Refused, message))
}

/// Asks primaries until one has committed the change.
fn ask(group: &Group, wanted: Wanted, change: Change) -> Result<Answered, Failure> {
    let (began, mut said, mut last) = (Instant::now(), false, String::new());
    let (mut is_asked, mut is_made, mut refused) = (false, false, None);
    loop {
        if began.elapsed() > PATIENCE {
            let message = format_args!(
                "{wanted}, and that was not committed within {} s: {last}; see {}",
                PATIENCE.as_secs(),
                group.command("members")
            );
            return Err(Failure::new(Status::System, message));
        }
        if began.elapsed() > SILENCE && !said {
            said = true;
            tell(format_args!("waiting: {last}; gives up after {} s", PATIENCE.as_secs()));
        }
        let notice = Notice::new(group);
        let (at, _) = group.wait_for_primary()?;
        drop(notice);
        let primary = &group.members()[at];
        match view(group, primary) {
            Ok(view) if view.primary == Some(primary.number) && !view.committed => {
                last = format!("configuration {} is not committed yet", view.configuration);
                std::thread::sleep(LOOK);
                continue;
            }
            Ok(view) if view.primary == Some(primary.number) => {
                let reached = wanted.reached(&view);
                // Who never was a member has not left, either: above all numbers that were given the primary says so.
                if let (Reached::All, Wanted::Remove { member }) = (reached, wanted)
                    && !is_asked
                    && member <= view.highest
                {
                    return Ok(Answered::Gone(view));
                }
                let is_leaving = matches!(wanted, Wanted::Remove { .. });
                match reached {
                    Reached::All if is_asked || !is_leaving => return Ok(Answered::Done(view)),
                    Reached::Learns(learner) => {
                        return Ok(Answered::Learns { learner, number: view.configuration });
                    }
                    Reached::All | Reached::Nothing => {}
                }
            }
            Ok(_) => {
                last = format!("m{} is no longer primary", primary.number);
                std::thread::sleep(LOOK);
                continue;
            }
            Err(error) => {
                last = format!("m{}: {error}", primary.number);
                std::thread::sleep(LOOK);
                continue;
            }
        }
        if let Some(refused) = refused.take() {
            return Err(refused);
        }
        if is_made {
            // This primary is a new one, and has not got there yet.
            std::thread::sleep(LOOK);
            continue;
        }
        let was_asked = std::mem::replace(&mut is_asked, true);
        match client::ask(&primary.client, &group.pass, &Request::Change(change), PATIENCE) {
            Ok(Reply::Changed { number }) => {
                if let Some(learner) = wanted.new_member() {
                    return Ok(Answered::Learns { learner, number });
                }
                // What it made shows in its members.
                is_made = true;
            }
            Ok(Reply::NotChanged { what: NotChanged::Refused, why }) => {
                let failure = Failure::new(Status::Refused, format_args!("m{}: {why}", primary.number));
                if !was_asked {
                    return Err(failure);
                }
                // It may have been made just now, as it was asked for before.
                refused = Some(failure);
            }
            Ok(Reply::NotChanged { what: NotChanged::Passes | NotChanged::Unknown, why }) => last = why,
            Ok(other) => last = format!("m{} answered {other:?}", primary.number),
            Err(error) => last = format!("m{}: {error}", primary.number),
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until the learner votes, for as long as it gets on.
fn wait_for_vote(group: &Group, wanted: Wanted, learner: u8) -> Result<(), Failure> {
    let number = format!("m{learner}");
    let (mut moved, mut said, mut seen) = (Instant::now(), Instant::now(), None);
    let mut is_first = true;
    loop {
        std::thread::sleep(PAUSE);
        let Some((at, _)) = group.primary()? else {
            if moved.elapsed() > PATIENCE {
                return Err(group.no_primary(&format_args!("within {} s", PATIENCE.as_secs())));
            }
            continue;
        };
        let Ok(view) = view(group, &group.members()[at]) else { continue };
        match wanted.reached(&view) {
            Reached::All => {
                say(format_args!("{}", wanted.done(&view)))?;
                return Ok(());
            }
            Reached::Nothing if view.committed && view.member(learner).is_none() => {
                let message = format_args!(
                    "{number} was taken out of the group again: configuration {} of {}",
                    view.configuration,
                    voters(&view)
                );
                return Err(Failure::new(Status::Refused, message));
            }
            Reached::Nothing | Reached::Learns(_) => {}
        }
        let standing = group.members().iter().find(|member| member.number == learner);
        let standing = standing.and_then(|member| group.standing(member).ok());
        let follows = view.member(learner).and_then(|member| member.follows.clone());
        let now =
            Some((view.configuration, follows.clone(), standing.as_ref().map(|standing| standing.tail)));
        if now != seen {
            (seen, moved) = (now, Instant::now());
        }
        let words = match (follows.as_deref(), standing) {
            (Some("needs-snapshot"), _) => {
                format!("{number} needs a checkpoint of the application: what it lacks is trimmed")
            }
            (Some("streaming"), Some(standing)) => format!("{number} catches up, at LSN {}", standing.tail),
            (Some("streaming"), None) => format!("{number} catches up"),
            (Some(_) | None, Some(standing)) if standing.is_kept_out() => {
                format!("{number} is kept out {}", standing.kept_out.join("; "))
            }
            (Some(_) | None, Some(_)) => format!("{number} runs, and does not follow the primary yet"),
            (Some(_) | None, None) => format!(
                "{number} does not run here: start it with `windlass node --config {} --member {learner}`",
                group.file().display()
            ),
        };
        if moved.elapsed() > PATIENCE {
            let message = format_args!(
                "{words}; that has not changed for {} s. It stays a member that learns, and votes once it has caught up ({}); {} takes it back",
                PATIENCE.as_secs(),
                group.command("members"),
                group.command(&format_args!("remove {learner}"))
            );
            return Err(Failure::new(Status::System, message));
        }
        if said.elapsed() > if is_first { SILENCE } else { AGAIN } {
            (said, is_first) = (Instant::now(), false);
            tell(format_args!("waiting: {words}"));
        }
    }
}

/// Prints who belongs to the group, as `member` knows; otherwise as the primary does, or who has the newest configuration.
pub(super) fn show(group: &Group, member: Option<u8>, json: bool) -> Result<(), Failure> {
    let asked = match member {
        Some(number) => vec![group.config.member(number)?],
        None => group.members().iter().collect(),
    };
    let mut best = None;
    let mut errors = Vec::new();
    for member in asked {
        match view(group, member) {
            Ok(view) => {
                // Who is kept out knows what its new folder was told, if anything.
                let counts = group.standing(member).is_ok_and(|standing| standing.kept_out.is_empty());
                let rank = (
                    view.primary == Some(view.by),
                    view.outside.is_none() && counts,
                    view.configuration,
                    view.committed,
                );
                if best.as_ref().is_none_or(|(_, of_best)| rank > *of_best) {
                    best = Some((view, rank));
                }
            }
            Err(error) => {
                super::stranger(member.number, &error).map_or(Ok(()), Err)?;
                errors.push(format!("m{} ({error})", member.number));
            }
        }
    }
    let Some((view, (leads, ..))) = best else {
        return Err(Failure::new(Status::System, format_args!("no member answers: {}", errors.join(", "))));
    };
    // What is printed then may be out of date, or what a new folder was told.
    if member.is_none() && !leads {
        let asked = group.ask_all();
        if let Some(lacks) = asked.lacks_majority().filter(|_| asked.far().is_none()) {
            tell(format_args!("{lacks}, so that this may be out of date: {}", asked.words().join(", ")));
        }
    }
    let mut output = Output::new();
    if json {
        output.json(&view)?;
    } else {
        print(group, &view, &mut output)?;
    }
    output.flush()?;
    match &view.outside {
        Some(why) => Err(Failure::new(
            Status::Refused,
            format_args!("m{} is no member of the group: {why}. Its members know who they are", view.by),
        )),
        None => Ok(()),
    }
}

fn print(group: &Group, view: &View, output: &mut Output) -> Result<(), Failure> {
    let by = view.by;
    let (leads, primary) = (view.primary == Some(by), view.primary);
    let whose = match primary {
        _ if leads => format!("m{by}, the primary, has it"),
        _ if view.outside.is_some() => format!("m{by} has it, which is no member any more"),
        Some(primary) => format!("m{by} has it, which follows m{primary}"),
        None => format!("m{by} has it, which knows no primary"),
    };
    if view.members.is_empty() {
        let standing = group.config.member(by).ok().and_then(|member| group.standing(member).ok());
        if let Some(standing) = standing.filter(Standing::is_kept_out) {
            let why = standing.kept_out.join("; ");
            return output.line(format_args!("m{by} knows of no configuration, and is kept out {why}"));
        }
        let known = super::status::known(group, &group.ask_all());
        let (_, why) = super::status::without_configuration(&group.file(), by, known.as_ref());
        return output.line(format_args!("m{by} knows of no configuration; {why}"));
    }
    output.line(format_args!(
        "configuration {}{}, as {whose}: of {} {} {}",
        view.configuration,
        if view.committed { "" } else { " (not known to be committed)" },
        counted(view.voters().count() as u64, "voter"),
        view.write_quorum,
        quorums(view.write_quorum, view.takeover_quorum)
    ))?;
    output.line(format_args!("member  standing  follows          address"))?;
    for member in &view.members {
        let config = group.members().iter().find(|config| config.number == member.member);
        let address = config.map(|config| config.control).or(member.address);
        let replaces =
            member.replaces.map(|old| format!("  takes the place of m{old} once it has caught up"));
        output.line(format_args!(
            "{:<7} {:<9} {:<16} {}{}",
            format!("m{}", member.member),
            member.standing,
            member.follows.as_deref().unwrap_or("-"),
            address.map_or_else(|| String::from("-"), |address| address.to_string()),
            replaces.unwrap_or_default()
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ViewMember;

    #[test]
    fn why_no_table_of_one_that_joins_can_be_used_is_told_by_what_the_group_knows() {
        let view = View {
            by: 4,
            primary: Some(4),
            configuration: 9,
            committed: true,
            write_quorum: 2,
            takeover_quorum: 2,
            highest: 6,
            outside: None,
            members: [4, 5, 6].map(ViewMember::voter).into(),
        };
        let never = no_joiner(7, 7, Some(&view));
        assert!(never.contains("never was in the group") && never.contains("set `joins = true`"), "{never}");
        let left = no_joiner(1, 7, Some(&view));
        assert!(left.contains("not in the group any more") && left.contains("above 7"), "{left}");
        assert!(no_joiner(5, 6, Some(&view)).contains("is in the group already"));
        let unknown = no_joiner(7, 7, None);
        assert!(unknown.contains("no member answers") && unknown.contains("set `joins = true`"), "{unknown}");
    }

    #[test]
    fn who_answers_at_the_socket_of_another_is_not_taken_for_it() {
        let member = MemberConfig {
            number: 2,
            control: "127.0.0.1:7002".parse().unwrap(),
            client: "m2.sock".into(),
            folder: "m2".into(),
            joins: true,
        };
        assert!(Group::answered(&member, 2).is_ok());
        let other = Group::answered(&member, 4).unwrap_err();
        assert_eq!(other.to_string(), "m4 answers at m2.sock");
    }
}
