-- Holds units for an order until a time. The units leave the stock now; pay.lua sells them, and
-- give_back.lua returns them: when the buyer cancels, or when the time is over.
-- KEYS[1] stock: the units that are left, a decimal number.
-- KEYS[2] order: absent. Becomes "held UNITS UNTIL", UNTIL in milliseconds since 1970.
-- ARGV[1] units: how many, a whole number of 1 or more.
-- ARGV[2] hold_ms: how long, in milliseconds.
-- Answer: the units that are left, 0 or more; -1 fewer are left; -2 there is no stock; -3 the order
-- exists. A client that got no answer asks again: -3 then says that the first try was executed.
--
-- The key of the order has no expiry, as one that ends by itself would take its units with it.
local units, hold_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
if not units or units < 1 or units % 1 ~= 0 then
    return redis.error_reply('ERR units is not a whole number of 1 or more: ' .. tostring(ARGV[1]))
end
if not hold_ms then
    return redis.error_reply('ERR hold_ms is not a number: ' .. tostring(ARGV[2]))
end
if redis.call('EXISTS', KEYS[2]) == 1 then return -3 end
local left = tonumber(redis.call('GET', KEYS[1]))
if not left then return -2 end
if left < units then return -1 end
local now = redis.call('TIME')
local until_ms = now[1] * 1000 + math.floor(now[2] / 1000) + hold_ms
redis.call('SET', KEYS[2], string.format('held %d %.0f', units, until_ms))
return redis.call('DECRBY', KEYS[1], ARGV[1])
