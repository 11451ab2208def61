//! Traffic classes (`tclass` of a domain and of a transmitter) as what switches see: the DSCP in IP headers.

use erd_ffi::fi::{
    FI_TC_BEST_EFFORT, FI_TC_BULK_DATA, FI_TC_DEDICATED_ACCESS, FI_TC_DSCP, FI_TC_LABEL,
    FI_TC_LOW_LATENCY, FI_TC_NETWORK_CTRL, FI_TC_SCAVENGER, FI_TC_UNSPEC,
};

/// Greatest DSCP.
const DSCP_MAX: u32 = 63;

/// libfabric's labels, and the code points that RFC 4594 and RFC 8622 recommend for such traffic.
const LABELS: [(u32, u8); 6] = [
    (FI_TC_BEST_EFFORT, 0),
    // Expedited forwarding.
    (FI_TC_LOW_LATENCY, 46),
    // Assured forwarding 41: a rate of its own.
    (FI_TC_DEDICATED_ACCESS, 34),
    // Assured forwarding 11: high throughput.
    (FI_TC_BULK_DATA, 10),
    // Lower effort.
    (FI_TC_SCAVENGER, 1),
    // Class selector 6.
    (FI_TC_NETWORK_CTRL, 48),
];

/// The DSCP of a traffic class. `None` if it is none of libfabric's.
#[must_use]
pub fn dscp(tclass: u32) -> Option<u8> {
    match tclass {
        FI_TC_UNSPEC => Some(0),
        _ if tclass & FI_TC_LABEL != 0 => {
            LABELS.iter().find(|(label, _)| *label == tclass).map(|(_, dscp)| *dscp)
        }
        _ if tclass & FI_TC_DSCP != 0 => {
            let code = tclass & !FI_TC_DSCP;
            (code <= DSCP_MAX).then_some(code as u8)
        }
        _ => None,
    }
}

/// The class that a request means: its transmitter's, or else its domain's.
#[must_use]
pub fn asked(tx: u32, domain: u32) -> u32 {
    if tx == FI_TC_UNSPEC { domain } else { tx }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_code_points() {
        assert_eq!(dscp(FI_TC_UNSPEC), Some(0));
        assert_eq!(dscp(FI_TC_DSCP | 26), Some(26));
        assert_eq!(dscp(FI_TC_DSCP), Some(0));
        assert_eq!(dscp(FI_TC_LOW_LATENCY), Some(46));
        for unknown in [FI_TC_DSCP | 64, FI_TC_NETWORK_CTRL + 1, 7, u32::MAX] {
            assert_eq!(dscp(unknown), None, "{unknown:#x}");
        }
        assert_eq!((asked(FI_TC_UNSPEC, 3), asked(4, 3)), (3, 4));
    }
}
