//! What has rotted on a member's medium, and what was there.

/// A sector of a member's medium that is not what it was.
pub(super) struct Rotten {
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) was: Vec<u8>,
    pub(super) is: Vec<u8>,
}

impl Rotten {
    /// Bytes of a file as they are and, if they may be rotten, as they were.
    pub(super) fn versions(&self, name: &str, start: u64, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let mut undone = bytes.clone();
        self.undo(name, start, &mut undone);
        let mut versions = vec![bytes, undone];
        versions.dedup();
        versions
    }

    /// Puts what was there back into bytes of a file, if they still hold what it has become.
    pub(super) fn undo(&self, name: &str, start: u64, bytes: &mut [u8]) {
        self.replace(name, start, bytes, (&self.is, &self.was));
    }

    /// Puts what it has become into bytes of a file that hold what was there.
    pub(super) fn redo(&self, name: &str, start: u64, bytes: &mut [u8]) {
        self.replace(name, start, bytes, (&self.was, &self.is));
    }

    fn replace(&self, name: &str, start: u64, bytes: &mut [u8], (from, to): (&[u8], &[u8])) {
        let pairs = from.iter().zip(to).zip(self.start..);
        let inside =
            pairs.filter_map(|(pair, at)| Some((pair, usize::try_from(at.checked_sub(start)?).ok()?)));
        let inside: Vec<_> = inside.filter(|(_, at)| *at < bytes.len()).collect();
        if name == self.name && inside.iter().all(|((from, _), at)| bytes[*at] == **from) {
            for ((_, to), at) in inside {
                bytes[at] = *to;
            }
        }
    }
}
