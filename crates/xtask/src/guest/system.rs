//! The host: QEMU, and packages of another release of Debian than the host's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Context;
use crate::exec::{Run, find, succeeds};

/// The emulator.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// What is kept between runs.
pub(super) fn cache() -> PathBuf {
    let home =
        || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from).join(".cache");
    std::env::var_os("XDG_CACHE_HOME")
        .filter(|value| !value.is_empty())
        .map_or_else(home, PathBuf::from)
        .join("windlass/guest")
}

/// Whether QEMU is there.
pub(super) fn has_qemu() -> bool {
    find(QEMU).is_some()
}

/// A program of the host, also one that only root has on its path.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let others = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(name));
    find(name).or_else(|| others.into_iter().find(|path| path.is_file()))
}

/// Installs QEMU: from the host's own release, or, where its parts are installed from backports already, from there, since the
/// parts must be of one version.
pub(super) fn install_qemu(context: &Context) {
    if has_qemu() {
        return;
    }
    if !succeeds("sh", &["-c", "test $(id -u) = 0"]) {
        println!("   not root: run as root: apt-get install -y --no-install-recommends qemu-system-x86");
        return;
    }
    let words = [
        "-o",
        "DPkg::Lock::Timeout=300",
        "-qq",
        "install",
        "-y",
        "--no-install-recommends",
        "qemu-system-x86",
    ];
    let plain = Run::new(context, "apt-get", &words).env("DEBIAN_FRONTEND", "noninteractive");
    if plain.finish(context, "guest-qemu").success {
        return;
    }
    let Some(release) = release() else {
        println!("   could not install QEMU, and /etc/os-release names no release of Debian");
        return;
    };
    let backports = format!("{release}-backports");
    let apt = match Apt::new(context, &[&backports, &release, &format!("{release}-updates")]) {
        Ok(apt) => apt,
        Err(why) => {
            println!("   could not install QEMU: {why}");
            return;
        }
    };
    let mut words = words.to_vec();
    words.extend(["-t", &backports]);
    let finished = apt
        .run(context, "apt-get", &words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .finish(context, "guest-qemu-backports");
    if !finished.success {
        println!("   could not install QEMU: {}", finished.how);
    }
}

/// The host's release of Debian (`bookworm`).
fn release() -> Option<String> {
    release_in(&std::fs::read_to_string("/etc/os-release").ok()?)
}

fn release_in(text: &str) -> Option<String> {
    let word = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(word.trim_matches('"').to_string()).filter(|word| !word.is_empty())
}

/// Apt with sources of its own: the host's configuration and package lists stay as they are.
pub(super) struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Package lists of these suites of Debian, from the mirror that the host uses; taken once and kept.
    pub(super) fn new(context: &Context, suites: &[&str]) -> Result<Apt, String> {
        let first = suites.first().ok_or("no suite")?;
        let folder = cache().join(format!("apt-{first}"));
        let lists = folder.join("lists");
        let trouble = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(lists.join("partial")).map_err(trouble)?;
        let mirror = mirror().ok_or("no mirror of Debian in /etc/apt")?;
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let sources: String =
            suites.iter().map(|suite| format!("deb [signed-by={keyring}] {mirror} {suite} main\n")).collect();
        let list = folder.join("sources.list");
        std::fs::write(&list, sources).map_err(trouble)?;
        let options = [
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=/dev/null".to_string(),
            format!("Dir::State::lists={}", lists.display()),
            "APT::Sandbox::User=root".to_string(),
        ];
        let apt =
            Apt { options: options.into_iter().flat_map(|option| ["-o".to_string(), option]).collect() };
        let updated =
            apt.run(context, "apt-get", &["-qq", "update"]).finish(context, &format!("guest-apt-{first}"));
        if updated.success { Ok(apt) } else { Err(format!("apt-get update for {first}: {}", updated.how)) }
    }

    /// A program of apt with these sources.
    pub(super) fn run(&self, context: &Context, program: &str, words: &[&str]) -> Run {
        let all: Vec<&str> = self.options.iter().map(String::as_str).chain(words.iter().copied()).collect();
        Run::new(context, program, &all).limit(Duration::from_secs(20 * 60))
    }
}

/// The host's mirror of Debian.
fn mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    files.extend(std::fs::read_dir("/etc/apt/sources.list.d").ok()?.flatten().map(|entry| entry.path()));
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).find_map(|text| mirror_in(&text))
}

fn mirror_in(text: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines
        .flat_map(str::split_whitespace)
        .find(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"))
        .map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_found_in_either_form_of_source() {
        let line =
            "# deb http://old/debian x\ndeb [arch=amd64] http://deb.example.org/debian bookworm main\n";
        assert_eq!(mirror_in(line).as_deref(), Some("http://deb.example.org/debian"));
        let stanza = "Types: deb\nURIs: http://deb.example.org/debian/\nSuites: trixie\n";
        assert_eq!(mirror_in(stanza).as_deref(), Some("http://deb.example.org/debian/"));
        assert_eq!(mirror_in("deb http://security.example.org/debian-security bookworm-security main"), None);
    }

    #[test]
    fn the_release_is_read() {
        assert_eq!(release_in("ID=debian\nVERSION_CODENAME=bookworm\n").as_deref(), Some("bookworm"));
        assert_eq!(release_in("ID=arch\n"), None);
    }
}
