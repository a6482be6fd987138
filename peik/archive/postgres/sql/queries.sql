-- What is asked of the archive. {places} are filled with other pieces of this file; {…_columns} are the fields of a record.

-- name: settle_in
-- A commit is on the disk when it returns, whatever the server's own default; one that waits for a standby as well stays so.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> 'remote_apply'

-- name: promises
SELECT name, reset_val FROM pg_settings WHERE name IN ('fsync', 'full_page_writes')

-- name: encoding
SELECT current_setting('server_encoding')

-- name: lock_schema
-- Two nodes that start at once make the schema one after the other. The lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtext('peik archive ' || :schema::text))

-- name: has_schema
SELECT EXISTS (SELECT 1 FROM pg_namespace AS n WHERE n.nspname = :schema)

-- name: is_empty
SELECT NOT EXISTS (
    SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = :schema
)

-- name: is_ours
SELECT EXISTS (
    SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = 'archive_schema'
)

-- name: schema_version
SELECT coalesce(max(version), 0) FROM archive_schema

-- name: note_schema_version
INSERT INTO archive_schema (version) VALUES (:version)

-- name: session
SELECT * FROM telegram_sessions WHERE session_id = :session_id

-- name: session_by_phone
SELECT * FROM telegram_sessions WHERE phone = :phone ORDER BY created_at_ms DESC, session_id DESC LIMIT 1

-- name: sessions
SELECT * FROM telegram_sessions WHERE session_id > :after {where} ORDER BY session_id LIMIT :limit

-- name: sessions_of_agent
AND agent_id = :agent_id

-- name: sessions_in_states
AND state = ANY (:states::text[])

-- name: sessions_active
AND is_active = :is_active

-- name: add_session
INSERT INTO telegram_sessions VALUES (
    :session_id, :agent_id, :phone, :user_id, :username, :state, :state_reason, :state_until_ms, :is_connected, :is_active,
    :secret, :file, :proxy, :metadata, :version, :created_at_ms, :updated_at_ms, :active_at_ms
)

-- name: over_session
ON CONFLICT (session_id) DO UPDATE SET
    agent_id = excluded.agent_id, phone = excluded.phone, user_id = excluded.user_id, username = excluded.username,
    state = excluded.state, state_reason = excluded.state_reason, state_until_ms = excluded.state_until_ms,
    is_connected = excluded.is_connected, is_active = excluded.is_active, secret = excluded.secret, file = excluded.file,
    proxy = excluded.proxy, metadata = excluded.metadata, version = excluded.version,
    created_at_ms = excluded.created_at_ms, updated_at_ms = excluded.updated_at_ms, active_at_ms = excluded.active_at_ms

-- name: save_session
-- Only over the version that its writer saw.
UPDATE telegram_sessions SET
    agent_id = :agent_id, phone = :phone, user_id = :user_id, username = :username, state = :state,
    state_reason = :state_reason, state_until_ms = :state_until_ms, is_connected = :is_connected, is_active = :is_active,
    secret = :secret, file = :file, proxy = :proxy, metadata = :metadata, version = :version,
    created_at_ms = :created_at_ms, updated_at_ms = :updated_at_ms, active_at_ms = :active_at_ms
WHERE session_id = :session_id AND version = :version - 1

-- name: remove_session
DELETE FROM telegram_sessions WHERE session_id = :session_id

-- name: remove_updates_states
DELETE FROM updates_states WHERE session_id = ANY (:session_ids::text[])

-- name: remove_old_sessions
DELETE FROM telegram_sessions
WHERE greatest(active_at_ms, updated_at_ms, created_at_ms) < :before_ms
  AND (NOT is_active OR state = ANY (:states::text[]))
RETURNING session_id

-- name: save_updates_state
INSERT INTO updates_states VALUES (:session_id, :state) ON CONFLICT (session_id) DO UPDATE SET state = excluded.state

-- name: updates_state
SELECT state FROM updates_states WHERE session_id = :session_id

-- name: add_messages
-- What is here already stays as it is. Rows come in the order of their keys, so that two writers never wait for each other.
INSERT INTO messages (
    session_id, agent_id, chat_id, message_id, direction, sender_id, date_ms, edited_at_ms, kind, text, reply_to, grouped_id,
    media, raw, letter_id, deleted_at_ms, created_at_ms, words
)
SELECT
    n.session_id, n.agent_id, n.chat_id, n.message_id, n.direction, n.sender_id, n.date_ms, n.edited_at_ms, n.kind, n.text,
    n.reply_to, n.grouped_id, n.media, n.raw, n.letter_id, n.deleted_at_ms, n.created_at_ms,
    array_to_tsvector(string_to_array(n.words, ' '))
FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[],
    $10::text[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::bigint[], $16::bigint[], $17::bigint[],
    $18::text[]
) AS n (
    session_id, agent_id, chat_id, message_id, direction, sender_id, date_ms, edited_at_ms, kind, text, reply_to, grouped_id,
    media, raw, letter_id, deleted_at_ms, created_at_ms, words
)
ON CONFLICT (session_id, chat_id, message_id) DO NOTHING
RETURNING session_id, chat_id, message_id

-- name: lock_messages
-- Those that are here, until we have decided what becomes of them; in the order of their keys, for the same reason.
SELECT {message_columns} FROM messages AS m
WHERE (session_id, chat_id, message_id) IN (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]))
ORDER BY session_id, chat_id, message_id
FOR UPDATE

-- name: replace_message
UPDATE messages SET
    agent_id = :agent_id, direction = :direction, sender_id = :sender_id, date_ms = :date_ms, edited_at_ms = :edited_at_ms,
    kind = :kind, text = :text, reply_to = :reply_to, grouped_id = :grouped_id, media = :media, raw = :raw,
    letter_id = :letter_id, deleted_at_ms = :deleted_at_ms, created_at_ms = :created_at_ms,
    words = array_to_tsvector(string_to_array(:words, ' '))
WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = :message_id

-- name: add_versions
INSERT INTO message_versions
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[])
ON CONFLICT (session_id, chat_id, message_id, edited_at_ms) {over}
RETURNING session_id, chat_id, message_id, edited_at_ms

-- name: leave_it
DO NOTHING

-- name: over_version
DO UPDATE SET agent_id = excluded.agent_id, sender_id = excluded.sender_id, record = excluded.record

-- name: mark_deleted
UPDATE messages SET deleted_at_ms = coalesce(deleted_at_ms, :at_ms)
WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = ANY (:message_ids::bigint[])

-- name: mark_deleted_anywhere
UPDATE messages SET deleted_at_ms = coalesce(deleted_at_ms, :at_ms)
WHERE session_id = :session_id AND chat_id > -1000000000000 AND message_id = ANY (:message_ids::bigint[])

-- name: messages
SELECT id, {message_columns} FROM messages WHERE TRUE {where} ORDER BY {order} LIMIT :limit

-- name: by_date
date_ms DESC, id DESC

-- name: by_date_of_few
-- The sum keeps the planner from walking all messages by date while it waits for one that fits.
date_ms + 0 DESC, id DESC

-- name: how_common
SELECT how_common(:words::text::tsquery, :bound)

-- name: count_messages
SELECT count(*) FROM messages WHERE TRUE {where}

-- name: before
AND (date_ms, id) < (:cursor_ms, :cursor_id)

-- name: since_ms
AND date_ms >= :since_ms

-- name: until_ms
AND date_ms < :until_ms

-- name: session_id
AND session_id = :session_id

-- name: agent_id
AND agent_id = :agent_id

-- name: chat_id
AND chat_id = :chat_id

-- name: sender_id
AND sender_id = :sender_id

-- name: direction
AND direction = :direction

-- name: kind
AND kind = :kind

-- name: deleted
AND deleted_at_ms IS NOT NULL

-- name: not_deleted
AND deleted_at_ms IS NULL

-- name: with_words
AND words @@ :words::text::tsquery

-- name: nothing
AND FALSE

-- name: message
SELECT {message_columns} FROM messages WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = :message_id

-- name: versions
SELECT record FROM message_versions
WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = :message_id
ORDER BY edited_at_ms

-- name: add_events
INSERT INTO events (event_id, session_id, agent_id, event_type, chat_id, user_id, payload, created_at_ms)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[]
)
ON CONFLICT (event_id) {over}
RETURNING event_id

-- name: over_event
DO UPDATE SET
    session_id = excluded.session_id, agent_id = excluded.agent_id, event_type = excluded.event_type,
    chat_id = excluded.chat_id, user_id = excluded.user_id, payload = excluded.payload,
    created_at_ms = excluded.created_at_ms

-- name: events
SELECT * FROM events WHERE TRUE {where} ORDER BY created_at_ms DESC, id DESC LIMIT :limit

-- name: events_before
AND (created_at_ms, id) < (:cursor_ms, :cursor_id)

-- name: event_type
AND event_type = :event_type

-- name: events_since_ms
AND created_at_ms >= :since_ms

-- name: events_until_ms
AND created_at_ms < :until_ms

-- name: lock_end
SELECT last FROM feed_ends WHERE session_id = :session_id FOR UPDATE

-- name: begin_feed
INSERT INTO feed_ends VALUES (:session_id, 1, 0) ON CONFLICT (session_id) DO NOTHING

-- name: add_lines
-- The end is locked: what others have told is seen here, and nobody adds to it meanwhile. How many were new.
WITH new AS (
    INSERT INTO feed (session_id, agent_id, number, key, kind, chat_id, user_id, body, at_ms)
    SELECT
        e.session_id, n.agent_id, e.last + row_number() OVER (ORDER BY n.place), n.key, n.kind, n.chat_id, n.user_id, n.body,
        n.at_ms
    FROM feed_ends AS e, unnest(
        $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[]
    ) WITH ORDINALITY AS n (agent_id, key, kind, chat_id, user_id, body, at_ms, place)
    WHERE e.session_id = $1 AND NOT EXISTS (SELECT 1 FROM feed AS f WHERE f.session_id = $1 AND f.key = n.key)
    RETURNING 1
), moved AS (
    UPDATE feed_ends SET last = last + (SELECT count(*) FROM new)
    WHERE session_id = $1 AND EXISTS (SELECT 1 FROM new)
)
SELECT count(*) FROM new

-- name: put_lines
INSERT INTO feed
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[]
)
ON CONFLICT (session_id, number) DO UPDATE SET
    agent_id = excluded.agent_id, key = excluded.key, kind = excluded.kind, chat_id = excluded.chat_id,
    user_id = excluded.user_id, body = excluded.body, at_ms = excluded.at_ms

-- name: fed
SELECT {line_columns} FROM feed WHERE session_id = :session_id AND number > :after ORDER BY number LIMIT :limit

-- name: fed_to
SELECT session_id, first, last FROM feed_ends

-- name: fed_to_of_some
SELECT session_id, first, last FROM feed_ends WHERE session_id = ANY (:session_ids::text[])

-- name: lock_ends
-- In the order of their ids, so that two never wait for each other.
SELECT session_id FROM feed_ends WHERE session_id IN ({which}) ORDER BY session_id FOR UPDATE

-- name: raise_ends
INSERT INTO feed_ends SELECT n.session_id, n.last + 1, n.last FROM unnest($1::text[], $2::bigint[]) AS n (session_id, last)
ON CONFLICT (session_id) DO UPDATE SET last = greatest(feed_ends.last, excluded.last)

-- name: settle_firsts
-- After lines have gone, or were put. The ends are locked.
UPDATE feed_ends AS e SET first = coalesce((SELECT min(f.number) FROM feed AS f WHERE f.session_id = e.session_id), e.last + 1)
WHERE e.session_id = ANY (:session_ids::text[])

-- name: with_old_lines
SELECT o.session_id FROM (SELECT f.session_id FROM feed AS f WHERE f.at_ms < :before_ms ORDER BY f.at_ms LIMIT :limit) AS o

-- name: remove_old_lines
DELETE FROM feed WHERE (session_id, number) IN (
    SELECT session_id, number FROM feed
    WHERE at_ms < :before_ms AND session_id = ANY (:session_ids::text[])
    ORDER BY at_ms, session_id, number LIMIT :limit
)

-- name: with_lines_of
SELECT f.session_id FROM feed AS f WHERE f.user_id = :user_id OR f.chat_id = :user_id

-- name: forget_lines
DELETE FROM feed WHERE (user_id = :user_id OR chat_id = :user_id) AND session_id = ANY (:session_ids::text[])

-- name: places
SELECT session_id, number FROM reader_places WHERE reader = :reader

-- name: save_places
-- Rows come in the order of their ids. The same place again: its reader is alive.
INSERT INTO reader_places AS p SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (reader, session_id) DO UPDATE SET number = excluded.number, at_ms = greatest(p.at_ms, excluded.at_ms)
WHERE excluded.number >= p.number

-- name: put_places
INSERT INTO reader_places SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (reader, session_id) DO UPDATE SET number = excluded.number, at_ms = excluded.at_ms

-- name: remove_reader
DELETE FROM reader_places WHERE reader = :reader

-- name: remove_old_places
DELETE FROM reader_places WHERE at_ms < :before_ms AND (reader, session_id) IN (
    SELECT reader, session_id FROM reader_places WHERE at_ms < :before_ms LIMIT :limit FOR UPDATE SKIP LOCKED
)

-- name: add_logs
-- In the order in which they come: their ids tell those of one millisecond apart.
INSERT INTO logs (digest, at_ms, level, event, node, session_id, bot_id, fields, folded)
SELECT n.digest, n.at_ms, n.level, n.event, n.node, n.session_id, n.bot_id, n.fields, n.folded
FROM unnest(
    $1::bytea[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[]
) WITH ORDINALITY AS n (digest, at_ms, level, event, node, session_id, bot_id, fields, folded, place)
ORDER BY n.place
ON CONFLICT (digest) DO NOTHING

-- name: logs
SELECT id, {log_columns} FROM logs WHERE TRUE {where} ORDER BY at_ms DESC, id DESC LIMIT :limit

-- name: logs_before
AND (at_ms, id) < (:cursor_ms, :cursor_id)

-- name: logs_event
AND event = :event

-- name: logs_session_id
AND session_id = :session_id

-- name: logs_bot_id
AND bot_id = :bot_id

-- name: logs_since_ms
AND at_ms >= :since_ms

-- name: logs_until_ms
AND at_ms < :until_ms

-- name: logs_from_debug
-- All of them.

-- name: logs_from_info
AND level IN ('info', 'warning', 'error')

-- name: logs_from_warning
-- Levels stand here as words, so that the planner sees the index of trouble.
AND level IN ('warning', 'error')

-- name: logs_from_error
AND level = 'error'

-- name: logs_text
-- Line by line.
AND strpos(folded, :text) > 0

-- name: remove_old_logs
DELETE FROM logs WHERE id IN (SELECT id FROM logs WHERE at_ms < :before_ms ORDER BY at_ms, id LIMIT :limit)

-- name: message_ids
SELECT message_id FROM messages
WHERE session_id = :session_id AND chat_id = :chat_id AND message_id > :above
ORDER BY message_id LIMIT :limit

-- name: chat_states
SELECT * FROM chat_states WHERE session_id = :session_id ORDER BY chat_id

-- name: save_chat_state
INSERT INTO chat_states VALUES (
    :session_id, :chat_id, :title, :newest_id, :crawled_to, :crawl_until_ms, :crawled, :checked_to, :access, :updated_at_ms
)
ON CONFLICT (session_id, chat_id) DO UPDATE SET
    title = excluded.title, newest_id = excluded.newest_id, crawled_to = excluded.crawled_to,
    crawl_until_ms = excluded.crawl_until_ms, crawled = excluded.crawled, checked_to = excluded.checked_to,
    access = excluded.access, updated_at_ms = excluded.updated_at_ms

-- name: members_now
SELECT * FROM members
WHERE session_id = :session_id AND chat_id = :chat_id AND user_id > :after AND until_ms IS NULL ORDER BY user_id LIMIT :limit

-- name: members_at
SELECT * FROM members
WHERE session_id = :session_id AND chat_id = :chat_id AND user_id > :after
    AND since_ms <= :at_ms AND (until_ms IS NULL OR until_ms > :at_ms)
ORDER BY user_id LIMIT :limit

-- name: save_members
-- Rows come in the order of their keys.
INSERT INTO members SELECT * FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[]
)
ON CONFLICT (session_id, chat_id, user_id, since_ms) DO UPDATE SET
    until_ms = excluded.until_ms, name = excluded.name, username = excluded.username, role = excluded.role

-- name: tally
SELECT
    (SELECT count(*) FROM telegram_sessions), (SELECT count(*) FROM messages),
    (SELECT count(*) FROM message_versions), (SELECT count(*) FROM events)

-- name: tally_of_agent
SELECT
    (SELECT count(*) FROM telegram_sessions WHERE agent_id = :agent_id),
    (SELECT count(*) FROM messages WHERE agent_id = :agent_id),
    (SELECT count(*) FROM message_versions WHERE agent_id = :agent_id),
    (SELECT count(*) FROM events WHERE agent_id = :agent_id)

-- name: remove_messages
-- With their versions.
WITH gone AS (
    DELETE FROM messages WHERE id IN ({which}) RETURNING session_id, chat_id, message_id
), aside AS (
    DELETE FROM message_versions AS v USING gone AS g
    WHERE v.session_id = g.session_id AND v.chat_id = g.chat_id AND v.message_id = g.message_id
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM aside)

-- name: old_messages
SELECT id FROM messages WHERE created_at_ms < :before_ms ORDER BY created_at_ms LIMIT :limit

-- name: messages_of_sender
SELECT id FROM messages WHERE sender_id = :user_id OR chat_id = :user_id LIMIT :limit

-- name: remove_old_events
DELETE FROM events WHERE id IN (SELECT id FROM events WHERE created_at_ms < :before_ms ORDER BY created_at_ms, id LIMIT :limit)

-- name: remove_old_members
DELETE FROM members WHERE (session_id, chat_id, user_id, since_ms) IN (
    SELECT session_id, chat_id, user_id, since_ms FROM members WHERE until_ms < :before_ms ORDER BY until_ms LIMIT :limit
)

-- name: forget_members
DELETE FROM members WHERE user_id = :user_id

-- name: forget_versions
DELETE FROM message_versions WHERE sender_id = :user_id OR chat_id = :user_id

-- name: forget_events
DELETE FROM events WHERE user_id = :user_id OR chat_id = :user_id

-- name: forget_chat_states
DELETE FROM chat_states WHERE chat_id = :user_id

-- name: count_person
SELECT
    (SELECT count(*) FROM messages WHERE sender_id = :user_id OR chat_id = :user_id),
    (SELECT count(*) FROM message_versions WHERE sender_id = :user_id OR chat_id = :user_id),
    (SELECT count(*) FROM events WHERE user_id = :user_id OR chat_id = :user_id),
    (SELECT count(*) FROM chat_states WHERE chat_id = :user_id),
    (SELECT count(*) FROM members WHERE user_id = :user_id),
    (SELECT count(*) FROM feed WHERE user_id = :user_id OR chat_id = :user_id)

-- name: drop_logs
DELETE FROM logs WHERE digest = ANY ($1::bytea[]) RETURNING 1

-- name: page_sessions
SELECT * FROM telegram_sessions WHERE session_id > :after ORDER BY session_id LIMIT :limit

-- name: page_updates_states
SELECT * FROM updates_states WHERE session_id > :after ORDER BY session_id LIMIT :limit

-- name: page_chat_states
SELECT * FROM chat_states WHERE (session_id, chat_id) > (:session_id, :chat_id) ORDER BY session_id, chat_id LIMIT :limit

-- name: page_members
SELECT * FROM members WHERE (session_id, chat_id, user_id, since_ms) > (:session_id, :chat_id, :user_id, :since_ms)
ORDER BY session_id, chat_id, user_id, since_ms LIMIT :limit

-- name: page_messages
SELECT id, {message_columns} FROM messages WHERE id > :after ORDER BY id LIMIT :limit

-- name: page_versions
SELECT record FROM message_versions
WHERE (session_id, chat_id, message_id, edited_at_ms) > (:session_id, :chat_id, :message_id, :edited_at_ms)
ORDER BY session_id, chat_id, message_id, edited_at_ms LIMIT :limit

-- name: page_events
SELECT * FROM events WHERE id > :after ORDER BY id LIMIT :limit

-- name: page_feed
SELECT {line_columns} FROM feed WHERE (session_id, number) > (:session_id, :number) ORDER BY session_id, number LIMIT :limit

-- name: page_places
-- Among them the ends of feeds, as places of nobody: see `is_end` in rules.py.
SELECT p.reader, p.session_id, p.number, p.at_ms FROM (
    SELECT reader, session_id, number, at_ms FROM reader_places
    UNION ALL
    SELECT '' COLLATE "C", session_id, last, 0 FROM feed_ends
) AS p (reader, session_id, number, at_ms)
WHERE (p.reader, p.session_id) > (:reader, :session_id) ORDER BY p.reader, p.session_id LIMIT :limit

-- name: page_logs
SELECT id, {log_columns} FROM logs WHERE id > :after ORDER BY id LIMIT :limit

-- name: note_progress
INSERT INTO copying VALUES (1, :progress) ON CONFLICT (place) DO UPDATE SET progress = excluded.progress

-- name: progress
SELECT progress FROM copying
