//! Scripts that loop, grow, recurse or catch what must not be caught.

use std::cell::Cell;

use penstock_scripts::{Patience, ScriptLimits};
use penstock_shard::scripts::ScriptEnd;

use crate::store::Client;

const STEPS: &str = "option script_steps_max";
const MEMORY: &str = "bytes of each core";

/// The script fails with a text, and the interpreter serves the next one.
fn stopped(script: &str, text: &str) {
    let mut client = Client::new();
    let reply = client.value(script);
    assert!(
        reply.starts_with("-ERR script stopped: ") && reply.contains(text),
        "{script}: {reply}"
    );
    assert_eq!(client.end, ScriptEnd::Failed);
    assert_eq!(client.value("return 1"), ":1\r\n");
    assert!(client.lua_bytes() < ScriptLimits::default().memory_bytes_max);
}

#[test]
fn loops_end() {
    for script in [
        "while true do end",
        "repeat until false",
        "local function f() return f() end f()",
        "for i = 1, 1e18 do end",
        "while true do pcall(error) end",
        "while true do pcall(function() while true do end end) end",
        "while true do coroutine.wrap(function() end)() end",
        "local f = function() while true do end end while true do xpcall(f, f) end",
        "local c = coroutine.wrap(function() while true do coroutine.yield() end end) \
         while true do c() end",
        "while true do redis.call('get', 'a') end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) \
         while true do pcall(function() return t[1] end) end",
        "load(function() while true do end end)",
        "('x'):gsub('x', function() while true do end end)",
        "table.sort({1,2,3}, function() while true do end end)",
        "tostring(setmetatable({}, {__tostring = function() while true do end end}))",
    ] {
        stopped(script, STEPS);
    }
}

#[test]
fn loops_of_library_functions_end() {
    for script in [
        "local s = ('a'):rep(1000) while true do s:find(('a?'):rep(30) .. ('a'):rep(30)) end",
        "local s = ('a'):rep(5000) s:find('.-.-.-.-b')",
        "local s = ('a'):rep(100000) while true do s:find('b', 1, true) end",
        "local s = ('ab'):rep(50000) while true do s:gsub('a', 'b') end",
        "local s = ('a'):rep(100000) while true do s:upper() end",
        "local s = ('a'):rep(100000) while true do s:sub(2) end",
        "local s = ('a'):rep(6000) while true do s:byte(1, -1) end",
        "local t = {} while true do unpack(t, 1, 7000) end",
        "local t = {} for i = 1, 1000 do t[i] = 'x' end while true do table.concat(t) end",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do cjson.encode(t) end",
        "local s = '[' .. ('1,'):rep(10000) .. '1]' while true do cjson.decode(s) end",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do cmsgpack.pack(t) end",
        "local s = ('\\1'):rep(5000) while true do cmsgpack.unpack(s) end",
        "local s = ('x'):rep(1000) while true do struct.pack('s', s) end",
        "local s = ('x'):rep(100000) while true do redis.sha1hex(s) end",
        "while true do string.rep('x', 100000) end",
        "for i = 1, 1e9 do table.concat({}, '', 1, 0) end",
        "table.concat(setmetatable({}, {}), '', 1, 1e15)",
    ] {
        let mut client = Client::new();
        let reply = client.value(script);
        assert!(reply.starts_with("-ERR"), "{script}: {reply}");
        assert_eq!(client.value("return 1"), ":1\r\n");
    }
}

#[test]
fn memory_has_a_limit_and_the_interpreter_lives_on() {
    for script in [
        "local t = {} while true do t[#t + 1] = ('x'):rep(100) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e8)",
        "return string.rep('x', 2^31 - 1)",
        "return ('x'):rep(1e6):gsub('x', ('y'):rep(1000))",
        "while true do pcall(string.rep, 'x', 1e9) end",
        "local s = ('x'):rep(1e6) return string.format('%s%s%s%s%s%s%s%s', s, s, s, s, s, s, s, s)",
        "local s = ('x'):rep(2e6) return s .. s .. s .. s .. s .. s .. s .. s .. s",
    ] {
        let mut client = Client::with(ScriptLimits {
            steps_max: 5_000_000,
            ..ScriptLimits::default()
        });
        let reply = client.value(script);
        assert!(
            reply.starts_with("-ERR script stopped: "),
            "{script}: {reply}"
        );
        assert!(
            reply.contains(MEMORY) || reply.contains(STEPS),
            "{script}: {reply}"
        );
        assert_eq!(client.value("return 1"), ":1\r\n");
        assert!(client.lua_bytes() < 1 << 20, "{script}");
    }
    stopped("return string.rep('x', 2e7)", MEMORY);
}

#[test]
fn garbage_within_a_run_is_collected() {
    let mut client = Client::with(ScriptLimits {
        steps_max: 50_000_000,
        ..ScriptLimits::default()
    });
    let script = "for i = 1, 300 do local s = ('x'):rep(200000) .. i end return 1";
    assert_eq!(client.value(script), ":1\r\n");
}

#[test]
fn recursion_has_a_limit() {
    for script in [
        "local function f() return f() + 1 end return f()",
        "local function f() return pcall(f) end return f()",
        "local function f() return ('x'):gsub('x', f) end return f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local t = {} for i = 1, 5000 do t = {t} end return cjson.encode(t)",
        "return cjson.decode(('['):rep(5000))",
        "return cmsgpack.unpack(('\\145'):rep(5000))",
        "local t = {} t[1] = t return t",
        "local t = {} t[1] = t t[2] = t return t",
        "local t = {} t.map = {a = t} return t",
        "return ('x'):find(('a?'):rep(5000))",
        "return loadstring('return ' .. ('('):rep(5000))()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "local t = {} for i = 1, 200 do t = setmetatable({}, {__index = t}) end return t.x",
    ] {
        let mut client = Client::new();
        let reply = client.value(script);
        assert!(
            client.end == ScriptEnd::Failed || reply.len() < 200,
            "{script}: {reply}"
        );
        assert_eq!(client.value("return 1"), ":1\r\n", "{script}");
    }
}

#[test]
fn a_long_reply_is_an_error() {
    let mut client = Client::new();
    client.reply_bytes_max = 1000;
    let fits = "return ('x'):rep(900)";
    assert!(client.value(fits).starts_with("$900"));
    for script in [
        "return ('x'):rep(1000)",
        "local t = {} for i = 1, 1000 do t[i] = i end return t",
        "local t = {} t[1] = {} for i = 1, 100 do t[i] = {('x'):rep(20)} end return t",
        "return {err = ('x'):rep(2000)}",
    ] {
        let reply = client.value(script);
        let text = "-ERR script stopped: its reply is longer than the limit of 1000 bytes\r\n";
        assert_eq!(reply, text, "{script}");
        assert_eq!(client.end, ScriptEnd::Failed);
    }
}

#[test]
fn a_missing_answer_ends_the_run_whatever_the_script_does() {
    for script in [
        "return redis.call('get', 'cold')",
        "return redis.pcall('get', 'cold')",
        "pcall(redis.call, 'get', 'cold') return 1",
        "pcall(redis.pcall, 'get', 'cold') redis.call('set', 'a', 1) return 1",
        "xpcall(function() redis.call('get', 'cold') end, function() return 1 end) return 1",
        "coroutine.resume(coroutine.create(function() redis.call('get', 'cold') end)) return 1",
        "pcall(coroutine.wrap(function() redis.call('get', 'cold') end)) return 1",
        "pcall(table.sort, {1,2,3}, function() return redis.call('get', 'cold') end) return 1",
        "pcall(string.gsub, 'x', 'x', function() return redis.call('get', 'cold') end) return 1",
        "local t = setmetatable({}, {__index = function() return redis.call('get', 'cold') end}) \
         pcall(function() return t.x end) return 1",
        "local f = load(function() return redis.call('get', 'cold') end) return 1",
        "pcall(function() pcall(function() pcall(redis.call, 'get', 'cold') end) end) return 1",
        "local ok = pcall(redis.call, 'get', 'cold') while true do end",
    ] {
        let mut client = Client::new();
        client.store.cold.insert(b"cold".to_vec());
        assert_eq!(client.value(script), "", "{script}");
        assert_eq!(client.end, ScriptEnd::Stopped, "{script}");
        assert_eq!(client.store.calls, 1, "{script}");
        client.store.cold.clear();
        assert_eq!(client.value("return 1"), ":1\r\n");
    }
}

#[test]
fn keys_and_arguments_count_as_memory() {
    let mut client = Client::new();
    let long = "x".repeat(20 << 20);
    let reply = client.eval("return 1", &[], &[&long]);
    assert!(reply.contains("script stopped"), "{reply}");
    assert_eq!(client.value("return 1"), ":1\r\n");
}

#[test]
fn many_scripts_stay_within_memory() {
    let mut client = Client::new();
    for number in 0..3000 {
        let script = format!("local t = {{}} t.x{number} = {number} return t.x{number}");
        assert_eq!(client.value(&script), format!(":{number}\r\n"));
    }
    assert!(client.lua_bytes() < 8 << 20, "{}", client.lua_bytes());
}

#[test]
fn a_command_takes_some_thousand_arguments_and_refuses_more() {
    let mut client = Client::new();
    let script = "local t = {} for i = 1, 6999 do t[i] = 'k' .. i end \
                  return #redis.call('mget', unpack(t))";
    assert_eq!(client.value(script), ":6999\r\n");
    let script = "local t = {} for i = 1, 7001 do t[i] = 'k' end return redis.call(unpack(t))";
    assert!(client.value(script).contains("too many results to unpack"));
    // Arguments that a function adds to those that are there already.
    let script = "local t = {} for i = 1, 7000 do t[i] = 'k' end local function f(n, ...) \
                  if n == 0 then return redis.call('mget', ...) end \
                  return f(n - 1, 'k', 'k', 'k', 'k', 'k', 'k', 'k', 'k', ...) end \
                  return #f(400, unpack(t))";
    assert!(client.value(script).starts_with('-'), "{script}");
    assert_eq!(client.value("return 1"), ":1\r\n");
}

#[test]
fn unpack_of_any_two_numbers_is_values_or_an_error() {
    let mut client = Client::new();
    let numbers = [
        "0",
        "1",
        "-1",
        "2.5",
        "7000",
        "8000",
        "2147483646",
        "2147483647",
        "2147483648",
        "4294967294",
        "4294967296",
        "9007199254740993",
        "1e300",
        "1/0",
        "0/0",
    ];
    for first in numbers {
        for last in numbers {
            for (first_sign, last_sign) in [("", ""), ("-", ""), ("", "-"), ("-", "-")] {
                let script = format!(
                    "return select('#', unpack({{}}, {first_sign}({first}), {last_sign}({last})))"
                );
                let value = client.value(&script);
                let count = value.strip_prefix(':').map(|it| it.trim().parse::<u32>());
                let is_count = count.is_some_and(|it| it.is_ok_and(|it| it <= 8_000));
                let is_error = value.contains("too many results to unpack");
                assert!(is_count || is_error, "{script}: {value}");
            }
        }
    }
    assert_eq!(
        client.value("return {unpack({7, 8, 9}, 2)}"),
        "*2\r\n:8\r\n:9\r\n"
    );
}

#[test]
fn a_text_whose_jumps_take_long_to_compile_is_refused_before_it_is_compiled() {
    let mut client = Client::new();
    let long = |count: usize| format!("a{}", " and a".repeat(count));
    let script = format!("local a = 1 return {}", long(4_096));
    assert_eq!(client.value(&script), ":1\r\n");
    let script = format!("local a = 1 return {}", long(4_097));
    assert!(
        client
            .value(&script)
            .contains("4097 times; 4096 is the limit")
    );
    let script = "local f, e = loadstring('return a' .. (' and a'):rep(4097)) return e";
    assert!(
        client
            .value(script)
            .contains("4097 times; 4096 is the limit")
    );
}

thread_local! {
    static READINGS: Cell<u64> = const { Cell::new(0) };
}

/// A clock that goes on by a millisecond with each reading.
fn reading_us() -> u64 {
    READINGS.set(READINGS.get() + 1_000);
    READINGS.get()
}

#[test]
fn the_clock_is_read_while_words_become_a_list_and_while_a_function_reads_many_strings() {
    let mut client = Client::with(ScriptLimits {
        patience: Some(Patience {
            elapsed_us: reading_us,
            us_max: 100_000,
        }),
        ..ScriptLimits::default()
    });
    // Strings may have one hash, and each is compared with all before it.
    let words: Vec<String> = (0..60_000).map(|number| number.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let value = client.eval("return #ARGV", &[], &words);
    assert!(
        value.contains("microseconds, the limit is 100000"),
        "{value}"
    );
    assert_eq!(
        client.eval("return #ARGV", &[], &words[..20_000]),
        ":20000\r\n"
    );
    let strings = format!(
        "[{}]",
        words[..30_000]
            .iter()
            .map(|it| format!("\"{it}\""))
            .collect::<Vec<_>>()
            .join(",")
    );
    let value = client.eval("return #cjson.decode(ARGV[1])", &[], &[&strings]);
    assert!(
        value.contains("microseconds, the limit is 100000"),
        "{value}"
    );
}

#[test]
fn more_arguments_than_a_function_can_take_are_refused_by_number() {
    let mut client = Client::new();
    let script = "local t = {} for i = 1, 6000 do t[i] = 65 end \
                  local function f(...) return string.char(65, 65, ...) end \
                  local function g(...) return f(unpack(t)) end return #g()";
    assert_eq!(client.value(script), ":6002\r\n");
    let script = "local t = {} for i = 1, 6000 do t[i] = 65 end \
                  local function f(n, ...) if n == 0 then return string.char(...) end \
                  return f(n - 1, 65, 65, 65, 65, ...) end return #f(600, unpack(t))";
    assert!(
        client
            .value(script)
            .contains("8400 arguments, 8000 is the limit")
    );
}
