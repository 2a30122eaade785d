//! The field values in the answer to a change. They are few, so they need no block of the heap.

use std::fmt;
use std::ops::Deref;

/// As many values need no block of the heap.
const INLINE_MAX: usize = 4;

/// New field values, in the order of their effects; a slice of `u64`.
#[derive(Clone)]
pub struct Fields(Repr);

#[derive(Clone)]
enum Repr {
    Inline {
        count: u8,
        values: [u64; INLINE_MAX],
    },
    Heap(Box<[u64]>),
}

impl Fields {
    /// The values of a reply, eight little-endian bytes each. Bytes behind the last whole value are
    /// ignored.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Fields {
        let (eights, _) = bytes.as_chunks::<8>();
        let numbers = eights.iter().map(|eight| u64::from_le_bytes(*eight));
        Fields(match u8::try_from(eights.len()) {
            Ok(count) if eights.len() <= INLINE_MAX => {
                let mut values = [0; INLINE_MAX];
                values
                    .iter_mut()
                    .zip(numbers)
                    .for_each(|(value, number)| *value = number);
                Repr::Inline { count, values }
            }
            _ => Repr::Heap(numbers.collect()),
        })
    }
}

impl Deref for Fields {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match &self.0 {
            Repr::Inline { count, values } => &values[..usize::from(*count)],
            Repr::Heap(values) => values,
        }
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        **self == **other
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_values_comes_back_as_it_was() {
        for count in 0..=64u64 {
            let values: Vec<u64> = (0..count).map(|n| n.wrapping_mul(u64::MAX / 7)).collect();
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            let fields = Fields::of_bytes(&bytes);
            assert_eq!(*fields, values[..]);
            assert_eq!(fields, fields.clone());
            assert_eq!(fields == Fields::of_bytes(&[]), count == 0);
        }
    }
}
