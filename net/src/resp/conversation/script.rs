//! EVAL and its like: one item, which runs in the shard that owns its keys.

use crate::limits::KEY_BYTES_MAX;
use crate::script::{ScriptAccess, ScriptItem, ScriptName, ScriptReach};
use crate::slot::{core_of, slot_of};

use super::super::answer::Fold;
use super::super::host::Host;
use super::super::parser::Arguments;
use super::super::reply::Protocol;
use super::super::scripts::Eval;
use super::super::sink::Sink;
use super::super::table::Name;
use super::super::words;
use super::{CROSS_SLOT, Passed, Talk};

const NO_TOKEN: &[u8] = b"ERR a token names a write of one item, and no script: have the script \
    keep what it answers, in a key of the order";

impl Talk {
    /// EVAL, EVALSHA and the same that only read.
    pub(super) fn eval(
        &mut self,
        id: Name,
        eval: Result<Eval<'_>, &'static [u8]>,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let eval = match eval {
            Ok(eval) => eval,
            Err(text) => return self.refuse_only(text),
        };
        let mut names = eval.keys();
        if !names
            .clone()
            .all(|key| (1..=KEY_BYTES_MAX).contains(&key.len()))
        {
            return self.refuse(words::bad_key);
        }
        let first = names.clone().next();
        let slot = first.map(slot_of);
        if self.is_clustered && !names.all(|key| Some(slot_of(key)) == slot) {
            return self.refuse_only(CROSS_SLOT);
        }
        if self.options.token.is_some() {
            self.options.token = None;
            return self.refuse_only(NO_TOKEN);
        }
        let mut cores = Cores::of(host.joined_cores());
        eval.keys().for_each(|key| cores.add(slot_of(key)));
        let reach = match self.is_clustered {
            true => ScriptReach::Slot,
            false if cores.are_several(true) => ScriptReach::Shards,
            false => ScriptReach::Node,
        };
        if reach == ScriptReach::Shards && !self.is_idle(sink) {
            return Passed::Waits;
        }
        let item = ScriptItem {
            script: eval.script,
            access: eval.access,
            reach,
            is_of_resp3: self.protocol == Protocol::Resp3,
            slot,
            reply_bytes_max: 0,
        };
        let brings_text = matches!(eval.script, ScriptName::Text(_));
        if !brings_text && self.ring.awaits_text() {
            return Passed::Waits;
        }
        let words = args.from(3);
        let words_bytes = words.clone().map(<[u8]>::len).sum();
        if !sink.has_room(1, item.item_bytes(args.len() - 3, words_bytes)) {
            return Passed::Part;
        }
        let subject = self.ring.subject();
        subject.set(
            id,
            first.unwrap_or_default(),
            args.len() - 2,
            slot.unwrap_or(0),
        );
        let is_change = eval.access == ScriptAccess::Changes;
        subject.is_noted = self.is_clustered && slot.is_some() && is_change;
        if self.is_clustered && is_change && slot.is_none() {
            self.ring.written().note_all();
        }
        let (batch, out) = sink.batch(self.ring.next_item());
        batch.script(out, &item, eval.keys().count(), words);
        let entry = self.push_script_of(reach);
        if brings_text {
            self.ring.brings_text(entry);
        }
        Passed::Whole
    }

    /// Whether all that came before is answered.
    pub(super) fn is_idle(&self, sink: &Sink<'_>) -> bool {
        self.ring.is_empty() && sink.is_empty()
    }

    /// As [`Talk::push_script`], of an item with this reach. One of several shards is under way
    /// alone.
    pub(super) fn push_script_of(&mut self, reach: ScriptReach) -> u64 {
        let entry = self.push_script();
        if reach == ScriptReach::Shards {
            self.ring.holds_others_back(entry);
        }
        entry
    }

    /// An item was added whose answer is a reply; the number of its entry.
    pub(super) fn push_script(&mut self) -> u64 {
        let entry = self.ring.push(Fold::Script, self.protocol);
        self.ring.add_item(entry);
        self.ring.close(entry, &mut self.out);
        entry
    }
}

/// The cores that own the keys of an item.
pub(super) struct Cores {
    /// The cores of the node, if keys of several run together.
    count: u16,
    first: Option<u16>,
    are_several: bool,
}

impl Cores {
    /// None yet; `joined` as [`Host::joined_cores`] says.
    pub(super) fn of(joined: u16) -> Self {
        Cores {
            count: joined,
            first: None,
            are_several: false,
        }
    }

    /// A key of this slot.
    pub(super) fn add(&mut self, slot: u16) {
        if self.count > 1 {
            let core = core_of(slot, self.count);
            self.are_several |= *self.first.get_or_insert(core) != core;
        }
    }

    /// Whether the item is one of several shards. What names no key may use any.
    pub(super) fn are_several(&self, may_use_others: bool) -> bool {
        self.are_several || self.count > 1 && self.first.is_none() && may_use_others
    }
}
