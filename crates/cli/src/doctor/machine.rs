//! Limits of the process, and the machine: memory, processors.

use super::Asked;
use super::finding::{Finding, Group, Level};
use super::tree::{Tree, count_of_list};

/// A segment of the default size.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Pinned comfortably: the images of a few segments for each of a few peers.
const PINNED_BYTES: u64 = 8 * SEGMENT_BYTES;
/// A member of a group needs a few dozen descriptors, its clients one each.
const FILES_MIN: u64 = 512;

pub(super) fn look(tree: &Tree, asked: &Asked, has_device: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(memlock(tree, asked, has_device));
    findings.extend(open_files(tree));
    findings.extend(core_files(tree));
    findings.extend(memory_limit(tree));
    findings.push(processors(tree));
    findings.extend(nodes(tree));
    findings.extend(memory(tree));
    findings.extend(huge_pages(tree));
    findings
}

/// A soft limit of /proc/self/limits; the inner `None` is "unlimited".
fn limit(tree: &Tree, name: &str) -> Option<Option<u64>> {
    let text = tree.text("proc/self/limits")?;
    let row = text.lines().find_map(|line| line.strip_prefix(name))?;
    match row.split_whitespace().next()? {
        "unlimited" => Some(None),
        number => Some(Some(number.parse().ok()?)),
    }
}

fn memlock(tree: &Tree, asked: &Asked, has_device: bool) -> Option<Finding> {
    let finding =
        |level, seen: String, means: &str| Some(Finding::new(Group::Limits, "memlock", level, seen, means));
    let Some(bytes) = limit(tree, "Max locked memory")? else {
        return finding(Level::Ok, "locked memory: unlimited".into(), "registrations may pin what they need");
    };
    let seen = format!("locked memory: at most {}", size(bytes));
    let found = if !has_device && !asked.wants_verbs() {
        finding(Level::Ok, seen, "the tcp fabric locks none; verbs would pin memory and count it here")
    } else if bytes >= PINNED_BYTES {
        finding(Level::Ok, seen, "enough for the images of a few segments of the default size")
    } else {
        let means = "a device pins rings of some MiB, and, where segments are not registered on demand, an image of each that is open \
                     to a primary (64 MiB by default): registering fails where this is passed. For a service: LimitMEMLOCK=infinity in its unit; for \
                     log-ins: `* - memlock unlimited` in /etc/security/limits.d/windlass.conf";
        finding(asked.broken(), seen, means)
    };
    Some(found?.value("bytes", bytes).run("ulimit -l unlimited"))
}

fn open_files(tree: &Tree) -> Option<Finding> {
    let finding = |level, seen: String, means: &str| Finding::new(Group::Limits, "files", level, seen, means);
    let means = "segments are closed once mapped; sockets of peers and clients count";
    Some(match limit(tree, "Max open files")? {
        None => finding(Level::Ok, "open files: unlimited".into(), means),
        Some(files) if files >= FILES_MIN => {
            finding(Level::Ok, format!("open files: at most {files}"), means).value("files", files)
        }
        Some(files) => {
            let means = "few for a member of a group: each peer takes some, each client one";
            finding(Level::Warning, format!("open files: at most {files}"), means)
                .value("files", files)
                .run("ulimit -n 4096")
        }
    })
}

fn core_files(tree: &Tree) -> Option<Finding> {
    let limit = limit(tree, "Max core file size")?;
    Some(if limit == Some(0) {
        let means = "a process that dies leaves no dump; what it died of is in its last lines alone";
        Finding::new(Group::Limits, "core", Level::Ok, "core dumps: none", means).run("ulimit -c unlimited")
    } else {
        let means = "a dump holds what is in memory, the group's secret and records among it: keep it as safe as the data";
        Finding::new(Group::Limits, "core", Level::Note, "core dumps: written", means).run("ulimit -c 0")
    })
}

/// The least memory limit of the process's control groups, and whose it is.
fn least_memory_limit(tree: &Tree) -> Option<(u64, String)> {
    let groups = tree.text("proc/self/cgroup")?;
    let mut least: Option<(u64, String)> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (mount, file) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        // Each group above counts too. In a container the path may be the outside's: then only the root of the mount is there.
        let mut path = path.trim_matches('/');
        loop {
            let folder = if path.is_empty() { mount.to_owned() } else { format!("{mount}/{path}") };
            if let Some(bytes) = tree.number::<u64>(&format!("{folder}/{file}"))
                && least.as_ref().is_none_or(|(least, _)| bytes < *least)
            {
                least = Some((bytes, format!("/{folder}/{file}")));
            }
            if path.is_empty() {
                break;
            }
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    least
}

fn memory_limit(tree: &Tree) -> Option<Finding> {
    let total = meminfo(tree, "MemTotal")?;
    let limited = least_memory_limit(tree).filter(|(bytes, _)| *bytes < total);
    let Some((bytes, file)) = limited else {
        let means = "mapped segments live in the page cache, which may take what is free";
        return Some(Finding::new(
            Group::Limits,
            "cgroup",
            Level::Ok,
            "no memory limit by control group",
            means,
        ));
    };
    let seen = format!("memory: at most {} by {file}", size(bytes));
    let found = if bytes < 8 * SEGMENT_BYTES {
        let means = "mapped segments count: below some segments (64 MiB each by default) the kernel takes pages away while \
                     they are appended to, and each comes back by a read. Raise the limit, or make a log with --segment-bytes 1048576";
        Finding::new(Group::Limits, "cgroup", Level::Warning, seen, means)
            .run(format!("echo {} > {file}", 16 * SEGMENT_BYTES))
    } else {
        Finding::new(
            Group::Limits,
            "cgroup",
            Level::Ok,
            seen,
            "mapped segments count; this holds several of the default size",
        )
    };
    Some(found.value("bytes", bytes).value("file", file))
}

fn processors(tree: &Tree) -> Finding {
    let list = tree.text("sys/devices/system/cpu/online").unwrap_or_default();
    let count = count_of_list(&list);
    let seen = format!("processors: {count} online ({list})");
    let finding = |level, means: &str| Finding::new(Group::Machine, "processors", level, seen.clone(), means);
    let found = match count {
        0 => finding(Level::Note, "how many there are is not known"),
        1 => finding(
            Level::Warning,
            "the pump that polls for completions, flushes and the application share one: each waits for the others, and waits that spin are worth nothing: let the pump sleep",
        )
        .run("windlass node --config FILE --member N --wait event"),
        2 | 3 => finding(
            Level::Note,
            "a pump that polls without a pause would take a large part of the machine: leave it at `--wait adaptive`, the default of `windlass node`",
        ),
        _ => finding(Level::Ok, "one may be given to a pump that polls without a pause"),
    };
    found.value("count", count)
}

fn nodes(tree: &Tree) -> Option<Finding> {
    let count = count_of_list(&tree.text("sys/devices/system/node/online")?);
    let finding = |seen: String, level, means: &str| Finding::new(Group::Machine, "numa", level, seen, means);
    let found = if count > 1 {
        let means = "run a member on the node of its device (below RDMA devices) and of its disk: each access across nodes costs";
        finding(format!("NUMA: {count} nodes"), Level::Note, means)
            .run("numactl --cpunodebind=N --membind=N windlass node ...")
    } else {
        finding("NUMA: one node".into(), Level::Ok, "memory is equally far from all processors")
    };
    Some(found.value("nodes", count))
}

/// A row of /proc/meminfo, in bytes.
fn meminfo(tree: &Tree, name: &str) -> Option<u64> {
    let text = tree.text("proc/meminfo")?;
    let row = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(row.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024))
}

fn memory(tree: &Tree) -> Option<Finding> {
    let total = meminfo(tree, "MemTotal")?;
    let swap = meminfo(tree, "SwapTotal").unwrap_or(0);
    let swappiness = tree.number::<u32>("proc/sys/vm/swappiness").unwrap_or(60);
    let finding =
        |level, seen: String, means: &str| Finding::new(Group::Machine, "memory", level, seen, means);
    let found = if swap == 0 {
        finding(
            Level::Ok,
            format!("memory: {}, no swap", size(total)),
            "nothing of the process is ever swapped out",
        )
    } else {
        let seen = format!("memory: {}, swap {}, swappiness {swappiness}", size(total), size(swap));
        let level = if swappiness > 10 { Level::Note } else { Level::Ok };
        let means = "segments are never swapped, they are files. The rest of the process is: a primary that waits for swap can be \
                     silent for longer than suspicion_ms, and is then taken over from";
        let found = finding(level, seen, means);
        if swappiness > 10 { found.run("sysctl -w vm.swappiness=1") } else { found }
    };
    Some(found.value("total_bytes", total).value("swap_bytes", swap).value("swappiness", swappiness))
}

fn huge_pages(tree: &Tree) -> Option<Finding> {
    let anonymous = tree.chosen("sys/kernel/mm/transparent_hugepage/enabled")?;
    let shared = tree.chosen("sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let seen = format!(
        "transparent huge pages: {anonymous}, for memory filesystems {}",
        shared.as_deref().unwrap_or("unknown")
    );
    let means = "segments on a disk are not concerned: they are mapped so that the page cache keeps small pages, because one stored \
                 byte makes a whole large one dirty. On a memory filesystem nothing is written back";
    let found =
        Finding::new(Group::Machine, "huge_pages", Level::Ok, seen, means).value("anonymous", anonymous);
    Some(match shared {
        Some(shared) => found.value("shared", shared),
        None => found,
    })
}

/// Bytes for people.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut whole = bytes;
    let mut rest = 0;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        rest = whole % 1024 * 10 / 1024;
        whole /= 1024;
        unit += 1;
    }
    if rest == 0 || whole >= 100 {
        format!("{whole} {}", UNITS[unit])
    } else {
        format!("{whole}.{rest} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(100), "100 bytes");
        assert_eq!(size(8 << 20), "8 MiB");
        assert_eq!(size((3 << 30) / 2), "1.5 GiB");
        assert_eq!(size(u64::MAX), "16777215 TiB");
    }

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let tree = Tree::new(Some(folder.path()));
        (folder, tree)
    }

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let (_folder, two) = tree(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "268435456\n"),
        ]);
        assert_eq!(least_memory_limit(&two), Some((256 << 20, "/sys/fs/cgroup/a/memory.max".into())));
        let (_folder, one) = tree(&[
            ("proc/self/cgroup", "4:memory:/x\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
        ]);
        assert_eq!(least_memory_limit(&one).map(|found| found.0), Some(1 << 30));
    }

    #[test]
    fn limits_are_read_by_name() {
        let (_folder, tree) = tree(&[(
            "proc/self/limits",
            "Limit   Soft   Hard  Units\nMax open files            1024                 4096                 files\n\
             Max locked memory         unlimited            unlimited            bytes\n",
        )]);
        assert_eq!(limit(&tree, "Max open files"), Some(Some(1024)));
        assert_eq!(limit(&tree, "Max locked memory"), Some(None));
        assert_eq!(limit(&tree, "Max nothing"), None);
    }
}
