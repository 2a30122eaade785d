//! Transactions whose steps come between each other, by chance from a seed, against what one after
//! the other would have done.

use super::*;

const KEYS: [&[u8]; 4] = [b"{s}a", b"{s}b", b"{s}c", b"{s}d"];

/// SplitMix64 (Steele, Lea, Flood, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let bound = u64::try_from(bound).expect("small");
        usize::try_from((mixed ^ (mixed >> 31)) % bound).expect("small")
    }
}

/// A transaction under way, and all that it has seen and written.
struct Running {
    transaction: Transaction<Store>,
    seen: Vec<(&'static [u8], Option<u64>)>,
    written: BTreeMap<&'static [u8], Option<u64>>,
    steps_left: usize,
    /// What the store had when it began, by its place in the past.
    since: usize,
}

/// The contents of the store after each change of it, the oldest first.
type Past = Vec<BTreeMap<Vec<u8>, u64>>;

fn contents(store: &Store) -> BTreeMap<Vec<u8>, u64> {
    let map = store.0.borrow();
    let numbers = map
        .keys
        .iter()
        .map(|(key, it)| (key.clone(), number(&it.0)));
    numbers.collect()
}

impl Running {
    fn begin(store: &Store, isolation: Isolation, random: &mut Random, since: usize) -> Running {
        Running {
            transaction: store.begin(isolation),
            seen: Vec::new(),
            written: BTreeMap::new(),
            steps_left: 1 + random.below(6),
            since,
        }
    }

    /// One step; `false` if the transaction has conflicted.
    fn step(&mut self, random: &mut Random) -> bool {
        self.steps_left -= 1;
        let key = KEYS[random.below(KEYS.len())];
        let transaction = &mut self.transaction;
        match random.below(4) {
            0 | 1 => match transaction.get(key).wait() {
                Ok(value) => {
                    let value = value.map(|it| number(&it.bytes));
                    match self.written.get(key) {
                        Some(own) => assert_eq!(value, *own, "it sees its own writes"),
                        None => self.seen.push((key, value)),
                    }
                }
                Err(TransactionError::Conflict(_)) => return false,
                Err(other) => panic!("{other}"),
            },
            2 => {
                let value = 1 + random.below(1_000_000) as u64;
                transaction.set(key, &value.to_le_bytes()).expect("set");
                self.written.insert(key, Some(value));
            }
            _ => {
                transaction.del(key).expect("deleted");
                self.written.insert(key, None);
            }
        }
        true
    }

    fn is_true_of(&self, contents: &BTreeMap<Vec<u8>, u64>) -> bool {
        let mut seen = self.seen.iter();
        seen.all(|(key, value)| contents.get(*key) == value.as_ref())
    }
}

/// Runs transactions whose steps interleave; how many have committed, and how many conflicted.
fn interleave(seed: u64, isolation: Isolation) -> (u32, u32) {
    let mut random = Random(seed);
    let store = Store::default();
    let mut past: Past = vec![contents(&store)];
    let (mut committed, mut conflicted) = (0, 0);
    let mut running: Vec<Running> = Vec::new();
    for _ in 0..300 {
        if running.len() < 5 {
            running.push(Running::begin(
                &store,
                isolation,
                &mut random,
                past.len() - 1,
            ));
        }
        let at = random.below(running.len());
        if running[at].steps_left > 0 {
            if !running[at].step(&mut random) {
                conflicted += 1;
                running.swap_remove(at);
            }
            continue;
        }
        let Running {
            transaction,
            seen,
            written,
            since,
            ..
        } = running.swap_remove(at);
        let before = contents(&store);
        let run = Running {
            transaction: store.begin(isolation),
            seen,
            written,
            steps_left: 0,
            since,
        };
        match transaction.commit().wait() {
            Ok(_) => {
                committed += 1;
                judge(&run, isolation, &past[run.since..], &before, seed);
                let mut after = before;
                for (key, value) in &run.written {
                    match value {
                        Some(value) => after.insert(key.to_vec(), *value),
                        None => after.remove(*key),
                    };
                }
                assert_eq!(
                    contents(&store),
                    after,
                    "seed {seed}: all of it, and no more"
                );
                past.push(after);
            }
            Err(TransactionError::Conflict(_)) => {
                conflicted += 1;
                assert_eq!(contents(&store), before, "seed {seed}: nothing was written");
            }
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    (committed, conflicted)
}

/// What was seen by a transaction that has committed on `before`.
fn judge(
    run: &Running,
    isolation: Isolation,
    past: &[BTreeMap<Vec<u8>, u64>],
    before: &BTreeMap<Vec<u8>, u64>,
    seed: u64,
) {
    // A transaction that only reads may have its instant before the commit.
    let is_step = isolation == Isolation::Serializable && !run.written.is_empty();
    if is_step {
        assert!(run.is_true_of(before), "seed {seed}: it is no step");
        return;
    }
    let mut instants = past.iter();
    assert!(
        instants.any(|contents| run.is_true_of(contents)),
        "seed {seed}: what was seen was never there at once: {:?}",
        run.seen
    );
    for (key, value) in &run.seen {
        if run.written.contains_key(key) {
            assert_eq!(
                before.get(*key),
                value.as_ref(),
                "seed {seed}: a lost update"
            );
        }
    }
}

#[test]
fn serializable_transactions_do_what_they_would_do_one_after_the_other() {
    let (mut committed, mut conflicted) = (0, 0);
    for seed in 0..400 {
        let counts = interleave(seed, Isolation::Serializable);
        committed += counts.0;
        conflicted += counts.1;
    }
    assert!(
        committed > 10_000 && conflicted > 2_000,
        "{committed}, {conflicted}"
    );
}

#[test]
fn snapshot_transactions_see_one_instant_and_lose_no_update() {
    let (mut committed, mut conflicted) = (0, 0);
    for seed in 0..400 {
        let counts = interleave(seed, Isolation::Snapshot);
        committed += counts.0;
        conflicted += counts.1;
    }
    assert!(
        committed > 10_000 && conflicted > 2_000,
        "{committed}, {conflicted}"
    );
}
