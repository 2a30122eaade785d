//! Tokens on one shard: a request that is sent again is not executed again, over evictions,
//! cleaning, snapshots, starts and other horizons.

use std::collections::BTreeMap;

use penstock_net::apply::Apply;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::limits::TOKEN_AHEAD_MS_MAX;
use penstock_net::request::{Ask, BatchRequest, Condition, Expiry, Token, Version};
use penstock_net::status::Status;
use penstock_storage::budget::Budget;

use crate::image::Image;
use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::{Reply, Server, Snapshots};

const START_MS: u64 = 1_800_000_000_000;
const HORIZON_MS: u64 = 60_000;
const STOCK: &[u8] = b"{drop}stock";

struct Shop {
    server: Server,
    asked: usize,
}

/// How a shop opens.
#[derive(Clone)]
struct Opening {
    horizon_ms: u64,
    cache_bytes: usize,
    unix_ms: u64,
    image: Image,
    snapshots: (Snapshots, u64),
    incarnation: u64,
}

impl Default for Opening {
    fn default() -> Self {
        Opening {
            horizon_ms: HORIZON_MS,
            cache_bytes: 1 << 20,
            unix_ms: START_MS,
            image: Image::default(),
            snapshots: (Snapshots::new(), 0),
            incarnation: 1,
        }
    }
}

impl Shop {
    fn open(opening: Opening) -> Shop {
        let budget = Budget::of_cache(opening.cache_bytes);
        let server = Server::open_with_tokens(
            opening.horizon_ms,
            opening.snapshots,
            budget,
            opening.unix_ms,
            opening.image,
            opening.incarnation,
        );
        Shop {
            server: server.expect("it opens"),
            asked: 0,
        }
    }

    fn new() -> Shop {
        Shop::open(Opening::default())
    }

    /// The next start over what is on the disk now.
    fn again(&self, opening: Opening) -> Shop {
        Shop::open(Opening {
            image: self.server.device.image.clone(),
            ..opening
        })
    }

    fn pass(&mut self, ms: u64) {
        self.server.sleep(ms);
        self.server.turn();
    }

    fn ask(&mut self, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Reply {
        self.asked += 1;
        self.server.answer(self.asked, item)
    }

    fn with(&mut self, token: Token, ask: Ask<'_>) -> Reply {
        self.ask(|batch, out| {
            batch.token(token);
            ask.write(batch, out);
        })
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Reply {
        self.ask(|batch, out| batch.set(out, key, value, Condition::Always))
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let reply = self.ask(|batch, out| batch.get(out, key));
        (reply.status == Status::Ok).then_some(reply.value)
    }

    fn stock(&mut self) -> u64 {
        let value = self.get(STOCK).expect("there is stock");
        u64::from_le_bytes(value.try_into().expect("a word"))
    }

    /// A token of now.
    fn token(&self, number: u64) -> Token {
        token_of(self.server.time_ms(), number)
    }
}

fn token_of(time_ms: u64, number: u64) -> Token {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_le_bytes());
    // The upper bits of a byte are those of the variant.
    random.reverse();
    Token::new(time_ms, random)
}

/// A token that is a text.
fn text_of(time_ms: u64, number: u64) -> Token {
    let text = format!("order-{number}");
    Token::of_text(text.as_bytes(), time_ms).expect("a short text")
}

fn take(units: u64) -> [Instruction; 1] {
    [Instruction {
        operation: Operation::Sub,
        field_type: FieldType::U64,
        key: 0,
        reason: 0,
        offset: 0,
        immediate: units,
    }]
}

fn update(instructions: &[Instruction]) -> Ask<'_> {
    Ask::UpdateIf {
        key: STOCK,
        second_key: None,
        instructions,
        start: None,
        expiry: Expiry::Keep,
    }
}

fn answer_of(reply: &Reply) -> (Status, Version, Vec<u8>) {
    (reply.status, reply.version, reply.value.clone())
}

fn buy() -> Apply {
    let mut buy = Apply::new();
    let stock = buy.key(STOCK);
    let hold = buy.key(b"{drop}hold");
    buy.then(stock.u64(0).at_least(1u64))
        .then(stock.u64(0).decrease(1u64))
        .put(hold, b"held");
    buy
}

#[test]
fn each_write_that_is_sent_again_gets_its_first_answer_and_is_not_executed_again() {
    let mut shop = Shop::new();
    shop.set(STOCK, &100u64.to_le_bytes());
    let (buy, take) = (buy(), take(3));
    let writes = [
        update(&take),
        Ask::Apply(&buy),
        Ask::Set {
            key: b"{drop}note",
            value: b"written",
            when: Condition::Absent.into(),
            expiry: Expiry::Never,
        },
        Ask::Del {
            key: b"{drop}note",
            when: Condition::Present.into(),
        },
    ];
    for (number, write) in (0..).zip(writes) {
        let token = shop.token(number);
        let first = shop.with(token, write);
        assert_eq!(first.status, Status::Ok, "{write:?}");
        assert!(!first.is_replayed);
        let stock = shop.stock();
        let bytes = shop.server.log_bytes();
        for _ in 0..3 {
            let again = shop.with(token, write);
            assert_eq!(answer_of(&again), answer_of(&first), "{write:?}");
            assert!(again.is_replayed);
        }
        assert_eq!(shop.server.log_bytes(), bytes, "a retry logs nothing");
        assert_eq!(shop.stock(), stock);
        let another = shop.with(shop.token(number + 100), update(&take));
        assert!(!another.is_replayed);
    }
    assert_eq!(shop.get(b"{drop}note"), None);
}

#[test]
fn another_request_with_the_token_is_refused_and_changes_nothing() {
    let mut shop = Shop::new();
    shop.set(STOCK, &100u64.to_le_bytes());
    let token = shop.token(1);
    assert_eq!(shop.with(token, update(&take(3))).status, Status::Ok);
    let refused = shop.with(token, update(&take(4)));
    assert_eq!(refused.status, Status::TokenReused);
    assert_eq!(
        String::from_utf8_lossy(&refused.value),
        "another request had this token, and was executed; nothing of this one was"
    );
    assert_eq!(shop.stock(), 97);
    // In another slot it is another token.
    let elsewhere = Ask::Set {
        key: b"elsewhere",
        value: b"x",
        when: Condition::Always.into(),
        expiry: Expiry::Never,
    };
    assert!(!shop.with(token, elsewhere).is_replayed);
}

#[test]
fn keys_of_two_slots_are_refused_as_such_whatever_is_known_of_the_token() {
    let mut shop = Shop::new();
    shop.set(STOCK, &100u64.to_le_bytes());
    let early = shop.token(1);
    shop.pass(3 * HORIZON_MS);
    let (used, now_ms) = (shop.token(2), shop.server.time_ms());
    assert_eq!(shop.with(used, update(&take(3))).status, Status::Ok);
    let ahead = token_of(now_ms + TOKEN_AHEAD_MS_MAX + 10_000, 3);
    let (one, other) = (STOCK, &b"{elsewhere}stock"[..]);
    let pair = Ask::UpdateIf {
        key: one,
        second_key: Some(other),
        instructions: &take(1),
        start: None,
        expiry: Expiry::Keep,
    };
    let mut apply = Apply::new();
    let stock = apply.key(one);
    apply.key(other);
    apply.then(stock.u64(0).decrease(1u64));
    for token in [used, early, ahead, shop.token(4)] {
        for ask in [pair, Ask::Apply(&apply)] {
            let refused = shop.with(token, ask);
            assert_eq!(refused.status, Status::CrossSlot, "{token:?} {ask:?}");
        }
    }
    assert_eq!(shop.stock(), 97);
    // What was refused is remembered nowhere: the token is new for the request that it is for.
    let fresh = shop.token(4);
    assert_eq!(shop.with(fresh, update(&take(4))).status, Status::Ok);
}

#[test]
fn a_refused_request_is_not_remembered_and_an_answer_without_a_change_is() {
    let mut shop = Shop::new();
    shop.set(STOCK, &2u64.to_le_bytes());
    let (refused, idle) = (shop.token(1), shop.token(2));
    let no = shop.with(refused, update(&take(3)));
    assert_eq!(no.status, Status::GuardFailed);
    let mut keep = Apply::new();
    let stock = keep.key(STOCK);
    keep.then(stock.u64(0).decrease(0u64));
    let unchanged = shop.with(idle, Ask::Apply(&keep));
    assert_eq!(unchanged.status, Status::Ok);

    shop.set(STOCK, &9u64.to_le_bytes());
    let yes = shop.with(refused, update(&take(3)));
    assert_eq!((yes.status, yes.is_replayed), (Status::Ok, false));
    let again = shop.with(idle, Ask::Apply(&keep));
    assert_eq!(answer_of(&again), answer_of(&unchanged), "also its version");
    assert!(again.is_replayed);
}

#[test]
fn a_token_is_too_old_behind_its_horizon_and_refused_far_ahead_of_the_time() {
    let mut shop = Shop::new();
    shop.set(STOCK, &100u64.to_le_bytes());
    let early = shop.token(1);
    assert_eq!(shop.with(early, update(&take(1))).status, Status::Ok);
    shop.pass(HORIZON_MS / 2);
    assert!(shop.with(early, update(&take(1))).is_replayed);
    shop.pass(HORIZON_MS / 2);
    for _ in 0..2 {
        let late = shop.with(early, update(&take(1)));
        assert_eq!(late.status, Status::TokenTooOld);
    }
    let never_seen = token_of(early.time_ms() - 5, 77);
    let late = shop.with(never_seen, update(&take(1)));
    assert_eq!(late.status, Status::TokenTooOld);
    let text = String::from_utf8_lossy(&late.value).into_owned();
    assert!(text.contains(&never_seen.time_ms().to_string()), "{text}");

    let now_ms = shop.server.time_ms();
    let ahead = token_of(now_ms + TOKEN_AHEAD_MS_MAX + 10_000, 78);
    let refused = shop.with(ahead, update(&take(1)));
    assert_eq!(refused.status, Status::Malformed);
    let text = String::from_utf8_lossy(&refused.value).into_owned();
    assert!(text.contains(&ahead.time_ms().to_string()), "{text}");
    let near = token_of(now_ms + TOKEN_AHEAD_MS_MAX - 1_000, 79);
    assert_eq!(shop.with(near, update(&take(1))).status, Status::Ok);
    assert_eq!(shop.stock(), 98);
}

#[test]
fn a_token_is_found_again_after_it_has_left_memory_and_a_fresh_one_costs_no_read() {
    let mut shop = Shop::open(Opening {
        cache_bytes: 8_000,
        ..Opening::default()
    });
    shop.set(STOCK, &1_000u64.to_le_bytes());
    let tokens: Vec<Token> = (0..200).map(|number| shop.token(number)).collect();
    let mut answers = Vec::new();
    for &token in &tokens {
        answers.push(shop.with(token, update(&take(1))));
    }
    assert_eq!(
        shop.server.counters().reads,
        0,
        "a fresh token reads nothing"
    );
    assert!(shop.server.usage().cells < 100, "{:?}", shop.server.usage());
    assert_eq!(shop.server.usage().tokens, 200);
    for (&token, answer) in tokens.iter().zip(&answers) {
        let again = shop.with(token, update(&take(1)));
        assert_eq!(answer_of(&again), answer_of(answer));
        assert!(again.is_replayed);
    }
    assert!(shop.server.counters().reads > 50);
    assert_eq!(shop.stock(), 800);
}

#[test]
fn tokens_leave_the_index_when_the_log_says_that_they_may_be_gone() {
    let horizon_ms = 300_000;
    let mut shop = Shop::open(Opening {
        horizon_ms,
        ..Opening::default()
    });
    shop.set(STOCK, &1_000_000u64.to_le_bytes());
    let mut newest = shop.token(0);
    for number in 0..3_000 {
        newest = shop.token(number);
        assert_eq!(shop.with(newest, update(&take(1))).status, Status::Ok);
    }
    assert_eq!(shop.server.usage().tokens, 3_000);
    shop.pass(horizon_ms);
    // Time and writes go on; one token keeps the chore awake.
    for number in 0..400u32 {
        shop.pass(1_000);
        shop.set(b"{other}key", &[number.to_le_bytes()[0]; 900]);
    }
    let usage = shop.server.usage();
    assert!(usage.tokens < 300, "{} tokens are left", usage.tokens);
    let late = shop.with(newest, update(&take(1)));
    assert_eq!(late.status, Status::TokenTooOld);
    assert_eq!(shop.stock(), 1_000_000 - 3_000);
}

#[test]
fn a_text_is_one_token_whatever_its_time_and_leaves_the_index_when_it_may_be_gone() {
    let horizon_ms = 300_000;
    let mut shop = Shop::open(Opening {
        horizon_ms,
        ..Opening::default()
    });
    shop.set(STOCK, &1_000_000u64.to_le_bytes());
    let began_ms = shop.server.time_ms();
    for number in 0..3_000 {
        let token = text_of(began_ms, number);
        assert_eq!(shop.with(token, update(&take(1))).status, Status::Ok);
    }
    assert_eq!(shop.server.usage().tokens, 3_000);
    for (ms, number) in [(began_ms + 100, 7), (began_ms - 200_000, 8)] {
        let again = shop.with(text_of(ms, number), update(&take(1)));
        assert!(again.is_replayed && again.status == Status::Ok, "{again:?}");
        let other = shop.with(text_of(ms, number), update(&take(2)));
        assert_eq!(other.status, Status::TokenReused);
    }
    shop.pass(horizon_ms);
    let late = shop.with(text_of(began_ms, 7), update(&take(1)));
    assert_eq!(late.status, Status::TokenTooOld);
    // As long as a UUID takes.
    for number in 0..400u32 {
        shop.pass(1_000);
        shop.set(b"{other}key", &[number.to_le_bytes()[0]; 900]);
    }
    let usage = shop.server.usage();
    assert!(usage.tokens < 300, "{} tokens are left", usage.tokens);
    let late = shop.with(text_of(began_ms, 7), update(&take(1)));
    assert_eq!(late.status, Status::TokenTooOld);
    assert_eq!(shop.stock(), 1_000_000 - 3_000);
}

#[test]
fn a_text_is_kept_for_a_horizon_from_its_execution_on_however_long_before_it_was_sent() {
    let mut shop = Shop::new();
    shop.set(STOCK, &10u64.to_le_bytes());
    let sent_ms = shop.server.time_ms() - HORIZON_MS + 1;
    assert!(!shop.with(text_of(sent_ms, 1), update(&take(1))).is_replayed);
    for _ in 0..5 {
        shop.pass(HORIZON_MS / 5 - 100);
        // Its client gives the time of each try.
        let again = shop.with(text_of(shop.server.time_ms(), 1), update(&take(1)));
        assert!(again.is_replayed, "{again:?}");
    }
    assert_eq!(shop.stock(), 9);
}

/// The parts of the stock beside the tokens are superseded, so the account of what has expired says
/// nothing of such a segment.
#[test]
fn tokens_leave_the_index_of_an_idle_server_whose_segments_are_large() {
    let opening = Opening {
        horizon_ms: 200_000,
        snapshots: (Snapshots::new(), 64 << 10),
        ..Opening::default()
    };
    let mut shop = Shop::open(opening.clone());
    shop.server.segment_bytes = 12 << 20;
    shop.set(STOCK, &1_000_000u64.to_le_bytes());
    for number in 0..3_000 {
        let token = shop.token(number);
        assert_eq!(shop.with(token, update(&take(1))).status, Status::Ok);
    }
    assert_eq!(shop.server.usage().tokens, 3_000);
    let idle = |shop: &mut Shop, seconds: u64| {
        for _ in 0..seconds {
            shop.pass(1_000);
            shop.server.settle();
        }
        shop.server.usage().tokens
    };
    // A start behind a snapshot does not know their times.
    let mut again = shop.again(Opening {
        unix_ms: shop.server.now.unix_ms,
        snapshots: (shop.server.snapshots.clone(), 64 << 10),
        incarnation: 2,
        ..opening
    });
    assert!(again.server.used.is_some(), "a snapshot was used");
    for (shop, seconds) in [(&mut shop, 300), (&mut again, 700)] {
        let tokens = idle(shop, seconds);
        assert!(tokens < 1_100, "{tokens} tokens are left");
    }
}

/// By the horizon of the server, behind a start, too.
#[test]
fn texts_leave_the_index_of_an_idle_server_as_soon_as_uuids() {
    let opening = Opening {
        horizon_ms: 200_000,
        snapshots: (Snapshots::new(), 64 << 10),
        ..Opening::default()
    };
    let mut shop = Shop::open(opening.clone());
    shop.server.segment_bytes = 12 << 20;
    shop.set(STOCK, &1_000_000u64.to_le_bytes());
    for number in 0..3_000 {
        let token = text_of(shop.server.time_ms(), number);
        assert_eq!(shop.with(token, update(&take(1))).status, Status::Ok);
    }
    let mut again = shop.again(Opening {
        unix_ms: shop.server.now.unix_ms,
        snapshots: (shop.server.snapshots.clone(), 64 << 10),
        incarnation: 2,
        ..opening
    });
    assert!(again.server.used.is_some(), "a snapshot was used");
    for (shop, seconds) in [(&mut shop, 300), (&mut again, 700)] {
        assert_eq!(shop.server.usage().tokens, 3_000);
        for _ in 0..seconds {
            shop.pass(1_000);
            shop.server.settle();
        }
        let tokens = shop.server.usage().tokens;
        assert!(tokens < 1_100, "{tokens} texts are left");
    }
}

/// A shop that takes texts for a long horizon is opened anew with a short one. Each text stays for
/// what it was promised, and goes then.
#[test]
fn a_text_of_a_longer_horizon_is_kept_for_it_and_goes_behind_it() {
    let long_ms = 400_000;
    let mut shop = Shop::open(Opening {
        horizon_ms: long_ms,
        ..Opening::default()
    });
    shop.set(STOCK, &1_000_000u64.to_le_bytes());
    let sent_ms = shop.server.time_ms();
    for number in 0..2_000 {
        shop.with(text_of(sent_ms, number), update(&take(1)));
    }
    let mut again = shop.again(Opening {
        horizon_ms: 20_000,
        unix_ms: shop.server.now.unix_ms,
        incarnation: 2,
        ..Opening::default()
    });
    again.with(text_of(again.server.time_ms(), 9_999), update(&take(1)));
    let idle = |shop: &mut Shop, seconds: u64| {
        for _ in 0..seconds {
            shop.pass(1_000);
            shop.server.settle();
        }
    };
    idle(&mut again, 340);
    let now_ms = again.server.time_ms();
    let kept = again.with(text_of(now_ms, 7), update(&take(1)));
    let passed_ms = now_ms - sent_ms;
    assert!(kept.is_replayed, "behind {passed_ms} ms: {kept:?}");
    idle(&mut again, 200);
    let tokens = again.server.usage().tokens;
    assert!(tokens < 1_100, "{tokens} texts are left");
    let late = again.with(text_of(sent_ms, 7), update(&take(1)));
    assert_eq!(late.status, Status::TokenTooOld);
    assert_eq!(again.stock(), 1_000_000 - 2_001);
}

#[test]
fn on_a_full_disk_a_no_is_answered_and_a_change_with_a_token_is_full() {
    let mut shop = Shop::new();
    shop.set(STOCK, &5u64.to_le_bytes());
    shop.server.is_full = true;
    let is_full = |number: u32| {
        let key = format!("fill:{number}");
        shop.set(key.as_bytes(), &[7; 2_000]).status == Status::Full
    };
    assert!((0..2_000).any(is_full), "the disk is never full");
    let token = shop.token(1);
    let no = shop.with(token, update(&take(6)));
    assert_eq!(no.status, Status::GuardFailed);
    assert_eq!(shop.with(token, update(&take(1))).status, Status::Full);
    assert_eq!(shop.stock(), 5);
}

#[test]
fn a_longer_horizon_does_not_call_tokens_new_that_a_shorter_one_has_dropped() {
    let mut shop = Shop::open(Opening {
        horizon_ms: 5_000,
        ..Opening::default()
    });
    shop.set(STOCK, &100u64.to_le_bytes());
    let token = shop.token(1);
    assert_eq!(shop.with(token, update(&take(1))).status, Status::Ok);
    shop.pass(6_000);
    let mut again = shop.again(Opening {
        horizon_ms: 600_000,
        unix_ms: shop.server.now.unix_ms,
        incarnation: 2,
        ..Opening::default()
    });
    let late = again.with(token, update(&take(1)));
    assert_eq!(late.status, Status::TokenTooOld);
    // Nor is the border lower for who turns the clock back.
    let mut back = again.again(Opening {
        horizon_ms: 600_000,
        unix_ms: START_MS,
        incarnation: 3,
        ..Opening::default()
    });
    let late = back.with(token, update(&take(1)));
    assert_ne!(late.status, Status::Ok);
    assert_eq!(back.stock(), 99);
}

/// What a token was used for.
#[derive(Clone, Debug)]
struct Used {
    units: u64,
    answer: Option<(Status, Version, Vec<u8>)>,
}

/// Random writes with tokens, most of them sent several times, over starts with other horizons,
/// small caches, cleaning and snapshots. The stock must be what the tokens took, each once.
#[test]
fn no_token_takes_twice_whatever_comes_between() {
    let (mut replayed, mut late) = (0, 0);
    for seed in seeds(40) {
        let _named = Seed(seed);
        let mut random = Random::new(seed);
        let mut opening = opening_of(&mut random, 1);
        let mut shop = Shop::open(opening.clone());
        shop.set(STOCK, &u64::MAX.to_le_bytes());
        let mut left = u64::MAX;
        let mut used: BTreeMap<Token, Used> = BTreeMap::new();
        for step in 0..300 {
            match random.below(24) {
                0 => {
                    opening = Opening {
                        image: shop.server.device.image.clone(),
                        snapshots: (shop.server.snapshots.clone(), 4_000),
                        unix_ms: shop.server.now.unix_ms + random.below(20_000) as u64,
                        ..opening_of(&mut random, opening.incarnation + 1)
                    };
                    shop = Shop::open(opening.clone());
                }
                1 => shop.pass(random.below(30_000) as u64),
                2..6 => {
                    let value = vec![7; random.below(1_500)];
                    shop.set(b"{fill}er", &value);
                }
                6..16 => {
                    let age_ms = random.below(20_000) as u64;
                    let made_ms = shop.server.time_ms().saturating_sub(age_ms);
                    let token = match step % 3 {
                        0 => text_of(made_ms, step),
                        _ => token_of(made_ms, step),
                    };
                    let units = 1 + random.below(3) as u64;
                    used.insert(
                        token,
                        Used {
                            units,
                            answer: None,
                        },
                    );
                    try_token(&mut shop, token, &mut used, &mut left);
                }
                _ => {
                    let tokens: Vec<Token> = used.keys().copied().collect();
                    if tokens.is_empty() {
                        continue;
                    }
                    let token = tokens[random.below(tokens.len())];
                    match try_token(&mut shop, token, &mut used, &mut left) {
                        Status::TokenTooOld => late += 1,
                        _ => replayed += 1,
                    }
                }
            }
        }
        assert_eq!(shop.stock(), left);
    }
    assert!(replayed > 500 && late > 100, "{replayed}, {late}");
}

fn opening_of(random: &mut Random, incarnation: u64) -> Opening {
    Opening {
        horizon_ms: [2_000, 20_000, 90_000][random.below(3)],
        cache_bytes: [2_500, 1 << 20][random.below(2)],
        snapshots: (Snapshots::new(), 4_000),
        incarnation,
        ..Opening::default()
    }
}

/// Sends the request of a token, perhaps once more, and judges the answer.
fn try_token(
    shop: &mut Shop,
    token: Token,
    used: &mut BTreeMap<Token, Used>,
    left: &mut u64,
) -> Status {
    let known = used.get_mut(&token).expect("it was made");
    let reply = shop.with(token, update(&take(known.units)));
    match (reply.status, &known.answer) {
        (Status::Ok, None) => {
            assert!(!reply.is_replayed);
            *left -= known.units;
            known.answer = Some(answer_of(&reply));
        }
        (Status::Ok, Some(first)) => {
            assert!(reply.is_replayed, "{token} was executed twice");
            assert_eq!(answer_of(&reply), *first);
        }
        (Status::TokenTooOld, _) => {
            let age_ms = shop.server.time_ms() - token.time_ms();
            assert!(age_ms >= 2_000, "{age_ms} ms are not too old");
        }
        (status, _) => panic!("{status:?} {:?}", String::from_utf8_lossy(&reply.value)),
    }
    reply.status
}
