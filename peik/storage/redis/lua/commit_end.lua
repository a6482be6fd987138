-- Runs the operations one after the other: {node, {name, argument …} …}. Each is checked before it writes, so that one that
-- is refused leaves nothing behind and its neighbours are not hurt. Answers {ok, value, what it did to lanes} for each.
local asked = decode(ARGV[1])
local answers, unwritten = {}, {}
me = asked[1]

local function failed(why)
    return {2, type(why) == 'table' and why.err or tostring(why)}
end

-- Letters that were accepted and could not be written were not accepted.
local function write_accepted()
    if not flush then
        return
    end
    local ok, why = pcall(flush)
    for _, index in ipairs(not ok and unwritten or {}) do
        answers[index] = failed(why)
    end
    unwritten = {}
end

for index = 2, #asked do
    local one = asked[index]
    if one[1] == 'accept' then
        unwritten[#unwritten + 1] = index - 1
    else
        write_accepted()
    end
    out = {{}, {}, {}, {}}
    local ok, value = pcall(ops[one[1]], one[2], one[3], one[4], one[5], one[6], one[7], one[8], one[9])
    if ok then
        local is_quiet = #out[1] + #out[2] + #out[3] + #out[4] == 0
        answers[index - 1] = {1, value, not is_quiet and out}
    elseif type(value) == 'table' and value.refused then
        answers[index - 1] = {0, value.refused}
    else
        answers[index - 1] = failed(value)
    end
end
write_accepted()
return answers
