//! FLUSHALL and FLUSHDB as both servers answer them.

/// Commands, one a line, as in the table of all others.
pub const FLUSH_TABLE: &str = r#"
FLUSHALL BOGUS
FLUSHALL ASYNC x
FLUSHDB SYNC ASYNC
FLUSHDB ""
FLUSHALL
DBSIZE
GET fa
MSET fa 1 fb 2 fc 3 fd 4 fe 5 ff 6
SET fx 7 EX 1000
FLUSHALL
DBSIZE
GET fa
TTL fx
EXISTS fa fb fc fd fe ff fx
KEYS *
RANDOMKEY
SET fa new NX
GET fa
KEYS *
FLUSHDB ASYNC
GET fa
DBSIZE
INCR fa
FLUSHDB SYNC
INCR fa
flushall sync
INCR fa
WATCH fa
FLUSHALL
MULTI
PING
EXEC
SET fa 1
WATCH fa
MULTI
PING
EXEC
FLUSHALL ASYNC
DBSIZE
SET fb 1
DEL fb
FLUSHALL
DBSIZE
MSET fa 1 fb 2 fc 3
DEL fa fb fc
FLUSHDB
DBSIZE
"#;
