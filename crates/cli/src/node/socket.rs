//! The socket at which a member takes clients: a file that is removed at the end, if it is still this process's. What is at its place before is removed only where
//! it is a socket that nobody serves: a group's file may name anything.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// A socket's file, as it was made. The listener must live as long: a file that is bound keeps its number from being given again.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

/// Why there is no socket for clients.
#[derive(Debug, thiserror::Error)]
pub(super) enum BindError {
    /// Another member's, most likely: its clients would come here from now on.
    #[error("another process serves clients at {}", path.display())]
    Served { path: PathBuf },
    /// A file of somebody's, the log's own perhaps.
    #[error("{} is there and is no socket, and is left as it is", path.display())]
    NoSocket { path: PathBuf },
    /// No access, or a path that is too long for a socket.
    #[error("making the socket {}: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
}

/// Binds a socket at `path`, in the place of one that a member left behind which was killed.
pub(super) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    let at = || path.to_path_buf();
    let system = |source| BindError::System { path: at(), source };
    match find(path).map_err(system)? {
        Found::Nothing => {}
        Found::Other => return Err(BindError::NoSocket { path: at() }),
        Found::Served => return Err(BindError::Served { path: at() }),
        Found::LeftBehind => remove(path).map_err(system)?,
    }
    let listener = UnixListener::bind(path).map_err(system)?;
    let metadata = std::fs::symlink_metadata(path).map_err(system)?;
    let device_and_inode = (metadata.dev(), metadata.ino());
    Ok((listener, SocketFile { path: at(), device_and_inode }))
}

/// What is where a socket is to be.
enum Found {
    Nothing,
    /// A socket that some process takes connections at.
    Served,
    /// A socket whose process is gone.
    LeftBehind,
    Other,
}

fn find(path: &Path) -> io::Result<Found> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => {}
        Ok(_) => return Ok(Found::Other),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        // AGAIN: as many wait there to be taken as may; its process may be stopped.
        Ok(()) | Err(Errno::AGAIN) => Ok(Found::Served),
        Err(Errno::CONNREFUSED) => Ok(Found::LeftBehind),
        // It was removed meanwhile.
        Err(Errno::NOENT) => Ok(Found::Nothing),
        Err(error) => Err(error.into()),
    }
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
        // Somebody has taken it away, and another process's is there.
        std::fs::remove_file(&path).unwrap();
        let (_new_listener, new) = bind(&path).unwrap();
        old.remove().unwrap();
        assert!(path.exists(), "the newer process's is removed");
        new.remove().unwrap();
        assert!(!path.exists());
        let (_listener, gone) = bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        gone.remove().unwrap();
    }

    #[test]
    fn a_socket_takes_the_place_of_one_that_nobody_serves_and_of_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m1.sock");
        drop(bind(&path).unwrap());
        let (listener, _file) = bind(&path).expect("in the place of what a killed member left");
        assert!(matches!(bind(&path), Err(BindError::Served { .. })));
        assert!(listener.accept().is_ok(), "it is still there");

        // Also where as many wait as may, as at a process that is stopped.
        let (full, client) = (folder.path().join("m2.sock"), || {
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap()
        });
        let (stopped, address) = (client(), SocketAddrUnix::new(&full).unwrap());
        rustix::net::bind(&stopped, &address).unwrap();
        rustix::net::listen(&stopped, 1).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| {
            let client = client();
            connect(&client, &address).is_ok().then_some(client)
        })
        .collect();
        assert!(!waiting.is_empty());
        assert!(matches!(bind(&full), Err(BindError::Served { .. })), "{} wait", waiting.len());

        let others = ["file", "folder", "link", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&others[0], "precious").unwrap();
        std::fs::create_dir(&others[1]).unwrap();
        std::os::unix::fs::symlink(&others[0], &others[2]).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &others[3], rustix::fs::Mode::RUSR).unwrap();
        for other in &others {
            assert!(matches!(bind(other), Err(BindError::NoSocket { .. })), "{}", other.display());
            assert!(std::fs::symlink_metadata(other).is_ok(), "{} is gone", other.display());
        }
        assert_eq!(std::fs::read_to_string(&others[0]).unwrap(), "precious");
    }
}
