//! Says that a folder is still being opened, where that takes long: a log that was not closed well, or is damaged, is looked through first.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use slog::{Logger, info};

/// As long as a folder is being opened.
pub(super) struct Opening {
    _until: Sender<()>,
}

impl Opening {
    /// Says so once if it is not dropped within `patience`.
    pub(super) fn new(folder: &Path, patience: Duration, logger: Logger) -> Opening {
        let (until, over) = channel::<()>();
        let folder = folder.to_path_buf();
        // Without a thread for it nothing is said: whether the member has threads enough is told by those that it needs.
        let _ = super::thread("opening").spawn(move || {
            if over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                let (files, bytes) = count(&folder);
                info!(logger, "the folder is still being opened, or made: it holds {}, of {} bytes",
                    crate::exit::counted(files, "file"), bytes; "folder" => %folder.display());
            }
        });
        Opening { _until: until }
    }
}

/// The files of a folder, and their bytes; what can't be looked at counts for nothing.
fn count(folder: &Path) -> (u64, u64) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok()).filter(std::fs::Metadata::is_file);
    files.fold((0, 0), |(count, bytes), file| (count + 1, bytes + file.len()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use slog::Drain as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn said(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }

        fn logger(&self) -> Logger {
            let drain = slog_term::FullFormat::new(slog_term::PlainSyncDecorator::new(self.clone())).build();
            Logger::root(drain.ignore_res(), slog::o!())
        }
    }

    #[test]
    fn a_folder_that_takes_long_to_open_is_told_once_with_its_size_and_another_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("superblock"), [7; 4096]).unwrap();
        std::fs::write(folder.path().join("segment"), [7; 65_536]).unwrap();
        let (late, soon) = (Lines::default(), Lines::default());
        drop(Opening::new(folder.path(), Duration::from_secs(3600), soon.logger()));
        let opening = Opening::new(folder.path(), Duration::from_millis(1), late.logger());
        while !late.said().contains('\n') {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(opening);
        let (said, place) = (late.said(), folder.path().display().to_string());
        assert!(said.contains("2 files, of 69632 bytes") && said.contains(&place), "{said}");
        assert_eq!((said.lines().count(), soon.said().as_str()), (1, ""));
    }
}
