//! Members that come and go: the operator, the records in the log that say so, and what must be true of them.

use windlass_engine::{Change, Configuration, ConfigurationRecord, Input, Quorums};
use windlass_log::{Lsn, MemberId};

use super::world::World;

/// Records whose id has this bit carry a configuration: the rest of the id tells which.
pub const CONFIGURATION_ID: u64 = 1 << 63;

impl World {
    /// Tells the engine of the configuration records that a scan of `[from, to)` meets.
    pub fn tell_configurations(&mut self, at: usize, from: Lsn, to: Lsn) {
        for found in self.configurations_in(at, from, to) {
            self.input(at, Input::ConfigurationFound(found));
        }
    }

    pub fn configurations_in(&self, at: usize, from: Lsn, to: Lsn) -> Vec<ConfigurationRecord> {
        let node = &self.nodes[at];
        let mut found = Vec::new();
        let mut lsn = from;
        while lsn < to
            && let Some(record) = node.image.record(false, lsn, &node.superblock.history)
        {
            if record.id & CONFIGURATION_ID != 0 && record.end <= to {
                let configuration =
                    self.configurations[usize::try_from(record.id & !CONFIGURATION_ID).unwrap()].clone();
                found.push(ConfigurationRecord { start: record.start, end: record.end, configuration });
            }
            lsn = record.end;
        }
        found
    }

    /// What is committed in `[from, to)` holds each configuration once, and each follows from the one before it.
    pub fn check_chain(&mut self, at: usize, from: Lsn, to: Lsn) {
        for found in self.configurations_in(at, from, to) {
            let number = found.configuration.number();
            let before = self
                .committed_configurations
                .range(..found.start)
                .next_back()
                .map_or(0, |(_, number)| *number);
            let known = self.committed_configurations.insert(found.start, number);
            assert!(
                known.unwrap_or(before + 1) == number && (known.is_some() || before + 1 == number),
                "configuration {number} is committed at {}, behind configuration {before}",
                found.start
            );
        }
    }

    /// A primary appends a configuration.
    pub fn append_configuration(&mut self, at: usize, configuration: Configuration) {
        let bytes = configuration.encode();
        assert_eq!(Configuration::decode(&bytes).as_ref(), Ok(&configuration));
        let number = configuration.number();
        let Some((epoch, false)) = self.nodes[at].tenure else {
            return self.input(at, Input::ConfigurationRefused { number });
        };
        let id = CONFIGURATION_ID | self.configurations.len() as u64;
        self.configurations.push(configuration.clone());
        let node = &mut self.nodes[at];
        let record = node.image.append(node.tail, epoch, id, bytes.len());
        node.tail = record.end;
        let (start, end) = (record.start, record.end);
        self.input(at, Input::ConfigurationFound(ConfigurationRecord { start, end, configuration }));
        self.input(at, Input::Drained { to: end, tail: end });
        self.input(at, Input::DurableWanted { to: end });
    }

    /// An operator changes the group, if that is possible now.
    pub fn change_something(&mut self) {
        let Some(at) = self.primaries().first().copied() else { return };
        let Some(configuration) = self.nodes[at].engine.as_ref().map(|engine| engine.configuration().clone())
        else {
            return;
        };
        let voters: Vec<MemberId> = configuration.voters().collect();
        let some = voters[self.rng.index(voters.len())];
        let spare = (0..self.nodes.len()).find(|spare| !self.nodes[*spare].has_joined);
        let change = match (self.rng.range(0, 10), spare) {
            (0..=2, Some(spare)) if voters.len() < 6 => Change::Add { member: id(spare), address: None },
            (3..=4, Some(spare)) => Change::Replace { old: some, new: id(spare), address: None },
            (5..=7, _) if voters.len() > 3 => Change::Remove { member: some },
            (8, _) => {
                let most = u8::try_from(voters.len()).unwrap();
                let write = u8::try_from(self.rng.range(2, u64::from(most) + 1)).unwrap();
                let takeover =
                    u8::try_from(self.rng.range(u64::from(most + 1 - write), u64::from(most) + 1)).unwrap();
                Change::Quorums { quorums: Quorums::Sizes { write, takeover } }
            }
            (9, _) => match configuration.learner() {
                Some(learner) if self.rng.chance(20) => Change::Remove { member: learner.id },
                Some(_) | None => Change::Quorums { quorums: Quorums::Majority },
            },
            _ => return,
        };
        let Some(engine) = &self.nodes[at].engine else { return };
        if engine.check_change(&change).is_err() {
            return;
        }
        self.say(|| format!("operator: {change:?}"));
        if let Change::Add { member, .. } | Change::Replace { new: member, .. } = change {
            let joins = usize::from(member.0);
            self.nodes[joins].has_joined = true;
            self.start(joins);
        }
        self.changes += 1;
        self.tell(at, Input::Change(change));
    }

    /// The newest configuration that somebody has, in which nobody learns: the one that all must come to after healing.
    pub fn settled(&self) -> Option<Configuration> {
        let newest =
            self.nodes.iter().filter_map(|node| node.engine.as_ref()).map(|engine| engine.configuration());
        let newest = newest.max_by_key(|configuration| configuration.number())?;
        newest.learner().is_none().then(|| newest.clone())
    }
}

fn id(at: usize) -> MemberId {
    MemberId(u8::try_from(at).unwrap())
}
