-- The nodes of one store: each beats, and so keeps its leases and locks; what a silent one held is free.
-- A node: v version, a address, s started at, n last seen, l lease in ms, d is draining by itself, q was asked to drain.
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

-- {node = true …} of those that live, {node = 0 …} of those that take leases, and how many these are. One that was seen in the future was seen before the
-- clock was set back: it has one lease's time from now on, or the dead would live for as long as that.
local function living(now)
    local found, takers, count, rows = {}, {}, 0, call('HGETALL', P .. 'nodes')
    for index = 1, #rows, 2 do
        local name, node = rows[index], decode(rows[index + 1])
        found[name] = true
        if node.n > now then
            node.n = now
            call('HSET', P .. 'nodes', name, encode(node))
            call('ZADD', P .. 'alive', now + node.l, name)
        end
        if not node.d and not node.q then
            takers[name] = 0
            count = count + 1
        end
    end
    return found, takers, count
end

-- It rises even if the server has lost its last writes in a crash: time has gone on since.
local function next_epoch(now)
    local epoch = int(math.max(tonumber(call('GET', P .. 'epoch') or 0) + 1, now))
    call('SET', P .. 'epoch', epoch)
    return epoch
end

-- Take up to so many that no living node holds; what they and their epochs are goes to the end of `held`.
local function take(most, is_held, held, now)
    local bots, taken = call('HKEYS', P .. 'bots'), {}
    table.insert(bots, 1, '0') -- what is done once for the whole store, first
    local epoch
    for _, bot in ipairs(bots) do
        if #taken >= 2 * most then
            break
        elseif not is_held[bot] then
            epoch = epoch or next_epoch(now)
            taken[#taken + 1], taken[#taken + 2] = bot, epoch .. ' ' .. me
            held[#held + 1], held[#held + 2] = bot, epoch
        end
    end
    for start = 1, #taken, AT_ONCE do
        call('HSET', P .. 'leases', spread(taken, start, math.min(start + AT_ONCE - 1, #taken)))
    end
end

-- Rounded up, so that nothing is left over. Who has as much as the share rounded down takes nothing while somebody else has less
-- than that, and gives one up if it has more: so nobody goes without.
local function share_of(all, takers, count, own)
    local least, most = math.floor(all / count), math.ceil(all / count)
    for node, held in pairs(takers) do
        if node ~= me and held < least and own >= least and own <= most then
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
    started_at = started_at or now
    call('ZADD', P .. 'alive', now + lease_ms, me)
    call('HSET', P .. 'nodes', me, encode({
        v = version, a = address, s = started_at, n = now, l = lease_ms, d = is_draining or nil, q = was_asked or nil,
    }))
    local gone = drop_silent(now)
    renew_locks(now, now + lease_ms)
    local nodes, takers, count = living(now)
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
            takers[node] = takers[node] and takers[node] + 1
        end
    end
    local share, all = 0, call('HLEN', P .. 'bots') + 1
    if not is_draining and not was_asked then
        share = share_of(all, takers, count, #held / 2)
        if #held / 2 < share and #held / 2 + others < all then
            take(share - #held / 2, is_held, held, now)
        end
    end
    local has_changed = not known or gone > 0 or (known.d or false) ~= is_draining
    return {held, math.max(#held / 2 - share, 0), has_changed and 1 or 0, was_asked and 1 or 0, started_at}
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
