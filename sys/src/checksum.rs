//! CRC32C, of packets' headers above all.

/// Longer runs are worth the preparations of a sum of three parts at a time.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES: usize = 256;

/// The CRC32C of `bytes` that follow those of which `sum` is the CRC32C, or 0.
#[must_use]
pub fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { short(sum, bytes) };
    }
    crc32c::crc32c_append(sum, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(sum: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let start = u64::from(!sum);
    let sum = words.iter().fold(start, |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    !rest.iter().fold(sum as u32, |sum, byte| _mm_crc32_u8(sum, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard_and_can_be_carried_on() {
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..600_u32).map(|at| (at * 7 + at / 256) as u8).collect();
        for len in 0..bytes.len() {
            let (whole, cut) = (&bytes[..len], len / 3);
            let sum = crc32c::crc32c(whole);
            assert_eq!(crc32c(0, whole), sum, "{len} bytes");
            assert_eq!(crc32c(crc32c(0, &whole[..cut]), &whole[cut..]), sum, "{len} bytes in two");
        }
    }
}
