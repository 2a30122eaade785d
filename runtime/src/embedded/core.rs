//! The thread of one shard in an embedding process.
//!
//! A turn takes the letters, steps the shard with each frame, hands out the replies that are ready,
//! ends the shard's turn, and hands out what that released. Every caller's thread has a lane, which
//! is a session of the shard: its operations on one slot run in their order, and only its own
//! replies wait for its writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use penstock_client::ClientError;
use penstock_net::frame::{FLAG_MORE, HEADER_BYTES, Header};
use penstock_net::hello::ClientHello;
use penstock_shard::{Event, Now, SessionId};

use super::call::Call;
use super::callers::Callers;
use super::mailbox::{Letter, Mailbox};
use super::watch::Watch;
use crate::event_loop::engine::{Engine, Turn};
use crate::event_loop::shard_thread::ShardThread;
use crate::event_loop::spin::Spin;
use crate::startup::node::{OpenError, ShardStart, system};
use crate::system::wall::WallClock;

/// Threads that share none of their sessions, at most; further ones share.
pub(super) const LANES: u16 = 64;
/// Letters of one turn, so that the disk is not kept waiting.
const LETTERS_PER_TURN_MAX: usize = 256;
/// How long requests to the disk may take when the thread ends.
const FAREWELL: Duration = Duration::from_secs(10);
/// How often deadlines are checked, in microseconds.
const EXPIRE_EVERY_US: u64 = 100_000;
/// The request id of frames that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// Opens the shard on this thread, tells whether that succeeded, and runs it until it is stopped.
pub(super) fn run(
    start: &ShardStart,
    mailbox: &Arc<Mailbox>,
    letters: flume::Receiver<Letter>,
    opened: flume::Sender<Result<(), OpenError>>,
) {
    match Core::open(start, mailbox, letters) {
        Ok(mut core) => {
            let _ = opened.send(Ok(()));
            // The caller of `open` waits until every shard has told its outcome.
            drop(opened);
            core.run();
        }
        Err(error) => drop(opened.send(Err(error))),
    }
}

struct Core {
    engine: Engine,
    watch: Watch,
    mailbox: Arc<Mailbox>,
    letters: flume::Receiver<Letter>,
    lanes: Vec<Lane>,
    /// The lane of each session, by the session's index.
    lane_of: Vec<u16>,
    /// By the id of the call.
    under_way: Vec<Option<Entry>>,
    output: Vec<u8>,
    deadline_us: u64,
    next_expiry_us: u64,
    is_over: bool,
}

/// One caller's thread as this shard sees it.
#[derive(Default)]
struct Lane {
    session: Option<SessionId>,
    /// Frames that the shard has not taken yet, in order, by the ids of their calls.
    waiting: VecDeque<u32>,
}

struct Entry {
    call: Arc<Call>,
    until_us: u64,
}

impl Core {
    fn open(
        start: &ShardStart,
        mailbox: &Arc<Mailbox>,
        letters: flume::Receiver<Letter>,
    ) -> Result<Core, OpenError> {
        let for_spares = Arc::clone(mailbox);
        let mut engine = start
            .open(Arc::new(move |outcome| {
                for_spares.post(Letter::Spare(outcome));
            }))?
            .engine;
        // Where the threads of an embedding process run is the user's to say.
        engine.run_on(ShardThread::on_core(None));
        let disk = engine.disk.wake_fd().map_err(system("watch the disk"))?;
        Ok(Core {
            engine,
            watch: Watch {
                clock: start.clock,
                wall: WallClock::default(),
                spin: Spin::new(Duration::from_micros(start.config.spin_us.into())),
                disk,
            },
            deadline_us: u64::try_from(mailbox.deadline.as_micros()).unwrap_or(u64::MAX),
            mailbox: Arc::clone(mailbox),
            letters,
            lanes: (0..LANES).map(|_| Lane::default()).collect(),
            lane_of: Vec::new(),
            under_way: Vec::new(),
            output: Vec::new(),
            next_expiry_us: 0,
            is_over: false,
        })
    }

    fn run(&mut self) {
        while !self.is_over {
            // Nobody wakes a thread in whose last turn the shard ended.
            if !self.turn() && !self.is_over {
                let deadline_us = self.engine.shard.deadline_us(self.watch.now());
                self.watch
                    .wait(&mut self.engine, &self.mailbox.doorbell, deadline_us);
            }
        }
    }

    /// Does all that is ready; returns whether more may be ready at once.
    fn turn(&mut self) -> bool {
        let now = self.watch.now();
        self.mailbox.doorbell.answer();
        let mut taken = 0;
        while taken < LETTERS_PER_TURN_MAX
            && let Ok(letter) = self.letters.try_recv()
        {
            taken += 1;
            self.take_letter(now, letter);
        }
        // Replies that need no disk do not wait until the disk has its requests.
        self.hand_out_all(now);
        let mut is_due_again = taken > 0;
        let mailbox = Some(&*self.mailbox);
        let mut callers = Callers { mailbox };
        match self.engine.end_turn(now, || now, &mut callers) {
            Turn::Ended {
                is_due_again: again,
                has_stopped,
            } => {
                is_due_again |= again;
                self.is_over |= has_stopped;
            }
            Turn::Fatal(text) | Turn::Damaged(text) => {
                self.mailbox.set_cause(text);
                self.is_over = true;
            }
            Turn::Dead => self.is_over = true,
        }
        self.hand_out_all(now);
        while let Some(session) = self.engine.outbox.resume.pop() {
            self.feed(now, self.lane_of[session.index()]);
            is_due_again = true;
        }
        // In the last turn these replies are refusals, and no later turn would hand them out.
        self.hand_out_all(now);
        if now.us >= self.next_expiry_us {
            self.next_expiry_us = now.us + EXPIRE_EVERY_US;
            self.expire(now);
        }
        is_due_again
    }

    fn take_letter(&mut self, now: Now, letter: Letter) {
        match letter {
            Letter::Call { lane, call } => {
                let (id, place) = (call.id, call.id as usize);
                if self.under_way.len() <= place {
                    self.under_way.resize_with(place + 1, || None);
                }
                self.under_way[place] = Some(Entry {
                    call,
                    until_us: now.us.saturating_add(self.deadline_us),
                });
                self.lanes[usize::from(lane)].waiting.push_back(id);
                self.feed(now, lane);
            }
            Letter::Spare(outcome) => {
                // A server logs this. The caller of an embedded store sees it by FULL and INFO.
                let _ = self.engine.take_spare(now, outcome);
            }
            Letter::Mail(mail) => {
                self.engine.step(now, Event::Mail(mail));
            }
            Letter::Stop => {
                self.engine.step(now, Event::Stop);
            }
        }
    }

    /// Gives the shard the frames of a lane, as many as it takes.
    fn feed(&mut self, now: Now, lane: u16) {
        let session = self.session(now, lane);
        while let Some(&id) = self.lanes[usize::from(lane)].waiting.front() {
            if self.engine.shard.front().is_paused(session) {
                return;
            }
            let call = &entry(&mut self.under_way, id).call;
            let content = call.lock();
            let bytes = &content.request[..];
            let consumed = self.engine.step(now, Event::Received { session, bytes });
            self.engine.traffic.received_bytes += consumed as u64;
            if consumed < bytes.len() {
                return;
            }
            drop(content);
            self.lanes[usize::from(lane)].waiting.pop_front();
        }
    }

    /// The session of a lane, which is opened when it is needed first.
    #[inline]
    fn session(&mut self, now: Now, lane: u16) -> SessionId {
        match self.lanes[usize::from(lane)].session {
            Some(session) => session,
            None => self.open_session(now, lane),
        }
    }

    #[cold]
    fn open_session(&mut self, now: Now, lane: u16) -> SessionId {
        let session = self.engine.shard.front_mut().open_session_in_memory(now);
        self.lanes[usize::from(lane)].session = Some(session);
        if self.lane_of.len() <= session.index() {
            self.lane_of.resize(session.index() + 1, 0);
        }
        self.lane_of[session.index()] = lane;
        let bytes = &hello();
        let consumed = self.engine.step(now, Event::Received { session, bytes });
        assert!(
            consumed == bytes.len() || self.engine.outbox.fatal.is_some(),
            "a shard takes a HELLO"
        );
        session
    }

    /// Hands out the replies of every session that may send.
    fn hand_out_all(&mut self, now: Now) {
        while let Some(session) = self.engine.outbox.sendable.pop() {
            take_output(&mut self.engine, now, session, &mut self.output);
            self.hand_out();
        }
        self.mailbox.send_mail(&mut self.engine.outbox.mail);
        assert!(
            self.engine.outbox.close.is_empty(),
            "frames are whole and taken at once"
        );
    }

    /// Gives each frame of the output to the call that it answers.
    fn hand_out(&mut self) {
        let mut at = 0;
        while let Some(header) = frame_at(&self.output, at) {
            let end = at + header.len as usize;
            if header.request_id != NOBODY {
                let place = usize::try_from(header.request_id).expect("the id of a call");
                let is_last = header.flags & FLAG_MORE == 0;
                let call = &self.under_way[place]
                    .as_ref()
                    .expect("it is under way")
                    .call;
                let mut content = call.lock();
                if call.is_done() {
                    // The call was given up, and its caller may be reading the error.
                    drop(content);
                } else {
                    if content.reply.is_empty() && at == 0 && end == self.output.len() {
                        std::mem::swap(&mut content.reply, &mut self.output);
                    } else {
                        content.reply.extend_from_slice(&self.output[at..end]);
                    }
                    match is_last {
                        true => call.finish(content, None),
                        false => drop(content),
                    }
                }
                if is_last && let Some(entry) = self.under_way[place].take() {
                    self.mailbox.let_go(entry.call);
                }
            }
            at = end;
        }
        self.output.clear();
    }

    /// Gives up the calls that were not answered in time. The shard's late answers go nowhere.
    fn expire(&mut self, now: Now) {
        for entry in self.under_way.iter().flatten() {
            if entry.until_us <= now.us {
                let text = "no answer within the deadline".to_string();
                entry
                    .call
                    .finish(entry.call.lock(), Some(ClientError::Unknown(text.into())));
            }
        }
    }
}

impl Drop for Core {
    /// Answers all callers that wait, also if the thread panics.
    fn drop(&mut self) {
        // Buffers that the device may still write into live until the device is done.
        let _ = self.engine.disk.drain(&mut Vec::new(), FAREWELL);
        let cause = self.mailbox.cause().unwrap_or("the store was closed");
        for entry in self.under_way.drain(..).flatten() {
            let unknown = ClientError::Unknown(cause.into());
            entry.call.finish(entry.call.lock(), Some(unknown));
            self.mailbox.let_go(entry.call);
        }
        self.mailbox.close();
        for letter in self.letters.drain() {
            if let Letter::Call { call, .. } = letter {
                self.mailbox.refuse(call);
            }
        }
    }
}

/// The frame that a session begins with.
pub(super) fn hello() -> Vec<u8> {
    let mut frame = Vec::new();
    let hello = ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "embedded",
    };
    hello.write(&mut frame, NOBODY);
    frame
}

/// Moves what a session may send to the empty `output`.
#[inline]
pub(super) fn take_output(engine: &mut Engine, now: Now, session: SessionId, output: &mut Vec<u8>) {
    engine.shard.take_output(now, session, output);
    engine.step(now, Event::Sent { session });
    engine.traffic.sent_bytes += output.len() as u64;
}

/// The header of the reply frame that begins at `at`, if there is one. Frames of our own shard are
/// whole.
#[inline]
pub(super) fn frame_at(output: &[u8], at: usize) -> Option<Header> {
    Some(Header::decode(
        output.get(at..)?.first_chunk::<HEADER_BYTES>()?,
    ))
}

#[inline]
fn entry(under_way: &mut [Option<Entry>], id: u32) -> &Entry {
    under_way[id as usize]
        .as_ref()
        .expect("what waits is under way")
}
