//! A node of several that falls silent: what goes to the other node, and what waits.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_client::{Client, ClientOptions, Condition, Verbs};
use penstock_net::frame::Opcode;
use penstock_net::hello::{FEATURE_APPLY, FEATURE_TOKENS};
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::write_ping_reply;

use super::{Manner, answer, hello, patient};

/// How often a server looks whether it is to do something else.
const TICK: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Answers,
    /// It answers PING alone; the other answers come when it answers again.
    AnswersPings,
    /// It reads everything; the answers come when it answers again.
    IsSilent,
    /// It reads nothing.
    IsDeaf,
}

/// A server whose answers can be held back.
struct Host {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    batches: Arc<AtomicUsize>,
}

impl Host {
    fn start() -> Host {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let host = Host {
            address: listener.local_addr().expect("bound"),
            mood: Arc::new(Mutex::new(Mood::Answers)),
            batches: Arc::default(),
        };
        let (mood, batches) = (Arc::clone(&host.mood), Arc::clone(&host.batches));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (mood, batches) = (Arc::clone(&mood), Arc::clone(&batches));
                std::thread::spawn(move || converse(stream, &mood, &batches));
            }
        });
        host
    }

    fn is(&self, mood: Mood) {
        *self.mood.lock().expect("nobody panics with it") = mood;
    }

    fn asked(&self) -> usize {
        self.batches.load(Ordering::Relaxed)
    }

    /// Waits until so many batches have come.
    fn is_asked(&self, batches: usize) {
        while self.asked() < batches {
            std::thread::sleep(TICK);
        }
    }
}

fn converse(mut stream: TcpStream, mood: &Mutex<Mood>, batches: &AtomicUsize) {
    let mut receiver = Receiver::new(4 << 20);
    let (mut buffer, mut held, mut map) = (Vec::new(), Vec::new(), HashMap::new());
    let mut chunk = vec![0; 64 << 10];
    stream.set_read_timeout(Some(TICK)).expect("a time");
    loop {
        let now = *mood.lock().expect("nobody panics with it");
        if now == Mood::Answers && stream.write_all(&std::mem::take(&mut held)).is_err() {
            return;
        }
        if now == Mood::IsDeaf {
            std::thread::sleep(TICK);
            continue;
        }
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => buffer.extend_from_slice(&chunk[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
        while let Received::Frame {
            header,
            body,
            consumed,
        } = receiver.next(&buffer)
        {
            let mut out = Vec::new();
            match Opcode::from_code(header.opcode) {
                Some(Opcode::Hello) => {
                    let features = FEATURE_APPLY | FEATURE_TOKENS;
                    hello(&[], features).write(&mut out, header.request_id);
                }
                Some(Opcode::Batch) => {
                    let manner = Manner::Whole;
                    answer(manner, header.request_id, body, &mut map, &mut out);
                    batches.fetch_add(1, Ordering::Relaxed);
                }
                _ => write_ping_reply(&mut out, &header, body, 0),
            }
            let is_batch = header.opcode == Opcode::Batch as u8;
            if now == Mood::AnswersPings && !is_batch {
                if stream.write_all(&out).is_err() {
                    return;
                }
            } else {
                held.extend_from_slice(&out);
            }
            buffer.drain(..consumed);
        }
    }
}

/// Two nodes and a client that asks the first one until it knows better. Nothing but the silence
/// takes an operation to the second one: the deadline is a minute and more.
fn two(silence_max: Duration) -> (Host, Host, Client) {
    let (first, second) = (Host::start(), Host::start());
    let options = ClientOptions {
        silence_max,
        names_writes: true,
        ..patient()
    };
    let addresses = [&first, &second].map(|host| host.address.to_string());
    let client = Client::connect_any(&addresses, options).expect("connected");
    (first, second, client)
}

const SHORT: Duration = Duration::from_millis(400);

#[test]
fn a_read_and_a_write_with_a_token_leave_a_silent_node_and_a_plain_write_waits_for_it() {
    let (first, second, client) = two(SHORT);
    client.set(b"key", b"1").wait().expect("the first node");
    first.is(Mood::IsSilent);
    let plain = client.set(b"key", b"2");
    first.is_asked(2);
    // Each is sent again after a pause of its own, so they may run in any order.
    let read = client.get(b"third");
    let named = client.set_if(b"other", b"3", Condition::Absent);
    named.wait().expect("the second node");
    assert_eq!(read.wait().expect("the second node"), None);
    assert!(second.asked() > 0);
    // The first node has executed the plain write and tells so at last.
    first.is(Mood::Answers);
    plain.wait().expect("the first node");
}

#[test]
fn a_node_that_answers_pings_is_waited_for() {
    // Half of it is what a busy machine may take to answer a PING.
    const LONG: Duration = Duration::from_secs(4);
    let (first, second, client) = two(LONG);
    first.is(Mood::AnswersPings);
    let read = client.get(b"key");
    first.is_asked(1);
    std::thread::sleep(LONG + LONG / 4);
    first.is(Mood::Answers);
    assert_eq!(read.wait().expect("the first node"), None);
    assert_eq!((first.asked(), second.asked()), (1, 0));
}

#[test]
fn a_node_that_takes_no_bytes_is_left_though_the_client_is_sending() {
    let (first, second, client) = two(SHORT);
    first.is(Mood::IsDeaf);
    let value = vec![7; 1 << 20];
    let writes: Vec<_> = (0..24u8)
        .map(|number| client.set_if(&[b'k', number], &value, Condition::Absent))
        .collect();
    for write in writes {
        write.wait().expect("the second node");
    }
    assert!(second.asked() > 0);
}

#[test]
fn a_node_that_speaks_again_is_asked_again() {
    let (first, second, client) = two(SHORT);
    first.is(Mood::IsSilent);
    assert_eq!(client.get(b"key").wait().expect("the second node"), None);
    first.is(Mood::Answers);
    let before = first.asked();
    while first.asked() == before {
        client.get(b"key").wait().expect("either node");
        std::thread::sleep(TICK);
    }
    assert!(second.asked() > 0);
}

#[test]
fn a_client_of_one_node_waits_for_it() {
    let host = Host::start();
    let options = ClientOptions {
        silence_max: SHORT,
        ..patient()
    };
    let client = Client::connect(host.address, options).expect("connected");
    host.is(Mood::IsSilent);
    let read = client.get(b"key");
    host.is_asked(1);
    std::thread::sleep(3 * SHORT);
    host.is(Mood::Answers);
    assert_eq!(read.wait().expect("answered late"), None);
    assert_eq!(host.asked(), 1, "it was not sent again");
}
