-- Who may send. The lease lives by the server's own clock; the epoch rises with every owner, so that a late one is known.

-- claim(node, lease in ms) -> the epoch of the new owner, or 0 if somebody else is
function ops.claim(node, lease_ms)
    is_silent = true
    if call('EXISTS', P .. 'lease') == 1 then
        return 0
    end
    local epoch = call('INCR', P .. 'epoch')
    call('SET', P .. 'lease', int(epoch) .. ':' .. node, 'PX', lease_ms)
    return epoch
end

-- renew(lease, epoch, lease in ms) -> whether it is still ours. One that ran out is taken again if nobody came between.
function ops.renew(lease, epoch, lease_ms)
    is_silent = true
    local holder = call('GET', P .. 'lease')
    if (holder and holder ~= lease) or call('GET', P .. 'epoch') ~= epoch then
        return 0
    end
    call('SET', P .. 'lease', lease, 'PX', lease_ms)
    return 1
end

function ops.give_up(lease)
    is_silent = true
    return call('GET', P .. 'lease') == lease and call('DEL', P .. 'lease') or 0
end
