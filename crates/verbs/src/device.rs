//! Devices and ports: what is there, and the first that fits.

use std::ffi::CStr;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::slice;
use std::sync::Arc;

use ibverbs_sys as sys;
use rustix::io::Errno;

use crate::address::{GidEntry, PortAddress, choose, gid_address};
use crate::error::{About, OpenError, PortRefusal, VerbError};
use crate::events::Registry;
use crate::extended;
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
    /// Of reliable connections, as `ibv_odp_transport_cap_bits`; 0 without on-demand paging.
    pub(crate) on_demand: u32,
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

/// Which device and address to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceChoice {
    /// The device's name (`rxe0`, `mlx5_0`); any device where `None`.
    pub device: Option<String>,
    /// The address that the port must have: its interface's IP address, on InfiniBand its GID written as an IPv6 address; the first one that
    /// is not link-local where `None`.
    pub address: Option<IpAddr>,
}

/// Opens the first device with a port that fits the choice, and says which address of the port was taken.
pub(crate) fn open(
    library: &Arc<Library>,
    choice: &DeviceChoice,
) -> Result<(Arc<Context>, PortAddress), OpenError> {
    // Memory that the device uses must not be copied on write after a fork. Newer kernels need no help, and the call then does
    // nothing; it is refused where the application has registered memory before, and then the choice was the application's.
    // SAFETY: it has no arguments and may be called at any time.
    let _ = unsafe { (library.fork_init)() };
    let list = DeviceList::read(library)?;
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
        let context = Arc::new(open_device(library, device, name)?);
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
        on_demand: extended::on_demand(raw),
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
    let table = gid_table(context)?;
    let mut refusals = Vec::new();
    for port in 1..=context.limits.phys_port_cnt {
        match choose(port, &query_port(context, port)?, &table, wanted) {
            Ok(address) => return Ok(Ok(address)),
            Err(reason) => {
                refusals.push(PortRefusal { device: context.device_name.clone(), port, reason });
            }
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
