//! The same of items that another shard sent: the connections are on one shard of a node, most keys
//! are on the other one.

use penstock_net::slot::{SLOTS, slot_of};

use super::*;

/// The two shards of a node. Clients talk to the first one.
struct Pair([Side; 2]);

impl Pair {
    fn new(config: impl Fn(u16) -> ShardConfig, log: &LogConfig, budget: Budget) -> Pair {
        Pair([0, 1].map(|number| Side::new(config(number), log.clone(), budget)))
    }

    /// Turns until nothing is under way any more, neither on the disk nor between the shards.
    fn settle(&mut self, now: Now) {
        for _ in 0..1_000 {
            let mut is_any = false;
            for number in 0..2 {
                self.0[number].settle(now);
                for mail in std::mem::take(&mut self.0[number].mail) {
                    is_any = true;
                    let other = &mut self.0[1 - number];
                    other.shard.step(now, Event::Mail(mail), &mut other.outbox);
                }
            }
            if !is_any {
                return;
            }
        }
        panic!("the shards of a node never come to rest");
    }
}

/// Has the same batches run on a node that answers in runs and on one that does not. How many items
/// the second shard of the first node has answered in runs.
fn compare(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let log = LogConfig {
        frame_bytes: 4 << 20,
        ..log_config(SyncMethod::DurableWrite, 1)
    };
    let level_min = [AckLevel::None, AckLevel::Disk][random.below(2)];
    let output_bytes_max = [2 << 10, 64 << 10][random.below(2)];
    let config = |number| ShardConfig {
        level_min,
        output_bytes_max,
        ..shard_config(number, 2, 1)
    };
    let mut pairs = [(); 2].map(|()| Pair::new(config, &log, Budget::of_cache(1 << 20)));
    pairs[1]
        .0
        .iter_mut()
        .for_each(|it| it.shard.leave_repeats());
    let mut now = Now { us: 1, unix_ms: 1 };
    for step in 0..STEPS / 6 {
        let which = random.below(2);
        let bytes = batch(&mut random, step as u64, None, Runs::Change);
        for pair in &mut pairs {
            match step {
                0 | 1 => pair.0[0].send(now, step, &[]),
                _ => pair.0[0].send(now, which, &bytes),
            }
            pair.settle(now);
            pair.0[0].read_answers();
        }
        let context = format!("seed {seed}, step {step}");
        let [runs, alone] = &mut pairs;
        for (key, answers) in &runs.0[0].answers {
            let others = alone.0[0].answers.get(key);
            assert_eq!(Some(answers), others, "{context}: {key:?}");
        }
        assert_eq!(
            runs.0[0].answers.len(),
            alone.0[0].answers.len(),
            "{context}"
        );
        for number in 0..2 {
            let of = |pair: &Pair| *pair.0[number].shard.store().data().numbering().sequences();
            assert!(
                of(runs) == of(alone),
                "{context}: the numbers of changes differ"
            );
        }
        for pair in &mut pairs {
            pair.0[0].answers.clear();
            pair.0.iter_mut().for_each(|side| side.said.clear());
        }
        now.us += [0, 1, 700, 3_000][random.below(4)];
        now.unix_ms = now.us / 1_000;
    }
    let [runs, alone] = pairs.map(|pair| pair.0.map(|side| side.shard.counters()));
    assert!(alone.iter().all(|counters| counters.in_runs == 0));
    let for_others = |of: &[Counters; 2]| of[1].executed_for_others;
    assert_eq!(for_others(&runs), for_others(&alone));
    runs[1].in_runs
}

#[test]
fn runs_of_another_shard_are_answered_as_their_items_are_one_by_one() {
    let (mut in_runs, mut count) = (0, 0);
    for number in seeds(16) {
        let seed = Seed(number);
        in_runs += compare(seed.0);
        count += 1;
    }
    assert!(in_runs > 100 * count, "{in_runs} items in runs");
}

#[test]
fn a_key_that_is_the_prefix_of_a_keyspace_before_it_in_the_mail_is_found_in_its_own_slot() {
    let log = log_config(SyncMethod::DurableWrite, 1);
    let config = |number| shard_config(number, 2, 1);
    let mut pair = Pair::new(config, &log, Budget::of_cache(1 << 20));
    let now = Now { us: 1, unix_ms: 1 };
    // Of the shard that decides about keyspaces, in another slot than the first one.
    let of_first = |key: &String| (1..SLOTS / 2).contains(&slot_of(key.as_bytes()));
    let key = (0..).map(|number| format!("key {number}")).find(of_first);
    let key = key.expect("half of all keys").into_bytes();
    let take = [instruction(Operation::Sub, 0, 1)];
    let stock = 5u64.to_le_bytes();

    let mut send =
        |request_id: u64, items: usize, add: &dyn Fn(&mut BatchRequest, &mut Vec<u8>)| {
            let mut bytes = Vec::new();
            let mut batch = BatchRequest::begin(&mut bytes, request_id, AckLevel::Disk, 0, items);
            add(&mut batch, &mut bytes);
            batch.finish(&mut bytes);
            pair.0[1].send(now, 0, &bytes);
            pair.settle(now);
            pair.0[1].read_answers();
            let answers = std::mem::take(&mut pair.0[1].answers);
            let items = answers.into_iter().filter(|((.., item), _)| item.is_some());
            let read = |bytes: &[u8]| {
                let item = ReplyItem::read(bytes).expect("a reply item");
                (item.head.status, item.value.to_vec())
            };
            let items: Vec<_> = items.map(|(_, all)| read(&all[0])).collect();
            items
        };
    // The answer to HELLO and the segments.
    send(1, 1, &|batch, out| batch.get(out, &key));
    let answers = send(2, 4, &|batch, out| {
        batch.keyspace(out, &key, Action::Set(Settings::default()));
        batch.set(out, &key, &stock, Condition::Always);
        batch.keyspace(out, &key, Action::Drop);
        batch.update_if(out, &key, None, &take, None);
    });
    assert_eq!(answers[1].0, Status::Ok);
    assert_eq!(answers[3].0, Status::Ok, "{answers:?}");
    let answers = send(3, 1, &|batch, out| batch.get(out, &key));
    assert_eq!(answers, [(Status::Ok, 4u64.to_le_bytes().to_vec())]);
}
