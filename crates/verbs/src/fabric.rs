//! The provider: a device, a protection domain, an address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ibverbs_sys as sys;
use windlass_fabric::{
    Access, AllocateError, Capabilities, CompletionQueueError, ConnectionOptions, CreateError, Memory,
    RegisterError, Transfer,
};

use crate::connection::{Maker, VerbsConnection};
use crate::device::{Context, DeviceChoice, PortAddress, gid_address, open};
use crate::error::OpenError;
use crate::probe::windows_hold;
use crate::queue::VerbsCompletionQueue;
use crate::region::{Domain, VerbsRegion};
use crate::slots::DEPTH_MAX;
use crate::window::VerbsWindow;

/// One bind covers at most this on hardware that is in use today.
const WINDOW_BYTES_MAX: u64 = 1 << 31;
/// Reads at once that a connection asks for at most.
const READS_MAX: u8 = 16;
/// Inline sizes that are tried, the largest first.
const INLINE_BYTES: [u32; 6] = [512, 400, 256, 128, 64, 32];

/// An opened verbs device.
pub struct VerbsFabric {
    domain: Arc<Domain>,
    address: PortAddress,
    capabilities: Capabilities,
    reads_max: u8,
    windows_hold: bool,
    connections: AtomicU32,
}

impl VerbsFabric {
    /// Opens the first device that has a port with a fitting RoCE v2 address.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing (the library, kernel support, a device, an address) and how to get it.
    pub fn open(choice: &DeviceChoice) -> Result<VerbsFabric, OpenError> {
        let (context, address) = open(choice)?;
        let domain = Arc::new(Domain::new(Arc::clone(&context))?);
        let reads_max = reads_max(&context);
        let inline_bytes_max = probe_inline(&domain)?;
        let capabilities = capabilities(&context, &address, reads_max, inline_bytes_max);
        let connections = AtomicU32::new(1);
        let mut fabric =
            VerbsFabric { domain, address, capabilities, reads_max, windows_hold: true, connections };
        fabric.windows_hold = !fabric.capabilities.windows || windows_hold(&fabric);
        Ok(fabric)
    }

    /// Whether the device keeps a window's ends, as tried when it was opened. Where it does not, each stretch that is bound is
    /// registered by itself, at the price of a registration (and of its pages in the memlock account) for each bind.
    #[must_use]
    pub fn windows_hold(&self) -> bool {
        self.windows_hold
    }

    /// Device, port, address and its place in the GID table, for a log line.
    #[must_use]
    pub fn description(&self) -> String {
        let PortAddress { port, gid_index, gid, mtu, .. } = &self.address;
        let name = &self.domain.context.device_name;
        let mtu_bytes = 128_u32 << (*mtu).min(5);
        format!(
            "{name} port {port}, RoCE v2 address {} at GID index {gid_index}, MTU {mtu_bytes}",
            gid_address(*gid)
        )
    }
}

fn reads_max(context: &Context) -> u8 {
    let limits = &context.limits;
    let least = limits.max_qp_rd_atom.min(limits.max_qp_init_rd_atom).min(i32::from(READS_MAX));
    u8::try_from(least).unwrap_or(0)
}

fn at_least_zero(limit: i32) -> u32 {
    u32::try_from(limit).unwrap_or(0)
}

fn capabilities(
    context: &Context,
    address: &PortAddress,
    reads_max: u8,
    inline_bytes_max: u32,
) -> Capabilities {
    let limits = &context.limits;
    let type_2 = sys::IBV_DEVICE_MEM_WINDOW_TYPE_2A | sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    let completions_max = at_least_zero(limits.max_cqe);
    let depth_max = at_least_zero(limits.max_qp_wr).min(completions_max).min(DEPTH_MAX);
    Capabilities {
        provider: "verbs",
        windows: limits.device_cap_flags & type_2 != 0,
        transfer: Transfer::Any,
        // Memory is pinned here: a mapped file can only be read from.
        staged_image: true,
        immediate: true,
        message_bytes_max: address.message_bytes_max,
        region_bytes_max: limits.max_mr_size,
        window_bytes_max: limits.max_mr_size.min(WINDOW_BYTES_MAX),
        inline_bytes_max,
        send_depth_max: depth_max,
        receive_depth_max: depth_max,
        reads_in_flight_max: u32::from(reads_max),
        completions_max,
    }
}

/// The largest inline size that a queue pair can be made with: no attribute of the device says it.
fn probe_inline(domain: &Arc<Domain>) -> Result<u32, OpenError> {
    let context = &domain.context;
    let library = &context.library;
    // SAFETY: the context is open; no channel.
    let queue = unsafe { (library.create_cq)(context.raw, 1, std::ptr::null_mut(), std::ptr::null_mut(), 0) };
    if queue.is_null() {
        return Err(crate::error::VerbError::last("ibv_create_cq").into());
    }
    let fits = |inline_bytes: u32| {
        let mut attributes = sys::ibv_qp_init_attr {
            send_cq: queue,
            recv_cq: queue,
            cap: sys::ibv_qp_cap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline_bytes,
            },
            qp_type: sys::ibv_qp_type::IBV_QPT_RC,
            ..Default::default()
        };
        // SAFETY: domain and queue are alive; the attributes are whole.
        let pair = unsafe { (library.create_qp)(domain.raw, &raw mut attributes) };
        if !pair.is_null() {
            // SAFETY: just made, used by nobody.
            let _ = unsafe { (library.destroy_qp)(pair) };
        }
        !pair.is_null()
    };
    let found = INLINE_BYTES.into_iter().find(|bytes| fits(*bytes)).unwrap_or(0);
    // SAFETY: made above; its queue pairs are gone.
    let _ = unsafe { (library.destroy_cq)(queue) };
    Ok(found)
}

fn check_option(option: &'static str, value: u32, min: u32, max: u32) -> Result<(), CreateError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(CreateError::Option { option, value, min, max }) }
}

impl windlass_fabric::Fabric for VerbsFabric {
    type Region = VerbsRegion;
    type Window = VerbsWindow;
    type CompletionQueue = VerbsCompletionQueue;
    type Connection = VerbsConnection;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&self, memory: Arc<dyn Memory>, access: Access) -> Result<VerbsRegion, RegisterError> {
        VerbsRegion::register(&self.domain, memory, access)
    }

    fn allocate_window(&self) -> Result<VerbsWindow, AllocateError> {
        if !self.capabilities.windows {
            return Err(AllocateError::NotSupported);
        }
        VerbsWindow::allocate(&self.domain)
    }

    fn completion_queue(&self, capacity: u32) -> Result<VerbsCompletionQueue, CompletionQueueError> {
        VerbsCompletionQueue::new(&self.domain.context, capacity, self.capabilities.completions_max)
    }

    fn connection(
        &self,
        queue: &VerbsCompletionQueue,
        options: &ConnectionOptions,
    ) -> Result<VerbsConnection, CreateError> {
        let most = &self.capabilities;
        check_option("send_depth", options.send_depth, 1, most.send_depth_max)?;
        check_option("receive_depth", options.receive_depth, 0, most.receive_depth_max)?;
        check_option("inline_bytes", options.inline_bytes, 0, most.inline_bytes_max)?;
        let maker = Maker {
            domain: &self.domain,
            address: &self.address,
            queue: queue.core(),
            number: self.connections.fetch_add(1, Ordering::Relaxed),
            reads_max: self.reads_max,
            message_bytes_max: most.message_bytes_max,
            window_bytes_max: most.window_bytes_max,
            windows_hold: self.windows_hold,
        };
        VerbsConnection::new(&maker, options)
    }
}
