//! Work requests: from the fabric's words to the device's.

use ibverbs_sys as sys;
use sys::ibv_wr_opcode as wr;
use windlass_fabric::{Access, Local, Opcode, Operation, PostProblem, Remote, Request, Source};

use crate::region::{RegionCore, VerbsRegion};

/// What bounds the requests of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) inline_bytes: u32,
    pub(crate) message_bytes_max: u32,
}

impl Bounds {
    /// The device's work request, without its id, the place of its payload, and what its completion will be called.
    pub(crate) fn work(
        &self,
        request: &Request<'_, VerbsRegion>,
    ) -> Result<(sys::ibv_send_wr, sys::ibv_sge, Opcode), PostProblem> {
        let (code, opcode) = match &request.operation {
            Operation::Write { .. } => (wr::IBV_WR_RDMA_WRITE, Opcode::Write),
            Operation::WriteImmediate { .. } => (wr::IBV_WR_RDMA_WRITE_WITH_IMM, Opcode::Write),
            Operation::Read { .. } => (wr::IBV_WR_RDMA_READ, Opcode::Read),
            Operation::Send { immediate: None, .. } => (wr::IBV_WR_SEND, Opcode::Send),
            Operation::Send { immediate: Some(_), .. } => (wr::IBV_WR_SEND_WITH_IMM, Opcode::Send),
        };
        let mut work = sys::ibv_send_wr { opcode: code, ..Default::default() };
        if request.signalled {
            work.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        let place = match &request.operation {
            Operation::Write { source, to } => {
                set_remote(&mut work, *to);
                self.source(source, &mut work)?
            }
            Operation::WriteImmediate { source, to, immediate } => {
                set_remote(&mut work, *to);
                set_immediate(&mut work, *immediate);
                self.source(source, &mut work)?
            }
            Operation::Read { into, from } => {
                set_remote(&mut work, *from);
                self.target(into)?
            }
            Operation::Send { source, immediate } => {
                set_immediate(&mut work, immediate.unwrap_or(0));
                self.source(source, &mut work)?
            }
        };
        Ok((work, place, opcode))
    }

    fn source(
        &self,
        source: &Source<'_, VerbsRegion>,
        work: &mut sys::ibv_send_wr,
    ) -> Result<sys::ibv_sge, PostProblem> {
        match source {
            Source::Region(local) => self.local(local),
            Source::Inline(bytes) => {
                let inline_bytes = self.inline_bytes;
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                if length > inline_bytes {
                    return Err(PostProblem::InlineTooLong { bytes: bytes.len(), inline_bytes });
                }
                if length > 0 {
                    work.send_flags |= sys::ibv_send_flags::IBV_SEND_INLINE.0;
                }
                // The driver reads there on the CPU, within the call that posts it.
                Ok(sys::ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length, lkey: 0 })
            }
        }
    }

    /// A stretch that the device will write to.
    pub(crate) fn target(&self, local: &Local<'_, VerbsRegion>) -> Result<sys::ibv_sge, PostProblem> {
        if !local.region.core().allows(Access::LOCAL_WRITE) {
            return Err(PostProblem::RegionAccess);
        }
        self.local(local)
    }

    fn local(&self, local: &Local<'_, VerbsRegion>) -> Result<sys::ibv_sge, PostProblem> {
        let region: &RegionCore = local.region.core();
        let (offset, bytes, region_bytes) = (local.offset, local.bytes, region.bytes());
        if offset > region_bytes || u64::from(bytes) > region_bytes - offset {
            return Err(PostProblem::OutOfRegion { offset, bytes, region_bytes });
        }
        if bytes > self.message_bytes_max {
            return Err(PostProblem::MessageTooLong { bytes, bytes_max: self.message_bytes_max });
        }
        if let Some(page_bytes) = region.pages_alone()
            && !(offset.is_multiple_of(page_bytes.into()) && bytes.is_multiple_of(page_bytes))
        {
            return Err(PostProblem::NotWholePages { offset, bytes, page_bytes });
        }
        Ok(sys::ibv_sge { addr: region.address() + offset, length: bytes, lkey: region.local_key() })
    }
}

fn set_remote(work: &mut sys::ibv_send_wr, remote: Remote) {
    work.wr.rdma =
        sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: remote.address, rkey: remote.key.0 };
}

/// The immediate travels in network order (failure kind 75).
fn set_immediate(work: &mut sys::ibv_send_wr, immediate: u32) {
    work.__bindgen_anon_1.imm_data = immediate.to_be();
}

/// A bind of a window.
pub(crate) fn bind(
    window: *mut sys::ibv_mw,
    key: u32,
    ground: *mut sys::ibv_mr,
    (address, bytes): (u64, u64),
    access: u32,
) -> sys::ibv_send_wr {
    let mut work = sys::ibv_send_wr { opcode: wr::IBV_WR_BIND_MW, ..Default::default() };
    work.__bindgen_anon_2.bind_mw = sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
        mw: window,
        rkey: key,
        bind_info: sys::ibv_mw_bind_info {
            mr: ground,
            addr: address,
            length: bytes,
            mw_access_flags: access,
        },
    };
    work
}

/// An invalidation of a window's key.
pub(crate) fn invalidate(key: u32) -> sys::ibv_send_wr {
    let mut work = sys::ibv_send_wr { opcode: wr::IBV_WR_LOCAL_INV, ..Default::default() };
    work.__bindgen_anon_1.invalidate_rkey = key;
    work
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_75_the_immediate_travels_in_network_order() {
        let mut work = sys::ibv_send_wr::default();
        set_immediate(&mut work, 0x0102_0304);
        // SAFETY: the member was just written.
        assert_eq!(unsafe { work.__bindgen_anon_1.imm_data }.to_ne_bytes(), [1, 2, 3, 4]);
    }
}
