-- The message log keeps what a message said, and whoever reads the database finds it in the view.
ALTER TABLE message_log ADD COLUMN text text;

-- What a call says: its text, or its caption. No parameters break a query.
CREATE FUNCTION text_in(params text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN coalesce(params::json ->> 'text', params::json ->> 'caption');
EXCEPTION WHEN others THEN
    RETURN NULL;
END
$$;

-- As before, with the text at its end.
CREATE OR REPLACE VIEW telegram_message_logs AS
SELECT
    l.id,
    l.bot_id,
    ltrim(l.chat, '''') AS chat_id,
    l.user_id,
    l.message_type,
    l.method,
    CASE
        WHEN m.letter_id IS NOT NULL THEN 'active'
        WHEN l.phase = 0 AND (l.due_at IS NULL OR l.due_at <= extract(epoch FROM clock_timestamp()) * 1000) THEN 'waiting'
        WHEN l.phase < 2 THEN 'delayed'
        WHEN l.phase = 2 THEN 'completed'
        WHEN l.phase = 3 THEN 'failed'
        ELSE 'cancelled'
    END AS status,
    greatest(l.attempts_made, 0) AS attempts,
    l.failed_reason AS error,
    message_id_in(r.result) AS message_id,
    to_timestamp(l.created_at / 1000.0) AS created_at,
    to_timestamp(l.settled_at / 1000.0) AS finished_at,
    text_in(l.params) AS text
FROM letters AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
UNION ALL
SELECT
    id, bot_id, ltrim(chat_id, ''''), user_id, message_type, method, status, attempts, error, message_id,
    to_timestamp(created_at / 1000.0), to_timestamp(finished_at / 1000.0), text
FROM message_log;
