//! What can go wrong, with what to do about it. Each verb returns its error in its own way (a return value, a null pointer
//! and `errno`); it is decoded once, here and at the one wrapper of the verb (failure kind 77).

use std::fmt;
use std::net::IpAddr;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::mode::{Registration, TrialFault};
use crate::options::OptionRefusal;

/// Why no device could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The user-space library is not installed.
    #[error(
        "no RDMA library: {library} can't be loaded ({}); install it (Debian: apt-get install libibverbs1 ibverbs-providers)",
        loader_words(source)
    )]
    NoLibrary {
        /// The file that was looked for.
        library: &'static str,
        /// What the dynamic loader said.
        source: libloading::Error,
    },
    /// The library lacks a function that this crate needs.
    #[error("{library} has no {symbol} ({}); rdma-core 32 or newer is needed", loader_words(source))]
    OldLibrary {
        /// The library's file name.
        library: &'static str,
        /// The function that is missing.
        symbol: &'static str,
        /// What the dynamic loader said.
        source: libloading::Error,
    },
    /// The kernel has no RDMA subsystem (`ENOSYS`).
    #[error(
        "no kernel support for RDMA: load the device's module (for Soft-RoCE: modprobe rdma_rxe) with ib_uverbs; containers also need /dev/infiniband"
    )]
    NoKernelSupport,
    /// The kernel has RDMA and no device.
    #[error("no RDMA device; for Soft-RoCE over an interface: rdma link add rxe0 type rxe netdev INTERFACE")]
    NoDevice,
    /// No device bears the wanted name.
    #[error("no RDMA device named {wanted}; there are: {}", present.join(", "))]
    UnknownDevice {
        /// The configured name.
        wanted: String,
        /// The names of the devices that are there.
        present: Vec<String>,
    },
    /// No port of the looked-at devices can be used.
    #[error("no usable address: {}", refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoUsablePort {
        /// One reason for each port that was looked at.
        refusals: Vec<PortRefusal>,
    },
    /// An option can't be used, or not on this device.
    #[error(transparent)]
    Option(#[from] OptionRefusal),
    /// The configured way to register mapped files was tried in the log's folder and is not right there.
    #[error("registration {mode} can't be used: {fault}; leave the option out to have the best one chosen")]
    Registration {
        /// The configured mode.
        mode: Registration,
        /// What was wrong.
        fault: TrialFault,
    },
    /// A verb failed.
    #[error(transparent)]
    Verb(#[from] VerbError),
}

/// What the dynamic loader itself said, which the wrapper keeps as its source.
fn loader_words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Why one port of one device was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRefusal {
    /// The device's name.
    pub device: String,
    /// The port, from 1.
    pub port: u8,
    /// Why.
    pub reason: PortRefusalReason,
}

/// The reason of a [`PortRefusal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortRefusalReason {
    /// The port is not active.
    Down {
        /// The numeric state (`ibv_port_state`).
        state: u32,
    },
    /// The GID table has no entry at all.
    NoAddress,
    /// An InfiniBand port without a local identifier: no subnet manager has seen it.
    NoLocalIdentifier,
    /// Entries are there, all link-local, which peers can't reach by the address alone.
    OnlyLinkLocal {
        /// The addresses that the table has.
        present: Vec<IpAddr>,
    },
    /// Entries are there, none with the configured address.
    NoSuchAddress {
        /// The address that was asked for.
        wanted: IpAddr,
        /// The addresses that the table has.
        present: Vec<IpAddr>,
    },
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for PortRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortRefusal { device, port, reason } = self;
        match reason {
            PortRefusalReason::Down { state } => {
                write!(
                    f,
                    "{device} port {port} is not active (state {state}): bring its interface up (ip link set … up)"
                )
            }
            PortRefusalReason::NoAddress => write!(
                f,
                "{device} port {port} has no RoCE v2 address: give its interface an IP address (ip addr add …) or enable RoCE v2"
            ),
            PortRefusalReason::NoLocalIdentifier => write!(
                f,
                "{device} port {port} has no local identifier: start a subnet manager (opensm) in its InfiniBand network"
            ),
            PortRefusalReason::OnlyLinkLocal { present } => write!(
                f,
                "{device} port {port} has link-local addresses alone ({}): give its interface another IP address (ip addr add …)",
                list(present)
            ),
            PortRefusalReason::NoSuchAddress { wanted, present } => write!(
                f,
                "{device} port {port} has no address {wanted} in this network namespace; it has: {}",
                list(present)
            ),
        }
    }
}

/// A verb and the error that it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbError {
    /// The function of libibverbs.
    pub verb: &'static str,
    /// The error number, as the operating system numbers them.
    pub errno: i32,
    /// What was being asked for: sizes, names, states; and, where known, the remedy.
    pub about: About,
}

/// What a failed verb was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// Nothing more than the verb says.
    Plain,
    /// Opening a device.
    Device {
        /// Its name.
        name: String,
    },
    /// Registering memory.
    Registration {
        /// Bytes of the region.
        region_bytes: u64,
        /// Whether the device faults pages in by itself; pinned otherwise.
        on_demand: bool,
        /// What the process may lock, at the time of the failure; `None` is unlimited.
        memlock_bytes_max: Option<u64>,
        /// What it has pinned already, by the kernel's count (`VmPin` of /proc/self/status).
        pinned_bytes: u64,
    },
    /// Creating a completion queue or queue pair.
    Queue {
        /// Entries that were asked for.
        entries: u32,
        /// Entries that the device offers at most.
        entries_max: u32,
        /// What the process may lock; `None` is unlimited.
        memlock_bytes_max: Option<u64>,
        /// What it has pinned already. What a queue takes the device does not say.
        pinned_bytes: u64,
    },
    /// A state change of a queue pair.
    Transition {
        /// The state that was asked for.
        to: &'static str,
        /// What is checked first when it is refused.
        hint: &'static str,
    },
}

impl VerbError {
    pub(crate) fn plain(verb: &'static str, errno: i32) -> VerbError {
        VerbError { verb, errno, about: About::Plain }
    }

    /// Whether this is the given error.
    #[must_use]
    pub fn is(&self, errno: Errno) -> bool {
        self.errno == errno.raw_os_error()
    }

    /// For verbs that return a null pointer and set `errno`. Call it at once, before anything else can change `errno`.
    pub(crate) fn last(verb: &'static str) -> VerbError {
        let raw = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        VerbError::plain(verb, raw)
    }

    /// For verbs that return the error number itself; drivers disagree about its sign, and some return -1 and set `errno`.
    pub(crate) fn check(verb: &'static str, returned: i32) -> Result<(), VerbError> {
        match returned {
            0 => Ok(()),
            -1 => Err(VerbError::last(verb)),
            other => Err(VerbError::plain(verb, other.wrapping_abs())),
        }
    }

    pub(crate) fn about(mut self, about: About) -> VerbError {
        self.about = about;
        self
    }

    /// Of a refused registration.
    pub(crate) fn of_region(self, region_bytes: u64, on_demand: bool, locked: Locked) -> VerbError {
        let Locked { bytes_max: memlock_bytes_max, pinned_bytes } = locked;
        self.about(About::Registration { region_bytes, on_demand, memlock_bytes_max, pinned_bytes })
    }

    /// Of a refused completion queue or queue pair.
    pub(crate) fn of_queue(self, entries: u32, entries_max: i32) -> VerbError {
        let entries_max = u32::try_from(entries_max).unwrap_or(0);
        let Locked { bytes_max: memlock_bytes_max, pinned_bytes } = Locked::now();
        self.about(About::Queue { entries, entries_max, memlock_bytes_max, pinned_bytes })
    }
}

impl std::error::Error for VerbError {}

/// For the fabric's errors, which name the call themselves: of the same kind, with the remedy in its text.
impl From<VerbError> for std::io::Error {
    fn from(error: VerbError) -> std::io::Error {
        std::io::Error::new(std::io::Error::from_raw_os_error(error.errno).kind(), Cause(error))
    }
}

/// A verb's error without the verb.
#[derive(Debug)]
struct Cause(VerbError);

impl std::error::Error for Cause {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_cause(f)
    }
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: ", self.verb)?;
        self.write_cause(f)
    }
}

impl VerbError {
    /// What went wrong and what to do, without the verb.
    fn write_cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerbError { errno, about, .. } = self;
        write!(f, "{}", std::io::Error::from_raw_os_error(*errno))?;
        match about {
            About::Plain => Ok(()),
            About::Device { name } => {
                write!(f, "; device {name}")?;
                if self.is(Errno::ACCESS) || self.is(Errno::PERM) {
                    write!(f, "; the process needs read and write access to /dev/infiniband/uverbs*")?;
                }
                if self.is(Errno::NOENT) || self.is(Errno::NXIO) || self.is(Errno::NODEV) {
                    write!(
                        f,
                        "; /dev/infiniband/uverbs* is not here: modprobe ib_uverbs, or pass it into the container (docker run --device /dev/infiniband)"
                    )?;
                }
                Ok(())
            }
            About::Registration { region_bytes, on_demand, memlock_bytes_max, pinned_bytes } => {
                write!(
                    f,
                    "; region of {region_bytes} bytes, {}",
                    if *on_demand { "on demand" } else { "pinned" }
                )?;
                if self.is(Errno::NOMEM) && !on_demand {
                    write!(f, "; {} bytes must be locked", pinned_bytes.saturating_add(*region_bytes))?;
                    write_memlock(f, *memlock_bytes_max)?;
                }
                if self.is(Errno::FAULT) && !on_demand {
                    write!(
                        f,
                        "; the kernel refuses to pin writable pages of a file that it must track (ext4, xfs, …): register on demand, read only, or memory of a tmpfs"
                    )?;
                }
                if *on_demand && (self.is(Errno::OPNOTSUPP) || self.is(Errno::INVAL)) {
                    write!(f, "; the device may lack on-demand paging: use pinned memory")?;
                }
                Ok(())
            }
            About::Queue { entries, entries_max, memlock_bytes_max, pinned_bytes } => {
                write!(f, "; {entries} entries asked for, the device offers {entries_max}")?;
                if self.is(Errno::NOMEM) {
                    write!(
                        f,
                        "; the device locks memory for them, more than the {pinned_bytes} bytes that are locked already, and does not say how much"
                    )?;
                    write_memlock(f, *memlock_bytes_max)?;
                }
                Ok(())
            }
            About::Transition { to, hint } => write!(f, "; state {to}: {hint}"),
        }
    }
}

/// What is allowed and the setting, behind what is needed.
fn write_memlock(f: &mut fmt::Formatter<'_>, allowed: Option<u64>) -> fmt::Result {
    let Some(allowed) = allowed else {
        return write!(
            f,
            "; the memlock limit is unlimited, so the kernel or device is out of memory or objects"
        );
    };
    write!(
        f,
        "; the memlock limit is {allowed} bytes: raise it (ulimit -l, LimitMEMLOCK= of a systemd unit, memlock in /etc/security/limits.conf)"
    )
}

/// What this process may lock, and what it has pinned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Locked {
    /// The soft memlock limit; `None` is unlimited.
    pub(crate) bytes_max: Option<u64>,
    /// By the kernel's own count; 0 where it can't be read.
    pub(crate) pinned_bytes: u64,
}

impl Locked {
    /// Of this process, now.
    pub(crate) fn now() -> Locked {
        let status = std::fs::read_to_string("/proc/self/status");
        let pinned_bytes = status.map(|status| parse_pinned_bytes(&status)).unwrap_or(0);
        Locked { bytes_max: getrlimit(Resource::Memlock).current, pinned_bytes }
    }
}

fn parse_pinned_bytes(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmPin:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_58_a_memlock_refusal_names_need_limit_and_setting() {
        let locked = Locked { bytes_max: Some(8 << 20), pinned_bytes: 1024 };
        let nomem = |verb| VerbError::plain(verb, Errno::NOMEM.raw_os_error());
        let region = nomem("ibv_reg_mr").of_region(64 << 20, false, locked).to_string();
        let queue = About::Queue {
            entries: 4096,
            entries_max: 1 << 22,
            memlock_bytes_max: locked.bytes_max,
            pinned_bytes: locked.pinned_bytes,
        };
        let queue = nomem("ibv_create_cq").about(queue).to_string();
        for (text, needed) in [(region, "67109888 bytes must be locked"), (queue, "more than the 1024 bytes")]
        {
            for part in [needed, "8388608", "ulimit -l", "LimitMEMLOCK"] {
                assert!(text.contains(part), "{part} is missing in: {text}");
            }
        }
    }

    #[test]
    fn kind_61_a_file_that_cannot_be_pinned_is_explained() {
        let about = |on_demand| About::Registration {
            region_bytes: 4096,
            on_demand,
            memlock_bytes_max: None,
            pinned_bytes: 0,
        };
        let pinned =
            VerbError::plain("ibv_reg_mr", Errno::FAULT.raw_os_error()).about(about(false)).to_string();
        assert!(pinned.contains("tmpfs"), "{pinned}");
        let on_demand =
            VerbError::plain("ibv_reg_mr", Errno::OPNOTSUPP.raw_os_error()).about(about(true)).to_string();
        assert!(on_demand.contains("use pinned memory"), "{on_demand}");
    }

    #[test]
    fn in_an_error_of_the_fabric_the_verb_is_named_once() {
        let error = VerbError::plain("ibv_post_send", Errno::IO.raw_os_error());
        let call = error.verb;
        let text = windlass_fabric::PostProblem::Os { call, source: error.into() }.to_string();
        assert_eq!(text.matches("ibv_post_send").count(), 1, "{text}");
        assert!(text.contains("Input/output error"), "{text}");
    }

    #[test]
    fn kind_77_either_sign_of_a_returned_error_means_the_same() {
        let positive = VerbError::check("ibv_modify_qp", 22).unwrap_err();
        let negative = VerbError::check("ibv_modify_qp", -22).unwrap_err();
        assert_eq!(positive, negative);
        assert!(positive.is(Errno::INVAL));
        assert_eq!(VerbError::check("ibv_modify_qp", 0), Ok(()));
    }

    #[test]
    fn a_missing_library_is_named_with_the_loaders_reason_and_the_package() {
        let library = "libno_such_library_anywhere.so.1";
        // SAFETY: there is no such file, so nothing is loaded and no constructor runs.
        let source = unsafe { libloading::Library::new(library) }.unwrap_err();
        let text = OpenError::NoLibrary { library, source }.to_string();
        for part in ["cannot open shared object file", "apt-get install libibverbs1"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn the_kernels_count_of_pinned_memory_is_read() {
        assert_eq!(parse_pinned_bytes("VmLck:\t       0 kB\nVmPin:\t      12 kB\n"), 12 << 10);
        assert_eq!(parse_pinned_bytes("VmPin: x kB"), 0);
        assert_eq!(parse_pinned_bytes(""), 0);
    }
}
