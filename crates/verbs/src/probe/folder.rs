//! How mapped files of one folder are best registered: tried there, since it depends on device, driver, kernel and filesystem.
//!
//! A transfer counts as right when every byte of the file, of the other memory and, after a flush, of the disk is as it should be: some
//! on-demand paging reports success and puts bytes elsewhere.

use std::path::Path;
use std::sync::Arc;

use ibverbs_sys as sys;
use windlass_fabric::{Access, Connection, Fabric, HeapMemory, Memory, Region, RemoteRange, Status};

use super::loopback::{Loopback, step};
use super::scratch::{Scratch, is_memory_filesystem};
use crate::error::OpenError;
use crate::fabric::VerbsFabric;
use crate::mode::{Reason, Registration, RegistrationReport, Trial, TrialFault, page_bytes};
use crate::options::mtu_bytes;
use crate::region::VerbsRegion;
use crate::window::VerbsWindow;

/// Pages of the scratch file.
const PAGES: u64 = 8;

/// Chooses the mode: the configured one, if it is right; otherwise the first that is.
pub(crate) fn choose(
    fabric: &VerbsFabric,
    folder: Option<&Path>,
    configured: Option<Registration>,
) -> Result<RegistrationReport, OpenError> {
    let report = |mode, reason, prefetch| RegistrationReport {
        mode,
        reason,
        folder: folder.map(Path::to_path_buf),
        prefetch,
    };
    let Some(folder) = folder else {
        return Ok(match configured {
            Some(mode) => report(mode, Reason::Configured, false),
            None => report(Registration::Staged, Reason::NoFolder, false),
        });
    };
    if let Some(mode) = configured {
        let prefetch =
            tried(fabric, folder, mode).map_err(|fault| OpenError::Registration { mode, fault })?;
        return Ok(report(mode, Reason::Configured, prefetch));
    }
    let fault = match tried(fabric, folder, Registration::Odp) {
        Ok(prefetch) => return Ok(report(Registration::Odp, Reason::EveryByteRight, prefetch)),
        Err(fault) => fault,
    };
    if tried(fabric, folder, Registration::Pinned).is_ok() {
        return Ok(report(Registration::Pinned, Reason::MemoryFilesystem { fault }, false));
    }
    match tried(fabric, folder, Registration::OdpPage) {
        Ok(prefetch) => Ok(report(Registration::OdpPage, Reason::WholePagesAlone { fault }, prefetch)),
        // Of the two faults the one that is in the way of any on-demand paging.
        Err(fault) => Ok(report(Registration::Staged, Reason::NothingElse { fault }, false)),
    }
}

/// Tries one mode: whether prefetching worked, or what was wrong.
fn tried(fabric: &VerbsFabric, folder: &Path, mode: Registration) -> Result<bool, TrialFault> {
    match mode {
        Registration::Staged => return Ok(false),
        Registration::Pinned => {
            if !is_memory_filesystem(folder).map_err(step("asking for the filesystem"))? {
                return Err(TrialFault::NotMemory);
            }
        }
        Registration::Odp => offered(fabric)?,
        Registration::OdpPage => {
            offered(fabric)?;
            let (mtu_bytes, page_bytes) = (mtu_bytes(fabric.mtu()), page_bytes());
            if mtu_bytes < page_bytes {
                return Err(TrialFault::SmallMtu { mtu_bytes, page_bytes });
            }
        }
    }
    let fabric = fabric.with_mode(mode);
    let mut bench = Bench::new(&fabric, folder)?;
    let prefetch = bench.file.prefetch(0..bench.bytes);
    let page = u64::from(page_bytes());
    let whole = [(0, page), (3 * page, page), (page, 4 * page), (0, PAGES * page)];
    // The gentlest first: a device that fails at one is not asked for more.
    let odd = [
        (100, 64),
        (8, 8),
        (page - 1, 1),
        (page + 1, page - 1),
        (page - 30, 100),
        (2 * page + 777, 3 * page + 5),
        (5 * page - 8, 16),
    ];
    let places: Vec<(u64, u64)> =
        if mode == Registration::OdpPage { whole.to_vec() } else { [&whole[..], &odd].concat() };
    for (offset, bytes) in places {
        bench.each_way(offset, u32::try_from(bytes).unwrap_or(u32::MAX))?;
    }
    Ok(prefetch)
}

/// Whether the device says that it can do on demand what is needed.
fn offered(fabric: &VerbsFabric) -> Result<(), TrialFault> {
    let needed = sys::IBV_ODP_SUPPORT_WRITE | sys::IBV_ODP_SUPPORT_READ;
    if fabric.on_demand() & needed == needed { Ok(()) } else { Err(TrialFault::NotOffered) }
}

/// The scratch file, opened to a loop-back peer, and what each should hold.
struct Bench {
    pair: Loopback,
    scratch: Arc<Scratch>,
    file: VerbsRegion,
    file_model: Vec<u8>,
    plain: Arc<HeapMemory>,
    plain_region: VerbsRegion,
    plain_model: Vec<u8>,
    file_range: RemoteRange,
    plain_range: RemoteRange,
    /// Dropped after the connection that they are bound on.
    _windows: Vec<VerbsWindow>,
    bytes: u64,
    seed: u8,
}

impl Bench {
    fn new(fabric: &VerbsFabric, folder: &Path) -> Result<Bench, TrialFault> {
        let bytes = PAGES * u64::from(page_bytes());
        let scratch =
            Arc::new(Scratch::new(folder, bytes).map_err(step("making a scratch file in the log's folder"))?);
        let plain = Arc::new(HeapMemory::new(bytes));
        let has_windows = fabric.capabilities().windows;
        let access = Access::LOCAL_WRITE
            | if has_windows { Access::WINDOW_BIND } else { Access::REMOTE_READ | Access::REMOTE_WRITE };
        let file = fabric
            .register(Arc::clone(&scratch) as Arc<dyn Memory>, access)
            .map_err(step("registering the scratch file"))?;
        let plain_region = fabric
            .register(Arc::clone(&plain) as Arc<dyn Memory>, access)
            .map_err(step("registering memory"))?;
        let mut pair = Loopback::new(fabric)?;
        let mut windows = Vec::new();
        let file_range = open(fabric, &mut pair, &file, &mut windows)?;
        let plain_range = open(fabric, &mut pair, &plain_region, &mut windows)?;
        let model = vec![0; usize::try_from(bytes).unwrap_or(0)];
        Ok(Bench {
            pair,
            scratch,
            file,
            file_model: model.clone(),
            plain,
            plain_region,
            plain_model: model,
            file_range,
            plain_range,
            _windows: windows,
            bytes,
            seed: 0,
        })
    }

    /// One stretch: written into, written again after a flush, on the disk, read out of, and taken as a source.
    fn each_way(&mut self, offset: u64, bytes: u32) -> Result<(), TrialFault> {
        self.write_into(Trial::Write, offset, bytes)?;
        self.scratch.flush().map_err(step("flushing the scratch file"))?;
        self.write_into(Trial::WriteAfterFlush, offset, bytes)?;
        self.scratch.flush().map_err(step("flushing the scratch file"))?;
        if let Some(medium) = self.scratch.on_medium().map_err(step("reading the scratch file"))? {
            compare(Trial::Medium, (offset, bytes), &medium, &self.file_model)?;
        }
        self.blank_plain();
        let status = self.pair.read(&self.plain_region, offset, bytes, self.file_range.at(offset))?;
        self.arrived_in_plain(Trial::Read, offset, bytes, status)?;
        self.blank_plain();
        let status = self.pair.write(&self.file, offset, bytes, self.plain_range.at(offset))?;
        self.arrived_in_plain(Trial::Source, offset, bytes, status)
    }

    /// New bytes at the same stretch of the other memory, written into the file.
    fn write_into(&mut self, what: Trial, offset: u64, bytes: u32) -> Result<(), TrialFault> {
        self.seed = self.seed.wrapping_add(29);
        let range = span(offset, bytes);
        for (at, byte) in self.plain_model.iter_mut().enumerate() {
            *byte = at.to_le_bytes()[0].wrapping_mul(31) ^ at.to_le_bytes()[1] ^ self.seed;
        }
        self.plain.write(0, &self.plain_model);
        self.file_model[range.clone()].copy_from_slice(&self.plain_model[range]);
        let status = self.pair.write(&self.plain_region, offset, bytes, self.file_range.at(offset))?;
        ended(what, offset, bytes, status)?;
        compare(what, (offset, bytes), &whole(&*self.scratch), &self.file_model)
    }

    fn blank_plain(&mut self) {
        self.plain_model.fill(0xee);
        self.plain.write(0, &self.plain_model);
    }

    /// The stretch of the file, and nothing else, has come into the other memory.
    fn arrived_in_plain(
        &mut self,
        what: Trial,
        offset: u64,
        bytes: u32,
        status: Status,
    ) -> Result<(), TrialFault> {
        ended(what, offset, bytes, status)?;
        let range = span(offset, bytes);
        self.plain_model[range.clone()].copy_from_slice(&self.file_model[range]);
        compare(what, (offset, bytes), &whole(&*self.plain), &self.plain_model)
    }
}

fn span(offset: u64, bytes: u32) -> std::ops::Range<usize> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    start..start + usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn whole(memory: &dyn Memory) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(memory.len()).unwrap_or(0)];
    memory.read(0, &mut bytes);
    bytes
}

/// Opens a region to the writer, by a window where there are any.
fn open(
    fabric: &VerbsFabric,
    pair: &mut Loopback,
    region: &VerbsRegion,
    windows: &mut Vec<VerbsWindow>,
) -> Result<RemoteRange, TrialFault> {
    if let Some(range) = region.remote() {
        return Ok(range);
    }
    let mut window = fabric.allocate_window().map_err(step("allocating a window"))?;
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let bytes = region.memory().len();
    let range =
        pair.owner.bind(1, &mut window, region, 0..bytes, access).map_err(step("binding a window"))?;
    windows.push(window);
    let status = pair.next()?;
    if status.is_success() { Ok(range) } else { Err(TrialFault::Bind { status }) }
}

fn ended(what: Trial, offset: u64, bytes: u32, status: Status) -> Result<(), TrialFault> {
    if status.is_success() { Ok(()) } else { Err(TrialFault::Refused { what, offset, bytes, status }) }
}

fn compare(
    what: Trial,
    (offset, bytes): (u64, u32),
    found: &[u8],
    expected: &[u8],
) -> Result<(), TrialFault> {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => Err(TrialFault::Misplaced {
            what,
            offset,
            bytes,
            at: at as u64,
            found: found[at],
            expected: expected[at],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_byte_is_named() {
        let fault = compare(Trial::Write, (100, 64), &[1, 2, 3], &[1, 9, 3]).unwrap_err();
        let TrialFault::Misplaced { at: 1, found: 2, expected: 9, .. } = fault else { panic!("{fault}") };
        assert_eq!(compare(Trial::Write, (100, 64), &[1, 2], &[1, 2]), Ok(()));
        let refused = ended(Trial::Read, 0, 8, Status::RemoteAccess).unwrap_err();
        assert!(refused.to_string().contains("RemoteAccess"), "{refused}");
    }
}
