//! The file that tells every member's process what its group is.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slog::Logger;
use windlass::control::{Member, Secret};
use windlass::engine::{QuorumError, Quorums};
use windlass::{Level, LogId, MemberId, NodeOptions};

use crate::client::Pass;
use crate::exit::{Failure, Status};

/// Bytes of a segment, unless the file says otherwise.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes between the trim point and the tail, unless the file says otherwise.
pub(crate) const RETENTION_BYTES: u64 = 4 << 30;
/// Silence after which a primary is suspected, unless the file says otherwise.
pub(crate) const SUSPICION_MS: u64 = 400;
/// Bytes of cold segments that are read and checked a second, unless the file says otherwise.
pub(crate) const SCRUB_BYTES_PER_SECOND: u64 = 1 << 20;
/// What stands for a secret in examples, and is none: it is refused.
const PLACEHOLDERS: [&str; 2] = ["32 bytes from a random source", "the output of: openssl rand -hex 32"];

/// A group, as TOML. Every member is given the same file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Config {
    /// The log's identity: 32 hexadecimal digits.
    pub(crate) log_id: String,
    /// The group's secret, at least 16 bytes. Keep the file as safe as the data.
    pub(crate) secret: String,
    /// What an acknowledgement means: `durable` or `replicated`.
    pub(crate) level: String,
    /// Bytes of a segment.
    pub(crate) segment_bytes: u64,
    /// Cap on bytes between the trim point and the tail, three segments at least.
    pub(crate) retention_bytes: u64,
    /// Silence after which a primary is suspected.
    pub(crate) suspicion_ms: u64,
    /// Bytes of cold segments that each member reads and checks a second; 0: none.
    pub(crate) scrub_bytes_per_second: u64,
    /// Accept a filesystem on which preallocation or locks are not known to hold.
    pub(crate) any_filesystem: bool,
    /// How many members hold what is committed, and how many promise before another one leads, when the group begins. Without: more than half.
    #[serde(flatten)]
    pub(crate) quorums: Option<QuorumsConfig>,
    pub(crate) members: Vec<MemberConfig>,
}

/// Sizes of quorums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct QuorumsConfig {
    pub(crate) write_quorum: u8,
    pub(crate) takeover_quorum: u8,
}

/// One member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct MemberConfig {
    /// Its number, 0 to 255.
    pub(crate) number: u8,
    /// Where its control plane listens.
    pub(crate) control: SocketAddr,
    /// The Unix socket for clients.
    pub(crate) client: PathBuf,
    /// The folder of its log.
    pub(crate) folder: PathBuf,
    /// The group did not begin with it: it is added later, with `windlass group add` or `replace`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) joins: bool,
}

/// The file as it is written: what is missing is named by [`Draft::finish`], which knows in which table it belongs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft {
    log_id: Option<String>,
    secret: Option<String>,
    level: Option<String>,
    segment_bytes: Option<u64>,
    retention_bytes: Option<u64>,
    suspicion_ms: Option<u64>,
    scrub_bytes_per_second: Option<u64>,
    any_filesystem: Option<bool>,
    write_quorum: Option<u8>,
    takeover_quorum: Option<u8>,
    #[serde(default)]
    members: Vec<MemberDraft>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberDraft {
    number: Option<u8>,
    control: Option<SocketAddr>,
    client: Option<PathBuf>,
    folder: Option<PathBuf>,
    joins: Option<bool>,
}

/// What keeps the file from naming a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Wrong {
    #[error(
        "log_id is missing at the top of the file: 32 hexadecimal digits, made once for the group with `openssl rand -hex 16`"
    )]
    LogId,
    #[error(
        "secret is missing at the top of the file: make it once for the group with `openssl rand -hex 32`"
    )]
    Secret,
    #[error("there is no [[members]] table: the file has one for each member")]
    Members,
    #[error("{key} is missing in the [[members]] table number {table}{}", whose(*number))]
    OfMember { key: &'static str, table: usize, number: Option<u8> },
    #[error("member {number} has two [[members]] tables: a number is one member's alone")]
    Twice { number: u8 },
    #[error("every [[members]] table has `joins = true`: the members that the group began with have not")]
    NoFounders,
    #[error("{there} is given and {missing} is not: give both, or none of them for majorities")]
    HalfOfQuorums { there: &'static str, missing: &'static str },
    #[error(
        "retention_bytes is {retention_bytes}: use at least {least}, three segments of {segment_bytes} bytes"
    )]
    Retention { retention_bytes: u64, least: u64, segment_bytes: u64 },
    #[error("write_quorum and takeover_quorum: {0}")]
    Quorums(#[from] QuorumError),
}

fn whose(number: Option<u8>) -> String {
    number.map_or_else(String::new, |number| format!(" (member {number})"))
}

impl Draft {
    fn finish(self) -> Result<Config, Wrong> {
        if self.members.is_empty() {
            return Err(Wrong::Members);
        }
        let members = self
            .members
            .into_iter()
            .enumerate()
            .map(|(at, member)| member.finish(at + 1))
            .collect::<Result<Vec<MemberConfig>, _>>()?;
        for (at, member) in members.iter().enumerate() {
            if members[..at].iter().any(|other| other.number == member.number) {
                return Err(Wrong::Twice { number: member.number });
            }
        }
        let founders = members.iter().filter(|member| !member.joins).count();
        if founders == 0 {
            return Err(Wrong::NoFounders);
        }
        let quorums = match (self.write_quorum, self.takeover_quorum) {
            (Some(write_quorum), Some(takeover_quorum)) => {
                Some(QuorumsConfig { write_quorum, takeover_quorum })
            }
            (None, None) => None,
            (Some(_), None) => {
                return Err(Wrong::HalfOfQuorums { there: "write_quorum", missing: "takeover_quorum" });
            }
            (None, Some(_)) => {
                return Err(Wrong::HalfOfQuorums { there: "takeover_quorum", missing: "write_quorum" });
            }
        };
        quorums.map_or(Quorums::Majority, QuorumsConfig::sizes).check(founders)?;
        Ok(Config {
            log_id: self.log_id.ok_or(Wrong::LogId)?,
            secret: self.secret.ok_or(Wrong::Secret)?,
            level: self.level.unwrap_or_else(|| String::from("durable")),
            segment_bytes: self.segment_bytes.unwrap_or(SEGMENT_BYTES),
            retention_bytes: self.retention_bytes.unwrap_or(RETENTION_BYTES),
            suspicion_ms: self.suspicion_ms.unwrap_or(SUSPICION_MS),
            scrub_bytes_per_second: self.scrub_bytes_per_second.unwrap_or(SCRUB_BYTES_PER_SECOND),
            any_filesystem: self.any_filesystem.unwrap_or(false),
            quorums,
            members,
        })
    }
}

impl MemberDraft {
    fn finish(self, table: usize) -> Result<MemberConfig, Wrong> {
        let of = |key| Wrong::OfMember { key, table, number: self.number };
        Ok(MemberConfig {
            number: self.number.ok_or_else(|| of("number"))?,
            control: self.control.ok_or_else(|| of("control"))?,
            client: self.client.clone().ok_or_else(|| of("client"))?,
            folder: self.folder.clone().ok_or_else(|| of("folder"))?,
            joins: self.joins.unwrap_or(false),
        })
    }
}

impl QuorumsConfig {
    fn sizes(self) -> Quorums {
        Quorums::Sizes { write: self.write_quorum, takeover: self.takeover_quorum }
    }
}

impl Config {
    pub(crate) fn read(file: &Path) -> Result<Config, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            use std::io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, NotFound};
            // What the words name is no group's file; all else is the system's.
            let is_no_file = [NotFound, NotADirectory, IsADirectory, InvalidData].contains(&error.kind());
            let (status, hint) = if is_no_file {
                (
                    Status::Usage,
                    "; name the group's file with `--config FILE`; `windlass group init` makes one",
                )
            } else {
                (Status::System, "")
            };
            Failure::new(status, format_args!("{}: {error}{hint}", file.display()))
        })?;
        Config::parse(&text)
            .map_err(|why| Failure::new(Status::Usage, format_args!("{}: {why}", file.display())))
    }

    /// Parses the file's text; an error is the line for the user.
    fn parse(text: &str) -> Result<Config, String> {
        let draft: Draft = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        draft.finish().map_err(|wrong| wrong.to_string())
    }

    pub(crate) fn member(&self, number: u8) -> Result<&MemberConfig, Failure> {
        self.members.iter().find(|member| member.number == number).ok_or_else(|| {
            let known: Vec<String> = self.members.iter().map(|member| member.number.to_string()).collect();
            let known = known.join(", ");
            Failure::new(
                Status::Usage,
                format_args!("the group's file has no member {number}: it has {known}"),
            )
        })
    }

    /// The level at which appends are acknowledged.
    pub(crate) fn level(&self) -> Result<Level, Failure> {
        match self.level.as_str() {
            "durable" => Ok(Level::Durable),
            "replicated" => Ok(Level::Replicated),
            other => {
                let message = format_args!("level \"{other}\": use \"durable\" or \"replicated\"");
                Err(Failure::new(Status::Usage, message))
            }
        }
    }

    /// What its clients prove that they know.
    pub(crate) fn pass(&self) -> Result<Pass, Failure> {
        let usage = |error: &dyn std::fmt::Display| Failure::new(Status::Usage, error);
        let log_id = parse_log_id(&self.log_id).ok_or_else(|| {
            usage(&"log_id: it has 32 hexadecimal digits, the same for all members: make it once with `openssl rand -hex 16`")
        })?;
        if PLACEHOLDERS.contains(&self.secret.as_str()) {
            return Err(usage(
                &"secret: this is the placeholder of an example, which everybody knows: make one with `openssl rand -hex 32`, the same for all members",
            ));
        }
        let secret = Secret::new(self.secret.as_bytes())
            .map_err(|error| usage(&format_args!("secret: {error}; `openssl rand -hex 32` makes one")))?;
        Ok(Pass { log_id, secret })
    }

    /// The library's options of one member.
    pub(crate) fn options(&self, number: u8, logger: Logger) -> Result<NodeOptions, Failure> {
        let Pass { log_id, secret } = self.pass()?;
        let (kept, kept_for_backups) = shares(self.retention_bytes, self.segment_bytes)
            .map_err(|wrong| Failure::new(Status::Usage, wrong))?;
        let (joined, founders): (Vec<&MemberConfig>, Vec<_>) =
            self.members.iter().partition(|member| member.joins);
        let members = |configs: Vec<&MemberConfig>| {
            configs.into_iter().map(|m| Member { id: MemberId(m.number), address: m.control }).collect()
        };
        let level = self.level()?;
        Ok(NodeOptions::new(MemberId(number), members(founders), log_id, secret)
            .joined(members(joined))
            .quorums(self.quorums.map_or(Quorums::Majority, QuorumsConfig::sizes))
            .segment_bytes(self.segment_bytes)
            .retention_bytes(kept)
            .backup_retention_bytes(kept_for_backups)
            .level(level)
            .allow_replicated(level == Level::Replicated)
            .suspicion(Duration::from_millis(self.suspicion_ms))
            .scrub_bytes_per_second(self.scrub_bytes_per_second)
            .any_filesystem(self.any_filesystem)
            .logger(logger))
    }
}

/// Splits the file's cap into the two options whose sum the library keeps at most: what the application has not trimmed, two segments at least, and what is
/// kept for backups that lag, one at least.
fn shares(retention_bytes: u64, segment_bytes: u64) -> Result<(u64, u64), Wrong> {
    let least = segment_bytes.saturating_mul(3);
    if retention_bytes < least {
        return Err(Wrong::Retention { retention_bytes, least, segment_bytes });
    }
    let for_backups = (retention_bytes / 2).min(retention_bytes - 2 * segment_bytes);
    Ok((retention_bytes - for_backups, for_backups))
}

fn parse_log_id(text: &str) -> Option<LogId> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some(LogId(u128::from_str_radix(text, 16).ok()?.to_be_bytes()))
}

/// 128 random bits as 32 hexadecimal digits.
pub(crate) fn random_hex() -> Result<String, Failure> {
    let random = getrandom::u64().and_then(|high| Ok((high, getrandom::u64()?)));
    let (high, low) = random.map_err(|error| Failure::new(Status::System, error))?;
    Ok(format!("{high:016x}{low:016x}"))
}

/// Writes a new file that only its owner can read: it has the group's secret.
///
/// # Errors
///
/// The system's: `AlreadyExists` if there is such a file.
pub(crate) fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_id_is_32_hexadecimal_digits() {
        let id = parse_log_id("000102030405060708090a0b0c0d0e0f").unwrap();
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
        for bad in ["", "00", "+00102030405060708090a0b0c0d0e0f", "000102030405060708090a0b0c0d0e0g"] {
            assert_eq!(parse_log_id(bad), None, "{bad}");
        }
    }

    const LEAST: &str = "log_id = \"000102030405060708090a0b0c0d0e0f\"\nsecret = \"0123456789abcdef\"\n[[members]]\nnumber = 1\n\
                         control = \"127.0.0.1:7001\"\nclient = \"m1.sock\"\nfolder = \"m1\"\n";

    #[test]
    fn keys_with_good_defaults_may_be_left_out() {
        let config = Config::parse(LEAST).unwrap();
        assert_eq!((config.level.as_str(), config.any_filesystem), ("durable", false));
        let numbers = (config.segment_bytes, config.retention_bytes, config.suspicion_ms);
        assert_eq!(numbers, (64 << 20, 4 << 30, 400));
        assert_eq!(config.scrub_bytes_per_second, 1 << 20);
        assert!(config.options(1, Logger::root(slog::Discard, slog::o!())).is_ok());
    }

    #[test]
    fn retention_bytes_is_the_sum_of_the_two_options_and_three_segments_at_least() {
        let segment = 65_536;
        for retention in [3 * segment, 3 * segment + 1, 4 * segment, 5 * segment + 7, 1 << 40, 1 << 62] {
            let (kept, for_backups) = shares(retention, segment).unwrap();
            assert_eq!(kept + for_backups, retention);
            assert!(kept >= 2 * segment && for_backups >= segment, "{retention}: {kept} and {for_backups}");
        }
        for retention in [0, segment, 3 * segment - 1] {
            let why = shares(retention, segment).unwrap_err().to_string();
            assert!(why.contains("at least 196608, three segments"), "{why}");
        }
        assert!(shares(1 << 62, u64::MAX).is_err());
    }

    #[test]
    fn sizes_of_quorums_are_both_there_and_meet_or_the_file_is_refused() {
        let quorums = |lines: &str, members: u8| {
            let top = LEAST.split("[[").next().unwrap();
            let tables: String = (1..=members)
                .map(|n| {
                    format!(
                        "[[members]]\nnumber = {n}\ncontrol = \"127.0.0.1:700{n}\"\nclient = \"s{n}\"\nfolder = \"m{n}\"\n"
                    )
                })
                .collect();
            Config::parse(&format!("{top}{lines}\n{tables}"))
        };
        let config = quorums("write_quorum = 2\ntakeover_quorum = 4", 5).unwrap();
        assert_eq!(config.quorums, Some(QuorumsConfig { write_quorum: 2, takeover_quorum: 4 }));
        assert_eq!(Config::parse(&toml::to_string(&config).unwrap()), Ok(config), "as it is written");
        for (lines, words) in [
            ("write_quorum = 2", "takeover_quorum is not"),
            ("takeover_quorum = 2", "write_quorum is not"),
            ("write_quorum = 2\ntakeover_quorum = 3", "make them 6 together at least"),
            ("write_quorum = 6\ntakeover_quorum = 3", "choose 1 to 5"),
        ] {
            let why = quorums(lines, 5).unwrap_err();
            assert!(why.contains(words), "{lines}: {why}");
        }
    }

    #[test]
    fn a_member_that_joins_is_none_that_the_group_began_with() {
        let table =
            "[[members]]\nnumber = 2\ncontrol = \"127.0.0.1:7002\"\nclient = \"m2.sock\"\nfolder = \"m2\"\n";
        let config = Config::parse(&format!("{LEAST}{table}joins = true\n")).unwrap();
        assert_eq!(config.members.iter().map(|m| m.joins).collect::<Vec<_>>(), [false, true]);
        assert_eq!(Config::parse(&toml::to_string(&config).unwrap()), Ok(config), "as it is written");
        let twice = Config::parse(&format!("{LEAST}{}", table.replace("= 2", "= 1"))).unwrap_err();
        assert!(twice.contains("member 1 has two"), "{twice}");
        let none = Config::parse(&format!("{LEAST}joins = true\n")).unwrap_err();
        assert!(none.contains("every [[members]] table"), "{none}");
    }

    #[test]
    fn a_missing_key_is_named_with_its_table_and_how_to_make_it() {
        for (key, words) in [
            ("log_id", "openssl rand -hex 16"),
            ("secret", "openssl rand -hex 32"),
            ("number", "table number 1"),
            ("control", "table number 1 (member 1)"),
            ("client", "table number 1 (member 1)"),
            ("folder", "table number 1 (member 1)"),
        ] {
            let text: Vec<&str> = LEAST.lines().filter(|line| !line.starts_with(key)).collect();
            let why = Config::parse(&text.join("\n")).unwrap_err();
            assert!(why.starts_with(key) && why.contains(words), "{key}: {why}");
        }
        let top = LEAST.split("[[").next().unwrap();
        assert!(Config::parse(top).unwrap_err().contains("[[members]]"));
    }

    #[test]
    fn a_placeholder_or_a_short_secret_is_refused_with_the_command_that_makes_one() {
        for bad in PLACEHOLDERS.into_iter().chain(["", "fifteen bytes.."]) {
            let mut config = Config::parse(LEAST).unwrap();
            config.secret = bad.into();
            let failure = config.options(1, Logger::root(slog::Discard, slog::o!())).unwrap_err();
            assert_eq!(failure.status, Status::Usage);
            assert!(failure.message.contains("openssl rand -hex 32"), "{bad}: {}", failure.message);
        }
    }
}
