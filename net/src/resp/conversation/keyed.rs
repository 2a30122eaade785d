//! Commands that name keys: one item, or an item for each key.

use crate::limits::{APPLY_KEYS_MAX, KEY_BYTES_MAX};
use crate::request::{Condition, Wanted};
use crate::slot::slot_of;

use super::super::answer::{Fold, moved};
use super::super::blocked_pop::PopForm;
use super::super::host::Host;
use super::super::items::{put_get, put_item};
use super::super::parser::Arguments;
use super::super::request::Request;
use super::super::shapes::Form;
use super::super::sink::Sink;
use super::super::table::Name;
use super::super::words;
use super::script::Cores;
use super::{CROSS_SLOT, NOT_ONE_ITEM, OneItem, Passed, Talk};

impl Talk {
    /// A command that names keys.
    pub(super) fn keyed(
        &mut self,
        id: Name,
        request: &Request<'_>,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        if self.current_entry.is_none() {
            let mut is_good = true;
            request.for_each_key(|key| is_good &= (1..=KEY_BYTES_MAX).contains(&key.len()));
            if !is_good {
                return self.refuse(words::bad_key);
            }
            if let Err(text) = self.admit(id, request, args.len()) {
                return self.refuse(|out| out.extend_from_slice(text));
            }
        }
        match request {
            Request::MSet(_) | Request::Del(_) if self.is_joined(request, args, host) => {
                if self.is_tracking() {
                    self.note_request(request, host);
                }
                self.command_by_itself(request, args, sink, host)
            }
            Request::MGet(_) | Request::MSet(_) | Request::Del(_) | Request::Exists(_) => {
                self.many_keys(id, args, sink, host)
            }
            request => {
                if self.is_tracking() {
                    self.note_request(request, host);
                }
                match request.is_plain() {
                    true => self.one_key(id, request, sink),
                    false => match PopForm::of(id, args) {
                        Some(form) => self.block(form, (request, args), sink, host),
                        None => self.command_by_itself(request, args, sink, host),
                    },
                }
            }
        }
    }

    /// Whether MSET or DEL is one change of all of its keys: if they are of several shards that run
    /// together, few and short enough.
    fn is_joined(&self, request: &Request<'_>, args: Arguments<'_>, host: &dyn Host) -> bool {
        let joined = host.joined_cores();
        if joined < 2 || self.current_entry.is_some() || self.is_clustered {
            return false;
        }
        let mut cores = Cores::of(joined);
        request.for_each_key(|key| cores.add(slot_of(key)));
        let bytes = args.from(1).map(<[u8]>::len).sum::<usize>();
        cores.are_several(false)
            && args.len() <= APPLY_KEYS_MAX
            && bytes <= self.limits.value_bytes_max as usize
    }

    /// Notes what a command is about. Refuses what a node of a cluster or a token does not allow.
    #[inline]
    fn admit(
        &mut self,
        id: Name,
        request: &Request<'_>,
        arguments: usize,
    ) -> Result<(), &'static [u8]> {
        let mut first: &[u8] = &[];
        request.for_each_key(|key| {
            if first.is_empty() {
                first = key;
            }
        });
        let mut slot = 0;
        if self.is_clustered {
            slot = slot_of(first);
            let mut is_one = true;
            request.for_each_key(|key| is_one &= slot_of(key) == slot);
            if !is_one {
                return Err(CROSS_SLOT);
            }
        }
        self.ring.subject().set(id, first, arguments, slot);
        if request.is_change() {
            self.ring.subject().is_noted = self.is_clustered;
            if self.options.token.is_some() && !request.is_one_item() {
                self.options.token = None;
                return Err(NOT_ONE_ITEM);
            }
        }
        Ok(())
    }

    /// A command that is one item.
    #[inline]
    fn one_key(&mut self, id: Name, request: &Request<'_>, sink: &mut Sink<'_>) -> Passed {
        let value_len = match request {
            Request::Set { value, .. } => value.len(),
            _ => 0,
        };
        if !sink.has_room(1, value_len + 2 * KEY_BYTES_MAX) {
            return Passed::Part;
        }
        let number = self.ring.next_item();
        sink.lays_out_expected();
        let (batch, out) = sink.batch(number);
        let from = out.len();
        let token = match request.is_change() {
            true => self.options.token.take(),
            false => None,
        };
        if let Some(token) = token {
            batch.token(token);
        }
        let fold = put_item(request, self.options.member_read(), batch, out);
        self.ring.push_one(fold, self.protocol);
        match token {
            Some(_) => self.ring.has_token(),
            None => {
                self.one_item = form_of(id).map(|form| OneItem {
                    bytes: sink.bytes() - from,
                    form,
                });
            }
        }
        Passed::Whole
    }

    /// A command with an item for each key, as far as there is room.
    fn many_keys(
        &mut self,
        id: Name,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let (_, mut next) = self.current.expect("there is one");
        let step = if id == Name::MSet { 2 } else { 1 };
        if id == Name::MGet && self.current_entry.is_none() {
            let slot = self.ring.subject().slot;
            if self.has_pushes() {
                // No message stands within an array, and those that wait are not kept waiting.
                return Passed::Waits;
            }
            if self.is_clustered && !host.serves(slot, self.options.is_readonly) {
                let protocol = self.protocol;
                self.ring.reply(protocol, &mut self.out, |replies| {
                    moved(slot, None, host, replies)
                });
                return Passed::Whole;
            }
            let keys = args.len() - 1;
            let protocol = self.protocol;
            self.ring
                .reply(protocol, &mut self.out, |replies| replies.array(keys));
            self.current_entry = Some(0);
        }
        let mut from = None;
        while next < args.len() {
            let key = args.get(next);
            let value = if step == 2 { args.get(next + 1) } else { &[] };
            let bytes = value.len() + 2 * KEY_BYTES_MAX;
            if !self.ring.has_room() || !sink.has_room(1, bytes) {
                let (len, _) = self.current.expect("there is one");
                self.current = Some((len, next));
                return Passed::Part;
            }
            if self.is_tracking() && matches!(id, Name::MGet | Name::Exists | Name::Touch) {
                self.note_reads(std::iter::once(key), host);
            }
            let first = self.ring.next_item();
            let (batch, out) = sink.batch(first);
            let item_from = out.len();
            let token = match id {
                Name::MGet | Name::Exists | Name::Touch => None,
                _ => self.options.token.take(),
            };
            if let Some(token) = token {
                batch.token(token);
            }
            from = token.is_none().then_some(item_from);
            let member = self.options.member_read();
            match id {
                Name::MGet => put_get(batch, out, key, Wanted::Value, member),
                Name::MSet => batch.set(out, key, value, Condition::Always),
                Name::Exists | Name::Touch => put_get(batch, out, key, Wanted::Expiry, member),
                _ => batch.del(out, key, Condition::Always),
            }
            let entry = match (id, self.current_entry) {
                // Each element is a reply of its own.
                (Name::MGet, _) => {
                    let entry = self.ring.push(Fold::Element, self.protocol);
                    self.ring.goes_on(entry);
                    self.ring.add_item(entry);
                    self.ring.close(entry, &mut self.out);
                    next += step;
                    continue;
                }
                (_, Some(entry)) => entry,
                (Name::MSet, None) => self.ring.push(Fold::Done, self.protocol),
                (_, None) => self.ring.push(Fold::Sum, self.protocol),
            };
            self.current_entry = Some(entry);
            if token.is_some() {
                self.ring.has_token();
            }
            self.ring.add_item(entry);
            next += step;
        }
        if let (false, Some(entry)) = (id == Name::MGet, self.current_entry) {
            self.ring.close(entry, &mut self.out);
        }
        if let (2, Some(from), true) = (args.len(), from, id != Name::MGet) {
            self.one_item = Some(OneItem {
                bytes: sink.bytes() - from,
                form: Form::Key,
            });
        }
        Passed::Whole
    }
}

/// Where a command of one item has key and value. `None` if its key is not the first argument.
fn form_of(id: Name) -> Option<Form> {
    match id {
        Name::Set | Name::SetNx => Some(Form::KeyValue),
        Name::SetEx | Name::PSetEx => Some(Form::KeyFixedValue),
        Name::Object | Name::Memory => None,
        _ => Some(Form::Key),
    }
}
