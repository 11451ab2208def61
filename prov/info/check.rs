//! Checks of hints against the provider's capabilities, by the rules of libfabric's utility code.

use super::hints::Hints;
use super::offer;
use crate::entry;
use crate::manners::Manners;
use crate::sep::TX_CONTEXTS_MAX;
use crate::traffic_class;
use erd_core::av::RX_CONTEXTS_MAX;
use erd_core::settings::KEY_BYTES;
use erd_ffi::fi::{
    FI_AV_AUTH_KEY, FI_AV_TABLE, FI_EP_DGRAM, FI_EP_MSG, FI_EP_RDM, FI_EP_UNSPEC, FI_HMEM,
    FI_MR_BASIC, FI_MR_SCALABLE, FI_MR_UNSPEC, FI_NAMED_RX_CTX, FI_PEER,
    FI_PROGRESS_CONTROL_UNIFIED, FI_PROTO_UNSPEC, FI_RM_ENABLED, FI_SHARED_CONTEXT, FI_SOURCE_ERR,
    FI_THREAD_ENDPOINT, fi_version,
};
use std::fmt::Display;
use thiserror::Error;

/// Capabilities of receivers that old applications also ask of a transmitter; ignored.
const IGNORED_TX_CAPS: u64 = {
    use erd_ffi::fi::*;
    FI_REMOTE_READ
        | FI_REMOTE_WRITE
        | FI_RECV
        | FI_DIRECTED_RECV
        | FI_MULTI_RECV
        | FI_SOURCE
        | FI_RMA_EVENT
        | FI_SOURCE_ERR
};

/// Likewise the other way round.
const IGNORED_RX_CAPS: u64 = {
    use erd_ffi::fi::*;
    FI_READ | FI_WRITE | FI_SEND | FI_FENCE | FI_MULTICAST | FI_NAMED_RX_CTX
};

/// A hint that the provider cannot meet.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("hints {field} is {asked}; erd has {have}")]
pub struct Refusal {
    /// The hint.
    pub field: &'static str,
    /// Its value.
    pub asked: String,
    /// Values that the provider can meet.
    pub have: String,
}

type Checked = Result<(), Refusal>;

fn refuse(field: &'static str, asked: impl Display, have: impl Display) -> Checked {
    Err(Refusal { field, asked: asked.to_string(), have: have.to_string() })
}

fn subset(field: &'static str, asked: u64, have: u64) -> Checked {
    if asked & !have == 0 {
        return Ok(());
    }
    refuse(field, format_args!("{asked:#x}"), format_args!("{have:#x}"))
}

/// Names of capabilities, for the log.
const CAP_NAMES: &[(u64, &str)] = {
    use erd_ffi::fi::*;
    &[
        (FI_MSG, "FI_MSG"),
        (FI_RMA, "FI_RMA"),
        (FI_TAGGED, "FI_TAGGED"),
        (FI_ATOMIC, "FI_ATOMIC"),
        (FI_MULTICAST, "FI_MULTICAST"),
        (FI_COLLECTIVE, "FI_COLLECTIVE"),
        (FI_READ, "FI_READ"),
        (FI_WRITE, "FI_WRITE"),
        (FI_RECV, "FI_RECV"),
        (FI_SEND, "FI_SEND"),
        (FI_REMOTE_READ, "FI_REMOTE_READ"),
        (FI_REMOTE_WRITE, "FI_REMOTE_WRITE"),
        (FI_MULTI_RECV, "FI_MULTI_RECV"),
        (FI_TRIGGER, "FI_TRIGGER"),
        (FI_FENCE, "FI_FENCE"),
        (FI_AV_USER_ID, "FI_AV_USER_ID"),
        (FI_PEER, "FI_PEER"),
        (FI_HMEM, "FI_HMEM"),
        (FI_RMA_PMEM, "FI_RMA_PMEM"),
        (FI_SOURCE_ERR, "FI_SOURCE_ERR"),
        (FI_LOCAL_COMM, "FI_LOCAL_COMM"),
        (FI_REMOTE_COMM, "FI_REMOTE_COMM"),
        (FI_SHARED_AV, "FI_SHARED_AV"),
        (FI_RMA_EVENT, "FI_RMA_EVENT"),
        (FI_SOURCE, "FI_SOURCE"),
        (FI_NAMED_RX_CTX, "FI_NAMED_RX_CTX"),
        (FI_DIRECTED_RECV, "FI_DIRECTED_RECV"),
    ]
};

fn cap_names(caps: u64) -> String {
    let known = CAP_NAMES.iter().filter(|(bit, _)| caps & bit != 0);
    let mut names: Vec<_> = known.map(|(_, name)| (*name).to_owned()).collect();
    let unknown = CAP_NAMES.iter().fold(caps, |left, (bit, _)| left & !bit);
    if unknown != 0 {
        names.push(format!("{unknown:#x}"));
    }
    names.join("|")
}

fn caps(field: &'static str, asked: u64, have: u64) -> Checked {
    if asked & !have == 0 {
        return Ok(());
    }
    refuse(field, cap_names(asked), cap_names(have))
}

fn at_most(field: &'static str, asked: usize, most: usize) -> Checked {
    if asked <= most { Ok(()) } else { refuse(field, asked, format_args!("at most {most}")) }
}

fn known(field: &'static str, asked: u32, last: u32) -> Checked {
    if asked <= last { Ok(()) } else { refuse(field, asked, format_args!("0 to {last}")) }
}

/// Checks all hints of an application that asks for API `version`. Modes need no check: the
/// provider requires none.
///
/// # Errors
/// The first hint that cannot be met.
pub fn check(hints: &Hints, version: u32, manners: Manners) -> Checked {
    // First reject requests for other providers: layered ones ask for FI_EP_MSG or DGRAM.
    if !matches!(hints.ep.r#type, FI_EP_UNSPEC | FI_EP_RDM) {
        let asked = match hints.ep.r#type {
            FI_EP_MSG => "FI_EP_MSG",
            FI_EP_DGRAM => "FI_EP_DGRAM",
            _ => "unknown",
        };
        return refuse("ep_attr->type", asked, "FI_EP_RDM");
    }
    caps("caps", hints.caps, offer::CAPS | offer::HINTED_CAPS)?;
    if !crate::addr_format::is_known(hints.addr_format) {
        return refuse("addr_format", hints.addr_format, "FI_SOCKADDR, _IP, _IN and _IN6");
    }
    if hints.prov_version > entry::version() {
        return refuse("fabric_attr->prov_version", hints.prov_version, entry::version());
    }
    check_domain(hints, version)?;
    check_mr_mode(hints.domain.mr_mode, version)?;
    check_tclass("domain_attr->tclass", hints.domain.tclass)?;
    check_tclass("tx_attr->tclass", hints.tx.tclass)?;
    check_ep(hints, manners)?;
    check_tx(hints)?;
    check_rx(hints)
}

/// Checks `FI_HMEM`, which erd has for host memory alone, and grants only where its user says so, by the setting or
/// the provider's name: programs that see it pass GPU memory. To applications older than 1.18 it always means that.
///
/// # Errors
/// If it was asked for and is not granted.
pub fn check_hmem(hints: &Hints, version: u32, is_permitted: bool) -> Checked {
    if hints.caps & FI_HMEM == 0 {
        return Ok(());
    }
    if is_permitted && version >= fi_version(1, 18) {
        return Ok(());
    }
    refuse("caps", "FI_HMEM", "host memory alone (FI_ERD_HMEM=1)")
}

/// Checks `FI_PEER`, which needs a libfabric version with the interface that erd knows.
///
/// # Errors
/// If it was asked for and is not granted.
pub fn check_peer(hints: &Hints, is_available: impl FnOnce() -> bool) -> Checked {
    if (hints.caps | hints.domain.caps) & FI_PEER == 0 || is_available() {
        return Ok(());
    }
    refuse("caps", "FI_PEER", "it with libfabric 2.3 and later")
}

fn check_domain(hints: &Hints, version: u32) -> Checked {
    let asked = &hints.domain;
    known("domain_attr->threading", asked.threading, FI_THREAD_ENDPOINT)?;
    known("domain_attr->control_progress", asked.control_progress, FI_PROGRESS_CONTROL_UNIFIED)?;
    known("domain_attr->data_progress", asked.data_progress, FI_PROGRESS_CONTROL_UNIFIED)?;
    known("domain_attr->resource_mgmt", asked.resource_mgmt, FI_RM_ENABLED)?;
    known("domain_attr->av_type", asked.av_type, FI_AV_TABLE)?;
    let have = &offer::DOMAIN;
    at_most("domain_attr->cq_data_size", asked.cq_data_size, have.cq_data_size)?;
    if version < fi_version(1, 5) {
        return Ok(());
    }
    at_most("domain_attr->cntr_cnt", asked.cntr_cnt, have.cntr_cnt)?;
    at_most("domain_attr->mr_iov_limit", asked.mr_iov_limit, have.mr_iov_limit)?;
    at_most("domain_attr->mr_cnt", asked.mr_cnt, have.mr_cnt)?;
    at_most("domain_attr->max_err_data", asked.max_err_data, have.max_err_data)?;
    let of_vectors = asked.auth_key_size == FI_AV_AUTH_KEY && version >= fi_version(1, 20);
    if !matches!(asked.auth_key_size, 0 | KEY_BYTES) && !of_vectors {
        return refuse("domain_attr->auth_key_size", asked.auth_key_size, KEY_BYTES);
    }
    match (asked.auth_key_size, asked.auth_key.is_null()) {
        (KEY_BYTES, true) => return refuse("domain_attr->auth_key", "NULL", "a key of 32 bytes"),
        (FI_AV_AUTH_KEY, false) => return refuse("domain_attr->auth_key", "a key", "NULL"),
        // A pointer to nothing says nothing.
        _ => {}
    }
    at_most("domain_attr->max_ep_auth_key", asked.max_ep_auth_key, have.max_ep_auth_key)?;
    caps("domain_attr->caps", asked.caps, have.caps | offer::HINTED_DOMAIN_CAPS)
}

/// `FI_MR_BASIC` and `FI_MR_SCALABLE` are complete modes from before 1.5, and exclude others.
fn check_mr_mode(asked: i32, version: u32) -> Checked {
    let old = asked & (FI_MR_BASIC | FI_MR_SCALABLE) != 0;
    let alone = matches!(asked, FI_MR_UNSPEC | FI_MR_BASIC | FI_MR_SCALABLE);
    if alone || (!old && version >= fi_version(1, 5)) {
        return Ok(());
    }
    let asked = format_args!("{asked:#x}");
    refuse("domain_attr->mr_mode", asked, "FI_MR_BASIC or FI_MR_SCALABLE alone, or modes since 1.5")
}

fn check_tclass(field: &'static str, tclass: u32) -> Checked {
    match traffic_class::dscp(tclass) {
        Some(_) => Ok(()),
        None => refuse(field, format_args!("{tclass:#x}"), "a DSCP of 0 to 63, and FI_TC_*"),
    }
}

fn check_ep(hints: &Hints, manners: Manners) -> Checked {
    let (asked, have) = (&hints.ep, &offer::EP);
    if asked.protocol == FI_PROTO_UNSPEC || asked.protocol == have.protocol {
        let versions = (asked.protocol_version as usize, have.protocol_version as usize);
        at_most("ep_attr->protocol_version", versions.0, versions.1)?;
    } else if !manners.takes_protocols() {
        return refuse("ep_attr->protocol", asked.protocol, have.protocol);
    }
    at_most("ep_attr->max_msg_size", asked.max_msg_size, have.max_msg_size)?;
    for (field, asked, most) in [
        ("ep_attr->tx_ctx_cnt", asked.tx_ctx_cnt, TX_CONTEXTS_MAX),
        ("ep_attr->rx_ctx_cnt", asked.rx_ctx_cnt, RX_CONTEXTS_MAX),
    ] {
        if asked != FI_SHARED_CONTEXT {
            at_most(field, asked, most)?;
        }
    }
    let of_vectors = hints.domain.auth_key_size == FI_AV_AUTH_KEY;
    match asked.auth_key_size {
        0 => Ok(()),
        KEY_BYTES if !of_vectors && !asked.auth_key.is_null() => Ok(()),
        size_bytes => refuse("ep_attr->auth_key_size", size_bytes, "0, or 32 and a key"),
    }
}

fn check_tx(hints: &Hints) -> Checked {
    let (asked, have) = (&hints.tx, &offer::TX);
    caps("tx_attr->caps", asked.caps & !IGNORED_TX_CAPS, have.caps | FI_NAMED_RX_CTX | FI_HMEM)?;
    subset("tx_attr->op_flags", asked.op_flags, have.op_flags)?;
    subset("tx_attr->msg_order", asked.msg_order, have.msg_order)?;
    subset("tx_attr->comp_order", asked.comp_order, have.comp_order)?;
    at_most("tx_attr->inject_size", asked.inject_size, have.inject_size)?;
    at_most("tx_attr->size", asked.size, have.size)?;
    at_most("tx_attr->iov_limit", asked.iov_limit, have.iov_limit)?;
    at_most("tx_attr->rma_iov_limit", asked.rma_iov_limit, have.rma_iov_limit)
}

fn check_rx(hints: &Hints) -> Checked {
    let (asked, have) = (&hints.rx, &offer::RX);
    caps("rx_attr->caps", asked.caps & !IGNORED_RX_CAPS, have.caps | FI_SOURCE_ERR | FI_HMEM)?;
    subset("rx_attr->op_flags", asked.op_flags, have.op_flags)?;
    subset("rx_attr->msg_order", asked.msg_order, have.msg_order)?;
    subset("rx_attr->comp_order", asked.comp_order, have.comp_order)?;
    let buffered = (asked.total_buffered_recv, have.total_buffered_recv);
    at_most("rx_attr->total_buffered_recv", buffered.0, buffered.1)?;
    at_most("rx_attr->size", asked.size, have.size)?;
    at_most("rx_attr->iov_limit", asked.iov_limit, have.iov_limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_ffi::fi::*;

    const NEW: u32 = fi_version(1, 21);

    fn refused(version: u32, change: impl FnOnce(&mut Hints)) -> Option<&'static str> {
        let mut hints = Hints::none();
        change(&mut hints);
        check(&hints, version, Manners::Plain).err().map(|refusal| refusal.field)
    }

    #[test]
    fn what_mpi_and_nccl_ask_for_is_met() {
        for version in [fi_version(1, 5), fi_version(1, 18), fi_version(2, 6)] {
            let asked = refused(version, |hints| {
                hints.caps = FI_TAGGED | FI_MSG | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
                hints.caps |= FI_RMA | FI_ATOMIC | FI_MULTI_RECV;
                hints.ep.r#type = FI_EP_RDM;
                hints.tx.msg_order = FI_ORDER_SAS
                    | FI_ORDER_ATOMIC_RAR
                    | FI_ORDER_ATOMIC_RAW
                    | FI_ORDER_ATOMIC_WAR
                    | FI_ORDER_ATOMIC_WAW;
                hints.tx.op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
                hints.rx.op_flags = FI_COMPLETION;
                hints.domain.threading = FI_THREAD_DOMAIN;
                hints.domain.av_type = FI_AV_MAP;
                hints.domain.resource_mgmt = FI_RM_ENABLED;
                hints.domain.mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR;
                hints.domain.mr_key_size = 2;
                hints.domain.cq_data_size = 4;
                hints.ep.mem_tag_format = u64::MAX >> 1;
            });
            assert_eq!(asked, None);
        }
    }

    #[test]
    fn what_cannot_be_met_is_refused_by_name() {
        assert_eq!(refused(NEW, |h| h.ep.r#type = FI_EP_MSG), Some("ep_attr->type"));
        assert_eq!(refused(NEW, |h| h.caps = FI_MSG | FI_COLLECTIVE), Some("caps"));
        assert_eq!(refused(NEW, |h| h.addr_format = FI_ADDR_STR), Some("addr_format"));
        assert_eq!(refused(NEW, |h| h.tx.msg_order = FI_ORDER_SAW), Some("tx_attr->msg_order"));
        assert_eq!(refused(NEW, |h| h.rx.comp_order = 1), Some("rx_attr->comp_order"));
        assert_eq!(refused(NEW, |h| h.tx.inject_size = 1025), Some("tx_attr->inject_size"));
        assert_eq!(refused(NEW, |h| h.rx.size = 1 << 20), None);
        assert_eq!(refused(NEW, |h| h.rx.size = (1 << 20) + 1), Some("rx_attr->size"));
        assert_eq!(refused(NEW, |h| h.ep.rx_ctx_cnt = 65), Some("ep_attr->rx_ctx_cnt"));
        assert_eq!(refused(NEW, |h| h.ep.tx_ctx_cnt = FI_SHARED_CONTEXT), None);
        assert_eq!(refused(NEW, |h| h.ep.protocol = FI_PROTO_RXD), Some("ep_attr->protocol"));
        assert_eq!(refused(NEW, |h| h.domain.caps = FI_RMA_PMEM), Some("domain_attr->caps"));
        assert_eq!(refused(NEW, |h| h.domain.threading = 9), Some("domain_attr->threading"));
        assert_eq!(refused(NEW, |h| h.tx.tclass = FI_TC_DSCP | 64), Some("tx_attr->tclass"));
    }

    #[test]
    fn an_engine_may_name_the_protocol_of_the_provider_that_it_knows() {
        let mut hints = Hints::none();
        (hints.ep.protocol, hints.ep.protocol_version) = (FI_PROTO_RXD, 7);
        let refused = |manners| check(&hints, NEW, manners).err().map(|refusal| refusal.field);
        assert_eq!(refused(Manners::Plain), Some("ep_attr->protocol"));
        assert_eq!(refused(Manners::Borrowed), None);
        assert_eq!(refused(Manners::Efa), None);
    }

    #[test]
    fn the_log_names_capabilities() {
        let hints = Hints { caps: FI_MSG | FI_COLLECTIVE | 1 << 60, ..Hints::none() };
        let text = check(&hints, NEW, Manners::Plain).expect_err("RMA").to_string();
        assert!(
            text.starts_with("hints caps is FI_MSG|FI_COLLECTIVE|0x1000000000000000; "),
            "{text}"
        );
    }

    #[test]
    fn receive_capabilities_on_a_transmitter_are_ignored() {
        assert_eq!(refused(NEW, |h| h.tx.caps = FI_MSG | FI_RECV | FI_SOURCE), None);
        assert_eq!(refused(NEW, |h| h.tx.caps = FI_COLLECTIVE), Some("tx_attr->caps"));
    }

    #[test]
    fn registration_modes_follow_the_api_version() {
        let mode = |version, mode| refused(version, |hints| hints.domain.mr_mode = mode);
        let (old, new) = (fi_version(1, 4), fi_version(1, 5));
        for version in [0, old, new] {
            for legal in [FI_MR_UNSPEC, FI_MR_BASIC, FI_MR_SCALABLE] {
                assert_eq!(mode(version, legal), None);
            }
            assert!(mode(version, FI_MR_BASIC | FI_MR_SCALABLE).is_some());
            assert!(mode(version, FI_MR_BASIC | FI_MR_LOCAL).is_some());
        }
        assert!(mode(old, FI_MR_LOCAL).is_some());
        assert_eq!(mode(new, !(FI_MR_BASIC | FI_MR_SCALABLE)), None);
    }

    #[test]
    fn hmem_is_granted_by_the_setting_alone() {
        let new = fi_version(1, 18);
        for (caps, version, permitted, granted) in [
            (FI_MSG | FI_RMA | FI_HMEM, new, false, false),
            (FI_MSG | FI_RMA | FI_HMEM, new, true, true),
            (FI_MSG | FI_RMA | FI_HMEM, fi_version(1, 17), true, false),
            (FI_MSG | FI_TAGGED | FI_HMEM, new, true, true),
            (FI_MSG | FI_TAGGED, new, false, true),
        ] {
            let hints = Hints { caps, ..Hints::none() };
            let checked = check_hmem(&hints, version, permitted);
            assert_eq!(checked.is_ok(), granted, "{caps:#x} {version:#x} {permitted}");
        }
    }
}
