//! `penstock apply` as a shop uses it: an order on stock and hold, a limit of calls, a transfer.

use std::time::Duration;

use penstock_client::{Apply, Client, ClientError, ClientOptions, Rate, Verbs};

use super::{Server, folder};

const STOCK: &str = "s=stock:{tee}";

/// Takes two of the stock and holds them for ten minutes.
fn order<'a>(hold: &'a str, buyer: &'a str) -> Vec<&'a str> {
    vec![
        "apply",
        "--key",
        STOCK,
        "--key",
        hold,
        "s.u32@0 >= 2 else 1",
        "h absent else 2",
        "s.u32@0 -= 2",
        buyer,
        "h expires in 10m",
        "return s.u32@0",
    ]
}

#[test]
fn an_order_takes_stock_and_makes_a_hold_or_does_neither() {
    let directory = folder("session-apply-order");
    let server = Server::start(&directory, &["--shards", "2"]);
    server.run(0, &["set", "stock:{tee}", "u32:5"]);
    let (ann, bob) = ("h=hold:{tee}:ann", "h=hold:{tee}:bob");
    let first = server.run(0, &order(ann, "h put ann"));
    assert!(
        first.starts_with("s.u32@0 = 3\ns.u32@0 = 3\nok, version "),
        "{first}"
    );
    assert!(first.ends_with(", level disk\n"), "{first}");
    assert_eq!(
        server.run(1, &order(ann, "h put ann")),
        "penstock: \"h absent else 2\" failed: \"hold:{tee}:ann\" exists, reason 2; nothing was \
         changed\n"
    );
    server.run(0, &order(bob, "h put bob"));
    assert_eq!(
        server.run(1, &order("h=hold:{tee}:eve", "h put eve")),
        "penstock: \"s.u32@0 >= 2 else 1\" failed: s.u32@0 is 1, reason 1; nothing was changed\n"
    );
    let kept = |server: &Server| {
        let get = ["get", "stock:{tee}", "--as", "u32@0"];
        assert_eq!(server.run(0, &get), "1\n");
        assert_eq!(server.run(0, &["get", "hold:{tee}:ann"]), "ann");
        assert!(
            server
                .run(0, &["ttl", "hold:{tee}:bob"])
                .contains(" ms, until ")
        );
        server.run(1, &["get", "hold:{tee}:eve"]);
    };
    kept(&server);
    // Dropping it is a SIGKILL.
    drop(server);
    let server = Server::start(&directory, &["--shards", "2"]);
    kept(&server);
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn each_kind_of_guard_says_what_it_saw() {
    let directory = folder("session-apply-guards");
    let server = Server::start(&directory, &["--shards", "1"]);
    server.run(0, &["set", "{1}a", "u32:6,u64:7"]);
    server.run(0, &["set", "{1}d", "-5"]);
    let keys = [
        "apply", "--key", "a={1}a", "--key", "d={1}d", "--key", "m={1}m",
    ];
    let ask = |code, words: &[&str]| server.run(code, &[&keys, words].concat());
    for (instruction, saw) in [
        ("m exists", "\"{1}m\" does not exist"),
        ("m.u8@0 = 1", "\"{1}m\" does not exist"),
        ("a.u32@0 == m.u8@0", "\"{1}a\" or \"{1}m\" does not exist"),
        ("m del", "\"{1}m\" does not exist"),
        ("a absent", "\"{1}a\" exists"),
        ("a version 1:1", "\"{1}a\" has version "),
        ("a.u32@0 < d.decimal", "a.u32@0 is 6"),
        ("a.u32@0 has any bits 9", "a.u32@0 is 6"),
        ("d.decimal >= 0", "d.decimal is -5"),
        ("before 1000000000000", "the time is 1"),
        (
            "a.u32@0 -= 7",
            "a.u32@0 is 6 and would leave the range of u32",
        ),
        (
            "d.decimal -= 9223372036854775807",
            "d.decimal is -5 and would leave the range of decimal",
        ),
    ] {
        let printed = ask(1, &["d.decimal += 1", "d.decimal -= 1", instruction]);
        assert!(
            printed.starts_with(&format!("penstock: {instruction:?} failed: {saw}")),
            "{printed}"
        );
        assert!(printed.ends_with("; nothing was changed\n"), "{printed}");
    }
    ask(0, &["since a.u64@4", "a.u64@4 < now"]);
    for (instruction, status) in [
        ("a.u64@8 += 1", "BAD_FIELD"),
        ("a.decimal += 1", "BAD_FIELD"),
        ("a expires at a.i64be@4", "BAD_FIELD"),
    ] {
        let printed = ask(2, &[instruction]);
        assert!(
            printed.contains(status) && printed.contains("(not executed)"),
            "{printed}"
        );
    }
    let done = ask(
        0,
        &[
            "a.u32@0 &= 3",
            "a.u32@0 |= 8",
            "a.u32@0 ^= 1",
            "a.u32@0 min= 100",
            "a.u32@0 max= a.u64@4",
            "a.u32@0 -= 100 saturating",
            "d.decimal = a.u64@4",
            "m start u8:1",
            "m start u8:2",
            "return m.u8@0",
            "m del",
        ],
    );
    let printed = "a.u32@0 = 2\na.u32@0 = 10\na.u32@0 = 11\na.u32@0 = 11\na.u32@0 = 11\n\
                a.u32@0 = 0\nd.decimal = 7\nm.u8@0 = 1\nok, version ";
    assert!(done.starts_with(printed), "{done}");
    assert_eq!(server.run(0, &["get", "{1}d"]), "7");
    server.run(1, &["get", "{1}m"]);
    let cross = server.run(
        2,
        &["apply", "--key", "a={1}a", "--key", "b={2}b", "b exists"],
    );
    assert!(cross.contains("CROSS_SLOT"), "{cross}");
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_rate_lets_a_burst_through_and_says_how_long_the_next_one_waits() {
    let directory = folder("session-apply-rate");
    let server = Server::start(&directory, &["--shards", "1"]);
    let call = [
        "apply",
        "--key",
        "c=calls:ann",
        "c start u64:0",
        "c.u64@0 rate 2/1h burst 2",
    ];
    for _ in 0..2 {
        assert!(server.run(0, &call).starts_with("c.u64@0 = "));
    }
    let denied = server.run(1, &call);
    let wait = denied
        .strip_prefix("penstock: \"c.u64@0 rate 2/1h burst 2\" failed: the units are there in ");
    let seconds: f64 = wait
        .and_then(|wait| wait.split_once("s; nothing was changed\n")?.0.parse().ok())
        .unwrap_or_else(|| panic!("{denied}"));
    assert!((1_000.0..=1_800.0).contains(&seconds), "{denied}");

    let client = Client::connect(server.address.parse().unwrap(), ClientOptions::default());
    let client = client.unwrap();
    let mut order = Apply::new();
    let calls = order.key(b"calls:ann");
    let rate = Rate {
        interval_us: 1_800_000_000,
        burst: 2,
        quantity: 1,
    };
    order.then(calls.u64(0).take(rate).or_else(3));
    match client.apply(&order).wait() {
        Err(ClientError::No(answer)) => {
            assert_eq!((answer.failed(), answer.reason), (Some(0), 3));
            let wait = answer.rate_wait().expect("a wait");
            assert!(wait <= Duration::from_secs(1_800), "{wait:?}");
            assert!(wait >= Duration::from_secs(1_000), "{wait:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn many_buyers_of_many_clients_never_oversell_and_every_unit_is_in_one_hold() {
    const STOCK: u32 = 200;
    let directory = folder("session-apply-buyers");
    let server = Server::start(&directory, &["--shards", "2"]);
    let address = server.address.parse().unwrap();
    let options = || ClientOptions {
        deadline: Duration::from_secs(60),
        ..ClientOptions::default()
    };
    let client = Client::connect(address, options()).unwrap();
    client
        .set(b"stock:{x}", &STOCK.to_le_bytes())
        .wait()
        .unwrap();
    let sold: u32 = std::thread::scope(|scope| {
        let buyers: Vec<_> = (0..4u8)
            .map(|buyer| {
                scope.spawn(move || {
                    let client = Client::connect(address, options()).unwrap();
                    let mut sold = 0;
                    for number in 0..STOCK {
                        let mut order = Apply::new();
                        let stock = order.key(b"stock:{x}");
                        let hold = order.key(format!("hold:{{x}}:{buyer}:{number}").as_bytes());
                        order
                            .then(stock.u32(0).decrease(1u64))
                            .then(hold.is_absent())
                            .put(hold, &[1]);
                        match client.apply(&order).wait() {
                            Ok(_) => sold += 1,
                            Err(ClientError::No(answer)) => {
                                assert!(answer.is_overflow, "{answer:?}");
                                break;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                    sold
                })
            })
            .collect();
        buyers.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(sold, STOCK);
    let holds = client.scan(b"hold:{x}:", false).map(Result::unwrap);
    assert_eq!(holds.count(), STOCK as usize);
    let left = client.get(b"stock:{x}").wait().unwrap().unwrap();
    assert_eq!(&left.bytes[..], &[0; 4]);
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_text_of_digits_is_not_taken_for_a_number() {
    let directory = folder("session-apply-digits");
    let server = Server::start(&directory, &["--shards", "1"]);
    server.run(0, &["set", "{1}a", "1000"]);
    let keys = ["apply", "--key", "a={1}a", "--key", "b={1}b"];
    let ask = |code, words: &[&str]| server.run(code, &[&keys, words].concat());
    let refused = ask(2, &["b put x", "a.u32@0 -= 1"]);
    let printed = "\"{1}a\" holds the text \"1000\" at a.u32@0, which is the number 808464433; \
                nothing was changed";
    assert!(refused.contains(printed), "{refused}");
    server.run(1, &["get", "{1}b"]);
    let start = ask(2, &["b start 2000", "b.u32@0 -= 1"]);
    assert!(
        start.contains("\"{1}b\" would start with the text \"2000\""),
        "{start}"
    );
    // What the request puts itself was not there before.
    ask(0, &["a put u32:9", "a.u32@0 -= 1"]);
    server.run(0, &["set", "{1}a", "1000"]);
    let number = ask(0, &["a.u32@0 -= 1", "--digits-are-numbers"]);
    assert!(number.starts_with("a.u32@0 = 808464432\n"), "{number}");
    // As a decimal it is the number that it shows.
    server.run(0, &["set", "{1}a", "1000"]);
    assert!(ask(0, &["a.decimal -= 1"]).starts_with("a.decimal = 999\n"));
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}
