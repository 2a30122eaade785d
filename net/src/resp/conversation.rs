//! One connection that speaks RESP: bytes of its peer come in, frames for a session in memory go
//! out; frames of that session come back, bytes for the peer go out.

mod blocked;
mod debug;
mod ending;
mod flush;
mod held;
mod keyed;
mod login;
mod multi;
mod own;
mod pages;
mod paused;
mod repeats;
mod script;
mod shaped;
mod silence;
mod subscribed;
mod tracking;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::batch::Batch;
use crate::frame::{HEADER_BYTES, Header, Opcode};
use crate::hello::ClientHello;
use crate::level::AckLevel;
use crate::limits::{KEY_BYTES_MAX, Limits};
use crate::reply::{ReplyHead, ReplyItem, text_of};
use crate::rights::Rights;
use crate::status::Status;
use crate::stranger::answer_of_resp;
use crate::version::Version;

use super::answer::{Fold, ItemAnswer};
use super::blocked_pop::BlockedPop;
use super::bound::ReplyBound;
use super::clients::After;
use super::host::{Client, Host, SlowCommand};
use super::local::{self, Bounds};
use super::login::RespLogin;
use super::message::Kind;
use super::options::Options;
use super::parser::{Arguments, Parsed, Parser};
use super::reply::Protocol;
use super::request::{Fault, Request};
use super::rights;
use super::ring::{Answered, Ring};
use super::scripts::Eval;
use super::shapes::{Form, Shapes};
use super::sink::Sink;
use super::table::{self, Name};
use super::under_way::UnderWay;
use super::watch::Watched;
use super::words;
use ending::Ending;
use multi::{Queue, not_behind_multi};
use paused::is_of_pauses;
use subscribed::{Pauses, Subscribed};
use tracking::Asked;

pub use blocked::WaitsFor;
pub use subscribed::{PushBytes, Received};
pub use tracking::TrackedBy;

/// Replies that wait for the peer before nothing more is read, in bytes.
const OUT_BYTES_MAX: usize = 64 << 10;
/// The same, however little is left for the replies of all connections.
const OUT_BYTES_MIN: usize = 4 << 10;
/// Bytes of an argument that are always allowed.
const BULK_BYTES_MIN: usize = 64 << 10;
const CROSS_SLOT: &[u8] = b"CROSSSLOT Keys in request don't hash to the same slot";
const NOT_ONE_ITEM: &[u8] = b"ERR a token is for a write of one item: SET without GET and IFEQ, \
    MSET and DEL of one key, INCR and its like, INCREX without SATURATE and ENX, EXPIRE without \
    conditions, KV.APPLY, KV.RUN";

/// One connection that speaks RESP.
#[derive(Debug)]
pub struct Conversation {
    parser: Parser,
    talk: Talk,
}

/// All of it but the parser, whose views the commands are.
#[derive(Debug)]
struct Talk {
    ring: Ring,
    protocol: Protocol,
    client: Client,
    limits: Limits,
    bound: ReplyBound,
    /// The command at the front of the bytes was found: its length, and the argument from which its
    /// items are to be written.
    current: Option<(usize, usize)>,
    /// The entry of the ring of that command, if it was pushed.
    current_entry: Option<u64>,
    /// The command that ran last was one item without a token.
    one_item: Option<OneItem>,
    shapes: Shapes,
    queue: Option<Queue>,
    watched: Vec<Watched>,
    under_way: Option<UnderWay>,
    /// What it subscribes to, if it ever has.
    subscribed: Option<Box<Subscribed>>,
    /// The login, at a server with users.
    login: Option<Box<RespLogin>>,
    options: Options,
    /// What the user may do; `None` is everything.
    rights: Option<Arc<Rights>>,
    /// The node is one of several: keys of a command are of one slot, and writes are noted.
    is_clustered: bool,
    /// Replies for the peer.
    out: Vec<u8>,
    /// Frames that were given and not answered whole: the first item and how many.
    frames: VecDeque<(u64, usize)>,
    pauses: Pauses,
    ending: Ending,
    /// No command has come yet: the client may speak another protocol.
    is_new: bool,
}

/// A command that was one item: the same bytes again are the same item.
#[derive(Clone, Copy, Debug)]
struct OneItem {
    /// Bytes of the item.
    bytes: usize,
    form: Form,
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    Whole,
    /// Items are missing: the frame is full, or the ring.
    Part,
    /// It runs when all commands before it are answered.
    Waits,
}

impl Conversation {
    /// A connection of `client` at a server with these limits, alone or one of several.
    #[must_use]
    pub fn new(client: Client, limits: Limits, is_clustered: bool) -> Self {
        let bulk_bytes_max = bulk_bytes_max(limits);
        let command_bytes_max = (limits.frame_bytes_max as usize).max(bulk_bytes_max + 4096);
        Conversation {
            parser: Parser::new(bulk_bytes_max, command_bytes_max),
            talk: Talk {
                ring: Ring::default(),
                protocol: Protocol::Resp2,
                client,
                limits,
                bound: ReplyBound {
                    one: command_bytes_max,
                    left: usize::MAX,
                },
                current: None,
                current_entry: None,
                one_item: None,
                shapes: Shapes::default(),
                queue: None,
                watched: Vec::new(),
                under_way: None,
                subscribed: None,
                login: None,
                options: Options::default(),
                rights: None,
                is_clustered,
                out: Vec::new(),
                frames: VecDeque::new(),
                pauses: Pauses::default(),
                ending: Ending::default(),
                is_new: true,
            },
        }
    }

    /// The user of the connection may do so much from now on; `None` is everything. The session in
    /// memory has the same rights.
    pub fn set_rights(&mut self, rights: Option<Arc<Rights>>) {
        self.talk.rights = rights;
    }

    /// The first frame for the session in memory.
    #[must_use]
    pub fn greeting() -> Vec<u8> {
        let mut frame = Vec::new();
        let hello = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "resp",
        };
        // No item ever has this number.
        hello.write(&mut frame, u64::MAX);
        frame
    }

    /// Takes whole commands from the front of `bytes` and adds at most one frame to the empty
    /// `frame`. Returns how many bytes were taken. To be called again until it takes nothing and
    /// adds nothing; then, unless [`Conversation::is_blocked`], with more bytes.
    pub fn take(&mut self, bytes: &[u8], frame: &mut Vec<u8>, host: &dyn Host) -> usize {
        let Conversation { parser, talk } = self;
        talk.pauses = Pauses::default();
        talk.asks_for_pause(host);
        talk.begins_replies();
        if let Some(login) = &talk.login {
            parser.knows(login.is_in());
        }
        if talk.is_new
            && let Some(answer) = answer_of_resp(bytes)
        {
            talk.out.extend_from_slice(&answer);
            talk.ending.begin();
        }
        let mut sink = Sink::new(frame, bytes.len(), talk.limits, talk.options.level);
        let mut taken = 0;
        // Asked once, when there is a command.
        let mut clock = Some(host);
        loop {
            if talk.ending.has_begun {
                talk.ending.drops(bytes.len() - taken);
                taken = bytes.len();
                break;
            }
            talk.pop_goes_on(host);
            let goes_on = talk.go_on(&mut sink);
            if !talk.drops_replies() || !goes_on || !talk.ring.has_room() || talk.is_out_full() {
                talk.pauses.is_blocked = true;
                break;
            }
            let rest = &bytes[taken..];
            if rest.is_empty() {
                break;
            }
            if talk.current.is_none() {
                if !parser.is_inside() && talk.allows_shapes() {
                    let len = talk.take_shaped(rest, &mut sink, &mut clock);
                    if len > 0 {
                        taken += len;
                        continue;
                    }
                }
                match parser.next(rest) {
                    Parsed::Incomplete => break,
                    Parsed::Nothing(len) => {
                        taken += len;
                        continue;
                    }
                    Parsed::Command(len) => {
                        talk.is_new = false;
                        talk.current = Some((len, 1));
                        if sink.is_empty() {
                            sink.expect(rest.len(), len);
                        }
                    }
                    Parsed::Broken(broken) => {
                        let mut text = Vec::new();
                        broken.write(&mut text);
                        talk.end(&text);
                        continue;
                    }
                }
            }
            talk.ring.comes(&mut clock);
            talk.begins_command();
            match talk.command(parser.arguments(rest), &mut sink, host) {
                Passed::Whole => {}
                Passed::Part => {
                    // Without a frame that is full, it is the ring.
                    talk.pauses.is_blocked = sink.is_empty();
                    break;
                }
                Passed::Waits => {
                    talk.pauses.is_blocked = true;
                    break;
                }
            }
            let (len, _) = talk.current.take().expect("there is one");
            talk.current_entry = None;
            if talk.login.as_ref().is_some_and(|login| login.has_secret) {
                parser.wipe();
            }
            parser.done();
            taken += len;
            let one_item = talk.one_item.take();
            if let Some(one) = one_item.filter(|_| talk.allows_shapes()) {
                talk.remember(&rest[..len], parser.arguments(rest), one, &sink);
                let again = talk.repeat(rest, len, len, one.bytes, &mut sink);
                talk.ring.counts_again(again);
                taken += len * again;
            }
        }
        talk.drops_replies();
        talk.reports_held(host);
        talk.ring.calls().report(host);
        talk.frames.extend(sink.finish());
        taken
    }

    /// Whether nothing more is taken before answers have come or replies have left.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.talk.pauses.is_blocked
    }

    /// Whether a command has begun that is not whole; `left` bytes were not taken.
    #[must_use]
    pub fn is_inside(&self, left: usize) -> bool {
        left > 0 && !self.talk.pauses.is_blocked && self.talk.current.is_none()
    }

    /// Whether the connection ends when its replies have left. Messages that have not begun to
    /// leave are dropped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let talk = &self.talk;
        let has_left = talk.ring.is_empty() && talk.out.is_empty() && !talk.is_within_push();
        talk.ending.has_begun && has_left
    }

    /// Whether replies wait that came before those of earlier commands.
    #[must_use]
    pub fn holds_replies(&self) -> bool {
        self.talk.ring.held_bytes() > 0
    }

    /// Replies that may leave.
    #[must_use]
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.talk.out
    }

    /// Ends the connection behind an error.
    pub fn end(&mut self, text: &str) {
        self.talk.end(text.as_bytes());
    }

    /// Takes frames that the session has answered with, all whole.
    pub fn answered(&mut self, frames: &[u8], host: &dyn Host) {
        if frames.is_empty() {
            return;
        }
        self.talk.ring.answers_at(host.elapsed_us());
        self.talk.begins_replies();
        let mut at = 0;
        while let Some(head) = frames[at..].first_chunk::<HEADER_BYTES>() {
            let header = Header::decode(head);
            let end = at + (header.len as usize).max(HEADER_BYTES);
            let Some(body) = frames.get(at + HEADER_BYTES..end) else {
                break;
            };
            self.talk.answered_frame(&header, body, host);
            at = end;
        }
        self.talk.drops_replies();
        self.talk.reports_held(host);
        self.talk.report_slow(host);
    }
}

impl Talk {
    fn end(&mut self, text: &[u8]) {
        self.error(text);
        self.ending.begin_by_error();
        self.queue = None;
        self.watched.clear();
    }

    fn answered_frame(&mut self, header: &Header, body: &[u8], host: &dyn Host) {
        let retry_after_ms = header.deadline_or_retry_ms;
        if header.opcode == Opcode::Auth as u8 {
            return self.answered_login(header, body, host);
        }
        if header.level_or_status != Status::Ok.code() {
            return self.refused_frame(header, body, host);
        }
        if header.opcode != Opcode::Batch as u8 {
            // The answer to HELLO.
            return;
        }
        let Ok(batch) = Batch::read(body) else {
            return;
        };
        let mut number = 0;
        while number < batch.len() {
            let first = header.request_id;
            number += self.ring.answer_plain(first, batch, number, &mut self.out);
            if number == batch.len() {
                break;
            }
            if let Ok(item) = ReplyItem::read(batch.item(number)) {
                let place = header.request_id + u64::from(item.head.item);
                let answer = ItemAnswer {
                    item: &item,
                    retry_after_ms,
                    host,
                };
                self.answered_item(place, answer);
            }
            number += 1;
        }
        let first = self.ring.first_item();
        while let Some((begin, items)) = self.frames.front().copied() {
            if begin + items as u64 > first {
                break;
            }
            self.frames.pop_front();
        }
    }

    /// All items of a frame have the same error.
    #[cold]
    fn refused_frame(&mut self, header: &Header, body: &[u8], host: &dyn Host) {
        let status = Status::from_code(header.level_or_status).unwrap_or(Status::Malformed);
        let text = text_of(body).unwrap_or_default();
        let frame = self.frames.iter().find(|(id, _)| *id == header.request_id);
        let Some((first, items)) = frame.copied() else {
            return;
        };
        for item in 0..items as u64 {
            let head = ReplyHead::new(status, 0, AckLevel::None, Version::default());
            let reply = ReplyItem {
                head,
                expiry: None,
                standing: None,
                value: text.as_bytes(),
            };
            let answer = ItemAnswer {
                item: &reply,
                retry_after_ms: header.deadline_or_retry_ms,
                host,
            };
            self.answered_item(first + item, answer);
        }
    }

    #[inline]
    fn answered_item(&mut self, place: u64, answer: ItemAnswer<'_>) {
        let answered = self.ring.answer(place, answer, &mut self.out);
        if answered == Answered::UnderWay
            && let Some(under_way) = &mut self.under_way
        {
            under_way.answered(place, answer, self.bound);
            self.end_under_way();
        }
    }

    /// Tells the server which commands were answered late.
    #[inline]
    fn report_slow(&mut self, host: &dyn Host) {
        for (subject, took_us) in self.ring.take_slow() {
            host.was_slow(SlowCommand {
                id: 0,
                unix_s: host.unix_us() / 1_000_000,
                took_us,
                arguments: subject.shown(),
                address: self.client.address.clone(),
                name: self.client.name.clone(),
            });
        }
    }

    /// Sends what the command under way wants sent. `false` if there is one: what comes after it
    /// waits.
    fn go_on(&mut self, sink: &mut Sink<'_>) -> bool {
        if self.login.is_some() && !self.login_goes_on(sink) {
            return false;
        }
        let Some(under_way) = &self.under_way else {
            return true;
        };
        let items = under_way.items_to_send();
        if items == 0 {
            return false;
        }
        // A frame of its own, unless the first reads fit behind what is there.
        let bytes = items * 2 * KEY_BYTES_MAX + self.pop().map_or(0, BlockedPop::try_bytes);
        if !sink.is_empty() && !sink.has_room(items, bytes) {
            return false;
        }
        sink.items_max = sink.items_max.max(items);
        let first = self.ring.next_item();
        let (batch, frame) = sink.batch(first);
        let under_way = self.under_way.as_mut().expect("there is one");
        under_way.send(first, batch, frame);
        for _ in 0..items {
            self.ring.add_item(under_way.entry);
        }
        false
    }

    /// Begins a command whose answers decide how it goes on.
    fn begin_under_way(&mut self, mut under_way: UnderWay) {
        under_way.entry = self.ring.push(Fold::UnderWay, self.protocol);
        self.under_way = Some(under_way);
        self.end_under_way();
    }

    /// Takes the reply of the command under way when it is done.
    fn end_under_way(&mut self) {
        let outcome = self.under_way.as_mut().and_then(UnderWay::outcome);
        let Some(outcome) = outcome else {
            return;
        };
        let under_way = self.under_way.take().expect("it had an outcome");
        self.watched.extend(outcome.watched);
        if let (true, Some(slot)) = (self.is_clustered, outcome.popped_slot) {
            self.ring.written().note(slot);
        }
        if outcome.has_waited {
            self.ring.comes_now(under_way.entry);
        }
        self.ring.settle(under_way.entry, &mut self.out, |replies| {
            replies.raw(&outcome.reply)
        });
    }

    fn is_out_full(&self) -> bool {
        let most = OUT_BYTES_MAX.min(self.bound.left.max(OUT_BYTES_MIN));
        self.out.len() + self.ring.held_bytes() >= most
    }

    /// Runs the current command, or what is left of it.
    #[inline]
    fn command(&mut self, args: Arguments<'_>, sink: &mut Sink<'_>, host: &dyn Host) -> Passed {
        let command = table::find(args.get(0));
        let passed = match command {
            Some(command) => self.found(command, args, sink, host),
            None => self.refuse(|out| words::unknown_command(args, out)),
        };
        if passed == Passed::Whole && self.is_tracking() {
            self.tracked_command(command, args);
        }
        passed
    }

    /// A command of the table.
    #[inline]
    fn found(
        &mut self,
        command: &table::Command,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        if !command.takes(args.len()) {
            if command.id == Name::Exec {
                return self.refuse_exec();
            }
            return self.refuse(|out| words::wrong_arity(command.name, out));
        }
        if let Some(login) = &self.login
            && !login.is_in()
            && !command.needs_no_login()
        {
            return self.refuse(|out| out.extend_from_slice(words::NO_AUTH));
        }
        if self.is_restricted() && !command.is_of_subscribers() {
            return self.refuse_restricted(command, args);
        }
        if self.is_held_back(command, args) {
            return Passed::Waits;
        }
        let passed = self.known(command, args, sink, host);
        if passed == Passed::Whole {
            self.ring.calls().add(command.id, 1);
        }
        passed
    }

    /// A command of the table that may run.
    #[inline]
    fn known(
        &mut self,
        command: &table::Command,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        if self.queue.is_some() && !is_control(command.id) {
            return self.queue_command(command, args);
        }
        match Request::read(command, args) {
            Ok(Some(request)) if request.is_too_far(|| host.unix_us() / 1000) => {
                self.refuse(|out| Fault::ExpireTime(command.name).write(args, out))
            }
            Ok(Some(request)) => self.keyed(command.id, &request, args, sink, host),
            Ok(None) => {
                self.shapes.forget();
                self.unkeyed(command.id, args, sink, host)
            }
            Err(fault) => self.refuse(|out| fault.write(args, out)),
        }
    }

    /// Answers with an error; MULTI will not EXEC.
    #[cold]
    fn refuse(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Passed {
        let mut text = Vec::new();
        write(&mut text);
        if let Some(queue) = &mut self.queue {
            queue.make_void();
        }
        self.error(&text);
        Passed::Whole
    }

    fn error(&mut self, text: &[u8]) {
        self.ring
            .reply(self.protocol, &mut self.out, |replies| replies.error(text));
    }

    /// A command that names no key, or not as others do.
    fn unkeyed(
        &mut self,
        id: Name,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        if let Some(eval) = Eval::read(id, args) {
            return self.eval(id, eval, args, sink, host);
        }
        match id {
            Name::Scan => return self.scan(args, sink, host),
            Name::Keys | Name::RandomKey => self.walk(id, args, host),
            Name::FlushAll | Name::FlushDb => return self.flush(id, args, sink, host),
            Name::Debug => return self.debug(args, sink, host),
            Name::KvApply => return self.apply(args, sink, host),
            Name::KvGet => return self.fields(args, sink, host),
            Name::KvOpts => return self.options(args, sink),
            Name::KvRun => return self.run(args, sink, host),
            Name::Wait => return self.wait(args, sink, host),
            Name::ReadOnly | Name::ReadWrite => {
                self.options.is_readonly = id == Name::ReadOnly;
                self.ok();
            }
            Name::Multi | Name::Watch if self.queue.is_some() => {
                return self.refuse(|out| not_behind_multi(args, out));
            }
            Name::Multi => {
                self.queue = Some(Queue::default());
                self.ok();
            }
            Name::Discard | Name::Exec if self.queue.is_none() => {
                let name = if id == Name::Exec { "EXEC" } else { "DISCARD" };
                return self.refuse_only(format!("ERR {name} without MULTI").as_bytes());
            }
            Name::Discard => {
                self.queue = None;
                self.watched.clear();
                self.ok();
            }
            Name::Exec => return self.exec(sink, host),
            // It says and changes which scripts there are for those before it.
            Name::Script if !self.is_idle(sink) => return Passed::Waits,
            Name::Watch => return self.watch(args),
            Name::Unwatch => {
                self.watched.clear();
                self.ok();
            }
            Name::Auth if self.login.is_some() => return self.auth(args, sink),
            Name::Subscribe => return self.subscribe(Kind::Channel, args, host),
            Name::PSubscribe => return self.subscribe(Kind::Pattern, args, host),
            Name::SSubscribe => return self.subscribe(Kind::Shard, args, host),
            Name::Unsubscribe => return self.unsubscribe(Kind::Channel, args, host),
            Name::PUnsubscribe => return self.unsubscribe(Kind::Pattern, args, host),
            Name::SUnsubscribe => return self.unsubscribe(Kind::Shard, args, host),
            Name::Publish => return self.publish(Kind::Channel, args, sink, host),
            Name::SPublish => return self.publish(Kind::Shard, args, sink, host),
            Name::Ping if self.is_restricted() => return self.ping_restricted(args),
            Name::Reset => return self.reset(sink, host),
            Name::Quit => {
                self.ok();
                self.ending.begin();
            }
            Name::Hello => return self.hello(args, sink, host),
            Name::Client if args.len() == 3 && args.get(1).eq_ignore_ascii_case(b"REPLY") => {
                return self.client_reply(args);
            }
            Name::Client if is_of_pauses(args) => return self.client_pause(args, host),
            Name::Client if let Some(asked) = Asked::read(args) => {
                return self.of_tracking(asked, args, host);
            }
            _ => {
                if let Some(rights) = &self.rights
                    && let Some(text) = rights::refusal(id, args, rights)
                {
                    return self.refuse_only(&text);
                }
                let (protocol, client) = (self.protocol, &mut self.client);
                let bounds = Bounds {
                    bulk_bytes_max: bulk_bytes_max(self.limits),
                    replies: self.bound,
                };
                let mut after = After::GoesOn;
                self.ring.reply(protocol, &mut self.out, |replies| {
                    after = local::answer(id, args, client, bounds, host, replies);
                });
                if after == After::Ends {
                    self.ending.begin();
                }
            }
        }
        Passed::Whole
    }

    /// RESET.
    fn reset(&mut self, sink: &Sink<'_>, host: &dyn Host) -> Passed {
        if self.awaits_messages(host) || self.awaits_silence() {
            return Passed::Waits;
        }
        if self.login.is_some() && !self.leave(sink) {
            return Passed::Waits;
        }
        (self.queue, self.protocol) = (None, Protocol::Resp2);
        self.watched.clear();
        self.end_subscriptions(host);
        self.options = Options::default();
        self.client.name.clear();
        self.client.protocol = 2;
        host.client_changed(&self.client);
        let protocol = self.protocol;
        self.ring
            .reply(protocol, &mut self.out, |replies| replies.simple("RESET"));
        Passed::Whole
    }

    fn ok(&mut self) {
        let protocol = self.protocol;
        self.ring
            .reply(protocol, &mut self.out, |replies| replies.simple("OK"));
    }

    /// An error that leaves MULTI as it is.
    fn refuse_only(&mut self, text: &[u8]) -> Passed {
        self.error(text);
        Passed::Whole
    }
}

/// Bytes of an argument, at most.
fn bulk_bytes_max(limits: Limits) -> usize {
    (limits.value_bytes_max as usize).max(BULK_BYTES_MIN)
}

/// Whether a command is not queued behind MULTI.
fn is_control(id: Name) -> bool {
    matches!(
        id,
        Name::Multi | Name::Exec | Name::Discard | Name::Watch | Name::Reset | Name::Quit
    )
}
