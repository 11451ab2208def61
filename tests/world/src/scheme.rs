//! A congestion controller with arbitrary settings, to try the engine with every acknowledgement policy, small windows,
//! pacing and ECN.

use erd_rd::cc::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, Scheme, SentBurst, Timeout,
    View,
};
use erd_rd::{Ecn, Nanos};

/// Settings of the controller.
#[derive(Clone, Copy, Debug)]
pub struct TestScheme {
    /// Bytes in flight.
    pub window_bytes: u64,
    /// The acknowledgements asked of receivers.
    pub policy: AckPolicy,
    /// The detection of losses.
    pub detection: LossDetection,
    /// The engine begins with few packets in flight.
    pub learns: bool,
    /// Bytes per second.
    pub pace: Option<u64>,
    /// Codepoint of data packets.
    pub ecn: Ecn,
    /// The window halves with a loss and grows with acknowledgements, up to `window_bytes`.
    pub adaptive: bool,
    /// See [`Scheme::link_share_bdps`].
    pub link_share_bdps: f32,
}

impl Scheme for TestScheme {
    fn name(&self) -> &'static str {
        "test"
    }

    fn ack_policy(&self) -> AckPolicy {
        self.policy
    }

    fn loss_detection(&self) -> LossDetection {
        self.detection
    }

    fn learns(&self) -> bool {
        self.learns
    }

    fn link_share_bdps(&self) -> f32 {
        self.link_share_bdps
    }

    fn build(&self, params: &FlowParams, _: u64) -> Box<dyn Controller> {
        Box::new(TestController {
            scheme: *self,
            window_bytes: self.window_bytes,
            least_bytes: u64::from(params.datagram_bytes),
            paths: params.paths,
            next: 0,
            last_now: 0,
        })
    }
}

/// Sprays round robin, and judges that its feedback makes sense.
struct TestController {
    scheme: TestScheme,
    window_bytes: u64,
    least_bytes: u64,
    paths: u16,
    next: u16,
    last_now: Nanos,
}

impl TestController {
    fn at(&mut self, now: Nanos) {
        assert!(now >= self.last_now, "the controller's time runs backwards");
        self.last_now = now;
    }
}

impl Controller for TestController {
    fn on_sent(&mut self, sent: &SentBurst) {
        self.at(sent.now);
        assert!(sent.bytes > 0 && sent.in_flight_bytes >= u64::from(sent.bytes), "{sent:?}");
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.at(ack.now);
        assert!(ack.path < self.paths, "{ack:?}");
        self.window_bytes = (self.window_bytes + ack.acked_bytes / 4).min(self.scheme.window_bytes);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.at(loss.now);
        assert!(loss.path < self.paths && loss.sent_at <= loss.now && loss.bytes > 0, "{loss:?}");
        if self.scheme.adaptive {
            self.window_bytes = (self.window_bytes / 2).max(self.least_bytes);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.at(timeout.now);
        assert!(timeout.in_a_row > 0, "{timeout:?}");
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        self.scheme.pace
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        self.next = (self.next + 1) % self.paths;
        self.next
    }

    fn ecn(&self) -> Ecn {
        self.scheme.ecn
    }

    fn view(&self) -> View {
        View::default()
    }
}
