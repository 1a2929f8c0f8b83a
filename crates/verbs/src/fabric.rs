//! The provider: a device, a protection domain, an address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ibverbs_sys as sys;
use windlass_fabric::{
    Access, AllocateError, Capabilities, CompletionQueueError, ConnectionOptions, CreateError, Memory,
    RegisterError, Transfer,
};

use crate::address::{PortAddress, gid_address};
use crate::connection::{Maker, VerbsConnection};
use crate::device::{Context, open};
use crate::error::{OpenError, VerbError};
use crate::library::Library;
use crate::mode::{Reason, Registration, RegistrationReport};
use crate::offers::Offers;
use crate::options::{CompletionMode, PathOptions, VerbsOptions, mtu_bytes, mtu_code};
use crate::probe::{choose, windows_hold};
use crate::queue::VerbsCompletionQueue;
use crate::region::{Domain, VerbsRegion};
use crate::slots::DEPTH_MAX;
use crate::window::VerbsWindow;

/// One bind covers at most this on hardware that is in use today.
const WINDOW_BYTES_MAX: u64 = 1 << 31;
/// Inline sizes that are tried, the largest first.
const INLINE_BYTES: [u32; 6] = [512, 400, 256, 128, 64, 32];

/// An opened verbs device.
pub struct VerbsFabric {
    domain: Arc<Domain>,
    address: PortAddress,
    capabilities: Capabilities,
    reads_max: u8,
    windows_hold: bool,
    report: RegistrationReport,
    path: Arc<PathOptions>,
    completion: CompletionMode,
    connections: AtomicU32,
}

impl VerbsFabric {
    /// Opens the first device that has an active port with a fitting address, and tries what its word is not enough for: whether windows
    /// keep their ends, and how mapped files of the log's folder are best registered: some dozen small
    /// transfers with itself.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing (the library, kernel support, a device, an address) or wrong (an option, the configured
    /// registration) and what to do.
    pub fn open(options: &VerbsOptions) -> Result<VerbsFabric, OpenError> {
        options.check()?;
        VerbsFabric::open_with(&Library::load()?, options)
    }

    /// The same with a library at hand.
    pub(crate) fn open_with(
        library: &Arc<Library>,
        options: &VerbsOptions,
    ) -> Result<VerbsFabric, OpenError> {
        let (context, address) = open(library, &options.device)?;
        let domain = Arc::new(Domain::new(Arc::clone(&context))?);
        let reads_max = reads_max(&context, options.path.reads_in_flight_max);
        let inline_bytes = largest_inline(&domain)?;
        options.check_limits(depth_max(&context), inline_bytes)?;
        let capabilities = capabilities(&context, &address, reads_max, inline_bytes, options);
        let report = RegistrationReport {
            mode: Registration::Staged,
            reason: Reason::NoFolder,
            folder: None,
            prefetch: false,
        };
        let mut fabric = VerbsFabric {
            domain,
            address,
            capabilities,
            reads_max,
            windows_hold: true,
            report,
            path: Arc::new(options.path.clone()),
            completion: options.completion,
            connections: AtomicU32::new(1),
        };
        fabric.windows_hold = !fabric.capabilities.windows || windows_hold(&fabric);
        let report = choose(&fabric, options.folder.as_deref(), options.registration)?;
        fabric = fabric.with_mode(report.mode);
        fabric.report = report;
        Ok(fabric)
    }

    /// The same device with another way to register mapped files.
    pub(crate) fn with_mode(&self, mode: Registration) -> VerbsFabric {
        let capabilities = Capabilities {
            transfer: mode.transfer(),
            staged_image: mode == Registration::Staged,
            ..self.capabilities.clone()
        };
        VerbsFabric {
            domain: Arc::clone(&self.domain),
            address: self.address,
            capabilities,
            reads_max: self.reads_max,
            windows_hold: self.windows_hold,
            report: RegistrationReport { mode, ..self.report.clone() },
            path: Arc::clone(&self.path),
            completion: self.completion,
            connections: AtomicU32::new(self.connections.load(Ordering::Relaxed)),
        }
    }

    /// How mapped files are registered, and why so.
    #[must_use]
    pub fn registration(&self) -> &RegistrationReport {
        &self.report
    }

    /// Whether the device keeps a window's ends, as tried when it was opened. Where it does not, each stretch that is bound is
    /// registered by itself, at the price of a registration (and of its pages in the memlock account) for each bind.
    #[must_use]
    pub fn windows_hold(&self) -> bool {
        self.windows_hold
    }

    /// The device's name, as the system has it (`mlx5_0`).
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.domain.context.device_name
    }

    /// Device, port, address and its place in the GID table, how long a silent peer is tried, how packets are classed: for a log line.
    #[must_use]
    pub fn description(&self) -> String {
        let PortAddress { port, link, gid_index, gid, mtu, .. } = &self.address;
        let (name, path) = (&self.domain.context.device_name, &self.path);
        format!(
            "{name} port {port}, {} address {} at GID index {gid_index}, MTU {}; a silent peer is given up after {:.2} s or a multiple ({} tries), \
             traffic class {}, service level {}",
            link.name(),
            gid_address(*gid),
            mtu_bytes(*mtu),
            path.silence_min().as_secs_f64(),
            u32::from(path.retries) + 1,
            path.traffic_class,
            path.service_level
        )
    }

    /// What the device says that it can, for people: the trial made when it was opened decides.
    #[must_use]
    pub fn offers(&self) -> Offers {
        let context = &self.domain.context;
        Offers::new(context.on_demand, context.limits.device_cap_flags, context.limits.max_mw)
    }

    /// The path MTU to itself, as `ibv_mtu` counts it.
    pub(crate) fn mtu(&self) -> u32 {
        self.address.mtu.min(mtu_code(self.path.mtu_bytes_max))
    }

    /// What the device says that it can do on demand (`ibv_odp_transport_cap_bits`).
    pub(crate) fn on_demand(&self) -> u32 {
        self.domain.context.on_demand
    }
}

fn reads_max(context: &Context, wanted: u8) -> u8 {
    let limits = &context.limits;
    let least = limits.max_qp_rd_atom.min(limits.max_qp_init_rd_atom).min(i32::from(wanted));
    u8::try_from(least).unwrap_or(0)
}

fn at_least_zero(limit: i32) -> u32 {
    u32::try_from(limit).unwrap_or(0)
}

/// The deepest queue of a connection.
fn depth_max(context: &Context) -> u32 {
    let limits = &context.limits;
    at_least_zero(limits.max_qp_wr).min(at_least_zero(limits.max_cqe)).min(DEPTH_MAX)
}

fn capabilities(
    context: &Context,
    address: &PortAddress,
    reads_max: u8,
    inline_bytes: u32,
    options: &VerbsOptions,
) -> Capabilities {
    let limits = &context.limits;
    let type_2 = sys::IBV_DEVICE_MEM_WINDOW_TYPE_2A | sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    let depth_max = options.limits.depth_max.unwrap_or(depth_max(context));
    Capabilities {
        provider: "verbs",
        windows: limits.device_cap_flags & type_2 != 0 && !options.no_windows,
        transfer: Transfer::Any,
        // Until it is known how mapped files can be registered.
        staged_image: true,
        immediate: true,
        message_bytes_max: address.message_bytes_max,
        region_bytes_max: limits.max_mr_size,
        window_bytes_max: limits.max_mr_size.min(WINDOW_BYTES_MAX),
        inline_bytes_max: options.limits.inline_bytes_max.unwrap_or(inline_bytes),
        send_depth_max: depth_max,
        receive_depth_max: depth_max,
        reads_in_flight_max: u32::from(reads_max),
        completions_max: at_least_zero(limits.max_cqe),
    }
}

/// The largest inline size that a queue pair can be made with: no attribute of the device says it.
fn largest_inline(domain: &Arc<Domain>) -> Result<u32, OpenError> {
    let context = &domain.context;
    let library = &context.library;
    // SAFETY: the context is open; no channel.
    let queue = unsafe { (library.create_cq)(context.raw, 1, std::ptr::null_mut(), std::ptr::null_mut(), 0) };
    if queue.is_null() {
        return Err(VerbError::last("ibv_create_cq").of_queue(1, context.limits.max_cqe).into());
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
        VerbsRegion::register(&self.domain, memory, access, self.report.mode)
    }

    fn allocate_window(&self) -> Result<VerbsWindow, AllocateError> {
        if !self.capabilities.windows {
            return Err(AllocateError::NotSupported);
        }
        VerbsWindow::allocate(&self.domain)
    }

    fn completion_queue(&self, capacity: u32) -> Result<VerbsCompletionQueue, CompletionQueueError> {
        let capacity_max = self.capabilities.completions_max;
        VerbsCompletionQueue::new(&self.domain.context, capacity, capacity_max, self.completion)
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
            path: &self.path,
            transfer: most.transfer,
            window_bytes_max: most.window_bytes_max,
            windows_hold: self.windows_hold,
        };
        VerbsConnection::new(&maker, options)
    }
}
