//! Commands between MULTI and EXEC, and the keys that WATCH names.

use crate::limits::{APPLY_KEYS_MAX, KEY_BYTES_MAX};

use super::super::host::Host;
use super::super::local;
use super::super::parser::{Arguments, KeptArguments};
use super::super::request::Request;
use super::super::rights;
use super::super::table::{self, Name};
use super::super::transaction::{Transaction, Unfit};
use super::super::words;
use super::{CROSS_SLOT, NOT_ONE_ITEM, Passed, Talk};

/// Commands behind MULTI, at most.
const QUEUED_MAX: usize = 1024;
/// Keys that WATCH may name together.
const WATCHED_MAX: usize = 8;

/// Commands behind MULTI.
#[derive(Debug, Default)]
pub(super) struct Queue {
    commands: Vec<KeptArguments>,
    bytes: usize,
    /// A command was refused: EXEC will be, too.
    is_void: bool,
}

impl Queue {
    /// Bytes that its commands take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a command. `false` if there is no room for it.
    fn keep(&mut self, args: Arguments<'_>, bytes_max: usize) -> bool {
        let kept = KeptArguments::of(args);
        let bytes = self.bytes + kept.bytes();
        if self.commands.len() >= QUEUED_MAX || bytes > bytes_max {
            return false;
        }
        self.bytes = bytes;
        self.commands.push(kept);
        true
    }

    /// A command was refused: EXEC will be, too, so nothing is kept for it.
    pub(super) fn make_void(&mut self) {
        *self = Queue {
            is_void: true,
            ..Queue::default()
        };
    }
}

impl Talk {
    /// Ends MULTI for an EXEC that cannot be read, in the words of Valkey.
    #[cold]
    pub(super) fn refuse_exec(&mut self) -> Passed {
        self.queue = None;
        self.watched.clear();
        self.refuse_only(
            b"EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' \
              command",
        )
    }

    /// Keeps a command for EXEC.
    pub(super) fn queue_command(
        &mut self,
        command: &table::Command,
        args: Arguments<'_>,
    ) -> Passed {
        let is_other = matches!(command.id, Name::Watch | Name::KvApply | Name::KvRun);
        let is_keyed = command.keys.0 > 0 && !is_other;
        if !is_keyed && !local::is_queued(command.id) {
            // A secret is not kept until EXEC.
            if matches!(command.id, Name::Auth | Name::Hello) {
                self.hears_secret();
            }
            return self.refuse(|out| not_behind_multi(args, out));
        }
        if let Some(rights) = &self.rights
            && let Some(text) = rights::refusal(command.id, args, rights)
        {
            return self.refuse(|out| out.extend_from_slice(&text));
        }
        let mut is_good = true;
        if let Ok(Some(request)) = Request::read(command, args) {
            request.for_each_key(|key| is_good &= (1..=KEY_BYTES_MAX).contains(&key.len()));
        }
        if !is_good {
            return self.refuse(words::bad_key);
        }
        let bytes_max = self.limits.frame_bytes_max as usize;
        let queue = self.queue.as_mut().expect("the caller has looked");
        if !queue.is_void && !queue.keep(args, bytes_max) {
            return self.refuse(|out| {
                out.extend_from_slice(b"ERR too many commands behind MULTI");
            });
        }
        let protocol = self.protocol;
        self.ring
            .reply(protocol, &mut self.out, |replies| replies.simple("QUEUED"));
        Passed::Whole
    }

    pub(super) fn exec(&mut self, host: &dyn Host) {
        let queue = self.queue.take().expect("the caller has looked");
        let watched = std::mem::take(&mut self.watched);
        if queue.is_void {
            return self.error(b"EXECABORT Transaction discarded because of previous errors.");
        }
        if self.options.token.take().is_some() {
            return self.error(NOT_ONE_ITEM);
        }
        let value_bytes_max = self.limits.value_bytes_max as usize;
        let protocol = self.protocol;
        match Transaction::of_exec(queue.commands, watched, protocol, value_bytes_max) {
            Ok(mut transaction) => {
                transaction.bound_reply(self.bound);
                let slot = transaction.slot();
                let subject = self.ring.subject();
                subject.set(Name::Exec, b"", 1, slot.unwrap_or(0));
                subject.is_noted = self.is_clustered && slot.is_some();
                self.begin_transaction(transaction, host);
            }
            Err(Unfit::CrossSlot) => self.error(CROSS_SLOT),
            Err(Unfit::TooManyKeys) => {
                let text = format!(
                    "EXECABORT Transaction discarded because it has more than {APPLY_KEYS_MAX} \
                     keys, watched ones included."
                );
                self.error(text.as_bytes());
            }
        }
    }

    pub(super) fn watch(&mut self, args: Arguments<'_>, host: &dyn Host) -> Passed {
        if args
            .from(1)
            .any(|key| !(1..=KEY_BYTES_MAX).contains(&key.len()))
        {
            return self.refuse(words::bad_key);
        }
        let is_known = |key: &[u8]| self.watched.iter().any(|watched| watched.key == key);
        let new: Vec<&[u8]> = args.from(1).filter(|key| !is_known(key)).collect();
        if self.watched.len() + new.len() > WATCHED_MAX {
            return self.refuse_only(b"ERR at most 8 keys can be watched");
        }
        let transaction = Transaction::of_watch(new.into_iter(), self.protocol);
        self.begin_transaction(transaction, host);
        Passed::Whole
    }
}

/// The words of Valkey.
pub(super) fn not_behind_multi(args: Arguments<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ERR Command '");
    out.extend(args.get(0).to_ascii_lowercase());
    out.extend_from_slice(b"' not allowed inside a transaction");
}
