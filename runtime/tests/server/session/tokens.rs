//! Writes with tokens at a real server: each row of the protocol's table, by the commands and by
//! the client, over SIGKILL too, and what a stranger gets wrong.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_client::{
    Apply, Changed, Client, ClientError, ClientOptions, Condition, Field, Instruction, Status,
    Token, Verbs, new_token,
};

use super::{Server, folder};

impl Server {
    fn client(&self) -> Client {
        let options = ClientOptions {
            deadline: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        let address = self.address.parse().expect("an address");
        Client::connect(address, options).expect("it is ready")
    }
}

fn sale() -> [Instruction; 2] {
    let stock = Field::u32(0);
    [stock.at_least(1), stock.decrease(1)]
}

/// Takes one of the stock and makes a hold.
fn order() -> Apply {
    let mut order = Apply::new();
    let stock = order.key(b"{tee}stock");
    let hold = order.key(b"{tee}hold");
    order
        .then(stock.u32(0).at_least(1u64))
        .then(stock.u32(0).decrease(1u64))
        .put(hold, b"ann");
    order
}

fn token_of(time_ms: u64) -> Token {
    let random = new_token().expect("random");
    Token::new(time_ms, *random.name().last_chunk().expect("ten bytes"))
}

fn now_ms() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(time.expect("after 1970").as_millis()).expect("64 bits")
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> (Status, String) {
    match outcome {
        Err(ClientError::Refused(answer)) => {
            let text = String::from_utf8_lossy(&answer.value).into_owned();
            (answer.status, text)
        }
        other => panic!("{other:?}"),
    }
}

/// Asks each kind of write with its token; the answers.
fn ask_all(client: &Client, tokens: &[Token]) -> Vec<Changed> {
    let named = |number: usize| client.named(tokens[number]);
    [
        named(0).set_if(b"once", b"1", Condition::Absent),
        named(1).update_if(b"stock", &sale()),
        named(2).apply(&order()),
        named(3).del_if(b"gone", Condition::Present),
        // It changes nothing, and is kept all the same.
        named(4).update_if(b"stock", &sale()[..1]),
    ]
    .map(|pending| pending.wait().expect("executed once"))
    .to_vec()
}

#[test]
fn the_same_write_again_is_answered_as_the_first_time_also_behind_a_kill() {
    let directory = folder("session-tokens-again");
    let flags = ["--shards", "2"];
    let server = Server::start(&directory, &flags);
    let client = server.client();
    client
        .set(b"stock", &5u32.to_le_bytes())
        .wait()
        .expect("set");
    client
        .set(b"{tee}stock", &5u32.to_le_bytes())
        .wait()
        .expect("set");
    client.set(b"gone", b"1").wait().expect("set");
    let tokens: Vec<Token> = (0..5).map(|_| new_token().expect("random")).collect();
    let first = ask_all(&client, &tokens);
    assert!(first.iter().all(|it| !it.is_replayed), "{first:?}");
    assert_eq!(*first[1].fields, [4]);
    // What others do in between is not seen in an answer that is told again.
    client.update_if(b"stock", &sale()).wait().expect("sold");
    client.set(b"gone", b"2").wait().expect("set");
    let again = |client: &Client| {
        let repeated = ask_all(client, &tokens);
        for (repeated, first) in repeated.iter().zip(&first) {
            assert!(repeated.is_replayed);
            assert_eq!(
                (repeated.version, &repeated.fields),
                (first.version, &first.fields)
            );
        }
        let stock = client.get(b"stock").wait().expect("read").expect("present");
        assert_eq!(*stock.bytes, 3u32.to_le_bytes());
        let stock = client
            .get(b"{tee}stock")
            .wait()
            .expect("read")
            .expect("present");
        assert_eq!(*stock.bytes, 4u32.to_le_bytes());
        let gone = client.get(b"gone").wait().expect("read").expect("present");
        assert_eq!(&*gone.bytes, b"2");
    };
    again(&client);
    drop(client);
    // Dropping it is a SIGKILL.
    drop(server);
    let server = Server::start(&directory, &flags);
    again(&server.client());
    drop(server);
    // The tokens are found with another number of shards.
    let server = Server::start(&directory, &["--shards", "1"]);
    again(&server.client());
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_no_is_not_kept_and_another_write_with_the_token_is_refused() {
    let directory = folder("session-tokens-no");
    let server = Server::start(&directory, &["--shards", "2"]);
    let client = server.client();
    client
        .set(b"stock", &0u32.to_le_bytes())
        .wait()
        .expect("set");
    let token = new_token().expect("random");
    let sell = || client.named(token).update_if(b"stock", &sale()).wait();
    for _ in 0..2 {
        assert!(matches!(sell(), Err(ClientError::No(_))), "sold out");
    }
    client
        .set(b"stock", &2u32.to_le_bytes())
        .wait()
        .expect("set");
    assert!(!sell().expect("restocked").is_replayed);
    assert!(sell().expect("the same").is_replayed);
    let other = client.named(token).set(b"stock", b"other").wait();
    assert_eq!(refused(other).0, Status::TokenReused);
    // With a guard more it is another request.
    let longer = [&sale()[..], &[Field::u32(0).at_least(0)]].concat();
    let other = client.named(token).update_if(b"stock", &longer).wait();
    assert_eq!(refused(other).0, Status::TokenReused);
    assert_eq!(
        client
            .get(b"stock")
            .wait()
            .expect("read")
            .expect("present")
            .bytes[..],
        1u32.to_le_bytes()
    );
    // In another slot it is another token.
    assert!(
        !client
            .named(token)
            .set(b"other", b"1")
            .wait()
            .expect("set")
            .is_replayed
    );
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_token_that_is_too_old_or_ahead_is_refused_with_its_times_and_nothing_is_executed() {
    let directory = folder("session-tokens-time");
    let server = Server::start(&directory, &["--shards", "1"]);
    let client = server.client();
    for time_ms in [0, 1, now_ms() - 2 * 3_600_000] {
        let old = token_of(time_ms);
        match client.named(old).set(b"key", b"1").wait() {
            Err(ClientError::Unknown(unknown)) => {
                assert_eq!(unknown.token(), Some(old));
                let text = unknown.text();
                let both = text.contains("TOKEN_TOO_OLD") && text.contains(&time_ms.to_string());
                assert!(both, "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let ahead_ms = now_ms() + 3_600_000;
    let (status, text) = refused(client.named(token_of(ahead_ms)).set(b"key", b"1").wait());
    assert_eq!(status, Status::Malformed);
    assert!(text.contains(&ahead_ms.to_string()), "{text}");
    assert_eq!(client.get(b"key").wait().expect("read"), None);
    // Clocks differ a little.
    client
        .named(token_of(now_ms() + 60_000))
        .set(b"key", b"1")
        .wait()
        .expect("set");
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn what_takes_no_token_is_refused_by_name_and_the_connection_lives() {
    let directory = folder("session-tokens-reads");
    let server = Server::start(&directory, &["--shards", "1"]);
    let client = server.client();
    let token = new_token().expect("random");
    let (status, text) = refused(client.named(token).get(b"key").wait());
    assert_eq!(status, Status::Unsupported);
    assert!(text.contains("a token is for writes"), "{text}");
    assert_eq!(
        refused(client.named(token).history(b"key", 0, 10).wait()).0,
        Status::Unsupported
    );
    client
        .set(b"key", b"1")
        .wait()
        .expect("the connection lives");
    let scanned: Vec<_> = client
        .scan(b"", false)
        .collect::<Result<_, _>>()
        .expect("a scan");
    assert_eq!(scanned.len(), 1, "a scan shows no tokens");
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_shell_names_a_write_and_asks_it_again() {
    let directory = folder("session-tokens-shell");
    let server = Server::start(&directory, &["--shards", "2"]);
    server.run(0, &["set", "{a}stock", "u32:5"]);
    let first = server.run(
        0,
        &["update-if", "{a}stock", "u32@0 -= 1", "--token", "new"],
    );
    let (token, rest) = first.split_once('\n').expect("two lines");
    let token = token.strip_prefix("token ").expect("the token comes first");
    assert!(rest.starts_with("u32@0 = 4\nok, version "), "{first}");
    assert!(!rest.contains("replayed"), "{first}");
    let named = |words: &[&'static str]| [words, &["--token", token]].concat().join("\n");
    let run = |code, words: &[&'static str]| {
        let words = named(words);
        server.run(code, &words.split('\n').collect::<Vec<_>>())
    };
    let again = run(0, &["update-if", "{a}stock", "u32@0 -= 1"]);
    let expected = rest
        .replace("\n", "")
        .replace("level disk", "level disk, replayed");
    assert!(again.replace("\n", "").starts_with(&expected), "{again}");
    assert_eq!(server.run(0, &["get", "{a}stock", "--as", "u32@0"]), "4\n");
    for words in [
        &["set", "{a}other", "1"][..],
        &["del", "{a}stock"],
        &["apply", "--key", "s={a}stock", "s.u32@0 -= 1"],
    ] {
        assert!(run(1, words).contains("TOKEN_REUSED"), "{words:?}");
    }
    let bought = [
        "apply",
        "--key",
        "s={b}stock",
        "s start u32:9",
        "s.u32@0 -= 1",
        "--token",
        "new",
    ];
    let first = server.run(0, &bought);
    let token = first
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("token "));
    let token = token.expect("the token comes first");
    let again = server.run(0, &[&bought[..6], &[token]].concat());
    assert!(
        again.contains("replayed") && again.contains("s.u32@0 = 8"),
        "{again}"
    );
    for wrong in ["", "old", "919108f7-52d1-4320-9bac-f847db4148a8"] {
        let printed = server.run(2, &["set", "key", "1", "--token", wrong]);
        assert!(printed.contains("a token is a UUID"), "{printed}");
    }
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_client_that_names_its_writes_sells_each_unit_once_while_the_server_is_killed() {
    let directory = folder("session-tokens-kills");
    let mut server = Server::start(&directory, &["--shards", "2"]);
    server
        .client()
        .set(b"stock", &1_000_000u32.to_le_bytes())
        .wait()
        .expect("set");
    let mut sold = 0;
    for _ in 0..2 {
        // So long the writes wait for a server that does not come back at this address.
        let options = ClientOptions {
            deadline: Duration::from_secs(5),
            names_writes: true,
            ..ClientOptions::default()
        };
        let address = server.address.parse().expect("an address");
        let client = Client::connect(address, options).expect("it is ready");
        let pending: Vec<_> = (0..300)
            .map(|_| client.update_if(b"stock", &sale()))
            .collect();
        let mut pending = pending.into_iter();
        // Some are answered, and the others are under way at the kill.
        for one in pending.by_ref().take(20) {
            one.wait().expect("sold");
            sold += 1;
        }
        server.process.kill().expect("killed");
        let mut open = Vec::new();
        for one in pending {
            match one.wait() {
                Ok(_) => sold += 1,
                Err(ClientError::Unknown(unknown)) => {
                    open.push(unknown.write().expect("it has a token").clone());
                }
                // It was not sent.
                Err(ClientError::Deadline | ClientError::NotSent(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        drop(client);
        drop(server);
        server = Server::start(&directory, &["--shards", "2"]);
        let client = server.client();
        for write in &open {
            let _: Changed = client.resolve(write).wait().expect("resolved");
            let again: Changed = client.resolve(write).wait().expect("resolved");
            assert!(again.is_replayed);
            sold += 1;
        }
    }
    let left = server
        .client()
        .get(b"stock")
        .wait()
        .expect("read")
        .expect("present");
    let left = u32::from_le_bytes(left.bytes[..].try_into().expect("four bytes"));
    assert_eq!(1_000_000 - left, sold, "each sale once");
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}
