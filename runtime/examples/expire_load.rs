//! Writes keys that expire, and some that stay, to a running server at an even rate, and tells each
//! second how much of disk and index they take: a server gives back what has expired, so none of it
//! may be refused.
//!
//! ```text
//! penstock serve --data DIR --listen 127.0.0.1:7411 --shard-ports 0 --disk-bytes-max 512MiB
//! cargo run --release -p penstock --example expire_load -- 127.0.0.1:7411 \
//!     [RATE [LIFE_MS [SECONDS [VALUE_BYTES [STAY]]]]]
//! ```
//!
//! Keys a second (10,000), how long they live in milliseconds (10,000), for how many seconds (90),
//! bytes of a value (1,000), and of how many keys one stays (0 is none). Behind that it watches an
//! idle server for as long as a key lives and a minute more. In the end it tells index bytes
//! before, at their most and after, and how near the segments came to what `space_percent_max` of
//! 140 and six segments a shard allow: on a machine that is busy with something else cleaning may
//! fall behind. The exit code is 1 if anything was refused, a key that stays is gone or another one
//! is shown.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientError, ClientOptions, Verbs};
use penstock_net::request::{Condition, Expiry};

/// Writes that are not answered, at most.
const IN_FLIGHT: usize = 512;
/// Refusals that are printed.
const REFUSALS_SHOWN: u64 = 3;

/// Bytes of a record beside key and value.
const RECORD_BYTES: u64 = 56;
/// As `penstock_storage::sizing::SEGMENTS_BESIDE`, and the default of `space_percent_max`.
const SEGMENTS_BESIDE: u64 = 6;
const SPACE_PERCENT_MAX: u64 = 140;

struct Counters {
    keys: u64,
    index_entries: u64,
    index_bytes: u64,
    segments: u64,
    segment_bytes: u64,
    shards: u64,
}

/// The most of what was seen.
#[derive(Default)]
struct Most {
    index_entries: u64,
    index_bytes: u64,
    /// Bytes of segments in thousandths of those that are allowed; the sum of all that were seen,
    /// and their number.
    space: u64,
    spaces: u64,
    seen: u64,
}

impl Most {
    /// Takes a sample while at least `live` records of `record_bytes` each have not expired.
    fn see(&mut self, now: &Counters, live: u64, record_bytes: u64) {
        // After a pause the load catches up, and more are there for a while.
        let live_bytes = live.max(now.keys) * record_bytes;
        let beside = SEGMENTS_BESIDE * now.shards * now.segment_bytes;
        let allowed = live_bytes * SPACE_PERCENT_MAX / 100 + beside;
        let space = 1_000 * now.segments * now.segment_bytes / allowed;
        self.space = self.space.max(space);
        self.spaces += space;
        self.seen += 1;
        self.index_entries = self.index_entries.max(now.index_entries);
        self.index_bytes = self.index_bytes.max(now.index_bytes);
    }
}

fn counters(client: &Client) -> Result<Counters, ClientError> {
    let info: serde_json::Value =
        serde_json::from_str(&client.info().wait()?).expect("INFO answers JSON");
    let of = |name: &str| info["counters"][name].as_u64().unwrap_or_default();
    Ok(Counters {
        keys: of("keys"),
        index_entries: of("index_entries"),
        index_bytes: of("index_bytes"),
        segments: of("segments_held"),
        segment_bytes: info["segment_bytes"].as_u64().unwrap_or_default(),
        shards: info["shard_count"].as_u64().unwrap_or_default(),
    })
}

fn print_counters(
    second: u64,
    client: &Client,
    written: u64,
    refused: u64,
) -> Result<Counters, ClientError> {
    let now = counters(client)?;
    println!(
        "{second:>4} s: {written} written, {refused} refused; {} keys, {} in the index of {} \
         bytes, {} segments",
        now.keys, now.index_entries, now.index_bytes, now.segments
    );
    Ok(now)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, ClientError> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .expect("the first argument is the address of a server, HOST:PORT");
    let mut number = |otherwise: u64| match arguments.next() {
        None => otherwise,
        Some(text) => text.parse().expect("the other arguments are numbers"),
    };
    let (rate, life_ms, seconds) = (number(10_000), number(10_000), number(90));
    let (value_bytes, stay) = (number(1_000), number(0));
    let value = vec![b'v'; usize::try_from(value_bytes).expect("a value fits in memory")];
    let options = ClientOptions {
        deadline: Duration::from_secs(30),
        ..ClientOptions::default()
    };
    let client = Client::connect(address, options)?;
    let before = counters(&client)?;
    let mut most = Most::default();
    // A time of expiry is rounded up to a second, and a second passes between two looks.
    let alive = rate * (life_ms + 2_000) / 1_000;
    let record_bytes = 8 + value_bytes + RECORD_BYTES;
    let begin = Instant::now();
    let (mut written, mut refused, mut printed) = (0_u64, 0_u64, 0_u64);
    let stays = |key: u64| stay > 0 && key.is_multiple_of(stay);
    let mut kept = Vec::new();
    while begin.elapsed() < Duration::from_secs(seconds) {
        let due = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX) * rate / 1_000_000;
        let count = usize::try_from(due.saturating_sub(written))
            .unwrap_or(IN_FLIGHT)
            .min(IN_FLIGHT);
        let mut pending = Vec::with_capacity(count);
        for _ in 0..count {
            let expiry = match stays(written) {
                true => Expiry::Never,
                false => Expiry::In(life_ms),
            };
            let key = written.to_le_bytes();
            let set = client.set_with(&key, &value, Condition::Always, expiry);
            pending.push((written, set));
            written += 1;
        }
        for (key, pending) in pending {
            match pending.wait() {
                Ok(_) if stays(key) => kept.push(key),
                Ok(_) => {}
                Err(error) => {
                    refused += 1;
                    if refused <= REFUSALS_SHOWN {
                        println!("key {key}: {error}");
                    }
                }
            }
        }
        let second = begin.elapsed().as_secs();
        if second > printed {
            printed = second;
            let now = print_counters(second, &client, written, refused)?;
            most.see(&now, kept.len() as u64 + alive, record_bytes);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let idle_until = begin.elapsed() + Duration::from_millis(life_ms) + Duration::from_secs(60);
    while begin.elapsed() < idle_until {
        std::thread::sleep(Duration::from_secs(5));
        print_counters(begin.elapsed().as_secs(), &client, written, refused)?;
    }
    let mut missing = 0;
    for keys in kept.chunks(IN_FLIGHT) {
        let pending: Vec<_> = keys
            .iter()
            .map(|key| client.get(&key.to_le_bytes()))
            .collect();
        for pending in pending {
            missing += u64::from(pending.wait()?.is_none());
        }
    }
    let after = counters(&client)?;
    println!(
        "index bytes {} before, {} at most ({} keys), {} after; {} keys shown of {}; segments {} \
         % of what is allowed, {} % at most",
        before.index_bytes,
        most.index_bytes,
        most.index_entries,
        after.index_bytes,
        after.keys,
        kept.len(),
        most.spaces / most.seen.max(1) / 10,
        most.space / 10
    );
    println!(
        "{refused} of {written} refused, {missing} of {} that stay are missing",
        kept.len()
    );
    let is_exact = after.keys == kept.len() as u64;
    Ok(refused == 0 && missing == 0 && is_exact)
}
