//! Programs by name on a real server: the shipped sale, files that change while it runs, and what
//! people type.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use penstock::schema::Schema;
use penstock_client::{
    Changed, Client, ClientError, ProgramId, Run, Status, Token, Verbs, new_token,
};

use crate::command::command;
use crate::process::Server;
use crate::scratch;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/programs");
/// No wait of these tests is as long, whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(60);

fn folder(name: &str) -> PathBuf {
    let path = scratch::folder(name);
    fs::create_dir_all(&path).unwrap();
    path
}

fn serve(folder: &Path, schema: &Path) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    command
        .args(["--admin-listen", "off", "--resp-listen", "off"])
        .args(["--cache-bytes", "16MiB", "--segment-bytes", "4MiB"])
        .args(["--value-bytes-max", "64KiB", "--data"])
        .arg(folder.join("data"))
        .arg("--schema")
        .arg(schema)
        .stderr(log);
    command
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a command prints, on both streams, if it ends with this code.
fn output_of(server: &Server, code: i32, words: &[&str]) -> String {
    let address = server.address.to_string();
    let output = command(words).args(["--addr", &address]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    text
}

/// The shipped sale of one item, as a program of a client asks for it.
struct Sale {
    schema: Schema,
}

impl Sale {
    fn shipped() -> Sale {
        let schema = Schema::read(Path::new(SHIPPED)).unwrap();
        Sale { schema }
    }

    fn run(&self, program: &str) -> Run {
        let id = self.schema.program(program).unwrap().program.id();
        Run::new(id).key(b"stock:{42}")
    }

    fn restock(&self, client: &Client, quantity: u32, limit: u32) {
        let restock = self.run("restock").argument(quantity).argument(limit);
        client.run(&restock).wait().unwrap();
    }

    fn of_order(&self, program: &str, order: &str, buyer: &str) -> Run {
        self.run(program)
            .key(format!("order:{{42}}:{order}").as_bytes())
            .key(format!("buyer:{{42}}:{buyer}").as_bytes())
    }

    fn buy(&self, order: &str, buyer: &str, quantity: u32, hold_ms: u64) -> Run {
        let run = self.of_order("buy", order, buyer);
        run.argument(quantity).argument(hold_ms)
    }
}

/// Available, held and sold units.
fn ledger(client: &Client) -> [u32; 3] {
    let stock = client.get(b"stock:{42}").wait().unwrap().unwrap();
    let field = |at: usize| u32::from_le_bytes(*stock.bytes[at..].first_chunk().unwrap());
    [field(0), field(4), field(8)]
}

fn buyer_units(client: &Client, buyer: &str) -> u32 {
    let key = format!("buyer:{{42}}:{buyer}");
    let value = client.get(key.as_bytes()).wait().unwrap().unwrap();
    u32::from_le_bytes(*value.bytes.first_chunk().unwrap())
}

fn reason(answer: Result<Changed, ClientError>) -> (Status, u8) {
    match answer {
        Err(ClientError::No(answer)) => (answer.status, answer.reason),
        other => panic!("{other:?}"),
    }
}

const HOUR_MS: u64 = 3_600_000;

#[test]
fn the_shipped_sale_sells_no_unit_twice_and_gives_back_what_is_not_bought() {
    let (folder, sale) = (folder("programs-sale"), Sale::shipped());
    let server = Server::start(&mut serve(&folder, Path::new(SHIPPED)));
    let client = server.client();
    sale.restock(&client, 5, 3);
    let ask = |run: &Run, token: Token| client.named(token).run(run).wait();

    // A retry gets the first answer, and takes nothing more.
    let (first, token) = (sale.buy("1", "ann", 2, HOUR_MS), new_token().unwrap());
    let held = ask(&first, token).unwrap();
    assert_eq!(
        (held.fields.to_vec(), held.is_replayed),
        (vec![2, 3, 2], false)
    );
    let again = ask(&first, token).unwrap();
    assert_eq!((again.version, again.is_replayed), (held.version, true));
    assert_eq!(ledger(&client), [3, 2, 0]);

    // The limit of a buyer, an order that exists, and what is not there.
    let new = |run: &Run| ask(run, new_token().unwrap());
    let over = sale.buy("2", "ann", 2, HOUR_MS);
    assert_eq!(reason(new(&over)), (Status::GuardFailed, 2));
    assert_eq!(reason(new(&first)), (Status::GuardFailed, 3));
    let too_much = sale.buy("3", "bob", 4, HOUR_MS);
    assert_eq!(reason(new(&too_much)), (Status::GuardFailed, 1));
    assert_eq!(ledger(&client), [3, 2, 0]);
    assert_eq!(client.get(b"order:{42}:2").wait().unwrap(), None);

    // Bought, given back, and returned by itself.
    new(&sale.buy("4", "bob", 1, HOUR_MS)).unwrap();
    new(&sale.buy("5", "eve", 1, 300)).unwrap();
    let sold = new(&sale.of_order("confirm", "1", "ann")).unwrap();
    // Sold, of the stock held and sold, bought by the buyer, and what is returned.
    assert_eq!(sold.fields.to_vec(), [1, 2, 2, 2, 2]);
    assert_eq!(
        reason(new(&sale.of_order("confirm", "1", "ann"))),
        (Status::GuardFailed, 1)
    );
    assert_eq!(
        reason(new(&sale.of_order("cancel", "1", "ann"))),
        (Status::GuardFailed, 1)
    );
    new(&sale.of_order("cancel", "4", "bob")).unwrap();
    wait_for("the end of a hold", || ledger(&client) == [3, 0, 2]);
    assert_eq!(
        (buyer_units(&client, "eve"), buyer_units(&client, "bob")),
        (0, 0)
    );
    assert_eq!(buyer_units(&client, "ann"), 2);
    let late = sale.of_order("confirm", "5", "eve");
    assert_eq!(reason(new(&late)), (Status::NotFound, 1));
    new(&sale.buy("6", "eve", 1, 2_000)).unwrap();
    let (last, kept) = (sale.buy("7", "bob", 2, HOUR_MS), new_token().unwrap());
    ask(&last, kept).unwrap();
    let nothing_left = sale.buy("8", "joe", 1, HOUR_MS);
    assert_eq!(reason(new(&nothing_left)), (Status::GuardFailed, 1));

    // Dropping it is a SIGKILL. The hold of eve ends meanwhile, or behind the start.
    drop(server);
    let server = Server::start(&mut serve(&folder, Path::new(SHIPPED)));
    let client = server.client();
    let again = client.named(kept).run(&last).wait().unwrap();
    assert!(again.is_replayed);
    wait_for("the end of a hold over a kill", || {
        ledger(&client) == [1, 2, 2]
    });
    assert_eq!(buyer_units(&client, "eve"), 0);
    let first_again = client.named(token).run(&first).wait().unwrap();
    assert_eq!(
        (first_again.version, first_again.is_replayed),
        (held.version, true)
    );
    assert_eq!(ledger(&client), [1, 2, 2]);
    server.stop();
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn calls_beyond_a_rate_are_answered_how_long_to_wait() {
    let (folder, sale) = (folder("programs-rate"), Sale::shipped());
    let server = Server::start(&mut serve(&folder, Path::new(SHIPPED)));
    let client = server.client();
    let limit = sale.schema.program("rate-limit").unwrap().program.id();
    let call = |cost: u8| {
        let run = Run::new(limit).key(b"calls:ann").argument(cost);
        client.run(&run).wait()
    };
    call(20).unwrap();
    match call(20) {
        Err(ClientError::No(answer)) => {
            let wait = answer.rate_wait().unwrap();
            assert!(
                wait > Duration::ZERO && wait <= Duration::from_secs(2),
                "{wait:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    server.stop();
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_run_that_does_not_fit_is_refused_by_name_and_the_connection_lives() {
    let (folder, sale) = (folder("programs-refused"), Sale::shipped());
    let server = Server::start(&mut serve(&folder, Path::new(SHIPPED)));
    let client = server.client();
    let refused = |run: Run| match client.run(&run).wait() {
        Err(ClientError::Refused(answer)) => {
            let text = String::from_utf8_lossy(&answer.value).into_owned();
            (answer.status, text)
        }
        other => panic!("{other:?}"),
    };
    let (status, text) = refused(Run::new(ProgramId(7)).key(b"k"));
    assert_eq!(status, Status::UnknownProgram);
    assert!(
        text.contains("0x0000000000000007") && text.contains("5 programs"),
        "{text}"
    );
    for (run, status, part) in [
        (
            sale.run("buy").argument(1u8).argument(1u8),
            Status::Malformed,
            "program buy takes 3 keys, not 1",
        ),
        (
            sale.run("restock").argument(1u8),
            Status::Malformed,
            "program restock takes 2 arguments, not 1",
        ),
        (
            sale.buy("1", "ann", 1001, 1),
            Status::Malformed,
            "program buy: argument quantity is 1 to 1000, not 1001",
        ),
        (
            Run::new(sale.run("restock").program())
                .key(b"\0\0penstock/x")
                .argument(1u8)
                .argument(1u8),
            Status::BadKey,
            "reserved",
        ),
    ] {
        let (found, text) = refused(run);
        assert!(found == status && text.contains(part), "{text}");
    }
    let across = Run::new(sale.run("buy").program())
        .key(b"a")
        .key(b"b")
        .key(b"c");
    let (status, _) = refused(across.argument(1u8).argument(1u8));
    assert_eq!(status, Status::CrossSlot);
    sale.restock(&client, 1, 1);
    assert_eq!(ledger(&client), [1, 0, 0]);
    server.stop();
    fs::remove_dir_all(&folder).unwrap();
}

/// The server tells ids, keys and arguments by the names of programs, of the files in force.
fn check_programs_by_name(client: &Client, in_force: &Schema) {
    let programs = client.programs().wait().unwrap();
    let program = programs.find("buy").unwrap();
    assert_eq!(program.id, in_force.program("buy").unwrap().program.id());
    assert_eq!(program.keys, ["stock:Stock", "order:Hold", "buyer:Buyer"]);
    let arguments = ["quantity:u32 1..4", "hold_ms:u64 1..86400000"];
    assert_eq!(program.arguments, arguments);
    assert_eq!(programs.iter().count(), 4);
    let run = programs.find("restock").unwrap().run();
    let run = run.key(b"stock:{named}").argument(7u32).argument(1u32);
    assert_eq!(client.run(&run).wait().unwrap().fields.to_vec(), [7, 1]);
}

#[test]
fn files_change_whole_or_not_at_all_and_a_retry_is_not_executed_twice() {
    let (folder, sale) = (folder("programs-change"), Sale::shipped());
    let schema = folder.join("schema");
    fs::create_dir(&schema).unwrap();
    let file = schema.join("sale.toml");
    let text = fs::read_to_string(Path::new(SHIPPED).join("sale.toml")).unwrap();
    fs::write(&file, &text).unwrap();
    let server = Server::start(&mut serve(&folder, &schema));
    let client = server.client();
    let log = || fs::read_to_string(folder.join("log")).unwrap();
    sale.restock(&client, 5, 5);
    let (buy, token) = (sale.buy("1", "ann", 2, HOUR_MS), new_token().unwrap());
    client.named(token).run(&buy).wait().unwrap();

    for (broken, part) in [
        (
            text.replace("stock.held += quantity", "stock.hold += quantity"),
            "\"stock.hold += quan",
        ),
        (
            text.replace("    \"sold:u32@8\",\n", ""),
            "\"stock.sold += order.units\": found",
        ),
        (
            text.replace("bought:u32@4", "bought:i32@4"),
            "layout Buyer changes: field bought at 4",
        ),
        (format!("{text}\n["), "it is not TOML"),
    ] {
        let before = log()
            .matches("is not used, and the one of before stays")
            .count();
        fs::write(&file, broken).unwrap();
        server.signal("-HUP");
        wait_for("a word about the schema", || {
            let log = log();
            log.matches("is not used, and the one of before stays")
                .count()
                > before
                && log.contains(part)
        });
        let again = client.named(token).run(&buy).wait().unwrap();
        assert!(again.is_replayed, "what was in force still is");
    }

    // A layout that has grown, and another limit: buy is another program now.
    let grown = text
        .replace(
            "\"limit_per_buyer:u32@12\",",
            "\"limit_per_buyer:u32@12\",\n\"shop:u64@16\",",
        )
        .replace("quantity:u32 1..1000\"", "quantity:u32 1..4\"");
    fs::write(&file, &grown).unwrap();
    server.signal("-HUP");
    wait_for("the new schema", || {
        log().contains("is read anew, 4 programs")
    });
    // A shard takes it in one of its next turns.
    wait_for("the end of the old program", || {
        let retried = client.named(token).run(&buy).wait();
        matches!(retried, Err(ClientError::Refused(it)) if it.status == Status::UnknownProgram)
    });
    let compiled = Schema::of_files(&[("sale.toml".into(), grown.clone())]).unwrap();
    check_programs_by_name(&client, &compiled);
    assert_eq!(ledger(&client), [3, 2, 0]);
    let now = Sale {
        schema: Schema::read(&schema).unwrap(),
    };
    // The same write under the new program is the same APPLY, so its token has its answer.
    let again = client
        .named(token)
        .run(&now.buy("1", "ann", 2, HOUR_MS))
        .wait();
    assert!(again.unwrap().is_replayed);
    let other = client
        .named(token)
        .run(&now.buy("1", "ann", 1, HOUR_MS))
        .wait();
    assert_eq!(reason_of_reuse(other), Status::TokenReused);
    assert_eq!(ledger(&client), [3, 2, 0]);
    server.stop();

    // No start with a defect.
    fs::write(&file, "[layout.S]\nfields = [\"n:u33@0\"]\n").unwrap();
    let output = serve(&folder, &schema)
        .stderr(std::process::Stdio::piped())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("sale.toml:2:14: \"n:u33@0\": found \"u33@0\""),
        "{printed}"
    );
    fs::remove_dir_all(&folder).unwrap();
}

fn reason_of_reuse(answer: Result<Changed, ClientError>) -> Status {
    match answer {
        Err(ClientError::Refused(answer) | ClientError::No(answer)) => answer.status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn people_run_and_read_by_names() {
    let folder = folder("programs-people");
    let server = Server::start(&mut serve(&folder, Path::new(SHIPPED)));
    let run = |code, words: &[&str]| output_of(&server, code, &[&["run"], words].concat());
    let restock = ["restock", "stock:{42}", "quantity=3", "limit_per_buyer=2"];
    let text = run(0, &restock);
    assert!(
        text.starts_with("stock.available = 3\nstock.limit_per_buyer = 2\nok, version "),
        "{text}"
    );
    let (stock, order, buyer) = ("stock:{42}", "order:{42}:7", "buyer:{42}:ann");
    let buy = ["buy", stock, order, buyer, "quantity=2", "hold_ms=600000"];
    let text = run(0, &[&buy[..], &["--token", "new"]].concat());
    let numbers_shown = "buyer.units = 2\nstock.available = 1\nstock.held = 2\nok, version ";
    assert!(
        text.starts_with("token ") && text.contains(numbers_shown),
        "{text}"
    );
    assert_eq!(
        run(1, &buy),
        "penstock: \"order absent else 3\" failed: \"order:{42}:7\" exists, reason 3; nothing was \
         changed\n"
    );
    let other = [
        "buy",
        stock,
        "order:{42}:8",
        buyer,
        "quantity=1",
        "hold_ms=600000",
    ];
    assert_eq!(
        run(1, &other),
        "penstock: \"buyer.units <= stock.limit_per_buyer else 2\" failed: buyer.units is 3, \
         reason 2; nothing was changed\n"
    );
    for (words, line) in [
        (&["bye", stock][..], "no program \"bye\"; there are "),
        (
            &["buy", stock, order, "quantity=2", "hold_ms=1"],
            "program buy takes 3 keys (stock, order, buyer), and 2 are given",
        ),
        (
            &["buy", stock, order, buyer, "qty=1", "hold_ms=1"],
            "program buy has no argument qty; its arguments are quantity, hold_ms",
        ),
        (
            &["buy", stock, order, buyer, "quantity=0", "hold_ms=1"],
            "quantity=0: allowed is a number, 1..1000",
        ),
        (
            &["buy", stock, order, buyer, "quantity=1"],
            "argument hold_ms is missing: hold_ms=1..",
        ),
        (
            &["buy", stock, order, buyer, "quantity=1", "quantity=2"],
            "quantity is given twice",
        ),
    ] {
        let text = run(2, words);
        assert!(text.contains(line), "{text}");
    }

    people_read(&server, stock, order);
    server.stop();
    fs::remove_dir_all(&folder).unwrap();
}

/// Values by the names of their layouts.
fn people_read(server: &Server, stock: &str, order: &str) {
    let get = output_of(server, 0, &["get", stock, "--as", "Stock"]);
    assert_eq!(
        get,
        "available = 1\nheld = 2\nsold = 0\nlimit_per_buyer = 2\n"
    );
    let from_files = ["get", order, "--as", "Hold", "--schema", SHIPPED];
    assert_eq!(
        output_of(server, 0, &from_files),
        "units = 2\nis_sold = false\n"
    );
    let text = output_of(server, 2, &["get", stock, "--as", "Stack"]);
    assert!(text.contains("no layout \"Stack\"; there are "), "{text}");
    let scan = output_of(server, 0, &["scan", "buyer:", "--as", "Buyer"]);
    assert_eq!(scan, "buyer:{42}:ann\t{\"units\":2,\"bought\":0}\n");
    // A value that is shorter than a layout tells the fields that it has.
    output_of(server, 0, &["set", "old", "u32:9"]);
    assert_eq!(
        output_of(server, 0, &["get", "old", "--as", "Stock"]),
        "available = 9\n"
    );
    output_of(server, 0, &["set", "odd", "u32:9,u8:1"]);
    let text = output_of(server, 1, &["get", "odd", "--as", "Stock"]);
    assert!(
        text.contains("\"odd\" is not of the layout Stock: held cannot be read"),
        "{text}"
    );
}

#[test]
fn files_are_checked_without_a_server() {
    let folder = folder("programs-check");
    let check = |directory: &Path| {
        let output = command(&["schema", "check"])
            .arg(directory)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = check(Path::new(SHIPPED));
    assert_eq!(code, Some(0), "{text}");
    for line in [
        "layout Stock, 16 bytes: available held sold limit_per_buyer\n",
        "program buy 0xd6f994adcc52b7a7: stock:Stock order:Hold buyer:Buyer; quantity:u32 1..1000, \
         hold_ms:u64 1..86400000\n",
        "program confirm 0xb5dd4ad11b2a55f8: stock:Stock order:Hold buyer:Buyer\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let broken = folder.join("broken");
    fs::create_dir(&broken).unwrap();
    fs::write(
        broken.join("a.toml"),
        "[program.p]\nkeys = [\"k\"]\ninstructions = [\"k nods\"]\n",
    )
    .unwrap();
    let (code, text) = check(&broken);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("a.toml:3:20: \"k nods\": found \"nods\", allowed is exists"),
        "{text}"
    );
    let (code, text) = check(&folder.join("nowhere"));
    assert!(code == Some(1) && text.contains("cannot be read"), "{text}");
    fs::remove_dir_all(&folder).unwrap();
}
