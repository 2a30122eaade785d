-- Lets through so many calls in a window of time. The window begins with its first call.
-- KEYS[1] calls: the calls of this window, a decimal number that ends with the window.
-- ARGV[1] limit: the most calls of a window.
-- ARGV[2] window_ms: how long a window is, in milliseconds.
-- Answer: which call of its window this is, 1 or more; or, as a number below 0, the milliseconds
-- until the next window.
local limit = tonumber(ARGV[1])
if not limit then
    return redis.error_reply('ERR limit is not a number: ' .. tostring(ARGV[1]))
end
local calls = tonumber(redis.call('GET', KEYS[1]) or '0')
if calls >= limit then
    local left_ms = redis.call('PTTL', KEYS[1])
    if left_ms > 0 then return -left_ms end
    -- A counter without an end would refuse for ever.
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return -tonumber(ARGV[2])
end
calls = redis.call('INCR', KEYS[1])
if calls == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return calls
