-- Arrivals are handed on once more: copies with numbers of their own, at the end of their lanes, for one reader.

local function copy(id, raw, consumer, at)
    local one = arrival(raw)
    local update = update_of(raw, one)
    local bot = update[1]
    one.number = call('HINCRBY', P .. 'inbox:' .. bot, 'next_number', 1) - 1
    one.received, one.replay_of, one.only_for = at, id, consumer
    call('SADD', P .. 'owners:' .. bot, consumer)
    return file(bot, update[3], one, string.sub(raw, one.start))
end

-- replay(consumer, ids, at) -> the new ids. What is gone, or of another bot, is left out.
function ops.replay(consumer, ids, at)
    local bot, made = consumer_of(consumer).bot, {}
    for index, raw in ipairs(many(P .. 'arrivals', ids)) do
        if raw and update_of(raw, arrival(raw))[1] == bot then
            made[#made + 1] = copy(ids[index], raw, consumer, at)
        end
    end
    return made
end

-- bring_back(consumer, ids, at, is retry) -> for each dead arrival its new id, or its old one if it is only cleared away
function ops.bring_back(consumer, ids, at, is_retry)
    consumer_of(consumer)
    local made = {}
    for index, raw in ipairs(many(P .. 'arrivals', ids)) do
        local number = raw and int(arrival(raw).number)
        local story = number and story_of(consumer, number)
        if story and story.p == DEAD then
            made[#made + 1] = is_retry and copy(ids[index], raw, consumer, at) or ids[index]
            drop_story(consumer, number)
        end
    end
    return made
end
