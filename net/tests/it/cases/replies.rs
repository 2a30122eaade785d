//! Items of replies.

use penstock_net::level::AckLevel;
use penstock_net::reply::{KeyExpiry, ReplyHead, Standing};
use penstock_net::request::Version;
use penstock_net::status::Status;

use super::{Cases, changed};

fn head(status: Status) -> ReplyHead {
    let version = Version {
        epoch: 256,
        sequence: 9,
    };
    ReplyHead::new(status, 3, AckLevel::Disk, version)
}

fn item(status: Status, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    head(status).write(&mut bytes, value);
    bytes
}

pub fn replies(cases: &mut Cases) {
    // What came later stands at the end.
    let later = [
        Status::NotKept,
        Status::NoReplicas,
        Status::Stale,
        Status::TokenReused,
        Status::TokenTooOld,
        Status::UnknownProgram,
        Status::Denied,
    ];
    let (old, new) = later[..5].split_at(3);
    for status in Status::ALL
        .into_iter()
        .filter(|status| !later.contains(status))
    {
        cases.add("reply-item", status.name(), item(status, b"twelve bytes"));
    }
    let good = item(Status::Ok, b"12345678");
    cases.add("reply-item", "an empty value", item(Status::Ok, b""));
    cases.add(
        "reply-item",
        "an unknown status",
        changed(good.clone(), 0, &[0x99, 0x01]),
    );
    cases.add("reply-item", "level all", changed(good.clone(), 3, &[4]));
    cases.add(
        "reply-item",
        "an unknown level",
        changed(good.clone(), 3, &[5]),
    );
    for len in [0u32, 9, 16, u32::MAX] {
        cases.add(
            "reply-item",
            format!("a value length of {len} instead of 8"),
            changed(good.clone(), 8, &len.to_le_bytes()),
        );
    }
    for cut in [0, 8, 16, 24] {
        cases.add(
            "reply-item",
            format!("only {cut} bytes of 32"),
            good[..cut].to_vec(),
        );
    }
    expiries(cases);
    for status in old {
        cases.add("reply-item", status.name(), item(*status, b"twelve bytes"));
    }
    standings(cases);
    for status in new {
        cases.add("reply-item", status.name(), item(*status, b"twelve bytes"));
    }
}

/// Replies that tell when a key expires.
fn expiries(cases: &mut Cases) {
    let with_expiry = |expiry_ms, value: &[u8]| {
        let mut bytes = Vec::new();
        let expiry = KeyExpiry {
            expiry_ms,
            time_ms: 1_800_000_000_000,
        };
        head(Status::Ok).write_extended(&mut bytes, Some(expiry), None, value);
        bytes
    };
    cases.add(
        "reply-item",
        "a key that never expires",
        with_expiry(0, b""),
    );
    let good = with_expiry(1_800_000_000_500, b"12345678");
    cases.add("reply-item", "a value and its expiry", good.clone());
    cases.add(
        "reply-item",
        "an expiry cut in half",
        with_expiry(7, b"")[..32].to_vec(),
    );
    cases.add(
        "reply-item",
        "an expiry that its flag does not tell",
        changed(good, 7, &[0]),
    );
}

/// Replies of members, which tell how new what they show is.
fn standings(cases: &mut Cases) {
    let standing = |expiry, status, value: &[u8]| {
        let standing = Standing {
            age_us: 12_500,
            through: Version {
                epoch: 0x0004_0001,
                sequence: 77,
            },
        };
        let mut bytes = Vec::new();
        head(status).write_extended(&mut bytes, expiry, Some(standing), value);
        bytes
    };
    let good = standing(None, Status::Ok, b"12345678");
    cases.add("reply-item", "a value and how new it is", good.clone());
    cases.add(
        "reply-item",
        "nothing of a key and how new that is",
        standing(None, Status::NotFound, b""),
    );
    let expiry = KeyExpiry {
        expiry_ms: 7,
        time_ms: 5,
    };
    cases.add(
        "reply-item",
        "a value, its expiry and how new it is",
        standing(Some(expiry), Status::Ok, b"1"),
    );
    cases.add(
        "reply-item",
        "STALE that tells how old what is there is",
        standing(None, Status::Stale, b"twelve bytes"),
    );
    let reserved = changed(good.clone(), 36, &[1]);
    cases.add(
        "reply-item",
        "a word behind the epoch of the standing",
        reserved,
    );
    cases.add("reply-item", "a standing cut in half", good[..40].to_vec());
}
