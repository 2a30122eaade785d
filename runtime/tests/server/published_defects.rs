//! Defects that published flash-sale projects have, and why each one cannot happen here. Each test
//! tells the defect first. All of them run over the real server.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use penstock_client::{
    Apply, ApplyKey, Changed, Client, ClientError, Condition, Expiry, Field, Status, Verbs,
    new_token,
};

use crate::command::command;
use crate::process::Server;
use crate::scratch;

const STOCK: &[u8] = b"{tee}stock";
const AVAILABLE: u32 = 0;
const HELD: u32 = 4;
const HOLD: &[u8] = b"{tee}hold:1";
/// Reasons of the guards of `one_for`.
const SOLD_OUT: u8 = 1;
const HAS_ONE: u8 = 2;

/// How long a test waits for what comes within a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with one article on sale.
struct Sale {
    data: PathBuf,
    server: Option<Server>,
    client: Client,
}

impl Sale {
    /// Puts so many units on sale at a new server.
    fn of(units: u32, name: &str) -> Sale {
        let data = scratch::folder(format!("defects-{name}"));
        let server = serve(&data);
        let sale = Sale {
            client: server.client(),
            server: Some(server),
            data,
        };
        sale.put_on_sale(units);
        sale
    }

    /// Writes the stock: units that are available, and no unit that is held.
    fn put_on_sale(&self, units: u32) {
        let value = [units.to_le_bytes(), [0; 4]].concat();
        self.client.set(STOCK, &value).wait().unwrap();
    }

    /// Kills the server with SIGKILL and starts it again.
    fn crash(&mut self) {
        drop(self.server.take());
        let server = serve(&self.data);
        self.client = server.client();
        self.server = Some(server);
    }

    /// Asks for this and gets OK.
    fn takes(&self, order: &Apply) -> Changed {
        self.client.apply(order).wait().unwrap()
    }

    /// The reason of the guard that refuses this.
    fn refuses(&self, order: &Apply) -> u8 {
        match self.client.apply(order).wait() {
            Err(ClientError::No(answer)) => answer.reason,
            other => panic!("a guard must fail, not {other:?}"),
        }
    }

    /// Units that are available, and units that are held.
    fn stock(&self) -> (u32, u32) {
        let value = self.client.get(STOCK).wait().unwrap().unwrap().bytes;
        let number = |at: u32| {
            let at = usize::try_from(at).unwrap();
            u32::from_le_bytes(value[at..at + 4].try_into().unwrap())
        };
        (number(AVAILABLE), number(HELD))
    }

    fn has_hold(&self) -> bool {
        self.client.get(HOLD).wait().unwrap().is_some()
    }
}

impl Drop for Sale {
    fn drop(&mut self) {
        drop(self.server.take());
        let _ = std::fs::remove_dir_all(&self.data);
    }
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

/// The status of what is refused, and the number that its guard found.
fn status_of(asked: Result<Changed, ClientError>) -> (Status, Option<u64>) {
    match asked {
        Err(ClientError::No(answer) | ClientError::Refused(answer)) => {
            (answer.status, answer.actual())
        }
        other => panic!("it must be refused, not {other:?}"),
    }
}

/// One unit for a buyer who has none.
fn one_for(buyer: &str) -> Apply {
    let mut order = Apply::new();
    let stock = order.key(STOCK);
    let mine = order.key(format!("{{tee}}buyer:{buyer}").as_bytes());
    order
        .then(stock.u32(AVAILABLE).at_least(1u64).or_else(SOLD_OUT))
        .then(mine.is_absent().or_else(HAS_ONE))
        .then(stock.u32(AVAILABLE).decrease(1u64))
        .put(mine, b"1");
    order
}

/// Takes a unit for 300 ms, with a hold that gives it back.
fn cart(way_back: impl FnOnce(&mut Apply, ApplyKey)) -> Apply {
    let mut order = Apply::new();
    let stock = order.key(STOCK);
    let hold = order.key(HOLD);
    order
        .then(stock.u32(AVAILABLE).decrease(1u64))
        .then(stock.u32(HELD).increase(1u64))
        .put(hold, b"1")
        .then(hold.expire_in(300))
        .on_expire(hold, |effects| way_back(effects, stock));
    order
}

/// A script asks `if redis.call('sismember', ...) then return 2`. In Lua 0 is true, so each first
/// buyer is told that they have bought before. Here a guard is no value of a language: ABSENT holds
/// or it does not, and the reason is the author's own.
#[test]
fn a_first_buyer_is_not_said_to_have_bought_before() {
    let sale = Sale::of(2, "first-buyer");
    sale.takes(&one_for("ann"));
    assert_eq!(sale.refuses(&one_for("ann")), HAS_ONE);
    sale.takes(&one_for("bob"));
    assert_eq!(sale.refuses(&one_for("eve")), SOLD_OUT);
    assert_eq!(sale.stock(), (0, 0));
}

/// A script asks `if total >= sold then sold = sold + 1`, which sells one more than there are. Here
/// an unsigned number has its own bound: even a sale whose author forgot the guard fails at 0.
#[test]
fn ten_units_are_sold_ten_times_even_by_a_sale_without_a_guard() {
    let sale = Sale::of(10, "one-more");
    let units = Field::u32(AVAILABLE);
    for guards in [&[units.at_least(1)][..], &[]] {
        sale.put_on_sale(10);
        let steps = [guards, &[units.decrease(1)]].concat();
        let asked: Vec<_> = (0..50)
            .map(|_| sale.client.update_if(STOCK, &steps))
            .collect();
        let sold = asked.into_iter().filter_map(|asked| asked.wait().ok());
        assert_eq!(sold.count(), 10);
        assert_eq!(sale.stock(), (0, 0));
    }
}

/// The script that gives a unit back does not compile, and this shows when the first cart is left.
/// Here the way back is checked when the unit is taken: without it nothing is taken.
#[test]
fn a_way_back_that_cannot_run_is_refused_before_a_unit_is_taken() {
    let sale = Sale::of(1, "way-back");
    // A guard cannot be an effect.
    let order = cart(|effects, stock| {
        effects.then(stock.u32(HELD).at_least(1u64));
    });
    let (status, _) = status_of(sale.client.apply(&order).wait());
    assert_eq!(status, Status::Malformed);
    assert_eq!((sale.stock(), sale.has_hold()), ((1, 0), false));
}

/// `DECR stock` and `SET hold 1 PX 300`: when the hold expires, the unit is gone for good. Here the
/// unit comes back in the record that ends the hold, also when the server is killed meanwhile.
#[test]
fn a_hold_that_expires_gives_its_unit_back_also_behind_a_kill() {
    let mut sale = Sale::of(1, "lost-unit");
    sale.takes(&cart(|effects, stock| {
        effects
            .then(stock.u32(HELD).decrease(1u64))
            .then(stock.u32(AVAILABLE).increase(1u64));
    }));
    sale.crash();
    let begin = Instant::now();
    loop {
        // Read once: between two reads the unit may come back.
        let (available, held) = sale.stock();
        assert_eq!(available + held, 1);
        if available == 1 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "the unit does not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!sale.has_hold());
}

/// memcached's `decr` stops at 0 and answers 0: "the last one" and "nothing left" look alike, and
/// both buyers believe that they have bought. Here the status differs.
#[test]
fn the_last_unit_and_none_left_are_different_answers() {
    let sale = Sale::of(1, "last-one");
    let units = Field::u32(AVAILABLE);
    let steps = [units.at_least(1), units.decrease(1)];
    let last = sale.client.update_if(STOCK, &steps).wait().unwrap();
    assert_eq!(last.fields[0], 0);
    let none = status_of(sale.client.update_if(STOCK, &steps).wait());
    assert_eq!(none, (Status::GuardFailed, Some(0)));
}

/// Each start of the shop writes the stock again, so what was sold is for sale once more. Here the
/// stock is made once: a start that finds it gets EXISTS.
#[test]
fn a_shop_that_starts_again_does_not_write_its_stock_again() {
    let sale = Sale::of(10, "stock-again");
    sale.takes(&one_for("ann"));
    let again = sale
        .client
        .set_with(STOCK, &[10; 8], Condition::Absent, Expiry::Never);
    assert_eq!(status_of(again.wait()).0, Status::Exists);
    assert_eq!(sale.stock(), (9, 0));
}

/// The limit of a buyer is looked at apart from the stock, so a double click takes a unit that
/// nobody gets. Here the second click is the first one's answer again, and takes nothing.
#[test]
fn a_double_click_takes_one_unit_and_gets_one_answer_twice() {
    let sale = Sale::of(10, "double-click");
    let token = new_token().unwrap();
    let click = || sale.client.named(token).apply(&one_for("ann"));
    let answers = [click(), click()].map(|click| click.wait().unwrap());
    assert_eq!(answers[0].version, answers[1].version);
    assert_eq!(answers.map(|answer| answer.is_replayed), [false, true]);
    assert_eq!(sale.stock(), (9, 0));
}
