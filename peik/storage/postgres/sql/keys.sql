-- Keys of the API, and what this Peik keeps to itself.

-- name: keys
-- Every key that is not revoked, with the generation of all. At most a thousand rows, and only after one of them changed.
SELECT id, digest, name, scopes, bot_ids, created_at, expires_at, last_used_at, webhook_url
FROM keys WHERE revoked_at IS NULL ORDER BY id

-- name: generation
SELECT coalesce(max(generation), 0) FROM keys

-- name: lock_keys
-- Generations are given one after the other, by whichever node. Reading goes on meanwhile.
LOCK TABLE keys IN SHARE ROW EXCLUSIVE MODE

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
UPDATE keys SET last_used_at = v.at
FROM unnest(:keys::bigint[], :ats::bigint[]) AS v (id, at)
WHERE keys.id = v.id AND v.at > coalesce(keys.last_used_at, 0)

-- name: secret
SELECT value FROM secrets WHERE name = :name

-- name: keep_secret
-- Two nodes may make one up at the same time; the first one counts.
INSERT INTO secrets (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING
