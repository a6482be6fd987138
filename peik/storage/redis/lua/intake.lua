-- Updates come in: each once, in order, under the bot's own numbers; and what MTProto clients have handled already.
local DUPLICATES_MS = 48 * 3600 * 1000 -- for so long the same payload under another epoch's id is the same update

-- Keep an arrival under a number; its id.
local function file(bot, lane, line, update)
    local id = int(call('INCR', P .. 'arrival_ids'))
    local words = {int(line.number), int(line.epoch), int(line.received), line.replay_of, line.only_for, line.update, int(line.size)}
    call('HSET', P .. 'arrivals', id, table.concat(words, ' ') .. '\n' .. update)
    call('ZADD', order_key(bot, line.only_for), line.number, id)
    call('ZADD', arrival_lane(bot, lane), id, id)
    count_blocks(P .. 'arrival_blocks', id, 1)
    return id
end

local function begin_epoch(box, at)
    call('UNLINK', P .. 'updates:' .. box.bot .. ':' .. int(box.epoch))
    call('HDEL', box.key, 'last_update_id', 'newest')
    box.epoch, box.epoch_at, box.newest, box.digests = box.epoch + 1, at, nil, {}
end

-- What a lane got under an earlier epoch's ids in the last two days: walked from the newest back, and only for so long.
local function digests_of(box, lane, since)
    local found, key, start = {}, arrival_lane(box.bot, lane), 0
    while true do
        local ids = call('ZREVRANGE', key, start, start + 99)
        for _, raw in ipairs(many(P .. 'arrivals', ids)) do
            local one = arrival(raw)
            if one.received < since - CLOCK_SLACK_MS then
                return found
            elseif one.epoch < box.epoch and one.received >= since and one.replay_of == '0' then
                found[update_of(raw, one)[7]] = true
            end
        end
        if #ids < 100 then
            return found
        end
        start = start + 100
    end
end

local function is_known_payload(box, update, at)
    local since = at - DUPLICATES_MS
    if box.epoch == 1 or box.epoch_at < since then
        return false
    end
    local lane = update[3]
    if not box.digests[lane] then
        box.digests[lane] = digests_of(box, lane, since)
    end
    return box.digests[lane][update[7]]
end

-- What stays the same however an update is written: where a page is mended, its digests are not what they were.
local function is_same(update, id)
    local raw = call('HGET', P .. 'arrivals', id)
    if not raw then
        return true
    end
    local kept = update_of(raw, arrival(raw))
    local is_forgotten = kept[3] == 'tforgotten' -- its person was: neither its lane nor its sender is known any more
    for index = 2, 6 do
        if kept[index] ~= update[index] and not (is_forgotten and (index == 3 or index == 4)) then
            return false
        end
    end
    return true
end

-- Numbers begin with Telegram's own id; what lies below it will never come.
local function seed(box, update_id)
    box.next = math.max(update_id, 1)
    for _, consumer in ipairs(consumers_of(box.bot)) do
        local progress = progress_of(consumer)
        if progress[1] < box.next - 1 then
            progress[1] = box.next - 1
            call('HSET', P .. 'progress', consumer, encode(progress))
        end
    end
end

-- Whether it is new; then it is here now.
local function take(box, update, at)
    if is_known_payload(box, update, at) then
        return false
    end
    local update_id = int(update[1])
    local known = call('HGET', P .. 'updates:' .. box.bot .. ':' .. int(box.epoch), update_id)
    if known then
        if is_same(update, known) then
            return false
        end
        -- Another update under an id that is here: Telegram's server has lost the end of its queue, and gives ids once
        -- more. Who is pushed to does not notice; taken for a duplicate, it would be lost.
        begin_epoch(box, at)
    end
    if not box.next then
        seed(box, update[1])
    end
    local line = {
        number = box.next, epoch = box.epoch, received = at, replay_of = '0', only_for = '0', update = update_id,
        size = update[9],
    }
    local id = file(box.bot, update[3], line, ARGV[update[8]])
    call('HSET', P .. 'updates:' .. box.bot .. ':' .. int(box.epoch), update_id, id)
    box.newest = math.max(box.newest or update[1], update[1])
    box.next = box.next + 1
    return true
end

-- 1 a message, 2 an edit: an edit that came after the note is news. Prefer twice to never.
local function is_handled(box, update)
    if update[10] == 0 then
        return false
    end
    local noted = call('HGET', P .. 'handled:' .. box.bot, update[3] .. '|' .. int(update[5]))
    return noted and (update[10] == 1 or not update[6] or update[6] <= tonumber(noted))
end

-- take_in(bot, updates, at, last update id, is new epoch, expired) -> {stored, duplicates, last number, epoch}
-- An update: {id, type, lane, user, message, sent at, digest, ARGV index of its record, size, 1 message or 2 edit}.
function ops.take_in(bot, updates, at, last_update_id, is_new_epoch, expired)
    local key = P .. 'inbox:' .. bot
    local row = call('HMGET', key, 'epoch', 'epoch_at', 'next_number', 'newest')
    if not row[1] then
        refuse('no_inbox', bot)
    end
    local box = {
        bot = bot, key = key, epoch = tonumber(row[1]), epoch_at = tonumber(row[2]), digests = {},
        next = row[3] and tonumber(row[3]), newest = row[4] and tonumber(row[4]),
    }
    if is_new_epoch then
        begin_epoch(box, at)
    end
    local has_notes = call('EXISTS', P .. 'handled:' .. bot) == 1
    local stored, handled = 0, {}
    for _, update in ipairs(updates) do
        if take(box, update, at) then
            stored = stored + 1
            if has_notes and is_handled(box, update) then
                handled[#handled + 1] = {box.next - 1, box.next - 1}
            end
        end
    end
    call('HSET', key, 'epoch', box.epoch, 'epoch_at', box.epoch_at, 'seen_at', at)
    if box.next then
        call('HSET', key, 'next_number', box.next)
    end
    if box.newest then
        call('HSET', key, 'newest', box.newest)
    end
    if #updates > 0 then
        call('HSET', key, 'received_at', at)
    end
    if last_update_id then
        call('HSET', key, 'last_update_id', last_update_id)
    end
    call('HINCRBY', key, 'expired', expired)
    local default = #handled > 0 and call('HGET', P .. 'consumers:' .. bot, 'default')
    if default then
        settle_arrivals(default, handled, {}, {}, at)
    end
    return {stored, #updates - stored, (box.next or 1) - 1, box.epoch}
end

local MESSAGES = {
    message = 1, edited_message = 2, channel_post = 1, edited_channel_post = 2, business_message = 1,
    edited_business_message = 2, guest_message = 1,
}

-- Open arrivals of these messages of one lane, from the newest back to the watermark.
local function open_ones(bot, lane, messages, progress, at)
    local found, key, start = {}, arrival_lane(bot, lane), 0
    while true do
        local ids = call('ZREVRANGE', key, start, start + 99)
        for _, raw in ipairs(many(P .. 'arrivals', ids)) do
            local one = arrival(raw)
            if one.number <= progress[1] then
                return found
            end
            local update = update_of(raw, one)
            local kind = MESSAGES[update[2]]
            local is_meant = kind and update[5] and messages[int(update[5])] and one.only_for == '0'
            if is_meant and (kind == 1 or not update[6] or update[6] <= at) and not is_over(progress, one.number) then
                found[#found + 1] = {one.number, one.number}
            end
        end
        if #ids < 100 then
            return found
        end
        start = start + 100
    end
end

-- note_handled(bot, {lane, message} …, at) -> how many of these were here and open
function ops.note_handled(bot, messages, at)
    local by_lane, over = {}, {}
    for _, row in ipairs(messages) do
        local field = row[1] .. '|' .. int(row[2])
        local noted = math.max(at, tonumber(call('HGET', P .. 'handled:' .. bot, field) or 0))
        call('HSET', P .. 'handled:' .. bot, field, noted)
        call('ZADD', P .. 'handled_age', noted, bot .. ' ' .. field)
        by_lane[row[1]] = by_lane[row[1]] or {}
        by_lane[row[1]][int(row[2])] = true
    end
    local default = call('HGET', P .. 'consumers:' .. bot, 'default')
    if not default then
        return 0
    end
    local progress = progress_of(default)
    for lane, wanted in pairs(by_lane) do
        for _, span in ipairs(open_ones(bot, lane, wanted, progress, at)) do
            over[#over + 1] = span
        end
    end
    local count_of = #over
    if count_of > 0 then
        settle_arrivals(default, over, {}, {}, at)
    end
    return count_of
end
