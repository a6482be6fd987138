-- KEYS[1] a cached answer. ARGV[1] a name for a new right to fill it; ARGV[2] how long that right and what is filled under it
-- last, in ms.
-- Answers {1, answer}, {2, right} to whoever shall ask the archive and fill, {0, ''} while somebody else does.
--
-- What another run of the server left behind does not count: a restart may bring back what had been forgotten.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local kept = redis.call('GET', KEYS[1])
if kept and string.sub(kept, 2, 41) == run then
    if string.sub(kept, 1, 1) == 'V' then
        return {1, string.sub(kept, 42)}
    end
    return {0, ''}
end
local right = run .. ARGV[1]
redis.call('SET', KEYS[1], 'L' .. right, 'PX', ARGV[2])
return {2, right}
