//! Starting a member: what its options must keep, and joining its parts around a fabric.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use slog::{Logger, info, o};
use windlass_engine::{Config, Identity};
use windlass_fabric::Fabric;
use windlass_log::{Geometry, MemberId};
use windlass_store::disk::{Disk, RealDisk};
use windlass_store::{Configure, CopiedFolder, Opened, Store, UnsafeFilesystem};

use super::affinity::Affinity;
use super::checkpoint::{self, Bringer, Giver};
use super::ready::Ready;
use super::threads::Threads;
use super::{FabricChoice, Inner, Node, NodeError, NodeOptions, PumpMode, pump, staging};
use crate::clock::MonotonicClock;
use crate::control::{ControlOptions, Streams, TcpControl, Terms};
use crate::driver::{self, Driver, DriverError, DriverOptions, Port};
use crate::error::OptionError;

/// What the options must keep, before anything is touched.
pub(super) fn check(options: &NodeOptions) -> Result<(), NodeError> {
    let me = options.me;
    let mut ids: Vec<MemberId> = options.all_members().map(|member| member.id).collect();
    ids.sort_unstable();
    let are_different = ids.windows(2).all(|pair| pair[0] != pair[1]);
    let founders = options.members.len();
    if !are_different || !ids.contains(&me) || !(1..=Config::VOTERS_MAX).contains(&founders) {
        return Err(NodeError::Members { me });
    }
    options.quorums.check(founders)?;
    let geometry = Geometry::new(options.segment_bytes)?;
    Ok(check_ranges(options, geometry)?)
}

/// The longest time of the protocol.
const TIMING_MAX: Duration = Duration::from_secs(60 * 60);
/// The most bytes of a batch, or of one request of a fetch.
const TRANSFER_BYTES_MAX: u64 = 1 << 30;

/// Refuses what is out of its range.
fn check_ranges(options: &NodeOptions, geometry: Geometry) -> Result<(), OptionError> {
    let (timing, limits) = (&options.timing, &options.limits);
    let time = |option, ns, min_ns| {
        let min = Duration::from_nanos(min_ns);
        OptionError::check_time(option, Duration::from_nanos(ns), (min, TIMING_MAX))
    };
    time("suspicion", timing.suspicion_ns, 4_000_000)?;
    // Beats are counted in `suspicion`, of which they are a part.
    let beat_ns_max = u64::try_from(TIMING_MAX.as_nanos() / 4).unwrap_or(u64::MAX);
    let beat = Duration::from_nanos(timing.heartbeat_ns);
    let beats = (Duration::from_nanos(1), Duration::from_nanos(beat_ns_max));
    OptionError::check_time("timing.heartbeat_ns", beat, beats)?;
    time("suspicion", timing.suspicion_ns, 4 * timing.heartbeat_ns)?;
    time("timing.backoff_ns", timing.backoff_ns, 1)?;
    time("timing.stall_ns", timing.stall_ns, 1)?;
    time("timing.retry_ns", timing.retry_ns, 1)?;
    time("timing.flush_idle_ns", timing.flush_idle_ns, 1)?;
    let transfers = (4096, TRANSFER_BYTES_MAX);
    OptionError::check_bytes("limits.batch_bytes", limits.batch_bytes, transfers)?;
    OptionError::check_bytes("limits.fetch_bytes", limits.fetch_bytes, transfers)?;
    OptionError::check_bytes("limits.flush_lag_bytes", limits.flush_lag_bytes, (1, OptionError::BYTES_MAX))?;
    OptionError::check_count("limits.notice_slots", limits.notice_slots.into(), (1, 64))?;
    OptionError::check_count("limits.batches_in_flight", limits.batches_in_flight.into(), (1, 16))?;
    OptionError::check_bytes("limits.stream_bytes", limits.stream_bytes, (1, OptionError::BYTES_MAX))?;
    let count = limits.stream_batches_in_flight.into();
    OptionError::check_count("limits.stream_batches_in_flight", count, (1, 16))?;
    OptionError::check_count("limits.segments_ahead", limits.segments_ahead, (1, 64))?;
    let kept = (geometry.segment_bytes(), OptionError::BYTES_MAX);
    OptionError::check_bytes("backup_retention_bytes", limits.retention_bytes, kept)?;
    if let Some(bytes) = options.retention_bytes {
        // With one, a log at its cap may have nothing to trim: what a member that is away still needs is kept by whole segments.
        let least = 2 * geometry.segment_bytes();
        OptionError::check_bytes("retention_bytes", bytes, (least, OptionError::BYTES_MAX))?;
    }
    let waits = (Duration::from_millis(1), OptionError::DAY);
    OptionError::check_time("reservation_limit", options.reservation_limit, waits)?;
    OptionError::check_time("spin", options.spin, (Duration::ZERO, Duration::from_secs(1)))
}

pub(super) fn store_options(options: &NodeOptions) -> windlass_store::Options {
    windlass_store::Options {
        mode: options.mode,
        log_id: Some(options.log_id),
        retention_bytes: options.retention().saturating_add(options.limits.retention_bytes),
        segments_ahead: options.limits.segments_ahead,
        unsafe_filesystem: if options.any_filesystem {
            UnsafeFilesystem::Use
        } else {
            UnsafeFilesystem::Refuse
        },
        copied_folder: CopiedFolder::Judge,
        configure: Some(Configure(driver::note_configuration)),
        ..windlass_store::Options::default()
    }
}

fn random_u64() -> Result<u64, NodeError> {
    getrandom::u64().map_err(|error| NodeError::System {
        what: "random numbers",
        source: std::io::Error::other(error.to_string()),
    })
}

/// Starts a member on an open store.
pub(super) fn start(store: Store<RealDisk>, opened: Opened, options: NodeOptions) -> Result<Node, NodeError> {
    let Some(address) = options.address() else { return Err(NodeError::Members { me: options.me }) };
    let listener = TcpListener::bind(address).map_err(|source| NodeError::Listen { address, source })?;
    let logger = options.logger.new(o!("member" => options.me.to_string()));
    // The opening is durable before anybody hears of it (R-6 takes the clean mark away, which counts the generation on).
    store.begin().map_err(DriverError::Begin)?;
    let superblock = store.superblock();
    let identity = Identity {
        incarnation: superblock.incarnation,
        opening: superblock.generation,
        nonce: random_u64()?,
    };
    match options.fabric.clone() {
        FabricChoice::Tcp => {
            let fabric = open_tcp(&options, address, &logger)?;
            let affinity = Affinity::choose(options.pin, None, Path::new("/sys"));
            assemble(fabric, affinity, store, opened, options, listener, identity, logger)
        }
        #[cfg(feature = "verbs")]
        FabricChoice::Verbs(device) => {
            let fabric = open_verbs(*device, store.disk().path(), &options, &logger)?;
            let affinity = Affinity::choose(options.pin, Some(fabric.device_name()), Path::new("/sys"));
            assemble(fabric, affinity, store, opened, options, listener, identity, logger)
        }
    }
}

/// Joins the parts of a member around its fabric, and starts its threads.
#[expect(clippy::too_many_arguments, reason = "each part once")]
fn assemble<F: Fabric>(
    fabric: F,
    affinity: Affinity,
    store: Store<RealDisk>,
    mut opened: Opened,
    options: NodeOptions,
    listener: TcpListener,
    identity: Identity,
    logger: Logger,
) -> Result<Node, NodeError> {
    #[cfg(any(test, feature = "faults"))]
    let (fabric, losses) = super::losing::Losing::new(fabric, options.lose_completions);
    let staging = staging::open(&options, fabric.capabilities(), &store, &mut opened, &logger)?;
    let folder = store.disk().path().to_path_buf();
    let store = Arc::new(store);
    info!(logger, "the folder is open"; "folder" => %folder.display(), "tail" => %opened.tail, "clean" => opened.clean,
        "memory_lost" => opened.memory_lost, "rewritten_bytes" => opened.rewritten_bytes);

    // Whoever is waited for wakes the pump through this, once the pump's queue is there.
    let wake: Arc<OnceLock<Arc<Port>>> = Arc::default();
    let waking = |wake: &Arc<OnceLock<Arc<Port>>>| {
        let wake = Arc::clone(wake);
        move || {
            if let Some(port) = wake.get() {
                port.wake();
            }
        }
    };
    // A pump that never sleeps, or has a processor of its own, does everything itself but flush.
    let is_shared = options.pump != PumpMode::Busy && options.pin.is_none();
    let threads = Threads::start(&format!("windlass-{}", options.me.0), is_shared, waking(&wake))
        .map_err(NodeError::Thread)?;
    let control = TcpControl::start(
        ControlOptions {
            me: options.me,
            members: options.all_members().copied().collect(),
            log_id: options.log_id,
            identity,
            terms: Terms {
                segment_bytes: store.geometry().segment_bytes(),
                replicated: options.replicated,
                notice_slots: options.limits.notice_slots,
            },
            secret: options.secret.clone(),
            listener,
            logger: logger.clone(),
        },
        waking(&wake),
    )?;
    let address = control.address();
    let streams = control.streams();
    let config = Config {
        me: options.me,
        identity,
        founding: options.founding(),
        geometry: store.geometry(),
        replicated_allowed: options.replicated,
        seed: random_u64()?,
        timing: options.timing,
        limits: options.limits,
    };
    let driver = Driver::new(
        driver::Parts {
            fabric,
            store: Arc::clone(&store),
            opened,
            clock: MonotonicClock::new(),
            control,
            executor: threads,
            staging,
        },
        DriverOptions {
            config,
            level: options.level,
            retention_bytes: options.retention(),
            reservation_limit: options.reservation_limit,
            full_disk_limit: options.full_disk_limit,
            scrub_bytes_per_second: options.scrub_bytes_per_second,
            logger: logger.clone(),
        },
    )?;
    // Set once, here.
    let _ = wake.set(Arc::clone(driver.port()));
    let inner = Inner::of(&driver, store, folder, logger);
    let first_status = driver.status();
    let pump = Ready::make(format!("windlass-pump-{}", options.me.0))?;
    let relief = Ready::make(format!("windlass-relief-{}", options.me.0))?;
    let bringer = start_checkpoints(&options, streams, &inner)?;
    let (of_pump, mode, pin) = (Arc::clone(&inner), options.pump, affinity);
    let pump = pump.begin(move || {
        pin.apply(&of_pump.logger);
        pump::run(driver, &of_pump, mode, is_shared, relief);
    });
    Ok(Node {
        inner,
        member: options.me,
        identity,
        address,
        level: options.level,
        replicated: options.replicated,
        first_status,
        pump: Mutex::new(Some(pump)),
        bringer: Mutex::new(bringer),
        #[cfg(any(test, feature = "faults"))]
        losses,
    })
}

/// Gives checkpoints to whoever asks, and brings those that are needed, where the application has them.
fn start_checkpoints(
    options: &NodeOptions,
    streams: Streams,
    inner: &Arc<Inner>,
) -> Result<Option<JoinHandle<()>>, NodeError> {
    let giver = Arc::new(Giver {
        hook: options.checkpoints.clone(),
        store: Arc::clone(&inner.store),
        port: Arc::clone(&inner.port),
        ledger: Arc::clone(&inner.ledger),
        at_start: Arc::clone(&inner.at_start),
        meters: Arc::clone(&inner.group_meters),
        logger: inner.logger.clone(),
    });
    streams.serve_by(Box::new(move |stream, taker| Box::pin(Arc::clone(&giver).serve(stream, taker))));
    let Some(hook) = options.checkpoints.clone() else { return Ok(None) };
    let suspicion = Duration::from_nanos(options.timing.suspicion_ns);
    let is_empty = inner.store.superblock().history.last().is_none();
    let bringer = Bringer {
        hook,
        me: options.me,
        log_id: options.log_id,
        geometry: inner.store.geometry(),
        remind: (suspicion * 4).clamp(Duration::from_millis(8), Duration::from_secs(1)),
        port: Arc::clone(&inner.port),
        events: Arc::clone(&inner.events),
        streams,
        ledger: Arc::clone(&inner.ledger),
        at_start: (!is_empty).then(|| Arc::clone(&inner.at_start)),
        meters: Arc::clone(&inner.group_meters),
        logger: inner.logger.clone(),
    };
    let thread = std::thread::Builder::new().name(format!("windlass-take-{}", options.me.0));
    let started = thread.spawn(move || checkpoint::bring(&bringer));
    Ok(Some(started.map_err(NodeError::Thread)?))
}

fn open_tcp(
    options: &NodeOptions,
    control: SocketAddr,
    logger: &Logger,
) -> Result<windlass_tcp::TcpFabric, NodeError> {
    let mut tcp = windlass_tcp::Options::new(options.secret.for_tcp(), options.log_id.0);
    tcp.bind = options.fabric_address(control.ip());
    tcp.advertise = options.fabric_advertised();
    tcp.no_windows = options.without_windows;
    tcp.spin = match options.pump {
        PumpMode::Event => std::time::Duration::ZERO,
        PumpMode::Busy | PumpMode::Adaptive => options.spin,
    };
    Ok(windlass_tcp::TcpFabric::open(tcp, logger.clone())?)
}

#[cfg(feature = "verbs")]
fn open_verbs(
    mut device: windlass_verbs::VerbsOptions,
    folder: &Path,
    options: &NodeOptions,
    logger: &Logger,
) -> Result<windlass_verbs::VerbsFabric, NodeError> {
    use windlass_verbs::CompletionMode;
    device.folder = Some(folder.to_path_buf());
    device.no_windows |= options.without_windows;
    device.completion = match options.pump {
        PumpMode::Busy => CompletionMode::Busy,
        PumpMode::Event => CompletionMode::Event,
        PumpMode::Adaptive => CompletionMode::Adaptive { spin_max: options.spin },
    };
    let fabric = windlass_verbs::VerbsFabric::open(&device)?;
    info!(logger, "the device is open: {}", fabric.description(); "registration" => %fabric.registration());
    Ok(fabric)
}
