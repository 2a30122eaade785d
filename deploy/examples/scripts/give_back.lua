-- Returns the units of an order to the stock, once: of one that is held, or of one that was paid,
-- whose money goes back. Asked again, it answers the same.
-- KEYS[1] stock: the units that are left, a decimal number.
-- KEYS[2] sold: the units that were sold, a decimal number.
-- KEYS[3] order: "held UNITS UNTIL" or "paid UNITS". Becomes "back UNITS", for keep_ms.
-- ARGV[1] why: "cancel" whatever it is; "late" only what is held and whose time is over, for the
-- program that ends holds.
-- ARGV[2] keep_ms: how long the order is kept behind that, in milliseconds.
-- Answer: the units that came back; 0 there is no such order; -1 it is not late.
local order = redis.call('GET', KEYS[3])
if not order then return 0 end
local state, units, until_ms = string.match(order, '^(%a+) (%d+) ?(%d*)$')
if state == 'back' then return tonumber(units) end
if ARGV[1] ~= 'cancel' then
    if state ~= 'held' then return -1 end
    local now = redis.call('TIME')
    if now[1] * 1000 + math.floor(now[2] / 1000) < tonumber(until_ms) then return -1 end
end
if state == 'paid' then redis.call('DECRBY', KEYS[2], units) end
redis.call('INCRBY', KEYS[1], units)
redis.call('SET', KEYS[3], 'back ' .. units, 'PX', ARGV[2])
return tonumber(units)
