//! The socket at which a member takes clients: a file that is removed at the end, if it is still this process's.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A socket's file, as it was made. The listener must live as long: a file that is bound keeps its number from being given again.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

/// Binds a socket at `path`, in the place of one that a member left behind which was killed: whoever holds the folder's lock knows that nobody serves that.
///
/// # Errors
///
/// The system's: no access, a path that is too long for a socket, or a folder in its place.
pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove(path)?;
    let listener = UnixListener::bind(path)?;
    let metadata = std::fs::symlink_metadata(path)?;
    let device_and_inode = (metadata.dev(), metadata.ino());
    Ok((listener, SocketFile { path: path.to_path_buf(), device_and_inode }))
}

impl SocketFile {
    /// Removes the file unless another process has put its own there since. To be called while the folder's lock is held, so that none that has the same
    /// folder does so in between.
    pub(super) fn remove(self) -> io::Result<()> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == self.device_and_inode => remove(&self.path),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_removed_by_whose_it_is_and_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m1.sock");
        let (_old_listener, old) = bind(&path).unwrap();
        let (_new_listener, new) = bind(&path).unwrap();
        old.remove().unwrap();
        assert!(path.exists(), "the newer process's is removed");
        new.remove().unwrap();
        assert!(!path.exists());
        let (_listener, gone) = bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        gone.remove().unwrap();
    }
}
