//! The [`LoneLog`] of the tests of this crate: how it is made and opened, and what is read of it.

use windlass_log::{Epoch, LogId, Lsn, MemberId, RecordKind, SEGMENT_BYTES_MIN};

use crate::disk::Disk;
pub(crate) use crate::testing::{LoneLog as TestLog, hand_off};
use crate::{
    CreateError, Founding, OpenError, Options, Persisted, PrepareError, Read, Store, StoreError, Surroundings,
};

pub(crate) const AROUND: Surroundings = Surroundings { boot_id: [1; 16], incarnation: 77 };

pub(crate) fn founding() -> Founding {
    Founding {
        log_id: LogId([9; 16]),
        member: MemberId(0),
        incarnation: 5,
        segment_bytes: SEGMENT_BYTES_MIN,
        epoch: Some(Epoch::new(1, MemberId(0))),
        configuration: Vec::new(),
    }
}

pub(crate) fn options() -> Options {
    Options { retention_bytes: 4 * SEGMENT_BYTES_MIN, segments_ahead: 1, ..Options::default() }
}

impl<D: Disk> TestLog<D> {
    pub(crate) fn create(disk: D) -> Result<TestLog<D>, CreateError> {
        let (store, opened) = Store::create(disk, &founding(), &AROUND, &options())?;
        Ok(TestLog::over(store, opened).expect("a log that was just made can be used"))
    }

    pub(crate) fn open(disk: D) -> Result<TestLog<D>, OpenError> {
        let (store, opened) = Store::open(disk, &AROUND, &options())?;
        Ok(TestLog::over(store, opened).expect("a log that was just opened can be used"))
    }

    pub(crate) fn try_open(
        disk: D,
        options: &Options,
    ) -> Result<Result<TestLog<D>, PrepareError>, OpenError> {
        let (store, opened) = Store::open(disk, &AROUND, options)?;
        Ok(TestLog::over(store, opened))
    }

    pub(crate) fn try_create(disk: D) -> Result<Result<TestLog<D>, PrepareError>, CreateError> {
        let (store, opened) = Store::create(disk, &founding(), &AROUND, &options())?;
        Ok(TestLog::over(store, opened))
    }

    pub(crate) fn flush(&self) -> Result<Persisted, StoreError> {
        self.store.flush(self.handoff.drained())
    }

    /// All payloads of data records from `from` to the drained LSN.
    pub(crate) fn payloads_from(&self, from: Lsn) -> Vec<Vec<u8>> {
        let mut reader = self.store.reader(from);
        let mut payloads = Vec::new();
        while let Read::Record(record) = reader.next(self.handoff.drained()).expect("the log is whole") {
            if record.header.kind == RecordKind::Data {
                payloads.push(record.payload.expect("not a flat scan").to_vec());
            }
        }
        payloads
    }

    pub(crate) fn payloads(&self) -> Vec<Vec<u8>> {
        self.payloads_from(self.store.trimmed())
    }
}
