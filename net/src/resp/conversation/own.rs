//! What a connection is asked beyond one item for a key: KV.APPLY, KV.GET, KV.RUN,
//! KV.OPTS and WAIT.

use std::sync::Arc;

use crate::level::AckLevel;
use crate::limits::{FEW_KEYS_MAX, KEY_BYTES_MAX};
use crate::program::AnswerNames;
use crate::request::{BatchRequest, Token, Wanted};
use crate::slot::slot_of;

use super::super::answer::{Fold, moved};
use super::super::apply_text::read_apply;
use super::super::fields_read::FieldsRead;
use super::super::host::{ClusterView, Host};
use super::super::items::put_get;
use super::super::named_keys::{NamedKeys, NamedKeysMay};
use super::super::parser::Arguments;
use super::super::rights;
use super::super::run_text::{program_named, read_arguments, unknown_program};
use super::super::sink::Sink;
use super::super::table::Name;
use super::super::wait::read_wait;
use super::super::words;
use super::{Passed, Talk};

impl Talk {
    /// KV.OPTS.
    pub(super) fn options(&mut self, args: Arguments<'_>, sink: &mut Sink<'_>) -> Passed {
        if args.len() == 1 {
            if !self.ring.is_empty() {
                return Passed::Waits;
            }
            let (options, was_replayed) = (self.options, self.ring.was_replayed());
            self.ring.reply(self.protocol, &mut self.out, |replies| {
                options.write(was_replayed, replies);
            });
            return Passed::Whole;
        }
        match self.options.changed(args) {
            // All items of a frame have one level.
            Ok(options) if options.level != self.options.level && !sink.is_empty() => {
                return Passed::Part;
            }
            Ok(options) => {
                self.options = options;
                sink.ask_for(options.level);
                self.ok();
            }
            Err(text) => return self.refuse(|out| out.extend_from_slice(&text)),
        }
        Passed::Whole
    }

    /// KV.GET. Its reply may be much longer than the value, so it is one at a time.
    pub(super) fn fields(
        &mut self,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let key = args.get(1);
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return self.refuse(words::bad_key);
        }
        if !args.get(2).eq_ignore_ascii_case(b"AS") {
            return self.refuse_only(b"ERR syntax error");
        }
        let read = match FieldsRead::read(args.get(3), host.schema(), self.bound) {
            Ok(read) => read,
            Err(text) => return self.refuse(|out| out.extend_from_slice(&text)),
        };
        if !self.ring.is_empty() {
            return Passed::Waits;
        }
        if !sink.has_room(1, key.len()) {
            return Passed::Part;
        }
        let subject = self.ring.subject();
        subject.set(Name::KvGet, key, args.len(), slot_of(key));
        if self.is_tracking() {
            self.note_reads(std::iter::once(key), host);
        }
        let member = self.options.member_read();
        let (batch, out) = sink.batch(self.ring.next_item());
        put_get(batch, out, key, Wanted::Value, member);
        let entry = self.ring.push(Fold::Fields(read), self.protocol);
        self.ring.add_item(entry);
        self.ring.close(entry, &mut self.out);
        Passed::Whole
    }

    /// KV.APPLY.
    pub(super) fn apply(
        &mut self,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let read = match read_apply(args, self.runs_spread(host)) {
            Ok(read) => read,
            Err(text) => return self.refuse(|out| out.extend_from_slice(&text)),
        };
        // The names are kept until the answer comes, so one command has them at a time.
        if self.options.has_names && !self.ring.is_empty() {
            return Passed::Waits;
        }
        let apply = &read.apply;
        let is_spread = is_spread(apply.keys().iter().map(Vec::as_slice));
        if is_spread && !self.is_idle(sink) {
            return Passed::Waits;
        }
        if !sink.has_room(1, apply.item_bytes()) {
            return Passed::Part;
        }
        let subject = self.ring.subject();
        subject.set(Name::KvApply, args.get(1), args.len(), slot_of(args.get(1)));
        subject.is_noted = self.is_clustered && apply.has_effect();
        let names = self.options.has_names.then(|| Arc::new(read.names(args)));
        self.changes(sink, (read.token, names, is_spread), |batch, out| {
            batch.apply(out, apply)
        })
    }

    /// Whether programs may have keys of several slots.
    fn runs_spread(&self, host: &dyn Host) -> bool {
        !self.is_clustered && host.joined_cores() > 0
    }

    /// KV.RUN.
    pub(super) fn run(
        &mut self,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let may = NamedKeysMay {
            count_max: FEW_KEYS_MAX,
            be_spread: self.runs_spread(host),
        };
        let keys = match NamedKeys::read(args, 2, may) {
            Ok(keys) => keys,
            Err(text) => return self.refuse(|out| out.extend_from_slice(&text)),
        };
        let (schema, slot) = (host.schema(), slot_of(args.get(2)));
        let Some(program) = program_named(&schema.programs, args.get(1)) else {
            // The node that writes the slot may have other files.
            if self.is_clustered && !host.serves(slot, false) {
                let protocol = self.protocol;
                self.ring.reply(protocol, &mut self.out, |replies| {
                    moved(slot, None, host, replies);
                });
                return Passed::Whole;
            }
            return self.refuse(|out| unknown_program(&schema.programs, args.get(1), out));
        };
        let is_spread = is_spread(keys.all().iter().copied());
        if is_spread && !self.is_idle(sink) {
            return Passed::Waits;
        }
        let given = match read_arguments(program, keys.all().len(), args, keys.next) {
            Ok(given) => given,
            Err(text) => return self.refuse(|out| out.extend_from_slice(&text)),
        };
        if !sink.has_room(1, given.item_bytes() + keys.all().len() * KEY_BYTES_MAX) {
            return Passed::Part;
        }
        let subject = self.ring.subject();
        subject.set(Name::KvRun, args.get(2), args.len() - 1, slot);
        subject.is_noted = self.is_clustered && program.has_effect();
        let names = program.names().filter(|_| self.options.has_names).cloned();
        self.changes(sink, (keys.token, names, is_spread), |batch, out| {
            batch.run_of(out, program.id(), keys.all(), given.all());
        })
    }

    /// A command of one item that tells what an APPLY tells. It may be under way alone.
    fn changes(
        &mut self,
        sink: &mut Sink<'_>,
        (own_token, names, is_alone): (Option<Token>, Option<Arc<AnswerNames>>, bool),
        write: impl FnOnce(&mut BatchRequest, &mut Vec<u8>),
    ) -> Passed {
        let number = self.ring.next_item();
        let (batch, out) = sink.batch(number);
        let token = self.options.token.take();
        let token = own_token.or(token);
        if let Some(token) = token {
            batch.token(token);
        }
        write(batch, out);
        let entry = self.ring.push(Fold::Apply(names), self.protocol);
        if token.is_some() {
            self.ring.has_token();
        }
        if is_alone {
            self.ring.holds_others_back(entry);
        }
        self.ring.add_item(entry);
        self.ring.close(entry, &mut self.out);
        Passed::Whole
    }

    /// WAIT: reads at level `replica` behind all writes.
    pub(super) fn wait(
        &mut self,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let timeout_ms = match read_wait(args) {
            Ok(timeout_ms) => timeout_ms,
            Err(text) => return self.refuse_only(text),
        };
        if !self.ring.is_empty() && self.is_clustered {
            return Passed::Waits;
        }
        let view = match self.is_clustered {
            true => host.cluster().unwrap_or_default(),
            false => ClusterView::default(),
        };
        let nodes = i64::try_from(self.ring.written().nodes(&view)).expect("few");
        if nodes == 0 {
            let protocol = self.protocol;
            self.ring
                .reply(protocol, &mut self.out, |replies| replies.integer(0));
            return Passed::Whole;
        }
        let Some(keys) = self.ring.written().keys(self.rights.as_deref()) else {
            return self.refuse_only(rights::NO_KEY);
        };
        sink.ask_for(AckLevel::Replica);
        sink.give_up_after(timeout_ms);
        sink.items_max = keys.len();
        self.ring.subject().set(Name::Wait, b"", args.len(), 0);
        let entry = self.ring.push(Fold::Nodes(nodes), self.protocol);
        for key in &keys {
            let (batch, out) = sink.batch(self.ring.next_item());
            batch.get_with(out, key, Wanted::Expiry);
            self.ring.add_item(entry);
        }
        self.ring.close(entry, &mut self.out);
        Passed::Whole
    }
}

/// Whether keys are of several slots: a program of such keys is under way alone.
fn is_spread<'k>(mut keys: impl Iterator<Item = &'k [u8]>) -> bool {
    let first = keys.next().map(slot_of);
    keys.any(|key| Some(slot_of(key)) != first)
}
