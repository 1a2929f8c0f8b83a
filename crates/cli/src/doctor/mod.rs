//! `windlass doctor`: what this machine offers windlass, what is wrong with it, and the command that changes it.
//!
//! Nothing is changed and nothing is written, but a scratch file without a name in the folder, where a device is tried with it. Everything that
//! can be read from files is read through [`tree::Tree`], so that a tree which was recorded on another machine (`--root`) is judged by the same code.

mod devices;
mod finding;
mod folder;
mod machine;
mod network;
mod software;
mod tree;
mod trial;

use std::path::PathBuf;

use clap::ValueEnum;

use self::finding::{Level, Report};
use self::tree::Tree;
use crate::exit::{Failure, Status};
use crate::log::output::Output;

/// What `--help` says at the end.
const AFTER_HELP: &str = "\
Levels:
  ok       as it should be
  note     good to know; nothing has to be done
  warning  it will work, and worse than it could
  PROBLEM  what was asked for will not work, or not hold
What is missing for verbs is a note, and what is there and can't be used a warning; with --fabric verbs both are problems, with
--fabric tcp notes.

Exit status:
  0   nothing above a note
  1   warnings
  2   problems
  5   the tree of --root can't be read
  64  the command line is wrong
  141 nobody reads standard output any more

--json prints one object: version (of this shape, 1), windlass (its version), fabric, folder, worst (the worst level), notes,
warnings, problems (how many), findings: an array of objects with group (software, kernel, devices, network, trial, limits, machine,
folder), id (stays the same between releases), subject (device, port, interface or folder, where there may be several), level (ok,
note, warning, problem), seen, means, run (a command), values (what was read, by name). subject, run, values and folder may be
absent.";

/// `windlass doctor`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The folder of a log, or where one is to be: its filesystem and disk are looked at, and devices tried with its files
    folder: Option<PathBuf>,
    /// What is to carry the replication: decides how bad it is when something for verbs is missing
    #[arg(long, value_enum, default_value_t = Fabric::Any)]
    fabric: Fabric,
    /// Read /sys, /proc, /dev and /usr/lib below this folder instead: a tree that was recorded on another machine. Nothing is then asked of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Fabric {
    /// Whatever there is
    Any,
    /// TCP alone
    Tcp,
    /// An RDMA device
    Verbs,
}

/// What the machine is to do.
struct Asked {
    fabric: Fabric,
}

impl Asked {
    fn wants_verbs(&self) -> bool {
        self.fabric == Fabric::Verbs
    }

    /// How bad it is that something for verbs is not there at all.
    fn absent(&self) -> Level {
        if self.wants_verbs() { Level::Problem } else { Level::Note }
    }

    /// How bad it is that something for verbs is there and can't be used.
    fn broken(&self) -> Level {
        match self.fabric {
            Fabric::Any => Level::Warning,
            Fabric::Tcp => Level::Note,
            Fabric::Verbs => Level::Problem,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(root) = &args.root {
        // Of a tree that is not there everything would be merely absent.
        let entries = std::fs::read_dir(root);
        entries.map_err(|error| Failure::io(format_args!("the tree {}", root.display()), &error))?;
    }
    let tree = Tree::new(args.root.as_deref());
    let asked = Asked { fabric: args.fabric };
    let mut findings = software::look(&tree, &asked);
    let (of_devices, devices) = devices::look(&tree, &asked);
    findings.extend(of_devices);
    let mut interfaces: Vec<String> = devices.iter().flat_map(|device| device.interfaces.clone()).collect();
    interfaces.sort();
    interfaces.dedup();
    findings.extend(network::look(&tree, &interfaces));
    if tree.live && asked.fabric != Fabric::Tcp {
        findings.extend(trial::look(&asked, args.folder.as_deref(), &devices));
    }
    findings.extend(machine::look(&tree, &asked, !devices.is_empty()));
    if let Some(folder) = &args.folder {
        findings.extend(folder::look(&tree, folder));
    }
    let fabric = match args.fabric {
        Fabric::Any => "any",
        Fabric::Tcp => "tcp",
        Fabric::Verbs => "verbs",
    };
    let folder = args.folder.as_ref().map(|folder| folder.display().to_string());
    let report = Report::new(fabric, folder, findings);
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else {
        report.print(&mut output)?;
    }
    output.flush()?;
    // For people it stands at the end of the report already.
    let sum = if args.json { report.sum() } else { String::new() };
    match report.worst {
        Level::Ok | Level::Note => Ok(()),
        Level::Warning => Err(Failure::new(Status::Warned, sum)),
        Level::Problem => Err(Failure::new(Status::Wrong, sum)),
    }
}
