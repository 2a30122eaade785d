//! The everyday work of an embedded store, for those who know another one.
//!
//! ```text
//! cargo run --release -p penstock --example key_value
//! ```
//!
//! | elsewhere | here |
//! |---|---|
//! | `insert(key, value)`, `put`, `set` | `set(key, value)` |
//! | `get(key)` | `get(key)`; `get_with(key, view)` without a copy |
//! | `remove(key)`, `delete` | `del(key)` |
//! | `scan_prefix`, `prefix`, `range`, `iter` | `scan(prefix, with values)`, or page by page: `scan_page`; in the order of a hash, not of keys |
//! | a batch that is committed | `batch()`, `submit()`: together on their way, each by itself in effect |
//! | a transaction that reads, checks and writes one key | `update_if(key, guards and effects)`, or `update(key, closure)` |
//! | a transaction on several keys | `apply(guards and effects)` on up to eight keys with one `{tag}` |
//! | `flush`, `persist(SyncAll)`, `Durability::Immediate` | nothing: level `disk` is the default |
//! | `Durability::Eventual`, `Durability::None` | `with_level(AckLevel::Interval)`, `with_level(AckLevel::None)` |

use std::error::Error;

use penstock::embedded::ClientError;
use penstock::{Options, Penstock, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::Condition;
use penstock_net::status::Status;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("penstock-key-value-{}", std::process::id()));
    let store = Penstock::open(&directory, Options::default())?;

    // Insert, get, remove. Each call is an operation on its way; `wait` blocks, `.await` works too.
    store.set(b"city:1", b"Lisbon").wait()?;
    let found = store.get(b"city:1").wait()?.ok_or("it was just written")?;
    println!(
        "city:1 is {:?}, version {}",
        found.bytes, found.version.sequence
    );
    assert!(store.del(b"city:1").wait()?);
    assert_eq!(store.get(b"city:1").wait()?, None);

    // Only if nobody wrote it before, or since it was read.
    store
        .set_if(b"city:2", b"Porto", Condition::Absent)
        .wait()?;
    match store.set_if(b"city:2", b"Braga", Condition::Absent).wait() {
        Err(ClientError::No(answer)) => assert_eq!(answer.status, Status::Exists),
        other => return Err(format!("it exists, and yet {other:?}").into()),
    }

    // A thousand at once share the way and the disk.
    let mut batch = store.batch();
    for number in 0..1000u32 {
        batch.set(format!("item:{number}").as_bytes(), &number.to_le_bytes());
    }
    for outcome in batch.submit().wait() {
        assert_eq!(outcome?.status, Status::Ok);
    }

    // Several on their way at once; each has an outcome of its own.
    let pending: Vec<_> = (0..10)
        .map(|n| store.get(format!("item:{n}").as_bytes()))
        .collect();
    for (number, pending) in (0u32..).zip(pending) {
        let value = pending.wait()?.ok_or("it was in the batch")?;
        assert_eq!(value.bytes[..], number.to_le_bytes());
    }

    // All keys that begin so, page by page behind the scenes, while anybody may write.
    let mut sum = 0;
    for entry in store.scan(b"item:", true) {
        let value = entry?.value.ok_or("it was asked for")?;
        sum += u32::from_le_bytes(value[..].try_into()?);
    }
    assert_eq!(sum, 999 * 1000 / 2);

    // Read, change and write back, again if somebody was faster.
    store.update(b"city:2", |value| {
        value.extend_from_slice(b", Portugal");
        true
    })?;

    // Where a crash may take the last moments, a write need not wait for the disk.
    let hurried = store.with_level(AckLevel::Interval);
    hurried.set(b"visits", b"1").wait()?;

    store.close()?;
    let store = Penstock::open(&directory, Options::default())?;
    let city = store.get_with(b"city:2", |value, _version| {
        String::from_utf8_lossy(value).into_owned()
    })?;
    println!("after another start: city:2 is {city:?}");
    assert_eq!(city.as_deref(), Some("Porto, Portugal"));
    store.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
