//! The folder of the log: its filesystem, the room there, the disk below.

use std::path::{Path, PathBuf};

use windlass::store::disk::{Filesystem, FilesystemClass};

use super::finding::{Finding, Group, Level};
use super::machine::size;
use super::software::release;
use super::tree::Tree;

/// What an empty log of the default segment size takes.
const EMPTY_BYTES: u64 = 192 << 20;
/// What a log keeps by default at most, and what is prepared ahead of it.
const FULL_BYTES: u64 = (4 << 30) + EMPTY_BYTES;

/// A mount, of /proc/self/mountinfo.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mount {
    /// `major:minor`.
    device: String,
    /// Where it is.
    point: PathBuf,
    filesystem: String,
    options: Vec<String>,
}

pub(super) fn look(tree: &Tree, folder: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    if tree.live
        && let Some(stands) = in_the_way(folder)
    {
        return vec![stands.about(folder.display().to_string().as_str())];
    }
    // An absent folder will be made in one that is there.
    let present = if tree.live {
        folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."))
    } else {
        folder
    };
    let present = if present.as_os_str().is_empty() { Path::new(".") } else { present };
    let resolved = if tree.live { present.canonicalize() } else { Ok(present.to_owned()) };
    let resolved = match resolved {
        Ok(resolved) => resolved,
        Err(error) => {
            let seen = format!("{}: {error}", present.display());
            return vec![finding(
                "folder",
                Level::Problem,
                seen,
                "nothing can be said of it, nor a log be kept there",
            )];
        }
    };
    if present != folder {
        let seen = format!("{} is not there; {} is", folder.display(), resolved.display());
        findings.push(finding("folder", Level::Note, seen, "opening makes one folder, not those above it"));
    }
    let Some(mount) = tree.text("proc/self/mountinfo").and_then(|text| mount_of(&text, &resolved)) else {
        findings.push(finding(
            "filesystem",
            Level::Note,
            "no mount to be read".into(),
            "its filesystem is not known",
        ));
        return findings;
    };
    findings.push(filesystem(tree, &mount, &resolved));
    findings.extend(options(&mount));
    findings.extend(folios(tree, &mount));
    if tree.live {
        findings.extend(room(&resolved));
        findings.extend(access(&resolved));
    }
    findings.extend(disk(tree, &mount));
    let path = folder.display().to_string();
    findings.into_iter().map(|finding| finding.about(path.as_str())).collect()
}

/// What keeps this path from being a folder, or from being made one: something else of this name, or above it, or a name that can't be.
fn in_the_way(folder: &Path) -> Option<Finding> {
    for path in folder.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        let problem =
            |seen, means, run: String| Some(finding("folder", Level::Problem, seen, means).run(run));
        let name = path.display();
        let error = match path.metadata() {
            Ok(found) if found.is_dir() => return None,
            Ok(_) => {
                let seen = format!("{} is no folder", path.display());
                let means = "no log can be made or opened there: name a folder, or move it away";
                return problem(seen, means, format!("mv {name} {name}.aside"));
            }
            Err(error) => error,
        };
        if error.kind() != std::io::ErrorKind::NotFound {
            // Where a file is above it, that is what is told.
            if error.kind() == std::io::ErrorKind::NotADirectory {
                continue;
            }
            return problem(
                error.to_string(),
                "nothing can be said of it, nor a log be kept there: name another folder, or let this user through the folders above it",
                format!("namei -l {name}"),
            );
        }
        if path.is_symlink() {
            let seen = format!("{} is a link to what is not there", path.display());
            return problem(
                seen,
                "no log can be made or opened there: make the folder that it names, or remove it",
                format!("mkdir -p $(readlink -m {name})"),
            );
        }
    }
    None
}

fn finding(id: &'static str, level: Level, seen: String, means: &str) -> Finding {
    Finding::new(Group::Folder, id, level, seen, means)
}

/// The mount that a path lies on: the longest point that it begins with; of several at one point the last.
fn mount_of(mountinfo: &str, path: &Path) -> Option<Mount> {
    let mounts = mountinfo.lines().filter_map(parse_mount).filter(|mount| path.starts_with(&mount.point));
    mounts.reduce(|best, mount| {
        if mount.point.components().count() >= best.point.components().count() { mount } else { best }
    })
}

/// `36 35 98:0 /root /point options optional... - type source super-options` (proc(5)).
fn parse_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (device, _root, point, options) = (before.next()?, before.next()?, before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (filesystem, _source, own) = (after.next()?, after.next()?, after.next().unwrap_or_default());
    // White space in a path is written as its octal number.
    let point = point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
    let options = options.split(',').chain(own.split(',')).map(str::to_owned).collect();
    Some(Mount { device: device.to_owned(), point: point.into(), filesystem: filesystem.to_owned(), options })
}

fn filesystem(tree: &Tree, mount: &Mount, folder: &Path) -> Finding {
    let known = if tree.live {
        rustix::fs::statfs(folder)
            .ok()
            .and_then(|stat| u64::try_from(stat.f_type).ok())
            .map(|magic| Filesystem { magic })
    } else {
        Filesystem::of_mount(&mount.filesystem)
    };
    let class = known.map_or(FilesystemClass::Unknown, Filesystem::class);
    let seen = format!("{} on {}", mount.filesystem, mount.point.display());
    // Where these are mounted here.
    let move_it = "findmnt -t ext4,xfs";
    let found = match class {
        FilesystemClass::Local => finding(
            "filesystem",
            Level::Ok,
            seen,
            "preallocated blocks stay where they are, mappings and locks hold: what the store is made for",
        ),
        FilesystemClass::Memory => finding(
            "filesystem",
            Level::Warning,
            seen,
            "nothing there survives a loss of power or a reboot: for tests, whatever level is asked for. To keep a log put the folder on ext4 or xfs, where the command lists them",
        )
        .run(move_it),
        FilesystemClass::Layered => finding(
            "filesystem",
            Level::Warning,
            seen,
            "a container's own layer: gone with the container, and slower. Give it a volume",
        )
        .run("docker run --mount type=volume,source=log,target=/log ..."),
        FilesystemClass::CopyOnWrite => finding(
            "filesystem",
            Level::Problem,
            seen,
            "each write goes to a new block, so that preallocation keeps no room, and a store to a mapping can fail where a write would: refused unless \
             any_filesystem is set. Put the folder on ext4 or xfs, where the command lists them",
        )
        .run(move_it),
        FilesystemClass::Network => finding(
            "filesystem",
            Level::Problem,
            seen,
            "mappings and locks don't hold between machines, and flushes are another machine's word: refused unless any_filesystem is set. Put the folder on \
             ext4 or xfs, where the command lists them",
        )
        .run(move_it),
        FilesystemClass::Unknown => {
            finding("filesystem", Level::Note, seen, "not known here, and used as if it were a local one like ext4")
                .run(move_it)
        }
    };
    found.value("type", mount.filesystem.as_str()).value("mount", mount.point.display().to_string())
}

fn options(mount: &Mount) -> Option<Finding> {
    let has = |names: &[&str]| mount.options.iter().any(|option| names.contains(&option.as_str()));
    let point = mount.point.display();
    if has(&["ro"]) {
        let means = "no log can be opened there; a disk that failed is often mounted so by the kernel: look at dmesg first";
        return Some(
            finding("mount", Level::Problem, "mounted read-only".into(), means)
                .run(format!("mount -o remount,rw {point}")),
        );
    }
    if has(&["nobarrier", "barrier=0"]) {
        let means = "flushes don't reach the medium: what was acknowledged as durable is lost with the power, unless the disk's cache has \
                     a battery";
        return Some(
            finding("mount", Level::Problem, "mounted without barriers".into(), means)
                .run(format!("mount -o remount,barrier {point}")),
        );
    }
    if has(&["data=journal"]) {
        let means = "each byte is written twice, once into the journal: mount it with data=ordered, the default of ext4";
        return Some(finding("mount", Level::Warning, "mounted with data=journal".into(), means).run(
            format!("sed -i s/data=journal/data=ordered/ /etc/fstab && umount {point} && mount {point}"),
        ));
    }
    None
}

/// Whether the filesystem keeps large pieces in the page cache.
fn folios(tree: &Tree, mount: &Mount) -> Option<Finding> {
    let since = match mount.filesystem.as_str() {
        "xfs" => (5, 18),
        "ext4" => (6, 16),
        _ => return None,
    };
    let large = release(tree)? >= since;
    let (seen, means) = if large {
        (
            "keeps large folios in the page cache",
            "nothing to do: the store preallocates in small writes and maps so that small pieces stay, and flushes stay small",
        )
    } else {
        (
            "keeps pages of 4 KiB in the page cache",
            "a flush writes the pages that were stored to, and no more",
        )
    };
    let seen = format!("{} of this kernel {seen}", mount.filesystem);
    Some(finding("folios", Level::Ok, seen, means).value("large", large))
}

fn room(folder: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let seen = format!("{} free", size(free));
    let found = if free < EMPTY_BYTES {
        let means = "less than an empty log of the default segment size takes (192 MiB): creating it fails. Make room, or smaller segments";
        finding("space", Level::Problem, seen, means).run("windlass log create DIR --segment-bytes 1048576")
    } else if free < FULL_BYTES {
        let means = "a log may keep 4 GiB by default until it is trimmed: set retention_bytes below what is free, so that the log says full and not \
                     the disk";
        finding("space", Level::Note, seen, means).run("windlass log append DIR --retention-bytes BYTES")
    } else {
        finding("space", Level::Ok, seen, "more than a log keeps by default")
    };
    Some(found.value("free_bytes", free))
}

fn access(folder: &Path) -> Option<Finding> {
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(folder, wanted).err().map(|error| {
        let seen = format!("this user may not write to {}: {error}", folder.display());
        finding("access", Level::Problem, seen, "no log can be opened there by this user")
            .run(format!("chown $USER {}", folder.display()))
    })
}

/// The disk below a mount; of one made of others, all of them.
fn disk(tree: &Tree, mount: &Mount) -> Vec<Finding> {
    let folder = format!("sys/dev/block/{}", mount.device);
    if !tree.exists(&folder) {
        return Vec::new();
    }
    let mut names = Vec::new();
    lowest(tree, &folder, 8, &mut names);
    names.iter().filter_map(|folder| one_disk(tree, folder)).collect()
}

/// Follows a stack of devices (LVM, RAID, encryption) down to disks.
fn lowest(tree: &Tree, folder: &str, depth: u32, found: &mut Vec<String>) {
    let below = tree.names(&format!("{folder}/slaves"));
    if below.is_empty() || depth == 0 {
        found.push(folder.to_owned());
    }
    for name in below.iter().filter(|_| depth > 0) {
        lowest(tree, &format!("{folder}/slaves/{name}"), depth - 1, found);
    }
}

fn one_disk(tree: &Tree, folder: &str) -> Option<Finding> {
    // A partition's queue is its disk's.
    let queue = if tree.exists(&format!("{folder}/partition")) {
        format!("{folder}/../queue")
    } else {
        format!("{folder}/queue")
    };
    let cache = tree.text(&format!("{queue}/write_cache"))?;
    let name = tree.link(folder).unwrap_or_else(|| folder.rsplit('/').next().unwrap_or_default().to_owned());
    let turns = tree.text(&format!("{queue}/rotational")).as_deref() == Some("1");
    let is_virtual = ["vd", "xvd"].iter().any(|prefix| name.starts_with(prefix));
    let mut seen = format!("disk {name}: write cache \"{cache}\"");
    if turns && !is_virtual {
        seen.push_str(", rotating");
    }
    let found = if is_virtual {
        let means = "a virtual machine's: whether a flush reaches a medium is the host's setting (for QEMU cache=none or writeback, not unsafe)";
        finding("disk", Level::Note, seen, means)
    } else if turns {
        finding(
            "disk",
            Level::Note,
            seen,
            "each flush waits for the disk to turn: some ms for each group of commits",
        )
    } else if cache == "write back" {
        finding(
            "disk",
            Level::Ok,
            seen,
            "what it has taken is safe once it was told to flush, as each durable commit does",
        )
    } else {
        finding(
            "disk",
            Level::Ok,
            seen,
            "it says that what it has taken is safe at once: flushes cost little",
        )
    };
    Some(found.value("disk", name.as_str()).value("write_cache", cache.as_str()).value("rotational", turns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:25 / /tmp rw - tmpfs tmpfs rw
31 22 259:3 / /srv/the\\040log rw,noatime - xfs /dev/nvme0n1p3 rw,attr2
40 22 0:40 / /home rw - btrfs /dev/sdb rw,space_cache=v2
";

    #[test]
    fn a_path_lies_on_its_longest_mount() {
        let of = |path: &str| mount_of(MOUNTS, Path::new(path)).unwrap();
        assert_eq!(of("/var/log").filesystem, "ext4");
        assert_eq!(of("/tmp/x").filesystem, "tmpfs");
        assert_eq!(of("/tmpx").filesystem, "ext4");
        let xfs = of("/srv/the log/m1");
        assert_eq!((xfs.device.as_str(), xfs.filesystem.as_str()), ("259:3", "xfs"));
        assert!(xfs.options.iter().any(|option| option == "noatime"));
        assert!(mount_of("", Path::new("/")).is_none());
        assert!(mount_of("nonsense\n1 2 3", Path::new("/")).is_none());
    }

    #[test]
    fn mounts_that_lose_flushes_are_problems() {
        let mount = |options: &str| Mount {
            device: "8:1".into(),
            point: "/x".into(),
            filesystem: "ext4".into(),
            options: options.split(',').map(str::to_owned).collect(),
        };
        let level = |words: &str| options(&mount(words)).map(|finding| finding.level);
        assert_eq!(level("rw,nobarrier"), Some(Level::Problem));
        assert_eq!(level("rw,barrier=0"), Some(Level::Problem));
        assert_eq!(level("ro"), Some(Level::Problem));
        assert_eq!(level("rw,data=journal"), Some(Level::Warning));
        assert_eq!(level("rw,errors=remount-ro"), None);
        let found = ["ro", "nobarrier", "data=journal"].map(|words| options(&mount(words)).unwrap());
        assert!(found.iter().all(|finding| finding.run.is_some()), "{found:?}");
    }

    #[test]
    fn what_keeps_a_path_from_being_a_folder_comes_with_the_command_that_changes_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(folder.path().join("gone"), &link).unwrap();
        let run = |path: &Path| in_the_way(path).unwrap().run.unwrap();
        assert_eq!(run(&file), format!("mv {0} {0}.aside", file.display()));
        assert_eq!(run(&file.join("below")), run(&file));
        assert_eq!(run(&link), format!("mkdir -p $(readlink -m {})", link.display()));
        let long = folder.path().join("x".repeat(300));
        assert!(run(&long).starts_with("namei -l "));
        assert!(in_the_way(&folder.path().join("new")).is_none());
    }

    #[test]
    fn a_partition_has_the_queue_of_its_disk_and_a_stack_those_of_all() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let link = |target: &str, path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        };
        write("sys/block/nvme0n1/queue/write_cache", "write back");
        write("sys/block/nvme0n1/nvme0n1p1/partition", "1");
        write("sys/block/sdb/queue/write_cache", "write through");
        write("sys/block/sdb/queue/rotational", "1");
        write("sys/block/dm-0/queue/write_cache", "write back");
        link("../../nvme0n1/nvme0n1p1", "sys/block/dm-0/slaves/nvme0n1p1");
        link("../../../sdb", "sys/block/dm-0/slaves/sdb");
        std::fs::remove_file(folder.path().join("sys/block/dm-0/slaves/sdb")).unwrap();
        link("../../sdb", "sys/block/dm-0/slaves/sdb");
        // As the kernel has it: the folder of a stack's parts links to each device.
        std::fs::remove_file(folder.path().join("sys/block/dm-0/slaves/nvme0n1p1")).unwrap();
        link("../../nvme0n1/nvme0n1p1", "sys/block/dm-0/slaves/nvme0n1p1");
        link("../../block/dm-0", "sys/dev/block/253:0");
        let tree = Tree::new(Some(folder.path()));
        let mount = Mount {
            device: "253:0".into(),
            point: "/".into(),
            filesystem: "ext4".into(),
            options: Vec::new(),
        };
        let found = disk(&tree, &mount);
        let seen: Vec<_> = found.iter().map(|finding| finding.seen.as_str()).collect();
        assert_eq!(
            seen,
            [
                "disk nvme0n1p1: write cache \"write back\"",
                "disk sdb: write cache \"write through\", rotating"
            ]
        );
    }
}
