-- What outlives letters: bots, chats, holds, file ids, keys, secrets, and webhooks that wait to be told.

-- save_bot(bot, {token, username, inbound, paused, limits, missed, me, created_at})
function ops.save_bot(bot, row)
    local raw = call('HGET', P .. 'bots', bot)
    if raw then
        local before = decode(raw)
        row[2], row[8] = row[2] or before[2], before[8]
    end
    call('HSET', P .. 'bots', bot, encode(row))
    return true
end

-- shut_chat(bot, chat, reason, at) and hold_chat(bot, chat, until)
local function change_chat(bot, chat, change)
    local raw = call('HGET', P .. 'chats:' .. bot, chat)
    local known = raw and decode(raw) or {}
    change(known)
    if next(known) then
        call('HSET', P .. 'chats:' .. bot, chat, encode(known))
        call('ZADD', P .. 'chat_index:' .. bot, 0, chat)
    else
        call('HDEL', P .. 'chats:' .. bot, chat)
        if not alias_of(bot, chat) then
            call('ZREM', P .. 'chat_index:' .. bot, chat)
        end
    end
    return true
end

function ops.shut_chat(bot, chat, reason, at)
    return change_chat(bot, chat, function(known) known.r, known.t = reason, reason and at end)
end

function ops.hold_chat(bot, chat, held_until)
    return change_chat(bot, chat, function(known) known.h = held_until > 0 and held_until or nil end)
end

function ops.hold_bot(bot, held_until)
    return call('HSET', P .. 'holds', bot, held_until)
end

-- keep_file_id(bot, field, file id or nothing)
function ops.keep_file_id(bot, field, file_id)
    if file_id then
        return call('HSET', P .. 'files:' .. bot, field, file_id)
    end
    return call('HDEL', P .. 'files:' .. bot, field)
end

-- ---- keys: a revoked one stays, since letters that it brought may still have to be told to its webhook ----

-- add_key(ARGV index of its record, how many there may be) -> its id
function ops.add_key(record, most)
    if call('SCARD', P .. 'keys_live') >= most then
        refuse('too_many_keys', most)
    end
    local id = call('INCR', P .. 'key_ids')
    call('HSET', P .. 'keys', id, ARGV[record])
    call('SADD', P .. 'keys_live', id)
    call('INCR', P .. 'keys_generation')
    return id
end

function ops.revoke_key(id)
    if call('SREM', P .. 'keys_live', id) == 0 then
        return 0
    end
    call('INCR', P .. 'keys_generation')
    return 1
end

-- note_key_use({id, at} …): it only rises
function ops.note_key_use(used)
    for _, row in ipairs(used) do
        local before = tonumber(call('HGET', P .. 'keys_used', row[1]) or 0)
        if row[2] > before and call('HEXISTS', P .. 'keys', row[1]) == 1 then
            call('HSET', P .. 'keys_used', row[1], row[2])
        end
    end
    return true
end

-- secret(name, candidate): two nodes may make one up at the same time; the first one counts
function ops.secret(name, candidate)
    call('HSETNX', P .. 'secrets', name, candidate)
    return call('HGET', P .. 'secrets', name)
end

-- ---- webhooks ----

-- settle_hooks(ids that are over, {id, due, tries, body} …)
function ops.settle_hooks(over, deferred)
    for _, id in ipairs(over) do
        local raw = call('HGET', P .. 'hooks', id)
        if raw then
            local key = P .. 'hooks:' .. decode(raw).e
            call('HDEL', P .. 'hooks', id)
            call('HDEL', P .. 'hook_bodies', id)
            call('ZREM', P .. 'hooks_due', id)
            call('ZREM', key, padded(id))
            if call('EXISTS', key) == 0 then
                call('ZREM', P .. 'endpoints', decode(raw).e)
            end
        end
    end
    for _, row in ipairs(deferred) do
        local raw = call('HGET', P .. 'hooks', row[1])
        if raw then
            local waiting = decode(raw)
            waiting.t = row[3]
            call('HSET', P .. 'hooks', row[1], encode(waiting))
            call('HSET', P .. 'hook_bodies', row[1], row[4])
            call('ZADD', P .. 'hooks_due', row[2], row[1])
            call('ZADD', P .. 'hooks:' .. waiting.e, row[2], padded(row[1]))
        end
    end
    return true
end

-- ---- what is sealed anew ----

-- replace_fields({hash, field, ARGV index of what it must be, ARGV index of what it becomes} …) -> how many were so
-- An index that is false: it must not be there, or goes. Somebody may have written the record since it was read.
function ops.replace_fields(rows)
    local made = 0
    for _, row in ipairs(rows) do
        local key, before = P .. row[1], row[3] and ARGV[row[3]]
        if call('HGET', key, row[2]) == before then
            made = made + 1
            if row[4] then
                call('HSET', key, row[2], ARGV[row[4]])
            else
                call('HDEL', key, row[2])
            end
        end
    end
    return made
end
