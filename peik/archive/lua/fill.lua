-- KEYS[1] a cached answer. ARGV[1] the right to fill it, of which the first 40 characters are the server's run; ARGV[2] the answer.
-- Only while the right stands: whoever wrote to the archive since has removed it. The answer lasts as long as the right would.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('GET', KEYS[1]) == 'L' .. ARGV[1] and string.sub(ARGV[1], 1, 40) == run then
    redis.call('SET', KEYS[1], 'V' .. run .. ARGV[2], 'KEEPTTL')
    return 1
end
return 0
