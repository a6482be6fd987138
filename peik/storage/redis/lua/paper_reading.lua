-- What is read of papers. Nothing here writes.

-- paper_those(shelf, keys) -> {version and body, or nothing, …}
function ops.paper_those(shelf, keys)
    return many(P .. 'papers:' .. shelf, keys)
end

-- paper_page(shelf, above or false, below or false, limit, is it backwards) -> {keys, {version and body …}}
function ops.paper_page(shelf, above, below, limit, is_backwards)
    local low, high = above and '(' .. above or '-', below and '(' .. below or '+'
    local order, keys = P .. 'paper_order:' .. shelf, nil
    if is_backwards then
        keys = call('ZREVRANGEBYLEX', order, high, low, 'LIMIT', 0, limit)
    else
        keys = call('ZRANGEBYLEX', order, low, high, 'LIMIT', 0, limit)
    end
    return {keys, many(P .. 'papers:' .. shelf, keys)}
end

function ops.paper_count(shelf)
    return call('HLEN', P .. 'papers:' .. shelf)
end

-- paper_shelves(first, the end, which is left out)
function ops.paper_shelves(first, last)
    return call('ZRANGEBYLEX', P .. 'shelves', '[' .. first, '(' .. last)
end
