-- What engines and people read of letters. Nothing here writes.

-- {id, place, record, state} of the first letters of a lane.
local function front(bot, lane, most)
    local found = call('ZRANGE', lane_key(bot, lane), 0, most - 1, 'WITHSCORES')
    local ids, letters = {}, {}
    for index = 1, #found, 2 do
        ids[#ids + 1] = found[index]
    end
    local records, states = many(P .. 'letters', ids), many(P .. 'state', ids)
    for index, id in ipairs(ids) do
        letters[index] = {id, tonumber(found[2 * index]), records[index], states[index]}
    end
    return letters
end

-- fronts(bot, lanes, letters) -> letters of each
function ops.fronts(bot, lanes, most)
    local found = {}
    for index, lane in ipairs(lanes) do
        found[index] = front(bot, lane, most)
    end
    return found
end

-- sweep(bot, rank, after, lanes, letters) -> {lane, letters} of the next lanes that have letters of this rank
function ops.sweep(bot, rank, after, most, letters)
    local found = {}
    local key = P .. 'lanes:' .. bot .. ':' .. int(rank)
    for _, lane in ipairs(call('ZRANGEBYLEX', key, after and ('(' .. after) or '-', '+', 'LIMIT', 0, most)) do
        found[#found + 1] = {lane, front(bot, lane, letters)}
    end
    return found
end

-- views(ids) -> {record, state, mark} of each that is here
function ops.views(ids)
    local found = {}
    local records, states = many(P .. 'letters', ids), many(P .. 'state', ids)
    for index, id in ipairs(ids) do
        local raw = records[index]
        found[index] = raw and {raw, states[index], call('HGET', P .. 'marks:' .. decode(raw)[1], id)}
    end
    return found
end

-- ended(since, until) -> how many letters were delivered and how many failed
function ops.ended(since, till)
    local delivered = 0
    local ids = call('ZRANGEBYSCORE', P .. 'done', int(since), '(' .. int(till))
    for first = 1, #ids, 1000 do
        for _, raw in ipairs(many(P .. 'state', {unpack(ids, first, math.min(first + 999, #ids))})) do
            local state = raw and decode(raw) or {}
            if state.p == COMPLETED and not state.g then
                delivered = delivered + 1
            end
        end
    end
    return {delivered, call('ZCOUNT', P .. 'dead', int(since), '(' .. int(till))}
end

-- tallies(at) -> {bot, in_lane, apart, completed, failed, cancelled, in flight, backing off} of each bot
function ops.tallies(at)
    local found = {}
    for _, bot in ipairs(call('HKEYS', P .. 'bots')) do
        local marks, backoff = P .. 'marks:' .. bot, P .. 'backoff:' .. bot
        local backs_off = call('ZCOUNT', backoff, '(' .. int(at), '+inf')
        for _, id in ipairs(call('HKEYS', marks)) do
            local due = call('ZSCORE', backoff, id)
            if due and tonumber(due) > at then
                backs_off = backs_off - 1
            end
        end
        local row = call('HMGET', P .. 'tally:' .. bot, 'in_lane', 'apart', 'completed', 'failed', 'cancelled')
        found[#found + 1] = {bot, row, call('HLEN', marks), backs_off}
    end
    return found
end

-- in_flight() -> the ids of all letters that are marked; a bot that has none costs one step
function ops.in_flight()
    local found = {}
    for _, bot in ipairs(call('HKEYS', P .. 'bots')) do
        for _, id in ipairs(call('HKEYS', P .. 'marks:' .. bot)) do
            found[#found + 1] = id
        end
    end
    return found
end

-- lanes(bot, chat, how many) -> {lane, head, letters} of lanes that have letters
function ops.lanes(bot, chat, most)
    local seen, found = {}, {}
    local first, last = chat and ('[' .. chat .. '|') or '-', chat and ('(' .. chat .. '|\255') or '+'
    for rank = 0, RANK_LAST do
        local key = P .. 'lanes:' .. bot .. ':' .. rank
        for _, lane in ipairs(call('ZRANGEBYLEX', key, first, last, 'LIMIT', 0, most)) do
            if not seen[lane] and #found < most then
                seen[lane] = true
                found[#found + 1] = {lane, call('ZRANGE', lane_key(bot, lane), 0, 0)[1], call('ZCARD', lane_key(bot, lane))}
            end
        end
    end
    return found
end

-- oldest_waiting(most) -> {bot, created at} of the oldest letter of each bot's lanes, over so many lanes of each rank
function ops.oldest_waiting(most)
    local found = {}
    for _, bot in ipairs(call('HKEYS', P .. 'bots')) do
        local oldest
        for rank = 0, RANK_LAST do
            for _, lane in ipairs(call('ZRANGE', P .. 'lanes:' .. bot .. ':' .. rank, 0, most - 1)) do
                local first = call('ZRANGEBYSCORE', lane_key(bot, lane), rank * RANK, '(' .. int((rank + 1) * RANK), 'LIMIT', 0, 1)
                local id = tonumber(first[1])
                if id and (not oldest or id < oldest) then
                    oldest = id
                end
            end
        end
        local raw = oldest and call('HGET', P .. 'letters', int(oldest))
        if raw then
            found[#found + 1] = {bot, decode(raw)[8]}
        end
    end
    return found
end

function ops.head_of(bot, lane)
    return call('ZRANGE', lane_key(bot, lane), 0, 0)[1] or false
end

-- recent(bot, since) -> "at id weight chat" of what Telegram may have counted
function ops.recent(bot, since)
    return call('ZRANGEBYSCORE', P .. 'recent:' .. bot, since, '+inf')
end

-- chats(bot) -> all aliases and all that is known otherwise
function ops.chats(bot)
    return {call('HGETALL', P .. 'alias:' .. bot), call('HGETALL', P .. 'chats:' .. bot)}
end

-- known_chats(bot, after, limit) -> {chat, same as, rest} in the order of keys
function ops.known_chats(bot, after, limit)
    local found = {}
    local names = call('ZRANGEBYLEX', P .. 'chat_index:' .. bot, after and ('(' .. after) or '-', '+', 'LIMIT', 0, limit)
    for index, chat in ipairs(names) do
        found[index] = {chat, call('HGET', P .. 'alias:' .. bot, chat), call('HGET', P .. 'chats:' .. bot, chat)}
    end
    return found
end

-- keys() -> the generation, and {id, record, last use} of each that is in force
function ops.keys()
    local found = {}
    for _, id in ipairs(call('SMEMBERS', P .. 'keys_live')) do
        found[#found + 1] = {id, call('HGET', P .. 'keys', id), call('HGET', P .. 'keys_used', id)}
    end
    return {call('GET', P .. 'keys_generation'), found}
end

-- hooks_due(at, after, endpoints, each) -> {id, hook, key} of what is due, the last endpoint looked at, when the next is due
function ops.hooks_due(at, after, endpoints, each)
    local found = {}
    local names = call('ZRANGEBYLEX', P .. 'endpoints', '(' .. after, '+', 'LIMIT', 0, endpoints)
    for _, endpoint in ipairs(names) do
        for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'hooks:' .. endpoint, '-inf', at, 'LIMIT', 0, each)) do
            local raw = call('HGET', P .. 'hooks', unpadded(member))
            local whom = decode(raw).k
            local key = type(whom) == 'number' and call('HGET', P .. 'keys', int(whom))
            found[#found + 1] = {unpadded(member), raw, key}
        end
    end
    local later = call('ZRANGEBYSCORE', P .. 'hooks_due', '(' .. int(at), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    return {found, #names == endpoints and names[#names], later[2] or false}
end
