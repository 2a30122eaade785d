//! A model of a core, its disk and its clients in virtual time around the admission, and the rules
//! that it must hold.

use std::collections::VecDeque;

use super::*;

/// Operations of one connection that a read brings.
const READ_OPERATIONS: u64 = 800;
const FRAMES_IN_FLIGHT: usize = 2;

#[derive(Clone, Copy)]
struct Costs {
    operation_ns: u64,
    refusal_ns: u64,
    /// Of each connection that is read in a turn.
    read_ns: u64,
    /// A write takes so long, and each operation in it.
    write_us: u64,
    durable_ns: u64,
}

/// A core of a million operations a second and a disk that is faster.
const COSTS: Costs = Costs {
    operation_ns: 1_000,
    refusal_ns: 400,
    read_ns: 4_000,
    write_us: 100,
    durable_ns: 100,
};

#[derive(Clone, Copy)]
enum Comes {
    /// A frame each so many nanoseconds, whatever is answered.
    Every(u64),
    /// So many frames at first, and one for each answer.
    Closed(u64),
}

struct Peer {
    claim: Claim,
    comes: Comes,
    operations: u64,
    next_ns: u64,
    /// When the frames were sent that were not read.
    sent: VecDeque<u64>,
    /// Operations that were run and not answered.
    under_way: u64,
    ran: u64,
    refused: u64,
}

struct Ran {
    peer: usize,
    sent_ns: u64,
    since_us: u64,
}

struct World {
    costs: Costs,
    now_ns: u64,
    admission: Admission,
    peers: Vec<Peer>,
    /// What waits for a write, and the writes under way with their ends.
    open: Vec<Ran>,
    writes: VecDeque<(u64, Vec<Ran>)>,
    /// Latencies of what ran, in microseconds, and when they ended.
    latencies: Vec<(u64, u64)>,
    longest_queue: usize,
}

impl World {
    fn new(costs: Costs, peers: impl IntoIterator<Item = (Comes, u64)>) -> World {
        let mut world = World {
            costs,
            now_ns: 0,
            admission: Admission::new(),
            peers: Vec::new(),
            open: Vec::new(),
            writes: VecDeque::new(),
            latencies: Vec::new(),
            longest_queue: 0,
        };
        let peers: Vec<_> = peers.into_iter().collect();
        let count = peers.len() as u64;
        for (number, (comes, operations)) in (0..).zip(peers) {
            let mut peer = Peer {
                claim: Claim::default(),
                comes,
                operations,
                next_ns: u64::MAX,
                sent: VecDeque::new(),
                under_way: 0,
                ran: 0,
                refused: 0,
            };
            match comes {
                Comes::Every(ns) => peer.next_ns = number * ns / count,
                Comes::Closed(frames) => peer.sent.extend(vec![0; frames.try_into().expect("few")]),
            }
            world.peers.push(peer);
        }
        world
    }

    fn run_until(&mut self, seconds: f64) {
        let until_ns = ns(seconds);
        while self.now_ns < until_ns {
            self.turn();
        }
    }

    /// Reads and runs what has come, ends the turn, and waits if there was nothing.
    fn turn(&mut self) {
        let began_ns = self.now_ns;
        let mut ran = 0;
        for number in 0..self.peers.len() {
            ran += self.read(number, began_ns);
        }
        for ran in self.open.iter_mut().filter(|it| it.since_us == u64::MAX) {
            ran.since_us = self.now_ns / 1000;
        }
        let released = self.end_writes();
        let waiting = self
            .open
            .iter()
            .chain(self.writes.iter().flat_map(|it| &it.1));
        let on_disk = OnDisk {
            waiting: waiting.map(|it| self.peers[it.peer].operations).sum(),
            ..released
        };
        self.admission.turn_ends(self.now_ns / 1000, ran, on_disk);
        if self.now_ns == began_ns {
            let next = self.peers.iter().map(|it| it.next_ns);
            let ends = self.writes.iter().map(|write| write.0);
            self.now_ns = next
                .chain(ends)
                .min()
                .expect("something comes")
                .max(began_ns + 1);
        }
    }

    fn read(&mut self, number: usize, began_ns: u64) -> u64 {
        let peer = &mut self.peers[number];
        if let Comes::Every(ns) = peer.comes {
            while peer.next_ns <= began_ns {
                peer.sent.push_back(peer.next_ns);
                peer.next_ns += ns;
            }
        }
        self.longest_queue = self.longest_queue.max(peer.sent.len());
        let ready = peer.sent.iter().filter(|&&sent| sent <= began_ns).count() as u64;
        if ready == 0 {
            return 0;
        }
        self.now_ns += self.costs.read_ns;
        self.admission.note_active(&mut peer.claim);
        let frames = ready.min((READ_OPERATIONS / peer.operations).max(1));
        peer.claim.unread_bytes = (ready - frames) * peer.operations * 80;
        let mut ran = 0;
        for _ in 0..frames {
            let sent_ns = peer.sent.pop_front().expect("it is ready");
            let asked = Asked {
                under_way: peer.under_way,
                operations: peer.operations,
                bytes: peer.operations * 80,
                is_write: true,
            };
            let now_us = began_ns / 1000;
            let is_free = self
                .admission
                .is_free(&peer.claim, peer.under_way, peer.operations);
            if !is_free
                && self
                    .admission
                    .refuses(now_us, &mut peer.claim, asked)
                    .is_some()
            {
                peer.refused += peer.operations;
                self.now_ns += self.costs.refusal_ns;
                if let Comes::Closed(_) = peer.comes {
                    peer.sent.push_back(self.now_ns + 20_000);
                }
                continue;
            }
            peer.under_way += peer.operations;
            ran += peer.operations;
            self.now_ns += self.costs.operation_ns * peer.operations;
            self.open.push(Ran {
                peer: number,
                sent_ns,
                since_us: u64::MAX,
            });
        }
        peer.claim.unread_bytes = 0;
        ran
    }

    /// Answers what is durable, and begins the next write.
    fn end_writes(&mut self) -> OnDisk {
        let mut on_disk = OnDisk::default();
        while self
            .writes
            .front()
            .is_some_and(|write| write.0 <= self.now_ns)
        {
            for ran in self.writes.pop_front().expect("it was looked at").1 {
                let peer = &mut self.peers[ran.peer];
                peer.under_way -= peer.operations;
                peer.ran += peer.operations;
                on_disk.released += peer.operations;
                on_disk.released_since_us.get_or_insert(ran.since_us);
                self.latencies
                    .push((self.now_ns, (self.now_ns - ran.sent_ns) / 1000));
                if let Comes::Closed(_) = peer.comes {
                    peer.sent.push_back(self.now_ns + 20_000);
                }
            }
        }
        for peer in &mut self.peers {
            if let Comes::Closed(_) = peer.comes {
                peer.next_ns = peer.sent.front().copied().unwrap_or(u64::MAX);
            }
        }
        if self.writes.len() < FRAMES_IN_FLIGHT && !self.open.is_empty() {
            let operations: u64 = self
                .open
                .iter()
                .map(|it| self.peers[it.peer].operations)
                .sum();
            let free_ns = self.writes.back().map_or(self.now_ns, |write| write.0);
            let transfer_ns = operations * self.costs.durable_ns;
            let latency_ns = self.now_ns + self.costs.write_us * 1000;
            let end_ns = (free_ns.max(self.now_ns) + transfer_ns).max(latency_ns + transfer_ns);
            self.writes
                .push_back((end_ns, std::mem::take(&mut self.open)));
        }
        on_disk
    }

    /// Operations that ran, and those that were refused.
    fn totals(&self) -> (u64, u64) {
        let totals = self.peers.iter().map(|it| (it.ran, it.refused));
        totals.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }

    /// The 99th percentile of what was answered after so many seconds.
    fn p99_us(&self, from: f64) -> u64 {
        let from_ns = ns(from);
        let ended = self.latencies.iter().filter(|it| it.0 >= from_ns);
        let mut all: Vec<u64> = ended.map(|it| it.1).collect();
        all.sort_unstable();
        all[all.len() * 99 / 100]
    }
}

fn ns(seconds: f64) -> u64 {
    let time = std::time::Duration::from_secs_f64(seconds);
    u64::try_from(time.as_nanos()).expect("seconds")
}

fn closed(peers: usize, frames: u64, operations: u64) -> Vec<(Comes, u64)> {
    vec![(Comes::Closed(frames), operations); peers]
}

/// Connections that send so many operations a second together.
fn open(peers: u64, operations: u64, per_second: u64) -> Vec<(Comes, u64)> {
    let ns = peers * operations * 1_000_000_000 / per_second;
    (0..peers).map(|_| (Comes::Every(ns), operations)).collect()
}

/// How many operations a second a closed loop gets.
fn most_per_second(costs: Costs, peers: u64, operations: u64) -> u64 {
    let peers = usize::try_from(peers).expect("few");
    let frames = (6_400 / operations / peers as u64).max(1);
    let mut world = World::new(costs, closed(peers, frames, operations));
    world.run_until(1.0);
    world.totals().0
}

#[test]
fn a_closed_loop_is_never_refused_however_long_its_turns_are() {
    let slow_core = Costs {
        operation_ns: 20_000,
        ..COSTS
    };
    let slow_disk = Costs {
        durable_ns: 50_000,
        write_us: 10_000,
        ..COSTS
    };
    for costs in [COSTS, slow_core, slow_disk] {
        for (peers, frames, operations) in [(50, 1, 128), (50, 128, 1), (1, 16, 256), (500, 1, 16)]
        {
            let mut world = World::new(costs, closed(peers, frames, operations));
            world.run_until(1.0);
            let (ran, refused) = world.totals();
            assert!(ran > 0);
            assert_eq!(refused, 0, "{peers} peers, {frames} frames of {operations}");
        }
    }
}

#[test]
fn one_frame_at_a_time_is_never_refused_however_long_it_is() {
    for peers in [1, 50, 1_000] {
        let mut world = World::new(COSTS, closed(peers, 1, 1_024));
        world.run_until(1.0);
        assert_eq!(world.totals().1, 0, "{peers} peers");
    }
}

#[test]
fn an_open_loop_above_the_core_keeps_goodput_and_short_waits() {
    for (peers, operations) in [(2, 16), (8, 16), (50, 1), (50, 16), (50, 64), (400, 4)] {
        let most = most_per_second(COSTS, peers, operations);
        for tenths in [15, 30] {
            let offered = most * tenths / 10;
            let mut world = World::new(COSTS, open(peers, operations, offered));
            world.run_until(0.5);
            let before = world.totals();
            world.run_until(1.5);
            let after = world.totals();
            let goodput = after.0 - before.0;
            // What runs takes its time, and so does what is refused.
            let cost = COSTS.refusal_ns as f64 / (COSTS.operation_ns * operations) as f64;
            let load = offered as f64 / most as f64;
            let bound = most as f64 * (1.0 - cost * load) / (1.0 - cost);
            let what = format!("{peers} peers, {operations} each, {load:.1}: {goodput} of {most}");
            if cost * load < 0.5 {
                assert!(goodput as f64 >= 0.9 * bound, "{what}, bound {bound:.0}");
            }
            if cost * load > 0.9 {
                continue;
            }
            let p99_us = world.p99_us(0.5);
            let p99_us_max = match (peers, tenths) {
                (400, _) => 20_000,
                (_, 15) => 5_000,
                _ => 10_000,
            };
            assert!(p99_us <= p99_us_max, "{what}: {p99_us} us");
        }
    }
}

#[test]
fn an_open_loop_above_the_disk_keeps_goodput_and_short_waits() {
    for durable_ns in [5_000, 20_000] {
        let costs = Costs {
            operation_ns: 200,
            refusal_ns: 400,
            read_ns: 500,
            durable_ns,
            ..COSTS
        };
        for (peers, operations) in [(2, 16), (50, 1), (50, 4), (200, 1)] {
            let most = most_per_second(costs, peers, operations);
            let mut world = World::new(costs, open(peers, operations, 3 * most));
            world.run_until(1.0);
            let before = world.totals();
            world.run_until(3.0);
            let goodput = (world.totals().0 - before.0) / 2;
            let p99_us = world.p99_us(1.0);
            let what = format!("{durable_ns} ns, {peers} peers: {goodput} of {most}, {p99_us} us",);
            assert!(goodput >= most * 9 / 10, "{what}");
            assert!(p99_us <= 6_000, "{what}");
        }
    }
}

#[test]
fn a_disk_that_is_slow_and_has_no_queue_is_used_to_the_full() {
    let costs = Costs {
        operation_ns: 200,
        write_us: 8_000,
        durable_ns: 10_000,
        ..COSTS
    };
    // It is seen at rest before the load comes.
    let mut world = World::new(costs, [(Comes::Closed(1), 1)]);
    world.run_until(1.0);
    let most = most_per_second(costs, 50, 16);
    let now_ns = world.now_ns;
    let mut load = World::new(costs, open(50, 16, 3 * most)).peers;
    for peer in &mut load {
        peer.next_ns += now_ns;
    }
    world.peers.extend(load);
    world.run_until(2.0);
    let before = world.totals();
    world.run_until(4.0);
    let goodput = (world.totals().0 - before.0) / 2;
    assert!(goodput >= most * 7 / 10, "{goodput} of {most}");
}

#[test]
fn who_sends_ten_times_as_much_gets_at_most_half_as_much_again() {
    let mut peers = open(10, 16, 1_000_000);
    peers.push((Comes::Every(16_000), 16));
    for costs in [
        COSTS,
        Costs {
            operation_ns: 100,
            durable_ns: 4_000,
            ..COSTS
        },
    ] {
        let mut world = World::new(costs, peers.clone());
        world.run_until(3.0);
        let ran: Vec<u64> = world.peers.iter().map(|it| it.ran).collect();
        let (hog, others) = ran.split_last().expect("many");
        let most = others.iter().max().expect("many");
        assert!(hog * 2 <= most * 3, "{ran:?}");
        assert!(others.iter().all(|it| it * 2 >= *most), "{ran:?}");
    }
}

#[test]
fn a_closed_loop_beside_an_open_one_above_the_core_is_never_refused() {
    let mut peers = open(40, 16, 3_000_000);
    peers.extend(closed(10, 1, 128));
    let mut world = World::new(COSTS, peers);
    world.run_until(3.0);
    assert!(world.totals().1 > 0);
    assert!(
        world.peers[40..]
            .iter()
            .all(|it| it.refused == 0 && it.ran > 0)
    );
}

#[test]
fn busy_says_how_long_the_core_would_take_to_run_what_it_refused_lately() {
    let mut world = World::new(COSTS, open(50, 16, 1_500_000));
    world.run_until(2.05);
    let before = world.totals();
    world.run_until(2.95);
    let after = world.totals();
    let (ran, refused) = (after.0 - before.0, after.1 - before.1);
    let expected_ms = refused * 100 / ran;
    let retry_after_ms = u64::from(world.admission.retry_after_ms(Short::Core));
    assert!(
        retry_after_ms.abs_diff(expected_ms) <= expected_ms / 5 + 1,
        "{retry_after_ms}, {expected_ms}"
    );
    for peer in &mut world.peers {
        peer.comes = Comes::Every(50_000_000);
    }
    let refused = world.totals().1;
    world.run_until(5.0);
    let later = world.totals().1 - refused;
    assert!(later < 50_000, "{later} refused when it was over");
    assert_eq!(world.admission.retry_after_ms(Short::Core), 1);
}

#[test]
fn the_text_of_a_refusal_is_one() {
    for short in [Short::Core, Short::Disk] {
        let text = penstock_net::reply::text_of(short.message()).expect("a text");
        assert_eq!(text.len() + 8, short.message().len());
    }
}

#[test]
fn connections_that_have_ended_take_nothing_of_what_is_free() {
    let mut admission = Admission::new();
    for _ in 0..3 {
        let mut claims = [Claim::default(); 50];
        claims
            .iter_mut()
            .for_each(|claim| admission.note_active(claim));
        assert_eq!(admission.free_of_one, FREE / 50);
        admission.end_interval(1);
        claims
            .iter_mut()
            .for_each(|claim| admission.note_active(claim));
        assert_eq!(admission.free_of_one, FREE / 50);
        claims.iter().for_each(|claim| admission.leaves(claim));
        assert_eq!(admission.free_of_one, FREE);
    }
}
