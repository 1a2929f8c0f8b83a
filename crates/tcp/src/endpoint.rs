//! The opaque bytes that tell a peer how to reach a connection: version, family, address, port, token.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) const TOKEN_BYTES: usize = 16;
pub(crate) const ENDPOINT_BYTES: usize = 40;
/// Names the protocol and its version in endpoints, handshakes and proofs.
pub(crate) const MAGIC: [u8; 4] = *b"WLT\x01";

/// Random name of one end of one connection.
pub(crate) type Token = [u8; TOKEN_BYTES];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) token: Token,
}

impl Endpoint {
    pub(crate) fn encode(&self) -> [u8; ENDPOINT_BYTES] {
        let mut to = [0; ENDPOINT_BYTES];
        to[..4].copy_from_slice(&MAGIC);
        match self.address.ip() {
            IpAddr::V4(ip) => {
                to[4] = 4;
                to[8..12].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                to[4] = 6;
                to[8..24].copy_from_slice(&ip.octets());
            }
        }
        to[6..8].copy_from_slice(&self.address.port().to_le_bytes());
        to[24..].copy_from_slice(&self.token);
        to
    }

    pub(crate) fn parse(from: &[u8]) -> Result<Self, &'static str> {
        let from: &[u8; ENDPOINT_BYTES] = from.try_into().map_err(|_| "wrong length")?;
        if from[..3] != MAGIC[..3] {
            return Err("no endpoint of the tcp fabric");
        }
        if from[3] != MAGIC[3] {
            return Err("another version of the tcp fabric");
        }
        let mut octets = [0; 16];
        octets.copy_from_slice(&from[8..24]);
        let ip = match from[4] {
            4 => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
            6 => IpAddr::V6(Ipv6Addr::from(octets)),
            _ => return Err("unknown address family"),
        };
        let port = u16::from_le_bytes([from[6], from[7]]);
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&from[24..]);
        Ok(Self { address: SocketAddr::new(ip, port), token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_comes_back_and_a_foreign_one_is_refused() {
        for address in ["192.0.2.1:70", "[2001:db8::1]:65535"] {
            let endpoint = Endpoint { address: address.parse().unwrap(), token: [9; TOKEN_BYTES] };
            assert_eq!(Endpoint::parse(&endpoint.encode()), Ok(endpoint));
        }
        let mut bytes = Endpoint { address: "127.0.0.1:1".parse().unwrap(), token: [0; 16] }.encode();
        bytes[3] = 2;
        assert_eq!(Endpoint::parse(&bytes), Err("another version of the tcp fabric"));
        assert!(Endpoint::parse(&bytes[1..]).is_err());
        assert!(Endpoint::parse(&[]).is_err());
    }
}
