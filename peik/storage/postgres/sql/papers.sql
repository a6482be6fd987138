-- Papers on shelves. Whatever writes does so under the locks of the shelves (`lock_shelves`), and so reads the truth.

-- name: keep_shelves
-- Before any lock is held, and in the order of names: whoever makes the same shelf just now is waited for.
INSERT INTO paper_shelves (shelf) SELECT v.shelf FROM unnest(:collections::text[]) AS v (shelf) ORDER BY v.shelf COLLATE "C"
ON CONFLICT DO NOTHING

-- name: lock_shelves
-- In one order everywhere, so that nobody waits in a circle.
SELECT s.shelf FROM paper_shelves AS s WHERE s.shelf = ANY (:collections::text[]) ORDER BY s.shelf FOR UPDATE

-- name: versions
-- What is there of the papers that are expected to be in some state.
SELECT p.shelf, p.key, p.version
FROM unnest(:collections::text[], :keys::text[]) AS v (shelf, key)
JOIN papers AS p ON p.shelf = v.shelf COLLATE "C" AND p.key = v.key COLLATE "C"

-- name: keep
INSERT INTO papers (shelf, key, body)
SELECT v.shelf, v.key, v.body FROM unnest(:collections::text[], :keys::text[], :bodies::text[]) AS v (shelf, key, body)
ON CONFLICT (shelf, key) DO UPDATE SET body = excluded.body, version = papers.version + 1

-- name: take_away
DELETE FROM papers AS p USING unnest(:collections::text[], :keys::text[]) AS v (shelf, key)
WHERE p.shelf = v.shelf COLLATE "C" AND p.key = v.key COLLATE "C"

-- name: those
SELECT p.shelf, p.key, p.body, p.version FROM papers AS p WHERE p.shelf = :collection AND p.key = ANY (:keys::text[])

-- name: page
-- {where} is a range of keys: a walk along the primary key, the same at any depth.
SELECT p.shelf, p.key, p.body, p.version FROM papers AS p
WHERE p.shelf = :collection AND {where}
ORDER BY p.key {order} LIMIT :limit

-- name: count
SELECT s.papers FROM paper_shelves AS s WHERE s.shelf = :collection

-- name: shelves
SELECT s.shelf FROM paper_shelves AS s WHERE s.shelf >= :first AND s.shelf < :end AND s.papers > 0 ORDER BY s.shelf

-- name: clear
DELETE FROM papers AS d USING (
    SELECT p.key FROM papers AS p WHERE p.shelf = :collection AND {where} ORDER BY p.key LIMIT :limit
) AS v
WHERE d.shelf = :collection AND d.key = v.key
