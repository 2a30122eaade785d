//! The head of a key that has members: what its value begins with. `FORMAT.md`, *Heads*.
//!
//! Storage reads no further than this. The members behind it are the matter of those who write
//! them, and are judged where they are read.

/// Bytes before the members of a small head.
pub const SMALL_HEAD_BYTES: usize = 8;
/// The flag of a set of integers in ascending order.
const FLAG_INTEGERS: u8 = 2;
/// The flag of members that have been more or longer at some time.
const FLAG_LARGE: u8 = 4;
/// The form in which all members stand in the value.
const FORM_SMALL: u8 = 0;

/// What the members of a key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadType {
    /// Fields with values.
    Hash,
    /// Members alone.
    Set,
    /// Members with scores, in the order of these.
    Zset,
    /// Elements in the order of the list.
    List,
}

impl HeadType {
    /// Its number in a head.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            HeadType::Hash => 1,
            HeadType::Set => 2,
            HeadType::Zset => 3,
            HeadType::List => 4,
        }
    }

    fn of(number: u8) -> Option<Self> {
        let all = [
            HeadType::Hash,
            HeadType::Set,
            HeadType::Zset,
            HeadType::List,
        ];
        all.into_iter().find(|it| it.number() == number)
    }

    /// The flags that a head of this type may have.
    const fn flags_known(self) -> u8 {
        match self {
            HeadType::Hash | HeadType::Zset | HeadType::List => FLAG_LARGE,
            HeadType::Set => FLAG_INTEGERS | FLAG_LARGE,
        }
    }
}

/// Why a value is no head that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// Its fields do not agree.
    Damaged,
    /// A type, form or flag of a later build.
    Unknown,
}

/// The head of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadView {
    /// What its members are.
    pub head_type: HeadType,
    /// How many they are: at least one.
    pub members: u32,
}

impl HeadView {
    /// Reads the head that a value begins with.
    ///
    /// # Errors
    /// [`HeadError`]
    pub fn read(value: &[u8]) -> Result<Self, HeadError> {
        let (head, members) = value
            .split_first_chunk::<SMALL_HEAD_BYTES>()
            .ok_or(HeadError::Damaged)?;
        let &[number, form, flags, reserved, a, b, c, d] = head;
        let head_type = HeadType::of(number).ok_or(HeadError::Unknown)?;
        if form != FORM_SMALL || flags & !head_type.flags_known() != 0 || reserved != 0 {
            return Err(HeadError::Unknown);
        }
        let count = u32::from_le_bytes([a, b, c, d]);
        // Each member has a byte at least; a key without members is none.
        if count == 0 || count as usize > members.len() {
            return Err(HeadError::Damaged);
        }
        Ok(HeadView {
            head_type,
            members: count,
        })
    }
}

/// Whether a value is a head.
///
/// # Errors
/// [`HeadError`]
pub fn check(value: &[u8]) -> Result<(), HeadError> {
    HeadView::read(value).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [u8; 10] = [1, 0, 4, 0, 1, 0, 0, 0, 0, 0];

    #[test]
    fn a_head_has_its_type_and_how_many_members_there_are() {
        let head = HeadView {
            head_type: HeadType::Hash,
            members: 1,
        };
        assert_eq!(HeadView::read(&GOOD), Ok(head));
        for (number, flags, head_type) in [
            (2, 2, HeadType::Set),
            (3, 4, HeadType::Zset),
            (4, 4, HeadType::List),
        ] {
            let mut other = GOOD;
            (other[0], other[2]) = (number, flags);
            assert_eq!(HeadView::read(&other), Ok(HeadView { head_type, ..head }));
        }
    }

    #[test]
    fn what_a_later_build_writes_is_unknown_and_not_damage() {
        for (at, byte) in [(0, 0), (0, 6), (1, 1), (2, 1), (2, 2), (2, 8), (3, 1)] {
            let mut bytes = GOOD;
            bytes[at] = byte;
            assert_eq!(check(&bytes), Err(HeadError::Unknown), "{byte} at {at}");
        }
    }

    #[test]
    fn a_head_that_is_cut_or_has_no_member_or_too_many_is_damage() {
        for cut in 0..=SMALL_HEAD_BYTES {
            assert_eq!(check(&GOOD[..cut]), Err(HeadError::Damaged), "cut at {cut}");
        }
        for count in [0, 3, u32::MAX] {
            let mut bytes = GOOD;
            bytes[4..8].copy_from_slice(&count.to_le_bytes());
            assert_eq!(check(&bytes), Err(HeadError::Damaged), "{count} members");
        }
    }
}
