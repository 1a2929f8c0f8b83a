//! The verbs that came after the context's first table: they stand in a larger structure around the context, which the bindings
//! don't know.
//!
//! ```text
//!  verbs_context   … query_port, advise_mr, … query_device_ex, … size │ ibv_context │
//!                  ◀── newer verbs are added in front ──              ▲ what we hold
//! ```

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use ibverbs_sys as sys;

/// A verb that is not called here.
type Unused = *mut c_void;
type QueryDeviceEx =
    unsafe extern "C" fn(*mut sys::ibv_context, *const c_void, *mut sys::ibv_device_attr_ex, usize) -> c_int;
/// `ibv_advise_mr`.
pub(crate) type AdviseMr = unsafe extern "C" fn(*mut sys::ibv_pd, u32, u32, *mut sys::ibv_sge, u32) -> c_int;

/// `struct verbs_context` of the library's header, from the verb that we call first to its end.
#[repr(C)]
struct Extended {
    advise_mr: Option<AdviseMr>,
    /// `alloc_null_mr` to `create_cq_ex`, and the library's private pointer.
    between: [Unused; 25],
    query_device_ex: Option<QueryDeviceEx>,
    /// `ibv_destroy_flow` to `close_xrcd`.
    others: [Unused; 10],
    placeholder: u64,
    /// Bytes of the whole structure as the library made it.
    size: usize,
    context: sys::ibv_context,
}

/// The header's mark that a context has the larger structure around it.
const IS_EXTENDED: usize = usize::MAX;

/// The extended structure around a context, if it reaches down to the field at that offset of [`Extended`].
fn around(context: *mut sys::ibv_context, offset: usize) -> Option<*const Extended> {
    // SAFETY: the context is open.
    let mark = unsafe { (*context).abi_compat }.addr();
    if mark != IS_EXTENDED {
        return None;
    }
    let around =
        context.cast::<u8>().cast_const().wrapping_sub(offset_of!(Extended, context)).cast::<Extended>();
    // Not through `around`: an older library's structure is shorter, and begins behind it.
    let before = context.cast::<u8>().cast_const().wrapping_sub(size_of::<usize>()).cast::<usize>();
    // SAFETY: the mark says that the structure is around the context; its size stands right before the context in every version.
    let bytes = unsafe { before.read() };
    (bytes >= size_of::<Extended>() - offset).then_some(around)
}

/// What the device can do on demand over reliable connections; 0 if nothing, or if it can't be asked.
pub(crate) fn on_demand(context: *mut sys::ibv_context) -> u32 {
    let Some(around) = around(context, offset_of!(Extended, query_device_ex)) else { return 0 };
    // SAFETY: `around` says that the structure has the field.
    let Some(query) = (unsafe { (*around).query_device_ex }) else { return 0 };
    let mut attributes = sys::ibv_device_attr_ex::default();
    // SAFETY: the context is open; no input is needed; the attributes are whole and their size is given.
    let returned = unsafe {
        query(context, std::ptr::null(), &raw mut attributes, size_of::<sys::ibv_device_attr_ex>())
    };
    let offered = attributes.odp_caps.general_caps & u64::from(sys::IBV_ODP_SUPPORT) != 0;
    if returned == 0 && offered { attributes.odp_caps.per_transport_caps.rc_odp_caps } else { 0 }
}

/// The verb that advises the device, if the library has it.
pub(crate) fn advise(context: *mut sys::ibv_context) -> Option<AdviseMr> {
    let around = around(context, offset_of!(Extended, advise_mr))?;
    // SAFETY: `around` says that the structure has the field.
    unsafe { (*around).advise_mr }
}

/// Advice to bring pages in for reading (`IBV_ADVISE_MR_ADVICE_PREFETCH`).
pub(crate) const PREFETCH: u32 = 0;
/// Advice to bring pages in for writing (`IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE`).
pub(crate) const PREFETCH_WRITE: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_laid_out_as_in_the_header() {
        // By hand from the header: 27 verbs or pointers from advise_mr up to query_device_ex, 10 behind it, placeholder, size.
        let word = size_of::<usize>();
        assert_eq!(offset_of!(Extended, query_device_ex), 26 * word);
        assert_eq!(offset_of!(Extended, size), offset_of!(Extended, context) - word);
        assert_eq!(offset_of!(Extended, context), (26 + 1 + 10 + 2) * word);
    }

    #[test]
    fn a_context_without_the_mark_has_nothing_around_it() {
        let mut context = sys::ibv_context::default();
        assert_eq!(on_demand(&raw mut context), 0);
        assert!(advise(&raw mut context).is_none());
    }

    #[test]
    fn a_structure_of_an_older_library_lacks_the_newer_verbs() {
        let mut whole = Extended {
            advise_mr: None,
            between: [std::ptr::null_mut(); 25],
            query_device_ex: None,
            others: [std::ptr::null_mut(); 10],
            placeholder: 0,
            size: size_of::<Extended>() - offset_of!(Extended, query_device_ex),
            context: sys::ibv_context::default(),
        };
        whole.context.abi_compat = std::ptr::without_provenance_mut(IS_EXTENDED);
        // Over the whole, so that the pointer may be moved back from the context.
        let context = (&raw mut whole).cast::<u8>().wrapping_add(offset_of!(Extended, context)).cast();
        assert!(around(context, offset_of!(Extended, query_device_ex)).is_some());
        assert!(around(context, offset_of!(Extended, advise_mr)).is_none());
    }
}
