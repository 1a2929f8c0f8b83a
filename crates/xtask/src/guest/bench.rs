//! `cargo xtask guest --bench`: what replication over a device takes, beside perftest and raw operations, on three hosts within one boot.
//!
//! An emulated machine's times mean nothing by themselves, and the ratios of two kinds of work hold only as far as emulation slows both
//! alike: system calls and changes of threads cost more there than they do on a processor, beside what a network takes.

use std::collections::BTreeMap;

use super::{Arguments, Guest, boot, guest, missing, place};
use crate::Context;
use crate::exec::Run;
use crate::report::Outcome;

const SCRIPT: &str = include_str!("bench.sh");
const PROGRAM: &str = "target/release/device";
/// Run before and after the groups, and in turn with their streams.
const PERFTEST: &str = "crates/xtask/src/guest/perftest.sh";
/// Payloads of single records.
const SIZES: [u32; 4] = [64, 256, 1024, 4096];

/// The groups that the script makes: members, folder, how the first member waits.
pub(super) const GROUPS: [&str; 6] = [
    "2 in /tmp, sleep",
    "2 in /tmp, poll",
    "3 in /tmp, poll",
    "2 in /data, sleep",
    "2 in /data, poll",
    "3 in /data, poll",
];
/// Figures by group (perftest's by none) and name. Each round is one value.
type Figures = BTreeMap<(String, String), Vec<f64>>;

/// Builds, boots, measures, prints.
pub(super) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    if let Some(skipped) = missing() {
        return skipped;
    }
    let words = [
        "build",
        "--locked",
        "--release",
        "-p",
        "windlass-benches",
        "--features",
        "verbs",
        "--bin",
        "device",
    ];
    let built = Run::cargo(context, &words).finish(context, "guest-bench");
    if !built.success {
        return Outcome::failed(format!("the benchmark did not build: {}", built.how));
    }
    let rounds = if arguments.quick { "rounds=1 stretches=1" } else { "rounds=3 stretches=3" };
    let program = context.root.join(PROGRAM).display().to_string();
    let perftest = context.root.join(PERFTEST).display().to_string();
    let files = vec![place(context, &program), place(context, &perftest)];
    let groups = chosen(&arguments.group);
    // A disk's files are written on demand, in whole pages here; a memory filesystem's are pinned, and not flushed.
    let made: String =
        groups.iter().map(|group| format!("group {}\n", group.replace(" in", "").replace(',', ""))).collect();
    let commands =
        format!("{rounds}\n{SCRIPT}echo \"perftest before\"\nraw\n{made}echo \"perftest after\"\nraw\n");
    let came = match boot(context, Guest { hosts: 3, disk_mib: 2048, ..guest(arguments, files, commands) }) {
        Ok(came) => came,
        Err(why) => return Outcome::failed(why),
    };
    match came.status {
        Some(0) => {}
        Some(status) => return Outcome::failed(format!("the benchmark ended with status {status}")),
        None => return Outcome::failed(format!("the guest did not finish: {}", came.how)),
    }
    match table(&figures(&came.output), &groups) {
        Some(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            Outcome::passed()
        }
        None => Outcome::failed("a figure is missing in the output"),
    }
}

/// The groups of these names, or all.
fn chosen(names: &[String]) -> Vec<&'static str> {
    GROUPS.into_iter().filter(|group| names.is_empty() || names.iter().any(|name| name == group)).collect()
}

fn figures(output: &str) -> Figures {
    let mut figures = Figures::new();
    let mut group = String::new();
    for line in output.lines() {
        if let Some(named) = line.strip_prefix("group of ") {
            group = named.trim().to_owned();
        } else if line.starts_with("perftest ") {
            group.clear();
        } else if let Some((name, value)) =
            line.strip_prefix("figure ").and_then(|figure| figure.trim().split_once(' '))
            && let Ok(value) = value.parse()
        {
            figures.entry((group.clone(), name.to_owned())).or_default().push(value);
        }
    }
    figures
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The ratio of two figures, round by round: median, lowest, highest.
fn ratio(of: &[f64], to: &[f64]) -> String {
    let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
    let (low, high) =
        ratios.iter().fold((f64::MAX, 0.0), |(low, high), ratio| (ratio.min(low), ratio.max(high)));
    format!("{:.2} ({low:.2}–{high:.2})", median(&ratios))
}

/// The lines to print; `None` if a figure is missing.
fn table(figures: &Figures, groups: &[&str]) -> Option<Vec<String>> {
    let of = |group: &str, name: String| figures.get(&(group.to_owned(), name)).map(Vec::as_slice);
    let mut lines = vec![
        "medians in µs; \"placed\" is an append committed at Replicated, one at a time; ratios: median (lowest–highest round)"
            .to_owned(),
        format!(
            "{:>18} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} | placed ÷ {:>17} {:>18} {:>18} {:>8}",
            "members", "bytes", "placed", "batch", "to all", "trip", "2 × lat", "log", "batch", "to all", "trip",
            "2 × lat"
        ),
    ];
    for group in groups {
        for size in SIZES {
            let placed = of(group, format!("append_us.{size}"))?;
            let batch = of(group, format!("batch_us.{size}"))?;
            let all = of(group, format!("batch_all_us.{size}"))?;
            let trip = of(group, format!("round_trip_us.{size}"))?;
            let log = of(group, format!("log_us.{size}"))?;
            // It prints half of a round trip.
            let perftest = 2.0 * median(of("", format!("ib_write_lat_us.{size}"))?);
            lines.push(format!(
                "{group:>18} {size:>6} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {perftest:>8.1} {:>8.1} | {:>26} {:>18} {:>18} {:>8.2}",
                median(placed),
                median(batch),
                median(all),
                median(trip),
                median(log),
                ratio(placed, batch),
                ratio(placed, all),
                ratio(placed, trip),
                median(placed) / perftest,
            ));
        }
    }
    lines.push(
        "for each operation: processor time in µs, and how often a thread of this process went to sleep"
            .to_owned(),
    );
    for group in groups {
        let each = ["append", "batch", "batch_all"].map(|name| {
            let cpu = median(of(group, format!("cpu_us.{name}"))?);
            let switches = median(of(group, format!("switches.{name}"))?);
            Some(format!("{name} {cpu:.0} µs, {switches:.1}"))
        });
        let each: Vec<String> = each.into_iter().collect::<Option<_>>()?;
        lines.push(format!("{group:>18}: {}", each.join("; ")));
    }
    lines.push("records of 64 KiB in a stream, MiB/s".to_owned());
    for group in groups {
        let placed = of(group, "append_mib_s".to_owned())?;
        let raw = of(group, "batch_mib_s".to_owned())?;
        let log = of(group, "log_mib_s".to_owned())?;
        let perftest = of(group, "ib_write_bw_mib_s".to_owned())?;
        lines.push(format!(
            "{group:>18}: placed {:.1}, raw writes {:.1}: {}; ib_write_bw {:.1}: {}; one copy and checksum {:.0}",
            median(placed),
            median(raw),
            ratio(placed, raw),
            median(perftest),
            ratio(placed, perftest),
            median(log),
        ));
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_belong_to_the_group_that_was_named_last() {
        let mut output = String::new();
        let groups = GROUPS.map(|group| format!("group of {group}"));
        let before = ["perftest before".to_owned()];
        for group in before.iter().chain(&groups).chain(&["perftest after".to_owned()]) {
            output.push_str(&format!("{group}\nfigure nothing x\n"));
            for size in SIZES {
                for name in
                    ["append_us", "batch_us", "batch_all_us", "round_trip_us", "log_us", "ib_write_lat_us"]
                {
                    output.push_str(&format!("figure {name}.{size} 10.0\n"));
                }
                output.push_str(&format!("figure append_us.{size} 30.0\nfigure batch_us.{size} 10.0\n"));
            }
            for name in ["append", "batch", "batch_all"] {
                output.push_str(&format!("figure cpu_us.{name} 3\nfigure switches.{name} 1\n"));
            }
            output.push_str("figure append_mib_s 7\nfigure batch_mib_s 14\nfigure ib_write_bw_mib_s 10\nfigure log_mib_s 99\n");
        }
        let found = figures(&output);
        assert_eq!(found[&(String::new(), "ib_write_lat_us.64".to_owned())], [10.0, 10.0]);
        let lines = table(&found, &chosen(&[])).unwrap();
        assert_eq!(lines.len(), 2 + 4 * GROUPS.len() + 2 * (1 + GROUPS.len()));
        assert!(lines[2].contains("3.00 (1.00–3.00)"), "{}", lines[2]);
        let last = lines.last().unwrap();
        assert!(
            last.contains(
                "placed 7.0, raw writes 14.0: 0.50 (0.50–0.50); ib_write_bw 10.0: 0.70 (0.70–0.70)"
            ),
            "{last}"
        );
        assert!(table(&figures("group of 2 in /tmp\n"), &chosen(&[])).is_none());
    }
}
