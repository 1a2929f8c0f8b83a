//! The libibverbs provider of the windlass fabric, and the only crate that calls foreign functions (DESIGN.md section 7.3).
//!
//! # The tour
//!
//! * `library` takes `libibverbs.so.1` at run time; `device` opens a device and chooses an address by type and value.
//! * `region` and `window` are memory and the permission to it; `queue` is where completions arrive.
//! * `connection` is a reliable queue pair; `slots` accounts for what is posted on it; `endpoint` is what the peer must know.
//! * `probe` tries at open what a device says and does not keep.
//! * [`VerbsFabric`] is the whole, as a [`windlass_fabric::Fabric`].
//!
//! # What is held to here
//!
//! 1. Things end in the order window, queue pair, region, completion queue, channel, protection domain, device, library:
//!    each holds what it was made from. No destructor panics or waits for a peer.
//! 2. Memory is reached only as [`windlass_fabric::Memory::words`] gives it, and held until the device has let go.
//! 3. Every verb has one wrapper, which knows how that verb reports its error.
#![deny(unsafe_op_in_unsafe_fn)]

mod connection;
mod device;
mod endpoint;
mod error;
mod events;
mod fabric;
mod library;
mod ops;
mod probe;
mod queue;
mod region;
mod slots;
mod status;
mod wake;
mod window;

pub use connection::VerbsConnection;
pub use device::DeviceChoice;
pub use error::{About, OpenError, PortRefusal, PortRefusalReason, VerbError};
pub use fabric::VerbsFabric;
pub use queue::VerbsCompletionQueue;
pub use region::{VerbsRegion, leaked_regions};
pub use wake::VerbsWaker;
pub use window::VerbsWindow;
