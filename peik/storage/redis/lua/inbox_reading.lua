-- What readers and people read of arrivals. Nothing here writes.
local INBOX = {'epoch', 'server', 'last_update_id', 'newest', 'started_at', 'seen_at', 'received_at', 'next_number', 'expired'}

function ops.inbox(bot)
    return call('HMGET', P .. 'inbox:' .. bot, spread(INBOX))
end

-- consumers(bot or nothing) -> {id, record, seen, progress} of each
function ops.consumers(bot)
    local found = {}
    for _, id in ipairs(bot and call('HVALS', P .. 'consumers:' .. bot) or call('HKEYS', P .. 'consumers')) do
        found[#found + 1] = {
            id, call('HGET', P .. 'consumers', id), call('HGET', P .. 'consumers_seen', id), call('HGET', P .. 'progress', id),
        }
    end
    return found
end

local function bot_of(consumer)
    local raw = call('HGET', P .. 'consumers', consumer)
    return raw and decode(raw).bot
end

-- As many of these as fit, and at least one.
local function fitting(ids, limit, bytes_max, is_seen)
    local found, total = {}, 0
    for start = 1, #ids, 50 do
        local page = {}
        for index = start, math.min(start + 49, #ids) do
            page[#page + 1] = ids[index]
        end
        for index, raw in ipairs(many(P .. 'arrivals', page)) do
            local one = arrival(raw)
            if is_seen(one) then
                total = total + one.size
                if #found > 0 and total > bytes_max or #found >= limit then
                    return found, true
                end
                found[#found + 1] = {page[index], raw}
            end
        end
    end
    return found, false
end

local function everything()
    return true
end

-- page(consumer, after, limit, bytes) -> {id, arrival} …: what is for all and what is for it alone, merged
function ops.page(consumer, after, limit, bytes_max)
    local bot = bot_of(consumer)
    if not bot then
        return {}
    end
    local merged = {}
    for _, only_for in ipairs({'0', consumer}) do
        local key = order_key(bot, only_for)
        local rows = call('ZRANGEBYSCORE', key, '(' .. int(after), '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
        for index = 1, #rows, 2 do
            merged[#merged + 1] = {tonumber(rows[index + 1]), rows[index]}
        end
    end
    table.sort(merged, function(one, other) return one[1] < other[1] end)
    local ids = {}
    for index = 1, math.min(limit, #merged) do
        ids[index] = merged[index][2]
    end
    return (fitting(ids, limit, bytes_max, everything))
end

-- page_of_bot(bot, after, limit) -> {id, arrival} …: what is for all
function ops.page_of_bot(bot, after, limit)
    local ids = call('ZRANGEBYSCORE', order_key(bot, '0'), '(' .. int(after), '+inf', 'LIMIT', 0, limit)
    return (fitting(ids, limit, math.huge, everything))
end

-- lane_page(consumer, lane, after, limit, bytes): the number is turned into an id, since that is what a lane is ordered by
function ops.lane_page(consumer, lane, after, limit, bytes_max)
    local bot, cursor = bot_of(consumer), 0
    if not bot then
        return {}
    end
    for _, only_for in ipairs({'0', consumer}) do
        local found = call('ZREVRANGEBYSCORE', order_key(bot, only_for), after, '-inf', 'LIMIT', 0, 1)
        cursor = math.max(cursor, tonumber(found[1] or 0))
    end
    local function is_seen(one)
        return one.only_for == '0' or one.only_for == consumer
    end
    local found = {}
    while #found < limit do
        local ids = call('ZRANGEBYSCORE', arrival_lane(bot, lane), '(' .. int(cursor), '+inf', 'LIMIT', 0, limit)
        local page, is_full = fitting(ids, limit - #found, bytes_max, is_seen)
        for _, row in ipairs(page) do
            bytes_max = bytes_max - arrival(row[2]).size
            found[#found + 1] = row
        end
        if is_full or bytes_max <= 0 or #ids < limit then
            break
        end
        cursor = tonumber(ids[#ids])
    end
    return found
end

-- deferrals(consumer) -> {number, story, arrival} …
function ops.deferrals(consumer)
    local bot, found = bot_of(consumer), {}
    for _, number in ipairs(bot and call('ZRANGE', P .. 'put_off:' .. consumer, 0, -1) or {}) do
        local id = id_of_number(bot, consumer, number)
        local raw = id and call('HGET', P .. 'arrivals', id)
        found[#found + 1] = {number, call('HGET', P .. 'stories:' .. consumer, number), raw}
    end
    return found
end

-- inbox_tallies(consumers, at) -> {open, delayed, failed, oldest open at} of each
function ops.inbox_tallies(consumers, at)
    local found = {}
    for index, consumer in ipairs(consumers) do
        local bot, progress = bot_of(consumer), progress_of(consumer)
        local still_open = 0
        for _, only_for in ipairs(bot and {'0', consumer} or {}) do
            local key = order_key(bot, only_for)
            still_open = still_open + call('ZCOUNT', key, '(' .. int(progress[1]), '+inf')
            for _, span in ipairs(progress[2]) do
                still_open = still_open - call('ZCOUNT', key, span[1], span[2])
            end
        end
        local delayed = call('ZCOUNT', P .. 'put_off:' .. consumer, '(' .. int(at), '+inf')
        local _, oldest = next_seen(bot or '', consumer, progress[1])
        local raw = oldest and call('HGET', P .. 'arrivals', oldest)
        local failed = call('ZCARD', P .. 'given_up:' .. consumer)
        found[index] = {still_open - delayed, delayed, failed, raw and int(arrival(raw).received) or false}
    end
    return found
end

-- with_story(consumer, 'put_off' or 'given_up') -> ids of the arrivals
function ops.with_story(consumer, index)
    local bot, found = bot_of(consumer), {}
    for _, number in ipairs(bot and call('ZRANGE', P .. index .. ':' .. consumer, 0, -1) or {}) do
        found[#found + 1] = id_of_number(bot, consumer, number) or nil
    end
    return found
end

-- arrivals(ids) -> each that is here
function ops.arrivals(ids)
    return many(P .. 'arrivals', ids)
end

-- stories(consumer, numbers) -> each that there is
function ops.stories(consumer, numbers)
    return many(P .. 'stories:' .. consumer, numbers)
end

-- outages(bot, is open) -> {id, record} …
function ops.outages(bot, is_open)
    local found = {}
    local ids = is_open and call('ZRANGE', P .. 'outages_open:' .. bot, 0, -1) or call('ZREVRANGE', P .. 'outages:' .. bot, 0, 99)
    for index, id in ipairs(ids) do
        found[index] = {id, call('HGET', P .. 'outages', id)}
    end
    return found
end
