//! Whether the samples of a run add up to what the run did.

use erd_sim::experiment::Observer;
use erd_sim::fabric::Fabric;
use erd_sim::ids::LinkId;
use erd_sim::series::sampler::Sampler;
use erd_sim::series::{SAMPLES_MAX, Series};
use erd_sim::time::Picos;
use erd_sim::work::Flow;

/// Samples, and what they must add up to.
#[derive(Default)]
pub struct Samples {
    sampler: Sampler,
    begin: Picos,
    sent_bytes_before: u64,
}

fn sent_bytes(fabric: &Fabric) -> u64 {
    (0..fabric.plan().links().len() as u32).map(|at| fabric.counters(LinkId(at)).sent_bytes).sum()
}

impl Observer for Samples {
    fn begin(&mut self, fabric: &mut Fabric, flows: &[Flow], begin: Picos) {
        self.sampler.begin(fabric, flows, begin);
        (self.begin, self.sent_bytes_before) = (begin, sent_bytes(fabric));
    }

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
        self.sampler.run_until(fabric, end);
    }
}

impl Samples {
    /// The work is done.
    pub fn judge(self, fabric: &mut Fabric) {
        let series = self.sampler.finish(fabric);
        let Series { whole_ps, rows, flows, pairs, .. } = &series;
        assert_eq!(*whole_ps, fabric.now() - self.begin);
        let samples = series.samples();
        assert!((1..=SAMPLES_MAX).contains(&samples), "{samples} samples");
        let lengths: Picos = (0..samples).map(|at| series.length_ps(at)).sum();
        assert_eq!(lengths, *whole_ps, "the intervals are the whole");
        let sampled: u64 = rows.iter().flat_map(|row| &row.sent_bytes).sum();
        assert_eq!(sampled, sent_bytes(fabric) - self.sent_bytes_before, "bytes of the links");
        let links = fabric.plan().links();
        let longest = links.iter().map(|link| link.config.buffer_bytes).max().unwrap_or(0);
        for row in rows {
            let depths = row.queue_mean_bytes.iter().zip(&row.queue_max_bytes);
            for (mean, most) in depths {
                assert!(*most <= longest, "{most} bytes waited in {}", row.name);
                assert!(*mean <= *most as f64 + 0.5, "a mean of {mean} up to {most}");
            }
        }
        for series in flows {
            let arrived: u64 = series.arrived_bytes.iter().sum();
            assert_eq!(arrived, series.flow.bytes, "{:?}", series.flow);
        }
        for pair in pairs {
            let (sent, came) = (&pair.path_packets, &pair.behind);
            assert!(came.iter().sum::<u64>() <= sent.iter().sum(), "{pair:?}");
        }
    }
}
