-- What nodes read of each other, and of letters that others accepted. Nothing here writes.

-- nodes() -> now, {node, end …}, {node, record …}, {bot, lease …}
function ops.nodes()
    return {
        server_ms(), call('ZRANGE', P .. 'alive', 0, -1, 'WITHSCORES'), call('HGETALL', P .. 'nodes'),
        call('HGETALL', P .. 'leases'),
    }
end

function ops.is_locked(name)
    local lock = call('HGET', P .. 'locks', name)
    return lock and tonumber(string.match(lock, '^%d+')) > server_ms() and 1 or 0
end

-- A record begins with its bot, a short text in msgpack. Most letters of a range may be other bots', and unpacking them costs
-- more than all the rest (measured with 20 of 1,000 its own: 2.4 ms, and 1.0 without).
local function is_of(bot, raw)
    return string.byte(raw, 2) == 0xa0 + #bot and string.sub(raw, 3, 2 + #bot) == bot
end

-- new_letters(bot, first, last) -> {id, place, record, state} of those that wait in their lanes and are not in flight
function ops.new_letters(bot, first, last)
    local ids, found = {}, {}
    for id = first, last do
        ids[#ids + 1] = int(id)
    end
    local records, states, marks = many(P .. 'letters', ids), many(P .. 'state', ids), many(P .. 'marks:' .. bot, ids)
    for index, id in ipairs(ids) do
        local raw = records[index]
        if raw and not marks[index] and is_of(bot, raw) then
            local record = decode(raw)
            local state = states[index] and decode(states[index]) or {}
            local lane = lane_key(bot, lane_of(state.c or record[2], record[3]))
            local place = (state.p or IN_LANE) == IN_LANE and call('ZSCORE', lane, id)
            if place then
                found[#found + 1] = {id, tonumber(place), raw, states[index]}
            end
        end
    end
    return found
end

-- last_numbers(node) -> {bot, number …} of the bots that it acts for
function ops.last_numbers(node)
    local found, leases = {}, call('HGETALL', P .. 'leases')
    for index = 1, #leases, 2 do
        local bot = leases[index]
        if bot ~= '0' and string.match(leases[index + 1], '^%d+ (.*)$') == node then
            found[#found + 1] = bot
            found[#found + 1] = call('HGET', P .. 'tally:' .. bot, 'numbers') or '0'
        end
    end
    return found
end
