//! The simulated fabric passes the suite that every provider passes.

use windlass_sim::fabric::{FabricNet, SimFabric};

fn pair() -> (SimFabric, SimFabric) {
    let net = FabricNet::automatic(1);
    (net.fabric(0), net.fabric(1))
}

windlass_fabric::conformance_tests!(pair());
