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
/// Payloads of single records.
const SIZES: [u32; 4] = [64, 256, 1024, 4096];

/// The groups that the script makes: members and folder.
const GROUPS: [&str; 4] = ["2 in /tmp", "2 in /tmp, busy", "2 in /data", "3 in /data"];
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
    let files = vec![place(context, &program)];
    let commands = format!("{rounds}\n{SCRIPT}");
    let came = match boot(context, Guest { hosts: 3, disk_mib: 2048, ..guest(arguments, files, commands) }) {
        Ok(came) => came,
        Err(why) => return Outcome::failed(why),
    };
    match came.status {
        Some(0) => {}
        Some(status) => return Outcome::failed(format!("the benchmark ended with status {status}")),
        None => return Outcome::failed(format!("the guest did not finish: {}", came.how)),
    }
    match table(&figures(&came.output)) {
        Some(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            Outcome::passed()
        }
        None => Outcome::failed("a figure is missing in the output"),
    }
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

/// The lines to print; `None` if a figure is missing.
fn table(figures: &Figures) -> Option<Vec<String>> {
    let of = |group: &str, name: String| figures.get(&(group.to_owned(), name)).map(|values| median(values));
    let mut lines = vec![
        "medians in µs; \"placed\" is an append committed at Replicated, one at a time".to_owned(),
        format!(
            "{:>15} {:>6} {:>9} {:>9} {:>11} {:>13} | placed ÷ {:>6} {:>11} {:>13}",
            "members",
            "bytes",
            "placed",
            "batch",
            "round trip",
            "ib_write_lat",
            "batch",
            "round trip",
            "ib_write_lat"
        ),
    ];
    for group in GROUPS {
        for size in SIZES {
            let placed = of(group, format!("append_us.{size}"))?;
            let batch = of(group, format!("batch_us.{size}"))?;
            let trip = of(group, format!("round_trip_us.{size}"))?;
            // It prints half of a round trip.
            let perftest = 2.0 * of("", format!("ib_write_lat_us.{size}"))?;
            lines.push(format!(
                "{group:>15} {size:>6} {placed:>9.1} {batch:>9.1} {trip:>11.1} {perftest:>13.1} | {:>15.2} {:>11.2} {:>13.2}",
                placed / batch,
                placed / trip,
                placed / perftest
            ));
        }
    }
    lines.push("records of 64 KiB in a stream, MiB/s".to_owned());
    for group in GROUPS {
        let placed = of(group, "append_mib_s".to_owned())?;
        let raw = of(group, "batch_mib_s".to_owned())?;
        let perftest = of("", "ib_write_bw_mib_s".to_owned())?;
        lines.push(format!(
            "{group:>15}: placed {placed:.1}, raw writes {raw:.1} ({:.2}), ib_write_bw {perftest:.1} ({:.2})",
            placed / raw,
            placed / perftest
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
        for group in [
            "perftest before",
            "group of 2 in /tmp",
            "group of 2 in /tmp, busy",
            "group of 2 in /data",
            "group of 3 in /data",
            "perftest after",
        ] {
            output.push_str(&format!("{group}\nfigure nothing x\n"));
            for size in SIZES {
                for name in ["append_us", "batch_us", "round_trip_us", "ib_write_lat_us"] {
                    output.push_str(&format!("figure {name}.{size} 10.0\n"));
                }
            }
            output.push_str("figure append_mib_s 7\nfigure batch_mib_s 14\nfigure ib_write_bw_mib_s 10\n");
        }
        let found = figures(&output);
        assert_eq!(found[&(String::new(), "ib_write_lat_us.64".to_owned())], [10.0, 10.0]);
        let lines = table(&found).unwrap();
        assert_eq!(lines.len(), 23);
        assert!(lines[2].ends_with("1.00        1.00          0.50"), "{}", lines[2]);
        assert_eq!(lines[19], "      2 in /tmp: placed 7.0, raw writes 14.0 (0.50), ib_write_bw 10.0 (0.70)");
        assert!(table(&figures("group of 2 in /tmp\n")).is_none());
    }
}
