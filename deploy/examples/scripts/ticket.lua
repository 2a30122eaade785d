-- Gives a buyer a place in the queue before the sale, once: asked again, it answers the same.
-- KEYS[1] tickets: the tickets that were given, a decimal number; absent is 0.
-- KEYS[2] buyer: absent, or the ticket of this buyer.
-- ARGV[1] limit: the most tickets that there are.
-- Answer: the number of the ticket, 1 or more; 0 there are no more.
local before = redis.call('GET', KEYS[2])
if before then return tonumber(before) end
local limit = tonumber(ARGV[1])
if not limit then
    return redis.error_reply('ERR limit is not a number: ' .. tostring(ARGV[1]))
end
if tonumber(redis.call('GET', KEYS[1]) or '0') >= limit then return 0 end
local number = redis.call('INCR', KEYS[1])
redis.call('SET', KEYS[2], number)
return number
