//! Nothing panics: what an assertion of the code under test says is a violation like any other.

use std::any::Any;

use super::{Invariant, Violation};

/// A run has ended in a panic.
pub(crate) fn caught(cause: &(dyn Any + Send)) -> Violation {
    let what = cause
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned());
    Violation { invariant: Invariant::NoPanic, what }
}
