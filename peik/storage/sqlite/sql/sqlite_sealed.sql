-- What is secret in the store, as it is stored, with the place that it belongs to: see `peik.secrets.seals`.

-- name: kept
-- Of revoked keys, too: letters that they brought may still have to be told to their webhooks.
SELECT 'bot:' || bot_id, token FROM bots
UNION ALL
SELECT 'key:' || lower(hex(digest)), webhook_secret FROM keys WHERE webhook_secret IS NOT NULL
UNION ALL
SELECT 'consumer:' || bot_id || '@' || name, secret FROM consumers WHERE secret IS NOT NULL
UNION ALL
SELECT 'secret:' || name, value FROM secrets
ORDER BY 1

-- name: change_bot
-- Only what is still as it was read: somebody may have given the bot a new token since. So do the others.
UPDATE bots SET token = :after WHERE bot_id = :bot AND token = :before

-- name: change_key
UPDATE keys SET webhook_secret = :after WHERE digest = :digest AND webhook_secret = :before

-- name: change_consumer
UPDATE consumers SET secret = :after WHERE bot_id = :bot AND name = :name AND secret = :before

-- name: change_secret
UPDATE secrets SET value = :after WHERE name = :name AND value = :before

-- name: make_secret
INSERT INTO secrets (name, value) VALUES (:name, :after) ON CONFLICT (name) DO NOTHING

-- name: drop_secret
DELETE FROM secrets WHERE name = :name AND value = :before
