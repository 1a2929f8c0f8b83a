//! For model checkers alone (feature `explore`): an engine that can be copied, and what makes two engines equal that will do
//! the same from here on.
//!
//! An explorer gives every engine one moment that never passes: what time would bring about (suspicion, a step-down for want
//! of a quorum, a fetch that takes too long) is an input of its own there. So the positions of a clock, the random back-off
//! and the numbers of tokens say nothing about what is to come, and are made the same wherever they are.

use alloc::collections::BTreeMap;

use super::Engine;
use super::takeover::Suspicion;
use crate::Token;

impl Engine {
    /// Forgets what an explorer's clock abstracts from, and numbers the tokens anew: those that this engine waits for from 1
    /// in a fixed order, all others are 0. `held` are the tokens that whoever executes the commands has not answered yet.
    pub fn canonicalise(&mut self, held: &mut [&mut Token]) {
        self.core.random = 0;
        self.core.stalls.clear();
        self.suspicion = Suspicion::new(self.core.now);
        self.undecided_said = None;
        // Offers of an older epoch than the promised one are answered before anything else is looked at.
        self.followed = self.followed.filter(|followed| followed.epoch >= self.core.state.promised);
        let mut renumbered = BTreeMap::new();
        self.visit_tokens(&mut |token| {
            if token.0 > 0 {
                let next = Token(renumbered.len() as u64 + 1);
                *token = *renumbered.entry(*token).or_insert(next);
            }
        });
        for token in held {
            **token = renumbered.get(*token).copied().unwrap_or(Token(0));
        }
        self.core.next_token = renumbered.len() as u64 + 1;
    }

    /// Breaks the commit rule: what is placed on a quorum is called durable. For tests that an explorer finds what is wrong.
    pub fn call_placed_durable(&mut self) {
        self.core.commits_placed = true;
    }

    /// How many tokens the engine holds, for a test that [`Engine::canonicalise`] knows them all.
    pub fn token_count(&mut self) -> usize {
        let mut count = 0;
        self.visit_tokens(&mut |_| count += 1);
        count
    }

    fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        self.core.visit_tokens(visit);
        self.links.visit_tokens(visit);
        if let Some(work) = &mut self.work {
            work.visit_tokens(visit);
        }
        if let Some(following) = &mut self.following {
            following.visit_tokens(visit);
        }
        if let Some(reset) = &mut self.reset {
            visit(&mut reset.token);
        }
        if let Some(tenure) = &mut self.tenure {
            tenure.visit_tokens(visit);
        }
        if let Some(sealing) = &mut self.sealing {
            sealing.visit_tokens(visit);
        }
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.visit_tokens(visit);
        }
    }
}
