//! `windlass group …`: a group of members that were started one by one with `windlass node`.
//!
//! A member is reached through the Unix socket that the group's file names, so this works on the machine where the member runs.

mod accept_loss;
mod append;
mod init;
mod members;
mod read;
mod status;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use clap::{Subcommand, ValueEnum};
use windlass::engine::Quorums;

use self::members::Wanted;
use crate::client::{self, Pass, Reply, Request, Standing, Stranger};
use crate::exit::{Failure, Status, tell};
use crate::log::output::say;
use crate::log::source::Source;
use crate::node::config::{Config, MemberConfig};

/// How long a member may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a group may be without a primary before an append or a handover fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// After how long it is said that a primary is waited for.
const SILENCE: Duration = Duration::from_secs(2);
/// The end of a log that has no record.
const FIRST: u64 = 4096;
/// What a member has promised that has promised nothing.
const NO_EPOCH: &str = "e0.m0";
/// How often the members are asked again.
const LOOK: Duration = Duration::from_millis(10);

/// How the command ends, as its `--help` prints it.
const STATUSES: &str = "\
append, read, hand-over and changes of the group wait up to 30 s for a primary, append for one that takes the record (a primary whose disk is full
hands over to a member that has room), and say so after 2 s.

Exit status:
  0   done
  3   refused: an LSN that is trimmed, inside a record or beyond the end, a record too large, a log that is full up to its
      retention_bytes, a handover that did not come about, a loss while a primary leads, a change that the group
      can't make, a new member that was one before and is kept out, a member that has left or was not added yet (read, members: --member); init: the file exists, or its folder's path is too long
  5   the system failed, a member does not answer, or no member is primary, or takes the record (status: now; the others:
      for 30 s); add, replace: the new member has not come nearer to voting for 30 s
  64  the command line or the group's file is wrong, or the file is another group's than the member's that was asked
  141 nobody reads standard output any more, as after `| head`";

/// Where a subcommand's statuses are told.
const SEE: &str = "Exit statuses, and how long it waits for a primary: `windlass group --help`";

/// `windlass group`'s arguments.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, after_help = STATUSES)]
pub(crate) struct Args {
    /// The group, as TOML: the file that its members were started with. Default: group.toml. Not for `init`, which makes one in
    /// its --folder
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a group's file, with a random secret and log id
    #[command(after_help = SEE)]
    Init(init::Init),
    /// Where every member stands; fails if none of them is primary
    ///
    /// A row a member: whether it answers, its state (`primary`, `backup`, or another word, of which a line below the table says why and what to do), the
    /// highest epoch that it has promised, up to where it knows the log to be durable, and where its log ends.
    #[command(after_help = SEE)]
    Status {
        /// Print a JSON object for each member, one a line
        #[arg(long)]
        json: bool,
    },
    /// Append records, each once, also across takeovers; prints START END of each once it is committed
    #[command(after_help = SEE)]
    Append {
        #[command(flatten)]
        source: Source,
        /// Records in flight at a time
        #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=1000))]
        in_flight: u16,
        /// Print a JSON object for each record, and one at the end
        #[arg(long)]
        json: bool,
    },
    /// Print the committed records: at the primary all that were acknowledged, at another member what it knows to be durable
    #[command(after_help = SEE)]
    Read {
        /// From this record on. Default: the oldest that is kept
        #[arg(long, value_name = "LSN")]
        from: Option<u64>,
        /// As this member knows the log. Default: the primary
        #[arg(long, value_name = "N")]
        member: Option<u8>,
        /// A line a record, the bare bytes, `START END` and hexadecimal digits, or a JSON object a record
        #[arg(long, value_enum, default_value_t = Format::Lines)]
        format: Format,
    },
    /// Who belongs to the group, and who votes, as the primary knows, or the member that knows best
    #[command(after_help = SEE)]
    Members {
        /// As this member knows it
        #[arg(long, value_name = "N")]
        member: Option<u8>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Add a member, whose table in the group's file has `joins = true`; it votes once it has caught up
    ///
    /// Give it a table first, with a number above all that were ever given, and start it with that file:
    /// `[[members]]`, `number = 4`, `joins = true`, `control = "ADDRESS:PORT"`, `client = "SOCKET"`, `folder = "FOLDER"`; then `windlass node --config FILE
    /// --member 4`, and this command where the primary runs. The other members need not know the new file.
    #[command(after_help = SEE)]
    Add {
        /// Its number, above all that were ever given
        #[arg(value_name = "N")]
        member: u8,
        /// Return once it is a member, and not when it votes
        #[arg(long)]
        no_wait: bool,
    },
    /// Take a member out of the group
    ///
    /// A primary hands over first. Once the member says that it has left, stop it; its folder can be removed. Its number is never given again.
    #[command(after_help = SEE)]
    Remove {
        /// The member that leaves
        #[arg(value_name = "N")]
        member: u8,
    },
    /// Have a new member take the place of another one, which lost its disk for example, once it has caught up
    #[command(after_help = SEE)]
    Replace {
        /// The member that leaves
        #[arg(value_name = "OLD")]
        old: u8,
        /// The new one's number, above all that were ever given; its table in the group's file has `joins = true`
        #[arg(value_name = "NEW")]
        new: u8,
        /// Return once it is a member, and not when it votes
        #[arg(long)]
        no_wait: bool,
    },
    /// Change how many voters hold what is committed, and how many promise before another one leads
    #[command(after_help = SEE, group = clap::ArgGroup::new("sizes").required(true).multiple(true).args(["majority", "write", "takeover"]))]
    Quorums {
        /// More than half, for both
        #[arg(long, conflicts_with_all = ["write", "takeover"])]
        majority: bool,
        /// How many hold what is committed
        #[arg(long, value_name = "N", requires = "takeover")]
        write: Option<u8>,
        /// How many promise before another one leads
        #[arg(long, value_name = "N", requires = "write")]
        takeover: Option<u8>,
    },
    /// Have a member lead with what is left, where too much was lost: ACKNOWLEDGED RECORDS MAY BE LOST by it
    ///
    /// For a group in which no log can be chosen any more. The members say in their lines when that is so and what is missing; make copies of their
    /// folders first.
    #[command(after_help = SEE)]
    AcceptLoss {
        /// The member that is to lead; the best log among those that answer it goes on
        #[arg(long, value_name = "N")]
        member: u8,
        /// Says that you know that acknowledged records may be lost
        #[arg(long, required = true)]
        yes: bool,
    },
    /// Make another member the primary, without waiting for suspicion
    #[command(after_help = SEE)]
    HandOver {
        /// The member that is to lead
        #[arg(long, value_name = "N")]
        to: u8,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Lines,
    Raw,
    Hex,
    Json,
}

/// Runs one subcommand.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let file = args.config.as_deref();
    let group = || {
        let file = file.unwrap_or(Path::new("group.toml"));
        let config = Config::read(file)?;
        config.level()?;
        Ok(Group { pass: config.pass()?, config, file: file.to_path_buf() })
    };
    match &args.command {
        Command::Init(init) => match file {
            Some(file) => Err(Failure::new(
                Status::Usage,
                format_args!(
                    "init makes a new file group.toml in its --folder, and does not take --config {}: leave that out",
                    file.display()
                ),
            )),
            None => init::run(init),
        },
        Command::Status { json } => status::run(&group()?, *json),
        Command::Append { source, in_flight, json } => append::run(&append::Append {
            group: group()?,
            source: source.clone(),
            window: usize::from(*in_flight),
            json: *json,
        }),
        Command::Read { from, member, format } => read::run(&group()?, *from, *member, *format),
        Command::Members { member, json } => members::show(&group()?, *member, *json),
        Command::Add { member, no_wait } => {
            members::change(&group()?, Wanted::Add { member: *member }, !no_wait)
        }
        Command::Remove { member } => members::change(&group()?, Wanted::Remove { member: *member }, false),
        Command::Replace { old, new, no_wait } => {
            members::change(&group()?, Wanted::Replace { old: *old, new: *new }, !no_wait)
        }
        Command::Quorums { write, takeover, majority: _ } => {
            let quorums = match (*write, *takeover) {
                (Some(write), Some(takeover)) => Quorums::Sizes { write, takeover },
                (Some(_) | None, Some(_) | None) => Quorums::Majority,
            };
            members::change(&group()?, Wanted::Quorums { quorums }, false)
        }
        Command::AcceptLoss { member, yes: _ } => accept_loss::run(&group()?, *member),
        Command::HandOver { to } => hand_over(&group()?, *to),
    }
}

/// The group, as its file tells of it.
#[derive(Clone, Debug)]
struct Group {
    config: Config,
    pass: Pass,
    file: PathBuf,
}

/// The failure of a client whose file is another group's than the member that it has asked: no waiting mends that.
fn stranger(number: u8, error: &std::io::Error) -> Option<Failure> {
    let why = Stranger::of(error)?;
    Some(Failure::new(Status::Usage, format_args!("m{number}: {why}")))
}

/// The failure of a client that the member which it has asked did not answer.
fn unanswered(member: &MemberConfig, error: std::io::Error) -> Failure {
    let number = member.number;
    stranger(number, &error)
        .unwrap_or_else(|| Failure::io(format_args!("asking m{number}"), &Group::down(member, error)))
}

/// A command for the group of this file, as it is printed.
pub(crate) fn command(file: &Path, words: &(impl fmt::Display + ?Sized)) -> String {
    format!("`windlass group --config {} {words}`", file.display())
}

/// The commands by which a member that waits for it is added, in words.
pub(crate) fn adding(file: &Path, number: u8) -> String {
    let add = command(file, &format_args!("add {number}"));
    let replace = command(file, &format_args!("replace OLD {number}"));
    format!("{add}, or for the place of a member OLD {replace}")
}

impl Group {
    fn members(&self) -> &[MemberConfig] {
        &self.config.members
    }

    /// The file, as any terminal may name it.
    fn file(&self) -> PathBuf {
        self.file.canonicalize().unwrap_or_else(|_| self.file.clone())
    }

    /// A command for this group, as any terminal takes it.
    fn command(&self, words: &(impl fmt::Display + ?Sized)) -> String {
        command(&self.file(), words)
    }

    /// Where a member stands, or why it does not answer.
    fn standing(&self, member: &MemberConfig) -> std::io::Result<Standing> {
        self.standing_within(member, ANSWER)
    }

    fn standing_within(&self, member: &MemberConfig, patience: Duration) -> std::io::Result<Standing> {
        match client::ask(&member.client, &self.pass, &Request::Status, patience) {
            Ok(Reply::Status(standing)) => Group::answered(member, standing.by).map(|()| *standing),
            Ok(Reply::Failed { why }) => Err(std::io::Error::other(why)),
            Ok(other) => Err(std::io::Error::other(format!("an answer to something else: {other:?}"))),
            Err(error) => Err(Group::down(member, error)),
        }
    }

    /// Checks that the member of this number is who answers at its socket: another may have been given the place since.
    fn answered(member: &MemberConfig, by: u8) -> std::io::Result<()> {
        if by == member.number {
            return Ok(());
        }
        Err(std::io::Error::other(format!("m{by} answers at {}", member.client.display())))
    }

    /// The error of a member that did not answer: that no process is there, if that is it.
    fn down(member: &MemberConfig, error: std::io::Error) -> std::io::Error {
        let kind = error.kind();
        if error.get_ref().is_some() {
            // Said in full already.
            error
        } else if [std::io::ErrorKind::NotFound, std::io::ErrorKind::ConnectionRefused].contains(&kind) {
            let why = format!("no process answers at {}", member.client.display());
            std::io::Error::new(kind, why)
        } else if [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut].contains(&kind) {
            let why =
                "its process is there and did not answer in time: it is stopped, or its machine overloaded";
            std::io::Error::new(std::io::ErrorKind::TimedOut, why)
        } else {
            error
        }
    }

    /// The member that leads now and where it stands. Fails if a member is another group's.
    fn primary(&self) -> Result<Option<(usize, Standing)>, Failure> {
        for (at, member) in self.members().iter().enumerate() {
            match self.standing(member) {
                Ok(standing) if standing.role == "primary" => return Ok(Some((at, standing))),
                Ok(_) => {}
                Err(error) => stranger(member.number, &error).map_or(Ok(()), Err)?,
            }
        }
        Ok(None)
    }

    /// Waits for a member that leads.
    fn wait_for_primary(&self) -> Result<(usize, Standing), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(primary) = self.primary()? {
                return Ok(primary);
            }
            if Instant::now() > deadline {
                return Err(self.no_primary(&format_args!("within {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks every member where it stands.
    fn ask_all(&self) -> Asked {
        let standings = self.members().iter().map(|member| (member.number, self.standing(member)));
        let standings: Vec<_> = standings.collect();
        let founders: Vec<u8> =
            self.members().iter().filter(|member| !member.joins).map(|member| member.number).collect();
        let majority = founders.len() / 2 + 1;
        let quorum = self
            .config
            .quorums
            .map_or(majority, |sizes| usize::from(sizes.write_quorum.max(sizes.takeover_quorum)));
        Asked {
            standings,
            founders,
            quorum,
            accept_loss: self.command("accept-loss --member N --yes"),
            status: self.command("status"),
        }
    }

    /// The failure of a group without a primary: how each member stands.
    fn no_primary(&self, when: &dyn std::fmt::Display) -> Failure {
        let asked = self.ask_all();
        let needs = self.needs(&asked);
        Failure::new(
            Status::System,
            format_args!("no member is primary {when}: {}; {needs}", asked.words().join(", ")),
        )
    }

    /// What a group needs whose members have answered this, and none of them leads.
    fn needs(&self, asked: &Asked) -> String {
        match asked.far() {
            Some(far) if asked.lacks_majority().is_some() => format!(
                "m{far} was followed as primary, and does not answer here: if it runs on another machine, run this there; else start the members that are down: {}",
                asked.needs()
            ),
            Some(far) => format!(
                "m{far} is followed as primary, and does not answer here: either it runs on another machine, then run this there; or it has just died, then \
                 another member leads after some {} ms if enough of them run: ask again",
                self.config.suspicion_ms
            ),
            None => asked.needs(),
        }
    }
}

/// What each member of the file has answered.
struct Asked {
    standings: Vec<(u8, std::io::Result<Standing>)>,
    /// Who voted when the group began, and how many of these had to run, by the file.
    founders: Vec<u8>,
    quorum: usize,
    /// The commands by which a member leads with what is left, and by which all is shown.
    accept_loss: String,
    status: String,
}

impl Asked {
    fn answers(&self) -> impl Iterator<Item = &Standing> + '_ {
        self.standings.iter().filter_map(|(_, standing)| standing.as_ref().ok())
    }

    /// How each stands, in words.
    fn words(&self) -> Vec<String> {
        let words = |(number, standing): &(u8, std::io::Result<Standing>)| match standing {
            Ok(standing) if standing.is_kept_out() => {
                format!("m{number} is kept out ({} says why)", self.status)
            }
            Ok(standing) if standing.standing == "outside" => format!("m{number} is no member of the group"),
            Ok(standing) => {
                let damaged = if standing.damaged { ", damaged" } else { "" };
                match standing.epoch.as_str() {
                    NO_EPOCH => {
                        format!("m{number} is {}, and has promised no epoch yet{damaged}", standing.role)
                    }
                    epoch => format!("m{number} is {} in {epoch}{damaged}", standing.role),
                }
            }
            Err(error) => format!("m{number} does not answer ({error})"),
        };
        self.standings.iter().map(words).collect()
    }

    /// The primary that somebody follows, where it does not answer itself.
    fn far(&self) -> Option<u8> {
        self.answers().filter_map(|standing| standing.follows).find(|primary| {
            !self.standings.iter().any(|(number, standing)| number == primary && standing.is_ok())
        })
    }

    /// Who votes, and how many of them a primary needs: as the first has it that counts, or as the file has it.
    fn voters(&self) -> (&[u8], usize) {
        let knows = self.answers().find(|standing| counts(standing));
        knows.map_or((&self.founders, self.quorum), |knows| (&knows.voters, knows.quorum))
    }

    /// The voters that answer as such.
    fn running(&self) -> Vec<u8> {
        let answers = |voter: &u8| self.answers().any(|standing| standing.by == *voter && counts(standing));
        self.voters().0.iter().copied().filter(answers).collect()
    }

    /// That too few voters answer, in words, if so.
    fn lacks_majority(&self) -> Option<String> {
        let ((voters, quorum), running) = (self.voters(), self.running());
        let who = match running.as_slice() {
            [] => format!("none of {} answers as a voter", names(voters)),
            [only] if quorum > 1 => format!("of {} only m{only} answers as a voter", names(voters)),
            running if running.len() < quorum => {
                format!("of {} only {} answer as voters", names(voters), names(running))
            }
            _ => return None,
        };
        let lacks = if quorum > voters.len() / 2 { "no majority" } else { "no quorum" };
        Some(format!("{lacks}: {who}"))
    }

    /// What a group needs in which nobody leads.
    fn needs(&self) -> String {
        let ((voters, quorum), running) = (self.voters(), self.running());
        let all = names(voters);
        let lacks = self.lacks_majority();
        let prefix = lacks.map_or_else(String::new, |lacks| format!("{lacks}: "));
        if !self.answers().any(counts) {
            return format!("{prefix}{quorum} of {all} have to run, and all of them where none ever led");
        }
        // Who has no record yet, damage aside, is of a group in which nobody has led.
        let is_new = self.answers().all(|standing| standing.tail <= FIRST && !standing.damaged);
        if is_new && running.len() < voters.len() {
            return format!("{prefix}for the first start of a group all of its members have to run: {all}");
        }
        if running.len() < quorum {
            return format!("{prefix}{quorum} of {all} have to run");
        }
        let running = (running.len(), voters.len());
        if self.answers().any(|standing| standing.damaged) {
            let down = if running.0 < running.1 { "start the members that are down, " } else { "" };
            return format!(
                "{} of {all} run, and some of them have lost what they may have acknowledged, so that none can be chosen yet. Their nodes' lines say who lacks \
                 which LSNs: wait some seconds, {down}restore the folder of one that had all of it from a copy, or go on with what is left by {}, by which acknowledged \
                 records may be lost (README, \"On the command line\")",
                running.0, self.accept_loss
            );
        }
        format!("{} of {all} run: their nodes' lines say what keeps them from leading", running.0)
    }
}

/// Who is kept out neither votes nor knows who does.
fn counts(standing: &Standing) -> bool {
    standing.standing == "voter" && standing.kept_out.is_empty()
}

fn names(members: &[u8]) -> String {
    members.iter().map(|member| format!("m{member}")).collect::<Vec<_>>().join(", ")
}

/// Says once on standard error, after [`SILENCE`], that a primary is waited for; nothing if it is dropped before.
struct Notice {
    _until: Sender<()>,
}

impl Notice {
    fn new(group: &Group) -> Notice {
        let (until, over) = channel::<()>();
        let group = group.clone();
        std::thread::spawn(move || {
            if over.recv_timeout(SILENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let asked = group.ask_all();
            let lacks = asked.lacks_majority().filter(|_| asked.far().is_none());
            let lacks = lacks.map_or_else(String::new, |lacks| format!("; {lacks}"));
            // Asking takes its time: it may be over.
            if over.try_recv() == Err(TryRecvError::Empty) {
                tell(format_args!(
                    "waiting for a primary that can commit: {}{lacks}; gives up after {} s",
                    asked.words().join(", "),
                    PATIENCE.as_secs()
                ));
            }
        });
        Notice { _until: until }
    }
}

fn hand_over(group: &Group, to: u8) -> Result<(), Failure> {
    let heir = group.config.member(to)?;
    let notice = Notice::new(group);
    let (at, standing) = group.wait_for_primary()?;
    drop(notice);
    let primary = &group.members()[at];
    if primary.number == to {
        say(format_args!("m{to} is primary already, epoch {}", standing.epoch))?;
        return Ok(());
    }
    match client::ask(&primary.client, &group.pass, &Request::HandOver { to }, PATIENCE) {
        Ok(Reply::HandedOver) => {}
        Ok(Reply::Failed { why }) => {
            return Err(Failure::new(Status::Refused, format_args!("m{}: {why}", primary.number)));
        }
        Ok(other) => {
            return Err(Failure::new(Status::System, format_args!("m{} answered {other:?}", primary.number)));
        }
        Err(error) => return Err(unanswered(primary, error)),
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(standing) = group.standing(heir)
            && standing.role == "primary"
        {
            say(format_args!("m{to} is primary, epoch {}", standing.epoch))?;
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure::new(
                Status::System,
                format_args!(
                    "m{} gave its tenure up, but m{to} has not become primary: see {}",
                    primary.number,
                    group.command("status")
                ),
            ));
        }
        std::thread::sleep(LOOK);
    }
}
