//! The libibverbs provider of the windlass fabric, and the only crate that calls foreign functions (DESIGN.md section 7.3).
//!
//! # The tour
//!
//! * `library` takes `libibverbs.so.1` at run time (`ops` and `extended` what it does not export); `device` opens a device, `address` chooses
//!   among its addresses by type and value.
//! * `region` and `window` are memory and the permission to it; `queue` is where completions arrive.
//! * `connection` is what is posted on a queue pair (`pair`), in the device's words (`work`); `slots` accounts for it; `endpoint` is what the peer must know.
//! * `options` are what it is opened with; `probe` tries at open what a device says and does not keep, and chooses how mapped files are
//!   registered (`mode`).
//! * [`VerbsFabric`] is the whole, as a [`windlass_fabric::Fabric`].
//!
//! # What is held to here
//!
//! 1. Things end in the order window, queue pair, region, completion queue, channel, protection domain, device, library:
//!    each holds what it was made from. No destructor panics or waits for a peer.
//! 2. Memory is reached only as [`windlass_fabric::Memory::words`] gives it, and held until the device has let go.
//! 3. Every verb has one wrapper, which knows how that verb reports its error.
//!
//! Under `--cfg loom` there is only what models go through, so that they need no rdma-core.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(loom, allow(dead_code, reason = "what models go through has callers elsewhere"))]

#[cfg(not(loom))]
mod address;
mod bell;
#[cfg(not(loom))]
mod connection;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod extended;
#[cfg(not(loom))]
mod fabric;
#[cfg(all(test, not(loom)))]
mod fake;
#[cfg(not(loom))]
mod library;
#[cfg(not(loom))]
mod mode;
#[cfg(not(loom))]
mod offers;
#[cfg(not(loom))]
mod ops;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod pair;
#[cfg(not(loom))]
mod probe;
#[cfg(not(loom))]
mod queue;
#[cfg(all(test, not(loom)))]
mod refused;
#[cfg(not(loom))]
mod region;
mod slots;
#[cfg(not(loom))]
mod spin;
#[cfg(not(loom))]
mod status;
mod sync;
#[cfg(all(test, not(loom)))]
mod teardown;
#[cfg(not(loom))]
mod wake;
#[cfg(not(loom))]
mod window;
#[cfg(not(loom))]
mod work;

#[cfg(not(loom))]
pub use connection::VerbsConnection;
#[cfg(not(loom))]
pub use device::DeviceChoice;
#[cfg(not(loom))]
pub use error::{About, OpenError, PortRefusal, PortRefusalReason, VerbError};
#[cfg(not(loom))]
pub use fabric::VerbsFabric;
#[cfg(not(loom))]
pub use mode::{Failure, Reason, Registration, RegistrationReport, Trial, TrialFault};
#[cfg(not(loom))]
pub use offers::Offers;
#[cfg(not(loom))]
pub use options::{CompletionMode, LimitOptions, OptionRefusal, PathOptions, VerbsOptions};
#[cfg(not(loom))]
pub use queue::VerbsCompletionQueue;
#[cfg(not(loom))]
pub use region::{VerbsRegion, leaked_regions};
#[cfg(not(loom))]
pub use wake::VerbsWaker;
#[cfg(not(loom))]
pub use window::VerbsWindow;
