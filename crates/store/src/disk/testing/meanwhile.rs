//! What others do at a certain moment.

use std::sync::{Mutex, PoisonError};

use super::TestDisk;

type Place = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// What is to happen, once each.
#[derive(Default)]
pub(super) struct Meanwhiles {
    pub(super) before_lock: Place,
    pub(super) before_sync_folder: Place,
    pub(super) before_read: Place,
}

fn put(place: &Place, meanwhile: impl FnOnce() + Send + 'static) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(meanwhile));
}

pub(super) fn happens(place: &Place) {
    let meanwhile = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(meanwhile) = meanwhile {
        meanwhile();
    }
}

impl TestDisk {
    /// Has this happen, once, just before the next [`Disk::lock`](crate::disk::Disk::lock) asks for the lock.
    pub fn before_lock(&self, meanwhile: impl FnOnce() + Send + 'static) {
        put(&self.meanwhiles.before_lock, meanwhile);
    }

    /// Has this happen, once, just before the next [`Disk::sync_folder`](crate::disk::Disk::sync_folder) makes names durable.
    pub fn before_sync_folder(&self, meanwhile: impl FnOnce() + Send + 'static) {
        put(&self.meanwhiles.before_sync_folder, meanwhile);
    }

    /// Has this happen, once, just before the next [`DiskFile::read_at`](crate::disk::DiskFile::read_at) reads.
    pub fn before_read(&self, meanwhile: impl FnOnce() + Send + 'static) {
        put(&self.meanwhiles.before_read, meanwhile);
    }
}
