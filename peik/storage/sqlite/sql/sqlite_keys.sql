-- Keys of the API, and what this Peik keeps to itself.

-- name: keys
-- Every key that is not revoked. The table is read whole: at most a thousand rows, and only after one of them changed.
SELECT id, digest, name, scopes, bot_ids, created_at, expires_at, last_used_at, webhook_url
FROM keys WHERE revoked_at IS NULL ORDER BY id

-- name: generation
SELECT max(generation) FROM keys

-- name: count
SELECT count(*) FROM keys WHERE revoked_at IS NULL

-- name: add
INSERT INTO keys
    (digest, name, scopes, bot_ids, created_at, expires_at, webhook_url, webhook_secret, generation)
VALUES (
    :digest, :name, :scopes, :bot_ids, :created_at, :expires_at, :webhook_url, :webhook_secret,
    (SELECT coalesce(max(generation), 0) + 1 FROM keys)
)
RETURNING id

-- name: revoke
UPDATE keys SET revoked_at = :at, generation = (SELECT max(generation) + 1 FROM keys)
WHERE id = :key AND revoked_at IS NULL

-- name: note_use
UPDATE keys SET last_used_at = v.column2
FROM (VALUES {rows}) AS v
WHERE keys.id = v.column1 AND v.column2 > coalesce(keys.last_used_at, 0)

-- name: secret
SELECT value FROM secrets WHERE name = :name

-- name: keep_secret
-- Two processes may make one up at the same time; the first one counts.
INSERT INTO secrets (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING
