//! Scripts whose replies are compared byte by byte, as lines of the table of commands.

pub const SCRIPT_TABLE: &str = r#"
# scripts
EVAL "return 1" 0
EVAL "return {1, 2, {3, 'four'}, false, 5.9, nil, 6}" 0
EVAL "return {ok = 'fine'}" 0
EVAL "return redis.status_reply('FINE')" 0
EVAL "return redis.error_reply('ERR mine')" 0
EVAL "return redis.error_reply('mine')" 0
EVAL "return {err = 'MY words'}" 0
EVAL "return true" 0
EVAL "return nil" 0
EVAL "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}" 2 {s}a {s}b c d
EVAL "return redis.call('SET', KEYS[1], ARGV[1])" 1 {s}a 10
EVAL "return redis.call('INCRBY', KEYS[1], 5)" 1 {s}a
EVAL "return redis.call('GET', KEYS[1])" 1 {s}a
EVAL "return redis.call('GET', KEYS[1])" 1 {s}missing
EVAL "return type(redis.call('GET', KEYS[1]))" 1 {s}missing
EVAL "return redis.call('MGET', KEYS[1], KEYS[2])" 2 {s}a {s}missing
EVAL "return redis.call('SET', KEYS[1], 'x', 'NX')" 1 {s}a
EVAL "return redis.call('DEL', KEYS[1])" 1 {s}a
EVAL "return redis.call('PING')" 0
EVAL "return redis.call('ECHO', 'there')" 0
EVAL "return redis.pcall('INCR', KEYS[1])" 1 {s}a
EVAL "redis.call('SET', KEYS[1], 'text') return redis.pcall('INCR', KEYS[1])" 1 {s}a
EVAL "local e = redis.pcall('INCR', KEYS[1]) return e['err']" 1 {s}a
EVAL "return tostring(tonumber('0x10')) .. tostring(1e15) .. tostring(0.1)" 0
EVAL "return string.format('%5.2f|%d|%s|%q|%x', 3.14159, 42, 'x', 'y', 255)" 0
EVAL "return {string.find('hello world', 'o w'), string.match('key:12:ab', '(%d+):(%a+)')}" 0
EVAL "return {string.gsub('hello', 'l', 'L')}" 0
EVAL "local t = {3, 1, 2} table.sort(t) return t" 0
EVAL "return table.concat({'a', 'b', 3}, '-')" 0
EVAL "return cjson.encode({1, 2, {a = 'b'}})" 0
EVAL "return cjson.decode('[1, \"x\", null, {\"k\": [true]}]')[2]" 0
EVAL "return cjson.encode({})" 0
EVAL "return cmsgpack.unpack(cmsgpack.pack({1, 'two', 3}))" 0
EVAL "return bit.band(0xff, 0x0f) + bit.lshift(1, 4)" 0
EVAL "return redis.sha1hex('')" 0
EVAL "return #redis.call('TIME')" 0
EVAL "return os == nil or os.execute == nil" 0
EVAL "return tostring(io)" 0
EVAL "return {math.floor(3.7), math.max(1, 5), math.abs(-2)}" 0
EVAL "return 'abc' .. 1" 0
EVAL "local s = 0 for i = 1, 100 do s = s + i end return s" 0
EVAL_RO "return redis.call('GET', KEYS[1])" 1 {s}a
EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
EVALSHA ffffffffffffffffffffffffffffffffffffffff 0
EVALSHA abc 0
SCRIPT LOAD "return 1"
SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db ffffffffffffffffffffffffffffffffffffffff
EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0
SCRIPT LOAD
SCRIPT
SCRIPT BOGUS
SCRIPT FLUSH BOGUS
SCRIPT FLUSH
SCRIPT FLUSH ASYNC
SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db
SCRIPT KILL
EVAL
EVAL "return 1"
EVAL "return 1" x
EVAL "return 1" -1
EVAL "return 1" 2 a
DEL {s}a

# keys of several slots
MULTI
SET one 1
INCRBY two 2
APPEND three x
MGET one two three four
DEL one four
EXEC
MULTI
INCR one
INCR three
INCR two
EXEC
MGET one two three
MSETNX one 2 five 5
MSETNX six 6 seven 7
MGET six seven
RENAME one eight
RENAMENX six seven
RENAMENX six nine
COPY seven nine
COPY seven nine REPLACE
MGET one six seven eight nine
WATCH two three
SET three y
MULTI
SET two 9
EXEC
WATCH two three
MULTI
SET ten 10
GETDEL two
EXEC
EVAL "redis.call('SET', KEYS[1], 'a') return redis.call('MGET', KEYS[1], KEYS[2])" 2 one seven
EVAL "redis.call('SET', 'un', 'x') return redis.call('DEL', 'un', 'deux')" 0
EVAL "return redis.call('MSETNX', unpack(ARGV))" 0 six 1 eleven 1
MULTI
EVAL "return redis.call('INCR', KEYS[2])" 2 one six
INCR seven
EXEC
MSET one 1 two 2 three 3
MGET one two three
DEL one two three five six seven eight nine ten eleven
"#;
