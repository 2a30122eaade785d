//! The mailbox of one shard of an embedded store: callers put letters in, the shard's thread takes
//! them out. It also keeps finished calls, which the next callers use again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use penstock_client::ClientError;
use penstock_shard::Mail;
use penstock_shard::topology::SHARDS_MAX;

use super::call::Call;
use super::doorbell::Doorbell;
use crate::directory::spares::SpareOutcome;
use crate::event_loop::spin::Spin;

/// Most letters that are no calls: one stop, the few segment files that a shard asks for at a time,
/// and at most two letters about keyspaces from each other shard.
const OTHER_LETTERS_MAX: usize = 64 + 2 * SHARDS_MAX as usize;

/// A message to the thread of a shard.
pub(super) enum Letter {
    /// A caller's request frame. The lane is the session that it belongs to.
    Call { lane: u16, call: Arc<Call> },
    /// A segment file, or a refusal, from the thread that makes segment files.
    Spare(SpareOutcome),
    /// Mail from another shard.
    Mail(Mail),
    /// The shard takes no more requests, makes everything durable and ends.
    Stop,
}

/// One shard's mailbox.
pub(super) struct Mailbox {
    letters: flume::Sender<Letter>,
    pub(super) doorbell: Doorbell,
    /// How long a caller watches for its answer before it sleeps.
    pub(super) spin: Spin,
    /// How long a caller waits for an answer.
    pub(super) deadline: Duration,
    calls: Mutex<Calls>,
    is_gone: AtomicBool,
    cause: OnceLock<String>,
    /// The mailboxes of all shards, once all are there.
    all: OnceLock<Vec<Weak<Mailbox>>>,
}

struct Calls {
    idle: Vec<Arc<Call>>,
    made: u32,
    pending_max: u32,
}

impl Mailbox {
    /// A mailbox for at most `pending_max` calls, and the receiver for the shard's thread.
    pub(super) fn new(
        pending_max: u32,
        spin: Duration,
        deadline: Duration,
    ) -> std::io::Result<(Mailbox, flume::Receiver<Letter>)> {
        let (letters, inbox) = flume::bounded(pending_max as usize + OTHER_LETTERS_MAX);
        let mailbox = Mailbox {
            letters,
            doorbell: Doorbell::new()?,
            spin: Spin::new(spin),
            deadline,
            calls: Mutex::new(Calls {
                idle: Vec::new(),
                made: 0,
                pending_max,
            }),
            is_gone: AtomicBool::new(false),
            cause: OnceLock::new(),
            all: OnceLock::new(),
        };
        Ok((mailbox, inbox))
    }

    /// A call to fill in.
    ///
    /// # Errors
    /// [`ClientError::Busy`] if `pending_max` calls are under way.
    pub(super) fn take_call(&self) -> Result<Arc<Call>, ClientError> {
        let mut calls = self.lock();
        if let Some(call) = calls.idle.pop() {
            return Ok(call);
        }
        if calls.made == calls.pending_max {
            return Err(ClientError::Busy(format!(
                "{} operations are pending on one shard, which is the limit",
                calls.pending_max
            )));
        }
        calls.made += 1;
        Ok(Arc::new(Call::new(calls.made - 1)))
    }

    /// The caller, or the shard's thread, no longer needs the call. When both have said so, the
    /// next caller may use it.
    pub(super) fn let_go(&self, call: Arc<Call>) {
        if call.let_go() {
            self.lock().idle.push(call);
        }
    }

    /// Gives back a call that was never sent, for the caller and for the shard.
    pub(super) fn let_go_unsent(&self, call: Arc<Call>) {
        call.let_go();
        self.let_go(call);
    }

    /// Hands a filled call to the shard. The call is always finished: by the shard, or here if the
    /// shard is gone.
    pub(super) fn send(&self, lane: u16, call: &Arc<Call>) {
        let letter = Letter::Call {
            lane,
            call: Arc::clone(call),
        };
        if self.letters.try_send(letter).is_err() {
            // The queue has room for all calls, so a failure means that the shard is gone. `refuse`
            // gives the call back in the shard's place.
            self.refuse(Arc::clone(call));
            return;
        }
        self.doorbell.ring();
        if self.is_gone.load(Ordering::Acquire) {
            // The shard may have read its letters for the last time before this one came. It has
            // answered every call that it took, so an unfinished call was never taken.
            call.finish(call.lock(), Some(self.not_sent()));
        }
    }

    /// Answers a call that the shard did not take, and gives it back for the shard.
    pub(super) fn refuse(&self, call: Arc<Call>) {
        call.finish(call.lock(), Some(self.not_sent()));
        self.let_go(call);
    }

    /// Sends a letter that is no call. The letter is dropped if the shard is gone.
    pub(super) fn post(&self, letter: Letter) {
        let _ = self.letters.send(letter);
        self.doorbell.ring();
    }

    /// Gives the shard the mailboxes of all shards.
    pub(super) fn introduce(&self, all: &[Arc<Mailbox>]) {
        let _ = self.all.set(all.iter().map(Arc::downgrade).collect());
        self.doorbell.ring();
    }

    /// Sends the mail for other shards. It stays in `mail` until the mailboxes of all shards are
    /// known.
    pub(super) fn send_mail(&self, mail: &mut Vec<(u16, Mail)>) {
        if let Some(all) = self.all.get() {
            for (to, mail) in mail.drain(..) {
                if let Some(mailbox) = all[usize::from(to)].upgrade() {
                    mailbox.post(Letter::Mail(mail));
                }
            }
        }
    }

    /// Notes why the shard ends. The first cause stays.
    pub(super) fn set_cause(&self, text: String) {
        let _ = self.cause.set(text);
    }

    /// Why the shard ended. `None` if it was asked to stop, or runs.
    pub(super) fn cause(&self) -> Option<&str> {
        self.cause.get().map(String::as_str)
    }

    /// Notes that the shard has answered all calls that it took and takes no more letters.
    pub(super) fn close(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    fn not_sent(&self) -> ClientError {
        ClientError::NotSent(self.cause().unwrap_or("the store was closed").to_string())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
