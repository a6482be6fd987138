-- What time does to jobs: leases that cannot be, ended ones and days that are over.

-- job_right_leases(): those of a clock that was set back end when they would, had they been given now
function ops.job_right_leases()
    local last = server_ms() + tonumber(call('GET', P .. 'job_lease_ms') or 0)
    local changed = 0
    for _, kind in ipairs(call('SMEMBERS', P .. 'job_kinds')) do
        local leases = of_kind('job_leases', kind)
        for _, id in ipairs(call('ZRANGEBYSCORE', leases, '(' .. int(last), '+inf')) do
            call('ZADD', leases, int(last), id)
            changed = changed + 1
        end
    end
    return changed
end

local function drop(id)
    local record, state = job_record(id), job_state(id)
    leave_place(id, record, state)
    if record[8].k then
        call('HDEL', P .. 'job_keys', whose(record[1], record[8].k))
    end
    if record[2] ~= '' then
        call('SREM', P .. 'job_of:' .. record[2], id)
    end
    for _, name in ipairs({'jobs', 'job_state', 'job_progress', 'job_notices'}) do
        call('HDEL', P .. name, id)
    end
    count_block(id, -1)
end

-- job_clean(completed until, failed until, day, limit) -> how many left
function ops.job_clean(done_until, dead_until, day, limit)
    local gone = 0
    for _, part in ipairs({{'job_done', done_until}, {'job_dead', dead_until}}) do
        for _, id in ipairs(call('ZRANGEBYSCORE', P .. part[1], '-inf', int(part[2]), 'LIMIT', 0, limit - gone)) do
            drop(id)
            gone = gone + 1
        end
    end
    write_sums()
    -- Yesterday stays: a node whose clock is a little behind may still count there.
    for _, old in ipairs(call('ZRANGEBYSCORE', P .. 'job_days', '-inf', '(' .. int(day - 1))) do
        call('UNLINK', P .. 'job_day_jobs:' .. old, P .. 'job_day_bytes:' .. old)
        call('ZREM', P .. 'job_days', old)
    end
    return gone
end
