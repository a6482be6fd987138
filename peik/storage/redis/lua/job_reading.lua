-- What workers and people read of jobs. Nothing here writes.

-- job_rows(ids) -> of each that is here: see job_names.lua
function ops.job_rows(ids)
    local found = {}
    for index, id in ipairs(ids) do
        found[index] = job_row(id)
    end
    return found
end

-- job_over(limit) -> ids of those whose leases are over, the first first; and whether a lease ends later than any can
function ops.job_over(limit)
    local now, found = server_ms(), {}
    local last = now + tonumber(call('GET', P .. 'job_lease_ms') or 0)
    local is_odd = 0
    for _, kind in ipairs(call('SMEMBERS', P .. 'job_kinds')) do
        local leases = of_kind('job_leases', kind)
        local over = call('ZRANGEBYSCORE', leases, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, limit)
        for index = 1, #over, 2 do
            found[#found + 1] = {tonumber(over[index + 1]), tonumber(over[index]), over[index]}
        end
        if call('ZCOUNT', leases, '(' .. int(last), '+inf') > 0 then
            is_odd = 1
        end
    end
    table.sort(found, function(one, other)
        if one[1] ~= other[1] then
            return one[1] < other[1]
        end
        return one[2] < other[2]
    end)
    local ids = {}
    for index = 1, math.min(limit, #found) do
        ids[index] = found[index][3]
    end
    return {ids, is_odd}
end

-- job_next(kinds) -> when the next is due or its lease is over, or nothing
function ops.job_next(kinds)
    local next_at
    for _, kind in ipairs(kinds) do
        for _, name in ipairs({'job_due', 'job_leases'}) do
            local at = tonumber(call('ZRANGE', of_kind(name, kind), 0, 0, 'WITHSCORES')[2] or nil)
            if at and (not next_at or at < next_at) then
                next_at = at
            end
        end
    end
    return next_at or false
end

-- job_standing(id) -> {kind, rank, waiting of better ranks, before it in its line, how many lines go before its own, how many
-- there are, running, mean}
function ops.job_standing(id)
    local record = job_record(id)
    if not record or (job_state(id).p or WAITING) ~= WAITING then
        return false
    end
    local kind, user, rank = record[1], record[2], record[3]
    local better, waiting = 0, call('HGETALL', of_kind('job_waiting', kind))
    for index = 1, #waiting, 2 do
        better = better + (tonumber(waiting[index]) < rank and tonumber(waiting[index + 1]) or 0)
    end
    local own = call('ZRANK', line_key(kind, rank, user), id)
    local place = call('ZRANK', lines_key(kind, rank), user)
    local lines = call('ZCARD', lines_key(kind, rank))
    local running = tonumber(call('HGET', of_kind('job_tally', kind), 'active') or 0)
    return {kind, rank, better, own, place, lines, running, call('HGET', P .. 'job_means', kind)}
end

-- job_lengths(kind, rank, first, last) -> how long these lines are
function ops.job_lengths(kind, rank, first, last)
    local found = {}
    for index, user in ipairs(call('ZRANGE', lines_key(kind, rank), first, last)) do
        found[index] = call('ZCARD', line_key(kind, rank, user))
    end
    return found
end

-- job_tallies() -> {kind, its counts} of each
function ops.job_tallies()
    local found = {}
    for index, kind in ipairs(call('SMEMBERS', P .. 'job_kinds')) do
        found[index] = {kind, call('HGETALL', of_kind('job_tally', kind))}
    end
    return found
end

-- job_used(kind, user, day) -> jobs and bytes
function ops.job_used(kind, user, day)
    local field = whose(kind, user)
    return {
        tonumber(call('HGET', P .. 'job_day_jobs:' .. int(day), field) or 0),
        tonumber(call('HGET', P .. 'job_day_bytes:' .. int(day), field) or 0),
    }
end

-- job_ids_in(name) -> ids in this place of each kind
function ops.job_ids_in(name)
    local found = {}
    for _, kind in ipairs(call('SMEMBERS', P .. 'job_kinds')) do
        for _, id in ipairs(call('ZRANGE', of_kind(name, kind), 0, -1)) do
            found[#found + 1] = id
        end
    end
    return found
end
