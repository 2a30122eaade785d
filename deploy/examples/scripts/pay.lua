-- Sells what hold.lua holds, if its time is not over. Asked again, it answers the same.
-- KEYS[1] sold: the units that were sold, a decimal number; absent is 0.
-- KEYS[2] order: "held UNITS UNTIL" of hold.lua. Becomes "paid UNITS".
-- Answer: the units that this order has bought; 0 there is no such order; -1 its time is over;
-- -2 it was given back.
local order = redis.call('GET', KEYS[2])
if not order then return 0 end
local state, units, until_ms = string.match(order, '^(%a+) (%d+) ?(%d*)$')
if state == 'paid' then return tonumber(units) end
if state ~= 'held' then return -2 end
local now = redis.call('TIME')
if now[1] * 1000 + math.floor(now[2] / 1000) >= tonumber(until_ms) then return -1 end
redis.call('INCRBY', KEYS[1], units)
redis.call('SET', KEYS[2], 'paid ' .. units)
return tonumber(units)
