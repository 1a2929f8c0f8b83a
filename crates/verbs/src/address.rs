//! Addresses: which one of a port's table is taken, and how a peer is reached from it. Pure functions over the device's attributes.

use std::net::{IpAddr, Ipv6Addr};

use ibverbs_sys as sys;

use crate::endpoint::Endpoint;
use crate::error::PortRefusalReason;
use crate::options::PathOptions;

/// How packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// InfiniBand: by local identifier, which a subnet manager gives out; a route header only between subnets.
    InfiniBand,
    /// RoCE version 1: Ethernet frames, not routed.
    RoceV1,
    /// RoCE version 2: UDP.
    RoceV2,
}

impl Link {
    pub(crate) fn code(self) -> u8 {
        match self {
            Link::InfiniBand => 0,
            Link::RoceV1 => 1,
            Link::RoceV2 => 2,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Link> {
        [Link::InfiniBand, Link::RoceV1, Link::RoceV2].into_iter().find(|link| link.code() == code)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Link::InfiniBand => "InfiniBand",
            Link::RoceV1 => "RoCE v1",
            Link::RoceV2 => "RoCE v2",
        }
    }
}

/// The address that a port's connections start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortAddress {
    /// The port, from 1.
    pub(crate) port: u8,
    /// How its packets travel.
    pub(crate) link: Link,
    /// Where in the GID table the address stands *now*: it may move when the port flaps.
    pub(crate) gid_index: u8,
    /// The address itself.
    pub(crate) gid: [u8; 16],
    /// The local identifier; 0 on Ethernet.
    pub(crate) lid: u16,
    /// The port's active MTU as `ibv_mtu` counts it.
    pub(crate) mtu: u32,
    /// The port's longest message, in bytes.
    pub(crate) message_bytes_max: u32,
}

/// One valid entry of the GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GidEntry {
    pub(crate) port: u32,
    pub(crate) index: u8,
    pub(crate) gid: [u8; 16],
    pub(crate) kind: u32,
}

/// The address that a GID stands for: an IPv4 address where it is a mapped one.
pub(crate) fn gid_address(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// Chooses the address of one port, by type and value, never by its place in the table (failure kind 68).
pub(crate) fn choose(
    number: u8,
    port: &sys::ibv_port_attr,
    table: &[GidEntry],
    wanted: Option<IpAddr>,
) -> Result<PortAddress, PortRefusalReason> {
    if port.state != sys::ibv_port_state::IBV_PORT_ACTIVE {
        return Err(PortRefusalReason::Down { state: port.state });
    }
    let of_port: Vec<GidEntry> =
        table.iter().filter(|entry| entry.port == u32::from(number)).copied().collect();
    let (entry, link) = if u32::from(port.link_layer) == sys::IBV_LINK_LAYER_INFINIBAND {
        if port.lid == 0 {
            return Err(PortRefusalReason::NoLocalIdentifier);
        }
        (choose_infiniband(&of_port, wanted)?, Link::InfiniBand)
    } else {
        choose_roce(&of_port, wanted)?
    };
    Ok(PortAddress {
        port: number,
        link,
        gid_index: entry.index,
        gid: entry.gid,
        lid: port.lid,
        mtu: port.active_mtu,
        message_bytes_max: port.max_msg_sz,
    })
}

fn choose_infiniband(entries: &[GidEntry], wanted: Option<IpAddr>) -> Result<GidEntry, PortRefusalReason> {
    let found = entries
        .iter()
        .filter(|entry| entry.kind == sys::IBV_GID_TYPE_IB)
        .find(|entry| wanted.is_none_or(|wanted| gid_address(entry.gid) == wanted.to_canonical()));
    found.copied().ok_or_else(|| missing(entries, wanted))
}

/// Version 2 before version 1: it is routed, and what every device of today has. Among those of one version a link-local address is
/// taken only when asked for by name: it is reached only with the interface that it belongs to, which a GID does not carry.
fn choose_roce(entries: &[GidEntry], wanted: Option<IpAddr>) -> Result<(GidEntry, Link), PortRefusalReason> {
    for (kind, link) in [(sys::IBV_GID_TYPE_ROCE_V2, Link::RoceV2), (sys::IBV_GID_TYPE_ROCE_V1, Link::RoceV1)]
    {
        let fits = |entry: &&GidEntry| match wanted {
            Some(wanted) => gid_address(entry.gid) == wanted.to_canonical(),
            None => !is_link_local(entry.gid),
        };
        if let Some(entry) = entries.iter().filter(|entry| entry.kind == kind).find(fits) {
            return Ok((*entry, link));
        }
    }
    Err(missing(entries, wanted))
}

fn missing(entries: &[GidEntry], wanted: Option<IpAddr>) -> PortRefusalReason {
    if entries.is_empty() {
        return PortRefusalReason::NoAddress;
    }
    let mut present: Vec<IpAddr> = entries.iter().map(|entry| gid_address(entry.gid)).collect();
    present.dedup();
    match wanted {
        Some(wanted) => PortRefusalReason::NoSuchAddress { wanted, present },
        None => PortRefusalReason::OnlyLinkLocal { present },
    }
}

fn is_link_local(gid: [u8; 16]) -> bool {
    match gid_address(gid) {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The path MTU: what both ends and the option allow (failure kind 69).
pub(crate) fn path_mtu(own: u32, peer: u8, most: u32) -> u32 {
    own.min(u32::from(peer)).min(most)
}

/// How the peer is reached. RoCE always needs the route header; InfiniBand only into another subnet (the upper half of a GID).
pub(crate) fn address_vector(own: &PortAddress, peer: &Endpoint, path: &PathOptions) -> sys::ibv_ah_attr {
    let routed = match own.link {
        Link::RoceV1 | Link::RoceV2 => true,
        Link::InfiniBand => own.gid[..8] != peer.gid[..8],
    };
    let mut vector = sys::ibv_ah_attr {
        dlid: peer.lid,
        sl: path.service_level,
        port_num: own.port,
        is_global: u8::from(routed),
        ..Default::default()
    };
    if routed {
        vector.grh = sys::ibv_global_route {
            dgid: sys::ibv_gid { raw: peer.gid },
            sgid_index: own.gid_index,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            ..Default::default()
        };
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, kind: u32, address: &str) -> GidEntry {
        let address: IpAddr = address.parse().unwrap();
        let gid = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        GidEntry { port: 1, index, gid, kind }
    }

    fn port(layer: u32, lid: u16) -> sys::ibv_port_attr {
        sys::ibv_port_attr {
            state: sys::ibv_port_state::IBV_PORT_ACTIVE,
            active_mtu: 5,
            max_msg_sz: 1 << 30,
            link_layer: u8::try_from(layer).unwrap(),
            lid,
            ..Default::default()
        }
    }

    fn ethernet() -> sys::ibv_port_attr {
        port(sys::IBV_LINK_LAYER_ETHERNET, 0)
    }

    fn index(table: &[GidEntry], wanted: Option<&str>) -> Result<(u8, Link), PortRefusalReason> {
        let wanted = wanted.map(|text| text.parse().unwrap());
        choose(1, &ethernet(), table, wanted).map(|address| (address.gid_index, address.link))
    }

    #[test]
    fn kind_68_the_gid_is_chosen_by_type_and_address() {
        let table = [
            entry(0, sys::IBV_GID_TYPE_ROCE_V1, "fe80::1"),
            entry(1, sys::IBV_GID_TYPE_ROCE_V2, "fe80::1"),
            entry(2, sys::IBV_GID_TYPE_ROCE_V1, "10.0.0.1"),
            entry(3, sys::IBV_GID_TYPE_ROCE_V2, "10.0.0.1"),
            entry(4, sys::IBV_GID_TYPE_ROCE_V2, "10.0.0.2"),
        ];
        assert_eq!(index(&table, None), Ok((3, Link::RoceV2)));
        assert_eq!(index(&table, Some("10.0.0.2")), Ok((4, Link::RoceV2)));
        assert_eq!(index(&table, Some("::ffff:10.0.0.1")), Ok((3, Link::RoceV2)));
        assert_eq!(index(&table[..3], None), Ok((2, Link::RoceV1)), "version 1 where there is no other");
        assert_eq!(index(&table[..2], Some("fe80::1")), Ok((1, Link::RoceV2)));
        let only = PortRefusalReason::OnlyLinkLocal { present: vec!["fe80::1".parse().unwrap()] };
        assert_eq!(index(&table[..2], None), Err(only), "a link-local address is taken only when asked for");
        let elsewhere = GidEntry { port: 2, ..table[3] };
        assert_eq!(index(&[elsewhere], None), Err(PortRefusalReason::NoAddress));
    }

    #[test]
    fn kind_68_a_missing_address_is_named_with_those_that_are_there() {
        let table = [entry(1, sys::IBV_GID_TYPE_ROCE_V2, "10.0.0.1")];
        let wanted: IpAddr = "10.9.9.9".parse().unwrap();
        let present = vec!["10.0.0.1".parse().unwrap()];
        assert_eq!(
            index(&table, Some("10.9.9.9")),
            Err(PortRefusalReason::NoSuchAddress { wanted, present })
        );
    }

    #[test]
    fn a_port_that_is_down_is_refused_first() {
        let down = sys::ibv_port_attr { state: sys::ibv_port_state::IBV_PORT_DOWN, ..ethernet() };
        assert!(matches!(choose(1, &down, &[], None), Err(PortRefusalReason::Down { state: 1 })));
    }

    #[test]
    fn infiniband_is_addressed_by_its_local_identifier() {
        let table = [entry(0, sys::IBV_GID_TYPE_IB, "fe80::5"), entry(1, sys::IBV_GID_TYPE_IB, "fec0::5")];
        let of_lid = |lid| choose(1, &port(sys::IBV_LINK_LAYER_INFINIBAND, lid), &table, None);
        assert_eq!(of_lid(0), Err(PortRefusalReason::NoLocalIdentifier));
        let own = of_lid(7).unwrap();
        assert_eq!((own.link, own.lid, own.gid_index), (Link::InfiniBand, 7, 0));
        let mut peer = Endpoint { lid: 9, gid: entry(0, 0, "fe80::6").gid, ..Endpoint::default() };
        let path = PathOptions { service_level: 3, ..PathOptions::default() };
        let near = address_vector(&own, &peer, &path);
        assert_eq!((near.dlid, near.sl, near.is_global), (9, 3, 0), "no route header within the subnet");
        peer.gid = entry(0, 0, "fec0::6").gid;
        let far = address_vector(&own, &peer, &path);
        assert_eq!((far.dlid, far.is_global, far.grh.hop_limit), (9, 1, 64));
    }

    #[test]
    fn roce_always_has_the_route_header() {
        let table = [entry(3, sys::IBV_GID_TYPE_ROCE_V2, "10.0.0.1")];
        let own = choose(1, &ethernet(), &table, None).unwrap();
        let peer = Endpoint { gid: entry(0, 0, "10.0.0.2").gid, ..Endpoint::default() };
        let path = PathOptions { traffic_class: 104, ..PathOptions::default() };
        let vector = address_vector(&own, &peer, &path);
        assert_eq!((vector.is_global, vector.port_num, vector.dlid), (1, 1, 0));
        assert_eq!((vector.grh.sgid_index, vector.grh.hop_limit, vector.grh.traffic_class), (3, 64, 104));
        // SAFETY: the member was just written.
        assert_eq!(unsafe { vector.grh.dgid.raw }, peer.gid);
    }

    #[test]
    fn kind_69_the_path_mtu_is_the_least_of_both_ends_and_the_option() {
        assert_eq!(path_mtu(5, 3, 5), 3);
        assert_eq!(path_mtu(3, 5, 5), 3);
        assert_eq!(path_mtu(5, 5, 4), 4);
    }
}
