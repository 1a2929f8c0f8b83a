//! The simulated fabric passes the suite that every provider passes: as it is, and with what a sound device may do at any time.

use windlass_sim::fabric::{FabricFaults, FabricNet, SimFabric};

fn pair(faults: FabricFaults) -> (SimFabric, SimFabric) {
    let net = FabricNet::automatic(1);
    net.set_faults(faults);
    (net.fabric(0), net.fabric(1))
}

mod plain {
    windlass_fabric::conformance_tests!(super::pair(super::FabricFaults::default()));
}

/// Messages land in pieces and in any order, also behind an invalidation, and requests take long. (Not with completions before the bytes are visible: a case
/// of the suite looks at memory without a notice behind the write.)
mod rough {
    fn faults() -> super::FabricFaults {
        super::FabricFaults {
            delayed: 10_000,
            landed_in_pieces: 500_000,
            landed_after_invalidation: 500_000,
            ..super::FabricFaults::default()
        }
    }

    windlass_fabric::conformance_tests!(super::pair(faults()));
}
