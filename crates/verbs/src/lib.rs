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
#![deny(unsafe_op_in_unsafe_fn)]

mod address;
mod bell;
mod connection;
mod device;
mod endpoint;
mod error;
mod events;
mod extended;
mod fabric;
#[cfg(test)]
mod fake;
mod library;
mod mode;
mod offers;
mod ops;
mod options;
mod pair;
mod probe;
mod queue;
#[cfg(test)]
mod refused;
mod region;
mod slots;
mod spin;
mod status;
mod sync;
#[cfg(test)]
mod teardown;
mod wake;
mod window;
mod work;

pub use connection::VerbsConnection;
pub use device::DeviceChoice;
pub use error::{About, OpenError, PortRefusal, PortRefusalReason, VerbError};
pub use fabric::VerbsFabric;
pub use mode::{Failure, Reason, Registration, RegistrationReport, Trial, TrialFault};
pub use offers::Offers;
pub use options::{CompletionMode, LimitOptions, OptionRefusal, PathOptions, VerbsOptions};
pub use queue::VerbsCompletionQueue;
pub use region::{VerbsRegion, leaked_regions};
pub use wake::VerbsWaker;
pub use window::VerbsWindow;
