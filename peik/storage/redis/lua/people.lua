-- What people do to letters: take them back, send them again, say what they saw, clear them away.

local function known(id)
    local record = record_of(id)
    if not record then
        refuse('unknown_letter', id)
    end
    return record, state_of(id)
end

local function must_be_open(id, record, state)
    if is_marked(record[1], id) then
        refuse('in_flight', id)
    elseif (state.p or IN_LANE) >= COMPLETED then
        refuse('already_ended', id, STATE_OF[state.p])
    end
end

local function must_be_untried(id, record, state)
    must_be_open(id, record, state)
    if state.g then
        refuse('merged', id, state.g)
    elseif (state.m or 0) > 0 or (state.u or 0) > 0 then
        refuse('tried', id)
    end
end

-- revise(ARGV index of its record with other parameters, id, seen, line) -> as `change`. The count below zero: a mark of the letter
-- as it was must not take. The record was made from one that was read before: nobody may have changed its priority since.
function ops.revise(place, id, seen, line)
    local record, state = known(id)
    must_be_untried(id, record, state)
    if (state.m or 0) ~= seen or decode(ARGV[place])[4] ~= record[4] then
        refuse('changed', id)
    end
    state.m = seen - 1
    remember(state, line)
    call('HSET', P .. 'letters', id, ARGV[place])
    keep_state(id, state)
    return {(state.p or IN_LANE) == IN_LANE and 'stands' or 'nothing', stub(id, record, state), false}
end

-- cancel(id, at, is untried) -> its stub
function ops.cancel(id, at, is_untried)
    local record, state = known(id)
    local phase = state.p or IN_LANE
    if is_untried then
        must_be_untried(id, record, state)
    end
    must_be_open(id, record, state);
    (phase == APART and leave_apart or leave_lane)(id, record, state)
    finish(id, record, state, CANCELLED, at)
    count(record[1], phase, CANCELLED)
    release(id)
    return stub(id, record, state)
end

-- cancel_many(ids, at) -> {id, record, state} of those that still waited and were not in flight
function ops.cancel_many(ids, at)
    local ended, views = {}, {}
    for _, id in ipairs(ids) do
        local record, state = record_of(id), state_of(id)
        local phase = state.p or IN_LANE
        if record and phase < COMPLETED and not is_marked(record[1], id) then
            (phase == APART and leave_apart or leave_lane)(id, record, state)
            finish(id, record, state, CANCELLED, at)
            count(record[1], phase, CANCELLED)
            ended[#ended + 1] = id
        end
    end
    for index, id in ipairs(ended) do
        release(id)
        views[index] = {id, call('HGET', P .. 'letters', id), call('HGET', P .. 'state', id)}
    end
    return views
end

-- Set a letter apart until then. Whether it left its lane for that.
local function defer(id, record, state, due)
    if (state.p or IN_LANE) == APART then
        if state.d then
            call('ZREM', P .. 'due', padded(id))
        end
        state.d = due
        call('ZADD', P .. 'due', due, padded(id))
        return false
    end
    leave_lane(id, record, state)
    state.p, state.n, state.d = APART, nil, due
    stand_apart(id, state, state.a or record[11].a)
    count(record[1], IN_LANE, APART)
    return true
end

-- change(ARGV index of its record with another rank or false, id, due or false, at, line) -> what it did to its lane, its stub,
-- and the letter if it came to the end of it. Due now or before: at once.
function ops.change(place, id, due, at, line)
    local record, state = known(id)
    local phase = state.p or IN_LANE
    if is_marked(record[1], id) then
        refuse('in_flight', id)
    elseif phase >= COMPLETED then
        refuse('already_ended', id, STATE_OF[phase])
    elseif state.g then
        refuse('merged', id, state.g)
    elseif place and decode(ARGV[place])[7] ~= record[7] then
        refuse('changed', id) -- by an edit, after its record was read
    end
    local anew, did, came = place and decode(ARGV[place]) or record, 'nothing', false
    remember(state, line)
    if place then
        call('HSET', P .. 'letters', id, ARGV[place])
    end
    if due and due > at then
        did = defer(id, record, state, due) and 'left' or 'nothing'
    elseif due and phase == APART and state.d then
        local number = take_number(record[1])
        leave_apart(id, record, state)
        enter_again(id, anew, state, number)
        did, came = 'came', letter(id, number)
    elseif phase == IN_LANE then
        local number = number_of(id, record, state)
        leave_lane(id, record, state)
        state.d = not due and state.d or nil
        enter_lane(id, anew, state, number)
        if state.d then
            call('ZADD', P .. 'backoff:' .. record[1], state.d, id)
        end
        did = 'stands'
    end
    keep_state(id, state)
    return {did, stub(id, record, state), came}
end

-- A dead letter joins the end of its lane with its counters at zero. Its history stays.
local function revive(id, record, state, line)
    call('ZREM', P .. 'dead', id)
    local number = take_number(record[1])
    state.c = alias_of(record[1], state.c or record[2]) or state.c
    state.p, state.d, state.s, state.r, state.m, state.u, state.g = nil, nil, nil, nil, nil, nil, nil
    remember(state, line)
    enter_lane(id, record, state, number)
    keep_state(id, state)
    if record[11].e then
        call('ZADD', P .. 'expiry', record[11].e, id)
    end
    count(record[1], FAILED, IN_LANE)
    return letter(id, number)
end

-- retry(id, at, line) -> the letter
function ops.retry(id, at, line)
    local record, state = known(id)
    if state.p ~= FAILED then
        refuse('not_dead', id, standing(id, at))
    end
    return {revive(id, record, state, line)}
end

-- resolve(id, at, arrived, line) -> its bot, and the letter if it is sent again
function ops.resolve(id, at, arrived, line)
    local record, state = known(id)
    if state.p ~= FAILED or state.r ~= 'uncertain' then
        refuse('not_uncertain', id)
    elseif not arrived then
        return {record[1], {revive(id, record, state, line)}}
    end
    call('ZREM', P .. 'dead', id)
    state.r = nil
    remember(state, line)
    finish(id, record, state, COMPLETED, at)
    count(record[1], FAILED, COMPLETED)
    return {record[1], {}}
end

-- retry_dead(ids, line) -> the letters; one that is not dead any more is left alone
function ops.retry_dead(ids, line)
    local letters = {}
    for _, id in ipairs(ids) do
        local record, state = record_of(id), state_of(id)
        if record and state.p == FAILED then
            letters[#letters + 1] = revive(id, record, state, line)
        end
    end
    return letters
end

-- clear_dead(ids) -> how many left for the log
function ops.clear_dead(ids)
    local cleared = 0
    for _, id in ipairs(ids) do
        if state_of(id).p == FAILED and record_of(id) then
            for _, blob in ipairs(log_and_drop(id, P .. 'dead')) do
                table.insert(out[3], blob)
            end
            cleared = cleared + 1
        end
    end
    return cleared
end
