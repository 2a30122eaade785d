-- Takes one unit of a sale.
-- KEYS[1] stock: the units that are left, a decimal number.
-- Answer: the units that are left behind this one, 0 or more; -1 sold out; -2 there is no stock.
local left = tonumber(redis.call('GET', KEYS[1]))
if not left then return -2 end
if left < 1 then return -1 end
return redis.call('DECR', KEYS[1])
