//! One client that asks for everything the four verbs and APPLY can do, against a model.
//!
//! An input is a list of steps: batches are sent without waiting, shards turn, disks and mail move
//! on in any order, the power fails. Half of the keys live on the shard of the connection. The
//! cache is small, so that keys are read again. Operations on one slot are executed in the order in
//! which they were sent; a state that a reply of level `disk` has shown outlives any power cut.
//! Replies wait with what they share, while the cells of the longest values change.

use std::collections::BTreeMap;

use penstock_net::apply::{Apply, Arithmetic};
use penstock_net::batch::Batch;
use penstock_net::frame::Opcode;
use penstock_net::hello::ClientHello;
use penstock_net::instruction::{FieldType, Instruction, Operation, Outcome};
use penstock_net::level::AckLevel;
use penstock_net::reply::{ITEM_FLAG_OVERFLOW, NO_INSTRUCTION, ReplyItem};
use penstock_net::request::{BatchRequest, Condition, Version};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_shard::Topology;
use penstock_storage::version::partition_of;

use crate::FOLDER;
use crate::node::{Node, frames};
use crate::target::{Choices, keep};

const STEPS_MAX: usize = 300;
const CACHE_BYTES: usize = 700;
const TAGS: usize = 4;

/// What the two keys of a tag hold.
type State = [Option<(Version, Vec<u8>)>; 2];

/// The keys of one slot, as the model sees them.
struct Tag {
    name: String,
    /// All states since the last power cut, oldest first.
    states: Vec<State>,
    /// The state that each key got by its last change.
    changed: [usize; 2],
    /// The last state that a reply of level `disk` has shown.
    shown: usize,
    /// Of the last state.
    sequence: u64,
}

impl Tag {
    fn key(&self, which: usize) -> Vec<u8> {
        format!("{{{}}}{which}", self.name).into_bytes()
    }

    fn partition(&self) -> usize {
        partition_of(slot_of(self.name.as_bytes()))
    }

    fn now(&self) -> &State {
        self.states.last().expect("there is always one")
    }
}

/// What must be answered.
#[derive(Debug)]
struct Expected {
    tag: usize,
    /// The state that the answer shows.
    state: usize,
    level: AckLevel,
    status: Status,
    reason: u8,
    instruction: u8,
    flags: u8,
    version: Version,
    /// None: a text.
    value: Option<Vec<u8>>,
    /// A GET of a key that had a shorter value before: if it waited for a read since, and the
    /// connection holds all that it may, the answer says so instead.
    may_be_busy: bool,
}

struct World {
    node: Node,
    tags: Vec<Tag>,
    connection: usize,
    next_request: u64,
    expected: BTreeMap<(u64, u16), Expected>,
}

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut world = World::new();
    for _ in 0..STEPS_MAX {
        if choices.is_empty() {
            break;
        }
        world.step(&mut choices);
    }
    world.settle();
    world.crash(&mut choices);
}

/// Names whose slots lie on the shards in turn and in a partition each.
fn names() -> Vec<String> {
    let topology = Topology::new(2);
    let mut partitions = Vec::new();
    let mut names = Vec::new();
    for name in ('a'..='z').map(String::from) {
        let slot = slot_of(name.as_bytes());
        let partition = partition_of(slot);
        let is_next = usize::from(topology.owner(slot)) == names.len() % 2;
        if is_next && !partitions.contains(&partition) && names.len() < TAGS {
            partitions.push(partition);
            names.push(name);
        }
    }
    assert_eq!(names.len(), TAGS);
    names
}

impl World {
    fn new() -> World {
        let tag = |name| Tag {
            name,
            states: vec![[None, None]],
            changed: [0; 2],
            shown: 0,
            sequence: 0,
        };
        let mut world = World {
            node: Node::new(2, CACHE_BYTES),
            tags: names().into_iter().map(tag).collect(),
            connection: 0,
            next_request: 1,
            expected: BTreeMap::new(),
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        self.connection = self.node.connect(0);
        let mut bytes = Vec::new();
        let hello = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "fuzz",
        };
        hello.write(&mut bytes, 0);
        self.node.send(self.connection, &bytes);
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 10 {
            0..=3 => self.batch(choices),
            4 | 5 => {
                self.node.turn(choices.below(2));
                self.take();
            }
            6 | 7 => self.node.complete(choices.below(2), choices),
            8 => self.node.deliver(choices.below(2)),
            _ => match choices.byte() {
                0..=31 => self.crash(choices),
                32..=63 => self.settle(),
                ms => self.node.now.us += 100 * u64::from(ms),
            },
        }
    }

    fn batch(&mut self, choices: &mut Choices<'_>) {
        let request_id = self.next_request;
        self.next_request += 1;
        let levels = [AckLevel::Disk, AckLevel::None, AckLevel::Interval];
        let level = levels[choices.below(3)];
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request_id, level, 0, 4);
        for item in 0..=choices.below(4) {
            let tag = choices.below(TAGS);
            let which = choices.below(2);
            let key = self.tags[tag].key(which);
            let mut keys = [which; 2];
            let mut expected = match choices.byte() % 8 {
                0 | 1 => {
                    batch.get(&mut out, &key);
                    self.get(tag, which)
                }
                2 | 3 => {
                    let (byte, len) = (choices.byte(), choices.below(64));
                    // Some have a block of their own.
                    let len = 4 * len + if len < 56 { 0 } else { 2_048 };
                    let value = vec![byte; len];
                    let condition = self.condition(tag, which, choices);
                    batch.set(&mut out, &key, &value, condition);
                    self.set(tag, which, Some(value), condition)
                }
                4 => {
                    let condition = match self.condition(tag, which, choices) {
                        Condition::Absent => Condition::Always,
                        condition => condition,
                    };
                    batch.del(&mut out, &key, condition);
                    self.set(tag, which, None, condition)
                }
                7 => {
                    let both = choices.byte() % 2 == 1;
                    keys[1] = if both { 1 - which } else { which };
                    let steps = apply_steps(choices, both);
                    let names = keys.map(|it| self.tags[tag].key(it));
                    batch.apply(&mut out, &apply_of(&names, &steps));
                    self.apply(tag, keys, &steps)
                }
                _ => {
                    let second = [None, Some(1 - which), Some(which)][choices.below(3)];
                    keys[1] = second.unwrap_or(which);
                    let start = match choices.byte() % 3 {
                        0 => Some(vec![choices.byte(); choices.below(20)]),
                        _ => None,
                    };
                    let instructions: Vec<Instruction> = (0..choices.below(5))
                        .map(|_| instruction(choices, second.is_some()))
                        .collect();
                    let second_key = second.map(|second| self.tags[tag].key(second));
                    batch.update_if(
                        &mut out,
                        &key,
                        second_key.as_deref(),
                        &instructions,
                        start.as_deref(),
                    );
                    self.update_if(tag, which, second, &instructions, start)
                }
            };
            expected.level = level;
            // An answer is about its keys, whatever happened to others of the slot.
            let changed = self.tags[tag].changed;
            expected.state = changed[keys[0]].max(changed[keys[1]]);
            let item = u16::try_from(item).expect("few items");
            self.expected.insert((request_id, item), expected);
        }
        batch.finish(&mut out);
        self.node.send(self.connection, &out);
    }

    fn condition(&self, tag: usize, which: usize, choices: &mut Choices<'_>) -> Condition {
        match choices.byte() % 8 {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 => {
                let current = self.tags[tag].now()[which].as_ref();
                Condition::Version(current.map_or(Version::default(), |(version, _)| *version))
            }
            3 => Condition::Version(Version {
                epoch: self.node.epoch(),
                sequence: u64::from(choices.byte()),
            }),
            _ => Condition::Always,
        }
    }

    // ---- the model ----

    fn plain(&self, tag: usize, status: Status, version: Version) -> Expected {
        Expected {
            tag,
            state: 0,
            level: AckLevel::None,
            status,
            reason: 0,
            instruction: NO_INSTRUCTION,
            flags: 0,
            version,
            value: Some(Vec::new()),
            may_be_busy: false,
        }
    }

    fn get(&self, tag: usize, which: usize) -> Expected {
        match &self.tags[tag].now()[which] {
            Some((version, value)) => Expected {
                value: Some(value.clone()),
                may_be_busy: self.tags[tag].states.iter().any(|state| {
                    let before = state[which].as_ref();
                    before.map_or(0, |(_, before)| before.len()) < value.len()
                }),
                ..self.plain(tag, Status::Ok, *version)
            },
            None => self.plain(tag, Status::NotFound, Version::default()),
        }
    }

    /// SET, or DEL if there is no value.
    fn set(
        &mut self,
        tag: usize,
        which: usize,
        value: Option<Vec<u8>>,
        condition: Condition,
    ) -> Expected {
        let current = self.tags[tag].now()[which].as_ref();
        let version = current.map_or(Version::default(), |(version, _)| *version);
        let status = match (condition, current) {
            (Condition::Absent, Some(_)) => Status::Exists,
            (Condition::Present | Condition::Version(_), None) => Status::NotFound,
            (Condition::Version(wanted), Some(_)) if wanted != version => Status::VersionMismatch,
            (_, None) if value.is_none() => Status::NotFound,
            _ => Status::Ok,
        };
        if status != Status::Ok {
            return self.plain(tag, status, version);
        }
        let mut values = values(self.tags[tag].now());
        values[which] = value;
        let mut changed = [false; 2];
        changed[which] = true;
        let version = self.commit(tag, values, changed);
        self.plain(tag, Status::Ok, version)
    }

    fn commit(&mut self, tag: usize, values: [Option<Vec<u8>>; 2], changed: [bool; 2]) -> Version {
        let epoch = self.node.epoch();
        let tag = &mut self.tags[tag];
        tag.sequence += 1;
        let sequence = tag.sequence;
        let new = Version { epoch, sequence };
        let mut state = tag.now().clone();
        for ((old, value), changed) in state.iter_mut().zip(values).zip(changed) {
            if changed {
                *old = value.map(|value| (new, value));
            }
        }
        for (last, changed) in tag.changed.iter_mut().zip(changed) {
            if changed {
                *last = tag.states.len();
            }
        }
        tag.states.push(state);
        new
    }

    fn update_if(
        &mut self,
        tag: usize,
        which: usize,
        second: Option<usize>,
        instructions: &[Instruction],
        start: Option<Vec<u8>>,
    ) -> Expected {
        let before = self.tags[tag].now().clone();
        let version = before[which]
            .as_ref()
            .map_or(Version::default(), |(version, _)| *version);
        let mut values = values(&before);
        let mut changed = [false; 2];
        if let (None, Some(start)) = (&before[which], start) {
            values[which] = Some(start);
            changed[which] = true;
        }
        let mut shown = Vec::new();
        for (number, instruction) in (0u8..).zip(instructions) {
            let target = match instruction.key {
                0 => which,
                _ => second.expect("checked by the writer"),
            };
            let existed = before[target].is_some();
            let failed = |status, flags, actual: Option<u64>| Expected {
                reason: instruction.reason,
                instruction: number,
                flags,
                value: Some(actual.map_or(Vec::new(), |actual| actual.to_le_bytes().to_vec())),
                ..self.plain(tag, status, version)
            };
            match (instruction.operation, &mut values[target]) {
                (Operation::Exists, _) if existed => {}
                (Operation::Exists, _) => return failed(Status::NotFound, 0, None),
                (Operation::Absent, _) if !existed => {}
                (Operation::Absent, _) => return failed(Status::GuardFailed, 0, Some(1)),
                (_, None) => return failed(Status::NotFound, 0, None),
                (_, Some(value)) => match instruction.run(value) {
                    Outcome::Holds => {}
                    Outcome::Changed { after, .. } => {
                        changed[target] = true;
                        shown.extend_from_slice(&after.to_le_bytes());
                    }
                    Outcome::Failed { actual, overflow } => {
                        let flags = if overflow { ITEM_FLAG_OVERFLOW } else { 0 };
                        return failed(Status::GuardFailed, flags, Some(actual));
                    }
                    Outcome::OutsideValue => {
                        return Expected {
                            value: None,
                            ..self.plain(tag, Status::BadField, version)
                        };
                    }
                },
            }
        }
        let version = match changed {
            [false, false] => version,
            _ => self.commit(tag, values, changed),
        };
        Expected {
            value: Some(shown),
            ..self.plain(tag, Status::Ok, version)
        }
    }

    /// APPLY of one key of a tag, or of both.
    fn apply(&mut self, tag: usize, keys: [usize; 2], steps: &[ApplyStep]) -> Expected {
        let before = self.tags[tag].now().clone();
        let version = before[keys[0]]
            .as_ref()
            .map_or(Version::default(), |(version, _)| *version);
        let mut values = values(&before);
        let (mut written, mut shown) = ([false; 2], Vec::new());
        for (number, step) in (0u8..).zip(steps) {
            let target = keys[usize::from(step.key)];
            let failed = |status, flags, actual: Option<u8>| Expected {
                reason: step.reason,
                instruction: number,
                flags,
                value: Some(actual.map_or(Vec::new(), |actual| {
                    u64::from(actual).to_le_bytes().to_vec()
                })),
                ..self.plain(tag, status, version)
            };
            let value = &mut values[target];
            match (step.does, &mut *value) {
                (Does::Exists, _) if before[target].is_some() => continue,
                (Does::Absent, _) if before[target].is_none() => continue,
                (Does::Absent, _) => return failed(Status::GuardFailed, 0, Some(1)),
                (Does::Start, Some(_)) => continue,
                (Does::Put | Does::Start, _) => {
                    *value = Some(PUT.to_vec());
                    written[target] = true;
                    continue;
                }
                (_, None) | (Does::Exists, _) => return failed(Status::NotFound, 0, None),
                (Does::Delete, Some(_)) => {
                    *value = None;
                    continue;
                }
                _ => {}
            }
            let Some(field) = value.as_mut().and_then(|it| it.get_mut(step.offset)) else {
                return Expected {
                    value: None,
                    ..failed(Status::BadField, 0, None)
                };
            };
            let actual = *field;
            let after = match step.does {
                Does::AtLeast if actual >= step.number => continue,
                Does::AtLeast => return failed(Status::GuardFailed, 0, Some(actual)),
                Does::Add => actual.checked_add(step.number),
                Does::SubSaturating => Some(actual.saturating_sub(step.number)),
                Does::Return => Some(actual),
                does => unreachable!("{does:?} is about a whole key"),
            };
            let Some(after) = after else {
                return failed(Status::GuardFailed, ITEM_FLAG_OVERFLOW, Some(actual));
            };
            *field = after;
            written[target] |= after != actual;
            shown.extend_from_slice(&u64::from(after).to_le_bytes());
        }
        let changed = std::array::from_fn(|which| match values[which] {
            None => before[which].is_some(),
            Some(_) => written[which],
        });
        let version = match changed {
            [false, false] => version,
            _ => self.commit(tag, values, changed),
        };
        Expected {
            value: Some(shown),
            ..self.plain(tag, Status::Ok, version)
        }
    }

    // ---- the answers ----

    /// Compares what was answered since the last look.
    fn take(&mut self) {
        let received = std::mem::take(&mut self.node.connections[self.connection].received);
        for (header, body) in frames(&received) {
            assert_eq!(header.level_or_status, Status::Ok.code());
            if header.opcode != Opcode::Batch as u8 {
                continue;
            }
            let batch = Batch::read(body).expect("a batch");
            for number in 0..batch.len() {
                let item = ReplyItem::read(batch.item(number)).expect("a reply item");
                self.answer(header.request_id, &item);
            }
        }
    }

    fn answer(&mut self, request_id: u64, item: &ReplyItem<'_>) {
        let name = (request_id, item.head.item);
        let expected = self.expected.remove(&name);
        let expected = expected.unwrap_or_else(|| panic!("{name:?} is not asked"));
        let head = item.head;
        if head.status == Status::Busy && expected.may_be_busy {
            let text = std::str::from_utf8(item.value).expect("a text");
            assert!(
                text.contains("for which there is no room"),
                "{name:?}: {text}"
            );
            return;
        }
        assert_eq!(
            (head.status, head.reason, head.instruction, head.flags),
            (
                expected.status,
                expected.reason,
                expected.instruction,
                expected.flags
            ),
            "{name:?}: {expected:?}"
        );
        assert_eq!(head.version, expected.version, "{name:?}: {expected:?}");
        assert_eq!(head.level, expected.level);
        match &expected.value {
            Some(value) => assert_eq!(item.value, value, "{name:?}"),
            None => assert!(!item.value.is_empty(), "a text says what is wrong"),
        }
        if expected.level >= AckLevel::Disk {
            let shown = &mut self.tags[expected.tag].shown;
            *shown = expected.state.max(*shown);
        }
    }

    /// Until everything is answered.
    fn settle(&mut self) {
        self.node.settle();
        self.take();
        assert!(
            self.expected.is_empty(),
            "not answered: {:?}",
            self.expected
        );
    }

    fn crash(&mut self, choices: &mut Choices<'_>) {
        self.node.crash(choices);
        self.expected.clear();
        self.connect();
        // The present state is one of the earlier states, and none before the last one that was
        // shown.
        let request_id = self.next_request;
        self.next_request += 1;
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request_id, AckLevel::Disk, 0, 2 * TAGS);
        for tag in &self.tags {
            (0..2).for_each(|which| batch.get(&mut out, &tag.key(which)));
        }
        batch.finish(&mut out);
        self.node.send(self.connection, &out);
        self.node.settle();
        let received = std::mem::take(&mut self.node.connections[self.connection].received);
        let mut found = vec![[None, None]; TAGS];
        let mut answered = 0;
        for (header, body) in frames(&received) {
            if header.request_id != request_id {
                continue;
            }
            let batch = Batch::read(body).expect("a batch");
            for number in 0..batch.len() {
                let item = ReplyItem::read(batch.item(number)).expect("a reply item");
                let which = usize::from(item.head.item);
                answered += 1;
                found[which / 2][which % 2] = match item.head.status {
                    Status::Ok => Some((item.head.version, item.value.to_vec())),
                    status => {
                        assert_eq!(status, Status::NotFound);
                        None
                    }
                };
            }
        }
        assert_eq!(answered, 2 * TAGS);
        for (tag, found) in self.tags.iter_mut().zip(found) {
            let sequence = self.node.sequence(tag.partition());
            let lost = tag
                .sequence
                .checked_sub(sequence)
                .expect("none was made up");
            let lost = usize::try_from(lost).expect("few");
            let survived = (tag.states.len() - 1)
                .checked_sub(lost)
                .expect("no older state");
            assert_eq!(
                tag.states[survived], found,
                "the state of sequence {sequence}"
            );
            assert!(
                survived >= tag.shown,
                "{found:?} is state {survived}, {} was shown",
                tag.shown
            );
            tag.sequence = sequence;
            tag.states = vec![found];
            tag.changed = [0; 2];
            tag.shown = 0;
        }
    }
}

fn values(state: &State) -> [Option<Vec<u8>>; 2] {
    let value = |which: usize| state[which].as_ref().map(|(_, value)| value.clone());
    [value(0), value(1)]
}

/// What PUT and START of an APPLY write.
const PUT: &[u8] = &[6; 11];

/// What an instruction of an APPLY does; its field is a u8.
#[derive(Clone, Copy, Debug)]
enum Does {
    AtLeast,
    Add,
    SubSaturating,
    Return,
    Put,
    Start,
    Delete,
    Exists,
    Absent,
}

#[derive(Clone, Copy, Debug)]
struct ApplyStep {
    key: u8,
    reason: u8,
    offset: usize,
    number: u8,
    does: Does,
}

fn apply_steps(choices: &mut Choices<'_>, has_second: bool) -> Vec<ApplyStep> {
    let all = [
        Does::AtLeast,
        Does::Add,
        Does::SubSaturating,
        Does::Return,
        Does::Put,
        Does::Start,
        Does::Delete,
        Does::Exists,
        Does::Absent,
    ];
    let count = choices.below(6);
    let mut steps = Vec::new();
    for _ in 0..count {
        steps.push(ApplyStep {
            key: choices.byte() & u8::from(has_second),
            reason: choices.byte(),
            offset: usize::from(choices.byte() % 12),
            number: choices.byte() % 4,
            does: all[choices.below(all.len())],
        });
    }
    steps
}

/// The APPLY of such instructions, which names both keys if they differ.
fn apply_of(names: &[Vec<u8>; 2], steps: &[ApplyStep]) -> Apply {
    let mut apply = Apply::new();
    let keys = [apply.key(&names[0]), apply.key(&names[1])];
    for step in steps {
        let key = keys[usize::from(step.key)];
        let offset = u32::try_from(step.offset).expect("small");
        let field = key.field(FieldType::U8, offset);
        let number = u64::from(step.number);
        let instruction = match step.does {
            Does::Put => {
                apply.put(key, PUT);
                continue;
            }
            Does::Start => {
                apply.start(key, PUT);
                continue;
            }
            Does::AtLeast => field.at_least(number),
            Does::Add => field.increase(number),
            Does::SubSaturating => field.changes(Arithmetic::SubSaturating, number),
            Does::Return => field.returned(),
            Does::Delete => key.delete(),
            Does::Exists => key.exists(),
            Does::Absent => key.is_absent(),
        };
        apply.then(instruction.or_else(step.reason));
    }
    apply
}

fn instruction(choices: &mut Choices<'_>, has_second: bool) -> Instruction {
    let operations = [
        Operation::Ge,
        Operation::Sub,
        Operation::Add,
        Operation::Set,
        Operation::Exists,
        Operation::Absent,
        Operation::Eq,
        Operation::Lt,
    ];
    let operation = operations[choices.below(operations.len())];
    let key = choices.byte() & u8::from(has_second);
    let reason = choices.byte();
    if matches!(operation, Operation::Exists | Operation::Absent) {
        return Instruction {
            operation,
            field_type: FieldType::U8,
            key,
            reason,
            offset: 0,
            immediate: 0,
        };
    }
    let types = [FieldType::U8, FieldType::U64, FieldType::I16.big_endian()];
    Instruction {
        operation,
        field_type: types[choices.below(types.len())],
        key,
        reason,
        offset: u32::from(choices.byte() % 12),
        immediate: u64::from(choices.byte() % 4),
    }
}

#[test]
fn days_of_a_shop_are_kept() {
    let batch = |level: u8, items: &[&[u8]]| {
        let count = items.len().to_le_bytes()[0] - 1;
        [&[0, level, count], &items.concat()[..]].concat()
    };
    let get = |tag: u8, which: u8| vec![tag, which, 0];
    let set = |tag: u8, which: u8, len: u8| vec![tag, which, 2, 100, len, 7];
    let del = |tag: u8, which: u8| vec![tag, which, 4, 7];
    // u8@0 >= 1, u8@0 -= 1
    let buy = |tag: u8| vec![tag, 0, 5, 0, 1, 2, 0, 0, 9, 0, 0, 1, 1, 0, 8, 0, 0, 1];
    // second.u8@0 -= 1 from the start value
    let two = |tag: u8| vec![tag, 0, 5, 1, 0, 8, 7, 1, 1, 1, 3, 0, 0, 1];
    let around = [4, 0, 6, 0, 0, 8, 1, 4, 1, 6, 1, 0, 4, 1, 8, 0, 4, 0];
    let rest = [9, 40];
    let crash = [9, 3, 0x5A];
    let sets = |len: u8| {
        let items: Vec<Vec<u8>> = (0..4).map(|tag| set(tag, 0, len)).collect();
        batch(0, &[&items[0], &items[1], &items[2], &items[3]])
    };
    let buys = batch(0, &[&buy(0), &buy(1), &buy(2), &buy(3)]);
    // PUT of the other key, then one from this one.
    let apply = |tag: u8| vec![tag, 0, 7, 1, 2, 1, 0, 0, 0, 4, 0, 9, 0, 1, 2];
    let applies = batch(0, &[&apply(0), &apply(1), &apply(2), &apply(3)]);
    let gets = batch(0, &[&get(0, 0), &get(1, 0), &get(2, 0), &get(3, 1)]);
    let named = |name: &str, steps: &[&[u8]]| (name.to_string(), steps.concat());
    let mut cold = Vec::new();
    for _ in 0..12 {
        cold.extend([&sets(60)[..], &rest, &gets, &rest].concat());
    }
    // A write at level none, then what shows it at level disk, then a power cut that takes all.
    let lost = [4, 0, 9, 3, 0];
    let fails = vec![0, 0, 5, 0, 1, 1, 7, 0, 9, 0, 0, 3];
    let durable = [&batch(0, &[&set(0, 0, 9)])[..], &rest].concat();
    let write = batch(1, &[&set(0, 0, 5)]);
    let delete = batch(1, &[&del(0, 0)]);
    let read = batch(0, &[&get(0, 0)]);
    let inputs = [
        named("read-before-durable", &[&durable, &write, &read, &lost]),
        named(
            "refused-before-durable",
            &[&durable, &write, &batch(0, &[&fails]), &lost],
        ),
        named(
            "gone-before-durable",
            &[&durable, &delete, &[4, 0], &read, &lost],
        ),
        named(
            "sold-one-by-one",
            &[&sets(3), &buys, &around, &buys, &around, &gets],
        ),
        named("read-again", &[&cold, &crash, &gets]),
        named(
            "crashed",
            &[&sets(9), &around, &buys, &crash, &gets, &crash],
        ),
        named(
            "deleted",
            &[
                &sets(9),
                &batch(1, &[&del(0, 0), &get(0, 0), &del(1, 1)]),
                &around,
            ],
        ),
        named(
            "applied",
            &[&sets(3), &applies, &rest, &applies, &crash, &gets],
        ),
        named(
            "two-keys",
            &[&batch(2, &[&two(0), &two(1), &two(0)]), &around, &gets],
        ),
    ];
    keep(FOLDER, "operations", &inputs);
}
