//! Congestion control of one peer: how many bytes may be in flight, and on which paths. Holds the controller, its
//! inputs and the measurements behind them (protocol.md §4.3 to §4.5, §6).
//!
//! `Peer` asks before it sends, and reports what it sent and what became of it. [`Flight`] keeps what is in flight.

use super::flight::{Flight, SentPacket};
use super::flow::{Flow, FlowView};
use super::host_delay::HostDelay;
use super::paths::Advice;
use super::restraint::Restraint;
use super::rtt::Rtt;
use crate::cc::{AckSample, Controller, Loss, LossKind, SentBurst, Timeout};
use crate::config::Config;
use crate::transmit::TxBurst;
use crate::units::{Ecn, Nanos, Psn, SECOND};
use crate::wire::ack::{ACK_ECHO, AckState, Echo};
use crate::wire::window::{DATAGRAM_COST_BYTES, Window};
use alloc::boxed::Box;
use rand_chacha::rand_core::Rng;

/// Most times that a controller is asked for the path of one burst.
const PATH_CHOICES: u32 = 3;
/// Least bursts in a window.
const BURSTS_PER_WINDOW: u64 = 4;
/// Packets in flight to a receiver that asks for time between them.
const SPACED_PACKETS: u64 = 4;
/// Most bytes of the receiver's buffer that a flow keeps while it sends nothing.
pub(super) const BUFFER_IDLE_BYTES: u32 = 256 << 10;
/// Round trips above this are clock noise (the timestamp has 32 bits of nanoseconds).
const RTT_MAX_NS: u32 = 2_000_000_000;

/// See the module. `datagram_bytes` is the largest datagram that the session uses now.
#[derive(Default)]
pub(super) struct Steering {
    cc: Option<Box<dyn Controller>>,
    rtt: Rtt,
    hosts: HostDelay,
    /// State of the paths, and counters for observers.
    flow: Flow,
    /// Time at which the controller's pace lets the next burst go; 0 for at once.
    pace_at: Nanos,
    /// Time at which a receiver's window of less than a packet lets the next one go; 0 for at once.
    spaced_until: Nanos,
    restraint: Restraint,
    /// What the receiver lets in.
    told: Window,
    /// The send time that an acknowledgement echoed last.
    echo_last: u32,
    ce_seen_bytes: u32,
    spurious_seen: u16,
}

impl Steering {
    /// Begins a session. The round trips of its set-up come before it is open.
    pub fn start(&mut self, first_psn: Psn) {
        *self = Steering { rtt: self.rtt, flow: Flow::new(first_psn), ..Steering::default() };
    }

    /// Opens the session.
    pub fn open(&mut self, cc: Box<dyn Controller>, restraint: Restraint, told: Window) {
        self.cc = Some(cc);
        self.restraint = restraint;
        self.told = told;
    }

    /// Samples a round trip of the set-up.
    pub fn sample(&mut self, rtt_ns: Nanos) {
        self.rtt.sample(rtt_ns);
    }

    /// The smoothed round trip, in nanoseconds.
    pub fn rtt_ns(&self) -> Nanos {
        self.rtt.smoothed_ns()
    }

    /// The smoothed round trip with the longest recent wait for processes, in nanoseconds; 0 if nobody measured it.
    pub fn whole_rtt_ns(&self) -> Nanos {
        match self.rtt.smoothed_ns() {
            0 => 0,
            rtt_ns => rtt_ns + self.hosts.longest_ns(),
        }
    }

    /// Time (ns) beyond which a packet is more than late, by so many mean deviations of the round trip.
    pub fn patience_ns(&self, deviations: u64) -> Nanos {
        self.rtt.smoothed_ns() + deviations * self.rtt.variance_ns()
    }

    /// Silence (ns) after which to probe. A busy peer answers late, and another probe makes it busier.
    pub fn probe_timeout_ns(&self, cfg: &Config) -> Nanos {
        self.rtt.probe_timeout_ns(cfg, self.hosts.longest_ns())
    }

    /// Silence (ns) after which to ask for the last packets sent; `None` if probes come as soon.
    pub fn tail_timeout_ns(&self, cfg: &Config) -> Option<Nanos> {
        self.rtt.tail_timeout_ns(cfg, self.hosts.longest_ns())
    }

    /// The same for a peer known not to be busy.
    pub fn idle_timeout_ns(&self, cfg: &Config) -> Nanos {
        self.rtt.probe_timeout_ns(cfg, 0)
    }

    /// True if pace, controller and receiver take `bytes` more, new or repeated. One packet is always allowed.
    pub fn takes(&self, now: Nanos, flight: &Flight, bytes: u64, datagram_bytes: u16) -> bool {
        if self.cc.is_none() || self.is_paced(now) {
            return false;
        }
        flight.packets() == 0
            || self.takes_more(
                self.limit_bytes(now, flight, datagram_bytes),
                flight,
                bytes,
                datagram_bytes,
            )
    }

    /// True if controller and receiver take `bytes` more while `limit_bytes` may be in flight.
    pub fn takes_more(
        &self,
        limit_bytes: u64,
        flight: &Flight,
        bytes: u64,
        datagram_bytes: u16,
    ) -> bool {
        let buffered = flight.bytes() + u64::from(flight.packets()) * DATAGRAM_COST_BYTES;
        flight.bytes() + bytes <= limit_bytes
            && buffered + bytes + DATAGRAM_COST_BYTES <= self.told_bytes(datagram_bytes.into())
    }

    /// True if the pace of controller or receiver lets nothing go yet.
    pub fn is_paced(&self, now: Nanos) -> bool {
        self.pace_at > now || self.spaced_until > now
    }

    /// True if the receiver's window holds this flow back: half of it is in flight, and no queue is why.
    pub fn is_held(&self, flight: &Flight, datagram_bytes: u64) -> bool {
        let buffered = flight.bytes() + u64::from(flight.packets()) * DATAGRAM_COST_BYTES;
        let with_next = buffered + datagram_bytes + DATAGRAM_COST_BYTES;
        let is_full = self.told.space_ns() > 0 || 2 * with_next > self.told_bytes(datagram_bytes);
        is_full && !self.rtt.is_queued()
    }

    /// True if something else than the controller's window limits the flow: the application, which has no more to send, or the
    /// receiver, which takes less.
    fn is_app_limited(&self, (has_more, datagram_bytes): (bool, u16)) -> bool {
        !has_more || self.restraint.is_draining() || self.is_told_less(datagram_bytes)
    }

    /// True if the receiver takes less than the controller allows.
    fn is_told_less(&self, datagram_bytes: u16) -> bool {
        let datagram_bytes64 = u64::from(datagram_bytes);
        // Both sides hold for whole datagrams. Each product fits: windows have 34 bits at most.
        let window = self.window_bytes(datagram_bytes) * (datagram_bytes64 + DATAGRAM_COST_BYTES);
        self.told.space_ns() > 0 || window > self.told_bytes(datagram_bytes64) * datagram_bytes64
    }

    /// Bytes that the receiver takes, counted with [`DATAGRAM_COST_BYTES`] for each packet.
    fn told_bytes(&self, datagram_bytes: u64) -> u64 {
        let spaced = SPACED_PACKETS * (datagram_bytes + DATAGRAM_COST_BYTES);
        self.told.bytes().map_or(spaced, u64::from)
    }

    /// Bytes that the controller allows in flight, or fewer; see [`Restraint`].
    pub fn window_bytes(&self, datagram_bytes: u16) -> u64 {
        let window = self.cc.as_ref().map_or(0, |cc| cc.window_bytes());
        match self.restraint.packets() {
            None => window,
            Some(packets) => window.min(packets * u64::from(datagram_bytes)),
        }
    }

    /// Bytes that may be in flight now, including those that wait at hosts.
    pub fn limit_bytes(&self, now: Nanos, flight: &Flight, datagram_bytes: u16) -> u64 {
        let window = self.window_bytes(datagram_bytes);
        self.hosts.limit_bytes(now, flight.bytes(), window, self.rtt.smoothed_ns())
    }

    /// Most bytes of a burst. A burst of the whole window would leave nothing to pace or to steer, unless the hosts
    /// hold several windows.
    pub fn burst_bytes(&self, datagram_bytes: u16) -> u64 {
        let window = self.window_bytes(datagram_bytes);
        let most = self.hosts.stretched_bytes(window, self.rtt.smoothed_ns());
        (most / BURSTS_PER_WINDOW).min(window)
    }

    /// Bytes after which a stream requests an acknowledgement, where the peer takes `psn_window` packets.
    pub fn request_bytes(&self, psn_window: u32, datagram_bytes: u16) -> u64 {
        let packets = u64::from(psn_window) * u64::from(datagram_bytes);
        let window = self.window_bytes(datagram_bytes);
        window.min(self.told_bytes(datagram_bytes.into())).min(packets) / 4
    }

    /// See [`Controller::is_strict`].
    pub fn is_strict(&self) -> bool {
        self.cc.as_ref().is_some_and(|cc| cc.is_strict())
    }

    /// Whether the next packet, of `datagram_bytes` at most, leaves no room in the window for one more.
    pub fn is_filled_by_next(&self, flight: &Flight, datagram_bytes: u16) -> bool {
        flight.bytes() + 2 * u64::from(datagram_bytes) >= self.window_bytes(datagram_bytes)
    }

    /// The path of a flow whose scheme keeps to one, whatever becomes of it.
    pub fn only_path(&mut self, now: Nanos) -> Option<u16> {
        let cc = self.cc.as_mut()?;
        (!cc.may_move() && cc.view().paths == 1).then(|| cc.next_path(now))
    }

    /// Path of the next burst, and whether it is a bad one that may have one packet (protocol.md
    /// §4.5). Only `fresh` packets try one.
    pub fn next_path(&mut self, cfg: &Config, now: Nanos, fresh: bool) -> (u16, bool) {
        let timeout_ns = self.idle_timeout_ns(cfg);
        let Some(cc) = &mut self.cc else { return (0, false) };
        let paths = &mut self.flow.paths;
        let in_turn = self.told.space_ns() > 0 && cc.may_move();
        for _ in 0..PATH_CHOICES {
            let path = if in_turn { paths.next_in_turn() } else { cc.next_path(now) };
            match paths.judge(now, path, timeout_ns) {
                Advice::Use => return (path, false),
                _ if !cc.may_move() => return (path, false),
                Advice::Try if fresh => return (path, true),
                Advice::Try | Advice::Avoid => {}
            }
        }
        (paths.next_sound(), false)
    }

    /// Notes a sent burst, whose packets are in flight by now. Returns its ECN codepoint: `ecn`, or the controller's
    /// choice.
    pub fn sent(
        &mut self,
        cfg: &Config,
        now: Nanos,
        burst: &TxBurst,
        (paths, datagram_bytes): (u16, u16),
        ecn: Option<Ecn>,
        feedback: (u64, bool),
    ) -> Ecn {
        let (bytes, path) = (burst.total_bytes, burst.path);
        let (in_flight_bytes, retransmission) = feedback;
        self.flow.sent_bytes += u64::from(bytes);
        let window = self.window_bytes(datagram_bytes);
        self.hosts.sent(now, bytes.into(), window, self.rtt.smoothed_ns());
        let timeout_ns = self.idle_timeout_ns(cfg);
        self.flow.paths.sent(now, paths, path, bytes, timeout_ns);
        let Some(cc) = &mut self.cc else { return burst.ecn };
        let ecn = ecn.unwrap_or_else(|| cc.ecn());
        let packets = burst.datagrams;
        cc.on_sent(&SentBurst { now, bytes, packets, path, in_flight_bytes, retransmission });
        if let Some(rate) = cc.pace_bytes_per_s() {
            let gap = u64::from(bytes) * SECOND / rate.max(1);
            self.pace_at = self.pace_at.max(now) + gap;
        }
        ecn
    }

    /// Makes the next packet wait, after `bytes`, if the receiver asks for that: for half to one and a half times what it asks.
    /// Otherwise flows that once met in a queue would meet again and again.
    pub fn space(&mut self, now: Nanos, bytes: u32, datagram_bytes: u16, rng: &mut impl Rng) {
        let space_ns = self.told.space_ns();
        if space_ns == 0 {
            return;
        }
        let cost = u64::from(bytes) + DATAGRAM_COST_BYTES;
        let full_cost = u64::from(datagram_bytes) + DATAGRAM_COST_BYTES;
        let mean_ns = self.rtt.stretched_ns(space_ns) * cost / full_cost;
        let wait_ns = mean_ns / 2 + random_part(mean_ns, rng);
        self.spaced_until = self.spaced_until.max(now) + wait_ns;
    }

    /// Notes an acknowledged packet.
    pub fn acked(&mut self, cfg: &Config, now: Nanos, sent: &SentPacket) {
        let timeout_ns = self.idle_timeout_ns(cfg);
        self.flow.paths.acked(now, (sent.path, sent.sent_at), sent.attempt > 0, timeout_ns);
        self.flow.acked_bytes += u64::from(sent.bytes);
    }

    /// Notes a lost packet, no longer in flight.
    pub fn lost(&mut self, now: Nanos, sent: &SentPacket, kind: LossKind, in_flight_bytes: u64) {
        let SentPacket { sent_at, bytes, path, .. } = *sent;
        self.flow.lost(kind);
        match kind {
            LossKind::Trim => self.flow.paths.cut_off(path),
            _ => self.flow.paths.lost(now, path, kind != LossKind::Order),
        }
        if let Some(cc) = &mut self.cc {
            cc.on_loss(&Loss { now, sent_at, bytes, path, kind, in_flight_bytes });
        }
    }

    /// True if a later packet on the same path was acknowledged.
    pub fn was_overtaken(&self, sent: &SentPacket) -> bool {
        self.flow.paths.was_overtaken(sent.path, sent.sent_at)
    }

    /// Packets sent before this time on the path may have been overtaken; 0 without any.
    pub fn overtaken_before(&self, now: Nanos, path: u16) -> Nanos {
        self.flow.paths.overtaken_before(now, path)
    }

    /// What the receiver lets in.
    pub fn told(&self) -> Window {
        self.told
    }

    /// Takes the window that the receiver tells. A new space, or a longer one, makes the next packet wait for a random part of it:
    /// many senders hear of theirs at the same time.
    pub fn window_told(&mut self, now: Nanos, told: Window, rng: &mut impl Rng) {
        let before_ns = core::mem::replace(&mut self.told, told).space_ns();
        let space_ns = told.space_ns();
        if before_ns == space_ns {
            return;
        }
        let wait_ns = if before_ns + before_ns / 4 < space_ns {
            self.flow.paths.turn_from(rng.next_u32());
            random_part(space_ns, rng)
        } else {
            let left_ns = u128::from(self.spaced_until.saturating_sub(now));
            (left_ns * u128::from(space_ns) / u128::from(before_ns)) as Nanos
        };
        self.spaced_until = now + wait_ns;
    }

    /// The round trip (ns) that an acknowledgement's state measures. It was read at `now` and had `arrived` before.
    pub fn take_rtt(&mut self, now: Nanos, arrived: Nanos, state: &AckState) -> Option<Nanos> {
        if state.flags & ACK_ECHO == 0 || state.echo_sent_at_ns == self.echo_last {
            return None;
        }
        self.echo_last = state.echo_sent_at_ns;
        let rtt = self.measure(now, arrived, state.echo_sent_at_ns, state.hold_ns)?;
        self.rtt.sample(rtt);
        Some(rtt)
    }

    /// A round trip (ns) without the time that packet and acknowledgement waited for processes.
    fn measure(
        &mut self,
        now: Nanos,
        arrived: Nanos,
        sent_at_ns: u32,
        hold_ns: u32,
    ) -> Option<Nanos> {
        let whole = (arrived as u32).wrapping_sub(sent_at_ns);
        let rtt = whole.checked_sub(hold_ns).filter(|rtt| *rtt < RTT_MAX_NS)?;
        self.hosts.sample(Nanos::from(hold_ns) + now.saturating_sub(arrived));
        Some(rtt.into())
    }

    /// Notes a record that names packets of a path, with their send time. Returns how much later (ns) the latest one of that
    /// path was sent that came before.
    pub fn note_acked(&mut self, now: Nanos, echo: &Echo) -> u32 {
        self.flow.paths.note_acked(now, echo.path, echo.sent_at_ns)
    }

    /// Notes that packets came late which others on their path overtook. A path's order tells nothing beyond a round trip, as
    /// in RACK (RFC 8985, section 6.2).
    pub fn note_late(&mut self, echo: &Echo, late_ns: u32) {
        self.flow.paths.note_late(echo.path, late_ns, self.rtt.smoothed_ns());
    }

    /// Tells the controller of a record, by which `acked_bytes` are newly acknowledged. `more` says whether there is more to send, and
    /// has the bytes of a datagram. Returns how many of the acknowledged bytes were marked.
    pub fn echoed(
        &mut self,
        (now, arrived): (Nanos, Nanos),
        echo: &Echo,
        acked_bytes: u64,
        flight: &mut Flight,
        more: (bool, u16),
    ) -> u32 {
        let count = u32::from(echo.count);
        let ce_bytes = (acked_bytes * u64::from(echo.ce) / u64::from(count)) as u32;
        let rtt_ns = self.measure(now, arrived, echo.sent_at_ns, echo.hold_ns);
        let age = (now as u32).wrapping_sub(echo.sent_at_ns);
        let feedback = AckSample {
            now,
            sent_at: now.saturating_sub(age.into()),
            acked_bytes,
            acked_packets: flight.take_acked_packets(),
            rtt_ns,
            path: u16::from(echo.path),
            ce_bytes,
            lag_packets: self.flow.lag(Psn(echo.psn).plus(count)),
            in_flight_bytes: flight.bytes(),
            app_limited: self.is_app_limited(more),
        };
        self.learn(&feedback);
        ce_bytes
    }

    /// Tells the controller of an acknowledgement, except for the part in its records. `more` is as for a record.
    pub fn feed_back(
        &mut self,
        now: Nanos,
        state: &AckState,
        (acked_bytes, rtt_ns, echoed_ce): (u64, Option<Nanos>, u32),
        flight: &mut Flight,
        more: (bool, u16),
    ) {
        let ce_bytes = state.ce_bytes.wrapping_sub(self.ce_seen_bytes);
        let ce_bytes = if ce_bytes < 1 << 31 { ce_bytes } else { 0 };
        self.ce_seen_bytes = self.ce_seen_bytes.wrapping_add(ce_bytes);
        self.flow.ce_bytes += u64::from(ce_bytes);
        let ce_bytes = ce_bytes.saturating_sub(echoed_ce);
        if acked_bytes == 0 && rtt_ns.is_none() && ce_bytes == 0 {
            return;
        }
        let age = (now as u32).wrapping_sub(state.echo_sent_at_ns);
        let sent_at = if rtt_ns.is_some() { now.saturating_sub(age.into()) } else { now };
        self.learn(&AckSample {
            now,
            sent_at,
            acked_bytes,
            acked_packets: flight.take_acked_packets(),
            rtt_ns,
            path: u16::from(state.echo_path),
            ce_bytes,
            lag_packets: 0,
            in_flight_bytes: flight.bytes(),
            app_limited: self.is_app_limited(more),
        });
    }

    fn learn(&mut self, feedback: &AckSample) {
        self.restraint.acked(feedback, self.rtt.range_ns());
        if let Some(cc) = &mut self.cc {
            cc.on_ack(feedback);
        }
    }

    /// Takes the receiver's total of spurious repetitions; returns how many are new.
    pub fn take_spurious(&mut self, spurious: u16) -> u64 {
        let new = spurious.wrapping_sub(self.spurious_seen);
        if new >= 1 << 15 {
            return 0;
        }
        self.spurious_seen = spurious;
        self.flow.repeated.spurious += u64::from(new);
        new.into()
    }

    /// Probes went unanswered: lets all paths be tried again.
    pub fn forgive(&mut self) {
        self.flow.paths.forgive();
    }

    /// Notes that an acknowledgement on `path` answers a probe on the same path.
    pub fn answered(&mut self, path: u8, after_silence: bool) {
        self.flow.paths.answered(path.into(), after_silence);
    }

    /// Notes that no acknowledgement came in time.
    pub fn timed_out(&mut self, timeout: &Timeout) {
        if let Some(cc) = &mut self.cc {
            cc.on_timeout(timeout);
        }
    }

    /// Time at which more may go, if that only takes time; [`Nanos::MAX`] if no wait is needed.
    pub fn opens_at(&self) -> Nanos {
        let or_never = |at: Nanos| if at == 0 { Nanos::MAX } else { at };
        or_never(self.pace_at).min(or_never(self.spaced_until)).min(or_never(self.hosts.opens_at))
    }

    /// Runs the controller's timer.
    pub fn timer(&mut self, now: Nanos) {
        for at in [&mut self.pace_at, &mut self.spaced_until, &mut self.hosts.opens_at] {
            *at = if *at <= now { 0 } else { *at };
        }
    }

    /// Frees memory, and leaves most of the receiver's buffer to others. Call it only while nothing is outstanding.
    pub fn reclaim(&mut self) {
        self.flow.reclaim();
        if self.told.bytes().is_some_and(|bytes| bytes > BUFFER_IDLE_BYTES) {
            self.told = Window::of_bytes(BUFFER_IDLE_BYTES.into());
        }
    }

    /// KiB sent on each path since the flow was last idle.
    pub fn path_kib(&self) -> impl Iterator<Item = u32> {
        self.flow.path_kib()
    }

    /// A snapshot, with the counters kept here.
    pub fn view(&self) -> FlowView {
        FlowView {
            window_bytes: self.cc.as_ref().map_or(0, |cc| cc.window_bytes()),
            pace_bytes_per_s: self.cc.as_ref().and_then(|cc| cc.pace_bytes_per_s()),
            rtt_ns: self.rtt.smoothed_ns(),
            controller: self.cc.as_ref().map(|cc| cc.view()).unwrap_or_default(),
            ..self.flow.view()
        }
    }
}

/// A random part of a time.
fn random_part(time_ns: Nanos, rng: &mut impl Rng) -> Nanos {
    ((u128::from(time_ns) * u128::from(rng.next_u32())) >> u32::BITS) as Nanos
}
