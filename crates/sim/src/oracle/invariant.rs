//! The invariants by name: one for each file of the oracle.

use std::fmt;

macro_rules! invariants {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $rules:literal;)*) => {
        /// What must hold, by its file in the oracle.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Invariant {
            $($(#[$doc])* $variant,)*
        }

        impl Invariant {
            /// All of them.
            pub const ALL: &[Invariant] = &[$(Invariant::$variant,)*];

            /// What it is called.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Invariant::$variant => $name,)* }
            }

            /// Where DESIGN.md has it: an invariant, a rule, a kind of failure or a section.
            #[must_use]
            pub fn rules(self) -> &'static str {
                match self { $(Invariant::$variant => $rules,)* }
            }
        }
    };
}

invariants! {
    /// Nothing acknowledged at a quorum's level is lost or altered.
    NothingLost = "nothing acknowledged is lost", "I-2";
    /// Whatever two members call durable at one LSN is the same record.
    Prefixes = "committed prefixes agree", "I-2";
    /// One member leads an epoch.
    OnePrimary = "one primary per epoch", "I-3";
    /// An LSN carries in one epoch what was appended there or nothing, and nothing committed is left out.
    Order = "order and content", "I-6";
    /// `trimmed ≤ durable ≤ replicated ≤ tail`, the same of each peer, and none goes back.
    Watermarks = "watermarks", "I-1";
    /// What readers are shown is the log, and no more than their level has come to.
    Shown = "what is shown", "I-1";
    /// What was taken back stays taken back.
    Revoked = "revoked means revoked", "I-5, R-16";
    /// No notice is overwritten before it was read.
    Notices = "notices are read before they are overwritten", "R-13";
    /// Nobody can write any more where a member counts its log.
    WrittenOver = "what counts is written over by nobody", "I-4, 6.3";
    /// An append whose outcome is unknown is never shown as success, nor settled wrongly.
    Unknown = "unknown is unknown", "I-6";
    /// What a commit is answered with is what was asked for.
    Answers = "what a commit answers", "I-2, 7.4";
    /// What one machine stands for is in its log.
    Levels = "levels of one machine", "I-2";
    /// What a member calls persisted is on its medium, what is called durable on a quorum's.
    Medium = "persisted is on the medium", "I-4";
    /// No file gets another use while its memory is held.
    Recycled = "nothing in use is recycled", "R-2";
    /// Configurations follow from each other, and who leads votes in its own.
    Configurations = "configurations", "R-20, kind 55";
    /// No member counts with an older configuration than one that it has called committed.
    InForce = "configuration in force", "R-20";
    /// An operator's word gives up no more than what the best log that answered does not hold.
    Word = "an operator's word", "8.5, R-18";
    /// A word is taken by who may take it, and refused for what is so.
    WordAnswers = "how a word is answered", "8.5";
    /// By a word the group goes on with what is left, where one helps.
    GoesOn = "by a word the group goes on", "8.5";
    /// Who is cut off from all others leads nothing.
    Alone = "who is alone leads nothing", "I-3";
    /// Once more is lost than the levels survive, somebody says so.
    Told = "never silently wrong", "8.5";
    /// Once faults are over, and within a bound, the group serves and is whole.
    Liveness = "liveness", "9.7";
    /// A refusal leaves no hole.
    NoHole = "no hole", "R-8";
    /// A reservation that is never published ends the tenure.
    GivenUp = "a reservation is given up", "R-9";
    /// A primary whose work stands still is replaced.
    StandingStill = "standing still is silence", "R-15";
    /// A read error is told as one, and nothing else is.
    ReadErrors = "read errors", "kind 7";
    /// Damage is told of where there is some.
    Damage = "damage", "6.3";
    /// A checkpoint that is given ends where a committed record does.
    Checkpoints = "checkpoints", "9.10";
    /// What a driver sends can be read.
    Frames = "frames", "9.2";
    /// With an older superblock a log does not open.
    OlderSuperblock = "an older superblock", "R-5, kind 11";
    /// A copy of a log opens as the decision table says.
    DecisionTable = "recovery's decision table", "6.1";
    /// A log of one node has what was flushed.
    LoneLog = "a lone log", "R-12, I-6";
    /// No code under test panics.
    NoPanic = "nothing panics", "9.7";
}

impl fmt::Display for Invariant {
    /// `name (rules)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.rules())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn each_invariant_has_a_name_of_its_own_and_says_where_it_is_written() {
        for (at, invariant) in Invariant::ALL.iter().enumerate() {
            let mut others = Invariant::ALL[at + 1..].iter();
            assert!(others.all(|other| other.name() != invariant.name()), "{invariant}");
            assert!(!invariant.rules().is_empty(), "{invariant}");
        }
    }

    /// The sources below a folder with their text, their tests left out.
    fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
                found.push((path, code));
            }
        }
    }

    /// Whoever reads a violation finds what it means in one file, which judges nothing else; and the world judges nothing.
    #[test]
    fn each_invariant_is_judged_in_a_file_of_its_own_and_nowhere_but_in_the_oracle() {
        let mut found = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        assert!(found.len() > 50, "the sources are elsewhere");
        let mut judging = BTreeSet::new();
        for invariant in Invariant::ALL {
            let words = [",", ")", " "].map(|end| format!("Invariant::{invariant:?}{end}"));
            let is_named = |text: &str| words.iter().any(|word| text.contains(word.as_str()));
            let files: Vec<&Path> =
                found.iter().filter(|(_, text)| is_named(text)).map(|(path, _)| path.as_path()).collect();
            let [file] = files[..] else { panic!("{invariant:?} is judged in {files:?}") };
            assert!(
                file.parent().is_some_and(|folder| folder.ends_with("oracle")),
                "{invariant:?}: {file:?}"
            );
            assert!(judging.insert(file), "{file:?} judges {invariant:?} and another one");
        }
    }
}
