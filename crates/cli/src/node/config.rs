//! The file that tells every member's process what its group is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slog::Logger;
use windlass::control::{Member, Secret};
use windlass::{Level, LogId, MemberId, NodeOptions};

use crate::exit::{Failure, Status};

/// A group, as TOML. Every member is given the same file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The log's identity: 32 hexadecimal digits.
    pub(crate) log_id: String,
    /// The group's secret, at least 16 bytes. Keep the file as safe as the data.
    pub(crate) secret: String,
    /// What an acknowledgement means: `durable` or `replicated`.
    pub(crate) level: String,
    /// Bytes of a segment.
    pub(crate) segment_bytes: u64,
    /// Cap on bytes between the trim point and the tail.
    pub(crate) retention_bytes: u64,
    /// Silence after which a primary is suspected.
    pub(crate) suspicion_ms: u64,
    /// Accept a filesystem on which preallocation or locks are not known to hold.
    pub(crate) any_filesystem: bool,
    pub(crate) members: Vec<MemberConfig>,
}

/// One member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberConfig {
    /// Its number, 0 to 255.
    pub(crate) number: u8,
    /// Where its control plane listens.
    pub(crate) control: SocketAddr,
    /// The Unix socket for clients.
    pub(crate) client: PathBuf,
    /// The folder of its log.
    pub(crate) folder: PathBuf,
}

impl Config {
    pub(crate) fn read(file: &Path) -> Result<Config, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| Failure::io(file.display(), &error))?;
        toml::from_str(&text)
            .map_err(|error| Failure::new(Status::Usage, format_args!("{}: {error}", file.display())))
    }

    pub(crate) fn member(&self, number: u8) -> Result<&MemberConfig, Failure> {
        self.members.iter().find(|member| member.number == number).ok_or_else(|| {
            let known: Vec<String> = self.members.iter().map(|member| member.number.to_string()).collect();
            let known = known.join(", ");
            Failure::new(
                Status::Usage,
                format_args!("there is no member {number} in this group: its members are {known}"),
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

    /// The library's options of one member.
    pub(crate) fn options(&self, number: u8, logger: Logger) -> Result<NodeOptions, Failure> {
        let usage = |error: &dyn std::fmt::Display| Failure::new(Status::Usage, error);
        let log_id = parse_log_id(&self.log_id)
            .ok_or_else(|| usage(&"log_id: it has 32 hexadecimal digits, the same for all members"))?;
        let secret = Secret::new(self.secret.as_bytes()).map_err(|error| usage(&error))?;
        let members =
            self.members.iter().map(|m| Member { id: MemberId(m.number), address: m.control }).collect();
        let level = self.level()?;
        Ok(NodeOptions::new(MemberId(number), members, log_id, secret)
            .segment_bytes(self.segment_bytes)
            .retention_bytes(self.retention_bytes)
            .backup_retention_bytes(self.retention_bytes)
            .level(level)
            .allow_replicated(level == Level::Replicated)
            .suspicion(Duration::from_millis(self.suspicion_ms))
            .any_filesystem(self.any_filesystem)
            .logger(logger))
    }
}

fn parse_log_id(text: &str) -> Option<LogId> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some(LogId(u128::from_str_radix(text, 16).ok()?.to_be_bytes()))
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
}
