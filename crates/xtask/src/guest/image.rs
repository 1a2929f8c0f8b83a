//! The guest's initial ramdisk and its disk.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Guest;
use super::kernel::Kernel;
use super::system::program;

const INIT: &str = include_str!("init.sh");
/// Tools of the guest that must be there.
const TOOLS: &[&str] = &["bash", "ip", "rdma", "ibv_devinfo"];
/// Tools that come along where the host has them.
const MORE_TOOLS: &[&str] = &["tc", "ibv_rc_pingpong", "ib_write_lat", "ib_write_bw", "strace"];
/// Debian's folder of libraries.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Makes the ramdisk in `folder`.
pub(super) fn ramdisk(guest: &Guest, kernel: &Kernel, folder: &Path) -> Result<PathBuf, String> {
    let root = Root { path: folder.join("root") };
    for empty in
        ["bin", "proc", "sys", "dev", "tmp", "run", "data", "etc/libibverbs.d", "modules", "guest", "tools"]
    {
        fs::create_dir_all(root.path.join(empty)).map_err(|error| format!("{empty}: {error}"))?;
    }
    root.copy(&program("busybox").ok_or("no busybox (package busybox-static)")?, "/bin/busybox")?;
    for tool in TOOLS {
        let from = program(tool).ok_or(format!("no {tool}"))?;
        root.copy_program(&from, &format!("/tools/{tool}"))?;
    }
    for (from, tool) in MORE_TOOLS.iter().filter_map(|tool| Some((program(tool)?, tool))) {
        root.copy_program(&from, &format!("/tools/{tool}"))?;
    }
    verbs_libraries(&root)?;
    for entry in entries(&kernel.modules())? {
        root.copy(&entry, &format!("/modules/{}", name(&entry)))?;
    }
    for file in &guest.files {
        root.copy_program(&file.from, &file.to)?;
    }
    root.write("/guest/commands", &format!("{}\n", guest.commands))?;
    root.write("/guest/hosts", &format!("{}\n", guest.hosts))?;
    root.write("/init", INIT)?;
    fs::set_permissions(root.path.join("init"), fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("init: {error}"))?;
    pack(&root.path, &folder.join("ramdisk"))
}

/// The verbs library, and Soft-RoCE's part of it.
fn verbs_libraries(root: &Root) -> Result<(), String> {
    let library = format!("{LIBRARIES}/libibverbs.so.1");
    root.copy_program(Path::new(&library), &library)?;
    let drivers = entries(&Path::new(LIBRARIES).join("libibverbs"))?;
    for driver in drivers.iter().filter(|path| name(path).starts_with("librxe")) {
        root.copy_program(driver, &driver.to_string_lossy())?;
    }
    let list = "/etc/libibverbs.d/rxe.driver";
    root.copy(Path::new(list), list)
}

/// Makes a disk with a fresh ext4 in `folder`.
pub(super) fn disk(mib: u32, folder: &Path) -> Result<PathBuf, String> {
    let path = folder.join("disk");
    let file = File::create(&path).map_err(|error| format!("disk: {error}"))?;
    file.set_len(u64::from(mib) << 20).map_err(|error| format!("disk: {error}"))?;
    let mkfs = program("mkfs.ext4").ok_or("no mkfs.ext4 (package e2fsprogs)")?;
    let output = Command::new(mkfs)
        .args(["-q", "-F"])
        .arg(&path)
        .output()
        .map_err(|error| format!("mkfs: {error}"))?;
    if output.status.success() {
        Ok(path)
    } else {
        Err(format!("mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// The folder that becomes the ramdisk.
struct Root {
    path: PathBuf,
}

impl Root {
    fn copy(&self, from: &Path, to: &str) -> Result<(), String> {
        let target = self.path.join(to.trim_start_matches('/'));
        let copied =
            target.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::copy(from, &target));
        copied.map(|_| ()).map_err(|error| format!("{}: {error}", from.display()))
    }

    /// A program or library with the shared libraries that it needs.
    fn copy_program(&self, from: &Path, to: &str) -> Result<(), String> {
        self.copy(from, to)?;
        for library in shared_libraries(from) {
            if !self.path.join(library.trim_start_matches('/')).exists() {
                self.copy(Path::new(&library), &library)?;
            }
        }
        Ok(())
    }

    fn write(&self, to: &str, text: &str) -> Result<(), String> {
        fs::write(self.path.join(to.trim_start_matches('/')), text).map_err(|error| format!("{to}: {error}"))
    }
}

/// What the loader would bring for a program; nothing for a file that is none.
fn shared_libraries(program: &Path) -> BTreeSet<String> {
    let Ok(output) = Command::new("ldd").arg(program).stderr(Stdio::null()).output() else {
        return BTreeSet::new();
    };
    libraries_in(&String::from_utf8_lossy(&output.stdout))
}

fn libraries_in(ldd: &str) -> BTreeSet<String> {
    ldd.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(str::to_string)
        .collect()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let read = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(read.flatten().map(|entry| entry.path()).collect())
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Packs the folder as the kernel wants it. Not compressed: it is read once, from memory.
fn pack(root: &Path, into: &Path) -> Result<PathBuf, String> {
    let trouble = |error: std::io::Error| format!("{}: {error}", into.display());
    let output = File::create(into).map_err(trouble)?;
    let mut child = Command::new("cpio")
        .args(["-o", "-H", "newc", "--quiet"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(output)
        .spawn()
        .map_err(|error| format!("cpio: {error}"))?;
    let mut names = Vec::new();
    walk(root, root, &mut names).map_err(trouble)?;
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(names.join("\n").as_bytes()),
        None => Ok(()),
    };
    let status = child.wait().map_err(|error| format!("cpio: {error}"))?;
    written.map_err(trouble)?;
    if status.success() { Ok(into.to_path_buf()) } else { Err(format!("cpio: {status}")) }
}

/// Every entry below `folder`, folders before what they hold, as paths from `root`.
fn walk(root: &Path, folder: &Path, names: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Ok(inside) = path.strip_prefix(root) {
            names.push(inside.to_string_lossy().into_owned());
        }
        if path.is_dir() && !path.is_symlink() {
            walk(root, &path, names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_every_library_come_along() {
        let ldd = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let found: Vec<String> = libraries_in(ldd).into_iter().collect();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(libraries_in("\tnot a dynamic executable\n").is_empty());
    }

    #[test]
    fn folders_come_before_what_they_hold() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/c"), "c").unwrap();
        let mut names = Vec::new();
        walk(folder.path(), folder.path(), &mut names).unwrap();
        assert_eq!(names, ["a", "a/b", "a/b/c"]);
    }
}
