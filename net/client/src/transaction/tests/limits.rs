//! What a transaction refuses: by its name, before anything is sent, and it stays as it was.

use penstock_net::apply::{Action, ApplyInstruction};
use penstock_net::slot::slot_of;

use super::*;

/// What a transaction is made to do.
type Act = fn(&mut Transaction<Store>) -> Result<(), TransactionError>;

/// Makes a transaction do what is refused; the refusal in words.
fn refused(
    isolation: Isolation,
    act: impl FnOnce(&mut Transaction<Store>) -> Result<(), TransactionError>,
) -> String {
    let store = Store::default();
    store.write_until(b"{s}expires", b"12345678", 5_000_000);
    let mut own = store.begin(isolation);
    own.set(b"{s}first", b"1").expect("set");
    own.get(b"{s}expires").wait().expect("read");
    let asked = store.asked();
    let Err(TransactionError::Refused(refusal)) = act(&mut own) else {
        panic!("it was not refused");
    };
    assert_eq!(store.asked(), asked, "nothing is sent");
    own.commit().wait().expect("it is as it was");
    assert!(store.0.borrow().keys.contains_key(&b"{s}first"[..]));
    refusal.to_string()
}

#[test]
fn a_key_of_another_slot_is_refused_with_both_keys_and_slots() {
    let (s, t) = (slot_of(b"{s}"), slot_of(b"{t}"));
    let expected = format!(
        "\"{{t}}a\" is of slot {t}, and \"{{s}}first\" of slot {s}: the keys of a transaction are \
         of one slot, as keys with the same {{tag}} are"
    );
    let all: [Act; 5] = [
        |own| own.set(b"{t}a", b"1"),
        |own| own.del(b"{t}a"),
        |own| own.key(b"{t}a").map(drop),
        |own| own.get(b"{t}a").wait().map(drop),
        |own| own.get_all(&[b"{s}b", b"{t}a"]).wait().map(drop),
    ];
    for act in all {
        assert_eq!(refused(Isolation::Snapshot, act), expected);
    }
}

#[test]
fn the_256th_key_is_refused_and_nothing_of_the_others_is_lost() {
    let fill = |own: &mut Transaction<Store>| {
        // Two keys are there.
        for number in 2..255 {
            own.key(format!("{{s}}{number}").as_bytes())?;
        }
        Ok::<(), TransactionError>(())
    };
    let expected = "\"{s}next\" would be key 256 of the transaction, and 255 is the limit";
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let by_write = refused(isolation, |own| {
            fill(own)?;
            own.set(b"{s}next", b"1")
        });
        let by_read = refused(isolation, |own| {
            fill(own)?;
            own.get(b"{s}next").wait().map(drop)
        });
        assert_eq!([by_write, by_read], [expected, expected]);
    }
}

#[test]
fn a_transaction_of_a_hundred_keys_commits_as_one_apply() {
    let store = Store::default();
    let mut own = store.begin(Isolation::Serializable);
    for number in 0..100 {
        let key = format!("{{s}}{number}");
        assert!(own.get(key.as_bytes()).wait().expect("read").is_none());
        own.set(key.as_bytes(), b"1").expect("within the limits");
    }
    let asked = store.asked();
    own.commit().wait().expect("nobody else writes");
    assert_eq!(store.asked(), asked + 1, "one request");
    let known = store.0.borrow();
    let mut names = (0..100).map(|number| format!("{{s}}{number}"));
    assert!(names.all(|name| known.keys.contains_key(name.as_bytes())));
}

#[test]
fn lengths_beyond_a_limit_are_refused_with_the_limit() {
    let refusal_of = |act: Act| refused(Isolation::Serializable, act);
    assert_eq!(
        refusal_of(|own| own.set(b"", b"1")),
        "a key of 0 bytes: it has 1 to 1024"
    );
    assert_eq!(
        refusal_of(|own| own.get(&[7; 1025]).wait().map(drop)),
        "a key of 1025 bytes: it has 1 to 1024"
    );
    assert_eq!(
        refusal_of(|own| own.set(b"{s}a", &[1; 1025])),
        "a value of 1025 bytes for \"{s}a\": the limit is 1024"
    );
    assert_eq!(
        refusal_of(|own| {
            own.set(b"{s}a", &[1; 1024])?;
            // It takes the place of the first.
            own.set(b"{s}a", &[2; 1024])?;
            own.set(b"{s}b", &[3; 1024])
        }),
        "the transaction writes values of 2049 bytes together: the limit is 2048"
    );
}

#[test]
fn more_instructions_than_an_apply_has_are_refused() {
    let refusal = refused(Isolation::Serializable, |own| {
        let key = own.key(b"{s}first")?;
        loop {
            own.then(key.is_absent())?;
        }
    });
    assert_eq!(
        refusal,
        "the commit would take 65 instructions with its guards: the limit is 64"
    );
}

#[test]
fn instructions_of_apply_alone_and_keys_of_others_are_refused() {
    let refusal = refused(Isolation::Serializable, |own| {
        own.then(ApplyInstruction {
            key: 0,
            reason: 0,
            action: Action::OnExpire { effects: 0 },
        })
    });
    assert!(refusal.starts_with("OnExpire { effects: 0 } is an instruction of APPLY alone"));
    let refusal = refused(Isolation::Serializable, |own| {
        let mut other = Store::default().begin(Isolation::Serializable);
        let third = [b"{s}a", b"{s}b", b"{s}c"].map(|name| other.key(name).expect("named"))[2];
        own.then(third.exists())
    });
    assert_eq!(refusal, "key 2 is not a key of this transaction");
}

#[test]
fn an_expiry_that_cannot_be_said_or_kept_is_refused() {
    let refusal_of = |key: &'static [u8], value: &'static [u8], expiry| {
        refused(Isolation::Serializable, |own| {
            own.set_with(key, value, expiry)
        })
    };
    assert_eq!(
        refusal_of(b"{s}a", b"1", Expiry::At(0)),
        "an expiry of 0 ms: it is 1 to 281474976710655"
    );
    assert_eq!(
        refusal_of(b"{s}a", b"1", Expiry::In(1 << 48)),
        "an expiry of 281474976710656 ms: it is 1 to 281474976710655"
    );
    assert_eq!(
        refusal_of(b"{s}unread", b"1", Expiry::Keep),
        "\"{s}unread\" is to keep its expiry and was not read: get it before"
    );
    assert_eq!(
        refusal_of(b"{s}expires", b"longer than before", Expiry::Keep),
        "\"{s}expires\" expires, and a value of 18 bytes cannot take the place of 8 bytes and \
         keep that: say when the new value expires"
    );
}

#[test]
fn a_value_that_only_the_commit_decides_is_not_shown() {
    let expected = "the value of \"{s}expires\" is not known before the commit: what the \
                    transaction does to it needs the time of the store, or fails on what is there";
    let of_time = refused(Isolation::Serializable, |own| {
        own.savepoint("s")?;
        let key = own.key(b"{s}expires")?;
        own.then(key.u64(0).set(crate::Operand::Now { plus_ms: 0 }))?;
        own.get(b"{s}expires").wait().map(drop)
    });
    assert_eq!(of_time, expected);
    let store = Store::default();
    store.write(b"{s}n", &1u64.to_le_bytes());
    let mut own = store.begin(Isolation::Serializable);
    let n = own.key(b"{s}n").expect("named");
    own.then(n.u64(0).decrease(2u64)).expect("added");
    let answer = own.get(b"{s}n").wait();
    assert!(matches!(
        answer,
        Err(TransactionError::Refused(
            TransactionRefusal::Undecided { .. }
        ))
    ));
    let outcome = own.commit().wait();
    assert!(matches!(
        outcome,
        Err(TransactionError::Store(ClientError::No(no))) if no.failed() == Some(0)
    ));
}

#[test]
fn savepoints_have_a_limit() {
    let refusal = refused(Isolation::Snapshot, |own| {
        loop {
            own.savepoint("one more")?;
        }
    });
    assert_eq!(refusal, "one savepoint more than 64, which is the limit");
}
