-- How an arrival is kept: a line of what we know of it, then the update as it came.
-- The line: number, epoch, received at, replay of, only for, update id, size of the payload. 0 stands for nothing and nobody.
-- The update: {bot, type, lane, user, message, sent at, digest, payload}, byte for byte as it was given.
local LINE = '^(%d+) (%d+) (%-?%d+) (%d+) (%d+) (%-?%d+) (%d+)\n()'
local EVERY = 2 ^ 53
local CLOCK_SLACK_MS = 3600 * 1000 -- clocks are set back now and then; ids rise with time as far as the clock does

local function arrival(raw)
    local number, epoch, received, replay_of, only_for, update, size, start = string.match(raw, LINE)
    return {
        number = tonumber(number), epoch = tonumber(epoch), received = tonumber(received), replay_of = replay_of,
        only_for = only_for, update = update, size = tonumber(size), start = start,
    }
end

local function update_of(raw, one)
    return decode(string.sub(raw, one.start))
end

local function order_key(bot, only_for)
    return P .. 'order:' .. bot .. ':' .. only_for
end

local function arrival_lane(bot, lane)
    return P .. 'arrivals:' .. bot .. ':' .. lane
end

-- A reader's progress: {watermark, {first, last} …}
local function progress_of(consumer)
    local raw = call('HGET', P .. 'progress', consumer)
    return raw and decode(raw) or {0, {}}
end

local function is_over(progress, number)
    if number <= progress[1] then
        return true
    end
    for _, span in ipairs(progress[2]) do
        if span[1] <= number and number <= span[2] then
            return true
        end
    end
    return false
end

-- The first number above one that this reader sees, and its id: what lies between is for others, or gone.
local function next_seen(bot, consumer, after)
    local best, id
    for _, only_for in ipairs({'0', consumer}) do
        local found = call('ZRANGEBYSCORE', order_key(bot, only_for), '(' .. int(after), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        local number = found[2] and tonumber(found[2])
        if number and (not best or number < best) then
            best, id = number, found[1]
        end
    end
    return best, id
end

local function id_of_number(bot, consumer, number)
    for _, only_for in ipairs({'0', consumer}) do
        local found = call('ZRANGEBYSCORE', order_key(bot, only_for), number, number)
        if found[1] then
            return found[1]
        end
    end
    return false
end
