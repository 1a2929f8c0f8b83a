//! `libibverbs.so.1`, taken at run time.
//!
//! A binary that links `libibverbs` does not start where the library is missing. This crate uses only the types and
//! constants of the bindings and takes each exported function from the library when a device is first asked for, so that
//! one binary starts everywhere and can say plainly what is missing.
//!
//! Functions that the C header defines inline (`ibv_post_send`, `ibv_poll_cq`, …) are not exported; the modules that need
//! them call through the `ops` table of the object's context, as the header does.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use ibverbs_sys as sys;

use crate::error::OpenError;

/// The name under which every distribution installs the stable interface.
const LIBRARY_NAME: &str = "libibverbs.so.1";

/// Declares the table of functions and its loader in one place, so that a name and its type can't drift apart.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The exported functions that this crate calls, valid as long as the value lives.
        pub(crate) struct Library {
            $($(#[$doc])* pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps the code mapped that the pointers above point into; `None` where they are a test's own.
            pub(crate) _keep: Option<libloading::Library>,
        }

        impl Library {
            /// Loads the library and every function of the table.
            ///
            /// # Errors
            /// [`OpenError::NoLibrary`] where the file can't be loaded, [`OpenError::OldLibrary`] where a function is missing.
            pub(crate) fn load() -> Result<Arc<Library>, OpenError> {
                // SAFETY: loading runs the library's constructors; libibverbs' own set up internal state only and have no
                // preconditions on the caller.
                let keep = unsafe { libloading::Library::new(LIBRARY_NAME) }
                    .map_err(|source| OpenError::NoLibrary { library: LIBRARY_NAME, source })?;
                $(
                    // SAFETY: the type is the one that the bindings, generated from the library's header, give to the
                    // symbol; the library keeps its symbols' signatures stable under the name that ends in `.so.1`.
                    let $field = unsafe { keep.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>($symbol.as_bytes()) }
                        .map(|symbol| *symbol)
                        .map_err(|source| OpenError::OldLibrary { library: LIBRARY_NAME, symbol: $symbol, source })?;
                )*
                Ok(Arc::new(Library { $($field,)* _keep: Some(keep) }))
            }
        }
    };
}

functions! {
    get_device_list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut sys::ibv_device;
    free_device_list = "ibv_free_device_list": fn(*mut *mut sys::ibv_device);
    get_device_name = "ibv_get_device_name": fn(*mut sys::ibv_device) -> *const c_char;
    open_device = "ibv_open_device": fn(*mut sys::ibv_device) -> *mut sys::ibv_context;
    close_device = "ibv_close_device": fn(*mut sys::ibv_context) -> c_int;
    query_device = "ibv_query_device": fn(*mut sys::ibv_context, *mut sys::ibv_device_attr) -> c_int;
    query_port = "ibv_query_port": fn(*mut sys::ibv_context, u8, *mut sys::_compat_ibv_port_attr) -> c_int;
    query_gid_table = "_ibv_query_gid_table": fn(*mut sys::ibv_context, *mut sys::ibv_gid_entry, usize, u32, usize) -> isize;
    alloc_pd = "ibv_alloc_pd": fn(*mut sys::ibv_context) -> *mut sys::ibv_pd;
    dealloc_pd = "ibv_dealloc_pd": fn(*mut sys::ibv_pd) -> c_int;
    reg_mr = "ibv_reg_mr": fn(*mut sys::ibv_pd, *mut c_void, usize, c_int) -> *mut sys::ibv_mr;
    dereg_mr = "ibv_dereg_mr": fn(*mut sys::ibv_mr) -> c_int;
    create_comp_channel = "ibv_create_comp_channel": fn(*mut sys::ibv_context) -> *mut sys::ibv_comp_channel;
    destroy_comp_channel = "ibv_destroy_comp_channel": fn(*mut sys::ibv_comp_channel) -> c_int;
    create_cq = "ibv_create_cq": fn(*mut sys::ibv_context, c_int, *mut c_void, *mut sys::ibv_comp_channel, c_int) -> *mut sys::ibv_cq;
    destroy_cq = "ibv_destroy_cq": fn(*mut sys::ibv_cq) -> c_int;
    get_cq_event = "ibv_get_cq_event": fn(*mut sys::ibv_comp_channel, *mut *mut sys::ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events = "ibv_ack_cq_events": fn(*mut sys::ibv_cq, c_uint);
    create_qp = "ibv_create_qp": fn(*mut sys::ibv_pd, *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp;
    modify_qp = "ibv_modify_qp": fn(*mut sys::ibv_qp, *mut sys::ibv_qp_attr, c_int) -> c_int;
    destroy_qp = "ibv_destroy_qp": fn(*mut sys::ibv_qp) -> c_int;
    get_async_event = "ibv_get_async_event": fn(*mut sys::ibv_context, *mut sys::ibv_async_event) -> c_int;
    ack_async_event = "ibv_ack_async_event": fn(*mut sys::ibv_async_event);
    fork_init = "ibv_fork_init": fn() -> c_int;
}
