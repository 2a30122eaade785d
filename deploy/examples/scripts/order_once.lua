-- Sells the units of an order once, however often its client asks.
-- KEYS[1] stock: the units that are left, a decimal number.
-- KEYS[2] order: absent, or the answer of the try that was executed.
-- ARGV[1] units: how many, a whole number of 1 or more.
-- ARGV[2] keep_ms: how long the answer is kept, in milliseconds; longer than any client asks again.
-- Answer: the units that were left behind this order, 0 or more, the same for each try; -1 fewer
-- are left; -2 there is no stock. What was refused is not kept: it may be asked again.
local before = redis.call('GET', KEYS[2])
if before then return tonumber(before) end
local units = tonumber(ARGV[1])
if not units or units < 1 or units % 1 ~= 0 then
    return redis.error_reply('ERR units is not a whole number of 1 or more: ' .. tostring(ARGV[1]))
end
local left = tonumber(redis.call('GET', KEYS[1]))
if not left then return -2 end
if left < units then return -1 end
left = redis.call('DECRBY', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], left, 'PX', ARGV[2])
return left
