//! What the steps need beyond Rust, and installing it.
//!
//! Debian's packages by apt-get (as root), cargo's tools by `cargo install --locked` at a fixed version. What can't be
//! installed is said, and the step that needs it then says SKIPPED (a failure where CI is set): installing itself never
//! ends the run.

use std::time::Duration;

use crate::Context;
use crate::exec::{Run, find, succeeds};
use crate::guest;

/// Debian packages for building `windlass-verbs` (bindgen and the vendored headers) and the fuzzers' C++ runtime.
pub(crate) const BUILD_PACKAGES: &[&str] = &[
    "gcc",
    "g++",
    "libc6-dev",
    "make",
    "cmake",
    "pkg-config",
    "libclang-dev",
    "libnl-3-dev",
    "libnl-route-3-dev",
    "libibverbs-dev",
    // The vendored build looks for it, whether it is used or not.
    "python3",
];

/// A tool that `cargo install` brings.
pub(crate) struct Tool {
    /// The program, as it is found on PATH; also the package.
    pub(crate) program: &'static str,
    version: &'static str,
}

/// Licences, sources and bans of the dependencies.
pub(crate) const CARGO_DENY: Tool = Tool { program: "cargo-deny", version: "0.20.2" };

const TOOLS: &[&Tool] = &[&CARGO_DENY];

impl Tool {
    /// Whether it is on PATH.
    pub(crate) fn present(&self) -> bool {
        find(self.program).is_some()
    }

    /// The command that installs it.
    pub(crate) fn cure(&self) -> String {
        format!("cargo install --locked {} --version {}", self.program, self.version)
    }
}

/// The command that installs Debian packages.
pub(crate) fn apt_cure(packages: &[&str]) -> String {
    format!("apt-get install -y --no-install-recommends {}", packages.join(" "))
}

/// Which of these Debian packages are not installed.
pub(crate) fn missing_packages<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    packages.iter().copied().filter(|package| !installed(package)).collect()
}

fn installed(package: &str) -> bool {
    let output = std::process::Command::new("dpkg-query").args(["-W", "-f=${Status}", package]).output();
    output.is_ok_and(|output| output.stdout.ends_with(b" installed"))
}

/// Installs what is missing, and says what could not be.
pub(crate) fn everything(context: &Context) {
    println!("== install: what the steps need beyond Rust");
    packages(context);
    guest::install(context);
    for tool in TOOLS.iter().filter(|tool| !tool.present()) {
        let run = Run::cargo(context, &["install", "--locked", tool.program, "--version", tool.version]);
        let finished = run.limit(Duration::from_secs(20 * 60)).finish(context, tool.program);
        if !finished.success {
            println!("   could not install {}: {}", tool.program, finished.how);
        }
    }
}

/// Installs the Debian packages that are missing, and says what could not be.
pub(crate) fn packages(context: &Context) {
    let missing = missing_packages(&[BUILD_PACKAGES, guest::PACKAGES].concat());
    if missing.is_empty() {
        return;
    }
    if find("apt-get").is_none() {
        println!("   no apt-get here: install yourself what Debian calls {}", missing.join(" "));
        return;
    }
    if !succeeds("sh", &["-c", "test $(id -u) = 0"]) {
        println!("   not root: run as root: {}", apt_cure(&missing));
        return;
    }
    // Another apt-get may hold the lock, also on a machine that has just booted: wait for it.
    let lock = "DPkg::Lock::Timeout=300";
    let update = Run::new(context, "apt-get", &["-o", lock, "-qq", "update"]).finish(context, "apt-update");
    if !update.success {
        println!("   could not update the package lists: {}", update.how);
    }
    let mut words =
        vec!["-o", lock, "-o", "Dpkg::Use-Pty=0", "-qq", "install", "-y", "--no-install-recommends"];
    words.extend(&missing);
    let install = Run::new(context, "apt-get", &words).env("DEBIAN_FRONTEND", "noninteractive");
    let finished = install.finish(context, "apt-install");
    if !finished.success {
        println!("   could not install {}: {}", missing.join(" "), finished.how);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_does_not_exist_is_missing() {
        assert_eq!(missing_packages(&["no-such-package-anywhere"]), ["no-such-package-anywhere"]);
    }
}
