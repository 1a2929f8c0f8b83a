//! The fabric in memory, on which drivers are stepped by hand, passes the suite that every provider passes.

#[path = "support/world.rs"]
mod world;

use world::{World, WorldFabric};

fn pair() -> (WorldFabric, WorldFabric) {
    let world = World::automatic();
    (world.fabric(), world.fabric())
}

windlass_fabric::conformance_tests!(pair());
