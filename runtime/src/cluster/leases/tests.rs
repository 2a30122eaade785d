//! Two nodes and their heartbeats over sockets of this machine.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use penstock_net::link::frame::write_link_frame;
use penstock_net::link::{
    Claims, HEARTBEAT_SHARD, LinkHeader, Marks, Membership, PartitionSet, RefusalCode,
};
use penstock_shard::cluster::Assignment;
use penstock_shard::lease::{Placing, Standing};
use penstock_shard::replication::receiver::LinkRefusal;

use super::*;
use crate::cluster::links::blocking_line::LineEnd;
use crate::cluster::links::greeting::{Greeted, Greeter};
use crate::cluster::plan::file::Secret;
use crate::cluster::plan::seen::Seen;

const PATIENCE: Duration = Duration::from_secs(60);
/// Node 1 writes this one, node 2 is its sync set.
const SHARED: u16 = 7;
const RULES: LeaseRules = LeaseRules::QUIET;

fn plan(number: u64, primary: u8, generation: u32) -> FailoverPlan {
    let placing = |partition: u16| Placing {
        assignment: Assignment {
            generation,
            primary: if partition == SHARED { primary } else { 1 },
            members: match partition {
                SHARED => vec![(3 - primary, Membership::Sync)],
                _ => Vec::new(),
            },
            is_handed_over: false,
            is_loss_accepted: false,
            is_incomplete_accepted: false,
        },
        joining: Vec::new(),
    };
    FailoverPlan {
        number,
        placings: (0..LINK_PARTITIONS).map(placing).collect(),
        rules: RULES,
        min_sync: 0,
        is_paused: false,
        stay_learners: Vec::new(),
    }
}

struct Node {
    leases: Leases,
    seen: Seen,
    directory: PathBuf,
    is_over: AtomicBool,
    is_named: AtomicBool,
}

impl Node {
    fn new(test: &str, number: u8, plan: Option<FailoverPlan>) -> Node {
        let unique = format!("penstock-leases-{test}-{number}-{}", std::process::id());
        let directory = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&directory).expect("made");
        let me = Introduction {
            log_format: 1,
            cluster_id: [9; 16],
            node_id: [number; 16],
            start: NodeStart {
                incarnation: 3,
                start_id: 33,
            },
            node: number,
            shard: HEARTBEAT_SHARD,
            shards: 1,
            record_bytes_max: 1 << 20,
            frame_bytes_max: 4 << 20,
        };
        let parts = LeaseParts {
            clock: BootClock::start(),
            table: Arc::default(),
            stats: Arc::new(Stats::new(1)),
        };
        // Its shard has always turned a moment ago.
        parts.table.turned(0, u64::MAX / 2);
        parts.table.set_standing(SHARED, ABLE);
        Node {
            leases: Leases::new(me, parts, plan),
            seen: Seen::read(&directory).expect("nothing yet"),
            directory,
            is_over: AtomicBool::new(false),
            is_named: AtomicBool::new(true),
        }
    }

    fn table(&self) -> &LeaseTable {
        &self.leases.parts.table
    }

    fn now_us(&self) -> u64 {
        self.leases.parts.clock.now_us()
    }

    fn has_lease(&self, by: u8) -> bool {
        self.table().lease_end_us(SHARED, [by]) > self.now_us()
    }

    fn serve(&self, connected: Connected, line: &mut BlockingLine) -> End {
        let is_named = || self.is_named.load(Ordering::Relaxed);
        let serving = Serving {
            leases: &self.leases,
            is_over: &self.is_over,
            is_named: &is_named,
        };
        serving.serve(connected, line)
    }

    fn end(self) {
        std::fs::remove_dir_all(self.directory).expect("removed");
    }
}

const ABLE: Standing = Standing {
    is_turning: true,
    is_candidate: true,
    is_able: true,
    is_awaiting: false,
    sequence: 40,
};

/// One side of a proven connection.
type Side = (Arc<TcpStream>, Greeted);

fn greeted(one: &Node, other: &Node) -> (Side, Side) {
    let secret = Secret::new(&[1; 32]).expect("long enough");
    let greeter = |node| Greeter {
        secret: &secret,
        seen: node,
        tls: None,
        patience: PATIENCE,
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| {
            let (stream, _) = listener.accept().expect("accepted");
            let welcomed =
                greeter(&other.seen).welcome(&stream, &other.leases.me, |_| true, |_| true);
            let (shard, greeted) = welcomed.expect("proven");
            assert_eq!(shard, HEARTBEAT_SHARD);
            (Arc::new(stream), greeted)
        });
        let wanted = (other.leases.me.node, HEARTBEAT_SHARD);
        let made = greeter(&one.seen).greet(&stream, one.leases.me, wanted, false);
        let made = (Arc::new(stream), made.expect("proven"));
        (made, taken.join().expect("it does not panic"))
    })
}

/// Serves one side on a thread.
fn serve<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    node: &'scope Node,
    (stream, greeted): Side,
    is_source: bool,
) -> ScopedJoinHandle<'scope, End> {
    scope.spawn(move || {
        let peer = greeted.peer;
        let line = line_of_heartbeats(Arc::clone(&stream), greeted, is_source);
        let connected = node.leases.connect(&peer, &stream).expect("it is on");
        let end = node.serve(connected, &mut line.expect("a socket"));
        let _ = stream.shutdown(Shutdown::Both);
        end
    })
}

/// Connects both nodes and serves both sides, each on a thread.
fn talk<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    one: &'scope Node,
    other: &'scope Node,
) -> [ScopedJoinHandle<'scope, End>; 2] {
    let (made, taken) = greeted(one, other);
    [
        serve(scope, one, made, true),
        serve(scope, other, taken, false),
    ]
}

/// Waits for both. One of them may hear that the other one has closed.
fn ended(sides: [ScopedJoinHandle<'_, End>; 2]) {
    for side in sides {
        side.join().expect("it does not panic");
    }
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn both(test: &str) -> (Node, Node) {
    let node = |number| Node::new(test, number, Some(plan(4, 1, 5)));
    (node(1), node(2))
}

#[test]
fn a_member_lends_what_it_is_asked_for_and_does_not_begin_meanwhile() {
    let (one, other) = both("flow");
    std::thread::scope(|scope| {
        let sides = talk(scope, &one, &other);
        wait_until("a lease", || one.has_lease(2));
        let first_us = one.table().lease_end_us(SHARED, [2]);
        wait_until("it goes on", || {
            one.table().lease_end_us(SHARED, [2]) > first_us + RULES.lease_us()
        });
        // Nobody looks here but the threads of the connection.
        assert!(other.table().begins_us(SHARED) > first_us);
        assert!(!other.has_lease(1), "the primary lends nothing");
        one.leases.next_swap();
        let read = one.leases.parts.stats.failover.read();
        let peer = read.peers[0];
        assert!(peer.node == 2 && peer.is_connected && peer.round_trip_us.is_some());
        assert!(read.lease_left_us().expect("it is told") <= RULES.lease_us());
        one.is_over.store(true, Ordering::Relaxed);
        other.is_over.store(true, Ordering::Relaxed);
        ended(sides);
        wait_until("the lease runs out without heartbeats", || {
            one.leases.next_swap();
            one.leases.parts.stats.failover.read().lease_left_us() == Some(0)
        });
        let left = one.leases.parts.stats.failover.read();
        assert!(!left.peers[0].is_connected && !one.has_lease(2));
    });
    one.end();
    other.end();
}

#[test]
fn a_newer_connection_of_a_pair_ends_the_older_one() {
    let (one, other) = both("newer");
    std::thread::scope(|scope| {
        let first = talk(scope, &one, &other);
        wait_until("a lease", || one.has_lease(2));
        let second = talk(scope, &one, &other);
        ended(first);
        let before_us = one.table().lease_end_us(SHARED, [2]);
        wait_until("the second one lends", || {
            one.table().lease_end_us(SHARED, [2]) > before_us + RULES.lease_us()
        });
        let read = one.leases.parts.stats.failover.read();
        assert!(
            read.peers[0].is_connected,
            "the end of the first one is not of the second"
        );
        one.is_over.store(true, Ordering::Relaxed);
        other.is_over.store(true, Ordering::Relaxed);
        ended(second);
    });
    one.end();
    other.end();
}

#[test]
fn a_connection_without_a_frame_for_the_grace_is_closed() {
    let (one, other) = both("silent");
    std::thread::scope(|scope| {
        let (made, silent) = greeted(&one, &other);
        let side = serve(scope, &one, made, true);
        let grace = Duration::from_micros(RULES.grace_us());
        assert_eq!(side.join().expect("it does not panic"), End::Silent(grace));
        drop(silent);
    });
    assert!(!one.has_lease(2));
    one.end();
    other.end();
}

#[test]
fn a_node_that_the_plan_names_no_more_is_refused_by_name() {
    let (one, other) = both("unnamed");
    std::thread::scope(|scope| {
        let (made, taken) = greeted(&one, &other);
        let (one_end, other_end) = (
            serve(scope, &one, made, true),
            serve(scope, &other, taken, false),
        );
        wait_until("a lease", || one.has_lease(2));
        other.is_named.store(false, Ordering::Relaxed);
        let refusal = LinkRefusal {
            code: RefusalCode::NotNamed,
            text: "the cluster's file does not name node 1".into(),
        };
        let refused = End::Line(LineEnd::Refused(refusal.clone()));
        assert_eq!(other_end.join().expect("it does not panic"), refused);
        let there = End::Line(LineEnd::RefusedThere(refusal));
        assert_eq!(one_end.join().expect("it does not panic"), there);
    });
    one.end();
    other.end();
}

/// What node 2 says when node 1 has proven itself and sends these bytes.
fn refusal_of(name: &str, sent: &[u8]) -> (RefusalCode, String) {
    let (one, other) = both(name);
    let (mut stream_end, mut outcome) = (None, None);
    std::thread::scope(|scope| {
        let ((stream, greeted_here), taken) = greeted(&one, &other);
        let side = serve(scope, &other, taken, false);
        (&mut &*stream).write_all(sent).expect("sent");
        outcome = Some(side.join().expect("it does not panic"));
        let mut line = line_of_heartbeats(stream, greeted_here, true).expect("a socket");
        // It is told on the connection, behind what was sent before.
        wait_until("the refusal", || {
            let come = line.receive().and_then(|()| line.frames(|_, _| Ok(())));
            stream_end = come.err();
            stream_end.is_some()
        });
    });
    one.end();
    other.end();
    let (outcome, stream_end) = (outcome.expect("it ended"), stream_end.expect("it ended"));
    let End::Line(LineEnd::Refused(refusal)) = outcome else {
        panic!("{name}: {outcome:?}");
    };
    assert_eq!(stream_end, LineEnd::RefusedThere(refusal.clone()), "{name}");
    (refusal.code, refusal.text)
}

fn frame(number: u64, marks: Marks, message: &LinkMessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = LinkHeader {
        number,
        marks,
        time: 0,
    };
    write_link_frame(&mut bytes, header, message);
    bytes
}

#[test]
fn bytes_that_are_no_heartbeats_are_refused_by_name_and_end_the_connection() {
    let heartbeat = |number| {
        LinkMessage::Heartbeat(Heartbeat {
            number,
            last_read: 0,
            plan: 4,
            claims: Claims::default(),
        })
    };
    let no_marks = Marks::default();
    let marks = Marks {
        durable: 0,
        received: 1,
    };
    let mut flipped = frame(3, no_marks, &heartbeat(1));
    flipped[60] ^= 1;
    let mut late = frame(3, no_marks, &heartbeat(1));
    late.extend(frame(5, no_marks, &heartbeat(2)));
    use RefusalCode::{Fault, Order};
    for (name, sent, code, text) in [
        ("garbage", vec![0x55; 64], Fault, "is none of a link"),
        ("flipped", flipped, Fault, "CRC"),
        ("late", late, Fault, "in the place of frame 4"),
        (
            "marks",
            frame(3, marks, &heartbeat(1)),
            Fault,
            "marks or a time",
        ),
        (
            "beat",
            frame(3, no_marks, &LinkMessage::Beat),
            Order,
            "BEAT has no place among heartbeats",
        ),
    ] {
        let (found, refusal_text) = refusal_of(name, &sent);
        assert_eq!(found, code, "{name}: {refusal_text}");
        assert!(refusal_text.contains(text), "{name}: {refusal_text}");
    }
}

#[test]
fn numbers_go_on_over_connections_and_begin_anew_with_another_start() {
    let (one, other) = both("starts");
    let heartbeat = |number| Heartbeat {
        number,
        last_read: 0,
        plan: 4,
        claims: Claims::default(),
    };
    let ((stream, mut here), (there, at_other)) = greeted(&one, &other);
    let mut line = line_of_heartbeats(there, at_other, false).expect("a socket");
    let beats = |connected, number, line: &mut BlockingLine| {
        one.leases
            .answer_heartbeat(connected, &heartbeat(number), line.outgoing());
    };
    let next_last_read = |connected| {
        let mut state = one.leases.state();
        let failover = one.leases.of(&mut state, connected).expect("it counts");
        let mut claims = Vec::new();
        failover.send(one.now_us(), 2, &mut claims).last_read
    };
    let first = one.leases.connect(&here.peer, &stream).expect("it is on");
    beats(first, 70, &mut line);
    let second = one.leases.connect(&here.peer, &stream).expect("it is on");
    assert_eq!(next_last_read(second), 70);
    // The first one does not count any more.
    beats(first, 90, &mut line);
    assert!(one.leases.pulse(first).is_none());
    assert_eq!(next_last_read(second), 70);
    here.peer.start.start_id += 1;
    let third = one.leases.connect(&here.peer, &stream).expect("it is on");
    assert_eq!(next_last_read(third), 0);
    one.end();
    other.end();
}

#[test]
fn without_failover_in_the_plan_nobody_is_connected_and_it_comes_and_goes_while_nodes_run() {
    let (one, other) = both("switch");
    let off = Node::new("switch-off", 2, None);
    let ((stream, here), _there) = greeted(&one, &off);
    assert!(off.leases.connect(&here.peer, &stream).is_none());
    assert!(!off.leases.is_on() && off.leases.neighbours().is_empty());
    assert!(off.leases.next_swap().is_none());
    assert_eq!(off.table().begins_us(SHARED), u64::MAX);
    off.leases.take_plan(Some(plan(5, 1, 5)), None);
    assert_eq!(off.leases.neighbours(), [1]);
    // It has lent nothing since its start, so only that is waited for.
    assert_eq!(off.table().begins_us(SHARED), RULES.grace_us());
    let connected = off.leases.connect(&here.peer, &stream).expect("it is on");
    assert!(off.leases.pulse(connected).is_some());
    off.leases.take_plan(None, None);
    assert!(off.leases.pulse(connected).is_none() && !off.leases.is_on());
    for node in [one, other, off] {
        node.end();
    }
}

#[test]
fn who_is_silent_for_the_grace_is_replaced_by_a_swap_of_exactly_the_plan_that_was_read() {
    let (one, other) = both("lost");
    std::thread::scope(|scope| {
        let sides = talk(scope, &one, &other);
        wait_until("a lease", || one.has_lease(2));
        one.is_over.store(true, Ordering::Relaxed);
        ended(sides);
    });
    // It is not known what the home has: nothing is asked for.
    let waits_until = Instant::now() + 2 * Duration::from_micros(RULES.grace_us());
    while Instant::now() < waits_until {
        assert!(other.leases.next_swap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    let file = Arc::new(plan_file(4));
    let revision = Revision::Digest([4; 32]);
    other.leases.note_home(Arc::clone(&file), revision.clone());
    let mut swap = None;
    wait_until("a takeover", || {
        swap = other.leases.next_swap();
        swap.is_some()
    });
    let swap = swap.expect("it was seen");
    let partitions = PartitionSet::from_iter([SHARED]);
    assert_eq!(
        swap.wish,
        Wish::TakeOver {
            from: 1,
            partitions
        }
    );
    assert_eq!(swap.revision, revision);
    assert!(Arc::ptr_eq(&swap.file, &file));
    // One at a time, and none for a while behind one that failed.
    assert!(other.leases.next_swap().is_none());
    other.leases.swapped(PATIENCE);
    assert!(other.leases.next_swap().is_none());
    other.leases.swapped(Duration::ZERO);
    // What the home has by now is another plan than the one that is decided by.
    other
        .leases
        .note_home(Arc::new(plan_file(5)), Revision::Digest([5; 32]));
    assert!(other.leases.next_swap().is_none());
    one.end();
    other.end();
}

/// A document with this number.
fn plan_file(revision: u64) -> ClusterFile {
    let text = format!(
        "version = 1\ncluster_id = \"000102030405060708090a0b0c0d0e0f\"\nrevision = {revision}\n\
         [[node]]\nnumber = 1\nlinks = \"127.0.0.1:7414\"\nclients = \"a:1\"\n\
         [[placement]]\npartitions = [0, 255]\ngeneration = 1\nprimary = 1\n"
    );
    ClusterFile::without_secret(text).expect("good")
}
