//! Memory that others change under us: mapped segment files, which the network card, another process or another thread
//! writes while we look.
//!
//! Two rules hold for everything in this module, the only one of the crate with unsafe code:
//!
//! 1. **No references into the memory.** No `&[u8]`, no `&mut [u8]`, ever: bytes are copied in and copied out, and a copy is
//!    validated after it was made, never the original.
//! 2. **Words that order anything are atomic.** The publish word of a record is loaded and stored through
//!    [`Memory::load_u64`] and [`Memory::store_u64`] with their orderings; everything else is a plain copy through raw pointers whose result may be
//!    any mixture of old and new bytes.
//!
//! Copies that meet are a race all the same where both are this process's and nothing orders them, and the type does not keep its holders from that: they are the hand-off, the store and
//! the driver, each of which says what orders its copies. So whoever holds a `Memory` holds to the contract of [`Memory::new`], and the facade hands none out.
//!
//! Within this process the append hand-off (DESIGN.md section 3) orders copies that would meet; against other processes and devices nothing does, which is
//! why every reader checks checksums on its own copy.
//!
//! Under `cfg(loom)` the same type is a model (`model.rs`): each word knows who may touch it, so that the model checker sees every
//! access that the production append and drain functions make.

#[cfg(all(test, not(loom)))]
mod tests;
mod window;
pub use window::InstallError;
pub(crate) use window::{Claim, Refusal, Window};

#[cfg(not(loom))]
mod real;
#[cfg(not(loom))]
pub use real::Memory;

#[cfg(loom)]
mod model;
#[cfg(loom)]
pub use model::Memory;
