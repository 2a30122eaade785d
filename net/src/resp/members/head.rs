//! The head of a value with members, and what is wrong with one.

use std::borrow::Cow;

/// Bytes of a head.
pub(in crate::resp) const HEAD_BYTES: usize = 8;
/// Bytes of a value with members, at most.
pub(in crate::resp) const MEMBERS_BYTES_MAX: usize = 64 << 10;
/// A set is of integers in ascending order.
pub(super) const FLAG_INTEGERS: u8 = 2;
/// The members have been more or longer than those that Redis keeps in a list: it tells another
/// encoding from then on, of a list while it stays long.
pub(super) const FLAG_LARGE: u8 = 4;
/// Members up to which Redis keeps a hash in a list, ...
pub(super) const LISTED_MEMBERS_MAX: usize = 512;
/// ... and bytes of each of their strings.
pub(super) const LISTED_STRING_BYTES_MAX: usize = 64;

/// The error of a key whose members are not what was written.
pub(super) const CORRUPT: &[u8] = b"ERR CORRUPT the members of this key are not what was written";

/// The members of a key are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) struct Corrupt;

/// What the members of a key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum MemberType {
    /// Fields with values.
    Hash,
    /// Members alone.
    Set,
    /// Members with scores, in the order of these.
    Zset,
    /// Elements in the order of the list.
    List,
}

impl MemberType {
    /// The type in a value with members; `None` if it is none of those.
    pub(in crate::resp) fn of(value: &[u8]) -> Option<Self> {
        match value.first() {
            Some(1) => Some(MemberType::Hash),
            Some(2) => Some(MemberType::Set),
            Some(3) => Some(MemberType::Zset),
            Some(4) => Some(MemberType::List),
            _ => None,
        }
    }

    /// The type of this name.
    pub(in crate::resp) fn of_name(name: &[u8]) -> Option<Self> {
        let all = [
            MemberType::Hash,
            MemberType::Set,
            MemberType::Zset,
            MemberType::List,
        ];
        let is_it = |it: &MemberType| name.eq_ignore_ascii_case(it.name().as_bytes());
        all.into_iter().find(is_it)
    }

    /// Its number in a head.
    pub(in crate::resp) fn number(self) -> u8 {
        match self {
            MemberType::Hash => 1,
            MemberType::Set => 2,
            MemberType::Zset => 3,
            MemberType::List => 4,
        }
    }

    /// What TYPE tells.
    pub(in crate::resp) fn name(self) -> &'static str {
        match self {
            MemberType::Hash => "hash",
            MemberType::Set => "set",
            MemberType::Zset => "zset",
            MemberType::List => "list",
        }
    }

    /// The flags that its head may have.
    fn flags(self) -> u8 {
        match self {
            MemberType::Hash | MemberType::Zset | MemberType::List => FLAG_LARGE,
            MemberType::Set => FLAG_INTEGERS | FLAG_LARGE,
        }
    }

    /// What stands in it.
    fn members_name(self) -> &'static str {
        match self {
            MemberType::Hash => "fields",
            MemberType::Set | MemberType::Zset => "members",
            MemberType::List => "elements",
        }
    }

    /// Refuses a value of so many bytes and members, if these are too many bytes.
    pub(super) fn check_bytes(
        self,
        bytes: usize,
        members: usize,
    ) -> Result<(), Cow<'static, [u8]>> {
        match bytes <= MEMBERS_BYTES_MAX {
            true => Ok(()),
            false => Err(format!(
                "ERR nothing was changed: the {} would take {bytes} bytes or more with {members} \
                 {}, and {MEMBERS_BYTES_MAX} is the limit",
                self.name(),
                self.members_name(),
            )
            .into_bytes()
            .into()),
        }
    }
}

/// A head that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) flags: u8,
    /// How many members stand behind it.
    pub(super) count: usize,
}

impl Head {
    /// Reads the head of a value with members of this type; what stands behind it.
    pub(super) fn read(value: &[u8], wanted: MemberType) -> Result<(Self, &[u8]), Corrupt> {
        let (head, entries) = value.split_first_chunk::<HEAD_BYTES>().ok_or(Corrupt)?;
        let &[number, form, flags, reserved, a, b, c, d] = head;
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        // Each member has a byte at least, so the count is bounded by the bytes.
        let is_good = number == wanted.number()
            && form == 0
            && flags & !wanted.flags() == 0
            && reserved == 0
            && (1..=entries.len()).contains(&count);
        match is_good {
            true => Ok((Head { flags, count }, entries)),
            false => Err(Corrupt),
        }
    }

    /// Its bytes, before members of this type.
    pub(super) fn encode(self, of: MemberType) -> [u8; HEAD_BYTES] {
        let count = u32::try_from(self.count).expect("members are bounded by their bytes");
        let [a, b, c, d] = count.to_le_bytes();
        [of.number(), 0, self.flags, 0, a, b, c, d]
    }
}

/// What OBJECT ENCODING tells of a value with members.
pub(in crate::resp) fn encoding_of(value: &[u8]) -> &'static [u8] {
    let has = |flag| value.get(2).is_some_and(|flags| flags & flag != 0);
    let is_large = has(FLAG_LARGE);
    match MemberType::of(value) {
        Some(MemberType::Hash | MemberType::Set) if is_large => b"hashtable",
        Some(MemberType::Set) if has(FLAG_INTEGERS) => b"intset",
        Some(MemberType::Zset) if is_large => b"skiplist",
        Some(MemberType::List) if is_large => b"quicklist",
        _ => b"listpack",
    }
}
