-- What scripts see. Loaded once into each interpreter, with what is written in Rust as `native`.
-- Nothing here keeps anything of a run: each table that a script reaches is its own or a proxy.
local native = ...
local type, select, error, tonumber = type, select, error, tonumber
local raw_next, raw_rawget, raw_rawset = next, rawget, rawset
local raw_pcall, raw_xpcall, raw_unpack = pcall, xpcall, unpack
local raw_tostring, raw_getmetatable, raw_setmetatable = tostring, getmetatable, setmetatable
local raw_create, raw_wrap, raw_resume = coroutine.create, coroutine.wrap, coroutine.resume
local raw_yield = coroutine.yield
local raise, caught, charge = native.raise, native.caught, native.charge
local charge_number, look_next, blame = native.charge_number, native.look_next, native.blame
local compile, find_step, concat = native.compile, native.string.gsub_step, native.concat
local gmatch_step, gsub_text = native.string.gmatch_step, native.string.gsub_text
local sub = native.string.sub
local floor, huge = math.floor, math.huge
-- Numbers of an int are below.
local INT_END = 2147483647
-- Strings of as many bytes take steps when they are read as a number.
local LONG_NUMBER = 1024

-- Proxies: what stands in front of a table that no script may change.
local inner = {}

local function refuse()
  raise('Attempt to modify a readonly table')
end

local function protect(hidden)
  local proxy = {}
  inner[proxy] = hidden
  return raw_setmetatable(proxy, { __index = hidden, __newindex = refuse, __metatable = false })
end

local function expected(number, name, what, count, value)
  local got = number > count and 'no value' or type(value)
  local text = what .. ' expected, got ' .. got
  raise('bad argument #' .. number .. " to '" .. name .. "' (" .. text .. ')')
end

-- Tables whose keys stand at the same places in every process.
local is_ordered = { string = true, number = true, boolean = true, userdata = true }

local function check_order(t)
  for key in raw_next, t do
    if not is_ordered[type(key)] then raise(native.unordered) end
  end
end

local base = {}

function base.next(...)
  local t, key = ...
  if type(t) ~= 'table' then expected(1, 'next', 'table', select('#', ...), t) end
  t = inner[t] or t
  if key == nil then check_order(t) end
  return raw_next(t, key)
end

function base.pairs(...)
  local t = ...
  if type(t) ~= 'table' then expected(1, 'pairs', 'table', select('#', ...), t) end
  t = inner[t] or t
  check_order(t)
  return raw_next, t, nil
end

function base.rawget(...)
  local t, key = ...
  if type(t) ~= 'table' then expected(1, 'rawget', 'table', select('#', ...), t) end
  if select('#', ...) < 2 then raise("bad argument #2 to 'rawget' (value expected)") end
  return raw_rawget(inner[t] or t, key)
end

function base.rawset(...)
  local t, key, value = ...
  if type(t) ~= 'table' then expected(1, 'rawset', 'table', select('#', ...), t) end
  local count = select('#', ...)
  if count < 3 then raise('bad argument #' .. count + 1 .. " to 'rawset' (value expected)") end
  if inner[t] then error('Attempt to modify a readonly table', 0) end
  return raw_rawset(t, key, value)
end

local string_metatable

function base.getmetatable(...)
  if select('#', ...) == 0 then raise("bad argument #1 to 'getmetatable' (value expected)") end
  local value = ...
  if type(value) == 'string' then return string_metatable end
  if inner[value] then return nil end
  return raw_getmetatable(value)
end

function base.setmetatable(...)
  local t, metatable = ...
  if type(t) ~= 'table' then expected(1, 'setmetatable', 'table', select('#', ...), t) end
  if inner[t] then error('Attempt to modify a readonly table', 0) end
  -- When an entry of a weak table goes depends on what ran before.
  if type(metatable) == 'table' and raw_rawget(metatable, '__mode') ~= nil then
    raise('weak tables are not supported')
  end
  return raw_setmetatable(t, metatable)
end

-- The text of a thing has no address.
local is_hidden = { table = true, ['function'] = true, thread = true }

function base.tostring(...)
  if select('#', ...) == 0 then raise("bad argument #1 to 'tostring' (value expected)") end
  local value = ...
  local kind = type(value)
  if not is_hidden[kind] then return raw_tostring(value) end
  local metatable = kind == 'table' and raw_getmetatable(value)
  if not metatable or inner[value] then return kind .. ': 0x0' end
  local text = raw_tostring(value)
  if type(text) == 'string' and sub(text, 1, 9) == 'table: 0x' then return 'table: 0x0' end
  return text
end

-- Errors of ours become values, and the end of a run goes on.
local function settled(ok, ...)
  if ok then return true, ... end
  return false, caught((...))
end

local function settled_text(ok, ...)
  if ok then return true, ... end
  local reason = caught((...))
  if type(reason) == 'table' and not inner[reason] then
    local text = raw_rawget(reason, 'err')
    if text ~= nil then return false, text end
  end
  return false, reason
end

function base.pcall(...)
  if select('#', ...) == 0 then raise("bad argument #1 to 'pcall' (value expected)") end
  return settled_text(raw_pcall(...))
end

function base.xpcall(...)
  if select('#', ...) < 2 then raise("bad argument #2 to 'xpcall' (value expected)") end
  local f, handler = ...
  return settled(raw_xpcall(f, function(reason) return handler(caught(reason)) end))
end

function base.unpack(...)
  local t, first, last = ...
  if type(t) ~= 'table' then expected(1, 'unpack', 'table', select('#', ...), t) end
  if first ~= nil and not tonumber(first) then expected(2, 'unpack', 'number', 2, first) end
  if last ~= nil and not tonumber(last) then expected(3, 'unpack', 'number', 3, last) end
  local from, to = tonumber(first) or 1, tonumber(last) or #t
  local count = to - from + 1
  if count > native.results_max then raise('too many results to unpack') end
  -- The C function counts in an int, which others than these overflow. NaN is none of these.
  local is_int = from > -INT_END and from < INT_END and to > -INT_END and to < INT_END
  if not is_int then raise('too many results to unpack') end
  if count > 16 then charge(count) end
  return raw_unpack(t, first, last)
end

function base.loadstring(text, name)
  if type(text) == 'number' then text = raw_tostring(text) end
  if type(text) ~= 'string' then expected(1, 'loadstring', 'string', 1, text) end
  return compile(text, name or text)
end

function base.load(...)
  local f, name = ...
  if type(f) ~= 'function' then expected(1, 'load', 'function', select('#', ...), f) end
  local pieces = {}
  local ok, reason = base.pcall(function()
    while true do
      local piece = f()
      if piece == nil or piece == '' then return end
      if type(piece) ~= 'string' then error('reader function must return a string', 0) end
      pieces[#pieces + 1] = piece
    end
  end)
  if not ok then return nil, reason end
  return compile(concat(pieces), name or '=(load)')
end

function base.tonumber(...)
  local value, radix = ...
  if type(value) == 'string' and #value >= LONG_NUMBER then charge_number(#value) end
  if radix == nil then
    if value == nil and select('#', ...) == 0 then
      raise("bad argument #1 to 'tonumber' (value expected)")
    end
    return (tonumber(value))
  end
  if type(radix) == 'string' and #radix >= LONG_NUMBER then charge_number(#radix) end
  local digits = tonumber(radix)
  if not digits then expected(2, 'tonumber', 'number', 2, radix) end
  local is_ten = digits >= 10 and digits < 11
  if not is_ten and type(value) ~= 'string' and type(value) ~= 'number' then
    expected(1, 'tonumber', 'string', 2, value)
  end
  if not (digits >= 2 and digits < 37) then
    raise("bad argument #2 to 'tonumber' (base out of range)")
  end
  return (tonumber(value, digits))
end

-- The interpreter decides what is collected when.
function base.collectgarbage() return 0 end
function base.gcinfo() return 0 end

base.assert, base.error, base.ipairs, base.rawequal = assert, error, ipairs, rawequal
base.select, base.type = select, type
base._VERSION = _VERSION

-- Coroutines: their instructions are counted from zero, so a new one costs a tick. Each counts by
-- itself until it looks at the budget. One that makes another, that another continues, or that
-- waits looks after its next instruction.
local coroutines = {
  running = coroutine.running,
  status = coroutine.status,
}

function coroutines.yield(...)
  look_next()
  return raw_yield(...)
end

function coroutines.create(f)
  charge(native.tick_steps)
  look_next()
  return raw_create(f)
end

local function resumed(...)
  look_next()
  return ...
end

local function unwrapped(ok, ...)
  if ok then return ... end
  local reason = ...
  local kind = type(reason)
  if kind == 'string' or kind == 'number' then raise(reason) end
  error(reason, 0)
end

function coroutines.wrap(f)
  charge(native.tick_steps)
  look_next()
  -- It refuses what is no function of a script.
  raw_wrap(f)
  local made = raw_create(f)
  return function(...)
    look_next()
    return unwrapped(resumed(raw_resume(made, ...)))
  end
end

function coroutines.resume(...)
  look_next()
  return settled(resumed(raw_resume(...)))
end

-- Strings: functions with callbacks are written in Lua, so no function in Rust calls a script.
local strings = {}
for _, name in ipairs {
  'byte', 'char', 'find', 'format', 'len', 'lower', 'match', 'rep', 'reverse', 'sub', 'upper',
} do
  strings[name] = native.string[name]
end

function strings.gmatch(...)
  local text, pattern = ...
  if type(text) == 'number' then text = raw_tostring(text) end
  if type(pattern) == 'number' then pattern = raw_tostring(pattern) end
  if type(text) ~= 'string' then expected(1, 'gmatch', 'string', select('#', ...), text) end
  if type(pattern) ~= 'string' then expected(2, 'gmatch', 'string', select('#', ...), pattern) end
  local at = 0
  local function given(next_at, ...)
    at = next_at
    return ...
  end
  return function() return given(gmatch_step(text, pattern, at)) end
end

strings.gfind = strings.gmatch

local function replacement(by, is_function, from, to, whole, ...)
  if from == nil then return nil end
  local value
  if is_function then value = by(...) else value = by[(...)] end
  if not value then
    value = whole
  elseif type(value) ~= 'string' and type(value) ~= 'number' then
    raise('invalid replacement value (a ' .. type(value) .. ')')
  end
  return from, to, value
end

function strings.gsub(...)
  local text, pattern, by, count_max = ...
  local is_function = type(by) == 'function'
  if not is_function and type(by) ~= 'table' then return gsub_text(...) end
  if type(text) == 'number' then text = raw_tostring(text) end
  if type(pattern) == 'number' then pattern = raw_tostring(pattern) end
  if type(text) ~= 'string' then expected(1, 'gsub', 'string', select('#', ...), text) end
  if type(pattern) ~= 'string' then expected(2, 'gsub', 'string', select('#', ...), pattern) end
  if count_max == nil then count_max = huge end
  if type(count_max) ~= 'number' then expected(4, 'gsub', 'number', 4, count_max) end
  local pieces, at, count = {}, 0, 0
  while count < floor(count_max) do
    local from, to, value = replacement(by, is_function, find_step(text, pattern, at))
    if from == nil then break end
    count = count + 1
    pieces[#pieces + 1] = sub(text, at + 1, from)
    pieces[#pieces + 1] = value
    at = to
    if to == from then
      pieces[#pieces + 1] = sub(text, at + 1, at + 1)
      at = at + 1
      if at > #text then break end
    end
    if sub(pattern, 1, 1) == '^' then break end
  end
  pieces[#pieces + 1] = sub(text, at + 1)
  return concat(pieces), count
end

-- Tables.
local tables = { concat = native.concat }

local function check_table(name, count, t)
  if type(t) ~= 'table' then expected(1, name, 'table', count, t) end
  if inner[t] then error('Attempt to modify a readonly table', 0) end
end

local function whole(number, name, count, value)
  local integer = tonumber(value)
  if not integer then expected(number, name, 'number', count, value) end
  return integer < 0 and -floor(-integer) or floor(integer)
end

function tables.insert(...)
  local count = select('#', ...)
  local t, at, value = ...
  check_table('insert', count, t)
  local last = #t + 1
  if count == 2 then
    raw_rawset(t, last, at)
    return
  end
  if count ~= 3 then raise("wrong number of arguments to 'insert'") end
  at = whole(2, 'insert', count, at)
  if at > last then last = at end
  for index = last, at + 1, -1 do raw_rawset(t, index, raw_rawget(t, index - 1)) end
  raw_rawset(t, at, value)
end

function tables.remove(...)
  local count = select('#', ...)
  local t, at = ...
  check_table('remove', count, t)
  local last = #t
  at = at == nil and last or whole(2, 'remove', count, at)
  if at < 1 or at > last then return end
  local value = raw_rawget(t, at)
  for index = at, last - 1 do raw_rawset(t, index, raw_rawget(t, index + 1)) end
  raw_rawset(t, last, nil)
  return value
end

local order_wrong = 'invalid order function for sorting'

-- The quicksort of Lua 5.1: elements that are equal come in its order, and an order that
-- contradicts itself is refused as there.
local function quick_sort(t, low, high, is_less)
  while low < high do
    local first, last = raw_rawget(t, low), raw_rawget(t, high)
    if is_less(last, first) then
      raw_rawset(t, low, last)
      raw_rawset(t, high, first)
    end
    if high - low == 1 then return end
    local middle = floor((low + high) / 2)
    local pivot
    pivot, first = raw_rawget(t, middle), raw_rawget(t, low)
    if is_less(pivot, first) then
      raw_rawset(t, middle, first)
      raw_rawset(t, low, pivot)
    else
      last = raw_rawget(t, high)
      if is_less(last, pivot) then
        raw_rawset(t, middle, last)
        raw_rawset(t, high, pivot)
      end
    end
    if high - low == 2 then return end
    pivot = raw_rawget(t, middle)
    raw_rawset(t, middle, raw_rawget(t, high - 1))
    raw_rawset(t, high - 1, pivot)
    local left, right = low, high - 1
    while true do
      left = left + 1
      local of_left = raw_rawget(t, left)
      while is_less(of_left, pivot) do
        if left > high then raise(order_wrong) end
        left = left + 1
        of_left = raw_rawget(t, left)
      end
      right = right - 1
      local of_right = raw_rawget(t, right)
      while is_less(pivot, of_right) do
        if right < low then raise(order_wrong) end
        right = right - 1
        of_right = raw_rawget(t, right)
      end
      if right < left then break end
      raw_rawset(t, left, of_right)
      raw_rawset(t, right, of_left)
    end
    raw_rawset(t, high - 1, raw_rawget(t, left))
    raw_rawset(t, left, pivot)
    -- The smaller part is sorted by a call, the greater one by the loop.
    if left - low < high - left then
      quick_sort(t, low, left - 1, is_less)
      low = left + 1
    else
      quick_sort(t, left + 1, high, is_less)
      high = left - 1
    end
  end
end

-- As the interpreter compares, with errors that name no place: sort is written in C there.
local function is_less(a, b)
  local kind, other = type(a), type(b)
  if kind == other then
    if kind == 'number' or kind == 'string' then return a < b end
    local of_a, of_b = raw_getmetatable(a), raw_getmetatable(b)
    -- What is no table hides a metatable.
    if of_a and of_b and (type(of_a) ~= 'table' or type(of_b) ~= 'table') then return a < b end
    local order = of_a and of_b and raw_rawget(of_a, '__lt')
    if order and order == raw_rawget(of_b, '__lt') then return a < b end
    error('attempt to compare two ' .. kind .. ' values', 0)
  end
  error('attempt to compare ' .. kind .. ' with ' .. other, 0)
end

function tables.sort(...)
  local count = select('#', ...)
  local t, order = ...
  check_table('sort', count, t)
  if order ~= nil and type(order) ~= 'function' then
    expected(2, 'sort', 'function', count, order)
  end
  quick_sort(t, 1, #t, order or is_less)
end

function tables.getn(...)
  local t = ...
  if type(t) ~= 'table' then expected(1, 'getn', 'table', select('#', ...), t) end
  return #(inner[t] or t)
end

function tables.setn() raise("'setn' is obsolete") end

function tables.maxn(...)
  local t = ...
  if type(t) ~= 'table' then expected(1, 'maxn', 'table', select('#', ...), t) end
  local most = 0
  for key in raw_next, t do
    if type(key) == 'number' and key > most then most = key end
  end
  return most
end

function tables.foreach(t, f)
  for key, value in base.pairs(t) do
    local result = f(key, value)
    if result ~= nil then return result end
  end
end

function tables.foreachi(t, f)
  for index = 1, tables.getn(t) do
    local result = f(index, raw_rawget(t, index))
    if result ~= nil then return result end
  end
end

-- Redis.
local call, marks = nil, native.marks
local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  REDIS_VERSION = native.version, REDIS_VERSION_NUM = native.version_number,
  SERVER_NAME = 'penstock',
  sha1hex = native.sha1hex, setresp = native.setresp,
}

local function fail(text) error({ err = text }, 0) end

function redis.pcall(...) return call(marks.pcall, ...) end

function redis.log(...)
  local level = ...
  if select('#', ...) < 2 then fail('ERR server.log() requires two arguments or more.') end
  if type(level) ~= 'number' then fail('ERR First argument must be a number (log level).') end
  if level < 0 or level > 3 then fail('ERR Invalid log level.') end
  call(marks.log, ...)
end

local function single_field(name, ...)
  local text = ...
  if select('#', ...) ~= 1 or type(text) ~= 'string' then
    return { err = 'ERR wrong number or type of arguments' }
  end
  return { [name] = text }
end

function redis.status_reply(...) return single_field('ok', ...) end

function redis.error_reply(...)
  local reply = single_field('err', ...)
  local text = reply.err
  if sub(text, 1, 1) == '-' then
    text = sub(text, 2)
  elseif not native.string.find(text, ' ', 1, true) then
    text = 'ERR ' .. text
  end
  reply.err = text
  return reply
end

-- Effects are one record, whatever a script asks for.
function redis.replicate_commands() return true end

function redis.set_repl(...)
  local flags = ...
  if select('#', ...) ~= 1 then fail('ERR server.set_repl() requires one argument.') end
  flags = tonumber(flags)
  if not flags or flags < 0 or flags > 3 then
    fail('ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.')
  end
end

function redis.breakpoint() return false end
function redis.debug() end

local function copy(t)
  local copied = {}
  for key, value in raw_next, t do copied[key] = value end
  return copied
end

local cjson = native.cjson
function cjson.new() return copy(cjson) end

-- What scripts see, by its name.
base.string, base.table, base.coroutine = protect(strings), protect(tables), protect(coroutines)
base.math, base.cjson = protect(native.math), protect(cjson)
base.cmsgpack = protect(native.cmsgpack)
base.bit, base.struct = protect(native.bit), protect(native.struct)
-- Time stands still in a run.
base.os = protect({ clock = function() return 0 end })
base.redis = protect(redis)
base.server = base.redis

raw_getmetatable('').__index = strings
string_metatable = protect({ __index = base.string })

local environment = protect(base)
base._G = environment
raw_setmetatable(base, {
  __index = function(_, name)
    raise("Script attempted to access nonexistent global variable '" .. base.tostring(name) .. "'")
  end,
})

local function run(f, calls, keys, arguments)
  call, redis.call = calls, calls
  base.KEYS, base.ARGV = keys, arguments
  local ok, value = raw_xpcall(f, blame)
  base.KEYS, base.ARGV = nil, nil
  return ok, value
end

return environment, run
