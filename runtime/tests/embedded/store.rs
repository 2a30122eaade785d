//! The store inside the caller's process: its promises are the server's.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use penstock::config::IoMode;
use penstock::embedded::{Apply, Ask, Changed, ClientError, Field, Local, Run};
use penstock::{OpenError, Options, Penstock, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::{Condition, Expiry, Version, Wanted};
use penstock_net::status::Status;

use crate::scratch::Scratch;

/// Small, so that a test costs little disk.
fn options() -> Options {
    Options::default()
        .deadline(std::time::Duration::from_secs(60))
        .segment_bytes(4 << 20)
        .value_bytes_max(64 << 10)
        .cache_bytes(8 << 20)
}

fn two_shards_or_one() -> u16 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(cpus.min(2)).unwrap()
}

#[test]
fn what_was_acknowledged_is_there_after_close_and_reopen_in_every_mode() {
    for io in [IoMode::Auto, IoMode::Threads] {
        let scratch = Scratch::new("reopen");
        let store = Penstock::open(&scratch.0, options().io(io)).unwrap();
        let set = store.set(b"colour", b"green").wait().unwrap();
        assert_eq!(set.level, AckLevel::Disk);
        store.set(b"gone", b"soon").wait().unwrap();
        assert!(store.del(b"gone").wait().unwrap());
        assert!(!store.del(b"gone").wait().unwrap());
        store.close().unwrap();

        let mut local = Penstock::open_local(&scratch.0, options().io(io)).unwrap();
        let found = local.get(b"colour").unwrap().unwrap();
        assert_eq!(
            (&found.bytes[..], found.version),
            (&b"green"[..], set.version)
        );
        assert_eq!(local.get(b"gone").unwrap(), None);
        local.set_level(AckLevel::None);
        local.set(b"colour", b"blue").unwrap();
        local.close().unwrap();

        let store = Penstock::open(&scratch.0, options().io(io)).unwrap();
        assert_eq!(
            &store.get(b"colour").wait().unwrap().unwrap().bytes[..],
            b"blue"
        );
    }
}

#[test]
fn dropping_the_last_handle_makes_everything_durable_and_frees_the_directory() {
    let scratch = Scratch::new("drop");
    let options = options().level(AckLevel::None);
    let store = Penstock::open(&scratch.0, options.clone()).unwrap();
    let clone = store.clone();
    store.set(b"a", b"1").wait().unwrap();
    drop(store);
    clone.set(b"b", b"2").wait().unwrap();
    drop(clone);
    let mut local = Penstock::open_local(&scratch.0, options.clone()).unwrap();
    local.set(b"c", b"3").unwrap();
    drop(local);
    let store = Penstock::open(&scratch.0, options).unwrap();
    for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
        assert_eq!(&store.get(key).wait().unwrap().unwrap().bytes[..], value);
    }
}

#[test]
fn when_the_index_fills_memory_max_new_keys_are_refused_and_the_error_names_it() {
    const MEMORY_MAX: u64 = 11 << 20;
    let scratch = Scratch::new("memory");
    let little = Penstock::open_local(&scratch.0, options().memory_max(4 << 20));
    let text = little.expect_err("nothing would be left").to_string();
    assert!(text.contains("memory_max 4194304"), "{text}");
    let options = options().level(AckLevel::None).memory_max(MEMORY_MAX);
    let mut local = Penstock::open_local(&scratch.0, options).unwrap();
    let mut keys = 0u64..10_000_000;
    let refused = keys.find_map(|key| local.set(&key.to_le_bytes(), &key.to_le_bytes()).err());
    let Some(ClientError::Busy(message)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        message.contains(&format!("memory_max = {MEMORY_MAX}")),
        "{message}"
    );
    for key in (0..keys.start - 1).step_by(997) {
        let found = local.get(&key.to_le_bytes()).unwrap().expect("it was set");
        assert_eq!(found.bytes[..], key.to_le_bytes());
        local
            .set(&key.to_le_bytes(), &[7; 30])
            .expect("it is there already");
    }
    local.close().unwrap();
}

#[test]
fn a_directory_that_is_open_is_refused_and_the_error_says_by_whom() {
    let scratch = Scratch::new("lock");
    let store = Penstock::open(&scratch.0, options()).unwrap();
    let second = Penstock::open(&scratch.0, options());
    let third = Penstock::open_local(&scratch.0, options());
    for error in [second.err().unwrap(), third.err().unwrap()] {
        assert!(matches!(error, OpenError::Directory(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&std::process::id().to_string()), "{text}");
    }
    store.set(b"still", b"here").wait().unwrap();
    store.close().unwrap();
    Penstock::open(&scratch.0, options()).unwrap();
}

#[test]
fn a_store_whose_directory_another_process_has_locked_answers_no_more_and_says_why() {
    let scratch = Scratch::new("lock-lost");
    // One step puts a LOCK in place that this test has locked, as an older build would.
    let take_as_before = || {
        let name = scratch.0.join("LOCK.test");
        std::fs::write(&name, "4711\n").unwrap();
        let file = std::fs::File::open(&name).unwrap();
        file.try_lock().unwrap();
        std::fs::rename(&name, scratch.0.join("LOCK")).unwrap();
        file
    };
    let refusal = |mut set: Box<dyn FnMut() -> Option<ClientError> + '_>| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            if let Some(error) = set() {
                break error.to_string();
            }
            assert!(std::time::Instant::now() < until, "it goes on");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let text = "process 4711 has locked the directory since";

    let store = Penstock::open(&scratch.0, options()).unwrap();
    store.set(b"key", b"1").wait().unwrap();
    let held = take_as_before();
    let error = refusal(Box::new(|| store.set(b"key", b"2").wait().err()));
    assert!(error.contains(text), "{error}");
    let closed = store.close().unwrap_err().to_string();
    assert!(closed.contains(text), "{closed}");
    drop(held);

    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    assert!(local.get(b"key").unwrap().is_some());
    let held = take_as_before();
    let error = refusal(Box::new(|| local.set(b"key", b"3").err()));
    assert!(error.contains(text), "{error}");
    drop((local, held));
    Penstock::open(&scratch.0, options()).unwrap();
}

#[test]
fn a_wrong_option_is_named_with_its_limit() {
    let scratch = Scratch::new("options");
    for (wrong, named, limit) in [
        (options().segment_bytes(100), "segment-bytes", "1044KiB"),
        (options().shards(300), "shards", "256"),
        (options().pending_max(0), "pending_max", "1"),
        (options().level(AckLevel::Replica), "replica", "disk"),
        (
            options().value_bytes_max(32 << 20),
            "value-bytes-max",
            "16MiB",
        ),
    ] {
        let text = Penstock::open(&scratch.0, wrong).err().unwrap().to_string();
        assert!(text.contains(named) && text.contains(limit), "{text}");
    }
    assert!(!scratch.0.exists(), "nothing was made");
}

#[test]
fn a_store_of_several_shards_is_opened_by_one_thread_with_all_that_is_in_it() {
    if two_shards_or_one() < 2 {
        eprintln!("SKIPPED: two shards need two CPUs");
        return;
    }
    let scratch = Scratch::new("shards");
    let store = Penstock::open(&scratch.0, options().shards(2)).unwrap();
    for key in 0..200u64 {
        let set = store.set(&key.to_le_bytes(), &(key * 3).to_le_bytes());
        set.wait().unwrap();
    }
    store.close().unwrap();
    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    for key in 0..200u64 {
        let found = local.get(&key.to_le_bytes()).unwrap().expect("it was set");
        assert_eq!(found.bytes, &(key * 3).to_le_bytes()[..]);
    }
}

#[test]
fn what_cannot_be_done_is_an_error_that_says_why_and_nothing_else_breaks() {
    let scratch = Scratch::new("refusals");
    let store = Penstock::open(&scratch.0, options()).unwrap();
    let mut refusals = vec![
        store.set(b"", b"x").wait().unwrap_err(),
        store.get(&[b'k'; 1025]).wait().map(drop).unwrap_err(),
        store.get(&vec![b'k'; 70_000]).wait().map(drop).unwrap_err(),
        store
            .set(b"k", &vec![0; (64 << 10) + 1])
            .wait()
            .unwrap_err(),
        store.set(b"k", &vec![0; 3 << 20]).wait().unwrap_err(),
        store
            .with_level(AckLevel::Replica)
            .set(b"k", b"v")
            .wait()
            .unwrap_err(),
    ];
    let guarded = store.update_if(b"k", &[Field::u32(0).at_least(1)]).wait();
    assert!(matches!(&guarded, Err(ClientError::No(answer)) if answer.status == Status::NotFound));
    let stale = Condition::Version(Version {
        epoch: 1,
        sequence: 9,
    });
    assert!(matches!(
        store.set_if(b"k", b"v", stale).wait(),
        Err(ClientError::No(_))
    ));
    store.set(b"k", b"v").wait().unwrap();
    store.close().unwrap();

    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    refusals.push(local.set(b"", b"x").unwrap_err());
    refusals.push(local.set(b"k", &vec![0; 3 << 20]).unwrap_err());
    for refusal in refusals {
        assert!(matches!(refusal, ClientError::Refused(_)), "{refusal:?}");
        assert!(refusal.to_string().len() > 10, "{refusal}");
    }
    assert_eq!(&local.get(b"k").unwrap().unwrap().bytes[..], b"v");
}

#[test]
fn concurrent_buyers_never_oversell_and_sold_out_is_an_answer() {
    const STOCK: u64 = 2_000;
    const BUYERS: usize = 4;
    let scratch = Scratch::new("decrement");
    let options = options().shards(two_shards_or_one());
    let store = Penstock::open(&scratch.0, options.clone()).unwrap();
    let keys: Vec<Vec<u8>> = (0..3).map(|n| format!("stock:{n}").into_bytes()).collect();
    for key in &keys {
        store.set(key, &STOCK.to_le_bytes()).wait().unwrap();
    }
    let sold = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for buyer in 0..BUYERS {
            // Some share a handle, some have one of their own, some ask for less.
            let store = match buyer {
                0 => store.clone(),
                1 => store.with_level(AckLevel::None),
                _ => store.with_level(AckLevel::Interval),
            };
            let (keys, sold) = (&keys, &sold);
            scope.spawn(move || {
                let stock = Field::u64(0);
                let buy = [stock.at_least(1), stock.decrease(1)];
                for key in keys {
                    loop {
                        match store.update_if(key, &buy).wait() {
                            Ok(changed) => {
                                assert!(changed.fields[0] < STOCK);
                                sold.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(ClientError::No(answer)) => {
                                assert_eq!(answer.status, Status::GuardFailed);
                                assert_eq!(answer.actual(), Some(0));
                                break;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(sold.load(Ordering::Relaxed), STOCK * keys.len() as u64);
    store.close().unwrap();
    let store = Penstock::open(&scratch.0, options).unwrap();
    for key in &keys {
        let left = store.get_with(key, |value, _| {
            u64::from_le_bytes(value.try_into().unwrap())
        });
        assert_eq!(left.unwrap(), Some(0));
    }
}

#[test]
fn a_batch_answers_each_operation_in_its_order_over_all_shards() {
    let scratch = Scratch::new("batch");
    let store = Penstock::open(&scratch.0, options().shards(two_shards_or_one())).unwrap();
    let key = |number: usize| format!("key:{number}").into_bytes();
    let value = |number: usize| vec![u8::try_from(number % 251).unwrap(); number % 3000];
    let mut batch = store.batch();
    // More than one frame, by items and by bytes.
    for number in 0..3000 {
        batch.set(&key(number), &value(number));
    }
    assert_eq!(batch.len(), 3000);
    let outcomes = batch.submit().wait();
    assert_eq!(outcomes.len(), 3000);
    for outcome in outcomes {
        assert_eq!(outcome.unwrap().status, Status::Ok);
    }
    let mut batch = store.batch();
    for number in 0..3001 {
        batch.get(&key(number));
    }
    batch.del(&key(5));
    batch.get(&key(5));
    batch.set(b"", b"refused");
    let mut outcomes = block_on(batch.submit());
    assert_eq!(outcomes.len(), 3004);
    for (number, outcome) in outcomes[..3000].iter().enumerate() {
        assert_eq!(outcome.as_ref().unwrap().value, value(number), "{number}");
    }
    let statuses: Vec<Status> = outcomes
        .drain(3000..)
        .map(|outcome| outcome.unwrap().status)
        .collect();
    assert_eq!(
        statuses[..3],
        [Status::NotFound, Status::Ok, Status::NotFound]
    );
    assert_ne!(statuses[3], Status::Ok);
    drop(store.batch());
    let mut unsent = store.batch();
    unsent.set(b"unsent", b"x");
    drop(unsent);
    assert_eq!(store.get(b"unsent").wait().unwrap(), None);
    store.close().unwrap();
}

#[test]
fn an_edit_keeps_the_expiry_and_a_read_shows_it() {
    let scratch = Scratch::new("expiry");
    let mut store = Penstock::open_local(&scratch.0, options()).unwrap();
    let until = Expiry::At(4_000_000_000_000);
    store
        .set_with(b"hold", b"2", Condition::Absent, until)
        .unwrap();
    let edited = store.update(b"hold", |bytes| {
        bytes.push(b'!');
        true
    });
    assert!(edited.unwrap().is_some());
    let expiry = store.expiry(b"hold").unwrap().unwrap();
    assert_eq!(expiry.expiry_ms, 4_000_000_000_000);
    store.set_expiry(b"hold", Expiry::Never).unwrap();
    assert_eq!(store.expiry(b"hold").unwrap().unwrap().left_ms(), None);
    store.set_expiry(b"hold", Expiry::At(1)).unwrap();
    assert_eq!(store.get(b"hold").unwrap(), None);
    assert_eq!(store.expiry(b"hold").unwrap(), None);
}

/// Bytes that cleaning has copied.
fn moved_bytes(store: &mut Local) -> u64 {
    let info = store.info().unwrap();
    let (_, rest) = info.split_once("\"moved_bytes\":").unwrap();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

/// Values of 3 MiB that an earlier start accepted, under a limit of 64 KiB.
#[test]
fn values_beyond_a_lowered_limit_are_read_edited_and_cleaned() {
    let scratch = Scratch::new("lowered");
    let wide = options().segment_bytes(32 << 20).value_bytes_max(3 << 20);
    let narrow = options().segment_bytes(32 << 20).cache_bytes(1 << 20);
    let large = |n: u8| {
        let mut value = vec![n; 3 << 20];
        value[..8].copy_from_slice(&7_u64.to_le_bytes());
        value
    };
    let mut store = Penstock::open_local(&scratch.0, wide).unwrap();
    for n in 0..4 {
        store.set(&[b'L', n], &large(n)).unwrap();
        // Soon dead, so that cleaning has to copy the large values to give that back.
        for _ in 0..60 {
            store.set(b"dead", &[1; 64 << 10]).unwrap();
        }
    }
    store.del(b"dead").unwrap();
    store.close().unwrap();

    let mut store = Penstock::open_local(&scratch.0, narrow.clone()).unwrap();
    let refused = store.set(b"new", &large(9)).unwrap_err();
    assert!(refused.to_string().contains("65536"), "{refused}");
    for n in 0..4 {
        assert!(store.get(&[b'L', n]).unwrap().unwrap().bytes[..] == large(n)[..]);
    }
    let one_less = [Field::u64(0).at_least(1), Field::u64(0).decrease(1)];
    store.update_if(&[b'L', 0], &one_less).unwrap();
    // Half of each segment from here on is dead, and more of the first one: that pays most.
    let mut written = 0_u32;
    while moved_bytes(&mut store) < 3 << 20 {
        assert!(written < 20_000, "nothing was cleaned");
        for _ in 0..100 {
            store.set(&written.to_le_bytes(), &[1; 64 << 10]).unwrap();
            if written % 2 == 1 {
                store.del(&written.to_le_bytes()).unwrap();
            }
            written += 1;
        }
    }
    store.close().unwrap();

    let tight = options();
    let refused = Penstock::open_local(&scratch.0, tight).err().unwrap();
    assert!(refused.to_string().contains("3145728"), "{refused}");
    let store = Penstock::open(&scratch.0, narrow).unwrap();
    for n in 0..4 {
        let mut expected = large(n);
        if n == 0 {
            expected[..8].copy_from_slice(&6_u64.to_le_bytes());
        }
        let found = store.get(&[b'L', n]).wait().unwrap().unwrap();
        assert!(found.bytes[..] == expected[..], "value {n}");
    }
    store.close().unwrap();
}

/// Takes one of the stock and makes a hold, once.
fn order(number: u32) -> Apply {
    let mut order = Apply::new();
    let stock = order.key(b"stock:{tee}");
    let hold = order.key(format!("hold:{{tee}}:{number}").as_bytes());
    order
        .then(hold.is_absent().or_else(2))
        .then(stock.u32(0).decrease(1u64).or_else(1))
        .put(hold, &number.to_le_bytes())
        .then(hold.expire_in(600_000));
    order
}

#[test]
fn an_apply_changes_all_of_its_keys_or_none_in_every_store_and_over_a_restart() {
    let scratch = Scratch::new("apply");
    let store = Penstock::open(&scratch.0, options().shards(1)).unwrap();
    store
        .set(b"stock:{tee}", &4u32.to_le_bytes())
        .wait()
        .unwrap();
    let held = store.apply(&order(1)).wait().unwrap();
    assert_eq!((&held.fields[..], held.level), (&[3][..], AckLevel::Disk));
    let denied = |outcome: Result<Changed, ClientError>| match outcome {
        Err(ClientError::No(answer)) => (answer.status, answer.failed(), answer.reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        denied(store.apply(&order(1)).wait()),
        (Status::GuardFailed, Some(0), 2)
    );
    let mut batch = store.batch();
    for number in [2, 1, 3] {
        batch.apply(&order(number));
    }
    let statuses: Vec<Status> = batch
        .submit()
        .wait()
        .into_iter()
        .map(|outcome| outcome.unwrap().status)
        .collect();
    assert_eq!(
        statuses,
        [Status::Ok, Status::GuardFailed, Status::Ok],
        "each item by itself"
    );
    store.close().unwrap();

    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    assert_eq!(&local.apply(&order(4)).unwrap().fields[..], [0]);
    assert_eq!(
        denied(local.apply(&order(5))),
        (Status::GuardFailed, Some(1), 1)
    );
    assert_eq!(local.get(b"hold:{tee}:5").unwrap(), None);
    for number in 1..=4u32 {
        let hold = format!("hold:{{tee}}:{number}");
        let value = local.get(hold.as_bytes()).unwrap().expect("held");
        assert_eq!(&value.bytes[..], number.to_le_bytes());
        assert!(local.expiry(hold.as_bytes()).unwrap().unwrap().expiry_ms > 0);
    }
    let mut many = Apply::new();
    let names: Vec<String> = (0..100).map(|it| format!("{{tee}}many{it}")).collect();
    for name in &names {
        let key = many.key(name.as_bytes());
        many.then(key.is_absent()).put(key, b"all");
    }
    local.apply(&many).unwrap();
    local.close().unwrap();
    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    for name in &names {
        let value = local.get(name.as_bytes()).unwrap();
        assert_eq!(&value.expect("one of all").bytes[..], b"all");
    }
    assert_eq!(denied(local.apply(&many)).0, Status::GuardFailed);
    local.close().unwrap();
}

#[test]
fn one_thread_submits_many_operations_and_each_has_its_outcome() {
    let scratch = Scratch::new("submit");
    let mut store = Penstock::open_local(&scratch.0, options()).unwrap();
    let keys: Vec<Vec<u8>> = (0..2500).map(|n| format!("key:{n}").into_bytes()).collect();
    let sets: Vec<Ask<'_>> = keys
        .iter()
        .map(|key| Ask::Set {
            key,
            value: key,
            when: Condition::Absent.into(),
            expiry: Expiry::Never,
        })
        .collect();
    assert!(
        store
            .submit(&sets)
            .into_iter()
            .all(|outcome| outcome.unwrap().status == Status::Ok)
    );
    let again = store.submit(&sets[..3]);
    assert!(
        again
            .into_iter()
            .all(|outcome| outcome.unwrap().status == Status::Exists)
    );
    let gets: Vec<Ask<'_>> = keys
        .iter()
        .map(|key| Ask::Get {
            key,
            wanted: Wanted::Value,
        })
        .collect();
    for (outcome, key) in store.submit(&gets).into_iter().zip(&keys) {
        assert_eq!(outcome.unwrap().value, key);
    }
    assert!(store.submit(&[]).is_empty());
    assert!(store.info().unwrap().contains("\"keys\":2500"));
}

#[test]
fn a_read_without_a_frame_shows_what_a_frame_is_answered() {
    let scratch = Scratch::new("look");
    // Of 4 MiB of values two stay in memory: some keys are cold, others not.
    let options = options().cache_bytes(2 << 20);
    let mut store = Penstock::open_local(&scratch.0, options).unwrap();
    let seed = std::env::var("PENSTOCK_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("PENSTOCK_SEED={seed}");
    let mut state: u64 = seed;
    let mut below = move |end: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 33) % end
    };
    let mut shown = [0; 2];
    for round in 0..20_000u32 {
        let key = format!("key:{}", below(400)).into_bytes();
        store.set_level([AckLevel::None, AckLevel::Disk][usize::from(below(200) == 0)]);
        match below(6) {
            0 | 1 => {
                let value = vec![round.to_le_bytes()[0]; usize::try_from(below(20_000)).unwrap()];
                let expiry = match below(4) {
                    0 => Expiry::At(1 + below(2) * 4_000_000_000_000),
                    _ => Expiry::Never,
                };
                store
                    .set_with(&key, &value, Condition::Always, expiry)
                    .unwrap();
            }
            2 => drop(store.del(&key).unwrap()),
            _ => {}
        }
        let framed = store.submit(&[Ask::Get {
            key: &key,
            wanted: Wanted::Value,
        }]);
        let framed = framed.into_iter().next().unwrap().unwrap().found().unwrap();
        let read = store.get(&key).unwrap();
        assert_eq!(read, framed, "round {round}, key {}", key.escape_ascii());
        shown[usize::from(read.is_some())] += 1;
    }
    assert!(
        shown.iter().all(|&times| times > 1000),
        "{shown:?}: missing and found"
    );
    assert!(store.get(b"").is_err());
    assert!(store.get(&[7; 1025]).is_err());
    store.set_level(AckLevel::Replica);
    assert!(store.get(b"key:1").is_err());
}

#[test]
fn a_read_at_level_disk_shows_only_what_is_durable() {
    let scratch = Scratch::new("look-durable");
    let mut store = Penstock::open_local(&scratch.0, options()).unwrap();
    let durable_lsn = |store: &mut penstock::embedded::Local| -> u64 {
        let info = store.info().unwrap();
        let (_, rest) = info.split_once("\"durable_lsn\":").unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    };
    for number in 1..=50u64 {
        store.set_level(AckLevel::None);
        let changed = match number % 2 {
            0 => store.set(b"stock", &number.to_le_bytes()).map(drop),
            _ => store.del(b"stock").map(drop),
        };
        changed.unwrap();
        store.set_level(AckLevel::Disk);
        let found = store.get(b"stock").unwrap();
        assert_eq!(found.is_some(), number % 2 == 0);
        // The first DEL finds nothing and logs nothing.
        assert!(durable_lsn(&mut store) >= number - 1, "change {number}");
    }
}

#[test]
fn what_is_dropped_unwaited_still_happens_and_its_room_is_used_again() {
    let scratch = Scratch::new("unwaited");
    let options = options().pending_max(8).level(AckLevel::None);
    let store = Penstock::open(&scratch.0, options).unwrap();
    let mut refused = 0;
    for number in 0..2000u32 {
        let pending = store.set(b"last", &number.to_le_bytes());
        if number % 2 == 0 {
            drop(pending);
        } else if let Err(error) = pending.wait() {
            assert!(matches!(error, ClientError::Busy(_)), "{error}");
            refused += 1;
        }
    }
    assert!(refused < 2000);
    store.set(b"last", b"done").wait().unwrap();
    assert_eq!(
        &store.get(b"last").wait().unwrap().unwrap().bytes[..],
        b"done"
    );
    // The room of what was dropped comes back when its answer does, which nobody waited for.
    let is_used_again = (0..1000).any(|_| {
        let held: Vec<_> = (0..9).map(|_| store.get(b"last")).collect();
        let outcomes: Vec<_> = held.into_iter().map(|pending| pending.wait()).collect();
        matches!(outcomes[8], Err(ClientError::Busy(_))) && outcomes[..8].iter().all(Result::is_ok)
    });
    assert!(is_used_again, "eight have room at a time, and no more");
}

#[test]
fn a_threads_pipelined_operations_on_a_key_run_in_their_order() {
    let scratch = Scratch::new("order");
    let store = Penstock::open(&scratch.0, options()).unwrap();
    // Values so large that the log has no room now and then.
    let pending: Vec<_> = (0..400u32)
        .map(|number| {
            let mut value = vec![0; 60 << 10];
            value[..4].copy_from_slice(&number.to_le_bytes());
            let set = store.set(b"key", &value);
            (set, store.get(b"key"))
        })
        .collect();
    for (number, (set, get)) in (0u32..).zip(pending) {
        set.wait().unwrap();
        let found = get.wait().unwrap().unwrap();
        assert_eq!(&found.bytes[..4], &number.to_le_bytes());
    }
}

#[test]
fn a_handle_that_outlives_the_store_is_refused_by_name() {
    let scratch = Scratch::new("outlive");
    let store = Penstock::open(&scratch.0, options()).unwrap();
    let handle = store.clone();
    // Asked before the first segment file is there: executed or refused, but not unknown.
    let early = store.set(b"k", b"v");
    store.close().unwrap();
    assert!(matches!(early.wait(), Ok(_) | Err(ClientError::Busy(_))));
    assert!(matches!(
        handle.get(b"k").wait(),
        Err(ClientError::NotSent(_))
    ));
    assert!(matches!(handle.info().wait(), Err(ClientError::NotSent(_))));
    let mut batch = handle.batch();
    batch.get(b"k");
    assert!(matches!(
        batch.submit().wait()[..],
        [Err(ClientError::NotSent(_))]
    ));
    handle.close().unwrap();
}

/// It is amid the rewriting of an old log, so it has something to make durable at its end, and
/// neither a session nor a snapshot whose deadlines would wake it.
#[test]
fn a_shard_that_nobody_asked_anything_ends_when_the_store_is_closed() {
    if two_shards_or_one() < 2 {
        eprintln!("SKIPPED: two shards need two CPUs");
        return;
    }
    let scratch = Scratch::new("unasked");
    let mut local = Penstock::open_local(&scratch.0, options().level(AckLevel::None)).unwrap();
    for key in 0..1_000u64 {
        local.set(&key.to_le_bytes(), &[7; 60 << 10]).unwrap();
    }
    local.close().unwrap();
    let store = Penstock::open(&scratch.0, options().shards(2)).unwrap();
    // INFO is the first shard's; the other one is asked nothing.
    let long = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while store.info().wait().unwrap().contains("\"moved_bytes\":0") {
        assert!(std::time::Instant::now() < long, "nothing is rewritten");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (ended, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(store.close()));
    let closed = waits.recv_timeout(std::time::Duration::from_secs(60));
    closed.expect("it ends").unwrap();
}

#[test]
fn callers_that_meet_the_close_get_an_answer_each() {
    let scratch = Scratch::new("meet");
    for _ in 0..8 {
        let store = Penstock::open(&scratch.0, options().level(AckLevel::None)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let store = store.clone();
                scope.spawn(move || {
                    loop {
                        match store.set(b"k", b"v").wait() {
                            Ok(_) => {}
                            Err(ClientError::Busy(_)) => {}
                            Err(ClientError::NotSent(_)) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            while store.get(b"k").wait().unwrap().is_none() {}
            store.close().unwrap();
        });
    }
}

#[test]
fn an_edit_by_closure_is_tried_again_until_nobody_came_between() {
    let scratch = Scratch::new("edit");
    // Far above what four writers of one key take on the busiest machine.
    let patient = options()
        .level(AckLevel::None)
        .deadline(std::time::Duration::from_secs(300));
    let store = Penstock::open(&scratch.0, patient).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let store = store.clone();
            scope.spawn(move || {
                for _ in 0..150 {
                    let added = store.update(b"n", |value| {
                        let n = value.first_chunk().map_or(0, |n| u32::from_le_bytes(*n));
                        *value = (n + 1).to_le_bytes().to_vec();
                        true
                    });
                    added.unwrap().unwrap();
                }
            });
        }
    });
    assert_eq!(
        &store.get(b"n").wait().unwrap().unwrap().bytes[..],
        &600u32.to_le_bytes()
    );
    assert_eq!(store.update(b"n", |_| false).unwrap(), None);
}

#[test]
fn a_write_that_lost_shows_what_is_there_in_both_kinds_of_store() {
    let scratch = Scratch::new("shown");
    let value = vec![7; 60_000];
    let check = |outcome: Result<Changed, ClientError>| match outcome {
        Err(ClientError::No(answer)) => {
            let shown = answer.shown().expect("shown");
            assert!(answer.status == Status::Exists && shown.bytes == value);
            shown.version
        }
        other => panic!("{other:?}"),
    };
    let (absent, never) = (Condition::Absent, Expiry::Never);
    let store = Penstock::open(&scratch.0, options()).unwrap();
    let set = store.set(b"k", &value).wait().unwrap();
    let shown = check(
        store
            .set_with(b"k", b"lost", absent.showing(), never)
            .wait(),
    );
    assert_eq!(shown, set.version);
    let plain = store.set_if(b"k", b"lost", absent).wait();
    assert!(matches!(plain, Err(ClientError::No(answer)) if answer.shown().is_none()));
    store.close().unwrap();
    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    assert_eq!(
        check(local.set_with(b"k", b"lost", absent.showing(), never)),
        set.version
    );
    let other = Condition::Version(Default::default());
    match local.del_if(b"k", other.showing()) {
        Err(ClientError::No(answer)) => assert!(answer.shown().unwrap().bytes == value),
        other => panic!("{other:?}"),
    }
    local.set_expiry(b"k", Expiry::At(1)).unwrap();
    let edited = local.update(b"k", |bytes| bytes.is_empty());
    assert!(edited.unwrap().is_some());
}

#[test]
fn operations_are_futures_in_any_executor() {
    let scratch = Scratch::new("futures");
    // Without a watch, so that every answer has to wake its task.
    let options = options().spin(std::time::Duration::ZERO);
    let store = Penstock::open(&scratch.0, options).unwrap();
    let total = block_on(async {
        for number in 0..50u32 {
            store.set(&number.to_le_bytes(), b"x").await.unwrap();
        }
        let mut total = 0;
        for number in 0..60u32 {
            total += usize::from(store.get(&number.to_le_bytes()).await.unwrap().is_some());
        }
        total
    });
    assert_eq!(total, 50);
    assert!(
        block_on(store.info())
            .unwrap()
            .contains("\"shard_count\":1")
    );
}

/// Runs a future on the calling thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn programs_of_a_directory_run_in_both_stores_and_others_are_unknown() {
    let scratch = Scratch::new("programs");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/programs");
    let options = || options().schema(schema);
    let store = Penstock::open(&scratch.0, options()).unwrap();
    let restock = store.program("restock").expect("shipped");
    assert_eq!(store.program("no such one"), None);
    let run = Run::new(restock)
        .key(b"stock:{42}")
        .argument(7u32)
        .argument(2u32);
    assert_eq!(store.run(&run).wait().unwrap().fields.to_vec(), [7, 2]);
    store.close().unwrap();

    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    assert_eq!(local.program("restock"), Some(restock));
    assert_eq!(local.run(&run).unwrap().fields.to_vec(), [14, 2]);
    local.close().unwrap();

    let store = Penstock::open(&scratch.0, super::store::options()).unwrap();
    match store.run(&run).wait() {
        Err(ClientError::Refused(answer)) => assert_eq!(answer.status, Status::UnknownProgram),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.program("restock"), None);
    store.close().unwrap();
    let broken = options().schema(scratch.0.join("nowhere"));
    match Penstock::open(&scratch.0, broken) {
        Err(OpenError::Option(text)) => assert!(text.contains("cannot be read"), "{text}"),
        Ok(_) => panic!("it opens"),
        Err(other) => panic!("{other}"),
    }
}
