//! Values of a layout in the real server: marked, checked, changed by names of fields, read back.

use std::process::Stdio;

use penstock_client::{
    Apply, Client, ClientError, ClientOptions, Layout, LayoutMismatch, Text, Verbs,
};
use penstock_net::keyspace::{Action, Settings};
use zerocopy::little_endian::{I64, U32};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::command::command;
use crate::process::Server;
use crate::scratch;

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Product {
    stock: U32,
    balance: I64,
    is_open: bool,
    name: Text,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Hold {
    units: U32,
    buyer: U32,
}

fn serve(name: &str) -> Server {
    let data = scratch::folder(name);
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", "2", "--cache-bytes", "1MiB"])
            .args(["--segment-bytes", "16MiB", "--data"])
            .arg(&data)
            .stderr(Stdio::null()),
    )
}

#[test]
fn fields_are_checked_and_changed_by_name_and_read_back() {
    let server = serve("layout-fields");
    let client = server.client();
    let key = b"product:{tee}";
    let shoe = Product::build()
        .with(Product::stock(), 2)
        .with(Product::balance(), -5)
        .with(Product::is_open(), true)
        .with(Product::name(), "Ünïcode tee")
        .finish();
    client.set(key, shoe.bytes()).wait().unwrap();
    let buy = [
        Product::is_open().or_else(2).equals(true),
        Product::stock().or_else(1).at_least(1),
        Product::stock().decrease(1),
        Product::balance().increase(3),
    ];
    for _ in 0..2 {
        client.update_if(key, &buy).wait().unwrap();
    }
    match client.update_if(key, &buy).wait() {
        Err(ClientError::No(answer)) => {
            assert_eq!((answer.reason, answer.actual()), (1, Some(0)));
        }
        other => panic!("sold out, and yet {other:?}"),
    }
    let value = client.get(key).wait().unwrap().expect("it is there");
    let read = Product::owned(value.bytes).unwrap();
    assert_eq!(
        (read.stock.get(), read.balance.get(), read.is_open),
        (0, 1, true)
    );
    assert_eq!(read.text(Product::name()).unwrap(), "Ünïcode tee");

    // APPLY takes the same names.
    let mut order = Apply::new();
    let (product, hold) = (order.key(key), order.key(b"hold:{tee}:7"));
    let held = Hold::build()
        .with(Hold::units(), 4)
        .with(Hold::buyer(), 7)
        .finish();
    order
        .then(Product::balance().of(product).equals(1u64))
        .then(Product::stock().of(product).increase(4u64))
        .put(hold, held.bytes())
        .then(
            Product::stock()
                .of(product)
                .decrease(Hold::units().of(hold)),
        );
    client.apply(&order).wait().unwrap();
    let value = client.get(b"hold:{tee}:7").wait().unwrap().expect("held");
    let read = Hold::view(&value.bytes).unwrap();
    assert_eq!((read.units.get(), read.buyer.get()), (4, 7));
    let value = client.get(key).wait().unwrap().expect("it is there");
    assert_eq!(Product::view(&value.bytes).unwrap().stock.get(), 0);
    server.stop();
}

#[test]
fn a_client_with_another_layout_is_refused_behind_the_connect() {
    let server = serve("layout-marks");
    let connect = || Client::connect(server.address, ClientOptions::default()).unwrap();
    let unmarked = connect().expects::<Product>(b"product:").unwrap_err();
    let text = unmarked.to_string();
    assert!(
        matches!(unmarked, LayoutMismatch::Unmarked { .. }),
        "{text}"
    );

    // What the message says is what helps.
    let (_, paste) = text.split_once("penstock ").expect("it names a command");
    let words: Vec<String> = shlex::split(paste).expect("words of a shell");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let address = server.address.to_string();
    let done = command(&words).args(["--addr", &address]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    connect().expects::<Product>(b"product:").unwrap();

    let other = connect().expects::<Hold>(b"product:").unwrap_err();
    assert!(matches!(other, LayoutMismatch::Other { .. }), "{other}");
    let other = connect().mark_layout::<Hold>(b"product:").unwrap_err();
    assert!(matches!(other, LayoutMismatch::Other { .. }), "{other}");
    connect().expects::<Product>(b"product:").unwrap();

    // A mark leaves the other settings, and may be made again.
    let settings = Settings {
        versions: 3,
        ..Settings::default()
    };
    let client = connect();
    client
        .keyspace(b"hold:", Action::Set(settings))
        .wait()
        .unwrap();
    for _ in 0..2 {
        client.mark_layout::<Hold>(b"hold:").unwrap();
    }
    let all = client.keyspace(b"", Action::List).wait().unwrap();
    let hold = all.iter().find(|it| it.prefix == b"hold:").unwrap();
    assert_eq!(
        (hold.settings.versions, hold.settings.layout),
        (3, Hold::LAYOUT.mark())
    );
    client.expects::<Hold>(b"hold:1").unwrap();
    server.stop();
}
