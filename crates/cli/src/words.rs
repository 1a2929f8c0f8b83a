//! What the library's lines and errors call by the library's own items, in commands: the library is for any program, and this one is worked with by commands.
//!
//! A line of the library says what to do and names the item that does it, in backticks. Each of these that a command, or a key of the group's file,
//! stands for has a row here; a test reads the library's sources and finds one that has none.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::exit::LACKS_THREAD;

/// What a full log takes in a group that was started by `windlass node`.
pub(crate) const WAY_OUT: &str = "have the program that uses the log trim it (no command does), or raise retention_bytes in the file of every member, and stop and start \
                                  each, one after the other";

/// What a log says behind which a thread is missing; the system's words follow.
const NO_THREAD: &str = "starting a thread failed";
/// What a member says that knows no configuration: it can't tell whether it was added.
const NO_GROUP_YET: &str =
    "this member belongs to no group yet: it waits for a primary that has added it (`Node::change`)";

/// What the library says, and what is said for it.
#[derive(Clone, Debug)]
pub(crate) struct Words(Vec<(Cow<'static, str>, String)>);

impl Words {
    /// Of a lone log: its folder is put in, also into what `windlass log` says itself.
    pub(crate) fn of_log(folder: &Path) -> Words {
        let folder = folder.display();
        let mut words = Words(Vec::new());
        words.say([
            (NO_THREAD, format!("{NO_THREAD}{LACKS_THREAD}")),
            ("a dry run of `windlass::store::repair`", format!("`windlass log repair {folder} --dry-run`")),
            ("`windlass::store::repair`", format!("`windlass log repair {folder}`")),
            ("`Log::open_trimmed`", format!("`windlass log trim {folder} --before LSN`")),
            ("`windlass log repair --", format!("`windlass log repair {folder} --")),
        ]);
        for (subcommand, rest) in [
            ("read", ""),
            ("verify", ""),
            ("repair", ""),
            ("salvage", " --to NEW"),
            ("trim", " --before LSN"),
            ("truncate", " --from LSN"),
        ] {
            let (bare, whole) = (
                format!("`windlass log {subcommand}`"),
                format!("`windlass log {subcommand} {folder}{rest}`"),
            );
            words.0.push((bare.into(), whole));
        }
        words
    }

    fn say<const N: usize>(&mut self, rows: [(&'static str, String); N]) {
        self.0.extend(rows.map(|(item, command)| (Cow::from(item), command)));
    }

    /// Of a member of the group of this file.
    pub(crate) fn of_member(file: &Path, member: u8, folder: &Path) -> Words {
        let file = file.canonicalize().unwrap_or_else(|_| PathBuf::from(file));
        let command = |words: fmt::Arguments<'_>| crate::group::command(&file, &words);
        let mut words = Words::of_log(folder);
        words.say([
            ("trim it (`Log::trim`) or open it with a larger retention_bytes", WAY_OUT.to_owned()),
            (
                "trim it (`Log::trim`)",
                "have the program that uses the log trim it (no command does)".to_owned(),
            ),
            (
                NO_GROUP_YET,
                format!(
                    "no primary has told this member that it is in the group: where it was not added yet, {}; where it was, it takes part once the primary reaches it (\
                     {} shows how the primary sees it)",
                    crate::group::adding(&file, member),
                    command(format_args!("members"))
                ),
            ),
            ("`Node::change`", crate::group::adding(&file, member)),
            // Lines of which some are left out say how many: where none were, that is nothing to be told.
            (", unsaid_before: 0", String::new()),
            ("`Change::Replace`", command(format_args!("replace {member} NEW"))),
            // The command's word gives up both.
            (", or `Node::accept_memory_loss` where only memory was lost", String::new()),
            ("`Node::accept_loss`", command(format_args!("accept-loss --member N --yes"))),
            ("`Node::status`", command(format_args!("status"))),
            ("`NodeOptions::joined`", format!("`joins = true` in its table in {}", file.display())),
        ]);
        words
    }

    /// The text with commands in the items' places.
    pub(crate) fn put(&self, text: &(impl fmt::Display + ?Sized)) -> String {
        self.0.iter().fold(text.to_string(), |text, (item, command)| text.replace(item.as_ref(), command))
    }
}

/// Lines on their way out, each written at once: with commands in the items' places.
pub(crate) struct Worded<W> {
    pub(crate) to: W,
    pub(crate) words: Words,
}

impl<W: Write> Write for Worded<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.to.write_all(self.words.put(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use windlass::control::Exclusion;
    use windlass::engine::{StopReason, Undecided};
    use windlass::{Lsn, MemberId};

    use super::*;

    fn member() -> Words {
        Words::of_member(Path::new("no/group.toml"), 4, Path::new("/srv/m4"))
    }

    /// Items in backticks that stand in what the library prints: not in its comments.
    fn items(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                items(&entry.path(), found);
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let quoted = line.split('`').skip(1).step_by(2);
                let quoted = quoted.filter(|item| item.contains("::") && !item.contains(' '));
                found.extend(quoted.map(|item| format!("`{item}`")));
            }
        }
    }

    #[test]
    fn whatever_item_the_library_names_in_a_line_has_a_command_here() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = BTreeSet::new();
        for library in ["engine", "log", "store", "tcp", "windlass"] {
            items(&crates.join(library).join("src"), &mut found);
        }
        assert!(found.len() >= 6, "{found:?}");
        // A trim and a word for memory alone are nothing that a command does: what is said for them is a whole phrase, and so is looked for below.
        found.remove("`Log::trim`");
        found.remove("`Node::accept_memory_loss`");
        for item in found {
            assert_ne!(member().put(&item), item, "a line names it, and no command is said for it");
        }
    }

    #[test]
    fn what_a_member_is_told_to_do_is_a_command_with_the_groups_file() {
        let replace = "`windlass group --config no/group.toml replace 4 NEW`";
        let copied =
            windlass::store::OpenError::Copied { folder: "/srv/m4".into(), log_id: windlass::LogId([7; 16]) };
        for said in [
            Exclusion::OtherDisk { known: 1, found: 2 }.to_string(),
            StopReason::OtherDisk { known: 1, found: 2 }.to_string(),
            copied.to_string(),
        ] {
            let said = member().put(&said);
            assert!(said.contains(replace) && !said.contains("::"), "{said}");
        }
        let lost = Undecided::Lost { member: MemberId(1), from: Lsn(1), mark: Lsn(2) };
        let said = member().put(&lost);
        assert!(
            said.contains("`windlass group --config no/group.toml accept-loss --member N --yes`"),
            "{said}"
        );
        let news = include_str!("../../windlass/src/driver/news.rs");
        assert!(news.contains(NO_GROUP_YET), "the library says it in other words");
        let said = member().put(NO_GROUP_YET);
        assert!(said.contains("where it was, it takes part once") && said.contains("add 4`"), "{said}");
        for (line, words) in [
            (
                "nearly full: trim it (`Log::trim`) or open it with a larger retention_bytes, or appends",
                WAY_OUT,
            ),
            (
                "(`Node::accept_loss`, or `Node::accept_memory_loss` where only memory was lost)",
                "accept-loss --member N --yes`)",
            ),
            ("it can hold 9: trim it (`Log::trim`), or no member", "(no command does), or no member"),
            ("for one that has added it (`Node::change`)", "`windlass group --config no/group.toml add 4`"),
            (
                "by a dry run of `windlass::store::repair` what",
                "`windlass log repair /srv/m4 --dry-run` what",
            ),
        ] {
            let said = member().put(line);
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_hint_of_a_logs_command_has_the_folder() {
        let words = Words::of_log(Path::new("a/b"));
        for (hint, whole) in [
            ("`windlass log repair --dry-run`", "`windlass log repair a/b --dry-run`"),
            ("`windlass log repair --accept-epoch`", "`windlass log repair a/b --accept-epoch`"),
            ("`windlass log salvage`", "`windlass log salvage a/b --to NEW`"),
            ("`windlass log truncate`", "`windlass log truncate a/b --from LSN`"),
            ("`windlass log read` works", "`windlass log read a/b` works"),
            // One that has it stays.
            ("`windlass log repair a/b --give-up 1..2`", "`windlass log repair a/b --give-up 1..2`"),
        ] {
            assert_eq!(words.put(hint), whole);
        }
    }

    #[test]
    fn how_many_lines_were_left_out_is_told_where_any_were() {
        for (line, told) in [
            (
                "refused: no proof, from: 10.0.0.1:7, unsaid_before: 0, member: m4\n",
                "refused: no proof, from: 10.0.0.1:7, member: m4\n",
            ),
            ("refused: no proof, unsaid_before: 0\n", "refused: no proof\n"),
            ("refused: no proof, unsaid_before: 10\n", "refused: no proof, unsaid_before: 10\n"),
        ] {
            assert_eq!(member().put(line), told);
        }
    }

    #[test]
    fn lines_go_out_whole() {
        let mut lines = Worded { to: Vec::new(), words: Words::of_log(Path::new("d")) };
        lines.write_all("öffnen: `Log::open_trimmed`\n".as_bytes()).unwrap();
        assert_eq!(lines.to, "öffnen: `windlass log trim d --before LSN`\n".as_bytes());
    }
}
