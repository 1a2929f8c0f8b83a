//! The dependency graph of the workspace: dependencies point one way (DESIGN.md section 1.2).
//!
//! Every edge between packages of the workspace is on the list below or a failure, and so is a package that the list does not
//! know. `log` and `engine`, which are to run without std, may pull in only what is known to do without it; the
//! link check (`no_std`) proves it, this says by name who broke it.

use super::layout::told;
use crate::Context;
use crate::exec::Run;
use crate::metadata::{Dependency, Metadata};
use crate::report::Outcome;

/// A package and what of the workspace it may depend on.
struct Rule {
    package: &'static str,
    /// In the library or program itself.
    normal: &'static [&'static str],
    /// The same, but only as an optional dependency: providers are features of the facade.
    optional: &'static [&'static str],
    /// In its tests, beside the above.
    dev: &'static [&'static str],
}

const LIBRARIES: &[&str] =
    &["windlass", "windlass-engine", "windlass-fabric", "windlass-log", "windlass-store", "windlass-tcp"];

const RULES: &[Rule] = &[
    Rule { package: "windlass-log", normal: &[], optional: &[], dev: &[] },
    Rule { package: "windlass-store", normal: &["windlass-log"], optional: &[], dev: &[] },
    Rule { package: "windlass-fabric", normal: &[], optional: &[], dev: &[] },
    Rule { package: "windlass-tcp", normal: &["windlass-fabric"], optional: &[], dev: &[] },
    Rule { package: "windlass-verbs", normal: &["windlass-fabric"], optional: &[], dev: &[] },
    Rule { package: "windlass-engine", normal: &["windlass-log"], optional: &[], dev: &[] },
    Rule {
        package: "windlass",
        normal: &["windlass-engine", "windlass-fabric", "windlass-log", "windlass-store"],
        optional: &["windlass-tcp", "windlass-verbs"],
        dev: &["windlass-tcp"],
    },
    Rule { package: "windlass-sim", normal: LIBRARIES, optional: &[], dev: &[] },
    Rule { package: "windlass-sweep", normal: &["windlass-log", "windlass-store"], optional: &[], dev: &[] },
    // `doctor` opens devices as the provider does, without a node.
    Rule {
        package: "windlass-cli",
        normal: &["windlass"],
        optional: &["windlass-fabric", "windlass-verbs"],
        // A test makes a superblock that no log of the facade comes to.
        dev: &["windlass-store"],
    },
    Rule { package: "windlass-xtask", normal: &[], optional: &[], dev: &[] },
    Rule { package: "windlass-benches", normal: LIBRARIES, optional: &[], dev: &[] },
    // About verbs, and not about the log.
    Rule {
        package: "fabric-examples",
        normal: &["windlass-fabric", "windlass-tcp"],
        optional: &["windlass-verbs"],
        dev: &[],
    },
];

/// Any other example is what a user would write: it has the facade and nothing behind it.
const EXAMPLE: Rule = Rule { package: "examples/*", normal: &["windlass"], optional: &[], dev: &[] };

/// Packages without std, and what they may pull in (macros that only run in the compiler aside).
const WITHOUT_STD: &[&str] = &["windlass-log", "windlass-engine"];
const WITHOUT_STD_ALLOWED: &[&str] = &["windlass-log", "windlass-engine", "crc32fast", "cfg-if", "thiserror"];

pub(super) fn run(context: &Context) -> Outcome {
    let metadata = match Metadata::read(context) {
        Ok(metadata) => metadata,
        Err(why) => return Outcome::failed(why),
    };
    let mut complaints = wrong_edges(&metadata);
    for package in WITHOUT_STD {
        let words = [
            "tree",
            "--locked",
            "-p",
            package,
            "-e",
            "normal,no-proc-macro",
            "--prefix",
            "none",
            "-f",
            "{p}|{f}",
        ];
        let tree = Run::cargo(context, &words).finish(context, "tree");
        if !tree.success {
            return Outcome::failed(format!("cargo tree: {}", tree.how));
        }
        complaints.extend(std_in_tree(package, &tree.output));
    }
    told(context, &complaints, 1 + WITHOUT_STD.len())
}

fn wrong_edges(metadata: &Metadata) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in &metadata.packages {
        let is_example = package.manifest_path.iter().any(|part| part == "examples");
        let known = RULES.iter().find(|rule| rule.package == package.name);
        let Some(rule) = known.or(is_example.then_some(&EXAMPLE)) else {
            complaints
                .push(format!("{}: a package that the graph does not know: add its rule", package.name));
            continue;
        };
        // A package's tests may turn on features of the package itself.
        let itself = |dependency: &&Dependency| {
            dependency.name == package.name && dependency.kind.as_deref() == Some("dev")
        };
        let inside = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        let inside = inside.filter(|dependency| !itself(dependency));
        complaints.extend(inside.filter(|dependency| !rule.allows(dependency)).map(|dependency| {
            let kind = dependency.kind.as_deref().unwrap_or("normal");
            let optional = if dependency.optional { "optional " } else { "" };
            format!("{} may not have the {optional}{kind} dependency {}", package.name, dependency.name)
        }));
    }
    complaints
}

impl Rule {
    fn allows(&self, dependency: &Dependency) -> bool {
        let name = dependency.name.as_str();
        let normal = self.normal.contains(&name) || (dependency.optional && self.optional.contains(&name));
        match dependency.kind.as_deref() {
            None => normal,
            Some("dev") => normal || self.dev.contains(&name),
            Some(_) => false,
        }
    }
}

/// Complains of what `cargo tree` lists and a package without std may not pull in.
fn std_in_tree(package: &str, tree: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for line in tree.lines() {
        let Some((described, features)) = line.split_once('|') else { continue };
        let name = described.split_whitespace().next().unwrap_or_default();
        if !WITHOUT_STD_ALLOWED.contains(&name) {
            complaints.push(format!("{package} pulls in {name}, which is not known to do without std"));
        }
        let features = features.trim_end_matches(" (*)");
        if features.split(',').any(|feature| feature == "std") {
            complaints.push(format!("{package} pulls in {name} with its feature std"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Package;

    fn edge(name: &str, kind: Option<&str>, optional: bool) -> Dependency {
        Dependency { name: name.into(), kind: kind.map(Into::into), optional, path: Some("x".into()) }
    }

    fn complaints(package: &str, dependency: Dependency) -> usize {
        wrong_edges(&Metadata {
            packages: vec![Package {
                name: package.into(),
                id: package.into(),
                manifest_path: if package.starts_with("embed") {
                    "examples/x/Cargo.toml"
                } else {
                    "x/Cargo.toml"
                }
                .into(),
                dependencies: vec![dependency],
            }],
            workspace_default_members: Vec::new(),
        })
        .len()
    }

    #[test]
    fn edges_against_the_direction_are_found() {
        assert_eq!(complaints("windlass-engine", edge("windlass-fabric", None, false)), 1);
        assert_eq!(complaints("windlass-fabric", edge("windlass-log", None, false)), 1);
        assert_eq!(complaints("windlass-engine", edge("windlass-fabric", Some("dev"), false)), 1);
        assert_eq!(complaints("windlass-log", edge("windlass-store", Some("dev"), false)), 1);
        assert_eq!(complaints("windlass-cli", edge("windlass", Some("build"), false)), 1);
        assert_eq!(complaints("windlass-engine", edge("windlass-log", None, false)), 0);
    }

    #[test]
    fn a_provider_is_an_optional_dependency_of_the_facade() {
        assert_eq!(complaints("windlass", edge("windlass-tcp", None, false)), 1);
        assert_eq!(complaints("windlass", edge("windlass-tcp", None, true)), 0);
    }

    #[test]
    fn an_unknown_package_is_found_and_outside_packages_are_not_edges() {
        assert_eq!(complaints("windlass-new", edge("windlass-log", None, false)), 1);
        let outside = Dependency { path: None, ..edge("serde", None, false) };
        assert_eq!(complaints("windlass-log", outside), 0);
    }

    #[test]
    fn an_example_has_the_facade_alone() {
        assert_eq!(complaints("embed", edge("windlass", None, false)), 0);
        assert_eq!(complaints("embed", edge("windlass-log", None, false)), 1);
    }

    #[test]
    fn std_is_found_in_a_tree() {
        let tree =
            "windlass-log v0.1.0 (x)|\ncrc32fast v1.5.5|std\ncfg-if v1.0.5|\nrand v0.9.0|\nthiserror v2|\n";
        assert_eq!(std_in_tree("windlass-log", tree).len(), 2);
    }
}
