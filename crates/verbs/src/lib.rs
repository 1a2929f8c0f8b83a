//! The libibverbs provider of the windlass fabric: the only crate that calls foreign functions.
#![deny(unsafe_op_in_unsafe_fn)]

mod device;
mod error;
mod library;

pub use device::DeviceChoice;
pub use error::{About, OpenError, PortRefusal, PortRefusalReason, VerbError};
