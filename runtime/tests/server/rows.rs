//! `load`, `export` and `report` against a real server.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use penstock_client::{Client, Layout, Text, Verbs};
use zerocopy::little_endian::{F64, I32, U32};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::command::command;
use crate::process::{Server, signal};
use crate::scratch;

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Place {
    row: I32,
    is_aisle: bool,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Product {
    stock: U32,
    weight: F64,
    sku: [u8; 8],
    places: [Place; 2],
    name: Text,
}

/// A folder of one test, and a server with its data there.
struct Shop {
    folder: PathBuf,
    server: Server,
}

impl Shop {
    fn open(name: &str) -> Shop {
        let folder = scratch::folder(format!("rows-{name}"));
        fs::create_dir_all(&folder).unwrap();
        let server = Server::start(
            command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
                .args(["--shards", "2", "--cache-bytes", "1MiB"])
                .args(["--segment-bytes", "16MiB", "--data"])
                .arg(folder.join("data"))
                .stderr(Stdio::null()),
        );
        Shop { folder, server }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().into()
    }

    fn run(&self, words: &[&str]) -> Output {
        let address = self.server.address.to_string();
        let words = [words, &["--addr", &address]].concat();
        command(&words).output().unwrap()
    }

    /// What the command prints; it must end with this code.
    fn output_of(&self, code: i32, words: &[&str]) -> (String, String) {
        let output = self.run(words);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{words:?}\n{out}\n{err}");
        (out, err)
    }

    /// `load -`, with its input held open.
    fn loader(&self, words: &[&str]) -> Child {
        let address = self.server.address.to_string();
        command(&["load", "-", "--format", "csv", "--addr", &address])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    fn all(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let client = self.client();
        let entries = client.scan(b"", true).map(|entry| {
            let entry = entry.unwrap();
            (entry.key.to_vec(), entry.value.unwrap().to_vec())
        });
        entries.collect()
    }
}

#[test]
fn rows_become_values_that_a_program_reads_by_its_layout() {
    let shop = Shop::open("layout");
    let layout = Product::LAYOUT.to_string();
    let csv = shop.file(
        "products.csv",
        "key,name,stock,weight,sku,places[0].row,places[0].is_aisle,places[1].row,\
         places[1].is_aisle,color\n\
         tee,\"Tee, \"\"white\"\"\",100,0.25,AB-1,-1,true,2,false,white\n\
         cap,,0,1e-3,0x00ff,0,0,0,1,black\n",
    );
    let (out, err) = shop.output_of(0, &["load", &csv, "--prefix", "p:", "--layout", &layout]);
    assert!(
        out.starts_with("2 rows: 2 written, 0 there with the same value"),
        "{out}"
    );
    assert_eq!(err, "not loaded: color\n");
    let value = shop.client().get(b"p:tee").wait().unwrap().unwrap();
    let expected = Product::build()
        .with(Product::stock(), 100)
        .with(Product::weight(), 0.25)
        .with(Product::sku(), *b"AB-1\0\0\0\0")
        .with(Product::places().at(0).then(Place::row()), -1)
        .with(Product::places().at(0).then(Place::is_aisle()), true)
        .with(Product::places().at(1).then(Place::row()), 2)
        .with(Product::name(), "Tee, \"white\"")
        .finish();
    assert_eq!(&value.bytes, expected.bytes());

    // The same as JSON lines, which nest: nothing is new.
    let json = shop.file(
        "products.jsonl",
        "{\"key\":\"tee\",\"name\":\"Tee, \\\"white\\\"\",\"stock\":100,\"weight\":0.25,\
         \"sku\":\"AB-1\",\"places\":[{\"row\":-1,\"is_aisle\":true},\
         {\"row\":2,\"is_aisle\":false}]}\n",
    );
    let (out, _) = shop.output_of(0, &["load", &json, "--prefix", "p:", "--layout", &layout]);
    assert!(
        out.starts_with("1 row: 0 written, 1 there with the same value, 0 "),
        "{out}"
    );

    // The mark of the keyspace is that of the program, and another layout is refused.
    shop.client().mark_layout::<Product>(b"p:").unwrap();
    shop.output_of(0, &["load", &csv, "--prefix", "p:", "--layout", &layout]);
    let other = ["load", &csv, "--prefix", "p:", "--layout", "stock:u32@0;=4"];
    let (_, err) = shop.output_of(2, &other);
    assert!(err.contains(&Product::LAYOUT.mark().to_string()), "{err}");
    for word in ["export", "report"] {
        shop.output_of(0, &[word, "p:", "--layout", &layout]);
        shop.output_of(2, &[word, "p:", "--layout", "stock:u32@0;=4"]);
    }
    shop.server.stop();
}

#[test]
fn a_row_that_does_not_fit_is_named_and_the_rows_before_it_are_loaded_and_counted() {
    let shop = Shop::open("misfit");
    let layout = ["--layout", "units:u16@0;=2"];
    for (at, (row, part)) in [
        (
            "c,70000",
            "column 2 (units): found \"70000\", allowed is a number, 0..65535",
        ),
        ("c,", "column 2 (units): found \"\", allowed is a number"),
        (
            ",3",
            "column 1 (key): found \"\", allowed is 1 to 1024 bytes",
        ),
        ("c,3,4", "found 3 columns, allowed is 2"),
        ("c,\"3\n4\"", "column 2 (units): found \"3\\n4\""),
    ]
    .into_iter()
    .enumerate()
    {
        let file = shop.file(
            "rows.csv",
            &format!("key,units\na{at},1\nb{at},2\n{row}\nd{at},5\n"),
        );
        let (out, err) = shop.output_of(2, &[&["load", &file][..], &layout].concat());
        let place = format!("{file}:4: ");
        assert!(err.contains(&place) && err.contains(part), "{err}");
        assert!(err.contains("answered are 2 rows, through line 3"), "{err}");
        assert!(out.starts_with("2 rows: 2 written"), "{out}");
        assert_eq!(shop.all().len(), 2 * (at + 1), "{row}");
    }
    let file = shop.file(
        "rows.jsonl",
        "{\"key\":\"x\",\"units\":1}\n{\"key\":\"y\"}\n",
    );
    let (_, err) = shop.output_of(2, &[&["load", &file][..], &layout].concat());
    assert!(err.contains(":2: column units: it is missing"), "{err}");
    let before = shop.all();
    let (out, err) = shop.output_of(2, &[&["load", &file, "--check"][..], &layout].concat());
    assert!(
        out.contains("nothing was written") && err.contains(":2: column units"),
        "{err}"
    );
    // A check goes on, and names each row that does not fit, but not all of very many.
    let rows: String = (0..30).map(|row| format!("k{row},bad\n")).collect();
    let file = shop.file("many.csv", &format!("key,units\ngood,1\n{rows}last,1\n"));
    let (out, err) = shop.output_of(2, &[&["load", &file, "--check"][..], &layout].concat());
    assert!(out.contains("nothing was written"), "{out}");
    assert_eq!(err.matches("column ").count(), 20, "{err}");
    assert!(err.contains("many.csv: 30 rows do not fit"), "{err}");
    // What the server refuses is named, too: its limit may be lower than that of the format.
    let long = "x".repeat(1 << 21);
    let file = shop.file("long.csv", &format!("key,value\nk,short\nlong,{long}\n"));
    let (out, err) = shop.output_of(2, &["load", &file]);
    assert!(err.contains("long.csv:3: key \"long\": "), "{err}");
    assert!(out.contains("1 written"), "{out}");
    assert_eq!(shop.all().len(), before.len() + 1);
    shop.server.stop();
}

#[test]
fn a_load_that_is_killed_is_run_again_and_nothing_is_lost_or_changed() {
    let shop = Shop::open("killed");
    const ROWS: usize = 20_000;
    let rows: String = (0..ROWS).map(|at| format!("k{at},u32 {at}\n")).collect();
    let text = format!("key,value\n{rows}");
    // The second half comes only after the first is partly there.
    let mut loader = shop.loader(&["--prefix", "p:"]);
    let mut input = loader.stdin.take().unwrap();
    input.write_all(&text.as_bytes()[..text.len() / 2]).unwrap();
    let client = shop.client();
    let last_quarter = format!("p:k{}", ROWS / 4);
    while client
        .get(last_quarter.as_bytes())
        .wait()
        .unwrap()
        .is_none()
    {
        std::thread::yield_now();
    }
    loader.kill().unwrap();
    loader.wait().unwrap();
    let there = shop.all().len();
    assert!((1..ROWS).contains(&there), "{there}");

    let file = shop.file("rows.csv", &text);
    let (out, _) = shop.output_of(0, &["load", &file, "--prefix", "p:"]);
    let numbers: Vec<usize> = out
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    // Rows that were on their way when the first load was killed came behind the count.
    let [rows, new, same, other] = numbers[..] else {
        panic!("{out}")
    };
    assert_eq!((rows, new + same, other), (ROWS, ROWS, 0), "{out}");
    assert!(same >= there, "{there}: {out}");
    let all = shop.all();
    for at in 0..ROWS {
        let value = all.get(format!("p:k{at}").as_bytes());
        assert_eq!(
            value.map(Vec::as_slice),
            Some(format!("u32 {at}").as_bytes())
        );
    }
    assert_eq!(all.len(), ROWS);
    // The rest of a file is a load, too.
    let line = (ROWS + 1).to_string();
    let (out, _) = shop.output_of(0, &["load", &file, "--prefix", "p:", "--from-line", &line]);
    assert!(out.starts_with("1 row: 0 written, 1 there"), "{out}");
    shop.server.stop();
}

#[test]
fn a_load_that_is_interrupted_ends_with_what_is_answered() {
    let shop = Shop::open("interrupted");
    let mut loader = shop.loader(&[]);
    let mut input = loader.stdin.take().unwrap();
    // More than the buffer of the reader, so that the loader has seen some of it.
    let rows: String = (0..5_000).map(|at| format!("k{at},{at}\n")).collect();
    input
        .write_all(format!("key,value\n{rows}").as_bytes())
        .unwrap();
    let client = shop.client();
    while client.get(b"k100").wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    signal(loader.id(), "-INT");
    // A row that comes later is not loaded.
    while loader.try_wait().unwrap().is_none() {
        if input.write_all(b"late,late\n").is_err() {
            break;
        }
        std::thread::yield_now();
    }
    drop(input);
    let output = loader.wait_with_output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(3), "{out}{err}");
    let there = shop.all().len();
    assert!(out.contains(&format!(" {there} written")), "{there}: {out}");
    assert!(err.contains("interrupted; answered are"), "{err}");
    shop.server.stop();
}

#[test]
fn another_value_stays_and_is_counted_until_overwrite_says_otherwise() {
    let shop = Shop::open("other");
    let client = shop.client();
    client.set(b"stock:a", b"sold down to 3").wait().unwrap();
    let file = shop.file(
        "rows.csv",
        "key,value\nstock:b,100\nstock:a,100\nstock:b,99\n",
    );
    let (out, err) = shop.output_of(1, &["load", &file]);
    assert!(
        out.starts_with("3 rows: 1 written, 0 there with the same value, 2 "),
        "{out}"
    );
    assert!(
        err.contains("rows.csv:3: \"stock:a\" exists with another value"),
        "{err}"
    );
    let value = |key: &[u8]| client.get(key).wait().unwrap().unwrap().bytes;
    assert_eq!(value(b"stock:a"), "sold down to 3");
    let (out, _) = shop.output_of(0, &["load", &file, "--overwrite"]);
    assert!(out.starts_with("3 rows: 3 written"), "{out}");
    // Rows of one key are written in their order.
    assert_eq!(
        (value(b"stock:a"), value(b"stock:b")),
        ("100".into(), "99".into())
    );
    shop.server.stop();
}

#[test]
fn what_is_exported_loads_to_the_same_keys_and_bytes() {
    let shop = Shop::open("export");
    let client = shop.client();
    let values: [(&[u8], &[u8]); 8] = [
        (b"plain", b"text"),
        (b"empty", b""),
        (b"quoted,\"key\"\n", b"a,\"b\"\r\nc"),
        (b"\xff\x00binary", b"\x00\x01\xfe"),
        (b"0xnot hex", b"0x12"),
        ("Schlüssel".as_bytes(), "Wert €".as_bytes()),
        (b" space ", b" "),
        (b"number", b"00123"),
    ];
    for (key, value) in values {
        client.set(key, value).wait().unwrap();
    }
    let all = shop.all();
    for (format, name) in [("jsonl", "all.jsonl"), ("csv", "all.csv")] {
        let (text, _) = shop.output_of(0, &["export", "--format", format]);
        let file = shop.file(name, &text);
        let (out, _) = shop.output_of(0, &["load", &file]);
        assert!(
            out.starts_with("8 rows: 0 written, 8 there with the same value, 0 "),
            "{out}"
        );
        for key in all.keys() {
            client.del(key).wait().unwrap();
        }
        let (out, _) = shop.output_of(0, &["load", &file]);
        assert!(out.starts_with("8 rows: 8 written"), "{out}");
        assert_eq!(shop.all(), all, "{format}");
    }
    let (text, _) = shop.output_of(0, &["export", "plain"]);
    assert_eq!(text, "{\"key\":\"plain\",\"value\":\"text\"}\n");
    shop.server.stop();
}

#[test]
fn fields_are_exported_by_name_and_a_value_of_another_layout_is_named() {
    let shop = Shop::open("fields");
    let client = shop.client();
    let layout = Product::LAYOUT.to_string();
    let words = ["export", "p:", "--layout", &layout, "--format"];
    for at in 0..50u32 {
        let name = "€".repeat(usize::try_from(at).unwrap() % 4);
        let product = Product::build()
            .with(Product::stock(), u32::MAX - at)
            .with(Product::weight(), f64::from(at) / 7.0)
            .with(Product::sku(), [u8::try_from(at).unwrap(); 8])
            .with(
                Product::places().at(1).then(Place::row()),
                -i32::try_from(at).unwrap(),
            )
            .with(Product::name(), &name)
            .finish();
        let key = format!("p:{at}");
        client.set(key.as_bytes(), product.bytes()).wait().unwrap();
    }
    let all = shop.all();
    for format in ["csv", "jsonl"] {
        let (text, _) = shop.output_of(0, &[&words[..], &[format]].concat());
        let file = shop.file(&format!("p.{format}"), &text);
        for key in all.keys() {
            client.del(key).wait().unwrap();
        }
        let (out, _) = shop.output_of(0, &["load", &file, "--layout", &layout]);
        assert!(out.starts_with("50 rows: 50 written"), "{out}");
        assert_eq!(shop.all(), all, "{format}");
    }
    client.set(b"p:other", b"short").wait().unwrap();
    let (_, err) = shop.output_of(1, &[&words[..], &["csv"]].concat());
    assert!(err.contains("\"p:other\" is not of the layout"), "{err}");
    shop.server.stop();
}

#[test]
fn a_report_counts_what_a_model_counts() {
    let shop = Shop::open("report");
    let client = shop.client();
    let (mut sum, mut least, mut greatest, mut bytes) = (0i64, i64::MAX, i64::MIN, 0);
    for at in 0..300i64 {
        let number = (at * 7_919) % 1_000 - 500;
        let value = [
            &number.to_le_bytes()[..],
            &vec![0; usize::try_from(at % 5).unwrap()],
        ];
        let value = value.concat();
        (sum, bytes) = (sum + number, bytes + value.len());
        (least, greatest) = (least.min(number), greatest.max(number));
        client
            .set(format!("n:{at}").as_bytes(), &value)
            .wait()
            .unwrap();
    }
    client.set(b"m:other", &1i64.to_le_bytes()).wait().unwrap();
    let (out, _) = shop.output_of(0, &["report", "n:", "--as", "balance=i64@0,u8@8", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let expected = serde_json::json!({
        "prefix": "n:",
        "keys": 300,
        "value_bytes": bytes,
        "fields": [
            {"name": "balance", "count": 300, "sum": sum, "min": least, "max": greatest},
            {"name": "u8@8", "count": 240, "sum": 0, "min": 0, "max": 0},
        ],
    });
    assert_eq!(report, expected);
    let (out, _) = shop.output_of(0, &["report", "n:", "--as", "u8@8"]);
    assert!(out.contains("u8@8 cannot be read from 60 values"), "{out}");
    let layout = ["report", "n:", "--layout", "balance:i64@0;=8"];
    let (out, _) = shop.output_of(0, &layout);
    let words: Vec<&str> = out.lines().nth(2).unwrap().split_whitespace().collect();
    let figures = [300, sum, least, greatest].map(|it| it.to_string());
    assert_eq!(words[0], "balance");
    assert_eq!(words[1..], figures);
    let (out, _) = shop.output_of(0, &["report", "nothing:"]);
    assert_eq!(out, "0 keys with 0 bytes of values\n");
    shop.server.stop();
}

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/programs");

#[test]
fn a_layout_is_named_by_the_schema_of_a_folder_or_of_the_server() {
    // This server has no schema: the names come from a folder.
    let shop = Shop::open("named");
    let csv = "key,available,held,sold,limit_per_buyer\ntee,100,2,7,4\ncap,5,0,0,1\n";
    let file = shop.file("stock.csv", csv);
    let load = ["load", &file, "--prefix", "stock:", "--as", "Stock"];
    shop.output_of(0, &[&load[..], &["--schema", SCHEMA]].concat());
    let numbers = [100u32, 2, 7, 4].map(u32::to_le_bytes).concat();
    assert_eq!(shop.all()[&b"stock:tee"[..]], numbers);
    let named = ["--as", "Stock", "--schema", SCHEMA];
    let words = [&["export", "stock:", "--format", "csv"][..], &named].concat();
    let (rows, _) = shop.output_of(0, &words);
    let mut rows: Vec<&str> = rows.lines().collect();
    rows[1..].sort_unstable();
    assert_eq!(
        rows,
        [
            "key,available,held,sold,limit_per_buyer",
            "stock:cap,5,0,0,1",
            "stock:tee,100,2,7,4"
        ]
    );
    let words = [&["report", "stock:", "--json"][..], &named].concat();
    let (by_name, _) = shop.output_of(0, &words);
    assert!(by_name.contains("\"sum\":105"), "{by_name}");
    let fields = "available=u32@0,held=u32@4,sold=u32@8,limit_per_buyer=u32@12";
    let (by_fields, _) = shop.output_of(0, &["report", "stock:", "--json", "--as", fields]);
    assert_eq!(by_name, by_fields);

    // A name that there is not, no schema at all, and two layouts at once.
    for command in [&["export"][..], &["report"], &["load", &file]] {
        let words = [command, &["--as", "Stok", "--schema", SCHEMA]].concat();
        let (_, why) = shop.output_of(2, &words);
        assert!(why.contains("no layout \"Stok\"; there are "), "{why}");
        let (_, why) = shop.output_of(2, &[command, &["--as", "Stock"]].concat());
        assert!(why.contains("the schema has no layouts"), "{why}");
        let (_, why) = shop.output_of(
            2,
            &[command, &["--as", "Stock", "--layout", "a:u8@0;=1"]].concat(),
        );
        assert!(why.contains("cannot be used with"), "{why}");
    }
    let (_, why) = shop.output_of(2, &["report", "--as", "u32@0", "--as", "Stock"]);
    assert!(
        why.contains("--as Stock: the name of a layout stands alone"),
        "{why}"
    );
    let (_, why) = shop.output_of(2, &["report", "--as", "u32@0,Stock"]);
    assert!(why.contains("or the name of a layout"), "{why}");
}
