//! Replies and errors, byte for byte as Valkey 9.1.2 gives them, where a test does not say
//! otherwise.

use penstock_net::resp::Protocol;
use penstock_shard::scripts::ScriptEnd;

use crate::store::Client;

fn check(cases: &[(&str, &str)]) {
    for (script, reply) in cases {
        assert_eq!(Client::new().value(script), *reply, "{script}");
    }
}

fn failed(text: &str) -> String {
    format!("-{text} script: on @user_script:1.\r\n")
}

fn check_errors(cases: &[(&str, &str)]) {
    for (script, text) in cases {
        let mut client = Client::new();
        assert_eq!(client.value(script), failed(text), "{script}");
        assert_eq!(client.end, ScriptEnd::Failed, "{script}");
    }
}

#[test]
fn values_become_replies_of_resp2() {
    check(&[
        ("return 3.999", ":3\r\n"),
        ("return -2.7", ":-2\r\n"),
        ("return 1e20", ":-9223372036854775808\r\n"),
        ("return 'x'", "$1\r\nx\r\n"),
        ("return true", ":1\r\n"),
        ("return false", "$-1\r\n"),
        ("return nil", "$-1\r\n"),
        ("return", "$-1\r\n"),
        (
            "return {1,2.7,'x',false,true,nil,4}",
            "*5\r\n:1\r\n:2\r\n$1\r\nx\r\n$-1\r\n:1\r\n",
        ),
        ("return {1,2,a=3}", "*2\r\n:1\r\n:2\r\n"),
        ("return {ok='fine'}", "+fine\r\n"),
        ("return {ok='a\\r\\nb'}", "+a  b\r\n"),
        ("return {err='MY x'}", "-MY x\r\n"),
        ("return {err=5}", "*0\r\n"),
        ("return {double=3.5}", "$3\r\n3.5\r\n"),
        ("return {map={a=1}}", "*2\r\n$1\r\na\r\n:1\r\n"),
        ("return {set={a=true}}", "*1\r\n$1\r\na\r\n"),
        ("return {big_number='123'}", "$3\r\n123\r\n"),
        (
            "return {verbatim_string={format='txt',string='x'}}",
            "$1\r\nx\r\n",
        ),
        ("return function() end", "$-1\r\n"),
        ("return cjson.null", "$-1\r\n"),
        ("redis.setresp(3) return false", ":0\r\n"),
    ]);
}

#[test]
fn values_become_replies_of_resp3() {
    let cases = [
        ("return true", ":1\r\n"),
        ("return false", "_\r\n"),
        ("redis.setresp(3) return {true,false}", "*2\r\n#t\r\n#f\r\n"),
        ("return {double=3.5}", ",3.5\r\n"),
        ("return {double=1e100}", ",1e+100\r\n"),
        ("return {double=1e-7}", ",1e-7\r\n"),
        ("return {double=1/0}", ",inf\r\n"),
        ("return {map={a=1}}", "%1\r\n$1\r\na\r\n:1\r\n"),
        ("return {set={a=true}}", "~1\r\n$1\r\na\r\n"),
        ("return {big_number='12\\r3'}", "(12 3\r\n"),
        (
            "return {verbatim_string={format='txt',string='x'}}",
            "=5\r\ntxt:x\r\n",
        ),
        (
            "redis.setresp(3) return type(redis.call('get','a'))",
            "$3\r\nnil\r\n",
        ),
        ("return type(redis.call('get','a'))", "$7\r\nboolean\r\n"),
    ];
    for (script, reply) in cases {
        let mut client = Client::new();
        client.protocol = Protocol::Resp3;
        assert_eq!(client.value(script), reply, "{script}");
    }
}

#[test]
fn replies_of_commands_become_values_and_come_back() {
    let replies = [
        ("+OK\r\n", "return redis.call('raw', ARGV[1])"),
        ("$3\r\nabc\r\n", "return redis.call('raw', ARGV[1])"),
        (":-5\r\n", "return redis.call('raw', ARGV[1])"),
        (
            "*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
            "return redis.call('raw', ARGV[1])",
        ),
        ("-MY words\r\n", "return redis.pcall('raw', ARGV[1])"),
        (
            "%1\r\n$1\r\na\r\n:1\r\n",
            "return redis.call('raw', ARGV[1])",
        ),
        ("~1\r\n$1\r\na\r\n", "return redis.call('raw', ARGV[1])"),
        (",1.5\r\n", "return redis.call('raw', ARGV[1])"),
        (
            "#t\r\n",
            "redis.setresp(3) return redis.call('raw', ARGV[1])",
        ),
        (
            "(12345678901234567890\r\n",
            "return redis.call('raw', ARGV[1])",
        ),
        ("=5\r\ntxt:x\r\n", "return redis.call('raw', ARGV[1])"),
        ("_\r\n", "return redis.call('raw', ARGV[1])"),
    ];
    for (reply, script) in replies {
        let mut client = Client::new();
        client.protocol = Protocol::Resp3;
        assert_eq!(client.eval(script, &[], &[reply]), reply);
    }
    for broken in [
        "",
        "$5\r\nab\r\n",
        "*9\r\n:1\r\n",
        "?\r\n",
        ":x\r\n",
        "*-5",
        "=2\r\nab\r\n",
    ] {
        let reply = Client::new().eval("return redis.call('raw', ARGV[1])", &[], &[broken]);
        assert!(
            reply.starts_with('-') || reply.starts_with("$-1"),
            "{broken} {reply}"
        );
    }
}

#[test]
fn errors_name_their_place_and_their_code() {
    check_errors(&[
        ("error('boom')", "ERR user_script:1: boom"),
        ("error('MY boom', 0)", "ERR MY boom"),
        ("error({err='MY boom'})", "MY boom"),
        ("error({})", "ERR unknown error"),
        ("error()", "ERR nil"),
        ("error(true)", "ERR true"),
        (
            "return nil + 1",
            "ERR user_script:1: attempt to perform arithmetic on a nil value",
        ),
        (
            "return redis.call('foo')",
            "ERR Unknown command called from script",
        ),
        (
            "return redis.call()",
            "ERR Please specify at least one argument for this call",
        ),
        (
            "return redis.call({})",
            "ERR Command arguments must be strings or integers",
        ),
        (
            "redis.call('set','a','x') return redis.call('incr','a')",
            "ERR value is not an integer or out of range",
        ),
        (
            "coroutine.wrap(function() redis.call('x') end)()",
            "ERR Unknown command called from script",
        ),
        (
            "return string.rep()",
            "ERR user_script:1: bad argument #1 to 'rep' (string expected, got no value)",
        ),
        (
            "return ('x'):rep({})",
            "ERR user_script:1: bad argument #1 to 'rep' (number expected, got table)",
        ),
        (
            "return {('abc'):gsub('b',true)}",
            "ERR user_script:1: bad argument #2 to 'gsub' (string/function/table expected)",
        ),
        (
            "return ('x'):find('(')",
            "ERR user_script:1: unfinished capture",
        ),
        (
            "return ('x'):find('[')",
            "ERR user_script:1: malformed pattern (missing ']')",
        ),
        (
            "local t = table.sort({3,'x'})",
            "ERR attempt to compare string with number",
        ),
        (
            "return cjson.encode({[true]=2})",
            "ERR user_script:1: Cannot serialise boolean: table key must be a number or string",
        ),
    ]);
    let deep = "\n\nlocal function f() error('deep') end\nf()";
    let reply = "-ERR user_script:3: deep script: on @user_script:3.\r\n";
    assert_eq!(Client::new().value(deep), reply);
    let text = "-ERR Error compiling script (new function): user_script:1: unexpected symbol near";
    assert_eq!(Client::new().value("return if"), format!("{text} 'if'\r\n"));
}

#[test]
fn caught_errors_are_strings_and_tables() {
    check(&[
        (
            "local ok, e = pcall(error, 'q') return {ok, e}",
            "*2\r\n$-1\r\n$1\r\nq\r\n",
        ),
        (
            "local ok, e = pcall(redis.call, 'x') return e",
            "$38\r\nERR Unknown command called from script\r\n",
        ),
        (
            "local e = redis.pcall('x') return {type(e), e.err}",
            "*2\r\n$5\r\ntable\r\n$38\r\nERR Unknown command called from script\r\n",
        ),
        (
            "local ok, e = xpcall(function() redis.call('x') end, function(e) return type(e) end) \
             return e",
            "$5\r\ntable\r\n",
        ),
        (
            "return {pcall(string.rep)}",
            "*2\r\n$-1\r\n$54\r\nbad argument #1 to '?' (string expected, got no value)\r\n",
        ),
        (
            "local ok, e = coroutine.resume(coroutine.create(function() error('z') end)) return e",
            "$16\r\nuser_script:1: z\r\n",
        ),
        ("return redis.error_reply('Err').err", "$7\r\nERR Err\r\n"),
        (
            "return redis.error_reply('-My Err').err",
            "$6\r\nMy Err\r\n",
        ),
        ("return redis.status_reply('x')", "+x\r\n"),
        (
            "return redis.status_reply(1)",
            "-ERR wrong number or type of arguments\r\n",
        ),
    ]);
}

#[test]
fn numbers_of_arguments_are_written_as_redis_writes_them() {
    let cases = [
        ("1.5", "1.5"),
        ("1e15", "1000000000000000"),
        ("2 ^ 62", "4611686018427387904"),
        ("-2 ^ 62", "-4611686018427387904"),
        ("2 ^ 63", "9223372036854776000"),
        ("2^53", "9007199254740992"),
        ("-0.1", "-0.1"),
        ("1e300", "1e+300"),
        ("5", "5"),
    ];
    for (number, text) in cases {
        let script = format!("return redis.call('echo', {number})");
        let reply = format!("${}\r\n{text}\r\n", text.len());
        assert_eq!(Client::new().value(&script), reply);
    }
}

#[test]
fn libraries_answer_as_those_of_redis() {
    check(&[
        (
            "return redis.sha1hex('')",
            "$40\r\nda39a3ee5e6b4b0d3255bfef95601890afd80709\r\n",
        ),
        (
            "return cjson.encode({1,2,{a=1}})",
            "$13\r\n[1,2,{\"a\":1}]\r\n",
        ),
        ("return cjson.encode({})", "$2\r\n{}\r\n"),
        (
            "return cjson.encode({a=cjson.null})",
            "$10\r\n{\"a\":null}\r\n",
        ),
        ("return cjson.encode(1/3)", "$16\r\n0.33333333333333\r\n"),
        (
            "return cjson.encode('a\"/\\n')",
            "$9\r\n\"a\\\"\\/\\n\"\r\n",
        ),
        (
            "return cjson.decode('{\"a\":[1,null,\"x\"]}').a[3]",
            "$1\r\nx\r\n",
        ),
        (
            "return cjson.decode('\"\\\\ud83d\\\\ude00\"')",
            "$4\r\n\u{1f600}\r\n",
        ),
        (
            "return {cmsgpack.unpack(cmsgpack.pack(1,'a',{2,{b=3}}))}",
            "*3\r\n:1\r\n$1\r\na\r\n*2\r\n:2\r\n*0\r\n",
        ),
        (
            "return {cmsgpack.unpack_one('\\1\\2\\3',1)}",
            "*2\r\n:2\r\n:2\r\n",
        ),
        (
            "return {bit.bnot(0),bit.lshift(1,31),bit.rol(0x12345678,12),bit.tobit(1e20)}",
            "*4\r\n:-1\r\n:-2147483648\r\n:1164411171\r\n:2025163840\r\n",
        ),
        ("return bit.tohex(-1,-4)", "$4\r\nFFFF\r\n"),
        (
            "return {struct.unpack('>I2bs', struct.pack('>I2 b s', 258, -1, 'ab'))}",
            "*4\r\n:258\r\n:-1\r\n$2\r\nab\r\n:7\r\n",
        ),
        ("return struct.size('!8 b d')", ":16\r\n"),
        (
            "return {struct.unpack('Bc0', '\\3abcd')}",
            "*2\r\n$3\r\nabc\r\n:5\r\n",
        ),
        (
            "return string.format('%5s|%-5s|%05d|%x|%g|%q', 'a','b',42,255,1e20,'x')",
            "$30\r\n    a|b    |00042|ff|1e+20|\"x\"\r\n",
        ),
        (
            "return {('hello world'):gsub('o','0',1)}",
            "*2\r\n$11\r\nhell0 world\r\n:1\r\n",
        ),
        (
            "return {('abc'):gsub('%w', function(c) return c .. '-' end)}",
            "*2\r\n$6\r\na-b-c-\r\n:3\r\n",
        ),
        (
            "local t = {} for k, v in ('a=1,b=2'):gmatch('(%w)=(%w)') do t[#t+1] = k .. v end \
             return t",
            "*2\r\n$2\r\na1\r\n$2\r\nb2\r\n",
        ),
        (
            "local t = {3,1,2} table.sort(t) return t",
            "*3\r\n:1\r\n:2\r\n:3\r\n",
        ),
        (
            "local t = {3,1,2} table.sort(t, function(a,b) return a > b end) return t",
            "*3\r\n:3\r\n:2\r\n:1\r\n",
        ),
        (
            "local t = {1,2,3} table.insert(t, 2, 9) return {table.remove(t), unpack(t)}",
            "*4\r\n:3\r\n:1\r\n:9\r\n:2\r\n",
        ),
        (
            "return tostring(1e15) .. ' ' .. tostring(-0.1) .. tostring(nil)",
            "$13\r\n1e+15 -0.1nil\r\n",
        ),
        ("return loadstring('return 1 + 1')()", ":2\r\n"),
        (
            "return {tostring(redis.replicate_commands()), redis.set_repl(redis.REPL_ALL)}",
            "*1\r\n$4\r\ntrue\r\n",
        ),
        ("return server.call('echo', 'x')", "$1\r\nx\r\n"),
    ]);
}

#[test]
fn sort_formats_and_json_are_those_of_the_interpreter_of_redis() {
    // Elements that are equal come in the order of its quicksort.
    let sort = "local t = {} for i = 1, 7 do t[i] = {i < 7 and 1 or 0, i} end \
        table.sort(t, function(a, b) return a[1] < b[1] end) \
        for i = 1, 7 do t[i] = t[i][2] end return table.concat(t, ' ')";
    let wrong = "local t = {5, 3, 4, 1, 2} \
        local ok, why = pcall(table.sort, t, function() return true end) \
        return {tostring(ok), why, table.concat(t, ' ')}";
    let deep = "local t = {} for i = 1, 900 do t = {a = t} end return #cjson.encode(t)";
    let cycle = "local t = {} t.a = t local ok, why = pcall(cjson.encode, t) return why";
    check(&[
        (sort, "$13\r\n7 5 6 4 2 3 1\r\n"),
        (
            wrong,
            "*3\r\n$5\r\nfalse\r\n$34\r\ninvalid order function for sorting\r\n\
             $9\r\n4 3 1 2 5\r\n",
        ),
        (
            "local ok, why = pcall(table.sort, {3, {}}) return why",
            "$36\r\nattempt to compare table with number\r\n",
        ),
        ("return string.format('%c', 0)", "$0\r\n\r\n"),
        ("return string.format('%3c|', 0)", "$3\r\n  |\r\n"),
        ("return string.format('%-3c|', 0)", "$1\r\n|\r\n"),
        ("return string.format('%c', 12345678901234)", "$0\r\n\r\n"),
        ("return string.format('%c', -159)", "$1\r\na\r\n"),
        ("return string.format('%x', 2^64)", "$1\r\n0\r\n"),
        (
            "return string.format('%x', 2^63)",
            "$16\r\n8000000000000000\r\n",
        ),
        (deep, ":5402\r\n"),
        (
            cycle,
            "$42\r\nCannot serialise, excessive nesting (1001)\r\n",
        ),
    ]);
}

#[test]
fn choices_of_cjson_end_with_their_run() {
    let mut client = Client::new();
    let set = "cjson.encode_number_precision(3) return cjson.encode(1/3)";
    assert_eq!(client.value(set), "$5\r\n0.333\r\n");
    assert_eq!(
        client.value("return cjson.encode(1/3)"),
        "$16\r\n0.33333333333333\r\n"
    );
}

#[test]
fn a_first_line_sets_flags() {
    let mut client = Client::new();
    let script = "#!lua flags=no-writes\nreturn redis.call('set','a',1)";
    let text =
        "-ERR Write commands are not allowed from read-only scripts. script: on @user_script:2.";
    assert_eq!(client.value(script), format!("{text}\r\n"));
    assert_eq!(client.value("#!lua\nreturn 1"), ":1\r\n");
    let reply = client.value("#!js\nreturn 1");
    assert_eq!(reply, "-ERR Could not find scripting engine 'js'\r\n");
}

#[test]
fn lines_of_the_log_have_a_level() {
    let mut client = Client::new();
    client.value("redis.log(redis.LOG_WARNING, 'a', 5)");
    assert_eq!(client.store.log, [(3, b"a 5".to_vec())]);
    let reply = client.value("redis.log(9, 'x')");
    assert_eq!(reply, failed("ERR Invalid log level."));
}
