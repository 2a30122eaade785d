//! Strings one behind another: each with its length before it, in as few bytes as it takes.
//!
//! | first byte | length |
//! |---|---|
//! | 0 to 252 | this |
//! | 253 | the next two bytes, at least 253 |
//! | 254 | the next four bytes, at least 65,536 |

use super::head::Corrupt;

const TWO: u8 = 253;
const FOUR: u8 = 254;

/// Bytes of a length.
pub(super) fn length_bytes(len: usize) -> usize {
    match len {
        0..=252 => 1,
        253..=0xFFFF => 3,
        _ => 5,
    }
}

/// Appends a length.
pub(super) fn put_length(len: usize, out: &mut Vec<u8>) {
    if let Ok(short) = u8::try_from(len)
        && short < TWO
    {
        return out.push(short);
    }
    if let Ok(len) = u16::try_from(len) {
        out.push(TWO);
        return out.extend_from_slice(&len.to_le_bytes());
    }
    let len = u32::try_from(len).expect("values are bounded");
    out.push(FOUR);
    out.extend_from_slice(&len.to_le_bytes());
}

/// Reads a length, and what stands behind it.
pub(super) fn take_length(bytes: &[u8]) -> Result<(usize, &[u8]), Corrupt> {
    let (&first, rest) = bytes.split_first().ok_or(Corrupt)?;
    match first {
        TWO => {
            let (len, rest) = rest.split_first_chunk::<2>().ok_or(Corrupt)?;
            let len = usize::from(u16::from_le_bytes(*len));
            (len >= usize::from(TWO)).then_some((len, rest))
        }
        FOUR => {
            let (len, rest) = rest.split_first_chunk::<4>().ok_or(Corrupt)?;
            let len = u32::from_le_bytes(*len) as usize;
            (len > usize::from(u16::MAX)).then_some((len, rest))
        }
        255 => None,
        len => Some((usize::from(len), rest)),
    }
    .ok_or(Corrupt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_as_it_was_written_and_in_no_longer_form() {
        for len in [0, 1, 252, 253, 254, 255, 65_535, 65_536, 1 << 24] {
            let mut bytes = Vec::new();
            put_length(len, &mut bytes);
            assert_eq!(bytes.len(), length_bytes(len));
            assert_eq!(take_length(&bytes), Ok((len, &[][..])));
            for cut in 0..bytes.len() {
                assert_eq!(take_length(&bytes[..cut]), Err(Corrupt));
            }
        }
        let longer: [&[u8]; 4] = [
            &[253, 252, 0],
            &[254, 0, 1, 0, 0],
            &[254, 0xFF, 0xFF, 0, 0],
            &[255],
        ];
        for bytes in longer {
            assert_eq!(take_length(bytes), Err(Corrupt), "{bytes:?}");
        }
    }
}
