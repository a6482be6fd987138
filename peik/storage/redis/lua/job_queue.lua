-- Jobs come in: all of a question, or none.
local QUEUED, KEY_REUSED, OVER_QUOTA = 0, 1, 2

-- What each draft of a question is: the place of an earlier one in it, a job that is here, or new. Or which one cannot be.
local function told_apart(rows)
    local found, here = {}, {}
    for index, row in ipairs(rows) do
        local key = row[6] and whose(row[2], row[6])
        if key and here[key] then
            if rows[here[key]][7] ~= row[7] then
                return nil, {KEY_REUSED, index - 1, rows[here[key]][7]}
            end
            found[index] = here[key]
        elseif key then
            local id, digest = string.match(call('HGET', P .. 'job_keys', key) or '', '^(%d+) (.*)$')
            if id and digest ~= row[7] then
                return nil, {KEY_REUSED, index - 1, digest}
            end
            found[index] = id or false
            here[key] = not id and index or nil
        else
            found[index] = false
        end
    end
    return found
end

-- Whom the day does not allow this: as peik/jobs/store.py judges, which says it in words.
local function over_quota(rows, apart, quotas, day)
    local new, first = {}, {}
    for index, row in ipairs(rows) do
        if not apart[index] and quotas[row[2]] then
            local field = whose(row[2], row[3])
            new[field] = (new[field] or 0) + 1
            first[#first + 1] = new[field] == 1 and index or nil
        end
    end
    for _, index in ipairs(first) do
        local row = rows[index]
        local field, quota = whose(row[2], row[3]), quotas[row[2]]
        local jobs = tonumber(call('HGET', P .. 'job_day_jobs:' .. int(day), field) or 0)
        local bytes = tonumber(call('HGET', P .. 'job_day_bytes:' .. int(day), field) or 0)
        if (quota[1] and jobs + new[field] > quota[1]) or (quota[2] and bytes >= quota[2]) then
            return {OVER_QUOTA, index - 1, jobs, bytes, new[field]}
        end
    end
    return nil
end

local function put(row, id, day)
    local kind, user = row[2], row[3]
    local state = row[5] and {p = DELAYED, d = row[5]} or {}
    call('HSET', P .. 'jobs', id, ARGV[row[1]])
    if row[5] then
        keep_job_state(id, state)
    end
    enter_place(id, {kind, user, row[4]}, state)
    if user ~= '' then -- nobody's are found among all
        call('SADD', P .. 'job_of:' .. user, id)
    end
    if row[6] then
        call('HSET', P .. 'job_keys', whose(kind, row[6]), id .. ' ' .. row[7])
    end
    count_block(id, 1)
    count_day('job_day_jobs', day, kind, user, 1)
    return {id, state.p or WAITING, 0}
end

-- job_queue({ARGV index of its record, kind, user, rank, due, key, digest} …, {kind = {jobs, bytes} …}, day)
-- -> {QUEUED, {id, phase, is it a repeat} …}, or why none was
function ops.job_queue(rows, quotas, day)
    local apart, refusal = told_apart(rows)
    refusal = refusal or over_quota(rows, apart, quotas, day)
    if refusal then
        return refusal
    end
    local answers, kinds = {}, {}
    for index, row in ipairs(rows) do
        local known = apart[index]
        if not known then
            answers[index] = put(row, int(call('INCR', P .. 'job_ids')), day)
            kinds[row[2]] = true
        else
            local id = type(known) == 'number' and answers[known][1] or known
            answers[index] = {id, job_state(id).p or WAITING, 1}
        end
    end
    for kind in pairs(kinds) do
        call('SADD', P .. 'job_kinds', kind)
        call('ZADD', P .. 'job_days', day, int(day))
    end
    write_sums()
    return {QUEUED, answers}
end
