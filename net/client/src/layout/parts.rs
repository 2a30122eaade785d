//! [`Parts`]: the bytes of a value that is being made.

use bytes::Bytes;
use zerocopy::{FromBytes, IntoBytes};

use crate::layout::plain_bytes::PlainBytes;
use crate::layout::text::Text;

/// The fixed fields, and behind them the texts.
#[derive(Clone, Debug)]
pub struct Parts {
    value: Vec<u8>,
    fixed: usize,
    /// Offsets of the fields whose texts stand in `value`, in the order in which they stand there.
    texts: Vec<usize>,
    /// The texts stand in the order of their fields, and nothing stands between them.
    is_whole: bool,
}

impl Parts {
    /// So many bytes of fixed fields, all zero.
    pub(super) fn zeros(bytes: usize) -> Parts {
        Parts {
            value: vec![0; bytes],
            fixed: bytes,
            texts: Vec::new(),
            is_whole: true,
        }
    }

    /// Writes a field at an offset.
    pub fn set(&mut self, offset: usize, field: &impl PlainBytes) {
        let bytes = field.as_bytes();
        let end = offset + bytes.len();
        assert!(end <= self.fixed, "a field ends within the fixed fields");
        self.value[offset..end].copy_from_slice(bytes);
        // A nested layout that is written whole takes the texts before it away.
        let before = self.texts.len();
        self.texts.retain(|at| !(offset..end).contains(at));
        self.is_whole &= self.texts.len() == before;
    }

    /// Writes the text of the field at an offset.
    pub(super) fn set_text(&mut self, offset: usize, text: &str) {
        self.is_whole &= self.texts.last().is_none_or(|last| *last < offset);
        let place = Text::at(self.value.len(), text.len());
        self.value[offset..offset + size_of::<Text>()].copy_from_slice(place.as_bytes());
        self.value.extend_from_slice(text.as_bytes());
        self.texts.push(offset);
    }

    /// The texts behind the fixed fields, in the order of their fields.
    pub(super) fn finish(mut self) -> Bytes {
        if !self.is_whole {
            self.put_in_order();
        }
        self.value.into()
    }

    /// Moves each text to its place, and drops those that were written over.
    #[cold]
    fn put_in_order(&mut self) {
        self.texts.sort_unstable();
        self.texts.dedup();
        let mut whole = self.value[..self.fixed].to_vec();
        for offset in &self.texts {
            let place = *offset..*offset + size_of::<Text>();
            let text = Text::read_from_bytes(&whole[place.clone()]).expect("a text has its size");
            let text = text
                .of(&self.value, self.fixed)
                .expect("it was written there");
            let moved = Text::at(whole.len(), text.len());
            whole[place].copy_from_slice(moved.as_bytes());
            whole.extend_from_slice(text.as_bytes());
        }
        self.value = whole;
    }
}
