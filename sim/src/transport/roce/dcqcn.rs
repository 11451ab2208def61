//! DCQCN: the rate of one queue pair (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015).
//! docs/baselines.md has the equations. Timers run when somebody asks for the rate: between two questions nothing else
//! depends on them.

use super::settings::RoceSettings;
use crate::time::Picos;

/// The least rate, as a part of the link's. The paper names none; the timer raises the rate from any.
const RATE_MIN_SHARE: f64 = 0.001;
/// Most missed ticks that change alpha: by then nothing is left of it.
const TICKS_MAX: u64 = 4096;

/// See the module. Rates are parts of the link's rate.
#[derive(Clone, Debug)]
pub(super) struct Dcqcn {
    /// RC and RT of the paper.
    current: f64,
    target: f64,
    alpha: f64,
    /// Bytes since the byte counter's last event.
    sent_bytes: u64,
    /// Events of the timer and of the byte counter since the last notification.
    timer_events: u32,
    byte_events: u32,
    /// When alpha falls next, and when the timer's next event is.
    alpha_at: Picos,
    timer_at: Picos,
}

impl Dcqcn {
    /// A queue pair begins at the rate of its link (section 3.1).
    pub(super) fn new() -> Dcqcn {
        Dcqcn {
            current: 1.0,
            target: 1.0,
            alpha: 1.0,
            sent_bytes: 0,
            timer_events: 0,
            byte_events: 0,
            // The first notification starts both.
            alpha_at: Picos::MAX,
            timer_at: Picos::MAX,
        }
    }

    /// The rate, as a part of the link's.
    pub(super) fn rate(&mut self, now: Picos, settings: &RoceSettings) -> f64 {
        self.run_timers(now, settings);
        self.current
    }

    /// A congestion notification has come.
    pub(super) fn notified(&mut self, now: Picos, settings: &RoceSettings) {
        self.run_timers(now, settings);
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(RATE_MIN_SHARE);
        self.alpha = (1.0 - settings.gain) * self.alpha + settings.gain;
        (self.timer_events, self.byte_events, self.sent_bytes) = (0, 0, 0);
        self.alpha_at = now + settings.timer_ps;
        self.timer_at = now + settings.timer_ps;
    }

    /// Bytes have been sent.
    pub(super) fn sent(&mut self, now: Picos, bytes: u32, settings: &RoceSettings) {
        if self.current >= 1.0 {
            return;
        }
        self.sent_bytes += u64::from(bytes);
        if self.sent_bytes >= settings.byte_counter_bytes {
            self.run_timers(now, settings);
            self.sent_bytes = 0;
            self.byte_events += 1;
            self.increase(settings);
        }
    }

    fn run_timers(&mut self, now: Picos, settings: &RoceSettings) {
        if self.current >= 1.0 && self.alpha_at > now {
            return;
        }
        while self.current < 1.0 && self.timer_at <= now {
            self.timer_at += settings.timer_ps;
            self.timer_events += 1;
            self.increase(settings);
        }
        if self.alpha_at <= now {
            let ticks = (now - self.alpha_at) / settings.timer_ps + 1;
            self.alpha_at += ticks * settings.timer_ps;
            (0..ticks.min(TICKS_MAX)).for_each(|_| self.alpha *= 1.0 - settings.gain);
        }
    }

    fn increase(&mut self, settings: &RoceSettings) {
        let (most, least) =
            (self.timer_events.max(self.byte_events), self.timer_events.min(self.byte_events));
        if least > settings.recoveries {
            self.target += f64::from(least - settings.recoveries) * settings.hyper_increase;
        } else if most > settings.recoveries {
            self.target += settings.additive_increase;
        }
        self.target = self.target.min(1.0);
        self.current = (self.target + self.current) / 2.0;
        // Halving the distance would never end.
        if self.current > 1.0 - RATE_MIN_SHARE / 2.0 {
            self.current = 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_ns;

    const TICK: Picos = from_ns(55_000);

    #[test]
    fn a_notification_halves_the_rate_at_first_and_recovery_brings_it_back() {
        let (settings, mut rate) = (RoceSettings::default(), Dcqcn::new());
        rate.notified(0, &settings);
        assert_eq!(rate.current, 0.5, "alpha begins at 1");
        let steps: Vec<f64> = (1..=5).map(|tick| rate.rate(tick * TICK, &settings)).collect();
        assert_eq!(steps, [0.75, 0.875, 0.9375, 0.96875, 0.984375]);
    }

    /// After the fast recovery the target rises: by little, and by more once both counters have gone beyond it.
    #[test]
    fn increases_are_additive_and_then_hyper() {
        let (settings, mut rate) = (RoceSettings::default(), Dcqcn::new());
        rate.notified(0, &settings);
        rate.notified(0, &settings);
        let target = rate.target;
        assert_eq!(target, 0.5);
        rate.rate(5 * TICK, &settings);
        assert_eq!(rate.target, target, "fast recovery keeps the target");
        rate.rate(6 * TICK, &settings);
        assert_eq!(rate.target, target + settings.additive_increase);
        for _ in 0..6 {
            rate.sent(6 * TICK, settings.byte_counter_bytes as u32, &settings);
        }
        let additive = target + 6.0 * settings.additive_increase;
        assert!((rate.target - additive - settings.hyper_increase).abs() < 1e-9, "{rate:?}");
    }

    /// Notifications in a row cut by the same alpha, which is close to 1; long silence makes the next cut small.
    #[test]
    fn alpha_follows_how_often_notifications_come() {
        let (settings, mut rate) = (RoceSettings::default(), Dcqcn::new());
        for at in 0..4 {
            rate.notified(at * from_ns(50_000), &settings);
        }
        assert!(rate.current < 0.07 && rate.alpha > 0.99, "{rate:?}");
        let later = from_ns(1_000_000_000);
        assert_eq!(rate.rate(later, &settings), 1.0);
        rate.notified(later, &settings);
        assert!(rate.current > 0.99, "{rate:?}");
    }
}
