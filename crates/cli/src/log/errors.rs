//! Which status a failure of the library ends the command with.

use windlass::store::{CreateError as StoreCreateError, OpenError as StoreOpenError};
use windlass::{Class, CreateError, OpenError, ReadError};

use crate::exit::{Failure, Status};

pub(super) fn open(error: &OpenError) -> Failure {
    let status = match error {
        OpenError::Store(error) => open_status(error),
        OpenError::Member { .. } => Status::Refused,
        OpenError::Begin { .. } => Status::System,
    };
    Failure::new(status, error)
}

pub(super) fn open_store(error: &StoreOpenError) -> Failure {
    Failure::new(open_status(error), error)
}

pub(crate) fn open_status(error: &StoreOpenError) -> Status {
    match error {
        StoreOpenError::InUse { .. } => Status::InUse,
        StoreOpenError::Refused { verdict, .. } => match verdict.class() {
            Class::Torn => Status::Torn,
            Class::End | Class::Damage | Class::Foreign => Status::Damage,
        },
        StoreOpenError::SegmentFile { .. }
        | StoreOpenError::SegmentHeader { .. }
        | StoreOpenError::SegmentMissing { .. }
        | StoreOpenError::Superblock { .. } => Status::Damage,
        StoreOpenError::NoLog { .. }
        | StoreOpenError::Filesystem { .. }
        | StoreOpenError::ForeignLog { .. }
        | StoreOpenError::Copied { .. }
        | StoreOpenError::Salvage
        | StoreOpenError::History(_) => Status::Refused,
        StoreOpenError::Encode(_) | StoreOpenError::Memory { .. } | StoreOpenError::Disk(_) => Status::System,
    }
}

pub(super) fn create(error: &CreateError) -> Failure {
    let status = match error {
        CreateError::Store(error) => match error {
            StoreCreateError::InUse { .. } => Status::InUse,
            StoreCreateError::Exists { .. }
            | StoreCreateError::NotEmpty { .. }
            | StoreCreateError::Filesystem { .. }
            | StoreCreateError::Geometry(_)
            | StoreCreateError::Encode(_)
            | StoreCreateError::Epoch(_) => Status::Refused,
            StoreCreateError::Open(error) => open_status(error),
            StoreCreateError::Disk(_) => Status::System,
        },
        CreateError::Open(error) => return open(error),
    };
    Failure::new(status, error)
}

pub(super) fn read(error: &ReadError) -> Failure {
    let status = match error {
        ReadError::Damaged { .. } => Status::Damage,
        ReadError::Io { .. } => Status::System,
        ReadError::AtEnd { .. }
        | ReadError::Purged { .. }
        | ReadError::InsideRecord { .. }
        | ReadError::Beyond { .. }
        | ReadError::Ended { .. } => Status::Refused,
    };
    Failure::new(status, error)
}
