//! Hashes as both servers answer them, and keys of two types under the commands of either.

/// Commands, one a line, as in the table of all others.
pub const HASH_TABLE: &str = r#"
# hashes
HSET h f1 v1
HSET h f1 v2 f2 v3
HSET h f1
HSET h f1 v1 f2
HSET h
HSET
HGET h f1
HGET h none
HGET none f
HGET h
HGET h f1 f2
HMSET h f3 v4 f4 v5
HMSET h f3 v4 f4
HMSET h
HMGET h f1 f2 none f4 f1
HMGET none f1 f2
HMGET h
HGETALL h
HGETALL none
HGETALL h x
HKEYS h
HKEYS none
HVALS h
HVALS none
HLEN h
HLEN none
HLEN
HSTRLEN h f1
HSTRLEN h none
HSTRLEN none f
HEXISTS h f1
HEXISTS h none
HEXISTS none f
HSETNX h f1 other
HSETNX h new first
HSETNX hnx f v
HSETNX hnx f w
HGETALL hnx
HSETNX hnx f
HDEL h f2 none f2
HDEL h
HDEL none f
HGETALL h
HSET h f2 back
HGETALL h
TYPE h
TYPE none
OBJECT ENCODING h
OBJECT REFCOUNT h
OBJECT ENCODING none
EXISTS h none
TOUCH h
HSET bin "\x00\r\n" "\xff\x00\r\n" "" ""
HGETALL bin
HGET bin ""
HSTRLEN bin ""
HDEL bin ""
HGETALL bin
# counters of hashes
HINCRBY c f 5
HINCRBY c f -7
HINCRBY c f abc
HINCRBY c f 1.5
HINCRBY c f
HINCRBY c f 9223372036854775807
HINCRBY c f 9223372036854775807
HINCRBY c f -9223372036854775808
HSET c t text e "" s " 1"
HINCRBY c t 1
HINCRBY c e 1
HINCRBY c s 1
HINCRBY c f 9223372036854775808
HINCRBYFLOAT c g 1.5
HINCRBYFLOAT c g 0.25
HINCRBYFLOAT c g -1.75
HINCRBYFLOAT c g abc
HINCRBYFLOAT c t 1
HINCRBYFLOAT c g inf
HINCRBYFLOAT c g
HINCRBYFLOAT new g 3.0e3
HGETALL new
# a hash ends with its last field
HSET end a 1 b 2
HDEL end a b
EXISTS end
TYPE end
HSET end a 1 EX 5
HGETALL end
HDEL end a
HDEL end EX
EXISTS end
# HRANDFIELD and HSCAN of one page
HSET one f v
HRANDFIELD one
HRANDFIELD one 5
HRANDFIELD one 5 WITHVALUES
HRANDFIELD one -3
HRANDFIELD one -2 withvalues
HRANDFIELD one 0
HRANDFIELD one 0 WITHVALUES
HRANDFIELD none
HRANDFIELD none 5
HRANDFIELD none -5 WITHVALUES
HRANDFIELD one abc
HRANDFIELD one 1 BOGUS
HRANDFIELD one 1 WITHVALUES x
HRANDFIELD one -9223372036854775808
HRANDFIELD one 9223372036854775807 WITHVALUES
HRANDFIELD one -9223372036854775807 WITHVALUES
HRANDFIELD
HSET page a 1 ab 2 b 3
HRANDFIELD page 3
HRANDFIELD page 9 WITHVALUES
HSCAN page 0
HSCAN page 0 MATCH a*
HSCAN page 0 COUNT 1
HSCAN page 0 MATCH ?b COUNT 100
[9] HSCAN page 0 NOVALUES
[9] HSCAN page 0 novalues match b
HSCAN page 0 MATCH nothing
HSCAN page 5
HSCAN page abc
HSCAN page -1
HSCAN page 0 COUNT 0
HSCAN page 0 COUNT abc
HSCAN page 0 MATCH
HSCAN page 0 BOGUS
HSCAN page 0 TYPE hash
HSCAN none 0
HSCAN none 0 BOGUS
HSCAN page
# the wrong type
SET str v
HSET str f v
HSETNX str f v
HMSET str f v
HGET str f
HMGET str f
HGETALL str
HKEYS str
HVALS str
HLEN str
HSTRLEN str f
HEXISTS str f
HDEL str f
HINCRBY str f 1
HINCRBY str f abc
HINCRBYFLOAT str f 1
HRANDFIELD str
HRANDFIELD str 2
HSCAN str 0
HSCAN str 0 BOGUS
GET str
GET h
GETDEL h
GETEX h
GETEX h EX 100
GETEX h PERSIST
GETSET h v
SET h v GET
SET h v NX GET
SET h v XX GET
SET none9 v XX GET
[9] SET h v IFEQ x
STRLEN h
GETRANGE h 0 1
SETRANGE h 0 x
SETRANGE h 0 ""
SETRANGE h -1 x
APPEND h x
APPEND h ""
INCR h
DECR h
INCRBY h 5
INCRBY h abc
INCRBY h 0
DECRBY h 5
INCRBYFLOAT h 1.5
SETBIT h 0 1
SETBIT h 0 2
GETBIT h 0
BITCOUNT h
BITCOUNT h 0 -1
MGET h str none
MGET str h
HGETALL h
# other names, expiry and an end
SETNX h v
MSETNX h v hnew v
SET h v NX
EXPIRE h 1000
TTL h
HSET h f9 v9
TTL h
HDEL h f9
TTL h
PERSIST h
TTL h
PERSIST h
EXPIREAT h 9999999999
EXPIRETIME h
COPY h hcopy
HGETALL hcopy
EXPIRETIME hcopy
COPY h hcopy
COPY h str
COPY h str REPLACE
TYPE str
HGET str f1
RENAME str str2
EXISTS str
HGETALL str2
RENAMENX str2 h
RENAME str2 str2
SET over v EX 1000
HSET over2 f v
RENAME over2 over
TTL over
TYPE over
HGETALL over
SET over plain
GET over
TYPE over
HSET again f v
SET again v KEEPTTL
GET again
HSET del f v
GETDEL del
DEL del h2
EXISTS del
HSET unl f v
UNLINK unl
EXISTS unl
HSET past f v
PEXPIREAT past 1
EXISTS past
HGETALL past
# keys of one type
HSET typed f v
SET typed2 v
SCAN 0 MATCH typed* TYPE hash COUNT 1000
SCAN 0 MATCH typed* TYPE string COUNT 1000
SCAN 0 MATCH typed* TYPE list COUNT 1000
SCAN 0 MATCH typed* COUNT 1000 TYPE HASH
SCAN 0 TYPE hash MATCH nothing* COUNT 1000
DEL typed typed2
# encodings of hashes
HSET enc f 1234567890123456789012345678901234567890123456789012345678901234
OBJECT ENCODING enc
HSET enc f 12345678901234567890123456789012345678901234567890123456789012345
OBJECT ENCODING enc
HSET enc f short
OBJECT ENCODING enc
COPY enc enc2
OBJECT ENCODING enc2
HSET enc3 12345678901234567890123456789012345678901234567890123456789012345 v
OBJECT ENCODING enc3
# transactions and scripts of hashes
MULTI
HSET m a 1
HINCRBY m a 5
HGETALL m
GET m
HGET str9 f
SET m2 v
HSET m2 f v
HDEL m a
EXISTS m
TYPE m2
HLEN m
HSET m
EXEC
MULTI
HSET m a 1
HINCRBY m a x
HGETALL m
EXEC
HGETALL m
EVAL "return redis.call('HSET', KEYS[1], 'f', ARGV[1], 'g', ARGV[2])" 1 sh 1 2
EVAL "return redis.call('HGETALL', KEYS[1])" 1 sh
EVAL "return redis.call('HMGET', KEYS[1], 'f', 'none')" 1 sh
EVAL "return redis.call('HINCRBY', KEYS[1], 'f', 41)" 1 sh
EVAL "return redis.call('HDEL', KEYS[1], 'f', 'g')" 1 sh
EVAL "return redis.call('EXISTS', KEYS[1])" 1 sh
EVAL "return redis.pcall('GET', KEYS[1])" 1 h
EVAL "return redis.call('TYPE', KEYS[1])" 1 h
EVAL_RO "return redis.call('HGET', KEYS[1], 'f1')" 1 h
EVAL_RO "return redis.pcall('HSET', KEYS[1], 'f1', 'v')" 1 h
EVAL "redis.setresp(3) return redis.call('HGETALL', KEYS[1])['map']['f1']" 1 h
WATCH h
HSET h f1 changed
MULTI
HGET h f1
EXEC
COMMAND INFO hset hget hgetall hdel hincrby hscan hrandfield hsetnx hlen hmset hexists hvals
COMMAND GETKEYS HSET k f v
COMMAND GETKEYS HGETALL k
COMMAND GETKEYSANDFLAGS HDEL k f
COMMAND GETKEYSANDFLAGS HSET k f v
COMMAND GETKEYSANDFLAGS HGET k f
DEL h c bin new one page hnx hcopy str2 over again enc enc2 enc3 m m2 k
FLUSHALL
"#;
