//! The keys of KV.APPLY and KV.RUN, and the token behind them.
//!
//! ```text
//! key [ "KEY" key ]... [ "TOKEN" uuid ]
//! ```

use crate::limits::{APPLY_KEYS_MAX, KEY_BYTES_MAX};
use crate::request::Token;
use crate::slot::slot_of;

use super::parser::Arguments;

/// Keys of one slot, none of them twice, and the name of the write.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedKeys<'a> {
    keys: [&'a [u8]; APPLY_KEYS_MAX],
    count: usize,
    /// The one that the command itself names.
    pub(super) token: Option<Token>,
    /// The number of the first argument behind all that.
    pub(super) next: usize,
}

impl<'a> NamedKeys<'a> {
    /// Reads them from the argument `first` on, which there is.
    ///
    /// # Errors
    /// The error of RESP.
    pub(super) fn read(args: Arguments<'a>, first: usize) -> Result<Self, Vec<u8>> {
        let mut read = NamedKeys {
            keys: [&[]; APPLY_KEYS_MAX],
            count: 0,
            token: None,
            next: first + 1,
        };
        read.add(args.get(first))?;
        while read.has_word(args, b"KEY") {
            read.add(args.get(read.next + 1))?;
            read.next += 2;
        }
        if read.count > APPLY_KEYS_MAX {
            let text = format!("ERR {} keys: at most {APPLY_KEYS_MAX}", read.count);
            return Err(text.into_bytes());
        }
        if read.has_word(args, b"TOKEN") {
            let text = std::str::from_utf8(args.get(read.next + 1)).unwrap_or_default();
            let token = text.parse::<Token>();
            let refused = |error| format!("ERR TOKEN '{text}': {error}").into_bytes();
            read.token = Some(token.map_err(refused)?);
            read.next += 2;
        }
        Ok(read)
    }

    /// The keys in the order of their numbers.
    pub(super) fn all(&self) -> &[&'a [u8]] {
        &self.keys[..self.count]
    }

    /// Whether this word comes next, with an argument of its own.
    fn has_word(&self, args: Arguments<'_>, word: &[u8]) -> bool {
        self.next + 1 < args.len() && args.get(self.next).eq_ignore_ascii_case(word)
    }

    fn add(&mut self, key: &'a [u8]) -> Result<(), Vec<u8>> {
        self.count += 1;
        if self.count > APPLY_KEYS_MAX {
            // The limit is told when all are counted.
            return Ok(());
        }
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(b"ERR a key has 1 to 1024 bytes".to_vec());
        }
        let place = self.count - 1;
        if self.keys[..place].contains(&key) {
            return Err(b"ERR a key stands twice".to_vec());
        }
        if place > 0 && slot_of(key) != slot_of(self.keys[0]) {
            return Err(b"CROSSSLOT Keys in request don't hash to the same slot".to_vec());
        }
        self.keys[place] = key;
        Ok(())
    }
}
