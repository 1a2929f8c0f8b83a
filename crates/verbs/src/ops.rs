//! The device's own functions: those that the C header calls inline through the context's `ops` table, copied out of it once.

use std::ffi::c_int;

use ibverbs_sys as sys;
use rustix::io::Errno;

use crate::error::VerbError;

/// `ibv_post_send`, as the header's inline function calls it.
pub(crate) type PostSend =
    unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> c_int;
/// `ibv_post_recv`.
pub(crate) type PostRecv =
    unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> c_int;
/// `ibv_poll_cq`.
pub(crate) type PollCq = unsafe extern "C" fn(*mut sys::ibv_cq, c_int, *mut sys::ibv_wc) -> c_int;
/// `ibv_req_notify_cq`.
pub(crate) type ReqNotifyCq = unsafe extern "C" fn(*mut sys::ibv_cq, c_int) -> c_int;
/// `ibv_alloc_mw`.
pub(crate) type AllocMw = unsafe extern "C" fn(*mut sys::ibv_pd, sys::ibv_mw_type) -> *mut sys::ibv_mw;
/// `ibv_dealloc_mw`.
pub(crate) type DeallocMw = unsafe extern "C" fn(*mut sys::ibv_mw) -> c_int;

/// The functions that this crate calls; a device fills its table in when it is opened.
#[derive(Clone, Copy)]
pub(crate) struct Ops {
    pub(crate) post_send: PostSend,
    pub(crate) post_recv: PostRecv,
    pub(crate) poll_cq: PollCq,
    pub(crate) req_notify_cq: ReqNotifyCq,
    /// Both or none.
    pub(crate) windows: Option<(AllocMw, DeallocMw)>,
}

impl Ops {
    /// Takes them from an opened context's table.
    pub(crate) fn new(table: &sys::ibv_context_ops) -> Result<Ops, VerbError> {
        let missing = |verb| VerbError::plain(verb, Errno::OPNOTSUPP.raw_os_error());
        Ok(Ops {
            post_send: table.post_send.ok_or(missing("ibv_post_send"))?,
            post_recv: table.post_recv.ok_or(missing("ibv_post_recv"))?,
            poll_cq: table.poll_cq.ok_or(missing("ibv_poll_cq"))?,
            req_notify_cq: table.req_notify_cq.ok_or(missing("ibv_req_notify_cq"))?,
            windows: table.alloc_mw.zip(table.dealloc_mw),
        })
    }
}
