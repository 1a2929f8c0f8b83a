//! The libibverbs provider of the windlass fabric.
#![deny(unsafe_code)]
