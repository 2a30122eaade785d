-- Gives out coupons, so many to one buyer at most.
-- KEYS[1] stock: the coupons that are left, a decimal number.
-- KEYS[2] buyer: how many this buyer has, a decimal number; absent is 0.
-- ARGV[1] units: how many, a whole number of 1 or more.
-- ARGV[2] limit: the most that one buyer may have.
-- Answer: the coupons that are left, 0 or more; -1 fewer are left; -2 there is no stock; -3 the
-- buyer would have more than the limit.
local units, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
if not units or units < 1 or units % 1 ~= 0 then
    return redis.error_reply('ERR units is not a whole number of 1 or more: ' .. tostring(ARGV[1]))
end
if not limit then
    return redis.error_reply('ERR limit is not a number: ' .. tostring(ARGV[2]))
end
local left = tonumber(redis.call('GET', KEYS[1]))
if not left then return -2 end
local has = tonumber(redis.call('GET', KEYS[2]) or '0')
if has + units > limit then return -3 end
if left < units then return -1 end
redis.call('INCRBY', KEYS[2], ARGV[1])
return redis.call('DECRBY', KEYS[1], ARGV[1])
