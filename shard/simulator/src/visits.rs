//! Visits: clients of Redis beside those of the native protocol, and what they do.
//!
//! | who | what |
//! |---|---|
//! | shoppers | groups behind MULTI, WATCH, scripts, plain commands: `shop` |
//! | readers | the same, and values that they keep and are told of: `boards` |
//! | keepers | hashes, sorted sets and texts of their own: `shelves` |
//! | those in the house | items of the process itself, which flush a partition: `hall` |

use std::collections::{BTreeMap, BTreeSet};

use penstock_scripts::digest;
use penstock_storage::version::{PARTITIONS, SLOTS};

use crate::random::Random;

mod boards;
mod graph;
pub(crate) mod hall;
mod replies;
mod shelves;
mod shop;

use boards::{Ask, Boards};
use hall::Hall;
use replies::{Reply, command, take_reply};
use shelves::Shelves;
use shop::{Shops, Then};

/// Slots of a partition.
const PARTITION_SLOTS: u16 = 64;

/// Partitions that are looked at for one that nobody uses, at most.
const PARTITIONS_TRIED_MAX: usize = 1_000;

/// What every long run with visits meets.
pub const MUST_MEET: &[&str] = &[
    "board watched and changed",
    "boards told",
    "boards told of all",
    "deed of unknown outcome",
    "exec null",
    "flush of a partition",
    "group of several slots",
    "group on a shelf",
    "script failed on purpose",
    "script over several slots",
    "script unknown",
    "script undone on a shelf",
    "shelf with hashes",
    "shelf with sorted sets",
    "shelf with texts",
    "start behind a step on a shelf",
];

/// Whether a key is one of visits; no other key begins so.
pub(crate) fn is_key(key: &[u8]) -> bool {
    let names: [&[u8]; 9] = [
        b"book",
        b"guests",
        b"notes",
        b"stock",
        b"sold",
        b"sequence",
        b"board",
        b"hall",
        b"shelf",
    ];
    match key {
        [b'{', _, _, b'}', name @ ..] => names.iter().any(|it| name.starts_with(it)),
        _ => false,
    }
}

/// What a visitor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It speaks RESP2.
    Shopper,
    /// It speaks RESP3 and tracks what it reads.
    Reader,
    /// It speaks RESP3 and tracks all boards.
    Listener,
    /// It is in the process, and speaks the native protocol.
    Inside,
    /// It speaks RESP2, and has shelves of its own.
    Keeper,
}

const ROLES: &[Role] = &[
    Role::Inside,
    Role::Inside,
    Role::Shopper,
    Role::Reader,
    Role::Shopper,
    Role::Listener,
    Role::Reader,
];

/// What a visitor waits for.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// The first commands of a connection.
    Greets,
    Deed(usize),
    Board(Ask),
    Shelf,
}

/// Visitors with shelves, in a run that has some.
const KEEPERS: usize = 2;

/// One visitor, and the connection that it has.
#[derive(Debug)]
struct Visitor {
    role: Role,
    task: Option<Task>,
    /// Commands of the last step, and their replies so far.
    asked: usize,
    replies: Vec<Reply>,
    /// Replies of that step that have left the node.
    left: usize,
    /// Scripts that this connection has sent.
    scripts: BTreeSet<&'static str>,
    /// Bytes that are no whole reply yet.
    buffer: Vec<u8>,
}

/// All visitors of a run.
#[derive(Debug)]
pub(crate) struct Visits {
    random: Random,
    visitors: Vec<Visitor>,
    shops: Shops,
    boards: Boards,
    pub(crate) hall: Hall,
    shelves: Option<Shelves>,
    /// What was met.
    pub(crate) met: BTreeMap<&'static str, u64>,
}

/// What becomes of a visitor behind some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It waits.
    Waits,
    /// It asks for more.
    Asks(Vec<u8>),
    /// It has all.
    Rests,
}

/// Slots of one shard, whatever the number of shards.
fn slots_of_one_shard<const N: usize>(random: &mut Random) -> [u16; N] {
    let partitions = random.pick(&[
        (0, 63),
        (64, 84),
        (86, 127),
        (128, 169),
        (171, 191),
        (192, 255),
    ]);
    std::array::from_fn(|_| {
        let partition = random.within(partitions.0, partitions.1);
        let slot = partition * u64::from(PARTITION_SLOTS) + random.below(PARTITION_SLOTS.into());
        u16::try_from(slot).expect("a slot")
    })
}

impl Visits {
    /// Visitors of a node whose other keys are in these slots. Names of a list are few enough for
    /// the shortest limit of values if the limit may change.
    pub(crate) fn new(
        mut random: Random,
        others: &[u16],
        has_short_values: bool,
        has_shelves: bool,
    ) -> Self {
        assert_eq!(
            usize::from(PARTITION_SLOTS) * PARTITIONS,
            usize::from(SLOTS)
        );
        let slots = slots_of_one_shard(&mut random);
        let names_max = match has_short_values {
            true => 14,
            false => random.pick(&[14, 40]),
        };
        let used: Vec<u16> = others
            .iter()
            .chain(&slots)
            .map(|it| it / PARTITION_SLOTS)
            .collect();
        let free = |_| {
            let [slot, sequence] = slots_of_one_shard(&mut random);
            let hall = slot / PARTITION_SLOTS;
            let is_free = !used.contains(&hall) && sequence / PARTITION_SLOTS != hall;
            is_free.then_some((hall, [slot, sequence]))
        };
        let (hall, boards_at) = (0..PARTITIONS_TRIED_MAX)
            .find_map(free)
            .expect("few partitions are used");
        let count = random.index(3) + ROLES.len() - 2;
        let visitor = |&role: &Role| Visitor {
            role,
            task: None,
            asked: 0,
            replies: Vec::new(),
            left: 0,
            scripts: BTreeSet::new(),
            buffer: Vec::new(),
        };
        let [shops, boards, acts] = [2, 3, 4].map(|concern| Random::new(random.bits(), concern));
        let mut visitors: Vec<Visitor> = ROLES[..count].iter().map(visitor).collect();
        let shelves = has_shelves.then(|| {
            visitors.extend([Role::Keeper; KEEPERS].iter().map(visitor));
            let mut random = Random::new(random.bits(), 5);
            let free = |_| {
                let [slot, other]: [u16; 2] = slots_of_one_shard(&mut random);
                let is_free = [slot, other].iter().all(|it| it / PARTITION_SLOTS != hall);
                is_free.then_some([slot, slot, other])
            };
            let slots = (0..PARTITIONS_TRIED_MAX)
                .find_map(free)
                .expect("the hall has one partition");
            Shelves::new(random, slots, visitors.len())
        });
        Visits {
            visitors,
            shelves,
            shops: Shops::new(shops, slots, names_max),
            boards: Boards::new(boards, boards_at),
            hall: Hall::new(acts, hall),
            met: MUST_MEET.iter().map(|&what| (what, 0)).collect(),
            random,
        }
    }

    pub(crate) fn visitors(&self) -> usize {
        self.visitors.len()
    }

    pub(crate) fn role(&self, visitor: usize) -> Role {
        self.visitors[visitor].role
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// Whether it waits for an answer.
    pub(crate) fn is_busy(&self, visitor: usize) -> bool {
        self.visitors[visitor].task.is_some()
    }

    /// The first bytes of a connection.
    pub(crate) fn greet(&mut self, visitor: usize) -> Vec<u8> {
        let prefix = self.boards.prefix();
        let mut commands = match self.visitors[visitor].role {
            Role::Shopper | Role::Inside | Role::Keeper => Vec::new(),
            Role::Reader | Role::Listener => vec![command(&[b"HELLO", b"3"])],
        };
        commands.push(command(&[b"KV.OPTS", b"level=disk"]));
        match self.visitors[visitor].role {
            Role::Shopper | Role::Inside | Role::Keeper => {}
            Role::Reader => commands.push(command(&[b"CLIENT", b"TRACKING", b"ON"])),
            Role::Listener => commands.push(command(&[
                b"CLIENT",
                b"TRACKING",
                b"ON",
                b"BCAST",
                b"PREFIX",
                &prefix,
            ])),
        }
        let it = &mut self.visitors[visitor];
        it.scripts.clear();
        it.buffer.clear();
        self.asks(visitor, Task::Greets, &commands)
    }

    fn asks(&mut self, visitor: usize, task: Task, commands: &[Vec<u8>]) -> Vec<u8> {
        let it = &mut self.visitors[visitor];
        it.task = Some(task);
        it.asked = commands.len();
        it.left = 0;
        it.replies.clear();
        commands.concat()
    }

    /// What it asks for next, if it wants something.
    pub(crate) fn begin(&mut self, visitor: usize, now_us: u64) -> Option<Vec<u8>> {
        let role = self.visitors[visitor].role;
        let share = match role {
            Role::Reader | Role::Listener => 800_000,
            Role::Shopper | Role::Inside => 250_000,
            Role::Keeper => {
                let has_one = self.shelves_of_keepers().begin(visitor);
                return has_one.then(|| self.ask_for(visitor, Task::Shelf));
            }
        };
        let task = match self.random.chance(share) {
            true => Task::Board(self.boards.begin(role != Role::Shopper, now_us)),
            false => Task::Deed(self.shops.begin(now_us)),
        };
        Some(self.ask_for(visitor, task))
    }

    fn shelves_of_keepers(&mut self) -> &mut Shelves {
        self.shelves.as_mut().expect("a keeper has shelves")
    }

    /// The node starts.
    pub(crate) fn started(&mut self) {
        self.shelves.iter_mut().for_each(Shelves::started);
    }

    fn ask_for(&mut self, visitor: usize, task: Task) -> Vec<u8> {
        let script = match task {
            Task::Deed(number) => self.shops.script(number),
            Task::Board(ask) => self.boards.script(ask),
            Task::Shelf => self.shelves_of_keepers().script(visitor),
            Task::Greets => None,
        };
        let text = script.unwrap_or_default();
        let name: String = digest(text.as_bytes())
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect();
        let is_known = self.visitors[visitor].scripts.contains(text) && self.random.chance(700_000);
        // Now and then a script is named that nobody may have sent since the start.
        let by_name = script.is_some() && (is_known || self.random.chance(50_000));
        let words: (&[u8], &[u8]) = match by_name {
            true => (b"EVALSHA", name.as_bytes()),
            false => (b"EVAL", text.as_bytes()),
        };
        if let Some(text) = script {
            self.visitors[visitor].scripts.insert(text);
        }
        let commands = match task {
            Task::Deed(number) => self.shops.asks(number, words),
            Task::Board(ask) => self.boards.asks(ask, words),
            Task::Shelf => self.shelves_of_keepers().asks(visitor, words),
            Task::Greets => unreachable!("a connection begins once"),
        };
        self.asks(visitor, task, &commands)
    }

    /// Bytes came from the node.
    pub(crate) fn received(
        &mut self,
        visitor: usize,
        bytes: &[u8],
        now_us: u64,
    ) -> Result<Next, String> {
        let mut next = Next::Waits;
        self.visitors[visitor].buffer.extend_from_slice(bytes);
        while let Some(reply) = take_reply(&mut self.visitors[visitor].buffer)? {
            let it = &mut self.visitors[visitor];
            if matches!(reply, Reply::Push(_)) {
                continue;
            }
            if it.task.is_none() || it.replies.len() == it.asked {
                return Err(format!(
                    "visitor {visitor} asked for nothing and got {reply:?}"
                ));
            }
            it.replies.push(reply);
            if it.replies.len() == it.asked {
                next = self.answered(visitor, now_us)?;
            }
        }
        Ok(next)
    }

    /// All that it asked for is there.
    fn answered(&mut self, visitor: usize, now_us: u64) -> Result<Next, String> {
        let it = &mut self.visitors[visitor];
        let task = it.task.expect("it asked");
        let replies = std::mem::take(&mut it.replies);
        let last = replies.last().expect("it asked for something");
        let is_error = |head: &str| matches!(last, Reply::Error(text) if text.starts_with(head));
        if is_error("NOSCRIPT") {
            self.meet("script unknown");
        }
        match task {
            Task::Greets => {
                if let Some(Reply::Error(text)) =
                    replies.iter().find(|it| matches!(it, Reply::Error(_)))
                {
                    return Err(format!("visitor {visitor} is greeted by {text}"));
                }
            }
            Task::Board(mut ask) => {
                let more = self.boards.answered(&mut ask, &replies, now_us)?;
                if !more.is_empty() {
                    return Ok(Next::Asks(self.asks(visitor, Task::Board(ask), &more)));
                }
            }
            Task::Shelf => self.shelves_of_keepers().answered(visitor, &replies)?,
            Task::Deed(number) => {
                if self.shops.is_over(number) {
                    self.visitors[visitor].task = None;
                    return Ok(Next::Rests);
                }
                self.note(number, last);
                if let Then::Asks(commands) = self.shops.answered(number, &replies, now_us)? {
                    return Ok(Next::Asks(self.asks(visitor, task, &commands)));
                }
            }
        }
        self.visitors[visitor].task = None;
        Ok(Next::Rests)
    }

    fn note(&mut self, number: usize, last: &Reply) {
        use shop::Form;
        let what = match (self.shops.deeds[number].form, last) {
            (Form::Watch, Reply::Null) => "exec null",
            (Form::Group | Form::Watch, Reply::Array(_)) => "group of several slots",
            (Form::Failing, Reply::Error(text)) if text.contains("on purpose") => {
                "script failed on purpose"
            }
            (Form::Script, Reply::Array(_)) => "script over several slots",
            _ => return,
        };
        self.meet(what);
    }

    /// Its connection is gone.
    pub(crate) fn lost(&mut self, visitor: usize) {
        match self.visitors[visitor].task.take() {
            Some(Task::Deed(number)) => {
                self.shops.lost(number);
                self.meet("deed of unknown outcome");
            }
            Some(Task::Shelf) => self.shelves_of_keepers().lost(visitor),
            Some(Task::Greets | Task::Board(_)) | None => {}
        }
    }

    /// Whole replies leave the node for a connection: they are taken out of `bytes`.
    pub(crate) fn leaves(
        &mut self,
        visitor: usize,
        link: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<(), String> {
        while let Some(reply) = take_reply(bytes)? {
            let it = &mut self.visitors[visitor];
            let is_push = matches!(reply, Reply::Push(_));
            it.left += usize::from(!is_push);
            let is_last = it.left == it.asked && !is_push;
            let tracks = matches!(it.role, Role::Reader | Role::Listener);
            let ask = match it.task {
                Some(Task::Board(ask)) if is_last => Some(ask),
                Some(Task::Greets) if is_last && tracks => {
                    self.boards.tracks(link);
                    None
                }
                _ => None,
            };
            self.boards.leaves(link, ask, &reply)?;
        }
        Ok(())
    }

    /// A connection is gone at the node.
    pub(crate) fn ended(&mut self, link: usize) {
        self.boards.ended(link);
    }

    /// A connection is to be told of a key, or that all have changed.
    pub(crate) fn noticed(&mut self, link: usize, key: Option<&[u8]>) {
        self.boards.noticed(link, key);
    }

    /// Keys of the last look.
    pub(crate) fn last_reads(&self) -> usize {
        let of_shelves = self.shelves.as_ref().map_or(0, Shelves::last_reads);
        self.shops.last_reads() + self.hall.last_reads() + of_shelves
    }

    /// Who looks at the shelf at this place of the last look, and what he asks; `None` if it is
    /// none.
    pub(crate) fn read_shelf(&mut self, at: usize) -> Option<(usize, Vec<u8>)> {
        let before = self.shops.last_reads() + self.hall.last_reads();
        let shelf = at.checked_sub(before)?;
        let is_keeper = |it: &Visitor| it.role == Role::Keeper;
        let visitor = self.visitors.iter().position(is_keeper)?;
        self.shelves_of_keepers().read_last(visitor, shelf);
        Some((visitor, self.ask_for(visitor, Task::Shelf)))
    }

    /// The key of a shop at this place of the last look; `None` if it is none.
    pub(crate) fn read_last(&self, at: usize) -> Option<Vec<u8>> {
        (at < self.shops.last_reads()).then(|| self.shops.read_last(at))
    }

    /// The place in the hall of a place of the last look.
    pub(crate) fn read_hall(&mut self, at: usize, now_us: u64) -> usize {
        let key = at - self.shops.last_reads();
        self.hall.read_last(key, now_us)
    }

    pub(crate) fn found(&mut self, at: usize, value: Option<Vec<u8>>) {
        self.shops.found(at, value);
    }

    /// Holds what is left against what was told.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.met
            .insert("board watched and changed", self.boards.nulls);
        self.met.insert("boards told", self.boards.notified);
        self.met
            .insert("boards told of all", self.boards.notified_all);
        self.met.insert("flush of a partition", self.hall.flushes);
        self.met.extend(self.shelves.iter().flat_map(Shelves::met));
        self.shops.finish()
    }
}
