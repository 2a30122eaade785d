//! Hit ratios of policies of eviction over the same traces: `cargo run --release -p
//! penstock-storage --example policies`. Deterministic.
//!
//! All have the same memory. SIEVE and S3-FIFO need the order of the cells, two numbers of 4 bytes
//! or one and a list of keys that left, so with cells of 42 bytes they have fewer of them.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet, VecDeque};

const KEYS: usize = 200_000;
const ACCESSES: usize = 2_000_000;
/// Cells of the policies that need nothing beside bits.
const CELLS: usize = 20_000;
const CELL_BYTES: usize = 42;

/// Whether an access hits.
trait Policy {
    fn access(&mut self, key: u32) -> bool;
}

/// One hand over slots; a new key takes the slot of the one that left.
struct Clock {
    slots: Vec<(u32, bool)>,
    places: HashMap<u32, usize>,
    cells: usize,
    hand: usize,
    is_new_referenced: bool,
}

impl Policy for Clock {
    fn access(&mut self, key: u32) -> bool {
        if let Some(&place) = self.places.get(&key) {
            self.slots[place].1 = true;
            return true;
        }
        let new = (key, self.is_new_referenced);
        if self.slots.len() < self.cells {
            self.places.insert(key, self.slots.len());
            self.slots.push(new);
            return false;
        }
        loop {
            self.hand = (self.hand + 1) % self.cells;
            let slot = &mut self.slots[self.hand];
            if !std::mem::take(&mut slot.1) {
                self.places.remove(&slot.0);
                *slot = new;
                self.places.insert(key, self.hand);
                return false;
            }
        }
    }
}

/// One hand over young slots, while they are half of all, and one over the others; a new key takes
/// the slot of the one that left.
struct TwoHands {
    /// Key, used, young.
    slots: Vec<(u32, bool, bool)>,
    places: HashMap<u32, usize>,
    cells: usize,
    young: usize,
    hands: [usize; 2],
}

impl Policy for TwoHands {
    fn access(&mut self, key: u32) -> bool {
        if let Some(&place) = self.places.get(&key) {
            self.slots[place].1 = true;
            return true;
        }
        if self.slots.len() < self.cells {
            self.places.insert(key, self.slots.len());
            self.slots.push((key, false, true));
            self.young += 1;
            return false;
        }
        loop {
            let of_young = self.young * 2 >= self.cells;
            let hand = &mut self.hands[usize::from(of_young)];
            *hand = (*hand + 1) % self.cells;
            let (old, used, is_young) = &mut self.slots[*hand];
            if *is_young != of_young {
                continue;
            }
            self.young -= usize::from(of_young);
            if std::mem::take(used) {
                *is_young = false;
                continue;
            }
            self.places.remove(old);
            self.slots[*hand] = (key, false, true);
            self.young += 1;
            self.places.insert(key, *hand);
            return false;
        }
    }
}

/// A list with the newest first; the hand goes from the oldest on and moves nothing.
struct Sieve {
    /// Key, visited, newer, older.
    slots: Vec<(u32, bool, usize, usize)>,
    places: HashMap<u32, usize>,
    cells: usize,
    newest: usize,
    oldest: usize,
    hand: usize,
}

const NONE: usize = usize::MAX;

impl Policy for Sieve {
    fn access(&mut self, key: u32) -> bool {
        if let Some(&place) = self.places.get(&key) {
            self.slots[place].1 = true;
            return true;
        }
        let place = if self.slots.len() < self.cells {
            self.slots.push((0, false, NONE, NONE));
            self.slots.len() - 1
        } else {
            let mut at = if self.hand == NONE {
                self.oldest
            } else {
                self.hand
            };
            while std::mem::take(&mut self.slots[at].1) {
                at = self.slots[at].2;
                if at == NONE {
                    at = self.oldest;
                }
            }
            let (old, _, newer, older) = self.slots[at];
            self.places.remove(&old);
            match newer {
                NONE => self.newest = older,
                newer => self.slots[newer].3 = older,
            }
            match older {
                NONE => self.oldest = newer,
                older => self.slots[older].2 = newer,
            }
            self.hand = newer;
            at
        };
        self.slots[place] = (key, false, NONE, self.newest);
        match self.newest {
            NONE => self.oldest = place,
            newest => self.slots[newest].2 = place,
        }
        self.newest = place;
        self.places.insert(key, place);
        false
    }
}

/// A tenth of the cells on probation, a main queue, and the keys that failed probation lately.
struct S3Fifo {
    counts: HashMap<u32, u8>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    is_ghost: HashSet<u32>,
    cells: usize,
}

impl Policy for S3Fifo {
    fn access(&mut self, key: u32) -> bool {
        if let Some(count) = self.counts.get_mut(&key) {
            *count = (*count + 1).min(3);
            return true;
        }
        while self.counts.len() >= self.cells {
            let is_small_full = self.small.len() >= self.cells / 10;
            if is_small_full && let Some(old) = self.small.pop_front() {
                if self.counts[&old] > 0 {
                    self.main.push_back(old);
                } else {
                    self.counts.remove(&old);
                    self.ghosts.push_back(old);
                    self.is_ghost.insert(old);
                    if self.ghosts.len() > self.cells * 9 / 10 {
                        let oldest = self.ghosts.pop_front().expect("there are some");
                        self.is_ghost.remove(&oldest);
                    }
                }
            } else if let Some(old) = self.main.pop_front() {
                let count = self.counts.get_mut(&old).expect("it is cached");
                if *count > 0 {
                    *count -= 1;
                    self.main.push_back(old);
                } else {
                    self.counts.remove(&old);
                }
            }
        }
        self.counts.insert(key, 0);
        match self.is_ghost.contains(&key) {
            true => self.main.push_back(key),
            false => self.small.push_back(key),
        }
        false
    }
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: f64) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).expect("32 bits")) / 4_294_967_296.0 * end
    }
}

/// Keys whose frequency falls with their rank to the power of `skew`, spread over all numbers.
fn zipf(skew: f64) -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        })
        .collect();
    let mut random = Random(7);
    let ranks = (0..ACCESSES).map(|_| {
        let point = random.below(sum);
        sums.partition_point(|&upto| upto < point)
    });
    ranks
        .map(|rank| u32::try_from(rank).expect("few"))
        .collect()
}

/// Every tenth of the trace a scan over keys that are asked for once.
fn with_scans(trace: Vec<u32>) -> Vec<u32> {
    let mut next = u32::try_from(KEYS).expect("few");
    let mut mixed = Vec::new();
    for chunk in trace.chunks(ACCESSES / 10) {
        mixed.extend_from_slice(chunk);
        let scan = u32::try_from(CELLS * 2).expect("few");
        mixed.extend(next..next + scan);
        next += scan;
    }
    mixed
}

/// Every tenth of the trace other keys are the frequent ones.
fn with_shifts(trace: Vec<u32>) -> Vec<u32> {
    let keys = u32::try_from(KEYS).expect("few");
    let chunks = (0u32..).zip(trace.chunks(ACCESSES / 10));
    chunks
        .flat_map(|(number, chunk)| chunk.iter().map(move |key| (key + number * 9_973) % keys))
        .collect()
}

fn main() {
    let traces = [
        ("zipf 0.99", zipf(0.99)),
        ("zipf 0.8", zipf(0.8)),
        ("uniform", zipf(0.0)),
        ("zipf 0.99 and scans", with_scans(zipf(0.99))),
        ("zipf 0.99 that shifts", with_shifts(zipf(0.99))),
    ];
    let fewer = |bytes: usize| CELLS * CELL_BYTES / (CELL_BYTES + bytes);
    println!(
        "{:<21} {:>11} {:>11} {:>7} {:>7} {:>9}",
        "hits in %", "CLOCK", "CLOCK new=0", "SIEVE", "S3-FIFO", "two hands"
    );
    for (name, trace) in &traces {
        let clock = |is_new_referenced| Clock {
            slots: Vec::new(),
            places: HashMap::new(),
            cells: CELLS,
            hand: 0,
            is_new_referenced,
        };
        let policies: [Box<dyn Policy>; 5] = [
            Box::new(clock(true)),
            Box::new(clock(false)),
            Box::new(Sieve {
                slots: Vec::new(),
                places: HashMap::new(),
                cells: fewer(8),
                newest: NONE,
                oldest: NONE,
                hand: NONE,
            }),
            Box::new(S3Fifo {
                counts: HashMap::new(),
                small: VecDeque::new(),
                main: VecDeque::new(),
                ghosts: VecDeque::new(),
                is_ghost: HashSet::new(),
                cells: fewer(8),
            }),
            Box::new(TwoHands {
                slots: Vec::new(),
                places: HashMap::new(),
                cells: CELLS,
                young: 0,
                hands: [0; 2],
            }),
        ];
        let ratios = policies.map(|mut policy| {
            let hits = trace.iter().filter(|&&key| policy.access(key)).count();
            hits as f64 * 100.0 / trace.len() as f64
        });
        let [a, b, c, d, e] = ratios;
        println!("{name:<21} {a:>11.2} {b:>11.2} {c:>7.2} {d:>7.2} {e:>9.2}");
    }
}
