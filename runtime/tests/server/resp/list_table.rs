//! Lists as both servers answer them, and keys of other types under their commands.

/// Commands, one a line, as in the table of all others.
pub const LIST_TABLE: &str = r#"
# pushes and pops
RPUSH l a
RPUSH l b c
LPUSH l z
LPUSH l y x
LRANGE l 0 -1
LPUSHX l w v
RPUSHX l d e
LRANGE l 0 -1
LPUSHX none a
RPUSHX none a
EXISTS none
RPUSH l
RPUSH
LPUSH l
LPUSHX l
LLEN l
LLEN none
LLEN
LLEN l x
LPOP l
RPOP l
LPOP l 2
RPOP l 2
LPOP l 0
RPOP l 0
LPOP l -1
LPOP l x
LPOP l 1.5
LPOP l ""
LPOP l 9223372036854775808
LPOP l 1 2
RPOP l 1 2
LPOP
LPOP none
RPOP none
LPOP none 1
RPOP none 0
LPOP none x
LPOP none -1
LRANGE l 0 -1
RPOP l 99
EXISTS l
TYPE l
RPUSH l 1
LPOP l 9223372036854775807
EXISTS l
RPUSH l only
LPOP l
TYPE l
LPUSH bin "\x00\r\n" "" "\xff" "a b"
LRANGE bin 0 -1
LPOS bin ""
LPOS bin "\xff"
LREM bin 0 ""
RPOP bin
# ranges and places
RPUSH r a b c d e f g
LRANGE r 0 0
LRANGE r 1 3
LRANGE r -3 -1
LRANGE r -100 100
LRANGE r 5 2
LRANGE r 7 9
LRANGE r 6 6
LRANGE r 0 -8
LRANGE r -1 0
LRANGE r -9223372036854775808 9223372036854775807
LRANGE r 9223372036854775807 -9223372036854775808
LRANGE r x 1
LRANGE r 1 x
LRANGE r 1 9223372036854775808
LRANGE r 1
LRANGE none 0 -1
LRANGE none x -1
LINDEX r 0
LINDEX r 6
LINDEX r 7
LINDEX r -1
LINDEX r -7
LINDEX r -8
LINDEX r x
LINDEX r ""
LINDEX r 9223372036854775807
LINDEX r -9223372036854775808
LINDEX r 9223372036854775808
LINDEX none 0
LINDEX none x
LINDEX r
LSET r 0 A
LSET r -1 G
LSET r 3 "a longer element"
LSET r 7 x
LSET r -8 x
LSET r x y
LSET none 0 x
LSET none x x
LSET r 0
LRANGE r 0 -1
LINSERT r BEFORE A first
LINSERT r after G last
LINSERT r before c beside
LINSERT r AFTER none x
LINSERT r BESIDE A x
LINSERT none BEFORE A x
LINSERT none BESIDE A x
LINSERT r BEFORE A
LRANGE r 0 -1
# removals
RPUSH m a b a c a d a
LREM m 1 a
LRANGE m 0 -1
LREM m -1 a
LRANGE m 0 -1
LREM m 0 none
LREM m 5 a
LRANGE m 0 -1
LREM m -9 b
LREM m x a
LREM m -9223372036854775808 a
LREM m -9223372036854775807 zz
LREM m 9223372036854775807 zz
LREM m 9223372036854775808 zz
LREM none 0 a
LREM none x a
LREM m 0
LREM m 0 c
LREM m 0 d
EXISTS m
RPUSH m 1 01 1 "1 " +1 1.0 -0 0
LREM m 0 1
LREM m 0 0
LRANGE m 0 -1
DEL m
RPUSH t a b c d e
LTRIM t 1 -2
LRANGE t 0 -1
LTRIM t 0 100
LTRIM t -2 -1
LRANGE t 0 -1
LTRIM t x 1
LTRIM t 0 x
LTRIM t 0
LTRIM t -9223372036854775808 9223372036854775807
LRANGE t 0 -1
LTRIM t 5 9
EXISTS t
LTRIM none 0 1
LTRIM none x 1
RPUSH t a
LTRIM t 1 0
TYPE t
# positions
RPUSH p a b c 1 2 3 c c
LPOS p c
LPOS p c RANK 2
LPOS p c RANK 4
LPOS p c RANK -1
LPOS p c RANK -3
LPOS p c RANK -4
LPOS p c COUNT 2
LPOS p c COUNT 0
LPOS p c COUNT 9
LPOS p c RANK 2 COUNT 1
LPOS p c RANK 2 COUNT 0
LPOS p c RANK -1 COUNT 2
LPOS p c RANK -2 COUNT 0
LPOS p c RANK 5 COUNT 0
LPOS p c MAXLEN 2
LPOS p c MAXLEN 3
LPOS p c MAXLEN 0
LPOS p c COUNT 0 MAXLEN 7
LPOS p c RANK -1 MAXLEN 1
LPOS p c RANK -3 MAXLEN 2
LPOS p c RANK -3 MAXLEN 6
LPOS p c count 0 rank -1 maxlen 99
LPOS p c RANK 2 RANK 1
LPOS p c COUNT 1 COUNT 2
LPOS p none
LPOS p none COUNT 1
LPOS p c RANK 0
LPOS p c RANK x
LPOS p c RANK -9223372036854775808
LPOS p c RANK 9223372036854775807
LPOS p c RANK -9223372036854775807
LPOS p c COUNT -1
LPOS p c COUNT x
LPOS p c MAXLEN -1
LPOS p c MAXLEN x
LPOS p c RANK
LPOS p c BOGUS
LPOS p c BOGUS 1
LPOS p c COUNT 1 x
LPOS p
LPOS none c
LPOS none c COUNT 2
LPOS none c RANK 0
LPOS p 1
LPOS p 01
# moves
RPUSH from a b c d
LMOVE from to LEFT RIGHT
LMOVE from to RIGHT LEFT
LMOVE from to left left
LRANGE from 0 -1
LRANGE to 0 -1
LMOVE from to RIGHT RIGHT
EXISTS from
LMOVE from to LEFT LEFT
LMOVE to to LEFT RIGHT
LMOVE to to RIGHT RIGHT
LMOVE to to LEFT LEFT
LRANGE to 0 -1
RPOPLPUSH to to
RPOPLPUSH to back
RPOPLPUSH none back
LRANGE to 0 -1
LRANGE back 0 -1
LMOVE to back UP LEFT
LMOVE to back LEFT UP
LMOVE none back UP LEFT
LMOVE to back LEFT
RPOPLPUSH to
RPOPLPUSH to back x
RPUSH one a
RPOPLPUSH one one
LMOVE one one LEFT LEFT
EXISTS one
PEXPIREAT one 4102444800000
RPUSH two b
PEXPIREAT two 4102444800001
LMOVE one two LEFT LEFT
PEXPIRETIME one
PEXPIRETIME two
LMOVE two one LEFT LEFT
PEXPIRETIME two
PEXPIRETIME one
# the first of several
RPUSH q1 a b c
RPUSH q2 d e
LMPOP 1 q1 LEFT
LMPOP 2 none q1 RIGHT
LMPOP 2 q1 q2 left COUNT 5
LMPOP 2 q1 q2 RIGHT COUNT 1
LMPOP 2 q1 q2 RIGHT count 9
LMPOP 2 q1 q2 LEFT
EXISTS q1 q2
LMPOP 0 q1 LEFT
LMPOP -1 q1 LEFT
LMPOP x q1 LEFT
LMPOP 2 q1 LEFT
LMPOP 1 q1 q2 LEFT
LMPOP 1 q1 UP
LMPOP 1 q1 LEFT COUNT 0
LMPOP 1 q1 LEFT COUNT -1
LMPOP 1 q1 LEFT COUNT x
LMPOP 1 q1 LEFT COUNT
LMPOP 1 q1 LEFT BOGUS 1
LMPOP 1 q1 LEFT COUNT 1 COUNT 2
LMPOP 1 q1 LEFT COUNT 1 x
LMPOP 1 q1
LMPOP 9223372036854775807 q1 LEFT
LMPOP 1 LEFT RIGHT
# the wrong type
SET str v
HSET hash f v
ZADD zset 1 a
RPUSH list a
LPUSH str a
RPUSH hash a
LPUSHX zset a
RPUSHX str a
LPOP str
LPOP str 0
LPOP str x
RPOP hash 2
LLEN zset
LRANGE str 0 -1
LRANGE str x -1
LINDEX str 0
LINDEX str x
LSET str 0 a
LSET str x a
LINSERT str BEFORE a b
LINSERT str BESIDE a b
LREM str 0 a
LREM str x a
LTRIM str 0 1
LTRIM str x 1
LPOS str a
LPOS str a RANK 0
LMOVE str list LEFT LEFT
LMOVE list str LEFT LEFT
LMOVE none str LEFT LEFT
LMOVE none zset LEFT LEFT
LMOVE hash zset LEFT LEFT
LMOVE str list UP LEFT
RPOPLPUSH list hash
RPOPLPUSH zset list
LMPOP 1 str LEFT
LMPOP 2 none str LEFT
LMPOP 2 list str LEFT
LMPOP 2 str list LEFT
RPUSH list a
LRANGE list 0 -1
GET list
STRLEN list
APPEND list x
SETRANGE list 0 x
GETRANGE list 0 1
INCR list
INCRBYFLOAT list 1
GETSET list x
GETDEL list
GETEX list
SETBIT list 1 1
GETBIT list 1
BITCOUNT list
SET list x GET
SET list x NX
SETNX list x
MGET list str
HSET list f v
HGET list f
HGETALL list
HDEL list f
HINCRBY list f 1
ZADD list 1 a
ZSCORE list a
ZRANGE list 0 -1
ZUNION 2 list zset
ZUNIONSTORE over 1 list
TYPE list
OBJECT ENCODING list
OBJECT REFCOUNT list
EXISTS list
LRANGE list 0 -1
# lists as any key
PEXPIREAT list 4102444800000
RPUSH list b
PEXPIRETIME list
LPOP list
PEXPIRETIME list
COPY list copied
PEXPIRETIME copied
LRANGE copied 0 -1
COPY list zset
COPY list zset REPLACE
TYPE zset
RENAME zset renamed
LRANGE renamed 0 -1
RENAMENX renamed list
PERSIST list
TTL list
RPUSH past a
PEXPIREAT past 1
LLEN past
RPUSH past b
LRANGE past 0 -1
SET past over
GET past
DEL past
RPUSH past a
MSET past v
TYPE past
UNLINK list copied renamed past
EXISTS list copied renamed past
RPUSH typed a
SCAN 0 MATCH typed* TYPE list COUNT 1000
SCAN 0 MATCH typed* TYPE hash COUNT 1000
SCAN 0 MATCH typed* COUNT 1000 TYPE LIST
DEL typed
# transactions and scripts
MULTI
RPUSH x a b c
LPOP x
RPOP x 1
LRANGE x 0 -1
LMOVE x y LEFT RIGHT
LMOVE x y LEFT RIGHT
LMPOP 2 x y RIGHT
RPUSH x a
LINDEX x x
LSET x x b
GET x
LREM x 0 a
EXISTS x y
EXEC
MULTI
RPUSH x
EXEC
MULTI
RPUSH x a
LREM x y a
LINSERT x BESIDE a b
LPOS x a RANK 0
LMPOP 0 x LEFT
LPOP x x
LRANGE x 0 -1
EXEC
EVAL "return redis.call('RPUSH', KEYS[1], ARGV[1], ARGV[2])" 1 sl 1 2
EVAL "return redis.call('LRANGE', KEYS[1], 0, -1)" 1 sl
EVAL "return redis.call('LPOP', KEYS[1], 1)" 1 sl
EVAL "return redis.call('LPOP', KEYS[2])" 2 sl nosl
EVAL "return redis.call('RPOPLPUSH', KEYS[1], KEYS[2])" 2 sl sl2
EVAL "return redis.call('LMPOP', 2, KEYS[1], KEYS[2], 'LEFT')" 2 sl sl2
EVAL "return redis.call('LMPOP', 2, KEYS[1], KEYS[2], 'LEFT')" 2 sl sl2
EVAL "return redis.call('LPOS', KEYS[1], 'a', 'COUNT', 0)" 1 sl
EVAL "return redis.pcall('LPUSH', KEYS[1], 'a')" 1 str
EVAL "return redis.pcall('LSET', KEYS[1], 0, 'a')" 1 sl
EVAL_RO "return redis.call('LLEN', KEYS[1])" 1 x
EVAL_RO "return redis.pcall('LPUSH', KEYS[1], 'a')" 1 x
EVAL "redis.setresp(3) return redis.call('LPOP', KEYS[1])" 1 nosl
WATCH x
LPUSH x changed
MULTI
LLEN x
EXEC
WATCH x
LTRIM x 0 -1
MULTI
LLEN x
EXEC
WATCH x
LREM x 0 none
LINSERT x BEFORE none a
LPOP x 0
LSET x 99 a
MULTI
LLEN x
EXEC
WATCH x
LMOVE x x LEFT LEFT
MULTI
LLEN x
EXEC
# encodings
RPUSH enc a
OBJECT ENCODING enc
DEL enc
EVAL "return redis.call('RPUSH', KEYS[1], string.rep('x', 8185))" 1 enc
OBJECT ENCODING enc
LPOP enc 0
LSET enc 0 short
OBJECT ENCODING enc
DEL enc
EVAL "return redis.call('RPUSH', KEYS[1], string.rep('x', 8186))" 1 enc
OBJECT ENCODING enc
COPY enc enc2
OBJECT ENCODING enc2
LSET enc 0 short
OBJECT ENCODING enc
DEL enc enc2
EVAL "for i = 1, 82 do redis.call('RPUSH', KEYS[1], string.rep('x', 96)) end" 1 enc
OBJECT ENCODING enc
EVAL "return redis.call('LPUSHX', KEYS[1], string.rep('x', 67))" 1 enc
OBJECT ENCODING enc
LPUSH enc ""
OBJECT ENCODING enc
LTRIM enc 42 -1
OBJECT ENCODING enc
LPOP enc 1
OBJECT ENCODING enc
LPOP enc 1
OBJECT ENCODING enc
DEL enc
EVAL "for i = 1, 1639 do redis.call('RPUSH', KEYS[1], 1000 + i) end" 1 enc
OBJECT ENCODING enc
EVAL "for i = 1, 1000 do redis.call('RPUSH', KEYS[1], 1000 + i) end" 1 enc
OBJECT ENCODING enc
EVAL "for i = 1, 90 do redis.call('RPUSH', KEYS[1], 4000 + i) end" 1 enc
OBJECT ENCODING enc
EVAL "for i = 1, 1000 do redis.call('RPUSH', KEYS[1], 2147483648 + i) end" 1 enc
OBJECT ENCODING enc
LLEN enc
EVAL "return redis.call('LINSERT', KEYS[1], 'BEFORE', '1001', string.rep('x', 100))" 1 enc
LINDEX enc 0
LINDEX enc -1
LPOS enc 1001 COUNT 0
LPOS enc 2147484648 RANK -1
LREM enc -1 1001
LTRIM enc -300 -1
LLEN enc
DEL enc
# what the table of commands shows
COMMAND INFO lindex linsert llen lmove lmpop lpop lpos lpush lpushx lrange lrem lset ltrim
COMMAND INFO rpop rpoplpush rpush rpushx
COMMAND LIST FILTERBY PATTERN rpoplpush
COMMAND GETKEYS LPUSH k a
COMMAND GETKEYS LMOVE a b LEFT RIGHT
COMMAND GETKEYS RPOPLPUSH a b
COMMAND GETKEYS LMPOP 2 a b LEFT
COMMAND GETKEYS LMPOP 9 a LEFT
COMMAND GETKEYS LMPOP x a LEFT
COMMAND GETKEYSANDFLAGS LMPOP 2 a b LEFT
COMMAND GETKEYSANDFLAGS LMOVE a b LEFT RIGHT
COMMAND GETKEYSANDFLAGS RPOPLPUSH a b
COMMAND GETKEYSANDFLAGS RPUSHX k a
COMMAND GETKEYSANDFLAGS LRANGE k 0 1
COMMAND GETKEYSANDFLAGS LREM k 0 a
COMMAND GETKEYSANDFLAGS LSET k 0 a
COMMAND GETKEYSANDFLAGS LLEN k
FLUSHALL
"#;
