//! A list as the value of its key: elements in their order.
//!
//! ```text
//! entry: length of the element | element
//! ```
//!
//! A list is edited in its bytes. So a push or a pop copies the value and moves what stands behind
//! it, some microseconds for the longest one, whichever end it is about.

use std::ops::Range;

use crate::resp::number::read_integer;

use super::head::{Corrupt, FLAG_LARGE, HEAD_BYTES, Head, MemberType};
use super::strings::{length_bytes, put_length, take_length};

/// Bytes up to which Redis keeps a list as a single listpack, ...
const LISTPACK_BYTES_MAX: usize = 8192;
/// ... and those down to which it makes one again of a list that was longer.
const LISTPACK_BYTES_AGAIN_MAX: usize = LISTPACK_BYTES_MAX / 2;
/// Bytes of a listpack without an element.
const LISTPACK_EMPTY_BYTES: usize = 7;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum ListEnd {
    /// Where the first element stands.
    Left,
    Right,
}

/// A list whose bytes were checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListView<'a> {
    flags: u8,
    count: usize,
    entries: &'a [u8],
}

impl<'a> ListView<'a> {
    /// Reads the value of a key, whole.
    pub(super) fn read(value: &'a [u8]) -> Result<Self, Corrupt> {
        let (Head { flags, count }, entries) = Head::read(value, MemberType::List)?;
        let mut rest = entries;
        for _ in 0..count {
            (_, rest) = split_entry(rest)?;
        }
        match rest.is_empty() {
            true => Ok(ListView {
                flags,
                count,
                entries,
            }),
            false => Err(Corrupt),
        }
    }

    /// How many elements there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The elements in their order.
    pub(super) fn elements(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        elements_of(self.entries)
    }
}

/// The elements of whole entries.
fn elements_of(mut entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (element, behind) = split_entry(entries).ok()?;
        entries = behind;
        Some(element)
    })
}

/// The first element and the bytes behind its entry.
fn split_entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), Corrupt> {
    let (len, rest) = take_length(bytes)?;
    rest.split_at_checked(len).ok_or(Corrupt)
}

/// Bytes of the entry of an element.
pub(super) fn entry_bytes(element: &[u8]) -> usize {
    length_bytes(element.len()) + element.len()
}

fn put_entry(element: &[u8], out: &mut Vec<u8>) {
    put_length(element.len(), out);
    out.extend_from_slice(element);
}

/// Elements that were taken from an end of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resp) struct Taken {
    /// Their entries, in the order of the list.
    entries: Vec<u8>,
    end: ListEnd,
}

impl Taken {
    /// The elements in the order in which they were taken.
    pub(in crate::resp) fn elements(&self) -> Vec<&[u8]> {
        let mut elements: Vec<&[u8]> = elements_of(&self.entries).collect();
        if self.end == ListEnd::Right {
            elements.reverse();
        }
        elements
    }
}

/// A list that is edited.
#[derive(Debug)]
pub(super) struct ListEdit {
    flags: u8,
    count: usize,
    /// Room for a head, then the entries.
    value: Vec<u8>,
}

impl ListEdit {
    /// The list that is the value of a key, or one without elements.
    pub(super) fn begin(value: Option<&[u8]>) -> Result<Self, Corrupt> {
        let view = value.map(ListView::read).transpose()?.unwrap_or_default();
        Ok(ListEdit {
            flags: view.flags,
            count: view.count,
            value: value.map_or_else(|| vec![0; HEAD_BYTES], <[u8]>::to_vec),
        })
    }

    /// How many elements there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the value.
    pub(super) fn bytes(&self) -> usize {
        self.value.len()
    }

    /// The elements in their order.
    pub(super) fn elements(&self) -> impl Iterator<Item = &[u8]> {
        elements_of(&self.value[HEAD_BYTES..])
    }

    /// Elements of so many bytes together are to come: Redis judges before they do whether they fit
    /// into a listpack, as if each was a string.
    pub(super) fn note_growth(&mut self, bytes: usize) {
        if !self.fits(LISTPACK_BYTES_MAX.saturating_sub(bytes)) {
            self.flags |= FLAG_LARGE;
        }
    }

    /// Elements have gone, or were replaced: Redis makes a listpack of a short list.
    pub(super) fn note_removal(&mut self) {
        if self.flags & FLAG_LARGE != 0 && self.fits(LISTPACK_BYTES_AGAIN_MAX) {
            self.flags &= !FLAG_LARGE;
        }
    }

    /// Whether a listpack of the elements has at most so many bytes.
    fn fits(&self, bytes_max: usize) -> bool {
        let mut bytes = LISTPACK_EMPTY_BYTES;
        bytes <= bytes_max
            && self.elements().all(|element| {
                bytes += listpack_bytes(element);
                bytes <= bytes_max
            })
    }

    /// Puts elements at an end, one behind the other: the last one stands there then.
    pub(super) fn push<'e>(
        &mut self,
        end: ListEnd,
        elements: impl DoubleEndedIterator<Item = &'e [u8]> + Clone,
    ) {
        let bytes: usize = elements.clone().map(entry_bytes).sum();
        self.value.reserve_exact(bytes);
        self.count += elements.clone().count();
        match end {
            ListEnd::Right => elements.for_each(|element| put_entry(element, &mut self.value)),
            ListEnd::Left => {
                let mut entries = Vec::with_capacity(bytes);
                elements
                    .rev()
                    .for_each(|element| put_entry(element, &mut entries));
                self.value.splice(HEAD_BYTES..HEAD_BYTES, entries);
            }
        }
    }

    /// Takes elements from an end, so many at most.
    pub(super) fn take(&mut self, end: ListEnd, count: usize) -> Taken {
        let count = count.min(self.count);
        let places = match end {
            ListEnd::Left => 0..count,
            ListEnd::Right => self.count - count..self.count,
        };
        let bytes = self.bytes_of(&places);
        self.count -= count;
        Taken {
            entries: self.value.drain(bytes).collect(),
            end,
        }
    }

    /// Keeps the elements of these places alone.
    pub(super) fn keep(&mut self, places: &Range<usize>) {
        let bytes = self.bytes_of(places);
        self.value.truncate(bytes.end);
        self.value.drain(HEAD_BYTES..bytes.start);
        self.count = places.len();
    }

    /// Puts an element at a place, before the one that stands there.
    pub(super) fn insert(&mut self, place: usize, element: &[u8]) {
        let at = self.bytes_of(&(place..place));
        self.put(at, element);
        self.count += 1;
    }

    /// Replaces the element of a place.
    pub(super) fn set(&mut self, place: usize, element: &[u8]) {
        let at = self.bytes_of(&(place..place + 1));
        self.put(at, element);
    }

    fn put(&mut self, at: Range<usize>, element: &[u8]) {
        let mut entry = Vec::with_capacity(entry_bytes(element));
        put_entry(element, &mut entry);
        self.value.reserve_exact(entry.len());
        self.value.splice(at, entry);
    }

    /// Takes away the elements that are equal to this one: from an end so many at most. How many
    /// were.
    pub(super) fn remove(&mut self, element: &[u8], from: ListEnd, most: usize) -> usize {
        let equal = self.elements().filter(|it| *it == element).count();
        let removed = equal.min(most);
        // The first of them stay if those at the other end go.
        let mut staying = match from {
            ListEnd::Left => 0,
            ListEnd::Right => equal - removed,
        };
        let mut left = removed;
        let mut value = Vec::with_capacity(self.value.len() - removed * entry_bytes(element));
        value.resize(HEAD_BYTES, 0);
        for it in self.elements() {
            match it == element {
                true if staying > 0 => staying -= 1,
                true if left > 0 => {
                    left -= 1;
                    continue;
                }
                _ => {}
            }
            put_entry(it, &mut value);
        }
        self.value = value;
        self.count -= removed;
        removed
    }

    /// Where the entries of these places stand in the value.
    fn bytes_of(&self, places: &Range<usize>) -> Range<usize> {
        assert!(places.start <= places.end && places.end <= self.count);
        let bytes = |elements: usize, from: usize| -> usize {
            let entries = elements_of(&self.value[from..]);
            from + entries.take(elements).map(entry_bytes).sum::<usize>()
        };
        // Most are about an end.
        if places.end == self.count && places.start == self.count {
            return self.value.len()..self.value.len();
        }
        let start = bytes(places.start, HEAD_BYTES);
        let end = match places.end == self.count {
            true => self.value.len(),
            false => bytes(places.len(), start),
        };
        start..end
    }

    /// The value of the key; `None` if no element is left.
    pub(super) fn encode(mut self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let head = Head {
            flags: self.flags,
            count: self.count,
        };
        self.value[..HEAD_BYTES].copy_from_slice(&head.encode(MemberType::List));
        Some(self.value)
    }
}

/// Bytes of an element in a listpack of Redis: a number is kept as one.
fn listpack_bytes(element: &[u8]) -> usize {
    let bytes = match (read_integer(element), element.len()) {
        (Some(0..=127), _) => 1,
        (Some(-4096..=4095), _) => 2,
        (Some(-0x8000..=0x7FFF), _) => 3,
        (Some(-0x80_0000..=0x7F_FFFF), _) => 4,
        (Some(-0x8000_0000..=0x7FFF_FFFF), _) => 5,
        (Some(_), _) => 9,
        (None, len @ ..=63) => 1 + len,
        (None, len @ ..=4095) => 2 + len,
        (None, len) => 5 + len,
    };
    // The length stands behind it, too.
    bytes
        + match bytes {
            ..=127 => 1,
            128..=16_382 => 2,
            _ => 3,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Model = Vec<Vec<u8>>;

    fn model_of(value: &[u8]) -> Result<Model, Corrupt> {
        let view = ListView::read(value)?;
        let elements: Model = view.elements().map(<[u8]>::to_vec).collect();
        assert_eq!(view.len(), elements.len());
        Ok(elements)
    }

    fn number(state: &mut u64) -> usize {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(*state >> 33).expect("31 bits")
    }

    fn end(state: &mut u64) -> ListEnd {
        [ListEnd::Left, ListEnd::Right][number(state) % 2]
    }

    fn element(state: &mut u64) -> Vec<u8> {
        match number(state) % 8 {
            0 => vec![b'l'; 250 + number(state) % 8],
            1 => Vec::new(),
            _ => vec![b'e'; number(state) % 5],
        }
    }

    /// Takes from an end of the model, as [`ListEdit::take`].
    fn take(model: &mut Model, end: ListEnd, count: usize) -> Model {
        let count = count.min(model.len());
        match end {
            ListEnd::Left => model.drain(..count).collect(),
            ListEnd::Right => {
                let at = model.len() - count;
                model.drain(at..).rev().collect()
            }
        }
    }

    /// One edit of both, by chance.
    fn step(random: &mut u64, edit: &mut ListEdit, model: &mut Model) {
        let (one, from, len) = (element(random), end(random), model.len());
        match number(random) % 9 {
            0..=2 => {
                let all: Model = (0..number(random) % 4).map(|_| element(random)).collect();
                edit.push(from, all.iter().map(Vec::as_slice));
                for it in all {
                    match from {
                        ListEnd::Left => model.insert(0, it),
                        ListEnd::Right => model.push(it),
                    }
                }
            }
            3 | 4 => {
                let count = number(random) % 4;
                let taken = edit.take(from, count);
                assert_eq!(taken.elements(), take(model, from, count));
            }
            5 => {
                let start = number(random) % (len + 1);
                let places = start..start + number(random) % (len - start + 1);
                // Seldom, or no list grows.
                if places.len() + 3 > len {
                    edit.keep(&places);
                    *model = model[places].to_vec();
                }
            }
            6 => {
                let place = number(random) % (len + 1);
                edit.insert(place, &one);
                model.insert(place, one);
            }
            7 if len > 0 => {
                let place = number(random) % len;
                edit.set(place, &one);
                model[place] = one;
            }
            _ => {
                let most = [1, 2, usize::MAX][number(random) % 3];
                let places = (0..len).filter(|at| model[*at] == one);
                let mut places: Vec<usize> = places.collect();
                if from == ListEnd::Right {
                    places.reverse();
                }
                places.truncate(most);
                assert_eq!(edit.remove(&one, from, most), places.len());
                places.sort_unstable();
                places.iter().rev().for_each(|at| drop(model.remove(*at)));
            }
        }
    }

    #[test]
    fn edits_are_what_a_list_of_strings_says() {
        let (mut random, mut longest, mut ended) = (1, 0, 0);
        let (mut model, mut value): (Model, Option<Vec<u8>>) = (Vec::new(), None);
        for _ in 0..5_000 {
            let mut edit = ListEdit::begin(value.as_deref()).expect("good");
            step(&mut random, &mut edit, &mut model);
            assert_eq!(edit.len(), model.len());
            assert!(edit.elements().eq(model.iter()));
            let bytes = edit.bytes();
            value = edit.encode();
            assert_eq!(value.as_ref().map_or(HEAD_BYTES, Vec::len), bytes);
            ended += usize::from(value.is_none());
            longest = longest.max(model.len());
            let expected = (!model.is_empty()).then(|| Ok(model.clone()));
            assert_eq!(value.as_deref().map(model_of), expected);
            if model.len() > 60 {
                (model, value) = (Vec::new(), None);
            }
        }
        assert!(longest > 20 && ended > 5, "{longest} {ended}");
    }

    fn three() -> Vec<u8> {
        let mut edit = ListEdit::begin(None).expect("none");
        let long = [7; 300];
        let elements: [&[u8]; 3] = [b"long, long", &long, b""];
        edit.push(ListEnd::Right, elements.into_iter());
        edit.encode().expect("three elements")
    }

    #[test]
    fn every_cut_is_refused_and_no_flipped_bit_is_read_beyond_the_value() {
        let value = three();
        for cut in 0..value.len() {
            assert_eq!(model_of(&value[..cut]), Err(Corrupt), "cut at {cut}");
            assert!(ListEdit::begin(Some(&value[..cut])).is_err());
        }
        let mut longer = value.clone();
        longer.push(0);
        assert_eq!(model_of(&longer), Err(Corrupt));
        let mut read = 0;
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(view) = ListView::read(&flipped) {
                let bytes: usize = view.elements().map(entry_bytes).sum();
                assert_eq!(HEAD_BYTES + bytes, flipped.len(), "bit {bit}");
                read += 1;
            }
        }
        // Bits of elements, and the flag.
        assert_eq!(read, 310 * 8 + 1);
    }

    /// Whether a list is large behind a growth and a removal.
    fn is_large(edit: &ListEdit) -> bool {
        edit.flags & FLAG_LARGE != 0
    }

    #[test]
    fn a_list_is_large_beyond_a_listpack_until_half_of_one_would_do() {
        let mut edit = ListEdit::begin(None).expect("none");
        let push = |edit: &mut ListEdit, element: &[u8]| {
            edit.note_growth(element.len());
            edit.push(ListEnd::Right, std::iter::once(element));
        };
        // 99 bytes each, and 7 of the listpack.
        (0..82).for_each(|_| push(&mut edit, &[b'e'; 96]));
        assert!(!is_large(&edit) && edit.fits(82 * 99 + 7) && !edit.fits(82 * 99 + 6));
        push(&mut edit, &[b'e'; 67]);
        assert!(!is_large(&edit));
        push(&mut edit, b"");
        assert!(is_large(&edit), "70 bytes, more than its string");
        edit.keep(&(0..42));
        edit.note_removal();
        assert!(is_large(&edit), "4165 bytes");
        let value = edit.encode().expect("elements");
        assert_eq!(value[2], FLAG_LARGE);
        let mut edit = ListEdit::begin(Some(&value)).expect("good");
        edit.keep(&(0..41));
        edit.note_removal();
        assert!(!is_large(&edit), "4066 bytes");
        edit.note_growth(LISTPACK_BYTES_MAX);
        assert!(is_large(&edit));
    }

    #[test]
    fn an_element_takes_as_many_bytes_of_a_listpack_as_in_redis() {
        for (element, bytes) in [
            ("", 2),
            ("0", 2),
            ("127", 2),
            ("128", 3),
            ("-1", 3),
            ("-4096", 3),
            ("4096", 4),
            ("32768", 5),
            ("8388608", 6),
            ("2147483648", 10),
            ("01", 4),
            ("-0", 4),
        ] {
            assert_eq!(listpack_bytes(element.as_bytes()), bytes, "{element:?}");
        }
        for (len, bytes) in [
            (63, 65),
            (64, 67),
            (125, 128),
            (126, 130),
            (4095, 4099),
            (4096, 4103),
            (16_377, 16_384),
            (16_378, 16_386),
        ] {
            assert_eq!(listpack_bytes(&vec![b'e'; len]), bytes, "{len}");
        }
    }
}
