//! Devices, ports and addresses: what is there, and which address of which port carries our connections.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, RawFd};
use std::slice;
use std::sync::Arc;

use ibverbs_sys as sys;
use rustix::io::Errno;

use crate::error::{About, OpenError, PortRefusal, PortRefusalReason, VerbError};
use crate::events::Registry;
use crate::library::Library;
use crate::ops::Ops;

/// An opened device. Everything made from it holds it, so it closes last.
pub(crate) struct Context {
    pub(crate) library: Arc<Library>,
    pub(crate) raw: *mut sys::ibv_context,
    pub(crate) ops: Ops,
    /// The descriptor of the device's events; open as long as the device.
    events: RawFd,
    pub(crate) device_name: String,
    pub(crate) limits: sys::ibv_device_attr,
    pub(crate) registry: Registry,
    _opened: Opened,
}

// SAFETY: libibverbs is documented as thread-safe: any thread may call any verb on any object (ibverbs, "thread safety").
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Where the device's events can be read.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open until the device is closed, which is after this borrow.
        unsafe { BorrowedFd::borrow_raw(self.events) }
    }
}

/// Closes the device when dropped.
struct Opened {
    library: Arc<Library>,
    raw: *mut sys::ibv_context,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `ibv_open_device` and is closed here only; all that was made from it held the context, and is
        // gone. A refusal leaves the device open, which the kernel cleans up with the process.
        let _ = unsafe { (self.library.close_device)(self.raw) };
    }
}

/// The address that a port's connections start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortAddress {
    /// The port, from 1.
    pub(crate) port: u8,
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

/// Which device and address to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceChoice {
    /// The device's name (`rxe0`, `mlx5_0`); any device where `None`.
    pub device: Option<String>,
    /// The IP address that the port must have, as a RoCE v2 address; the first one that is not link-local where `None`.
    pub address: Option<IpAddr>,
}

/// Opens the first device with a port that fits the choice, and says which address of the port was taken.
pub(crate) fn open(choice: &DeviceChoice) -> Result<(Arc<Context>, PortAddress), OpenError> {
    let library = Library::load()?;
    // Memory that the device uses must not be copied on write after a fork. Newer kernels need no help, and the call then does
    // nothing; it is refused where the application has registered memory before, and then the choice was the application's.
    // SAFETY: it has no arguments and may be called at any time.
    let _ = unsafe { (library.fork_init)() };
    let list = DeviceList::read(&library)?;
    let names: Vec<String> = list.devices().map(|device| list.name(device)).collect();
    if names.is_empty() {
        return Err(OpenError::NoDevice);
    }
    if let Some(wanted) = &choice.device
        && !names.contains(wanted)
    {
        return Err(OpenError::UnknownDevice { wanted: wanted.clone(), present: names });
    }
    let mut refusals = Vec::new();
    for (device, name) in list.devices().zip(&names) {
        if choice.device.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let context = Arc::new(open_device(&library, device, name)?);
        match choose_port(&context, choice.address)? {
            Ok(address) => return Ok((context, address)),
            Err(more) => refusals.extend(more),
        }
    }
    Err(OpenError::NoUsablePort { refusals })
}

fn open_device(
    library: &Arc<Library>,
    device: *mut sys::ibv_device,
    name: &str,
) -> Result<Context, VerbError> {
    // SAFETY: `device` is an entry of a list that is not freed yet.
    let raw = unsafe { (library.open_device)(device) };
    if raw.is_null() {
        return Err(VerbError::last("ibv_open_device").about(About::Device { name: name.to_owned() }));
    }
    let opened = Opened { library: Arc::clone(library), raw };
    let mut limits = sys::ibv_device_attr::default();
    // SAFETY: the context is open and `limits` is a whole `ibv_device_attr` to write to.
    let returned = unsafe { (library.query_device)(raw, &raw mut limits) };
    VerbError::check("ibv_query_device", returned)?;
    // SAFETY: the context is open, and its device has filled the table in.
    let table = unsafe { (*raw).ops };
    // SAFETY: as above.
    let events = unsafe { (*raw).async_fd };
    let context = Context {
        library: Arc::clone(library),
        raw,
        ops: Ops::new(&table)?,
        events,
        device_name: name.to_owned(),
        limits,
        registry: Registry::default(),
        _opened: opened,
    };
    set_nonblocking(context.events())?;
    Ok(context)
}

/// Makes reads from a descriptor of the device end at once when there is nothing.
pub(crate) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> Result<(), VerbError> {
    let set = || {
        let flags = rustix::fs::fcntl_getfl(descriptor)?;
        rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)
    };
    set().map_err(|error: Errno| VerbError::plain("fcntl", error.raw_os_error()))
}

/// Looks an address up again: its place in the table, the port's state and MTU may have changed since (failure kind 68).
pub(crate) fn resolve_again(context: &Context, address: &PortAddress) -> Result<PortAddress, OpenError> {
    let wanted = gid_address(address.gid);
    match choose_port(context, Some(wanted))? {
        Ok(found) => Ok(found),
        Err(refusals) => Err(OpenError::NoUsablePort { refusals }),
    }
}

/// Chooses the port and address; the inner error says why each port was refused.
fn choose_port(
    context: &Context,
    wanted: Option<IpAddr>,
) -> Result<Result<PortAddress, Vec<PortRefusal>>, VerbError> {
    let entries = gid_table(context)?;
    let mut refusals = Vec::new();
    for port in 1..=context.limits.phys_port_cnt {
        let attributes = query_port(context, port)?;
        let refuse = |reason| PortRefusal { device: context.device_name.clone(), port, reason };
        if attributes.state != sys::ibv_port_state::IBV_PORT_ACTIVE {
            refusals.push(refuse(PortRefusalReason::Down { state: attributes.state }));
            continue;
        }
        let of_port: Vec<GidEntry> =
            entries.iter().filter(|entry| entry.port == u32::from(port)).copied().collect();
        match choose_gid(&of_port, wanted) {
            Ok(entry) => {
                return Ok(Ok(PortAddress {
                    port,
                    gid_index: entry.index,
                    gid: entry.gid,
                    lid: attributes.lid,
                    mtu: attributes.active_mtu,
                    message_bytes_max: attributes.max_msg_sz,
                }));
            }
            Err(reason) => refusals.push(refuse(reason)),
        }
    }
    Ok(Err(refusals))
}

fn query_port(context: &Context, port: u8) -> Result<sys::ibv_port_attr, VerbError> {
    let mut attributes = sys::ibv_port_attr::default();
    // SAFETY: the exported symbol writes the older, shorter form of the structure, which is a prefix of `ibv_port_attr`
    // (the header itself makes this cast); the rest stays zero.
    let returned = unsafe { (context.library.query_port)(context.raw, port, (&raw mut attributes).cast()) };
    VerbError::check("ibv_query_port", returned)?;
    Ok(attributes)
}

/// One valid entry of the GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GidEntry {
    port: u32,
    index: u8,
    gid: [u8; 16],
    kind: u32,
}

fn gid_table(context: &Context) -> Result<Vec<GidEntry>, VerbError> {
    // A table has at most 256 entries a port (the index in the route header has 8 bits).
    let mut raw = vec![sys::ibv_gid_entry::default(); 256 * usize::from(context.limits.phys_port_cnt.max(1))];
    // SAFETY: the function writes at most `raw.len()` entries of the given size to the vector.
    let count = unsafe {
        (context.library.query_gid_table)(
            context.raw,
            raw.as_mut_ptr(),
            raw.len(),
            0,
            size_of::<sys::ibv_gid_entry>(),
        )
    };
    let Ok(count) = usize::try_from(count) else {
        let errno = i32::try_from(count.unsigned_abs()).unwrap_or(0);
        return Err(VerbError::plain("ibv_query_gid_table", errno));
    };
    Ok(raw
        .iter()
        .take(count)
        .filter_map(|entry| {
            Some(GidEntry {
                port: entry.port_num,
                index: u8::try_from(entry.gid_index).ok()?,
                // SAFETY: both members of the union are plain bytes.
                gid: unsafe { entry.gid.raw },
                kind: entry.gid_type,
            })
        })
        .collect())
}

/// The address that a GID stands for: an IPv4 address where it is a mapped one.
pub(crate) fn gid_address(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// Chooses by type and address, never by position (failure kind 68).
fn choose_gid(entries: &[GidEntry], wanted: Option<IpAddr>) -> Result<GidEntry, PortRefusalReason> {
    let roce_v2: Vec<GidEntry> =
        entries.iter().filter(|entry| entry.kind == sys::IBV_GID_TYPE_ROCE_V2).copied().collect();
    if roce_v2.is_empty() {
        return Err(PortRefusalReason::NoRoceV2);
    }
    let present = || roce_v2.iter().map(|entry| gid_address(entry.gid)).collect::<Vec<_>>();
    match wanted {
        Some(wanted) => roce_v2
            .iter()
            .find(|entry| gid_address(entry.gid) == wanted.to_canonical())
            .copied()
            .ok_or_else(|| PortRefusalReason::NoSuchAddress { wanted, present: present() }),
        // A link-local address is reached only with the interface that it belongs to, which a GID does not carry.
        None => roce_v2
            .iter()
            .find(|entry| !is_link_local(entry.gid))
            .copied()
            .ok_or_else(|| PortRefusalReason::OnlyLinkLocal { present: present() }),
    }
}

fn is_link_local(gid: [u8; 16]) -> bool {
    match gid_address(gid) {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The list of devices, freed when dropped.
struct DeviceList {
    library: Arc<Library>,
    raw: *mut *mut sys::ibv_device,
    count: usize,
}

impl DeviceList {
    fn read(library: &Arc<Library>) -> Result<DeviceList, OpenError> {
        let mut count = 0;
        // SAFETY: `count` is an int to write to.
        let raw = unsafe { (library.get_device_list)(&raw mut count) };
        if raw.is_null() {
            let error = VerbError::last("ibv_get_device_list");
            return Err(if error.is(Errno::NOSYS) { OpenError::NoKernelSupport } else { error.into() });
        }
        Ok(DeviceList { library: Arc::clone(library), raw, count: usize::try_from(count).unwrap_or(0) })
    }

    fn devices(&self) -> impl Iterator<Item = *mut sys::ibv_device> {
        // SAFETY: the library gave a list of `count` pointers, which lives and stays as it is until it is freed.
        unsafe { slice::from_raw_parts(self.raw, self.count) }.iter().copied()
    }

    fn name(&self, device: *mut sys::ibv_device) -> String {
        // SAFETY: `device` is an entry of this list, which is not freed yet.
        let name = unsafe { (self.library.get_device_name)(device) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: the library returns a string that ends in a zero byte and lives as long as the device.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `ibv_get_device_list` and is freed here only. Opened devices outlive the list.
        unsafe { (self.library.free_device_list)(self.raw) };
    }
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

    #[test]
    fn kind_68_the_gid_is_chosen_by_type_and_address() {
        let table = [
            entry(0, sys::IBV_GID_TYPE_ROCE_V1, "fe80::1"),
            entry(1, sys::IBV_GID_TYPE_ROCE_V2, "fe80::1"),
            entry(2, sys::IBV_GID_TYPE_ROCE_V1, "10.0.0.1"),
            entry(3, sys::IBV_GID_TYPE_ROCE_V2, "10.0.0.1"),
            entry(4, sys::IBV_GID_TYPE_ROCE_V2, "10.0.0.2"),
        ];
        assert_eq!(choose_gid(&table, None).unwrap().index, 3);
        assert_eq!(choose_gid(&table, Some("10.0.0.2".parse().unwrap())).unwrap().index, 4);
        assert_eq!(choose_gid(&table, Some("::ffff:10.0.0.1".parse().unwrap())).unwrap().index, 3);
        let link_local = table[1];
        let only = PortRefusalReason::OnlyLinkLocal { present: vec![gid_address(link_local.gid)] };
        assert_eq!(
            choose_gid(&table[..3], None),
            Err(only),
            "a link-local address is taken only when asked for"
        );
        assert_eq!(choose_gid(&table[..3], Some("fe80::1".parse().unwrap())), Ok(link_local));
    }

    #[test]
    fn kind_68_a_missing_address_is_named_with_those_that_are_there() {
        let table = [entry(1, sys::IBV_GID_TYPE_ROCE_V2, "10.0.0.1")];
        let wanted: IpAddr = "10.9.9.9".parse().unwrap();
        let reason = choose_gid(&table, Some(wanted)).unwrap_err();
        assert_eq!(
            reason,
            PortRefusalReason::NoSuchAddress { wanted, present: vec!["10.0.0.1".parse().unwrap()] }
        );
        let text = PortRefusal { device: "rxe0".into(), port: 1, reason }.to_string();
        assert!(text.contains("rxe0") && text.contains("10.9.9.9") && text.contains("10.0.0.1"), "{text}");
        let v1 = [entry(0, sys::IBV_GID_TYPE_ROCE_V1, "10.0.0.1")];
        assert_eq!(choose_gid(&v1, None), Err(PortRefusalReason::NoRoceV2));
    }
}
