-- Letters come in. Everything is checked before anything is written: all drafts of an operation, or none.
-- A draft: {bot, chat, thread, rank, ARGV index of its record, key, digest, send_at if later, expires_at, target, awaits,
-- has blobs, is too late, is judged}.
local KEPT_MS = 48 * 3600 * 1000 -- an idempotency key is kept for 48 hours (docs/guarantees.md)

-- It stands apart until the newer one ends. It keeps its number and its time, since it may come back.
local function supersede(old, new)
    local record, state = record_of(old), state_of(old)
    local number = number_of(old, record, state)
    leave_lane(old, record, state)
    table.insert(out[1], stub(old, record, state, new))
    state.p, state.n, state.g = APART, number, new
    add_id(P .. 'merged', new, old)
    if record[11].e then
        call('ZREM', P .. 'expiry', old)
    end
    keep_state(old, state)
    count(record[1], IN_LANE, APART)
end

local function merge(draft, id)
    for _, old in ipairs(ids_in(P .. 'targets:' .. draft[1], draft[10])) do
        if old ~= draft[11] and not is_marked(draft[1], old) then
            supersede(old, id)
        end
    end
end

-- What accepted letters have in common is written once per commit, by `flush`: before any other kind of operation, and at the
-- end. Most letters need nothing else, and one call of the server for a hundred of them costs little more than for one.
local pending

local function begin()
    if not pending then
        pending = {
            last_id = tonumber(call('GET', P .. 'ids') or 0), taken = 0, records = {}, places = {}, blocks = {}, bots = {},
        }
    end
    return pending
end

local function all_at_once(command, key, arguments)
    for start = 1, #arguments, AT_ONCE do
        call(command, key, spread(arguments, start, math.min(start + AT_ONCE - 1, #arguments)))
    end
end

-- Nothing is forgotten before all of it is written: the server refuses at the first write of a script, or not at all.
function flush()
    local all = pending
    if not all or all.taken == 0 then
        pending = nil
        return
    end
    call('INCRBY', P .. 'ids', all.taken)
    all_at_once('HSET', P .. 'letters', all.records)
    for key, members in pairs(all.places) do
        all_at_once('ZADD', key, members)
    end
    for block, here in pairs(all.blocks) do
        call('HINCRBY', P .. 'blocks', block, here)
    end
    for bot, one in pairs(all.bots) do
        if one.came > 0 then
            call('HINCRBY', P .. 'tally:' .. bot, 'numbers', one.came)
            call('HINCRBY', P .. 'tally:' .. bot, 'in_lane', one.came)
        end
        if one.apart > 0 then
            call('HINCRBY', P .. 'tally:' .. bot, 'apart', one.apart)
        end
    end
    pending = nil
end

-- Where a bot stands in this commit.
local function bot_of_draft(bot)
    local known = pending.bots[bot]
    if not known then
        if call('HEXISTS', P .. 'bots', bot) == 0 then
            refuse('unknown_bot', bot)
        end
        known = {
            next = tonumber(call('HGET', P .. 'tally:' .. bot, 'numbers') or 0) + 1, came = 0, apart = 0, lanes = {},
            has_aliases = call('EXISTS', P .. 'alias:' .. bot) == 1,
        }
        pending.bots[bot] = known
    end
    return known
end

-- For each draft false if it is new, {id} if its key made a letter before, {index} if a draft before it has the same key.
local function repeats(drafts)
    local known, own = {}, {}
    for index, draft in ipairs(drafts) do
        local bot, key = draft[1], draft[6]
        known[index] = false
        bot_of_draft(bot)
        if key then
            local field = bot .. ':' .. key
            local raw = call('HGET', P .. 'idempotency', field)
            local kept = raw and decode(raw)
            if kept then -- for as long as it is here: `clean` ends it, by settled time
                if kept[1] ~= draft[7] then
                    refuse('idempotency_key_reused')
                end
                known[index] = {id = kept[2]}
            elseif own[field] then
                if drafts[own[field]][7] ~= draft[7] then
                    refuse('idempotency_key_reused')
                end
                known[index] = {same_as = own[field]}
            elseif draft[13] then
                refuse('already_expired')
            else
                own[field] = index
            end
        end
    end
    return known
end

local function place(key, score, member)
    local members = pending.places[key]
    if not members then
        members = {}
        pending.places[key] = members
    end
    members[#members + 1] = score
    members[#members + 1] = member
end

local function take_place(draft, id, chat)
    local bot, known = draft[1], bot_of_draft(draft[1])
    local rank, lane, number = int(draft[4]), lane_of(chat, draft[3]), known.next
    known.next, known.came = number + 1, known.came + 1
    place(lane_key(bot, lane), draft[4] * RANK + number, id)
    if not known.lanes[rank .. lane] then -- once, however many letters a broadcast brings it
        known.lanes[rank .. lane] = true
        place(P .. 'lanes:' .. bot .. ':' .. rank, 0, lane)
    end
    return number
end

local function write(draft, id, at)
    local bot, chat = draft[1], draft[2]
    local known = bot_of_draft(bot)
    table.insert(pending.records, id)
    table.insert(pending.records, ARGV[draft[5]])
    local moved = known.has_aliases and alias_of(bot, chat)
    local state, number = moved and {c = moved} or {}, 0
    if draft[8] then
        state.p, state.d = APART, draft[8]
        stand_apart(id, state, draft[11])
        known.apart = known.apart + 1
    else
        number = take_place(draft, id, moved or chat)
    end
    if next(state) then
        keep_state(id, state)
    end
    if draft[9] then
        call('ZADD', P .. 'expiry', draft[9], id)
    end
    if draft[12] then
        call('HSET', P .. 'blobs', id, encode(draft[12]))
    end
    if draft[6] then
        local field = bot .. ':' .. draft[6]
        call('HSET', P .. 'idempotency', field, encode({draft[7], id, at + KEPT_MS}))
        call('ZADD', P .. 'idempotency_age', at + KEPT_MS, field)
    end
    if draft[10] and not draft[8] then
        flush() -- what is merged must be there in full
        begin()
        merge(draft, id)
        add_id(P .. 'targets:' .. bot, draft[10], id)
    end
    return {id, number, draft[8] and 'delayed' or 'waiting', 0, moved}
end

-- A letter takes another rank, in its record and in its lane. A record holds what the server would write in other words (an empty
-- map), so only its one byte is changed: it follows the bot, the chat and the thread.
local function lift(id, record, state, rank)
    local raw = call('HGET', P .. 'letters', id)
    local head = string.char(0x9b) .. encode(record[1]) .. encode(record[2]) .. encode(record[3])
    if string.sub(raw, 1, #head) ~= head or string.byte(raw, #head + 1) ~= record[4] then
        refuse('strange_record', id)
    end
    call('HSET', P .. 'letters', id, head .. string.char(rank) .. string.sub(raw, #head + 2))
    if (state.p or IN_LANE) == IN_LANE then
        local bot, lane = record[1], lane_of(state.c or record[2], record[3])
        call('ZADD', lane_key(bot, lane), rank * RANK + number_of(id, record, state), id)
        call('ZADD', P .. 'lanes:' .. bot .. ':' .. int(rank), 0, lane)
        forget_empty(bot, lane, record[4])
    end
end

-- What waits in a lane before that number and must not be passed takes this rank: normal letters, and unasked ones. Whatever a
-- letter is worth, it is lifted twice at most.
local function lift_before(bot, lane, rank, number)
    local last
    for _, lower in ipairs({NORMAL, UNASKED}) do
        if lower > rank then
            local till = number and '(' .. int(lower * RANK + number) or '(' .. int((lower + 1) * RANK)
            for _, id in ipairs(call('ZRANGEBYSCORE', lane_key(bot, lane), int(lower * RANK), till)) do
                lift(id, record_of(id), state_of(id), rank)
                last = id
            end
        end
    end
    return last
end

-- A letter that another names, and what it waits for itself, goes with it.
local function lift_named(id, rank)
    while id do
        local record, state = record_of(id), state_of(id)
        if not record or (state.p or IN_LANE) >= COMPLETED then
            return
        end
        if record[4] > rank then
            local number = (state.p or IN_LANE) == IN_LANE and number_of(id, record, state)
            lift(id, record, state, rank)
            if number then
                lift_before(record[1], lane_of(state.c or record[2], record[3]), rank, number)
                table.insert(out[2], stub(id, record, state))
            end
        end
        id = state.g or state.a or record[11].a
    end
end

-- What a new letter must not pass, and what it names. Whoever holds those lanes reads them again.
local function lift_for(draft)
    local rank = draft[4]
    if draft[14] and not draft[8] and rank < UNASKED then
        local bot, known = draft[1], bot_of_draft(draft[1])
        local chat = known.has_aliases and alias_of(bot, draft[2]) or draft[2]
        local lane = lane_of(chat, draft[3])
        if pending.places[lane_key(bot, lane)] then
            flush() -- some of them came in this very commit
            begin()
        end
        local last = lift_before(bot, lane, rank)
        if last then
            table.insert(out[2], {last, bot, chat, draft[3], false})
        end
    end
    if draft[11] then
        lift_named(draft[11], rank)
    end
end

local function new_id()
    pending.taken = pending.taken + 1
    local number = pending.last_id + pending.taken
    local block = int(math.floor(number / BLOCK))
    pending.blocks[block] = (pending.blocks[block] or 0) + 1
    return int(number)
end

local function standing_of(id, at)
    flush() -- it may have come a moment ago
    begin()
    return standing(id, at)
end

-- accept(drafts, at) -> for each {id, number, state, is repeat, chat it went to instead}
function ops.accept(drafts, at)
    begin()
    local known, answers = repeats(drafts), {}
    for index, draft in ipairs(drafts) do
        local before = known[index]
        if before and before.id then
            answers[index] = {before.id, 0, standing_of(before.id, at), 1, false}
        elseif before then
            local first = answers[before.same_as]
            answers[index] = {first[1], 0, first[3], 1, false}
        else
            lift_for(draft)
            answers[index] = write(draft, new_id(), at)
        end
    end
    return answers
end
