-- What scripts find: Lua's own functions as far as they are harmless, and the table `redis`.
--
-- The tables that scripts share are read-only, so that no script can change what another one finds.
-- In place of such a table a script sees an empty one, whose metatable leads to the real one.
--
-- `host` has the functions of the program. This chunk returns the environment of scripts, the table
-- of their global variables, and the function that executes a script.

local host = ...
local real_error, real_pcall, real_xpcall = error, pcall, xpcall
local type, tostring, select, rawget = type, tostring, select, rawget
local real_getmetatable, real_setmetatable = getmetatable, setmetatable
local real_loadstring = loadstring
local resume, wrap = coroutine.resume, coroutine.wrap
local insert, remove, sort, concat = table.insert, table.remove, table.sort, table.concat
local byte, find, format, sub = string.byte, string.find, string.format, string.sub

local READ_ONLY = "Attempt to modify a readonly table"

-- The real tables behind those that scripts see.
local hidden = real_setmetatable({}, { __mode = "k" })

local function refuse()
  real_error(READ_ONLY, 2)
end

local function read_only(real)
  local seen = real_setmetatable({}, { __index = real, __newindex = refuse, __metatable = false })
  hidden[seen] = real
  return seen
end

-- Returns the text of an error of the program, without the calls that it lists.
local function text_of(err)
  local text = tostring(err)
  local calls = find(text, "\nstack traceback:", 1, true)
  return calls and sub(text, 1, calls - 1) or text
end

-- Raises an error again that ends the script, whatever the script does about errors.
local function passed(ok, err, ...)
  if not ok then
    if host.has_ended() then
      real_error(err, 0)
    elseif type(err) == "userdata" then
      err = text_of(err)
    end
  end
  return ok, err, ...
end

local function guard(real)
  return function(target, ...)
    if hidden[target] then
      real_error(READ_ONLY, 0)
    end
    return real(target, ...)
  end
end

local globals

-- Compiles a text as part of a script. Binary chunks can do anything to the program.
local function compile(text, name)
  if type(text) == "string" and byte(text) == 27 then
    return nil, "attempt to load a binary chunk"
  end
  local chunk, err = real_loadstring(text, name)
  if chunk then
    setfenv(chunk, globals._G)
  end
  return chunk, err
end

local call
local version = 2

-- An error that a command replies with is raised as a table, as in Redis.
local function execute(...)
  local ok, value, status = call(version, ...)
  if status then
    value = { ok = value }
  elseif not ok then
    value = { err = value }
  end
  return ok, value
end

local function single(field, text, ...)
  if type(text) ~= "string" or select("#", ...) > 0 then
    return { err = "ERR wrong number or type of arguments" }
  end
  return { [field] = text }
end

local redis = {
  LOG_DEBUG = 0,
  LOG_VERBOSE = 1,
  LOG_NOTICE = 2,
  LOG_WARNING = 3,
  REPL_NONE = 0,
  REPL_AOF = 1,
  REPL_SLAVE = 2,
  REPL_REPLICA = 2,
  REPL_ALL = 3,
  REDIS_VERSION = host.version,
  REDIS_VERSION_NUM = host.version_number,
  call = function(...)
    local ok, value = execute(...)
    if not ok then
      real_error(value, 0)
    end
    return value
  end,
  pcall = function(...)
    local _, value = passed(execute(...))
    return value
  end,
  error_reply = function(text, ...)
    local reply = single("err", text, ...)
    local first = byte(reply.err) == 45 and reply.err:sub(2) or reply.err
    if not first:find(" ", 1, true) then
      first = "ERR " .. first
    end
    return { err = first }
  end,
  status_reply = function(text, ...)
    return single("ok", text, ...)
  end,
  sha1hex = function(...)
    if select("#", ...) ~= 1 then
      real_error("wrong number of arguments", 0)
    end
    return host.sha1hex((tostring((...))))
  end,
  log = function(level, ...)
    if select("#", ...) < 1 then
      real_error("redis.log() requires two arguments or more.", 0)
    end
    if type(level) ~= "number" then
      real_error("First argument must be a number (log level).", 0)
    end
    if level < 0 or level > 3 then
      real_error("Invalid log level.", 0)
    end
    local parts = { ... }
    for at = 1, select("#", ...) do
      parts[at] = tostring(parts[at])
    end
    host.log(level, concat(parts, " "))
  end,
  setresp = function(...)
    local wanted = ...
    if select("#", ...) ~= 1 then
      real_error("redis.setresp() requires one argument.", 0)
    end
    if wanted ~= 2 and wanted ~= 3 then
      real_error("RESP version must be 2 or 3.", 0)
    end
    version = wanted
  end,
  -- Nothing that a script does is kept from other copies.
  set_repl = function() end,
  replicate_commands = function()
    return true
  end,
  breakpoint = function()
    return false
  end,
  debug = function() end,
}

for name, act in pairs(host.libraries.string) do
  string[name] = act
end

-- Returns an argument as a string.
local function as_string(value, at, name)
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" then
    real_error(format("bad argument #%d to '%s' (string expected, got %s)", at, name, kind), 3)
  end
  return tostring(value)
end

string.gmatch = function(text, pattern)
  local at = 0
  local function advance(next, ...)
    if next == nil then
      return nil
    end
    at = next
    return ...
  end
  text, pattern = as_string(text, 1, "gmatch"), as_string(pattern, 2, "gmatch")
  return function()
    return advance(host.gmatch(text, pattern, at))
  end
end
string.gfind = string.gmatch

string.gsub = function(text, pattern, by, limit)
  local kind = type(by)
  if kind == "string" or kind == "number" then
    return host.substitute(text, pattern, tostring(by), limit)
  end
  if kind ~= "table" and kind ~= "function" then
    real_error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  text, pattern = as_string(text, 1, "gsub"), as_string(pattern, 2, "gsub")
  local parts, at, count = {}, 0, 0
  limit = limit and tonumber(limit) or #text + 1
  -- Adds what stands for a match; `next` is where the search goes on.
  local function add(first, last, next, ...)
    if first == nil then
      return false
    end
    insert(parts, text:sub(at + 1, first - 1))
    local whole = text:sub(first, last)
    local value
    if kind == "table" then
      value = by[(...)]
    else
      value = by(...)
    end
    if not value then
      value = whole
    elseif type(value) ~= "string" and type(value) ~= "number" then
      real_error("invalid replacement value (a " .. type(value) .. ")", 3)
    end
    insert(parts, value)
    count = count + 1
    if next > last then
      -- The match was empty: the character behind it stays.
      insert(parts, text:sub(next, next))
    end
    at = next
    return next <= #text
  end
  local anchored = byte(pattern) == 94
  local only_first = kind == "table"
  while count < limit and add(host.gsub(text, pattern, at, only_first)) do
    if anchored then
      break
    end
  end
  insert(parts, text:sub(at + 1))
  return concat(parts), count
end

local function seen_next(target, key)
  return next(hidden[target] or target, key)
end

globals = {
  _VERSION = _VERSION,
  assert = assert,
  collectgarbage = function(what, argument)
    -- What the limits of memory rest on is not for scripts.
    if what == nil or what == "collect" or what == "step" or what == "count" then
      return collectgarbage(what, argument)
    end
    return 0
  end,
  error = error,
  gcinfo = gcinfo,
  ipairs = ipairs,
  next = seen_next,
  pairs = function(target)
    if hidden[target] then
      return seen_next, target
    end
    return pairs(target)
  end,
  rawequal = rawequal,
  select = select,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = unpack,
  getmetatable = function(value)
    return not hidden[value] and real_getmetatable(value) or nil
  end,
  setmetatable = guard(setmetatable),
  rawset = guard(rawset),
  rawget = function(target, key)
    return rawget(hidden[target] or target, key)
  end,
  -- The texts of errors that commands reply with are what scripts expect.
  pcall = function(...)
    local function unwrapped(ok, err, ...)
      if not ok and type(err) == "table" and type(rawget(err, "err")) == "string" then
        err = err.err
      end
      return ok, err, ...
    end
    return unwrapped(passed(real_pcall(...)))
  end,
  xpcall = function(act, handle)
    -- What ends a script is raised where Lua does not look at the time.
    return passed(real_xpcall(act, function(err)
      if host.has_ended() then
        return err
      end
      return handle(err)
    end))
  end,
  loadstring = compile,
  load = function(pieces, name)
    local parts = {}
    while true do
      local piece = pieces()
      if type(piece) ~= "string" or piece == "" then
        break
      end
      insert(parts, piece)
    end
    return compile(concat(parts), name or "=(load)")
  end,
  redis = read_only(redis),
  math = read_only(math),
  string = read_only(string),
  table = read_only({
    concat = concat,
    foreach = table.foreach,
    foreachi = table.foreachi,
    getn = table.getn,
    insert = guard(insert),
    maxn = table.maxn,
    remove = guard(remove),
    setn = table.setn,
    sort = guard(sort),
  }),
  coroutine = read_only({
    create = coroutine.create,
    resume = function(...)
      return passed(resume(...))
    end,
    running = coroutine.running,
    status = coroutine.status,
    wrap = wrap,
    yield = coroutine.yield,
  }),
}
for _, name in ipairs({ "bit", "cjson", "cmsgpack", "struct" }) do
  globals[name] = read_only(host.libraries[name])
end
hidden[globals.cjson].null = host.null
real_setmetatable(globals, {
  __index = function(_, name)
    local shown = tostring(name)
    real_error("Script attempted to access nonexistent global variable '" .. shown .. "'", 2)
  end,
})
globals._G = read_only(globals)

-- The methods of strings are those of `string`.
real_getmetatable("").__metatable = false

-- Returns the text of an error, and the line of the script where it happened.
local function describe(err)
  local text
  if type(err) == "table" then
    text = rawget(err, "err")
    if type(text) ~= "string" then
      text = "ERR the script raised an error that is a table without the field 'err'"
    end
  else
    text = "ERR " .. text_of(err)
  end
  return { text, host.line() }
end

local function run(script, new_call, keys, arguments)
  call, version = new_call, 2
  globals.KEYS, globals.ARGV = keys, arguments
  local ok, value = real_xpcall(script, describe)
  globals.KEYS, globals.ARGV = nil, nil
  if ok then
    return true, value, version
  elseif type(value) == "table" then
    return false, value[1], value[2]
  end
  -- Lua calls no handler when it has no memory.
  return false, "ERR " .. text_of(value), nil
end

return globals._G, run
