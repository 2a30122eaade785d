//! The tracker of a shard: it gets the keys that change, for clients that keep values (CLIENT
//! TRACKING).
//!
//! A shard knows no clients: the shell that makes a shard gives it an implementation. The shard
//! notes what changes in a step ([`ChangedKeys`]), and tells it when the step ends. No answer of
//! the step has left then. While nobody wants to know, a step costs two branches, and a change one.

use penstock_storage::if_planted;
use penstock_storage::io::Blocks;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{Data, KeyChange, Noted, Store, Writer};

use crate::cluster::ClusterMember;
use crate::mail::SessionId;
use crate::now::Now;
use crate::requests::parking::Origin;

/// Who is told of keys that change.
pub trait Tracker {
    /// Whether anybody wants to know. Asked as each step begins: a reader that wants to know is one
    /// before the step that shows him a value.
    fn is_wanted(&self) -> bool;

    /// A key has changed at this time, in unix milliseconds.
    fn changed(&self, key: &[u8], change: KeyChange, time_ms: u64);

    /// A key is about to change: this connection has asked for that. Who reads it from now on sees
    /// it changed, unless the change is given up.
    fn comes(&self, key: &[u8], writer: Option<Writer>);

    /// A key has changed of which was said that it would.
    fn made(&self, key: &[u8], change: KeyChange, time_ms: u64);

    /// A value of a key was shown that expires then.
    fn shown(&self, key: &[u8], expiry_ms: u64);

    /// A script of this connection has read a key.
    fn read_by_script(&self, key: &[u8], writer: Writer);

    /// Any key may have changed, and changes may come that nobody tells.
    fn all_changed(&self);

    /// All keys have changed here, and none of them was told: they are flushed, or more than are
    /// noted one by one.
    fn all_replaced(&self) {}

    /// It is so late, in unix milliseconds. When the next value expires that was shown.
    fn expire(&self, time_ms: u64) -> Option<u64>;
}

/// The connection of a shard, as changes of keys name it.
#[must_use]
pub fn writer_of(shard: u16, session: SessionId) -> Writer {
    let session = u64::from(session.generation) << 32 | u64::from(session.index);
    Writer { shard, session }
}

/// What a shard tells of keys that change.
#[derive(Default)]
pub(crate) struct Tracking {
    tracker: Option<Box<dyn Tracker>>,
    /// When the next value expires that was shown.
    next_expiry_ms: Option<u64>,
    /// The number of the partitions that this node answers for.
    served: u64,
    /// Others may write from now on what this node wrote.
    is_replanned: bool,
}

impl Tracking {
    /// This one is told from now on.
    pub(crate) fn begin(&mut self, tracker: Box<dyn Tracker>) {
        self.tracker = Some(tracker);
    }

    /// A step begins.
    #[inline]
    pub(crate) fn step_begins(&mut self, data: &mut Data) {
        if let Some(tracker) = &self.tracker {
            data.note_changed_keys(tracker.is_wanted());
            match data.changed_keys() {
                Some(changed) => changed.asks(None),
                None => (self.next_expiry_ms, self.is_replanned) = (None, false),
            }
        }
    }

    /// A step ends: tells what it has changed.
    #[inline]
    pub(crate) fn step_ends<P: Blocks>(
        &mut self,
        store: &mut Store<P>,
        linked: Option<&ClusterMember<P::Block>>,
        ends_turn: bool,
    ) {
        if_planted!(
            Bug::InvalidatedLate,
            store.data().time_ms().is_multiple_of(2),
            return
        );
        if store.data_mut().changed_keys().is_some() {
            self.notify(store, linked, ends_turn);
        }
    }

    /// Any key may have changed for all that this shard knows: others write it.
    pub(crate) fn is_replanned(&mut self) {
        self.is_replanned = true;
    }

    #[cold]
    fn notify<P: Blocks>(
        &mut self,
        store: &mut Store<P>,
        linked: Option<&ClusterMember<P::Block>>,
        ends_turn: bool,
    ) {
        let time_ms = store.data().time_ms();
        let (Some(tracker), Some(changed)) = (&self.tracker, store.data_mut().changed_keys())
        else {
            return;
        };
        // What another node writes from now on is not told here.
        let served = linked.map_or(0, ClusterMember::served_changes);
        let serves_others = std::mem::replace(&mut self.served, served) != served;
        let is_replanned = std::mem::take(&mut self.is_replanned);
        if changed.are_all() || serves_others || is_replanned {
            tracker.all_changed();
        }
        if changed.are_all() {
            tracker.all_replaced();
        }
        for (key, noted) in changed.notes() {
            match noted {
                Noted::Changed(change) => tracker.changed(key, change, time_ms),
                Noted::Coming { writer } => tracker.comes(key, writer),
                Noted::Made(change) => tracker.made(key, change, time_ms),
                Noted::Shown { expiry_ms } => tracker.shown(key, expiry_ms),
            }
        }
        changed.clear();
        if ends_turn && !is_planted(Bug::ExpiryUnannounced) {
            self.next_expiry_ms = tracker.expire(time_ms);
        }
    }

    /// When a value expires the next time that was shown to somebody who wants to know.
    pub(crate) fn deadline_us(&self, now: Now, time_ms: u64) -> Option<u64> {
        let wait_ms = self.next_expiry_ms?.saturating_sub(time_ms);
        Some(now.us.saturating_add(wait_ms.saturating_mul(1000)))
    }

    /// A script has read these keys.
    pub(crate) fn read_by_script<'k>(&self, writer: Writer, keys: impl Iterator<Item = &'k [u8]>) {
        if let Some(tracker) = &self.tracker {
            keys.for_each(|key| tracker.read_by_script(key, writer));
        }
    }
}

impl Origin {
    /// The connection of this number that asks, at a shard of this number.
    pub(crate) fn writer(self, shard: u16, session: SessionId) -> Writer {
        match self {
            Origin::Here => writer_of(shard, session),
            Origin::Shard(from) => writer_of(from, session),
        }
    }
}
