//! CRC-32 (IEEE) of short inputs by the processor's multiplication without carries.
//!
//! Sixteen bytes of an input are a polynomial. Two multiplications move them sixteen bytes on,
//! where the next sixteen are added; three more reduce what is left to 32 bits. (Gopal and others,
//! "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009; the
//! constants are those of the paper for bits in this order.)
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "instructions that not every processor has")
)]

/// The function for inputs of at least sixteen bytes, if this processor has the instructions.
#[cfg(target_arch = "x86_64")]
pub(crate) fn of_short() -> Option<fn(&[u8]) -> u32> {
    (is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1"))
        .then_some(x86_64::crc32 as fn(&[u8]) -> u32)
}

/// Other processors have instructions of their own, or none.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn of_short() -> Option<fn(&[u8]) -> u32> {
    None
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_cvtsi64_si128,
        _mm_extract_epi32, _mm_set_epi32, _mm_set_epi64x, _mm_srli_si128, _mm_xor_si128,
    };

    const BLOCK_BYTES: usize = 16;
    /// What moves 128 bits on by 128 bits: the powers 192 and 128 of x modulo the polynomial.
    const ON_128: (i64, i64) = (0x0_ccaa_009e, 0x1_7519_97d0);
    /// What moves 32 bits on by 64 bits.
    const ON_64: i64 = 0x1_63cd_6124;
    /// The polynomial, and its quotient for Barrett's reduction.
    const POLYNOMIAL: i64 = 0x1_db71_0641;
    const QUOTIENT: i64 = 0x1_f701_1641;

    pub(super) fn crc32(bytes: &[u8]) -> u32 {
        // SAFETY: `of_short` gives this function to nobody before it has seen that the processor
        // has these instructions.
        unsafe { folded(bytes) }
    }

    /// # Panics
    /// If there are fewer than sixteen bytes.
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn folded(bytes: &[u8]) -> u32 {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        let (first, blocks) = blocks.split_first().expect("at least one block");
        let on = _mm_set_epi64x(ON_128.0, ON_128.1);
        let mut sum = _mm_xor_si128(block(first), _mm_cvtsi32_si128(-1));
        for next in blocks {
            let moved = _mm_xor_si128(
                _mm_clmulepi64_si128::<0x00>(sum, on),
                _mm_clmulepi64_si128::<0x11>(sum, on),
            );
            sum = _mm_xor_si128(moved, block(next));
        }
        let mut crc = reduced(_mm_xor_si128(
            _mm_clmulepi64_si128::<0x10>(sum, on),
            _mm_srli_si128::<8>(sum),
        ));
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            let sum = i64::from_le_bytes(*word) ^ i64::from(crc);
            crc = reduced(_mm_cvtsi64_si128(sum));
        }
        let (words, rest) = rest.as_chunks::<4>();
        for word in words {
            let sum = u32::from_le_bytes(*word) ^ crc;
            crc = rest_of(_mm_cvtsi64_si128(i64::from(sum)));
        }
        for &byte in rest {
            crc = (0..8).fold(crc ^ u32::from(byte), |crc, _| match crc & 1 {
                0 => crc >> 1,
                _ => (crc >> 1) ^ 0xEDB8_8320,
            });
        }
        !crc
    }

    #[target_feature(enable = "sse2")]
    fn block(bytes: &[u8; BLOCK_BYTES]) -> __m128i {
        let [low, high] = [0, 8].map(|at| {
            let half = bytes[at..].first_chunk().expect("eight of sixteen bytes");
            i64::from_le_bytes(*half)
        });
        _mm_set_epi64x(high, low)
    }

    /// Reduces a sum of at most 96 bits to its remainder of 32 bits.
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn reduced(sum: __m128i) -> u32 {
        let low = _mm_set_epi32(0, 0, 0, -1);
        let on = _mm_cvtsi64_si128(ON_64);
        let moved = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(sum, low), on);
        rest_of(_mm_xor_si128(moved, _mm_srli_si128::<4>(sum)))
    }

    /// Reduces a sum of 64 bits to its remainder of 32 bits, by Barrett's method.
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn rest_of(sum: __m128i) -> u32 {
        let low = _mm_set_epi32(0, 0, 0, -1);
        let pair = _mm_set_epi64x(QUOTIENT, POLYNOMIAL);
        let often = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(sum, low), pair);
        let taken = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(often, low), pair);
        _mm_extract_epi32::<1>(_mm_xor_si128(sum, taken)).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_inputs_have_the_checksum_of_every_library() {
        let Some(crc32) = of_short() else {
            return;
        };
        let bytes: Vec<u8> = (0..300u32).map(|n| (n * 7919).to_le_bytes()[1]).collect();
        for start in 0..17 {
            for end in start + 16..bytes.len() {
                let bytes = &bytes[start..end];
                assert_eq!(crc32(bytes), crc32fast::hash(bytes), "{start}..{end}");
            }
        }
    }
}
