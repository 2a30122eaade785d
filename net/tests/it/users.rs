//! The users' file: the one in RIGHTS.md, files made by chance, and files that are damaged.

use penstock_net::auth::{KEY_BYTES, SALT_BYTES, Secret, SecretKind, Verifier};
use penstock_net::limits::{USER_KEYS_MAX, USERS_FILE_BYTES_MAX, USERS_MAX, USERS_PREFIXES_MAX};
use penstock_net::rights::{Need, Right};
use penstock_net::users::{EditError, Users, UsersText};

use crate::Random;

/// The file that RIGHTS.md shows.
fn shown() -> String {
    let document = include_str!("../../RIGHTS.md");
    let begin = document.find("# The box office.").expect("it is shown");
    let end = document[begin..].find("```").expect("it ends") + begin;
    document[begin..end].to_string()
}

fn key_of(byte: u8) -> Verifier {
    Verifier::new(&Secret::of_key(&[byte; KEY_BYTES]), [0; SALT_BYTES])
}

fn password_of(byte: u8) -> Verifier {
    Verifier {
        salt: [byte; SALT_BYTES],
        iterations: 4096,
        stored_key: [byte; 32],
        server_key: [!byte; 32],
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

#[test]
fn the_file_of_the_document_says_what_the_document_says_of_it() {
    let users = Users::read(shown().as_bytes()).expect("it is sound");
    let names: Vec<&str> = users.iter().map(|user| user.name()).collect();
    assert_eq!(names, ["ann", "till"]);
    let (ann, password) = users.login("ann").expect("she has a password");
    assert_eq!((ann.name(), password.kind()), ("ann", SecretKind::Password));
    let (till, key) = users.login("till/one").expect("it has a key");
    assert_eq!((till.name(), key.kind()), ("till", SecretKind::Key));
    for nobody in ["till", "ann/one", "till/two", "bob", "", "/", "till/one/"] {
        assert!(users.login(nobody).is_none(), "{nobody}");
    }
    let of_certificate = users
        .of_certificate("till.shop.example")
        .expect("it is there");
    assert_eq!(of_certificate.name(), "till");
    assert!(users.of_certificate("ann").is_none());
    let rights = till.rights();
    assert!(rights.allows(Need::WRITE, b"note \x01 of the day"));
    assert!(!rights.allows(Need::WRITE, b"note 1"));
    assert!(rights.demand_run(Some("hold"), b"buyer:7").is_ok());
    assert!(rights.demand_run(Some("refund"), b"buyer:7").is_err());
    assert!(ann.rights().judge_info().is_ok() && till.rights().judge_info().is_err());
    assert_eq!(Users::read(users.to_string().as_bytes()), Ok(users));
}

/// Users by chance, made by edits.
fn drawn(random: &mut Random) -> UsersText {
    let mut decoy = [0; 32];
    decoy.fill_with(|| u8::try_from(random.below(256)).expect("a byte"));
    let mut text = UsersText::begin(&decoy);
    for number in 0..random.below(4) {
        let name = format!("u{number}");
        let byte = u8::try_from(random.below(256)).expect("a byte");
        match random.below(3) {
            0 => text.add_with_password(&name, &password_of(byte)),
            1 => text.add_with_key(&name, "k", &key_of(byte)),
            _ => text.add_with_certificate(&name, &format!("{number} \u{fc}")),
        }
        .expect("a new user");
        for _ in 0..random.below(5) {
            let mut prefix = "\"".to_string();
            for _ in 0..random.below(4) {
                prefix.push_str(&format!("\\x{:02x}", random.below(256)));
            }
            prefix.push('"');
            let right = Right::ALL[random.below(4)].name();
            let line = match right {
                "run" => vec!["run".into(), "buy".into(), "on".into(), prefix],
                right => vec![right.to_string(), prefix],
            };
            text.grant(&name, &line).expect("within the limits");
        }
        if random.below(2) == 0 {
            text.add_key(&name, "k2", &key_of(!byte))
                .expect("a new key");
        }
    }
    text
}

#[test]
fn what_is_printed_reads_back_as_the_same_users() {
    let mut random = Random(11);
    let mut users_seen = 0;
    for _ in 0..300 {
        let text = drawn(&mut random);
        let users = text.users();
        let printed = users.to_string();
        assert_eq!(&Users::read(printed.as_bytes()).expect(&printed), users);
        assert_eq!(
            Users::read(printed.as_bytes()).expect("sound").to_string(),
            printed
        );
        users_seen += users.len();
    }
    assert!(users_seen > 100);
}

#[test]
fn a_file_that_was_cut_or_has_another_byte_is_sound_or_refused_by_its_line() {
    let text = shown();
    let lines = text.lines().count();
    let (mut sound, mut refused) = (0, 0);
    let mut judge = |bytes: &[u8]| match Users::read(bytes) {
        Ok(users) => {
            assert_eq!(Users::read(users.to_string().as_bytes()), Ok(users));
            sound += 1;
        }
        Err(error) => {
            assert!((1..=lines + 1).contains(&error.line), "{error}");
            let message = error.to_string();
            assert!(!message.contains('\n') && message.len() < 300, "{message}");
            // What is kept of secrets is not told.
            assert!(
                !message.contains("WG5d8oPm") && !message.contains("wfPLwcE6"),
                "{message}"
            );
            refused += 1;
        }
    };
    for cut in 0..text.len() {
        judge(&text.as_bytes()[..cut]);
    }
    let mut bytes = text.clone().into_bytes();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            judge(&bytes);
            bytes[at] ^= 1 << bit;
        }
    }
    assert!(sound > 100 && refused > 1_000, "{sound} {refused}");
    // A hole of zeros, as a crash may leave one.
    for (begin, end) in [(0, 40), (100, 300), (text.len() - 30, text.len() - 1)] {
        let mut holed = text.clone().into_bytes();
        holed[begin..end].fill(0);
        let message = Users::read(&holed).expect_err("a hole").to_string();
        assert!(message.contains("0x00"), "{message}");
    }
}

const DECOY: &str = "decoy 9mjDlFXskR2Tq2stPkiTDr9x5X1fIgKQ7egKodSlZ54=\n";

/// Texts, the line of the fault, and what is told of it.
type Cases = Vec<(String, usize, &'static str)>;

fn check(cases: Cases) {
    for (text, line, part) in cases {
        let error = Users::read(text.as_bytes()).expect_err(&text);
        assert_eq!(error.line, line, "{error}: {text}");
        assert!(error.to_string().contains(part), "{error}, not {part}");
    }
}

/// A file whose only user is ann; the next line is the fourth.
fn ann() -> String {
    format!("{DECOY}user ann\nkey one {}\n", key_of(1))
}

#[test]
fn a_line_that_is_wrong_is_refused_with_its_value() {
    let (ann, key) = (ann(), key_of(1));
    check(vec![
        (String::new(), 1, "no line decoy"),
        ("decoy AAAA\n".into(), 1, "32 bytes in base64"),
        (
            format!("{ann}{DECOY}"),
            4,
            "before the first user, and once",
        ),
        (format!("{ann}read stock:"), 4, "ends within a line"),
        (
            format!("{ann}raed stock:\n"),
            4,
            "\"raed\": a line begins with",
        ),
        (
            format!("{DECOY}read stock:\n"),
            2,
            "read stands before the first user",
        ),
        (
            format!("{ann}user ann\nkey one {key}\n"),
            4,
            "user ann stands in line 2",
        ),
        (
            format!("{DECOY}user ann\nread x\nuser bob\n"),
            2,
            "ann has no password, no key",
        ),
        (
            format!("{ann}user ann/one\n"),
            4,
            "\"ann/one\": the name of a user",
        ),
        (
            format!("{ann}user a b\n"),
            4,
            "user takes one name, not 2 words",
        ),
        (
            format!("{ann}key one {key}\n"),
            4,
            "user ann has a key one already",
        ),
        (
            format!("{ann}key a/b {key}\n"),
            4,
            "\"a/b\": the name of a key",
        ),
        (format!("{ann}password {key}\n"), 4, "is that of a key"),
        (
            format!("{ann}key two {}\n", password_of(3)),
            4,
            "is that of a password",
        ),
        (
            format!("{ann}password pencil\n"),
            4,
            "a stored secret is SCRAM-SHA-256$",
        ),
        (
            format!("{ann}certificate a\nuser bob\ncertificate a\n"),
            6,
            "the certificate \"a\" is that of user ann",
        ),
        (format!("{ann}read\n"), 4, "read names no prefix"),
        (
            format!("{ann}run buy stock:\n"),
            4,
            "\"stock:\": the name of a program",
        ),
        (format!("{ann}run buy on\n"), 4, "run names no prefix"),
        (format!("{ann}run\n"), 4, "run takes programs, the word on"),
        (
            format!("{ann}read stock:*\n"),
            4,
            "\"stock:*\": a prefix stands for",
        ),
        (
            format!("{ann}read \"a\n"),
            4,
            "the quote at byte 6 of the line has no end",
        ),
        (
            format!("{ann}read a\u{1}\n"),
            4,
            "the byte 0x01 stands at byte 6",
        ),
    ]);
}

#[test]
fn what_is_too_long_or_too_many_is_refused_with_its_limit() {
    let (ann, key) = (ann(), key_of(1));
    let (long_name, long_prefix) = ("a".repeat(65), "p".repeat(65));
    let lines =
        |count: usize, line: &dyn Fn(usize) -> String| -> String { (0..count).map(line).collect() };
    let keys = lines(USER_KEYS_MAX + 1, &|it| format!("key k{it} {key}\n"));
    let read = lines(1000, &|it| format!("read {it}:\n"));
    let programs = lines(61, &|it| format!("run p{it} on x\n"));
    let users = lines(USERS_MAX + 1, &|it| format!("user u{it}\nkey k {key}\n"));
    let readers = lines(17, &|it| format!("user u{it}\nkey k {key}\n{read}"));
    check(vec![
        (format!("{ann}user {long_name}\n"), 4, "1 to 64 of"),
        (
            format!("{ann}certificate \"\"\n"),
            4,
            "1 to 255 bytes of text, not 0",
        ),
        (
            format!("{ann}read {long_prefix}\n"),
            4,
            "a prefix of 65 bytes; at most 64",
        ),
        (
            format!("{DECOY}user ann\n{keys}"),
            3 + 16,
            "16 keys already, which is the limit",
        ),
        (
            format!("{ann}{read}write x\n"),
            4 + 1000,
            "at most 1000 prefixes",
        ),
        (format!("{ann}{programs}"), 4 + 60, "at most 60 programs"),
        (format!("{DECOY}{users}"), 2 + 2 * USERS_MAX, "4096 users"),
        (
            format!("{DECOY}{readers}"),
            2 + 16 * 1002 + 386,
            "more than 16384 prefixes",
        ),
        (
            "#".repeat(USERS_FILE_BYTES_MAX + 1),
            1,
            "1048577 bytes; at most 1048576",
        ),
    ]);
    assert_eq!(USERS_PREFIXES_MAX, 16 * 1000 + 384);
}

#[test]
fn an_edit_keeps_comments_and_all_other_lines() {
    let before = shown();
    let mut text = UsersText::of(before.clone()).expect("sound");
    text.grant("till", &words("read gate:")).expect("granted");
    let after = before.replace("read stock: order:", "read stock: order: gate:");
    assert_eq!(text.text(), after);
    // What is there already changes nothing.
    text.grant("till", &words("read gate: stock:"))
        .expect("granted");
    assert_eq!(text.text(), after);
    text.revoke("till", &words("read gate:")).expect("revoked");
    assert_eq!(text.text(), before);

    text.grant("ann", &words("run refund on order:"))
        .expect("granted");
    let after = before.replace("admin \"\"\n", "admin \"\"\n    run refund on order:\n");
    assert_eq!(text.text(), after);
    text.revoke("ann", &words("run refund")).expect("revoked");
    text.revoke("till", &words("run hold on order:"))
        .expect("revoked");
    let after = before.replace(
        "    run buy hold on stock: order: buyer:\n",
        "    run buy on stock: order: buyer:\n    run hold on stock: buyer:\n",
    );
    assert_eq!(text.text(), after);
    text.revoke("till", &words("run buy hold"))
        .expect("revoked");
    assert!(
        text.users()
            .find("till")
            .expect("there")
            .grants()
            .runs()
            .next()
            .is_none()
    );

    text.revoke("ann", &words("read")).expect("revoked");
    assert!(!text.text().contains("all keys"));
    text.set_password("ann", &password_of(9))
        .expect("another one");
    text.add_key("ann", "desk", &key_of(2)).expect("a new key");
    text.remove_key("till", "one").expect("it was there");
    text.set_certificate("till", "other").expect("another one");
    let (ann, _) = text.users().login("ann/desk").expect("it is there");
    assert_eq!(ann.password(), Some(&password_of(9)));
    text.remove("till").expect("it was there");
    assert!(
        text.text().starts_with("# The box office.\ndecoy "),
        "{}",
        text.text()
    );
    assert!(
        text.text().ends_with("\n    admin \"\"\n"),
        "{}",
        text.text()
    );
    assert_eq!(text.users().len(), 1);
}

#[test]
fn an_edit_that_cannot_be_made_changes_nothing_and_says_why() {
    let mut text = UsersText::of(shown()).expect("sound");
    let before = text.text().to_string();
    let refusal_of = |edited: Result<(), EditError>| edited.expect_err("refused").to_string();
    let cases = [
        (
            refusal_of(text.add_with_key("ann", "k", &key_of(1))),
            "user ann stands in line",
        ),
        (
            refusal_of(text.add_with_key("a b", "k", &key_of(1))),
            "user takes one name",
        ),
        (
            refusal_of(text.add_with_certificate("bob", "till.shop.example")),
            "is that of user till",
        ),
        (refusal_of(text.remove("bob")), "there is no user bob"),
        (
            refusal_of(text.remove_key("ann", "one")),
            "user ann has no key one",
        ),
        (
            refusal_of(text.add_key("till", "one", &key_of(1))),
            "user till has a key one already",
        ),
        (
            refusal_of(text.grant("bob", &words("read x"))),
            "there is no user bob",
        ),
        (
            refusal_of(text.grant("ann", &words("see x"))),
            "see: the rights are read, write, run",
        ),
        (
            refusal_of(text.grant("ann", &words("read x*"))),
            "\"x*\": a prefix stands for",
        ),
        (
            refusal_of(text.grant("ann", &words("read"))),
            "read names no prefix",
        ),
        (
            refusal_of(text.revoke("ann", &words("write x"))),
            "user ann has no such right",
        ),
        (
            refusal_of(text.revoke("till", &words("run refund"))),
            "user till has no such right",
        ),
    ];
    for (refusal, expected) in cases {
        assert!(refusal.contains(expected), "{refusal}, not {expected}");
    }
    assert_eq!(text.text(), before);
    // The last way to log in stays.
    text.set_certificate("till", "x").expect("another one");
    text.remove_key("till", "one")
        .expect("the certificate is left");
    let mut text = UsersText::begin(&[0; 32]);
    text.add_with_key("till", "one", &key_of(1)).expect("new");
    let refusal = text
        .remove_key("till", "one")
        .expect_err("refused")
        .to_string();
    assert!(
        refusal.contains("no password, no key and no certificate"),
        "{refusal}"
    );
}
