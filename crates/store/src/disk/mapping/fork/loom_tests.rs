//! The list under the model checker. A child walks what its parent's memory held at the fork; here the walk itself runs beside the others,
//! which sees more. So it runs beside no reuse of a place, whose words it would find changed between two looks, as no child does.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use loom::thread;

use super::*;

/// Checks `test` in every order of its steps with up to three preemptions, at least `runs_min` of them.
fn check(runs_min: usize, test: impl Fn() + Sync + Send + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        test();
    });
    let runs = runs.load(Relaxed);
    println!("{runs} runs");
    assert!(runs >= runs_min, "the checker explored only {runs} orders");
}

/// Lists a mapping of so many pages at the page of that number.
fn list(number: usize) -> Listed {
    Listed::list(ptr::without_provenance_mut(number << 12), number)
}

/// The numbers of the mappings that a child would find, in order.
fn walk() -> Vec<usize> {
    let number = |(_, base, bytes): (&Slot, *mut c_void, usize)| {
        assert_eq!(base.addr(), bytes << 12, "a base with another mapping's length");
        bytes
    };
    let mut found: Vec<_> = mapped().map(number).collect();
    found.sort_unstable();
    found
}

#[test]
fn a_child_finds_whole_mappings_and_every_one_that_was_listed() {
    check(50, || {
        let listers = [1, 2].map(|number| thread::spawn(move || list(number)));
        thread::yield_now();
        assert!(walk().iter().all(|number| [1, 2].contains(number)));
        let _listed = listers.map(|lister| lister.join().unwrap());
        assert_eq!(walk(), [1, 2], "two put a place at the head at once");
        assert_eq!(slots().count(), 2);
    });
}

#[test]
fn a_place_that_was_struck_off_goes_to_one_mapping_whose_words_come_last() {
    check(100, || {
        // Each is the only one to use the place meanwhile, or finds another.
        let gone = thread::spawn(|| drop(list(1)));
        let stays = thread::spawn(|| list(2));
        let _third = list(3);
        gone.join().unwrap();
        let _second = stays.join().unwrap();
        assert_eq!(walk(), [2, 3]);
        assert!(slots().count() <= 3);
    });
}
