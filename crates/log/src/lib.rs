//! The bytes of the windlass log.
//!
//! What lives here, in the order to read it:
//!
//! * the words of the log: [`Lsn`] and [`Geometry`], [`Epoch`], [`LogId`], [`MemberId`];
//! * its bytes: [`RecordHeader`], [`batch_items`], [`Chain`], [`SegmentHeader`], [`EpochHistory`], [`Superblock`];
//! * [`Memory`], the one type for memory that others change under us;
//! * the append hand-off between producers and the pump: [`Handoff`], [`Reservation`], [`Drain`];
//! * reading an [`Image`]: [`Scan`], and recovery's verdict over it: [`judge`], by the decision table: [`Facts`], [`Row`].
//!
//! What does not: no IO, no clock, no threads.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

mod batch;
mod bytes;
mod chain;
mod decision;
#[cfg(all(test, not(loom)))]
mod format_tests;
mod handoff;
mod history;
mod identity;
mod image;
mod live_mark;
mod lsn;
/// Whether this process has a bug on purpose: `false` but in a build for the simulator to be tried with (DESIGN.md section 9.7).
#[cfg(not(planted))]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}
#[cfg(planted)]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is($crate::planted::Bug::$bug)
    };
}
#[allow(unsafe_code, reason = "the one memory module")]
mod memory;
#[cfg(all(test, not(loom)))]
mod model_tests;
mod newer;
#[cfg(planted)]
pub mod planted;
mod record;
mod salt;
mod scan;
mod segment;
mod superblock;
mod sync;
#[cfg(all(test, not(loom)))]
mod testing;
mod verdict;

pub use batch::{BatchError, BatchItems, batch_items, frame_bytes};
pub use chain::Chain;
pub use decision::{
    Action, Class, CleanMark, Facts, Found, Going, Holder, Older, Onward, OpenMode, Place, Rewrite, Row,
    Superblocks,
};
pub use handoff::{
    Appended, Drain, DrainError, DrainState, Drained, Handoff, Reservation, ReserveError, Tenure,
};
pub use history::{EpochHistory, EpochStart, HISTORY_ENTRIES_MAX, HISTORY_ENTRIES_NEARLY_FULL, HistoryError};
pub use identity::{Epoch, LogId, MemberId};
pub use image::{AHEAD_HEAD, Fetched, Image, MemoryImage, Shape};
pub use live_mark::{LIVE_MARK_BYTES, LiveMark};
pub use lsn::{
    Geometry, GeometryError, HEADER_BYTES, Lsn, RECORD_ALIGN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    SEGMENT_HEADER_BYTES, SEGMENT_START_BYTES,
};
pub use memory::{InstallError, Memory};
pub use newer::{Newer, newer};
pub use record::{HeaderError, Lag, RecordHeader, RecordKind, padding_bytes};
pub use salt::{EpochKey, Salt};
pub use scan::{Located, Placed, Record, Scan, ScanError, Step, Stop, StopReason, locate};
pub use segment::{FEATURES_KNOWN, FORMAT_VERSION, SEGMENT_HEADER, SegmentHeader, SegmentHeaderError};
pub use superblock::{
    CONFIGURATION_BYTES_MAX, LSN_MAX, NoSuperblock, SUPERBLOCK_ALIGN, SUPERBLOCK_BYTES_MAX, Superblock,
    SuperblockEncodeError, SuperblockError, newest,
};
pub use verdict::{Extent, Marks, Verdict, judge};

#[cfg(all(test, not(loom), not(planted)))]
mod ordinary {
    #[test]
    fn an_ordinary_build_has_no_bug_on_purpose() {
        // The list of bugs is not there either: a name that it does not have would not compile.
        const NONE: bool = planted!(NoBugHasThisName);
        const { assert!(!NONE) };
    }
}
