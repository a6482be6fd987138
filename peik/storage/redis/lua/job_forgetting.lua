-- Jobs of a person that is forgotten, and what he had of each day.

-- job_forget(ids) -> how many went: of those that have ended
function ops.job_forget(ids)
    local gone = 0
    for _, id in ipairs(ids) do
        if job_record(id) and (job_state(id).p or WAITING) > ACTIVE then
            drop(id)
            gone = gone + 1
        end
    end
    write_sums()
    return gone
end

-- job_forget_days({day, field} …) -> how many went
function ops.job_forget_days(rows)
    local gone = 0
    for _, row in ipairs(rows) do
        gone = gone + math.max(call('HDEL', P .. 'job_day_jobs:' .. row[1], row[2]), call('HDEL', P .. 'job_day_bytes:' .. row[1], row[2]))
    end
    return gone
end
