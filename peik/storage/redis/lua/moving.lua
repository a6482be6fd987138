-- How a letter enters and leaves its lane, stands apart, and ends: every index in step with it.
-- A record, written once: {bot, chat, thread, rank, weight, method, params, created_at, attempts, backoff_ms, extras}.
-- Its state, there only if it differs from "waits in its lane, untried": p phase, n number while apart, c chat it moved to,
-- d due, m attempts made, u uncertain tries, r reason, h history, g merged into, s settled at, a awaits, o result.
local COLUMN = {[0] = 'in_lane', 'apart', 'completed', 'failed', 'cancelled'}
local HISTORY_MAX, HISTORY_HEAD = 100, 50
local BLOCK = 1000 -- ids per counter of what is still here; people's lists skip what is gone by them
local RECENT_MS = 120000 -- the pace asks for a minute

local out -- what an operation did to lanes besides its answer: {merged, joined, blobs freed, ended with a newer edit}
local me -- the node that asks
local flush -- writes the letters that were accepted in this commit; see accept.lua

local function keep_state(id, state)
    if next(state) == nil then
        call('HDEL', P .. 'state', id)
    else
        call('HSET', P .. 'state', id, encode(state))
    end
end

local function add_id(key, field, id)
    local list = call('HGET', key, field)
    call('HSET', key, field, list and (list .. ',' .. id) or id)
end

local function drop_id(key, field, id)
    local rest = {}
    for _, one in ipairs(ids_in(key, field)) do
        if one ~= id then
            rest[#rest + 1] = one
        end
    end
    if #rest == 0 then
        call('HDEL', key, field)
    else
        call('HSET', key, field, table.concat(rest, ','))
    end
end

local function count(bot, before, after)
    if before then
        call('HINCRBY', P .. 'tally:' .. bot, COLUMN[before], -1)
    end
    if after then
        call('HINCRBY', P .. 'tally:' .. bot, COLUMN[after], 1)
    end
end

local function count_blocks(key, id, change)
    local block = int(math.floor(tonumber(id) / BLOCK))
    if call('HINCRBY', key, block, change) <= 0 then
        call('HDEL', key, block)
    end
end

local function alias_of(bot, chat)
    return call('HGET', P .. 'alias:' .. bot, chat)
end

local function remember(state, line)
    local history = state.h or {}
    if #history >= HISTORY_MAX then
        table.remove(history, HISTORY_HEAD + 1) -- the first lines tell how it began, the last how it stands
    end
    history[#history + 1] = line
    state.h = history
end

local function enter_lane(id, record, state, number)
    local bot, lane = record[1], lane_of(state.c or record[2], record[3])
    call('ZADD', lane_key(bot, lane), record[4] * RANK + number, id)
    call('ZADD', P .. 'lanes:' .. bot .. ':' .. int(record[4]), 0, lane)
    if record[11].g then
        add_id(P .. 'targets:' .. bot, record[11].g, id)
    end
end

local function forget_empty(bot, lane, rank)
    if call('ZCOUNT', lane_key(bot, lane), rank * RANK, '(' .. int((rank + 1) * RANK)) == 0 then
        call('ZREM', P .. 'lanes:' .. bot .. ':' .. int(rank), lane)
    end
end

local function leave_lane(id, record, state)
    local bot, lane = record[1], lane_of(state.c or record[2], record[3])
    call('ZREM', lane_key(bot, lane), id)
    forget_empty(bot, lane, record[4])
    if record[11].g then
        drop_id(P .. 'targets:' .. bot, record[11].g, id)
    end
    if state.d then
        call('ZREM', P .. 'backoff:' .. bot, id)
    end
end

local function number_of(id, record, state)
    local place = call('ZSCORE', lane_key(record[1], lane_of(state.c or record[2], record[3])), id)
    return place and tonumber(place) - record[4] * RANK
end

local function stand_apart(id, state, awaits)
    if awaits then
        add_id(P .. 'awaits', awaits, id)
    end
    if state.d then
        call('ZADD', P .. 'due', state.d, padded(id))
    end
end

local function leave_apart(id, record, state)
    if state.g then
        return drop_id(P .. 'merged', state.g, id)
    end
    local awaits = state.a or record[11].a
    if awaits then
        drop_id(P .. 'awaits', awaits, id)
    end
    if state.d then
        call('ZREM', P .. 'due', padded(id))
    end
end

-- Into its lane, which may have moved while it stood apart.
local function enter_again(id, record, state, number)
    state.c = alias_of(record[1], state.c or record[2]) or state.c
    state.p, state.n, state.d = nil, nil, nil
    enter_lane(id, record, state, number)
    keep_state(id, state)
    count(record[1], APART, IN_LANE)
end

local function stub(id, record, state, into)
    return {id, record[1], state.c or record[2], record[3], into or false}
end

-- The duty to tell an end is stored with that end, whichever way the letter came to it.
local function hook(id, record, phase, at)
    local whom = record[11].k
    if not whom then
        return
    end
    local endpoint = type(whom) == 'number' and ('key:' .. int(whom)) or string.sub(whom, 1, string.find(whom, '/', 9, true) - 1)
    local hook_id = int(call('INCR', P .. 'hook_ids'))
    call('HSET', P .. 'hooks', hook_id, encode({e = endpoint, k = whom, letter = id, p = phase, at = at, t = 0}))
    call('ZADD', P .. 'hooks:' .. endpoint, at, padded(hook_id))
    call('ZADD', P .. 'hooks_due', at, hook_id)
    call('ZADD', P .. 'endpoints', 0, endpoint)
end

local function free_blobs(id, record)
    if record[11].f then
        call('HDEL', P .. 'blobs', id)
        for _, enclosed in ipairs(record[11].f) do
            table.insert(out[3], enclosed.blob)
        end
    end
end

-- The end of a letter that has left its place. Dead letters keep their files: they may be sent again.
local function finish(id, record, state, phase, at)
    state.p, state.s = phase, at
    if record[11].e then
        call('ZREM', P .. 'expiry', id)
    end
    call('ZADD', P .. (phase == FAILED and 'dead' or 'done'), at, id)
    if phase ~= FAILED then
        free_blobs(id, record)
    end
    hook(id, record, phase, at)
    keep_state(id, state)
end

-- An edit whose newer one was never sent stands at its old place again, and waits as long as it did.
local function come_back(id, record, state)
    local due = state.d
    state.g = nil
    enter_again(id, record, state, state.n)
    if due then
        state.d = due
        keep_state(id, state)
        call('ZADD', P .. 'backoff:' .. record[1], due, id)
    end
    if record[11].e then
        call('ZADD', P .. 'expiry', record[11].e, id)
    end
    table.insert(out[2], stub(id, record, state))
end

-- An edit ends as the newer one did, whose answer is its own.
local function follow(id, record, state, newer)
    state.r, state.o, state.n, state.d = newer.r, newer.o, nil, nil
    finish(id, record, state, newer.p, newer.s)
    count(record[1], APART, newer.p)
    local chat, reason = state.c or record[2], state.r or false
    table.insert(out[4], {id, record[1], record[6], chat, newer.p, reason, state.u or 0, state.g, record[11].x or false})
end

-- The newest edit that still waits, for those that gave way to one that was taken back.
local function heir_of(state)
    local heir = state.g
    while heir do
        local other = state_of(heir)
        if (other.p or IN_LANE) < COMPLETED then
            return heir
        end
        heir = other.g
    end
end

-- Edits that gave way to one that has ended come back if it was taken back, or expired and certainly never arrived; else they end
-- as it did. Those that did.
local function end_merged(id)
    local newer, older = state_of(id), ids_in(P .. 'merged', id)
    local is_unsent = newer.p == CANCELLED or (newer.p == FAILED and newer.r == 'expired' and not newer.u)
    local heir, followed = heir_of(newer), {}
    if #older > 0 then
        call('HDEL', P .. 'merged', id)
    end
    for _, old in ipairs(older) do
        local record, state = record_of(old), state_of(old)
        if not is_unsent then
            follow(old, record, state, newer)
            followed[#followed + 1] = old
        elseif heir then
            state.g = heir
            add_id(P .. 'merged', heir, old)
            keep_state(old, state)
        else
            come_back(old, record, state)
        end
    end
    return followed
end

-- Letters that stood apart for one that has ended join at their old place. Scheduled ones go on waiting for their time.
local function release_dependents(id)
    local others, rest = ids_in(P .. 'awaits', id), {}
    for _, other in ipairs(others) do
        local record, state = record_of(other), state_of(other)
        if state.d then
            rest[#rest + 1] = other
        else
            enter_again(other, record, state, state.n)
            table.insert(out[2], stub(other, record, state))
        end
    end
    if #rest > 0 then
        call('HSET', P .. 'awaits', id, table.concat(rest, ','))
    elseif #others > 0 then
        call('HDEL', P .. 'awaits', id)
    end
end

-- A letter has ended: what hung on it goes its way, and what hung on that. One after the other, since a chain may be long.
local function release(id)
    local ended, next_one = {id}, 1
    while ended[next_one] do
        for _, old in ipairs(end_merged(ended[next_one])) do
            ended[#ended + 1] = old
        end
        release_dependents(ended[next_one])
        next_one = next_one + 1
    end
end

local function is_marked(bot, id)
    return call('HEXISTS', P .. 'marks:' .. bot, id) == 1
end

-- End letters that still wait and are not in flight: {id, phase, at, reason, line}. Those that did. One that was merged waits for
-- the newer.
local function end_untried(rows)
    local ended = {}
    for _, row in ipairs(rows) do
        local id = row[1]
        local record, state = record_of(id), state_of(id)
        local phase = state.p or IN_LANE
        if record and phase < COMPLETED and not state.g and not is_marked(record[1], id) then
            (phase == APART and leave_apart or leave_lane)(id, record, state)
            state.r = row[4]
            remember(state, row[5])
            finish(id, record, state, row[2], row[3])
            count(record[1], phase, row[2])
            ended[#ended + 1] = id
        end
    end
    for _, id in ipairs(ended) do
        release(id)
    end
    return ended
end

-- {id, number, record, state} of a letter in its lane, for the engines.
local function letter(id, number)
    return {id, number, call('HGET', P .. 'letters', id), call('HGET', P .. 'state', id)}
end

local function take_number(bot)
    return call('HINCRBY', P .. 'tally:' .. bot, 'numbers', 1)
end
