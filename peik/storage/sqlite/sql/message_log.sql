-- The message log in a file of its own, for a store without SQL. Times are milliseconds here and words in the view.

-- name: make
CREATE TABLE IF NOT EXISTS message_log_lines (
    id            INTEGER PRIMARY KEY,
    bot_id        INTEGER NOT NULL,
    chat_id       ,
    user_id       TEXT,
    message_type  TEXT,
    method        TEXT NOT NULL,
    status        TEXT NOT NULL,
    attempts      INTEGER NOT NULL,
    error         TEXT,
    message_id    INTEGER,
    text          TEXT,
    created_at    INTEGER NOT NULL,
    finished_at   INTEGER,
    seen_at       INTEGER NOT NULL  -- when the store was read
);
CREATE INDEX IF NOT EXISTS message_log_lines_age ON message_log_lines (created_at);
-- What is asked for most: failed ones, the newest first.
CREATE INDEX IF NOT EXISTS message_log_lines_status ON message_log_lines (status, created_at);
CREATE TABLE IF NOT EXISTS message_log_progress (copied_to INTEGER NOT NULL);
INSERT INTO message_log_progress SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM message_log_progress);
CREATE VIEW IF NOT EXISTS telegram_message_logs AS
SELECT
    id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch') AS finished_at,
    text
FROM message_log_lines;

-- name: put
INSERT INTO message_log_lines (id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, text, created_at, finished_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    chat_id = excluded.chat_id, status = excluded.status, attempts = excluded.attempts, error = excluded.error,
    message_id = excluded.message_id, text = excluded.text, finished_at = excluded.finished_at, seen_at = excluded.seen_at
WHERE excluded.seen_at >= message_log_lines.seen_at

-- name: unended
SELECT created_at, id FROM message_log_lines
WHERE status IN ('waiting', 'delayed', 'active') AND id > ? ORDER BY id LIMIT ?

-- name: copied_to
SELECT copied_to FROM message_log_progress

-- name: save_copied_to
UPDATE message_log_progress SET copied_to = ?

-- name: clean
DELETE FROM message_log_lines WHERE created_at < ?

-- name: logged
SELECT id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, text, created_at, finished_at FROM message_log_lines WHERE id > ? ORDER BY id LIMIT ?

-- name: drop_logged
DELETE FROM message_log_lines WHERE id IN (SELECT value FROM json_each(?))
