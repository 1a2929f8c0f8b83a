//! From `ibv_wc_status` to the fabric's words.

use ibverbs_sys::ibv_wc_status as wc;
use windlass_fabric::{ErrorCause, Opcode, Status};

/// What a work completion's status means for a request of that kind.
pub(crate) fn status(code: u32, opcode: Opcode) -> Status {
    match code {
        wc::IBV_WC_SUCCESS => Status::Success,
        wc::IBV_WC_WR_FLUSH_ERR => Status::Flushed,
        wc::IBV_WC_REM_ACCESS_ERR => Status::RemoteAccess,
        wc::IBV_WC_RNR_RETRY_EXC_ERR => Status::ReceiverNotReady,
        wc::IBV_WC_REM_INV_REQ_ERR => Status::RemoteInvalid,
        wc::IBV_WC_REM_OP_ERR => Status::RemoteFailure,
        wc::IBV_WC_RETRY_EXC_ERR | wc::IBV_WC_RESP_TIMEOUT_ERR | wc::IBV_WC_REM_ABORT_ERR => Status::PeerGone,
        // A refused bind has a status of its own, which Soft-RoCE does not use.
        wc::IBV_WC_MW_BIND_ERR => Status::BindRefused,
        wc::IBV_WC_LOC_QP_OP_ERR if opcode == Opcode::Bind => Status::BindRefused,
        // Soft-RoCE's word for a message that does not fit in the receive's buffer; others say IBV_WC_LOC_LEN_ERR.
        wc::IBV_WC_LOC_QP_OP_ERR if opcode.is_receive() => Status::LocalAccess,
        wc::IBV_WC_LOC_LEN_ERR | wc::IBV_WC_LOC_PROT_ERR | wc::IBV_WC_LOC_ACCESS_ERR => Status::LocalAccess,
        code => Status::Fault { code },
    }
}

/// What a failed completion says of its connection; `None` for a success, and for a flush, which only follows a cause.
pub(crate) fn cause(status: Status, opcode: Opcode) -> Option<ErrorCause> {
    match status {
        Status::Success | Status::Flushed => None,
        Status::PeerGone => Some(ErrorCause::PeerGone),
        // A receive fails by what the peer sent.
        Status::RemoteAccess
        | Status::RemoteInvalid
        | Status::RemoteFailure
        | Status::LocalAccess
        | Status::ReceiverNotReady
        | Status::BindRefused
        | Status::Fault { .. } => {
            Some(if opcode.is_receive() { ErrorCause::PeerRefused } else { ErrorCause::RequestFailed })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_one_meaning() {
        assert_eq!(status(wc::IBV_WC_SUCCESS, Opcode::Write), Status::Success);
        assert_eq!(status(wc::IBV_WC_REM_ACCESS_ERR, Opcode::Write), Status::RemoteAccess);
        assert_eq!(status(wc::IBV_WC_LOC_QP_OP_ERR, Opcode::Bind), Status::BindRefused);
        assert_eq!(
            status(wc::IBV_WC_LOC_QP_OP_ERR, Opcode::Write),
            Status::Fault { code: wc::IBV_WC_LOC_QP_OP_ERR }
        );
        assert_eq!(status(wc::IBV_WC_LOC_QP_OP_ERR, Opcode::Receive), Status::LocalAccess);
        assert_eq!(status(wc::IBV_WC_RETRY_EXC_ERR, Opcode::Read), Status::PeerGone);
    }

    #[test]
    fn kind_72_a_flush_is_never_the_cause() {
        assert_eq!(cause(Status::Flushed, Opcode::Write), None);
        assert_eq!(cause(Status::RemoteAccess, Opcode::Write), Some(ErrorCause::RequestFailed));
        assert_eq!(cause(Status::LocalAccess, Opcode::Receive), Some(ErrorCause::PeerRefused));
        assert_eq!(cause(Status::PeerGone, Opcode::Write), Some(ErrorCause::PeerGone));
    }
}
