-- The nodes of one store: each beats, and so keeps its leases and locks; what a silent one held is free.
-- A node: v version, a address, s started at, n last seen, l lease in ms, d is draining by itself, q was asked to drain.
local YOUNG = 0.4 -- of a lease: two beats
local LOCK_KEPT_MS = 3600 * 1000 -- so long is a lock that is over still its old holder's, if nobody takes it

local function holder_of(lease)
    return string.match(lease, '^%d+ (.*)$')
end

-- Nodes that gave no sign in time are gone. Their leases stay under their names until somebody takes them.
local function drop_silent(now)
    local gone = call('ZRANGEBYSCORE', P .. 'alive', '-inf', int(now))
    for _, node in ipairs(gone) do
        call('ZREM', P .. 'alive', node)
        call('HDEL', P .. 'nodes', node)
    end
    return #gone
end

local function pairs_of(flat)
    local found = {}
    for index = 1, #flat, 2 do
        found[flat[index]] = flat[index + 1]
    end
    return found
end

local function renew_locks(now, ends)
    local locks = call('HGETALL', P .. 'locks')
    for index = 1, #locks, 2 do
        local name, last, node = locks[index], string.match(locks[index + 1], '^(%d+) (.*)$')
        if node == me then
            call('HSET', P .. 'locks', name, int(ends) .. ' ' .. me)
        elseif tonumber(last) < now - LOCK_KEPT_MS then
            call('HDEL', P .. 'locks', name)
        end
    end
end

-- {node = true …} of those that live, and of those that take part in sharing: how many they are, {node = 0 …} of the elders
-- besides this one, how many these are, and whether this one is an elder, too. Who has lived for less than two beats is young,
-- and may be about to die again. One that was seen in the future was seen before the
-- clock was set back: it has one lease's time from now on, or the dead would live for as long as that.
local function living(now)
    local found, here, elders, count, is_elder, rows = {}, 0, {}, 0, false, call('HGETALL', P .. 'nodes')
    for index = 1, #rows, 2 do
        local name, node = rows[index], decode(rows[index + 1])
        found[name] = true
        if node.n > now then
            node.n = now
            call('HSET', P .. 'nodes', name, encode(node))
            call('ZADD', P .. 'alive', now + node.l, name)
        end
        if not node.d and not node.q and (name == me or node.n > now - YOUNG * node.l) then
            here = here + 1
            local is_old = node.n - node.s >= YOUNG * node.l
            if name == me then
                is_elder = is_old
            elseif is_old then
                elders[name] = 0
                count = count + 1
            end
        end
    end
    return found, here, elders, count, is_elder
end

-- It rises even if the server has lost its last writes in a crash: time has gone on since.
local function next_epoch(now)
    local epoch = int(math.max(tonumber(call('GET', P .. 'epoch') or 0) + 1, now))
    call('SET', P .. 'epoch', epoch)
    return epoch
end

-- Take up to so many that no living node holds, and whatever nobody took for two beats; what they and their epochs are goes to
-- the end of `held`. `freed`: since when a bot is known to be free.
local function take(most, is_held, held, now, young)
    local bots, freed = call('HKEYS', P .. 'bots'), pairs_of(call('HGETALL', P .. 'freed'))
    table.insert(bots, 1, '0') -- what is done once for the whole store, first
    local free, taken, over = {}, {}, {}
    for _, bot in ipairs(bots) do
        if is_held[bot] then
            over[#over + 1] = freed[bot] and bot
        elseif not freed[bot] then
            call('HSET', P .. 'freed', bot, int(now))
            free[#free + 1] = bot
        elseif tonumber(freed[bot]) <= now - young then
            taken[#taken + 1] = bot
        else
            free[#free + 1] = bot
        end
    end
    for index = 1, math.min(most - #taken, #free) do
        taken[#taken + 1] = free[index]
    end
    if #taken > 0 then
        local epoch, rows = next_epoch(now), {}
        for _, bot in ipairs(taken) do
            rows[#rows + 1], rows[#rows + 2] = bot, epoch .. ' ' .. me
            held[#held + 1], held[#held + 2] = bot, epoch
            over[#over + 1] = bot
        end
        for start = 1, #rows, AT_ONCE do
            call('HSET', P .. 'leases', spread(rows, start, math.min(start + AT_ONCE - 1, #rows)))
        end
    end
    for start = 1, #over, AT_ONCE do
        call('HDEL', P .. 'freed', spread(over, start, math.min(start + AT_ONCE - 1, #over)))
    end
end

-- What is held is shared among elders only. Rounded up, so that nothing is left over. Who has as much as the share rounded down
-- takes nothing while another has less than that, and gives one up if it has more: so nobody goes without.
local function share_of(all, elders, count, own)
    local least, most = math.floor(all / (count + 1)), math.ceil(all / (count + 1))
    for _, held in pairs(elders) do
        if held < least and own >= least and own <= most then
            return math.max(own - 1, least)
        end
    end
    return most
end

-- beat(version, address, started at as it was answered before, lease in ms, is draining, was asked to drain when it last beat)
-- -> {{bot, epoch …}, how many are too many, whether others should know, whether it is asked to drain, started at}
function ops.beat(version, address, started_at, lease_ms, is_draining, was_asked)
    local now = server_ms()
    local raw = call('HGET', P .. 'nodes', me)
    local known = raw and decode(raw)
    if known then
        was_asked = known.q
    end
    started_at = known and known.s or started_at or now
    call('ZADD', P .. 'alive', now + lease_ms, me)
    call('HSET', P .. 'nodes', me, encode({
        v = version, a = address, s = started_at, n = now, l = lease_ms, d = is_draining or nil, q = was_asked or nil,
    }))
    local gone = drop_silent(now)
    renew_locks(now, now + lease_ms)
    local nodes, here, elders, count, is_elder = living(now)
    local held, is_held, others = {}, {}, 0
    local leases = call('HGETALL', P .. 'leases')
    for index = 1, #leases, 2 do
        local bot, epoch, node = leases[index], string.match(leases[index + 1], '^(%d+) (.*)$')
        if node == me then
            held[#held + 1], held[#held + 2] = bot, epoch
            is_held[bot] = true
        elseif nodes[node] then
            others = others + 1
            is_held[bot] = true
            elders[node] = elders[node] and elders[node] + 1
        end
    end
    local own, keeps, all = #held / 2, 0, call('HLEN', P .. 'bots') + 1
    if not is_draining and not was_asked then
        keeps = share_of(all, elders, count, own)
        local takes = 0
        if is_elder then
            takes = keeps - own
        elseif count == 0 then
            takes = math.ceil(all / here) - own
        end
        take(takes, is_held, held, now, YOUNG * lease_ms)
    end
    -- What was taken because nobody else did is not given back at once.
    local has_changed = not known or gone > 0 or (known.d or false) ~= is_draining
    return {held, math.max(own - keeps, 0), has_changed and 1 or 0, was_asked and 1 or 0, started_at}
end

-- release(bots): only what is this node's own
function ops.release(bots)
    for _, bot in ipairs(bots) do
        local lease = call('HGET', P .. 'leases', bot)
        if lease and holder_of(lease) == me then
            call('HDEL', P .. 'leases', bot)
        end
    end
    return true
end

local function drop_own(key)
    local rows = call('HGETALL', key)
    for index = 1, #rows, 2 do
        if holder_of(rows[index + 1]) == me then
            call('HDEL', key, rows[index])
        end
    end
end

-- leave() -> whether it was a node. All that it held is free.
function ops.leave()
    drop_own(P .. 'leases')
    drop_own(P .. 'locks')
    call('HDEL', P .. 'nodes', me)
    return call('ZREM', P .. 'alive', me)
end

-- drain_node(name, is draining) -> whether there is such a node
function ops.drain_node(name, is_draining)
    local raw = is_alive(name) and call('HGET', P .. 'nodes', name)
    if not raw then
        return 0
    end
    local node = decode(raw)
    node.q = is_draining or nil
    call('HSET', P .. 'nodes', name, encode(node))
    return 1
end

-- take_lock(name, lease in ms) -> whether it is this node's now. "end node" in `locks`.
function ops.take_lock(name, lease_ms)
    local now, lock = server_ms(), call('HGET', P .. 'locks', name)
    if lock and holder_of(lock) ~= me and tonumber(string.match(lock, '^%d+')) > now then
        return 0
    end
    call('HSET', P .. 'locks', name, int(now + lease_ms) .. ' ' .. me)
    return 1
end

function ops.drop_lock(name)
    local lock = call('HGET', P .. 'locks', name)
    return lock and holder_of(lock) == me and call('HDEL', P .. 'locks', name) or 0
end
