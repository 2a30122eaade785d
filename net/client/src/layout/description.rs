//! Names, types and offsets of a layout as data, and the hash over them.

use std::fmt;

use penstock_net::instruction::FieldType;

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// What a layout consists of. Its text is what [`Description::hash`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    name: &'static str,
    bytes: usize,
    fields: &'static [FieldInfo],
}

/// One field of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    name: &'static str,
    offset: usize,
    kind: Kind,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number, which guards and effects know.
    Number(FieldType),
    /// One byte, 0 or 1.
    Bool,
    /// A number of IEEE 754.
    Float {
        /// 4 or 8.
        bytes: u8,
        /// Its most significant byte stands first.
        is_big_endian: bool,
    },
    /// Offset and length of a text in the value.
    Text,
    /// So many of the same kind.
    Array(&'static Kind, usize),
    /// The fields of another layout.
    Layout(&'static Description),
}

impl Description {
    /// What the derive macro has seen.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, bytes: usize, fields: &'static [FieldInfo]) -> Self {
        Description {
            name,
            bytes,
            fields,
        }
    }

    /// The name of the struct. It is not in the hash.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Bytes of the fixed fields.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The fields in their order.
    #[must_use]
    pub const fn fields(&self) -> &'static [FieldInfo] {
        self.fields
    }

    /// FNV-1a over the text of the description: the same for the same names, types and offsets,
    /// in every program and on every machine.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash_onto(FNV_START)
    }

    /// The hash in 16 bits, as a keyspace keeps it; never 0.
    #[must_use]
    pub const fn mark(&self) -> u16 {
        let [a, b, c, d, e, f, g, h] = self.hash().to_le_bytes();
        let mark = u16::from_le_bytes([a ^ c ^ e ^ g, b ^ d ^ f ^ h]);
        if mark == 0 { 1 } else { mark }
    }

    const fn hash_onto(&self, mut hash: u64) -> u64 {
        let mut at = 0;
        while at < self.fields.len() {
            let field = &self.fields[at];
            hash = fnv(hash, field.name.as_bytes());
            hash = fnv(hash, b":");
            hash = field.kind.hash_onto(hash);
            hash = fnv(hash, b"@");
            hash = fnv_number(hash, field.offset);
            hash = fnv(hash, b";");
            at += 1;
        }
        fnv_number(fnv(hash, b"="), self.bytes)
    }

    /// The first bool that is neither 0 nor 1: its path, its offset and its byte.
    pub(super) fn wrong_bool(&self, value: &[u8]) -> Option<(String, usize, u8)> {
        self.fields.iter().find_map(|field| {
            let found = field.kind.wrong_bool(value.get(field.offset..)?)?;
            let (path, offset, byte) = found;
            Some((format!("{}{path}", field.name), field.offset + offset, byte))
        })
    }
}

impl FieldInfo {
    /// What the derive macro has seen.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, offset: usize, kind: Kind) -> Self {
        FieldInfo { name, offset, kind }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Where it begins in its layout.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// What it holds.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}

impl Kind {
    /// Bytes of the field.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Kind::Number(field_type) => field_type.width(),
            Kind::Bool => 1,
            Kind::Float { bytes, .. } => *bytes as usize,
            Kind::Text => 8,
            Kind::Array(kind, len) => kind.bytes() * *len,
            Kind::Layout(layout) => layout.bytes,
        }
    }

    const fn float_name(bytes: u8, is_big_endian: bool) -> &'static str {
        match (bytes, is_big_endian) {
            (4, false) => "f32",
            (4, true) => "f32be",
            (_, false) => "f64",
            (_, true) => "f64be",
        }
    }

    const fn hash_onto(&self, hash: u64) -> u64 {
        match self {
            Kind::Number(field_type) => fnv(hash, field_type.name().as_bytes()),
            Kind::Bool => fnv(hash, b"bool"),
            Kind::Float {
                bytes,
                is_big_endian,
            } => fnv(hash, Kind::float_name(*bytes, *is_big_endian).as_bytes()),
            Kind::Text => fnv(hash, b"text"),
            Kind::Array(kind, len) => {
                let hash = fnv(kind.hash_onto(hash), b"[");
                fnv(fnv_number(hash, *len), b"]")
            }
            Kind::Layout(layout) => fnv(layout.hash_onto(fnv(hash, b"{")), b"}"),
        }
    }

    /// As [`Description::wrong_bool`], with a path that begins behind the name of the field.
    fn wrong_bool(&self, value: &[u8]) -> Option<(String, usize, u8)> {
        match self {
            Kind::Bool => {
                let byte = *value.first()?;
                (byte > 1).then_some((String::new(), 0, byte))
            }
            Kind::Array(kind, len) => (0..*len).find_map(|index| {
                let start = index * kind.bytes();
                let (path, offset, byte) = kind.wrong_bool(value.get(start..)?)?;
                Some((format!("[{index}]{path}"), start + offset, byte))
            }),
            Kind::Layout(layout) => {
                let (path, offset, byte) = layout.wrong_bool(value)?;
                Some((format!(".{path}"), offset, byte))
            }
            Kind::Number(_) | Kind::Float { .. } | Kind::Text => None,
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for FieldInfo { name, offset, kind } in self.fields {
            write!(f, "{name}:{kind}@{offset};")?;
        }
        write!(f, "={}", self.bytes)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Number(field_type) => f.write_str(field_type.name()),
            Kind::Bool => f.write_str("bool"),
            Kind::Float {
                bytes,
                is_big_endian,
            } => f.write_str(Kind::float_name(*bytes, *is_big_endian)),
            Kind::Text => f.write_str("text"),
            Kind::Array(kind, len) => write!(f, "{kind}[{len}]"),
            Kind::Layout(layout) => write!(f, "{{{layout}}}"),
        }
    }
}

const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(FNV_PRIME);
        at += 1;
    }
    hash
}

/// The decimal digits of a number.
const fn fnv_number(hash: u64, number: usize) -> u64 {
    let hash = if number >= 10 {
        fnv_number(hash, number / 10)
    } else {
        hash
    };
    const DIGITS: &[u8; 10] = b"0123456789";
    fnv(hash, &[DIGITS[number % 10]])
}
