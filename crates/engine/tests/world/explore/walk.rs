//! One way through a world whose bounds may be wide. Nothing of it is kept but where it stands: a state is changed in place, and what was once is not compared
//! with. Where something does not hold, the way is gone once more by what keeps everything, for its trace.

use super::{Event, Explorer, Setting, Violation, World};

/// What a walk came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Walked {
    pub steps: usize,
    /// Tenures begun, and deaths.
    pub tenures: u64,
    pub deaths: u64,
    /// Records acknowledged at `Durable`.
    pub acknowledged: usize,
}

/// Where all walks of a setting begin: to come there takes as long as many a walk.
pub struct Beginning {
    explorer: Explorer,
    root: World,
}

impl Beginning {
    /// # Panics
    ///
    /// If the setting bounds the epochs: a walk has no way back from a step that turns out to lie beyond.
    pub fn new(setting: &Setting) -> Beginning {
        assert_eq!(setting.epochs, u8::MAX, "walks are for wide worlds");
        let mut explorer = Explorer::new(setting, None, false);
        let mut root = explorer.root();
        assert!(root.packets.is_empty(), "all that was under way has arrived");
        // Of all that was on the way here, what is there now.
        let mut kept = Explorer::new(setting, None, false);
        for member in &mut root.members {
            *member = kept.member(explorer.members.take(*member));
        }
        root.oracle = kept.oracles.number(explorer.oracles.take(root.oracle));
        kept.tenures = explorer.tenures;
        Beginning { explorer: kept, root }
    }
}

/// Two bytes choose what happens next, until there are none. Of what may happen the first byte takes, below 208, something that is under way, and from there on
/// anything; the second whether the member dies in the midst of it.
///
/// # Errors
///
/// What does not hold, and the way there.
pub fn walk(beginning: &Beginning, choices: &[u8]) -> Result<Walked, Violation> {
    let mut explorer = beginning.explorer.clone();
    let setting = &beginning.explorer.setting;
    let mut world = beginning.root.clone();
    let (mut all, mut events): (Vec<Event>, Vec<Event>) = (Vec::new(), Vec::new());
    let mut deaths = 0;
    for choice in choices.chunks_exact(2) {
        explorer.whole_events(&world, &mut all);
        let quiet = all.iter().filter(|event| event.is_quiet()).count();
        let number = usize::from(choice[0]);
        let chosen = match number {
            0..208 if quiet > 0 => all.iter().filter(|event| event.is_quiet()).nth(number % quiet),
            _ => all.get(number % all.len().max(1)),
        };
        let Some(mut event) = chosen.copied() else { break };
        if choice[1] >= 248
            && event.may_die()
            && !setting.store_in_steps
            && world.spent.crashes < setting.crashes
        {
            event.dies_after = Some(choice[1] - 248);
        }
        events.push(event);
        let was_up = explorer.brief(&world, event.at).is_up;
        match explorer.happen(&mut world, event) {
            Ok(within) => assert!(within, "a walk has no bounds"),
            Err(what) => return Err(shown(setting, &events, what)),
        }
        deaths += u64::from(was_up && !explorer.brief(&world, event.at).is_up);
    }
    let acknowledged = explorer.oracles.get(world.oracle).durable().count();
    Ok(Walked { steps: events.len(), tenures: explorer.tenures, deaths, acknowledged })
}

/// The way to where `what` does not hold.
fn shown(setting: &Setting, events: &[Event], what: String) -> Violation {
    let mut explorer = Explorer::new(setting, None, true);
    let root = explorer.root();
    Violation { trace: explorer.trace(&root, events), what }
}
