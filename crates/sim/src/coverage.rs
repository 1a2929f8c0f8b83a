//! What really happened in a run: each fault and each step of the protocol that the simulator claims to cover counts itself here. A run
//! over many seeds that has never met one of them fails ([`Coverage::missing`]): a simulator that does nothing proves nothing.

use std::collections::BTreeMap;
use std::fmt;

macro_rules! marks {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// One thing that happened.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Mark {
            $($(#[$doc])* $variant,)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &[Mark] = &[$(Mark::$variant,)*];

            /// In words.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Mark::$variant => $name,)* }
            }
        }
    };
}

marks! {
    // ---- fabric
    /// A request took much longer than others.
    Delayed = "fabric: delayed";
    /// Requests to or from a slow member.
    SlowMember = "fabric: slow member";
    /// A connection broke.
    ConnectionBroken = "fabric: connection broken";
    /// A request never arrived: the path was cut.
    Partitioned = "fabric: request cut";
    /// A request arrived and its answer did not: cut in one direction.
    AnswerCut = "fabric: answer cut";
    /// A completion came before its bytes were visible.
    CompletedEarly = "fabric: completed before placed";
    /// A message landed in pieces.
    LandedInPieces = "fabric: landed in pieces";
    /// A message took milliseconds to land.
    LandedSlowly = "fabric: landed slowly";
    /// A message went on landing after its window had been invalidated.
    LandedAfterInvalidation = "fabric: landed after invalidation";
    /// A request was carried out and its poster heard of an error, or of nothing.
    FailedButDone = "fabric: error, but done";
    /// A request was carried out, and its connection ended before its poster heard so: flushed like what was not.
    FlushedButDone = "fabric: flushed, but done";
    /// A request was queued when its connection ended, and never went out: its poster heard of the same error.
    FailedNotDone = "fabric: error, not done";
    /// Of a message some pieces landed and the others never.
    LandedInPart = "fabric: landed in part";
    /// A request was refused for want of a receive.
    ReceiverNotReady = "fabric: receiver not ready";
    /// A completion was lost.
    CompletionLost = "fabric: completion lost";
    /// The completion of a receive was lost.
    ReceiveLost = "fabric: completion of a receive lost";
    /// An immediate arrived with another number than it was sent with.
    ImmediateGarbled = "fabric: immediate garbled";
    /// Keys came to the end of their numbers and began again.
    KeysWrapped = "fabric: keys wrapped";
    /// A window was bound as often as its keys have numbers.
    WindowUsedUp = "fabric: window used up";
    /// A packet landed elsewhere.
    Misplaced = "fabric: misplaced";
    /// A packet landed elsewhere at a damaged member, over what may have been whole behind the damage.
    MisplacedBehind = "fabric: misplaced behind damage";
    /// A primary read the page that it was to write into first.
    FirstPageRead = "fabric: first page read";
    /// A window refused a write: fencing at work.
    AccessRefused = "fabric: access refused";
    // ---- control plane
    /// A control connection was lost.
    ControlLost = "control: connection lost";
    /// A frame was delivered twice.
    FrameTwice = "control: frame delivered twice";
    /// Members were cut off from each other, both ways.
    Cut = "cut both ways";
    /// Members were cut off from each other, one way.
    CutOneWay = "cut one way";
    // ---- disk
    /// Flushes and writes took much longer.
    SlowDisk = "disk: slow";
    /// A flush failed once, and the pages were clean.
    FlushFailed = "disk: flush fails once";
    /// An opening met a read error.
    ReadFailed = "disk: read error at opening";
    /// A scrub of a member that runs met a read error.
    ScrubUnread = "disk: read error, a scrub";
    /// A read error met a member that was about to write down that it has damage.
    DistrustUnread = "disk: read error, damage written down";
    /// A read error met a client's call that trims.
    TrimUnread = "disk: read error, a client's trim";
    /// A member's disk did not give the record that it trims at itself.
    OwnTrimUnread = "disk: read error, a member's own trim";
    /// A read error met a primary that was about to send a part of its log again.
    ResendUnread = "disk: read error, what is sent again";
    /// The reader of a member's application met a read error.
    ReaderUnread = "disk: read error, an application's reader";
    /// A subscription on a primary met a read error.
    SubscriptionUnread = "disk: read error, a subscription";
    /// A member that was asked for a checkpoint met a read error.
    GiverUnread = "disk: read error, a checkpoint's giver";
    /// A member that was to end cleanly met a read error.
    CloseUnread = "disk: read error, a clean stop";
    /// A read gave fewer bytes than it was asked for, or was interrupted.
    ReadShort = "disk: short reads";
    /// A byte of synced data changed.
    Rotted = "disk: rot in synced data";
    /// A sector that a primary is done with changed before its peers had it.
    RottedUnsent = "disk: rot in what a primary is done with, before its peers have it";
    /// A sector of synced data was lost.
    SectorLost = "disk: synced sector lost";
    /// A sector of synced data has what belongs elsewhere.
    SectorMisdirected = "disk: synced sector misdirected";
    /// The system wrote dirty pages and names on its own.
    WrittenBack = "disk: pages written in any order";
    /// A full disk refused what needed room.
    DiskFull = "disk: full";
    /// A superblock's copy was damaged.
    SuperblockDamaged = "disk: superblock copy damaged";
    /// A copy of a member's disk got the superblock's file from before a newer epoch back, and was refused.
    OlderSuperblock = "disk: older superblock put back in a copy";
    /// A member came back with an empty disk.
    DiskEmptied = "disk: emptied";
    // ---- processes
    /// A process was killed.
    Killed = "killed";
    /// A machine lost power.
    PowerLost = "power lost";
    /// All machines lost power.
    PowerLostEverywhere = "power lost everywhere";
    /// An opening was cut short.
    CrashInRecovery = "crash in recovery";
    /// A process stood still.
    Paused = "paused";
    /// A clock changed its rate.
    Drifted = "clock changes its rate";
    // ---- clients and operators
    /// A commit was answered at a level of one machine.
    AcknowledgedHere = "acknowledged: local or buffered";
    /// A subscription that waited for more was woken, and was shown some.
    SubscriberWoken = "a waiting subscription woken";
    /// A commit was answered at `Replicated`.
    AcknowledgedReplicated = "acknowledged: replicated";
    /// A commit was answered at `Durable`.
    AcknowledgedDurable = "acknowledged: durable";
    /// A commit ended as unknown.
    Unknown = "commit unknown";
    /// An append was refused.
    AppendRefused = "append refused";
    /// A process ended cleanly.
    StoppedCleanly = "stopped cleanly";
    /// A reservation was kept for a while before it was published.
    ReservationHeld = "reservation held";
    /// A reservation was never published.
    ReservationLeaked = "reservation leaked";
    /// More was lost than a group survives, and it said so.
    Exceeded = "budget exceeded, and said so";
    /// Its tenure ended for it.
    ReservationStuck = "stuck reservation ended a tenure";
    /// A primary that stood still was replaced.
    Replaced = "primary that stood still replaced";
    /// A member whose device moves whole pages was opened.
    PagesOpened = "opened: whole pages";
    /// A member with images of its segments was opened.
    StagedOpened = "opened: staged images";
    /// A reservation was given up.
    ReservationDropped = "reservation dropped";
    /// The log was trimmed.
    Trimmed = "trimmed";
    /// A member was made primary by hand.
    Promoted = "operator: promoted";
    /// A tenure was handed over.
    HandedOver = "operator: handed over";
    /// A primary was made to resign.
    Resigned = "operator: resigned";
    /// An operator asked for a new member.
    MemberAdded = "operator: member added";
    /// An operator asked for a member to leave.
    MemberRemoved = "operator: member removed";
    /// An operator asked for the primary to leave.
    PrimaryRemoved = "operator: primary removed";
    /// An operator took back that a member is added.
    LearnerRemoved = "operator: member that learns removed";
    /// An operator asked for a new member in the place of another.
    MemberReplaced = "operator: member replaced";
    /// An operator asked for a new member in the place of one whose disk was lost.
    EmptiedReplaced = "operator: member with an emptied disk replaced";
    /// An operator asked for other sizes of quorums.
    QuorumsChanged = "operator: sizes of quorums changed";
    /// A tenure began at the member that it was handed over to.
    HandedToChosen = "operator: handed over to the chosen member";
    /// A member was promoted and leads, with the primary cut off from it.
    PromotedAcrossCut = "operator: promoted while the primary was cut off";
    /// A member was promoted and leads, while the primary stands still.
    PromotedOverFrozen = "operator: promoted while the primary stood still";
    /// A member that is cut off from all others was promoted, and does not lead.
    PromotedAlone = "operator: promoted alone, and leads nothing";
    /// An operator's word was refused: somebody leads.
    WordRefusedLed = "operator: word refused, a primary leads";
    /// An operator's word was refused: the process has shown what is lost.
    WordRefusedShown = "operator: word refused, it was shown";
    /// An operator's word was refused: that member has no vote.
    WordRefusedNoVoter = "operator: word refused, no voter";
    /// An operator's word was refused: the engine has stopped.
    WordRefusedStopped = "operator: word refused, stopped";
    /// An operator's word was refused: that member's disk was emptied.
    WordRefusedEmpty = "operator: word refused, emptied";
    /// An operator's word for lost memory was refused: its member is damaged.
    MemoryWordRefusedDamaged = "operator: word for lost memory refused, damaged";
    /// A word was taken by a member that is cut off from all others, and it does not lead.
    WordAlone = "operator: word taken alone, and leads nothing";
    /// A word was given where too few answer, and nobody leads.
    WordWithoutQuorum = "operator: word without a quorum, and nobody leads";
    /// A word was taken, and lapsed since its member follows.
    WordLapsed = "operator: word lapsed";
    /// A member leads by an operator's word.
    WordCarriedOut = "operator: word carried out";
    /// What was owed was given up by it.
    WordGaveUp = "operator: word gave up what was acknowledged";
    /// A word was taken while the newest configuration was not known to be committed.
    WordWhileOpen = "operator: word taken while a configuration is open";
    /// A member leads by a word, and its newest configuration is not known to be committed.
    WordLedOpen = "operator: word carried out over an open configuration";
    /// A word waits for a voter of a configuration whose record was lost.
    WordConfigurationLost = "operator: word waits for a voter of a lost configuration";
    /// That voter came, and somebody leads.
    WordConfigurationBack = "operator: who was missing of a lost configuration is back, and somebody leads";
    /// It is gone for good, and nobody leads.
    WordConfigurationGone = "operator: who is missing of a lost configuration is gone, and nobody leads";
    /// A word gave up the record of a configuration that was known to be committed, and it counts on.
    WordConfigurationKept = "operator: word gave up the record of a configuration that counts on";
    /// A member leads by an operator's word that lost memory counts.
    MemoryWordCarriedOut = "operator: word for lost memory carried out";
    /// What was acknowledged as replicated alone was given up by it.
    MemoryWordGaveUp = "operator: word gave up what was replicated alone";
    /// A member that has shown more than there is by an operator's word stopped.
    ShownMoreStopped = "operator: who has shown more than a word left stops";
    /// An application whose place a word had given up began to read again at its log's trim point, which lay above.
    WordReadFromTrim = "operator: an application reads on from the trim point";
    // ---- protocol
    /// A change of the group was refused.
    ChangeRefused = "change of the group refused";
    /// A new member votes.
    LearnerVotes = "new member votes";
    /// A configuration was cut off a log, and the former one holds again.
    ConfigurationCut = "configuration cut";
    /// A tenure began with a configuration that was not committed.
    TakenOverOpen = "takeover with an open configuration";
    /// A member was told that it has left.
    NotAMember = "member knows that it has left";
    /// A tenure began.
    Tenure = "tenure began";
    /// A tenure ended while its member lived.
    SteppedDown = "stepped down";
    /// A log was sealed.
    Sealed = "sealed";
    /// An engine stopped until its folder was opened again.
    Stopped = "engine stopped";
    /// A member needed a checkpoint and had it installed.
    Snapshot = "snapshot installed";
    /// A member takes a checkpoint in pieces.
    StreamBegun = "checkpoint: begun";
    /// One was taken to its end.
    StreamTaken = "checkpoint: taken";
    /// Nobody could be asked, who was asked had none that would do, or the primary has released more meanwhile.
    StreamRefused = "checkpoint: refused, or of no use any more";
    /// The path between giver and taker was cut.
    StreamCut = "checkpoint: cut";
    /// The giver or the taker stood still.
    StreamPaused = "checkpoint: an end stood still";
    /// The giver died.
    StreamGiverDied = "checkpoint: giver died";
    /// The taker died.
    StreamTakerDied = "checkpoint: taker died";
    /// It begins at its first byte again.
    StreamAgain = "checkpoint: begun again";
    /// The log was trimmed further meanwhile.
    StreamTrimmedMeanwhile = "checkpoint: trimmed meanwhile";
    /// The taker died when its application had all of it and its log had not begun again.
    StreamDiedFinished = "checkpoint: taker died behind its end";
    /// The taker died while its log began again.
    StreamDiedInReset = "checkpoint: taker died in the reset";
    /// The application had it already, from before a crash.
    StreamSpared = "checkpoint: the application had it";
    /// What was given only its giver's application knew to be committed.
    StreamOfHeld = "checkpoint: of what was held before the restart";
    /// A backup asked for a new session.
    Resync = "resync";
    /// A member found damage in what was on its medium.
    DamageFound = "damage found";
    /// A member has again from its peers what damage took.
    DamageRepaired = "damage repaired by peers";
    /// A member was refused: its disk was another.
    Refused = "member refused";
    /// A candidate could not choose a log from those who answered.
    Undecided = "choice undecided";
    /// A process was killed in this step.
    KilledIdle = "killed idle";
    /// A machine lost power in this step.
    PowerIdle = "power lost idle";
    /// A process was killed in this step.
    KilledAsking = "killed asking for pre-votes";
    /// A machine lost power in this step.
    PowerAsking = "power lost asking for pre-votes";
    /// A process was killed in this step.
    KilledFencing = "killed asking for promises";
    /// A machine lost power in this step.
    PowerFencing = "power lost asking for promises";
    /// A process was killed in this step.
    KilledPromising = "killed before its promise";
    /// A machine lost power in this step.
    PowerPromising = "power lost before its promise";
    /// A process was killed in this step.
    KilledPromised = "killed after its promise";
    /// A machine lost power in this step.
    PowerPromised = "power lost after its promise";
    /// A process was killed in this step.
    KilledFetching = "killed fetching";
    /// A machine lost power in this step.
    PowerFetching = "power lost fetching";
    /// A process was killed in this step.
    KilledStarting = "killed starting a tenure";
    /// A machine lost power in this step.
    PowerStarting = "power lost starting a tenure";
    /// A process was killed in this step.
    KilledLeading = "killed leading";
    /// A machine lost power in this step.
    PowerLeading = "power lost leading";
    /// A process was killed in this step.
    KilledAdopting = "killed adopting";
    /// A machine lost power in this step.
    PowerAdopting = "power lost adopting";
    /// A process was killed in this step.
    KilledFollowing = "killed following";
    /// A machine lost power in this step.
    PowerFollowing = "power lost following";
    /// A process was killed in this step.
    KilledSealing = "killed sealing";
    /// A machine lost power in this step.
    PowerSealing = "power lost sealing";
    // ---- deaths in a step of a takeover with disk work under way that the step waits for, or goes on beside
    /// A member died in this step with this under way.
    FencingSave = "died asking for promises, a save under way";
    /// A member died in this step with this under way.
    FencingCut = "died asking for promises, a cut under way";
    /// A member died in this step with this under way.
    FetchingSave = "died fetching, a save under way";
    /// A member died in this step with this under way.
    FetchingFlush = "died fetching, a flush under way";
    /// A member died in this step with this under way.
    PromisingSave = "died before its promise, a save under way";
    /// A member died in this step with this under way.
    PromisingFlush = "died before its promise, a flush under way";
    /// A member died in this step with this under way.
    AdoptingSave = "died adopting, a save under way";
    /// A member died in this step with this under way.
    AdoptingCut = "died adopting, a cut under way";
    /// A member died in this step with this under way.
    AdoptingFlush = "died adopting, a flush under way";
    /// A member died in this step with this under way.
    StartingFlush = "died starting a tenure, a flush under way";
    // ---- recovery: rows of its decision table, and what it met
    /// A copy of a disk came to this row.
    FoundNoLog = "recovery: D-1, no log";
    /// A copy of a disk came to this row.
    FoundSuperblockMissing = "recovery: D-2, no superblock";
    /// A copy of a disk came to this row.
    FoundSuperblockDamaged = "recovery: D-3, both copies of the superblock damaged";
    /// A copy of a disk came to this row.
    FoundSuperblockForeign = "recovery: D-4, a superblock of two members";
    /// A copy of a disk came to this row.
    FoundOtherLog = "recovery: D-5, not the log asked for";
    /// A copy of a disk came to this row.
    FoundFolderCopied = "recovery: D-6, a copied folder";
    /// A copy of a disk came to this row.
    FoundSegmentMisfit = "recovery: D-7, a segment cut short";
    /// A copy of a disk came to this row.
    FoundOlderSegmentMissing = "recovery: D-9, an older segment missing";
    /// A copy of a disk came to this row.
    FoundOlderSegmentDamaged = "recovery: D-10, the header of an older segment damaged";
    /// A copy of a disk came to this row.
    FoundOlderSegmentForeign = "recovery: D-11, an older segment of another log";
    /// A copy of a disk came to this row.
    FoundForeignSegment = "recovery: D-12, a segment of another log";
    /// A copy of a disk came to this row.
    FoundLaterVersion = "recovery: D-13, a record of a later version";
    /// A copy of a disk came to this row.
    FoundChainBroken = "recovery: D-14, a record where none of its kind may be";
    /// A copy of a disk came to this row.
    FoundHistoryGap = "recovery: D-15, a history that does not reach back";
    /// A copy of a disk came to this row.
    FoundHistoryLost = "recovery: D-16, no history";
    /// A copy of a disk came to this row.
    FoundSegmentLost = "recovery: D-19, a segment lost";
    /// A copy of a disk came to this row.
    FoundPastCleanMark = "recovery: D-20, records behind a clean mark";
    /// An opening met a log that nobody has led yet.
    FoundNeverLed = "recovery: D-17, never led";
    /// An opening met a damaged record below what was flushed.
    FoundRecordDamaged = "recovery: D-18, a record damaged";
    /// An opening met a clean end.
    FoundCleanEnd = "recovery: D-21, a clean end";
    /// An opening met an end in memory that nobody wrote.
    FoundEndBlank = "recovery: D-22, an end in blank memory";
    /// An opening met an end in what was there before.
    FoundEndLeftover = "recovery: D-23, an end in leftovers";
    /// An opening met a record that was begun.
    FoundTornTail = "recovery: D-24, a torn end";
    /// An opening met whole records behind a hole.
    FoundHoleBehind = "recovery: D-25, a hole at the end";
    /// An opening met an end below what its member may have acknowledged.
    FoundEndMissed = "recovery: D-26, an end below what was acknowledged";
    /// A lone log went on in its epoch.
    WentOnClosed = "recovery: D-27, a lone log closed";
    /// A copy of a lone log that was closed and whose chain is not known went on in a new epoch.
    WentOnClosedUnchained = "recovery: D-28, a lone log closed, its chain not known";
    /// A lone log went on in a new epoch.
    WentOnCrashed = "recovery: D-29, a lone log not closed";
    /// A copy of a lone log's folder went on in a new epoch.
    WentOnCopied = "recovery: D-30, a copy of a lone log";
    /// A member's log went on as it was.
    WentOnMemberClosed = "recovery: D-31, a member's log closed";
    /// A member's log went on from its mark.
    WentOnMemberCrashed = "recovery: D-32, a member's log not closed";
    /// A copy of a member's folder was taken over.
    WentOnMemberCopied = "recovery: D-33, a copy of a member taken over";
    /// A loss of power took all that was not flushed.
    UnflushedLost = "unflushed: all lost";
    /// A loss of power left all that was not flushed.
    UnflushedKept = "unflushed: all kept";
    /// A loss of power left some of what was not flushed, by page or sector, length and name.
    UnflushedTorn = "unflushed: lost, kept or torn each";
    /// A process died in the middle of a flush or a write.
    KilledInWork = "died in the middle of disk work";
    /// A process died in the middle of an update of its superblock.
    KilledInUpdate = "died in an update of the superblock";
}

/// How often each mark was met.
#[derive(Clone, Default, Debug)]
pub struct Coverage(BTreeMap<Mark, u64>);

impl Mark {
    /// Whether it is a fault, and not a client's deed, a step of the protocol, what nobody sees, or what another fault has left.
    #[must_use]
    pub fn is_fault(self) -> bool {
        let is_none = matches!(
            self,
            Mark::AccessRefused
                | Mark::FailedNotDone
                | Mark::FirstPageRead
                | Mark::FlushedButDone
                | Mark::ImmediateGarbled
                | Mark::KeysWrapped
                | Mark::LandedInPart
                | Mark::OlderSuperblock
                | Mark::WindowUsedUp
        );
        self < Mark::AcknowledgedHere && !is_none
    }

    /// A run of so many seeds must have met it: those that come about some ten times in the 2,400 of the ordinary run may be missing in 600, and those that do once or twice in the ordinary run.
    #[must_use]
    pub fn seeds(self) -> u64 {
        let is_seldom = matches!(
            self,
            Mark::DistrustUnread
                | Mark::GiverUnread
                | Mark::FetchingSave
                | Mark::PromisingFlush
                | Mark::AdoptingCut
                | Mark::AdoptingFlush
                | Mark::StreamDiedInReset
        );
        let is_rare = matches!(self, Mark::FencingCut | Mark::FetchingFlush);
        if is_rare {
            24_000
        } else if is_seldom {
            2_400
        } else {
            600
        }
    }
}

impl Coverage {
    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Mark, u64> {
        self.0.clone()
    }

    /// It happened.
    pub fn add(&mut self, mark: Mark) {
        *self.0.entry(mark).or_insert(0) += 1;
    }

    /// Takes what was counted out.
    pub fn take(&mut self) -> BTreeMap<Mark, u64> {
        std::mem::take(&mut self.0)
    }

    /// Adds what others counted.
    pub fn merge(&mut self, others: impl IntoIterator<Item = (Mark, u64)>) {
        for (mark, count) in others {
            *self.0.entry(mark).or_insert(0) += count;
        }
    }

    /// How often.
    #[must_use]
    pub fn count(&self, mark: Mark) -> u64 {
        self.0.get(&mark).copied().unwrap_or(0)
    }

    /// The marks that were never met in a run of so many seeds, and must be met in that many.
    #[must_use]
    pub fn missing(&self, seeds: u64) -> Vec<Mark> {
        let is_missing = |mark: &Mark| seeds >= mark.seeds() && self.count(*mark) == 0;
        Mark::ALL.iter().copied().filter(is_missing).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mark in Mark::ALL {
            writeln!(f, "{:>12}  {}", self.count(*mark), mark.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(mut is_met: impl FnMut(Mark) -> bool) -> Coverage {
        let mut coverage = Coverage::default();
        Mark::ALL.iter().copied().filter(|mark| is_met(*mark)).for_each(|mark| coverage.add(mark));
        coverage
    }

    #[test]
    fn a_run_that_has_missed_one_mark_lacks_that_one_as_soon_as_it_has_its_seeds() {
        for left_out in Mark::ALL.iter().copied() {
            let coverage = met(|mark| mark != left_out);
            let needed = left_out.seeds();
            assert!(matches!(needed, 600 | 2_400 | 24_000), "{}", left_out.name());
            assert_eq!(coverage.missing(needed), [left_out]);
            assert_eq!(coverage.missing(24_000), [left_out]);
            assert_eq!(coverage.missing(needed - 1), []);
        }
        assert_eq!(met(|_| true).missing(24_000), []);
    }

    #[test]
    fn what_is_rare_may_be_missing_in_fewer_seeds_and_nothing_else_may() {
        let none = Coverage::default();
        assert_eq!(none.missing(599), []);
        assert_eq!(none.missing(24_000), Mark::ALL);
        let lacks = |seeds: u64, mark: Mark| none.missing(seeds).contains(&mark);
        for (mark, seeds) in [(Mark::Killed, 600), (Mark::GiverUnread, 2_400), (Mark::FencingCut, 24_000)] {
            assert!(lacks(seeds, mark) && !lacks(seeds - 1, mark), "{}", mark.name());
        }
        let rare = |seeds: u64| Mark::ALL.len() - none.missing(seeds).len();
        assert_eq!([rare(600), rare(2_400)], [9, 2]);
    }
}
