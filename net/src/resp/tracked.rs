//! The keys that clients have read and may keep: the table of CLIENT TRACKING for one shard, and
//! the prefixes of those that want to know of every key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Keys that the connections of a node track together, at most.
pub const TRACKED_KEYS_MAX: usize = 1_000_000;
/// Bytes that a tracked key takes beside its name, ...
const KEY_BYTES: usize = 128;
/// ... for its expiry beside another copy of its name, ...
const EXPIRY_BYTES: usize = 64;
/// ... and for each connection.
const ITEM_BYTES: usize = 16;

/// One tracked key.
#[derive(Debug, Default)]
struct Tracked {
    /// The connections, by number.
    clients: Vec<u64>,
    /// When the value expires that they may keep, in unix milliseconds.
    expiry_ms: Option<u64>,
}

/// The keys of one shard that connections track.
///
/// What must hold: a connection that has read a key stands in the entry of the key until the
/// connection gets the invalidation. An invalidation takes the entry out.
#[derive(Debug, Default)]
pub struct TrackedKeys {
    keys: BTreeMap<Box<[u8]>, Tracked>,
    /// Those that expire, by time.
    due: BTreeSet<(u64, Box<[u8]>)>,
    items: usize,
    bytes: usize,
    /// The key that has given way last.
    gave_way: Box<[u8]>,
}

impl TrackedKeys {
    /// How many keys there are.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// How many connections track them, each counted for each of its keys.
    #[must_use]
    pub fn items(&self) -> usize {
        self.items
    }

    /// Bytes that all of it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn entry(&mut self, key: &[u8]) -> &mut Tracked {
        if !self.keys.contains_key(key) {
            self.bytes += KEY_BYTES + key.len();
            self.keys.insert(key.into(), Tracked::default());
        }
        self.keys.get_mut(key).expect("it is there")
    }

    /// A connection reads a key.
    pub fn add(&mut self, key: &[u8], client: u64) {
        let clients = &mut self.entry(key).clients;
        if let Err(at) = clients.binary_search(&client) {
            clients.insert(at, client);
            self.items += 1;
            self.bytes += ITEM_BYTES;
        }
    }

    /// Whether a key is tracked by itself.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// The value that is kept of a key expires then.
    pub fn expires(&mut self, key: &[u8], expiry_ms: u64) {
        let before = self.entry(key).expiry_ms.replace(expiry_ms);
        if before == Some(expiry_ms) {
            return;
        }
        match before {
            Some(before) => {
                self.due.remove(&(before, Box::from(key)));
            }
            None => self.bytes += EXPIRY_BYTES + key.len(),
        }
        self.due.insert((expiry_ms, key.into()));
    }

    /// Takes a key out: who tracks it.
    pub fn take(&mut self, key: &[u8]) -> Option<Vec<u64>> {
        let (key, tracked) = self.keys.remove_entry(key)?;
        self.items -= tracked.clients.len();
        self.bytes -= KEY_BYTES + key.len() + tracked.clients.len() * ITEM_BYTES;
        if let Some(expiry_ms) = tracked.expiry_ms {
            self.bytes -= EXPIRY_BYTES + key.len();
            self.due.remove(&(expiry_ms, key));
        }
        Some(tracked.clients)
    }

    /// When the first of the values expires, in unix milliseconds.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.due.first().map(|(expiry_ms, _)| *expiry_ms)
    }

    /// Takes out a key whose value has expired by then.
    pub fn take_expired(&mut self, time_ms: u64) -> Option<(Box<[u8]>, Vec<u64>)> {
        let (expiry_ms, key) = self.due.first()?;
        if *expiry_ms > time_ms {
            return None;
        }
        let key = key.clone();
        let clients = self.take(&key).expect("it has an expiry");
        Some((key, clients))
    }

    /// Takes out the key behind the one that gave way last, if there are more than so many keys, or
    /// they take more bytes.
    pub fn take_beyond(
        &mut self,
        keys_max: usize,
        bytes_max: usize,
    ) -> Option<(Box<[u8]>, Vec<u64>)> {
        if self.keys.len() <= keys_max && self.bytes <= bytes_max {
            return None;
        }
        let behind = (Bound::Excluded(&*self.gave_way), Bound::Unbounded);
        let next = self.keys.range::<[u8], _>(behind).next();
        let next = next.or_else(|| self.keys.iter().next());
        let key = next.map(|(key, _)| key.clone())?;
        let clients = self.take(&key).expect("it is there");
        self.gave_way = key.clone();
        Some((key, clients))
    }

    /// Takes all keys out.
    #[must_use]
    pub fn take_all(&mut self) -> TrackedKeys {
        std::mem::take(self)
    }
}

/// The prefixes of connections that want to know of every key that begins so.
///
/// What must hold: no prefix of a connection begins as another one of it does, but that of all keys
/// may stand beside them. So a key has two of them at most.
#[derive(Debug, Default)]
pub struct TrackedPrefixes {
    prefixes: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    /// How many prefixes have this length.
    lengths: BTreeMap<usize, usize>,
}

impl TrackedPrefixes {
    /// How many different prefixes there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.prefixes.len()
    }

    /// A connection wants to know of a prefix.
    pub fn add(&mut self, prefix: &[u8], client: u64) {
        if let Some(clients) = self.prefixes.get_mut(prefix) {
            clients.insert(client);
            return;
        }
        *self.lengths.entry(prefix.len()).or_default() += 1;
        self.prefixes
            .insert(prefix.into(), BTreeSet::from([client]));
    }

    /// It does not any more.
    pub fn remove(&mut self, prefix: &[u8], client: u64) {
        let Some(clients) = self.prefixes.get_mut(prefix) else {
            return;
        };
        clients.remove(&client);
        if clients.is_empty() {
            self.prefixes.remove(prefix);
            let len = prefix.len();
            let others = self.lengths.get_mut(&len).expect("it was counted");
            *others -= 1;
            if *others == 0 {
                self.lengths.remove(&len);
            }
        }
    }

    /// Who wants to know of a key.
    pub fn clients_of(&self, key: &[u8]) -> impl Iterator<Item = u64> {
        let lengths = self.lengths.range(..=key.len());
        let known = lengths.filter_map(|(len, _)| self.prefixes.get(&key[..*len]));
        known.flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_out_with_all_who_track_it_and_leaves_nothing() {
        let mut tracked = TrackedKeys::default();
        for client in [7, 3, 7, 5] {
            tracked.add(b"a", client);
        }
        tracked.add(b"b", 3);
        assert_eq!((tracked.keys(), tracked.items()), (2, 4));
        tracked.expires(b"a", 50);
        tracked.expires(b"a", 50);
        tracked.expires(b"a", 40);
        assert_eq!(tracked.next_expiry_ms(), Some(40));
        assert_eq!(tracked.take(b"a"), Some(vec![3, 5, 7]));
        assert_eq!(tracked.take(b"a"), None);
        assert_eq!(tracked.next_expiry_ms(), None);
        assert_eq!(tracked.take(b"b"), Some(vec![3]));
        assert_eq!(
            (tracked.keys(), tracked.items(), tracked.bytes()),
            (0, 0, 0)
        );
    }

    #[test]
    fn values_that_expire_are_taken_out_by_their_time_and_others_stay() {
        let mut tracked = TrackedKeys::default();
        for (key, expiry_ms) in [(b"c", 30), (b"a", 10), (b"b", 20)] {
            tracked.add(key, 1);
            tracked.expires(key, expiry_ms);
        }
        tracked.add(b"d", 1);
        assert_eq!(tracked.take_expired(9), None);
        let mut taken = Vec::new();
        while let Some((key, clients)) = tracked.take_expired(20) {
            taken.push((key.to_vec(), clients));
        }
        let expected = [(b"a".to_vec(), vec![1]), (b"b".to_vec(), vec![1])];
        assert_eq!(taken, expected);
        assert_eq!((tracked.keys(), tracked.next_expiry_ms()), (2, Some(30)));
    }

    #[test]
    fn keys_beyond_a_bound_give_way_in_turn() {
        let mut tracked = TrackedKeys::default();
        for key in 0..8u8 {
            tracked.add(&[key], 1);
        }
        let give_way = |tracked: &mut TrackedKeys, keys_max, bytes_max| {
            let mut gone = Vec::new();
            while let Some((key, clients)) = tracked.take_beyond(keys_max, bytes_max) {
                assert_eq!(clients, [1]);
                gone.push(key[0]);
            }
            gone
        };
        assert_eq!(give_way(&mut tracked, 6, usize::MAX), [0, 1]);
        tracked.add(&[0], 1);
        assert_eq!(give_way(&mut tracked, 6, usize::MAX), [2]);
        let bytes_max = tracked.bytes() - 1;
        assert_eq!(give_way(&mut tracked, 100, bytes_max), [3]);
        assert_eq!(give_way(&mut tracked, 0, usize::MAX), [4, 5, 6, 7, 0]);
        assert_eq!(tracked.bytes(), 0);
    }

    #[test]
    fn a_key_is_of_each_prefix_that_it_begins_with() {
        let mut prefixes = TrackedPrefixes::default();
        let all = [(&b""[..], 1), (b"shop:", 2), (b"shop:", 3), (b"shop:1", 4)];
        all.iter()
            .for_each(|(prefix, it)| prefixes.add(prefix, *it));
        let of =
            |prefixes: &TrackedPrefixes, key: &[u8]| prefixes.clients_of(key).collect::<Vec<_>>();
        assert_eq!(of(&prefixes, b"shop:12"), [1, 2, 3, 4]);
        assert_eq!(of(&prefixes, b"shop:2"), [1, 2, 3]);
        assert_eq!(of(&prefixes, b"sho"), [1]);
        assert_eq!(prefixes.count(), 3);
        all.iter()
            .for_each(|(prefix, it)| prefixes.remove(prefix, *it));
        prefixes.remove(b"shop:", 2);
        assert_eq!(of(&prefixes, b"shop:12"), [] as [u64; 0]);
        assert!(prefixes.count() == 0 && prefixes.lengths.is_empty());
    }
}
