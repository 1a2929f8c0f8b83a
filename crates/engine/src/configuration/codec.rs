//! A configuration as the payload of a configuration record: little-endian, versioned, bounded.
//!
//! ```text
//!  0       1         2            3      4         5       8         16
//!  version write     takeover     count  highest   zeros   number    members, 32 bytes each, by number:
//!          quorum, both 0: majorities
//!
//!  0       1           2          3         4         6      8          24            32
//!  number  standing    replaces   address   port      zeros  IP         incarnation
//!          1 voter                0 none                     IPv4 in the first 4 bytes
//!          2 learner              4 IPv4
//!          3 …that replaces       6 IPv6
//! ```

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use windlass_log::MemberId;

use super::{Configuration, MemberEntry, QuorumError, Quorums, Standing};

/// The version of the layout.
pub const CONFIGURATION_VERSION: u8 = 1;
/// No configuration is longer.
pub const CONFIGURATION_BYTES_MAX: usize = HEAD_BYTES + MEMBER_BYTES * Configuration::MEMBERS_MAX;

const HEAD_BYTES: usize = 16;
const MEMBER_BYTES: usize = 32;

/// Why bytes are no configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigurationDecodeError {
    /// Their number does not fit the members.
    #[error("{bytes} bytes are no configuration: was it written by another release?")]
    Length {
        /// How many.
        bytes: usize,
    },
    /// Another version.
    #[error(
        "a configuration of version {found}, this release reads {CONFIGURATION_VERSION}: run compatible releases"
    )]
    Version {
        /// The version.
        found: u8,
    },
    /// A field that can't be what it says.
    #[error("the configuration's {field} can't be {found}")]
    Field {
        /// Which.
        field: &'static str,
        /// Its value.
        found: u8,
    },
    /// Its quorums can't be used.
    #[error(transparent)]
    Quorums(#[from] QuorumError),
}

impl Configuration {
    /// The payload of its record, at most [`CONFIGURATION_BYTES_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + MEMBER_BYTES * self.members.len());
        let (write, takeover) = match self.quorums {
            Quorums::Majority => (0, 0),
            Quorums::Sizes { write, takeover } => (write, takeover),
        };
        let count = u8::try_from(self.members.len()).unwrap_or(u8::MAX);
        bytes.extend_from_slice(&[CONFIGURATION_VERSION, write, takeover, count, self.highest.0, 0, 0, 0]);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        for member in &self.members {
            bytes.extend_from_slice(&encode_member(member));
        }
        bytes
    }

    /// The configuration in these bytes, all of them.
    ///
    /// # Errors
    ///
    /// [`ConfigurationDecodeError`]: a member that can't read its group's configuration takes no part until it can.
    pub fn decode(bytes: &[u8]) -> Result<Configuration, ConfigurationDecodeError> {
        let length = ConfigurationDecodeError::Length { bytes: bytes.len() };
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(length)?;
        let [version, write, takeover, count, highest, zeros @ .., _, _, _, _, _, _, _, _] = *head;
        if version != CONFIGURATION_VERSION {
            return Err(ConfigurationDecodeError::Version { found: version });
        }
        if usize::from(count) > Configuration::MEMBERS_MAX || rest.len() != usize::from(count) * MEMBER_BYTES
        {
            return Err(length);
        }
        if let Some(found) = zeros.into_iter().find(|zero| *zero != 0) {
            return Err(ConfigurationDecodeError::Field { field: "reserved byte", found });
        }
        let mut number = [0; 8];
        number.copy_from_slice(&head[8..]);
        let members =
            rest.as_chunks::<MEMBER_BYTES>().0.iter().map(decode_member).collect::<Result<Vec<_>, _>>()?;
        let quorums = match (write, takeover) {
            (0, 0) => Quorums::Majority,
            (write, takeover) => Quorums::Sizes { write, takeover },
        };
        let configuration = Configuration {
            number: u64::from_le_bytes(number),
            highest: MemberId(highest),
            quorums,
            members,
        };
        configuration.sound()?;
        Ok(configuration)
    }

    /// What no encoder writes otherwise.
    fn sound(&self) -> Result<(), ConfigurationDecodeError> {
        let field = |field, found: MemberId| Err(ConfigurationDecodeError::Field { field, found: found.0 });
        if let Some(pair) = self.members.windows(2).find(|pair| pair[0].id >= pair[1].id) {
            return field("member", pair[1].id);
        }
        if let Some(last) = self.members.last().filter(|last| last.id > self.highest) {
            return field("highest number", last.id);
        }
        let voters = self.voters_len();
        if voters > Configuration::VOTERS_MAX || self.members.len() > voters + 1 {
            return field("number of voters", MemberId(u8::try_from(voters).unwrap_or(u8::MAX)));
        }
        if let Some(learner) = self.learner()
            && let Standing::Learner { replaces: Some(old) } = learner.standing
            && !self.is_voter(old)
        {
            return field("member that is replaced", old);
        }
        self.quorums.check(voters)?;
        Ok(())
    }
}

fn encode_member(member: &MemberEntry) -> [u8; MEMBER_BYTES] {
    let mut bytes = [0; MEMBER_BYTES];
    bytes[0] = member.id.0;
    (bytes[1], bytes[2]) = match member.standing {
        Standing::Voter => (1, 0),
        Standing::Learner { replaces: None } => (2, 0),
        Standing::Learner { replaces: Some(old) } => (3, old.0),
    };
    if let Some(address) = member.address {
        bytes[4..6].copy_from_slice(&address.port().to_le_bytes());
        match address.ip() {
            IpAddr::V4(ip) => {
                bytes[3] = 4;
                bytes[8..12].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes[3] = 6;
                bytes[8..24].copy_from_slice(&ip.octets());
            }
        }
    }
    bytes[24..].copy_from_slice(&member.incarnation.to_le_bytes());
    bytes
}

fn decode_member(bytes: &[u8; MEMBER_BYTES]) -> Result<MemberEntry, ConfigurationDecodeError> {
    let field = |field, found| ConfigurationDecodeError::Field { field, found };
    let standing = match (bytes[1], bytes[2]) {
        (1, 0) => Standing::Voter,
        (2, 0) => Standing::Learner { replaces: None },
        (3, old) => Standing::Learner { replaces: Some(MemberId(old)) },
        (found, _) => return Err(field("standing", found)),
    };
    let port = u16::from_le_bytes([bytes[4], bytes[5]]);
    let mut ip = [0; 16];
    ip.copy_from_slice(&bytes[8..24]);
    let address = match bytes[3] {
        0 if port == 0 && ip == [0; 16] => None,
        4 if ip[4..] == [0; 12] => Some(SocketAddr::from(([ip[0], ip[1], ip[2], ip[3]], port))),
        6 => Some(SocketAddr::from((ip, port))),
        found => return Err(field("address", found)),
    };
    if bytes[6..8] != [0, 0] {
        return Err(field("reserved byte", bytes[6].max(bytes[7])));
    }
    let mut incarnation = [0; 8];
    incarnation.copy_from_slice(&bytes[24..]);
    let incarnation = u64::from_le_bytes(incarnation);
    Ok(MemberEntry { id: MemberId(bytes[0]), standing, incarnation, address })
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::*;
    use alloc::vec;

    fn example() -> Configuration {
        let three = Configuration::founding([1, 2, 4].map(MemberId))
            .with_quorums(Quorums::Sizes { write: 3, takeover: 1 })
            .unwrap()
            .with_address(MemberId(1), SocketAddr::from(([10, 0, 0, 1], 0x1234)))
            .with_address(MemberId(4), SocketAddr::from(([1, 2, 3, 4, 5, 6, 7, 0x89ab], 0x4321)));
        let replace = Change::Replace { old: MemberId(2), new: MemberId(7), address: None };
        three.after(&replace).unwrap()
    }

    #[test]
    fn golden_bytes_of_a_configuration_record() {
        let mut expected = vec![1, 3, 1, 4, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([1, 1, 0, 4, 0x34, 0x12, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0]);
        expected.extend([0; 16]);
        expected.extend([2, 1, 0, 0, 0, 0, 0, 0]);
        expected.extend([0; 24]);
        expected.extend([4, 1, 0, 6, 0x21, 0x43, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4]);
        expected.extend([0, 5, 0, 6, 0, 7, 0x89, 0xab, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([7, 3, 2, 0, 0, 0, 0, 0]);
        expected.extend([0; 24]);
        assert_eq!(example().encode(), expected);
        assert_eq!(Configuration::decode(&expected), Ok(example()));
        let promoted = example().promoted(0x0807_0605_0403_0201).unwrap();
        let bytes = promoted.encode();
        assert_eq!(bytes[bytes.len() - 8..], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Configuration::decode(&bytes), Ok(promoted));
    }

    #[test]
    fn cut_changed_or_lengthened_bytes_never_panic_and_what_decodes_encodes_to_the_same() {
        let bytes = example().encode();
        for end in 0..bytes.len() {
            assert!(Configuration::decode(&bytes[..end]).is_err());
        }
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(configuration) = Configuration::decode(&changed) {
                    configuration.check();
                    assert_eq!(configuration.encode(), changed);
                }
            }
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(Configuration::decode(&longer).is_err());
    }

    #[test]
    fn the_largest_configuration_fits_and_one_of_nobody_comes_back() {
        let most = u8::try_from(Configuration::VOTERS_MAX).unwrap();
        let full = Configuration::founding((0..most).map(MemberId));
        let replace = Change::Replace { old: MemberId(0), new: MemberId(200), address: None };
        let full = full.after(&replace).unwrap();
        assert_eq!(full.encode().len(), CONFIGURATION_BYTES_MAX);
        assert_eq!(Configuration::decode(&full.encode()), Ok(full));
        let unknown = Configuration::unknown();
        assert_eq!(Configuration::decode(&unknown.encode()), Ok(unknown));
    }

    #[test]
    fn the_highest_number_may_be_one_that_has_left_and_no_member_has_a_higher_one() {
        let left = Configuration::founding([1, 2, 4].map(MemberId));
        let left = left.after(&Change::Remove { member: MemberId(4) }).unwrap();
        let mut bytes = left.encode();
        assert_eq!(Configuration::decode(&bytes), Ok(left));
        let lower = ConfigurationDecodeError::Field { field: "highest number", found: 2 };
        bytes[4] = 1;
        assert_eq!(Configuration::decode(&bytes), Err(lower));
    }

    #[test]
    fn one_member_learns_at_most_and_so_many_vote() {
        let voters = |count: u8| Configuration::founding((0..count).map(MemberId));
        let learner = Standing::Learner { replaces: None };
        let mut two = voters(3);
        two.members[1].standing = learner;
        assert_eq!(Configuration::decode(&two.encode()), Ok(two.clone()));
        two.members[2].standing = learner;
        let refused = |found| Err(ConfigurationDecodeError::Field { field: "number of voters", found });
        assert_eq!(Configuration::decode(&two.encode()), refused(1));
        let most = u8::try_from(Configuration::VOTERS_MAX).unwrap();
        let mut many = voters(most);
        many.members.push(MemberEntry { id: MemberId(most), ..many.members[0] });
        many.highest = MemberId(most);
        assert_eq!(Configuration::decode(&many.encode()), refused(most + 1));
    }
}
