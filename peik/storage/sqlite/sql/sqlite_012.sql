-- The message log keeps what a message said, and whoever reads the file finds it in the view.
ALTER TABLE message_log ADD COLUMN text TEXT;

-- As before, and with the text or caption. It keeps to what SQLite 3.37 knows: other programs read it with theirs.
DROP VIEW telegram_message_logs;
CREATE VIEW telegram_message_logs AS
SELECT
    l.id,
    l.bot_id,
    l.chat AS chat_id,
    l.user_id,
    l.message_type,
    l.method,
    CASE
        WHEN m.letter_id IS NOT NULL THEN 'active'
        WHEN l.phase = 0 AND (l.due_at IS NULL OR l.due_at <= (julianday('now') - 2440587.5) * 86400000) THEN 'waiting'
        WHEN l.phase < 2 THEN 'delayed'
        WHEN l.phase = 2 THEN 'completed'
        WHEN l.phase = 3 THEN 'failed'
        ELSE 'cancelled'
    END AS status,
    max(l.attempts_made, 0) AS attempts,
    l.failed_reason AS error,
    CASE
        WHEN json_valid(r.result) THEN coalesce(json_extract(r.result, '$.message_id'), json_extract(r.result, '$[0].message_id'))
    END AS message_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.settled_at / 1000.0, 'unixepoch') AS finished_at,
    CASE
        WHEN json_valid(l.params) THEN coalesce(json_extract(l.params, '$.text'), json_extract(l.params, '$.caption'))
    END AS text
FROM letters AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
UNION ALL
SELECT
    id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch'),
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch'),
    text
FROM message_log;
