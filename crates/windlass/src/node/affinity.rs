//! Which processors the pump stays on.

use std::path::Path;

use rustix::thread::CpuSet;
use slog::{Logger, info, warn};

/// Where a thread may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Affinity {
    /// Wherever the system likes.
    Anywhere,
    /// On this processor, as the options say.
    Processor(usize),
    /// On these, which are nearest to the device: a set and not one of them, so that two pumps don't meet on one (kind 79).
    NearDevice {
        /// The NUMA node.
        node: u32,
        /// Its processors.
        processors: Vec<usize>,
    },
}

impl Affinity {
    /// What was asked for; else the processors of the device's NUMA node, where there are several nodes and it says which is its own.
    pub(super) fn choose(asked: Option<usize>, device: Option<&str>, sys: &Path) -> Affinity {
        match (asked, device) {
            (Some(processor), _) => Affinity::Processor(processor),
            (None, Some(device)) => near(device, sys).unwrap_or(Affinity::Anywhere),
            (None, None) => Affinity::Anywhere,
        }
    }

    /// Keeps the calling thread there. Where that can't be it says so and runs anywhere.
    pub(super) fn apply(&self, logger: &Logger) {
        let processors = match self {
            Affinity::Anywhere => return,
            Affinity::Processor(processor) => std::slice::from_ref(processor),
            Affinity::NearDevice { node, processors } => {
                info!(logger, "the pump stays near the device"; "numa_node" => node, "processors" => ?processors);
                processors
            }
        };
        let mut set = CpuSet::new();
        for processor in processors.iter().filter(|processor| **processor < CpuSet::MAX_CPU) {
            set.set(*processor);
        }
        if let Err(errno) = rustix::thread::sched_setaffinity(None, &set) {
            warn!(logger, "the pump can't be pinned"; "processors" => ?processors, "cause" => %errno);
        }
    }
}

/// The processors of the device's NUMA node; `None` where there is one node alone, or the device's is not known (sysfs: -1).
fn near(device: &str, sys: &Path) -> Option<Affinity> {
    let read = |path: String| Some(std::fs::read_to_string(sys.join(path)).ok()?.trim().to_owned());
    let nodes = numbers(&read("devices/system/node/online".to_owned())?)?;
    let node: u32 = read(format!("class/infiniband/{device}/device/numa_node"))?.parse().ok()?;
    if nodes.len() < 2 {
        return None;
    }
    let processors = numbers(&read(format!("devices/system/node/node{node}/cpulist"))?)?;
    (!processors.is_empty()).then_some(Affinity::NearDevice { node, processors })
}

/// The numbers of a list as sysfs has them: `0-3,8,10-11`.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last.checked_sub(first)? > CpuSet::MAX_CPU {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(online: &str, of_device: &str) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("devices/system/node/online", online),
            ("devices/system/node/node1/cpulist", "4-6,9\n"),
            ("class/infiniband/mlx5_0/device/numa_node", of_device),
        ] {
            let file = sys.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        sys
    }

    #[test]
    fn kind_79_the_pump_stays_on_the_processors_of_the_devices_node_where_there_are_several() {
        let two = tree("0-1\n", "1\n");
        let near = Affinity::NearDevice { node: 1, processors: vec![4, 5, 6, 9] };
        assert_eq!(Affinity::choose(None, Some("mlx5_0"), two.path()), near);
        assert_eq!(Affinity::choose(Some(2), Some("mlx5_0"), two.path()), Affinity::Processor(2));
        assert_eq!(Affinity::choose(None, Some("mlx5_1"), two.path()), Affinity::Anywhere);
        assert_eq!(Affinity::choose(None, None, two.path()), Affinity::Anywhere);
        for (online, of_device) in [("0\n", "0\n"), ("0-1\n", "-1\n"), ("0-1\n", "7\n"), ("x", "1\n")] {
            let sys = tree(online, of_device);
            assert_eq!(Affinity::choose(None, Some("mlx5_0"), sys.path()), Affinity::Anywhere);
        }
    }

    #[test]
    fn a_thread_stays_where_it_was_told_to() {
        let logger = Logger::root(slog::Discard, slog::o!());
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor)).unwrap();
        std::thread::spawn(move || {
            Affinity::Processor(first).apply(&logger);
            let mine = rustix::thread::sched_getaffinity(None).unwrap();
            assert_eq!((mine.count(), mine.is_set(first)), (1, true));
            // One that is not there is said, and changes nothing.
            Affinity::Processor(CpuSet::MAX_CPU + 1).apply(&logger);
            assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), 1);
        })
        .join()
        .unwrap();
    }
}
