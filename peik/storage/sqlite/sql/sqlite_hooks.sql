-- Webhooks that wait to be told. They are written by the trigger `letters_hooked`, in the commit that ends their letter.

-- name: next_endpoint
-- The endpoints in the order of their names, one seek each.
SELECT endpoint FROM hooks WHERE endpoint > :after ORDER BY endpoint LIMIT 1

-- name: due
-- What is due at one endpoint, with the address and the secret of its key. No key: an address of the letter's own.
SELECT
    h.id, h.endpoint, coalesce(k.webhook_url, h.hook), k.webhook_secret, h.letter_id, h.phase, h.at, h.tries, k.digest
FROM hooks AS h LEFT JOIN keys AS k ON k.id = h.hook
WHERE h.endpoint = :endpoint AND h.due_at <= :at
ORDER BY h.due_at, h.id LIMIT :each

-- name: body
SELECT body FROM hooks WHERE id = :hook AND body IS NOT NULL

-- name: next_due
SELECT min(due_at) FROM hooks WHERE due_at > :at

-- name: drop
DELETE FROM hooks WHERE id IN (VALUES {rows})

-- name: defer
UPDATE hooks SET due_at = v.column2, tries = v.column3, body = v.column4
FROM (VALUES {rows}) AS v
WHERE hooks.id = v.column1
