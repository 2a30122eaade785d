//! The shards of one node, each with its disk and one connection of RESP, turned by hand.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use penstock_net::frame::{HEADER_BYTES, Header, Opcode, write_frame};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::program::BACKUP_ASKS;
use penstock_net::request::BatchRequest;
use penstock_net::resp::{Client, Conversation};
use penstock_shard::opening::{change_shards, take_inventory};
use penstock_shard::tracking::{Tracker, writer_of};
use penstock_shard::{ChangesReport, Event, Mail, SessionId, ShardConfig};
use penstock_storage::budget::Budget;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::layout::Layout;
use penstock_storage::log::SyncMethod;
use penstock_storage::segment::{FirstBlock, SegmentHeader};
use penstock_storage::store::{KeyChange, Writer};

use crate::config::{OWNER, log_config, shard_config_with};
use crate::image::Image;
use crate::interpreter::{Lines, take_heavy_runs};
use crate::random::Random;
use crate::rights::resp::Still;
use crate::scripts::command;
use crate::server::{Asked, Failure, Files, SEGMENT_BYTES, Server, Snapshots};

use super::commands::{hashes, texts};
use super::model::{Content, Found, Held};

/// Those of the shards: a FLUSHALL is refused whose frame is longer.
const LIMITS: Limits = Limits {
    frame_bytes_max: 4 << 10,
    value_bytes_max: 3 << 10,
};
/// Names of reads that no client of the model asks.
const BESIDE: u64 = 1 << 40;
const HELLO_ID: u64 = u64::MAX;
/// Bytes of the log of a shard between two snapshots: little, so that short runs have some.
const SNAPSHOT_BYTES: u64 = 200;
const ROUNDS_MAX: usize = 20_000;
/// Files of one shard have numbers from a multiple of this on.
const FILES: u32 = 10_000;

/// Unix milliseconds of so many ticks. Whatever ends by itself ends half a tick before one.
pub fn time_ms(tick: u64) -> u64 {
    1_000_000 + 4_000 * tick
}

/// What starts of a node have met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    /// Changes that they have finished.
    pub resumed: u64,
    /// Starts with an open redo record, and those of them with a snapshot.
    pub with_redo: usize,
    pub with_snapshot: usize,
}

impl Met {
    pub fn and(self, other: Met) -> Met {
        Met {
            resumed: self.resumed + other.resumed,
            with_redo: self.with_redo + other.with_redo,
            with_snapshot: self.with_snapshot + other.with_snapshot,
        }
    }
}

struct Talker {
    talk: Conversation,
    host: Still,
    bytes: Vec<u8>,
    is_asked: bool,
    /// Replies that are dropped: those of MULTI and of what it queues.
    skips: usize,
}

pub struct Node {
    servers: Vec<Server>,
    talkers: Vec<Talker>,
    /// By sender and receiver.
    mail: BTreeMap<(u16, u16), VecDeque<Mail>>,
    replies: Vec<(usize, String)>,
    /// A connection of the native protocol to each shard.
    natives: Vec<SessionId>,
    incarnation: u64,
    /// How often [`Node::tick`] has been.
    ticks: u64,
    /// What its start has met.
    met: Met,
    /// Scripts that took a slice each and ran in one turn, at most.
    heavy_at_once: usize,
}

impl Node {
    pub fn new(shards: u16, failing: Option<(u16, usize, Failure)>) -> Node {
        let images = vec![Image::default(); usize::from(shards)];
        let snapshots = vec![Snapshots::new(); usize::from(shards)];
        let mut node = Node::open(Layout::new(shards), images, snapshots, 1, 0);
        if let Some((shard, number, failure)) = failing {
            node.servers[usize::from(shard)].fail(number, failure);
        }
        node
    }

    fn open(
        layout: Layout,
        images: Vec<Image>,
        snapshots: Vec<Snapshots>,
        incarnation: u64,
        ticks: u64,
    ) -> Node {
        let shards = u16::try_from(images.len()).expect("few");
        let all = (0..shards).zip(images).zip(snapshots);
        let mut servers: Vec<Server> = all
            .map(|((shard, image), snapshots)| {
                let config = ShardConfig {
                    takes_several_shards: true,
                    level_min: AckLevel::Disk,
                    hash_seed: 7,
                    ..shard_config_with(shard, shards, incarnation, SNAPSHOT_BYTES)
                };
                let log = log_config(SyncMethod::DurableWrite, incarnation);
                let budget = Budget::of_cache(1_000);
                let (layout, unix_ms) = (layout.clone(), time_ms(ticks));
                let opened =
                    Server::open_as(config, layout, snapshots, budget, unix_ms, log, image, None);
                let mut server = opened.expect("it opens");
                server.files_from = FILES * u32::from(shard) + 1;
                server
            })
            .collect();
        let has_redo = |it: &&Server| it.shard.execution().joint.may_have_redo();
        let with_redo = servers.iter().filter(has_redo);
        let with_snapshot = with_redo.clone().filter(|it| it.used.is_some());
        let met = Met {
            resumed: 0,
            with_redo: with_redo.count().min(1),
            with_snapshot: with_snapshot.count().min(1),
        };
        if met.with_redo > 0 {
            for server in &mut servers {
                server.shard.execution_mut().joint.resume();
            }
        }
        let natives = servers.iter().map(|server| server.session).collect();
        let talkers = servers.iter_mut().map(|server| Talker::new(server, shards));
        Node {
            talkers: talkers.collect(),
            servers,
            mail: BTreeMap::new(),
            replies: Vec::new(),
            natives,
            incarnation,
            ticks,
            met,
            heavy_at_once: 0,
        }
    }

    /// What its shards tell of keys, from now on.
    pub fn track(&mut self) -> Rc<RefCell<Vec<String>>> {
        let told = Rc::<RefCell<Vec<String>>>::default();
        for (shard, server) in self.servers.iter_mut().enumerate() {
            let told = Rc::clone(&told);
            server.shard.serve_tracker(Box::new(Spy { shard, told }));
        }
        told
    }

    /// The connection of a client, as the shards know it.
    pub fn writer(&self, client: usize) -> Writer {
        let shard = u16::try_from(client).expect("few");
        writer_of(shard, self.servers[client].session)
    }

    /// Scripts that took a slice each and ran in one turn, at most.
    pub fn heavy_at_once(&self) -> usize {
        self.heavy_at_once
    }

    pub fn shards(&self) -> usize {
        self.servers.len()
    }

    /// A node that a backup is restored to.
    pub fn restored(&self, images: Vec<Image>) -> Node {
        let shards = u16::try_from(images.len()).expect("few");
        let none = vec![Snapshots::new(); images.len()];
        Node::open(
            Layout::new(shards),
            images,
            none,
            self.incarnation + 1,
            self.ticks,
        )
    }

    /// The power is cut: each shard finds what its disk has, and of what is not flushed some.
    pub fn cut(&self, random: &mut Random, shards: u16) -> Node {
        assert_eq!(usize::from(shards), self.servers.len());
        let (images, snapshots) = self.disks(random);
        let incarnation = self.incarnation + 1;
        Node::open(
            Layout::new(shards),
            images,
            snapshots,
            incarnation,
            self.ticks,
        )
    }

    fn disks(&self, random: &mut Random) -> (Vec<Image>, Vec<Snapshots>) {
        let how = random.below(3);
        let images = self.servers.iter().map(|server| {
            let mut image = server.device.image.clone();
            for mut sector in server.device.unflushed() {
                if how == 1 || how == 2 && random.once_in(2) {
                    sector.toggle(&mut image);
                }
            }
            image
        });
        let images = images.collect();
        let snapshots = self.servers.iter().map(|it| it.snapshots.clone());
        (images, snapshots.collect())
    }

    /// The same, and the next start has so many shards.
    pub fn reshard(&self, random: &mut Random, shards: u16) -> Node {
        let before = u16::try_from(self.servers.len()).expect("few");
        let (images, _) = self.disks(random);
        let mut all = Image::default();
        for image in images {
            for (file, bytes) in image.files {
                assert!(all.files.insert(file, bytes).is_none(), "{file:?}");
            }
        }
        let mut layout = Layout::new(before);
        let snapshots = Snapshots::new();
        if before != shards {
            let mut files = Files {
                image: &mut all,
                snapshots: &snapshots,
            };
            let inventory = take_inventory(&mut files, OWNER, &layout, SEGMENT_BYTES as u64);
            let inventory = inventory.expect("the image is sound");
            let incarnation = self.incarnation + 1;
            let changed = change_shards(&mut files, &inventory, OWNER, shards, incarnation, false);
            layout = changed.expect("it can be read").layout;
        }
        let count = usize::from(shards);
        let (images, snapshots) = (vec![all; count], vec![snapshots; count]);
        Node::open(layout, images, snapshots, self.incarnation + 2, self.ticks)
    }

    pub fn is_free(&self, client: usize) -> bool {
        !self.talkers[client].is_asked
    }

    pub fn ask(&mut self, client: usize, lines: &[String]) {
        let talker = &mut self.talkers[client];
        assert!(!talker.is_asked);
        talker.is_asked = true;
        talker.skips = lines.len() - 1;
        for line in lines {
            talker.bytes.extend(command(line));
        }
        self.pump(client);
    }

    /// No spare segment can be made at a shard from now on, or again.
    pub fn fill(&mut self, shard: usize, is_full: bool) {
        let server = &mut self.servers[shard];
        match is_full {
            true => server.is_full = true,
            false if server.is_full => server.make_room(),
            false => {}
        }
    }

    pub fn is_fatal(&self) -> bool {
        self.servers.iter().any(|server| server.is_fatal)
    }

    /// Hands over what a client sends and what it is answered.
    fn pump(&mut self, client: usize) {
        let (talker, server) = (&mut self.talkers[client], &mut self.servers[client]);
        let raw = server.raw.replace(Vec::new()).expect("kept");
        let raw = without_beside(&raw);
        talker.talk.answered(&raw, &talker.host);
        for _ in 0..8 {
            let mut frame = Vec::new();
            let taken = talker.talk.take(&talker.bytes, &mut frame, &talker.host);
            talker.bytes.drain(..taken);
            if taken == 0 && frame.is_empty() {
                break;
            }
            server.inbox.extend(frame);
        }
        if !server.inbox.is_empty() {
            server.hand_over();
        }
        let out = talker.talk.out();
        while talker.is_asked && talker.skips > 0 {
            let Some(end) = out.windows(2).position(|two| two == b"\r\n") else {
                break;
            };
            out.drain(..end + 2);
            talker.skips -= 1;
        }
        if talker.is_asked && talker.skips == 0 && !out.is_empty() {
            let reply = std::mem::take(out).escape_ascii().to_string();
            talker.is_asked = false;
            self.replies.push((client, reply));
        }
    }

    fn turn(&mut self, shard: usize) {
        take_heavy_runs();
        self.servers[shard].turn();
        self.heavy_at_once = self.heavy_at_once.max(take_heavy_runs());
        let from = u16::try_from(shard).expect("few");
        for (to, mail) in std::mem::take(&mut self.servers[shard].mail) {
            self.mail.entry((from, to)).or_default().push_back(mail);
        }
        self.pump(shard);
    }

    fn deliver(&mut self, at: usize) {
        let waiting = self.mail.iter().filter(|(_, queue)| !queue.is_empty());
        let Some((&(from, to), _)) = waiting.clone().nth(at % waiting.count().max(1)) else {
            return;
        };
        let queue = self.mail.get_mut(&(from, to)).expect("it is there");
        let mail = queue.pop_front().expect("it is not empty");
        self.servers[usize::from(to)].step_quietly(Event::Mail(mail));
    }

    pub fn step(&mut self, random: &mut Random) {
        let shard = random.below(self.servers.len());
        match random.below(5) {
            0 | 1 => self.turn(shard),
            2 => self.servers[shard].end(random.below(3)),
            3 => self.deliver(random.below(8)),
            _ => {
                let us = random.below(2_000) as u64;
                for server in &mut self.servers {
                    server.now.us += us;
                }
            }
        }
    }

    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// The time passes for all shards at once, so that what ends half a tick before ends. The
    /// time that it is then.
    pub fn tick(&mut self) -> u64 {
        self.ticks += 1;
        for server in &mut self.servers {
            server.sleep(4_000);
        }
        time_ms(self.ticks)
    }

    pub fn pass_us(&mut self, us: u64) {
        for server in &mut self.servers {
            server.now.us += us;
        }
    }

    /// A turn of each shard, and the mail of all. Whether there was any.
    pub fn round(&mut self) -> bool {
        for shard in 0..self.servers.len() {
            self.turn(shard);
            self.servers[shard].end(0);
            self.servers[shard].now.us += 500;
        }
        let is_mail = |node: &Node| node.mail.values().any(|queue| !queue.is_empty());
        let was_mail = is_mail(self);
        while is_mail(self) {
            self.deliver(0);
        }
        was_mail
    }

    /// Another connection to a shard reads a key so often. How many of the reads it has taken.
    pub fn read_beside(&mut self, shard: usize, key: &str, count: u16) -> usize {
        let mut bytes = Vec::new();
        for number in 0..u64::from(count) {
            let level = AckLevel::Disk;
            let mut batch = BatchRequest::begin(&mut bytes, BESIDE + number, level, 0, 1);
            batch.get(&mut bytes, key.as_bytes());
            batch.finish(&mut bytes);
        }
        let session = self.natives[shard];
        let server = &mut self.servers[shard];
        let bytes = &bytes[..];
        let received = Event::Received { session, bytes };
        let taken = server.shard.step(server.now, received, &mut server.outbox);
        taken * usize::from(count) / bytes.len()
    }

    /// Until nothing is under way any more.
    pub fn settle(&mut self) {
        for shard in 0..self.servers.len() {
            self.fill(shard, false);
        }
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            let is_mail = self.round();
            let is_busy = self
                .servers
                .iter()
                .any(|it| !it.device.under_way().is_empty());
            quiet = if is_mail || is_busy { 0 } else { quiet + 1 };
            if quiet > 40 && self.is_serving() && self.talkers.iter().all(|it| !it.is_asked) {
                return;
            }
        }
        let resuming: Vec<_> = self
            .servers
            .iter()
            .map(|it| it.shard.execution().joint.resuming())
            .collect();
        panic!("the node never comes to rest: {resuming:?}");
    }

    pub fn is_serving(&self) -> bool {
        self.servers
            .iter()
            .all(|server| server.shard.execution().joint.resuming().is_none())
    }

    pub fn take_replies(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.replies)
    }

    /// What is there, read by one transaction.
    pub fn read_all(&mut self) -> Found {
        self.take_replies();
        let (texts, hashes) = (texts(), hashes());
        let mut lines = vec!["UNWATCH".to_string(), "MULTI".to_string()];
        for key in &texts {
            lines.extend([format!("GET {key}"), format!("PEXPIRETIME {key}")]);
        }
        for key in &hashes {
            lines.extend([format!("HGET {key} a"), format!("HGET {key} b")]);
            lines.push(format!("PEXPIRETIME {key}"));
        }
        lines.push("EXEC".into());
        self.ask(0, &lines);
        self.settle();
        let (_, reply) = self.take_replies().pop().expect("a reply");
        assert!(reply.starts_with('*'), "{reply}");
        let mut parts = reply.split("\\r\\n").skip(1);
        let mut value = move || {
            let head = parts.next().expect("a reply for each command");
            match head.strip_prefix(':') {
                Some(number) => (number != "-1" && number != "-2").then(|| number.to_string()),
                None if head == "$-1" => None,
                None => parts.next().map(str::to_string),
            }
        };
        let mut found = Found::new();
        for key in texts {
            let (text, until_ms) = (value(), value());
            // An armed key ends when its effects have run.
            let until_ms = until_ms.filter(|_| !key.ends_with("hold"));
            let until_ms = until_ms.map(|ms| ms.parse().expect("a time"));
            if let Some(text) = text {
                let content = Content::Text(text);
                found.insert(key, Held { content, until_ms });
            }
        }
        for key in hashes {
            let fields = ["a", "b"].map(|field| (field.to_string(), value()));
            let fields = fields
                .into_iter()
                .filter_map(|(field, it)| Some((field, it?)));
            let content = Content::Fields(fields.collect());
            let until_ms = value().map(|ms| ms.parse().expect("a time"));
            if content != Content::Fields(BTreeMap::new()) {
                found.insert(key, Held { content, until_ms });
            }
        }
        found
    }

    pub fn decided(&self) -> u64 {
        let all = self
            .servers
            .iter()
            .map(|it| it.shard.execution().joint.counters());
        all.map(|it| it.decided).sum()
    }

    /// What its start has met.
    pub fn met(&self) -> Met {
        let servers = self.servers.iter();
        let resumed = servers.map(|it| it.shard.execution().joint.counters().resumed);
        Met {
            resumed: resumed.sum(),
            ..self.met
        }
    }

    /// Changes that are decided and not closed.
    pub fn open_changes(&self) -> usize {
        let all = self
            .servers
            .iter()
            .map(|it| it.shard.execution().joint.open());
        all.sum()
    }

    /// What a shard asked of its disk.
    pub fn asked(&self, shard: u16) -> &[Asked] {
        &self.servers[usize::from(shard)].asked
    }
}

/// Writes down what a shard tells of keys.
struct Spy {
    shard: usize,
    told: Rc<RefCell<Vec<String>>>,
}

impl Spy {
    fn note(&self, what: &str, key: &[u8], more: impl std::fmt::Debug) {
        let (shard, key) = (self.shard, key.escape_ascii());
        let line = format!("{shard} {what} {key} {more:?}");
        self.told.borrow_mut().push(line);
    }
}

impl Tracker for Spy {
    fn is_wanted(&self) -> bool {
        true
    }

    fn changed(&self, key: &[u8], change: KeyChange, _: u64) {
        self.note("changed", key, change.writer);
    }

    fn comes(&self, key: &[u8], writer: Option<Writer>) {
        self.note("comes", key, writer);
    }

    fn made(&self, key: &[u8], change: KeyChange, _: u64) {
        self.note("made", key, change.expiry_ms);
    }

    fn shown(&self, key: &[u8], expiry_ms: u64) {
        self.note("shown", key, expiry_ms);
    }

    fn read_by_script(&self, key: &[u8], writer: Writer) {
        self.note("read", key, writer);
    }

    fn all_changed(&self) {
        self.note("all", b"", ());
    }

    fn expire(&self, _: u64) -> Option<u64> {
        None
    }
}

/// A backup that is taken beside all else, a question in each step.
#[derive(Default)]
pub struct Backup {
    /// What was told in this round, and how the disks were.
    reported: Vec<ChangesReport>,
    images: Vec<Image>,
    /// When the round began, for the history and in microseconds.
    began: (usize, u64),
    before: Option<Vec<u64>>,
    questions: u64,
}

/// As `penstock backup` has it.
const HELD_US: u64 = 250_000;

impl Backup {
    /// Asks the next shard. The disks of the backup when they are known to tear nothing, and the
    /// moment from which on they may be.
    pub fn step(&mut self, node: &mut Node, now: usize) -> Option<(usize, Vec<Image>)> {
        let shard = self.reported.len();
        let server = &mut node.servers[shard];
        if shard == 0 {
            self.began = (now, server.now.us);
        }
        self.questions += 1;
        let question = self.questions;
        let mut frame = Vec::new();
        let header = Header::request(Opcode::Info, question, AckLevel::None, 0);
        write_frame(&mut frame, header, &BACKUP_ASKS);
        let session = node.natives[shard];
        let received = Event::Received {
            session,
            bytes: &frame,
        };
        server.step_quietly(received);
        let reported = server.shard.execution().joint.report_to(session, question);
        // A connection that waits for room is asked later.
        let reported = reported.flatten()?;
        self.reported.push(reported);
        self.images.push(up_to_end(server));
        server.step_quietly(Event::Info {
            session,
            request_id: question,
            text: "",
        });
        if self.reported.len() < node.servers.len() {
            return None;
        }
        let (reported, images) = (
            std::mem::take(&mut self.reported),
            std::mem::take(&mut self.images),
        );
        let decided: Vec<u64> = reported.iter().map(|it| it.decided).collect();
        let took_us = node.servers[shard].now.us - self.began.1;
        let is_held = reported.iter().all(|it| it.is_held) && took_us < HELD_US;
        let is_good = is_held && self.before.as_ref() == Some(&decided);
        let is_calm = reported.iter().all(|it| it.open == 0);
        self.before = is_calm.then_some(decided);
        is_good.then_some((self.began.0, images))
    }
}

/// Replies without those of [`Node::read_beside`].
fn without_beside(replies: &[u8]) -> Vec<u8> {
    let (mut left, mut kept) = (replies, Vec::new());
    while let Some(head) = left.first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(head);
        let (frame, others) = left.split_at((header.len as usize).max(HEADER_BYTES));
        if !(BESIDE..HELLO_ID).contains(&header.request_id) {
            kept.extend_from_slice(frame);
        }
        left = others;
    }
    kept
}

/// The disk of a shard up to the end of what is durable.
fn up_to_end(server: &Server) -> Image {
    let end = server.shard.store().log().durable_end();
    let mut image = server.device.image.clone();
    image.files.retain(|_, bytes| {
        let first: Option<&[u8; BLOCK_BYTES]> = bytes.first_chunk();
        let Some(FirstBlock::Segment(header)) = first.map(SegmentHeader::read) else {
            return false;
        };
        if header.sequence == end.segment_sequence {
            let end = usize::try_from(end.end_offset).expect("small files");
            bytes[end..].fill(0);
        }
        header.sequence <= end.segment_sequence
    });
    image
}

impl Talker {
    fn new(server: &mut Server, shards: u16) -> Talker {
        server.shard.execution_mut().serve_scripts(Box::new(Lines));
        let (shard, now) = (&mut server.shard, server.now);
        server.session = shard.front_mut().open_session_translated(now, 0);
        server.raw = Some(Vec::new());
        server.inbox = Conversation::greeting();
        server.hand_over();
        Talker {
            talk: Conversation::new(Client::default(), LIMITS, false),
            host: Still {
                joined_cores: shards,
                schema: Arc::default(),
                unix_us: 1,
            },
            bytes: Vec::new(),
            is_asked: false,
            skips: 0,
        }
    }
}
