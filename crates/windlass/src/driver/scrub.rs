//! A member's care for what it has on its medium: cold segments are read and checked at a low rate, a place where a reader met damage at once. DESIGN.md section 9.2.
//!
//! ```text
//!  scrub, reader ──▶ Scrub (a piece, on a lane of its own) ──▶ damage, read twice
//!      ──▶ Distrust (the mark is lowered, both copies) ──▶ Damaged, WholeBehind ──▶ the engine has the range sent again
//!  opening ──▶ a log that ends at its first damage, its mark lowered ──▶ WholeBehind
//! ```
//!
//! Invariant: the engine hears of damage only once no crash can hide it.

use std::collections::VecDeque;

use slog::{Logger, info, warn};
use windlass_engine::{DurableState, Input, Persisted};
use windlass_fabric::Fabric;
use windlass_log::Lsn;
use windlass_store::disk::Disk;
use windlass_store::{Damage, DiskError, ScrubPlace, Scrubbed};

use super::execute::Ordered;
use super::executor::{Executor, Job};
use super::resend::Resend;
use super::{Driver, DriverEvent};
use crate::clock::Clock;
use crate::control::ControlPlane;
use crate::scrub::{Failed, Pace};

/// Places to look at that are remembered: a reader that meets damage comes again.
const LOOKS_MAX: usize = 16;

/// What a member lacks of what it may have acknowledged, as one look after the other shows it.
#[derive(Debug, Default)]
pub(super) struct Lack {
    /// The mark at the last look, while something was lacking.
    mark: Option<Persisted>,
    /// What the mark has come down by since.
    given_up: Option<(Lsn, Lsn)>,
    /// An operator has accepted the loss here.
    is_accepted: bool,
}

/// How a lack ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LackEnd {
    /// All is on the medium again.
    Here,
    /// This member leads without it, by an operator's word.
    Accepted { from: Lsn, to: Lsn },
    /// The log that this member follows goes on without it.
    GoneOnWithout { from: Lsn, to: Lsn },
}

impl Lack {
    /// An operator's word was taken here.
    pub(super) fn accepted(&mut self) {
        self.is_accepted = true;
    }

    /// How a lack ended since the last look, if it did.
    fn seen(&mut self, is_damaged: bool, mark: Persisted) -> Option<LackEnd> {
        let before = self.mark.take();
        // Where nobody could tell where it ends, a mark that is known again gives nothing up: all that the group has is here.
        let is_known = before != Some(DurableState::MARK_UNKNOWN);
        if let Some(before) = before.filter(|before| mark < *before && (is_known || self.is_accepted)) {
            let (from, to) = self.given_up.unwrap_or((mark.0, before.0));
            self.given_up = Some((from.min(mark.0), to.max(before.0)));
        }
        if is_damaged {
            self.mark = Some(mark);
            return None;
        }
        let is_accepted = std::mem::take(&mut self.is_accepted);
        before.map(|_| match self.given_up.take() {
            None => LackEnd::Here,
            Some((from, to)) if is_accepted => LackEnd::Accepted { from, to },
            Some((from, to)) => LackEnd::GoneOnWithout { from, to },
        })
    }
}

impl LackEnd {
    fn tell(self, logger: &Logger, tail: Lsn) {
        let until = |to: Lsn| {
            if to == DurableState::MARK_UNKNOWN.0 {
                String::from("nobody can tell where")
            } else {
                to.to_string()
            }
        };
        match self {
            LackEnd::Here => {
                info!(logger, "what was damaged or lost is here again, checked and on the medium: this member counts as any other"; "tail" => %tail);
            }
            LackEnd::Accepted { from, to } => {
                warn!(logger, "what this member lacked is given up from LSN {} to {}, by an operator's word: it counts as any other", from, until(to);
                    "tail" => %tail);
            }
            LackEnd::GoneOnWithout { from, to } => {
                warn!(logger, "the group's log goes on without what this member lacked from LSN {} to {}: that was given up by an operator's word, or nobody had \
                               acknowledged it; this member counts as any other", from, until(to);
                    "tail" => %tail);
            }
        }
    }
}

/// What is under way and what comes next.
#[derive(Debug)]
pub(super) struct Scrubber {
    pace: Pace,
    /// What is being read, if anything.
    busy: Option<Reading>,
    /// Where somebody met damage.
    looks: VecDeque<Lsn>,
    /// Damage that was found and is being written down.
    lowering: bool,
    /// What it lacks of what it may have acknowledged, and what became of that.
    pub(super) lack: Lack,
    /// The log was cut, or began anew, while a piece was being read: what that says is of another log.
    is_void: bool,
    /// What is sent again is checked first.
    pub(super) resend: Resend,
}

/// Why a piece is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    Pass,
    Look,
}

impl Scrubber {
    pub(super) fn new(bytes_per_second: u64) -> Scrubber {
        Scrubber {
            pace: Pace::new(bytes_per_second),
            busy: None,
            looks: VecDeque::new(),
            lowering: false,
            lack: Lack::default(),
            is_void: false,
            resend: Resend::default(),
        }
    }

    /// When the next piece is due, if any is.
    pub(super) fn due_at(&self) -> Option<u64> {
        if self.busy.is_some() || self.lowering { None } else { self.pace.due_at() }
    }

    /// The log was cut or began anew. A pass that went on would take the chain of what was there for that of what is there now.
    fn log_changed(&mut self) {
        self.pace.restart();
        self.looks.clear();
        self.is_void = self.busy.is_some();
    }

    /// Somebody met damage there.
    pub(super) fn look(&mut self, lsn: Lsn) {
        if self.looks.len() < LOOKS_MAX && !self.looks.contains(&lsn) {
            self.looks.push_back(lsn);
        }
    }
}

impl<F, D, C, N, X> Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
    /// What the opening found: told of, and where whole records follow behind it the engine is told so.
    pub(super) fn opened_damaged(&mut self, damage: Vec<Damage>) {
        for damage in damage {
            if damage.is_whole_behind {
                self.inputs.push_back(Input::WholeBehind { from: damage.end });
            }
            self.tell_damage(damage);
        }
    }

    fn tell_damage(&mut self, damage: Damage) {
        warn!(self.options.logger, "damage in what was on the medium: this member does not lead until its peers have sent it again";
            "file" => %damage.file.display(), "offset" => damage.offset, "lsn" => %damage.start, "to" => %damage.end,
            "cause" => %damage.reason);
        self.meters.scrub.damage_found.add(1);
        self.events.push_back(DriverEvent::Damaged { damage });
    }

    /// Reads the next piece, if one is due; says when a member is whole again.
    pub(super) fn care(&mut self, now: u64) {
        let status = self.engine.status();
        if let Some(end) = self.scrubber.lack.seen(status.damaged, status.mark) {
            end.tell(&self.options.logger, status.tail);
            self.meters.scrub.damage_repaired.add(1);
            self.events.push_back(DriverEvent::Repaired { tail: status.tail });
        }
        if self.scrubber.busy.is_some() || self.scrubber.lowering || status.stopped.is_some() {
            return;
        }
        let store = &self.local.store;
        let geometry = self.local.geometry();
        let (reading, place, until, bytes_max) = if let Some(lsn) = self.scrubber.looks.pop_front() {
            let until = store.persisted().lsn();
            let first = geometry.first_record(geometry.segment_of(lsn)).max(store.trimmed());
            if lsn < first || lsn >= until {
                return;
            }
            (Reading::Look, ScrubPlace::new(first), until, lsn.0 - first.0 + 1)
        } else {
            let Some((place, bytes)) = self.scrubber.pace.next(now, store.trimmed()) else { return };
            (Reading::Pass, place, store.cold_end(), bytes)
        };
        self.scrubber.busy = Some(reading);
        self.submit(Job::Scrub { place, until, bytes_max });
    }

    /// A piece was read.
    pub(super) fn scrubbed(&mut self, result: Result<Scrubbed, DiskError>, now: u64) {
        let reading = self.scrubber.busy.take();
        let is_pass = reading == Some(Reading::Pass);
        if std::mem::take(&mut self.scrubber.is_void) {
            return;
        }
        match result {
            Ok(Scrubbed::Damaged(damage)) => {
                if is_pass {
                    self.scrubber.pace.read(now, ScrubPlace::new(damage.end), 0);
                }
                self.scrubber.lowering = true;
                self.ordered.push_back(Ordered::Distrust { damage });
            }
            Ok(Scrubbed::Whole { next, bytes }) => {
                self.meters.scrub.bytes.add(bytes);
                if is_pass {
                    self.scrubber.pace.read(now, next, bytes);
                }
            }
            Ok(Scrubbed::End { bytes }) => {
                self.meters.scrub.bytes.add(bytes);
                if is_pass && self.scrubber.pace.ended(now, bytes) {
                    self.meters.scrub.pass_ended();
                }
            }
            Err(error) => {
                self.meters.scrub.failures.add(1);
                let failed = if is_pass {
                    self.scrubber.pace.failed(now, self.local.geometry())
                } else {
                    Failed::Later { is_first: self.scrubber.pace.delay(now) }
                };
                match failed {
                    Failed::Later { is_first: false } => {}
                    Failed::Later { is_first: true } => {
                        warn!(self.options.logger, "a part of the log can't be read from the medium: is its disk failing? replace it before more members are hit";
                            "cause" => %error);
                    }
                    Failed::PassedOver { from, to } => {
                        self.meters.scrub.passed_over.add(1);
                        warn!(self.options.logger, "a part of the log can't be read from the medium, again: the rest of its segment is not checked in this pass; replace the disk";
                            "lsn" => %from, "to" => %to, "cause" => %error);
                    }
                }
            }
        }
    }

    /// The log was cut at `at`, or began anew there. What was found damaged from there on and waits to be written down is gone with it: once peers have sent that again it would be said of
    /// what is whole.
    pub(super) fn log_changed(&mut self, at: Lsn) {
        self.scrubber.log_changed();
        let trimmed = self.local.store.trimmed();
        let lowering = &mut self.scrubber.lowering;
        self.ordered.retain_mut(|next| match next {
            Ordered::Distrust { damage } => {
                *lowering = keep_below(damage, at, trimmed);
                *lowering
            }
            Ordered::Job { .. } | Ordered::Revoke { .. } | Ordered::StartTenure { .. } => true,
        });
    }

    /// No mark says any more that what is damaged is on the medium. Where it was cut off or trimmed before that was done nothing is missed, and nobody told; of what was trimmed in part
    /// the rest is missed.
    pub(super) fn distrusted(&mut self, damage: Option<Damage>) {
        self.scrubber.lowering = false;
        // The same where the trim is still to be done: the engine has it behind it.
        let trimmed = self.engine.status().trimmed;
        let Some(damage) = damage.filter(|damage| trimmed < damage.end) else { return };
        let damage = Damage { start: damage.start.max(trimmed), ..damage };
        self.inputs.push_back(Input::Damaged { at: damage.start });
        if damage.is_whole_behind {
            self.inputs.push_back(Input::WholeBehind { from: damage.end });
        }
        self.tell_damage(damage);
    }
}

/// Leaves of damage what lies in a log from `trimmed` on that was cut at `at`. Whether anything is left.
fn keep_below(damage: &mut Damage, at: Lsn, trimmed: Lsn) -> bool {
    if at <= damage.end {
        (damage.end, damage.is_whole_behind) = (at, false);
    }
    damage.start.max(trimmed) < at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_12_of_damage_that_waits_to_be_written_down_a_cut_leaves_what_lies_below_it() {
        let found = Damage {
            start: Lsn(5000),
            end: Lsn(6000),
            is_whole_behind: true,
            file: "0000000000000000.segment".into(),
            offset: 5000,
            reason: windlass_log::StopReason::Blank,
        };
        let left = |at, trimmed| {
            let mut damage = found.clone();
            keep_below(&mut damage, Lsn(at), Lsn(trimmed)).then_some((damage.end.0, damage.is_whole_behind))
        };
        assert_eq!(left(5000, 4096), None, "cut off");
        assert_eq!(left(4096, 4096), None);
        assert_eq!(left(5496, 4096), Some((5496, false)));
        assert_eq!(left(6000, 4096), Some((6000, false)), "nothing follows any more");
        assert_eq!(left(6008, 4096), Some((6000, true)));
        // It began anew there.
        assert_eq!(left(5496, 5496), None);
        assert_eq!(left(4096, 7000), None);
    }

    #[test]
    fn a_lack_that_was_given_up_is_not_said_to_be_here_again_r18() {
        let mark = |lsn| Persisted(Lsn(lsn));
        // Sent again.
        let mut lack = Lack::default();
        assert_eq!(lack.seen(false, mark(5000)), None);
        assert_eq!(lack.seen(true, mark(6000)), None);
        assert_eq!(lack.seen(false, mark(6000)), Some(LackEnd::Here));
        assert_eq!(lack.seen(false, mark(4500)), None, "no lack, and so no end of one");
        // By the word, in two steps.
        assert_eq!(lack.seen(true, mark(6000)), None);
        lack.accepted();
        assert_eq!(lack.seen(true, mark(5000)), None);
        let (from, to) = (Lsn(4500), Lsn(6000));
        assert_eq!(lack.seen(false, mark(4500)), Some(LackEnd::Accepted { from, to }));
        // Another's word, or an end that nobody had acknowledged.
        assert_eq!(lack.seen(true, mark(6000)), None);
        assert_eq!(lack.seen(false, mark(4500)), Some(LackEnd::GoneOnWithout { from, to }));
        // Where nobody could tell how far it went.
        assert_eq!(lack.seen(true, DurableState::MARK_UNKNOWN), None);
        assert_eq!(lack.seen(false, mark(7000)), Some(LackEnd::Here));
    }
}
