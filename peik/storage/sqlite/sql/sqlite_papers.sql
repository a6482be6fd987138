-- Papers on shelves (peik/core/documents.py says what they are). {rows} stands for as many tuples of values as there are.

-- name: versions
-- What is there of the papers that are expected to be in some state.
SELECT p.shelf, p.key, p.version
FROM (VALUES {rows}) AS v CROSS JOIN papers AS p ON p.shelf = v.column1 AND p.key = v.column2

-- name: keep
INSERT INTO papers (shelf, key, body) VALUES {rows}
ON CONFLICT (shelf, key) DO UPDATE SET body = excluded.body, version = papers.version + 1

-- name: take_away
DELETE FROM papers WHERE (shelf, key) IN (VALUES {rows})

-- name: those
SELECT p.shelf, p.key, p.body, p.version FROM papers AS p
WHERE p.shelf = :collection AND p.key IN (SELECT value FROM json_each(:keys))

-- name: page
-- {where} is a range of keys: a walk along the primary key, the same at any depth.
SELECT p.shelf, p.key, p.body, p.version FROM papers AS p
WHERE p.shelf = :collection AND {where}
ORDER BY p.key {order} LIMIT :limit

-- name: count
SELECT s.papers FROM paper_shelves AS s WHERE s.shelf = :collection

-- name: shelves
SELECT s.shelf FROM paper_shelves AS s WHERE s.shelf >= :first AND s.shelf < :end ORDER BY s.shelf

-- name: clear
DELETE FROM papers WHERE shelf = :collection AND key IN (
    SELECT p.key FROM papers AS p WHERE p.shelf = :collection AND {where} ORDER BY p.key LIMIT :limit
)
