//! Folders inside a folder, on one disk: each has names of its own, which it makes durable on its own.

use super::{Entry, NameChange, State, TestDisk};

impl TestDisk {
    /// A folder inside this one, on the same disk, whose own name is durable.
    #[must_use]
    pub fn folder(&self, name: &str) -> TestDisk {
        let inside = format!("{}{name}/", self.inside);
        TestDisk { path: self.path.join(name), inside, ..self.clone() }
    }

    /// The disk's name of one of this folder's files.
    pub(super) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.inside)
    }

    /// This folder's entries, folders inside it included.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let state = self.state();
        let mut entries: Vec<Entry> = Vec::new();
        for (name, number) in &state.names {
            let Some(name) = name.strip_prefix(&self.inside) else { continue };
            let (name, is_file) = name.split_once('/').map_or((name, true), |(folder, _)| (folder, false));
            if entries.last().is_none_or(|last| last.name != name) {
                let len_bytes = if is_file { state.inodes[number].live_len } else { 0 };
                entries.push(Entry { name: name.to_owned(), len_bytes, is_file });
            }
        }
        entries
    }

    /// Makes the names of this folder's files durable.
    pub(super) fn flush_names(&self, state: &mut State) {
        let is_here = |name: &str| name.strip_prefix(&self.inside).is_some_and(|name| !name.contains('/'));
        let State { names, durable_names, unsynced_names, .. } = state;
        durable_names.retain(|name, _| !is_here(name));
        let here = names.iter().filter(|(name, _)| is_here(name));
        durable_names.extend(here.map(|(name, number)| (name.clone(), *number)));
        unsynced_names.retain(|change| match change {
            NameChange::Created(name, _) | NameChange::Removed(name) | NameChange::Renamed(name, _) => {
                !is_here(name)
            }
        });
    }
}
