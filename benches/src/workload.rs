//! The frames that a connection sends: built once, sent many times under new request ids and keys.

use std::hash::{BuildHasher, RandomState};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_net::apply::Apply;
use penstock_net::frame::{HEADER_BYTES, Header, Opcode, write_frame};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::request::{BatchRequest, Condition, Token};
use penstock_net::slot::slot_of;

use crate::args::{BenchArgs, Workload};

/// The one key of decr.
pub(crate) const STOCK: &[u8] = b"bench:stock";
/// The one key of buy, in the slot of its holds.
pub(crate) const SALE_STOCK: &[u8] = b"{buy}:stock";
/// What they start with: more than any run sells.
pub(crate) const STOCK_INITIAL: u64 = 1 << 62;
/// Different shots of reads and writes that a connection of mixed cycles through.
const SHOTS: usize = 16;
/// The name of the first key, and where the digits stand in it.
const KEY: &[u8; KEY_BYTES] = b"bench:0000000000";
const KEY_BYTES: usize = 16;
const KEY_DIGITS: Range<usize> = 6..KEY_BYTES;
/// Bytes of a hold.
const HOLD_BYTES: usize = 16;

/// What is sent at once: one frame, or one for each operation.
#[derive(Clone, Debug)]
pub(crate) struct Shot {
    bytes: Vec<u8>,
    /// Where each frame stands.
    frames: Vec<Range<usize>>,
    /// Where each key that is drawn stands.
    keys: Vec<usize>,
    /// Where each token stands.
    tokens: Vec<usize>,
}

impl Shot {
    /// The bytes with request ids from `first_id` on, and with keys and tokens that are drawn now.
    fn write(
        &mut self,
        first_id: u64,
        mut draw: impl FnMut() -> u32,
        tokens: &mut Tokens,
        out: &mut Vec<u8>,
    ) {
        for &at in &self.keys {
            write_digits(draw(), &mut self.bytes[at..at + KEY_BYTES][KEY_DIGITS]);
        }
        if !self.tokens.is_empty() {
            let time_ms = unix_ms();
            for &at in &self.tokens {
                let token = tokens.draw(time_ms);
                self.bytes[at..at + Token::BYTES].copy_from_slice(token.name());
            }
        }
        for (id, frame) in (first_id..).zip(&self.frames) {
            let (header, body) = self.bytes[frame.clone()].split_at_mut(HEADER_BYTES);
            if !self.keys.is_empty() {
                header[24..28].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
            }
            header[8..16].copy_from_slice(&id.to_le_bytes());
            let crc = crc32fast::hash(&header[..28]);
            header[28..].copy_from_slice(&crc.to_le_bytes());
        }
        out.extend_from_slice(&self.bytes);
    }
}

/// What one connection sends.
pub(crate) struct Load {
    shots: Vec<Shot>,
    law: Law,
    random: Random,
    tokens: Tokens,
}

impl Load {
    pub(crate) fn new(args: &BenchArgs, law: Law, connection: u64) -> Load {
        let mut random = Random(args.seed.wrapping_mul(0x1000_0000).wrapping_add(connection));
        let value = vec![b'v'; args.value_bytes as usize];
        let count = match args.workload() {
            Workload::Mixed => SHOTS,
            _ => 1,
        };
        Load {
            shots: (0..count)
                .map(|_| shot(args, &mut random, &value))
                .collect(),
            law,
            random,
            tokens: Tokens::new(),
        }
    }

    /// Appends the shot of this number with request ids from `first_id` on.
    pub(crate) fn write(&mut self, number: u64, first_id: u64, out: &mut Vec<u8>) {
        let which = usize::try_from(number).expect("64 bits") % self.shots.len();
        let (law, random) = (&self.law, &mut self.random);
        let draw = || law.draw(random);
        self.shots[which].write(first_id, draw, &mut self.tokens, out);
    }

    /// Frames in a shot.
    pub(crate) fn frames(&self) -> usize {
        self.shots[0].frames.len()
    }

    /// Bytes in a shot.
    pub(crate) fn bytes(&self) -> usize {
        self.shots[0].bytes.len()
    }
}

/// How keys are drawn.
#[derive(Clone)]
pub(crate) struct Law {
    form: Form,
    /// Keys of these slots alone, of which there is one at least.
    slots: Option<RangeInclusive<u16>>,
}

/// The connections share its table.
#[derive(Clone)]
enum Form {
    /// Each of so many alike.
    Uniform(u32),
    /// Low numbers more often.
    Zipf(Rc<Zipf>),
}

impl Law {
    pub(crate) fn new(args: &BenchArgs) -> Law {
        let form = match args.workload() {
            Workload::Mixed => Form::Zipf(Rc::new(Zipf::new(args.keys, 0.99))),
            _ => Form::Uniform(args.keys),
        };
        Law { form, slots: None }
    }

    /// The same for keys of these slots alone; `None` is all.
    pub(crate) fn of(&self, slots: Option<RangeInclusive<u16>>) -> Law {
        let form = self.form.clone();
        Law { form, slots }
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let mut name = *KEY;
        loop {
            let number = match &self.form {
                Form::Uniform(keys) => random.below(*keys),
                Form::Zipf(zipf) => u32::try_from(zipf.draw(random)).expect("--keys has 32 bits"),
            };
            let Some(slots) = &self.slots else {
                return number;
            };
            write_digits(number, &mut name[KEY_DIGITS]);
            if slots.contains(&slot_of(&name)) {
                return number;
            }
        }
    }
}

/// A small generator whose whole state is the seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// In 0..`end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        let scaled = ((self.next() >> 32) * u64::from(end)) >> 32;
        u32::try_from(scaled).expect("below the end")
    }

    /// In [0, 1).
    fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).expect("32 bits")) / 4_294_967_296.0
    }
}

/// The tokens of one connection. Those of two runs differ, also with the same `--seed`.
pub(crate) struct Tokens(Random);

impl Tokens {
    pub(crate) fn new() -> Tokens {
        // The standard library gives each `RandomState` other keys.
        Tokens(Random(RandomState::new().hash_one(0)))
    }

    pub(crate) fn draw(&mut self, time_ms: u64) -> Token {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.0.next().to_le_bytes());
        random[8..].copy_from_slice(&self.0.next().to_le_bytes()[..2]);
        Token::new(time_ms, random)
    }
}

pub(crate) fn unix_ms() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(time.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Draws ranks by a zipf law from the cumulated weights (Knuth, TAOCP 3, 6.1).
pub(crate) struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(keys: u32, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let weight = |rank: u32| f64::from(rank).powf(-exponent);
        Zipf {
            cumulated: (1..=keys)
                .map(|rank| {
                    sum += weight(rank);
                    sum
                })
                .collect(),
        }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        let target = random.fraction() * self.cumulated.last().expect("at least one key");
        self.cumulated
            .partition_point(|&sum| sum <= target)
            .min(self.cumulated.len() - 1)
    }
}

/// The item of a purchase. The key of its hold is the last one.
fn purchase() -> Apply {
    let mut buy = Apply::new();
    let stock = buy.key(SALE_STOCK);
    let hold = buy.key(&hold(0));
    buy.then(stock.u64(0).at_least(1u64).or_else(1))
        .then(stock.u64(0).decrease(1u64))
        .put(hold, &[b'h'; HOLD_BYTES])
        .then(hold.expire_in(15 * 60 * 1000));
    buy
}

/// The name of a hold.
pub(crate) fn hold(number: usize) -> Vec<u8> {
    format!("{{buy}}:{number:010}").into_bytes()
}

/// The name of a key.
pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("bench:{number:010}").into_bytes()
}

fn write_digits(mut number: u32, digits: &mut [u8]) {
    for pair in digits.rchunks_exact_mut(2) {
        let low = u8::try_from(number % 100).expect("below 100");
        number /= 100;
        pair.copy_from_slice(&[b'0' + low / 10, b'0' + low % 10]);
    }
}

fn shot(args: &BenchArgs, random: &mut Random, value: &[u8]) -> Shot {
    let depth = args.depth as usize;
    let (frame_count, items) = if args.single { (depth, 1) } else { (1, depth) };
    let mut bytes = Vec::new();
    let (mut frames, mut keys, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    let name = key(0);
    for _ in 0..frame_count {
        let start = bytes.len();
        if args.workload() == Workload::Echo {
            let header = Header::request(Opcode::Ping, 0, args.level.wire(), 0);
            write_frame(&mut bytes, header, &value.repeat(items));
            frames.push(start..bytes.len());
            continue;
        }
        let mut batch = BatchRequest::begin(&mut bytes, 0, args.level.wire(), 0, items);
        for _ in 0..items {
            let is_set = match args.workload() {
                Workload::Mixed => random.next().is_multiple_of(10),
                workload => workload == Workload::Set,
            };
            match args.workload() {
                Workload::Get | Workload::Set | Workload::Mixed => {
                    let value_bytes = if is_set {
                        batch.set(&mut bytes, &name, value, Condition::Always);
                        value.len().next_multiple_of(8)
                    } else {
                        batch.get(&mut bytes, &name);
                        0
                    };
                    keys.push(bytes.len() - value_bytes - KEY_BYTES);
                }
                Workload::EchoItems => batch.ping(&mut bytes, value),
                Workload::Buy | Workload::SoldOut => {
                    let from = bytes.len();
                    if !args.no_tokens {
                        batch.token(Tokens::new().draw(unix_ms()));
                    }
                    batch.apply(&mut bytes, &purchase());
                    if !args.no_tokens {
                        // The token is the last thing in the block, whose length comes first.
                        let block = usize::from(u16::from_le_bytes([bytes[from], bytes[from + 1]]));
                        tokens.push(from + block - Token::BYTES);
                    }
                    keys.push(bytes.len() - HOLD_BYTES - KEY_BYTES);
                }
                Workload::Decr | Workload::Echo => {
                    let step = |operation| Instruction {
                        operation,
                        field_type: FieldType::U64,
                        key: 0,
                        reason: 1,
                        offset: 0,
                        immediate: 1,
                    };
                    batch.update_if(
                        &mut bytes,
                        STOCK,
                        None,
                        &[step(Operation::Ge), step(Operation::Sub)],
                        None,
                    );
                }
            }
        }
        batch.finish(&mut bytes);
        frames.push(start..bytes.len());
    }
    Shot {
        bytes,
        frames,
        keys,
        tokens,
    }
}

/// The load of a command line.
#[cfg(test)]
pub(crate) fn load(words: &[&str]) -> (BenchArgs, Load) {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
    }
    // Whatever PENSTOCK_ADDR says here.
    let words = ["bench", "--addr", "127.0.0.1:1"].iter().chain(words);
    let Ok(cli) = <Cli as clap::Parser>::try_parse_from(words) else {
        panic!("arguments")
    };
    let load = Load::new(&cli.args, Law::new(&cli.args), 3);
    (cli.args, load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_net::apply::ApplyRequest;
    use penstock_net::batch::Batch;
    use penstock_net::receive::{Received, Receiver};
    use penstock_net::request::Request;

    #[test]
    fn a_shot_is_valid_under_every_request_id() {
        let (_, mut load) = load(&["mixed", "--depth", "7", "--single"]);
        for number in 0..SHOTS as u64 {
            for first_id in [0, 9, u64::MAX - 64] {
                let mut out = Vec::new();
                load.write(number, first_id, &mut out);
                let mut receiver = Receiver::new(1 << 20);
                let mut at = 0;
                for id in first_id..first_id + 7 {
                    let Received::Frame {
                        header, consumed, ..
                    } = receiver.next(&out[at..])
                    else {
                        panic!("frame {id}")
                    };
                    assert_eq!(header.request_id, id);
                    at += consumed;
                }
                assert_eq!(at, out.len());
            }
        }
    }

    #[test]
    fn a_load_ranges_over_all_its_keys_and_no_others() {
        for workload in ["get", "set", "mixed"] {
            let (args, mut load) = load(&[workload, "--keys", "300", "--value-bytes", "13"]);
            let mut seen = std::collections::BTreeSet::new();
            for number in 0..3000 {
                let mut out = Vec::new();
                load.write(number, number, &mut out);
                let Received::Frame { body, .. } = Receiver::new(1 << 20).next(&out) else {
                    panic!("shot {number} of {workload}")
                };
                let batch = Batch::read(body).expect("a batch");
                for item in 0..batch.len() {
                    let item = Request::read(batch.item(item), 64).expect("an item");
                    seen.insert(item.key.to_vec());
                }
            }
            let all = (0..args.keys as usize).map(key).collect();
            assert_eq!(seen, all, "{workload}");
        }
    }

    #[test]
    fn a_load_of_some_slots_draws_all_keys_of_these_and_no_others() {
        let slots = 3000..=9000;
        for workload in ["get", "mixed"] {
            let (args, _) = load(&[workload, "--keys", "300"]);
            let law = Law::new(&args).of(Some(slots.clone()));
            let mut random = Random(7);
            let drawn = (0..100_000).map(|_| law.draw(&mut random) as usize);
            let drawn: std::collections::BTreeSet<usize> = drawn.collect();
            let is_of_them = |number: &usize| slots.contains(&slot_of(&key(*number)));
            let all = (0..300).filter(is_of_them).collect();
            assert_eq!(drawn, all, "{workload}");
        }
    }

    #[test]
    fn purchases_take_from_one_stock_and_hold_under_all_keys() {
        let (args, mut load) = load(&["buy", "--keys", "50", "--depth", "3"]);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..1000 {
            let mut out = Vec::new();
            load.write(number, number, &mut out);
            let Received::Frame { body, .. } = Receiver::new(1 << 20).next(&out) else {
                panic!("shot {number}")
            };
            let batch = Batch::read(body).expect("a batch");
            for item in 0..batch.len() {
                let item = ApplyRequest::read(batch.item(item), 64).expect("an item");
                assert_eq!(item.key(), SALE_STOCK);
                seen.insert(item.key_at(1).to_vec());
            }
        }
        let all = (0..args.keys as usize).map(hold).collect();
        assert_eq!(seen, all);
    }

    #[test]
    fn each_purchase_has_a_token_of_its_own_unless_none_are_asked_for() {
        let mut seen = std::collections::BTreeSet::new();
        for (words, distinct) in [
            (&["buy", "--depth", "3"][..], 300),
            (&["sold-out", "--depth", "3", "--single"], 300),
            (&["buy", "--depth", "3", "--no-tokens"], 0),
        ] {
            let before = seen.len();
            let (_, mut load) = load(words);
            for number in 0..100 {
                let mut out = Vec::new();
                load.write(number, number, &mut out);
                let mut at = 0;
                while let Received::Frame { body, consumed, .. } =
                    Receiver::new(1 << 20).next(&out[at..])
                {
                    let batch = Batch::read(body).expect("a batch");
                    for item in 0..batch.len() {
                        let item = ApplyRequest::read(batch.item(item), 64).expect("an item");
                        seen.extend(item.token());
                    }
                    at += consumed;
                }
            }
            assert_eq!(seen.len() - before, distinct, "{words:?}");
        }
    }

    #[test]
    fn a_zipf_law_prefers_low_ranks_and_reaches_high_ones() {
        let zipf = Zipf::new(1000, 0.99);
        let mut random = Random(7);
        let mut counts = vec![0u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut random)] += 1);
        assert!(
            counts[0] > 5 * counts[9] && counts[9] > counts[500],
            "{:?}",
            &counts[..12]
        );
        assert!(counts[500..].iter().sum::<u32>() > 1000);
    }
}
