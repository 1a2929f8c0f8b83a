//! Who belongs to a group, as one member tells its clients.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use windlass::engine::{PeerStatus, Standing};
use windlass::{MemberId, Node, Outside};

/// Who belongs to the group, as one member knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct View {
    /// Who says so.
    pub(crate) by: u8,
    /// Whom it follows, or itself.
    pub(crate) primary: Option<u8>,
    /// The configuration's number; how often the group was changed.
    pub(crate) configuration: u64,
    /// Whether it is known there to be committed.
    pub(crate) committed: bool,
    /// How many voters hold what is committed.
    pub(crate) write_quorum: usize,
    /// How many promise before one leads.
    pub(crate) takeover_quorum: usize,
    /// The highest number that was ever given.
    pub(crate) highest: u8,
    /// Why who says so is none of the group's any more, and what to do: all this may be long out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outside: Option<String>,
    pub(crate) members: Vec<ViewMember>,
}

/// One member of a [`View`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ViewMember {
    pub(crate) member: u8,
    /// `voter` or `learner`.
    pub(crate) standing: String,
    /// The voter whose place a learner takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<u8>,
    /// Where its control plane is, if the configuration says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<SocketAddr>,
    /// As the primary sees it: `streaming`, `away` or `needs-snapshot`; `primary` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<String>,
}

impl ViewMember {
    /// A voter of whom nothing else is known.
    #[cfg(test)]
    pub(crate) fn voter(member: u8) -> ViewMember {
        ViewMember { member, standing: "voter".into(), replaces: None, address: None, follows: None }
    }

    pub(crate) fn votes(&self) -> bool {
        self.standing == "voter"
    }
}

impl View {
    /// As this node knows.
    pub(crate) fn of(node: &Node) -> View {
        let (known, info) = (node.members(), node.info());
        let (configuration, me) = (&known.configuration, info.member);
        let leads = node.log().is_ok();
        let follows = |member: MemberId| match known.peers.get(&member) {
            _ if !leads => None,
            _ if member == me => Some("primary"),
            Some(PeerStatus::Streaming) => Some("streaming"),
            Some(PeerStatus::NeedsSnapshot) => Some("needs-snapshot"),
            Some(PeerStatus::Away) | None => Some("away"),
        };
        let members = configuration.members().iter().map(|entry| ViewMember {
            member: entry.id.0,
            standing: String::from(if entry.standing == Standing::Voter { "voter" } else { "learner" }),
            replaces: match entry.standing {
                Standing::Learner { replaces } => replaces.map(|old| old.0),
                Standing::Voter => None,
            },
            address: entry.address,
            follows: follows(entry.id).map(String::from),
        });
        let outside = node.outside();
        View {
            by: me.0,
            // Whom it followed last is no word of who leads a group that it has left.
            primary: if leads {
                Some(me.0)
            } else {
                info.status.primary.filter(|at| *at != me && outside.is_none()).map(|at| at.0)
            },
            configuration: configuration.number(),
            committed: known.committed,
            write_quorum: configuration.write_quorum(),
            takeover_quorum: configuration.takeover_quorum(),
            highest: configuration.highest().0,
            outside: outside.filter(|why| *why != Outside::NotYet).map(|why| why.to_string()),
            members: members.collect(),
        }
    }

    pub(crate) fn member(&self, number: u8) -> Option<&ViewMember> {
        self.members.iter().find(|member| member.member == number)
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = u8> + '_ {
        self.members.iter().filter(|member| member.votes()).map(|member| member.member)
    }
}
