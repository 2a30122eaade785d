//! redis-rs against the RESP port: what its users do on the first day. Usage: redis-rs-check PORT

use redis::{Commands, RedisResult};

fn main() -> RedisResult<()> {
    let port = std::env::args().nth(1).expect("a port");
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://127.0.0.1:{port}/?protocol={protocol}");
        let mut redis = redis::Client::open(url)?.get_connection()?;
        redis.del::<_, ()>(&["rs:k", "rs:n"])?;
        redis.set_ex::<_, _, ()>("rs:k", "v", 100)?;
        assert_eq!(redis.get::<_, String>("rs:k")?, "v");
        assert_eq!(redis.incr::<_, _, i64>("rs:n", 5)?, 5);
        let values: Vec<Option<String>> = redis.mget(&["rs:k", "rs:n", "rs:none"])?;
        assert_eq!(values, [Some("v".into()), Some("5".into()), None]);
        let mut pipe = redis::pipe();
        pipe.incr("rs:n", 1).get("rs:n");
        let replies: (i64, i64) = pipe.query(&mut redis)?;
        assert_eq!(replies, (6, 6));
        let mut multi = redis::pipe();
        multi.atomic().incr("rs:n", 1).get("rs:n");
        let replies: (i64, i64) = multi.query(&mut redis)?;
        assert_eq!(replies, (7, 7));
        let error = redis.incr::<_, _, i64>("rs:k", 1).expect_err("text was counted");
        assert!(error.to_string().contains("not an integer"), "{error}");
        let found: Vec<String> = redis.scan_match("rs:*")?.collect::<RedisResult<_>>()?;
        assert_eq!(found.len(), 2);
    }
    println!("redis-rs 1.6.0: RESP2, RESP3, pipeline, MULTI, SCAN");
    Ok(())
}
