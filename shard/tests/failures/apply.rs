//! APPLY on one shard: beside a model, with keys that are in memory and keys that are not, and at
//! each of its limits.

use penstock_net::apply::{
    self, Apply, ApplyInstruction, ApplyKeys, ApplyRequest, Arithmetic, BitTest, Cause, Comparison,
    Effects, NumberAt, Operand, Rate,
};
use penstock_net::field::Field;
use penstock_net::instruction::FieldType;
use penstock_net::keyspace::{Action, Settings};
use penstock_net::refusal::Refusal;
use penstock_net::request::{Ask, Condition, Expiry, Version, Wanted};
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::{Reply, Server, VALUE_BYTES_MAX};

/// A server and how many requests it has got.
struct Client {
    server: Server,
    asked: usize,
}

impl Client {
    fn open(budget: Budget) -> Self {
        let (sync, image) = (SyncMethod::DurableWrite, Image::default());
        let server = Server::open_within(budget, 1, sync, image, 1, None).expect("it opens");
        Client { server, asked: 0 }
    }

    fn with_cache() -> Self {
        Self::open(Budget::of_cache(1 << 20))
    }

    fn ask(&mut self, ask: Ask<'_>) -> Reply {
        self.asked += 1;
        self.server
            .send(self.asked, |batch, out| ask.write(batch, out));
        self.server.settle();
        self.server.replies.remove(&self.asked).expect("a reply")
    }

    fn apply(&mut self, apply: &Apply) -> Reply {
        self.ask(Ask::Apply(apply))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Reply {
        let (when, expiry) = (Condition::Always.into(), Expiry::Never);
        self.ask(Ask::Set {
            key,
            value,
            when,
            expiry,
        })
    }

    fn get(&mut self, key: &[u8]) -> Reply {
        let wanted = Wanted::ValueAndExpiry;
        self.ask(Ask::Get { key, wanted })
    }

    /// The value of a key; `None` if it has none.
    fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let reply = self.get(key);
        (reply.status == Status::Ok).then_some(reply.value)
    }
}

fn u32_of(value: &[u8]) -> u32 {
    u32::from_le_bytes(*value.first_chunk().expect("a u32"))
}

fn numbers(reply: &Reply) -> Vec<u64> {
    let words = reply.value.as_chunks().0.iter();
    words.map(|word| u64::from_le_bytes(*word)).collect()
}

/// Two units of `stock` for a hold of `buyer`.
fn buy(buyer: u32) -> Apply {
    let mut buy = Apply::new();
    let stock = buy.key(b"{drop}stock");
    let hold = buy.key(format!("{{drop}}hold:{buyer}").as_bytes());
    buy.then(hold.is_absent().or_else(7))
        .then(stock.u32(0).at_least(2u64).or_else(9))
        .then(stock.u32(0).decrease(2u64))
        .put(hold, &2u32.to_le_bytes())
        .then(hold.expire_in(60_000));
    buy
}

#[test]
fn a_purchase_takes_stock_and_holds_it_or_changes_nothing() {
    let mut client = Client::with_cache();
    client.set(b"{drop}stock", &5u32.to_le_bytes());
    let bought = client.apply(&buy(1));
    assert_eq!((bought.status, numbers(&bought)), (Status::Ok, vec![3]));
    let stock = client.get(b"{drop}stock");
    let hold = client.get(b"{drop}hold:1");
    assert_eq!(stock.version, bought.version);
    assert_eq!(hold.version, bought.version, "one record made both");
    assert_eq!(hold.value, 2u32.to_le_bytes());
    assert!(hold.expiry.expect("asked for").expiry_ms > 60_000);

    let again = client.apply(&buy(1));
    assert_eq!(again.status, Status::GuardFailed);
    assert_eq!((again.instruction, again.reason), (0, 7));
    client.apply(&buy(2));
    let bytes = client.server.log_bytes();
    let sold_out = client.apply(&buy(3));
    assert_eq!(client.server.log_bytes(), bytes, "a refusal logs nothing");
    assert_eq!(sold_out.status, Status::GuardFailed);
    assert_eq!((sold_out.instruction, sold_out.reason), (1, 9));
    assert_eq!(numbers(&sold_out), [1], "the stock that is left");
    assert_eq!(client.value(b"{drop}hold:3"), None);
    assert_eq!(client.get(b"{drop}stock").value, 1u32.to_le_bytes());
}

/// A member that is asked for this version has the change.
#[test]
fn an_answer_has_the_version_of_its_change_whichever_keys_have_changed() {
    let mut client = Client::with_cache();
    client.set(b"{v}a", &7u64.to_le_bytes());
    client.set(b"{v}b", &7u64.to_le_bytes());
    for first in [&b"{v}a"[..], b"{v}missing"] {
        let mut apply = Apply::new();
        let (_, b) = (apply.key(first), apply.key(b"{v}b"));
        apply.then(b.u64(0).increase(1u64));
        let applied = client.apply(&apply);
        assert_eq!(applied.status, Status::Ok);
        assert_eq!(client.get(b"{v}b").version, applied.version);
    }
    let second = Field::u64(0).of_second_key();
    let updated = client.ask(Ask::UpdateIf {
        key: b"{v}a",
        second_key: Some(b"{v}b"),
        instructions: &[second.increase(1)],
        start: None,
        expiry: Expiry::Keep,
    });
    assert_eq!(updated.status, Status::Ok);
    assert_eq!(client.get(b"{v}b").version, updated.version);
}

#[test]
fn effects_before_a_guard_that_fails_leave_no_trace() {
    let mut client = Client::with_cache();
    client.set(b"{d}a", &7u64.to_le_bytes());
    client.set(b"{d}b", b"stays");
    let before = ["{d}a", "{d}b"].map(|key| client.get(key.as_bytes()).version);
    let mut apply = Apply::new();
    let (a, b, c) = (apply.key(b"{d}a"), apply.key(b"{d}b"), apply.key(b"{d}c"));
    apply
        .then(a.u64(0).increase(1u64))
        .then(b.delete())
        .put(c, b"new")
        .then(a.u64(0).equals(7u64));
    let reply = client.apply(&apply);
    assert_eq!((reply.status, reply.instruction), (Status::GuardFailed, 3));
    assert_eq!(numbers(&reply), [8], "a guard sees the effects before it");
    let after = ["{d}a", "{d}b"].map(|key| client.get(key.as_bytes()).version);
    assert_eq!(before, after);
    assert_eq!(client.value(b"{d}a"), Some(7u64.to_le_bytes().to_vec()));
    assert_eq!(client.value(b"{d}c"), None);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let mut client = Client::with_cache();
    client.set(b"{d}a", &7u64.to_le_bytes());
    let version = client.get(b"{d}a").version;
    let bytes = client.server.log_bytes();
    let mut apply = Apply::new();
    let (a, missing) = (apply.key(b"{d}a"), apply.key(b"{d}b"));
    apply
        .then(a.u64(0).returned())
        .then(a.u64(0).changes(Arithmetic::Max, 3u64))
        .then(missing.is_absent())
        .put(missing, b"comes")
        .then(missing.delete());
    let reply = client.apply(&apply);
    assert_eq!((reply.status, numbers(&reply)), (Status::Ok, vec![7, 7]));
    assert_eq!(reply.version, version);
    assert_eq!(client.server.log_bytes(), bytes);
}

/// What a key is in the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    value: Option<Vec<u8>>,
    version: Version,
    expiry_ms: u64,
}

/// Keys of a model while an APPLY runs on it.
struct ModelKeys {
    before: Vec<Known>,
    now: Vec<Known>,
    are_written: Vec<bool>,
}

impl<'a> ApplyKeys<'a> for ModelKeys {
    fn existed(&self, key: usize) -> bool {
        self.before[key].value.is_some()
    }

    fn version(&self, key: usize) -> Version {
        self.before[key].version
    }

    fn may_have_changed(&self, _: usize, _: Version) -> bool {
        unreachable!("no program of these tests asks")
    }

    fn value(&self, key: usize) -> Option<&[u8]> {
        self.now[key].value.as_deref()
    }

    fn field_mut(&mut self, key: usize, start: usize, width: usize) -> &mut [u8] {
        self.are_written[key] = true;
        let value = self.now[key].value.as_mut().expect("it is there");
        &mut value[start..][..width]
    }

    fn log_unchanged(&mut self, key: usize) {
        self.are_written[key] = true;
    }

    fn replace(&mut self, key: usize, value: &[u8]) {
        self.are_written[key] = true;
        self.now[key].value = Some(value.to_vec());
    }

    fn put_keeping(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal> {
        self.replace(key, value);
        Ok(())
    }

    fn put(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal> {
        self.are_written[key] = true;
        self.now[key].value = Some(value.to_vec());
        self.now[key].expiry_ms = 0;
        Ok(())
    }

    fn delete(&mut self, key: usize) {
        self.now[key].value = None;
        self.now[key].expiry_ms = 0;
    }

    fn expire(&mut self, key: usize, expiry_ms: Option<u64>) {
        self.now[key].expiry_ms = expiry_ms.unwrap_or(0);
    }

    fn expiry_ms(&self, key: usize) -> Option<u64> {
        Some(self.now[key].expiry_ms).filter(|&expiry_ms| expiry_ms > 0)
    }

    fn arm(&mut self, _: usize, _: &Effects<'a>) {
        unreachable!("no program of these tests has ON_EXPIRE");
    }
}

impl ModelKeys {
    /// Whether a key is in the record.
    fn is_changed(&self, key: usize) -> bool {
        match self.now[key].value {
            None => self.before[key].value.is_some(),
            Some(_) => {
                self.are_written[key] || self.now[key].expiry_ms != self.before[key].expiry_ms
            }
        }
    }
}

const FAR_MS: u64 = 1 << 40;

/// A random number of a value of a key: mostly inside of it.
fn number_at(random: &mut Random) -> NumberAt {
    match random.below(6) {
        0 => NumberAt::decimal(),
        1 => NumberAt::field(FieldType::U8, 3),
        2 => NumberAt::field(FieldType::I16.big_endian(), 2),
        3 => NumberAt::field(FieldType::U32, 4),
        4 => NumberAt::field(FieldType::I64, 0),
        _ => NumberAt::field(FieldType::U64, 8),
    }
}

fn random_apply(random: &mut Random, model: &[Known]) -> (Apply, Vec<usize>) {
    let mut apply = Apply::new();
    let mut numbers: Vec<usize> = (0..8).collect();
    while numbers.len() > 1 && random.below(8) >= numbers.len() - 1 || numbers.len() == 8 {
        numbers.remove(random.below(numbers.len()));
    }
    let keys: Vec<_> = numbers.iter().map(|it| apply.key(&name(*it))).collect();
    for key in &keys {
        match random.below(6) {
            0 => apply.start(*key, b"12"),
            1..4 => apply.start(*key, &[5; 24]),
            _ => &mut apply,
        };
    }
    for _ in 0..random.below(6) {
        let which = random.below(keys.len());
        let (key, at) = (keys[which], number_at(random));
        let field = key.at(at);
        let operand: Operand = match random.below(4) {
            0 => keys[random.below(keys.len())].at(number_at(random)).into(),
            _ => Operand::from(random.below(100) as u64),
        };
        let known = &model[numbers[which]];
        match random.below(15) {
            0 if known.value.is_some() => apply.then(key.exists()),
            1 if known.value.is_none() => apply.then(key.is_absent()),
            2 => apply.then(key.has_version(known.version)),
            3 => apply.then(field.compares(Comparison::Ge, operand)),
            4 => apply.then(field.has_bits(BitTest::None, 0u64)),
            5 => apply.then(field.changes(Arithmetic::Add, operand)),
            6 => apply.then(field.changes(Arithmetic::SubSaturating, operand)),
            7 => apply.then(field.changes(Arithmetic::Set, 77u64)),
            8 => apply.then(field.changes(Arithmetic::Xor, 3u64)),
            9 => apply.put(
                key,
                &vec![random.next().to_le_bytes()[0]; 8 + random.below(600)],
            ),
            10 => apply.put(key, b"12"),
            11 if known.value.is_some() => apply.then(key.delete()),
            12 => apply.replace(
                key,
                &vec![random.next().to_le_bytes()[0]; 8 + random.below(600)],
            ),
            13 => apply.then(key.expire_at(random.below(2) as u64 * (FAR_MS + 5))),
            _ => apply.then(field.returned()),
        };
    }
    (apply, numbers)
}

fn name(number: usize) -> Vec<u8> {
    format!("{{m}}{number}").into_bytes()
}

/// Runs an APPLY on the model: the status, what is told, and what the keys are then.
fn run_on_model(model: &[Known], numbers: &[usize], apply: &Apply) -> (Status, Vec<u8>, ModelKeys) {
    let before: Vec<Known> = numbers.iter().map(|it| model[*it].clone()).collect();
    let mut keys = ModelKeys {
        now: before.clone(),
        are_written: vec![false; before.len()],
        before,
    };
    let item = Ask::Apply(apply).encode();
    let request = ApplyRequest::read(&item, VALUE_BYTES_MAX).expect("well formed");
    let mut returned = Vec::new();
    let status = match apply::run(&request, 1, &mut keys, &mut returned) {
        Ok(()) => return (Status::Ok, returned, keys),
        Err(denial) => match denial.cause {
            Cause::NotFound => Status::NotFound,
            Cause::Guard { .. } => Status::GuardFailed,
            Cause::Version(_) => Status::VersionMismatch,
            Cause::Refused(refusal) => refusal.status(),
        },
    };
    keys.now = keys.before.clone();
    keys.are_written.fill(false);
    (status, Vec::new(), keys)
}

/// The interpreter has a model of its own; this one is about keys: which change, what they are
/// afterwards, their versions and expiries, in memory and cold.
#[test]
fn keys_are_what_a_model_says_whether_they_are_in_memory_or_cold() {
    let (mut done, mut denied, mut cold) = (0, 0, 0);
    for seed in seeds(120) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let cache_bytes = if seed % 2 == 0 { 0 } else { 1 << 20 };
        let mut client = Client::open(Budget::of_cache(cache_bytes));
        let mut model = vec![Known::default(); 8];
        for _ in 0..12 {
            let parked = client.server.counters().parked;
            let (apply, numbers) = random_apply(&mut random, &model);
            let (status, returned, keys) = run_on_model(&model, &numbers, &apply);
            let reply = client.apply(&apply);
            assert_eq!(reply.status, status, "{apply:?} on {model:?}");
            cold += client.server.counters().parked - parked;
            if status == Status::Ok {
                done += 1;
                assert_eq!(reply.value, returned, "{apply:?}");
            } else {
                denied += 1;
            }
            let mut versions = Vec::new();
            for (key, &number) in numbers.iter().enumerate() {
                let shown = client.get(&name(number));
                let known = &mut model[number];
                let is_changed = keys.is_changed(key);
                known.value.clone_from(&keys.now[key].value);
                known.expiry_ms = keys.now[key].expiry_ms;
                match &known.value {
                    Some(value) => {
                        assert_eq!((shown.status, &shown.value), (Status::Ok, value));
                        let expiry_ms = shown.expiry.expect("asked for").expiry_ms;
                        assert_eq!(expiry_ms, known.expiry_ms);
                    }
                    None => assert_eq!(shown.status, Status::NotFound),
                }
                match (&known.value, is_changed) {
                    (Some(_), true) => versions.push(shown.version),
                    _ => assert!(known.value.is_none() || shown.version == known.version),
                }
                known.version = shown.version;
            }
            versions.dedup();
            assert!(versions.len() <= 1, "one APPLY makes one version");
        }
    }
    assert!(done > 400, "{done} were done");
    assert!(denied > 300, "{denied} were denied");
    assert!(cold > 500, "{cold} waited for a read");
}

/// All eight must be in memory at the same time, which holds nothing between two turns otherwise.
#[test]
fn eight_cold_keys_of_an_apply_are_read_side_by_side_and_do_not_push_each_other_out() {
    const BUYERS: usize = 6;
    let mut server = Client::open(Budget::of_cache(0)).server;
    let key = |buyer: usize, which: usize| format!("{{{buyer}}}{which}").into_bytes();
    let mut id = 0;
    for which in 0..8 {
        for buyer in 0..BUYERS {
            server.set(id, &key(buyer, which), &[0; 8]);
            server.set(id + 1, b"between", &[0; 2_000]);
            server.set(id + 2, b"between", &[1; 2_000]);
            server.settle();
            id += 3;
        }
    }
    assert_eq!(server.usage().cells, 0, "all are cold");
    for buyer in 0..BUYERS {
        let mut apply = Apply::new();
        for which in 0..8 {
            let key = apply.key(&key(buyer, which));
            apply.then(key.u64(0).increase(1u64));
        }
        server.send(id + buyer, |batch, out| batch.apply(out, &apply));
    }
    server.turn();
    let under_way = server.device.under_way().len();
    assert!(under_way >= 8, "{under_way} reads go on side by side");
    for _ in 0..60 * BUYERS {
        // A read takes longer than the hand needs for all that is held.
        for _ in 0..4 {
            server.turn();
            server.now.us += 100;
        }
        server.end(0);
    }
    for buyer in 0..BUYERS {
        let reply = server.replies.get(&(id + buyer));
        assert_eq!(reply.map(|reply| reply.status), Some(Status::Ok), "{buyer}");
    }
}

#[test]
fn keys_that_hold_more_than_a_record_are_refused_with_both_numbers_before_they_are_read() {
    for cache_bytes in [0, 1 << 20] {
        let mut client = Client::open(Budget::of_cache(cache_bytes));
        let mut apply = Apply::new();
        for which in 0..3 {
            client.set(&name(which), &[1; 1_500]);
            let key = apply.key(&name(which));
            apply.then(key.exists());
        }
        for _ in 0..4 {
            client.set(b"between", &[0; 2_000]);
        }
        let parked = client.server.counters().parked;
        let reply = client.apply(&apply);
        assert_eq!(reply.status, Status::TooLarge);
        let text = String::from_utf8(reply.value).expect("a text");
        assert!(text.contains("the keys of this APPLY hold"), "{text}");
        assert!(text.contains(" 4032"), "{text}");
        assert_eq!(client.server.counters().parked, parked, "nothing is read");
    }
}

#[test]
fn two_of_the_longest_values_fit_into_a_record_and_a_third_does_not() {
    let mut client = Client::with_cache();
    let mut apply = Apply::new();
    let keys = [0, 1, 2].map(|which| apply.key(&name(which)));
    for key in &keys[..2] {
        apply.put(*key, &[7; 1_900]);
    }
    assert_eq!(client.apply(&apply).status, Status::Ok);
    let before = client.get(&name(0)).version;
    let mut apply = Apply::new();
    for which in 3..6 {
        let key = apply.key(&name(which));
        // Equal values share their bytes in the item, so the item itself is short.
        apply.put(key, &[7; 1_900]);
    }
    let reply = client.apply(&apply);
    assert_eq!(reply.status, Status::TooLarge);
    let text = String::from_utf8(reply.value).expect("a text");
    assert!(text.contains("what this APPLY writes"), "{text}");
    assert_eq!(client.value(&name(3)), None);
    assert_eq!(client.get(&name(0)).version, before);
}

#[test]
fn keys_of_two_slots_are_refused() {
    let mut client = Client::with_cache();
    let mut apply = Apply::new();
    let keys = [&b"{a}1"[..], b"{b}1"].map(|key| apply.key(key));
    apply.then(keys[1].is_absent());
    assert_eq!(client.apply(&apply).status, Status::CrossSlot);
}

#[test]
fn a_keyspace_bounds_the_values_of_its_keys_and_gives_them_its_lifetime() {
    let mut client = Client::with_cache();
    let settings = Settings {
        value_bytes_max: 100,
        ttl_ms: 5_000,
        ..Settings::default()
    };
    let action = Action::Set(settings);
    let prefix = &b"{k}cart:"[..];
    assert_eq!(
        client.ask(Ask::Keyspace { prefix, action }).status,
        Status::Ok
    );
    let mut apply = Apply::new();
    let (other, cart) = (apply.key(b"{k}other"), apply.key(b"{k}cart:1"));
    apply.put(other, &[0; 200]).put(cart, &[0; 100]);
    assert_eq!(client.apply(&apply).status, Status::Ok);
    assert_eq!(
        client.get(b"{k}other").expiry.map(|it| it.expiry_ms),
        Some(0)
    );
    let expiry = client.get(b"{k}cart:1").expiry.expect("asked for");
    assert!(expiry.expiry_ms > 0 && expiry.expiry_ms <= expiry.time_ms + 5_000);

    let mut apply = Apply::new();
    let (other, cart) = (apply.key(b"{k}other"), apply.key(b"{k}cart:2"));
    apply.then(other.exists()).start(cart, &[0; 101]);
    let reply = client.apply(&apply);
    assert_eq!(reply.status, Status::TooLarge);
    let text = String::from_utf8(reply.value).expect("a text");
    assert!(text.contains("101") && text.contains("100"), "{text}");
}

#[test]
fn a_rate_lets_a_burst_through_and_says_how_long_to_wait() {
    let mut client = Client::with_cache();
    let rate = Rate {
        interval_us: 1_000_000,
        burst: 3,
        quantity: 1,
    };
    let mut apply = Apply::new();
    let limit = apply.key(b"limit:buyer");
    apply
        .start(limit, &[0; 8])
        .then(limit.u64(0).take(rate).or_else(5))
        .then(limit.expire_in(3_000));
    for _ in 0..3 {
        assert_eq!(client.apply(&apply).status, Status::Ok);
    }
    let early = client.apply(&apply);
    assert_eq!((early.status, early.reason), (Status::GuardFailed, 5));
    let wait_us = numbers(&early)[0];
    assert!((1..=1_000_000).contains(&wait_us), "{wait_us}");
    client.server.now.us += wait_us + 1_000;
    client.server.now.unix_ms += (wait_us + 1_000) / 1_000;
    assert_eq!(client.apply(&apply).status, Status::Ok);
}

#[test]
fn a_time_decides_when_a_sale_is_open() {
    let mut client = Client::with_cache();
    let now_ms = client.server.time_ms();
    let mut sale = |opens_ms: u64, ends_ms: u64| {
        let mut apply = Apply::new();
        let stock = apply.key(b"stock");
        apply
            .then(ApplyInstruction::since(opens_ms).or_else(1))
            .then(ApplyInstruction::before(ends_ms).or_else(2))
            .start(stock, b"0")
            .then(stock.decimal().increase(1u64));
        client.apply(&apply)
    };
    let early = sale(now_ms + 60_000, now_ms + 120_000);
    assert_eq!((early.status, early.reason), (Status::GuardFailed, 1));
    let late = sale(1, now_ms.max(2) - 1);
    assert_eq!((late.status, late.reason), (Status::GuardFailed, 2));
    let open = sale(1, now_ms + 60_000);
    assert_eq!((open.status, numbers(&open)), (Status::Ok, vec![1]));
}

#[test]
fn a_decimal_grows_and_shrinks_with_its_number() {
    let mut client = Client::with_cache();
    for (by, text) in [(99i64, "99"), (1, "100"), (-201, "-101"), (101, "0")] {
        let mut apply = Apply::new();
        let key = apply.key(b"counter");
        apply.start(key, b"0").then(key.decimal().increase(by));
        let reply = client.apply(&apply);
        assert_eq!(reply.status, Status::Ok);
        assert_eq!(client.value(b"counter"), Some(text.as_bytes().to_vec()));
    }
    client.set(b"counter", b"007");
    let mut apply = Apply::new();
    let key = apply.key(b"counter");
    apply
        .then(key.exists())
        .then(key.decimal().increase(1u64).or_else(4));
    let reply = client.apply(&apply);
    assert_eq!(reply.status, Status::BadField);
    assert_eq!((reply.instruction, reply.reason), (1, 4));
}

/// The index has no room to grow: each new key takes a free entry of its own, or none of them
/// comes.
#[test]
fn several_new_keys_at_once_do_not_outgrow_an_index_that_has_no_room() {
    let mut client = Client::with_cache();
    client.set(b"first", b"value");
    let empty = client.server.usage().index_bytes;
    let reserve_bytes = 2 << 20;
    client
        .server
        .set_memory_bytes_max((empty + (64 << 10) + reserve_bytes) * 8 / 7);
    client.server.settle();
    let key = |number: usize| format!("{{i}}{number}").into_bytes();
    // Each part of the index is full when no key has come for a long time.
    let (mut number, mut last) = (0, 0);
    while number < last + 300 {
        number += 1;
        assert!(number < 100_000, "the index takes all");
        if client.set(&key(number), b"v").status == Status::Ok {
            last = number;
        }
    }
    let full_bytes = client.server.usage().index_bytes;
    let (mut came, mut refused) = (0, 0);
    for gone in 1..200 {
        let (name, when) = (key(gone), Condition::Always.into());
        client.ask(Ask::Del { key: &name, when });
        client.server.settle();
        let mut apply = Apply::new();
        for name in [&name, &key(number + 2 * gone), &key(number + 2 * gone + 1)] {
            let key = apply.key(name);
            apply.put(key, b"v");
        }
        match client.apply(&apply).status {
            Status::Ok => came += 1,
            Status::Full => {
                refused += 1;
                assert_eq!(client.value(&name), None);
                assert_eq!(
                    client.set(&name, b"v").status,
                    Status::Ok,
                    "its entry is free"
                );
            }
            status => panic!("{status:?}"),
        }
        assert_eq!(
            client.server.usage().index_bytes,
            full_bytes,
            "round {gone}"
        );
    }
    assert!(refused > 100, "{refused} were refused, {came} found room");
}

#[test]
fn a_field_of_another_key_is_an_operand() {
    let mut client = Client::with_cache();
    client.set(b"{p}price", &250u32.to_le_bytes());
    client.set(b"{p}wallet", &1_000u64.to_le_bytes());
    let mut apply = Apply::new();
    let (price, wallet) = (apply.key(b"{p}price"), apply.key(b"{p}wallet"));
    apply
        .then(wallet.u64(0).at_least(price.u32(0)))
        .then(wallet.u64(0).decrease(price.u32(0)));
    for left in [750, 500, 250, 0] {
        assert_eq!(numbers(&client.apply(&apply)), [left]);
    }
    let broke = client.apply(&apply);
    assert_eq!(
        (broke.status, numbers(&broke)),
        (Status::GuardFailed, vec![0])
    );
    assert_eq!(u32_of(&client.get(b"{p}price").value), 250);
}

/// One unit for a buyer who may have two: reason 1 says that the buyer has them, 2 that nothing is
/// left.
fn take_one(buyer: usize) -> Apply {
    let mut take = Apply::new();
    let stock = take.key(b"{sale}stock");
    let taken = take.key(format!("{{sale}}taken:{buyer}").as_bytes());
    take.start(taken, &[0; 4])
        .then(taken.u32(0).compares(Comparison::Lt, 2u64).or_else(1))
        .then(stock.u32(0).decrease(1u64).or_else(2))
        .then(taken.u32(0).increase(1u64));
    take
}

/// Scripts that count buyers in a set and units in a counter sell eleven of ten: the limit is
/// looked at before, and the count changed after.
#[test]
fn ten_units_are_sold_ten_times_however_many_ask_at_once_and_to_nobody_three_times() {
    let mut client = Client::with_cache();
    client.set(b"{sale}stock", &10u32.to_le_bytes());
    let first = client.asked + 1;
    for round in 0..40 {
        let apply = take_one(round % 7);
        client.asked += 1;
        client
            .server
            .send(client.asked, |batch, out| batch.apply(out, &apply));
        if round % 5 == 0 {
            client.server.turn();
        }
    }
    client.server.settle();
    let mut outcomes = [0; 3];
    for id in first..=client.asked {
        let reply = client.server.replies.remove(&id).expect("answered");
        outcomes[usize::from(reply.reason)] += usize::from(reply.status == Status::Ok);
        outcomes[usize::from(reply.reason)] += usize::from(reply.reason > 0);
    }
    assert_eq!(
        outcomes[0], 10,
        "sold, at the limit, sold out: {outcomes:?}"
    );
    assert_eq!(outcomes.iter().sum::<usize>(), 40);
    let taken: Vec<u32> = (0..7)
        .filter_map(|buyer| client.value(format!("{{sale}}taken:{buyer}").as_bytes()))
        .map(|value| u32_of(&value))
        .collect();
    assert_eq!(taken.iter().sum::<u32>(), 10);
    assert!(taken.iter().all(|units| *units <= 2), "{taken:?}");
}

/// A counter that stops at 0 answers the last unit and none at all alike.
#[test]
fn the_last_unit_and_none_left_have_different_answers() {
    let mut client = Client::with_cache();
    client.set(b"{sale}stock", &1u32.to_le_bytes());
    let last = client.apply(&take_one(1));
    assert_eq!((last.status, numbers(&last)[0]), (Status::Ok, 0));
    let none = client.apply(&take_one(2));
    assert_eq!((none.status, none.reason), (Status::GuardFailed, 2));
    assert_eq!(
        client.value(b"{sale}taken:2"),
        None,
        "nothing of it happened"
    );
}

#[test]
fn what_is_given_back_twice_comes_back_once() {
    let mut client = Client::with_cache();
    client.set(b"{drop}stock", &5u32.to_le_bytes());
    client.apply(&buy(1));
    let mut give_back = Apply::new();
    let (stock, hold) = (
        give_back.key(b"{drop}stock"),
        give_back.key(b"{drop}hold:1"),
    );
    give_back
        .then(stock.u32(0).increase(hold.u32(0)))
        .then(stock.u32(0).at_most(5u64))
        .then(hold.delete());
    assert_eq!(client.apply(&give_back).status, Status::Ok);
    assert_eq!(client.apply(&give_back).status, Status::NotFound);
    assert_eq!(u32_of(&client.get(b"{drop}stock").value), 5);
}
