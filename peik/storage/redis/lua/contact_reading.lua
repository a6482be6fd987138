-- What is read of known chats. Nothing here writes. A page is one packed text, which a client reads in one step however many chats
-- it holds.

-- The records of these names, each with its name before it.
local function packed(bot, names)
    local rows = {}
    for index, raw in ipairs(many(P .. 'contacts:' .. bot, names)) do
        if raw then
            rows[#rows + 1] = {names[index], spread(decode(raw))}
        end
    end
    return encode(rows)
end

-- contact_those(bot, names)
function ops.contact_those(bot, names)
    return packed(bot, names)
end

-- contact_page(bot, after which name or false, limit): in the order of chat ids
function ops.contact_page(bot, after, limit)
    local order = P .. 'contact_order:' .. bot
    return packed(bot, call('ZRANGEBYLEX', order, after and '(' .. after or '-', '+', 'LIMIT', 0, limit))
end

-- Where a walk from the highest score down goes on behind (score, member), which may have gone elsewhere since.
local function place_behind(key, score, member)
    if tonumber(call('ZSCORE', key, member) or -1) == score then
        return call('ZREVRANK', key, member) + 1
    end
    local place = call('ZCOUNT', key, '(' .. int(score), '+inf')
    while true do
        local page = call('ZREVRANGE', key, place, place + AT_ONCE - 1, 'WITHSCORES')
        for index = 1, #page, 2 do
            if tonumber(page[index + 1]) < score or page[index] < member then
                return place
            end
            place = place + 1
        end
        if #page == 0 then
            return place
        end
    end
end

-- contact_newest(bot, (when seen, name) behind which or false, limit): the last seen first
function ops.contact_newest(bot, seen, name, limit)
    local key = P .. 'contact_seen:' .. bot
    local place = seen and place_behind(key, seen, name) or 0
    return packed(bot, call('ZREVRANGE', key, place, place + limit - 1))
end

-- contact_first(bot, since, (when first seen, name and campaign) behind which or false, limit): the newest first, down to `since`
-- -> {{campaign, how many} …}, and where to go on, or false
function ops.contact_first(bot, since, seen, member, limit)
    local key = P .. 'contact_first:' .. bot
    local place = seen and place_behind(key, seen, member) or 0
    local count = call('ZCOUNT', key, int(since), '+inf')
    if place >= count then
        return encode({{}, false})
    end
    local members = call('ZREVRANGE', key, place, math.min(place + limit, count) - 1)
    local chats, rows = {}, {}
    for _, one in ipairs(members) do
        local campaign = string.sub(one, 18) -- a name has 17 signs
        chats[campaign] = (chats[campaign] or 0) + 1
    end
    for campaign, how_many in pairs(chats) do
        rows[#rows + 1] = {campaign, how_many}
    end
    local last = members[#members]
    return encode({rows, place + #members < count and {tonumber(call('ZSCORE', key, last)), last}})
end

-- contact_counts(bot) -> {kind, how many, …}
function ops.contact_counts(bot)
    return call('HGETALL', P .. 'contact_tally:' .. bot)
end

-- contact_seen(bot, since or false, until or false) -> how many were last seen then
function ops.contact_seen(bot, since, before)
    return call('ZCOUNT', P .. 'contact_seen:' .. bot, since and int(since) or '-inf', before and '(' .. int(before) or '+inf')
end

function ops.contact_place(bot)
    return tonumber(call('HGET', P .. 'contact_places', bot) or 0)
end
