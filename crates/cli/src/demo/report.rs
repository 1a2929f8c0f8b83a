//! What the demo prints: progress while it runs, a table or one JSON object at the end.

use std::fmt;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::check::Checked;
use super::strike::{Fault, Late};
use crate::client::{Batches, LostCompletions, Windows};

/// A change of primary that the client lived through.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Takeover {
    /// The primary before.
    pub(super) from: String,
    /// The primary after.
    pub(super) to: String,
    /// Its tenure.
    pub(super) epoch: String,
    /// Whether the demo killed the one before.
    pub(super) killed: bool,
    /// What the demo did to it. If nothing, the takeover was spurious, or a fault's command caused it.
    pub(super) fault: Option<Fault>,
    /// Of a primary that was frozen: what it said and did once it was thawed.
    pub(super) late: Option<Late>,
    /// Records in flight whose outcome was unknown: at most the window, and twice that with a primary that is frozen, into whose
    /// socket as many again are sent,
    pub(super) unknown: usize,
    /// of which the new primary's log held these,
    pub(super) found: usize,
    /// and these not: they were sent again.
    pub(super) sent_again: usize,
    /// The silence after which a primary is suspected.
    pub(super) suspicion_ms: u64,
    /// From the fault to the first acknowledgement of a record sent after it.
    pub(super) kill_to_commit_ms: f64,
}

/// What a member counted since its process that ran last began.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct OfMember<T> {
    /// Its number.
    pub(super) member: u8,
    #[serde(flatten)]
    pub(super) counted: T,
}

/// The result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Records sent, each counted once.
    pub(super) records: u64,
    /// Records acknowledged to the client.
    pub(super) acknowledged: u64,
    /// Acknowledged records missing, over all members.
    pub(super) lost: u64,
    /// Records that are there more than once, over all members.
    pub(super) duplicated: u64,
    /// Records with other bytes or at another LSN, over all members.
    pub(super) altered: u64,
    /// Records never acknowledged, over all members.
    pub(super) extra: u64,
    /// Logs that could not be read to their end.
    pub(super) unreadable: u64,
    pub(super) takeovers: Vec<Takeover>,
    /// Sums over the primaries that were frozen and thawed.
    pub(super) late: Late,
    /// Each member's, in their order.
    pub(super) windows: Vec<OfMember<Windows>>,
    /// The same of what their batches cost.
    pub(super) batches: Vec<OfMember<Batches>>,
    /// The same of the completions that it was told to throw away.
    #[serde(skip_serializing_if = "nothing_lost")]
    pub(super) completions_lost: Vec<LostCompletions>,
    pub(super) level: String,
    pub(super) members: usize,
    pub(super) seconds: f64,
    pub(super) throughput_per_s: f64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) input: String,
    /// Whether every acknowledged record is on every member, once, in order, unaltered.
    pub(super) ok: bool,
}

fn nothing_lost(members: &[LostCompletions]) -> bool {
    members.iter().all(LostCompletions::is_none)
}

/// What the demo says while it runs.
#[derive(Debug)]
pub(super) struct Progress {
    silent: bool,
    began: Instant,
    said: Instant,
    acknowledged: u64,
}

impl Progress {
    pub(super) fn new(silent: bool) -> Progress {
        Progress { silent, began: Instant::now(), said: Instant::now(), acknowledged: 0 }
    }

    /// A line, with the time since the feeding began.
    pub(super) fn say(&self, line: &str) {
        self.say_at(Instant::now(), line);
    }

    fn say_at(&self, at: Instant, line: &str) {
        if !self.silent {
            tell_story(format_args!(
                "{:>6.2} s  {line}",
                at.saturating_duration_since(self.began).as_secs_f64()
            ));
        }
    }

    /// A line without a time.
    pub(super) fn plain(&self, line: &str) {
        if !self.silent {
            tell_story(format_args!("{line}"));
        }
    }

    /// The time starts here.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
        self.said = self.began;
    }

    /// Once a second: how far the client is.
    pub(super) fn tick(&mut self, epoch: &str, acknowledged: u64) {
        let since = self.said.elapsed();
        if since < Duration::from_secs(1) {
            return;
        }
        let rate = per_second(acknowledged - self.acknowledged, since);
        self.say(&format!(
            "{} records acknowledged, {} a second, epoch {epoch}",
            grouped(acknowledged),
            grouped(rate)
        ));
        self.said = Instant::now();
        self.acknowledged = acknowledged;
    }

    /// Which member leads at the start.
    pub(super) fn leads(&self, name: &str, epoch: &str) {
        self.say(&format!("{name} is primary (epoch {epoch}); records are sent to it"));
    }

    pub(super) fn struck(&self, name: &str, how: &str, at: Instant) {
        self.say_at(at, &format!("the primary {name} is {how}"));
    }

    pub(super) fn takeover(&self, takeover: &Takeover) {
        self.say(&told(takeover));
    }

    pub(super) fn back(&self, name: &str, fault: Fault, took: Duration) {
        let since = match fault {
            Fault::Kill => "was started again and had caught up",
            Fault::Freeze => "was thawed and had caught up",
            Fault::Command => "was let go and had caught up",
        };
        self.say(&format!("{name} {since} {:.0} ms later", took.as_secs_f64() * 1e3));
    }

    pub(super) fn thawed(&self, name: &str, took: Duration, late: &Late) {
        let Late { acknowledged, unknown, refused, void_batches } = late;
        self.say(&format!(
            "{name} was thawed (SIGCONT) and had caught up {:.0} ms later; of the records sent to it in its old tenure it now called \
             {acknowledged} committed{}, {unknown} unknown and {refused} refused; {void_batches} of its \
             batches were void",
            took.as_secs_f64() * 1e3,
            checked(*acknowledged)
        ));
    }
}

/// A line of progress. Where nobody reads it any more the demo goes on: its members end well, and the report says so.
fn tell_story(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A takeover in a line.
fn told(t: &Takeover) -> String {
    let why = match t.fault {
        Some(Fault::Kill) => "after the kill",
        Some(Fault::Freeze) => "after the freeze",
        Some(Fault::Command) | None => "after the primary was lost, which was not killed",
    };
    let flight = match t.unknown {
        0 => String::from("all that had been sent was acknowledged before that"),
        unknown => {
            // More than the window: those that were sent into the socket of a primary that stood still.
            let with = if t.fault == Some(Fault::Freeze) {
                " with those sent to it while it stood still"
            } else {
                ""
            };
            format!(
                "{unknown} in flight{with}: {} were in the new primary's log, {} were sent again",
                t.found, t.sent_again
            )
        }
    };
    format!(
        "{} is primary (epoch {}): first new record acknowledged {:.0} ms {why}; {flight}",
        t.to, t.epoch, t.kill_to_commit_ms
    )
}

/// What the demo adds to the records that a deposed primary called committed.
fn checked(acknowledged: u64) -> &'static str {
    if acknowledged == 0 { "" } else { " (the group's log has them)" }
}

/// The table for people.
pub(super) fn table(report: &Report, members: &[(String, Checked)]) -> String {
    let mut out = String::new();
    let _ =
        writeln!(out, "\nWhat the members' logs hold, read from their files and compared byte for byte:\n");
    let _ = writeln!(out, "  member   as acknowledged   lost   repeated   altered   never acknowledged");
    for (name, c) in members {
        let (same, lost, again, altered, extra) = (c.same, c.lost, c.duplicated, c.altered, c.extra);
        let _ = writeln!(
            out,
            "  {name:<8} {:>15} {:>6} {:>10} {:>9} {:>20}",
            grouped(same),
            grouped(lost),
            grouped(again),
            grouped(altered),
            grouped(extra)
        );
        if let Some(why) = &c.unreadable {
            let _ = writeln!(out, "           its log can't be read to the end: {why}");
        }
    }
    let _ = writeln!(
        out,
        "\n  acknowledged   {} records at level {}",
        grouped(report.acknowledged),
        report.level
    );
    let _ = writeln!(
        out,
        "  throughput     {} records a second over {:.1} s{}",
        grouped(rounded(report.throughput_per_s)),
        report.seconds,
        if report.takeovers.is_empty() { "" } else { ", takeovers included" }
    );
    let _ = writeln!(
        out,
        "  latency        half of the records acknowledged within {} µs, 99 of 100 within {} µs",
        grouped(report.p50_us),
        grouped(report.p99_us)
    );
    for (number, t) in (1..).zip(&report.takeovers) {
        let what = match t.fault {
            Some(Fault::Kill) => "kill",
            Some(Fault::Freeze) => "freeze",
            Some(Fault::Command) | None => "loss",
        };
        let _ = writeln!(
            out,
            "  takeover {number:<5} {} → {}: {:.0} ms from the {what} to the first new acknowledgement",
            t.from, t.to, t.kill_to_commit_ms
        );
    }
    if let Some(t) = report.takeovers.first() {
        let _ =
            writeln!(out, "                 (a primary is suspected after {} ms of silence)", t.suspicion_ms);
    }
    let sum = |of: fn(&Windows) -> u64| total(report.windows.iter().map(|of_one| of(&of_one.counted)));
    let (binds, used_up) = (sum(|w| w.binds), sum(|w| w.used_up));
    if binds > 0 {
        let _ = writeln!(
            out,
            "  windows        the backups opened a part of their memory to a primary {} times, each time by binding a memory window to it under a new key;\n\
             \x20                {} windows were made, some ahead and never bound; {} came to the end of their 255 keys and were replaced",
            grouped(binds),
            grouped(sum(|w| w.allocated)),
            grouped(used_up)
        );
    }
    let sum = |of: fn(&Batches) -> u64| total(report.batches.iter().map(|of_one| of(&of_one.counted)));
    let sent = sum(|b| b.sent);
    if sent > 0 {
        let _ = writeln!(
            out,
            "  batches        {} to single backups by the processes that ran last: {} doorbells, {} requests, {} completions asked for;\n\
             \x20                {} bytes copied for them beside the log's own copy",
            grouped(sent),
            grouped(sum(|b| b.doorbells)),
            grouped(sum(|b| b.requests)),
            grouped(sum(|b| b.signalled)),
            grouped(sum(|b| b.copied_bytes))
        );
    }
    if !nothing_lost(&report.completions_lost) {
        let sum = |of: fn(&LostCompletions) -> u64| total(report.completions_lost.iter().map(of));
        let _ = writeln!(
            out,
            "  thrown away    {} completions of requests and {} of receives, as the members were told to",
            grouped(sum(|lost| lost.requests)),
            grouped(sum(|lost| lost.receives))
        );
    }
    let thawed = report.takeovers.iter().filter(|takeover| takeover.late.is_some()).count();
    if thawed > 0 {
        let Late { acknowledged, unknown, refused, void_batches } = report.late;
        let _ = writeln!(
            out,
            "  thawed         {thawed} deposed {}: of the records sent to it in its old tenure, {} called committed{},\n\
             \x20                {} unknown, {} refused; {} of its batches void (refused by the backups, or lost with their connection)",
            if thawed == 1 { "primary" } else { "primaries, each" },
            grouped(acknowledged),
            checked(acknowledged),
            grouped(unknown),
            grouped(refused),
            grouped(void_batches)
        );
    }
    let verdict = if report.ok {
        "Nothing acknowledged was lost, altered, repeated or put out of order."
    } else {
        "FAILED: the logs are not what was acknowledged; see the table."
    };
    let _ = writeln!(out, "\n{verdict}");
    out
}

/// The sum of what members counted: they may answer anything.
pub(super) fn total(counted: impl Iterator<Item = u64>) -> u64 {
    counted.fold(0, u64::saturating_add)
}

/// Events a second, rounded.
pub(super) fn per_second(events: u64, time: Duration) -> u64 {
    let ns = time.as_nanos().max(1);
    u64::try_from(u128::from(events) * 1_000_000_000 / ns).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, for people")]
fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_in_thousands() {
        let grouped: Vec<String> = [0, 7, 999, 1000, 12_345, 1_234_567].map(grouped).into();
        assert_eq!(grouped, ["0", "7", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn a_takeover_says_why_more_was_in_flight_than_the_window_has() {
        let mut takeover = Takeover {
            from: "m1".into(),
            to: "m2".into(),
            epoch: "e2.m2".into(),
            killed: true,
            fault: Some(Fault::Kill),
            late: None,
            unknown: 64,
            found: 60,
            sent_again: 4,
            suspicion_ms: 400,
            kill_to_commit_ms: 413.0,
        };
        let line = told(&takeover);
        assert!(
            line.ends_with("64 in flight: 60 were in the new primary's log, 4 were sent again"),
            "{line}"
        );
        (takeover.fault, takeover.unknown) = (Some(Fault::Freeze), 128);
        let line = told(&takeover);
        assert!(line.contains("128 in flight with those sent to it while it stood still: 60"), "{line}");
        takeover.unknown = 0;
        assert!(told(&takeover).ends_with("all that had been sent was acknowledged before that"));
    }

    #[test]
    fn a_wrong_log_fails_and_says_so() {
        let checked = Checked { same: 9, lost: 1, ..Checked::default() };
        let report = Report {
            records: 10,
            acknowledged: 10,
            lost: 1,
            duplicated: 0,
            altered: 0,
            extra: 0,
            unreadable: 0,
            takeovers: vec![],
            late: Late::default(),
            windows: vec![OfMember { member: 1, counted: Windows::default() }],
            batches: vec![OfMember { member: 1, counted: Batches::default() }],
            completions_lost: vec![LostCompletions::default()],
            level: String::from("durable"),
            members: 1,
            seconds: 1.0,
            throughput_per_s: 10.0,
            p50_us: 1,
            p99_us: 2,
            input: String::from("test"),
            ok: checked.is_right(),
        };
        let logs = [(String::from("m1"), checked)];
        let said = table(&report, &logs);
        assert!(said.contains("FAILED"), "{said}");
        // Whatever its members say that they have counted.
        let most = u64::MAX;
        let windows = Windows { binds: most, allocated: most, used_up: most };
        let batches =
            Batches { sent: most, doorbells: most, requests: most, signalled: most, copied_bytes: most };
        let lost = LostCompletions { requests: most, receives: most };
        let of_two = Report {
            windows: [1, 2].map(|member| OfMember { member, counted: windows }).into(),
            batches: [1, 2].map(|member| OfMember { member, counted: batches }).into(),
            completions_lost: vec![lost; 2],
            ..report
        };
        let said = table(&of_two, &logs);
        assert!(said.contains("18,446,744,073,709,551,615 to single backups"), "{said}");
    }
}
