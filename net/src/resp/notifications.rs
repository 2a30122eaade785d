//! Keyspace notifications: which events a node announces, and the keys that are to expire.
//!
//! ```text
//! a change of a key with an expiry --> table of its shard, by key and by time
//! the time of a key is over        --> out of the table --> __keyspace@0__:KEY  expired
//!                                                           __keyevent@0__:expired  KEY
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the name of a channel of one key begins with.
const KEYSPACE: &[u8] = b"__keyspace@0__:";
/// The channel of one event.
const KEYEVENT: &[u8] = b"__keyevent@0__:expired";
/// The event.
const EXPIRED: &[u8] = b"expired";
/// Bytes that a key takes in the table beside twice its name.
const ENTRY_BYTES: usize = 160;
/// The letters that Valkey knows.
const KNOWN: &[u8] = b"Ag$lshzxeKEtmdn";

/// What is announced, as `notify-keyspace-events` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notifications {
    /// `K`: on a channel for each key.
    pub by_key: bool,
    /// `E`: on a channel for each event.
    pub by_event: bool,
    /// `x`: the event of keys that have expired.
    pub expired: bool,
}

impl Notifications {
    /// Reads the letters.
    ///
    /// # Errors
    /// What is wrong, for CONFIG SET.
    pub fn read(letters: &[u8]) -> Result<Notifications, String> {
        let mut read = Notifications::default();
        for letter in letters {
            match letter {
                b'K' => read.by_key = true,
                b'E' => read.by_event = true,
                b'x' => read.expired = true,
                other if KNOWN.contains(other) => {
                    let letter = char::from(*other);
                    return Err(format!(
                        "this server announces keys that expire and nothing else: K, E and x are \
                         supported, '{letter}' is not"
                    ));
                }
                _ => {
                    let text = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                    return Err(text.to_string());
                }
            }
        }
        Ok(read)
    }

    /// The letters, in the order of Valkey.
    #[must_use]
    pub fn letters(self) -> String {
        let letters = [
            (self.expired, 'x'),
            (self.by_key, 'K'),
            (self.by_event, 'E'),
        ];
        let is_set = letters.into_iter().filter(|(is_set, _)| *is_set);
        is_set.map(|(_, letter)| letter).collect()
    }

    /// Whether any key is announced.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.expired && (self.by_key || self.by_event)
    }

    /// As a number below 8, and back.
    #[must_use]
    pub fn bits(self) -> u8 {
        u8::from(self.by_key) | u8::from(self.by_event) << 1 | u8::from(self.expired) << 2
    }

    /// The notifications of a number.
    #[must_use]
    pub fn of_bits(bits: u8) -> Notifications {
        Notifications {
            by_key: bits & 1 != 0,
            by_event: bits & 2 != 0,
            expired: bits & 4 != 0,
        }
    }

    /// Shows channel and payload of each message that announces a key, in the order of Redis.
    pub fn messages(self, key: &[u8], mut visit: impl FnMut(&[u8], &[u8])) {
        if self.expired && self.by_key {
            visit(&[KEYSPACE, key].concat(), EXPIRED);
        }
        if self.expired && self.by_event {
            visit(KEYEVENT, key);
        }
    }
}

/// What a node has announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationFigures {
    /// Keys that were announced.
    pub announced: u64,
    /// Keys that are not, because the table was full or messages had no room.
    pub lost: u64,
}

/// The keys of one shard that are to expire, as far as they have changed or were read since this
/// was wanted.
///
/// What must hold: a key is taken out before it is announced, so each expiry is announced once at
/// most.
#[derive(Debug, Default)]
pub struct ExpiringKeys {
    expiries: BTreeMap<Box<[u8]>, u64>,
    due: BTreeSet<(u64, Box<[u8]>)>,
    /// Keys that were changed behind their expiry, or so that they have expired.
    ended: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl ExpiringKeys {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expiries.is_empty() && self.ended.is_empty()
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.expiries.len() + self.ended.len()
    }

    fn bytes_of(key: &[u8]) -> usize {
        2 * key.len() + ENTRY_BYTES
    }

    /// A key has this expiry from `time_ms` on. `false`: it has no room within so many bytes.
    pub fn changes(
        &mut self,
        key: &[u8],
        expiry_ms: Option<u64>,
        time_ms: u64,
        bytes_max: usize,
    ) -> bool {
        let mut had_expired = false;
        if let Some((name, before_ms)) = self.expiries.remove_entry(key) {
            let (_, name) = self.due.take(&(before_ms, name)).expect("both have it");
            had_expired = before_ms <= time_ms;
            if had_expired {
                self.ended.push_back(name);
            } else {
                self.bytes -= Self::bytes_of(&name);
            }
        }
        match expiry_ms {
            Some(expiry_ms) if expiry_ms > time_ms => self.expires(key, expiry_ms, bytes_max),
            // Its change has ended it, and as in Valkey it has expired.
            Some(_) if !had_expired => {
                let has_room = self.takes(key, bytes_max);
                if has_room {
                    self.ended.push_back(key.into());
                }
                has_room
            }
            Some(_) | None => true,
        }
    }

    /// A value of a key was shown that has this expiry. `false`: it has no room.
    pub fn shows(&mut self, key: &[u8], expiry_ms: u64, bytes_max: usize) -> bool {
        self.expiries.contains_key(key) || self.expires(key, expiry_ms, bytes_max)
    }

    fn expires(&mut self, key: &[u8], expiry_ms: u64, bytes_max: usize) -> bool {
        let has_room = self.takes(key, bytes_max);
        if has_room {
            self.expiries.insert(key.into(), expiry_ms);
            self.due.insert((expiry_ms, key.into()));
        }
        has_room
    }

    /// Takes the bytes of a key, if they are left.
    fn takes(&mut self, key: &[u8], bytes_max: usize) -> bool {
        let bytes = self.bytes + Self::bytes_of(key);
        let has_room = bytes <= bytes_max;
        if has_room {
            self.bytes = bytes;
        }
        has_room
    }

    /// Takes out a key that has expired by then.
    pub fn take_expired(&mut self, time_ms: u64) -> Option<Box<[u8]>> {
        let key = match self.ended.pop_front() {
            Some(key) => key,
            None => {
                if self.due.first()?.0 > time_ms {
                    return None;
                }
                let (_, key) = self.due.pop_first()?;
                self.expiries.remove(&key);
                key
            }
        };
        self.bytes -= Self::bytes_of(&key);
        Some(key)
    }

    /// When the next key is to be taken out, in unix milliseconds.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        match self.ended.is_empty() {
            true => self.due.first().map(|(expiry_ms, _)| *expiry_ms),
            false => Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: usize = 1 << 20;

    fn taken(keys: &mut ExpiringKeys, time_ms: u64) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| keys.take_expired(time_ms))
            .map(Vec::from)
            .collect()
    }

    #[test]
    fn letters_are_those_of_valkey_as_far_as_they_are_announced() {
        for (letters, announced) in [
            ("", ""),
            ("Ex", "xE"),
            ("KEx", "xKE"),
            ("xK", "xK"),
            ("E", "E"),
        ] {
            let read = Notifications::read(letters.as_bytes()).expect("known");
            assert_eq!(read.letters(), announced);
            assert_eq!(Notifications::of_bits(read.bits()), read);
            assert_eq!(read.is_any(), announced.len() > 1);
        }
        let refused = Notifications::read(b"KEA").expect_err("not supported");
        assert!(refused.contains("'A' is not"), "{refused}");
        let refused = Notifications::read(b"Q").expect_err("unknown");
        assert!(refused.starts_with("Invalid event class"), "{refused}");
    }

    #[test]
    fn each_expiry_is_taken_once_and_in_the_order_of_times() {
        let mut keys = ExpiringKeys::default();
        for (key, expiry_ms) in [(b"c", 30), (b"a", 10), (b"b", 20)] {
            assert!(keys.changes(key, Some(expiry_ms), 1, MUCH));
        }
        assert_eq!(keys.next_ms(), Some(10));
        assert_eq!(taken(&mut keys, 9), [b""; 0]);
        assert_eq!(taken(&mut keys, 20), [b"a", b"b"]);
        assert_eq!(taken(&mut keys, 29), [b""; 0]);
        // Longer, deleted, and for the past.
        assert!(keys.changes(b"c", Some(40), 29, MUCH));
        assert_eq!(taken(&mut keys, 39), [b""; 0]);
        assert!(keys.changes(b"c", None, 39, MUCH));
        assert!(keys.is_empty() && keys.bytes == 0);
        assert!(keys.changes(b"d", Some(39), 39, MUCH));
        assert_eq!(taken(&mut keys, 39), [b"d"]);
        assert!(keys.is_empty() && keys.bytes == 0);
        // What was written anew behind its expiry has expired before.
        assert!(keys.changes(b"e", Some(50), 41, MUCH));
        assert!(keys.changes(b"e", Some(90), 50, MUCH));
        assert_eq!((keys.next_ms(), keys.len()), (Some(0), 2));
        assert_eq!(taken(&mut keys, 50), [b"e"]);
        assert!(keys.shows(b"e", 90, MUCH));
        assert_eq!(taken(&mut keys, 100), [b"e"]);
        assert!(keys.is_empty() && keys.bytes == 0);
    }

    #[test]
    fn what_has_no_room_is_not_kept_and_what_is_kept_is_exact() {
        let mut keys = ExpiringKeys::default();
        let bytes_max = 3 * ExpiringKeys::bytes_of(b"a");
        for key in [b"a", b"b", b"c"] {
            assert!(keys.changes(key, Some(9), 1, bytes_max));
        }
        assert!(!keys.changes(b"d", Some(9), 1, bytes_max));
        assert!(
            keys.changes(b"a", Some(8), 1, bytes_max),
            "in its own place"
        );
        assert!(keys.changes(b"b", None, 1, bytes_max));
        assert!(keys.shows(b"d", 7, bytes_max));
        assert_eq!(taken(&mut keys, 9), [b"d", b"a", b"c"]);
    }

    #[test]
    fn messages_are_those_of_redis() {
        let all = Notifications::read(b"KEx").expect("known");
        let mut announced = Vec::new();
        all.messages(b"k", |channel, payload| {
            announced.push((channel.to_vec(), payload.to_vec()));
        });
        let expected = [
            (b"__keyspace@0__:k".to_vec(), b"expired".to_vec()),
            (b"__keyevent@0__:expired".to_vec(), b"k".to_vec()),
        ];
        assert_eq!(announced, expected);
    }
}
