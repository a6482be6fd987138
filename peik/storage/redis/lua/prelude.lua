-- What every script of Peik begins with: names of keys, and how letters are read.
-- KEYS[1]: the prefix of all keys, with its hash tag. ARGV[1]: the operations in msgpack. ARGV[2…]: records, byte for byte.
-- Ids and bots are texts here and numbers are only counted with: Lua would write a long number as 1.0e+15.
local P, call = KEYS[1], redis.call
local encode, decode, spread = cmsgpack.pack, cmsgpack.unpack, unpack
local IN_LANE, APART, COMPLETED, FAILED, CANCELLED = 0, 1, 2, 3, 4
local STATE_OF = {[2] = 'completed', [3] = 'failed', [4] = 'cancelled'}
local RANK = 2 ^ 50 -- a place in a lane is rank * RANK + number: one sorted set holds all ranks, and doubles are exact to 2 ^ 53
local NORMAL, UNASKED, RANK_LAST = 2, 4, 4 -- see core/letter.py
local AT_ONCE = 500 -- arguments of one call; Lua's stack ends at 8000

local ops = {}

local function int(number)
    return string.format('%.0f', number)
end

-- The server's own clock. All else here is told in Peik's time.
local function server_ms()
    local now = call('TIME')
    return tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
end

-- Ids of one width stand in their order where scores are the same.
local function padded(id)
    return string.rep('0', 16 - #id) .. id
end

local function unpadded(id)
    return (string.gsub(id, '^0+', ''))
end

-- End an operation before its first write.
local function refuse(code, ...)
    error({refused = {code, ...}})
end

-- Values of many fields of a hash, in their order.
local function many(key, fields)
    local found = {}
    for start = 1, #fields, AT_ONCE do
        local last = math.min(start + AT_ONCE - 1, #fields)
        for index, value in ipairs(call('HMGET', key, spread(fields, start, last))) do
            found[start + index - 1] = value
        end
    end
    return found
end

local function record_of(id)
    local raw = call('HGET', P .. 'letters', id)
    return raw and decode(raw)
end

local function state_of(id)
    local raw = call('HGET', P .. 'state', id)
    return raw and decode(raw) or {}
end

local function lane_of(chat, thread)
    return chat .. '|' .. int(thread)
end

local function lane_key(bot, lane)
    return P .. 'lane:' .. bot .. ':' .. lane
end

-- How a letter stands, as people see it. One that is gone left a line in the log, which may be gone too.
local function standing(id, at)
    local record = record_of(id)
    if not record then
        local line = call('HGET', P .. 'log', id)
        return line and decode(line).status or 'completed'
    end
    local state = state_of(id)
    local phase = state.p or IN_LANE
    if phase >= COMPLETED then
        return STATE_OF[phase]
    elseif call('HEXISTS', P .. 'marks:' .. record[1], id) == 1 then
        return 'active'
    end
    return (phase == APART or (state.d or 0) > at) and 'delayed' or 'waiting'
end

-- A list of ids under a field of a hash. The lists are short: edits of one message, letters that refer to one.
local function ids_in(key, field)
    local found = {}
    for id in string.gmatch(call('HGET', key, field) or '', '%d+') do
        found[#found + 1] = id
    end
    return found
end
