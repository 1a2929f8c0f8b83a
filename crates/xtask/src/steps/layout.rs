//! What style this repository promises of itself that no lint holds.

use crate::Context;
use crate::failures::Failure;
use crate::report::Outcome;
use crate::source::{self, Source};
use crate::tally::Tally;

/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 800;

/// Where unsafe code may stand, and why.
const UNSAFE_ALLOWED: &[(&str, &str)] = &[
    ("crates/log/src/memory", "the one type for memory that others change"),
    ("crates/store/src/disk/mapping", "the module that maps files"),
    ("crates/verbs/", "FFI"),
    ("crates/windlass/tests/steady_state.rs", "an allocator that counts"),
    ("crates/windlass/tests/fork.rs", "a child that goes on before it runs another program"),
    ("crates/windlass/tests/node_fork.rs", "the same, of a process that runs a node"),
    ("crates/xtask/no_std_check/", "an allocator of its own"),
];

/// Crates with a part that may be unsafe: they deny it at the root and allow it there; every other one forbids it.
const UNSAFE_DENIED: &[&str] = &["crates/log/", "crates/store/"];

/// Where the time of day is read: it may step, so nothing that the log or the group does depends on it.
const WALL_CLOCK_ALLOWED: &[(&str, &str)] = &[
    ("crates/cli/src/node/mod.rs", "dates of log lines"),
    ("crates/cli/src/log/repair.rs", "when something was put into the quarantine"),
];

/// The hosts that a text may point at: sources and specifications.
const HOSTS_ALLOWED: &[&str] = &[
    "github.com",
    "doc.rust-lang.org",
    "www.apache.org",
    "docs.kernel.org",
    "man7.org",
    "datatracker.ietf.org",
    "www.rfc-editor.org",
    "keepachangelog.com",
    "semver.org",
    "www.redb.org",
    "localhost",
    "127.0.0.1",
];

/// Words that tie the repository to one machine or leave work undone in it. Spelled in two halves: this file is checked too.
const WORDS_FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/ho", "me/"), "a machine's path"),
    (concat!("/ro", "ot/"), "a machine's path"),
    (concat!("/wo", "rk/"), "a machine's path"),
    (concat!("/Us", "ers/"), "a machine's path"),
    (concat!("shar", "ed/design"), "a path outside the repository"),
    (concat!("shar", "ed/vm"), "a path outside the repository"),
    (concat!("shar", "ed/hooks"), "a path outside the repository"),
    (concat!("TO", "DO"), "unfinished work"),
    (concat!("FIX", "ME"), "unfinished work"),
    (concat!("dbg", "!("), "a debugging aid"),
];

/// The one source of packages in Cargo.lock.
const LOCK_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/";

pub(super) fn run(context: &Context) -> Outcome {
    let sources = match source::all(&context.root) {
        Ok(sources) => sources,
        Err(error) => return Outcome::failed(format!("cannot read the repository: {error}")),
    };
    let mut complaints = Vec::new();
    let checks: [fn(&Source) -> Vec<String>; 8] = [
        long_file,
        unsafe_outside,
        unsafe_not_forbidden,
        wall_clock,
        forbidden_words,
        foreign_hosts,
        foreign_packages,
        commands_in_libraries,
    ];
    for check in checks {
        complaints.extend(sources.iter().flat_map(check));
    }
    complaints.extend(orphans(&sources));
    complaints.extend(planted(&sources));
    told(context, &complaints, checks.len() + 2)
}

/// The outcome of a check that makes complaints: each is printed, each is a failed case.
pub(crate) fn told(context: &Context, complaints: &[String], checks: usize) -> Outcome {
    for complaint in complaints {
        println!("   {complaint}");
    }
    context.note(complaints.iter().map(|complaint| Failure::named(complaint)));
    let count = |number: usize| u64::try_from(number).expect("fits");
    match complaints.first() {
        None => Outcome::Passed(Tally { passed: count(checks), ..Tally::default() }),
        Some(first) => Outcome::Failed {
            tally: Tally { failed: count(complaints.len()), ..Tally::default() },
            why: first.clone(),
        },
    }
}

fn long_file(source: &Source) -> Vec<String> {
    let is_test = source.path.contains("/tests/") || source.path.ends_with("tests.rs");
    if !source.is_rust() || is_test {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        // Other files' tests may use what one file's tests have.
        let module = pair[1].strip_prefix("pub(super) ").unwrap_or(pair[1]);
        pair[0].starts_with("#[cfg(") && pair[0].contains("test") && module.starts_with("mod ")
    });
    let own = tests.unwrap_or(lines.len());
    if own <= FILE_LINES_MAX {
        return Vec::new();
    }
    vec![format!("{}: {own} lines without its tests, more than {FILE_LINES_MAX}: split it", source.path)]
}

fn unsafe_outside(source: &Source) -> Vec<String> {
    if !source.is_rust() || UNSAFE_ALLOWED.iter().any(|(prefix, _)| source.path.starts_with(prefix)) {
        return Vec::new();
    }
    let code = source::code_of(&source.text);
    let found = code.lines().enumerate().filter(|(_, line)| source::has_word(line, "unsafe"));
    found
        .map(|(at, _)| {
            format!("{}:{}: unsafe code outside the modules that may have it", source.path, at + 1)
        })
        .collect()
}

fn unsafe_not_forbidden(source: &Source) -> Vec<String> {
    let root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
    let unsafe_as_a_whole = ["crates/verbs/", "crates/xtask/no_std_check/"];
    if !root || unsafe_as_a_whole.iter().any(|prefix| source.path.starts_with(prefix)) {
        return Vec::new();
    }
    let denied = UNSAFE_DENIED.iter().any(|prefix| source.path.starts_with(prefix));
    let wanted = if denied { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if source.text.contains(wanted) || source.text.contains("#![forbid(unsafe_code)]") {
        return Vec::new();
    }
    vec![format!("{}: lacks {wanted}", source.path)]
}

fn forbidden_words(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        for (word, what) in WORDS_FORBIDDEN {
            let whole = line.match_indices(word).any(|(at, _)| {
                !line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "._-}".contains(c))
            });
            if whole {
                complaints.push(format!("{}:{}: {what}: {word}", source.path, at + 1));
            }
        }
    }
    complaints
}

/// Each bug that may be planted is planted somewhere, in the crates that the simulator runs alone, and ordinary builds have none: the flag is set for one step.
fn planted(sources: &[Source]) -> Vec<String> {
    const LIST: &str = "crates/log/src/planted.rs";
    const FLAG: &str = concat!("--cfg pla", "nted");
    let mut complaints = Vec::new();
    let mut used = String::new();
    for source in sources {
        let may_set = source.path == "crates/xtask/src/steps/sim.rs" || source.path.ends_with(".md");
        let speaks = source.is_rust() && source.text.contains("//");
        if source.text.lines().any(|line| line.contains(FLAG) && !line.trim_start().starts_with("//"))
            && !may_set
        {
            let in_doc = speaks && source.path.starts_with("crates/xtask/");
            if !in_doc {
                complaints
                    .push(format!("{}: sets {FLAG}, which an ordinary build must not have", source.path));
            }
        }
        if !source.is_rust() {
            continue;
        }
        let code = source::code_of(&source.text);
        for call in code.split(concat!("pla", "nted!(")).skip(1) {
            let name = call.split(')').next().unwrap_or_default();
            used.push_str(&format!(" {name} "));
            let crates =
                ["crates/log/", "crates/store/", "crates/engine/", "crates/windlass/", "crates/sim/"];
            if !crates.iter().any(|of| source.path.starts_with(of))
                && !source.path.starts_with("crates/xtask/")
            {
                complaints.push(format!("{}: plants {name}, which the simulator does not run", source.path));
            }
        }
    }
    let list = sources.iter().find(|source| source.path == LIST).map_or("", |source| &source.text);
    let bugs = list.split("bugs! {\n").nth(1).unwrap_or_default();
    let names = bugs
        .lines()
        .take_while(|line| *line != "}")
        .filter_map(|line| line.split(" = ").next()?.strip_prefix("    "));
    for name in names.filter(|name| name.chars().all(char::is_alphanumeric)) {
        if !used.contains(&format!(" {name} ")) {
            complaints.push(format!("{LIST}: {name} is planted nowhere"));
        }
    }
    complaints
}

fn wall_clock(source: &Source) -> Vec<String> {
    let is_allowed = WALL_CLOCK_ALLOWED.iter().any(|(path, _)| source.path == *path);
    if !source.is_rust() || !source.path.starts_with("crates/") || is_allowed {
        return Vec::new();
    }
    // Spelled in two halves, since this file is checked too.
    let words = [concat!("System", "Time"), concat!("Real", "time")];
    let code = source::code_of(&source.text);
    let found = code.lines().enumerate();
    let found = found.filter(|(_, line)| words.iter().any(|word| source::has_word(line, word)));
    found
        .map(|(at, _)| {
            format!(
                "{}:{}: reads the time of day, which may step: time is passed in, and monotonic",
                source.path,
                at + 1
            )
        })
        .collect()
}

fn foreign_hosts(source: &Source) -> Vec<String> {
    // Licence texts are others' words.
    if source.path.starts_with("LICENSE") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        for (scheme, _) in line.match_indices("://") {
            let after = &line[scheme + 3..];
            let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c)));
            let host = &after[..end.unwrap_or(after.len())];
            let named = host.contains('.') || host == "localhost";
            // Names kept for examples lead nowhere.
            let example = host.ends_with(".example.org") || host.ends_with(".example");
            if named && !example && !HOSTS_ALLOWED.contains(&host) {
                complaints.push(format!("{}:{}: points at the host {host}", source.path, at + 1));
            }
        }
    }
    complaints
}

fn foreign_packages(source: &Source) -> Vec<String> {
    if !source.path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    let foreign = |line: &&str| line.starts_with("source = ") && !line.starts_with(LOCK_SOURCE);
    source
        .text
        .lines()
        .filter(foreign)
        .map(|line| format!("{}: a package from elsewhere: {line}", source.path))
        .collect()
}

/// A library's lines are for any program that has it: they name its items, and the command says its commands for them (`words.rs` there).
fn commands_in_libraries(source: &Source) -> Vec<String> {
    let is_library = source.path.starts_with("crates/")
        && source.path.contains("/src/")
        && !["cli", "sim", "sweep", "xtask"].iter().any(|of| source.path.split('/').nth(1) == Some(of));
    if !is_library || !source.is_rust() {
        return Vec::new();
    }
    let lines = source.text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
    let named = lines.filter(|(_, line)| line.contains(concat!("`win", "dlass ")));
    named
        .map(|(at, _)| format!("{}:{}: names a command: name the library's item", source.path, at + 1))
        .collect()
}

/// Files of Rust that no module names: the compiler never sees them.
fn orphans(sources: &[Source]) -> Vec<String> {
    let named_in = |parent: &str, module: &str| {
        let wanted = format!("mod {module};");
        sources.iter().any(|source| source.path == parent && source::code_of(&source.text).contains(&wanted))
    };
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let Some((package, inner)) = source.path.split_once("/src/") else { continue };
        let Some(stem) = inner.strip_suffix(".rs") else { continue };
        let (folder, module) = stem.rsplit_once('/').unwrap_or(("", stem));
        if matches!(stem, "lib" | "main") || folder == "bin" {
            continue;
        }
        let (folder, module) =
            if module == "mod" { folder.rsplit_once('/').unwrap_or(("", folder)) } else { (folder, module) };
        let parents = if folder.is_empty() {
            [format!("{package}/src/lib.rs"), format!("{package}/src/main.rs")]
        } else {
            [format!("{package}/src/{folder}.rs"), format!("{package}/src/{folder}/mod.rs")]
        };
        let by_path = format!("path = \"{}\"", inner.rsplit('/').next().unwrap_or(inner));
        let named_by_path = sources
            .iter()
            .any(|other| other.path.starts_with(&format!("{package}/src/")) && other.text.contains(&by_path));
        if !named_by_path && !parents.iter().any(|parent| named_in(parent, module)) {
            complaints.push(format!("{}: no module names it, so it is never compiled", source.path));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: impl Into<String>) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_are_not_counted() {
        let long = "fn f() {}\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(long_file(&file("crates/x/src/a.rs", long.clone())).len(), 1);
        let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert!(long_file(&file("crates/x/src/a.rs", tested.replace("mod", "pub(super) mod"))).is_empty());
        assert!(long_file(&file("crates/x/src/a.rs", tested)).is_empty());
        assert!(long_file(&file("crates/x/tests/a.rs", long)).is_empty());
    }

    #[test]
    fn unsafe_is_found_outside_its_modules_only() {
        let code = "fn f() { unsafe { g() } }\n";
        assert_eq!(unsafe_outside(&file("crates/log/src/record.rs", code)).len(), 1);
        assert!(unsafe_outside(&file("crates/log/src/memory.rs", code)).is_empty());
        assert!(unsafe_outside(&file("crates/log/src/record.rs", "// unsafe\n")).is_empty());
    }

    #[test]
    fn the_time_of_day_is_found_where_it_may_not_be_read() {
        let code = concat!("let now = std::time::System", "Time::now();\n");
        assert_eq!(wall_clock(&file("crates/engine/src/engine.rs", code)).len(), 1);
        assert!(wall_clock(&file("crates/engine/src/engine.rs", format!("// {code}"))).is_empty());
        assert!(wall_clock(&file(WALL_CLOCK_ALLOWED[0].0, code)).is_empty());
    }

    #[test]
    fn a_command_in_a_librarys_line_is_found_and_in_its_comments_and_the_commands_own_is_not() {
        let command = concat!("`win", "dlass log repair`");
        let line = format!("fn f() {{ warn(\"see {command}\") }}\n");
        assert_eq!(commands_in_libraries(&file("crates/store/src/open.rs", &line)).len(), 1);
        assert_eq!(commands_in_libraries(&file("crates/cli/src/log/read.rs", &line)), Vec::<String>::new());
        let comment = format!("//! What {command} does.\n    /// And {command}.\n");
        assert_eq!(commands_in_libraries(&file("crates/store/src/open.rs", comment)), Vec::<String>::new());
    }

    #[test]
    fn a_root_that_allows_unsafe_is_found() {
        assert_eq!(unsafe_not_forbidden(&file("crates/engine/src/lib.rs", "#![no_std]\n")).len(), 1);
        assert_eq!(
            unsafe_not_forbidden(&file("crates/engine/src/lib.rs", "#![deny(unsafe_code)]\n")).len(),
            1
        );
        assert!(unsafe_not_forbidden(&file("crates/log/src/lib.rs", "#![deny(unsafe_code)]\n")).is_empty());
    }

    #[test]
    fn machine_paths_foreign_hosts_and_packages_are_found() {
        let path = format!("see {}somebody/x", WORDS_FORBIDDEN[0].0);
        assert_eq!(forbidden_words(&file("a.md", path)).len(), 1);
        assert!(forbidden_words(&file("a.md", "target/work/x")).is_empty());
        let link = |host: &str| file("a.md", format!("see https{}{host}/x", "://"));
        assert_eq!(foreign_hosts(&link("registry.somewhere.net")).len(), 1);
        assert!(foreign_hosts(&link("github.com")).is_empty());
        assert!(foreign_hosts(&link("registry.example.org")).is_empty());
        assert_eq!(foreign_packages(&file("Cargo.lock", "source = \"git+x\"\n")).len(), 1);
        assert!(foreign_packages(&file("Cargo.lock", format!("{LOCK_SOURCE}x\"\n"))).is_empty());
    }

    #[test]
    fn a_file_that_no_module_names_is_found() {
        let sources = [
            file("crates/x/src/lib.rs", "mod a;\n"),
            file("crates/x/src/a.rs", "mod b;\nmod d;\n// mod c;\n"),
            file("crates/x/src/a/b.rs", ""),
            file("crates/x/src/a/c.rs", ""),
            file("crates/x/src/a/d.rs", "#[path = \"d_tests.rs\"]\nmod tests;\n"),
            file("crates/x/src/a/d_tests.rs", ""),
        ];
        let found = orphans(&sources);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a/c.rs"));
    }
}
