-- How a job goes from one place to another: every index and count in step with it.
local BLOCK = 1000 -- ids per counter of what is still here; people's lists skip what is gone by them

local out, flush -- of letters; a commit of jobs has none, and its end asks for them
local me -- the node that asks

local sums = {} -- by key and field: what an operation adds to counts

local function add(key, field, change)
    sums[key] = sums[key] or {}
    sums[key][field] = (sums[key][field] or 0) + change
end

-- At the end of an operation that counts: a thousand jobs are a few writes here. A count that is nothing goes.
local function write_sums()
    for key, fields in pairs(sums) do
        for field, change in pairs(fields) do
            if change ~= 0 and call('HINCRBY', key, field, int(change)) == 0 then
                call('HDEL', key, field)
            end
        end
    end
    sums = {}
end

-- These are asked for between two jobs, so that they are written at once.
local function count_running(kind, user, change)
    if call('HINCRBY', of_kind('job_running', kind), user, change) == 0 then
        call('HDEL', of_kind('job_running', kind), user)
    end
end

local function keep_job_state(id, state)
    state.v = (state.v or 0) + 1
    call('HSET', P .. 'job_state', id, encode(state))
end

-- To the end of its line, which gets a ticket if it had no job.
local function join_line(id, record)
    local kind, user, rank = record[1], record[2], record[3]
    local number = call('INCR', P .. 'job_numbers')
    call('ZADD', line_key(kind, rank, user), number, id)
    call('ZADD', lines_key(kind, rank), 'NX', number, user)
    add(of_kind('job_waiting', kind), int(rank), 1)
end

-- A line that got empty loses its ticket.
local function leave_line(id, record)
    local kind, user, rank = record[1], record[2], record[3]
    call('ZREM', line_key(kind, rank, user), id)
    if call('EXISTS', line_key(kind, rank, user)) == 0 then
        call('ZREM', lines_key(kind, rank), user)
    end
    add(of_kind('job_waiting', kind), int(rank), -1)
end

-- Out of the place where it stands.
local function leave_place(id, record, state)
    local kind, phase = record[1], state.p or WAITING
    if phase == WAITING then
        leave_line(id, record)
    elseif phase == DELAYED then
        call('ZREM', of_kind('job_due', kind), padded(id))
    elseif phase == ACTIVE then
        call('ZREM', of_kind('job_leases', kind), id)
        count_running(kind, record[2], -1)
    else
        call('ZREM', P .. (phase == DEAD and 'job_dead' or 'job_done'), id)
    end
    add(of_kind('job_tally', kind), WORD[phase], -1)
end

-- Into its next one, which is not a run: those begin in job_runs.lua.
local function enter_place(id, record, state)
    local kind, phase = record[1], state.p or WAITING
    if phase == WAITING then
        join_line(id, record)
    elseif phase == DELAYED then
        call('ZADD', of_kind('job_due', kind), state.d, padded(id))
    else
        call('ZADD', P .. (phase == DEAD and 'job_dead' or 'job_done'), state.z, id)
    end
    add(of_kind('job_tally', kind), WORD[phase], 1)
end

local function count_block(id, change)
    add(P .. 'job_blocks', int(math.floor(tonumber(id) / BLOCK)), change)
end

-- What a user has of a day: one hash for jobs and one for bytes, by day, since yesterday's go as a whole.
local function count_day(name, day, kind, user, change)
    add(P .. name .. ':' .. int(day), whose(kind, user), change)
end
