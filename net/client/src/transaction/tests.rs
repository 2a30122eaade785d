//! Transactions on a store of the test's own: a map that runs APPLY as a shard does.

mod interleaved;
mod limits;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use penstock_net::apply::{ApplyKeys, ApplyRequest, Cause, Effects, run};
use penstock_net::level::AckLevel;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{KeyExpiry, NO_INSTRUCTION};
use penstock_net::request::{Ask, Expiry, Token, Version};
use penstock_net::status::Status;

use super::*;
use crate::named::new_token;
use crate::operation::{Answer, ClientError, Execution};

/// The time of the store.
const NOW_MS: u64 = 1_000_000;
const VALUE_BYTES_MAX: u32 = 1024;

/// A value and its expiry, 0 for never.
type Stored = (Vec<u8>, Version, u64);

#[derive(Debug, Default)]
pub(super) struct Map {
    pub(super) keys: BTreeMap<Vec<u8>, Stored>,
    sequence: u64,
    /// What was asked: the verb, and the token.
    pub(super) asked: Vec<(&'static str, Option<Token>)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Store(pub(super) Rc<RefCell<Map>>);

impl Store {
    pub(super) fn begin(&self, isolation: Isolation) -> Transaction<Store> {
        Transaction::begin(self.clone(), isolation)
    }

    /// Another writer writes a key.
    pub(super) fn write(&self, key: &[u8], value: &[u8]) {
        self.write_until(key, value, 0);
    }

    fn write_until(&self, key: &[u8], value: &[u8], expiry_ms: u64) {
        let mut map = self.0.borrow_mut();
        let version = map.next_version();
        map.keys
            .insert(key.to_vec(), (value.to_vec(), version, expiry_ms));
    }

    pub(super) fn number(&self, key: &[u8]) -> Option<u64> {
        let map = self.0.borrow();
        map.keys.get(key).map(|(bytes, _, _)| number(bytes))
    }

    fn expiry(&self, key: &[u8]) -> u64 {
        self.0.borrow().keys[key].2
    }

    pub(super) fn asked(&self) -> usize {
        self.0.borrow().asked.len()
    }
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

impl Transacted for Store {
    type Asked = Ready<Result<Answer, ClientError>>;

    fn ask(&mut self, ask: Ask<'_>, token: Option<Token>) -> Self::Asked {
        let mut map = self.0.borrow_mut();
        let answer = match ask {
            Ask::Get { key, .. } => {
                map.asked.push(("get", token));
                map.get(key)
            }
            Ask::Apply(_) => {
                map.asked.push(("apply", token));
                map.apply(&ask.encode())
            }
            other => panic!("{other:?}"),
        };
        ready(answer.ok())
    }

    fn value_bytes_max(&self) -> Option<u32> {
        Some(VALUE_BYTES_MAX)
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}

impl Map {
    fn next_version(&mut self) -> Version {
        self.sequence += 1;
        Version {
            epoch: 1,
            sequence: self.sequence,
        }
    }

    fn get(&self, key: &[u8]) -> Answer {
        match self.keys.get(key) {
            None => answer(Status::NotFound, Version::default(), Vec::new()),
            Some((bytes, version, expiry_ms)) => Answer {
                expiry: Some(KeyExpiry {
                    expiry_ms: *expiry_ms,
                    time_ms: NOW_MS,
                }),
                ..answer(Status::Ok, *version, bytes.clone())
            },
        }
    }

    fn apply(&mut self, item: &[u8]) -> Answer {
        let request = ApplyRequest::read(item, VALUE_BYTES_MAX).expect("well formed");
        let found = |key: &[u8]| self.keys.get(key).cloned();
        let before: Vec<Option<Stored>> = request.keys().map(found).collect();
        let mut staged = Staged {
            now: before.clone(),
            changed: vec![false; before.len()],
            before,
        };
        let mut numbers = Vec::new();
        if let Err(denial) = run(&request, NOW_MS, &mut staged, &mut numbers) {
            let (status, value) = match denial.cause {
                Cause::NotFound => (Status::NotFound, Vec::new()),
                Cause::Guard { actual, .. } => (Status::GuardFailed, actual.to_le_bytes().to_vec()),
                Cause::Version(version) => (Status::VersionMismatch, version.to_bytes().to_vec()),
                Cause::Refused(refusal) => (refusal.status(), refusal.to_string().into_bytes()),
            };
            return Answer {
                instruction: u8::try_from(denial.instruction).expect("few"),
                reason: denial.reason,
                ..answer(status, Version::default(), value)
            };
        }
        let version = self.next_version();
        for (at, key) in request.keys().enumerate() {
            if !staged.changed[at] {
                continue;
            }
            match staged.now[at].take() {
                None => self.keys.remove(key),
                Some((bytes, _, expiry)) => {
                    self.keys.insert(key.to_vec(), (bytes, version, expiry))
                }
            };
        }
        answer(Status::Ok, version, numbers)
    }
}

fn answer(status: Status, version: Version, value: Vec<u8>) -> Answer {
    Answer {
        status,
        reason: 0,
        instruction: NO_INSTRUCTION,
        is_overflow: false,
        is_shown: false,
        execution: Execution::Now,
        level: AckLevel::Disk,
        version,
        expiry: None,
        standing: None,
        value: value.into(),
    }
}

/// The keys of an APPLY that runs.
struct Staged {
    before: Vec<Option<Stored>>,
    now: Vec<Option<Stored>>,
    changed: Vec<bool>,
}

impl<'a> ApplyKeys<'a> for Staged {
    fn existed(&self, key: usize) -> bool {
        self.before[key].is_some()
    }

    fn version(&self, key: usize) -> Version {
        self.before[key]
            .as_ref()
            .map_or_else(Version::default, |it| it.1)
    }

    fn may_have_changed(&self, _: usize, _: Version) -> bool {
        unreachable!("no transaction asks")
    }

    fn value(&self, key: usize) -> Option<&[u8]> {
        self.now[key].as_ref().map(|it| &it.0[..])
    }

    fn field_mut(&mut self, key: usize, start: usize, width: usize) -> &mut [u8] {
        self.changed[key] = true;
        &mut self.now[key].as_mut().expect("present").0[start..][..width]
    }

    fn log_unchanged(&mut self, key: usize) {
        self.changed[key] = true;
    }

    fn replace(&mut self, key: usize, value: &[u8]) {
        self.changed[key] = true;
        self.now[key].as_mut().expect("present").0 = value.to_vec();
    }

    fn put_keeping(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal> {
        self.replace(key, value);
        Ok(())
    }

    fn put(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal> {
        self.changed[key] = true;
        self.now[key] = Some((value.to_vec(), Version::default(), 0));
        Ok(())
    }

    fn delete(&mut self, key: usize) {
        self.changed[key] |= self.before[key].is_some();
        self.now[key] = None;
    }

    fn expire(&mut self, key: usize, expiry_ms: Option<u64>) {
        self.changed[key] = true;
        self.now[key].as_mut().expect("present").2 = expiry_ms.unwrap_or(0);
    }

    fn expiry_ms(&self, key: usize) -> Option<u64> {
        let expiry_ms = self.now[key].as_ref().map_or(0, |it| it.2);
        (expiry_ms > 0).then_some(expiry_ms)
    }

    fn arm(&mut self, _key: usize, _effects: &Effects<'a>) {
        unreachable!("a transaction arms nothing");
    }
}

pub(super) fn conflict<T: std::fmt::Debug>(outcome: Result<T, TransactionError>) -> Conflict {
    match outcome {
        Err(TransactionError::Conflict(conflict)) => conflict,
        other => panic!("no conflict: {other:?}"),
    }
}

fn bytes_of(value: Option<TransactionValue>) -> Option<Bytes> {
    value.map(|it| it.bytes)
}

#[test]
fn a_key_is_asked_for_once_and_read_as_it_was() {
    let store = Store::default();
    store.write(b"{s}a", b"1");
    let mut reader = store.begin(Isolation::Serializable);
    let first = reader.get(b"{s}a").wait().expect("read").expect("present");
    assert_eq!((&first.bytes[..], first.expiry_ms), (&b"1"[..], Some(0)));
    assert!(first.version.is_some());
    store.write(b"{s}a", b"2");
    let again = reader
        .get_all(&[b"{s}a", b"{s}b", b"{s}a"])
        .wait()
        .expect("read");
    assert_eq!(again, [Some(first.clone()), None, Some(first)]);
    assert_eq!(store.asked(), 2);
    let conflict = conflict(reader.commit().wait());
    assert_eq!(conflict.key, b"{s}a");
}

#[test]
fn a_transaction_sees_what_it_has_written() {
    let store = Store::default();
    store.write(b"{s}n", &7u64.to_le_bytes());
    store.write(b"{s}gone", b"1");
    let mut own = store.begin(Isolation::Serializable);
    own.set(b"{s}new", b"{s}x").expect("set");
    own.del(b"{s}gone").expect("deleted");
    let n = own.key(b"{s}n").expect("named");
    own.then(n.u64(0).increase(3u64)).expect("added");
    own.then(n.u64(0).at_least(10u64)).expect("added");
    assert_eq!(store.asked(), 0, "nothing is asked for blind writes");
    let seen = own
        .get_all(&[b"{s}new", b"{s}gone", b"{s}n"])
        .wait()
        .expect("read");
    let seen: Vec<_> = seen.into_iter().map(bytes_of).collect();
    let ten = Bytes::copy_from_slice(&10u64.to_le_bytes());
    assert_eq!(seen, [Some(Bytes::from_static(b"{s}x")), None, Some(ten)]);
    assert_eq!(store.asked(), 1, "only the base of the sum is asked for");
    own.set(b"{s}n", b"12345678").expect("set");
    own.then(n.u64(0).increase(1u64)).expect("added");
    let changed = own.commit().wait().expect("committed").expect("written");
    // The effects of the caller in their order, and nothing of the library's own.
    assert_eq!(*changed.fields, [10, number(b"22345678")]);
    assert_eq!(store.number(b"{s}n"), Some(number(b"22345678")));
    assert_eq!(store.number(b"{s}gone"), None);
}

#[test]
fn an_operand_of_another_key_is_read_with_the_key() {
    let store = Store::default();
    store.write(b"{s}a", &1u64.to_le_bytes());
    store.write(b"{s}b", &5u64.to_le_bytes());
    let mut sum = store.begin(Isolation::Serializable);
    let (a, b) = (
        sum.key(b"{s}a").expect("named"),
        sum.key(b"{s}b").expect("named"),
    );
    sum.then(a.u64(0).increase(b.u64(0))).expect("added");
    let seen = sum.get(b"{s}a").wait().expect("read").expect("present");
    assert_eq!((number(&seen.bytes), seen.version), (6, None));
    store.write(b"{s}b", &6u64.to_le_bytes());
    assert_eq!(conflict(sum.commit().wait()).key, b"{s}b");
}

#[test]
fn a_conflict_names_the_key_and_how_it_was_expected_and_found() {
    let store = Store::default();
    for (change, key) in [
        (Some(b"2"), b"{s}a"),
        (None, b"{s}a"),
        (Some(b"2"), b"{s}b"),
    ] {
        store.write(b"{s}a", b"1");
        store.0.borrow_mut().keys.remove(&b"{s}b"[..]);
        let mut late = store.begin(Isolation::Serializable);
        let seen = late.get_all(&[b"{s}a", b"{s}b"]).wait().expect("read");
        let expected = match &seen[usize::from(key == b"{s}b")] {
            None => KeyState::Missing,
            Some(value) => KeyState::Version(value.version.expect("not its own")),
        };
        late.set(b"{s}c", b"1").expect("set");
        match change {
            Some(value) => store.write(key, value),
            None => drop(store.0.borrow_mut().keys.remove(&key[..])),
        }
        let found = match (change, key) {
            (None, _) => KeyState::Missing,
            // A guard on an absent key does not tell which version is there.
            (_, b"{s}b") => KeyState::Present,
            _ => KeyState::Version(store.0.borrow().keys[&key[..]].1),
        };
        let named = conflict(late.commit().wait());
        let key = key.to_vec();
        assert_eq!(
            named,
            Conflict {
                key,
                expected,
                found
            }
        );
        assert!(!store.0.borrow().keys.contains_key(&b"{s}c"[..]));
    }
    let text = Conflict {
        key: b"{tee}\xff".to_vec(),
        expected: KeyState::Version(Version {
            epoch: 1,
            sequence: 2,
        }),
        found: KeyState::Missing,
    };
    assert_eq!(
        text.to_string(),
        "\"{tee}\\xff\" was at version 1:2 when it was read, and is missing now"
    );
}

#[test]
fn what_was_written_since_a_savepoint_is_taken_back_and_what_was_read_stays_read() {
    let store = Store::default();
    store.write(b"{s}a", b"1");
    let mut order = store.begin(Isolation::Serializable);
    order.set(b"{s}x", b"kept").expect("set");
    order.savepoint("cart").expect("marked");
    order.set(b"{s}x", b"dropped").expect("set");
    order.savepoint("later").expect("marked");
    order.set(b"{s}y", b"dropped").expect("set");
    order.get(b"{s}a").wait().expect("read");
    order.rollback_to("cart").expect("known");
    for gone in ["later", "never"] {
        let refusal = order.rollback_to(gone).expect_err("unknown");
        let name = gone.to_string();
        let expected = TransactionRefusal::UnknownSavepoint { name };
        assert_eq!(refusal, TransactionError::Refused(expected));
    }
    order.set(b"{s}z", b"1").expect("set");
    order.rollback_to("cart").expect("it stays");
    // The same name again hides the first one, until it is rolled back behind it.
    let seen = order.get(b"{s}x").wait().expect("its own");
    assert_eq!(&bytes_of(seen).expect("present")[..], b"kept");
    store.write(b"{s}a", b"2");
    assert_eq!(conflict(order.commit().wait()).key, b"{s}a");

    let mut order = store.begin(Isolation::Serializable);
    order.savepoint("all").expect("marked");
    order.set(b"{s}x", b"1").expect("set");
    order.rollback_to("all").expect("known");
    assert_eq!(order.commit().wait().expect("nothing"), None);
    assert!(!store.0.borrow().keys.contains_key(&b"{s}x"[..]));
}

#[test]
fn a_deletion_of_a_key_that_was_not_read_does_not_care_whether_it_is_there() {
    let store = Store::default();
    store.write(b"{s}a", b"1");
    let mut blind = store.begin(Isolation::Serializable);
    blind.set(b"{s}made", b"1").expect("set");
    for key in [b"{s}a", b"{s}b"] {
        blind.del(key).expect("deleted");
    }
    blind.del(b"{s}made").expect("deleted");
    blind.commit().wait().expect("committed");
    assert_eq!(store.0.borrow().keys.len(), 0);
}

#[test]
fn a_value_that_keeps_its_expiry_is_written_where_the_old_one_lies() {
    let store = Store::default();
    let old: Vec<u8> = (0..29).collect();
    for change in [
        vec![0],
        vec![28],
        vec![8, 15, 24],
        (0..29).collect(),
        vec![],
    ] {
        store.write_until(b"{s}hold", &old, 5_000_000);
        let mut new = old.clone();
        change.iter().for_each(|at| new[*at] += 100);
        let mut keep = store.begin(Isolation::Snapshot);
        let hold = keep.get(b"{s}hold").wait().expect("read").expect("present");
        assert_eq!(hold.expiry_ms, Some(5_000_000));
        keep.set_with(b"{s}hold", &new, Expiry::Keep).expect("kept");
        let own = keep
            .get(b"{s}hold")
            .wait()
            .expect("its own")
            .expect("there");
        assert_eq!((&own.bytes[..], own.expiry_ms), (&new[..], Some(5_000_000)));
        let changed = keep.commit().wait().expect("committed");
        assert_eq!(changed.is_none(), change.is_empty());
        assert!(changed.is_none_or(|it| it.fields.is_empty()));
        assert_eq!(store.0.borrow().keys[&b"{s}hold"[..]].0, new);
        assert_eq!(store.expiry(b"{s}hold"), 5_000_000);
    }
    // Less than a word.
    store.write_until(b"{s}hold", b"abc", 5_000_000);
    let mut keep = store.begin(Isolation::Snapshot);
    keep.get(b"{s}hold").wait().expect("read");
    keep.set_with(b"{s}hold", b"axc", Expiry::Keep)
        .expect("kept");
    keep.commit().wait().expect("committed");
    assert_eq!(store.0.borrow().keys[&b"{s}hold"[..]].0, b"axc");
    assert_eq!(store.expiry(b"{s}hold"), 5_000_000);
}

#[test]
fn an_expiry_is_set_kept_or_removed_as_it_was_said() {
    let store = Store::default();
    let put = |expiry, keys: &[u8]| {
        store.write_until(keys, b"old", 5_000_000);
        let mut own = store.begin(Isolation::Serializable);
        own.set_with(keys, b"longer", expiry).expect("set");
        own.set_with(b"{s}k", b"1", expiry).expect("set");
        own.commit().wait().expect("committed");
        assert_eq!(store.expiry(keys), store.expiry(b"{s}k"));
        store.expiry(keys)
    };
    assert_eq!(put(Expiry::Never, b"{s}a"), 0);
    assert_eq!(put(Expiry::At(77), b"{s}a"), 77);
    assert_eq!(put(Expiry::In(500), b"{s}a"), NOW_MS + 500);
    // A key that never expires, or is missing, keeps that with a value of any length.
    store.write(b"{s}a", b"old");
    let mut own = store.begin(Isolation::Serializable);
    own.get_all(&[b"{s}a", b"{s}m"]).wait().expect("read");
    for value in [&b"longer"[..], b"{s}x"] {
        own.set_with(b"{s}a", value, Expiry::Keep).expect("kept");
        own.set_with(b"{s}m", value, Expiry::Keep).expect("kept");
    }
    own.set_with(b"{s}i", b"first", Expiry::In(9)).expect("set");
    own.set_with(b"{s}i", b"2nd", Expiry::Keep).expect("kept");
    own.commit().wait().expect("committed");
    assert_eq!((store.expiry(b"{s}a"), store.expiry(b"{s}m")), (0, 0));
    assert_eq!(store.expiry(b"{s}i"), NOW_MS + 9);
}

#[test]
fn counters_that_nobody_reads_never_conflict() {
    let store = Store::default();
    store.write(b"{s}n", &0u64.to_le_bytes());
    let begin = || {
        let mut add = store.begin(Isolation::Serializable);
        let n = add.key(b"{s}n").expect("named");
        add.then(n.u64(0).increase(1u64)).expect("added");
        add.then(n.u64(0).at_most(2u64).or_else(9)).expect("added");
        add
    };
    let all = [begin(), begin(), begin()];
    let outcomes = all.map(|it| it.commit().wait());
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok());
    let Err(TransactionError::Store(ClientError::No(no))) = &outcomes[2] else {
        panic!("{:?}", outcomes[2]);
    };
    assert_eq!((no.failed(), no.reason, no.actual()), (Some(1), 9, Some(3)));
    assert_eq!(store.number(b"{s}n"), Some(2));
}

#[test]
fn a_failed_instruction_is_counted_among_those_of_the_caller() {
    let store = Store::default();
    store.write(b"{s}a", &1u64.to_le_bytes());
    let mut own = store.begin(Isolation::Serializable);
    own.get_all(&[b"{s}a", b"{s}b"]).wait().expect("read");
    own.set_with(b"{s}c", b"12345678", Expiry::In(5))
        .expect("set");
    let a = own.key(b"{s}a").expect("named");
    own.then(a.exists()).expect("added");
    own.then(a.u64(0).at_least(2u64).or_else(4)).expect("added");
    let outcome = own.commit().wait();
    let Err(TransactionError::Store(ClientError::No(no))) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((no.failed(), no.reason), (Some(1), 4));
}

#[test]
fn a_commit_that_writes_has_the_token_and_one_that_only_reads_has_none() {
    let store = Store::default();
    let token = new_token().expect("random");
    let mut reader = store.begin(Isolation::Serializable).named(token);
    reader.get_all(&[b"{s}a", b"{s}b"]).wait().expect("read");
    assert_eq!(reader.commit().wait().expect("proved"), None);
    let mut writer = store.begin(Isolation::Serializable).named(token);
    writer.get(b"{s}a").wait().expect("read");
    writer.set(b"{s}a", b"1").expect("set");
    writer.commit().wait().expect("committed").expect("written");
    let (get, apply) = (("get", None), ("apply", None));
    let named = ("apply", Some(token));
    assert_eq!(store.0.borrow().asked, [get, get, apply, get, named]);
}

#[test]
fn one_read_of_the_store_is_its_own_proof() {
    let store = Store::default();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let mut reader = store.begin(isolation);
        reader.get(b"{s}a").wait().expect("read");
        assert_eq!(reader.commit().wait().expect("nothing to ask"), None);
    }
    assert!(
        store
            .0
            .borrow()
            .asked
            .iter()
            .all(|(verb, _)| *verb == "get")
    );
}

#[test]
fn a_conflict_is_run_again_until_it_commits_and_any_other_error_ends_it() {
    let store = Store::default();
    store.write(b"{s}n", &0u64.to_le_bytes());
    let mut tries = 0u64;
    let outcome = transact(store.clone(), Isolation::Snapshot, |add| {
        let n = add.get(b"{s}n").wait()?.expect("present");
        tries += 1;
        if tries < 4 {
            store.write(b"{s}n", &(10 * tries).to_le_bytes());
        }
        add.set(b"{s}n", &(number(&n.bytes) + 1).to_le_bytes())?;
        Ok(tries)
    });
    let (last, changed) = outcome.expect("committed in the end");
    assert_eq!((last, changed.is_some()), (4, true));
    assert_eq!(store.number(b"{s}n"), Some(31));
    let outcome = transact(store.clone(), Isolation::Snapshot, |add| {
        add.rollback_to("nowhere")
    });
    assert!(matches!(outcome, Err(TransactionError::Refused(_))));
}

/// What `.await` tells is what `wait()` tells.
#[test]
fn a_transaction_is_awaited_as_it_is_waited_for() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    let store = Store::default();
    store.write(b"{s}a", b"1");
    let moved = async {
        let mut own = store.begin(Isolation::Snapshot);
        let a = own.get(b"{s}a").await?.expect("present");
        let both = own.get_all(&[b"{s}a", b"{s}b"]).await?;
        assert_eq!(both, [Some(a.clone()), None]);
        own.set(b"{s}b", &a.bytes)?;
        own.del(b"{s}a")?;
        own.commit().await
    };
    let mut moved = pin!(moved);
    let Poll::Ready(outcome) = moved.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the store answers at once");
    };
    outcome.expect("committed").expect("written");
    let map = store.0.borrow();
    assert_eq!(map.keys.len(), 1);
    assert_eq!(map.keys[&b"{s}b"[..]].0, b"1");
}
