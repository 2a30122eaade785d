//! Both sides of a login against each other, and against bytes that neither has sent.

use super::super::{
    AuthFault, AuthMethod, AuthReply, AuthRequest, Credentials, Exchange, Identity, KEY_BYTES,
    Login, LoginFault, Secret, Verifier,
};

const NONCE: [u8; 32] = [9; 32];
const RANDOM: [u8; 24] = [4; 24];

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes().to_vec()).expect("a secret")
}

/// Users of a test: a password, a key, and a password of another server.
struct Known(Vec<(&'static str, Verifier)>);

impl Known {
    fn new() -> Self {
        let key = Secret::of_key(&[7; KEY_BYTES]);
        Known(vec![
            ("ann", Verifier::with(&secret("pencil"), [3; 16], 4096)),
            ("ann/till-1", Verifier::new(&key, [0; 16])),
        ])
    }
}

impl Credentials for Known {
    fn verifier(&self, login: &str) -> Option<&Verifier> {
        let found = self.0.iter().find(|(name, _)| *name == login);
        found.map(|(_, verifier)| verifier)
    }

    fn decoy(&self) -> &[u8; 32] {
        &[0xDE; 32]
    }
}

fn ann() -> Identity {
    Identity::new("ann", secret("pencil")).expect("a name")
}

fn till() -> Identity {
    Identity::new("ann/till-1", Secret::of_key(&[7; KEY_BYTES])).expect("a name")
}

/// Runs a login; `meddle` may change each of the four messages on its way.
fn run(
    identity: &Identity,
    (here, there): (Option<[u8; 32]>, Option<[u8; 32]>),
    meddle: &dyn Fn(usize, Vec<u8>) -> Vec<u8>,
) -> (Result<Box<str>, AuthFault>, Result<(), LoginFault>) {
    let known = Known::new();
    let unsent = Err(AuthFault::Required);
    let mut login = Login::new(identity, here, &RANDOM);
    let first = meddle(0, login.first().into_bytes());
    let begun = Exchange::begin(&first, there.as_ref(), (&NONCE, 0), &known);
    let (exchange, challenge) = match begun {
        Ok(begun) => begun,
        Err(fault) => return (Err(fault), Err(LoginFault::Order)),
    };
    let challenge = match login.challenged(&meddle(1, challenge.into_bytes())) {
        Ok(challenge) => challenge,
        Err(fault) => return (unsent, Err(fault)),
    };
    let last = login.prove(&challenge.salted()).expect("it was challenged");
    match exchange.finish(&meddle(2, last.into_bytes()), &known) {
        Ok(proven) => {
            let welcomed = login.welcomed(&meddle(3, proven.message.into_bytes()));
            (Ok(proven.login), welcomed)
        }
        Err(fault) => (Err(fault), Err(LoginFault::Order)),
    }
}

fn as_it_is(_: usize, message: Vec<u8>) -> Vec<u8> {
    message
}

#[test]
fn the_exchange_of_rfc_7677_is_made_and_taken_byte_by_byte() {
    struct Pencil(Verifier);
    impl Credentials for Pencil {
        fn verifier(&self, login: &str) -> Option<&Verifier> {
            (login == "user").then_some(&self.0)
        }
        fn decoy(&self) -> &[u8; 32] {
            &[0; 32]
        }
    }
    let user = Identity::new("user", secret("pencil")).expect("a name");
    let mut login = Login::with_nonce(&user, None, "rOprNGfwEbeRWgbNEkqO");
    let first = login.first();
    assert_eq!(first, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let salt = *b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81";
    let pencil = Pencil(Verifier::with(&secret("pencil"), salt, 4096));
    let added = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let (exchange, challenge) =
        Exchange::begin_with(first.as_bytes(), None, added, &pencil).expect("a message");
    assert_eq!(
        challenge,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    let hash = login.challenged(challenge.as_bytes()).expect("a challenge");
    let last = login.prove(&hash.salted()).expect("challenged");
    assert_eq!(
        last,
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    let proven = exchange.finish(last.as_bytes(), &pencil).expect("proven");
    assert_eq!(&*proven.login, "user");
    assert_eq!(
        proven.message,
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    );
    assert_eq!(login.welcomed(proven.message.as_bytes()), Ok(()));
}

#[test]
fn passwords_and_keys_log_in_on_plain_and_on_encrypted_connections() {
    for binding in [None, Some([5; 32])] {
        for identity in [ann(), till()] {
            let (server, client) = run(&identity, (binding, binding), &as_it_is);
            assert_eq!((server.as_deref(), client), (Ok(identity.login()), Ok(())));
        }
    }
}

#[test]
fn a_proof_of_another_connection_is_refused_and_nobody_is_talked_into_less() {
    let other = run(&till(), (Some([5; 32]), Some([6; 32])), &as_it_is);
    assert_eq!(other.0, Err(AuthFault::Wrong));
    let unbound = run(&till(), (None, Some([6; 32])), &as_it_is);
    assert_eq!(unbound.0, Err(AuthFault::Unbound));
    // One who could bind and thinks that the server cannot is the mark of a third party.
    let talked = |number, message: Vec<u8>| match number {
        0 => [b"y", &message[1..]].concat(),
        _ => message,
    };
    assert_eq!(
        run(&till(), (None, Some([6; 32])), &talked).0,
        Err(AuthFault::Unbound)
    );
    let bound = run(&till(), (Some([5; 32]), None), &as_it_is);
    assert_eq!(bound.0, Err(AuthFault::Bound));
}

#[test]
fn a_message_of_an_earlier_login_on_the_connection_proves_nothing() {
    let known = Known::new();
    let mut login = Login::new(&till(), None, &RANDOM);
    let first = login.first();
    let begin = |attempt| {
        let begun = Exchange::begin(first.as_bytes(), None, (&NONCE, attempt), &known);
        begun.expect("a message")
    };
    let (exchange, challenge) = begin(0);
    let hash = login.challenged(challenge.as_bytes()).expect("a challenge");
    let last = login.prove(&hash.salted()).expect("challenged");
    assert!(exchange.finish(last.as_bytes(), &known).is_ok());
    let again = begin(1).0.finish(last.as_bytes(), &known);
    assert_eq!(again, Err(AuthFault::Wrong));
}

#[test]
fn an_unknown_user_is_answered_like_a_wrong_secret_and_each_time_the_same() {
    let known = Known::new();
    let try_login = |login: &str, nonce| {
        let identity = Identity::new(login, secret("wrong")).expect("a name");
        let mut login = Login::new(&identity, None, &[nonce; 24]);
        let first = login.first();
        let begun = Exchange::begin(first.as_bytes(), None, (&NONCE, 0), &known);
        let (exchange, challenge) = begun.expect("a message");
        let salt = challenge.split_once(",s=").expect("a salt").1.to_string();
        let hash = login.challenged(challenge.as_bytes());
        let refused = hash.map(|hash| {
            let last = login.prove(&hash.salted()).expect("challenged");
            exchange.finish(last.as_bytes(), &known).expect_err("wrong")
        });
        (salt, refused.unwrap_or(AuthFault::Wrong))
    };
    let (salt, refused) = try_login("bob", 1);
    assert_eq!(try_login("bob", 2), (salt.clone(), AuthFault::Wrong));
    assert_eq!(try_login("ann", 1).1, refused);
    assert_ne!(
        try_login("bib", 1).0,
        salt,
        "the salt does not tell who is made up"
    );
    assert!(salt.ends_with("==,i=32768"), "{salt}");
    // All keys have one salt, so nothing is to be made up.
    assert_eq!(try_login("bob/till", 1), try_login("ann/till-1", 1));
}

#[test]
fn no_cut_and_no_flipped_bit_of_any_message_logs_anybody_in() {
    // A key: its hash is quick.
    let binding = Some([5; 32]);
    let lengths = std::cell::RefCell::new([0; 4]);
    let (server, client) = run(&till(), (binding, binding), &|number, message| {
        lengths.borrow_mut()[number] = message.len();
        message
    });
    assert!(server.is_ok() && client.is_ok());
    let mut tried = 0;
    for (number, len) in lengths.into_inner().into_iter().enumerate() {
        for at in 0..len {
            for bit in 0..9 {
                let meddle = |which: usize, mut message: Vec<u8>| {
                    if which == number && bit == 8 {
                        message.truncate(at);
                    } else if which == number {
                        message[at] ^= 1 << bit;
                    }
                    message
                };
                let (server, client) = run(&till(), (binding, binding), &meddle);
                assert!(client.is_err(), "message {number}, byte {at}, bit {bit}");
                // The last message is the server's own proof: the client alone can refuse it.
                assert!(
                    number == 3 || server.is_err(),
                    "message {number}, {at}, bit {bit}"
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 2_000, "{tried}");
}

#[test]
fn a_client_proves_nothing_to_a_server_that_asks_for_a_cheap_hash_or_knows_nobody() {
    let mut login = Login::new(&ann(), None, &RANDOM);
    let nonce = login
        .first()
        .split_once("r=")
        .expect("a nonce")
        .1
        .to_string();
    let salt = "W22ZaJ0SNY7soEsUEjb6gQ==";
    let challenge = |rounds: &str, nonce: &str| format!("r={nonce},s={salt},i={rounds}");
    let refused = |login: &mut Login, message: String| {
        login
            .challenged(message.as_bytes())
            .map(|_| ())
            .expect_err("refused")
    };
    let cheap = challenge("4095", &format!("{nonce}x"));
    assert_eq!(refused(&mut login, cheap), LoginFault::Iterations(4095));
    for (message, fault) in [
        (
            challenge("1000001", &format!("{nonce}x")),
            LoginFault::Iterations(1_000_001),
        ),
        (challenge("4096", &nonce), LoginFault::Nonce),
        (challenge("4096", "elsewhereelsewhere"), LoginFault::Nonce),
    ] {
        let mut login = Login::new(&ann(), None, &RANDOM);
        assert_eq!(refused(&mut login, message), fault);
        assert_eq!(login.prove(&[0; 32]), Err(LoginFault::Order));
    }
    let mut login = Login::new(&ann(), None, &RANDOM);
    let hash = login.challenged(challenge("4096", &format!("{nonce}x")).as_bytes());
    login
        .prove(&hash.expect("a challenge").salted())
        .expect("challenged");
    let forged = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert_eq!(login.welcomed(forged.as_bytes()), Err(LoginFault::Server));
    assert_eq!(login.welcomed(forged.as_bytes()), Err(LoginFault::Order));
}

#[test]
fn names_that_no_user_has_are_refused_by_both_sides() {
    let long = "a".repeat(97);
    for name in [
        "", "/", "ann/", "/key", "ann/b/c", "a,b", "a=b", "a b", "a\u{e4}", &long,
    ] {
        let refused = Identity::new(name, secret("pencil"));
        assert_eq!(refused.err(), Some(LoginFault::Name), "{name}");
        let message = format!("n,,n={name},r=rOprNGfwEbeRWgbNEkqO");
        let begun = Exchange::begin(message.as_bytes(), None, (&NONCE, 0), &Known::new());
        assert!(matches!(begun, Err(AuthFault::Message { .. })), "{name}");
    }
}

#[test]
fn bodies_of_auth_frames_are_read_as_they_are_written_and_no_other_way() {
    let mut frame = Vec::new();
    let request = AuthRequest {
        method: AuthMethod::Scram,
        message: b"n,,n=ann",
    };
    request.write(&mut frame, 7);
    let body = &frame[32..];
    assert_eq!(AuthRequest::read(body), Ok(request));
    for cut in 0..body.len() {
        assert!(AuthRequest::read(&body[..cut]).is_err());
    }
    for (at, byte) in [(0, 9), (1, 1), (2, 1), (4, 0), (4, 99), (5, 3), (7, 1)] {
        let mut changed = body.to_vec();
        changed[at] = byte;
        assert!(AuthRequest::read(&changed).is_err(), "{at}");
    }
    let mut frame = Vec::new();
    let reply = AuthReply::Done {
        message: b"v=x",
        hello: &[1; 8],
    };
    reply.write(&mut frame, 7, 3);
    assert_eq!(AuthReply::read(&frame[32..]), Ok(reply));
    assert!(AuthReply::read(&body[..0]).is_err());
}

#[test]
fn nothing_that_is_shown_has_a_secret_in_it() {
    let known = Known::new();
    let login = Login::new(&ann(), Some([0x41; 32]), &RANDOM);
    let first = login.first();
    let (exchange, _) =
        Exchange::begin(first.as_bytes(), Some(&[0x41; 32]), (&NONCE, 0), &known).expect("begun");
    let shown = format!("{login:?} {exchange:?} {:?} {:?}", ann(), known.0);
    assert!(
        !shown.contains("pencil") && !shown.contains("65, 65"),
        "{shown}"
    );
}
