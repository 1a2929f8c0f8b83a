//! Libraries, and what this binary is built with; the kernel and its modules.

use super::Asked;
use super::finding::{Finding, Group, Level};
use super::tree::Tree;

/// Where distributions put libraries.
const LIBRARY_FOLDERS: &[&str] = &[
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib64",
    "lib64",
    "usr/lib",
    "lib",
    "usr/local/lib",
];
const LIBRARY: &str = "libibverbs.so.1";
/// What builds it, from this repository.
const BUILD: &str = "cargo build --release -p windlass-cli --features verbs";

pub(super) fn look(tree: &Tree, asked: &Asked) -> Vec<Finding> {
    let mut findings = vec![build(asked)];
    findings.extend(library(tree, asked));
    findings.push(kernel(tree));
    findings.extend(modules(tree, asked));
    findings
}

fn build(asked: &Asked) -> Finding {
    let means = "this binary can replicate over libibverbs, which it looks for when it is asked to";
    if cfg!(feature = "verbs") {
        return Finding::new(Group::Software, "build", Level::Ok, "built with the verbs provider", means)
            .value("verbs", true);
    }
    let level = if asked.wants_verbs() { Level::Problem } else { Level::Note };
    let means = "it replicates over tcp alone, and devices can be looked at here but not tried";
    Finding::new(Group::Software, "build", level, "built without the verbs provider", means)
        .value("verbs", false)
        .run(BUILD)
}

fn library(tree: &Tree, asked: &Asked) -> Vec<Finding> {
    let found = LIBRARY_FOLDERS.iter().find(|folder| tree.exists(&format!("{folder}/{LIBRARY}")));
    let Some(folder) = found else {
        let means = "verbs programs reach a device through it; tcp does without";
        return vec![
            Finding::new(Group::Software, "library", asked.absent(), format!("no {LIBRARY}"), means)
                .run("apt-get install libibverbs1 ibverbs-providers"),
        ];
    };
    let path = format!("/{folder}/{LIBRARY}");
    let release = tree.link(&format!("{folder}/{LIBRARY}")).unwrap_or_else(|| LIBRARY.to_owned());
    let means = "the library that verbs programs load at run time";
    let mut findings = vec![
        Finding::new(Group::Software, "library", Level::Ok, format!("{path} ({release})"), means)
            .value("path", path.as_str()),
    ];
    // `libmlx5.so` names and the plug-ins' own, `libmlx5-rdmav34.so`.
    let mut providers: Vec<String> = tree
        .names(&format!("{folder}/libibverbs"))
        .iter()
        .filter_map(|name| Some(name.strip_prefix("lib")?.split_once("-rdmav")?.0.to_owned()))
        .collect();
    providers.sort();
    providers.dedup();
    findings.push(if providers.is_empty() {
        let means =
            "each kind of device has a part of its own in user space; without it the library finds no device";
        Finding::new(Group::Software, "providers", asked.absent(), "no providers of libibverbs", means)
            .run("apt-get install ibverbs-providers")
    } else {
        let seen = format!("providers: {}", providers.join(", "));
        let means = "the devices that the library can drive";
        Finding::new(Group::Software, "providers", Level::Ok, seen, means).value("names", providers)
    });
    findings
}

/// The release as (major, minor).
pub(super) fn release(tree: &Tree) -> Option<(u32, u32)> {
    let text = tree.text("proc/sys/kernel/osrelease")?;
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(tree: &Tree) -> Finding {
    let Some(release) = release(tree) else {
        let means = "what it can is not known";
        return Finding::new(
            Group::Kernel,
            "release",
            Level::Note,
            "no release of the kernel to be read",
            means,
        );
    };
    let seen = format!("Linux {}", tree.text("proc/sys/kernel/osrelease").unwrap_or_default());
    let means = match release {
        (major, minor) if (major, minor) >= (6, 5) => {
            "since 6.5 the kernel refuses pinned registrations for writing of mapped files on a disk: segments are \
             registered on demand where the device can, else a pinned image stands in for them"
        }
        (major, minor) if (major, minor) >= (5, 14) => {
            "before 6.5 the kernel lets a mapped file be pinned for writing, and loses the device's writes; windlass never \
             asks for it"
        }
        _ => "before 5.14 Soft-RoCE has no memory windows; the tcp fabric is not concerned",
    };
    Finding::new(Group::Kernel, "release", Level::Ok, seen, means)
        .value("major", release.0)
        .value("minor", release.1)
}

fn modules(tree: &Tree, asked: &Asked) -> Vec<Finding> {
    let mut loaded: Vec<String> = tree
        .names("sys/module")
        .into_iter()
        .filter(|name| {
            DRIVERS.iter().any(|driver| driver.module == name)
                || name.starts_with("ib_")
                || name == "mlx5_core"
        })
        .collect();
    loaded.sort();
    if !loaded.iter().any(|name| name == "ib_core") && !tree.exists("sys/class/infiniband") {
        let means = "no RDMA subsystem in this kernel, or not loaded: windlass runs over tcp. A card brings its module with its driver; \
                     without a card Soft-RoCE makes a device of any Ethernet interface, for tests and not for speed";
        return vec![
            Finding::new(Group::Kernel, "modules", asked.absent(), "no RDMA modules loaded", means)
                .run("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE"),
        ];
    }
    let seen = format!("modules: {}", loaded.join(", "));
    let means = "the kernel's RDMA core and the drivers of devices";
    let mut findings =
        vec![Finding::new(Group::Kernel, "modules", Level::Ok, seen, means).value("names", loaded)];
    findings.push(user_access(tree, asked));
    findings
}

/// The files through which a process reaches devices.
fn user_access(tree: &Tree, asked: &Asked) -> Finding {
    let files: Vec<String> =
        tree.names("dev/infiniband").into_iter().filter(|name| name.starts_with("uverbs")).collect();
    let finding = |level, seen: &str, means: &str| Finding::new(Group::Kernel, "uverbs", level, seen, means);
    if files.is_empty() {
        if tree.names("sys/class/infiniband").is_empty() {
            return finding(Level::Note, "no /dev/infiniband/uverbs*", "there is no device to reach");
        }
        let means = "devices are there and no way to them: the module ib_uverbs is not loaded, or a container does not pass the \
                     files through (docker run --device /dev/infiniband)";
        return finding(asked.broken(), "no /dev/infiniband/uverbs*", means).run("modprobe ib_uverbs");
    }
    let both = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    let closed: Vec<String> = files
        .iter()
        .filter(|name| rustix::fs::access(tree.path(&format!("dev/infiniband/{name}")), both).is_err())
        .map(|name| format!("/dev/infiniband/{name}"))
        .collect();
    if closed.is_empty() {
        let seen = format!("/dev/infiniband: {}", files.join(", "));
        return finding(Level::Ok, &seen, "this user may open them").value("files", files);
    }
    let seen = format!("this user may not open {}", closed.join(", "));
    finding(asked.broken(), &seen, "no verbs for this user").run(format!("chmod a+rw {}", closed.join(" ")))
}

/// What is known of a driver's devices.
pub(super) struct Driver {
    pub(super) module: &'static str,
    pub(super) device: &'static str,
    pub(super) level: Level,
    pub(super) means: &'static str,
}

/// Drivers of RDMA devices in Linux. What is said of memory is what the vendors say; the trial decides.
pub(super) const DRIVERS: &[Driver] = &[
    Driver {
        module: "mlx5_ib",
        device: "NVIDIA ConnectX-4 or later",
        level: Level::Ok,
        means: "has on-demand paging and memory windows: the full shape is expected, segments written in place",
    },
    Driver {
        module: "rdma_rxe",
        device: "Soft-RoCE, a device in software",
        level: Level::Note,
        means: "for tests and not for speed: all work is done by the processor. Its on-demand paging misplaces what is not a whole page, \
                so that segments are written in whole pages, or through a pinned image",
    },
    Driver {
        module: "mlx4_ib",
        device: "NVIDIA ConnectX-3",
        level: Level::Note,
        means: "no on-demand paging of use here: a pinned image stands in for the live segments",
    },
    Driver {
        module: "bnxt_re",
        device: "Broadcom NetXtreme",
        level: Level::Note,
        means: "memory has to be pinned: an image stands in for the live segments, at the price of one copy at the backup",
    },
    Driver {
        module: "irdma",
        device: "Intel E810 or later",
        level: Level::Note,
        means: "memory has to be pinned: an image stands in for the live segments, at the price of one copy at the backup",
    },
    Driver {
        module: "qedr",
        device: "Marvell FastLinQ",
        level: Level::Note,
        means: "memory has to be pinned: an image stands in for the live segments, at the price of one copy at the backup",
    },
    Driver {
        module: "efa",
        device: "Amazon EFA",
        level: Level::Warning,
        means: "it has no reliable connections as windlass needs them: use the tcp fabric",
    },
    Driver {
        module: "siw",
        device: "Soft-iWARP",
        level: Level::Warning,
        means: "iWARP is not RoCE: windlass does not connect over it; use Soft-RoCE or the tcp fabric",
    },
    Driver {
        module: "hfi1",
        device: "Omni-Path",
        level: Level::Note,
        means: "never tried; the processor does the work of verbs there",
    },
];
