//! RDMA devices, their ports and addresses, as /sys shows them.

use std::net::{IpAddr, Ipv6Addr};

use super::Asked;
use super::finding::{Finding, Group, Level};
use super::software::DRIVERS;
use super::tree::Tree;

const CLASS: &str = "sys/class/infiniband";
/// What the headers of a RoCE packet take of a frame at most, as the kernel counts.
const HEADER_BYTES: u32 = 96;
/// Bytes of a page: a transfer of one page in one packet.
const PAGE_BYTES: u32 = 4096;

/// Counters of a port that should stay 0, and what it means when they don't.
struct Counters {
    id: &'static str,
    names: &'static [&'static str],
    level: Level,
    what: &'static str,
    means: &'static str,
}

const COUNTERS: &[Counters] = &[
    Counters {
        id: "link_errors",
        names: &[
            "symbol_error",
            "port_rcv_errors",
            "link_error_recovery",
            "local_link_integrity_errors",
            "excessive_buffer_overrun_errors",
            "rx_icrc_encapsulated",
        ],
        level: Level::Warning,
        what: "errors on the wire",
        means: "bits were lost or changed between this port and the next: look at cable, module and switch port if these grow",
    },
    Counters {
        id: "lost_packets",
        names: &[
            "packet_seq_err",
            "out_of_sequence",
            "local_ack_timeout_err",
            "port_xmit_discards",
            "port_rcv_remote_physical_errors",
            "retry_exceeded_err",
            "req_transport_retries_exceeded",
            "rcvd_seq_err",
            "out_of_seq_request",
            "completer_retry_err",
        ],
        level: Level::Warning,
        what: "packets lost on the way",
        means: "each was sent again, after a wait that shows in the latency of commits: give RDMA traffic a class of its own with flow control (PFC) \
                or congestion marks (ECN), here and at each switch",
    },
    Counters {
        id: "receiver_not_ready",
        names: &[
            "rnr_nak_retry_err",
            "out_of_buffer",
            "rcvd_rnr_err",
            "send_rnr_err",
            "retry_rnr_exceeded_err",
        ],
        level: Level::Note,
        what: "messages without a receive",
        means: "some program's peer had no receive posted in time; windlass counts credits, so that its own never wait for one",
    },
    Counters {
        id: "link_downed",
        names: &["link_downed"],
        level: Level::Note,
        what: "times the link went down",
        means: "each ends the connections over the port; windlass connects again",
    },
];

/// Counters of congestion control: that they move shows that it is on.
const CONGESTION: &[&str] =
    &["np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored"];

/// A device that was found, for those who look further.
pub(super) struct Found {
    pub(super) name: String,
    /// Network interfaces that its addresses belong to.
    pub(super) interfaces: Vec<String>,
    /// Whether a port is active and has an address that peers reach.
    pub(super) is_usable: bool,
}

pub(super) fn look(tree: &Tree, asked: &Asked) -> (Vec<Finding>, Vec<Found>) {
    let mut findings = Vec::new();
    let mut found = Vec::new();
    for name in tree.names(CLASS) {
        findings.push(device(tree, &name));
        let mut device = Found { name: name.clone(), interfaces: Vec::new(), is_usable: false };
        for port in tree.names(&format!("{CLASS}/{name}/ports")) {
            let port = Port::read(tree, &name, &port);
            device.is_usable |= port.is_active() && port.best_address().is_some();
            for address in port.addresses.iter().filter(|address| !address.interface.is_empty()) {
                if !device.interfaces.contains(&address.interface) {
                    device.interfaces.push(address.interface.clone());
                }
            }
            findings.push(port.state_finding(asked));
            findings.push(port.address_finding(asked));
            findings.extend(port.mtu_finding(tree));
            findings.extend(port.counter_findings(tree));
        }
        found.push(device);
    }
    if found.is_empty() {
        let means =
            "windlass runs over tcp. Without a card, Soft-RoCE makes a device of any Ethernet interface";
        findings.push(
            Finding::new(Group::Devices, "devices", asked.absent(), "no RDMA device", means)
                .run("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE"),
        );
    }
    (findings, found)
}

fn device(tree: &Tree, name: &str) -> Finding {
    let folder = format!("{CLASS}/{name}");
    let driver = tree.link(&format!("{folder}/device/driver"));
    let description = tree.text(&format!("{folder}/node_desc")).unwrap_or_default();
    let known = DRIVERS.iter().find(|known| match driver.as_deref() {
        Some("mlx5_core") => known.module == "mlx5_ib",
        Some("mlx4_core") => known.module == "mlx4_ib",
        Some(driver) => known.module == driver,
        // A device in software hangs on no bus; it says what it is.
        None => {
            (known.module == "rdma_rxe" && description == "rxe")
                || (known.module == "siw" && name.starts_with("siw"))
        }
    });
    let firmware = tree.text(&format!("{folder}/fw_ver")).filter(|text| !text.is_empty());
    let node = tree.number::<i32>(&format!("{folder}/device/numa_node")).filter(|node| *node >= 0);
    let board = tree.text(&format!("{folder}/board_id"));
    let mut seen = match (known, &driver) {
        (Some(known), _) => known.device.to_owned(),
        (None, Some(driver)) => format!("a device of the driver {driver}"),
        (None, None) => "a device of no known driver".to_owned(),
    };
    if let Some(firmware) = &firmware {
        seen.push_str(&format!(", firmware {firmware}"));
    }
    if let Some(board) = &board {
        seen.push_str(&format!(" ({board})"));
    }
    if let Some(node) = node {
        seen.push_str(&format!(", on NUMA node {node}"));
    }
    let unknown = "not known here: what it can is tried when it is opened";
    let (level, means) = known.map_or((Level::Note, unknown), |known| (known.level, known.means));
    let mut finding = Finding::new(Group::Devices, "device", level, seen, means).about(name);
    if level > Level::Note {
        finding = finding.run("windlass node --config FILE --member N --fabric tcp");
    }
    for (key, value) in [("driver", driver), ("firmware", firmware), ("board", board)] {
        if let Some(value) = value {
            finding = finding.value(key, value);
        }
    }
    match node {
        Some(node) => finding.value("numa_node", node),
        None => finding,
    }
}

/// One entry of a GID table.
struct Address {
    index: String,
    address: IpAddr,
    /// `RoCE v2`, `IB/RoCE v1`.
    kind: String,
    interface: String,
}

impl Address {
    fn is_link_local(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }
}

struct Port {
    folder: String,
    /// `mlx5_0 port 1`.
    name: String,
    device: String,
    /// `4: ACTIVE`.
    state: String,
    link: String,
    rate: String,
    addresses: Vec<Address>,
}

impl Port {
    fn read(tree: &Tree, device: &str, port: &str) -> Port {
        let folder = format!("{CLASS}/{device}/ports/{port}");
        let text = |name: &str| tree.text(&format!("{folder}/{name}")).unwrap_or_default();
        let addresses = tree
            .names(&format!("{folder}/gids"))
            .into_iter()
            .filter_map(|index| {
                let address: Ipv6Addr = text(&format!("gids/{index}")).parse().ok()?;
                (!address.is_unspecified()).then(|| Address {
                    address: address.to_canonical(),
                    kind: text(&format!("gid_attrs/types/{index}")),
                    interface: text(&format!("gid_attrs/ndevs/{index}")),
                    index,
                })
            })
            .collect();
        let (state, link, rate) = (text("state"), text("link_layer"), text("rate"));
        Port {
            name: format!("{device} port {port}"),
            device: device.to_owned(),
            state,
            link,
            rate,
            addresses,
            folder,
        }
    }

    fn is_active(&self) -> bool {
        self.state.ends_with("ACTIVE")
    }

    fn is_ethernet(&self) -> bool {
        self.link == "Ethernet"
    }

    /// The addresses that connections can start from.
    fn usable(&self) -> impl Iterator<Item = &Address> {
        let wanted = if self.is_ethernet() { "RoCE v2" } else { "" };
        self.addresses.iter().filter(move |address| address.kind.contains(wanted))
    }

    fn best_address(&self) -> Option<&Address> {
        // On InfiniBand the subnet's own prefix is link-local, and every peer is in it.
        self.usable().find(|address| !self.is_ethernet() || !address.is_link_local())
    }

    fn interface(&self) -> String {
        let named = self.addresses.iter().find(|address| !address.interface.is_empty());
        named.map_or_else(|| "INTERFACE".to_owned(), |address| address.interface.clone())
    }

    fn finding(&self, id: &'static str, level: Level, seen: impl Into<String>, means: &str) -> Finding {
        Finding::new(Group::Devices, id, level, seen, means).about(&self.name)
    }

    fn state_finding(&self, asked: &Asked) -> Finding {
        let state = self.state.split_once(": ").map_or(self.state.as_str(), |(_, word)| word);
        let seen = format!("{state}, {}, {}", self.link, self.rate);
        let found = if self.is_active() {
            self.finding("port", Level::Ok, seen, "connections can be made over it")
        } else if self.is_ethernet() {
            let means = "no connection over a port that is not active: its interface is down, or nothing is at the other end of the cable";
            let run = format!("ip link set {} up", self.interface());
            self.finding("port", asked.broken(), seen, means).run(run)
        } else {
            let means = "no connection over a port that is not active: an InfiniBand port that stays in INIT has no subnet manager";
            self.finding("port", asked.broken(), seen, means).run("systemctl start opensm")
        };
        found.value("state", state).value("link_layer", self.link.as_str()).value("rate", self.rate.as_str())
    }

    fn address_finding(&self, asked: &Asked) -> Finding {
        let list = |addresses: &[&Address]| {
            let one = |address: &&Address| {
                format!("{} ({}, index {})", address.address, address.kind, address.index)
            };
            addresses.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let all: Vec<&Address> = self.addresses.iter().collect();
        let values: Vec<serde_json::Value> = all
            .iter()
            .map(|address| {
                serde_json::json!({
                    "index": address.index, "address": address.address.to_string(),
                    "type": address.kind, "interface": address.interface,
                })
            })
            .collect();
        let usable: Vec<&Address> = self.usable().collect();
        let add = format!("ip addr add ADDRESS/24 dev {}", self.interface());
        let found = if let Some(best) = self.best_address() {
            let seen = format!("addresses: {}", list(&usable));
            let means = format!(
                "{} is taken unless another is asked for; an index may move when the port flaps, and is looked up each time",
                best.address
            );
            self.finding("addresses", Level::Ok, seen, &means)
        } else if !usable.is_empty() {
            let seen = format!("link-local addresses alone: {}", list(&usable));
            let means = "a peer can't reach these by the address alone: give the interface another";
            self.finding("addresses", asked.broken(), seen, means).run(add)
        } else if all.is_empty() {
            let means =
                "nothing to connect from: give its interface an IP address, in this network namespace";
            self.finding("addresses", asked.broken(), "no addresses", means).run(add)
        } else {
            let seen = format!("no RoCE v2 address: {}", list(&all));
            let means = "windlass connects by RoCE v2 and InfiniBand addresses, and by RoCE v1 where there is nothing else at both ends";
            self.finding("addresses", asked.broken(), seen, means).run(add)
        };
        found.value("gids", values)
    }

    /// The path MTU that the interface's own allows. (The active one is not in /sys.)
    fn mtu_finding(&self, tree: &Tree) -> Option<Finding> {
        if !self.is_ethernet() {
            return None;
        }
        let interface = self.interface();
        let mtu = tree.number::<u32>(&format!("sys/class/net/{interface}/mtu"))?;
        let path = [4096, 2048, 1024, 512].into_iter().find(|path| path + HEADER_BYTES <= mtu).unwrap_or(256);
        let seen = format!("MTU of {interface} {mtu}: packets of {path} bytes");
        let found = if path >= PAGE_BYTES {
            self.finding("mtu", Level::Ok, seen, "a page is one packet")
        } else {
            let means = "a page takes several packets: more work for each byte, and on a device that wants whole pages (Soft-RoCE) none can be \
                         written in place. Raise it at all members and switches";
            self.finding("mtu", Level::Note, seen, means).run(format!("ip link set {interface} mtu 9000"))
        };
        Some(found.value("interface_mtu_bytes", mtu).value("path_mtu_bytes", path))
    }

    fn counter_findings(&self, tree: &Tree) -> Vec<Finding> {
        let read = |name: &&str| -> Option<(String, u64)> {
            let of = |folder| tree.number(&format!("{}/{folder}/{name}", self.folder));
            let (own, hardware): (Option<u64>, Option<u64>) = (of("counters"), of("hw_counters"));
            // Some are in both folders.
            Some(((*name).to_owned(), own.max(hardware)?))
        };
        let words = |counted: &[(String, u64)]| {
            counted.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
        };
        let mut findings = Vec::new();
        let mut looked_at = 0;
        for counters in COUNTERS {
            let counted: Vec<_> = counters.names.iter().filter_map(read).collect();
            looked_at += counted.len();
            let moved: Vec<_> = counted.into_iter().filter(|(_, count)| *count > 0).collect();
            if moved.is_empty() {
                continue;
            }
            let seen = format!("{} since the device came up: {}", counters.what, words(&moved));
            let run = format!("watch -d grep -r . /{CLASS}/{}/ports/*/*counters", self.device);
            let finding = self.finding(counters.id, counters.level, seen, counters.means).run(run);
            findings
                .push(moved.into_iter().fold(finding, |finding, (name, count)| finding.value(&name, count)));
        }
        if findings.is_empty() && looked_at > 0 {
            let means = "the link has been good since the device came up";
            findings.push(self.finding(
                "counters",
                Level::Ok,
                format!("{looked_at} error counters, all 0"),
                means,
            ));
        }
        let congestion: Vec<_> = CONGESTION.iter().filter_map(read).filter(|(_, count)| *count > 0).collect();
        if !congestion.is_empty() {
            let means = "switches marked packets and senders slowed down: congestion control is at work";
            let finding = self.finding("congestion", Level::Note, words(&congestion), means);
            findings.push(
                congestion.into_iter().fold(finding, |finding, (name, count)| finding.value(&name, count)),
            );
        }
        findings
    }
}
