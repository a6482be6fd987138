-- What time does to arrivals: read ones go, unread ones go later and are counted, idle readers go; and a bot goes with all.
local HOUR_MS, NOTES_AT_ONCE = 3600 * 1000, 10000

local function drop_arrival(id, raw)
    local one = arrival(raw)
    local update = update_of(raw, one)
    local bot = update[1]
    call('HDEL', P .. 'arrivals', id)
    call('ZREM', order_key(bot, one.only_for), id)
    call('ZREM', arrival_lane(bot, update[3]), id)
    count_blocks(P .. 'arrival_blocks', id, -1)
    local updates = P .. 'updates:' .. bot .. ':' .. int(one.epoch)
    if one.replay_of == '0' and call('HGET', updates, one.update) == id then
        call('HDEL', updates, one.update)
    end
    return one
end

local function drop_idle(before, limit)
    local ids, gone = call('HKEYS', P .. 'consumers'), {}
    table.sort(ids, function(one, other) return tonumber(one) < tonumber(other) end)
    for _, id in ipairs(ids) do
        local raw = call('HGET', P .. 'consumers', id)
        local one, seen = decode(raw), call('HGET', P .. 'consumers_seen', id)
        if #gone < limit and one.name ~= 'default' and math.max(tonumber(seen or 0), one.at) < before then
            gone[#gone + 1] = {id, raw, seen, call('HGET', P .. 'progress', id)}
            drop_consumer(id, one)
        end
    end
    return gone
end

-- Where a reader stands, once an hour. The newest checkpoint that is old enough is what counts; those of the future were
-- made by a clock that was wrong. How far it was at that time, or nothing if it is too young.
local function checkpoint(consumer, at, before)
    local key = P .. 'watermarks:' .. consumer
    call('ZREMRANGEBYSCORE', key, '(' .. int(at), '+inf')
    local floor = call('ZREVRANGEBYSCORE', key, before, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if floor[2] then
        call('ZREMRANGEBYSCORE', key, '-inf', '(' .. floor[2])
    end
    if call('ZCOUNT', key, '(' .. int(at - HOUR_MS), '+inf') == 0 then
        call('ZADD', key, at, int(at) .. ':' .. int(progress_of(consumer)[1]))
        floor = call('ZREVRANGEBYSCORE', key, before, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    end
    return floor[1] and tonumber(string.match(floor[1], '%d+$'))
end

local function is_lately_dead(readers, number, since)
    for consumer in pairs(readers) do
        local story = call('ZSCORE', P .. 'given_up:' .. consumer, number) and story_of(consumer, number)
        if story and story.p == DEAD and story.s >= since then
            return true
        end
    end
    return false
end

local function is_open_for_somebody(readers, one)
    for consumer, reader in pairs(readers) do
        if (one.only_for == '0' or one.only_for == consumer) and not is_over(reader.progress, one.number) then
            return true
        end
    end
    return false
end

-- Walk a bot's arrivals from the oldest on while `judge` says so; drop what it names. {dropped, of these unread}
local function sweep(bot, only_for, readers, limit, died_since, judge)
    local key, cursor, dropped, unread = order_key(bot, only_for), '-inf', 0, 0
    while dropped < limit do
        local ids = call('ZRANGEBYSCORE', key, cursor, '+inf', 'LIMIT', 0, 100)
        for index, raw in ipairs(many(P .. 'arrivals', ids)) do
            local one = arrival(raw)
            local verdict = judge(one)
            if verdict == 'stop' or dropped >= limit then
                return dropped, unread
            end
            cursor = '(' .. int(one.number)
            if verdict == 'drop' and not is_lately_dead(readers, int(one.number), died_since) then
                if is_open_for_somebody(readers, one) then
                    unread = unread + 1
                end
                drop_arrival(ids[index], raw)
                for consumer in pairs(readers) do
                    drop_story(consumer, int(one.number))
                end
                dropped = dropped + 1
            end
        end
        if #ids < 100 then
            break
        end
    end
    return dropped, unread
end

-- clean_arrivals(read before, unread before, died since, idle before, handled before, duplicates since or false, at, limit)
-- -> {how many went, {bot, unread} …, {consumer} … that nobody used}
function ops.clean_arrivals(read_before, old_before, died_since, idle_before, handled_before, brief_before, at, limit)
    local expired = drop_idle(idle_before, limit)
    for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'handled_age', '-inf', '(' .. int(handled_before), 'LIMIT', 0, NOTES_AT_ONCE)) do
        local bot, field = string.match(member, '^(%d+) (.*)$')
        call('HDEL', P .. 'handled:' .. bot, field)
        call('ZREM', P .. 'handled_age', member)
    end
    local bots, left, unread_of = call('SMEMBERS', P .. 'inboxes'), limit, {}
    table.sort(bots, function(one, other) return tonumber(one) < tonumber(other) end)
    for _, bot in ipairs(bots) do
        local readers, floor, is_floored, unread_here = {}, EVERY, true, 0
        for _, consumer in ipairs(consumers_of(bot)) do
            local own = checkpoint(consumer, at, read_before)
            readers[consumer] = {floor = own, progress = progress_of(consumer)}
            is_floored = is_floored and own ~= nil
            floor = math.min(floor, own or 0)
        end
        local function drop(only_for, floor_of)
            local function was_read(one)
                if one.number > floor_of or (brief_before and one.received >= brief_before) then
                    return 'stop'
                end
                return 'drop'
            end
            local function is_old(one)
                if one.received >= old_before + CLOCK_SLACK_MS then
                    return 'stop'
                end
                return one.received < old_before and 'drop' or 'keep'
            end
            if floor_of then
                left = left - sweep(bot, only_for, readers, left, died_since, was_read)
            end
            local dropped, unread = sweep(bot, only_for, readers, left, died_since, is_old)
            left, unread_here = left - dropped, unread_here + unread
        end
        drop('0', next(readers) and is_floored and floor or nil)
        for _, owner in ipairs(call('SMEMBERS', P .. 'owners:' .. bot)) do
            -- A replay whose reader is gone is seen by nobody: as if it had been read for ever.
            local reader = readers[owner]
            drop(owner, not reader and EVERY or reader.floor)
            if call('EXISTS', order_key(bot, owner)) == 0 then
                call('SREM', P .. 'owners:' .. bot, owner)
            end
        end
        if unread_here > 0 then
            unread_of[#unread_of + 1] = {bot, unread_here}
            for consumer in pairs(readers) do
                settle_arrivals(consumer, {}, {}, {}, at)
            end
        end
    end
    return {limit - left, unread_of, expired}
end

-- remove_bot(bot): its inbox goes with it. The arrivals themselves are set aside for `drop_gone`, since they may be many.
function ops.remove_bot(bot)
    local tally = call('HMGET', P .. 'tally:' .. bot, 'in_lane', 'apart')
    local waiting = tonumber(tally[1] or 0) + tonumber(tally[2] or 0)
    if waiting > 0 then
        refuse('letters_waiting', bot, waiting)
    end
    call('HDEL', P .. 'bots', bot)
    call('HDEL', P .. 'leases', bot)
    for _, consumer in ipairs(consumers_of(bot)) do
        drop_consumer(consumer, {bot = bot, name = consumer_of(consumer).name})
    end
    local owners = call('SMEMBERS', P .. 'owners:' .. bot)
    owners[#owners + 1] = '0'
    for _, owner in ipairs(owners) do
        if call('EXISTS', order_key(bot, owner)) == 1 then
            local aside = P .. 'gone:' .. int(call('INCR', P .. 'gone_ids'))
            call('RENAME', order_key(bot, owner), aside)
            call('SADD', P .. 'gone', aside)
        end
    end
    for _, outage in ipairs(call('ZRANGE', P .. 'outages:' .. bot, 0, -1)) do
        call('HDEL', P .. 'outages', outage)
    end
    local epoch = call('HGET', P .. 'inbox:' .. bot, 'epoch') or '0'
    call('UNLINK', P .. 'owners:' .. bot, P .. 'outages:' .. bot, P .. 'outages_open:' .. bot, P .. 'handled:' .. bot,
        P .. 'inbox:' .. bot, P .. 'updates:' .. bot .. ':' .. epoch)
    call('SREM', P .. 'inboxes', bot)
    for _, name in ipairs({'contacts:', 'contact_order:', 'contact_seen:', 'contact_first:', 'contact_tally:'}) do
        call('UNLINK', P .. name .. bot)
    end
    call('HDEL', P .. 'contact_places', bot)
    return true
end

-- drop_gone(limit) -> how many arrivals of removed bots went
function ops.drop_gone(limit)
    local gone = 0
    for _, aside in ipairs(call('SMEMBERS', P .. 'gone')) do
        local popped = limit > gone and call('ZPOPMIN', aside, limit - gone) or {}
        for index = 1, #popped, 2 do
            local raw = call('HGET', P .. 'arrivals', popped[index])
            if raw then
                drop_arrival(popped[index], raw)
            end
            gone = gone + 1
        end
        if call('EXISTS', aside) == 0 then
            call('SREM', P .. 'gone', aside)
        end
    end
    return gone
end
