//! A counterexample: the way to where something does not hold.

use windlass_log::MemberId;

use super::super::member::{Member, step};
use super::Explorer;
use super::world::{Event, What, World};

impl Explorer {
    /// What happened, where at each state the event of this number was taken.
    pub(super) fn events_on(&mut self, root: &World, way: &[u8]) -> Vec<Event> {
        let (mut world, mut all) = (root.clone(), Vec::new());
        let mut events = Vec::new();
        for by in way {
            self.events(&world, &mut all);
            let event = all[usize::from(*by)];
            events.push(event);
            // The last one is where something does not hold.
            _ = self.happen(&mut world, event);
        }
        events
    }

    /// The way to a violation from the beginning, as the lines of each member's scenario file in the order of what happened.
    pub(super) fn trace(&mut self, root: &World, events: &[Event]) -> String {
        let mut text = String::new();
        let mut members: Vec<Member> =
            (0..self.count()).map(|id| Member::new(MemberId(id), &self.setting)).collect();
        text += "# how it begins\n";
        for (before, event) in std::mem::take(&mut self.beginning) {
            self.show(&mut text, &mut members, &before, event);
        }
        let mut world = root.clone();
        for (number, event) in events.iter().enumerate() {
            text += &format!("# step {}\n", number + 1);
            self.applied = Some(Vec::new());
            let result = self.happen(&mut world, *event);
            for (before, event) in self.applied.take().unwrap_or_default() {
                self.show(&mut text, &mut members, &before, event);
            }
            if let Err(why) = result {
                text += &format!("# VIOLATION {why}\n");
            }
        }
        text
    }

    /// What a member does, by itself and not by what is known of its like: its tokens are those that it gave out.
    fn show(&self, text: &mut String, members: &mut [Member], world: &World, event: Event) {
        let at = event.at;
        let how =
            event.dies_after.map_or(String::new(), |after| format!(", and dies after {after} operations"));
        let what = match event.what {
            What::Deliver { lane } | What::DeliverDown { lane } => {
                format!("hears from m{}", self.ends(lane).0)
            }
            What::Free { .. } => "a flush or a grant is done".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        *text += &format!("# m{at}: {what}{how}\n");
        if matches!(event.what, What::Cut { .. }) {
            return;
        }
        let (operand, what) = self.operand(world, event);
        let action = self.action(operand, what);
        match step(&self.setting, members[usize::from(at)].clone(), &action, event.dies_after, true) {
            Ok(outcome) => {
                outcome.lines.iter().for_each(|line| *text += &format!("{line}\n"));
                members[usize::from(at)] = outcome.member;
            }
            Err(why) => *text += &format!("# {why}\n"),
        }
    }
}
