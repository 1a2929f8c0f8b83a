//! What a device says that it can on demand and with windows, in words.

use ibverbs_sys as sys;

/// What a device says that it can; whether it does is tried when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offers {
    /// Operations of reliable connections for which it takes memory in on demand: `send`, `receive`, `write`, `read`, `atomic`, `shared-receive`.
    /// None without on-demand paging.
    pub on_demand: Vec<&'static str>,
    /// Types of memory windows: `1`, `2A` (bound to a queue pair's number alone), `2B` (and to its protection domain). Windlass uses either of the second type.
    pub window_types: Vec<&'static str>,
    /// Windows that can be there at once, of all processes.
    pub windows_max: u32,
}

const OPERATIONS: [(u32, &str); 6] = [
    (sys::IBV_ODP_SUPPORT_SEND, "send"),
    (sys::IBV_ODP_SUPPORT_RECV, "receive"),
    (sys::IBV_ODP_SUPPORT_WRITE, "write"),
    (sys::IBV_ODP_SUPPORT_READ, "read"),
    (sys::IBV_ODP_SUPPORT_ATOMIC, "atomic"),
    (sys::IBV_ODP_SUPPORT_SRQ_RECV, "shared-receive"),
];

const WINDOW_TYPES: [(u32, &str); 3] = [
    (sys::IBV_DEVICE_MEM_WINDOW, "1"),
    (sys::IBV_DEVICE_MEM_WINDOW_TYPE_2A, "2A"),
    (sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B, "2B"),
];

impl Offers {
    /// From the device's own bits.
    pub(crate) fn new(on_demand: u32, flags: u32, windows_max: i32) -> Offers {
        Offers {
            on_demand: names(&OPERATIONS, on_demand),
            window_types: names(&WINDOW_TYPES, flags),
            windows_max: u32::try_from(windows_max).unwrap_or(0),
        }
    }
}

fn names(of: &[(u32, &'static str)], bits: u32) -> Vec<&'static str> {
    of.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_the_names_of_what_they_stand_for() {
        let nothing = Offers::new(0, 0, -1);
        assert_eq!(nothing, Offers { on_demand: vec![], window_types: vec![], windows_max: 0 });
        // Soft-RoCE's, by hand from the header: IBV_ODP_SUPPORT_SEND 1, RECV 2, WRITE 4, READ 8; windows 1 << 17, 1 << 24.
        let soft = Offers::new(0b1111, 1 << 17 | 1 << 24, 1 << 16);
        assert_eq!(soft.on_demand, ["send", "receive", "write", "read"]);
        assert_eq!((soft.window_types, soft.windows_max), (vec!["1", "2B"], 1 << 16));
        assert_eq!(Offers::new(1 << 4 | 1 << 5, 1 << 23, 0).on_demand, ["atomic", "shared-receive"]);
        assert_eq!(Offers::new(0, 1 << 23, 0).window_types, ["2A"]);
    }
}
