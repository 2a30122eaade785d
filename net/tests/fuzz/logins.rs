//! Both sides of a login, and the bodies of AUTH.
//!
//! An input is one byte (which side it is for, and by what connection) and what that side is sent:
//! u8 length and so many bytes of the first message, then the rest. A byte of the input may also
//! change a message of a right login.

use penstock_net::auth::{
    AuthReply, AuthRequest, Credentials, Exchange, Identity, KEY_BYTES, LOGIN_NONCE_BYTES, Login,
    MESSAGE_BYTES_MAX, Secret, Verifier,
};
use penstock_net::refusal::Refusal;

use crate::target::Choices;
use crate::{check_refusal, without_memory};

const NONCE: [u8; 32] = [9; 32];
/// Bytes that a side takes from the heap for a login, at most.
const HEAP_BYTES_MAX: u64 = 4 << 10;

struct Till(Verifier);

impl Credentials for Till {
    fn verifier(&self, login: &str) -> Option<&Verifier> {
        (login == "ann/till").then_some(&self.0)
    }

    fn decoy(&self) -> &[u8; 32] {
        &[0xDE; 32]
    }
}

fn key() -> Secret {
    Secret::of_key(&[7; KEY_BYTES])
}

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let manner = choices.byte();
    let binding = (manner & 4 != 0).then_some([5; 32]);
    match manner % 4 {
        0 => bodies(choices.rest()),
        1 => strange_client(binding, choices),
        2 => strange_server(binding, choices),
        _ => changed(binding, choices),
    }
}

fn bodies(body: &[u8]) {
    match without_memory(|| AuthRequest::read(body)) {
        Ok(request) => {
            let mut again = Vec::new();
            request.write(&mut again, 7);
            assert_eq!(again[32..], *body, "a body of AUTH has one form");
        }
        Err(fault) => check_refusal(Refusal::Auth(fault)),
    }
    if let Err(fault) = without_memory(|| AuthReply::read(body)) {
        check_refusal(Refusal::Auth(fault));
    }
}

/// Runs what takes little from the heap.
fn within_memory<T>(run: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = allocation_counter::measure(|| result = Some(run()));
    assert!(
        used.bytes_max <= HEAP_BYTES_MAX,
        "{} bytes of the heap",
        used.bytes_max
    );
    result.expect("it ran")
}

/// Nobody who does not know a secret logs in, whatever is sent.
fn strange_client(binding: Option<[u8; 32]>, mut choices: Choices<'_>) {
    let till = Till(Verifier::new(&key(), [0; 16]));
    let len = usize::from(choices.byte());
    let rest = choices.rest();
    let (first, last) = rest.split_at(len.min(rest.len()));
    let begun = || Exchange::begin(first, binding.as_ref(), (&NONCE, 0), &till);
    let (exchange, challenge) = match within_memory(begun) {
        Ok(begun) => begun,
        Err(fault) => return check_refusal(Refusal::Auth(fault)),
    };
    assert!(challenge.len() <= MESSAGE_BYTES_MAX);
    let refused = within_memory(|| exchange.finish(last, &till));
    check_refusal(Refusal::Auth(refused.expect_err("no secret is known")));
}

/// No server that does not know the user is taken for the right one.
fn strange_server(binding: Option<[u8; 32]>, mut choices: Choices<'_>) {
    let identity = Identity::new("ann/till", key()).expect("a name");
    let mut login = Login::new(&identity, binding, &[4; LOGIN_NONCE_BYTES]);
    let len = usize::from(choices.byte());
    let rest = choices.rest();
    let (first, last) = rest.split_at(len.min(rest.len()));
    // What a server cannot know by chance.
    let nonce = login
        .first()
        .split_once("r=")
        .expect("a nonce")
        .1
        .to_string();
    let first = [b"r=", nonce.as_bytes(), first].concat();
    let Ok(challenge) = within_memory(|| login.challenged(&first)) else {
        return;
    };
    if challenge.iterations() > 10_000 {
        // It may ask for much, and no input is to take that long.
        return;
    }
    let proof = within_memory(|| login.prove(&challenge.salted())).expect("challenged");
    assert!(proof.len() <= MESSAGE_BYTES_MAX);
    assert!(
        login.welcomed(last).is_err(),
        "nobody has proven to know the user"
    );
}

/// A right login of which one bit of one message was changed on its way.
fn changed(binding: Option<[u8; 32]>, mut choices: Choices<'_>) {
    let (number, at, bit) = (choices.byte() % 3, choices.byte(), choices.byte());
    let change = |which, mut message: Vec<u8>| {
        if which == number {
            let at = usize::from(at) % message.len();
            message[at] ^= 1 << (bit % 8);
        }
        message
    };
    let till = Till(Verifier::new(&key(), [0; 16]));
    let identity = Identity::new("ann/till", key()).expect("a name");
    let mut login = Login::new(&identity, binding, &[4; LOGIN_NONCE_BYTES]);
    let first = change(0, login.first().into_bytes());
    let begun = Exchange::begin(&first, binding.as_ref(), (&NONCE, 0), &till);
    let Ok((exchange, challenge)) = begun else {
        return;
    };
    let Ok(challenge) = login.challenged(&change(1, challenge.into_bytes())) else {
        return;
    };
    if challenge.iterations() > 10_000 {
        return;
    }
    let last = login.prove(&challenge.salted()).expect("challenged");
    let last = change(2, last.into_bytes());
    assert!(exchange.finish(&last, &till).is_err());
}
