-- Programs that keep one row about their bot ask for it by `id`: bots are numbered as they were added, from 1. And what somebody
-- wrote is called `message_text` where a bot had a table of its own, whose rows it may still save by hand: such a row is a paper,
-- and its id is below 0 (peik/integrations/mtproto.py). Replaced, not dropped: rights and views of others stay.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE VIEW bot_state AS
SELECT
    i.bot_id,
    i.last_update_id,
    i.epoch,
    to_timestamp(i.started_at / 1000.0) AS last_startup,
    to_timestamp(i.seen_at / 1000.0) AS last_seen,
    to_timestamp(i.updated_at / 1000.0) AS updated_at,
    row_number() OVER (ORDER BY b.created_at NULLS LAST, i.bot_id) AS id
FROM inboxes AS i
LEFT JOIN bots AS b ON b.bot_id = i.bot_id;

CREATE OR REPLACE VIEW pending_messages AS
SELECT
    a.id,
    a.bot_id,
    a.update_id,
    a.user_id,
    ltrim(a.lane, '''') AS chat_id,
    a.message_id,
    text_in(a.payload, a.type) AS text,
    a.type AS message_type,
    CASE
        WHEN d.phase = 3 THEN 'failed'
        WHEN a.number <= c.watermark THEN 'completed'
        WHEN EXISTS (
            SELECT 1 FROM spans AS s WHERE s.consumer_id = c.id AND s.first <= a.number AND s.last >= a.number
        ) THEN 'completed'
        ELSE 'pending'
    END AS status,
    to_timestamp(coalesce(a.sent_at, a.received_at) / 1000.0) AS created_at,
    to_timestamp(a.received_at / 1000.0) AS received_at,
    text_in(a.payload, a.type) AS message_text
FROM arrivals AS a
JOIN consumers AS c ON c.bot_id = a.bot_id AND c.name = 'default'
LEFT JOIN deliveries AS d ON d.consumer_id = c.id AND d.number = a.number
WHERE a.only_for IN (0, c.id)
UNION ALL
SELECT
    -left(key, 14)::bigint,
    (body::json ->> 'bot_id')::bigint,
    NULL,
    (body::json ->> 'user_id')::bigint,
    body::json ->> 'chat_id',
    NULL,
    body::json ->> 'message_text',
    body::json ->> 'message_type',
    'pending',
    to_timestamp((body::json ->> 'created_at_ms')::bigint / 1000.0),
    to_timestamp((body::json ->> 'created_at_ms')::bigint / 1000.0),
    body::json ->> 'message_text'
FROM papers
WHERE shelf >= 'pending_messages:' AND shelf < 'pending_messages;';
