//! What all connections of one fabric share: keys, regions, windows, the names of connections.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use slog::Logger;
use windlass_fabric::{Access, Memory, Region, RemoteKey, RemoteRange, Window};

use crate::endpoint::Token;
use crate::link::Link;
use crate::options::Options;
use crate::ration::Ration;

/// A panic of a thread that held a lock ends its connection (see `agent`); the others go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn reading<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn writing<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Windows, or regions open to peers, at once.
pub(crate) const KEYS_MAX: u32 = 1 << 16;
/// Binds of one window before a key would repeat.
const BINDS_MAX: u32 = 255;
/// Marks the keys of whole regions, which are good on every connection.
const REGION_BIT: u32 = 1 << 31;
const INDEX_COUNT: u32 = 1 << 23;

#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) options: Options,
    pub(crate) logger: Logger,
    /// Regions open to all peers, by key.
    regions: RwLock<HashMap<u32, Arc<RegionInner>>>,
    region_keys: Mutex<KeySpace>,
    window_keys: Mutex<KeySpace>,
    /// Connections by their token, for the acceptor.
    pub(crate) links: Mutex<HashMap<Token, Weak<Link>>>,
    pub(crate) connections: AtomicU64,
    /// Of lines about refusals.
    pub(crate) refusals: Mutex<Ration>,
}

impl Domain {
    pub(crate) fn new(options: Options, logger: Logger) -> Self {
        Self {
            options,
            logger,
            regions: RwLock::default(),
            region_keys: Mutex::default(),
            window_keys: Mutex::default(),
            links: Mutex::default(),
            connections: AtomicU64::new(0),
            refusals: Mutex::default(),
        }
    }

    /// The region that a key of the region kind opens.
    pub(crate) fn region(&self, key: u32) -> Option<Arc<RegionInner>> {
        if key & REGION_BIT == 0 {
            return None;
        }
        reading(&self.regions).get(&key).cloned()
    }
}

/// Numbers given out in turn, so that one given back rests as long as possible before it is used again.
#[derive(Debug, Default)]
struct KeySpace {
    used: HashSet<u32>,
    next: u32,
}

impl KeySpace {
    fn take(&mut self) -> Option<u32> {
        if self.used.len() >= usize::try_from(KEYS_MAX).unwrap_or(usize::MAX) {
            return None;
        }
        loop {
            let index = self.next;
            self.next = (self.next + 1) % INDEX_COUNT;
            if self.used.insert(index) {
                return Some(index);
            }
        }
    }

    fn give(&mut self, index: u32) {
        self.used.remove(&index);
    }
}

/// The memory of a region, until the region is dropped.
#[derive(Debug)]
pub(crate) struct RegionInner {
    memory: RwLock<Option<Arc<dyn Memory>>>,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// The region has been dropped.
#[derive(Debug)]
pub(crate) struct Dead;

impl RegionInner {
    /// Copies out. The range was checked against `bytes`.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Dead> {
        let memory = reading(&self.memory);
        memory.as_ref().ok_or(Dead)?.read(offset, into);
        Ok(())
    }

    /// Copies in. The range was checked against `bytes`.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Dead> {
        let memory = reading(&self.memory);
        memory.as_ref().ok_or(Dead)?.write(offset, from);
        Ok(())
    }

    /// Whether `[offset, offset + bytes)` is inside `[start, end)`.
    pub(crate) fn inside(offset: u64, bytes: u32, start: u64, end: u64) -> bool {
        offset >= start && offset.checked_add(u64::from(bytes)).is_some_and(|stop| stop <= end)
    }
}

/// Registered memory of a [`TcpFabric`](crate::TcpFabric).
#[derive(Debug)]
pub struct TcpRegion {
    domain: Arc<Domain>,
    pub(crate) inner: Arc<RegionInner>,
    memory: Arc<dyn Memory>,
    index: Option<u32>,
}

impl TcpRegion {
    /// `None` when there are too many with remote access.
    pub(crate) fn new(domain: &Arc<Domain>, memory: Arc<dyn Memory>, access: Access) -> Option<Self> {
        let inner = Arc::new(RegionInner {
            memory: RwLock::new(Some(Arc::clone(&memory))),
            bytes: memory.len(),
            access,
        });
        let open = access.intersects(Access::REMOTE_READ | Access::REMOTE_WRITE);
        let index = if open { Some(lock(&domain.region_keys).take()?) } else { None };
        if let Some(index) = index {
            writing(&domain.regions).insert(region_key(index), Arc::clone(&inner));
        }
        Some(Self { domain: Arc::clone(domain), inner, memory, index })
    }
}

fn region_key(index: u32) -> u32 {
    REGION_BIT | index << 8
}

impl Region for TcpRegion {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    fn access(&self) -> Access {
        self.inner.access
    }

    fn remote(&self) -> Option<RemoteRange> {
        let key = RemoteKey(region_key(self.index?));
        Some(RemoteRange { address: 0, bytes: self.inner.bytes, key })
    }
}

impl Drop for TcpRegion {
    fn drop(&mut self) {
        // Waits for the copy under way, if there is one.
        writing(&self.inner.memory).take();
        if let Some(index) = self.index {
            writing(&self.domain.regions).remove(&region_key(index));
            lock(&self.domain.region_keys).give(index);
        }
    }
}

/// A window of a [`TcpFabric`](crate::TcpFabric).
#[derive(Debug)]
pub struct TcpWindow {
    domain: Arc<Domain>,
    index: u32,
    binds: u32,
    pub(crate) bound: Option<Weak<Link>>,
}

impl TcpWindow {
    pub(crate) fn new(domain: &Arc<Domain>) -> Option<Self> {
        let index = lock(&domain.window_keys).take()?;
        Some(Self { domain: Arc::clone(domain), index, binds: 0, bound: None })
    }

    pub(crate) fn next_key(&mut self) -> u32 {
        assert!(self.binds < BINDS_MAX, "the caller has seen that there are binds left");
        self.binds += 1;
        self.key()
    }

    pub(crate) fn key(&self) -> u32 {
        self.index << 8 | self.binds
    }
}

impl Window for TcpWindow {
    fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    fn binds_left(&self) -> u32 {
        BINDS_MAX - self.binds
    }
}

impl Drop for TcpWindow {
    fn drop(&mut self) {
        if let Some(link) = self.bound.take().and_then(|link| link.upgrade()) {
            link.withdraw(self.key());
        }
        lock(&self.domain.window_keys).give(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_given_back_rests_before_it_comes_again() {
        let mut keys = KeySpace::default();
        assert_eq!((keys.take(), keys.take()), (Some(0), Some(1)));
        keys.give(0);
        assert_eq!(keys.take(), Some(2));
        keys.next = INDEX_COUNT - 1;
        assert_eq!((keys.take(), keys.take(), keys.take()), (Some(INDEX_COUNT - 1), Some(0), Some(3)));
    }

    #[test]
    fn a_range_past_the_end_of_the_numbers_is_not_inside() {
        assert!(RegionInner::inside(8, 8, 8, 16));
        assert!(!RegionInner::inside(8, 9, 8, 16));
        assert!(!RegionInner::inside(7, 1, 8, 16));
        assert!(!RegionInner::inside(u64::MAX - 1, 4, 8, u64::MAX));
    }
}
