//! What was found, and how it is told.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::exit::Failure;
use crate::log::output::Output;

/// Columns of a line for people, as far as words allow.
const COLUMNS: usize = 110;
/// Where the words of a finding begin.
const INDENT: &str = "           ";

/// How a finding stands to what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Good to know; nothing has to be done.
    Note,
    /// It will work, and worse than it could.
    Warning,
    /// What was asked for will not work, or not hold.
    Problem,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Problem => "PROBLEM",
        }
    }
}

/// What a finding is about, in the order in which they are told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Group {
    Software,
    Kernel,
    Devices,
    Network,
    Trial,
    Limits,
    Machine,
    Folder,
}

impl Group {
    fn title(self) -> &'static str {
        match self {
            Group::Software => "Software",
            Group::Kernel => "Kernel",
            Group::Devices => "RDMA devices",
            Group::Network => "Network below them",
            Group::Trial => "Tried on the device",
            Group::Limits => "Limits of this process",
            Group::Machine => "Machine",
            Group::Folder => "Folder of the log",
        }
    }
}

/// One finding: what was seen, what it means for windlass, the command that changes it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) group: Group,
    /// Stays the same from release to release.
    pub(super) id: &'static str,
    /// The device, port, interface or path, where there may be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
    pub(super) level: Level,
    pub(super) seen: String,
    pub(super) means: String,
    /// A command, as root where it has to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
    /// What was read, for programs; units last in the names.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) values: Map<String, Value>,
}

impl Finding {
    pub(super) fn new(
        group: Group,
        id: &'static str,
        level: Level,
        seen: impl Into<String>,
        means: impl Into<String>,
    ) -> Finding {
        let (seen, means) = (seen.into(), means.into());
        Finding { group, id, subject: None, level, seen, means, run: None, values: Map::new() }
    }

    pub(super) fn about(mut self, subject: impl Into<String>) -> Finding {
        self.subject = Some(subject.into());
        self
    }

    pub(super) fn run(mut self, command: impl Into<String>) -> Finding {
        self.run = Some(command.into());
        self
    }

    pub(super) fn value(mut self, name: &str, value: impl Into<Value>) -> Finding {
        self.values.insert(name.to_owned(), value.into());
        self
    }
}

/// All findings, as `--json` prints them.
#[derive(Serialize)]
pub(super) struct Report {
    /// Of this shape; a field that goes or changes its meaning makes it the next number, one that is added does not.
    pub(super) version: u32,
    pub(super) windlass: &'static str,
    pub(super) fabric: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) folder: Option<String>,
    /// The worst level of all.
    pub(super) worst: Level,
    pub(super) notes: usize,
    pub(super) warnings: usize,
    pub(super) problems: usize,
    pub(super) findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(fabric: &'static str, folder: Option<String>, mut findings: Vec<Finding>) -> Report {
        findings.sort_by_key(|finding| finding.group);
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Report {
            version: 1,
            windlass: env!("CARGO_PKG_VERSION"),
            fabric,
            folder,
            worst: findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok),
            notes: count(Level::Note),
            warnings: count(Level::Warning),
            problems: count(Level::Problem),
            findings,
        }
    }

    /// For people.
    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let mut group = None;
        let mut told = BTreeSet::new();
        for finding in &self.findings {
            if group != Some(finding.group) {
                let gap = if group.is_some() { "\n" } else { "" };
                output.line(format_args!("{gap}{}", finding.group.title()))?;
                group = Some(finding.group);
            }
            let subject = finding.subject.as_ref().map(|subject| format!("{subject}: ")).unwrap_or_default();
            let mut lines = wrapped(&format!("{subject}{}", finding.seen)).into_iter();
            let first = lines.next().unwrap_or_default();
            output.line(format_args!("  {:<8} {first}", finding.level.word()))?;
            for line in lines.chain(wrapped(&finding.means)) {
                output.line(format_args!("{INDENT}{line}"))?;
            }
            if let Some(run) = finding.run.as_deref().filter(|_| finding.level > Level::Ok) {
                // Not wrapped: it is to be copied. Once is enough, where one command mends several things.
                if told.insert(run) {
                    output.line(format_args!("{INDENT}$ {run}"))?;
                } else {
                    output.line(format_args!("{INDENT}with the same command as above"))?;
                }
            }
        }
        output.line(format_args!("\n{}", self.sum()))
    }

    /// One line for all.
    pub(super) fn sum(&self) -> String {
        let many = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let what = match self.fabric {
            "any" => "windlass",
            "tcp" => "windlass over tcp",
            _ => "windlass over verbs",
        };
        match self.worst {
            Level::Ok | Level::Note => {
                format!("Nothing stands in the way of {what} ({}).", many(self.notes, "note"))
            }
            Level::Warning => format!("{} for {what}: see above.", many(self.warnings, "warning")),
            Level::Problem => format!(
                "{} and {} for {what}: see above.",
                many(self.problems, "problem"),
                many(self.warnings, "warning")
            ),
        }
    }
}

/// Cuts a text into lines between its words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < COLUMNS - INDENT.len() => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_and_groups_stay_together() {
        let finding = |group, level| Finding::new(group, "x", level, "seen", "means");
        let report = Report::new(
            "any",
            None,
            vec![
                finding(Group::Limits, Level::Warning),
                finding(Group::Kernel, Level::Ok),
                finding(Group::Limits, Level::Note),
            ],
        );
        assert_eq!((report.worst, report.notes, report.warnings, report.problems), (Level::Warning, 1, 1, 0));
        assert_eq!(report.findings[0].group, Group::Kernel);
        assert_eq!(report.sum(), "1 warning for windlass: see above.");
        assert_eq!(Report::new("tcp", None, Vec::new()).worst, Level::Ok);
    }

    #[test]
    fn lines_end_between_words() {
        let text = "word ".repeat(60);
        let lines = wrapped(&text);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= COLUMNS - INDENT.len()));
        assert_eq!(lines.join(" "), text.trim_end());
    }
}
