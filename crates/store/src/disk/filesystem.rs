//! Which filesystem a folder lies on, and whether the store's promises hold there (kinds 16 and 34).

use std::fmt;

/// A filesystem, by the magic number that `statfs` answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filesystem {
    /// `f_type` of `statfs(2)`.
    pub magic: u64,
}

/// What a filesystem means for the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilesystemClass {
    /// Preallocated blocks stay where they are, mappings and locks are coherent.
    Local,
    /// In memory: everything holds but survival of a power loss.
    Memory,
    /// Another filesystem lies below (overlayfs); new files are on its upper layer.
    Layered,
    /// Each write goes to a new block: preallocation reserves nothing, a store through a mapping can run out of space. Refused unless told otherwise.
    CopyOnWrite,
    /// Mappings and locks are not coherent between machines, or a program serves it (FUSE). Refused unless told otherwise.
    Network,
    /// Not in the table; used as if local.
    Unknown,
}

/// (magic, name, class), from `linux/magic.h` and the filesystems' own sources.
const TABLE: &[(u64, &str, FilesystemClass)] = &[
    (0xEF53, "ext4", FilesystemClass::Local),
    (0x5846_5342, "xfs", FilesystemClass::Local),
    (0x3153_464A, "jfs", FilesystemClass::Local),
    (0x0102_1994, "tmpfs", FilesystemClass::Memory),
    (0x8584_58F6, "ramfs", FilesystemClass::Memory),
    (0x794C_7630, "overlayfs", FilesystemClass::Layered),
    (0x9123_683E, "btrfs", FilesystemClass::CopyOnWrite),
    (0x2FC1_2FC1, "zfs", FilesystemClass::CopyOnWrite),
    (0xCA45_1A4E, "bcachefs", FilesystemClass::CopyOnWrite),
    (0xF2F5_2010, "f2fs", FilesystemClass::CopyOnWrite),
    (0x3434, "nilfs2", FilesystemClass::CopyOnWrite),
    (0x6969, "nfs", FilesystemClass::Network),
    (0xFF53_4D42, "cifs", FilesystemClass::Network),
    (0xFE53_4D42, "smb2", FilesystemClass::Network),
    (0x517B, "smb", FilesystemClass::Network),
    (0x0102_1997, "9p", FilesystemClass::Network),
    (0x6573_5546, "fuse", FilesystemClass::Network),
    (0x00C3_6400, "ceph", FilesystemClass::Network),
    (0x0BD0_0BD0, "lustre", FilesystemClass::Network),
    (0x5346_414F, "afs", FilesystemClass::Network),
    (0x0116_1970, "gfs2", FilesystemClass::Network),
    (0x7461_636F, "ocfs2", FilesystemClass::Network),
    (0x786F_4256, "vboxsf", FilesystemClass::Network),
];

impl Filesystem {
    /// The filesystem of a type as mounts name it (`mount(8)`), if it is in the table.
    #[must_use]
    pub fn of_mount(name: &str) -> Option<Self> {
        let name = match name {
            "ext2" | "ext3" => "ext4",
            "overlay" => "overlayfs",
            "nfs4" => "nfs",
            "smb3" => "smb2",
            name if name.starts_with("fuse") => "fuse",
            name => name,
        };
        TABLE.iter().find(|row| row.1 == name).map(|row| Self { magic: row.0 })
    }

    /// What this filesystem means for the store.
    #[must_use]
    pub fn class(self) -> FilesystemClass {
        TABLE.iter().find(|row| row.0 == self.magic).map_or(FilesystemClass::Unknown, |row| row.2)
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TABLE.iter().find(|row| row.0 == self.magic) {
            Some(row) => f.write_str(row.1),
            None => write!(f, "filesystem type {:#x}", self.magic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_34_network_and_copy_on_write_filesystems_are_known_by_name() {
        let nfs = Filesystem { magic: 0x6969 };
        assert_eq!((nfs.class(), nfs.to_string().as_str()), (FilesystemClass::Network, "nfs"));
        assert_eq!(Filesystem { magic: 0x9123_683E }.class(), FilesystemClass::CopyOnWrite);
        assert_eq!(Filesystem { magic: 0xEF53 }.class(), FilesystemClass::Local);
        assert_eq!(Filesystem { magic: 1 }.to_string(), "filesystem type 0x1");
        let class = |name| Filesystem::of_mount(name).map(Filesystem::class);
        assert_eq!(class("ext3"), Some(FilesystemClass::Local));
        assert_eq!(class("fuse.sshfs"), Some(FilesystemClass::Network));
        assert_eq!(class("overlay"), Some(FilesystemClass::Layered));
        assert_eq!(class("proc"), None);
    }
}
