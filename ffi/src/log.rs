//! libfabric's log.
//!
//! Messages go to the libfabric that loaded us ([`crate::host::attach`]) and obey its
//! `FI_LOG_LEVEL`, `FI_LOG_PROV` and `FI_LOG_SUBSYS`. Without libfabric they go to standard error
//! if `FI_LOG_LEVEL` is set, else nowhere.

use crate::host::{self, Host};
use core::ffi::{CStr, c_int};
use core::fmt::{self, Write as _};
use std::sync::OnceLock;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::{Interest, SetGlobalDefaultError};
use tracing::{Event, Metadata, Subscriber, span};

/// Longest message in bytes; libfabric cuts at the same length.
const MESSAGE_LIMIT_BYTES: usize = 1024;
/// Longest function name or target in bytes.
const FUNC_LIMIT_BYTES: usize = 96;

/// libfabric's levels, from the most severe to the most detailed; `FI_LOG_WARN` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Errors and warnings.
    Warn = crate::fi::FI_LOG_WARN,
    /// A few lines that follow the program's path.
    Trace = crate::fi::FI_LOG_TRACE,
    /// Information that helps a user.
    Info = crate::fi::FI_LOG_INFO,
    /// Details that help a developer.
    Debug = crate::fi::FI_LOG_DEBUG,
}

impl Level {
    const ALL: [Self; 4] = [Self::Warn, Self::Trace, Self::Info, Self::Debug];

    fn name(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Trace => "trace",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Reads a value of `FI_LOG_LEVEL`; as in libfabric, anything unknown means `warn`.
    fn from_setting(text: &str) -> Self {
        Self::ALL.into_iter().find(|l| l.name().eq_ignore_ascii_case(text)).unwrap_or(Self::Warn)
    }
}

impl From<tracing::Level> for Level {
    fn from(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR | tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Info,
            // libfabric's own trace level is less detailed than info.
            tracing::Level::DEBUG | tracing::Level::TRACE => Self::Debug,
        }
    }
}

/// libfabric's subsystems, `FI_LOG_CORE` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Subsys {
    /// Start-up, configuration, everything else.
    Core = crate::fi::FI_LOG_CORE,
    /// Fabrics.
    Fabric = crate::fi::FI_LOG_FABRIC,
    /// Domains.
    Domain = crate::fi::FI_LOG_DOMAIN,
    /// Endpoints, control.
    EpCtrl = crate::fi::FI_LOG_EP_CTRL,
    /// Endpoints, data transfer.
    EpData = crate::fi::FI_LOG_EP_DATA,
    /// Address vectors.
    Av = crate::fi::FI_LOG_AV,
    /// Completion queues.
    Cq = crate::fi::FI_LOG_CQ,
    /// Event queues.
    Eq = crate::fi::FI_LOG_EQ,
    /// Memory regions.
    Mr = crate::fi::FI_LOG_MR,
    /// Counters.
    Cntr = crate::fi::FI_LOG_CNTR,
}

impl Subsys {
    const ALL: [Self; 10] = [
        Self::Core,
        Self::Fabric,
        Self::Domain,
        Self::EpCtrl,
        Self::EpData,
        Self::Av,
        Self::Cq,
        Self::Eq,
        Self::Mr,
        Self::Cntr,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Fabric => "fabric",
            Self::Domain => "domain",
            Self::EpCtrl => "ep_ctrl",
            Self::EpData => "ep_data",
            Self::Av => "av",
            Self::Cq => "cq",
            Self::Eq => "eq",
            Self::Mr => "mr",
            Self::Cntr => "cntr",
        }
    }

    /// The subsystem that a module path ends with, as in `erd::fabric::cq`; the protocol engine
    /// is data transfer, and everything else is core.
    fn from_target(target: &str) -> Self {
        let last = target.rsplit("::").next().unwrap_or(target);
        match Self::ALL.into_iter().find(|subsys| subsys.name() == last) {
            Some(subsys) => subsys,
            None if target.split("::").next() == Some("erd_rd") => Self::EpData,
            None => Self::Core,
        }
    }
}

/// Whether a message of this kind would be seen.
#[must_use]
pub fn enabled(level: Level, subsys: Subsys) -> bool {
    match host::get() {
        Some(host) => host_enabled(host, level, subsys),
        None => stderr_level().is_some_and(|limit| level <= limit),
    }
}

/// Writes a message, if it is enabled. `func` and `line` say where it comes from.
///
/// The message is cut at 1024 bytes. `errno` is left alone. Nothing is allocated.
pub fn emit(level: Level, subsys: Subsys, func: &str, line: u32, message: fmt::Arguments<'_>) {
    if !enabled(level, subsys) {
        return;
    }
    let mut text = CText::<MESSAGE_LIMIT_BYTES>::new();
    // `CText` cuts what is too long, so only a failing `Display` could end up here; what it wrote
    // before it failed is still worth showing.
    let _ = text.write_fmt(message);
    let mut place = CText::<FUNC_LIMIT_BYTES>::new();
    let _ = place.write_str(func);
    match host::get() {
        Some(host) => host_emit(host, level, subsys, place.as_c_str(), line, text.as_c_str()),
        None => {
            let (text, place) = (text.as_c_str().to_string_lossy(), place.as_c_str());
            let (pid, place) = (std::process::id(), place.to_string_lossy());
            let (subsys, level) = (subsys.name(), level.name());
            eprintln!("erd:{pid}:{subsys}:{place}():{line}<{level}> {text}");
        }
    }
}

fn host_enabled(host: &Host, level: Level, subsys: Subsys) -> bool {
    let provider = host::registered(host);
    // SAFETY: the provider is static, and the enumerators are libfabric's.
    unsafe { (host.log_enabled)(provider.as_ptr(), level as u32, subsys as u32) != 0 }
}

fn host_emit(host: &Host, level: Level, subsys: Subsys, func: &CStr, line: u32, text: &CStr) {
    let line = c_int::try_from(line).unwrap_or(c_int::MAX);
    // SAFETY: `errno` is this thread's own. The provider is static, all strings are C strings,
    // and the format takes exactly one string.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        (host.log)(
            host.provider.as_ptr(),
            level as u32,
            subsys as u32,
            func.as_ptr(),
            line,
            c"%s\n".as_ptr(),
            text.as_ptr(),
        );
        *errno = saved;
    }
}

/// The level up to which messages go to standard error when there is no libfabric.
fn stderr_level() -> Option<Level> {
    static LEVEL: OnceLock<Option<Level>> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let setting = std::env::var_os("FI_LOG_LEVEL")?;
        Some(Level::from_setting(&setting.to_string_lossy()))
    })
}

/// Makes `tracing` events of this copy of the library go to libfabric's log.
///
/// For `fi_prov_ini`, after [`crate::host::attach`]. A Rust application installs its own
/// subscriber instead.
///
/// # Errors
///
/// There is a global subscriber already; it stays.
pub fn install() -> Result<(), SetGlobalDefaultError> {
    tracing::subscriber::set_global_default(FiSubscriber)
}

/// A `tracing` subscriber that passes events to [`emit`] and takes no spans.
///
/// The subsystem follows from the event's target: the last part of the path if libfabric has a
/// subsystem of that name (`target: "erd::cq"`).
#[derive(Clone, Copy, Debug, Default)]
pub struct FiSubscriber;

impl Subscriber for FiSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && enabled(Level::from(*metadata.level()), Subsys::from_target(metadata.target()))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let any = |level| Subsys::ALL.into_iter().any(|subsys| enabled(level, subsys));
        Some(if any(Level::Debug) {
            LevelFilter::TRACE
        } else if any(Level::Info) {
            LevelFilter::INFO
        } else if any(Level::Warn) {
            LevelFilter::WARN
        } else {
            LevelFilter::OFF
        })
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut text = EventText(CText::new());
        event.record(&mut text);
        emit(
            Level::from(*metadata.level()),
            Subsys::from_target(metadata.target()),
            metadata.target(),
            metadata.line().unwrap_or(0),
            format_args!("{}", text.0.as_c_str().to_string_lossy()),
        );
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        // Spans are never enabled, so the number is never used to tell two of them apart.
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The message of an event, followed by its fields as ` name=value`.
struct EventText(CText<MESSAGE_LIMIT_BYTES>);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // As in `emit`: too long is cut, a failing `Debug` is shown as far as it came.
        let _ = match (field.name(), self.0.is_empty()) {
            ("message", _) => write!(self.0, "{value:?}"),
            (name, true) => write!(self.0, "{name}={value:?}"),
            (name, false) => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// A C string of at most `N - 1` bytes on the stack; more is cut, NUL becomes a question mark.
struct CText<const N: usize> {
    bytes: [u8; N],
    len_bytes: usize,
}

impl<const N: usize> CText<N> {
    fn new() -> Self {
        Self { bytes: [0; N], len_bytes: 0 }
    }

    fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    fn as_c_str(&self) -> &CStr {
        // The last byte is never written, so there always is a NUL.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Write for CText<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len_bytes..N - 1];
        let mut take_bytes = text.len().min(room.len());
        while !text.is_char_boundary(take_bytes) {
            take_bytes -= 1;
        }
        for (place, byte) in room.iter_mut().zip(&text.as_bytes()[..take_bytes]) {
            *place = if *byte == 0 { b'?' } else { *byte };
        }
        self.len_bytes += take_bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_subsystems() {
        assert_eq!(Subsys::from_target("erd::cq"), Subsys::Cq);
        assert_eq!(Subsys::from_target("erd::fabric::ep_ctrl"), Subsys::EpCtrl);
        assert_eq!(Subsys::from_target("erd_rd::flow"), Subsys::EpData);
        assert_eq!(Subsys::from_target("erd"), Subsys::Core);
    }

    #[test]
    fn settings_are_read_as_libfabric_reads_them() {
        assert_eq!(Level::from_setting("INFO"), Level::Info);
        assert_eq!(Level::from_setting("debug"), Level::Debug);
        assert_eq!(Level::from_setting("loud"), Level::Warn);
    }

    #[test]
    fn text_is_cut_at_a_character_and_never_holds_nul() {
        let mut text = CText::<6>::new();
        assert!(text.write_str("a\0bcé!").is_ok());
        assert_eq!(text.as_c_str(), c"a?bc");
    }
}
