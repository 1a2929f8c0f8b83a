//! Tests: whatever fails half-way, and in whichever order things are dropped, what was made ends once and after what needs it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use windlass_fabric::{
    Access, Completion, CompletionQueue, Connection, ConnectionOptions, Fabric, HeapMemory, Memory, Receive,
};

use crate::fabric::VerbsFabric;
use crate::fake::{self, Kind};
use crate::options::VerbsOptions;
use crate::region::leaked_regions;

const DEPTHS: ConnectionOptions = ConnectionOptions { send_depth: 4, receive_depth: 4, inline_bytes: 0 };
const ORDERS: usize = 14;

type Failed = Box<dyn std::error::Error>;

/// Everything once: two connections, a window bound on one over a region, one more over another, dropped in one of the orders,
/// before or after the completions were polled.
fn everything(refused: Option<u32>, holds: bool, order: usize) -> Result<(), Failed> {
    let fabric = VerbsFabric::open_with(&fake::library(refused, holds), &VerbsOptions::default())?;
    assert!(refused.is_some() || fabric.windows_hold() == holds);
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let memory = || Arc::new(HeapMemory::new(8192)) as Arc<dyn Memory>;
    let (first, second) = (fabric.register(memory(), access)?, fabric.register(memory(), access)?);
    let mut queue = fabric.completion_queue(64)?;
    let (mut window, mut other) = (fabric.allocate_window()?, fabric.allocate_window()?);
    let mut owner = fabric.connection(&queue, &DEPTHS)?;
    let mut writer = fabric.connection(&queue, &DEPTHS)?;
    owner.post_receives(&[Receive { id: 1, into: None }])?;
    owner.connect(writer.endpoint())?;
    writer.connect(owner.endpoint())?;
    owner.bind(1, &mut window, &first, 0..4096, Access::REMOTE_WRITE)?;
    owner.bind(2, &mut other, &second, 0..8192, Access::REMOTE_READ)?;
    owner.invalidate(3, &mut other)?;
    owner.bind(4, &mut other, &first, 4096..8192, Access::REMOTE_WRITE)?;
    // Half of the times it is not even known what has been done.
    if order.is_multiple_of(2) {
        assert_eq!(queue.poll(&mut [Completion::BLANK; 8])?, 4);
    }
    let mut parts: Vec<Box<dyn FnOnce()>> = vec![
        Box::new(move || drop(fabric)),
        Box::new(move || drop(queue)),
        Box::new(move || drop(first)),
        Box::new(move || drop((window, other))),
        Box::new(move || drop(owner)),
        Box::new(move || drop(writer)),
        Box::new(move || drop(second)),
    ];
    parts.rotate_left(order / 2);
    parts.into_iter().for_each(|part| part());
    Ok(())
}

fn assert_clean(what: &str) {
    let (living, violations) = fake::account();
    assert!(violations.is_empty(), "{what}: {violations:?}");
    assert!(living.is_empty(), "{what}: {living:?} was never ended");
}

#[test]
fn things_end_after_what_needs_them_in_every_order_of_dropping() {
    for (holds, order) in
        [true, false].into_iter().flat_map(|holds| (0..ORDERS).map(move |order| (holds, order)))
    {
        everything(None, holds, order).unwrap();
        assert_clean(&format!("order {order}, windows keep their ends: {holds}"));
    }
}

#[test]
fn whichever_call_is_refused_nothing_is_left_and_nothing_ends_too_early() {
    for holds in [true, false] {
        everything(None, holds, 0).unwrap();
        let calls = fake::calls();
        assert!(calls > 30, "{calls} calls could be refused: is the fake still called?");
        let mut errors = 0;
        for refused in 1..=calls {
            for order in 0..ORDERS {
                if let Err(error) = everything(Some(refused), holds, order) {
                    errors += 1;
                    assert!(!error.to_string().is_empty());
                }
                assert_clean(&format!(
                    "call {refused} of {calls} refused, order {order}, ends kept: {holds}"
                ));
            }
        }
        assert!(errors > 10 * ORDERS, "{errors} refusals were reported");
    }
}

#[test]
fn memory_that_the_device_will_not_let_go_of_is_kept() {
    let fabric = VerbsFabric::open_with(&fake::library(None, true), &VerbsOptions::default()).unwrap();
    let memory = Arc::new(HeapMemory::new(4096));
    let region = fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, Access::LOCAL_WRITE).unwrap();
    fake::refuse_always("ibv_dereg_mr");
    let before = leaked_regions();
    drop(region);
    assert_eq!(leaked_regions(), before + 1);
    assert!(Arc::strong_count(&memory) > 1, "the memory would have been freed under the device");
    drop(fabric);
    let (living, _) = fake::account();
    assert!(living.contains(&Kind::Region));
}

/// A driver would take what another one made for its own kind. (The stand-in library keeps account of one device, so that nothing is held against it here.)
#[test]
fn parts_of_two_fabrics_are_never_put_together() {
    let open = || VerbsFabric::open_with(&fake::library(None, true), &VerbsOptions::default()).unwrap();
    let (one, other) = (open(), open());
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let region =
        |of: &VerbsFabric| of.register(Arc::new(HeapMemory::new(4096)) as Arc<dyn Memory>, access).unwrap();
    let queues = [one.completion_queue(64).unwrap(), other.completion_queue(64).unwrap()];
    let mixed = |attempt: &mut dyn FnMut()| {
        catch_unwind(AssertUnwindSafe(attempt)).expect_err("parts of two fabrics were put together");
    };
    mixed(&mut || drop(one.connection(&queues[1], &DEPTHS)));
    let mut connection = one.connection(&queues[0], &DEPTHS).unwrap();
    let mut bind = |window: &VerbsFabric, memory: &VerbsFabric| {
        let (mut window, region) = (window.allocate_window().unwrap(), region(memory));
        mixed(&mut || drop(connection.bind(1, &mut window, &region, 0..4096, Access::REMOTE_READ)));
    };
    bind(&other, &one);
    bind(&one, &other);
}
