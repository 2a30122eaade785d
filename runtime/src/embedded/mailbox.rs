//! What callers share with the thread of one shard: its letters, its doorbell, and the calls that
//! are used again.

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

/// Letters that are no calls: one stop, the few segment files that a shard asks for at a time, and
/// what the other shards say of keyspaces, which is at most two letters from each.
const OTHER_LETTERS_MAX: usize = 64 + 2 * SHARDS_MAX as usize;

/// What reaches the thread of a shard.
pub(super) enum Letter {
    /// A frame of this lane.
    Call { lane: u16, call: Arc<Call> },
    /// From the thread that makes segment files.
    Spare(SpareOutcome),
    /// From another shard.
    Mail(Mail),
    /// Take no more requests, make everything durable, end.
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
    /// A mailbox for at most `pending_max` calls, and the end that the shard's thread reads.
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
    /// [`ClientError::Busy`] when as many are under way as may be.
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

    /// The caller or the shard's thread has done with a call.
    pub(super) fn let_go(&self, call: Arc<Call>) {
        if call.let_go() {
            self.lock().idle.push(call);
        }
    }

    /// A call is given back that was never sent.
    pub(super) fn let_go_unsent(&self, call: Arc<Call>) {
        call.let_go();
        self.let_go(call);
    }

    /// Hands a filled call to the shard. Whatever happens, the call gets done.
    pub(super) fn send(&self, lane: u16, call: &Arc<Call>) {
        let letter = Letter::Call {
            lane,
            call: Arc::clone(call),
        };
        if self.letters.try_send(letter).is_err() {
            // The bound holds all calls there can be, so the shard is gone. Its share of the call
            // is let go here.
            self.refuse(Arc::clone(call));
            return;
        }
        self.doorbell.ring();
        if self.is_gone.load(Ordering::Acquire) {
            // The shard's last look at its letters may have been before this one. What it did take
            // it has answered, so a call that is not done was never looked at.
            call.finish(call.lock(), Some(self.not_sent()));
        }
    }

    /// Answers a call that was not looked at, and lets go of it.
    pub(super) fn refuse(&self, call: Arc<Call>) {
        call.finish(call.lock(), Some(self.not_sent()));
        self.let_go(call);
    }

    /// Hands over anything but a call; nobody needs it if the shard is gone.
    pub(super) fn tell(&self, letter: Letter) {
        let _ = self.letters.send(letter);
        self.doorbell.ring();
    }

    /// Tells the shard where the others are.
    pub(super) fn introduce(&self, all: &[Arc<Mailbox>]) {
        let _ = self.all.set(all.iter().map(Arc::downgrade).collect());
        self.doorbell.ring();
    }

    /// Sends what waits for other shards, if they are known by now.
    pub(super) fn send_mail(&self, mail: &mut Vec<(u16, Mail)>) {
        if let Some(all) = self.all.get() {
            for (to, mail) in mail.drain(..) {
                if let Some(mailbox) = all[usize::from(to)].upgrade() {
                    mailbox.tell(Letter::Mail(mail));
                }
            }
        }
    }

    /// Notes why the shard ends; the first cause counts.
    pub(super) fn set_cause(&self, text: String) {
        let _ = self.cause.set(text);
    }

    /// Why the shard ended, unless it was asked to.
    pub(super) fn cause(&self) -> Option<&str> {
        self.cause.get().map(String::as_str)
    }

    /// The shard has answered all that it took, and takes nothing more.
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
