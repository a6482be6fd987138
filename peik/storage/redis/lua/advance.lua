-- The sender's steps: settle what was tried, mark what is tried next.
-- A mark is "epoch:instant". Only its own epoch settles it, and it takes only while the bot's lease of that epoch lives: a zombie
-- does neither. What ends without a try has no mark, so that it is stored only if nobody else has taken the lease.

local function epoch_of(mark)
    return string.match(mark, '^%d+')
end

local function note_try(id, record, state, at)
    local key = P .. 'recent:' .. record[1]
    -- An edit counts by itself, which the line says by a weight below zero.
    local weight = record[5]
    if string.sub(record[6], 1, 4) == 'edit' then
        weight = -weight
    end
    call('ZADD', key, at, int(at) .. ' ' .. id .. ' ' .. int(weight) .. ' ' .. (state.c or record[2]))
    call('ZREMRANGEBYSCORE', key, '-inf', '(' .. int(at - RECENT_MS))
end

-- {id, bot, phase, at, due, made, doubts, reason, result, line, may have arrived}. Whether the letter has ended.
local function settle(row, epoch)
    local id, bot, phase = row[1], row[2], row[3]
    local mark = call('HGET', P .. 'marks:' .. bot, id)
    if not mark or epoch_of(mark) ~= epoch then
        return false
    end
    call('HDEL', P .. 'marks:' .. bot, id)
    local record, state = record_of(id), state_of(id)
    if not record then
        return false
    end
    if phase ~= IN_LANE then
        leave_lane(id, record, state) -- before its due time is another
    elseif row[5] then
        call('ZADD', P .. 'backoff:' .. bot, row[5], id)
    elseif state.d then
        call('ZREM', P .. 'backoff:' .. bot, id)
    end
    state.d, state.r, state.o = row[5], row[8], row[9] or state.o
    state.m = row[6] ~= 0 and row[6] or nil
    state.u = row[7] > 0 and row[7] or nil
    if row[10] then
        remember(state, row[10])
    end
    if row[11] then
        note_try(id, record, state, row[4])
    end
    if phase == IN_LANE then
        keep_state(id, state)
        return false
    end
    finish(id, record, state, phase, row[4])
    count(bot, IN_LANE, phase)
    return true
end

-- {id, bot, chat, thread, place, made, doubts}: only if the letter waits at the place and as the sender last saw it.
local function mark(row, epoch, at)
    local id, bot = row[1], row[2]
    local raw = call('HGET', P .. 'state', id)
    local state = raw and decode(raw) or {}
    local score = call('ZSCORE', lane_key(bot, lane_of(state.c or row[3], row[4])), id)
    if not score or tonumber(score) ~= row[5] or (state.m or 0) ~= row[6] or (state.u or 0) ~= row[7] then
        return false
    end
    return call('HSETNX', P .. 'marks:' .. bot, id, epoch .. ':' .. int(at)) == 1
end

-- advance(bot, epoch, tried, untried, marks, at) -> ids whose marks took
function ops.advance(bot, epoch, tried, untried, marks, at)
    local ended = {}
    for _, row in ipairs(tried) do
        if settle(row, epoch) then
            ended[#ended + 1] = row[1]
        end
    end
    for _, id in ipairs(ended) do
        release(id)
    end
    local taken, is_ours = {}, #untried + #marks > 0 and is_mine(bot, epoch)
    if is_ours then
        end_untried(untried)
    end
    if is_ours and #marks > 0 and is_alive(me) then
        for _, row in ipairs(marks) do
            if mark(row, epoch, at) then
                taken[#taken + 1] = row[1]
            end
        end
    end
    return taken
end

-- adopt(bot, epoch) -> letters that a node which is gone had marked; from now on they are this one's to settle. Nothing, if the
-- lease is another's. That it is over makes no difference: it may go on with the next beat, and nobody asks again then.
function ops.adopt(bot, epoch)
    local found, key = {}, P .. 'marks:' .. bot
    if not is_mine(bot, epoch) then
        return found
    end
    local marks = call('HGETALL', key)
    for index = 1, #marks, 2 do
        local id = marks[index]
        local record, state = record_of(id), state_of(id)
        call('HSET', key, id, epoch .. string.match(marks[index + 1], ':%d+$'))
        found[#found + 1] = letter(id, number_of(id, record, state))
    end
    return found
end
