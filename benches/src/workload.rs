//! The frames that a connection sends: built once, sent many times under new request ids.

use penstock_net::frame::{HEADER_BYTES, Header, Opcode, write_frame};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::request::{BatchRequest, Condition};

use crate::args::{BenchArgs, Workload};

/// The one key of decr.
pub(crate) const STOCK: &[u8] = b"bench:stock";
/// What it starts with: more than any run sells.
pub(crate) const STOCK_INITIAL: u64 = 1 << 62;
/// Different shots that a connection cycles through.
const SHOTS: usize = 16;

/// What is sent at once: one frame, or one for each operation.
#[derive(Clone, Debug)]
pub(crate) struct Shot {
    bytes: Vec<u8>,
    /// Where each frame starts.
    frames: Vec<usize>,
}

impl Shot {
    /// The bytes with request ids from `first_id` on.
    pub(crate) fn write(&mut self, first_id: u64, out: &mut Vec<u8>) {
        for (id, &start) in (first_id..).zip(&self.frames) {
            let header = &mut self.bytes[start..start + HEADER_BYTES];
            header[8..16].copy_from_slice(&id.to_le_bytes());
            let crc = crc32fast::hash(&header[..28]);
            header[28..].copy_from_slice(&crc.to_le_bytes());
        }
        out.extend_from_slice(&self.bytes);
    }

    /// Frames in it.
    pub(crate) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Bytes in it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
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

    /// In [0, 1).
    fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).expect("32 bits")) / 4_294_967_296.0
    }
}

/// Draws ranks by a zipf law from the cumulated weights (Knuth, TAOCP 3, 6.1).
struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    fn new(keys: u32, exponent: f64) -> Zipf {
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

    fn draw(&self, random: &mut Random) -> usize {
        let target = random.fraction() * self.cumulated.last().expect("at least one key");
        self.cumulated
            .partition_point(|&sum| sum <= target)
            .min(self.cumulated.len() - 1)
    }
}

/// The name of a key.
pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("bench:{number:010}").into_bytes()
}

/// The shots of one connection.
pub(crate) fn shots(args: &BenchArgs, connection: u64) -> Vec<Shot> {
    let mut random = Random(args.seed.wrapping_mul(0x1000_0000).wrapping_add(connection));
    let zipf = (args.workload == Workload::Mixed).then(|| Zipf::new(args.keys, 0.99));
    let value = vec![b'v'; args.value_bytes as usize];
    // One hot key needs one shot.
    let count = if matches!(args.workload, Workload::Echo | Workload::Decr) {
        1
    } else {
        SHOTS
    };
    (0..count)
        .map(|_| shot(args, &mut random, zipf.as_ref(), &value))
        .collect()
}

fn shot(args: &BenchArgs, random: &mut Random, zipf: Option<&Zipf>, value: &[u8]) -> Shot {
    let depth = args.depth as usize;
    let (frame_count, items) = if args.single { (depth, 1) } else { (1, depth) };
    let mut bytes = Vec::new();
    let mut frames = Vec::new();
    for _ in 0..frame_count {
        frames.push(bytes.len());
        if args.workload == Workload::Echo {
            let header = Header::request(Opcode::Ping, 0, args.level.wire(), 0);
            write_frame(&mut bytes, header, &value.repeat(items));
            continue;
        }
        let mut batch = BatchRequest::begin(&mut bytes, 0, args.level.wire(), 0, items);
        for _ in 0..items {
            let mut uniform =
                || usize::try_from(random.next() % u64::from(args.keys)).expect("32 bits");
            match args.workload {
                Workload::Get => batch.get(&mut bytes, &key(uniform())),
                Workload::Set => batch.set(&mut bytes, &key(uniform()), value, Condition::Always),
                Workload::Mixed => {
                    let name = key(zipf.expect("made for mixed").draw(random));
                    if random.next().is_multiple_of(10) {
                        batch.set(&mut bytes, &name, value, Condition::Always);
                    } else {
                        batch.get(&mut bytes, &name);
                    }
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
    }
    Shot { bytes, frames }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_net::receive::{Received, Receiver};

    #[test]
    fn a_shot_is_valid_under_every_request_id() {
        let Ok(cli) =
            <Cli as clap::Parser>::try_parse_from(["bench", "mixed", "--depth", "7", "--single"])
        else {
            panic!("arguments")
        };
        for mut shot in shots(&cli.args, 3) {
            for first_id in [0, 9, u64::MAX - 64] {
                let mut out = Vec::new();
                shot.write(first_id, &mut out);
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

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
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
