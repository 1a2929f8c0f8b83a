//! How a log is made and opened.

use std::path::Path;
use std::time::Duration;

use windlass_log::{Geometry, LogId, Lsn, OpenMode};

use crate::commit::Level;
use crate::error::{CreateError, OpenError, OptionError};
use crate::log::{Log, OpenOrCreateError, OpenTrimmedError, OpenTruncatedError};

/// Options of a log. Every value has a default that fits a database; set what differs.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = windlass::Options::new().segment_bytes(16 << 20).open_or_create("/var/lib/db/log".as_ref())?;
/// # log.close()?; Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) segment_bytes: u64,
    pub(crate) retention_bytes: Option<u64>,
    pub(crate) mode: OpenMode,
    pub(crate) level: Level,
    pub(crate) ahead_segments: u64,
    pub(crate) reservation_limit: Duration,
    pub(crate) any_filesystem: bool,
    pub(crate) scrub_bytes_per_second: u64,
    pub(crate) log_id: Option<LogId>,
    pub(crate) threads: bool,
    pub(crate) logger: slog::Logger,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            retention_bytes: None,
            mode: OpenMode::Tail,
            level: Level::Durable,
            ahead_segments: 2,
            reservation_limit: Duration::from_secs(10),
            any_filesystem: false,
            scrub_bytes_per_second: crate::scrub::BYTES_PER_SECOND,
            log_id: None,
            threads: true,
            logger: slog::Logger::root(slog::Discard, slog::o!()),
        }
    }
}

impl Options {
    /// The default options.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// The size of a segment, header included: a power of two from 64 KiB to 4 GiB. Only creating looks at it; an existing
    /// log keeps the size it was made with. Default 64 MiB. A record may be as long as fits behind a segment's header.
    #[must_use]
    pub fn segment_bytes(mut self, segment_bytes: u64) -> Options {
        self.segment_bytes = segment_bytes;
        self
    }

    /// The cap on bytes between the trim point and the tail. An append that would pass it answers `Full`; above 80 % a
    /// warning is logged once and a metric set. 1 to 2^62, rounded up to whole segments, at least 4. Default: 64 segments, at least 1 GiB.
    #[must_use]
    pub fn retention_bytes(mut self, retention_bytes: u64) -> Options {
        self.retention_bytes = Some(retention_bytes);
        self
    }

    /// What opening does with a tail that doesn't hold. Default [`OpenMode::Tail`].
    #[must_use]
    pub fn mode(mut self, mode: OpenMode) -> Options {
        self.mode = mode;
        self
    }

    /// The level of [`Log::commit_default`] and of readers that name none. Default [`Level::Durable`].
    #[must_use]
    pub fn level(mut self, level: Level) -> Options {
        self.level = level;
        self
    }

    /// How many segments are kept prepared ahead of the tail, 1 to 64. Default 2.
    #[must_use]
    pub fn ahead_segments(mut self, ahead_segments: u64) -> Options {
        self.ahead_segments = ahead_segments;
        self
    }

    /// How long a reservation may stay unpublished before the log fails with a named error rather than stand still (R-9). 1 ms to a day.
    /// Default 10 s.
    #[must_use]
    pub fn reservation_limit(mut self, reservation_limit: Duration) -> Options {
        self.reservation_limit = reservation_limit;
        self
    }

    /// Accept a filesystem on which preallocation, locks or mappings are not known to hold (copy-on-write, network). What
    /// the log promises then depends on that filesystem. Default: refuse with the reason.
    #[must_use]
    pub fn any_filesystem(mut self, any_filesystem: bool) -> Options {
        self.any_filesystem = any_filesystem;
        self
    }

    /// How many bytes of cold segments, those behind the persisted mark's, are read from the medium and checked a second, on a thread of their own, again and again; 0: none, and no
    /// thread. What is damaged is told by [`Log::damage`], a log line and the metrics. Default 1 MiB: 64 GiB in 18 hours.
    #[must_use]
    pub fn scrub_bytes_per_second(mut self, bytes: u64) -> Options {
        self.scrub_bytes_per_second = bytes;
        self
    }

    /// Open only the log of this identity (as [`Info::log_id`](crate::Info::log_id) tells it): another log in the folder is refused. A new log gets
    /// this identity. Default: any, and a new log gets a random one.
    #[must_use]
    pub fn log_id(mut self, log_id: LogId) -> Options {
        self.log_id = Some(log_id);
        self
    }

    /// Whether the log runs its own helper and flush threads (default). Without them whoever holds the log calls
    /// [`Log::step`] and [`Log::step_flush`]; a simulator does.
    #[must_use]
    pub fn threads(mut self, threads: bool) -> Options {
        self.threads = threads;
        self
    }

    /// Where the log writes its few lines. Default: nowhere; a library never configures global logging.
    #[must_use]
    pub fn logger(mut self, logger: slog::Logger) -> Options {
        self.logger = logger;
        self
    }

    /// Makes a new log in an empty or absent folder. Durable before it returns; a failure leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`CreateError`]: each variant says what to do.
    pub fn create(self, folder: &Path) -> Result<Log, CreateError> {
        Log::create(folder, self)
    }

    /// Opens the log in `folder` for writing.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: each variant says what to do.
    pub fn open(self, folder: &Path) -> Result<Log, OpenError> {
        Log::open(folder, self)
    }

    /// Opens the log in `folder` with everything before `lsn` released: the way out where it has had too many epochs to be opened. See [`Log::open_trimmed`].
    ///
    /// # Errors
    ///
    /// [`OpenTrimmedError`]: each variant says what to do.
    pub fn open_trimmed(self, folder: &Path, lsn: Lsn) -> Result<Log, OpenTrimmedError> {
        Log::open_trimmed(folder, self, lsn)
    }

    /// Opens the log in `folder`, which is damaged at `lsn` or behind it, by giving up everything from `lsn` on. See [`Log::open_truncated`].
    ///
    /// # Errors
    ///
    /// [`OpenTruncatedError`]: each variant says what to do.
    pub fn open_truncated(self, folder: &Path, lsn: Lsn) -> Result<Log, OpenTruncatedError> {
        Log::open_truncated(folder, self, lsn)
    }

    /// Opens the log in `folder`, or makes one if the folder is absent or empty. Anything else that can't be opened is an
    /// error, never a reason to make a new log.
    ///
    /// # Errors
    ///
    /// [`OpenOrCreateError`]: each variant says what to do.
    pub fn open_or_create(self, folder: &Path) -> Result<Log, OpenOrCreateError> {
        Log::open_or_create(folder, self)
    }

    /// Refuses what is out of its range. (The segment size is looked at where a log is made.)
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        if let Some(bytes) = self.retention_bytes {
            OptionError::check_bytes("retention_bytes", bytes, (1, OptionError::BYTES_MAX))?;
        }
        OptionError::check_count("ahead_segments", self.ahead_segments, (1, 64))?;
        let limits = (Duration::from_millis(1), OptionError::DAY);
        OptionError::check_time("reservation_limit", self.reservation_limit, limits)
    }

    /// The cap in bytes for a log of this geometry.
    pub(crate) fn retention_for(&self, geometry: Geometry) -> u64 {
        let segment = geometry.segment_bytes();
        let wanted = self.retention_bytes.unwrap_or_else(|| default_retention(segment));
        wanted.div_ceil(segment).max(4).saturating_mul(segment)
    }
}

/// The default cap of a log with segments of this size.
pub(crate) fn default_retention(segment_bytes: u64) -> u64 {
    segment_bytes.saturating_mul(64).max(1 << 30)
}
