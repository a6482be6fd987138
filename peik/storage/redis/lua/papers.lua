-- Papers on shelves. Each is its version, a space, and its body, in the hash of its shelf; its key stands in the order of the shelf.
local out, flush -- of letters; a commit of papers has none, and its end asks for them
local me -- the node that asks

local function papers_key(shelf)
    return P .. 'papers:' .. shelf
end

local function paper_order(shelf)
    return P .. 'paper_order:' .. shelf
end

local function version_of(shelf, key)
    local raw = call('HGET', papers_key(shelf), key)
    return raw and tonumber(string.match(raw, '^%d+')) or 0
end

local function drop_papers(shelf, keys)
    for start = 1, #keys, AT_ONCE do
        local last = math.min(start + AT_ONCE - 1, #keys)
        call('HDEL', papers_key(shelf), spread(keys, start, last))
        call('ZREM', paper_order(shelf), spread(keys, start, last))
    end
    if call('EXISTS', paper_order(shelf)) == 0 then
        call('ZREM', P .. 'shelves', shelf)
    end
end

-- paper_file({shelf, key, the version that it must have or false, ARGV index of its body or false: it goes} …)
-- -> 0, or the place of the first that is not as it was expected; then nothing was written
function ops.paper_file(rows)
    local versions = {}
    for index, row in ipairs(rows) do
        versions[index] = version_of(row[1], row[2])
        if row[3] and row[3] ~= versions[index] then
            return index
        end
    end
    for index, row in ipairs(rows) do
        if row[4] then
            call('HSET', papers_key(row[1]), row[2], int(versions[index] + 1) .. ' ' .. ARGV[row[4]])
            if versions[index] == 0 then
                call('ZADD', paper_order(row[1]), 0, row[2])
                call('ZADD', P .. 'shelves', 0, row[1])
            end
        elseif versions[index] > 0 then
            drop_papers(row[1], {row[2]})
        end
    end
    return 0
end

-- paper_clear(shelf, below which key or false, limit) -> how many went
function ops.paper_clear(shelf, below, limit)
    local keys = call('ZRANGEBYLEX', paper_order(shelf), '-', below and '(' .. below or '+', 'LIMIT', 0, limit)
    drop_papers(shelf, keys)
    return #keys
end
