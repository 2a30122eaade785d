//! Scripts by chance: none panics, budgets hold, and two interpreters agree.

use penstock_net::resp::Protocol;
use penstock_scripts::ScriptLimits;
use penstock_shard::scripts::ScriptEnd;

use crate::patterns::Chance;
use crate::store::Client;

const VALUES: [&str; 30] = [
    "nil",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2.5",
    "1e308",
    "1/0",
    "'a'",
    "''",
    "'12'",
    "{}",
    "{1,2,3}",
    "{a=1,b={2}}",
    "t",
    "s",
    "n",
    "f",
    "KEYS",
    "ARGV",
    "KEYS[1]",
    "_G",
    "string",
    "cjson.null",
    "redis",
    "('x'):rep(50)",
    "{[1]=1,[9]=9}",
    "#t",
    "coroutine.create(f)",
];
const CALLS: [&str; 48] = [
    "tostring",
    "tonumber",
    "type",
    "pairs",
    "next",
    "ipairs",
    "pcall",
    "select",
    "unpack",
    "rawget",
    "rawset",
    "setmetatable",
    "getmetatable",
    "error",
    "assert",
    "loadstring",
    "load",
    "string.rep",
    "string.find",
    "string.gsub",
    "string.gmatch",
    "string.format",
    "string.byte",
    "string.char",
    "string.sub",
    "table.concat",
    "table.sort",
    "table.insert",
    "table.remove",
    "math.random",
    "math.floor",
    "cjson.encode",
    "cjson.decode",
    "cmsgpack.pack",
    "cmsgpack.unpack",
    "bit.band",
    "bit.tohex",
    "struct.pack",
    "struct.unpack",
    "redis.call",
    "redis.pcall",
    "redis.sha1hex",
    "redis.error_reply",
    "redis.setresp",
    "coroutine.wrap",
    "coroutine.resume",
    "xpcall",
    "redis.status_reply",
];

fn expression(chance: &mut Chance, depth: usize) -> String {
    match chance.below(if depth == 0 { 2 } else { 7 }) {
        0 | 1 => String::from(chance.pick(&VALUES)),
        2 | 3 => {
            let name = chance.pick(&CALLS);
            let count = chance.below(4);
            let arguments: Vec<_> = (0..count).map(|_| expression(chance, depth - 1)).collect();
            format!("{name}({})", arguments.join(", "))
        }
        4 => {
            let operator = chance.pick(&["+", "..", "==", "<", "and", "or", "%", "^"]);
            let left = expression(chance, depth - 1);
            format!("({left} {operator} {})", expression(chance, depth - 1))
        }
        5 => format!(
            "({})[{}]",
            expression(chance, depth - 1),
            expression(chance, depth - 1)
        ),
        _ => {
            let command = chance.pick(&["'get'", "'set'", "'incr'", "'del'", "'mget'", "'time'"]);
            let argument = expression(chance, depth - 1);
            format!("redis.pcall({command}, 'k', {argument})")
        }
    }
}

fn statement(chance: &mut Chance) -> String {
    let value = expression(chance, 3);
    match chance.below(9) {
        0 => format!("t[{}] = {value}", expression(chance, 1)),
        1 => format!("s = {value}"),
        2 => format!("n = {value}"),
        3 => format!("for k, v in pairs({value}) do n = v end"),
        4 => format!("for i = 1, {value} do n = i end"),
        5 => format!("pcall(function() {} end)", statement_end(&value)),
        6 => format!("if {value} then n = 1 end"),
        7 => format!("while {value} do n = 1 end"),
        _ => format!("f = function(...) return {value} end"),
    }
}

fn statement_end(value: &str) -> String {
    format!("return {value}")
}

fn script(chance: &mut Chance) -> String {
    let mut text = String::from("local t, s, n, f = {1}, 'abc', 5, function(x) return x end\n");
    for _ in 0..chance.below(6) {
        // A statement that fails ends the script, so most are caught.
        text += &match chance.below(3) {
            0 => statement(chance),
            _ => format!("pcall(function() {} end)", statement(chance)),
        };
        text.push('\n');
    }
    text + "return " + &expression(chance, 3)
}

#[test]
fn scripts_by_chance_end_within_their_budget_and_alike_in_two_interpreters() {
    let limits = ScriptLimits {
        steps_max: 20_000,
        memory_bytes_max: 4 << 20,
        ..ScriptLimits::default()
    };
    let mut chance = Chance(0x00c0_ffee);
    // One interpreter has run all scripts before, the other one none.
    let mut old = Client::with(limits);
    let (mut answered, mut failed) = (0, 0);
    for _ in 0..3_000 {
        let text = script(&mut chance);
        let mut fresh = Client::with(limits);
        let protocol = [Protocol::Resp2, Protocol::Resp3][chance.below(2)];
        let replies = [&mut old, &mut fresh].map(|client| {
            client.store = crate::store::Store::default();
            client.store.set("k", "7");
            client.protocol = protocol;
            (
                client.eval(&text, &["k"], &["1", "x"]),
                client.end,
                client.store.get("k"),
            )
        });
        let [of_old, of_fresh] = replies;
        let is_at_a_limit = of_old.0.contains("script stopped");
        assert!(
            of_old == of_fresh || is_at_a_limit,
            "{text}\n{of_old:?}\n{of_fresh:?}"
        );
        assert!(
            !of_old.0.contains("0x7") && !of_old.0.contains("0x5"),
            "{text}\n{of_old:?}"
        );
        assert!(old.lua_bytes() < limits.memory_bytes_max);
        match of_old.1 {
            ScriptEnd::Answered => answered += 1,
            _ => failed += 1,
        }
    }
    assert!(answered > 300 && failed > 300, "{answered} {failed}");
}
