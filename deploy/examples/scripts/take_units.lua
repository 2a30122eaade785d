-- Takes several units of a sale, all of them or none.
-- KEYS[1] stock: the units that are left, a decimal number.
-- ARGV[1] units: how many, a whole number of 1 or more.
-- Answer: the units that are left, 0 or more; -1 fewer are left; -2 there is no stock.
local units = tonumber(ARGV[1])
if not units or units < 1 or units % 1 ~= 0 then
    return redis.error_reply('ERR units is not a whole number of 1 or more: ' .. tostring(ARGV[1]))
end
local left = tonumber(redis.call('GET', KEYS[1]))
if not left then return -2 end
if left < units then return -1 end
return redis.call('DECRBY', KEYS[1], ARGV[1])
