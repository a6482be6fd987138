-- What is secret in the store, as it is stored, with the place that it belongs to: see `peik.secrets.seals`.

-- name: bots
SELECT 'bot:' || bot_id, token FROM bots ORDER BY bot_id

-- name: keys
-- Of revoked ones, too: letters that they brought may still have to be told to their webhooks.
SELECT 'key:' || lower(hex(digest)), webhook_secret FROM keys WHERE webhook_secret IS NOT NULL ORDER BY id

-- name: consumers
SELECT 'consumer:' || bot_id || '@' || name, secret FROM consumers WHERE secret IS NOT NULL ORDER BY id

-- name: secrets
SELECT 'secret:' || name, value FROM secrets ORDER BY name

-- name: change_bot
-- Only what is still as it was read: somebody may have given the bot a new token since. So do the others.
UPDATE bots SET token = ? WHERE bot_id = ? AND token = ?

-- name: change_key
UPDATE keys SET webhook_secret = ? WHERE digest = ? AND webhook_secret = ?

-- name: change_consumer
UPDATE consumers SET secret = ? WHERE bot_id = ? AND name = ? AND secret = ?

-- name: change_secret
UPDATE secrets SET value = ? WHERE name = ? AND value = ?

-- name: make_secret
INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING

-- name: drop_secret
DELETE FROM secrets WHERE name = ? AND value = ?
