//! Nanoseconds of one run, and of so many steps: `cargo run --release -p penstock-scripts --example
//! speed`. With a name and a number, that script alone runs so many times, for a profiler:
//! `valgrind --tool=callgrind target/profiling/examples/speed buy 10000`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use penstock_net::resp::{Protocol, Replies};
use penstock_scripts::{Lua, ScriptLimits, ScriptTexts};
use penstock_shard::scripts::{Called, Calls, Script, ScriptEnd, ScriptRun, Scripts};

const RUNS: u32 = 200_000;

/// Answers at once, so that only the interpreter is measured.
struct Fixed;

impl Calls for Fixed {
    fn call(&mut self, args: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Called {
        let mut replies = Replies::new(reply, protocol);
        match args[0] {
            b"GET" => replies.bulk(b"100"),
            _ => replies.integer(99),
        }
        Called::Answered
    }

    fn log(&mut self, _: u8, _: &[u8]) {}
}

const BUY: &str = "local left = tonumber(redis.call('GET', KEYS[1]))
if left >= tonumber(ARGV[1]) then return redis.call('DECRBY', KEYS[1], ARGV[1]) end
return -1";

fn main() {
    let texts = Arc::new(ScriptTexts::new());
    let mut lua = Lua::new(Arc::clone(&texts), ScriptLimits::default());
    let scripts = [
        ("empty", "return 1"),
        ("get", "return redis.call('GET', KEYS[1])"),
        ("buy", BUY),
        (
            "json",
            "local t = cjson.decode(ARGV[2]) t.n = t.n + 1 return cjson.encode(t)",
        ),
        (
            "strings",
            "return ('a=1,b=2,c=3'):gsub('(%w)=(%w)', '%2=%1')",
        ),
        (
            "walk",
            "local n = 0 for k, v in pairs({a=1,b=2,c=3,d=4}) do n = n + v end return n",
        ),
    ];
    let chosen = std::env::args().nth(1);
    let runs = std::env::args()
        .nth(2)
        .map_or(RUNS, |runs| runs.parse().expect("a number of runs"));
    for (name, text) in scripts {
        if chosen.as_deref().is_some_and(|chosen| chosen != name) {
            continue;
        }
        let digest = texts.load(text.as_bytes()).expect("it compiles");
        let mut reply = Vec::new();
        let begin = Instant::now();
        for _ in 0..runs {
            reply.clear();
            let end = run(&mut lua, Script::Digest(digest), &mut reply);
            assert_eq!(end, ScriptEnd::Answered);
            black_box(&reply);
        }
        println!(
            "{name:>8} {:>6} ns",
            begin.elapsed().as_nanos() / u128::from(runs)
        );
    }
    if chosen.is_some() {
        return;
    }
    for (name, text) in [
        ("loop", "local x = 0 while true do x = x + 1 end"),
        ("tables", "while true do local t = {1, 2, 3} end"),
        (
            "concat",
            "local s = ('x'):rep(1000) while true do local t = s .. 'y' end",
        ),
        (
            "match",
            "local s = ('a'):rep(1000) while true do s:find('.-b') end",
        ),
        (
            "upper",
            "local s = ('a'):rep(10000) while true do s:upper() end",
        ),
        (
            "decode",
            "local s = '[' .. ('1,'):rep(99) .. '1]' while true do cjson.decode(s) end",
        ),
        ("call", "while true do redis.call('GET', 'a') end"),
        (
            "coroutine",
            "while true do coroutine.wrap(function() end)() end",
        ),
        (
            "varargs",
            "local function f(...) return f(...) end f(unpack({}, 1, 7000))",
        ),
        (
            "compare",
            "local a, b = ('a'):rep(1e6) .. 'a', ('a'):rep(1e6) .. 'b' \
                     while true do local c = a < b end",
        ),
        (
            "digits",
            "local a = ('0'):rep(1e5) while true do local c = a + 0 end",
        ),
        (
            "grown",
            "local a = '0' while #a < 60000 do a = a .. a end while true do local c = a + 0 end",
        ),
    ] {
        let mut reply = Vec::new();
        let begin = Instant::now();
        let end = run(&mut lua, Script::Text(text.as_bytes()), &mut reply);
        assert_eq!(end, ScriptEnd::Failed);
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        println!(
            "{name:>9} {ms:>8.1} ms {}",
            String::from_utf8_lossy(&reply).trim_end()
        );
    }
}

fn run(lua: &mut Lua, script: Script<'_>, reply: &mut Vec<u8>) -> ScriptEnd {
    let run = ScriptRun {
        script,
        keys: &[b"stock:{1}"],
        arguments: &[b"1", b"{\"n\":1,\"name\":\"a\"}"],
        protocol: Protocol::Resp2,
        reply_bytes_max: 1 << 20,
        seed: 7,
    };
    lua.run(&run, &mut Fixed, reply)
}
