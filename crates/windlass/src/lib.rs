//! An embedded write-ahead-log replication engine.
#![forbid(unsafe_code)]

pub mod control;
