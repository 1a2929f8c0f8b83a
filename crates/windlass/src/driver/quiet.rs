//! What is said only so often: bytes that do not hold come again. (Vain attempts to lead: `news`.)

use windlass_log::Lsn;

/// Where bytes from the primary did not hold.
#[derive(Debug, Default)]
pub(crate) struct Unsound {
    at: Option<Lsn>,
    count: u32,
}

impl Unsound {
    /// Whether bytes at `lsn` that do not hold are to be logged: once, when they have come again no better.
    pub(crate) fn tells(&mut self, lsn: Lsn) -> bool {
        if self.at != Some(lsn) {
            *self = Unsound { at: Some(lsn), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count == 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_stay_unsound_are_told_once_and_those_that_come_right_never() {
        let mut unsound = Unsound::default();
        assert!(!unsound.tells(Lsn(4096)));
        assert!(!unsound.tells(Lsn(8192)));
        assert!(unsound.tells(Lsn(8192)));
        assert!(!unsound.tells(Lsn(8192)));
    }
}
