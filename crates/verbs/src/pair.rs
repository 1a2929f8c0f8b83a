//! The device's queue pair: its states, and the doorbell.
//!
//! ```text
//!  RESET ──create──▶ INIT ──connect──▶ RTR ──▶ RTS          any ──close or a failed request──▶ ERR
//!                    Initial           (one call)  Ready                                      Error
//! ```
//!
//! A device answers a refused change with `EINVAL` and no more, so each change says in its error what is checked by it.

use std::sync::Arc;

use ibverbs_sys as sys;
use sys::{ibv_qp_attr_mask as mask, ibv_qp_state as qps};
use windlass_fabric::{Access, ConnectionOptions};

use crate::address::{PortAddress, address_vector, path_mtu};
use crate::endpoint::Endpoint;
use crate::error::{About, VerbError};
use crate::options::{PathOptions, ack_code, mtu_code, receiver_wait_code};
use crate::queue::QueueCore;
use crate::region::{Domain, access_flags};

/// The device's queue pair.
pub(crate) struct QueuePair {
    pub(crate) domain: Arc<Domain>,
    raw: *mut sys::ibv_qp,
}

// SAFETY: verbs may be called from any thread on any object.
unsafe impl Send for QueuePair {}

/// A chain of which the device took only the first part.
#[derive(Debug)]
pub(crate) struct Refused {
    /// How many it took.
    pub(crate) posted: usize,
    pub(crate) error: VerbError,
}

impl QueuePair {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        queue: &Arc<QueueCore>,
        options: &ConnectionOptions,
    ) -> Result<QueuePair, VerbError> {
        let mut attributes = sys::ibv_qp_init_attr {
            send_cq: queue.raw,
            recv_cq: queue.raw,
            cap: sys::ibv_qp_cap {
                max_send_wr: options.send_depth,
                max_recv_wr: options.receive_depth.max(1),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: options.inline_bytes,
            },
            qp_type: sys::ibv_qp_type::IBV_QPT_RC,
            ..Default::default()
        };
        // The driver takes both for its own kind, whosever they are.
        assert!(Arc::ptr_eq(&queue.context, &domain.context), "the completion queue is another fabric's");
        // SAFETY: domain and queue are alive and of one context; the result holds the domain, and the connection that it is a part of the queue; the attributes are whole.
        let raw = unsafe { (domain.context.library.create_qp)(domain.raw, &raw mut attributes) };
        if raw.is_null() {
            let entries = options.send_depth.max(options.receive_depth);
            let entries_max = domain.context.limits.max_qp_wr;
            return Err(VerbError::last("ibv_create_qp").of_queue(entries, entries_max));
        }
        Ok(QueuePair { domain: Arc::clone(domain), raw })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.raw).qp_num }
    }

    fn modify(
        &self,
        attributes: &mut sys::ibv_qp_attr,
        fields: sys::ibv_qp_attr_mask,
        to: &'static str,
        hint: &'static str,
    ) -> Result<(), VerbError> {
        let fields = i32::try_from(fields.0).unwrap_or(0);
        // SAFETY: the queue pair is alive and the attributes are whole.
        let returned = unsafe { (self.domain.context.library.modify_qp)(self.raw, attributes, fields) };
        VerbError::check("ibv_modify_qp", returned)
            .map_err(|error| error.about(About::Transition { to, hint }))
    }

    pub(crate) fn to_init(&self, port: u8) -> Result<(), VerbError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: qps::IBV_QPS_INIT,
            pkey_index: 0,
            port_num: port,
            qp_access_flags: access_flags(Access::REMOTE_READ | Access::REMOTE_WRITE),
            ..Default::default()
        };
        let fields =
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        let hint = "the port may be gone or its partition table empty, or the device without remote access";
        self.modify(&mut attributes, fields, "INIT", hint)
    }

    pub(crate) fn to_receive(
        &self,
        own: &PortAddress,
        peer: &Endpoint,
        reads_max: u8,
        path: &PathOptions,
    ) -> Result<(), VerbError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: qps::IBV_QPS_RTR,
            path_mtu: path_mtu(own.mtu, peer.mtu, mtu_code(path.mtu_bytes_max)),
            dest_qp_num: peer.queue_pair,
            rq_psn: peer.sequence,
            max_dest_rd_atomic: reads_max,
            min_rnr_timer: receiver_wait_code(path.receiver_wait),
            ah_attr: address_vector(own, peer, path),
            ..Default::default()
        };
        let fields = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        let hint = "the peer's address must be of the same family as ours and have a route from it (ip route get), the path MTU not more than the port's active one, reads in flight not more than the device serves";
        self.modify(&mut attributes, fields, "RTR", hint)
    }

    pub(crate) fn to_send(&self, sequence: u32, reads_max: u8, path: &PathOptions) -> Result<(), VerbError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: qps::IBV_QPS_RTS,
            timeout: ack_code(path.ack_timeout),
            retry_cnt: path.retries,
            rnr_retry: path.receiver_retries,
            sq_psn: sequence,
            max_rd_atomic: reads_max,
            ..Default::default()
        };
        let fields = mask::IBV_QP_STATE
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        let hint = "the device refused the timeouts, or more reads in flight than it can start";
        self.modify(&mut attributes, fields, "RTS", hint)
    }

    pub(crate) fn to_error(&self) -> Result<(), VerbError> {
        let mut attributes = sys::ibv_qp_attr { qp_state: qps::IBV_QPS_ERR, ..Default::default() };
        self.modify(&mut attributes, mask::IBV_QP_STATE, "ERR", "the device may be gone")
    }

    /// Rings the doorbell for a chain of requests.
    pub(crate) fn post_send(&self, chain: &mut [sys::ibv_send_wr]) -> Result<(), Refused> {
        post(chain, "ibv_post_send", |first, bad| {
            // SAFETY: the queue pair is alive; `post` links work requests inside the chain, each with a list of at most one place; the
            // places name memory that a live region covers, or inline bytes that live until the call returns.
            unsafe { (self.domain.context.ops.post_send)(self.raw, first, bad) }
        })
    }

    /// Hands a chain of receives over.
    pub(crate) fn post_receive(&self, chain: &mut [sys::ibv_recv_wr]) -> Result<(), Refused> {
        post(chain, "ibv_post_recv", |first, bad| {
            // SAFETY: as for `post_send`; no receive is inline.
            unsafe { (self.domain.context.ops.post_recv)(self.raw, first, bad) }
        })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `create_qp`, destroyed here only; its windows were freed before. When it returns the device neither
        // sends nor places anything on its behalf. A refusal leaves it in error, and to the kernel.
        let _ = unsafe { (self.domain.context.library.destroy_qp)(self.raw) };
    }
}

/// A work request of either kind: they are chained alike.
trait Work {
    fn follow(&mut self, next: *mut Self);
}

impl Work for sys::ibv_send_wr {
    fn follow(&mut self, next: *mut Self) {
        self.next = next;
    }
}

impl Work for sys::ibv_recv_wr {
    fn follow(&mut self, next: *mut Self) {
        self.next = next;
    }
}

/// Links a chain and hands it over with one call.
fn post<W: Work>(
    chain: &mut [W],
    verb: &'static str,
    call: impl FnOnce(*mut W, *mut *mut W) -> i32,
) -> Result<(), Refused> {
    let len = chain.len();
    if len == 0 {
        return Ok(());
    }
    let first = chain.as_mut_ptr();
    for at in 0..len {
        let next = if at + 1 < len { first.wrapping_add(at + 1) } else { std::ptr::null_mut() };
        // SAFETY: within the chain, which this call has alone. Through `first`, as the driver goes: a reference of its own would end what `first` may do.
        unsafe { (*first.wrapping_add(at)).follow(next) };
    }
    let mut bad = std::ptr::null_mut();
    VerbError::check(verb, call(first, &raw mut bad)).map_err(|error| {
        let posted = position(first.addr(), bad.addr(), size_of::<W>(), len);
        Refused { posted, error }
    })
}

/// How many of a chain were taken before the bad one. A driver that names none has queued them all and failed to tell
/// the device: they count as posted (failure kind 71).
fn position(first: usize, bad: usize, bytes: usize, len: usize) -> usize {
    if bad < first { len } else { ((bad - first) / bytes).min(len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_71_the_bad_request_is_where_posting_goes_on() {
        assert_eq!(position(1000, 1000, 100, 4), 0);
        assert_eq!(position(1000, 1200, 100, 4), 2);
        assert_eq!(position(1000, 0, 100, 4), 4, "none named: all were queued");
        assert_eq!(position(1000, 9000, 100, 4), 4);
    }

    #[test]
    fn a_chain_is_handed_over_whole_with_one_call() {
        let mut chain = [sys::ibv_recv_wr::default(); 3];
        for (work, id) in chain.iter_mut().zip(7..) {
            work.wr_id = id;
        }
        let mut calls = 0;
        let ended = post(&mut chain, "ibv_post_recv", |first, bad| {
            calls += 1;
            let mut ids = Vec::new();
            let mut at = first;
            while !at.is_null() {
                // SAFETY: the links were just made between the elements of the chain, which nobody else uses meanwhile.
                let work = unsafe { *at };
                ids.push(work.wr_id);
                at = work.next;
            }
            assert_eq!(ids, [7, 8, 9]);
            // SAFETY: the place is there to be written to.
            unsafe { *bad = first.wrapping_add(2) };
            12
        });
        let refused = ended.unwrap_err();
        assert_eq!((refused.posted, refused.error.errno, calls), (2, 12, 1));
        assert!(post::<sys::ibv_recv_wr>(&mut [], "ibv_post_recv", |_, _| panic!("nothing to post")).is_ok());
    }
}
