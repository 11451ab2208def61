//! The attributes of an endpoint, and the engine's settings that follow from them and the domain.

use super::limits::{MIN_MULTI_RECV_BYTES, MSG_BYTES_MAX};
use crate::av::AddressVector;
use crate::domain::Domain;
use crate::error::Error;
use crate::flags::Flags;
use crate::key_file::Read;
use crate::plan;
use crate::run::link;
use crate::settings::{INJECT_BYTES, KeySource, QUEUE_SIZE_MAX};
use erd_crypto::{JobKey, Keyring};
use erd_rd::config::{Config, Near};
use erd_rd::keys::{KeySet, Keys};
use erd_rd::{Ecn, Nanos};
use erd_sys::clock::realtime_ns;
use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes of one burst: the 64 KiB that segmentation offload takes in one piece. Few of them are headers, and a lost one
/// is soon sent again.
const BURST_BYTES: u32 = 64 << 10;
/// The same over Soft-RoCE, where a doorbell costs nearly as much as a datagram: `ib_send_bw -c UD` sends
/// 45 MB/s with one datagram for each and twice that with 32 (docs/verbs.md).
const BURST_SOFTWARE_BYTES: u32 = 128 << 10;

/// Sizes and capabilities of one endpoint.
#[derive(Clone, Debug)]
pub struct EpConfig {
    /// Most sends, outstanding or with unread completions.
    pub tx_size: usize,
    /// Most receives, likewise.
    pub rx_size: usize,
    /// Longest payload (bytes) of a call that returns the buffer at once.
    pub inject_bytes: u64,
    /// Longest message, in bytes.
    pub max_msg_bytes: u64,
    /// Least space below which a buffer of many messages is released.
    pub min_multi_recv_bytes: usize,
    /// Receives may name their source.
    pub directed: bool,
    /// Completions name their source.
    pub source: bool,
    /// A message of a source that is not in the AV completes as an error with its address.
    pub source_err: bool,
    /// Number of the queue pair, if it is one: its completions have the number as their tag, and name the peer's
    /// address.
    pub queue_pair: Option<u32>,
    /// Number of transmit contexts of a scalable endpoint; else 0.
    pub tx_contexts: usize,
    /// Messages and writes may complete once they are copied.
    pub completes_early: bool,
    /// Default flags of sends.
    pub tx_flags: Flags,
    /// Default flags of receives.
    pub rx_flags: Flags,
    /// It may share memory with peers on its host, if the settings let it.
    pub local: bool,
    /// A key of the endpoint alone, in place of the domain's.
    pub key: Option<JobKey>,
}

impl EpConfig {
    /// Attributes of a queue pair: it receives from anyone, and completions name the sender.
    pub fn for_queue_pair(number: u32, tx_size: usize, rx_size: usize) -> EpConfig {
        EpConfig {
            tx_size,
            rx_size,
            inject_bytes: INJECT_BYTES as u64,
            max_msg_bytes: MSG_BYTES_MAX as u64,
            min_multi_recv_bytes: MIN_MULTI_RECV_BYTES,
            directed: false,
            source: false,
            source_err: false,
            queue_pair: Some(number),
            tx_contexts: 0,
            completes_early: false,
            tx_flags: Flags::empty(),
            rx_flags: Flags::empty(),
            local: true,
            key: None,
        }
    }

    /// The same for an engine of a scalable endpoint, whose contexts share its places for sends.
    pub fn scalable(self, tx_contexts: usize) -> EpConfig {
        let tx_size = (self.tx_size * tx_contexts).min(QUEUE_SIZE_MAX);
        EpConfig { tx_contexts, tx_size, ..self }
    }
}

/// Largest datagram, in bytes, between an endpoint of the domain and other hosts.
pub(super) fn datagram_bytes(domain: &Domain) -> u16 {
    let verbs_bytes = domain.verbs.as_ref().map(|port| port.address().mtu_bytes);
    let v6 = domain.local.is_ipv6();
    plan::datagram_bytes(&domain.settings, domain.mtu_bytes, v6, verbs_bytes)
}

/// The engine's settings towards peers on this host, where they differ.
pub(super) fn near(domain: &Domain) -> Option<Near> {
    let plan::Near { paths, scheme, link_bytes_per_s, datagram_bytes } = domain.near()?;
    // The sockets can set only this value by themselves: any other takes a control message per datagram.
    let ecn = Ecn::Ect0;
    Some(Near { datagram_bytes, paths, link_bytes_per_s, ecn, scheme: scheme.build() })
}

/// The keys of an endpoint.
pub(super) struct OwnKeys {
    /// Those that it begins with.
    pub set: KeySet,
    /// From the job's file: the number of its newest key.
    pub version: Option<u64>,
    /// The newest key, if the endpoint begins with the one before, and how long both are valid.
    pub newest: Option<(Arc<dyn Keys>, Nanos)>,
}

impl From<KeySet> for OwnKeys {
    fn from(set: KeySet) -> OwnKeys {
        OwnKeys { set, version: None, newest: None }
    }
}

/// The keys of an endpoint that is bound to this address vector.
///
/// # Errors
/// [`Error::Invalid`] if the domain leaves keys to address vectors, and this one has none.
pub(super) fn keys(
    domain: &Domain,
    config: &EpConfig,
    av: &AddressVector,
) -> Result<OwnKeys, Error> {
    let settings = &domain.settings;
    let of = |job: &JobKey| Arc::new(Keyring::new(job.clone(), settings.hides)) as Arc<dyn Keys>;
    match (&config.key, &settings.keys) {
        (_, KeySource::Vectors) => {
            let set = av.key_set();
            if set.is_empty() {
                tracing::warn!("fi_enable: FI_AV_AUTH_KEY: the address vector has no key yet");
                return Err(Error::Invalid);
            }
            Ok(set.into())
        }
        (Some(job), _) | (None, KeySource::Application(job)) => Ok(KeySet::one(of(job)).into()),
        (None, KeySource::File(file)) => {
            crate::key_file::watch();
            let Read { version, newest, before } = file.keys();
            let (first, newest) = match before {
                Some((before, left)) => (before, Some((of(&newest), left.as_nanos() as Nanos))),
                None => (newest, None),
            };
            Ok(OwnKeys { set: KeySet::one(of(&first)), version: Some(version), newest })
        }
        (None, KeySource::None) => Ok(KeySet::default().into()),
    }
}

/// The engine's settings for an endpoint called `name` with this receive buffer.
pub(super) fn engine_config(
    domain: &Domain,
    config: &EpConfig,
    keys: KeySet,
    name: SocketAddr,
    recv_buffer_bytes: usize,
) -> Config {
    let settings = &domain.settings;
    let recv_buffer_bytes = match &domain.verbs {
        // The link divides these among the endpoints of the domain.
        Some(port) => link::recv_buffer_bytes(port) as usize,
        // The kernel releases space in quarters.
        None => recv_buffer_bytes / 4 * 3,
    };
    Config {
        datagram_bytes: datagram_bytes(domain),
        burst_bytes: match &domain.verbs {
            Some(verbs) if verbs.port().is_software() => BURST_SOFTWARE_BYTES,
            _ => BURST_BYTES,
        },
        paths: domain.paths,
        peer_timeout_ns: settings.peer_timeout_ns,
        growth_ns: settings.mtu_growth_ns,
        scan_min_ns: settings.scan_min_ns,
        rto_min_ns: settings.rto_min_ns,
        eager_bytes: settings.eager_bytes,
        unexpected_bytes: settings.unexpected_within(erd_sys::own_memory::limit_bytes()),
        recv_buffer_bytes: u32::try_from(recv_buffer_bytes).unwrap_or(u32::MAX),
        sends_max: config.tx_size as u32,
        base_rtt_ns: settings.base_rtt_us.unwrap_or(0) * 1000,
        link_bytes_per_s: domain.link_bytes_per_s,
        payload_checksum: settings.payload_checksum,
        info_path: settings.info_path == crate::settings::InfoPath::Tcp,
        keys,
        ..Config::new(name, realtime_ns(), erd_sys::checksum::crc32c)
    }
}
