//! Defects that published flash-sale projects have, and why each one cannot happen here. Each test
//! tells the defect first. All of them run over the real server.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use penstock_client::{
    Apply, Client, ClientError, Condition, Expiry, Field, Status, Verbs, new_token,
};

use crate::command::command;
use crate::process::Server;

const STOCK: &[u8] = b"{tee}stock";
const AVAILABLE: u32 = 0;
const HELD: u32 = 4;

/// How long a test waits for what comes within a second.
const PATIENCE: Duration = Duration::from_secs(60);

fn folder(name: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&data);
    data
}

fn serve(data: &Path) -> Server {
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", "1", "--admin-listen", "off"])
            .args(["--resp-listen", "off", "--data"])
            .arg(data)
            .stderr(Stdio::null()),
    )
}

/// Ends the server, and leaves nothing behind.
fn end(server: Server, data: &Path) {
    drop(server);
    std::fs::remove_dir_all(data).unwrap();
}

/// Units that are available, and units that are held.
fn put_on_sale(client: &Client, available: u32) {
    let value = [available.to_le_bytes(), 0u32.to_le_bytes()].concat();
    client.set(STOCK, &value).wait().unwrap();
}

fn number(client: &Client, at: u32) -> u32 {
    let value = client.get(STOCK).wait().unwrap().unwrap().bytes;
    let at = usize::try_from(at).unwrap();
    u32::from_le_bytes(value[at..at + 4].try_into().unwrap())
}

/// One unit for a buyer who has none, with the reasons 1 (sold out) and 2 (has one).
fn one_for(buyer: &str) -> Apply {
    let mut order = Apply::new();
    let stock = order.key(STOCK);
    let mine = order.key(format!("{{tee}}buyer:{buyer}").as_bytes());
    order
        .then(stock.u32(AVAILABLE).at_least(1u64).or_else(1))
        .then(mine.is_absent().or_else(2))
        .then(stock.u32(AVAILABLE).decrease(1u64))
        .put(mine, b"1");
    order
}

fn reason_of(refused: Result<penstock_client::Changed, ClientError>) -> u8 {
    match refused {
        Err(ClientError::No(answer)) => answer.reason,
        other => panic!("a guard must fail, not {other:?}"),
    }
}

/// A script asks `if redis.call('sismember', ...) then return 2`. In Lua 0 is true, so each first
/// buyer is told that they have bought before. Here a guard is no value of a language: ABSENT holds
/// or it does not, and the reason is the author's own.
#[test]
fn a_first_buyer_is_not_told_to_have_bought_before() {
    let data = folder("defects-first-buyer");
    let server = serve(&data);
    let client = server.client();
    put_on_sale(&client, 2);
    client.apply(&one_for("ann")).wait().expect("ann's first");
    assert_eq!(reason_of(client.apply(&one_for("ann")).wait()), 2);
    client.apply(&one_for("bob")).wait().expect("bob's first");
    assert_eq!(reason_of(client.apply(&one_for("eve")).wait()), 1);
    assert_eq!(number(&client, AVAILABLE), 0);
    end(server, &data);
}

/// A script asks `if total >= sold then sold = sold + 1`, which sells one more than there are. Here
/// an unsigned number has its own bound: even a sale whose author forgot the guard fails at 0.
#[test]
fn ten_units_are_sold_ten_times_even_by_a_sale_without_a_guard() {
    let data = folder("defects-one-more");
    let server = serve(&data);
    let client = server.client();
    for guards in [&[Field::u32(AVAILABLE).at_least(1)][..], &[]] {
        put_on_sale(&client, 10);
        let sale = [guards, &[Field::u32(AVAILABLE).decrease(1)]].concat();
        let sales: Vec<_> = (0..50).map(|_| client.update_if(STOCK, &sale)).collect();
        let sold = sales.into_iter().map(|sale| sale.wait());
        assert_eq!(sold.filter(Result::is_ok).count(), 10);
        assert_eq!(number(&client, AVAILABLE), 0);
    }
    end(server, &data);
}

/// The script that gives a unit back does not compile, and this shows when the first cart is left.
/// Here the way back is checked when the unit is taken: without it nothing is taken.
#[test]
fn a_way_back_that_cannot_run_is_refused_before_a_unit_is_taken() {
    let data = folder("defects-give-back");
    let server = serve(&data);
    let client = server.client();
    put_on_sale(&client, 1);
    let mut order = Apply::new();
    let stock = order.key(STOCK);
    let hold = order.key(b"{tee}hold:1");
    order
        .then(stock.u32(AVAILABLE).decrease(1u64))
        .put(hold, b"1")
        .then(hold.expire_in(300))
        // A guard is nothing that can run when a key expires.
        .on_expire(hold, |effects| {
            effects.then(stock.u32(AVAILABLE).at_least(1u64));
        });
    match client.apply(&order).wait() {
        Err(ClientError::Refused(answer)) => assert_eq!(answer.status, Status::Malformed),
        other => panic!("not {other:?}"),
    }
    assert_eq!(number(&client, AVAILABLE), 1);
    assert!(client.get(b"{tee}hold:1").wait().unwrap().is_none());
    end(server, &data);
}

/// `DECR stock` and `SET hold 1 PX 300`: when the hold expires, the unit is gone for good. Here the
/// unit comes back in the record that ends the hold, also when the server is killed meanwhile.
#[test]
fn a_hold_that_expires_gives_its_unit_back_also_behind_a_kill() {
    let data = folder("defects-lost-unit");
    let server = serve(&data);
    let client = server.client();
    put_on_sale(&client, 1);
    let mut order = Apply::new();
    let stock = order.key(STOCK);
    let hold = order.key(b"{tee}hold:1");
    order
        .then(stock.u32(AVAILABLE).decrease(1u64))
        .then(stock.u32(HELD).increase(1u64))
        .put(hold, b"1")
        .then(hold.expire_in(300))
        .on_expire(hold, |effects| {
            effects
                .then(stock.u32(HELD).decrease(1u64))
                .then(stock.u32(AVAILABLE).increase(1u64));
        });
    client.apply(&order).wait().unwrap();
    assert_eq!(number(&client, AVAILABLE) + number(&client, HELD), 1);
    // Dropping it is a SIGKILL.
    drop(server);
    let server = serve(&data);
    let client = server.client();
    let begin = Instant::now();
    while number(&client, AVAILABLE) == 0 {
        assert!(begin.elapsed() < PATIENCE, "the unit does not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((number(&client, AVAILABLE), number(&client, HELD)), (1, 0));
    assert!(client.get(b"{tee}hold:1").wait().unwrap().is_none());
    end(server, &data);
}

/// memcached's `decr` stops at 0 and answers 0: "the last one" and "nothing left" look alike, and
/// both buyers believe that they have bought. Here the status differs, with both numbers.
#[test]
fn the_last_unit_and_none_left_are_different_answers() {
    let data = folder("defects-last-one");
    let server = serve(&data);
    let client = server.client();
    put_on_sale(&client, 1);
    let stock = Field::u32(AVAILABLE);
    let sale = [stock.at_least(1), stock.decrease(1)];
    let last = client.update_if(STOCK, &sale).wait().unwrap();
    assert_eq!(last.fields[0], 0);
    match client.update_if(STOCK, &sale).wait() {
        Err(ClientError::No(answer)) => {
            assert_eq!(answer.status, Status::GuardFailed);
            assert_eq!(answer.actual(), Some(0));
        }
        other => panic!("not {other:?}"),
    }
    end(server, &data);
}

/// Each start of the shop writes the stock again, so what was sold is for sale once more. Here the
/// stock is made once: a start that finds it gets EXISTS.
#[test]
fn a_shop_that_starts_again_does_not_write_its_stock_again() {
    let data = folder("defects-stock-again");
    let server = serve(&data);
    let client = server.client();
    let begin_sale = || {
        let units = 10u32.to_le_bytes();
        client.set_with(STOCK, &units, Condition::Absent, Expiry::Never)
    };
    begin_sale().wait().unwrap();
    let stock = Field::u32(AVAILABLE);
    client
        .update_if(STOCK, &[stock.decrease(3)])
        .wait()
        .unwrap();
    match begin_sale().wait() {
        Err(ClientError::No(answer)) => assert_eq!(answer.status, Status::Exists),
        other => panic!("not {other:?}"),
    }
    assert_eq!(number(&client, AVAILABLE), 7);
    end(server, &data);
}

/// The limit of a buyer is looked at apart from the stock, so a double click takes a unit that
/// nobody gets. Here the second click is the first one's answer again, and takes nothing.
#[test]
fn a_double_click_takes_one_unit_and_gets_one_answer_twice() {
    let data = folder("defects-double-click");
    let server = serve(&data);
    let client = server.client();
    put_on_sale(&client, 10);
    let token = new_token().unwrap();
    let order = one_for("ann");
    let clicks = [(); 2].map(|()| client.named(token).apply(&order));
    let answers = clicks.map(|click| click.wait().unwrap());
    assert_eq!(answers[0].version, answers[1].version);
    assert_eq!(answers.map(|answer| answer.is_replayed), [false, true]);
    assert_eq!(number(&client, AVAILABLE), 9);
    end(server, &data);
}
