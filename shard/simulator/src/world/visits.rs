//! Visits in the traffic of a node: conversations of RESP around its sessions, and items of its own
//! process.

use std::collections::BTreeMap;
use std::rc::Rc;

use penstock_net::frame::Medium;
use penstock_net::hello::{ClientHello, FEATURE_BEGAN};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::reply::ReplyItem;
use penstock_net::request::BatchRequest;
use penstock_net::resp::{Client as RespClient, Conversation, Kind, Message, TrackedBy};
use penstock_net::status::Status;
use penstock_shard::Event as ShardEvent;
use penstock_shard::tracking::writer_of;

use crate::port::{Around, Library, Readers, ShardReaders};
use crate::random::Random;
use crate::sales::Excuses;
use crate::visits::{Next, Role, Visits};

use super::{Asked, Core, Link, Phase, Step, World};

/// The place of what a visitor waits for among what a connection waits for.
const VISIT: u64 = 0;
/// Rounds in which bytes become frames, at most.
const ROUNDS_MAX: usize = 10_000;
/// Silence after which a connection ends.
const IDLE_US_MAX: u64 = 60_000_000;

/// A connection of a visitor, at the node.
struct Talk {
    visitor: usize,
    /// `None` inside the process.
    conversation: Option<Conversation>,
    /// What the session has not taken.
    frame: Vec<u8>,
    /// Bytes of a reply that has not left as a whole.
    leaving: Vec<u8>,
}

/// Visitors, and the port that they come by.
pub(super) struct Visiting {
    pub(super) visits: Visits,
    talks: BTreeMap<usize, Talk>,
    library: Library,
    readers: Rc<Readers>,
    /// Chance of crashes behind a flush.
    chance: Random,
    keys_max: usize,
    /// What the last look has asked for.
    pub(super) keys_read: usize,
}

impl Visiting {
    pub(super) fn new(
        mut random: Random,
        others: &[u16],
        has_short_values: bool,
        has_shelves: bool,
    ) -> Self {
        let keys_max = random.pick(&[2, 5, 1_000]);
        Visiting {
            chance: Random::new(random.bits(), 5),
            visits: Visits::new(random, others, has_short_values, has_shelves),
            talks: BTreeMap::new(),
            library: Library::new(),
            readers: Readers::new(1, keys_max),
            keys_max,
            keys_read: 0,
        }
    }

    /// A start: it knows no script, and nobody tracks.
    pub(super) fn starts(&mut self, cores: &mut [Core]) {
        let shards = u16::try_from(cores.len()).expect("few shards");
        self.visits.started();
        self.library = Library::new();
        self.readers = Readers::new(shards, self.keys_max);
        for (shard, core) in cores.iter_mut().enumerate() {
            let scripts = Box::new(self.library.interpreter());
            core.shard.execution_mut().serve_scripts(scripts);
            let readers = Rc::clone(&self.readers);
            let tracker = Box::new(ShardReaders { readers, shard });
            core.shard.serve_tracker(tracker);
        }
    }
}

impl World {
    /// The visitor of a client, if it is one.
    fn visitor_of(&self, client: usize) -> usize {
        client - self.plan.clients
    }

    pub(super) fn is_visitor(&self, client: usize) -> bool {
        client >= self.plan.clients
    }

    /// Whether the bytes of a connection are of RESP.
    fn speaks_resp(&self, link: usize) -> bool {
        let talk = self.visiting.as_ref().and_then(|it| it.talks.get(&link));
        talk.is_some_and(|talk| talk.conversation.is_some())
    }

    /// A visitor comes, or asks for more.
    pub(super) fn visit(&mut self, client: usize) -> Step {
        let visitor = self.visitor_of(client);
        let Some(link) = self.clients[client].link else {
            if self.node.as_ref().is_none_or(|node| node.is_stopping) {
                self.wake(client, 20_000);
                return Ok(());
            }
            let link = self.open_link(Some(client));
            self.clients[client].link = Some(link);
            self.greet(visitor, link);
            return Ok(());
        };
        let may_ask = self.phase == Phase::Traffic && self.issued < self.plan.operations;
        if !self.links[link].is_ready || !may_ask || !self.links[link].outstanding.is_empty() {
            return Ok(());
        }
        let now_us = self.now_us;
        let visiting = self.visiting.as_mut().expect("it has visitors");
        if visiting.visits.role(visitor) == Role::Inside {
            let act = visiting.visits.hall.begin(now_us);
            self.send_act(link, act);
        } else if !visiting.visits.is_busy(visitor)
            && let Some(bytes) = visiting.visits.begin(visitor, now_us)
        {
            self.ask_by_resp(link, visitor, bytes);
        }
        Ok(())
    }

    fn greet(&mut self, visitor: usize, link: usize) {
        let limits = Limits {
            frame_bytes_max: 1 << 20,
            value_bytes_max: u32::try_from(self.value_bytes_max).expect("small values"),
        };
        let visiting = self.visiting.as_mut().expect("it has visitors");
        let is_inside = visiting.visits.role(visitor) == Role::Inside;
        let id = link as u64 + 1;
        let client = RespClient {
            id,
            protocol: 2,
            ..RespClient::default()
        };
        let conversation = (!is_inside).then(|| Conversation::new(client, limits, false));
        let talk = Talk {
            visitor,
            conversation,
            frame: Vec::new(),
            leaving: Vec::new(),
        };
        visiting.talks.insert(link, talk);
        if is_inside {
            self.links[link].receiver.set_medium(Medium::Memory);
            let mut bytes = Vec::new();
            let hello = ClientHello {
                protocol_min: 1,
                protocol_max: 1,
                features: FEATURE_BEGAN,
                name: "inside",
            };
            hello.write(&mut bytes, 0);
            self.send_to_server(link, bytes);
        } else {
            let bytes = visiting.visits.greet(visitor);
            self.ask_by_resp(link, visitor, bytes);
        }
    }

    fn ask_by_resp(&mut self, link: usize, visitor: usize, bytes: Vec<u8>) {
        let asked = vec![Some(Asked::Visit(visitor))];
        self.links[link].outstanding.insert(VISIT, asked);
        self.send_to_server(link, bytes);
    }

    fn send_act(&mut self, link: usize, act: usize) {
        let request = self.next_request(link);
        let visiting = self.visiting.as_mut().expect("it has a hall");
        let bytes = visiting.visits.hall.write(act, request);
        // What others see of a flush must not be taken back.
        let meets_crash = visiting.visits.hall.is_flush(act) && visiting.chance.chance(150_000);
        if meets_crash && self.phase == Phase::Traffic {
            let soon_us = 4 * self.plan.network_us + 2 * self.plan.disk_us.0;
            let visiting = self.visiting.as_mut().expect("it has a hall");
            let when_us = self.now_us + visiting.chance.within(1, soon_us);
            self.at(when_us, super::Event::EarlyCrash { run: self.run });
        }
        let state = &mut self.links[link];
        state.alone = None;
        state
            .outstanding
            .insert(request, vec![Some(Asked::Act(act))]);
        self.send_to_server(link, bytes);
    }

    /// Opens the session of a visitor's connection; `false` if it is none.
    pub(super) fn connect_visitor(&mut self, link: usize) -> bool {
        let now = self.now();
        let Link { shard, .. } = self.links[link];
        let talk = self
            .visiting
            .as_mut()
            .and_then(|it| it.talks.get_mut(&link));
        let (Some(talk), Some(node)) = (talk, self.node.as_mut()) else {
            return false;
        };
        let front = node.cores[shard].shard.front_mut();
        let session = match talk.conversation {
            None => front.open_session_in_memory(now),
            Some(_) => {
                talk.frame = Conversation::greeting();
                front.open_session_translated(now, IDLE_US_MAX)
            }
        };
        self.links[link].session = Some(session);
        if self.speaks_resp(link) {
            let writer = writer_of(u16::try_from(shard).expect("few shards"), session);
            let visiting = self.visiting.as_ref().expect("it has visitors");
            visiting.readers.connect(link as u64 + 1, writer);
            self.converse(link);
        }
        true
    }

    /// Runs something on the conversation of a connection.
    fn with_talk<T>(
        &mut self,
        link: usize,
        run: impl FnOnce(&mut Talk, &Around<'_>) -> T,
    ) -> Option<T> {
        let shard = self.links[link].shard;
        let now = self.now();
        let node = self.node.as_ref()?;
        let time_ms = node.cores[shard].shard.store().data().time_ms();
        let visiting = self.visiting.as_mut()?;
        let talk = visiting.talks.get_mut(&link)?;
        let around = Around {
            unix_ms: now.unix_ms,
            time_ms,
            elapsed_us: now.us,
            library: &visiting.library,
            readers: &visiting.readers,
        };
        Some(run(talk, &around))
    }

    /// Gives the shard what a connection of RESP asks for; `false` if it is none.
    pub(super) fn deliver_visitor(&mut self, link: usize) -> bool {
        let speaks_resp = self.speaks_resp(link);
        if speaks_resp {
            self.converse(link);
        }
        speaks_resp
    }

    fn converse(&mut self, link: usize) {
        let Link {
            run,
            shard,
            session,
            ..
        } = self.links[link];
        for _ in 0..ROUNDS_MAX {
            let (true, Some(session), false) =
                (self.is_run(run), session, self.links[link].is_closed)
            else {
                return;
            };
            let frame = self.with_talk(link, |talk, _| std::mem::take(&mut talk.frame));
            let mut frame = frame.unwrap_or_default();
            if !frame.is_empty() {
                let bytes = &frame[..];
                let consumed = self.step(shard, ShardEvent::Received { session, bytes });
                frame.drain(..consumed);
                let is_paused = !frame.is_empty();
                self.with_talk(link, |talk, _| talk.frame = frame);
                if is_paused {
                    return;
                }
                continue;
            }
            let inbound = std::mem::take(&mut self.links[link].inbound);
            let taken = self.with_talk(link, |talk, around| {
                let conversation = talk.conversation.as_mut().expect("it speaks RESP");
                conversation.take(&inbound, &mut talk.frame, around)
            });
            let taken = taken.unwrap_or_default();
            self.links[link].inbound = inbound[taken..].to_vec();
            self.speak(link);
            let is_idle = self.with_talk(link, |talk, _| talk.frame.is_empty());
            if taken == 0 && is_idle != Some(false) {
                return;
            }
        }
        self.fail_visit("a conversation never comes to rest".to_string());
    }

    /// The session of a connection has written this; `false` if it speaks no RESP.
    pub(super) fn answered_visitor(&mut self, link: usize, bytes: &[u8]) -> bool {
        if !self.speaks_resp(link) {
            return false;
        }
        self.with_talk(link, |talk, around| {
            let conversation = talk.conversation.as_mut().expect("it speaks RESP");
            conversation.answered(bytes, around);
        });
        if !self.speak(link) && !bytes.is_empty() {
            self.at(self.now_us, super::Event::Sent { link });
        }
        self.converse(link);
        true
    }

    /// Moves the replies of a connection onto the network, behind the judge. Whether there are any.
    fn speak(&mut self, link: usize) -> bool {
        let mut bytes = Vec::new();
        let mut is_finished = false;
        self.with_talk(link, |talk, _| {
            let conversation = talk.conversation.as_mut().expect("it speaks RESP");
            while conversation.may_send() {
                let mut some = Vec::new();
                conversation.take_out(&mut some);
                bytes.append(&mut some);
            }
            is_finished = conversation.is_finished();
        });
        let has_some = !bytes.is_empty();
        if has_some {
            self.trace.fold_bytes(&bytes);
            self.judge_leaving(link, &bytes);
            if !self.links[link].is_abandoned {
                self.send_to_client(link, bytes);
            }
        }
        if is_finished {
            self.close_at_server(link);
        }
        has_some
    }

    fn judge_leaving(&mut self, link: usize, bytes: &[u8]) {
        let Some(Visiting { visits, talks, .. }) = &mut self.visiting else {
            return;
        };
        let talk = talks.get_mut(&link).expect("it speaks");
        talk.leaving.extend_from_slice(bytes);
        let is_its = self.clients[visits_client(self.plan.clients, talk)].link == Some(link);
        // What comes for a connection that was given up is nobody's.
        if !is_its {
            return;
        }
        let judged = visits.leaves(talk.visitor, link, &mut talk.leaving);
        if let Err(wrong) = judged {
            self.fail_visit(wrong);
        }
    }

    pub(super) fn fail_visit(&mut self, wrong: String) {
        self.failure.get_or_insert(wrong);
    }

    /// Tells connections of keys that have changed in the step before.
    pub(super) fn notify_readers(&mut self) {
        let Some(visiting) = &self.visiting else {
            return;
        };
        for (client, key) in visiting.readers.take_notices() {
            let link = usize::try_from(client - 1).expect("a link");
            if self.links[link].is_closed || !self.is_run(self.links[link].run) {
                continue;
            }
            if let Some(visiting) = &mut self.visiting {
                visiting.visits.noticed(link, key.as_deref());
            }
            let message = key.map(|key| {
                let of = (Kind::Channel, &b"__redis__:invalidate"[..], &key[..]);
                Message::new(of, &<_>::default(), usize::MAX).expect("there is room")
            });
            self.with_talk(link, |talk, _| {
                let conversation = talk.conversation.as_mut().expect("it tracks");
                let _ = conversation.invalidate(message, TrackedBy::ThisConnection, usize::MAX);
            });
            self.speak(link);
        }
    }

    /// Bytes of the node have reached a visitor; `None` if the connection is of no RESP.
    pub(super) fn reach_visitor(&mut self, link: usize, bytes: &[u8]) -> Option<Step> {
        if !self.speaks_resp(link) {
            return None;
        }
        let client = self.links[link].client.expect("a visitor's");
        let visitor = self.visitor_of(client);
        let now_us = self.now_us;
        let visits = &mut self.visiting.as_mut().expect("it has visitors").visits;
        let next = match visits.received(visitor, bytes, now_us) {
            Ok(next) => next,
            Err(wrong) => return Some(Err(wrong)),
        };
        match next {
            Next::Waits => {}
            Next::Asks(bytes) => self.ask_by_resp(link, visitor, bytes),
            Next::Rests => {
                self.answered += 1;
                self.links[link].is_ready = true;
                self.links[link].outstanding.remove(&VISIT);
            }
        }
        self.wake(client, self.plan.think_us);
        Some(Ok(()))
    }

    pub(super) fn answer_act(&mut self, number: usize, item: &ReplyItem<'_>) -> Step {
        let excuses = Excuses {
            may_be_full: self.oracle.may_be_full,
            may_fail_to_read: self.oracle.may_fail_to_read,
            is_cluster: false,
            must_execute: self.oracle.must_execute,
        };
        let visits = &mut self.visiting.as_mut().expect("it has a hall").visits;
        visits.hall.answered(number, item, self.now_us, excuses)
    }

    pub(super) fn lose_visit(&mut self, visitor: usize) {
        let visiting = self.visiting.as_mut().expect("it has visitors");
        visiting.visits.lost(visitor);
    }

    /// The node has nothing to do with a connection any more.
    pub(super) fn end_visit(&mut self, link: usize) {
        if let Some(visiting) = &mut self.visiting
            && visiting.talks.contains_key(&link)
        {
            penstock_net::resp::KeyTracker::end(&*visiting.readers, link as u64 + 1);
            visiting.visits.ended(link);
        }
    }

    /// Whether the last look has not read all keys of visits.
    pub(super) fn has_visits_left(&self) -> bool {
        let visiting = self.visiting.as_ref();
        visiting.is_some_and(|it| it.keys_read < it.visits.last_reads())
    }

    pub(super) fn read_visits_again(&mut self) {
        if let Some(visiting) = &mut self.visiting {
            visiting.keys_read = 0;
        }
    }

    /// Reads the next keys of the last look, so few that no queue may be full.
    pub(super) fn read_visits(&mut self) {
        let link = self.clients[0].link.expect("all are connected");
        let request = self.next_request(link);
        let Some(Visiting {
            visits, keys_read, ..
        }) = &mut self.visiting
        else {
            return;
        };
        let first = *keys_read;
        if let Some((visitor, bytes)) = visits.read_shelf(first) {
            *keys_read += 1;
            let client = self.plan.clients + visitor;
            let link = self.clients[client].link.expect("all are connected");
            self.ask_by_resp(link, visitor, bytes);
            return;
        }
        if visits.read_last(first).is_none() {
            let act = visits.read_hall(first, self.now_us);
            *keys_read += 1;
            self.send_act(link, act);
            return;
        }
        let keys: Vec<Vec<u8>> = (first..first + 4)
            .map_while(|at| visits.read_last(at))
            .collect();
        *keys_read += keys.len();
        let mut out = Vec::new();
        let level = AckLevel::Disk;
        let mut batch = BatchRequest::begin(&mut out, request, level, 0, keys.len());
        keys.iter().for_each(|key| batch.get(&mut out, key));
        batch.finish(&mut out);
        let asked = (first..first + keys.len()).map(|at| Some(Asked::LastRead(at)));
        let state = &mut self.links[link];
        state.alone = None;
        state.outstanding.insert(request, asked.collect());
        self.send_to_server(link, out);
    }

    pub(super) fn answer_last_read(&mut self, at: usize, item: &ReplyItem<'_>) -> Step {
        let visits = &mut self.visiting.as_mut().expect("it has visitors").visits;
        match item.head.status {
            Status::Ok => visits.found(at, Some(item.value.to_vec())),
            Status::NotFound => visits.found(at, None),
            Status::Io | Status::Corrupt if self.oracle.may_fail_to_read => {}
            status => return Err(format!("a last look was answered {status:?}")),
        }
        Ok(())
    }
}

/// The client that the visitor of a connection is.
fn visits_client(clients: usize, talk: &Talk) -> usize {
    clients + talk.visitor
}
