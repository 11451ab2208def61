//! Published distributions of flow sizes. Between two entries of a table sizes are uniform.

use super::site::HostLink;
use serde::{Deserialize, Serialize};

/// Entries: a size in bytes, and the percentage of flows that are no longer.
pub type SizeTable = &'static [(u32, f64)];

/// Web search: Alizadeh et al., "Data Center TCP (DCTCP)", 2010, in the form of HPCC's simulator
/// (github.com/alibaba-edu/High-Precision-Congestion-Control, traffic_gen/WebSearch_distribution.txt). The same table is in
/// github.com/HKUST-SING/TrafficGenerator, conf/DCTCP_CDF.txt.
const WEB_SEARCH: SizeTable = &[
    (0, 0.0),
    (10000, 15.0),
    (20000, 20.0),
    (30000, 30.0),
    (50000, 40.0),
    (80000, 53.0),
    (200000, 60.0),
    (1000000, 70.0),
    (2000000, 80.0),
    (5000000, 90.0),
    (10000000, 97.0),
    (30000000, 100.0),
];

/// Data mining: Greenberg et al., "VL2", 2009, in the form of github.com/HKUST-SING/TrafficGenerator, conf/VL2_CDF.txt.
const DATA_MINING: SizeTable = &[
    (0, 0.0),
    (180, 10.0),
    (216, 20.0),
    (560, 30.0),
    (900, 40.0),
    (1100, 50.0),
    (1870, 60.0),
    (3160, 70.0),
    (10000, 80.0),
    (400000, 90.0),
    (3160000, 95.0),
    (100000000, 98.0),
    (1000000000, 100.0),
];

/// All remote procedure calls of Google before 2008: Montazeri et al., "Homa", 2018 (its workload W3), in the form of HPCC's
/// simulator (traffic_gen/GoogleRPC2008.txt). Of its 843 entries those are left out whose bytes a straight line gives within
/// 2 %; the mean of all sizes is 2,938 bytes instead of 2,892.
const RPC: SizeTable = &[
    (0, 0.0),
    (3, 6.48826),
    (32, 9.73239),
    (46, 13.2092),
    (64, 15.5271),
    (85, 25.3422),
    (110, 31.8856),
    (171, 42.4737),
    (228, 47.961),
    (256, 49.7901),
    (352, 65.4457),
    (469, 75.8828),
    (551, 79.6104),
    (755, 83.5243),
    (1084, 86.8273),
    (1475, 89.1104),
    (2092, 90.9949),
    (2891, 92.4083),
    (3932, 93.3867),
    (6046, 95.3893),
    (9735, 97.0773),
    (13709, 98.0716),
    (17367, 98.534),
    (24461, 98.8463),
    (34519, 99.0691),
    (48623, 99.2263),
    (74192, 99.4159),
    (104394, 99.6139),
    (137480, 99.7252),
    (193331, 99.7982),
    (337042, 99.8918),
    (474651, 99.9389),
    (568408, 99.9539),
    (805723, 99.968),
    (1148112, 99.9781),
    (1609891, 99.9849),
    (2245424, 99.9897),
    (3166500, 99.9932),
    (4300563, 99.9955),
    (6309051, 99.9975),
    (8909743, 99.9987),
    (11837511, 99.9995),
    (15158197, 100.0),
];

/// Hadoop at Facebook: Roy et al., "Inside the social network's (datacenter) network", 2015, in the form of HPCC's simulator
/// (traffic_gen/FbHdp_distribution.txt).
const HADOOP: SizeTable = &[
    (0, 0.0),
    (100, 1.0),
    (200, 2.0),
    (300, 5.0),
    (350, 15.0),
    (400, 20.0),
    (500, 30.0),
    (600, 40.0),
    (700, 50.0),
    (1000, 60.0),
    (2000, 67.0),
    (7000, 70.0),
    (30000, 72.0),
    (50000, 82.0),
    (80000, 87.0),
    (120000, 90.0),
    (300000, 95.0),
    (1000000, 97.5),
    (2000000, 99.0),
    (10000000, 100.0),
];

/// Distributed storage at Alibaba, 2019: Li et al., "HPCC", 2019 (its simulator's traffic_gen/AliStorage2019.txt).
const STORAGE: SizeTable = &[
    (0, 0.0),
    (4000, 22.93),
    (8000, 69.21),
    (16000, 80.61),
    (32000, 90.47),
    (64000, 93.53),
    (128000, 96.77),
    (256000, 97.53),
    (2000000, 100.0),
];

/// A distribution of flow sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Web search, from Microsoft.
    WebSearch,
    /// Data mining, from Microsoft.
    DataMining,
    /// Remote procedure calls, from Google.
    Rpc,
    /// Hadoop, from Facebook.
    Hadoop,
    /// Distributed storage, from Alibaba.
    Storage,
}

impl Sizes {
    /// All of them.
    pub const ALL: [Sizes; 5] =
        [Sizes::WebSearch, Sizes::DataMining, Sizes::Rpc, Sizes::Hadoop, Sizes::Storage];

    /// Its entries, from the shortest size on.
    #[must_use]
    pub fn table(self) -> SizeTable {
        match self {
            Sizes::WebSearch => WEB_SEARCH,
            Sizes::DataMining => DATA_MINING,
            Sizes::Rpc => RPC,
            Sizes::Hadoop => HADOOP,
            Sizes::Storage => STORAGE,
        }
    }

    /// The size that a share of flows, from 0 to 1, does not exceed; at least a byte.
    #[must_use]
    pub fn quantile_bytes(self, share: f64) -> u64 {
        let percent = share * 100.0;
        let table = self.table();
        let above = table.partition_point(|entry| entry.1 <= percent).clamp(1, table.len() - 1);
        let (low, high) = (table[above - 1], table[above]);
        let part = ((percent - low.1) / (high.1 - low.1)).min(1.0);
        let bytes = f64::from(low.0) + f64::from(high.0 - low.0) * part;
        (bytes.round() as u64).max(1)
    }

    /// The mean size.
    #[must_use]
    pub fn mean_bytes(self) -> f64 {
        self.mean_of(|low, high| (low + high) / 2.0)
    }

    /// Mean of the bytes that a flow takes on the wire.
    #[must_use]
    pub fn mean_wire_bytes(self, link: &HostLink) -> f64 {
        let payload = f64::from(link.payload_bytes);
        // Packets of all sizes up to one, added up.
        let packets_up_to = |bytes: f64| {
            let full = (bytes / payload).floor();
            payload * full * (full + 1.0) / 2.0 + (bytes - full * payload) * (full + 1.0)
        };
        let packets =
            self.mean_of(|low, high| (packets_up_to(high) - packets_up_to(low)) / (high - low));
        self.mean_bytes() + packets * f64::from(link.overhead_bytes)
    }

    /// The mean of something whose mean between two sizes is known.
    fn mean_of(self, between: impl Fn(f64, f64) -> f64) -> f64 {
        let pairs = self.table().windows(2);
        pairs
            .map(|pair| {
                let share = (pair[1].1 - pair[0].1) / 100.0;
                share * between(pair[0].0.into(), pair[1].0.into())
            })
            .sum()
    }
}
