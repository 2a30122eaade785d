//! Holds of the shipped sale on the real server: whatever edits an order, its units come back.

use std::time::Instant;

use super::{PATIENCE, Talk, start};

/// The programs that are shipped.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/programs");
/// One unit that is held, as `buy` writes it.
const ONE: &str = "\u{1}\0\0\0\0\0\0\0";
const STOCK: &str = "stock:{t}";
const UNITS: &str = "100";

/// Edits of an order: commands that stand alone, and the same behind MULTI.
const EDITS: &[&[&str]] = &[
    &["APPEND", "ORDER", "x"],
    &["SETRANGE", "ORDER", "6", "x"],
    &["SET", "ORDER", ONE, "KEEPTTL"],
    &["SET", "ORDER", ONE, "KEEPTTL", "GET"],
    &["SET", "ORDER", ONE, "IFEQ", ONE, "KEEPTTL"],
    &["KV.APPLY", "ORDER", "k1 replace", ONE],
    &["KV.APPLY", "ORDER", "k1.u8@5 += 1"],
    &["EXPIRE", "ORDER", "1"],
    &["PEXPIREAT", "ORDER", "1"],
    &["GETEX", "ORDER", "PX", "700"],
];

/// What the stock has to sell.
fn available(talk: &mut Talk) -> u32 {
    let reply = talk.ask(&["KV.APPLY", STOCK, "return k1.u32@0"]);
    let number = reply.split("\r\n").find_map(|line| line.strip_prefix(':'));
    number.expect(&reply).parse().expect("a number")
}

#[test]
fn units_of_a_hold_come_back_whatever_has_edited_its_order() {
    let resp = start("resp-holds", &["--shards", "2", "--schema", SHIPPED]);
    let mut talk = Talk::with(resp.address);
    let quantity = format!("quantity={UNITS}");
    let restock = ["KV.RUN", "restock", STOCK, &quantity, "limit_per_buyer=100"];
    assert!(talk.ask(&restock).contains("OK"), "restocked");
    let mut orders = Vec::new();
    for (number, edit) in EDITS.iter().enumerate() {
        for is_queued in [false, true] {
            if is_queued && edit[0] == "KV.APPLY" {
                continue;
            }
            let order = format!("order:{{t}}:{number}:{is_queued}");
            let buyer = "buyer:{t}:ann";
            let buy = ["KV.RUN", "buy", STOCK, "KEY", &order, "KEY", buyer];
            let bought = talk.ask(&[&buy[..], &["quantity=1", "hold_ms=1500"]].concat());
            assert!(bought.contains("\r\nOK\r\n"), "{bought}");
            let place = |word: &&'static str| {
                if *word == "ORDER" {
                    order.as_str()
                } else {
                    word
                }
            };
            let words: Vec<&str> = edit.iter().map(place).collect();
            if is_queued {
                talk.ask(&["MULTI"]);
            }
            let reply = talk.ask(&words);
            let reply = if is_queued {
                talk.ask(&["EXEC"])
            } else {
                reply
            };
            assert!(!reply.contains("-E"), "{words:?}: {reply}");
            orders.push(order);
        }
    }
    let begun = Instant::now();
    for order in &orders {
        while talk.ask(&["EXISTS", order]) != ":0\r\n" {
            assert!(begun.elapsed() < PATIENCE, "{order} stays");
        }
    }
    let back = available(&mut talk);
    assert_eq!(
        back.to_string(),
        UNITS,
        "all {} holds came back",
        orders.len()
    );
    resp.server.stop();
}
