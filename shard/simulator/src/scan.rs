//! The scans of a client: a page at a time beside all other traffic, over lost connections and
//! starts of the server. An entry of a page is judged as the answer to a read of its key. A key
//! that a whole scan lacks is judged as the answer of a read that did not find it.

use std::collections::BTreeSet;

use penstock_net::level::AckLevel;
use penstock_net::reply::{ITEM_FLAG_EXPIRY, ReplyItem};
use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use penstock_net::status::Status;

use crate::holds;
use crate::oracle::{Glimpse, Oracle, Violation};
use crate::random::Random;
use crate::sales;
use crate::visits;

/// One scan, from its first page to its last.
pub struct Scan {
    /// It is to tell all, after all faults.
    pub is_last: bool,
    cursor: u64,
    prefix: &'static [u8],
    wants_values: bool,
    level: AckLevel,
    /// What was known at its begin, and the latest times since.
    begun: Glimpse,
    /// What was known when the page that is on its way was asked for.
    asked: Option<Glimpse>,
    shown: BTreeSet<usize>,
}

impl Scan {
    /// A scan of any kind that begins now.
    pub fn begin(random: &mut Random, level: AckLevel, now: Glimpse) -> Scan {
        Scan {
            is_last: false,
            cursor: 0,
            prefix: random.pick(&[b"", b"", b"k", b"{t1"]),
            wants_values: random.chance(700_000),
            level,
            begun: now,
            asked: None,
            shown: BTreeSet::new(),
        }
    }

    /// A scan of everything that begins now, when all is quiet.
    pub fn last(now: Glimpse) -> Scan {
        Scan {
            is_last: true,
            cursor: 0,
            prefix: b"",
            wants_values: true,
            level: AckLevel::Disk,
            begun: now,
            asked: None,
            shown: BTreeSet::new(),
        }
    }

    /// The level that its pages ask for.
    pub fn level(&self) -> AckLevel {
        self.level
    }

    /// Whether a page is on its way.
    pub fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The item that asks for the next page.
    pub fn ask(&mut self, random: &mut Random, now: Glimpse) -> Vec<u8> {
        self.asked = Some(now);
        let mut item = Vec::new();
        ScanRequest {
            cursor: self.cursor,
            prefix: self.prefix,
            entries_max: random.pick(&[1, 4, 30, 1024]),
            bytes_max: random.pick(&[4096, 262_144]),
            wants_values: self.wants_values,
            wants_types: false,
        }
        .write(&mut item);
        item
    }

    /// No answer will come; the page may be asked for again.
    pub fn lose(&mut self) {
        self.asked = None;
    }

    /// The server ended without a clean stop: what was shown before may be gone.
    pub fn crash(&mut self, oracle: &Oracle) {
        oracle.lower(&mut self.begun);
    }

    /// A page came; whether it was the last. `time_ms` is the time of a key's shard.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn answer(
        &mut self,
        now_us: u64,
        oracle: &mut Oracle,
        item: &ReplyItem<'_>,
        time_ms: impl Fn(usize) -> u64,
    ) -> Result<bool, Violation> {
        let asked = self.asked.take().ok_or("a page that nobody asked for")?;
        let status = item.head.status;
        if status != Status::Ok {
            let is_damage = matches!(status, Status::Io | Status::Corrupt);
            let is_honest = match is_damage {
                true => oracle.may_fail_to_read,
                false => {
                    matches!(status, Status::Busy | Status::Deadline | Status::Draining)
                        && !oracle.must_execute
                }
            };
            if !is_honest {
                return Err(format!(
                    "a page was answered {}: {}",
                    status.name(),
                    String::from_utf8_lossy(item.value)
                ));
            }
            // A key that cannot be read ends a scan.
            return Ok(is_damage);
        }
        if item.head.flags & ITEM_FLAG_EXPIRY != 0 || item.head.level < self.level {
            return Err(format!("a page has the head {:?}", item.head));
        }
        let page = ScanPage::read(item.value).map_err(|refusal| refusal.to_string())?;
        let mut slot = 0;
        for entry in page.entries() {
            // Sales, holds and visits have judges of their own.
            let mut prefixes = [sales::PREFIX, holds::PREFIX].into_iter();
            let is_of_others =
                prefixes.any(|it| entry.key.starts_with(it)) || visits::is_key(entry.key);
            if is_of_others && entry.key.starts_with(self.prefix) {
                continue;
            }
            let key = oracle
                .key_named(entry.key)
                .filter(|_| entry.key.starts_with(self.prefix))
                .ok_or_else(|| format!("a scan told {:?}, which is no key of it", entry.key))?;
            if oracle.keys[key].slot < slot {
                return Err(format!("a page goes back from slot {slot} to key {key}"));
            }
            slot = oracle.keys[key].slot;
            let value = match entry.value {
                ScanValue::Bytes(value) if self.wants_values => Some(value),
                ScanValue::NotAsked if !self.wants_values => None,
                other => return Err(format!("a scan told key {key} with {other:?}")),
            };
            let mut head = item.head;
            head.version = entry.version;
            let read = ReplyItem {
                head,
                expiry: None,
                standing: None,
                value: value.unwrap_or_default(),
            };
            oracle.time_ms = time_ms(key);
            oracle.note_shown(now_us, &asked, key, self.level, value.is_some(), &read)?;
            self.shown.insert(key);
        }
        Oracle::pass(&mut self.begun, &time_ms);
        self.cursor = page.cursor;
        if self.cursor != 0 {
            return Ok(false);
        }
        for key in 0..oracle.keys.len() {
            if !self.shown.contains(&key) && oracle.keys[key].name.starts_with(self.prefix) {
                oracle.time_ms = self.begun.times_ms[key];
                let mut head = item.head;
                head.status = Status::NotFound;
                let read = ReplyItem {
                    head,
                    expiry: None,
                    standing: None,
                    value: &[],
                };
                oracle
                    .note_shown(now_us, &self.begun, key, self.level, true, &read)
                    .map_err(|wrong| format!("a scan passed over a key: {wrong}"))?;
            }
        }
        Ok(true)
    }
}
