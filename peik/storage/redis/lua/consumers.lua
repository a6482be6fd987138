-- Who reads arrivals, and how far each is.
-- A story: p 0 put off, 2 completed after all, 3 dead; t tries, d due, r reason, s settled at, h history.
local PUT_OFF, OVER, DEAD = 0, 2, 3

local function consumer_of(id)
    local raw = call('HGET', P .. 'consumers', id)
    if not raw then
        refuse('unknown_consumer', id)
    end
    return decode(raw)
end

local function consumers_of(bot)
    local ids = call('HVALS', P .. 'consumers:' .. bot)
    table.sort(ids, function(one, other) return tonumber(one) < tonumber(other) end)
    return ids
end

local function last_number(bot)
    return tonumber(call('HGET', P .. 'inbox:' .. bot, 'next_number') or 1) - 1
end

local function story_of(consumer, number)
    local raw = call('HGET', P .. 'stories:' .. consumer, number)
    return raw and decode(raw)
end

local function tell_on(story, line)
    story = story or {h = {}}
    if line then
        remember(story, line)
    end
    return story
end

local function keep_story(consumer, number, story)
    call('HSET', P .. 'stories:' .. consumer, number, encode(story))
end

local function drop_story(consumer, number)
    call('HDEL', P .. 'stories:' .. consumer, number)
    call('ZREM', P .. 'put_off:' .. consumer, number)
    call('ZREM', P .. 'given_up:' .. consumer, number)
end

local function put_off(consumer, row)
    local number = int(row[1])
    local story = tell_on(story_of(consumer, number), row[4])
    story.p, story.t, story.d = PUT_OFF, row[2], row[3]
    keep_story(consumer, number, story)
    call('ZADD', P .. 'put_off:' .. consumer, row[3], number)
end

local function bury(consumer, row, at)
    local number = int(row[1])
    local story = tell_on(story_of(consumer, number), row[4])
    story.p, story.t, story.d, story.r, story.s = DEAD, row[2], nil, row[3], at
    keep_story(consumer, number, story)
    call('ZREM', P .. 'put_off:' .. consumer, number)
    call('ZADD', P .. 'given_up:' .. consumer, row[1], number)
end

local function close_story(consumer, number, at)
    local story = story_of(consumer, number)
    story.p, story.d, story.s = OVER, nil, at
    keep_story(consumer, number, story)
    call('ZREM', P .. 'put_off:' .. consumer, number)
end

-- What was put off and is over now. Its history stays. Looked for from the side that is shorter: a reader that is down may
-- have put off thousands while it is told of one.
local function complete(consumer, spans, at)
    local key, width = P .. 'put_off:' .. consumer, 0
    for _, span in ipairs(spans) do
        width = width + math.max(span[2] - span[1] + 1, 0)
    end
    if width > call('ZCARD', key) then
        for _, number in ipairs(call('ZRANGE', key, 0, -1)) do
            if is_over({0, spans}, tonumber(number)) then
                close_story(consumer, number, at)
            end
        end
        return
    end
    for _, span in ipairs(spans) do
        for number = span[1], span[2] do
            if call('ZSCORE', key, int(number)) then
                close_story(consumer, int(number), at)
            end
        end
    end
end

-- Store what is over now, and jump over numbers that this reader never sees: one seek for each such gap.
local function advance_to(bot, consumer, progress, over, last)
    local after = advanced(progress, over)
    while after[1] < last do
        local seen = next_seen(bot, consumer, after[1])
        local gap_end = seen and seen - 1 or last
        if gap_end == after[1] then
            break
        end
        after = advanced(after, {{after[1] + 1, gap_end}})
    end
    call('HSET', P .. 'progress', consumer, encode(after))
    return after
end

local function settle_arrivals(consumer, over, deferred, dead, at)
    local bot = consumer_of(consumer).bot
    local before, last = progress_of(consumer), last_number(bot)
    -- Whoever is late changes nothing: what is over is over, and what is not there yet cannot be.
    for _, row in ipairs(deferred) do
        if row[1] <= last and not is_over(before, row[1]) then
            put_off(consumer, row)
        end
    end
    local done = {}
    for _, span in ipairs(over) do
        done[#done + 1] = {span[1], math.min(span[2], last)}
    end
    local given_up = {}
    for _, row in ipairs(dead) do
        if row[1] <= last and not is_over(before, row[1]) then
            bury(consumer, row, at)
            given_up[#given_up + 1] = {row[1], row[1]}
        end
    end
    if #done > 0 then
        complete(consumer, done, at)
    end
    for _, span in ipairs(given_up) do
        done[#done + 1] = span
    end
    return advance_to(bot, consumer, before, done, last)
end

-- settle_arrivals(consumer, spans, {number, tries, due, line} …, {number, tries, reason, line} …, at) -> {watermark, spans}
function ops.settle_arrivals(consumer, over, deferred, dead, at)
    return settle_arrivals(consumer, over, deferred, dead, at)
end

-- ---- who ----

local function check_bot(bot)
    if call('HEXISTS', P .. 'bots', bot) == 0 then
        refuse('unknown_bot', bot)
    end
end

-- The consumer of this name. A new one begins with the oldest arrival still kept.
local function ensure_consumer(bot, name, at)
    local known = call('HGET', P .. 'consumers:' .. bot, name)
    if known then
        return known
    end
    local id = int(call('INCR', P .. 'consumer_ids'))
    local oldest = call('ZRANGE', order_key(bot, '0'), 0, 0, 'WITHSCORES')[2]
    local watermark = oldest and tonumber(oldest) - 1 or last_number(bot)
    call('HSET', P .. 'consumers', id, encode({bot = bot, name = name, kind = 'none', connections = 40, at = at}))
    call('HSET', P .. 'consumers:' .. bot, name, id)
    call('HSET', P .. 'progress', id, encode({watermark, {}}))
    return id
end

-- ensure_consumer(bot, name, at, how many there may be besides the default one, or nothing)
function ops.ensure_consumer(bot, name, at, most)
    check_bot(bot)
    local names = P .. 'consumers:' .. bot
    if most and name ~= 'default' and call('HEXISTS', names, name) == 0
        and call('HLEN', names) - call('HEXISTS', names, 'default') >= most then
        refuse('too_many_consumers', bot, int(most))
    end
    return ensure_consumer(bot, name, at)
end

-- save_consumer(id, kind, url, secret, allowed, connections)
function ops.save_consumer(id, kind, url, secret, allowed, connections)
    local one = consumer_of(id)
    one.kind, one.url, one.secret, one.allowed, one.connections = kind, url, secret, allowed, connections
    return call('HSET', P .. 'consumers', id, encode(one))
end

-- touch_consumers({id, at} …): it only rises
function ops.touch_consumers(seen)
    for _, row in ipairs(seen) do
        local before = tonumber(call('HGET', P .. 'consumers_seen', row[1]) or 0)
        if row[2] > before and call('HEXISTS', P .. 'consumers', row[1]) == 1 then
            call('HSET', P .. 'consumers_seen', row[1], row[2])
        end
    end
    return true
end

local function drop_consumer(id, one)
    call('HDEL', P .. 'consumers', id)
    call('HDEL', P .. 'consumers:' .. one.bot, one.name)
    call('HDEL', P .. 'consumers_seen', id)
    call('HDEL', P .. 'progress', id)
    call('UNLINK', P .. 'stories:' .. id, P .. 'put_off:' .. id, P .. 'given_up:' .. id, P .. 'watermarks:' .. id)
end

-- remove_consumer(id): it is forgotten with all that is only its own; its replays go with the next upkeep
function ops.remove_consumer(id)
    local one = consumer_of(id)
    if one.name == 'default' then
        refuse('default_consumer')
    end
    drop_consumer(id, one)
    return true
end

-- ---- sources ----

local INBOX = {'epoch', 'server', 'last_update_id', 'newest', 'started_at', 'seen_at', 'received_at', 'next_number', 'expired'}

-- open_inbox(bot, server, at) -> as it was, as it is. Another server numbers by itself: another epoch, read from its head.
function ops.open_inbox(bot, server, at)
    check_bot(bot)
    local key = P .. 'inbox:' .. bot
    local before = call('HMGET', key, spread(INBOX))
    if not before[1] then
        call('HSET', key, 'epoch', 1, 'epoch_at', at, 'server', server)
        call('SADD', P .. 'inboxes', bot)
    elseif before[2] ~= server then
        call('UNLINK', P .. 'updates:' .. bot .. ':' .. before[1])
        call('HSET', key, 'epoch', tonumber(before[1]) + 1, 'epoch_at', at, 'server', server)
        call('HDEL', key, 'last_update_id', 'newest')
    end
    call('HSET', key, 'started_at', at)
    ensure_consumer(bot, 'default', at)
    return {before, call('HMGET', key, spread(INBOX))}
end

function ops.note_seen(bot, at)
    if call('EXISTS', P .. 'inbox:' .. bot) == 1 then
        call('HSET', P .. 'inbox:' .. bot, 'seen_at', at)
    end
    return true
end

-- ---- outages ----

local OUTAGES_KEPT = 1000 -- the newest tell enough

-- open_outage(bot, began, ended, last number) -> its id
function ops.open_outage(bot, began, ended, last)
    local id = int(call('INCR', P .. 'outage_ids'))
    local key = P .. 'outages:' .. bot
    call('HSET', P .. 'outages', id, encode({bot = bot, began = began, ended = ended, last = last}))
    call('ZADD', key, id, id)
    call('ZADD', P .. 'outages_open:' .. bot, id, id)
    local oldest = call('ZREVRANGE', key, OUTAGES_KEPT, OUTAGES_KEPT)[1]
    for _, old in ipairs(oldest and call('ZRANGEBYSCORE', key, '-inf', oldest, 'LIMIT', 0, AT_ONCE) or {}) do
        if not call('ZSCORE', P .. 'outages_open:' .. bot, old) then
            call('ZREM', key, old)
            call('HDEL', P .. 'outages', old)
        end
    end
    return id
end

function ops.settle_outage(id, at)
    local raw = call('HGET', P .. 'outages', id)
    local one = raw and decode(raw)
    if one and not one.settled then
        one.settled = at
        call('HSET', P .. 'outages', id, encode(one))
        call('ZREM', P .. 'outages_open:' .. one.bot, id)
    end
    return true
end
