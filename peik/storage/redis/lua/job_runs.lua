-- Runs begin, live by their beats and end; and what people do to a job between.
local JOINED_AT_ONCE = 200 -- due jobs that one call moves

-- Due ones join their lines in the order of their times. Whether all have.
local function join_due(kind, at)
    local due = of_kind('job_due', kind)
    for _, member in ipairs(call('ZRANGEBYSCORE', due, '-inf', at, 'LIMIT', 0, JOINED_AT_ONCE)) do
        local id = unpadded(member)
        local record, state = job_record(id), job_state(id)
        leave_place(id, record, state)
        state.p, state.d = nil, nil
        keep_job_state(id, state)
        enter_place(id, record, state)
    end
    write_sums()
    return call('ZCOUNT', due, '-inf', at) == 0
end

-- A lease that ends later than any can was given before the clock was set back: the dead would keep their jobs for so long.
local function note_lease(lease_ms)
    if lease_ms > tonumber(call('GET', P .. 'job_lease_ms') or 0) then
        call('SET', P .. 'job_lease_ms', int(lease_ms))
    end
end

-- The first job of a line begins. The line draws a new ticket, behind all others.
local function begin(kind, rank, user, ends, at)
    local id = call('ZRANGE', line_key(kind, rank, user), 0, 0)[1]
    local state = job_state(id)
    leave_place(id, {kind, user, rank}, state)
    call('ZADD', lines_key(kind, rank), 'XX', call('INCR', P .. 'job_numbers'), user)
    state.p, state.r, state.n, state.b = ACTIVE, (state.r or 0) + 1, me, at
    keep_job_state(id, state)
    call('HDEL', P .. 'job_progress', id)
    call('ZADD', of_kind('job_leases', kind), int(ends), id)
    count_running(kind, user, 1)
    add(of_kind('job_tally', kind), 'active', 1)
    return {id, call('HGET', P .. 'jobs', id), encode(state), false, call('HGET', P .. 'job_notices', id), int(ends)}
end

local function ranks_of(kind)
    local ranks = {}
    for _, rank in ipairs(call('HKEYS', of_kind('job_waiting', kind))) do
        ranks[#ranks + 1] = tonumber(rank)
    end
    table.sort(ranks)
    return ranks
end

-- job_take(kind, concurrency, per user, limit, lease in ms, at) -> {1, rows of those that begin}; {0, {}}: more are due than one
-- call moves, ask again. Lines go in the order of their tickets. Those whose users are full are passed over where they
-- stand; each of these users has a job that runs, so that they are fewer than may run at once, and nothing is walked.
function ops.job_take(kind, concurrency, per_user, limit, lease_ms, at)
    if not join_due(kind, at) then
        return {0, {}}
    end
    local active = tonumber(call('HGET', of_kind('job_tally', kind), 'active') or 0)
    local room, rows, ends = math.min(limit, concurrency - active), {}, server_ms() + lease_ms
    if room <= 0 or per_user <= 0 then
        return {1, {}}
    end
    note_lease(lease_ms)
    for _, rank in ipairs(ranks_of(kind)) do
        local passed = 0
        while #rows < room do
            local user = call('ZRANGE', lines_key(kind, rank), passed, passed)[1]
            if not user then
                break
            elseif tonumber(call('HGET', of_kind('job_running', kind), user) or 0) >= per_user then
                passed = passed + 1
            else
                rows[#rows + 1] = begin(kind, rank, user, ends, at)
            end
        end
    end
    write_sums()
    return {1, rows}
end

local function note_progress(id, progress, words)
    if progress or words then
        local raw = call('HGET', P .. 'job_progress', id)
        local known = raw and decode(raw) or {}
        known.g, known.t = progress or known.g, words or known.t
        call('HSET', P .. 'job_progress', id, encode(known))
    end
end

-- job_beat({id, run, progress, its words, what was told} …, lease in ms) -> 0: not its run any more, 1: it is, 2: it shall end
function ops.job_beat(rows, lease_ms)
    local answers, ends = {}, int(server_ms() + lease_ms)
    note_lease(lease_ms)
    for index, row in ipairs(rows) do
        local id, state = row[1], job_state(row[1])
        if state.p ~= ACTIVE or state.r ~= row[2] then
            answers[index] = 0
        else
            call('ZADD', of_kind('job_leases', job_record(id)[1]), ends, id)
            note_progress(id, row[3], row[4])
            if row[5] then
                call('HSET', P .. 'job_notices', id, row[5])
            end
            answers[index] = state.c and 2 or 1
        end
    end
    return answers
end

-- job_note(id, what was told) -> whether there is such a job
function ops.job_note(id, told)
    if call('HEXISTS', P .. 'jobs', id) == 0 then
        return 0
    end
    call('HSET', P .. 'job_notices', id, told)
    return 1
end

-- As peik/jobs/store.py has it: an eighth of the difference, halves to the even side.
local function note_run(kind, last)
    local mean = tonumber(call('HGET', P .. 'job_means', kind) or nil)
    local exact = mean and mean + (last - mean) / 8 or last
    local new = math.floor(exact + 0.5)
    if new - exact == 0.5 and new % 2 == 1 then
        new = new - 1
    end
    call('HSET', P .. 'job_means', kind, int(new))
end

local function is_over(id, record)
    local ends = call('ZSCORE', of_kind('job_leases', record[1]), id)
    return ends and tonumber(ends) <= server_ms()
end

-- job_change({id, v, its new state, ms of the run if that was done, bytes used, whether its progress is forgotten} …, day,
-- whether its lease must be over) -> for each whether it was changed. What it was judged by is what stands here only while v
-- is the same: otherwise nothing is done, and who asked has to look again.
function ops.job_change(rows, day, must_be_over)
    local answers = {}
    for index, row in ipairs(rows) do
        local id, after = row[1], row[3]
        local record, state = job_record(id), job_state(id)
        if not record or (state.v or 0) ~= row[2] or (must_be_over and not is_over(id, record)) then
            answers[index] = 0
        else
            answers[index] = 1
            if after.p ~= ACTIVE then
                leave_place(id, record, state)
                enter_place(id, record, after)
            end
            after.v = state.v
            keep_job_state(id, after)
            if row[4] then
                note_run(record[1], row[4])
            end
            if row[5] > 0 then
                count_day('job_day_bytes', day, record[1], record[2], row[5])
                call('ZADD', P .. 'job_days', day, int(day))
            end
            if row[6] then
                call('HDEL', P .. 'job_progress', id)
            end
        end
    end
    write_sums()
    return answers
end
