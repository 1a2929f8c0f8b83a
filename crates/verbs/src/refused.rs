//! Tests: whatever a machine lacks, or a device refuses, the error says what and names what to do.

use std::sync::Arc;

use ibverbs_sys as sys;
use rustix::io::Errno;
use windlass_fabric::{
    Access, BindProblem, Connection, ConnectionOptions, Fabric, HeapMemory, PostProblem, RegisterError,
};

use crate::device::DeviceChoice;
use crate::error::OpenError;
use crate::fabric::VerbsFabric;
use crate::fake::{self, Machine};
use crate::options::VerbsOptions;

const DEPTHS: ConnectionOptions = ConnectionOptions { send_depth: 4, receive_depth: 4, inline_bytes: 0 };

/// A link-local address, `fe80::1`.
const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn refused(errno: Errno) -> Machine {
    Machine { errno: errno.raw_os_error(), ..Machine::default() }
}

/// Why that machine's device can't be opened, where one verb is refused.
fn why(machine: Machine, verb: Option<&'static str>, device: &DeviceChoice) -> OpenError {
    let library = fake::library_of(machine);
    if let Some(verb) = verb {
        fake::refuse_always(verb);
    }
    match VerbsFabric::open_with(&library, &VerbsOptions::from(device.clone())) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[test]
fn whatever_keeps_a_device_from_being_opened_is_named_with_what_to_do() {
    let any = DeviceChoice::default();
    let named = |device: &str| DeviceChoice { device: Some(device.into()), address: None };
    let at = |address: &str| DeviceChoice { device: None, address: Some(address.parse().unwrap()) };
    let list = Some("ibv_get_device_list");
    let opening = Some("ibv_open_device");
    let with = |change: fn(&mut Machine)| {
        let mut machine = Machine::default();
        change(&mut machine);
        machine
    };
    let cases: [(Machine, Option<&'static str>, &DeviceChoice, &[&str]); 14] = [
        (refused(Errno::NOSYS), list, &any, &["no kernel support", "modprobe rdma_rxe", "/dev/infiniband"]),
        (refused(Errno::ACCESS), list, &any, &["ibv_get_device_list", "denied"]),
        (with(|it| it.devices = 0), None, &any, &["no RDMA device", "rdma link add"]),
        (Machine::default(), None, &named("mlx5_0"), &["mlx5_0", "fake0"]),
        (
            refused(Errno::ACCESS),
            opening,
            &any,
            &["fake0", "read and write access", "/dev/infiniband/uverbs"],
        ),
        (refused(Errno::NOENT), opening, &any, &["fake0", "modprobe ib_uverbs", "docker run --device"]),
        (with(|it| it.state = 1), None, &any, &["fake0 port 1", "not active", "ip link set"]),
        (with(|it| it.gids.clear()), None, &any, &["no RoCE v2 address", "ip addr add"]),
        (
            with(|it| it.gids = vec![(sys::IBV_GID_TYPE_ROCE_V2, LINK_LOCAL)]),
            None,
            &any,
            &["link-local", "fe80::1", "ip addr add"],
        ),
        (
            Machine::default(),
            None,
            &at("10.0.0.9"),
            &["no address 10.0.0.9", "network namespace", "10.0.0.1"],
        ),
        (
            with(|it| it.link_layer = sys::IBV_LINK_LAYER_INFINIBAND),
            None,
            &any,
            &["no local identifier", "opensm"],
        ),
        (refused(Errno::NOMEM), Some("ibv_create_cq"), &any, &["ibv_create_cq", "memlock limit"]),
        (refused(Errno::NOMEM), Some("ibv_alloc_pd"), &any, &["ibv_alloc_pd", "memory"]),
        (refused(Errno::IO), Some("ibv_query_device"), &any, &["ibv_query_device", "Input/output error"]),
    ];
    for (machine, verb, device, parts) in cases {
        let text = why(machine, verb, device).to_string();
        for part in parts {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}

/// Also where a stretch is registered by itself for a bind, as on a device that does not keep a window's ends.
#[test]
fn kind_58_memory_that_can_not_be_pinned_is_told_wherever_it_was_to_be() {
    let library = fake::library(None, false);
    let fabric = VerbsFabric::open_with(&library, &VerbsOptions::default()).unwrap();
    let memory = || Arc::new(HeapMemory::new(8192));
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let region = fabric.register(memory(), access).unwrap();
    let queue = fabric.completion_queue(64).unwrap();
    let (mut owner, mut writer) =
        (fabric.connection(&queue, &DEPTHS).unwrap(), fabric.connection(&queue, &DEPTHS).unwrap());
    owner.connect(writer.endpoint()).unwrap();
    writer.connect(owner.endpoint()).unwrap();
    let mut window = fabric.allocate_window().unwrap();
    fake::set_errno(Errno::NOMEM.raw_os_error());

    fake::refuse_always("ibv_reg_mr");
    let Err(registering) = fabric.register(memory(), access) else { panic!("it was registered") };
    let binding = owner.bind(1, &mut window, &region, 0..4096, Access::REMOTE_WRITE).unwrap_err();
    assert!(matches!(binding.problem, BindProblem::Post(PostProblem::Os { .. })), "{binding}");
    fake::refuse_always("ibv_create_cq");
    let Err(queueing) = fabric.completion_queue(64) else { panic!("it was made") };
    fake::refuse_always("ibv_create_qp");
    let Err(pairing) = fabric.connection(&queue, &DEPTHS) else { panic!("it was made") };
    assert!(matches!(registering, RegisterError::MemoryLockLimit { .. } | RegisterError::Os { .. }));
    // Which of the two words it is depends on this machine's limit.
    for text in [registering.to_string(), binding.to_string(), queueing.to_string(), pairing.to_string()] {
        assert!(text.contains("memlock limit") || text.contains("ulimit -l"), "{text}");
    }
    for part in ["ibv_reg_mr", "region of 4096 bytes", "must be locked"] {
        assert!(binding.to_string().contains(part), "{part} is missing in: {binding}");
    }
}

#[test]
fn kind_68_73_79_what_a_device_is_opened_with_is_printed() {
    let fabric = VerbsFabric::open_with(&fake::library(None, true), &VerbsOptions::default()).unwrap();
    let text = fabric.description();
    let parts = [
        "fake0 port 1",
        "RoCE v2 address 10.0.0.1 at GID index 1",
        "MTU 4096",
        "after 0.47 s or a multiple (7 tries)",
        "traffic class 0",
    ];
    for part in parts {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert_eq!(fabric.offers().window_types, ["2B"]);
}

/// A path that carries less than a page can't be used by who transfers whole pages alone; what to do is said.
#[test]
fn kind_69_a_path_mtu_that_is_too_small_is_told_with_what_to_do() {
    use crate::mode::Registration;
    let machine = Machine { mtu: 3, ..Machine::default() };
    let pages = VerbsOptions { registration: Some(Registration::OdpPage), ..VerbsOptions::default() };
    let fabric = VerbsFabric::open_with(&fake::library_of(machine), &pages).unwrap();
    let queue = fabric.completion_queue(64).unwrap();
    let (mut owner, writer) =
        (fabric.connection(&queue, &DEPTHS).unwrap(), fabric.connection(&queue, &DEPTHS).unwrap());
    let text = owner.connect(writer.endpoint()).unwrap_err().to_string();
    for part in ["1024 bytes", "need 4096", "mtu 9000"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
}

/// Each step of a queue pair's way that is refused says which it was and what it checks.
#[test]
fn each_change_of_state_that_is_refused_says_what_it_checks() {
    let fabric = VerbsFabric::open_with(&fake::library(None, true), &VerbsOptions::default()).unwrap();
    let queue = fabric.completion_queue(64).unwrap();
    let (mut owner, writer) =
        (fabric.connection(&queue, &DEPTHS).unwrap(), fabric.connection(&queue, &DEPTHS).unwrap());
    fake::refuse_always("ibv_modify_qp");
    let Err(first) = fabric.connection(&queue, &DEPTHS) else { panic!("it was made") };
    let second = owner.connect(writer.endpoint()).unwrap_err();
    for (text, parts) in [
        (first.to_string(), ["ibv_modify_qp", "state INIT", "the port may be gone"]),
        (second.to_string(), ["ibv_modify_qp", "state RTR", "ip route get"]),
    ] {
        for part in parts {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
