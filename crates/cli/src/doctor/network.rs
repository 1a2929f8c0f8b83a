//! What keeps packets from being lost below RDMA devices: priority flow control, congestion marks, trust of classes.
//!
//! Flow control is asked of the kernel by netlink (DCB, `rtnetlink(7)`, `struct ieee_pfc` of `linux/dcbnl.h`); in a recorded tree the answer is in hexadecimal
//! in `netlink/dcb/INTERFACE`. Congestion marks are files of the mlx5 driver's own.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::finding::{Finding, Group, Level};
use super::tree::Tree;

/// RTM_GETDCB of `linux/rtnetlink.h`.
const GET_DCB: u16 = 78;
const REQUEST: u16 = 1;
/// DCB_CMD_IEEE_GET of `linux/dcbnl.h`.
const IEEE_GET: u8 = 21;
const ATTRIBUTE_INTERFACE: u16 = 1;
const ATTRIBUTE_IEEE: u16 = 13;
const ATTRIBUTE_PFC: u16 = 2;
const HEADER_BYTES: usize = 16;
const DCB_BYTES: usize = 4;
/// The upper two bits of an attribute's type are flags.
const TYPE_MASK: u16 = 0x3fff;

/// Priority flow control of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Pfc {
    /// A bit for each of eight priorities.
    enabled: u8,
    /// Pauses that were sent, of all priorities.
    sent: u64,
    /// And received.
    received: u64,
}

pub(super) fn look(tree: &Tree, interfaces: &[String]) -> Vec<Finding> {
    interfaces.iter().flat_map(|interface| of_interface(tree, interface)).collect()
}

fn of_interface(tree: &Tree, interface: &str) -> Vec<Finding> {
    let finding = |id, level, seen: String, means: &str| {
        Finding::new(Group::Network, id, level, seen, means).about(interface)
    };
    let mut findings = Vec::new();
    let pfc = dcb(tree, interface).as_deref().and_then(parse);
    let marked = marked(tree, interface);
    match pfc {
        None => {
            let means = "lost packets are sent again by the device; flow control is set at the switch alone, or not at all. On a \
                         device in software that is as it should be";
            findings.push(finding(
                "pfc",
                Level::Ok,
                "the driver tells nothing of flow control (DCB)".into(),
                means,
            ));
        }
        Some(Pfc { enabled: 0, .. }) => {
            let means = "RDMA traffic may lose packets where a switch is full, and each loss is a wait. With congestion marks alone that is rare; \
                         to have flow control, enable one priority here and at each switch, and send in it (--traffic-class)";
            let run = format!("dcb pfc set dev {interface} prio-pfc 3:on");
            let found = finding("pfc", Level::Note, "priority flow control is off".into(), means).run(run);
            findings.push(found.value("priorities", Vec::<u8>::new()));
        }
        Some(Pfc { enabled, sent, received }) => {
            let list = priorities(enabled);
            let seen = format!("priority flow control for {list:?}; pauses sent {sent}, received {received}");
            let means = "traffic of these priorities is not dropped where a switch is full, if each hop has the same. windlass sends in the class that \
                         --traffic-class names: by default none, which is priority 0";
            let level = if enabled & 1 == 0 { Level::Note } else { Level::Ok };
            let found = finding("pfc", level, seen, means);
            findings.push(found.value("priorities", list).value("sent", sent).value("received", received));
        }
    }
    if let Some((notified, reacted)) = marked {
        let both = notified & reacted;
        let seen = format!(
            "congestion marks (ECN): answered for priorities {:?}, obeyed for {:?}",
            priorities(notified),
            priorities(reacted)
        );
        let found = if both == 0 {
            let means = "senders don't slow down before a switch is full. RoCE has its own setting: that of the kernel's TCP (tcp_ecn) does nothing here";
            finding("ecn", Level::Note, seen, means).run(format!(
                "for p in 0 1 2 3 4 5 6 7; do echo 1 > /sys/class/net/{interface}/ecn/roce_np/enable/$p; echo 1 > /sys/class/net/{interface}/ecn/roce_rp/enable/$p; done"
            ))
        } else {
            finding(
                "ecn",
                Level::Ok,
                seen,
                "senders slow down when a switch marks their packets, before any is lost",
            )
        };
        findings.push(found.value("answered", priorities(notified)).value("obeyed", priorities(reacted)));
    }
    if let Some(trust) = tree.text(&format!("sys/class/net/{interface}/qos/trust")) {
        let means = if trust == "dscp" {
            "the class of a packet is that of its IP header: --traffic-class chooses it, also behind routers"
        } else {
            "the class of a packet is that of its VLAN tag; without one it is priority 0, whatever --traffic-class says"
        };
        let found =
            finding("trust", Level::Note, format!("trusts {trust}"), means).value("trust", trust.as_str());
        findings.push(if trust == "dscp" {
            found
        } else {
            found.run(format!("mlnx_qos -i {interface} --trust dscp"))
        });
    }
    findings
}

/// Priorities for which congestion marks are answered and obeyed, as bits; `None` where the driver has no such files.
fn marked(tree: &Tree, interface: &str) -> Option<(u8, u8)> {
    let bits = |side: &str| {
        let folder = format!("sys/class/net/{interface}/ecn/{side}/enable");
        tree.exists(&folder).then(|| {
            let is_on = |bit: &u8| tree.text(&format!("{folder}/{bit}")).as_deref() == Some("1");
            (0..8_u8).filter(is_on).fold(0, |bits, bit| bits | 1 << bit)
        })
    };
    Some((bits("roce_np")?, bits("roce_rp")?))
}

fn priorities(bits: u8) -> Vec<u8> {
    (0..8).filter(|bit| bits >> bit & 1 == 1).collect()
}

/// The kernel's answer for an interface; `None` if there is none to be had.
fn dcb(tree: &Tree, interface: &str) -> Option<Vec<u8>> {
    if tree.live {
        return ask(&request(interface)).ok();
    }
    let text = tree.text(&format!("netlink/dcb/{interface}"))?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks_exact(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn request(interface: &str) -> Vec<u8> {
    let name_bytes = interface.len() + 1;
    let attribute_bytes = 4 + name_bytes;
    let total = HEADER_BYTES + DCB_BYTES + attribute_bytes.next_multiple_of(4);
    let mut message = Vec::with_capacity(total);
    message.extend(u32::try_from(total).unwrap_or(0).to_ne_bytes());
    message.extend(GET_DCB.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0, IEEE_GET, 0, 0]);
    message.extend(u16::try_from(attribute_bytes).unwrap_or(0).to_ne_bytes());
    message.extend(ATTRIBUTE_INTERFACE.to_ne_bytes());
    message.extend(interface.as_bytes());
    message.resize(total, 0);
    message
}

fn ask(request: &[u8]) -> rustix::io::Result<Vec<u8>> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    rustix::net::send(&socket, request, SendFlags::empty())?;
    let mut answer = vec![0; 16 << 10];
    // The kernel answers a request on the caller's thread, before `send` returns: there is nothing to wait for.
    let (bytes, _) = rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::DONTWAIT)?;
    answer.truncate(bytes);
    Ok(answer)
}

/// The attributes in a stretch of a message.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(rest.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?) & TYPE_MASK;
        let body = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Flow control out of an answer; `None` if it is an error, or says nothing of it.
fn parse(answer: &[u8]) -> Option<Pfc> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != GET_DCB {
        return None;
    }
    let ieee =
        attributes(answer.get(HEADER_BYTES + DCB_BYTES..)?).find(|(kind, _)| *kind == ATTRIBUTE_IEEE)?.1;
    let pfc = attributes(ieee).find(|(kind, _)| *kind == ATTRIBUTE_PFC)?.1;
    // u8 capability, u8 enabled, u8 macsec bypass, pad, u16 delay, pad to 8, u64 requests[8], u64 indications[8].
    let enabled = *pfc.get(1)?;
    let sum = |from: usize| -> Option<u64> {
        let words = pfc.get(from..from + 64)?.chunks_exact(8);
        Some(
            words
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
                .fold(0, u64::saturating_add),
        )
    };
    Some(Pfc { enabled, sent: sum(8)?, received: sum(72)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + body.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer(enabled: u8) -> Vec<u8> {
        let mut pfc = vec![8, enabled, 0, 0, 0, 0, 0, 0];
        for count in [0_u64, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 34, 0, 0, 0, 0] {
            pfc.extend(count.to_ne_bytes());
        }
        let ieee = [attribute(1, &[0; 60]), attribute(ATTRIBUTE_PFC, &pfc)].concat();
        let mut message =
            [[0; 4].as_slice(), &GET_DCB.to_ne_bytes(), &[0; 10], &[0, IEEE_GET, 0, 0]].concat();
        message.extend(attribute(1, b"eth0\0"));
        message.extend(attribute(ATTRIBUTE_IEEE | 0x8000, &ieee));
        message
    }

    #[test]
    fn flow_control_is_read_out_of_an_answer() {
        let whole = answer(0b1000);
        assert_eq!(parse(&whole), Some(Pfc { enabled: 0b1000, sent: 12, received: 34 }));
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "cut at {len}");
        }
        let mut refused = whole;
        refused[4..6].copy_from_slice(&2_u16.to_ne_bytes());
        assert_eq!(parse(&refused), None, "an error message");
    }

    #[test]
    fn an_attribute_of_no_length_ends_the_list() {
        assert_eq!(attributes(&[0; 64]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0, 9, 9]).count(), 0);
    }

    #[test]
    fn the_kernel_is_asked_about_an_interface() {
        let message = request("lo");
        assert_eq!(message.len(), 28);
        assert_eq!(message[20..27], attribute(1, b"lo\0")[..7]);
        // Loopback has no such thing: an answer all the same, or a kernel without it.
        if let Ok(answer) = ask(&message) {
            assert_eq!(parse(&answer), None);
        }
    }
}
