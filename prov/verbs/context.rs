//! Contexts: open devices with their settings.

use super::cq::CompletionQueue;
use super::error::Error;
use super::pd::ProtectionDomain;
use erd_core::domain::{Domain, Spot, Terms};
use erd_core::keys::KeyTerms;
use erd_core::mistakes;
use erd_core::place::Place;
use erd_core::settings::{BadSetting, JobKey, KEY_BYTES, KeySource, PARAMETERS, Settings};
use erd_sys::process::Process;
use std::net::IpAddr;
use std::sync::Arc;

/// Settings of one context, which override those of the environment.
///
/// ```
/// use erd::verbs::{ContextOptions, Device};
///
/// let options = ContextOptions::new().controller("strack").paths(8);
/// let context = Device::find("127.0.0.1")?.open_with(&options)?;
/// assert_eq!((context.controller(), context.paths()), ("strack", 8));
/// # Ok::<(), erd::verbs::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ContextOptions {
    set: Vec<(String, String)>,
    key: Option<JobKey>,
}

impl ContextOptions {
    /// Only the settings of the environment.
    #[must_use]
    pub fn new() -> ContextOptions {
        ContextOptions::default()
    }

    /// Congestion controller of the queue pairs, `FI_ERD_CC`: one of
    /// [`controllers`].
    #[must_use]
    pub fn controller(self, name: &str) -> ContextOptions {
        self.setting("cc", name)
    }

    /// Its parameters, `FI_ERD_CC_OPTIONS`: "name=number" each, separated by commas.
    #[must_use]
    pub fn controller_options(self, options: &str) -> ContextOptions {
        self.setting("cc_options", options)
    }

    /// Paths to spray packets over, `FI_ERD_PATHS`: 1 to 256.
    #[must_use]
    pub fn paths(self, count: u16) -> ContextOptions {
        self.setting("paths", &count.to_string())
    }

    /// The key of the job, 256 random bits: packets are proven, and only processes with the key are peers
    /// (docs/security.md). It goes before `FI_ERD_KEY_FILE`.
    #[must_use]
    pub fn key(self, key: [u8; KEY_BYTES]) -> ContextOptions {
        ContextOptions { key: Some(JobKey::new(&key)), ..self }
    }

    /// Any setting by its name, in text as in the environment but without `FI_ERD_`: "mtu" stands
    /// for `FI_ERD_MTU`. Values are checked when the context is opened.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> ContextOptions {
        self.set.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    fn read(&self) -> Result<Settings, BadSetting> {
        let unknown =
            self.set.iter().find(|(name, _)| PARAMETERS.iter().all(|known| known.name != name));
        if let Some((name, value)) = unknown {
            let names: Vec<&str> = PARAMETERS.iter().map(|known| known.name).collect();
            return Err(BadSetting {
                variable: format!("setting {name}"),
                value: value.clone(),
                valid: format!("one of the settings {}", names.join(", ")),
            });
        }
        let own = |name: &str| self.set.iter().rev().find(|(set, _)| set == name);
        let settings = Settings::read(|parameter| match own(parameter.name) {
            Some((_, value)) => Ok(Some(value.clone())),
            None => crate::parameters::read(parameter),
        })?;
        Ok(match &self.key {
            None => settings,
            Some(key) => settings.with_keys(KeySource::Application(key.clone())),
        })
    }
}

/// Names of the congestion controllers that a context can have.
#[must_use]
pub fn controllers() -> &'static [&'static str] {
    erd_rd::cc::schemes::NAMES
}

/// Nobody can guess a key, and peers name memory by its addresses.
pub(super) const KEYS: KeyTerms = KeyTerms { random: true, at_enable: false, by_address: true };

/// An open device.
///
/// It is the root of all objects. Each of them keeps what it needs open, so they may be dropped in
/// any order.
pub struct Context {
    pub(super) domain: Arc<Domain>,
    process: Process,
}

impl Context {
    pub(super) fn open(place: &Place, options: &ContextOptions) -> Result<Context, Error> {
        let settings = options.read()?;
        mistakes::tell_unknown(&settings);
        let spot = Spot {
            entry: place.interface.clone(),
            local: place.src.ip(),
            port: place.verbs.clone(),
        };
        let terms = Terms {
            // As with a device: the library answers peers while the program computes.
            auto_progress: true,
            stays: true,
            keys: KEYS,
            dscp: 0,
        };
        let domain = Domain::new(settings, spot, &terms)
            .map_err(|error| Error::system("open the RDMA device", error))?;
        Ok(Context { domain, process: Process::current() })
    }

    /// The address of this host that the context is on.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.domain.local
    }

    /// The congestion controller of its queue pairs.
    #[must_use]
    pub fn controller(&self) -> &'static str {
        self.domain.scheme().name()
    }

    /// Number of paths that packets are sprayed over.
    #[must_use]
    pub fn paths(&self) -> u16 {
        self.domain.paths
    }

    /// A new protection domain (`ibv_alloc_pd`).
    #[must_use]
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(&self.domain, self.process)
    }

    /// A new completion queue (`ibv_create_cq`). It needs no size: it never overflows, because a
    /// request holds its place in its queue pair until its completion has been polled.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child.
    pub fn create_cq(&self) -> Result<CompletionQueue, Error> {
        check_owner(self.process)?;
        Ok(CompletionQueue::new(&self.domain))
    }

    /// Number of objects that need the context.
    pub(crate) fn users(&self) -> usize {
        self.domain.users().count()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        leave_to_parent(&self.domain, self.process);
    }
}

/// In a forked child: the domain's sockets and devices are the parent's, and stay as they are.
pub(super) fn leave_to_parent(domain: &Arc<Domain>, process: Process) {
    if !process.is_current() {
        std::mem::forget(Arc::clone(domain));
    }
}

/// # Errors
/// [`Error::Forked`] in a child of the process.
pub(super) fn check_owner(process: Process) -> Result<(), Error> {
    if process.is_current() { Ok(()) } else { Err(Error::Forked) }
}
