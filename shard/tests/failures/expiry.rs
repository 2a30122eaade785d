//! Keys that are gone by themselves, seen by a client: at once, for every verb, after eviction and
//! after a start, whatever the wall clock does.

use penstock_net::apply::Apply;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::reply::KeyExpiry;
use penstock_net::request::{BatchRequest, Condition, Expiry, Wanted};
use penstock_net::status::Status;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::server::{Asked, Reply, Server};

const SECOND: u64 = 1_000;
/// Far from the beginning of time, so that the wall clock can step both ways.
const START_MS: u64 = 1_800_000_000_000;
const DAY: u64 = 86_400 * SECOND;

struct Shop {
    server: Server,
    asked: usize,
}

impl Shop {
    fn open(image: Image, incarnation: u64, unix_ms: u64) -> Shop {
        let sync = SyncMethod::DurableWrite;
        let server = Server::open_at(unix_ms, sync, image, incarnation, None).expect("it opens");
        Shop { server, asked: 0 }
    }

    fn new() -> Shop {
        Shop::open(Image::default(), 1, START_MS)
    }

    /// Both clocks go on.
    fn pass(&mut self, ms: u64) {
        self.server.sleep(ms);
        self.server.turn();
    }

    fn ask(&mut self, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Reply {
        self.asked += 1;
        self.server.answer(self.asked, item)
    }

    fn set(&mut self, value: &[u8], condition: Condition, expiry: Expiry) -> Status {
        self.ask(|b, o| b.set_with(o, b"{s}k", value, condition, expiry))
            .status
    }

    fn get(&mut self) -> (Status, Vec<u8>) {
        let reply = self.ask(|b, o| b.get(o, b"{s}k"));
        (reply.status, reply.value)
    }

    fn key_expiry(&mut self) -> Option<KeyExpiry> {
        let reply = self.ask(|b, o| b.get_with(o, b"{s}k", Wanted::Expiry));
        assert!(reply.value.is_empty() || reply.status != Status::Ok);
        reply.expiry
    }

    fn update(&mut self, steps: &[Instruction], start: Option<&[u8]>, expiry: Expiry) -> Reply {
        self.ask(|b, o| b.update_if_with(o, b"{s}k", None, steps, start, expiry))
    }
}

fn step(operation: Operation, immediate: u64) -> Instruction {
    Instruction {
        operation,
        field_type: FieldType::U64,
        key: 0,
        reason: 0,
        offset: 0,
        immediate,
    }
}

fn word(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

#[test]
fn an_expired_key_is_gone_for_every_verb_and_condition() {
    use Condition::{Absent, Always, Present};
    let gone = |shop: &mut Shop| {
        let old = word(7);
        assert_eq!(shop.set(&old, Always, Expiry::In(10 * SECOND)), Status::Ok);
        shop.pass(9 * SECOND);
        assert_eq!(shop.get(), (Status::Ok, old));
        shop.pass(2 * SECOND);
        assert_eq!(shop.get(), (Status::NotFound, vec![]));
    };
    let mut shop = Shop::new();
    gone(&mut shop);
    let written = shop
        .server
        .asked
        .iter()
        .filter(|&&what| what == Asked::Write)
        .count();
    assert_eq!(shop.key_expiry(), None);
    assert_eq!(shop.set(b"x", Present, Expiry::Never), Status::NotFound);
    assert_eq!(
        shop.ask(|b, o| b.del(o, b"{s}k", Always)).status,
        Status::NotFound
    );
    for steps in [&[step(Operation::Ge, 0)][..], &[step(Operation::Add, 1)]] {
        let reply = shop.update(steps, None, Expiry::Keep);
        assert_eq!(reply.status, Status::NotFound);
    }
    for expiry in [Expiry::In(DAY), Expiry::At(START_MS + DAY), Expiry::Never] {
        let reply = shop.update(&[], None, expiry);
        assert_eq!(reply.status, Status::NotFound, "nothing is there to expire");
    }
    let writes = shop
        .server
        .asked
        .iter()
        .filter(|&&what| what == Asked::Write)
        .count();
    assert_eq!(writes, written, "a no writes nothing");

    assert_eq!(shop.set(b"new", Absent, Expiry::Never), Status::Ok);
    assert_eq!(shop.get(), (Status::Ok, b"new".to_vec()));
    gone(&mut shop);
    let reply = shop.update(&[step(Operation::Add, 1)], Some(&word(100)), Expiry::Keep);
    assert_eq!((reply.status, reply.value), (Status::Ok, word(101)));
    assert_eq!(
        shop.key_expiry().unwrap().left_ms(),
        None,
        "a new key keeps nothing"
    );
}

#[test]
fn each_verb_does_with_an_expiry_what_it_says() {
    use Condition::Always;
    let mut shop = Shop::new();
    let left = |shop: &mut Shop| shop.key_expiry().expect("it is there").left_ms();
    let about = |left: Option<u64>, expected: u64| {
        let left = left.expect("it expires");
        assert!(
            (expected - 500..=expected).contains(&left),
            "{left} of {expected}"
        );
    };
    shop.set(&word(7), Always, Expiry::In(100 * SECOND));
    about(left(&mut shop), 100 * SECOND);
    shop.update(&[step(Operation::Add, 1)], None, Expiry::Keep);
    about(left(&mut shop), 100 * SECOND - 60);
    shop.set(&word(9), Always, Expiry::Keep);
    about(left(&mut shop), 100 * SECOND - 100);
    shop.set(&word(9), Always, Expiry::Never);
    assert_eq!(left(&mut shop), None);
    assert_eq!(
        shop.update(&[], None, Expiry::In(50 * SECOND)).status,
        Status::Ok
    );
    about(left(&mut shop), 50 * SECOND);
    assert_eq!(shop.get().1, word(9), "its value stays");
    assert_eq!(shop.update(&[], None, Expiry::Never).status, Status::Ok);
    assert_eq!(left(&mut shop), None);
    let failed = shop.update(&[step(Operation::Ge, 99)], None, Expiry::In(1));
    assert_eq!(failed.status, Status::GuardFailed);
    assert_eq!(left(&mut shop), None, "a no changes no expiry");
    shop.set(&word(1), Always, Expiry::At(START_MS - 1));
    assert_eq!(shop.get().0, Status::NotFound, "a time that is past");
    let reply = shop.ask(|b, o| {
        let expiry = Expiry::In((1 << 48) - 1);
        b.set_with(o, b"{s}k", b"x", Always, expiry);
    });
    let text = String::from_utf8(reply.value).unwrap();
    assert_eq!(reply.status, Status::Malformed);
    assert!(
        text.contains("281474976710655 milliseconds after 18000000"),
        "{text}"
    );
    let both = shop.ask(|b, o| {
        b.set_with(o, b"{s}k", b"both", Always, Expiry::At(START_MS + DAY));
    });
    assert_eq!(both.status, Status::Ok);
    let reply = shop.ask(|b, o| b.get_with(o, b"{s}k", Wanted::ValueAndExpiry));
    assert_eq!(reply.value, b"both");
    assert_eq!(reply.expiry.unwrap().expiry_ms, START_MS + DAY);
}

#[test]
fn a_failed_program_leaves_an_expired_key_gone() {
    let mut shop = Shop::new();
    shop.set(&word(7), Condition::Always, Expiry::In(SECOND));
    shop.pass(2 * SECOND);
    for _ in 0..2 {
        let steps = [step(Operation::Add, 1), step(Operation::Ge, 1_000)];
        let reply = shop.update(&steps, Some(&word(5)), Expiry::In(DAY));
        assert_eq!(reply.status, Status::GuardFailed);
        assert_eq!(shop.get().0, Status::NotFound);
    }
    assert_eq!(shop.set(b"n", Condition::Absent, Expiry::Never), Status::Ok);
    assert_eq!(shop.get(), (Status::Ok, b"n".to_vec()));
}

/// Makes the cache forget the key: others are used as often.
fn make_cold(shop: &mut Shop) {
    for number in 0..80 {
        let key = format!("{{s}}other{}", number / 2);
        shop.ask(|b, o| b.set(o, key.as_bytes(), &[1; 300], Condition::Always));
    }
}

#[test]
fn an_expiry_outlives_the_cache_and_a_start() {
    let mut shop = Shop::new();
    shop.set(b"old", Condition::Always, Expiry::Never);
    shop.set(
        &[7; 100],
        Condition::Always,
        Expiry::At(START_MS + 100 * SECOND),
    );
    make_cold(&mut shop);
    let reads = |shop: &Shop| {
        let read = |what: &&Asked| **what == Asked::Read;
        shop.server.asked.iter().filter(read).count()
    };
    let before = reads(&shop);
    assert_eq!(
        shop.key_expiry().unwrap().expiry_ms,
        START_MS + 100 * SECOND
    );
    assert!(reads(&shop) > before, "it came from the disk");
    make_cold(&mut shop);
    shop.pass(100 * SECOND);
    let before = reads(&shop);
    assert_eq!(shop.get().0, Status::NotFound);
    assert!(
        reads(&shop) > before,
        "that it is gone was read from the disk"
    );

    for (unix_ms, expected) in [
        (START_MS + 99 * SECOND, Status::Ok),
        (START_MS + 101 * SECOND, Status::NotFound),
    ] {
        let image = shop.server.device.image.clone();
        let mut again = Shop::open(image, 2, unix_ms);
        assert_eq!(again.get().0, expected, "a start keeps the expiry");
    }
}

#[test]
fn what_was_written_on_an_expiry_is_not_undone_by_an_older_wall_clock() {
    let mut shop = Shop::new();
    shop.set(b"held", Condition::Always, Expiry::In(10 * SECOND));
    shop.ask(|b, o| {
        b.set_with(
            o,
            b"{s}twin",
            b"held",
            Condition::Always,
            Expiry::At(START_MS + 10 * SECOND),
        )
    });
    shop.pass(11 * SECOND);
    assert_eq!(
        shop.set(b"next", Condition::Absent, Expiry::Never),
        Status::Ok
    );
    let mut again = Shop::open(shop.server.device.image.clone(), 2, START_MS);
    assert_eq!(again.get(), (Status::Ok, b"next".to_vec()));
    let twin = again.ask(|b, o| b.get(o, b"{s}twin"));
    assert_eq!(twin.status, Status::NotFound, "the log's time is as late");
}

#[test]
fn a_wall_clock_that_steps_expires_nothing_and_keeps_nothing() {
    for step_ms in [DAY.cast_signed(), -DAY.cast_signed()] {
        let mut shop = Shop::new();
        shop.set(b"held", Condition::Always, Expiry::In(64 * SECOND));
        shop.server.now.unix_ms = shop.server.now.unix_ms.strict_add_signed(step_ms);
        shop.pass(62 * SECOND);
        assert_eq!(shop.get().0, Status::Ok, "{step_ms}");
        shop.pass(4 * SECOND);
        assert_eq!(shop.get().0, Status::NotFound, "{step_ms}");
    }
}

#[test]
fn an_expiry_that_is_past_by_a_store_ahead_of_its_clock_alone_is_refused_by_every_way() {
    const AHEAD: u64 = 8 * 3_600 * SECOND;
    let mut ahead = Shop::open(Image::default(), 1, START_MS + AHEAD);
    ahead.set(b"old", Condition::Always, Expiry::Never);
    ahead.pass(SECOND);
    // The next start has the right clock.
    let mut shop = Shop::open(ahead.server.device.image.clone(), 2, START_MS);
    let soon = START_MS + 1_800 * SECOND;
    let expire = |at_ms: u64| {
        let mut apply = Apply::new();
        let key = apply.key(b"{s}k");
        apply.then(key.expire_at(at_ms));
        apply
    };
    let is_refused = |shop: &mut Shop, at_ms: u64, is_refused: bool| {
        let (expiry, apply) = (Expiry::At(at_ms), expire(at_ms));
        let replies = [
            shop.ask(|b, o| b.set_with(o, b"{s}k", b"new", Condition::Always, expiry)),
            shop.ask(|b, o| b.set(o, b"{s}k", b"old", Condition::Always)),
            shop.update(&[], None, expiry),
            shop.ask(|b, o| b.set(o, b"{s}k", b"old", Condition::Always)),
            shop.ask(|b, o| b.apply(o, &apply)),
            shop.ask(|b, o| b.set(o, b"{s}k", b"old", Condition::Always)),
        ];
        for reply in replies.iter().step_by(2) {
            assert_eq!(
                reply.status == Status::Malformed,
                is_refused,
                "{at_ms} {reply:?}"
            );
            assert_eq!(reply.status == Status::Ok, !is_refused, "{at_ms} {reply:?}");
        }
        let text = String::from_utf8_lossy(&replies[0].value);
        assert_eq!(text.contains("ahead of the clock"), is_refused, "{text}");
    };
    is_refused(&mut shop, soon, true);
    assert_eq!(
        shop.get(),
        (Status::Ok, b"old".to_vec()),
        "nothing was executed"
    );
    // What both call past is at once gone, as ever, and what both call future lives.
    is_refused(&mut shop, START_MS - SECOND, false);
    is_refused(&mut shop, START_MS + 2 * AHEAD, false);
    let lifetime = Expiry::In(1_800 * SECOND);
    assert_eq!(shop.set(b"new", Condition::Always, lifetime), Status::Ok);
    assert_eq!(shop.get(), (Status::Ok, b"new".to_vec()));
    // A clock that is behind by a moment refuses nothing.
    let mut near = Shop::open(
        shop.server.device.image.clone(),
        3,
        START_MS + AHEAD - 30 * SECOND,
    );
    is_refused(&mut near, START_MS + AHEAD - SECOND, false);
}
