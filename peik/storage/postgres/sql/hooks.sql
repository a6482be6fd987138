-- Webhooks that wait to be told. They are written by the trigger `letters_hooked`, in the commit that ends their letter.

-- name: due
-- What is due at the endpoints after one, in the order of their names: one seek for each, and of each the oldest. An endpoint
-- at which nothing is due answers with its name alone, so that the reader knows how far it came.
WITH RECURSIVE stop (endpoint, place) AS (
    (SELECT h.endpoint, 1 FROM hooks AS h WHERE h.endpoint > :after ORDER BY h.endpoint LIMIT 1)
    UNION ALL
    SELECT n.endpoint, stop.place + 1
    FROM stop CROSS JOIN LATERAL (
        SELECT h.endpoint FROM hooks AS h WHERE h.endpoint > stop.endpoint ORDER BY h.endpoint LIMIT 1
    ) AS n
    WHERE stop.place < :endpoints::integer
)
SELECT
    stop.place, d.id, stop.endpoint, coalesce(k.webhook_url, d.hook_url), k.webhook_secret, d.letter_id, d.phase, d.at,
    d.tries, k.digest
FROM stop
LEFT JOIN LATERAL (
    SELECT h.* FROM hooks AS h WHERE h.endpoint = stop.endpoint AND h.due_at <= :at ORDER BY h.due_at, h.id LIMIT :each
) AS d ON true
LEFT JOIN keys AS k ON k.id = d.hook_key
ORDER BY stop.place, d.due_at, d.id

-- name: body
SELECT body FROM hooks WHERE id = :hook AND body IS NOT NULL

-- name: next_due
SELECT min(due_at) FROM hooks WHERE due_at > :at

-- name: drop
DELETE FROM hooks WHERE id = ANY (:hooks::bigint[])

-- name: defer
UPDATE hooks SET due_at = v.due_at, tries = v.tries, body = v.body
FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::text[]) AS v (id, due_at, tries, body)
WHERE hooks.id = v.id
