//! What differs from seed to seed: the group, its limits, the load, and which faults there are. Each fault has a switch and a probability of its own;
//! a seed switches some on and leaves others off, so that what one fault hides another run shows.
//!
//! The default stays within what the durability levels promise: at most a minority of the disks is ever lost, and where the
//! group allows `Replicated` at most a minority of the members has lost its memory at any time.

use windlass::MemberId;
use windlass::engine::{Configuration, Limits, Quorums, Timing};

use crate::fabric::{Device, FabricFaults, MS};
use crate::random::Random;

/// A member's log has segments of this size, in bytes.
pub const SEGMENT_BYTES: u64 = 64 << 10;
/// The others replace a primary whose work stands still long before it gives a reservation up.
const PATIENT: u64 = 5_000 * MS;
/// It gives a reservation up before they do.
const IMPATIENT: u64 = 200 * MS;

/// One run's setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How many members the group begins with.
    pub members: u8,
    /// How many more an operator may add.
    pub spares: u8,
    /// How many of the first members make a quorum.
    pub quorums: Quorums,
    /// The mean time between two looks of an operator who changes the group, in nanoseconds. 0: nobody does.
    pub change_ns: u64,
    /// It also chooses other sizes of quorums than majorities.
    pub changes_sizes: bool,
    /// Whether the group allows the level `Replicated`.
    pub replicated_allowed: bool,
    /// The engine's sizes.
    pub limits: Limits,
    /// The engine's times.
    pub timing: Timing,
    /// For how long there are faults at least, in nanoseconds. They go on until the run has met [`crate::Minimum`].
    pub faulty_ns: u64,
    /// The mean time between two appends, in nanoseconds.
    pub append_ns: u64,
    /// How many records are appended at once at most.
    pub append_most: u64,
    /// The mean time between two of the faults in [`Setting::process`], in nanoseconds.
    pub fault_ns: u64,
    /// Faults of the fabric.
    pub fabric: FabricFaults,
    /// Faults of the control plane.
    pub control: ControlFaults,
    /// Faults that the world strikes with, each with its weight.
    pub process: Vec<(Strike, u32)>,
    /// The application's cap on what a log holds, in bytes.
    pub retention_bytes: u64,
    /// What each member's device can do.
    pub devices: Vec<Device>,
    /// All records have so many bytes of payload.
    pub record_bytes: Option<u64>,
    /// A client keeps a reservation for so long at most before it publishes it, in nanoseconds. 0: none does.
    pub held_ns: u64,
    /// A client never publishes what it reserved: probability for each append, in millionths.
    pub leaked: u32,
    /// Once everything is healed a client of the primary does so, and another primary has to follow.
    pub leaks_at_the_end: bool,
    /// How long a reservation may stay unpublished, in nanoseconds: longer than any client keeps one that comes back to it.
    pub reservation_ns: u64,
    /// Of 256 reads of a disk so many give fewer bytes than they are asked for.
    pub reads_cut: u8,
    /// A read of a member that runs fails, for each, in millionths; the next one of the same bytes may succeed.
    pub read_failed: u32,
    /// The system writes dirty pages and names on its own, in any order.
    pub writes_back: bool,
    /// At the end more is lost than the group survives.
    pub exceeds: Option<Excess>,
    /// An operator promotes, hands over and gives words by hand.
    pub hands: Option<Hands>,
    /// What a primary is done with before any peer has it may rot at that moment.
    pub rots_unsent: bool,
    /// Checkpoints come in pieces, from member to member.
    pub streams: bool,
    /// Applications keep their newest one alone, none that ends before.
    pub newest_alone: bool,
    /// One is cut at a piece, for each, in millionths.
    pub stream_cut: u32,
    /// The taker dies where its log is to begin again behind one, for each, in millionths.
    pub stream_deaths: u32,
    /// How much the members' clocks run fast or slow at most, in millionths.
    pub drift_millionths: u64,
    /// Keys are handed out from close to the end of their numbers on, and windows from close to that of their binds: probability for a run, in percent.
    pub keys_near_end: u64,
    /// An opening is cut short at some call, where processes are killed: probability for each, in percent.
    pub openings_cut: u64,
    /// Of eight processes that die so many do in the middle of disk work, if there is any.
    pub work_cut: u64,
}

/// Probabilities in millionths.
#[derive(Clone, Copy, Debug, Default)]
pub struct ControlFaults {
    /// A frame is delivered twice, for each.
    pub duplicated: u32,
    /// The connection is lost, for each frame.
    pub lost: u32,
}

/// More than the group survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excess {
    /// A majority comes back with empty disks.
    DisksEmptied,
    /// One record has rotted on every disk.
    RotEverywhere,
    /// A takeover quorum finds rot, in one record or each in another, while the others are away.
    RotOfMajority,
    /// All machines lose power at once and a takeover quorum comes back, where the group allows `Replicated`.
    MemoryLost,
}

/// What an operator does by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hands {
    /// The mean time between two of its deeds, in nanoseconds.
    pub deed_ns: u64,
    /// It also gives its word to lead with what is left where that is not called for.
    pub gives_words: bool,
    /// At the end more is lost than the group survives, and it gives its word to go on with what is left.
    pub excess: Option<Excess>,
    /// It also asks those for their word that have no vote, and gives one while a configuration is open: in a group that changes.
    pub in_changes: bool,
    /// Before more is lost than the group survives the group changes once more, so that the record of that is lost, too.
    pub changes_before_loss: bool,
}

/// A fault that the world strikes with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Strike {
    /// A process dies.
    Kill,
    /// The primary's process dies.
    KillPrimary,
    /// A member is killed as soon as it comes into some step of a takeover.
    KillInTakeover,
    /// A process ends cleanly.
    Stop,
    /// A machine loses power: of what was not flushed some is lost, some kept, some torn.
    PowerLoss,
    /// All machines lose power.
    PowerLossEverywhere,
    /// A process stands still for a while.
    Pause,
    /// The primary's process stands still for a while, long enough to be replaced.
    PausePrimary,
    /// Nothing gets through between two members, in one direction or both.
    Cut,
    /// A member is cut off from all others, in one direction or both.
    CutOff,
    /// Everything that is cut is mended.
    Mend,
    /// A fabric connection breaks.
    BreakConnection,
    /// A control connection is lost.
    LoseControl,
    /// A member's fabric and processor are slow for a while.
    SlowMember,
    /// A member's disk is slow for a while.
    SlowDisk,
    /// A flush fails once, and the next one would succeed.
    FlushFails,
    /// A read fails once.
    ReadFails,
    /// A byte or a sector of what a member has had on its medium for some time is not what it was.
    Rot,
    /// The same, of a member that is down.
    RotWhileDown,
    /// A clock changes its rate.
    Drift,
    /// A disk is full for a while.
    DiskFull,
    /// A member is down while one of its superblock's copies is damaged.
    SuperblockDamaged,
    /// A member comes back with an empty disk.
    DiskEmptied,
    /// An operator makes a member primary by hand.
    Promote,
    /// An operator hands the tenure over.
    HandOver,
    /// An operator makes the primary resign.
    Resign,
}

impl Strike {
    /// All of them with their weights.
    pub const ALL: &[(Strike, u32)] = &[
        (Strike::Kill, 6),
        (Strike::KillPrimary, 8),
        (Strike::KillInTakeover, 10),
        (Strike::Stop, 6),
        (Strike::PowerLoss, 8),
        (Strike::PowerLossEverywhere, 2),
        (Strike::Pause, 6),
        (Strike::PausePrimary, 6),
        (Strike::Cut, 6),
        (Strike::CutOff, 6),
        (Strike::Mend, 14),
        (Strike::BreakConnection, 8),
        (Strike::LoseControl, 6),
        (Strike::SlowMember, 5),
        (Strike::SlowDisk, 5),
        (Strike::FlushFails, 4),
        (Strike::ReadFails, 3),
        (Strike::Rot, 4),
        (Strike::RotWhileDown, 4),
        (Strike::Drift, 3),
        (Strike::DiskFull, 3),
        (Strike::SuperblockDamaged, 3),
        (Strike::DiskEmptied, 1),
        (Strike::Promote, 8),
        (Strike::HandOver, 4),
        (Strike::Resign, 2),
    ];
}

impl Setting {
    /// The configuration that a member's folder is made with: the group's first one, or none where the member is to be added.
    ///
    /// # Panics
    ///
    /// Where the sizes of the quorums don't fit the members.
    #[must_use]
    pub fn founding(&self, member: u8) -> Configuration {
        if member >= self.members {
            return Configuration::unknown();
        }
        let founding = Configuration::founding((0..self.members).map(MemberId));
        founding.with_quorums(self.quorums).expect("the sizes fit")
    }

    /// How many members there may be at most.
    #[must_use]
    pub fn all(&self) -> u8 {
        self.members + self.spares
    }

    /// The setting of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Setting {
        let mut random = Random::new(seed ^ 0x5e77_1496);
        let members = if random.percent(30) { 5 } else { 3 };
        let is_mixed = random.percent(30);
        let devices = (0..members).map(|_| match random.range(0, 3) {
            0 if is_mixed => Device::Staged,
            1 if is_mixed => Device::Pages,
            _ => Device::Any,
        });
        let devices = devices.collect();
        let replicated_allowed = random.percent(50);
        let mut limits = Limits {
            batch_bytes: pick(&mut random, &[4096, 5000, 64 << 10]),
            batches_in_flight: pick(&mut random, &[1, 1, 3]),
            stream_bytes: if seed.is_multiple_of(2) { 2 << 10 } else { 64 << 10 },
            stream_batches_in_flight: 4,
            notice_slots: pick(&mut random, &[2, 4, 16]),
            segments_ahead: pick(&mut random, &[1, 2]),
            retention_bytes: pick(&mut random, &[2 * SEGMENT_BYTES, 8 * SEGMENT_BYTES, 1 << 30]),
            fetch_bytes: pick(&mut random, &[4096, 64 << 10]),
            flush_lag_bytes: pick(&mut random, &[1, 4096, 1 << 20]),
        };
        let timing = Timing {
            heartbeat_ns: 10 * MS,
            suspicion_ns: 80 * MS,
            backoff_ns: 10 * MS,
            stall_ns: 300 * MS,
            retry_ns: 20 * MS,
            flush_idle_ns: 10 * MS,
        };
        let mut fabric = FabricFaults {
            immediates_garbled: seed % 2 == 1,
            delayed: sometimes(&mut random, 2_000),
            completed_early: sometimes(&mut random, 200_000),
            landed_in_pieces: sometimes(&mut random, 500_000),
            landed_slowly: 0,
            landed_after_invalidation: sometimes(&mut random, 500_000),
            failed_but_done: sometimes(&mut random, 500_000),
            receiver_not_ready: sometimes(&mut random, 300),
            completion_lost: sometimes(&mut random, 300),
            receive_lost: sometimes(&mut random, 2_000),
            misplaced: if replicated_allowed { 0 } else { sometimes(&mut random, 1_000) },
            broken: sometimes(&mut random, 300),
        };
        // What is under way when a window is taken back lands later still: drawn by nothing, so that the other seeds stay what they are.
        if seed.is_multiple_of(8) {
            fabric.landed_in_pieces = fabric.landed_in_pieces.max(500_000);
            // A piece that does not go on landing ends its connection, and the others with it.
            fabric.landed_after_invalidation = 900_000;
            fabric.landed_slowly = 600_000;
        }
        let control =
            ControlFaults { duplicated: sometimes(&mut random, 50_000), lost: sometimes(&mut random, 2_000) };
        // What is cut is mended in every run: that is no fault.
        let mut process: Vec<(Strike, u32)> = Strike::ALL
            .iter()
            .copied()
            .filter(|(strike, _)| random.percent(70) || *strike == Strike::Mend)
            .collect();
        if seed.is_multiple_of(8) {
            // Windows are taken back while long messages are under way.
            process.push((Strike::Promote, 25));
        }
        if seed % 16 == 5 && !replicated_allowed {
            // Packets are misplaced while damage is filled, over what is whole behind it: drawn by nothing, too.
            fabric.misplaced = 50_000;
            process.extend([(Strike::Rot, 15), (Strike::RotWhileDown, 10)]);
            limits.batch_bytes = 4096;
        }
        // Most runs are short, so that there can be many of them; what takes long to build up has the others.
        let faulty_ns = match random.range(0, 100) {
            0..85 => random.range(200 * MS, 450 * MS),
            85..97 => random.range(450 * MS, 1_000 * MS),
            _ => random.range(1_500 * MS, 3_000 * MS),
        };
        let mut setting = Setting {
            members,
            spares: 0,
            quorums: Quorums::Majority,
            change_ns: 0,
            changes_sizes: false,
            replicated_allowed,
            limits,
            timing,
            faulty_ns,
            append_ns: random.range(200_000, 900_000),
            append_most: pick(&mut random, &[4, 8, 16]),
            fault_ns: random.range(15 * MS, 90 * MS),
            fabric,
            control,
            process,
            retention_bytes: pick(&mut random, &[2, 64, 64, 64, 64]) * SEGMENT_BYTES,
            devices,
            record_bytes: if random.percent(25) { Some(8 * random.range(1, 40)) } else { None },
            held_ns: if random.percent(60) { random.range(MS / 10, 150 * MS) } else { 0 },
            leaked: if random.percent(6) { 30_000 } else { 0 },
            leaks_at_the_end: random.percent(4),
            reads_cut: if random.percent(40) { 40 } else { 0 },
            read_failed: 0,
            writes_back: random.percent(8),
            exceeds: match random.range(0, 50) {
                0 => Some(Excess::DisksEmptied),
                1 => Some(Excess::RotEverywhere),
                _ => None,
            },
            hands: None,
            rots_unsent: false,
            streams: false,
            newest_alone: false,
            stream_cut: 0,
            stream_deaths: 0,
            drift_millionths: pick(&mut random, &[0, 1_000, 50_000]),
            reservation_ns: PATIENT,
            keys_near_end: 30,
            openings_cut: 20,
            work_cut: 6,
        };
        if setting.leaks_at_the_end && random.percent(50) {
            setting.reservation_ns = IMPATIENT;
        }
        if seed % 4 == 3 {
            setting.change_the_group(&mut Random::new(seed ^ 0x6d65_6d62_6572));
        }
        if seed % 8 == 2 {
            setting.operate_by_hand(&mut Random::new(seed ^ 0x0068_616e_6473));
        }
        if matches!(seed % 32, 11 | 19 | 29) {
            setting.give_words_in_changes(&mut Random::new(seed ^ 0x0077_6f72_6473));
        }
        if matches!(seed % 32, 4 | 8 | 15) {
            setting.stream_checkpoints(&mut Random::new(seed ^ 0x6368_6563_6b70));
            setting.newest_alone = matches!(seed % 64, 36 | 40 | 47) || seed % 128 == 68;
        }
        setting.fail_reads(&mut Random::new(seed ^ 0x7265_6164_2064));
        // Where the device's word for what was placed is asked for.
        setting.rots_unsent = seed % 8 == 6 && setting.replicated_allowed;
        setting
    }

    /// An operator's hands: drawn by a generator of their own, so that the other seeds stay what they are.
    fn operate_by_hand(&mut self, random: &mut Random) {
        let lost = if self.replicated_allowed { Excess::MemoryLost } else { Excess::RotOfMajority };
        let kinds = [Excess::DisksEmptied, Excess::RotEverywhere, Excess::RotOfMajority, lost, lost];
        self.hands = Some(Hands {
            deed_ns: random.range(15 * MS, 60 * MS),
            gives_words: random.percent(60),
            excess: random.percent(75).then(|| pick(random, &kinds)),
            in_changes: false,
            changes_before_loss: false,
        });
    }

    /// Read errors of members that run, in a fifth of the seeds, and in half of those with checkpoints in pieces: drawn by a generator of their own. Damage beside them is more frequent than elsewhere in half of these.
    fn fail_reads(&mut self, random: &mut Random) {
        if !random.percent(if self.streams { 50 } else { 20 }) {
            return;
        }
        self.read_failed = u32::try_from(random.range(20_000, 400_000)).unwrap_or(0);
        if random.percent(50) {
            self.process.extend([(Strike::Rot, 12), (Strike::RotWhileDown, 6)]);
        }
    }

    /// Checkpoints in pieces: drawn by a generator of their own. Members fall behind what is kept for them more often than elsewhere.
    fn stream_checkpoints(&mut self, random: &mut Random) {
        self.streams = true;
        self.stream_cut = u32::try_from(random.range(0, 100_000)).unwrap_or(0);
        self.stream_deaths = u32::try_from(random.range(200_000, 800_000)).unwrap_or(0);
        self.limits.retention_bytes = 2 * SEGMENT_BYTES;
        (self.append_ns, self.append_most) = (random.range(150_000, 400_000), 16);
        self.process.extend([(Strike::Kill, 6), (Strike::Pause, 8), (Strike::CutOff, 12)]);
        self.fault_ns = self.fault_ns.min(40 * MS);
        self.faulty_ns = self.faulty_ns.max(600 * MS);
    }

    /// The same in a group that changes.
    fn give_words_in_changes(&mut self, random: &mut Random) {
        if self.spares == 0 {
            self.let_members_come(random);
        }
        let rot = Excess::RotOfMajority;
        let lost = if self.replicated_allowed { Excess::MemoryLost } else { rot };
        let kinds = [Excess::RotEverywhere, rot, rot, rot, rot, lost];
        self.hands = Some(Hands {
            deed_ns: random.range(15 * MS, 60 * MS),
            gives_words: true,
            excess: random.percent(90).then(|| pick(random, &kinds)),
            in_changes: true,
            changes_before_loss: random.percent(90),
        });
    }

    /// The group changes, or has quorums of other sizes: drawn by a generator of its own, so that the other seeds stay what they are.
    fn change_the_group(&mut self, random: &mut Random) {
        if random.percent(40) {
            let sizes: &[(u8, u8)] =
                if self.members == 3 { &[(2, 2), (2, 3), (3, 2)] } else { &[(2, 4), (4, 2), (3, 3), (3, 4)] };
            let (write, takeover) = pick(random, sizes);
            self.quorums = Quorums::Sizes { write, takeover };
        }
        if random.percent(85) {
            self.let_members_come(random);
        }
    }

    fn let_members_come(&mut self, random: &mut Random) {
        self.spares = 4;
        self.change_ns = random.range(15 * MS, 80 * MS);
        self.changes_sizes = random.percent(60);
        self.faulty_ns = self.faulty_ns.max(400 * MS);
        if random.percent(50) {
            self.process.push((Strike::DiskEmptied, 5));
        }
        let mixed: &[Device] = if self.devices.iter().all(|device| *device == Device::Any) {
            &[Device::Any]
        } else {
            &[Device::Any, Device::Staged, Device::Pages]
        };
        self.devices.extend((0..self.spares).map(|_| pick(random, mixed)));
    }
}

impl Setting {
    /// Whether the world strikes at all.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        !self.process.is_empty()
    }

    /// Switches one fault off, by its name: a field of [`FabricFaults`] or [`ControlFaults`] (as `fabric.broken`), or a [`Strike`]. Whether there
    /// is such a fault.
    pub fn switch_off(&mut self, name: &str) -> bool {
        let (fabric, control) = (&mut self.fabric, &mut self.control);
        let probability = match name {
            "fabric.delayed" => &mut fabric.delayed,
            "fabric.completed_early" => &mut fabric.completed_early,
            "fabric.landed_in_pieces" => &mut fabric.landed_in_pieces,
            "fabric.landed_slowly" => &mut fabric.landed_slowly,
            "fabric.landed_after_invalidation" => &mut fabric.landed_after_invalidation,
            "fabric.failed_but_done" => &mut fabric.failed_but_done,
            "fabric.receiver_not_ready" => &mut fabric.receiver_not_ready,
            "fabric.completion_lost" => &mut fabric.completion_lost,
            "fabric.receive_lost" => &mut fabric.receive_lost,
            "fabric.misplaced" => &mut fabric.misplaced,
            "fabric.broken" => &mut fabric.broken,
            "control.duplicated" => &mut control.duplicated,
            "control.lost" => &mut control.lost,
            "Change" => return std::mem::take(&mut self.change_ns) > 0,
            "Hands" => return self.hands.take().is_some(),
            "Unsent" => return std::mem::take(&mut self.rots_unsent),
            "Words" => {
                let hands = self.hands.as_mut();
                return hands.is_some_and(|hands| {
                    hands.excess.take().is_some() | std::mem::take(&mut hands.gives_words)
                });
            }
            "WordsInChanges" => {
                return self.hands.as_mut().is_some_and(|hands| std::mem::take(&mut hands.in_changes));
            }
            "ChangeBeforeLoss" => {
                let hands = self.hands.as_mut();
                return hands.is_some_and(|hands| std::mem::take(&mut hands.changes_before_loss));
            }
            "disk.read_failed" => &mut self.read_failed,
            "stream.cut" => &mut self.stream_cut,
            "stream.deaths" => &mut self.stream_deaths,
            "NewestAlone" => return std::mem::take(&mut self.newest_alone),
            "Streams" => return std::mem::take(&mut self.streams),
            "Quorums" => {
                self.changes_sizes = false;
                self.quorums = Quorums::Majority;
                return true;
            }
            "fabric.immediates_garbled" => return std::mem::take(&mut self.fabric.immediates_garbled),
            "Held" => return std::mem::take(&mut self.held_ns) > 0,
            "Leaked" => return std::mem::take(&mut self.leaked) > 0,
            "ReadsCut" => return std::mem::take(&mut self.reads_cut) > 0,
            // Both how far clocks are off from the start and that their rates change.
            "Drift" => {
                self.process.retain(|(strike, _)| *strike != Strike::Drift);
                self.drift_millionths = 0;
                return true;
            }
            "KeysNearEnd" => return std::mem::take(&mut self.keys_near_end) > 0,
            "OpeningsCut" => return std::mem::take(&mut self.openings_cut) > 0,
            "WorkCut" => return std::mem::take(&mut self.work_cut) > 0,
            "WritesBack" => return std::mem::take(&mut self.writes_back),
            "Exceeds" => return self.exceeds.take().is_some(),
            "Devices" => {
                self.devices.fill(Device::Any);
                return true;
            }
            _ => {
                let is_it = |strike: &Strike| format!("{strike:?}") == name;
                self.process.retain(|(strike, _)| !is_it(strike));
                return Strike::ALL.iter().any(|(strike, _)| is_it(strike));
            }
        };
        *probability = 0;
        true
    }
}

fn pick<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.index(choices.len())]
}

/// A probability up to this one, or none.
fn sometimes(random: &mut Random, most: u32) -> u32 {
    let drawn = u32::try_from(random.range(1, u64::from(most) + 1)).unwrap_or(most);
    if random.percent(60) { drawn } else { 0 }
}
