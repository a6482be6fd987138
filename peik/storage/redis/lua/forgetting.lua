-- A person is forgotten. Which records are meant is decided in Python; here they go, with every index in step.
-- It has no locals of its own outside functions: the script that it joins is near Lua's bound of 200.

-- forget_letters(ids, fields of idempotency that may be theirs, hooks that may be theirs) -> how many went
function ops.forget_letters(ids, fields, hooks)
    local gone, dropped = {}, 0
    for _, id in ipairs(ids) do
        local record, state = record_of(id), state_of(id)
        local phase = state.p or IN_LANE
        if record and phase >= COMPLETED and not is_marked(record[1], id) then
            call('ZREM', P .. (phase == FAILED and 'dead' or 'done'), id)
            for _, name in ipairs({'letters', 'state', 'blobs'}) do
                call('HDEL', P .. name, id)
            end
            count_blocks(P .. 'blocks', id, -1)
            count(record[1], phase, nil)
            for _, enclosed in ipairs(record[11].f or {}) do
                table.insert(out[3], enclosed.blob)
                for _, field in ipairs(call('HKEYS', P .. 'files:' .. record[1])) do
                    if string.sub(field, 1, #enclosed.digest + 1) == enclosed.digest .. ' ' then
                        call('HDEL', P .. 'files:' .. record[1], field)
                    end
                end
            end
            gone[id], dropped = true, dropped + 1
        end
    end
    for _, field in ipairs(fields) do
        local raw = call('HGET', P .. 'idempotency', field)
        if raw and gone[decode(raw)[2]] then
            call('HDEL', P .. 'idempotency', field)
            call('ZREM', P .. 'idempotency_age', field)
        end
    end
    local over = {}
    for _, hook_id in ipairs(hooks) do
        local raw = call('HGET', P .. 'hooks', hook_id)
        if raw and gone[decode(raw).letter] then
            over[#over + 1] = hook_id
        end
    end
    ops.settle_hooks(over, {})
    return dropped
end

-- forget_logged(ids) -> how many lines of the message log went
function ops.forget_logged(ids)
    local gone = 0
    for _, id in ipairs(ids) do
        gone = gone + call('HDEL', P .. 'log', id)
        call('ZREM', P .. 'log_age', id)
    end
    return gone
end

-- forget_keys(fields) -> how many keys of idempotency went
function ops.forget_keys(fields)
    local gone = 0
    for _, field in ipairs(fields) do
        gone = gone + call('HDEL', P .. 'idempotency', field)
        call('ZREM', P .. 'idempotency_age', field)
    end
    return gone
end

-- forget_arrivals({id, payload, its size, is it theirs, {consumer, reason or false, {line …}} …} …, lane) -> how many were blanked
function ops.forget_arrivals(rows, lane)
    local blanked = 0
    for _, row in ipairs(rows) do
        local id = row[1]
        local raw = call('HGET', P .. 'arrivals', id)
        if raw then
            local one = arrival(raw)
            local update = update_of(raw, one)
            local bot, number = update[1], int(one.number)
            if row[4] then
                call('ZREM', arrival_lane(bot, update[3]), id)
                call('ZADD', arrival_lane(bot, lane), id, id)
                update[3], update[4] = lane, nil
            end
            -- A nil would end the array: what is not there is written as msgpack's own.
            local words = {number, int(one.epoch), int(one.received), one.replay_of, one.only_for, one.update, int(row[3])}
            local packed = {'\152'}
            for index = 1, 8 do
                local value = update[index]
                if index == 7 then
                    value = ''
                elseif index == 8 then
                    value = row[2]
                end
                packed[index + 1] = value == nil and '\192' or encode(value)
            end
            call('HSET', P .. 'arrivals', id, table.concat(words, ' ') .. '\n' .. table.concat(packed))
            for _, told in ipairs(row[5]) do
                local story = story_of(told[1], number)
                if story and row[4] and story.p == DEAD then
                    drop_story(told[1], number)
                elseif story then
                    story.r, story.h = told[2] or nil, told[3]
                    keep_story(told[1], number, story)
                end
            end
            blanked = blanked + 1
        end
    end
    return blanked
end

-- forget_chat(bot, {key of the chat …}, {handled field …}) -> {how much of chats, of handled}
function ops.forget_chat(bot, keys, handled)
    local known, notes = 0, 0
    for _, chat in ipairs(keys) do
        local had = call('HDEL', P .. 'chats:' .. bot, chat)
        for _, other in ipairs(call('SMEMBERS', P .. 'alias_of:' .. bot .. ':' .. chat)) do
            had = had + call('HDEL', P .. 'alias:' .. bot, other)
            call('ZREM', P .. 'chat_index:' .. bot, other)
        end
        local leads = alias_of(bot, chat)
        if leads then
            call('HDEL', P .. 'alias:' .. bot, chat)
            call('SREM', P .. 'alias_of:' .. bot .. ':' .. leads, chat)
            had = had + 1
        end
        call('UNLINK', P .. 'alias_of:' .. bot .. ':' .. chat)
        call('ZREM', P .. 'chat_index:' .. bot, chat)
        known = known + had
        -- Tries of the last two minutes: what the pace of a new owner would ask for.
        for _, member in ipairs(call('ZRANGE', P .. 'recent:' .. bot, 0, -1)) do
            if string.match(member, '^%-?%d+ %d+ %d+ (.*)$') == chat then
                call('ZREM', P .. 'recent:' .. bot, member)
            end
        end
    end
    for _, field in ipairs(handled) do
        notes = notes + call('HDEL', P .. 'handled:' .. bot, field)
        call('ZREM', P .. 'handled_age', bot .. ' ' .. field)
    end
    return {known, notes}
end
