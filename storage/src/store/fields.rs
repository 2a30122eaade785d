//! Edits of the fields of a value in its cell, and what undoes them.

use crate::planted::{Bug, is_planted};

/// The bytes of a field before an edit.
#[derive(Clone, Copy, Debug)]
pub struct FieldBefore {
    /// Where the field begins in the value.
    pub offset: u32,
    /// Its length in bytes, at most 8.
    pub width: u8,
    /// Its bytes, from its first one on.
    pub bytes: [u8; 8],
}

impl FieldBefore {
    /// The bytes of `field`, which is 1, 2, 4 or 8 bytes from `start` on of its value.
    ///
    /// # Panics
    /// If the field has another length, or begins beyond 4 GiB.
    #[inline(always)]
    fn new(start: usize, field: &[u8]) -> Self {
        let mut bytes = [0; 8];
        // Fixed lengths: a copy of a variable length would be a call.
        match *field {
            [a] => bytes[0] = a,
            [a, b] => bytes[..2].copy_from_slice(&[a, b]),
            [a, b, c, d] => bytes[..4].copy_from_slice(&[a, b, c, d]),
            [a, b, c, d, e, f, g, h] => bytes = [a, b, c, d, e, f, g, h],
            _ => panic!("a field of {} bytes", field.len()),
        }
        FieldBefore {
            offset: u32::try_from(start).expect("a value has fewer bytes"),
            width: u8::try_from(field.len()).expect("at most 8"),
            bytes,
        }
    }
}

/// An edit of a field that is undone if the change is not committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldEdit {
    which: u16,
    before: FieldBefore,
}

impl FieldEdit {
    /// An edit of `field`, which is at most 8 bytes from `start` on of the value of a key.
    #[inline(always)]
    pub(super) fn new(which: usize, start: usize, field: &[u8]) -> Self {
        FieldEdit {
            which: u16::try_from(which).expect("a record has fewer parts"),
            before: FieldBefore::new(start, field),
        }
    }

    /// The number of the key in its change.
    pub(super) fn which(&self) -> usize {
        usize::from(self.which)
    }

    /// The edits that are undone of these, in the order in which they are.
    pub(super) fn undone(edits: &[FieldEdit]) -> impl Iterator<Item = &FieldEdit> {
        let is_last_only = is_planted(Bug::UndoOnlyLast);
        edits
            .iter()
            .rev()
            .take(if is_last_only { 1 } else { usize::MAX })
    }

    /// Gives the field of `value` its bytes back.
    pub(super) fn undo(&self, value: &mut [u8]) {
        let FieldBefore {
            offset,
            width,
            bytes,
        } = self.before;
        let width = usize::from(width);
        value[offset as usize..][..width].copy_from_slice(&bytes[..width]);
    }
}

/// The value of one key of a change, whose fields are edited.
#[derive(Debug)]
pub struct Fields<'c> {
    which: u16,
    value: &'c mut [u8],
    edits: &'c mut Vec<FieldEdit>,
    is_edited: &'c mut bool,
}

impl<'c> Fields<'c> {
    #[inline]
    pub(super) fn new(
        which: usize,
        value: &'c mut [u8],
        edits: &'c mut Vec<FieldEdit>,
        is_edited: &'c mut bool,
    ) -> Self {
        Fields {
            which: u16::try_from(which).expect("a record has fewer parts"),
            value,
            edits,
            is_edited,
        }
    }

    /// The same value, for as long as this one is left alone.
    #[inline(always)]
    pub fn again(&mut self) -> Fields<'_> {
        Fields {
            which: self.which,
            value: self.value,
            edits: self.edits,
            is_edited: self.is_edited,
        }
    }

    /// The number of the key in its change.
    #[inline]
    #[must_use]
    pub fn which(&self) -> usize {
        usize::from(self.which)
    }

    /// Bytes of the value.
    #[inline]
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.value.len()
    }

    /// Runs `edit` on the value. If `edit` changes a field, it returns the bytes before, for an
    /// undo.
    #[inline(always)]
    pub fn edit<T>(&mut self, edit: impl FnOnce(&mut [u8]) -> (T, Option<FieldBefore>)) -> T {
        let (outcome, before) = edit(self.value);
        if let Some(before) = before {
            let which = self.which;
            self.edits.push(FieldEdit { which, before });
            *self.is_edited = true;
        }
        outcome
    }
}
