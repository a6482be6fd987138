-- Programs that keep one row about their bot ask for it by `id`: bots are numbered as they were added, from 1. And what somebody
-- wrote is called `message_text` where a bot had a table of its own, whose rows it may still save by hand: such a row is a paper,
-- and its id is below 0 (peik/integrations/mtproto.py). SQLite has no CREATE OR REPLACE VIEW.
DROP VIEW bot_state;
CREATE VIEW bot_state AS
SELECT
    i.bot_id,
    i.last_update_id,
    i.epoch,
    strftime('%Y-%m-%dT%H:%M:%fZ', i.started_at / 1000.0, 'unixepoch') AS last_startup,
    strftime('%Y-%m-%dT%H:%M:%fZ', i.seen_at / 1000.0, 'unixepoch') AS last_seen,
    strftime('%Y-%m-%dT%H:%M:%fZ', i.updated_at / 1000.0, 'unixepoch') AS updated_at,
    row_number() OVER (ORDER BY b.created_at IS NULL, b.created_at, i.bot_id) AS id
FROM inboxes AS i
LEFT JOIN bots AS b ON b.bot_id = i.bot_id;

DROP VIEW pending_messages;
CREATE VIEW pending_messages AS
SELECT p.*, p.text AS message_text
FROM (
    SELECT
        a.id,
        a.bot_id,
        a.update_id,
        a.user_id,
        a.lane AS chat_id,
        a.message_id,
        -- A type that no Bot API has yet may be written in any way; it must not spoil the whole answer.
        CASE WHEN a.type GLOB '[a-z]*' AND a.type NOT GLOB '*[^a-z0-9_]*' AND json_valid(a.payload) THEN coalesce(
            json_extract(a.payload, '$.' || a.type || '.text'),
            json_extract(a.payload, '$.' || a.type || '.caption'),
            json_extract(a.payload, '$.' || a.type || '.data')
        ) END AS text,
        a.type AS message_type,
        CASE
            WHEN d.phase = 3 THEN 'failed'
            WHEN a.number <= c.watermark THEN 'completed'
            WHEN EXISTS (
                SELECT 1 FROM spans AS s WHERE s.consumer_id = c.id AND s.first <= a.number AND s.last >= a.number
            ) THEN 'completed'
            ELSE 'pending'
        END AS status,
        strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(a.sent_at, a.received_at) / 1000.0, 'unixepoch') AS created_at,
        strftime('%Y-%m-%dT%H:%M:%fZ', a.received_at / 1000.0, 'unixepoch') AS received_at
    FROM arrivals AS a
    JOIN consumers AS c ON c.bot_id = a.bot_id AND c.name = 'default'
    LEFT JOIN deliveries AS d ON d.consumer_id = c.id AND d.number = a.number
    WHERE a.only_for IN (0, c.id)
) AS p
UNION ALL
SELECT
    -CAST(substr(key, 1, 14) AS INTEGER),
    json_extract(body, '$.bot_id'),
    NULL,
    json_extract(body, '$.user_id'),
    json_extract(body, '$.chat_id'),
    NULL,
    json_extract(body, '$.message_text'),
    json_extract(body, '$.message_type'),
    'pending',
    strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(body, '$.created_at_ms') / 1000.0, 'unixepoch'),
    strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(body, '$.created_at_ms') / 1000.0, 'unixepoch'),
    json_extract(body, '$.message_text')
FROM papers
WHERE shelf >= 'pending_messages:' AND shelf < 'pending_messages;';
