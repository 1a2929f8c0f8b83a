//! The software provider of the windlass fabric: one-sided operations executed by the passive side's agent over TCP.
#![forbid(unsafe_code)]
