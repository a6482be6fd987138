-- Who may act for a bot: "epoch node" under its id in `leases`. A lease lasts as long as its node, whose end stands in `alive`,
-- by the server's own clock: so that a beat renews thousands of them with one write.

local function is_alive(node)
    local ends = call('ZSCORE', P .. 'alive', node)
    return ends and tonumber(ends) > server_ms()
end

-- Nobody else has taken it, though it may be over.
local function is_mine(bot, epoch)
    return call('HGET', P .. 'leases', bot) == epoch .. ' ' .. me
end
