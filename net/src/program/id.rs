//! The id of a program: a hash of its name and of everything that it makes of a request.

use std::fmt;
use std::str::FromStr;

/// Which program: 64 bits that follow from its name and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProgramId(pub u64);

impl fmt::Display for ProgramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// A text is no id of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a program is 0x and 16 hexadecimal digits, as schema check prints it")]
pub struct ProgramIdTextError;

impl FromStr for ProgramId {
    type Err = ProgramIdTextError;

    fn from_str(text: &str) -> Result<Self, ProgramIdTextError> {
        let digits = text.strip_prefix("0x").filter(|it| it.len() == 16);
        let digits = digits.filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.map(ProgramId).ok_or(ProgramIdTextError)
    }
}

/// FNV-1a of 64 bits: tells mistakes apart and withstands no attack.
pub(super) struct Hash(u64);

impl Hash {
    pub(super) fn begin() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A length or another number.
    pub(super) fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn id(self) -> ProgramId {
        ProgramId(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_and_nothing_else_is_one() {
        for number in [0, 1, 0xfedc_ba98_7654_3210, u64::MAX] {
            let id = ProgramId(number);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!(ProgramId(1).to_string(), "0x0000000000000001");
        for text in ["", "0x1", "1", "0000000000000001", "0x000000000000000g"] {
            assert_eq!(text.parse::<ProgramId>(), Err(ProgramIdTextError), "{text}");
        }
        for text in ["0x+000000000000001", "0x00000000000000011"] {
            assert_eq!(text.parse::<ProgramId>(), Err(ProgramIdTextError), "{text}");
        }
    }
}
