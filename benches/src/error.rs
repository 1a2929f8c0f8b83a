//! Why a benchmark gave up.

use std::error::Error;
use std::io;

/// Why a benchmark gave up. Nothing that it measured before is kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The log, or the medium under the raw operation, refused.
    #[error("{what}: {cause}")]
    Failed {
        /// What was being done.
        what: &'static str,
        /// The answer.
        cause: Box<dyn Error + Send + Sync>,
    },
    /// A process of the benchmark's own gave up.
    #[error("the process in the role of {role}: {said}")]
    Child {
        /// Its role.
        role: &'static str,
        /// Why.
        said: String,
    },
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Says what was being done when something failed.
pub(crate) trait During<T> {
    fn during(self, what: &'static str) -> Result<T, BenchError>;
}

impl<T, E: Error + Send + Sync + 'static> During<T> for Result<T, E> {
    fn during(self, what: &'static str) -> Result<T, BenchError> {
        self.map_err(|cause| BenchError::Failed { what, cause: Box::new(cause) })
    }
}
