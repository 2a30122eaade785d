//! Reads of 32 values of 1 KiB at once, beside memcached.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::Outcome;
use crate::chart::{Axis, Chart, Series};
use crate::contender::{Class, Product, Running};
use crate::goal::{Found, Goal, Wanted};
use crate::loader::{self, Exchange};
use crate::pairs::median;
use crate::report::{Cell, Report, Table};
use crate::workload::{self, Random};

const KEYS_EACH: usize = 32;
const VALUE_BYTES: usize = 1024;
const CONNECTIONS: usize = 16;
/// Different requests, sent in turn.
const REQUESTS: usize = 64;
const WARM_UP: Duration = Duration::from_millis(200);
const WHAT: &str = "MGET of 32 x 1 KiB: requests a second";

struct Reader {
    product: Product,
    class: Class,
    running: Result<Running, String>,
    per_second: Vec<f64>,
    cpu_us: Vec<f64>,
    p99_us: Vec<f64>,
}

/// Adds what was found to the report.
pub fn run(
    keys: u64,
    rounds: usize,
    seconds: f64,
    folder: &Path,
    report: &mut Report,
) -> Outcome<()> {
    let mut readers: Vec<Reader> = [
        (Product::Penstock, Class::Volatile),
        (Product::Memcached, Class::Volatile),
        (Product::Valkey, Class::Volatile),
        (Product::Penstock, Class::Synced),
    ]
    .map(|(product, class)| Reader::start(product, class, keys, folder))
    .into();
    let exchanges: Vec<Vec<Exchange>> = readers
        .iter()
        .map(|reader| exchanges(reader.product, keys))
        .collect();
    for round in 0..rounds {
        for at in 0..readers.len() {
            let at = if round % 2 == 0 {
                at
            } else {
                readers.len() - 1 - at
            };
            readers[at].measure(&exchanges[at], Duration::from_secs_f64(seconds));
        }
    }
    report.tables.push(table(&readers));
    report.charts.push(chart(&readers));
    let of = |at: usize| {
        readers[at]
            .running
            .as_ref()
            .map(|_| &readers[at].per_second[..])
    };
    let found = match (of(0), of(1)) {
        (Ok(ours), Ok(theirs)) => Found::of(ours, theirs),
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
    };
    report.goals.push(Goal {
        number: "6",
        what: format!("{WHAT}, V, beside memcached"),
        unit: "MGET/s",
        wanted: Wanted::AtLeast(1.5),
        found,
        remark: String::new(),
    });
    report.note(
        "MGET is asked by a small loader of this harness in both protocols (RESP's MGET, \
         memcached's get): Debian has no tool that speaks both",
    );
    Ok(())
}

impl Reader {
    fn start(product: Product, class: Class, keys: u64, folder: &Path) -> Reader {
        let folder = folder.join(format!("mget-{}-{}", product.name(), class.letter()));
        let started = Running::start(product, class, &folder).and_then(|running| {
            fill(&running, product, keys)?;
            Ok(running)
        });
        Reader {
            product,
            class,
            running: started.map_err(|error| error.to_string()),
            per_second: Vec::new(),
            cpu_us: Vec::new(),
            p99_us: Vec::new(),
        }
    }

    fn measure(&mut self, exchanges: &[Exchange], duration: Duration) {
        let Ok(running) = &self.running else { return };
        let mut act = || -> Outcome<()> {
            let before = running.usage()?;
            let found = loader::closed(running.port, exchanges, CONNECTIONS, WARM_UP, duration)?;
            let used = running.usage()?.since(&before);
            let in_all = found.per_second * (duration + WARM_UP).as_secs_f64();
            self.per_second.push(found.per_second);
            self.cpu_us.push(used.cpu_seconds * 1e6 / in_all);
            self.p99_us.push(found.us(0.99));
            Ok(())
        };
        if let Err(error) = act() {
            self.running = Err(error.to_string());
        }
    }

    fn name(&self) -> String {
        format!("{} {}", self.product.name(), self.class.letter())
    }
}

fn key(number: u64) -> String {
    format!("page:{number:012}")
}

fn fill(running: &Running, product: Product, keys: u64) -> Outcome<()> {
    let value = workload::value(VALUE_BYTES);
    let request = |requests: &mut Vec<u8>, number: u64| {
        let key = key(number);
        let head = match product {
            Product::Memcached => format!("set {key} 0 0 {VALUE_BYTES}\r\n"),
            _ => format!(
                "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${VALUE_BYTES}\r\n",
                key.len()
            ),
        };
        requests.extend_from_slice(head.as_bytes());
        requests.extend_from_slice(&value);
        requests.extend_from_slice(b"\r\n");
    };
    match product {
        Product::Memcached => running.fill(keys, request, b"STORED\r\n"),
        _ => running.fill(keys, request, b"+OK\r\n"),
    }
}

/// Requests for random keys, and the bytes that each answer must have.
fn exchanges(product: Product, keys: u64) -> Vec<Exchange> {
    let (mut random, value) = (Random::new(11), workload::value(VALUE_BYTES));
    let mut all = Vec::new();
    for _ in 0..REQUESTS {
        let named: Vec<String> = (0..KEYS_EACH).map(|_| key(random.below(keys))).collect();
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        match product {
            Product::Memcached => request.extend_from_slice(b"get"),
            _ => {
                let _ = write!(request, "*{}\r\n$4\r\nMGET\r\n", KEYS_EACH + 1);
                let _ = write!(answer, "*{KEYS_EACH}\r\n");
            }
        }
        for key in &named {
            match product {
                Product::Memcached => {
                    let _ = write!(request, " {key}");
                    let _ = write!(answer, "VALUE {key} 0 {VALUE_BYTES}\r\n");
                }
                _ => {
                    let _ = write!(request, "${}\r\n{key}\r\n", key.len());
                    let _ = write!(answer, "${VALUE_BYTES}\r\n");
                }
            }
            answer.extend_from_slice(&value);
            answer.extend_from_slice(b"\r\n");
        }
        if product == Product::Memcached {
            request.extend_from_slice(b"\r\n");
            answer.extend_from_slice(b"END\r\n");
        }
        all.push(Exchange { request, answer });
    }
    all
}

fn table(readers: &[Reader]) -> Table {
    let mut table = Table::new(
        format!("{WHAT}, {CONNECTIONS} connections, one request under way each"),
        &["server", "MGET/s", "values/s", "p99 us", "CPU us/MGET"],
    );
    for reader in readers {
        let middle = |figures: &[f64]| match &reader.running {
            Ok(_) => Ok(median(&mut figures.to_vec())),
            Err(why) => Err(why.clone()),
        };
        let values = middle(&reader.per_second).map(|it| it * KEYS_EACH as f64);
        table.row(vec![
            Cell::text(reader.name()),
            Cell::of(&middle(&reader.per_second), 0),
            Cell::of(&values, 0),
            Cell::of(&middle(&reader.p99_us), 0),
            Cell::of(&middle(&reader.cpu_us), 1),
        ]);
    }
    table
}

fn chart(readers: &[Reader]) -> Chart {
    let measured = readers.iter().filter(|it| it.running.is_ok());
    Chart {
        title: WHAT.into(),
        below: String::new(),
        beside: "MGET/s".into(),
        axis: Axis::Groups(vec!["MGET 32 x 1 KiB".into()]),
        is_by_powers: false,
        series: measured
            .map(|it| Series {
                name: it.name(),
                points: vec![(0.0, median(&mut it.per_second.clone()))],
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_protocols_ask_for_the_same_values_in_the_same_order() {
        let (resp, text) = (
            exchanges(Product::Penstock, 100),
            exchanges(Product::Memcached, 100),
        );
        assert_eq!(resp.len(), text.len());
        for (resp, text) in resp.iter().zip(&text) {
            assert!(
                resp.request
                    .starts_with(b"*33\r\n$4\r\nMGET\r\n$17\r\npage:")
            );
            assert!(text.request.starts_with(b"get page:") && text.request.ends_with(b"\r\n"));
            let keys = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let keys = text.split("page:").skip(1).map(|it| it[..12].to_string());
                keys.collect::<Vec<_>>()
            };
            assert_eq!(keys(&resp.request), keys(&text.request));
            assert_eq!(keys(&text.request).len(), KEYS_EACH);
            assert!(resp.answer.len() > KEYS_EACH * VALUE_BYTES);
        }
    }
}
