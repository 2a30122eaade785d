-- Sells one unit to a buyer who has none.
-- KEYS[1] stock: the units that are left, a decimal number.
-- KEYS[2] buyer: absent, or the order of this buyer.
-- ARGV[1] order: what the key of the buyer keeps.
-- Answer: the units that are left, 0 or more; -1 sold out; -2 there is no stock; -3 the buyer has
-- one. A client that got no answer asks again: -3 then says that the first try was executed, if the
-- key of the buyer has this order.
local left = tonumber(redis.call('GET', KEYS[1]))
if not left then return -2 end
if redis.call('EXISTS', KEYS[2]) == 1 then return -3 end
if left < 1 then return -1 end
redis.call('SET', KEYS[2], ARGV[1])
return redis.call('DECR', KEYS[1])
