//! `fi_getinfo(3)`: one `fi_info` for each card, family of addresses and network. An RDMA device comes ahead of other
//! interfaces, and in place of its own.

pub mod check;
pub mod hints;
mod nic;
pub mod offer;
mod place;

use crate::entry;
use crate::manners::Manners;
use crate::sep::TX_CONTEXTS_MAX;
use crate::traffic_class;
use erd_core::av::RX_CONTEXTS_MAX;
use erd_core::fabric_names::network;
use erd_core::place::Place;
use erd_core::settings::{KeySource, Settings};
use erd_core::sockaddr::{self, Family};
use erd_ffi::fi::alloc::{Info, InfoList, NoMemory};
use erd_ffi::fi::{
    FI_ATOMIC, FI_EINVAL, FI_ENODATA, FI_ENOMEM, FI_HMEM, FI_MR_ALLOCATED, FI_MR_BASIC,
    FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_SCALABLE, FI_MR_VIRT_ADDR, FI_MSG, FI_NAMED_RX_CTX, FI_PEER,
    FI_PROTO_UNSPEC, FI_RMA, FI_RMA_EVENT, FI_SHARED_CONTEXT, FI_SOURCE, FI_SOURCE_ERR, FI_TAGGED,
    fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr, fi_version,
};
use erd_port::udp::{Interface, interfaces};
use hints::Hints;
use place::Query;
use std::ffi::{c_char, c_int};

/// Whether a fabric of this name may be here.
#[must_use]
pub fn is_fabric(settings: &Settings, name: &str) -> bool {
    let is_network = |entry: &Interface| network(entry) == name;
    settings.fabrics.has(name) || interfaces(&settings.sysfs).iter().any(is_network)
}

/// Does `fi_getinfo`; `names` are node and service.
///
/// # Safety
/// Pointers are as `fi_getinfo(3)` says, `hints` as far as `version` reaches.
pub unsafe fn getinfo(
    version: u32,
    names: (*const c_char, *const c_char),
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    if info.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's promise.
    let (node, service, hints) =
        unsafe { (hints::text(names.0), hints::text(names.1), Hints::read(hints, version)) };
    let hints = match hints {
        Ok(hints) => hints,
        Err(error) => {
            tracing::info!(%error, "fi_getinfo: hints src_addr or dest_addr");
            return -FI_EINVAL;
        }
    };
    let query = Query { node: node.as_deref(), service: service.as_deref(), flags };
    match answer(version, &hints, query) {
        Ok(list) => {
            // SAFETY: the caller gave a place for the answer.
            unsafe { *info = list.into_raw() };
            0
        }
        Err(errno) => -errno,
    }
}

/// The keys that the application chooses: those of the domain, or that of its endpoints.
fn keys_of(hints: &Hints) -> KeySource {
    match (&hints.domain_keys, &hints.ep_key) {
        (KeySource::None, Some(key)) => KeySource::Application(key.clone()),
        (keys, _) => keys.clone(),
    }
}

fn answer(version: u32, hints: &Hints, query: Query<'_>) -> Result<InfoList, c_int> {
    let refused = |refusal| {
        tracing::info!("fi_getinfo: {refusal}");
        FI_ENODATA
    };
    let manners = entry::manners();
    check::check(hints, version, manners).map_err(refused)?;
    check::check_peer(hints, crate::peer::is_available).map_err(refused)?;
    let settings = crate::entry::settings_with(keys_of(hints))?;
    let transfers = hints.caps & (FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC);
    let has_hmem = settings.hmem || manners.grants_hmem(transfers);
    check::check_hmem(hints, version, has_hmem).map_err(refused)?;
    let grant = Grant::new(&settings, hints, version, manners);
    let mut list = InfoList::new();
    let ports = erd_core::rdma::usable(&settings).map_err(crate::errno::of)?;
    let places = place::places(&settings, hints, query, interfaces(&settings.sysfs), &ports)?;
    let is_named = query.node.is_some() || query.service.is_some();
    let places = manners.offered(hints, is_named, place::for_peers(hints, places));
    for place in places {
        list.push(grant.info(&place, hints, &settings).map_err(|NoMemory| FI_ENOMEM)?);
    }
    Ok(list)
}

/// An application's grant; the same on every interface.
struct Grant {
    caps: u64,
    tx: fi_tx_attr,
    rx: fi_rx_attr,
    ep: fi_ep_attr,
    domain: fi_domain_attr,
    /// Modes beside those of `domain` where a device sends without copying.
    zero_copy_mode: c_int,
    tell_pci: bool,
    manners: Manners,
}

/// The value asked for, or else the default.
fn asked_or<T: Default + PartialEq>(asked: T, default: T) -> T {
    if asked == T::default() { default } else { asked }
}

/// Capabilities granted: the transfers asked for, and those that the provider always has.
fn granted_caps(asked: u64) -> u64 {
    if asked == 0 {
        return offer::CAPS;
    }
    let secondary = offer::RX_SECONDARY_CAPS | offer::DOMAIN_CAPS;
    let asked_for = offer::PRIMARY_CAPS | offer::HINTED_CAPS;
    let caps = (asked & asked_for) | (secondary & !FI_SOURCE) | (asked & FI_SOURCE);
    let groups = [
        (FI_MSG | FI_TAGGED, offer::DIRECTION_CAPS),
        (FI_RMA | FI_ATOMIC, offer::RMA_DIRECTION_CAPS),
    ];
    groups.iter().fold(caps, |caps, (transfers, directions)| {
        let all = caps & transfers != 0 && caps & directions == 0;
        caps | if all { *directions } else { 0 }
    })
}

/// Directions, which a part always has.
const DIRECTIONS: u64 = offer::DIRECTION_CAPS | offer::RMA_DIRECTION_CAPS;

/// Capabilities of a part, from those granted: all that it can have, or those asked for.
fn part_caps(granted: u64, asked: u64, can_have: u64, primary: u64) -> u64 {
    let part = granted & can_have;
    if asked == 0 { part } else { part & (asked | !primary | DIRECTIONS) }
}

impl Grant {
    fn new(settings: &Settings, hints: &Hints, version: u32, manners: Manners) -> Grant {
        let caps = granted_caps(hints.caps);
        let peers = caps & FI_PEER != 0;
        let iov_limit = if peers { offer::PEER_IOV_LIMIT } else { offer::RX.iov_limit };
        let rx_size = if peers { offer::PEER_RX_SIZE } else { usize::MAX };
        let tx_caps = offer::TX_CAPS | FI_NAMED_RX_CTX | FI_HMEM;
        let tx = fi_tx_attr {
            caps: part_caps(caps, hints.tx.caps, tx_caps, tx_caps),
            op_flags: hints.tx.op_flags,
            tclass: traffic_class::asked(hints.tx.tclass, hints.domain.tclass),
            size: asked_or(hints.tx.size, settings.tx_size),
            iov_limit,
            ..offer::TX
        };
        let rx_caps = offer::RX_CAPS | FI_SOURCE_ERR | FI_HMEM;
        let rx = fi_rx_attr {
            caps: part_caps(caps, hints.rx.caps, rx_caps, offer::RX_PRIMARY_CAPS),
            op_flags: hints.rx.op_flags,
            size: asked_or(hints.rx.size, settings.rx_size.min(rx_size)),
            iov_limit,
            ..offer::RX
        };
        let have = &offer::DOMAIN;
        let data_progress = asked_or(hints.domain.data_progress, have.data_progress);
        // Some applications open a scalable endpoint whenever they can.
        let counts = (hints.ep.tx_ctx_cnt, hints.ep.rx_ctx_cnt);
        let several = |count: usize| (2..FI_SHARED_CONTEXT).contains(&count);
        let named = hints.caps & FI_NAMED_RX_CTX != 0;
        let scalable = named || several(counts.0) || several(counts.1);
        let contexts = if scalable { (TX_CONTEXTS_MAX, RX_CONTEXTS_MAX) } else { (1, 1) };
        // The check has let it through.
        let is_own = matches!(hints.ep.protocol, FI_PROTO_UNSPEC | offer::PROTOCOL);
        let (protocol, protocol_version) = match is_own {
            true => (offer::PROTOCOL, offer::PROTOCOL_VERSION),
            false => (hints.ep.protocol, hints.ep.protocol_version),
        };
        let ep = fi_ep_attr {
            protocol,
            protocol_version,
            tx_ctx_cnt: asked_or(counts.0, 1),
            rx_ctx_cnt: asked_or(counts.1, 1),
            ..offer::EP
        };
        let domain = fi_domain_attr {
            max_ep_tx_ctx: contexts.0,
            max_ep_rx_ctx: contexts.1,
            max_ep_auth_key: if peers { offer::PEER_KEYS } else { have.max_ep_auth_key },
            caps: have.caps | ((hints.caps | hints.domain.caps) & offer::HINTED_DOMAIN_CAPS),
            threading: asked_or(hints.domain.threading, have.threading),
            control_progress: asked_or(hints.domain.control_progress, data_progress),
            data_progress,
            av_type: asked_or(hints.domain.av_type, have.av_type),
            tclass: tx.tclass,
            mr_mode: mr_mode(hints.domain.mr_mode, hints.caps, version, manners),
            ..*have
        };
        // MPICH aborts on an address that its hwloc does not find, and that of its wheels finds
        // none.
        let tell_pci = settings.pci.unwrap_or_else(|| !erd_ffi::host::serves_mpich());
        let zero_copy_mode = zero_copy_mode(hints.domain.mr_mode, version);
        Grant { caps, tx, rx, ep, domain, zero_copy_mode, tell_pci, manners }
    }

    /// Where a device can send from registered memory, the attributes ask the application to register it.
    fn domain_at(&self, place: &Place, settings: &Settings) -> fi_domain_attr {
        let zero_copy = erd_core::plan::zero_copy_bytes(settings, place.verbs.as_ref()).is_some();
        let more = if zero_copy { self.zero_copy_mode } else { 0 };
        fi_domain_attr { mr_mode: self.domain.mr_mode | more, ..self.domain }
    }

    fn info(&self, place: &Place, hints: &Hints, settings: &Settings) -> Result<Info, NoMemory> {
        let mut info = Info::new()?;
        info.set_caps(self.caps);
        info.set_addr_format(crate::addr_format::of(Family::of(place.src.ip())));
        info.set_handle(hints.handle);
        *info.tx_mut() = self.tx;
        *info.rx_mut() = self.rx;
        info.set_ep(&self.ep);
        info.set_domain(&self.domain_at(place, settings));
        match &hints.domain_keys {
            KeySource::None => {}
            KeySource::Application(key) => info.set_domain_key(key.bytes())?,
            // The hints name none.
            KeySource::File(_) => {}
            KeySource::Vectors => info.leave_keys_to_vectors(),
        }
        if let Some(key) = &hints.ep_key {
            info.set_ep_key(key.bytes())?;
        }
        // The core fills in the provider's name and version, and the API version.
        info.set_fabric(&fi_fabric_attr::ZERO);
        self.name(&mut info, place, hints.domain_name.as_deref(), settings)?;
        Ok(info)
    }

    fn name(
        &self,
        info: &mut Info,
        place: &Place,
        hinted: Option<&str>,
        settings: &Settings,
    ) -> Result<(), NoMemory> {
        info.set_src_addr(sockaddr::encode(place.src).as_bytes())?;
        if let Some(dest) = place.dest {
            info.set_dest_addr(sockaddr::encode(dest).as_bytes())?;
        }
        let name = self.manners.domain_name(&place.domain_name(), hinted);
        info.set_domain_name(&name)?;
        info.set_fabric_name(&place.fabric_name(settings))?;
        info.set_nic(nic::describe(&settings.sysfs, place, self.tell_pci)?);
        Ok(())
    }
}

/// The provider needs no registration mode, and clears those that it does not need (`fi_mr(3)`), except
/// `FI_MR_PROV_KEY`: an application that is ready for random keys gets them, since nobody can guess those. One that
/// asks for `FI_RMA_EVENT` does not: libfabric's own fi_multi_mr claims to be ready, and is not. Engines that know erd
/// by another name keep `FI_MR_VIRT_ADDR` where its manners say so. Applications older
/// than 1.5 must get one of two modes, and newer ones that name one of the two get it back.
fn mr_mode(asked: c_int, caps: u64, version: u32, manners: Manners) -> c_int {
    let addresses = if manners.keeps_addresses() { FI_MR_VIRT_ADDR } else { 0 };
    let has_regions = caps == 0 || caps & (FI_RMA | FI_ATOMIC) != 0;
    match asked {
        FI_MR_BASIC | FI_MR_SCALABLE => asked,
        _ if version < fi_version(1, 5) => FI_MR_SCALABLE,
        _ if has_regions && caps & FI_RMA_EVENT == 0 => asked & (FI_MR_PROV_KEY | addresses),
        _ => 0,
    }
}

/// The modes that let a device send the application's memory without a copy, if the application is ready for them: it
/// registers the memory that it sends (`FI_MR_LOCAL`), and only mapped memory (`FI_MR_ALLOCATED`).
fn zero_copy_mode(asked: c_int, version: u32) -> c_int {
    let is_new = version >= fi_version(1, 5) && !matches!(asked, FI_MR_BASIC | FI_MR_SCALABLE);
    match is_new && asked & FI_MR_ALLOCATED != 0 {
        true => asked & (FI_MR_LOCAL | FI_MR_ALLOCATED),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_ffi::fi::*;

    fn grant(version: u32, change: impl FnOnce(&mut Hints)) -> Grant {
        let settings = Settings::read(|_| Ok(None)).expect("defaults");
        let mut hints = Hints::none();
        change(&mut hints);
        Grant::new(&settings, &hints, version, Manners::Plain)
    }

    const NEW: u32 = fi_version(2, 6);

    #[test]
    fn without_hints_everything_is_granted() {
        let all = grant(0, |_| ());
        let transfers = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
        let initiator = FI_SEND | FI_READ | FI_WRITE | FI_FENCE;
        let target = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_DIRECTED_RECV;
        let always = FI_MULTI_RECV | FI_RMA_EVENT | FI_SOURCE;
        let domain = FI_LOCAL_COMM | FI_REMOTE_COMM;
        assert_eq!(all.caps, transfers | initiator | target | always | domain | FI_TRIGGER);
        assert_eq!(all.tx.caps, transfers | initiator | FI_TRIGGER);
        assert_eq!(all.rx.caps, transfers | target | always | FI_TRIGGER);
        assert_eq!((all.tx.op_flags, all.rx.op_flags), (0, 0));
        assert_eq!((all.tx.size, all.rx.size), (4096, 65_536));
        assert_eq!(all.domain.mr_mode, FI_MR_SCALABLE);
    }

    #[test]
    fn transfers_are_granted_as_asked_and_source_only_then() {
        let tagged = grant(NEW, |hints| hints.caps = FI_TAGGED);
        let always = FI_MULTI_RECV | FI_RMA_EVENT | FI_LOCAL_COMM | FI_REMOTE_COMM;
        assert_eq!(tagged.caps, FI_TAGGED | FI_SEND | FI_RECV | always);
        assert_eq!(tagged.rx.caps, FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_RMA_EVENT);
        let directed = grant(NEW, |hints| {
            hints.caps = FI_MSG | FI_RECV | FI_SOURCE | FI_DIRECTED_RECV;
        });
        assert_eq!(directed.caps, FI_MSG | FI_RECV | FI_SOURCE | FI_DIRECTED_RECV | always);
        assert_eq!(directed.tx.caps, FI_MSG);
        assert_eq!(
            directed.rx.caps,
            FI_MSG | FI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_RMA_EVENT
        );
        let rma = grant(NEW, |hints| hints.caps = FI_RMA | FI_ATOMIC);
        let directions = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        assert_eq!(rma.caps, FI_RMA | FI_ATOMIC | directions | always);
        let writer = grant(NEW, |hints| hints.caps = FI_RMA | FI_WRITE);
        assert_eq!(writer.caps, FI_RMA | FI_WRITE | always);
    }

    #[test]
    fn hints_are_echoed() {
        let mpich = grant(NEW, |hints| {
            hints.domain.threading = FI_THREAD_DOMAIN;
            hints.domain.data_progress = FI_PROGRESS_AUTO;
            hints.domain.av_type = FI_AV_MAP;
            hints.domain.tclass = FI_TC_BULK_DATA;
            hints.tx.op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
            hints.tx.size = 17;
        });
        assert_eq!(mpich.domain.threading, FI_THREAD_DOMAIN);
        assert_eq!(mpich.domain.control_progress, FI_PROGRESS_AUTO);
        assert_eq!(mpich.domain.data_progress, FI_PROGRESS_AUTO);
        assert_eq!(mpich.domain.av_type, FI_AV_MAP);
        assert_eq!((mpich.domain.tclass, mpich.tx.tclass), (FI_TC_BULK_DATA, FI_TC_BULK_DATA));
        assert_eq!(mpich.tx.op_flags, FI_COMPLETION | FI_DELIVERY_COMPLETE);
        assert_eq!((mpich.tx.size, mpich.rx.size), (17, 65_536));
    }

    #[test]
    fn who_links_providers_sees_what_fits_its_own_attributes() {
        let linked = grant(NEW, |hints| hints.caps = FI_TAGGED | FI_PEER | FI_AV_USER_ID);
        assert_eq!(linked.caps & linked.domain.caps & FI_PEER, FI_PEER);
        assert_eq!((linked.rx.size, linked.rx.iov_limit, linked.tx.iov_limit), (1024, 4, 4));
        assert_eq!(linked.domain.max_ep_auth_key, 0);
        let plain = grant(NEW, |hints| hints.caps = FI_TAGGED);
        assert_eq!((plain.caps | plain.domain.caps) & FI_PEER, 0);
        assert_eq!((plain.rx.size, plain.rx.iov_limit), (65_536, offer::RX.iov_limit));
        assert_eq!(plain.domain.max_ep_auth_key, offer::DOMAIN.max_ep_auth_key);
    }

    #[test]
    fn other_names_bring_what_engines_expect_of_them() {
        let settings = Settings::read(|_| Ok(None)).expect("defaults");
        let mut hints = Hints { caps: FI_MSG | FI_RMA, ..Hints::none() };
        hints.domain.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints.ep.protocol = FI_PROTO_RXD;
        let grant = |manners| Grant::new(&settings, &hints, NEW, manners);
        let mode = |manners| grant(manners).domain.mr_mode;
        assert_eq!(mode(Manners::Efa), FI_MR_VIRT_ADDR | FI_MR_PROV_KEY);
        assert_eq!(mode(Manners::Borrowed), FI_MR_PROV_KEY);
        assert_eq!(grant(Manners::Borrowed).ep.protocol, FI_PROTO_RXD);
    }

    #[test]
    fn no_registration_mode_is_required_and_random_keys_are_given_to_who_is_ready_for_them() {
        for version in [fi_version(1, 5), NEW] {
            assert_eq!(grant(version, |_| ()).domain.mr_mode, 0);
            let all = FI_MR_LOCAL | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
            let mode = |caps| {
                let hints = |hints: &mut Hints| {
                    (hints.domain.mr_mode, hints.caps) = (all, caps);
                };
                grant(version, hints).domain.mr_mode
            };
            for caps in [0, FI_RMA, FI_MSG | FI_ATOMIC] {
                assert_eq!(mode(caps), FI_MR_PROV_KEY);
            }
            assert_eq!(mode(FI_MSG | FI_TAGGED), 0, "nobody has regions");
            assert_eq!(mode(FI_MSG | FI_RMA | FI_RMA_EVENT), 0, "fi_multi_mr");
            assert_eq!(grant(version, |hints| hints.domain.mr_mode = all).zero_copy_mode, 0);
            let ready = |hints: &mut Hints| hints.domain.mr_mode = all | FI_MR_ALLOCATED;
            let modes = FI_MR_LOCAL | FI_MR_ALLOCATED;
            assert_eq!(grant(version, ready).zero_copy_mode, modes, "where a device sends it");
            let basic = grant(version, |hints| hints.domain.mr_mode = FI_MR_BASIC);
            assert_eq!(basic.zero_copy_mode, 0);
            assert_eq!(basic.domain.mr_mode, FI_MR_BASIC);
        }
    }
}
