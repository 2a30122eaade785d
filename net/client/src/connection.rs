//! The client's side of one connection, without a socket: operations in, bytes out; bytes in,
//! answers out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::login::{ConnectionLogin, Unwelcome};
use crate::operation::{Answer, ClientError, Unfit};
use crate::options::ClientOptions;
use crate::queued::{Item, Queued, Refused, What};
use penstock_net::apply::apply_has_many_keys;
use penstock_net::auth::BINDING_BYTES;
use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_REPLY, Header, Opcode, write_frame};
use penstock_net::hello::{
    ClientHello, FEATURE_ALL, FEATURE_APPLY, FEATURE_BEGAN, FEATURE_MANY_KEYS, FEATURE_RUN,
    FEATURE_SHOWN, FEATURE_TOKENS, FEATURE_WRONG_TYPE, ServerHello,
};
use penstock_net::item::ItemForm;
use penstock_net::level::AckLevel;
use penstock_net::limits::{BATCH_ITEMS_MAX, Limits};
use penstock_net::receive::{Received, Receiver, is_tls};
use penstock_net::reply::{ReplyItem, text_of};
use penstock_net::request::{BatchRequest, Token, ask_without_show};
use penstock_net::status::{Executed, Status};

/// The state of one connection.
pub(crate) struct Connection {
    limits: Limits,
    /// `FEATURE_*` of the server; none before its HELLO.
    features: u64,
    has_hello: bool,
    /// The server speaks another protocol at this port.
    is_of_another_kind: bool,
    login: ConnectionLogin,
    /// What is to be sent before anything else.
    output: Vec<u8>,
    /// Why the connection came to nothing, until [`Connection::take_unwelcome`] takes it.
    unwelcome: Option<Unwelcome>,
    next_request_id: u64,
    receiver: Receiver,
    received: Vec<u8>,
    /// The items of each request that was sent, by request id; `None` where an item was answered.
    sent: BTreeMap<u64, Vec<Option<Queued>>>,
    /// Operations that go to another node, each with the answer that names that node. Operations
    /// whose caller gets that answer are not here.
    elsewhere: Vec<(Queued, Answer)>,
    /// Operations that were answered BUSY and may be sent again.
    refused: Vec<Refused>,
    follows: bool,
    retries_busy: bool,
    /// The HELLO that opened the connection, until [`Connection::take_hello`] takes it.
    hello: Option<ServerHello>,
}

impl Connection {
    /// A new connection, and the bytes that it begins with. `binding` is that of an encrypted
    /// connection.
    ///
    /// # Errors
    /// [`ClientError::NotSent`] if a login cannot begin.
    pub(crate) fn begin(
        options: &ClientOptions,
        binding: Option<[u8; BINDING_BYTES]>,
    ) -> Result<(Connection, Vec<u8>), ClientError> {
        let mut hello = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: FEATURE_BEGAN | FEATURE_ALL | FEATURE_WRONG_TYPE,
            name: &options.name,
        }
        .write(&mut hello, 0);
        let login = ConnectionLogin::begin(options.identity.as_ref(), binding, &mut hello)?
            .where_nobody_must(options.identity_may_wait);
        let limits = Limits::default();
        let receiver = Receiver::new(64 << 20);
        Ok((
            Connection {
                limits,
                features: 0,
                has_hello: false,
                is_of_another_kind: false,
                login,
                output: Vec::new(),
                unwelcome: None,
                next_request_id: 1,
                receiver,
                received: Vec::new(),
                sent: BTreeMap::new(),
                elsewhere: Vec::new(),
                refused: Vec::new(),
                follows: options.follows,
                retries_busy: options.retries_busy,
                hello: None,
            },
            hello,
        ))
    }

    /// Whether operations may be sent: HELLO is answered, and the login, if there is one.
    pub(crate) fn has_hello(&self) -> bool {
        self.has_hello
    }

    /// Whether what answers at this port is none for this client: asking again is of no use.
    pub(crate) fn is_of_another_kind(&self) -> bool {
        self.is_of_another_kind
    }

    /// Whether something is to be sent that is no operation.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Moves that behind `out`.
    pub(crate) fn take_output(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.output);
    }

    /// Why the server does not let the client in, or the client does not trust it.
    pub(crate) fn take_unwelcome(&mut self) -> Option<Unwelcome> {
        self.unwelcome.take()
    }

    /// Takes the HELLO from which on operations may be sent; `None` after the first time.
    pub(crate) fn take_hello(&mut self) -> Option<ServerHello> {
        self.hello.take()
    }

    /// Whether the server has this feature.
    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Takes the operations that this node did not execute, because another node must answer.
    pub(crate) fn take_elsewhere(&mut self) -> Vec<(Queued, Answer)> {
        std::mem::take(&mut self.elsewhere)
    }

    /// Takes the operations that this node did not execute, because it has no room for them now.
    pub(crate) fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    /// How many operations were sent and are not answered.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.sent.values().flatten().flatten().count()
    }

    /// Encodes the operations that wait into as few frames as possible. An operation over the
    /// server's frame limit goes alone: the server refuses it and names the limit.
    pub(crate) fn send(&mut self, queue: &mut VecDeque<Queued>, now: Instant, out: &mut Vec<u8>) {
        let names = self.has(FEATURE_TOKENS);
        while let Some(first) = queue.pop_front() {
            if first.until <= now {
                first.fail(ClientError::Deadline);
                continue;
            }
            if let Some(unknown) = self.unknown_to_server(&first) {
                first.fail(ClientError::of_frame(Some(Status::Unsupported), unknown));
                continue;
            }
            let request_id = self.next_request_id;
            self.next_request_id += 1;
            let until = first.until;
            let deadline_ms = u16::try_from(until.duration_since(now).as_millis())
                .unwrap_or(u16::MAX)
                .max(1);
            first.what.sent(names);
            if let What::Frame { opcode, body, .. } = &first.what {
                write_frame(
                    out,
                    Header::request(*opcode, request_id, AckLevel::None, 0),
                    body,
                );
                self.sent.insert(request_id, vec![Some(first)]);
                continue;
            }
            let level = first.level;
            let mut group = vec![first];
            let mut bytes = 64 + frame_bytes(&group[0]);
            while group.len() < BATCH_ITEMS_MAX
                && let Some(next) = queue.front()
                && next.until > now
                && next.level == level
                && self.unknown_to_server(next).is_none()
                && matches!(next.what, What::Item { .. })
                && bytes + frame_bytes(next) <= self.limits.frame_bytes_max as usize
            {
                bytes += frame_bytes(next);
                let next = queue.pop_front().expect("looked at above");
                next.what.sent(names);
                group.push(next);
            }
            // A frame has the deadline of its first item. The deadlines of the others are close.
            let mut batch = BatchRequest::begin(out, request_id, level, deadline_ms, group.len());
            for queued in &group {
                if let What::Item { item, .. } = &queued.what {
                    let from = out.len();
                    if let Some(token) = queued.token().filter(|_| names) {
                        batch.token(token);
                    }
                    batch.raw(out, item.bytes());
                    if !self.has(FEATURE_SHOWN) {
                        ask_without_show(&mut out[from..]);
                    }
                }
            }
            batch.finish(out);
            self.sent
                .insert(request_id, group.into_iter().map(Some).collect());
        }
    }

    /// What the server does not know of the operation, as far as its HELLO tells.
    fn unknown_to_server(&self, queued: &Queued) -> Option<&'static str> {
        let What::Item { item, .. } = &queued.what else {
            return None;
        };
        let needs_token = match item {
            Item::Plain { .. } => false,
            Item::Named { by_caller, .. } => *by_caller || queued.is_in_doubt,
        };
        if needs_token && !self.has(FEATURE_TOKENS) {
            return Some("the server does not know tokens: feature bit 8 is missing in its HELLO");
        }
        let bytes = item.bytes();
        match ItemForm::of(bytes) {
            ItemForm::Run if !self.has(FEATURE_RUN) => {
                Some("the server does not know RUN: feature bit 10 is missing in its HELLO")
            }
            ItemForm::Apply if !self.has(FEATURE_APPLY) => {
                Some("the server does not know APPLY: feature bit 7 is missing in its HELLO")
            }
            ItemForm::Apply if apply_has_many_keys(bytes) && !self.has(FEATURE_MANY_KEYS) => Some(
                "the server does not take more than eight keys in an APPLY: feature bit 16 is \
                 missing in its HELLO",
            ),
            _ => None,
        }
    }

    /// Takes in bytes from the server and answers the callers that wait for them.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] if a server may not send these bytes. The connection must then be
    /// given up.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if !self.has_hello && self.received.is_empty() && is_tls(bytes) {
            return Err(ClientError::Unfit(Unfit::NeedsTls));
        }
        self.received.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.received);
        let mut at = 0;
        let outcome = loop {
            match self.receiver.next(&received[at..]) {
                Received::Incomplete { .. } => break Ok(()),
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    at += consumed;
                    if let Err(error) = self.reply(&header, body) {
                        break Err(error);
                    }
                }
                Received::Refused { refusal, .. } => {
                    self.is_of_another_kind = !self.has_hello;
                    break Err(ClientError::Protocol(refusal.to_string()));
                }
                Received::Skipped { consumed } => at += consumed,
            }
        };
        self.received = received;
        self.received.drain(..at);
        outcome
    }

    /// Whether an operation was sent and is not answered.
    pub(crate) fn is_owed(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Has a PING sent. Its answer answers nobody, and shows that the server is there.
    pub(crate) fn probe(&mut self) {
        let header = Header::request(Opcode::Ping, self.next_request_id, AckLevel::None, 0);
        self.next_request_id += 1;
        write_frame(&mut self.output, header, &[]);
    }

    /// Takes the operations that were sent and may be executed twice: reads, and writes with a
    /// token. The server may answer the others yet.
    pub(crate) fn take_repeatable(&mut self) -> Vec<Queued> {
        let knows_tokens = self.has(FEATURE_TOKENS);
        let slots = self.sent.values_mut().flatten();
        let taken =
            slots.filter_map(|slot| slot.take_if(|queued| queued.may_be_repeated(knows_tokens)));
        let mut taken: Vec<Queued> = taken.collect();
        if knows_tokens {
            taken.iter_mut().for_each(Queued::doubt);
        }
        self.forget_answered();
        taken
    }

    /// Takes every operation that was sent: whether it was executed is not known. Those that may be
    /// executed twice may be sent again; the others are given up.
    pub(crate) fn lose(&mut self, cause: &str) -> Vec<Queued> {
        let again = self.take_repeatable();
        for queued in std::mem::take(&mut self.sent)
            .into_values()
            .flatten()
            .flatten()
        {
            queued.fail(ClientError::Unknown(cause.into()));
        }
        again
    }

    fn forget_answered(&mut self) {
        self.sent
            .retain(|_, items| items.iter().any(Option::is_some));
    }

    /// Gives up the operations whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        let names = self.has(FEATURE_TOKENS);
        for slot in self.sent.values_mut().flatten() {
            if slot.as_ref().is_some_and(|queued| queued.until <= now)
                && let Some(mut queued) = slot.take()
            {
                if names {
                    queued.doubt();
                }
                queued.fail(ClientError::Unknown("no answer within the deadline".into()));
            }
        }
        self.forget_answered();
    }

    /// Operations may be sent, at a server that tells this of itself.
    fn open(&mut self, hello: &[u8]) -> Result<(), ClientError> {
        let hello = ServerHello::read(hello)
            .map_err(|refusal| ClientError::Protocol(refusal.to_string()))?;
        self.limits = hello.limits;
        self.features = hello.features;
        self.hello = Some(hello);
        self.has_hello = true;
        Ok(())
    }

    fn refused(&mut self, unwelcome: Unwelcome) -> Result<(), ClientError> {
        let error = unwelcome.error();
        self.unwelcome = Some(unwelcome);
        Err(error)
    }

    /// An error of the server about no operation.
    fn refused_whole(&mut self, status: Option<Status>, text: String) -> ClientError {
        let is_final = matches!(status, Some(Status::Malformed | Status::Unsupported));
        self.is_of_another_kind = is_final && !self.has_hello;
        match status {
            Some(Status::Busy | Status::Draining) => ClientError::Busy(text),
            _ => ClientError::Protocol(text),
        }
    }

    fn reply(&mut self, header: &Header, body: &[u8]) -> Result<(), ClientError> {
        let protocol = |text: &str| Err(ClientError::Protocol(text.to_string()));
        if header.flags & FLAG_REPLY == 0 {
            return protocol("the server sent a request");
        }
        if header.opcode == Opcode::Auth as u8 && !self.has_hello {
            let answered = self.login.answered(header, body, &mut self.output);
            return match answered {
                Ok(None) => Ok(()),
                Ok(Some(hello)) => self.open(hello),
                Err(unwelcome) => self.refused(unwelcome),
            };
        }
        if header.opcode == Opcode::Auth as u8 {
            // The first message went out with HELLO, to a server that turned out to need none.
            return Ok(());
        }
        let status = Status::from_code(header.level_or_status);
        if status != Some(Status::Ok) {
            let text = String::from(text_of(body).unwrap_or("an error without a text"));
            let Some(items) = self.sent.remove(&header.request_id) else {
                return Err(self.refused_whole(status, text));
            };
            let may_retry = self.retries_busy && status == Some(Status::Busy);
            for queued in items.into_iter().flatten() {
                let error = ClientError::of_frame(status, &text);
                match &queued.what {
                    What::Item { .. } if may_retry => self.refused.push(Refused {
                        queued,
                        outcome: Err(error),
                        retry_after_ms: header.deadline_or_retry_ms,
                    }),
                    _ => queued.fail(error),
                }
            }
            return Ok(());
        }
        if header.opcode == Opcode::Hello as u8 {
            let hello = ServerHello::read(body)
                .map_err(|refusal| ClientError::Protocol(refusal.to_string()))?;
            return match self.login.greeted(&hello, &mut self.output) {
                Ok(true) => self.open(body),
                Ok(false) => Ok(()),
                Err(unwelcome) => self.refused(unwelcome),
            };
        }
        let names = self.has(FEATURE_TOKENS);
        // An operation that was given up may be answered late.
        let Some(items) = self.sent.get_mut(&header.request_id) else {
            return Ok(());
        };
        // A request has items of one kind. If a reply of another kind removed the request, its
        // items would never be answered.
        let asked = items.iter().flatten().next();
        if asked.is_some_and(|queued| queued.what.opcode() as u8 != header.opcode) {
            return protocol("a reply is of another kind than its request");
        }
        if header.opcode == Opcode::Batch as u8 {
            let batch =
                Batch::read(body).map_err(|refusal| ClientError::Protocol(refusal.to_string()))?;
            for number in 0..batch.len() {
                let item = ReplyItem::read(batch.item(number))
                    .map_err(|refusal| ClientError::Protocol(refusal.to_string()))?;
                let Some(slot) = items.get_mut(usize::from(item.head.item)) else {
                    return protocol("an item was answered that was not asked");
                };
                let Some(mut queued) = slot.take() else {
                    continue;
                };
                let answer = Answer::of_item(&item);
                if names && answer.status.executed() == Executed::Unknown {
                    queued.doubt();
                }
                match queued {
                    queued if self.follows && is_elsewhere(answer.status, &queued) => {
                        self.elsewhere.push((queued, answer));
                    }
                    queued if self.retries_busy && answer.status == Status::Busy => {
                        self.refused.push(Refused {
                            queued,
                            outcome: Ok(answer),
                            retry_after_ms: header.deadline_or_retry_ms,
                        });
                    }
                    queued => queued.settle(Ok(answer)),
                }
            }
        } else if let Some(Queued {
            what: What::Frame { done, .. },
            ..
        }) = items.first_mut().and_then(Option::take)
        {
            done.done(Ok(body));
        }
        if items.iter().all(Option::is_none) {
            self.sent.remove(&header.request_id);
        }
        Ok(())
    }
}

/// Whether another node must answer it.
fn is_elsewhere(status: Status, queued: &Queued) -> bool {
    match (status, &queued.member) {
        (Status::Moved | Status::NotPrimary, None) => true,
        (Status::Moved | Status::NotPrimary | Status::Stale, Some(member)) => member.or_writer,
        _ => false,
    }
}

/// What an operation adds to a frame, at most.
fn frame_bytes(queued: &Queued) -> usize {
    const INDEX_ENTRY_BYTES: usize = 8;
    match &queued.what {
        What::Item { item, .. } => {
            let token = item.write().map_or(0, |_| 16 + Token::TEXT_BYTES);
            INDEX_ENTRY_BYTES + token + item.bytes().len()
        }
        What::Frame { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::queued::Waiter;
    use penstock_net::pieces::Pieces;
    use penstock_net::reply::{BatchReply, ReplyHead, write_error};
    use penstock_net::request::{Ask, Version};

    /// Keeps what the callers are told.
    #[derive(Clone, Default)]
    struct Outcomes(Arc<Mutex<Vec<Result<Answer, ClientError>>>>);

    impl Waiter for Outcomes {
        fn sent(&self, _is_named: bool) {}

        fn put_back(&self) {}

        fn done(&self, outcome: Result<Answer, ClientError>) {
            self.0.lock().expect("nobody panics with it").push(outcome);
        }
    }

    /// A connection that has sent a request of two GETs, with id 1.
    fn asked(options: &ClientOptions, outcomes: &Outcomes) -> Connection {
        let (mut connection, _) = Connection::begin(options, None).expect("no login");
        let now = Instant::now();
        let pending = Arc::default();
        let get = || {
            let item = Item::of(&Ask::get(b"key"));
            let done = Box::new(outcomes.clone());
            let until = now + Duration::from_secs(1);
            Queued::new(What::Item { item, done }, until, &pending)
        };
        let mut queue = VecDeque::from([get(), get()]);
        connection.send(&mut queue, now, &mut Vec::new());
        connection
    }

    /// The reply to that request: the first item is OK, the second one BUSY.
    fn one_is_busy() -> Vec<u8> {
        let mut pieces = Pieces::default();
        let mut reply = BatchReply::begin(&mut pieces, 1, 2).retry_after(40);
        for (number, status) in [(0, Status::Ok), (1, Status::Busy)] {
            let head = ReplyHead::new(status, number, AckLevel::Disk, Version::default());
            head.write(pieces.written(), b"");
            reply.end_item(&mut pieces);
        }
        reply.finish(&mut pieces, 0, false, false);
        pieces.into_bytes()
    }

    #[test]
    fn the_items_that_are_busy_may_be_sent_again_after_what_the_header_says() {
        let outcomes = Outcomes::default();
        let mut connection = asked(&ClientOptions::default(), &outcomes);
        connection.receive(&one_is_busy()).expect("a reply");
        let refused = connection.take_refused();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].retry_after_ms, 40);
        let outcomes = outcomes.0.lock().expect("nobody panics with it");
        assert_eq!(outcomes.len(), 1);
        assert!(outcomes[0].as_ref().is_ok_and(|it| it.status == Status::Ok));
    }

    #[test]
    fn a_frame_has_operations_of_one_level() {
        let options = ClientOptions::default();
        let (mut connection, _) = Connection::begin(&options, None).expect("no login");
        let (now, pending) = (Instant::now(), Arc::default());
        let get = |level| {
            let item = Item::of(&Ask::get(b"key"));
            let done = Box::new(Outcomes::default());
            let until = now + Duration::from_secs(1);
            let queued = Queued::new(What::Item { item, done }, until, &pending);
            Queued { level, ..queued }
        };
        let levels = [AckLevel::Disk, AckLevel::Disk, AckLevel::None];
        let mut queue = levels.map(get).into_iter().collect();
        let mut out = Vec::new();
        connection.send(&mut queue, now, &mut out);
        let (mut receiver, mut at, mut sent) = (Receiver::new(1 << 20), 0, Vec::new());
        while let Received::Frame {
            header,
            body,
            consumed,
        } = receiver.next(&out[at..])
        {
            at += consumed;
            let batch = Batch::read(body).expect("a batch");
            sent.push((header.level_or_status, batch.len()));
        }
        let code = |level| AckLevel::code(level).into();
        assert_eq!(sent, [(code(AckLevel::Disk), 2), (code(AckLevel::None), 1)]);
    }

    #[test]
    fn of_a_frame_that_is_busy_every_item_may_be_sent_again() {
        let outcomes = Outcomes::default();
        let mut connection = asked(&ClientOptions::default(), &outcomes);
        let header = Header::request(Opcode::Batch, 1, AckLevel::Disk, 0);
        let mut frame = Vec::new();
        write_error(&mut frame, Some(&header), Status::Busy, 7, 0, &"no room");
        connection.receive(&frame).expect("a reply");
        let refused = connection.take_refused();
        assert_eq!(refused.len(), 2);
        assert!(refused.iter().all(|it| it.retry_after_ms == 7));
        assert_eq!(connection.under_way(), 0);
    }

    #[test]
    fn the_caller_is_answered_busy_at_once_if_the_client_retries_nothing_and_full_in_any_case() {
        let outcomes = Outcomes::default();
        let options = ClientOptions {
            retries_busy: false,
            ..ClientOptions::default()
        };
        let mut connection = asked(&options, &outcomes);
        connection.receive(&one_is_busy()).expect("a reply");
        assert!(connection.take_refused().is_empty());
        assert_eq!(outcomes.0.lock().expect("nobody panics with it").len(), 2);

        let mut connection = asked(&ClientOptions::default(), &outcomes);
        let header = Header::request(Opcode::Batch, 1, AckLevel::Disk, 0);
        let mut frame = Vec::new();
        write_error(&mut frame, Some(&header), Status::Full, 0, 0, &"no room");
        connection.receive(&frame).expect("a reply");
        assert!(connection.take_refused().is_empty());
        assert_eq!(outcomes.0.lock().expect("nobody panics with it").len(), 4);
    }
}

#[cfg(test)]
#[path = "../tests/fuzz/connection.rs"]
mod fuzz;
