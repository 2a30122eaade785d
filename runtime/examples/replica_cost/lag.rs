//! How long records take to get to the member, at half of the rate that both nodes can take at
//! most.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::{Outcome, Pair, load_average};

/// A bound in seconds, and how many records took no longer.
type Bucket = (f64, f64);

/// Measures it for so many seconds, as the primary tells it.
pub fn lag(binary: &Path, seconds: u64) -> Outcome<()> {
    let pair = Pair::new(binary, true)?;
    let most = pair.bench("disk", 16, 16, &["--duration", "5"])?;
    let most = most["operations_per_second"].as_f64().ok_or("no rate")?;
    let names = ["received", "durable"].map(|it| format!("penstock_replication_{it}_seconds"));
    let before = pair.metrics()?;
    let (rate, duration) = ((most / 2.0).to_string(), seconds.to_string());
    let half = ["--duration", duration.as_str(), "--rate", rate.as_str()];
    let half = pair.bench("disk", 16, 16, &half)?;
    let half = half["operations_per_second"].as_f64().ok_or("no rate")?;
    let after = pair.metrics()?;
    println!(
        "lag at {half:.0} sets a second, {most:.0} are the most; load average {}",
        load_average()
    );
    for name in names {
        let (before, after) = (buckets(&before, &name)?, buckets(&after, &name)?);
        let ms = |share| quantile(&before, &after, share).map(|seconds| 1000.0 * seconds);
        let (p50, p99, p999) = (ms(0.5)?, ms(0.99)?, ms(0.999)?);
        println!("{name}: p50 {p50:.2} ms, p99 {p99:.2} ms, p99.9 {p999:.2} ms");
    }
    Ok(())
}

/// The text of a page of numbers.
pub fn ask(address: &str) -> Outcome<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: penstock\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn buckets(text: &str, name: &str) -> Outcome<Vec<Bucket>> {
    let prefix = format!("{name}_bucket{{le=\"");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let buckets = lines.map(|line| {
        let (bound, count) = line.split_once("\"} ").ok_or("no bucket")?;
        Ok((bound.parse()?, count.parse()?))
    });
    buckets.collect()
}

/// The bound that this share of what came in between is not above.
fn quantile(before: &[Bucket], after: &[Bucket], share: f64) -> Outcome<f64> {
    let pairs = before.iter().zip(after);
    let news: Vec<Bucket> = pairs
        .map(|(before, after)| (after.0, after.1 - before.1))
        .collect();
    let all = news.last().ok_or("no buckets")?.1;
    let found = news.iter().find(|(_, count)| *count >= all * share);
    Ok(found.ok_or("nothing was shipped")?.0)
}
