//! The log of one node.
mod flush;
