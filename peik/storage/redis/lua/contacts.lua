-- Known chats. A record: {type, name, username, language, first seen, last seen, is it gone, campaign}, false for what is not there.
-- Chats go by names of one width here (records of Python's), which stand in the order of their ids.

local function tally_field(record)
    return record[1] .. ':' .. (record[7] and 1 or 0) .. ':' .. (record[4] or '')
end

local function count_contact(bot, record, change)
    local key, field = P .. 'contact_tally:' .. bot, tally_field(record)
    if call('HINCRBY', key, field, change) == 0 then
        call('HDEL', key, field)
    end
end

-- As `met_again` in peik/contacts/model.py.
local function met_again(known, new)
    return {
        new[1], new[2] or known[2], new[3] or known[3], new[4] or known[4],
        known[5], math.max(known[6], new[6]), new[7], known[8],
    }
end

-- contact_save(bot, {name, record} …, place) -> was it not too late
function ops.contact_save(bot, rows, place)
    if call('HEXISTS', P .. 'bots', bot) == 0 then
        refuse('unknown_bot', bot)
    elseif place < tonumber(call('HGET', P .. 'contact_places', bot) or 0) then
        return 0
    end
    for _, row in ipairs(rows) do
        local name, record = row[1], row[2]
        local raw = call('HGET', P .. 'contacts:' .. bot, name)
        if raw then
            local known = decode(raw)
            record = met_again(known, record)
            if tally_field(known) ~= tally_field(record) then
                count_contact(bot, known, -1)
                count_contact(bot, record, 1)
            end
        else
            call('ZADD', P .. 'contact_order:' .. bot, 0, name)
            call('ZADD', P .. 'contact_first:' .. bot, record[5], name .. (record[8] or ''))
            count_contact(bot, record, 1)
        end
        call('HSET', P .. 'contacts:' .. bot, name, encode(record))
        call('ZADD', P .. 'contact_seen:' .. bot, record[6], name)
    end
    call('HSET', P .. 'contact_places', bot, int(place))
    return 1
end
