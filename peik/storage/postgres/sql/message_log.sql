-- The message log in a database of its own, for a store without SQL. Times are milliseconds here and words in the view.

-- name: lock
-- Two nodes that start at once make the table once.
SELECT pg_advisory_xact_lock(hashtext('peik message log'))

-- name: make
CREATE TABLE IF NOT EXISTS message_log_lines (
    id            bigint PRIMARY KEY,
    bot_id        bigint NOT NULL,
    chat_id       text,
    user_id       text,
    message_type  text,
    method        text NOT NULL,
    status        text NOT NULL,
    attempts      integer NOT NULL,
    error         text,
    message_id    bigint,
    text          text,
    created_at    bigint NOT NULL,
    finished_at   bigint,
    seen_at       bigint NOT NULL  -- when the store was read
);
CREATE INDEX IF NOT EXISTS message_log_lines_age ON message_log_lines (created_at);
-- What is asked for most: failed ones, the newest first.
CREATE INDEX IF NOT EXISTS message_log_lines_status ON message_log_lines (status, created_at);
CREATE TABLE IF NOT EXISTS message_log_progress (copied_to bigint NOT NULL);
INSERT INTO message_log_progress SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM message_log_progress);
CREATE OR REPLACE VIEW telegram_message_logs AS
SELECT
    id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id,
    to_timestamp(created_at / 1000.0) AS created_at,
    to_timestamp(finished_at / 1000.0) AS finished_at,
    text
FROM message_log_lines

-- name: put
INSERT INTO message_log_lines (id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, text, created_at, finished_at, seen_at)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::text[],
    $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[]
)
ON CONFLICT (id) DO UPDATE SET
    chat_id = excluded.chat_id, status = excluded.status, attempts = excluded.attempts, error = excluded.error,
    message_id = excluded.message_id, text = excluded.text, finished_at = excluded.finished_at, seen_at = excluded.seen_at
WHERE excluded.seen_at >= message_log_lines.seen_at

-- name: unended
SELECT created_at, id FROM message_log_lines
WHERE status IN ('waiting', 'delayed', 'active') AND id > $1 ORDER BY id LIMIT $2

-- name: copied_to
SELECT copied_to FROM message_log_progress

-- name: save_copied_to
UPDATE message_log_progress SET copied_to = $1

-- name: clean
DELETE FROM message_log_lines WHERE created_at < $1

-- name: logged
SELECT id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, text, created_at, finished_at FROM message_log_lines WHERE id > $1 ORDER BY id LIMIT $2

-- name: drop_logged
DELETE FROM message_log_lines WHERE id = ANY ($1::bigint[]) RETURNING id
