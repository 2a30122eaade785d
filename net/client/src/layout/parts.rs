//! [`Parts`]: the bytes of a value that is being made.

use std::collections::BTreeMap;

use bytes::Bytes;
use zerocopy::IntoBytes;

use crate::layout::plain_bytes::PlainBytes;
use crate::layout::text::Text;

/// The fixed fields, and the texts by the offsets of their fields.
#[derive(Clone, Debug)]
pub struct Parts {
    fixed: Vec<u8>,
    texts: BTreeMap<usize, String>,
}

impl Parts {
    /// So many bytes of fixed fields, all zero.
    pub(super) fn zeros(bytes: usize) -> Parts {
        Parts {
            fixed: vec![0; bytes],
            texts: BTreeMap::new(),
        }
    }

    /// Writes a field at an offset.
    pub fn set(&mut self, offset: usize, field: &impl PlainBytes) {
        let bytes = field.as_bytes();
        self.fixed[offset..offset + bytes.len()].copy_from_slice(bytes);
        // A nested layout that is written whole takes the texts before it away.
        let gone: Vec<usize> = self
            .texts
            .range(offset..offset + bytes.len())
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            self.texts.remove(&at);
        }
    }

    /// Writes the text of the field at an offset.
    pub(super) fn set_text(&mut self, offset: usize, text: &str) {
        self.texts.insert(offset, text.into());
    }

    /// The texts behind the fixed fields, in the order of their fields.
    pub(super) fn finish(mut self) -> Bytes {
        let mut texts = Vec::new();
        for (offset, text) in &self.texts {
            let place = Text::at(self.fixed.len() + texts.len(), text.len());
            texts.extend_from_slice(text.as_bytes());
            self.fixed[*offset..*offset + size_of::<Text>()].copy_from_slice(place.as_bytes());
        }
        self.fixed.extend_from_slice(&texts);
        self.fixed.into()
    }
}
