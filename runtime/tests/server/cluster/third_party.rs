//! A third party between two real servers, which passes the bytes of their links on and changes
//! some: without TLS it forges a record and nobody sees it; with TLS it can end links, and no more.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use penstock_client::Verbs;
use penstock_net::level::AckLevel;

use super::Model;
use super::nodes::{Cluster, Server, free_port, until, wait_for_follower, wait_for_primary};
use super::pki::words;
use crate::command::command;
use crate::process::beside_clusters;

/// Bytes of a connection behind which both ends have proven themselves.
const BEHIND_HANDSHAKE: usize = 8 << 10;

/// What it does to the bytes from the source to the destination, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Flips a bit.
    Flip,
    /// Leaves bytes out.
    Drop(usize),
    /// Sends what it has just sent once more.
    Replay,
}

/// What it looks for in records, and what it writes in its place.
const HONEST: &[u8] = b"sold to ann, 1 ticket";
const FORGED: &[u8] = b"sold to bob, 9 ticket";

#[derive(Default)]
struct Plan {
    deed: Option<Deed>,
    /// Writes records anew, from now on.
    forges: bool,
    /// How often it has seen, in the bytes that passed, what it looks for.
    seen: u64,
}

/// One address whose connections go to another one.
struct ThirdParty {
    address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    connections: Arc<AtomicU64>,
}

impl ThirdParty {
    fn start(to: u16) -> ThirdParty {
        let listener = TcpListener::bind(("127.0.0.1", free_port())).expect("free");
        let party = ThirdParty {
            address: listener.local_addr().expect("bound"),
            plan: Arc::default(),
            connections: Arc::default(),
        };
        let (plan, connections) = (Arc::clone(&party.plan), Arc::clone(&party.connections));
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let Ok(onward) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                connections.fetch_add(1, Ordering::Relaxed);
                let clone = |it: &TcpStream| it.try_clone().expect("a descriptor");
                let (back, answers) = (clone(&from), clone(&onward));
                let plan = Arc::clone(&plan);
                std::thread::spawn(move || pass_on(from, onward, &plan));
                std::thread::spawn(move || pass(answers, back, |_| ()));
            }
        });
        party
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().expect("no thread of it panics")
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Passes bytes on, each piece as `change` leaves it, until either end is over.
fn pass(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut Vec<u8>)) {
    let mut buffer = [0; 16 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        let mut piece = buffer[..bytes].to_vec();
        change(&mut piece);
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// From the source to the destination, with what the plan says.
fn pass_on(from: TcpStream, to: TcpStream, plan: &Mutex<Plan>) {
    let (mut passed, mut held) = (0, Vec::new());
    pass(from, to, |piece| {
        let mut plan = plan.lock().expect("no thread of it panics");
        let honest = piece.windows(HONEST.len()).filter(|it| *it == HONEST);
        plan.seen += honest.count() as u64;
        if plan.forges {
            held.append(piece);
            *piece = forged(&mut held);
            return;
        }
        if passed >= BEHIND_HANDSHAKE {
            match plan.deed.take() {
                None => {}
                Some(Deed::Flip) => {
                    let middle = piece.len() / 2;
                    piece[middle] ^= 0x10;
                }
                Some(Deed::Drop(bytes)) => {
                    let bytes = bytes.min(piece.len());
                    piece.drain(..bytes);
                }
                Some(Deed::Replay) => piece.extend_from_within(..),
            }
        }
        passed += piece.len();
    });
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes[at..at + 4].try_into().expect("four bytes");
    u32::from_le_bytes(bytes) as usize
}

fn set_crc(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Takes whole frames from `held`; in their records it writes what is forged, with all checksums.
fn forged(held: &mut Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    while held.len() >= 48 && held.len() >= u32_at(held, 0) {
        let len = u32_at(held, 0);
        let mut frame: Vec<u8> = held.drain(..len).collect();
        const RECORDS: u8 = 9;
        if frame[6] == RECORDS {
            let mut at = 48 + 8;
            while at < len {
                let part_len = u32_at(&frame, at);
                let part = &mut frame[at..at + part_len];
                let found = part.windows(HONEST.len()).position(|it| it == HONEST);
                if let Some(found) = found {
                    part[found..found + FORGED.len()].copy_from_slice(FORGED);
                    let crc = crc32fast::hash(&part[8..]);
                    set_crc(part, 4, crc);
                }
                at += part_len;
            }
            let crc = crc32fast::hash(&frame[48..]);
            set_crc(&mut frame, 40, crc);
            let crc = crc32fast::hash(&frame[..44]);
            set_crc(&mut frame, 44, crc);
        }
        out.extend(frame);
    }
    out
}

/// A cluster of two whose first node finds the second by way of a third party.
struct Scene {
    cluster: Cluster,
    party: ThirdParty,
    first: Server,
    second: Server,
}

impl Scene {
    fn new(name: &str, is_encrypted: bool) -> Scene {
        let cluster = Cluster::new(name);
        let party = ThirdParty::start(cluster.links[1]);
        cluster.edits(&["certs"]);
        let text = std::fs::read_to_string(cluster.folder.join("cluster.toml")).expect("made");
        let own = format!("links = \"127.0.0.1:{}\"", cluster.links[1]);
        assert!(text.contains(&own), "{text}");
        let by_way = text.replace(&own, &format!("links = \"{}\"", party.address));
        std::fs::write(cluster.folder.join("by-way.toml"), by_way).expect("written");
        let tls = |node| match is_encrypted {
            true => cluster.tls(node),
            false => Vec::new(),
        };
        let own = tls(1);
        let flags = [&words(&own)[..], &["--cluster-new"]].concat();
        let first = cluster.start_by("by-way.toml", 1, &flags);
        wait_for_primary(&first);
        let second = cluster.start(2, &words(&tls(2)));
        wait_for_follower(&first, &second);
        Scene {
            cluster,
            party,
            first,
            second,
        }
    }

    /// What the second node has of a key, whoever writes it.
    fn of_second(&self, key: &str) -> Vec<u8> {
        let address = self.second.address.to_string();
        let asked = ["get", key, "--stale-ms", "100000", "--addr", &address];
        let output = command(&asked).output().expect("it runs");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
        output.stdout
    }
}

#[test]
fn without_tls_who_stands_between_two_nodes_forges_a_record_and_neither_sees_it() {
    let _clusters = beside_clusters();
    let scene = Scene::new("third-party-plain", false);
    let before = scene.party.connections();
    scene.party.plan().forges = true;
    let client = scene.first.client(AckLevel::Replica);
    client.set(b"order:1", HONEST).wait().expect("both have it");
    wait_for_follower(&scene.first, &scene.second);
    assert_eq!(scene.of_second("order:1"), FORGED);
    let own = client.get(b"order:1").wait().expect("read").expect("set");
    assert_eq!(&*own.bytes, HONEST);
    // The link has not even ended.
    assert_eq!(scene.party.connections(), before);
    // It stays so when the node writes.
    let Scene {
        cluster,
        first,
        second,
        ..
    } = scene;
    drop(first);
    cluster.place(2, 2);
    wait_for_primary(&second);
    let found = second.client(AckLevel::Disk).get(b"order:1").wait();
    assert_eq!(&*found.expect("read").expect("there").bytes, FORGED);
}

#[test]
fn with_tls_who_stands_between_two_nodes_sees_nothing_and_ends_links_and_nothing_differs_after() {
    let _clusters = beside_clusters();
    let scene = Scene::new("third-party", true);
    let mut model = Model::default();
    let mut round = 0;
    for deed in [
        Deed::Flip,
        Deed::Drop(1),
        Deed::Drop(1000),
        Deed::Replay,
        Deed::Flip,
        Deed::Drop(usize::MAX),
        Deed::Replay,
    ] {
        let before = scene.party.connections();
        scene.party.plan().deed = Some(deed);
        until(
            &format!("{deed:?} is done, and its link made again"),
            || {
                round += 1;
                model.change(&scene.first.client(AckLevel::Disk), round);
                let is_done = scene.party.plan().deed.is_none();
                is_done && scene.party.connections() > before
            },
        );
        wait_for_follower(&scene.first, &scene.second);
        // The link that was made again goes on from what was received.
        round += 1;
        model.change(&scene.first.client(AckLevel::Replica), round);
    }
    let said = scene.second.said("a link through TLS ends: ");
    assert!(!said.is_empty(), "the destination tells why");
    let client = scene.first.client(AckLevel::Replica);
    let plan = |forges| scene.party.plan().forges = forges;
    plan(false);
    client.set(b"order:1", HONEST).wait().expect("both have it");
    assert_eq!(scene.of_second("order:1"), HONEST);
    assert_eq!(
        scene.party.plan().seen,
        0,
        "nothing of it can be read on the way"
    );
    // Every record is what it was.
    let Scene {
        cluster,
        first,
        second,
        ..
    } = scene;
    wait_for_follower(&first, &second);
    drop(first);
    cluster.place(2, 2);
    wait_for_primary(&second);
    model.check(&second.client(AckLevel::Disk));
    cluster.has_lost_nothing();
}
