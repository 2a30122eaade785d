//! Bytes that nobody chose at the ends of a TLS connection: instead of the handshake, in the middle
//! of it, and behind it. The ends are those of a link, where both are ours, and a client's.
//!
//! An input is one byte (which end gets it, and when) and what that end is sent. How a target runs
//! and what it keeps: `net/tests/fuzz/target.rs`.

use penstock_client::tls::TlsSession;

use super::TlsConnection;
use super::tests::{link_ends, session_ends};
use crate::target::{Choices, keep};

crate::target!(tls, "tests/fuzz", judge);

/// Bytes of the heap that one end may hold, beside what it is sent: rustls takes 64 KiB of one
/// message, and keeps a record until it is whole.
const HEAP_BYTES_MAX: u64 = 256 << 10;

/// Flights in each direction: more than a handshake has.
const FLIGHTS: usize = 4;

/// One end, of either adapter.
enum End {
    Server(TlsConnection),
    Session(TlsSession),
}

impl End {
    /// Whether the bytes can be read so far.
    fn receive(&mut self, bytes: &[u8], plaintext: &mut Vec<u8>) -> bool {
        match self {
            End::Server(it) => it.receive(bytes, plaintext).is_ok(),
            End::Session(it) => it.receive(bytes, plaintext).is_ok(),
        }
    }

    fn say(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        match self {
            End::Server(it) => it.take_output(&mut said),
            End::Session(it) => it.take_output(&mut said),
        }
        said
    }

    fn seal(&mut self, plaintext: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        match self {
            End::Server(it) => {
                let sealed = it.seal(std::iter::once(plaintext), &mut said);
                assert_eq!(sealed, plaintext.len());
            }
            End::Session(it) => it.seal(plaintext, &mut said),
        }
        said
    }

    fn binding(&self) -> Option<[u8; 32]> {
        match self {
            End::Server(it) if it.is_handshaking() => None,
            End::Server(it) => Some(it.peer().channel_binding),
            End::Session(it) => it.channel_binding(),
        }
    }
}

/// The end that is tried, and its peer.
fn pair(which: u8) -> (End, End) {
    match which % 3 {
        0 => {
            let (source, destination) = link_ends();
            (End::Server(source), End::Server(destination))
        }
        1 => {
            let (source, destination) = link_ends();
            (End::Server(destination), End::Server(source))
        }
        _ => {
            let (server, session) = session_ends();
            (End::Session(session), End::Server(server))
        }
    }
}

fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    if choices.is_empty() {
        return;
    }
    let manner = choices.byte();
    let which = manner / 3;
    match manner % 3 {
        0 => before(which, choices.rest()),
        1 => meddled(which, choices),
        _ => behind(which, choices.rest()),
    }
}

/// Bytes instead of a handshake. No plaintext comes of them, and memory has a bound, whether they
/// come whole or in pieces.
fn before(which: u8, bytes: &[u8]) {
    let mut outcomes = Vec::new();
    for step in [bytes.len().max(1), 1 + bytes.len() / 7] {
        let (mut end, _) = pair(which);
        end.say();
        let (mut plaintext, mut is_sound) = (Vec::new(), true);
        let used = allocation_counter::measure(|| {
            for piece in bytes.chunks(step) {
                is_sound = is_sound && end.receive(piece, &mut plaintext);
            }
        });
        let bound = HEAP_BYTES_MAX + 2 * bytes.len() as u64;
        assert!(used.bytes_max <= bound, "{} bytes", used.bytes_max);
        assert!(plaintext.is_empty() && end.binding().is_none());
        end.say();
        outcomes.push(is_sound);
    }
    assert_eq!(outcomes[0], outcomes[1], "whole or in pieces");
}

/// A third party changes one byte of a handshake of two good ends. Never do both believe in two
/// different connections.
fn meddled(which: u8, mut choices: Choices<'_>) {
    let (at, change) = (choices.below(4096), choices.byte());
    let (mut end, mut peer) = pair(which);
    let mut passed = 0;
    let mut plaintext = Vec::new();
    for _ in 0..FLIGHTS {
        if !peer.receive(&end.say(), &mut plaintext) {
            return;
        }
        let mut said = peer.say();
        if let Some(byte) = at.checked_sub(passed).and_then(|at| said.get_mut(at)) {
            *byte ^= change;
        }
        passed += said.len();
        let is_sound = end.receive(&said, &mut plaintext);
        assert!(plaintext.is_empty(), "nobody has said anything");
        if !is_sound {
            return;
        }
    }
    if let (Some(one), Some(other)) = (end.binding(), peer.binding()) {
        assert_eq!(one, other);
    }
}

/// Ciphertext of nobody behind a handshake and behind a good record.
fn behind(which: u8, bytes: &[u8]) {
    let (mut end, mut peer) = pair(which);
    let mut plaintext = Vec::new();
    for _ in 0..FLIGHTS {
        assert!(peer.receive(&end.say(), &mut plaintext), "a good end");
        assert!(end.receive(&peer.say(), &mut plaintext), "a good peer");
    }
    assert_eq!(end.binding(), peer.binding());
    let said = [&peer.seal(b"good")[..], bytes].concat();
    let is_sound = end.receive(&said, &mut plaintext);
    assert_eq!(plaintext, b"good");
    if !is_sound {
        assert!(!end.say().is_empty(), "an alert");
        end.receive(&peer.seal(b"late"), &mut plaintext);
        assert_eq!(plaintext, b"good", "nothing is read behind a fault");
    }
}

#[test]
fn kept_inputs_of_tls() {
    let hello: &[u8] = &[
        22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
        7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 2, 19, 1, 1, 0,
    ];
    let server_hello: &[u8] = &[
        22, 3, 3, 0, 46, 2, 0, 0, 42, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
        7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 19, 1, 0, 0, 0,
    ];
    let record: &[u8] = &[
        23, 3, 3, 0, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
    ];
    let instead: [(&str, &[u8]); 6] = [
        ("hello", hello),
        ("server-hello", server_hello),
        ("too-long", &[22, 3, 1, 0xFF, 0xFF, 1]),
        ("cut", &[22, 3]),
        ("http", b"GET / HTTP/1.1\r\n\r\n"),
        ("alert", &[21, 3, 3, 0, 2, 2, 40]),
    ];
    let later: [(&str, &[u8]); 4] = [
        ("record", record),
        ("change", &[20, 3, 3, 0, 1, 1]),
        ("plain-alert", &[21, 3, 3, 0, 2, 1, 0]),
        ("cut-record", &record[..9]),
    ];
    let mut inputs = Vec::new();
    for (which, end) in (0u8..).zip(["source", "destination", "session"]) {
        let mut add = |name: &str, when: u8, bytes: &[u8]| {
            let input = [&[3 * which + when], bytes].concat();
            inputs.push((format!("{name}-to-{end}"), input));
        };
        instead.iter().for_each(|(name, bytes)| add(name, 0, bytes));
        add("meddled", 1, &[60, 0, 4]);
        add("meddled-later", 1, &[0, 2, 1]);
        later.iter().for_each(|(name, bytes)| add(name, 2, bytes));
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz");
    keep(folder, "tls", &inputs);
}
