//! A member's store and log: what becomes of the operations that are under way, appends, and what is told of them.

use windlass_engine::{Configuration, Input, Persisted, Token};
use windlass_log::{Epoch, Lsn};

use super::super::image::Record;
use super::super::oracle::Seen;
use super::super::packet::Packet;
use super::{Done, Operation, Outcome, Runner, geometry};

impl Runner<'_> {
    pub(super) fn complete(&mut self, operation: Operation) -> Done {
        let member = &mut self.outcome.member;
        match operation {
            Operation::Save { token, state } => {
                member.superblock = *state;
                self.input(Input::Saved { token })
            }
            Operation::Trim { state } => {
                member.superblock = *state;
                Ok(())
            }
            Operation::Revoke { token } => {
                member.window = None;
                member.ring.clear();
                let state = &member.superblock;
                let trimmed = state.trimmed;
                let valid_tail = member.image.valid_tail(trimmed, Lsn(u64::MAX), &state.history);
                self.tell_configurations(trimmed, valid_tail)?;
                self.input(Input::Revoked { token, valid_tail })
            }
            Operation::Start { token, epoch, at } => self.start_tenure(token, epoch, at),
            Operation::Seal { token } => {
                let tail = member.tail;
                self.input(Input::Sealed { token, tail })
            }
            Operation::Flush { token, to } => {
                member.image.flush(to);
                self.input(Input::Flushed { token, persisted: Persisted(to) })
            }
            Operation::Grant { token, primary, session, up_to } => {
                self.still_promised(session)?;
                let member = &mut self.outcome.member;
                if member.superblock.history.last().map(|last| last.epoch) != Some(session.epoch) {
                    return Err(format!("R-5: {} grants {session} without its history", member.id));
                }
                member.window = Some((session, up_to));
                self.send(primary, Packet::Keys { session, up_to });
                self.input(Input::GrantDone { token })
            }
        }
    }

    fn start_tenure(&mut self, token: Token, epoch: Epoch, at: Lsn) -> Done {
        let member = &mut self.outcome.member;
        let (id, state) = (member.id, &member.superblock);
        let log = member.image.on_disk(state.trimmed, &state.history);
        let reached = log.last().map_or(state.trimmed, |record| record.end);
        if state.promised != epoch
            || state.history.last().map(|last| (last.epoch, last.start)) != Some((epoch, at))
        {
            return Err(format!("R-5: {id} leads in {epoch} from {at}, durable is {state:?}"));
        }
        if reached != at {
            return Err(format!("R-11: {id} leads from {at}, its medium ends at {reached}"));
        }
        self.outcome.seen.push(Seen::Tenure { member: id, epoch, log });
        let end = self.put(at, epoch, 0);
        let member = &mut self.outcome.member;
        member.tenure = (epoch > member.ended).then_some((epoch, false));
        self.input(Input::TenureStarted { token, end })
    }

    fn put(&mut self, at: Lsn, epoch: Epoch, id: u8) -> Lsn {
        self.put_record(Record::new(geometry(), at, epoch, id))
    }

    fn put_record(&mut self, record: Record) -> Lsn {
        self.outcome.member.image.write(record);
        self.outcome.member.tail = record.end;
        self.outcome.member.waiting.push(record);
        self.outcome.seen.push(Seen::Appended(record));
        record.end
    }

    pub(super) fn append(&mut self, id: u8) -> Done {
        let member = &self.outcome.member;
        let Some((epoch, false)) = member.tenure else { return Ok(()) };
        let to = self.put(member.tail, epoch, id);
        // Odd records are asked for at `Replicated`, where the group allows it.
        if !self.setting.replicated || id.is_multiple_of(2) {
            self.input(Input::DurableWanted { to })?;
        }
        self.input(Input::Drained { to, tail: to })
    }

    pub(super) fn append_configuration(&mut self, configuration: &Configuration) -> Done {
        let member = &self.outcome.member;
        let Some((epoch, false)) = member.tenure else {
            return self.input(Input::ConfigurationRefused { number: configuration.number() });
        };
        let record = Record::with_configuration(geometry(), member.tail, epoch, configuration);
        let to = self.put_record(record);
        let found = record.configuration().expect("it was made of one");
        self.input(Input::ConfigurationFound(found))?;
        self.input(Input::Drained { to, tail: to })?;
        self.input(Input::DurableWanted { to })
    }

    pub(super) fn tell_configurations(&mut self, from: Lsn, to: Lsn) -> Done {
        let found = self.outcome.member.configurations_in(from, to);
        found.into_iter().try_for_each(|found| self.input(Input::ConfigurationFound(found)))
    }

    pub(super) fn publish(&mut self, epoch: Epoch, durable: Lsn) -> Done {
        let member = &mut self.outcome.member;
        let state = &member.superblock;
        let from = member.published;
        if durable <= from {
            return Ok(());
        }
        let records: Vec<Record> = member.image.in_memory(from, &state.history);
        let records: Vec<Record> = records.into_iter().take_while(|record| record.end <= durable).collect();
        if records.last().map(|record| record.end) != Some(durable) {
            return Err(format!("{} publishes {durable}, which ends no valid record of its log", member.id));
        }
        member.published = durable;
        self.outcome.seen.push(Seen::Published { member: self.outcome.member.id, epoch, records });
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, epoch: Epoch, replicated: Lsn, durable: Lsn) {
        let is_allowed = self.setting.replicated;
        let Outcome { member, seen, .. } = &mut self.outcome;
        member.waiting.retain(|record| {
            let is_durable = record.end <= durable;
            let at_replicated = is_allowed && record.id % 2 == 1 && record.end <= replicated;
            if is_durable || at_replicated {
                seen.push(Seen::Acknowledged { record: *record, epoch, durable: is_durable });
            }
            !is_durable && !at_replicated
        });
    }
}
