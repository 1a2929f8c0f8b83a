//! Reading /sys, /proc and /dev: of this machine, or of a tree that was recorded on another one.

use std::fs;
use std::path::{Path, PathBuf};

/// No file that is read here is so long; what is longer is cut.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Where paths begin.
pub(super) struct Tree {
    root: PathBuf,
    /// Whether this is the running machine, which can also be asked by system calls.
    pub(super) live: bool,
}

impl Tree {
    pub(super) fn new(root: Option<&Path>) -> Tree {
        Tree { root: root.unwrap_or(Path::new("/")).to_owned(), live: root.is_none() }
    }

    /// The place of a path that is given without its first `/`.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// What a file holds, without white space around it; `None` if it is not there or can't be read. Some files of /sys are
    /// there and answer an error.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = fs::read(self.path(path)).ok()?;
        bytes.truncate(TEXT_BYTES_MAX);
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that a file holds.
    pub(super) fn number<N: std::str::FromStr>(&self, path: &str) -> Option<N> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, numbers in their own order; none if it is not there.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by(|a, b| {
            let numbers = (a.parse::<u64>(), b.parse::<u64>());
            if let (Ok(a), Ok(b)) = numbers { a.cmp(&b) } else { a.cmp(b) }
        });
        names
    }

    /// The last name of what a symbolic link points to.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// What a file with a choice like `always [madvise] never` has chosen.
    pub(super) fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')).map(str::to_owned)
    }
}

/// How many a list like `0-3,8` holds.
pub(super) fn count_of_list(list: &str) -> usize {
    let count = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.trim().parse::<usize>().ok()?, to.trim().parse::<usize>().ok()?);
        Some((to + 1).saturating_sub(from))
    };
    list.split(',').filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        assert_eq!(count_of_list("0"), 1);
        assert_eq!(count_of_list("0-3,8,10-11"), 7);
        assert_eq!(count_of_list(""), 0);
        assert_eq!(count_of_list("3-1"), 0);
    }

    #[test]
    fn a_tree_is_read_below_its_root() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("sys/x")).unwrap();
        fs::write(folder.path().join("sys/x/10"), " always [madvise] never\n").unwrap();
        fs::write(folder.path().join("sys/x/9"), "17\n").unwrap();
        std::os::unix::fs::symlink("../drivers/mlx5_core", folder.path().join("sys/x/driver")).unwrap();
        let tree = Tree::new(Some(folder.path()));
        assert_eq!(tree.names("sys/x"), ["9", "10", "driver"]);
        assert_eq!(tree.number::<u32>("sys/x/9"), Some(17));
        assert_eq!(tree.chosen("sys/x/10").as_deref(), Some("madvise"));
        assert_eq!(tree.link("sys/x/driver").as_deref(), Some("mlx5_core"));
        assert_eq!(tree.text("sys/x/none"), None);
        assert!(!tree.live);
    }
}
