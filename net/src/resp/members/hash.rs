//! A hash as the value of its key: fields with values, in the order in which the fields came.
//!
//! ```text
//! entry: length of the field | length of its value | field | value
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use super::head::{
    Corrupt, FLAG_LARGE, HEAD_BYTES, Head, LISTED_MEMBERS_MAX, LISTED_STRING_BYTES_MAX, MemberType,
};
use super::strings::{length_bytes, put_length, take_length};

/// So many names at once are looked for one by one.
const FEW_NAMES_MAX: usize = 8;

/// A field and the value that it has now.
type EditedEntry<'a> = (&'a [u8], Cow<'a, [u8]>);

/// A field and its value.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// A hash whose bytes were checked.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct HashView<'a> {
    head: Head,
    entries: &'a [u8],
}

impl<'a> HashView<'a> {
    /// Reads the value of a key, whole.
    pub(in crate::resp) fn read(value: &'a [u8]) -> Result<Self, Corrupt> {
        let (head, entries) = Head::read(value, MemberType::Hash)?;
        let mut rest = entries;
        for _ in 0..head.count {
            (_, rest) = split_entry(rest)?;
        }
        match rest.is_empty() {
            true => Ok(HashView { head, entries }),
            false => Err(Corrupt),
        }
    }

    /// How many fields there are.
    pub(in crate::resp) fn len(&self) -> usize {
        self.head.count
    }

    /// The fields with their values, in their order.
    pub(in crate::resp) fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut rest = self.entries;
        std::iter::from_fn(move || {
            let (entry, behind) = split_entry(rest).ok()?;
            rest = behind;
            Some(entry)
        })
    }

    /// The value of a field.
    pub(in crate::resp) fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        let mut entries = self.entries();
        entries.find_map(|(name, value)| (name == field).then_some(value))
    }

    /// A look-up of so many fields.
    pub(in crate::resp) fn finder(&self, names: usize) -> HashFinder<'a> {
        HashFinder {
            view: *self,
            by_name: (names > FEW_NAMES_MAX).then(|| self.entries().collect()),
        }
    }
}

/// Finds fields: many of them by a map.
#[derive(Debug)]
pub(in crate::resp) struct HashFinder<'a> {
    view: HashView<'a>,
    by_name: Option<HashMap<&'a [u8], &'a [u8]>>,
}

impl<'a> HashFinder<'a> {
    /// The value of a field.
    pub(in crate::resp) fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        match &self.by_name {
            Some(by_name) => by_name.get(field).copied(),
            None => self.view.get(field),
        }
    }
}

/// The first entry and the bytes behind it.
fn split_entry(bytes: &[u8]) -> Result<(Entry<'_>, &[u8]), Corrupt> {
    let (field_len, rest) = take_length(bytes)?;
    let (value_len, rest) = take_length(rest)?;
    let (field, rest) = rest.split_at_checked(field_len).ok_or(Corrupt)?;
    let (value, rest) = rest.split_at_checked(value_len).ok_or(Corrupt)?;
    Ok(((field, value), rest))
}

fn entry_bytes(field: &[u8], value: &[u8]) -> usize {
    length_bytes(field.len()) + length_bytes(value.len()) + field.len() + value.len()
}

/// A hash that is edited.
#[derive(Debug)]
pub(in crate::resp) struct HashEdit<'a> {
    flags: u8,
    /// `None` are those that were taken away.
    fields: Vec<Option<EditedEntry<'a>>>,
    /// Where each field stands, if many names are asked for.
    places: Option<HashMap<&'a [u8], usize>>,
    count: usize,
    bytes: usize,
}

impl<'a> HashEdit<'a> {
    /// The hash that a key has, or none, in an edit that names so many fields.
    pub(in crate::resp) fn begin(view: Option<HashView<'a>>, names: usize) -> Self {
        let fields: Vec<_> = view
            .iter()
            .flat_map(HashView::entries)
            .map(|(field, value)| Some((field, Cow::Borrowed(value))))
            .collect();
        let places = (names > FEW_NAMES_MAX).then(|| {
            let named = fields.iter().enumerate();
            named
                .filter_map(|(place, field)| Some((field.as_ref()?.0, place)))
                .collect()
        });
        HashEdit {
            flags: view.map_or(0, |view| view.head.flags),
            count: fields.len(),
            bytes: HEAD_BYTES + view.map_or(0, |view| view.entries.len()),
            fields,
            places,
        }
    }

    /// How many fields there are.
    pub(in crate::resp) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the value.
    pub(in crate::resp) fn bytes(&self) -> usize {
        self.bytes
    }

    fn place_of(&self, field: &[u8]) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(field).copied(),
            None => self
                .fields
                .iter()
                .position(|it| it.as_ref().is_some_and(|(name, _)| *name == field)),
        }
    }

    /// The value of a field.
    pub(in crate::resp) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        let place = self.place_of(field)?;
        self.fields[place].as_ref().map(|(_, value)| &**value)
    }

    /// Gives a field a value; whether the field is new.
    pub(in crate::resp) fn set(&mut self, field: &'a [u8], value: Cow<'a, [u8]>) -> bool {
        if field.len().max(value.len()) > LISTED_STRING_BYTES_MAX {
            self.flags |= FLAG_LARGE;
        }
        self.bytes += entry_bytes(field, &value);
        if let Some(place) = self.place_of(field) {
            let before = self.fields[place].replace((field, value));
            let (name, before) = before.expect("a place has a field");
            self.bytes -= entry_bytes(name, &before);
            return false;
        }
        if let Some(places) = &mut self.places {
            places.insert(field, self.fields.len());
        }
        self.fields.push(Some((field, value)));
        self.count += 1;
        if self.count > LISTED_MEMBERS_MAX {
            self.flags |= FLAG_LARGE;
        }
        true
    }

    /// So many fields were named at once: Redis takes the hash out of a list before it looks at
    /// them.
    pub(in crate::resp) fn note_many(&mut self, names: usize) {
        if names > LISTED_MEMBERS_MAX {
            self.flags |= FLAG_LARGE;
        }
    }

    /// Takes a field away; whether it was there.
    pub(in crate::resp) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(place) = self.place_of(field) else {
            return false;
        };
        let taken = self.fields[place].take();
        let (name, value) = taken.expect("a place has a field");
        self.bytes -= entry_bytes(name, &value);
        self.count -= 1;
        if let Some(places) = &mut self.places {
            places.remove(field);
        }
        true
    }

    /// The value of the key; `None` if no field is left.
    pub(in crate::resp) fn encode(&self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let head = Head {
            flags: self.flags,
            count: self.count,
        };
        let mut value = Vec::with_capacity(self.bytes);
        value.extend_from_slice(&head.encode(MemberType::Hash));
        for (field, of_field) in self.fields.iter().flatten() {
            put_length(field.len(), &mut value);
            put_length(of_field.len(), &mut value);
            value.extend_from_slice(field);
            value.extend_from_slice(of_field);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use crate::resp::members::codec_tests::{Codec, number};

    use super::*;

    type Model = Vec<(Vec<u8>, Vec<u8>)>;

    const CODEC: Codec = Codec {
        of: MemberType::Hash,
        again: |value| {
            let edit = HashEdit::begin(Some(HashView::read(value)?), 1);
            Ok(edit.encode().expect("a view has fields"))
        },
    };

    fn model_of(value: &[u8]) -> Result<Model, Corrupt> {
        let view = HashView::read(value)?;
        let entries = view
            .entries()
            .map(|(field, value)| (field.to_vec(), value.to_vec()));
        let entries: Model = entries.collect();
        assert_eq!(view.len(), entries.len());
        Ok(entries)
    }

    #[test]
    fn edits_are_what_a_list_of_pairs_says() {
        let mut random = 1;
        for names in [1, 100] {
            let (mut model, mut value): (Model, Option<Vec<u8>>) = (Vec::new(), None);
            for _ in 0..2_000 {
                let before = value.clone();
                let view = before
                    .as_deref()
                    .map(|it| HashView::read(it).expect("good"));
                let mut edit = HashEdit::begin(view, names);
                let field = vec![b'f'; number(&mut random) % 40];
                let place = model.iter().position(|(name, _)| *name == field);
                assert_eq!(edit.get(&field), place.map(|at| &model[at].1[..]));
                match number(&mut random) % 3 {
                    0 => {
                        assert_eq!(edit.remove(&field), place.is_some());
                        if let Some(at) = place {
                            model.remove(at);
                        }
                    }
                    _ => {
                        let of_field = vec![b'v'; number(&mut random) % 300];
                        assert_eq!(edit.set(&field, of_field.clone().into()), place.is_none());
                        match place {
                            Some(at) => model[at].1 = of_field,
                            None => model.push((field.clone(), of_field)),
                        }
                    }
                }
                value = edit.encode();
                assert_eq!(edit.len(), model.len());
                assert_eq!(value.as_ref().map_or(HEAD_BYTES, Vec::len), edit.bytes());
                assert_eq!(
                    value.as_deref().map(model_of),
                    (!model.is_empty()).then(|| Ok(model.clone()))
                );
            }
        }
    }

    #[test]
    fn every_cut_is_refused_and_what_is_read_of_flipped_bits_is_written_as_it_was() {
        let mut edit = HashEdit::begin(None, 1);
        edit.set(b"field", b"value".into());
        edit.set(b"", b"".into());
        edit.set(b"long", vec![7; 300].into());
        CODEC.check_damage(&edit.encode().expect("three fields"));
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_what_is_read_is_written_as_it_was() {
        CODEC.check_any_bytes();
    }

    #[test]
    fn a_hash_that_was_large_once_stays_so() {
        let mut edit = HashEdit::begin(None, 1);
        edit.set(b"f", vec![b'v'; 64].into());
        let small = edit.encode().expect("a field");
        edit.set(b"f", vec![b'v'; 65].into());
        let large = edit.encode().expect("a field");
        assert_eq!((small[2], large[2]), (0, FLAG_LARGE));
        let mut again = HashEdit::begin(Some(HashView::read(&large).expect("good")), 1);
        again.set(b"f", b"short".into());
        assert_eq!(again.encode().expect("a field")[2], FLAG_LARGE);
    }
}
