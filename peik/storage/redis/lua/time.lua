-- What time and other letters do: park, move to another chat, join when due, expire, go into the log.

-- park(id, other): set a letter apart, unless the one that it awaits has ended. One that completed when it was merged, as it once was,
-- has no answer of its own: there the newest edit counts.
function ops.park(id, other)
    local record, state = record_of(id), state_of(id)
    if not record or (state.p or IN_LANE) ~= IN_LANE or is_marked(record[1], id) then
        return false
    end
    local standing_of = other and state_of(other) or {}
    while standing_of.g and standing_of.p == COMPLETED do
        other = standing_of.g
        standing_of = state_of(other)
    end
    if not other or other == id or not record_of(other) or (standing_of.p or IN_LANE) >= COMPLETED then
        return false
    end
    local number = number_of(id, record, state)
    leave_lane(id, record, state)
    state.p, state.n, state.d, state.a = APART, number, nil, other
    stand_apart(id, state, other)
    keep_state(id, state)
    count(record[1], IN_LANE, APART)
    return true
end

-- Every alias names the last key at once, and the last key is nobody's alias.
local function alias(bot, old, new)
    local aliases, reverse = P .. 'alias:' .. bot, P .. 'alias_of:' .. bot .. ':'
    local function name(chat)
        local before = call('HGET', aliases, chat)
        if before then
            call('SREM', reverse .. before, chat)
        end
        if chat == new then
            call('HDEL', aliases, chat)
            if call('HEXISTS', P .. 'chats:' .. bot, chat) == 0 then
                call('ZREM', P .. 'chat_index:' .. bot, chat)
            end
        else
            call('HSET', aliases, chat, new)
            call('SADD', reverse .. new, chat)
            call('ZADD', P .. 'chat_index:' .. bot, 0, chat)
        end
    end
    for _, chat in ipairs(call('SMEMBERS', reverse .. old)) do
        name(chat)
    end
    name(old)
    name(new)
end

-- The lanes of a chat, each with the ranks that it has. A text may hold the sign that parts it from the thread.
local function lanes_of(bot, chat)
    local found = {}
    for rank = 0, RANK_LAST do
        local key = P .. 'lanes:' .. bot .. ':' .. rank
        for _, lane in ipairs(call('ZRANGEBYLEX', key, '[' .. chat .. '|', '(' .. chat .. '|\255')) do
            if string.match(lane, '^(.*)|%-?%d+$') == chat then
                found[lane] = found[lane] or {}
                table.insert(found[lane], rank)
            end
        end
    end
    return found
end

-- readdress(bot, old, new, limit) -> how many went from the lanes of one chat to those of the other, to their own places
function ops.readdress(bot, old, new, limit)
    alias(bot, old, new)
    local moved = 0
    for lane, ranks in pairs(lanes_of(bot, old)) do
        local thread = string.match(lane, '%-?%d+$')
        local target = new .. '|' .. thread
        local found = limit > moved and call('ZRANGE', lane_key(bot, lane), 0, limit - moved - 1, 'WITHSCORES') or {}
        for index = 1, #found, 2 do
            local id, score = found[index], tonumber(found[index + 1])
            local state = state_of(id)
            state.c = new
            keep_state(id, state)
            call('ZREM', lane_key(bot, lane), id)
            call('ZADD', lane_key(bot, target), score, id)
            call('ZADD', P .. 'lanes:' .. bot .. ':' .. int(math.floor(score / RANK)), 0, target)
            moved = moved + 1
        end
        for _, rank in ipairs(ranks) do
            forget_empty(bot, lane, rank)
        end
    end
    return moved
end

local function first_score(key)
    return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 0)
end

-- join_due(at, limit) -> letters that took the next numbers of their bots' orders, and when the next is due
function ops.join_due(at, limit)
    local joined = {}
    for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'due', '-inf', at, 'LIMIT', 0, limit)) do
        local id = unpadded(member)
        local record, state = record_of(id), state_of(id)
        local number = take_number(record[1])
        leave_apart(id, record, state)
        enter_again(id, record, state, number)
        joined[#joined + 1] = letter(id, number)
    end
    return {joined, first_score(P .. 'due')}
end

-- expire(at, limit, reason, line) -> {id, record, state} of those that failed, and when the next expires
function ops.expire(at, limit, reason, line)
    local rows, start = {}, 0
    while #rows < limit do
        local page = call('ZRANGEBYSCORE', P .. 'expiry', '-inf', at, 'LIMIT', start, limit)
        for _, id in ipairs(page) do
            local record = record_of(id)
            if #rows < limit and not is_marked(record[1], id) then
                rows[#rows + 1] = {id, FAILED, at, reason, line}
            end
        end
        start = start + limit
        if #page < limit then
            break
        end
    end
    local views = {}
    for _, id in ipairs(end_untried(rows)) do
        views[#views + 1] = {id, call('HGET', P .. 'letters', id), call('HGET', P .. 'state', id)}
    end
    return {views, first_score(P .. 'expiry')}
end

-- What a call says: its text, or its caption.
local function text_in(params)
    local is_read, fields = pcall(cjson.decode, params)
    local said = is_read and type(fields) == 'table' and (fields.text or fields.caption)
    return type(said) == 'string' and said or nil
end

-- A letter leaves for good; what remains is its line in the log.
local function log_and_drop(id, index)
    local record, state = record_of(id), state_of(id)
    local line = {
        bot = record[1], chat = state.c or record[2], user = record[11].i, type = record[11].y, method = record[6],
        status = STATE_OF[state.p], made = math.max(state.m or 0, 0), error = state.r, at = record[8], ended = state.s,
        message = state.o and tonumber(string.match(state.o, '"message_id":%s*(%d+)') or nil), text = text_in(record[7]),
    }
    call('HSET', P .. 'log', id, encode(line))
    call('ZADD', P .. 'log_age', record[8], id)
    call('ZREM', index, id)
    call('HDEL', P .. 'letters', id)
    call('HDEL', P .. 'state', id)
    call('HDEL', P .. 'blobs', id)
    count_blocks(P .. 'blocks', id, -1)
    count(record[1], state.p, nil)
    local blobs = {}
    for _, enclosed in ipairs(record[11].f or {}) do
        blobs[#blobs + 1] = enclosed.blob
    end
    return blobs
end

-- clean(completed before, dead before, log before, at, limit) -> how many rows went, and blobs nobody needs now
function ops.clean(completed_before, dead_before, log_before, at, limit)
    local gone, blobs = 0, {}
    for _, part in ipairs({{P .. 'done', completed_before}, {P .. 'dead', dead_before}}) do
        for _, id in ipairs(call('ZRANGEBYSCORE', part[1], '-inf', '(' .. int(part[2]), 'LIMIT', 0, limit)) do
            for _, blob in ipairs(log_and_drop(id, part[1])) do
                blobs[#blobs + 1] = blob
            end
            gone = gone + 1
        end
    end
    for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'log_age', '-inf', '(' .. int(log_before), 'LIMIT', 0, limit)) do
        call('HDEL', P .. 'log', id)
        call('ZREM', P .. 'log_age', id)
        gone = gone + 1
    end
    for _, field in ipairs(call('ZRANGEBYSCORE', P .. 'idempotency_age', '-inf', at, 'LIMIT', 0, limit)) do
        call('HDEL', P .. 'idempotency', field)
        call('ZREM', P .. 'idempotency_age', field)
        gone = gone + 1
    end
    return {gone, blobs}
end
