//! Names in the answers of KV.APPLY and KV.RUN, on the real server.

use super::{Talk, encode, start};

/// The programs that are shipped.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/programs");

#[test]
fn answers_have_names_of_numbers_and_words_of_instructions_for_who_asks() {
    let resp = start("resp-names", &["--shards", "2", "--schema", SHIPPED]);
    for protocol in ["2", "3"] {
        let mut talk = Talk::with(resp.address);
        talk.ask(&["HELLO", protocol]);
        let map = |count: usize| match protocol {
            "2" => format!("*{}\r\n", 2 * count),
            _ => format!("%{count}\r\n"),
        };
        let stock = format!("stock:{{{protocol}}}");
        let restock = [
            "KV.RUN",
            "restock",
            &stock,
            "quantity=5",
            "limit_per_buyer=9",
        ];
        let plain = talk.ask(&restock);
        assert!(plain.starts_with(&map(6)), "as before: {plain}");
        assert!(talk.ask(&["KV.OPTS"]).starts_with(&map(4)));
        assert_eq!(talk.ask(&["KV.OPTS", "names=on"]), "+OK\r\n");
        assert!(talk.ask(&["KV.OPTS"]).starts_with(&map(5)));
        let named = talk.ask(&restock);
        assert!(named.starts_with(&map(8)), "{named}");
        let fields = format!(
            "$6\r\nfields\r\n{}$15\r\nstock.available\r\n:10\r\n$21\r\nstock.limit_per_buyer\r\n:9\r\n",
            map(2)
        );
        assert!(named.contains(&fields), "{named}");
        let (order, buyer) = (
            format!("order:{{{protocol}}}"),
            format!("buyer:{{{protocol}}}"),
        );
        let buy = ["KV.RUN", "buy", &stock, "KEY", &order, "KEY", &buyer];
        let refused = talk.ask(&[&buy[..], &["quantity=99", "hold_ms=60000"]].concat());
        let fields = format!(
            "$6\r\nfields\r\n{}$15\r\nstock.available\r\n:10\r\n",
            map(1)
        );
        assert!(refused.contains(&fields), "{refused}");
        let text = "$4\r\ntext\r\n$34\r\nstock.available >= quantity else 1\r\n";
        assert!(refused.contains(text), "{refused}");
        // The words of KV.APPLY are those of the command.
        let key = format!("n:{{{protocol}}}");
        let apply = [
            "KV.APPLY",
            &key,
            "k1 start 0",
            "k1.decimal += 7",
            "return k1.decimal",
        ];
        talk.send(&[encode(&apply.map(str::as_bytes)), encode(&[b"PING"])].concat());
        let named = String::from_utf8(talk.reply()).unwrap();
        let fields = format!(
            "{}$10\r\nk1.decimal\r\n:7\r\n$10\r\nk1.decimal\r\n:7\r\n",
            map(2)
        );
        assert!(named.contains(&fields), "{named}");
        assert_eq!(talk.reply(), b"+PONG\r\n");
        let refused = talk.ask(&["KV.APPLY", &key, "k1.decimal >= 8 else 2"]);
        let text = "$4\r\ntext\r\n$22\r\nk1.decimal >= 8 else 2\r\n";
        assert!(refused.contains(text), "{refused}");
        assert_eq!(talk.ask(&["RESET"]), "+RESET\r\n");
        talk.ask(&["HELLO", protocol]);
        assert!(talk.ask(&restock).starts_with(&map(6)), "RESET undoes it");
    }
    resp.server.stop();
}
