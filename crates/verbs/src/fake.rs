//! A library in place of libibverbs, for tests: it keeps account of what lives, can refuse any call, and notes what the order of things
//! forbids. One per thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use ibverbs_sys as sys;
use rustix::event::{EventfdFlags, eventfd};

use crate::library::Library;

/// What a living object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    List,
    Device,
    Domain,
    Region,
    Channel,
    Queue,
    Pair,
    Window,
}

struct Living {
    kind: Kind,
    address: usize,
    /// What it was made from, or is bound over: must live longer.
    needs: Vec<usize>,
    /// Of a window: what it is bound over and on.
    binds: Vec<Bind>,
    _descriptor: Option<OwnedFd>,
}

struct Bind {
    key: u32,
    pair: usize,
    region: usize,
    address: u64,
    length: u64,
}

struct Done {
    queue: usize,
    id: u64,
    status: u32,
    /// The key that is taken back when this is polled: until then nobody knows.
    undone: Option<u32>,
}

/// What the machine has.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) devices: c_int,
    /// Of the one port (`ibv_port_state`).
    pub(crate) state: u32,
    pub(crate) link_layer: u32,
    pub(crate) lid: u16,
    /// The addresses of the port: what kind of packets, and which.
    pub(crate) gids: Vec<(u32, [u8; 16])>,
    pub(crate) mtu: u32,
    /// What `errno` is where a call is refused.
    pub(crate) errno: c_int,
}

impl Default for Machine {
    fn default() -> Machine {
        let gid = std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets();
        Machine {
            devices: 1,
            state: sys::ibv_port_state::IBV_PORT_ACTIVE,
            link_layer: sys::IBV_LINK_LAYER_ETHERNET,
            lid: 0,
            gids: vec![(sys::IBV_GID_TYPE_ROCE_V2, gid)],
            mtu: 5,
            errno: 5,
        }
    }
}

#[derive(Default)]
struct World {
    machine: Machine,
    living: Vec<Living>,
    completions: VecDeque<Done>,
    /// Windows keep their ends.
    holds: bool,
    calls: u32,
    refused: Option<u32>,
    violations: Vec<String>,
    next_key: u32,
    /// A verb that fails whenever it is called.
    always: Option<&'static str>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

fn world<T>(body: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(body)
}

/// A library whose call number `refused` (from 1, of those that can fail) is refused; none with `None`. Its windows keep their ends, or
/// open all of what they are bound over.
pub(crate) fn library(refused: Option<u32>, holds: bool) -> Arc<Library> {
    world(|world| *world = World { refused, holds, next_key: 1, ..World::default() });
    Arc::new(Library {
        get_device_list,
        free_device_list,
        get_device_name,
        open_device,
        close_device,
        query_device,
        query_port,
        query_gid_table,
        alloc_pd,
        dealloc_pd,
        reg_mr,
        dereg_mr,
        create_comp_channel,
        destroy_comp_channel,
        create_cq,
        destroy_cq,
        get_cq_event,
        ack_cq_events,
        create_qp,
        modify_qp,
        destroy_qp,
        get_async_event,
        ack_async_event,
        fork_init,
        _keep: None,
    })
}

/// The same on another machine, whose windows keep their ends.
pub(crate) fn library_of(machine: Machine) -> Arc<Library> {
    let made = library(None, true);
    world(|world| world.machine = machine);
    made
}

fn machine() -> Machine {
    world(|world| world.machine.clone())
}

/// What `errno` is from now on where a call is refused.
pub(crate) fn set_errno(errno: c_int) {
    world(|world| world.machine.errno = errno);
}

/// Makes a verb fail from now on.
pub(crate) fn refuse_always(verb: &'static str) {
    world(|world| world.always = Some(verb));
}

/// How many calls could have been refused.
pub(crate) fn calls() -> u32 {
    world(|world| world.calls)
}

/// What still lives, and what went wrong.
pub(crate) fn account() -> (Vec<Kind>, Vec<String>) {
    world(|world| {
        let living = world.living.iter().map(|one| one.kind).collect();
        (living, std::mem::take(&mut world.violations))
    })
}

fn refuses(verb: &'static str) -> bool {
    let refused = world(|world| {
        world.calls += 1;
        let refuses = world.refused == Some(world.calls) || world.always == Some(verb);
        refuses.then_some(world.machine.errno)
    });
    if let Some(errno) = refused {
        // SAFETY: the place is this thread's own.
        unsafe { *__errno_location() = errno };
    }
    refused.is_some()
}

unsafe extern "C" {
    /// Of the C library: where this thread's `errno` is.
    safe fn __errno_location() -> *mut c_int;
}

fn make<T: Default>(kind: Kind, needs: &[usize]) -> *mut T {
    make_with(kind, needs, T::default(), None)
}

fn make_with<T>(kind: Kind, needs: &[usize], value: T, descriptor: Option<OwnedFd>) -> *mut T {
    let made = Box::into_raw(Box::new(value));
    world(|world| {
        for needed in needs {
            if !world.living.iter().any(|one| one.address == *needed) {
                world.violations.push(format!("{kind:?} was made from something that is gone"));
            }
        }
        world.living.push(Living {
            kind,
            address: made.addr(),
            needs: needs.to_vec(),
            binds: Vec::new(),
            _descriptor: descriptor,
        });
    });
    made
}

/// Ends an object, unless something that lives needs it.
fn end<T>(kind: Kind, made: *mut T) -> c_int {
    let ended = world(|world| {
        let Some(at) = world.living.iter().position(|one| one.kind == kind && one.address == made.addr())
        else {
            world.violations.push(format!("{kind:?} was ended twice"));
            return false;
        };
        let others: Vec<Kind> = world
            .living
            .iter()
            .filter(|one| {
                let bound = |bind: &Bind| bind.pair == made.addr() || bind.region == made.addr();
                one.needs.contains(&made.addr()) || one.binds.iter().any(bound)
            })
            .map(|one| one.kind)
            .collect();
        if !others.is_empty() {
            world.violations.push(format!("{kind:?} was ended before {others:?}"));
            return false;
        }
        world.living.remove(at);
        true
    });
    if ended {
        // SAFETY: it was made by `make_with` with this type, and taken off the list, so it is freed once.
        drop(unsafe { Box::from_raw(made) });
    }
    if ended { 0 } else { 16 }
}

fn descriptor() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor")
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device {
    if refuses("ibv_get_device_list") {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller gives a place to write to.
    unsafe { *count = machine().devices };
    make_with(Kind::List, &[], std::ptr::null_mut::<sys::ibv_device>(), None)
}

unsafe extern "C" fn free_device_list(list: *mut *mut sys::ibv_device) {
    end(Kind::List, list);
}

unsafe extern "C" fn get_device_name(_: *mut sys::ibv_device) -> *const c_char {
    c"fake0".as_ptr()
}

unsafe extern "C" fn open_device(_: *mut sys::ibv_device) -> *mut sys::ibv_context {
    if refuses("ibv_open_device") {
        return std::ptr::null_mut();
    }
    let events = descriptor();
    let mut context = sys::ibv_context { async_fd: events.as_raw_fd(), ..Default::default() };
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.alloc_mw = Some(alloc_mw);
    context.ops.dealloc_mw = Some(dealloc_mw);
    make_with(Kind::Device, &[], context, Some(events))
}

unsafe extern "C" fn close_device(context: *mut sys::ibv_context) -> c_int {
    end(Kind::Device, context)
}

unsafe extern "C" fn query_device(_: *mut sys::ibv_context, into: *mut sys::ibv_device_attr) -> c_int {
    if refuses("ibv_query_device") {
        return 5;
    }
    let attributes = sys::ibv_device_attr {
        phys_port_cnt: 1,
        max_qp_wr: 64,
        max_cqe: 1024,
        max_mr_size: 1 << 40,
        max_qp_rd_atom: 4,
        max_qp_init_rd_atom: 4,
        device_cap_flags: sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        ..Default::default()
    };
    // SAFETY: the caller gives a whole structure to write to.
    unsafe { *into = attributes };
    0
}

unsafe extern "C" fn query_port(
    _: *mut sys::ibv_context,
    _: u8,
    into: *mut sys::_compat_ibv_port_attr,
) -> c_int {
    if refuses("ibv_query_port") {
        return 5;
    }
    let Machine { state, link_layer, lid, mtu, .. } = machine();
    let attributes = sys::ibv_port_attr {
        state,
        active_mtu: mtu,
        max_msg_sz: 1 << 30,
        link_layer: u8::try_from(link_layer).unwrap_or(0),
        lid,
        ..Default::default()
    };
    // SAFETY: this crate gives the longer structure to write to.
    unsafe { *into.cast::<sys::ibv_port_attr>() = attributes };
    0
}

unsafe extern "C" fn query_gid_table(
    _: *mut sys::ibv_context,
    into: *mut sys::ibv_gid_entry,
    room: usize,
    _: u32,
    _: usize,
) -> isize {
    if refuses("ibv_query_gid_table") {
        return -5;
    }
    let mut count = 0;
    for ((gid_type, raw), gid_index) in machine().gids.into_iter().zip(1..).take(room) {
        let gid = sys::ibv_gid { raw };
        let entry = sys::ibv_gid_entry { gid, gid_index, port_num: 1, gid_type, ..Default::default() };
        // SAFETY: the caller gives room for so many entries.
        unsafe { *into.wrapping_add(count) = entry };
        count += 1;
    }
    isize::try_from(count).unwrap_or(0)
}

unsafe extern "C" fn alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    if refuses("ibv_alloc_pd") {
        return std::ptr::null_mut();
    }
    make(Kind::Domain, &[context.addr()])
}

unsafe extern "C" fn dealloc_pd(domain: *mut sys::ibv_pd) -> c_int {
    end(Kind::Domain, domain)
}

fn key() -> u32 {
    world(|world| {
        world.next_key += 1;
        world.next_key << 8
    })
}

unsafe extern "C" fn reg_mr(
    domain: *mut sys::ibv_pd,
    _: *mut c_void,
    _: usize,
    _: c_int,
) -> *mut sys::ibv_mr {
    if refuses("ibv_reg_mr") {
        return std::ptr::null_mut();
    }
    let key = key();
    make_with(
        Kind::Region,
        &[domain.addr()],
        sys::ibv_mr { lkey: key, rkey: key, ..Default::default() },
        None,
    )
}

unsafe extern "C" fn dereg_mr(region: *mut sys::ibv_mr) -> c_int {
    if world(|world| world.always == Some("ibv_dereg_mr")) {
        return 5;
    }
    end(Kind::Region, region)
}

unsafe extern "C" fn create_comp_channel(context: *mut sys::ibv_context) -> *mut sys::ibv_comp_channel {
    if refuses("ibv_create_comp_channel") {
        return std::ptr::null_mut();
    }
    let events = descriptor();
    let channel = sys::ibv_comp_channel { fd: events.as_raw_fd(), ..Default::default() };
    make_with(Kind::Channel, &[context.addr()], channel, Some(events))
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int {
    end(Kind::Channel, channel)
}

unsafe extern "C" fn create_cq(
    context: *mut sys::ibv_context,
    _: c_int,
    _: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    _: c_int,
) -> *mut sys::ibv_cq {
    if refuses("ibv_create_cq") {
        return std::ptr::null_mut();
    }
    let needs: Vec<usize> =
        [context.addr(), channel.addr()].into_iter().filter(|address| *address != 0).collect();
    make(Kind::Queue, &needs)
}

unsafe extern "C" fn destroy_cq(queue: *mut sys::ibv_cq) -> c_int {
    world(|world| world.completions.retain(|done| done.queue != queue.addr()));
    end(Kind::Queue, queue)
}

unsafe extern "C" fn get_cq_event(
    _: *mut sys::ibv_comp_channel,
    _: *mut *mut sys::ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    -1
}

unsafe extern "C" fn ack_cq_events(_: *mut sys::ibv_cq, _: c_uint) {}

unsafe extern "C" fn create_qp(
    domain: *mut sys::ibv_pd,
    attributes: *mut sys::ibv_qp_init_attr,
) -> *mut sys::ibv_qp {
    // SAFETY: the caller gives whole attributes.
    let attributes = unsafe { *attributes };
    if refuses("ibv_create_qp") || attributes.cap.max_inline_data > 64 {
        return std::ptr::null_mut();
    }
    let needs = [domain.addr(), attributes.send_cq.addr()];
    let pair = sys::ibv_qp { send_cq: attributes.send_cq, qp_num: key() >> 8, ..Default::default() };
    make_with(Kind::Pair, &needs, pair, None)
}

unsafe extern "C" fn modify_qp(_: *mut sys::ibv_qp, _: *mut sys::ibv_qp_attr, fields: c_int) -> c_int {
    // The way to error is not refused: it has no more fields.
    if fields != 1 && refuses("ibv_modify_qp") { 22 } else { 0 }
}

unsafe extern "C" fn destroy_qp(pair: *mut sys::ibv_qp) -> c_int {
    end(Kind::Pair, pair)
}

unsafe extern "C" fn get_async_event(_: *mut sys::ibv_context, _: *mut sys::ibv_async_event) -> c_int {
    -1
}

unsafe extern "C" fn ack_async_event(_: *mut sys::ibv_async_event) {}

unsafe extern "C" fn fork_init() -> c_int {
    0
}

unsafe extern "C" fn alloc_mw(domain: *mut sys::ibv_pd, _: sys::ibv_mw_type) -> *mut sys::ibv_mw {
    if refuses("ibv_alloc_mw") {
        return std::ptr::null_mut();
    }
    let window = sys::ibv_mw { rkey: key(), ..Default::default() };
    make_with(Kind::Window, &[domain.addr()], window, None)
}

unsafe extern "C" fn dealloc_mw(window: *mut sys::ibv_mw) -> c_int {
    end(Kind::Window, window)
}

/// Carries everything out at once.
unsafe extern "C" fn post_send(
    pair: *mut sys::ibv_qp,
    first: *mut sys::ibv_send_wr,
    bad: *mut *mut sys::ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair lives.
    let queue = unsafe { (*pair).send_cq }.addr();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: the caller links whole work requests.
        let work = unsafe { *at };
        if refuses("ibv_post_send") {
            // SAFETY: the caller gives a place to write to.
            unsafe { *bad = at };
            return 12;
        }
        if work.opcode == sys::ibv_wr_opcode::IBV_WR_BIND_MW {
            // SAFETY: for this request the member in use is the bind.
            let bind = unsafe { work.__bindgen_anon_2.bind_mw };
            world(|world| {
                let window = world.living.iter_mut().find(|one| one.address == bind.mw.addr());
                if let Some(window) = window {
                    let (region, address) = (bind.bind_info.mr.addr(), bind.bind_info.addr);
                    let (key, length) = (bind.rkey, bind.bind_info.length);
                    window.binds.push(Bind { key, pair: pair.addr(), region, address, length });
                } else {
                    world.violations.push("a freed window was bound".into());
                }
            });
        }
        let mut status = sys::ibv_wc_status::IBV_WC_SUCCESS;
        let mut undone = None;
        if work.opcode == sys::ibv_wr_opcode::IBV_WR_LOCAL_INV {
            // SAFETY: for this request the member in use is the key.
            undone = Some(unsafe { work.__bindgen_anon_1.invalidate_rkey });
        }
        if work.opcode == sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE {
            // SAFETY: for this request the member in use is the remote place.
            let place = unsafe { work.wr.rdma };
            // SAFETY: a write has one place of its own in its list.
            let bytes = u64::from(unsafe { (*work.sg_list).length });
            let inside = |bind: &Bind| {
                bind.key == place.rkey
                    && place.remote_addr >= bind.address
                    && place.remote_addr + bytes <= bind.address + bind.length
            };
            let refuse =
                world(|world| world.holds && !world.living.iter().flat_map(|one| &one.binds).any(inside));
            if refuse {
                status = sys::ibv_wc_status::IBV_WC_REM_ACCESS_ERR;
            }
        }
        if work.send_flags & sys::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 {
            world(|world| world.completions.push_back(Done { queue, id: work.wr_id, status, undone }));
        }
        at = work.next;
    }
    0
}

unsafe extern "C" fn post_recv(
    _: *mut sys::ibv_qp,
    first: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    if refuses("ibv_post_recv") {
        // SAFETY: the caller gives a place to write to.
        unsafe { *bad = first };
        return 12;
    }
    0
}

unsafe extern "C" fn poll_cq(queue: *mut sys::ibv_cq, room: c_int, into: *mut sys::ibv_wc) -> c_int {
    let mut count = 0;
    while count < room {
        let found = world(|world| {
            let at = world.completions.iter().position(|done| done.queue == queue.addr())?;
            world.completions.remove(at)
        });
        let Some(Done { id, status, undone, .. }) = found else { break };
        world(|world| {
            for one in &mut world.living {
                one.binds.retain(|bind| Some(bind.key) != undone);
            }
        });
        let place = into.wrapping_add(usize::try_from(count).unwrap_or(0));
        // SAFETY: the caller gives room for so many.
        unsafe { *place = sys::ibv_wc::default() };
        // SAFETY: the id is the first member of the completion, whose layout is that of C.
        unsafe { *place.cast::<u64>() = id };
        // SAFETY: the status is the second, behind 8 bytes.
        unsafe { *place.cast::<u32>().wrapping_add(2) = status };
        count += 1;
    }
    count
}

unsafe extern "C" fn req_notify_cq(_: *mut sys::ibv_cq, _: c_int) -> c_int {
    0
}
