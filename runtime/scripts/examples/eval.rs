//! Answers scripts from the standard input, to compare them with another server: each is its length
//! in a line, `2` or `3` for the protocol, and the text. Each reply is its length in a line and its
//! bytes.

#[path = "../tests/it/store.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use the rest of it")]
mod store;

use std::io::{self, BufRead, Read, Write};

use penstock_net::resp::Protocol;
use penstock_shard::scripts::Script;

fn main() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    let mut client = store::Client::new();
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let mut words = line.split_whitespace();
        let len = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        client.protocol = match words.next() {
            Some("3") => Protocol::Resp3,
            _ => Protocol::Resp2,
        };
        let mut text = vec![0; len];
        input.read_exact(&mut text)?;
        let reply = client.run(Script::Text(&text), &[], &[]);
        writeln!(output, "{}", reply.len())?;
        output.write_all(&reply)?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}
