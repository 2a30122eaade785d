//! The keys of KV.APPLY and KV.RUN, and the token behind them.
//!
//! ```text
//! key [ "KEY" key ]... [ "TOKEN" uuid | "TOKEN" text "SENT" ms ]
//! ```

use crate::limits::{FEW_KEYS_MAX, KEY_BYTES_MAX};
use crate::request::Token;
use crate::slot::slot_of;

use super::parser::Arguments;
use super::token_text::read_token;

/// Which keys a command may name.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedKeysMay {
    /// How many, at most.
    pub(super) count_max: usize,
    /// They may be of several slots.
    pub(super) be_spread: bool,
}

/// Keys, none of them twice, and the name of the write.
#[derive(Clone, Debug)]
pub(super) struct NamedKeys<'a> {
    few: [&'a [u8]; FEW_KEYS_MAX],
    count: usize,
    /// All of them, if they are not few.
    many: Vec<&'a [u8]>,
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
    pub(super) fn read(
        args: Arguments<'a>,
        first: usize,
        may: NamedKeysMay,
    ) -> Result<Self, Vec<u8>> {
        let keys_max = may.count_max;
        let mut read = NamedKeys {
            few: [&[]; FEW_KEYS_MAX],
            count: 0,
            many: Vec::new(),
            token: None,
            next: first + 1,
        };
        read.add(args.get(first), may)?;
        let mut count = 1;
        while read.has_word(args, b"KEY") {
            read.add(args.get(read.next + 1), may)?;
            read.next += 2;
            count += 1;
        }
        if count > keys_max {
            return Err(format!("ERR {count} keys: at most {keys_max}").into_bytes());
        }
        if read.has_a_key_twice() {
            return Err(b"ERR a key stands twice".to_vec());
        }
        if read.has_word(args, b"TOKEN") {
            let text = args.get(read.next + 1);
            read.next += 2;
            let sent = read
                .has_word(args, b"SENT")
                .then(|| args.get(read.next + 1));
            read.next += 2 * usize::from(sent.is_some());
            read.token = Some(read_token(text, sent).map_err(|error| error.text("TOKEN", "SENT"))?);
        }
        Ok(read)
    }

    /// The keys in the order of their numbers.
    pub(super) fn all(&self) -> &[&'a [u8]] {
        match self.many.is_empty() {
            true => &self.few[..self.count],
            false => &self.many,
        }
    }

    fn has_a_key_twice(&self) -> bool {
        let (mut few, mut many) = (self.few, self.many.clone());
        let all = match many.is_empty() {
            true => &mut few[..self.count],
            false => &mut many[..],
        };
        all.sort_unstable();
        all.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Whether this word comes next, with an argument of its own.
    fn has_word(&self, args: Arguments<'_>, word: &[u8]) -> bool {
        self.next + 1 < args.len() && args.get(self.next).eq_ignore_ascii_case(word)
    }

    fn add(&mut self, key: &'a [u8], may: NamedKeysMay) -> Result<(), Vec<u8>> {
        if self.all().len() == may.count_max {
            // The limit is told when all are counted.
            return Ok(());
        }
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(b"ERR a key has 1 to 1024 bytes".to_vec());
        }
        if let Some(first) = self.all().first()
            && !may.be_spread
            && slot_of(key) != slot_of(first)
        {
            return Err(b"CROSSSLOT Keys in request don't hash to the same slot".to_vec());
        }
        match self.few.get_mut(self.count) {
            Some(place) => {
                *place = key;
                self.count += 1;
            }
            None => {
                if self.many.is_empty() {
                    self.many.extend(self.few);
                }
                self.many.push(key);
            }
        }
        Ok(())
    }
}
