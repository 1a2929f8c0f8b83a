//! What a member's log bytes travel by, from the command line.

use std::net::IpAddr;
use std::path::PathBuf;
#[cfg(feature = "verbs")]
use std::time::Duration;

use clap::ValueEnum;
use windlass::{NodeOptions, PumpMode};

use crate::exit::{Failure, Status};

/// Options of the fabric and of the thread that serves it; the demo hands them on to its members.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FabricArgs {
    /// What log bytes travel by, the same for all members: software over TCP, or an RDMA device
    #[arg(long, value_enum, default_value_t = FabricName::Tcp, value_name = "FABRIC")]
    pub(crate) fabric: FabricName,
    /// The RDMA device, such as mlx5_0; in the demo `{}` stands for the member's number. Default: the first with a fitting port
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The address that the device's port must have; in the demo `{}` stands for the member's number. Default: the first
    #[arg(long, value_name = "ADDRESS")]
    device_address: Option<String>,
    /// How the device writes into the log's files. Default: what a trial in the log's folder finds right
    #[arg(long, value_enum, value_name = "MODE")]
    registration: Option<RegistrationName>,
    /// A folder on a memory filesystem for images of segments, with --registration staged. Default: /dev/shm
    #[arg(long, value_name = "DIR")]
    staging_folder: Option<PathBuf>,
    /// Leave memory windows alone, as on a device that has none
    #[arg(long)]
    no_windows: bool,
    /// The traffic class of the device's packets, 0 to 255: what the network's lossless class wants, its DSCP times four. Default: 0
    #[arg(long, value_name = "N")]
    traffic_class: Option<u8>,
    /// The service level of the device's packets: the priority on InfiniBand and, without a traffic class, on Ethernet. Default: 0
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=15))]
    service_level: Option<u8>,
    /// The longest packets that the device sends: 256, 512, 1024, 2048 or 4096 bytes. Default: what both ends' interfaces carry
    #[arg(long, value_name = "BYTES")]
    path_mtu: Option<u32>,
    /// How long the device waits for an acknowledgement before it sends a packet again; rounded up to its steps, of which each is twice the one
    /// before. Default: 67
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=8_000_000))]
    ack_timeout_ms: Option<u64>,
    /// How often the device sends a packet again before it gives the peer up. Default: 6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=6))]
    retries: Option<u8>,
    /// How the member's main thread waits
    #[arg(long, value_enum, default_value_t = WaitName::Adaptive, value_name = "HOW")]
    wait: WaitName,
    /// The processor that the member's main thread stays on. Default: with a device, those of its NUMA node, where there are several
    #[arg(long, value_name = "N")]
    processor: Option<usize>,
    /// Throw away the completion of every Nth request, as a device does that loses some
    #[cfg(feature = "faults")]
    #[arg(long, value_name = "N", hide = true)]
    lose_completions: Option<std::num::NonZeroU64>,
    /// Throw away the completion of every Nth receive that was used
    #[cfg(feature = "faults")]
    #[arg(long, value_name = "N", hide = true)]
    lose_receives: Option<std::num::NonZeroU64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FabricName {
    Tcp,
    Verbs,
}

/// As the provider has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum RegistrationName {
    /// On demand, any transfer
    Odp,
    /// On demand, whole pages
    OdpPage,
    /// Pinned: on a memory filesystem alone
    Pinned,
    /// A pinned image of the live segment, copied by the processor
    Staged,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum WaitName {
    /// Never sleeps
    Busy,
    /// Sleeps at once
    Event,
    /// Spins for a moment, then sleeps
    Adaptive,
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl FabricArgs {
    /// The words that give member `number` these options.
    pub(crate) fn words(&self, number: u8) -> Vec<String> {
        let own = |text: &String| text.replace("{}", &number.to_string());
        let path = self.staging_folder.as_ref().map(|folder| folder.display().to_string());
        let pairs = [
            ("--fabric", Some(name(self.fabric))),
            ("--device", self.device.as_ref().map(own)),
            ("--device-address", self.device_address.as_ref().map(own)),
            ("--registration", self.registration.map(name)),
            ("--staging-folder", path),
            ("--wait", Some(name(self.wait))),
            ("--processor", self.processor.map(|processor| processor.to_string())),
            ("--traffic-class", self.traffic_class.map(|class| class.to_string())),
            ("--service-level", self.service_level.map(|level| level.to_string())),
            ("--path-mtu", self.path_mtu.map(|bytes| bytes.to_string())),
            ("--ack-timeout-ms", self.ack_timeout_ms.map(|ms| ms.to_string())),
            ("--retries", self.retries.map(|retries| retries.to_string())),
        ];
        let given = pairs.into_iter().filter_map(|(option, value)| Some([option.to_owned(), value?]));
        let flag = self.no_windows.then(|| String::from("--no-windows"));
        given.flatten().chain(flag).chain(self.fault_words()).collect()
    }

    #[cfg(feature = "faults")]
    fn fault_words(&self) -> Vec<String> {
        let pairs = [("--lose-completions", self.lose_completions), ("--lose-receives", self.lose_receives)];
        let given =
            pairs.into_iter().filter_map(|(option, every)| Some([option.to_owned(), every?.to_string()]));
        given.flatten().collect()
    }

    #[cfg(not(feature = "faults"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    fn fault_words(&self) -> Vec<String> {
        Vec::new()
    }

    /// The library's options with these in them.
    pub(crate) fn apply(&self, options: NodeOptions) -> Result<NodeOptions, Failure> {
        let mut options = options.pump(match self.wait {
            WaitName::Busy => PumpMode::Busy,
            WaitName::Event => PumpMode::Event,
            WaitName::Adaptive => PumpMode::Adaptive,
        });
        options = options.without_windows(self.no_windows);
        #[cfg(feature = "faults")]
        {
            let (every_request, every_receive) = (self.lose_completions, self.lose_receives);
            options = options.lose_completions(windlass::LoseCompletions { every_request, every_receive });
        }
        if let Some(processor) = self.processor {
            options = options.pin(processor);
        }
        if let Some(folder) = &self.staging_folder {
            options = options.staging_folder(folder.clone());
        }
        let address = self.device_address.as_ref().map(|text| text.parse::<IpAddr>()).transpose();
        let address = address.map_err(|error| {
            Failure::new(Status::Usage, format_args!("--device-address: {error}: it is like 192.0.2.7"))
        })?;
        match self.fabric {
            FabricName::Tcp => Ok(options),
            FabricName::Verbs => self.verbs(options, address),
        }
    }

    #[cfg(feature = "verbs")]
    fn verbs(&self, options: NodeOptions, address: Option<IpAddr>) -> Result<NodeOptions, Failure> {
        use windlass::verbs::{DeviceChoice, PathOptions, Registration, VerbsOptions};
        let device = DeviceChoice { device: self.device.clone(), address };
        let registration = self.registration.map(|registration| match registration {
            RegistrationName::Odp => Registration::Odp,
            RegistrationName::OdpPage => Registration::OdpPage,
            RegistrationName::Pinned => Registration::Pinned,
            RegistrationName::Staged => Registration::Staged,
        });
        let usual = PathOptions::default();
        let path = PathOptions {
            traffic_class: self.traffic_class.unwrap_or(usual.traffic_class),
            service_level: self.service_level.unwrap_or(usual.service_level),
            mtu_bytes_max: self.path_mtu.unwrap_or(usual.mtu_bytes_max),
            ack_timeout: self.ack_timeout_ms.map_or(usual.ack_timeout, Duration::from_millis),
            retries: self.retries.unwrap_or(usual.retries),
            ..usual
        };
        let verbs = VerbsOptions { device, registration, path, ..VerbsOptions::default() };
        Ok(options.fabric(windlass::FabricChoice::Verbs(Box::new(verbs))))
    }

    #[cfg(not(feature = "verbs"))]
    fn verbs(&self, _options: NodeOptions, _address: Option<IpAddr>) -> Result<NodeOptions, Failure> {
        Err(Failure::new(
            Status::Usage,
            "--fabric verbs: this program was built without it: `cargo build --release -p windlass-cli --features verbs` \
             (`cargo xtask guest --install` installs what that needs)",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        fabric: FabricArgs,
    }

    #[test]
    fn what_is_handed_on_to_a_member_is_what_was_given_with_its_number() {
        use clap::Parser as _;
        let given = "x --fabric verbs --device rxe{} --device-address 10.0.0.{} --registration odp-page \
                     --staging-folder /tmp --wait busy --processor 1 --traffic-class 104 --service-level 3 --path-mtu 1024 \
                     --ack-timeout-ms 134 --retries 5 --no-windows";
        let handed = Words::parse_from(given.split_whitespace()).fabric.words(3);
        let want = "--fabric verbs --device rxe3 --device-address 10.0.0.3 --registration odp-page \
                    --staging-folder /tmp --wait busy --processor 1 --traffic-class 104 --service-level 3 --path-mtu 1024 \
                    --ack-timeout-ms 134 --retries 5 --no-windows";
        assert_eq!(handed.join(" "), want.split_whitespace().collect::<Vec<_>>().join(" "));
        let again =
            Words::parse_from(std::iter::once(String::from("x")).chain(handed.clone())).fabric.words(9);
        assert_eq!(again, handed);
        assert_eq!(Words::parse_from(["x"]).fabric.words(1).join(" "), "--fabric tcp --wait adaptive");
    }

    #[test]
    fn a_member_is_told_to_go_wrong_only_by_a_program_built_for_that() {
        use clap::Parser as _;
        let wrong = ["--lose-completions", "7", "--lose-receives", "11"];
        let parsed = Words::try_parse_from(["x"].iter().chain(&wrong));
        if cfg!(feature = "faults") {
            assert!(parsed.unwrap().fabric.words(1).ends_with(&wrong.map(String::from)));
        } else {
            assert!(parsed.is_err());
        }
    }
}
