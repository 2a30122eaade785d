//! The first bytes of prefixes. They tell of most keys that no prefix is one of theirs, without a
//! search.

/// The bytes with which some prefixes begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstBytes([u64; 4]);

impl FirstBytes {
    /// Whether one of the prefixes may be one of `key`. `false` is certain.
    #[inline(always)]
    pub(crate) fn may_begin(&self, key: &[u8]) -> bool {
        // No key is empty. The bit of the empty prefix is that of every byte.
        let first = key.first().copied().unwrap_or_default();
        self.0[usize::from(first / 64)] >> (first % 64) & 1 == 1
    }
}

impl<'p> FromIterator<&'p [u8]> for FirstBytes {
    /// Those of these prefixes. Every key begins with the empty one.
    fn from_iter<T: IntoIterator<Item = &'p [u8]>>(prefixes: T) -> Self {
        let mut all = FirstBytes::default();
        for prefix in prefixes {
            match prefix.first() {
                Some(&first) => all.0[usize::from(first / 64)] |= 1 << (first % 64),
                None => return FirstBytes([u64::MAX; 4]),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(prefixes: &[&[u8]]) -> FirstBytes {
        prefixes.iter().copied().collect()
    }

    #[test]
    fn a_key_may_begin_with_a_prefix_if_their_first_bytes_are_the_same() {
        let none = bytes_of(&[]);
        let some = bytes_of(&[b"a", b"\xFFlong", b"\0", b"a longer one"]);
        let all = bytes_of(&[b"z", b""]);
        for first in 0..=u8::MAX {
            for key in [&[first][..], &[first, 0], &[first, first, first]] {
                assert!(!none.may_begin(key), "{key:?}");
                let is_any = [b'a', 0xFF, 0].contains(&first);
                assert_eq!(some.may_begin(key), is_any, "{key:?}");
                assert!(all.may_begin(key), "{key:?}");
            }
        }
    }
}
