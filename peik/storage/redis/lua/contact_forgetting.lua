-- contact_forget(bot, name) -> was it known
function ops.contact_forget(bot, name)
    local raw = call('HGET', P .. 'contacts:' .. bot, name)
    if not raw then
        return 0
    end
    local record = decode(raw)
    call('HDEL', P .. 'contacts:' .. bot, name)
    call('ZREM', P .. 'contact_order:' .. bot, name)
    call('ZREM', P .. 'contact_seen:' .. bot, name)
    call('ZREM', P .. 'contact_first:' .. bot, name .. (record[8] or ''))
    count_contact(bot, record, -1)
    return 1
end
