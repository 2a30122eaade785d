//! Load of our own, where no tool of others measures what is asked: an open loop, and reads of many
//! values in a protocol of choice. It runs on the CPU of the load.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Outcome;
use crate::contender::connect;
use crate::program::LOAD_CPU;

/// Latencies that are told apart, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// How long answers are awaited at the end.
const GRACE: Duration = Duration::from_secs(3);
/// Bytes at both ends of a reply that are looked at.
const LOOKED_AT_BYTES: usize = 16;

/// What a load found.
pub struct Found {
    pub per_second: f64,
    pub latency_ns: Histogram<u64>,
    /// Of each interval: seconds since the begin, and p99 in microseconds.
    pub series: Vec<(f64, f64)>,
    /// Commands that were due and had no answer in the end.
    pub unanswered: u64,
}

impl Found {
    pub fn us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// Runs on a thread that is bound to the CPU of the load.
fn pinned<T: Send>(load: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    let id = LOAD_CPU.parse()?;
    let pinned = move || {
        if !core_affinity::set_for_current(core_affinity::CoreId { id }) {
            return Err(format!("this thread cannot be bound to CPU {id}").into());
        }
        load()
    };
    std::thread::scope(|scope| match scope.spawn(pinned).join() {
        Ok(outcome) => outcome,
        Err(_) => Err("the load has panicked".into()),
    })
}

fn latencies() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(100, LATENCY_NS_MAX, 3)?)
}

/// An open loop: when commands are due, and how.
pub struct Open<'a> {
    pub port: u16,
    /// A command whose answer is one line.
    pub command: &'a [u8],
    pub connections: usize,
    pub per_second: f64,
    pub duration: Duration,
    /// Of the series.
    pub interval: Duration,
}

/// A connection of the open loop, and when its commands were due that have no answer yet.
struct Line {
    stream: TcpStream,
    due: VecDeque<Instant>,
    unsent: Vec<u8>,
    is_within_line: bool,
}

impl Line {
    fn send(&mut self, command: &[u8], due: Instant) -> Outcome<()> {
        self.due.push_back(due);
        self.unsent.extend_from_slice(command);
        self.flush()
    }

    fn flush(&mut self) -> Outcome<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return Err("the server closed a connection".into()),
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes what has come; gives the due times of what was answered to `answered`.
    fn take(&mut self, buffer: &mut [u8], mut answered: impl FnMut(Instant)) -> Outcome<()> {
        self.flush()?;
        let length = match self.stream.read(buffer) {
            Ok(0) => return Err("the server closed a connection".into()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for &byte in &buffer[..length] {
            if !self.is_within_line && byte == b'-' {
                let told = String::from_utf8_lossy(&buffer[..length.min(80)]);
                return Err(format!("the server answered {told:?}").into());
            }
            self.is_within_line = byte != b'\n';
            if byte == b'\n' {
                answered(
                    self.due
                        .pop_front()
                        .ok_or("an answer that nobody asked for")?,
                );
            }
        }
        Ok(())
    }
}

impl Open<'_> {
    /// Latency counts from the time at which a command was due, whether or not it could leave then.
    pub fn run(&self) -> Outcome<Found> {
        pinned(|| self.run_here())
    }

    fn run_here(&self) -> Outcome<Found> {
        let mut lines = Vec::new();
        for _ in 0..self.connections {
            let stream = connect(self.port)?;
            stream.set_nonblocking(true)?;
            lines.push(Line {
                stream,
                due: VecDeque::new(),
                unsent: Vec::new(),
                is_within_line: false,
            });
        }
        let mut all = latencies()?;
        let mut part = latencies()?;
        let mut series = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        let began = Instant::now();
        let gap = Duration::from_secs_f64(1.0 / self.per_second);
        let (mut due, mut number) = (began, 0);
        let mut part_ends = began + self.interval;
        let end = began + self.duration;
        loop {
            let now = Instant::now();
            while due <= now && due < end {
                lines[number % self.connections].send(self.command, due)?;
                number += 1;
                due = began + gap.mul_f64(number as f64);
            }
            for line in lines.iter_mut().filter(|line| !line.due.is_empty()) {
                line.take(&mut buffer, |due| {
                    let taken = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    all.saturating_record(taken);
                    part.saturating_record(taken);
                })?;
            }
            if now >= part_ends && now < end + self.interval {
                if !part.is_empty() {
                    let p99_us = part.value_at_quantile(0.99) as f64 / 1000.0;
                    series.push((part_ends.duration_since(began).as_secs_f64(), p99_us));
                    part.reset();
                }
                part_ends += self.interval;
            }
            let unanswered: usize = lines.iter().map(|line| line.due.len()).sum();
            if due >= end && (unanswered == 0 || now >= end + GRACE) {
                return Ok(Found {
                    per_second: all.len() as f64 / began.elapsed().as_secs_f64(),
                    latency_ns: all,
                    series,
                    unanswered: unanswered as u64,
                });
            }
        }
    }
}

/// A request and the answer to it, byte by byte.
pub struct Exchange {
    pub request: Vec<u8>,
    pub answer: Vec<u8>,
}

impl Exchange {
    /// Takes the answer. All of it is compared if `is_whole`, otherwise its length and its ends.
    fn take(&self, stream: &mut TcpStream, buffer: &mut [u8], is_whole: bool) -> Outcome<()> {
        let told = &mut buffer[..self.answer.len()];
        stream.read_exact(told)?;
        let ends = LOOKED_AT_BYTES.min(self.answer.len());
        let is_same = match is_whole {
            true => *told == self.answer[..],
            false => told[..ends] == self.answer[..ends] && told.ends_with(b"\r\n"),
        };
        match is_same {
            true => Ok(()),
            false => {
                let told = String::from_utf8_lossy(&told[..told.len().min(60)]).into_owned();
                Err(format!("the server answered {told:?}").into())
            }
        }
    }
}

/// A closed loop: each connection has one exchange under way; one thread goes from one connection
/// to the next and asks again as soon as it was answered.
pub fn closed(
    port: u16,
    exchanges: &[Exchange],
    connections: usize,
    warm_up: Duration,
    duration: Duration,
) -> Outcome<Found> {
    pinned(|| closed_here(port, exchanges, connections, warm_up, duration))
}

fn closed_here(
    port: u16,
    exchanges: &[Exchange],
    connections: usize,
    warm_up: Duration,
    duration: Duration,
) -> Outcome<Found> {
    let longest = exchanges.iter().map(|it| it.answer.len()).max();
    let mut buffer = vec![0; longest.ok_or("nothing to ask for")?];
    let mut latency_ns = latencies()?;
    let mut next = (0..exchanges.len()).cycle();
    let mut at = || next.next().expect("a cycle has no end");
    let mut streams = Vec::new();
    for _ in 0..connections {
        let (mut stream, number) = (connect(port)?, at());
        stream.write_all(&exchanges[number].request)?;
        streams.push((stream, number, Instant::now()));
    }
    let began = Instant::now();
    let mut measured: Option<Instant> = None;
    loop {
        for (stream, number, asked) in &mut streams {
            exchanges[*number].take(stream, &mut buffer, measured.is_none())?;
            if measured.is_some() {
                latency_ns.saturating_record(u64::try_from(asked.elapsed().as_nanos())?);
            }
            *number = at();
            *asked = Instant::now();
            stream.write_all(&exchanges[*number].request)?;
        }
        match measured {
            None if began.elapsed() >= warm_up => measured = Some(Instant::now()),
            Some(from) if from.elapsed() >= duration => {
                return Ok(Found {
                    per_second: latency_ns.len() as f64 / from.elapsed().as_secs_f64(),
                    latency_ns,
                    series: Vec::new(),
                    unanswered: 0,
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers each of so many connections: `answer` for each line that comes.
    fn server(connections: usize, answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        let lines = buffer[..length].iter().filter(|it| **it == b'\n').count();
                        stream.write_all(&answer.repeat(lines)).unwrap();
                    }
                });
            }
        });
        port
    }

    fn open(port: u16) -> Outcome<Found> {
        Open {
            port,
            command: b"x\n",
            connections: 3,
            per_second: 1000.0,
            duration: Duration::from_millis(100),
            interval: Duration::from_millis(20),
        }
        .run_here()
    }

    #[test]
    fn every_command_that_is_due_is_sent_and_counted_once() {
        let found = open(server(3, b":1\r\n")).unwrap();
        assert_eq!((found.latency_ns.len(), found.unanswered), (100, 0));
        assert!(!found.series.is_empty());
        assert!(found.us(0.5) > 0.0 && found.us(0.5) <= found.us(1.0));
    }

    #[test]
    fn a_server_that_answers_an_error_or_too_much_ends_the_run() {
        let why = open(server(3, b"-ERR no\r\n")).err().unwrap().to_string();
        assert!(why.contains("ERR no"), "{why}");
        let why = open(server(3, b":1\r\n:2\r\n")).err().unwrap().to_string();
        assert!(why.contains("nobody asked"), "{why}");
    }

    #[test]
    fn an_answer_that_differs_from_what_was_written_ends_the_run() {
        let exchange = |answer: &[u8]| Exchange {
            request: b"x\n".to_vec(),
            answer: answer.to_vec(),
        };
        let time = Duration::from_millis(10);
        let port = server(2, b"value\r\n");
        let found = closed_here(port, &[exchange(b"value\r\n")], 2, time, time).unwrap();
        assert!(!found.latency_ns.is_empty());
        let port = server(2, b"other\r\n");
        assert!(closed_here(port, &[exchange(b"value\r\n")], 2, time, time).is_err());
    }
}
