//! What a script cannot reach, and that one run leaves nothing for the next one.

use crate::store::Client;

fn refused(script: &str) -> String {
    let reply = Client::new().value(script);
    assert!(reply.starts_with("-ERR"), "{script}: {reply}");
    reply
}

#[test]
fn globals_and_libraries_cannot_be_changed() {
    let scripts = [
        "x = 1",
        "_G.x = 1",
        "string.x = 1",
        "redis.call = nil",
        "rawset(_G, 'x', 1)",
        "rawset(string, 'rep', 1)",
        "rawset(redis, 'call', 1)",
        "setmetatable(_G, {})",
        "setmetatable(string, {})",
        "getmetatable('').__index = 1",
        "getmetatable('').__index.rep = 1",
        "rawset(getmetatable(''), '__index', 1)",
        "table.insert(string, 1)",
        "table.sort(redis)",
        "table.remove(_G)",
        "KEYS = {}",
        "cjson.null = 1",
    ];
    for script in scripts {
        let reply = refused(script);
        assert!(
            reply.contains("Attempt to modify a readonly table"),
            "{script}: {reply}"
        );
    }
}

#[test]
fn what_is_no_global_is_an_error() {
    let reply = refused("return foo");
    assert!(reply.contains("Script attempted to access nonexistent global variable 'foo'"));
    for name in [
        "io", "require", "dofile", "loadfile", "print", "debug", "package", "module", "setfenv",
        "getfenv", "newproxy",
    ] {
        assert!(
            refused(&format!("return {name}")).contains("nonexistent"),
            "{name}"
        );
    }
    for call in ["os.time()", "os.execute('x')", "string.dump(tostring)"] {
        refused(&format!("return {call}"));
    }
}

#[test]
fn compiled_code_is_refused() {
    let header = "\\27LuaQ\\0\\1\\4\\8\\4\\8\\0";
    let reply = Client::new().value(&format!("return {{loadstring('{header}')}}"));
    assert!(reply.starts_with("*0"), "{reply}");
    let script = format!("local f, e = loadstring('{header}') return e");
    let reply = Client::new().value(&script);
    assert!(reply.contains("attempt to load"), "{reply}");
    let mut client = Client::new();
    let reply = client.value("\u{1b}Lua");
    assert!(reply.starts_with("-ERR Error compiling script"), "{reply}");
}

#[test]
fn code_that_a_script_loads_has_the_same_globals() {
    let script = "return loadstring('x = 1')()";
    assert!(refused(script).contains("Attempt to modify a readonly table"));
    let script = "local f = loadstring('return _G') return tostring(f() == _G)";
    assert_eq!(Client::new().value(script), "$4\r\ntrue\r\n");
}

#[test]
fn one_run_leaves_nothing_for_the_next_one() {
    let mut client = Client::new();
    let dirty = [
        "KEYS[1] = 'left' ARGV.x = 'left' return 1",
        "pcall(function() string.left = 1 end) pcall(rawset, _G, 'left', 1) return 1",
        "local m = getmetatable('') pcall(function() m.__index = {left = 'left'} end)",
        "cjson.encode_sparse_array(true) redis.setresp(3) math.randomseed(5)",
        "local c = cjson.new() c.encode = 'left'",
        "local t = setmetatable({}, {__index = function() return 'left' end}) return t.x",
    ];
    for script in dirty {
        client.value(script);
    }
    let probe = "local found = {}
        for _, t in ipairs{_G, string, table, redis, cjson, bit} do
          for k, v in pairs(t) do
            if v == 'left' or k == 'left' then found[#found+1] = k end
          end
        end
        return {#found, #KEYS, #ARGV, tostring(('x').left), math.random(1000)}";
    let reply = client.value(probe);
    assert_eq!(reply, Client::new().value(probe));
    assert!(
        reply.starts_with("*5\r\n:0\r\n:0\r\n:0\r\n$3\r\nnil"),
        "{reply}"
    );
    assert!(client.value("return left").contains("nonexistent"));
}

#[test]
fn no_text_of_a_thing_has_an_address() {
    let script = "return {tostring({}), tostring(tostring), tostring(string), tostring(_G), \
                  tostring(coroutine.create(tostring)), tostring(cjson.null), \
                  tostring(setmetatable({}, {__index = {}})), \
                  tostring(setmetatable({}, {__tostring = function() return 'own' end}))}";
    let reply = Client::new().value(script);
    let lines: Vec<&str> = reply
        .split("\r\n")
        .filter(|line| !line.starts_with(['$', '*']))
        .collect();
    assert_eq!(
        lines,
        [
            "table: 0x0",
            "function: 0x0",
            "table: 0x0",
            "table: 0x0",
            "thread: 0x0",
            "userdata: (nil)",
            "table: 0x0",
            "own",
            ""
        ]
    );
}

#[test]
fn tables_that_have_no_fixed_order_cannot_be_walked_through() {
    for script in [
        "for k in pairs({[{}] = 1}) do end",
        "return next({[tostring] = 1, a = 1})",
        "return {map = {[{}] = 1}}",
        "return {set = {a = 1, [{}] = 1}}",
        "return cmsgpack.pack({[{}] = 1})",
        "table.foreach({[coroutine.create(tostring)] = 1}, tostring)",
        "return setmetatable({}, {__mode = 'k'})",
    ] {
        let reply = refused(script);
        assert!(
            reply.contains("no fixed order") || reply.contains("weak"),
            "{script}: {reply}"
        );
    }
    let reply = Client::new().value("local t = {} t[t] = 1 return t[t]");
    assert_eq!(reply, ":1\r\n");
}

#[test]
fn random_numbers_follow_from_the_seed() {
    let script = "return {math.random(1000), math.random(5, 9), tostring(math.random())}";
    let mut client = Client::new();
    let first = client.value(script);
    assert_eq!(client.value(script), first);
    client.seed = 2;
    assert_ne!(client.value(script), first);
    let seeded = "math.randomseed(7) return math.random(1000000)";
    let reply = client.value(seeded);
    client.seed = 3;
    assert_eq!(client.value(seeded), reply);
    assert!(refused("return math.random(0)").contains("interval is empty"));
}

#[test]
fn time_stands_still() {
    assert_eq!(Client::new().value("return os.clock()"), ":0\r\n");
    assert_eq!(
        Client::new().value("return collectgarbage('count')"),
        ":0\r\n"
    );
}
