//! Lines about refusals are rationed: whoever reaches the port may connect as often as they like, and fill no disk by it.

use std::time::{Duration, Instant};

/// So many lines are written at most within [`WINDOW`].
const LINES_MAX: u32 = 8;
const WINDOW: Duration = Duration::from_secs(30);

/// What is left of a ration of lines: eight within 30 s, each of which says how many were left out before it (DESIGN.md section 9.3). The control plane has one, too.
#[derive(Debug, Default)]
pub struct Ration {
    /// When the window began, and how many lines were written in it.
    window: Option<(Instant, u32)>,
    unsaid: u64,
}

impl Ration {
    /// Whether a line may be written now: then how many were left out since the last one, for it to say.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        let window = self.window.filter(|(since, _)| now.saturating_duration_since(*since) < WINDOW);
        let (since, lines) = window.unwrap_or((now, 0));
        if lines >= LINES_MAX {
            self.leave_out();
            return None;
        }
        self.window = Some((since, lines + 1));
        Some(std::mem::take(&mut self.unsaid))
    }

    /// One is left out for another reason.
    pub fn leave_out(&mut self) {
        self.unsaid = self.unsaid.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_are_a_few_lines_that_say_how_many_there_were() {
        let (mut ration, start) = (Ration::default(), Instant::now());
        let mut lines = Vec::new();
        for n in 0..100_000_u32 {
            lines.extend(ration.take(start + Duration::from_millis(u64::from(n))));
        }
        // 100 s: four windows.
        assert_eq!(lines.len(), 4 * LINES_MAX as usize, "{lines:?}");
        let unsaid = u64::try_from(lines.len()).unwrap() + lines.iter().sum::<u64>() + ration.unsaid;
        assert_eq!(unsaid, 100_000, "each is written or counted");
        ration.leave_out();
        let next = ration.take(start + Duration::from_secs(1000));
        assert!(next.is_some_and(|unsaid| unsaid > 1), "{next:?}");
    }
}
