//! The guest's kernel: Debian's, from backports, taken once.
//!
//! ```text
//! CACHE/kernel-1/          the number changes with this layout
//!   version                written last: without it the folder is not whole
//!   vmlinuz
//!   modules/*.ko, order    in the order in which they load
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::system::{Apt, cache, program};
use crate::Context;

/// The suite with a kernel whose Soft-RoCE has windows and on-demand paging.
const SUITE: &str = "trixie-backports";
/// What the guest loads; each brings what it depends on.
const MODULES: &[&str] =
    &["virtio_pci", "virtio_blk", "ext4", "veth", "bridge", "sch_netem", "rdma_rxe", "rdma_ucm"];

/// A kernel in the cache.
pub(super) struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    /// The kernel itself.
    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The folder of its modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("modules")
    }
}

/// The kernel, if it was fetched whole.
pub(super) fn cached() -> Option<Kernel> {
    let folder = cache().join("kernel-1");
    folder.join("version").is_file().then_some(Kernel { folder })
}

/// Fetches the kernel, unless it is there.
pub(super) fn fetch(context: &Context) -> Result<(), String> {
    if cached().is_some() {
        return Ok(());
    }
    let folder = cache().join("kernel-1");
    let unpacked = folder.join("unpacked");
    let trouble = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(trouble)?;
    }
    std::fs::create_dir_all(&unpacked).map_err(trouble)?;
    let version = download(context, &unpacked)?;
    // Merged or not, depmod and modprobe look in lib/modules.
    if !unpacked.join("lib/modules").exists() {
        std::fs::create_dir_all(unpacked.join("lib")).map_err(trouble)?;
        std::os::unix::fs::symlink("../usr/lib/modules", unpacked.join("lib/modules")).map_err(trouble)?;
    }
    let images = [
        unpacked.join(format!("usr/lib/modules/{version}/vmlinuz")),
        unpacked.join(format!("boot/vmlinuz-{version}")),
    ];
    let image = images.iter().find(|path| path.is_file()).ok_or("the packages hold no vmlinuz")?;
    std::fs::copy(image, folder.join("vmlinuz")).map_err(trouble)?;
    modules(&unpacked, &version, &folder.join("modules"))?;
    std::fs::remove_dir_all(&unpacked).map_err(trouble)?;
    std::fs::write(folder.join("version"), format!("{version}\n")).map_err(trouble)
}

/// Downloads the kernel's packages and unpacks them; gives its version.
fn download(context: &Context, into: &Path) -> Result<String, String> {
    let apt = Apt::new(context, &[SUITE])?;
    let depends = apt
        .run(context, "apt-cache", &["depends", "linux-image-amd64"])
        .finish(context, "guest-kernel-version");
    let version = version_in(&depends.output).ok_or(format!("{SUITE} has no linux-image-amd64"))?;
    let split = [format!("linux-binary-{version}"), format!("linux-modules-{version}")];
    let whole = [format!("linux-image-{version}")];
    // Newer kernels come in two packages, older ones in one.
    for packages in [&split[..], &whole[..]] {
        let mut words = vec!["-qq", "download"];
        words.extend(packages.iter().map(String::as_str));
        let run = apt.run(context, "apt-get", &words).folder(into);
        if run.finish(context, "guest-kernel").success {
            unpack(into)?;
            return Ok(version);
        }
    }
    Err(format!("could not download the kernel {version} from {SUITE}"))
}

fn version_in(depends: &str) -> Option<String> {
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .find(|version| version.starts_with(|first: char| first.is_ascii_digit()))
        .map(str::to_string)
}

fn unpack(folder: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for package in entries.flatten().map(|entry| entry.path()) {
        if package.extension().is_some_and(|extension| extension == "deb") {
            let status = Command::new("dpkg").arg("-x").arg(&package).arg(folder).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(format!("dpkg can't unpack {}", package.display()));
            }
        }
    }
    Ok(())
}

/// Unpacks the modules that the guest loads, and writes down their order.
fn modules(unpacked: &Path, version: &str, into: &Path) -> Result<(), String> {
    let trouble = |error: std::io::Error| format!("{}: {error}", into.display());
    std::fs::create_dir_all(into).map_err(trouble)?;
    let depmod = program("depmod").ok_or("no depmod (package kmod)")?;
    let modprobe = program("modprobe").ok_or("no modprobe (package kmod)")?;
    // It warns of lists that only a whole installation has.
    let status = Command::new(depmod).arg("-b").arg(unpacked).arg(version).stderr(Stdio::null()).status();
    if !status.is_ok_and(|status| status.success()) {
        return Err("depmod failed".into());
    }
    let mut order: Vec<String> = Vec::new();
    for module in MODULES {
        let shown = Command::new(&modprobe)
            .args(["-S", version, "--show-depends", module, "-d"])
            .arg(unpacked)
            .output()
            .map_err(trouble)?;
        for file in String::from_utf8_lossy(&shown.stdout).lines().filter_map(file_to_load) {
            let name = module_name(&file);
            if !order.contains(&name) {
                std::fs::write(into.join(&name), module_bytes(&file)?).map_err(trouble)?;
                order.push(name);
            }
        }
    }
    if !order.iter().any(|name| name.starts_with("rdma_rxe")) {
        return Err(format!("the kernel {version} has no rdma_rxe"));
    }
    std::fs::write(into.join("order"), order.join("\n") + "\n").map_err(trouble)
}

/// The path in one of modprobe's lines (`insmod PATH`); what is built in has none.
fn file_to_load(line: &str) -> Option<PathBuf> {
    line.strip_prefix("insmod ").map(|rest| PathBuf::from(rest.trim()))
}

fn module_name(file: &Path) -> String {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.trim_end_matches(".xz").to_string()
}

fn module_bytes(file: &Path) -> Result<Vec<u8>, String> {
    let trouble = |error: std::io::Error| format!("{}: {error}", file.display());
    if file.extension().is_some_and(|extension| extension == "xz") {
        let output = Command::new("xz").arg("-dc").arg(file).output().map_err(trouble)?;
        if !output.status.success() {
            return Err(format!("xz can't unpack {}", file.display()));
        }
        return Ok(output.stdout);
    }
    std::fs::read(file).map_err(trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_dependency() {
        let depends = "linux-image-amd64\n  Depends: linux-image-7.3.4+deb13-amd64\n  Suggests: linux-doc\n";
        assert_eq!(version_in(depends).as_deref(), Some("7.3.4+deb13-amd64"));
        assert_eq!(version_in("linux-image-amd64\n"), None);
    }

    #[test]
    fn modules_that_are_built_in_are_not_loaded() {
        assert_eq!(file_to_load("builtin virtio_pci"), None);
        let file = file_to_load("insmod /lib/modules/7/kernel/rdma_rxe.ko.xz ").unwrap();
        assert_eq!(module_name(&file), "rdma_rxe.ko");
    }
}
