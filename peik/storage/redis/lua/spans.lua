-- What a reader has behind it: the arithmetic of peik/core/arrival.py, where its words are.

local function joined(spans)
    table.sort(spans, function(one, other)
        if one[1] ~= other[1] then
            return one[1] < other[1]
        end
        return one[2] < other[2]
    end)
    local found = {}
    for _, span in ipairs(spans) do
        local last = found[#found]
        if span[1] > span[2] then
            -- no number at all
        elseif last and span[1] <= last[2] + 1 then
            last[2] = math.max(last[2], span[2])
        else
            found[#found + 1] = {span[1], span[2]}
        end
    end
    return found
end

-- Progress after these are over too. It never goes back.
local function advanced(progress, over)
    local all = {{0, progress[1]}}
    for _, part in ipairs({progress[2], over}) do
        for _, span in ipairs(part) do
            all[#all + 1] = span
        end
    end
    local found = joined(all)
    local watermark = table.remove(found, 1)[2]
    return {watermark, found}
end
