//! What devices do when they are tried: opened as a member of a group opens them, with the probe of the log's folder.

use std::path::Path;

use super::Asked;
use super::devices::Found;
use super::finding::Finding;

/// Opens each device that can be used, and says what came of it.
#[cfg(feature = "verbs")]
pub(super) fn look(asked: &Asked, folder: Option<&Path>, devices: &[Found]) -> Vec<Finding> {
    use windlass_fabric::Fabric;
    use windlass_verbs::{DeviceChoice, Registration, VerbsFabric, VerbsOptions};

    use super::finding::{Group, Level};

    let folder = folder.filter(|folder| folder.is_dir());
    let mut findings = Vec::new();
    for device in devices.iter().filter(|device| device.is_usable) {
        let finding = |id, level, seen: String, means: &str| {
            Finding::new(Group::Trial, id, level, seen, means).about(device.name.as_str())
        };
        let choice = DeviceChoice { device: Some(device.name.clone()), ..DeviceChoice::default() };
        let options =
            VerbsOptions { device: choice, folder: folder.map(Into::into), ..VerbsOptions::default() };
        let fabric = match VerbsFabric::open(&options) {
            Ok(fabric) => fabric,
            Err(error) => {
                let means = "windlass can't use this device, for the reason above: the command shows what the system tells of it";
                findings.push(
                    finding("open", asked.broken(), error.to_string(), means)
                        .run(format!("ibv_devinfo -v -d {}", device.name)),
                );
                continue;
            }
        };
        let can = fabric.capabilities();
        findings.push(
            finding(
                "open",
                Level::Ok,
                format!("opened {}", fabric.description()),
                "connections would start from this address",
            )
            .value("inline_bytes_max", can.inline_bytes_max)
            .value("send_depth_max", can.send_depth_max)
            .value("receive_depth_max", can.receive_depth_max)
            .value("message_bytes_max", can.message_bytes_max)
            .value("reads_in_flight_max", can.reads_in_flight_max),
        );
        let offers = fabric.offers();
        let names = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        findings.push(
            finding(
                "on_demand",
                if offers.on_demand.is_empty() { Level::Note } else { Level::Ok },
                format!("on-demand paging by the device's word: {}", names(&offers.on_demand)),
                if offers.on_demand.is_empty() {
                    "it can't take mapped files in as it needs them: segments are written through a pinned image, which the driver or another card changes"
                } else {
                    "the operations for which it takes mapped files in as it needs them; where they land is tried below"
                },
            )
            .value("operations", offers.on_demand.clone()),
        );
        findings.push(match (can.windows, fabric.windows_hold()) {
            (false, _) => finding(
                "windows",
                Level::Note,
                "no memory windows of type 2".into(),
                "what peers write into is registered for each session by itself, and a deposed primary is fenced by ending both: safe, and slower to grant",
            ),
            (true, false) => finding(
                "windows",
                Level::Note,
                "memory windows, whose ends the device does not keep".into(),
                "each stretch that is opened to a peer is registered by itself: safe, and one registration for each",
            ),
            (true, true) => finding(
                "windows",
                Level::Ok,
                "memory windows of type 2".into(),
                "a primary writes through them, and taking one back fences it in the device",
            ),
        }
        .value("windows", can.windows)
        .value("ends_hold", fabric.windows_hold())
        .value("types", offers.window_types)
        .value("windows_max", offers.windows_max));
        let report = fabric.registration();
        let (level, means) = match report.mode {
            _ if folder.is_none() => {
                (Level::Note, "name the log's folder, and what is possible with its files is tried there")
            }
            Registration::Odp => (Level::Ok, "segments are written in place, byte for byte"),
            Registration::OdpPage => (
                Level::Note,
                "segments are written in place in whole pages: the page that the tail lies in is sent again with each batch",
            ),
            Registration::Pinned => {
                (Level::Note, "in place, pinned: a memory filesystem, where nothing survives a loss of power")
            }
            Registration::Staged => (
                Level::Note,
                "peers write to a pinned image of each live segment, which is copied into the file: one copy more at backups, and locked memory",
            ),
        };
        findings.push(
            finding("registration", level, report.to_string(), means)
                .value("mode", report.mode.name())
                .value("prefetch", report.prefetch),
        );
    }
    findings
}

/// Nothing can be tried without the provider; that it is not built in is said elsewhere.
#[cfg(not(feature = "verbs"))]
pub(super) fn look(asked: &Asked, folder: Option<&Path>, devices: &[Found]) -> Vec<Finding> {
    use super::finding::{Group, Level};

    let _ = (asked, folder);
    let untried = |device: &Found| {
        let means = "whether it has on-demand paging and memory windows, and where its writes land in files of the folder, only a trial tells";
        Finding::new(
            Group::Trial,
            "untried",
            Level::Note,
            "not tried: built without the verbs provider",
            means,
        )
        .about(device.name.as_str())
        .run(format!("ibv_devinfo -v -d {}", device.name))
    };
    devices.iter().filter(|device| device.is_usable).map(untried).collect()
}
