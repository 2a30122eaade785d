-- Sells a basket of several articles, all of them or none, once for each order.
-- KEYS[1] order: absent, or the units of the basket that was sold, with commas between them.
-- KEYS[2], KEYS[3], ... stock: the units that are left of each article, decimal numbers.
-- ARGV[1], ARGV[2], ... units: how many of each article, whole numbers of 1 or more.
-- Answer: 0 sold, now or by an earlier try; N above 0: of the article N fewer are left, or it has
-- no stock; -1 the order was sold with other units.
local basket = table.concat(ARGV, ',')
local before = redis.call('GET', KEYS[1])
if before then return before == basket and 0 or -1 end
if #ARGV ~= #KEYS - 1 or #ARGV == 0 then
    return redis.error_reply('ERR ' .. #KEYS - 1 .. ' articles, and units of ' .. #ARGV)
end
local taken = {}
for article = 1, #ARGV do
    local units = tonumber(ARGV[article])
    if not units or units < 1 or units % 1 ~= 0 then
        return redis.error_reply('ERR units is not a whole number of 1 or more: ' .. ARGV[article])
    end
    -- The same article may stand in the basket twice.
    local stock = KEYS[article + 1]
    taken[stock] = (taken[stock] or 0) + units
    local left = tonumber(redis.call('GET', stock))
    if not left or left < taken[stock] then return article end
end
for article = 1, #ARGV do
    redis.call('DECRBY', KEYS[article + 1], ARGV[article])
end
redis.call('SET', KEYS[1], basket)
return 0
