//! The rights of one user, made for one search for each key.

use std::collections::{BTreeMap, BTreeSet};

use super::grants::{ANY_PROGRAM, Grants};
use super::{Denied, Need, Right};

/// The bit of *run* for any program; those that have names follow.
const RUN_ANY: u64 = 1 << 3;
const PROGRAMS_AT: usize = 4;

/// What is granted at a key: a bit for each right, and one for each program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Granted(u64);

/// What one user may do with which keys.
///
/// The prefixes divide the order of all keys into neighbouring ranges, in each of which all keys
/// have the same rights. A search finds the range of a key: a binary search over the first eight
/// bytes of where the ranges begin, behind the bytes that all prefixes have in common. Bytes beyond
/// those are compared only where the eight are equal.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
    user: Box<str>,
    /// What keys have that begin with none of the prefixes but the empty one.
    everywhere: Granted,
    /// What at least one key has.
    anywhere: Granted,
    /// All prefixes but the empty one begin so.
    common: Box<[u8]>,
    /// Where each range begins, behind `common`: the first eight bytes as a number, ...
    heads: Box<[u64]>,
    /// ... and all of them.
    begins: Box<[Box<[u8]>]>,
    /// What keys have from there on.
    granted: Box<[Granted]>,
    /// The names of programs, ascending: the bit of each follows from its place.
    programs: Box<[Box<str>]>,
}

impl Rights {
    /// The rights of a user with these grants.
    #[must_use]
    pub fn new(user: &str, grants: &Grants) -> Self {
        let programs: Box<[Box<str>]> = grants.programs().map(Box::from).collect();
        let of_prefix = granted_by_prefix(grants, &programs);
        let everywhere = of_prefix.get(&[][..]).copied().unwrap_or_default();
        let anywhere = of_prefix.values().fold(Granted(0), |all, it| all.with(*it));
        let common = common_of(of_prefix.keys().copied().filter(|it| !it.is_empty()));
        // A range begins with each prefix, and behind the last key that begins so.
        let mut begins = BTreeSet::new();
        for prefix in of_prefix.keys().filter(|it| !it.is_empty()) {
            begins.insert(prefix.to_vec());
            begins.extend(behind(prefix).filter(|it| it.starts_with(common)));
        }
        let granted = begins.iter().map(|begin| {
            let within = (0..=begin.len()).filter_map(|len| of_prefix.get(&begin[..len]));
            within.fold(Granted(0), |all, it| all.with(*it))
        });
        let granted = granted.collect();
        let begins = begins.iter().map(|begin| Box::from(&begin[common.len()..]));
        let begins: Box<[Box<[u8]>]> = begins.collect();
        Rights {
            user: user.into(),
            everywhere,
            anywhere,
            common: common.into(),
            heads: begins.iter().map(|begin| head_of(begin)).collect(),
            begins,
            granted,
            programs,
        }
    }

    /// Whose rights they are.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether the user has all that is needed at a key, or for all keys that begin so: what holds
    /// for a prefix holds for every key behind it. Asks for no program.
    #[inline]
    #[must_use]
    pub fn allows(&self, need: Need, key: &[u8]) -> bool {
        need.bits() & !self.at(key).0 == 0
    }

    /// The same, with what is missing.
    ///
    /// # Errors
    /// The first right that is missing.
    #[inline]
    pub fn demand<'a>(&'a self, need: Need, key: &'a [u8]) -> Result<(), Denied<'a>> {
        match need.bits() & !self.at(key).0 {
            0 => Ok(()),
            lacking => Err(self.lacks(lacking, key)),
        }
    }

    /// Whether the user may run a program on a key. Of a program that the node does not know a
    /// right to run any program there is asked for.
    ///
    /// # Errors
    /// What is missing.
    pub fn demand_run<'a>(
        &'a self,
        program: Option<&'a str>,
        key: &'a [u8],
    ) -> Result<(), Denied<'a>> {
        let asked = match program {
            Some(name) => RUN_ANY | self.bit_of(name),
            None => !0 << RUN_ANY.trailing_zeros(),
        };
        match self.at(key).0 & asked {
            0 => Err(Denied {
                program,
                ..self.denied(Right::Run, key)
            }),
            _ => Ok(()),
        }
    }

    /// Where keys begin that the user may read. Not every key that begins so is one.
    #[must_use]
    pub fn readable(&self) -> Vec<Vec<u8>> {
        let may_read = |granted: Granted| granted.0 & Need::READ.bits() != 0;
        let everywhere = may_read(self.everywhere).then(Vec::new);
        let ranges = self.begins.iter().zip(&self.granted);
        let ranges = ranges.filter(|(_, granted)| may_read(**granted));
        let begins = ranges.map(|(begin, _)| [&self.common[..], begin].concat());
        everywhere.into_iter().chain(begins).collect()
    }

    /// Whether the user may do anything at all.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.anywhere != Granted(0)
    }

    #[cold]
    fn lacks<'a>(&'a self, lacking: u64, key: &'a [u8]) -> Denied<'a> {
        self.denied(right_of(lacking), key)
    }

    fn denied<'a>(&'a self, right: Right, at: &'a [u8]) -> Denied<'a> {
        Denied {
            user: &self.user,
            right,
            at,
            is_prefix: false,
            program: None,
        }
    }

    /// What is granted at a key.
    #[inline(always)]
    fn at(&self, key: &[u8]) -> Granted {
        let mut rest = key;
        if !self.common.is_empty() {
            rest = match key.strip_prefix(&self.common[..]) {
                Some(rest) => rest,
                None => return self.everywhere,
            };
        }
        let head = head_of(rest);
        // How many ranges begin at the key or before it: of those with its head the bytes tell.
        let mut before = self.heads.partition_point(|it| *it < head);
        if self.heads.get(before) == Some(&head) {
            before += self.among_equal(before, head, rest);
        }
        match before {
            0 => self.everywhere,
            before => self.granted[before - 1],
        }
    }

    /// How many ranges from `first` on, all of this head, begin at these bytes or before them.
    #[cold]
    fn among_equal(&self, first: usize, head: u64, rest: &[u8]) -> usize {
        let equal = &self.heads[first..];
        let equal = equal.partition_point(|it| *it == head);
        let begins = &self.begins[first..first + equal];
        begins.partition_point(|begin| &begin[..] <= rest)
    }

    /// The bit of a program; none if no right names it.
    fn bit_of(&self, program: &str) -> u64 {
        let place = self.programs.binary_search_by(|name| (**name).cmp(program));
        place.map_or(0, |place| 1 << (PROGRAMS_AT + place))
    }
}

impl Granted {
    fn with(self, other: Granted) -> Granted {
        Granted(self.0 | other.0)
    }
}

/// The first eight bytes as a number that is ordered as they are, zeros behind the end.
#[inline]
fn head_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => bytes
            .iter()
            .zip((0..8).rev())
            .fold(0, |head, (byte, place)| {
                head | u64::from(*byte) << (8 * place)
            }),
    }
}

/// What each prefix grants by itself.
fn granted_by_prefix<'a>(grants: &'a Grants, programs: &[Box<str>]) -> BTreeMap<&'a [u8], Granted> {
    let mut all: BTreeMap<&[u8], Granted> = BTreeMap::new();
    let mut add = |prefix: &'a Vec<u8>, bits: u64| {
        let granted = all.entry(&prefix[..]).or_default();
        *granted = granted.with(Granted(bits));
    };
    for right in [Right::Read, Right::Write, Right::Admin] {
        for prefix in grants.prefixes(right) {
            add(prefix, Need::of(right).bits());
        }
    }
    for (name, prefixes) in grants.runs() {
        let place = programs.iter().position(|program| **program == *name);
        let bit = match place {
            Some(place) => 1 << (PROGRAMS_AT + place),
            None => {
                assert_eq!(name, ANY_PROGRAM, "all other programs have places");
                RUN_ANY
            }
        };
        prefixes.iter().for_each(|prefix| add(prefix, bit));
    }
    all
}

/// What all of these begin with.
fn common_of<'a>(mut all: impl Iterator<Item = &'a [u8]>) -> &'a [u8] {
    let first = all.next().unwrap_or_default();
    all.fold(first, |common, next| {
        let same = common
            .iter()
            .zip(next)
            .take_while(|(one, other)| one == other);
        &common[..same.count()]
    })
}

/// The least bytes that are greater than all that begin with this prefix, if there are such bytes.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// The first right of what is missing.
fn right_of(lacking: u64) -> Right {
    let missing = Right::ALL.into_iter().find(|right| match right {
        Right::Run => false,
        right => Need::of(*right).bits() & lacking != 0,
    });
    missing.expect("a need has bits of rights alone")
}
