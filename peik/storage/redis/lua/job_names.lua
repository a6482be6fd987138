-- Jobs: what stands where, for the scripts that write and for those that read.
-- A record, written once: {kind, user, rank, params, attempts, backoff_ms, created_at, extras}; extras.k is its key.
-- Its state, there only if it differs from "waits, and never ran": p phase, v how often this was written, m attempts made,
-- d due, r run, n node, b begun at, c somebody wants it to end, o result, f reason, h history, u bytes used, z ended at.
local WAITING, DELAYED, ACTIVE = 0, 1, 2 -- and three ends, of which one is dead
local DEAD = 4
local WORD = {[0] = 'waiting', 'delayed', 'active', 'completed', 'failed', 'cancelled'}

local function of_kind(name, kind)
    return P .. name .. ':' .. kind
end

-- Kinds and users may hold the sign that parts them.
local function whose(kind, user)
    return #kind .. ':' .. kind .. ':' .. user
end

-- The lines of a kind and rank: user by ticket.
local function lines_key(kind, rank)
    return P .. 'job_lines:' .. int(rank) .. ':' .. kind
end

-- One line: id by the number that it drew when it joined.
local function line_key(kind, rank, user)
    return P .. 'job_line:' .. int(rank) .. ':' .. whose(kind, user)
end

local function job_record(id)
    local raw = call('HGET', P .. 'jobs', id)
    return raw and decode(raw)
end

local function job_state(id)
    local raw = call('HGET', P .. 'job_state', id)
    return raw and decode(raw) or {}
end

-- {id, record, state, progress, what was told, end of the lease} of one that is here.
local function job_row(id)
    local raw, state = call('HGET', P .. 'jobs', id), call('HGET', P .. 'job_state', id)
    local is_active = raw and state and decode(state).p == ACTIVE
    return raw and {
        id, raw, state, call('HGET', P .. 'job_progress', id), call('HGET', P .. 'job_notices', id),
        is_active and call('ZSCORE', of_kind('job_leases', decode(raw)[1]), id),
    }
end
