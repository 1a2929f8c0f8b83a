//! `windlass demo` on three hosts of the guest, each with an RDMA device and its folder on ext4: primaries killed, frozen through a takeover,
//! frozen with a write held back on its way, cut off, behind a bad line, without their device; and members that lose completions.
//!
//! The demo itself checks that nothing acknowledged is lost, altered or repeated, and that a deposed primary calls nothing committed that
//! is not. What is judged here is that what was to happen did happen.

use serde_json::Value;

use crate::tally::Tally;

/// Takeovers from frozen primaries, unless told otherwise.
pub(super) const TAKEOVERS: u32 = 10;
/// Records under way at a time.
const IN_FLIGHT: u64 = 16;
/// What a notice has at most.
const NOTICE_BYTES: u64 = 128;
/// From so many takeovers on it is a long run, in which a window's keys are used up, too.
const LONG_RUN: u32 = 300;

/// The demos' names, in the order in which they run.
pub(super) const NAMES: [&str; 14] = [
    "killed",
    "killed_staged",
    "frozen",
    "frozen_staged",
    "frozen_without_windows",
    "frozen_staged_without_windows",
    "frozen_with_a_write_held_back",
    "frozen_with_a_write_held_back_tcp",
    "link_down_and_up",
    "packets_lost_and_late",
    "device_removed",
    "long_packets_dropped",
    "completions_lost",
    "past_the_keys",
];

/// A run of the demo.
struct Demo {
    name: &'static str,
    /// What makes it differ from the others.
    words: &'static str,
    /// How often the primary is struck.
    strikes: u32,
    expects: Expects,
}

/// What has to have happened, beside that nothing is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expects {
    /// Each strike a takeover.
    Killed,
    /// The same, and each primary, thawed, calls what was sent to it meanwhile unknown or refuses it.
    Frozen,
    /// The same, and each had a write under way that was refused or lost.
    Held,
    /// The same as frozen, and some window was bound as often as its keys allow, and replaced.
    PastTheKeys,
    /// Each strike a takeover, and completions of requests and of receives were thrown away.
    CompletionsLost,
    /// Whether there was a takeover is the fault's affair.
    Through,
}

/// The demos of these names, or all of them.
fn chosen(takeovers: u32, only: &[String]) -> Vec<Demo> {
    let mut demos = demos(takeovers);
    let is_long = takeovers >= LONG_RUN;
    demos.retain(|demo| match only {
        [] => is_long || demo.expects != Expects::PastTheKeys,
        only => only.iter().any(|name| name == demo.name),
    });
    demos
}

/// The demos, for so many takeovers from frozen primaries.
fn demos(takeovers: u32) -> Vec<Demo> {
    let held = (takeovers / 3).max(3);
    let demo = |name, words, strikes, expects| Demo { name, words, strikes, expects };
    vec![
        demo("killed", "--fabric verbs", 2, Expects::Killed),
        demo("killed_staged", "--fabric verbs --registration staged", 2, Expects::Killed),
        // Short segments: their windows are bound again and again.
        demo(
            "frozen",
            "--fabric verbs --faults freeze --segment-bytes 65536 --payload 1024",
            takeovers,
            Expects::Frozen,
        ),
        demo("frozen_staged", "--fabric verbs --registration staged --faults freeze", 2, Expects::Frozen),
        demo("frozen_without_windows", "--fabric verbs --no-windows --faults freeze", 1, Expects::Frozen),
        demo(
            "frozen_staged_without_windows",
            "--fabric verbs --no-windows --registration staged --faults freeze",
            1,
            Expects::Frozen,
        ),
        demo(
            "frozen_with_a_write_held_back",
            "--fabric verbs --faults freeze --fault-command /tmp/hold",
            held,
            Expects::Held,
        ),
        demo(
            "frozen_with_a_write_held_back_tcp",
            "--fabric tcp --faults freeze --fault-command /tmp/hold",
            held,
            Expects::Held,
        ),
        demo(
            "link_down_and_up",
            "--fabric verbs --faults command --fault-command /tmp/flap --fault-ms 4000",
            2,
            Expects::Through,
        ),
        demo(
            "packets_lost_and_late",
            "--fabric verbs --faults command --fault-command /tmp/lossy --fault-ms 4000",
            1,
            Expects::Through,
        ),
        demo(
            "device_removed",
            "--fabric verbs --faults command --fault-command /tmp/unplug --fault-ms 3000",
            1,
            Expects::Through,
        ),
        // The path to one backup is found out to be too narrow where it is connected, not by its batches: the fault's end looks for the line.
        demo(
            "long_packets_dropped",
            "--fabric verbs --faults command --fault-command /tmp/narrow --fault-ms 5000",
            1,
            Expects::Through,
        ),
        // A backup that has lost as many receives as it has slots has no credit left to give back, and its session ends.
        demo(
            "completions_lost",
            "--fabric verbs --lose-completions 29 --lose-receives 53 --seconds 20",
            1,
            Expects::CompletionsLost,
        ),
        // Records that fill a segment, whose windows are bound again and again, until one has been bound under each of its keys; then the last
        // strike.
        demo(
            "past_the_keys",
            "--fabric verbs --faults freeze --segment-bytes 65536 --payload 60000 --seconds 20 --used-up-windows 1",
            2,
            Expects::PastTheKeys,
        ),
    ]
}

/// Seconds that the guest may take for them, on a busy machine.
pub(super) fn seconds(takeovers: u32, only: &[String]) -> u64 {
    // A window's keys are used up by thousands of records, however long they take.
    let past_the_keys = chosen(takeovers, only).iter().any(|demo| demo.expects == Expects::PastTheKeys);
    600 + 30 * u64::from(takeovers) + if past_the_keys { 3600 } else { 0 }
}

/// What the guest runs.
pub(super) fn commands(takeovers: u32, only: &[String]) -> String {
    let mut commands = String::from(FUNCTIONS);
    for Demo { name, words, strikes, .. } in chosen(takeovers, only) {
        commands.push_str(&format!("demo {name} --kills {strikes} {words}\n"));
    }
    commands + "exit 0\n"
}

/// The faults as programs (which have a shell of their own: busybox's would take its own `ip`), and how a demo is run: one line of its name, its status
/// and its report, and behind it what it said if it failed.
const FUNCTIONS: &str = r#"
fault() {
  printf '#!/tools/bash\non="ip netns exec host$2"\ncase $1 in begin) %s;; end) %s;; esac\n' "$2" "$3" >/tmp/$1
  chmod +x /tmp/$1
}
fault hold '$on tc qdisc add dev near$2 root netem delay 4000ms limit 100000' 'sleep 3; $on tc qdisc del dev near$2 root'
fault flap 'ip link set far$2 down' 'ip link set far$2 up'
fault lossy '$on tc qdisc add dev near$2 root netem delay 20ms 10ms loss 5%' '$on tc qdisc del dev near$2 root'
fault narrow 'ip link set far$(($2 % 3 + 1)) mtu 1500' 'ip link set far$(($2 % 3 + 1)) mtu 9000; grep -q "drops long packets" /tmp/windlass-demo-*/m*.log'
fault unplug '$on rdma link del rxe$2' '$on rdma link add rxe$2 type rxe netdev near$2; rdma dev set rxe$2 netns host$2; sleep 1'
demo() {
  name=$1; shift
  case "$*" in *--segment-bytes*) ;; *) set -- "$@" --segment-bytes 1048576 ;; esac
  case "$*" in *--seconds*) ;; *) set -- "$@" --seconds 5 ;; esac
  rm -rf /data/demo /tmp/windlass-demo-*
  /guest/windlass demo --json --device 'rxe{}' --device-address '10.0.0.{}' --address '10.0.0.{}:7400' \
    --launch 'ip netns exec host{}' --suspicion-ms 1000 --in-flight 16 --folder /data/demo "$@" \
    >/tmp/report 2>/tmp/said && status=0 || status=$?
  echo "demo $name $status $(cat /tmp/report)"
  [ $status -eq 0 ] && return
  cat /tmp/said
  for lines in /tmp/windlass-demo-*/m*.log; do echo "$lines:"; tail -n 40 $lines; done
}
"#;

/// Judges what the guest printed: the cases, and a complaint for each that failed.
pub(super) fn judge(output: &str, takeovers: u32, only: &[String]) -> (Tally, Vec<String>) {
    let (mut tally, mut complaints) = (Tally::default(), Vec::new());
    for demo in chosen(takeovers, only) {
        match reported(output, demo.name).and_then(|report| demo.judge(&report)) {
            Ok(()) => tally.passed += 1,
            Err(why) => {
                tally.failed += 1;
                complaints.push(format!("demo {}: {why}", demo.name));
            }
        }
    }
    (tally, complaints)
}

/// The report of one demo.
fn reported(output: &str, name: &str) -> Result<Value, String> {
    let prefix = format!("demo {name} ");
    let line = output.lines().find_map(|line| line.trim_start().strip_prefix(&prefix));
    let (status, report) = line.and_then(|line| line.split_once(' ')).ok_or("it was not run to its end")?;
    if status.trim() != "0" {
        return Err(format!("it ended with status {status}"));
    }
    serde_json::from_str(report.trim()).map_err(|error| format!("its report: {error}"))
}

impl Demo {
    fn judge(&self, report: &Value) -> Result<(), String> {
        let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
        if report["ok"] != true || report["records"] != report["acknowledged"] {
            return Err(format!("not all is well: {report}"));
        }
        if number(&report["acknowledged"]) < IN_FLIGHT {
            return Err("hardly anything was acknowledged".into());
        }
        self.judge_batches(report)?;
        let none = Vec::new();
        let takeovers = report["takeovers"].as_array().unwrap_or(&none);
        let of = |fault: &str| {
            takeovers.iter().filter(|takeover| takeover["fault"] == fault).collect::<Vec<&Value>>()
        };
        let wanted = self.strikes as usize;
        let struck = match self.expects {
            Expects::Killed | Expects::CompletionsLost => of("kill"),
            Expects::Frozen | Expects::Held | Expects::PastTheKeys => of("freeze"),
            Expects::Through => return Ok(()),
        };
        if struck.len() != wanted {
            return Err(format!("{} takeovers after a strike, {wanted} were due", struck.len()));
        }
        if self.expects == Expects::CompletionsLost {
            let members = report["completions_lost"].as_array().unwrap_or(&none);
            let sum = |of: &str| members.iter().map(|lost| lost[of].as_u64().unwrap_or(0)).sum::<u64>();
            if sum("requests") == 0 || sum("receives") == 0 {
                return Err(format!("no completions were thrown away: {}", report["completions_lost"]));
            }
        }
        if matches!(self.expects, Expects::Killed | Expects::CompletionsLost) {
            return Ok(());
        }
        let used_up = report["windows"].as_array().unwrap_or(&none).iter();
        let used_up = used_up.map(|member| member["used_up"].as_u64().unwrap_or(0)).sum::<u64>();
        if self.expects == Expects::PastTheKeys && used_up == 0 {
            return Err(format!("no window went past its keys: {}", report["windows"]));
        }
        for takeover in struck {
            let late = &takeover["late"];
            let not_committed = number(&late["unknown"]).saturating_add(number(&late["refused"]));
            if late.is_null() || not_committed < IN_FLIGHT {
                return Err(format!("a thawed primary owes answers: {takeover}"));
            }
            if self.expects == Expects::Held && number(&late["void_batches"]) == 0 {
                return Err(format!("no write was held back: {takeover}"));
            }
        }
        Ok(())
    }
}

impl Demo {
    /// Over a device a batch costs one doorbell for each backup and one completion at most, and nothing is copied for it but a notice.
    fn judge_batches(&self, report: &Value) -> Result<(), String> {
        if !self.words.contains("--fabric verbs") {
            return Ok(());
        }
        let members = report["batches"].as_array().into_iter().flatten();
        let mut sum = [0_u64; 4];
        for member in members {
            for (sum, name) in sum.iter_mut().zip(["sent", "doorbells", "signalled", "copied_bytes"]) {
                *sum += member[name].as_u64().unwrap_or(0);
            }
        }
        let [sent, doorbells, signalled, copied_bytes] = sum;
        // One that the device refused to take rang none.
        if doorbells == 0
            || doorbells > sent
            || signalled > doorbells
            || copied_bytes > NOTICE_BYTES * doorbells
        {
            return Err(format!("batches cost more than they may: {}", report["batches"]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCHES: &str = r#""batches":[{"sent":9,"doorbells":9,"signalled":8,"copied_bytes":936},{"sent":0,"doorbells":0,"signalled":0,"copied_bytes":0}]"#;

    fn line(name: &str, status: u32, late: &str) -> String {
        let takeover = format!(r#"{{"fault":"freeze","late":{late}}}"#);
        format!(
            "   demo {name} {status} {{\"ok\":true,\"records\":90,\"acknowledged\":90,{BATCHES},\"takeovers\":[{takeover},{takeover},{takeover}]}}\n"
        )
    }

    fn verdict(name: &str, output: &str) -> Result<(), String> {
        let demo = demos(3).into_iter().find(|demo| demo.name == name).unwrap();
        reported(output, name).and_then(|report| demo.judge(&report))
    }

    #[test]
    fn a_demo_passes_only_if_what_was_to_happen_did() {
        let held = r#"{"unknown":16,"refused":16,"void_batches":2}"#;
        let not_held = r#"{"unknown":16,"refused":16,"void_batches":0}"#;
        let name = "frozen_with_a_write_held_back";
        assert_eq!(verdict(name, &line(name, 0, held)), Ok(()));
        assert_eq!(verdict("frozen", &line("frozen", 0, not_held)), Ok(()));
        for bad in
            [line(name, 0, not_held), line(name, 2, held), line(name, 0, "null"), line("frozen", 0, held)]
        {
            assert!(verdict(name, &bad).is_err(), "{bad}");
        }
        let lost = line(name, 0, held).replace("\"acknowledged\":90", "\"acknowledged\":89");
        assert!(verdict(name, &lost).is_err());
        let (tally, complaints) = judge(&line("frozen", 0, held), 3, &[]);
        assert_eq!((tally.passed, complaints.len()), (1, chosen(3, &[]).len() - 1));
        let only = [String::from("frozen")];
        let (tally, complaints) = judge(&line("frozen", 0, held), 3, &only);
        assert_eq!((tally.passed, complaints.len()), (1, 0));
    }

    #[test]
    fn a_long_run_goes_past_the_keys_of_a_window() {
        let late = r#"{"unknown":16,"refused":16,"void_batches":0}"#;
        let takeovers = vec![format!(r#"{{"fault":"freeze","late":{late}}}"#); 2].join(",");
        let report = |used_up: u32| {
            let windows = format!(r#"[{{"binds":700,"used_up":{used_up}}},{{"binds":3,"used_up":0}}]"#);
            let text = format!(
                r#"{{"ok":true,"records":90,"acknowledged":90,{BATCHES},"takeovers":[{takeovers}],"windows":{windows}}}"#
            );
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let demo = demos(3).into_iter().find(|demo| demo.name == "past_the_keys").unwrap();
        assert_eq!(demo.judge(&report(2)), Ok(()));
        assert!(demo.judge(&report(0)).is_err());
    }

    #[test]
    fn completions_are_lost_only_where_the_members_say_so() {
        let report = |lost: &str, fault: &str| {
            let text = format!(
                r#"{{"ok":true,"records":90,"acknowledged":90,{BATCHES},"takeovers":[{{"fault":"{fault}"}}]{lost}}}"#
            );
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let lost = |requests: u32, receives: u32| {
            format!(
                r#","completions_lost":[{{"requests":{requests},"receives":0}},{{"requests":0,"receives":{receives}}}]"#
            )
        };
        let demo = demos(3).into_iter().find(|demo| demo.name == "completions_lost").unwrap();
        assert_eq!(demo.judge(&report(&lost(3, 1), "kill")), Ok(()));
        for bad in [lost(3, 0), lost(0, 1), String::new()] {
            assert!(demo.judge(&report(&bad, "kill")).is_err(), "{bad}");
        }
        assert!(demo.judge(&report(&lost(3, 1), "freeze")).is_err(), "the primary was not killed");
    }

    #[test]
    fn batches_over_a_device_cost_one_doorbell_each_and_no_copy_of_the_payload() {
        let demo = demos(3).into_iter().find(|demo| demo.name == "link_down_and_up").unwrap();
        let judged = |sent: u64, doorbells: u64, signalled: u64, copied_bytes: u64| {
            let cost = format!(
                r#"[{{"sent":{sent},"doorbells":{doorbells},"signalled":{signalled},"copied_bytes":{copied_bytes}}}]"#
            );
            let text = format!(r#"{{"ok":true,"records":90,"acknowledged":90,"batches":{cost}}}"#);
            demo.judge(&serde_json::from_str(&text).unwrap())
        };
        assert_eq!(judged(10, 10, 10, 1040), Ok(()));
        assert_eq!(judged(10, 9, 9, 936), Ok(()), "one was not taken");
        for bad in
            [judged(0, 0, 0, 0), judged(10, 11, 10, 0), judged(10, 10, 11, 0), judged(10, 10, 10, 1281)]
        {
            assert!(bad.is_err());
        }
        let demo = demos(3).into_iter().find(|demo| demo.words.contains("--fabric tcp")).unwrap();
        assert_eq!(demo.judge_batches(&Value::Null), Ok(()), "over tcp all is copied");
    }

    #[test]
    fn every_demo_can_be_named() {
        let names: Vec<&str> = demos(TAKEOVERS).iter().map(|demo| demo.name).collect();
        assert_eq!(names, NAMES);
        assert_eq!(chosen(TAKEOVERS, &[]).len(), NAMES.len() - 1);
        assert_eq!(chosen(LONG_RUN, &[]).len(), NAMES.len());
    }

    #[test]
    fn every_fault_that_a_demo_names_is_made() {
        for demo in demos(TAKEOVERS) {
            let fault = demo.words.split("/tmp/").nth(1).and_then(|rest| rest.split(' ').next());
            if let Some(fault) = fault {
                assert!(FUNCTIONS.contains(&format!("\nfault {fault} ")), "{fault}");
            }
        }
    }
}
