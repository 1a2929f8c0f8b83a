//! DESIGN.md and what cites it: every section, rule and invariant that code names is there, and every test that DESIGN.md names
//! is in the code.

use std::collections::BTreeSet;

use super::layout::told;
use crate::Context;
use crate::report::Outcome;
use crate::source::{self, Source};

/// Rules and invariants I-1 to I-7 each have a line in DESIGN.md.
const RULES: u32 = 20;
const INVARIANTS: u32 = 7;

pub(super) fn run(context: &Context) -> Outcome {
    let sources = match source::all(&context.root) {
        Ok(sources) => sources,
        Err(error) => return Outcome::failed(format!("cannot read the repository: {error}")),
    };
    let Some(page) = sources.iter().find(|source| source.path == "DESIGN.md") else {
        return Outcome::failed("no DESIGN.md");
    };
    let design = Design::parse(&page.text);
    let mut complaints: Vec<String> =
        sources.iter().filter(|source| cites(source)).flat_map(|source| design.unknown_in(source)).collect();
    complaints.extend(design.missing());
    complaints.extend(design.tests_not_in(&sources));
    told(context, &complaints, 3)
}

/// Files whose citations are held: code and the pages beside DESIGN.md (which says itself how it is cited). This module's own
/// tests cite what isn't there.
fn cites(source: &Source) -> bool {
    let kind = [".rs", ".toml", ".md", ".txt"].iter().any(|extension| source.path.ends_with(extension));
    kind && source.path != "DESIGN.md" && !source.path.ends_with("xtask/src/steps/design.rs")
}

/// What DESIGN.md defines.
struct Design {
    sections: BTreeSet<String>,
    rules: BTreeSet<u32>,
    invariants: BTreeSet<u32>,
    /// Names of tests, as sections 10, 11 and 13 give them.
    tests: BTreeSet<String>,
}

impl Design {
    fn parse(text: &str) -> Design {
        let mut design = Design {
            sections: BTreeSet::new(),
            rules: BTreeSet::new(),
            invariants: BTreeSet::new(),
            tests: BTreeSet::new(),
        };
        let mut chapter = String::new();
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("##") {
                let number = heading.trim_start_matches('#').split_whitespace().next().unwrap_or_default();
                let number = number.trim_end_matches('.');
                design.sections.insert(number.to_string());
                chapter = number.split('.').next().unwrap_or_default().to_string();
            } else if chapter == "10" || chapter == "11" || chapter == "13" {
                // A line defines the number it starts with, be it a list's, a table's or a paragraph's.
                let start = line.trim_start_matches(|c: char| "|-* `".contains(c));
                design.rules.extend(numbers(start, "R-").first().filter(|_| start.starts_with("R-")));
                design.invariants.extend(numbers(start, "I-").first().filter(|_| start.starts_with("I-")));
                design.tests.extend(test_names(line));
            }
        }
        design
    }

    /// What `source` cites and DESIGN.md has not.
    fn unknown_in(&self, source: &Source) -> Vec<String> {
        let mut complaints = Vec::new();
        for section in sections_cited(&source.text) {
            if !self.sections.contains(&section) {
                complaints
                    .push(format!("{}: cites DESIGN.md section {section}, which isn't there", source.path));
            }
        }
        let rules = numbers(&source.text, "R-").into_iter().filter(|number| !(1..=RULES).contains(number));
        complaints
            .extend(rules.map(|number| format!("{}: cites R-{number}, which isn't there", source.path)));
        let invariants = numbers(&source.text, "I-").into_iter().filter(|n| !(1..=INVARIANTS).contains(n));
        complaints
            .extend(invariants.map(|number| format!("{}: cites I-{number}, which isn't there", source.path)));
        complaints
    }

    /// The rules and invariants that have no line.
    fn missing(&self) -> Vec<String> {
        let rules = (1..=RULES).filter(|number| !self.rules.contains(number));
        let mut complaints: Vec<String> =
            rules.map(|number| format!("DESIGN.md section 11: no line for R-{number}")).collect();
        let invariants = (1..=INVARIANTS).filter(|number| !self.invariants.contains(number));
        complaints.extend(invariants.map(|number| format!("DESIGN.md section 10: no line for I-{number}")));
        complaints
    }

    /// The tests that sections 10, 11 and 13 name and no file has.
    fn tests_not_in(&self, sources: &[Source]) -> Vec<String> {
        let code: Vec<&Source> = sources.iter().filter(|source| source.is_rust()).collect();
        let missing = self.tests.iter().filter(|name| {
            let with_arguments = format!("fn {name}(");
            let generic = format!("fn {name}<");
            // A scenario's file is its test's name.
            let scenario = format!("/{name}.txt");
            !sources.iter().any(|source| source.path.ends_with(&scenario))
                && !code
                    .iter()
                    .any(|source| source.text.contains(&with_arguments) || source.text.contains(&generic))
        });
        missing.map(|name| format!("DESIGN.md names the test `{name}`, which isn't there")).collect()
    }
}

/// Every number that follows `prefix` where it starts a word.
fn numbers(text: &str, prefix: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        let starts =
            !text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_');
        let digits: String = text[at + prefix.len()..].chars().take_while(char::is_ascii_digit).collect();
        if starts && let Ok(number) = digits.parse() {
            found.push(number);
        }
    }
    found
}

/// The sections in `DESIGN.md section X`, also `DESIGN.md, section X` and `DESIGN.md sections X and Y`; a citation may be broken
/// over lines of a comment.
fn sections_cited(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, name) in text.match_indices("DESIGN.md") {
        let after = &text[at + name.len()..];
        let words: Vec<&str> = after
            .split(|c: char| c.is_whitespace() || ",()`".contains(c))
            .filter(|word| !word.is_empty() && !word.chars().all(|c| "/!#;".contains(c)))
            .take(8)
            .collect();
        let Some((first, rest)) = words.split_first() else { continue };
        if !matches!(*first, "section" | "sections" | "§") {
            continue;
        }
        for word in rest {
            let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
            if is_number {
                found.insert(number.to_string());
            } else if !matches!(*word, "and" | "to") {
                break;
            }
            // A number that ends a sentence or a clause ends the citation.
            if is_number && word.ends_with(['.', ';', ':']) {
                break;
            }
        }
    }
    found
}

/// Backquoted names of tests: the last part of a path, of three words at least (functions of the code are shorter, or have brackets).
fn test_names(line: &str) -> Vec<String> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|word| word.rsplit("::").next())
        .filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        .filter(|word| word.matches('_').count() >= 3)
        .map(str::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# windlass: design
## 2 Bytes
### 2.1 LSNs
## 10 Invariants
* **I-1** first
- I-2 second: `a_test_that_is_there`
## 11 Rules
| R-1 | one | `module::tests::a_test_that_is_gone` |
R-2, see R-3, `a_scenario_that_is_there`
";

    fn file(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn sections_rules_and_invariants_are_read() {
        let design = Design::parse(PAGE);
        assert!(design.sections.contains("2.1") && design.sections.contains("10"));
        assert_eq!(design.rules, BTreeSet::from([1, 2]));
        assert_eq!(design.invariants, BTreeSet::from([1, 2]));
    }

    #[test]
    fn citations_of_what_is_not_there_are_found() {
        let design = Design::parse(PAGE);
        let good = "// DESIGN.md section 2.1; DESIGN.md,\n// section 10. R-20, I-7, AR-99, PR-50, R-nothing";
        assert_eq!(design.unknown_in(&file("a.rs", good)), Vec::<String>::new());
        let bad = "// DESIGN.md sections 2.1 and 2.9\n// R-21 (I-8) and R-0";
        assert_eq!(design.unknown_in(&file("a.rs", bad)).len(), 4);
    }

    #[test]
    fn missing_lines_and_missing_tests_are_found() {
        let design = Design::parse(PAGE);
        let expected = usize::try_from(RULES - 2 + INVARIANTS - 2).unwrap();
        assert_eq!(design.missing().len(), expected);
        let code = [file("a.rs", "fn a_test_that_is_there() {}"), file("x/a_scenario_that_is_there.txt", "")];
        let found = design.tests_not_in(&code);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a_test_that_is_gone"));
    }
}
