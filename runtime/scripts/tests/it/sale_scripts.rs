//! The commonest scripts of shops, written from their descriptions, by EVALSHA.

use penstock_shard::scripts::ScriptEnd;

use crate::store::Client;

struct Shop {
    client: Client,
}

impl Shop {
    fn new() -> Self {
        let mut client = Client::new();
        client.store.now_ms = 1_000_000;
        Shop { client }
    }

    /// Loads the script, runs it by its digest while its keys are cold, then again.
    fn run(&mut self, text: &str, keys: &[&str], arguments: &[&str]) -> String {
        let digest = self
            .client
            .texts
            .load(text.as_bytes())
            .expect("it compiles");
        let before = self.client.store.get(keys[0]);
        let cold = keys.iter().map(|key| key.as_bytes().to_vec());
        self.client.store.cold.extend(cold);
        assert_eq!(self.client.eval_sha(digest, keys, arguments), "");
        assert_eq!(self.client.end, ScriptEnd::Stopped);
        assert_eq!(self.client.store.get(keys[0]), before);
        self.client.store.cold.clear();
        self.client.eval_sha(digest, keys, arguments)
    }
}

/// Stock, the mark of a buyer.
const BUY: &str = "
if redis.call('exists', KEYS[2]) == 1 then return -2 end
local left = tonumber(redis.call('get', KEYS[1]) or '0')
local wanted = tonumber(ARGV[1])
if left < wanted then return -1 end
redis.call('set', KEYS[2], ARGV[1])
return redis.call('decrby', KEYS[1], wanted)";

#[test]
fn stock_is_sold_once_to_each_buyer_and_never_below_zero() {
    let mut shop = Shop::new();
    shop.client.store.set("stock", "2");
    assert_eq!(shop.run(BUY, &["stock", "buyer:1"], &["1"]), ":1\r\n");
    assert_eq!(shop.run(BUY, &["stock", "buyer:1"], &["1"]), ":-2\r\n");
    assert_eq!(shop.run(BUY, &["stock", "buyer:2"], &["1"]), ":0\r\n");
    assert_eq!(shop.run(BUY, &["stock", "buyer:3"], &["1"]), ":-1\r\n");
    assert_eq!(shop.client.store.get("stock").as_deref(), Some("0"));
    assert_eq!(shop.client.store.get("buyer:3"), None);
}

#[test]
fn plain_stock_is_taken_if_there_is_enough() {
    let text = "local left = redis.call('GET', KEYS[1])
        if left and tonumber(left) >= tonumber(ARGV[1]) then
          redis.call('DECRBY', KEYS[1], ARGV[1]) return 1
        end
        return 0";
    let mut shop = Shop::new();
    shop.client.store.set("stock", "5");
    assert_eq!(shop.run(text, &["stock"], &["3"]), ":1\r\n");
    assert_eq!(shop.run(text, &["stock"], &["3"]), ":0\r\n");
    assert_eq!(shop.client.store.get("stock").as_deref(), Some("2"));
}

#[test]
fn a_lock_is_released_and_extended_by_its_owner_only() {
    let release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) \
                   else return 0 end";
    let extend = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                  return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
    let acquire = "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
    let mut shop = Shop::new();
    assert_eq!(shop.run(acquire, &["lock"], &["me", "100"]), "+OK\r\n");
    assert_eq!(shop.run(acquire, &["lock"], &["you", "100"]), "$-1\r\n");
    assert_eq!(shop.run(extend, &["lock"], &["you", "900"]), ":0\r\n");
    assert_eq!(shop.run(extend, &["lock"], &["me", "900"]), ":1\r\n");
    shop.client.store.now_ms += 500;
    assert_eq!(shop.run(release, &["lock"], &["you"]), ":0\r\n");
    assert_eq!(shop.run(release, &["lock"], &["me"]), ":1\r\n");
}

#[test]
fn a_fixed_window_admits_so_many() {
    let text = "local count = redis.call('incr', KEYS[1])
        if count == 1 then redis.call('pexpire', KEYS[1], ARGV[1]) end
        return {count, redis.call('pttl', KEYS[1])}";
    let mut shop = Shop::new();
    assert_eq!(
        shop.run(text, &["window"], &["1000"]),
        "*2\r\n:1\r\n:1000\r\n"
    );
    shop.client.store.now_ms += 300;
    assert_eq!(
        shop.run(text, &["window"], &["1000"]),
        "*2\r\n:2\r\n:700\r\n"
    );
    shop.client.store.now_ms += 800;
    assert_eq!(
        shop.run(text, &["window"], &["1000"]),
        "*2\r\n:1\r\n:1000\r\n"
    );
}

#[test]
fn a_sliding_window_forgets_what_is_old() {
    let text = "local now = redis.call('time')
        local ms = now[1] * 1000 + math.floor(now[2] / 1000)
        local kept = {}
        for at in (redis.call('get', KEYS[1]) or ''):gmatch('%d+') do
          if tonumber(at) > ms - tonumber(ARGV[1]) then kept[#kept + 1] = at end
        end
        if #kept >= tonumber(ARGV[2]) then return 0 end
        kept[#kept + 1] = string.format('%.0f', ms)
        redis.call('set', KEYS[1], table.concat(kept, ','), 'PX', ARGV[1])
        return 1";
    let mut shop = Shop::new();
    let arguments = ["1000", "2"];
    assert_eq!(shop.run(text, &["log"], &arguments), ":1\r\n");
    shop.client.store.now_ms += 600;
    assert_eq!(shop.run(text, &["log"], &arguments), ":1\r\n");
    assert_eq!(shop.run(text, &["log"], &arguments), ":0\r\n");
    shop.client.store.now_ms += 500;
    assert_eq!(shop.run(text, &["log"], &arguments), ":1\r\n");
    assert_eq!(
        shop.client.store.get("log").as_deref(),
        Some("1000600,1001100")
    );
}

#[test]
fn a_token_bucket_fills_with_time() {
    let text = "local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
        local now, wanted = tonumber(ARGV[3]), tonumber(ARGV[4])
        local state = redis.call('get', KEYS[1])
        local tokens, last = burst, now
        if state then
          local decoded = cjson.decode(state)
          tokens, last = decoded.tokens, decoded.last
        end
        tokens = math.min(burst, tokens + math.max(0, now - last) * rate)
        local allowed = tokens >= wanted
        if allowed then tokens = tokens - wanted end
        redis.call('setex' and 'set', KEYS[1], cjson.encode({tokens = tokens, last = now}))
        return {allowed and 1 or 0, tostring(tokens)}";
    let mut shop = Shop::new();
    let reply = shop.run(text, &["bucket"], &["0.5", "3", "100", "2"]);
    assert_eq!(reply, "*2\r\n:1\r\n$1\r\n1\r\n");
    let reply = shop.run(text, &["bucket"], &["0.5", "3", "101", "2"]);
    assert_eq!(reply, "*2\r\n:0\r\n$3\r\n1.5\r\n");
    let reply = shop.run(text, &["bucket"], &["0.5", "3", "104", "2"]);
    assert_eq!(reply, "*2\r\n:1\r\n$1\r\n1\r\n");
}

#[test]
fn a_coupon_is_claimed_up_to_a_limit_per_user() {
    let text = "local mine = tonumber(redis.call('get', KEYS[2]) or 0)
        if mine >= tonumber(ARGV[1]) then return redis.error_reply('LIMIT reached') end
        local left = redis.call('decr', KEYS[1])
        if left < 0 then redis.call('incr', KEYS[1]) return redis.error_reply('SOLD out') end
        redis.call('incr', KEYS[2])
        return redis.status_reply('CLAIMED')";
    let mut shop = Shop::new();
    shop.client.store.set("coupons", "2");
    assert_eq!(
        shop.run(text, &["coupons", "user:1"], &["1"]),
        "+CLAIMED\r\n"
    );
    assert_eq!(
        shop.run(text, &["coupons", "user:1"], &["1"]),
        "-LIMIT reached\r\n"
    );
    assert_eq!(
        shop.run(text, &["coupons", "user:2"], &["1"]),
        "+CLAIMED\r\n"
    );
    assert_eq!(
        shop.run(text, &["coupons", "user:3"], &["1"]),
        "-SOLD out\r\n"
    );
    assert_eq!(shop.client.store.get("coupons").as_deref(), Some("0"));
}

#[test]
fn several_articles_are_taken_together_or_not_at_all() {
    let text = "for i, key in ipairs(KEYS) do
          if tonumber(redis.call('get', key) or 0) < tonumber(ARGV[i]) then return {0, key} end
        end
        for i, key in ipairs(KEYS) do redis.call('decrby', key, ARGV[i]) end
        return {1, ''}";
    let mut shop = Shop::new();
    shop.client.store.set("a", "5");
    shop.client.store.set("b", "1");
    assert_eq!(
        shop.run(text, &["a", "b"], &["2", "2"]),
        "*2\r\n:0\r\n$1\r\nb\r\n"
    );
    assert_eq!(
        shop.run(text, &["a", "b"], &["2", "1"]),
        "*2\r\n:1\r\n$0\r\n\r\n"
    );
    assert_eq!(shop.client.store.get("a").as_deref(), Some("3"));
}

#[test]
fn an_order_is_given_back_once() {
    let text = "local taken = redis.call('get', KEYS[2])
        if not taken then return 0 end
        redis.call('del', KEYS[2])
        return redis.call('incrby', KEYS[1], taken)";
    let mut shop = Shop::new();
    shop.client.store.set("stock", "1");
    shop.client.store.set("order:1", "4");
    assert_eq!(shop.run(text, &["stock", "order:1"], &[]), ":5\r\n");
    assert_eq!(shop.run(text, &["stock", "order:1"], &[]), ":0\r\n");
}

#[test]
fn a_counter_is_bounded_and_a_value_is_compared_and_set() {
    let bounded = "local next = (tonumber(redis.call('get', KEYS[1])) or 0) + ARGV[1]
        if next > tonumber(ARGV[2]) then return false end
        redis.call('set', KEYS[1], next)
        return next";
    let compare = "if redis.call('get', KEYS[1]) == ARGV[1] then
          redis.call('set', KEYS[1], ARGV[2]) return true
        end
        return false";
    let mut shop = Shop::new();
    assert_eq!(shop.run(bounded, &["counter"], &["3", "4"]), ":3\r\n");
    assert_eq!(shop.run(bounded, &["counter"], &["3", "4"]), "$-1\r\n");
    assert_eq!(shop.run(compare, &["counter"], &["3", "9"]), ":1\r\n");
    assert_eq!(shop.run(compare, &["counter"], &["3", "9"]), "$-1\r\n");
    assert_eq!(shop.client.store.get("counter").as_deref(), Some("9"));
}

#[test]
fn a_request_is_answered_once_by_its_name() {
    let text = "local before = redis.call('get', KEYS[1])
        if before then return cjson.decode(before).answer end
        local answer = 'order-' .. redis.call('incr', KEYS[2])
        redis.call('set', KEYS[1], cjson.encode({answer = answer, at = ARGV[1]}), 'EX', 60)
        return answer";
    let mut shop = Shop::new();
    for _ in 0..2 {
        let reply = shop.run(text, &["request:7", "orders"], &["1700000000"]);
        assert_eq!(reply, "$7\r\norder-1\r\n");
    }
    shop.client.store.now_ms += 61_000;
    let reply = shop.run(text, &["request:7", "orders"], &["1700000000"]);
    assert_eq!(reply, "$7\r\norder-2\r\n");
}
