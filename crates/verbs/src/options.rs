//! What a device is opened with: defaults with their reasons, and checks that say what to do.

use std::path::PathBuf;
use std::time::Duration;

use crate::device::DeviceChoice;
use crate::mode::Registration;

/// What a device is opened with. The defaults suit a private network with a switch or two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerbsOptions {
    /// Which device, port and address; by default the first active port with a fitting address.
    pub device: DeviceChoice,
    /// The folder of the log: how its files are registered is tried there, on a scratch file that has no name. Without a
    /// folder mapped files are sources alone ([`Registration::Staged`]).
    pub folder: Option<PathBuf>,
    /// How mapped files are registered; `None`, the default, tries it. A mode that is given is tried too, and refused where bytes
    /// end up in the wrong place.
    pub registration: Option<Registration>,
    /// How connections send, and how long they try.
    pub path: PathOptions,
    /// How [`wait`](windlass_fabric::CompletionQueue::wait) waits.
    pub completion: CompletionMode,
    /// What connections may ask for at most.
    pub limits: LimitOptions,
    /// Leave memory windows alone, as on a device that has none: then permission is taken back by destroying the connection and
    /// dropping the region. Default false.
    pub no_windows: bool,
}

impl From<DeviceChoice> for VerbsOptions {
    fn from(device: DeviceChoice) -> VerbsOptions {
        VerbsOptions { device, ..VerbsOptions::default() }
    }
}

/// How connections send, and how long they try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathOptions {
    /// The largest path MTU, in bytes: 256, 512, 1024, 2048 or 4096. What is used is the least of this and both ends' active MTUs.
    /// Default 4096, which is a page: less where a switch on the way carries less.
    pub mtu_bytes_max: u32,
    /// How long to wait for an acknowledgement before a packet is sent again; the device rounds up to 4.096 µs × 2^n, and many wait a
    /// multiple. Default 67 ms (n = 14): a loss is rare, and shorter is taken for one when the peer's machine stalls. Not a failure
    /// detector.
    pub ack_timeout: Duration,
    /// How often a packet is sent again, 0 to 6. Default 6. (The device's 7 means for ever on Soft-RoCE.)
    pub retries: u8,
    /// How long the peer waits when this end has no receive posted; rounded up to one of the 31 steps of the specification
    /// (0.01 ms to 655 ms). Default 0.64 ms: receives are posted ahead and counted, so it should never be needed.
    pub receiver_wait: Duration,
    /// How often it tries again then, 0 to 6. Default 6. (7 means for ever.)
    pub receiver_retries: u8,
    /// Routers on the way, at most: 1 to 255. Default 64.
    pub hop_limit: u8,
    /// The traffic class of the packets' IP header: set it to what the network's lossless class wants (DSCP in the upper six bits). Default 0.
    pub traffic_class: u8,
    /// The service level, 0 to 15: the priority on InfiniBand and, without a traffic class, on Ethernet. Default 0.
    pub service_level: u8,
    /// Reads of one connection under way at once, at least 1; the least of this and what both devices can is used. Default 16: what devices of
    /// today serve at once.
    pub reads_in_flight_max: u8,
}

impl Default for PathOptions {
    fn default() -> PathOptions {
        PathOptions {
            mtu_bytes_max: 4096,
            ack_timeout: Duration::from_micros(67_108),
            retries: 6,
            receiver_wait: Duration::from_micros(640),
            receiver_retries: 6,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
            reads_in_flight_max: 16,
        }
    }
}

impl PathOptions {
    /// How long a device goes on at least before it gives a silent peer up: the timeout, as the device rounds it up, once and once more for each
    /// retry. Many wait a multiple.
    #[must_use]
    pub fn silence_min(&self) -> Duration {
        ack_timeout_of(ack_code(self.ack_timeout)).saturating_mul(u32::from(self.retries) + 1)
    }
}

/// How a completion queue's `wait` waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionMode {
    /// Poll without end: the least latency, for the price of a processor. Give its thread a core of its own.
    Busy,
    /// Sleep until the device tells: arm, poll once more, sleep.
    Event,
    /// Poll for a while and then sleep, as long as polling has lately been worth it.
    Adaptive {
        /// How long to poll at most; waits that lately took longer on average are slept through from the start.
        spin_max: Duration,
    },
}

impl Default for CompletionMode {
    /// Adaptive, 50 µs: about what a wake from sleep costs.
    fn default() -> CompletionMode {
        CompletionMode::Adaptive { spin_max: Duration::from_micros(50) }
    }
}

/// What connections may ask for at most, below what the device can.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitOptions {
    /// Slots of a send or receive queue; `None` is what the device can.
    pub depth_max: Option<u32>,
    /// Bytes of an inline payload. `None`, the default, is what the device takes up to 512: a notice needs a few dozen bytes, and
    /// each slot of a queue is made as long as its longest payload.
    pub inline_bytes_max: Option<u32>,
}

/// An option that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("option {option} is {value}, which must be {min} to {max}: {remedy}")]
pub struct OptionRefusal {
    /// Its name.
    pub option: &'static str,
    /// What was given.
    pub value: u64,
    /// The least that can be.
    pub min: u64,
    /// The most that can be, here or on this device.
    pub max: u64,
    /// What to do.
    pub remedy: &'static str,
}

fn within(
    option: &'static str,
    value: u64,
    (min, max): (u64, u64),
    remedy: &'static str,
) -> Result<(), OptionRefusal> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(OptionRefusal { option, value, min, max, remedy }) }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl VerbsOptions {
    /// Checks what can be checked without a device.
    pub(crate) fn check(&self) -> Result<(), OptionRefusal> {
        let path = &self.path;
        if !path.mtu_bytes_max.is_power_of_two() {
            return Err(OptionRefusal {
                option: "path.mtu_bytes_max",
                value: path.mtu_bytes_max.into(),
                min: 256,
                max: 4096,
                remedy: "a path MTU is a power of two",
            });
        }
        within("path.mtu_bytes_max", path.mtu_bytes_max.into(), (256, 4096), "a path MTU is one of five")?;
        within(
            "path.ack_timeout (ns)",
            nanoseconds(path.ack_timeout),
            (1, nanoseconds(ack_timeout_of(ACK_CODE_MAX))),
            "0 would wait for ever; 67 ms is usual",
        )?;
        within("path.retries", path.retries.into(), (0, 6), "7 means for ever on some devices")?;
        within(
            "path.receiver_wait (ns)",
            nanoseconds(path.receiver_wait),
            (1, nanoseconds(Duration::from_micros(RECEIVER_WAITS[31].1))),
            "0 would mean 655 ms; 0.64 ms is usual",
        )?;
        within("path.receiver_retries", path.receiver_retries.into(), (0, 6), "7 means for ever")?;
        within("path.hop_limit", path.hop_limit.into(), (1, 255), "packets with 0 go nowhere")?;
        within("path.service_level", path.service_level.into(), (0, 15), "there are 16 of them")?;
        let remedy = "a member that lacks records reads them from others: 16 is usual";
        within("path.reads_in_flight_max", path.reads_in_flight_max.into(), (1, u8::MAX.into()), remedy)
    }

    /// Checks the limits against what the device can.
    pub(crate) fn check_limits(&self, depth: u32, inline_bytes: u32) -> Result<(), OptionRefusal> {
        let limits = &self.limits;
        let depth_max = limits.depth_max.unwrap_or(depth);
        let inline_bytes_max = limits.inline_bytes_max.unwrap_or(0);
        within(
            "limits.depth_max",
            depth_max.into(),
            (1, depth.into()),
            "the device's queues are not deeper: leave the option out",
        )?;
        within(
            "limits.inline_bytes_max",
            inline_bytes_max.into(),
            (0, inline_bytes.into()),
            "the device takes no more: leave the option out",
        )
    }
}

const ACK_CODE_MAX: u8 = 31;

fn ack_timeout_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << code)
}

/// The code (`timeout`) of the shortest acknowledgement timeout that is not shorter: 4.096 µs × 2^code.
pub(crate) fn ack_code(timeout: Duration) -> u8 {
    (1..=ACK_CODE_MAX).find(|code| ack_timeout_of(*code) >= timeout).unwrap_or(ACK_CODE_MAX)
}

/// Codes of `min_rnr_timer` in the order of their times, in microseconds (InfiniBand specification, table of RNR NAK timer encodings).
const RECEIVER_WAITS: [(u8, u64); 32] = [
    (1, 10),
    (2, 20),
    (3, 30),
    (4, 40),
    (5, 60),
    (6, 80),
    (7, 120),
    (8, 160),
    (9, 240),
    (10, 320),
    (11, 480),
    (12, 640),
    (13, 960),
    (14, 1_280),
    (15, 1_920),
    (16, 2_560),
    (17, 3_840),
    (18, 5_120),
    (19, 7_680),
    (20, 10_240),
    (21, 15_360),
    (22, 20_480),
    (23, 30_720),
    (24, 40_960),
    (25, 61_440),
    (26, 81_920),
    (27, 122_880),
    (28, 163_840),
    (29, 245_760),
    (30, 327_680),
    (31, 491_520),
    (0, 655_360),
];

/// The code of the shortest wait that is not shorter.
pub(crate) fn receiver_wait_code(wait: Duration) -> u8 {
    let micros = nanoseconds(wait).div_ceil(1000);
    RECEIVER_WAITS.iter().find(|(_, time)| *time >= micros).map_or(0, |(code, _)| *code)
}

/// The path MTU as `ibv_mtu` counts it (1 = 256 … 5 = 4096).
pub(crate) fn mtu_code(bytes: u32) -> u32 {
    bytes.clamp(256, 4096).ilog2() - 7
}

/// The reverse.
pub(crate) fn mtu_bytes(code: u32) -> u32 {
    128 << code.clamp(1, 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_what_they_say() {
        let options = VerbsOptions::default();
        assert_eq!(options.check(), Ok(()));
        assert_eq!(ack_code(options.path.ack_timeout), 14);
        assert_eq!(receiver_wait_code(options.path.receiver_wait), 12);
        assert_eq!(mtu_code(options.path.mtu_bytes_max), 5);
    }

    #[test]
    fn times_become_the_devices_codes_rounded_up() {
        assert_eq!(ack_code(Duration::from_nanos(1)), 1);
        assert_eq!(ack_code(Duration::from_nanos(8192)), 1);
        assert_eq!(ack_code(Duration::from_nanos(8193)), 2);
        assert_eq!(ack_code(Duration::from_secs(9000)), 31);
        assert_eq!(receiver_wait_code(Duration::from_micros(10)), 1);
        assert_eq!(receiver_wait_code(Duration::from_nanos(10_001)), 2);
        assert_eq!(receiver_wait_code(Duration::from_millis(500)), 0, "655 ms is code 0");
        assert!(RECEIVER_WAITS.is_sorted_by_key(|(_, micros)| *micros));
    }

    #[test]
    fn kind_73_how_long_a_silent_peer_is_tried_counts_the_first_try_and_what_the_device_rounds_up_to() {
        let silence = |micros, retries| {
            let ack_timeout = Duration::from_micros(micros);
            PathOptions { ack_timeout, retries, ..PathOptions::default() }.silence_min()
        };
        assert_eq!(PathOptions::default().silence_min(), Duration::from_nanos(7 * (4096 << 14)));
        assert_eq!(silence(1, 0), Duration::from_nanos(8192));
        assert_eq!(silence(8389, 2), Duration::from_nanos(3 * (4096 << 12)), "8,389 µs become 16,777");
    }

    #[test]
    fn kind_69_mtu_codes_and_bytes_agree() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!((mtu_code(bytes), mtu_bytes(code)), (code, bytes));
        }
    }

    #[test]
    fn an_option_out_of_range_is_named_with_its_range_and_the_remedy() {
        type Change = fn(&mut PathOptions);
        let changes: [(&str, Change); 9] = [
            ("path.mtu_bytes_max", |path| path.mtu_bytes_max = 1500),
            ("path.mtu_bytes_max", |path| path.mtu_bytes_max = 8192),
            ("path.ack_timeout (ns)", |path| path.ack_timeout = Duration::ZERO),
            ("path.retries", |path| path.retries = 7),
            ("path.receiver_wait (ns)", |path| path.receiver_wait = Duration::from_secs(1)),
            ("path.receiver_retries", |path| path.receiver_retries = 7),
            ("path.hop_limit", |path| path.hop_limit = 0),
            ("path.service_level", |path| path.service_level = 16),
            ("path.reads_in_flight_max", |path| path.reads_in_flight_max = 0),
        ];
        for (option, change) in changes {
            let mut options = VerbsOptions::default();
            change(&mut options.path);
            let refusal = options.check().unwrap_err();
            assert_eq!(refusal.option, option);
            let text = refusal.to_string();
            assert!(text.contains(&refusal.max.to_string()) && text.contains(refusal.remedy), "{text}");
        }
    }

    #[test]
    fn limits_are_checked_against_the_device() {
        let limits = |depth_max, inline_bytes_max| VerbsOptions {
            limits: LimitOptions { depth_max, inline_bytes_max },
            ..VerbsOptions::default()
        };
        assert_eq!(limits(None, None).check_limits(100, 64), Ok(()));
        assert_eq!(limits(Some(100), Some(64)).check_limits(100, 64), Ok(()));
        assert_eq!(limits(Some(101), None).check_limits(100, 64).unwrap_err().option, "limits.depth_max");
        assert_eq!(limits(None, Some(65)).check_limits(100, 64).unwrap_err().max, 64);
    }
}
