//! How the engine's commands are shown: the scenario files' own words.

#[allow(missing_docs, unreachable_pub, clippy::wildcard_enum_match_arm, reason = "the tests' own code")]
#[path = "../../crates/engine/tests/scenario/show.rs"]
pub(crate) mod show;
