//! What the admin port of a server tells, asked and read by a test.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use prometheus_parse::{Scrape, Value};

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends bytes and reads the reply to its end: status and body.
pub fn ask(address: SocketAddr, bytes: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    reply(&mut stream)
}

/// Reads a reply to its end: status and body.
pub fn reply(stream: &mut TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.strip_prefix("HTTP/1.1 ").expect("a status line");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    assert!(body.is_empty() || length == Some(&body.len().to_string()));
    (status[..3].parse().unwrap(), body.to_string())
}

/// What a scrape told.
pub struct Numbers {
    /// Every sample: name and labels in order, value.
    pub samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Numbers {
    /// Of the text of a page.
    pub fn read(text: &str) -> Numbers {
        let lines = text.lines().map(|line| Ok(line.to_string()));
        let scrape = Scrape::parse(lines).unwrap();
        let samples: Vec<_> = scrape
            .samples
            .iter()
            .flat_map(|sample| {
                let labels: BTreeMap<String, String> = sample.labels.clone().into_iter_sorted();
                match &sample.value {
                    Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => {
                        vec![(sample.metric.clone(), labels, *value)]
                    }
                    Value::Histogram(buckets) => {
                        assert!(
                            buckets
                                .windows(2)
                                .all(|pair| pair[0].less_than < pair[1].less_than
                                    && pair[0].count <= pair[1].count)
                        );
                        let last = buckets.last().expect("buckets");
                        assert_eq!(last.less_than, f64::INFINITY);
                        vec![(format!("{}_bucket", sample.metric), labels, last.count)]
                    }
                    Value::Summary(_) => panic!("no summaries are told"),
                }
            })
            .collect();
        // The parser passes over what it does not understand.
        let is_sample = |line: &&str| !line.starts_with('#') && !line.contains("_bucket{");
        let plain = samples
            .iter()
            .filter(|(name, ..)| !name.ends_with("_bucket"));
        assert_eq!(plain.count(), text.lines().filter(is_sample).count());
        Numbers { samples }
    }

    /// The sum of the samples of that name with these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<f64> = self
            .samples
            .iter()
            .filter(|(sample, has, _)| {
                let matches =
                    |(label, value): &(&str, &str)| has.get(*label).is_some_and(|it| it == value);
                sample == name && labels.iter().all(matches)
            })
            .map(|(.., value)| *value)
            .collect();
        found.iter().sum()
    }
}

trait Sorted {
    fn into_iter_sorted(self) -> BTreeMap<String, String>;
}

impl Sorted for prometheus_parse::Labels {
    fn into_iter_sorted(self) -> BTreeMap<String, String> {
        self.iter()
            .map(|(label, value)| (label.clone(), value.clone()))
            .collect()
    }
}
