//! How mapped files are registered: what is chosen where, and what is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_fabric::conformance::{Case as Conformance, Outcome, run_pair_over};
use windlass_fabric::{
    Access, Backing, ConnectError, Connection, ConnectionState, Fabric, HeapMemory, Local, Memory, Operation,
    Request, Source, Status, Transfer,
};
use windlass_verbs::{OpenError, PathOptions, Reason, Registration, TrialFault, VerbsFabric, VerbsOptions};

use crate::cases::{OPEN, bytes_of, region};
use crate::memory::MappedMemory;
use crate::pair::{End, connect};
use crate::{Case, Ended};

/// The suite over mapped files of a folder, registered one way.
pub(crate) fn suites() -> impl Iterator<Item = Case> {
    [Registration::Pinned, Registration::OdpPage, Registration::Staged].into_iter().flat_map(|mode| {
        Conformance::ALL.iter().map(move |case| Case {
            name: format!("{}_conformance_{}", mode.name().replace('-', "_"), case.name()),
            run: Box::new(move || conform(mode, *case)),
        })
    })
}

fn conform(mode: Registration, case: Conformance) -> Ended {
    let folder = match folder_of(mode) {
        Ok(folder) => folder,
        Err(skipped) => return skipped,
    };
    let outcome = run_pair_over(case, open(mode), open(mode), &|bytes| mapped(&folder, bytes));
    match outcome {
        Outcome::Passed => Ended::Passed,
        Outcome::Skipped(why) => Ended::Skipped(why.into()),
    }
}

/// Where files can be registered that way.
pub(crate) fn folder_of(mode: Registration) -> Result<PathBuf, Ended> {
    match mode {
        Registration::Pinned => Ok("/dev/shm".into()),
        Registration::Odp | Registration::OdpPage | Registration::Staged => disk(),
    }
}

/// A fabric that registers mapped files that way, untried: the suite is the trial.
pub(crate) fn open(mode: Registration) -> VerbsFabric {
    let options = VerbsOptions { registration: Some(mode), ..VerbsOptions::default() };
    VerbsFabric::open(&options).expect("a device")
}

pub(crate) fn mapped(folder: &Path, bytes: u64) -> Arc<dyn Memory> {
    Arc::new(MappedMemory::new(folder, bytes, Backing::MappedFile))
}

/// A folder on a disk; the guest names one.
pub(crate) fn disk() -> Result<PathBuf, Ended> {
    std::env::var_os("WINDLASS_DISK_FOLDER")
        .map(PathBuf::from)
        .ok_or_else(|| Ended::Skipped("WINDLASS_DISK_FOLDER names no folder on a disk".into()))
}

fn options(folder: PathBuf, registration: Option<Registration>) -> VerbsOptions {
    VerbsOptions { folder: Some(folder), registration, ..VerbsOptions::default() }
}

/// Soft-RoCE's on-demand paging misplaces bytes, so it must not be trusted with them.
fn is_soft_roce(fabric: &VerbsFabric) -> bool {
    fabric.description().starts_with("rxe")
}

/// What the trial finds is what the capabilities say.
pub(crate) fn kind_61_the_mode_is_chosen_by_trial_in_the_folder() -> Ended {
    let folder = match disk() {
        Ok(folder) => folder,
        Err(skipped) => return skipped,
    };
    for folder in [folder, PathBuf::from("/dev/shm")] {
        let fabric = VerbsFabric::open(&options(folder.clone(), None)).expect("a device");
        let report = fabric.registration();
        println!("   {report}");
        assert_eq!(report.folder.as_ref(), Some(&folder));
        let capabilities = fabric.capabilities();
        assert_eq!(capabilities.staged_image, report.mode == Registration::Staged);
        let whole_pages = matches!(capabilities.transfer, Transfer::WholePages { .. });
        assert_eq!(whole_pages, report.mode == Registration::OdpPage);
        if is_soft_roce(&fabric) {
            let expected =
                if folder.starts_with("/dev") { Registration::Pinned } else { Registration::OdpPage };
            assert_eq!(report.mode, expected);
        }
    }
    Ended::Passed
}

/// Where the kernel would allow it, writeback would not learn of the device's writes.
pub(crate) fn kind_62_a_file_of_a_disk_is_never_pinned_for_writing() -> Ended {
    let folder = match disk() {
        Ok(folder) => folder,
        Err(skipped) => return skipped,
    };
    let refused = VerbsFabric::open(&options(folder, Some(Registration::Pinned)));
    let Err(OpenError::Registration { mode: Registration::Pinned, fault: TrialFault::NotMemory }) = refused
    else {
        panic!("a disk's files were pinned");
    };
    let fabric =
        VerbsFabric::open(&options("/dev/shm".into(), Some(Registration::Pinned))).expect("a device");
    assert_eq!(fabric.registration().reason, Reason::Configured);
    Ended::Passed
}

pub(crate) fn a_configured_mode_that_misplaces_bytes_is_refused() -> Ended {
    let folder = match disk() {
        Ok(folder) => folder,
        Err(skipped) => return skipped,
    };
    let chosen = VerbsFabric::open(&options(folder.clone(), None)).expect("a device").registration().mode;
    for mode in [Registration::Odp, Registration::OdpPage, Registration::Staged] {
        match VerbsFabric::open(&options(folder.clone(), Some(mode))) {
            Ok(fabric) => assert_eq!(fabric.registration().mode, mode),
            Err(OpenError::Registration { mode: refused, fault }) => {
                println!("   {mode}: {fault}");
                assert_eq!(refused, mode);
                assert_ne!(mode, Registration::Staged, "it needs nothing of the device");
                assert_ne!(mode, chosen, "it was chosen by the same trial");
            }
            Err(error) => panic!("{error}"),
        }
    }
    if chosen == Registration::OdpPage {
        let refused = VerbsFabric::open(&options(folder, Some(Registration::Odp)));
        assert!(matches!(refused, Err(OpenError::Registration { .. })), "bytes end up elsewhere");
    }
    Ended::Passed
}

/// An option of one end bounds the packets of both.
pub(crate) fn kind_69_two_ends_come_to_the_same_path_mtu() -> Ended {
    let (mut active, mut passive) = (End::with(&small_packets(None)), End::with(&VerbsOptions::default()));
    for round in 0..2 {
        // Each end writes to the other: many packets, of a length that both take.
        let memory = Arc::new(HeapMemory::new(1 << 16));
        let target = region(&passive.fabric, &memory, Access::LOCAL_WRITE | Access::WINDOW_BIND);
        let source = Arc::new(HeapMemory::new(1 << 16));
        source.write(0, &[0x77; 1 << 16]);
        let from = region(&active.fabric, &source, Access::NONE);
        let (mut writer, mut owner) = (active.connection(), passive.connection());
        connect(&mut writer, &mut owner);
        let mut window = passive.fabric.allocate_window().expect("a window");
        let range = owner.bind(1, &mut window, &target, 0..1 << 16, OPEN).expect("a bind");
        passive.done(1, Status::Success);
        let local = Local { region: &from, offset: 0, bytes: (1 << 16) - 3 };
        let operation = Operation::Write { source: Source::Region(local), to: range.at(1) };
        writer.post(&[Request { id: 2, operation, signalled: true }]).expect("to post");
        active.done(2, Status::Success);
        assert!(bytes_of(&*memory, 1, (1 << 16) - 3).iter().all(|byte| *byte == 0x77), "round {round}");
        drop((writer, owner, window));
        std::mem::swap(&mut active, &mut passive);
    }
    Ended::Passed
}

/// On-demand paging has been seen to place the first packet of a page alone.
pub(crate) fn kind_69_whole_pages_need_a_path_that_carries_a_page() -> Ended {
    let folder = match disk() {
        Ok(folder) => folder,
        Err(skipped) => return skipped,
    };
    let pages = VerbsOptions { registration: Some(Registration::OdpPage), ..VerbsOptions::default() };
    for (one, other) in [(pages.clone(), small_packets(None)), (small_packets(None), pages)] {
        let (one, other) = (End::with(&one), End::with(&other));
        let (mut near, far) = (one.connection(), other.connection());
        let refused = near.connect(far.endpoint()).expect_err("a page takes four packets");
        assert!(matches!(refused, ConnectError::PathMtu { bytes: 1024, needed_bytes: 4096 }), "{refused}");
        assert_eq!(near.state(), ConnectionState::Initial);
    }
    let fabric = VerbsFabric::open(&small_packets(Some(folder))).expect("a device");
    println!("   {}", fabric.registration());
    if is_soft_roce(&fabric) {
        let reason = &fabric.registration().reason;
        assert!(
            matches!(reason, Reason::NothingElse { fault: TrialFault::SmallMtu { mtu_bytes: 1024, .. } }),
            "{reason}"
        );
        assert!(fabric.capabilities().staged_image);
    }
    Ended::Passed
}

fn small_packets(folder: Option<PathBuf>) -> VerbsOptions {
    let path = PathOptions { mtu_bytes_max: 1024, ..PathOptions::default() };
    VerbsOptions { path, folder, ..VerbsOptions::default() }
}
