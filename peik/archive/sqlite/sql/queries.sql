-- What is asked of the archive. {places} are filled with other pieces of this file; {…_columns} are the fields of a record.

-- name: session
SELECT * FROM telegram_sessions WHERE session_id = :session_id

-- name: session_by_phone
SELECT * FROM telegram_sessions WHERE phone = :phone ORDER BY created_at_ms DESC, session_id DESC LIMIT 1

-- name: sessions
SELECT * FROM telegram_sessions WHERE session_id > :after {where} ORDER BY session_id LIMIT :limit

-- name: sessions_of_agent
AND agent_id = :agent_id

-- name: sessions_in_states
AND state IN (SELECT value FROM json_each(:states))

-- name: sessions_active
AND is_active = :is_active

-- name: add_session
INSERT INTO telegram_sessions VALUES (
    :session_id, :agent_id, :phone, :user_id, :username, :state, :state_reason, :state_until_ms, :is_connected, :is_active,
    :secret, :file, :proxy, :metadata, :version, :created_at_ms, :updated_at_ms, :active_at_ms
)

-- name: put_session
INSERT OR REPLACE INTO telegram_sessions VALUES (
    :session_id, :agent_id, :phone, :user_id, :username, :state, :state_reason, :state_until_ms, :is_connected, :is_active,
    :secret, :file, :proxy, :metadata, :version, :created_at_ms, :updated_at_ms, :active_at_ms
)

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
DELETE FROM updates_states WHERE session_id IN (SELECT value FROM json_each(:session_ids))

-- name: remove_old_sessions
DELETE FROM telegram_sessions
WHERE max(coalesce(active_at_ms, 0), updated_at_ms, created_at_ms) < :before_ms
  AND (NOT is_active OR state IN (SELECT value FROM json_each(:states)))
RETURNING session_id

-- name: save_updates_state
INSERT INTO updates_states VALUES (:session_id, :state) ON CONFLICT DO UPDATE SET state = excluded.state

-- name: updates_state
SELECT state FROM updates_states WHERE session_id = :session_id

-- name: known_messages
-- CROSS: the keys are looked up in the index, one by one.
SELECT m.session_id, m.chat_id, m.message_id FROM json_each(:keys) AS k CROSS JOIN messages AS m
WHERE m.session_id = k.value ->> 0 AND m.chat_id = k.value ->> 1 AND m.message_id = k.value ->> 2

-- name: messages_by_keys
SELECT {message_columns} FROM messages
WHERE (session_id, chat_id, message_id) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:keys))

-- name: highest_message
SELECT coalesce(max(id), 0) FROM messages

-- name: add_message
INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_words
INSERT INTO message_words (rowid, words) VALUES (?, ?)

-- name: remove_words
DELETE FROM message_words WHERE rowid = :id

-- name: id_of_message
SELECT id FROM messages WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = :message_id

-- name: replace_message
UPDATE messages SET
    agent_id = :agent_id, direction = :direction, sender_id = :sender_id, date_ms = :date_ms, edited_at_ms = :edited_at_ms,
    kind = :kind, text = :text, reply_to = :reply_to, grouped_id = :grouped_id, media = :media, raw = :raw,
    letter_id = :letter_id, deleted_at_ms = :deleted_at_ms, created_at_ms = :created_at_ms
WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = :message_id

-- name: add_versions
INSERT INTO message_versions VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
RETURNING session_id, chat_id, message_id, edited_at_ms

-- name: put_versions
INSERT OR REPLACE INTO message_versions VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: mark_deleted
UPDATE messages SET deleted_at_ms = coalesce(deleted_at_ms, :at_ms)
WHERE session_id = :session_id AND chat_id = :chat_id AND message_id IN (SELECT value FROM json_each(:message_ids))

-- name: mark_deleted_anywhere
UPDATE messages SET deleted_at_ms = coalesce(deleted_at_ms, :at_ms)
WHERE session_id = :session_id AND chat_id > -1000000000000 AND message_id IN (SELECT value FROM json_each(:message_ids))

-- name: messages
SELECT id, {message_columns} FROM messages WHERE TRUE {where} ORDER BY {order} LIMIT :limit

-- name: count_messages
SELECT count(*) FROM messages WHERE TRUE {where}

-- name: by_date
date_ms DESC, id DESC

-- name: by_date_of_few
-- The plus keeps the planner from walking all messages by date while it waits for one that fits.
+date_ms DESC, id DESC

-- name: before
AND (date_ms, id) < (:cursor_ms, :cursor_id)

-- name: since_ms
AND date_ms >= :since_ms

-- name: until_ms
AND date_ms < :until_ms

-- name: session_id
AND {plus}session_id = :session_id

-- name: agent_id
AND {plus}agent_id = :agent_id

-- name: chat_id
AND {plus}chat_id = :chat_id

-- name: sender_id
AND {plus}sender_id = :sender_id

-- name: direction
AND direction = :direction

-- name: kind
AND kind = :kind

-- name: deleted
AND deleted_at_ms IS NOT NULL

-- name: not_deleted
AND deleted_at_ms IS NULL

-- name: with_words
AND id IN (SELECT rowid FROM message_words WHERE message_words MATCH :words)

-- name: with_common_words
-- Message by message, while they are walked by date: to gather all hits would take longer. has_words is ours, of database.py.
AND has_words(text, :words)

-- name: nothing
AND FALSE

-- name: how_common
SELECT count(*) FROM (SELECT rowid FROM message_words WHERE message_words MATCH :words LIMIT :limit)

-- name: message
SELECT {message_columns} FROM messages WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = :message_id

-- name: versions
SELECT record FROM message_versions
WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = :message_id
ORDER BY edited_at_ms

-- name: add_events
INSERT INTO events (event_id, session_id, agent_id, event_type, chat_id, user_id, payload, created_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id

-- name: put_events
INSERT INTO events (event_id, session_id, agent_id, event_type, chat_id, user_id, payload, created_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (event_id) DO UPDATE SET
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

-- name: known_keys
SELECT f.key FROM json_each(:keys) AS k CROSS JOIN feed AS f WHERE f.session_id = :session_id AND f.key = k.value

-- name: use_numbers
-- The last of them.
INSERT INTO feed_ends VALUES (:session_id, 1, :count) ON CONFLICT DO UPDATE SET last = last + excluded.last RETURNING last

-- name: add_lines
INSERT INTO feed ({line_columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_lines
INSERT INTO feed ({line_columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id, number) DO UPDATE SET
    agent_id = excluded.agent_id, key = excluded.key, kind = excluded.kind, chat_id = excluded.chat_id,
    user_id = excluded.user_id, body = excluded.body, at_ms = excluded.at_ms

-- name: fed
SELECT {line_columns} FROM feed WHERE session_id = :session_id AND number > :after ORDER BY number LIMIT :limit

-- name: fed_to
SELECT session_id, first, last FROM feed_ends

-- name: fed_to_of_some
SELECT session_id, first, last FROM feed_ends WHERE session_id IN (SELECT value FROM json_each(:session_ids))

-- name: raise_ends
-- Of one that is new the first is settled next.
INSERT INTO feed_ends VALUES (?, 1, ?) ON CONFLICT DO UPDATE SET last = max(last, excluded.last)

-- name: settle_firsts
-- After lines have gone, or were put.
UPDATE feed_ends SET first = coalesce((SELECT min(f.number) FROM feed AS f WHERE f.session_id = feed_ends.session_id), last + 1)
WHERE session_id IN (SELECT value FROM json_each(:session_ids))

-- name: remove_old_lines
DELETE FROM feed WHERE id IN (SELECT id FROM feed WHERE at_ms < :before_ms ORDER BY at_ms, id LIMIT :limit)
RETURNING session_id

-- name: forget_lines
DELETE FROM feed WHERE user_id = :user_id OR chat_id = :user_id RETURNING session_id

-- name: places
SELECT session_id, number FROM reader_places WHERE reader = :reader

-- name: save_places
-- The same place again: its reader is alive.
INSERT INTO reader_places VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET number = excluded.number, at_ms = max(at_ms, excluded.at_ms) WHERE excluded.number >= number

-- name: put_places
INSERT OR REPLACE INTO reader_places VALUES (?, ?, ?, ?)

-- name: remove_reader
DELETE FROM reader_places WHERE reader = :reader

-- name: remove_old_places
DELETE FROM reader_places WHERE (reader, session_id) IN (
    SELECT reader, session_id FROM reader_places WHERE at_ms < :before_ms LIMIT :limit
)

-- name: add_logs
INSERT INTO logs (digest, {log_columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
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
-- Word for word as in the index of trouble, which is not seen otherwise.
AND level IN ('warning', 'error')

-- name: logs_from_error
AND level IN ('warning', 'error') AND level = 'error'

-- name: logs_text
-- Line by line. has_text is ours, of database.py: SQLite itself knows the case of no letters but the Latin ones.
AND (has_text(event, :text) OR has_text(fields, :text))

-- name: remove_old_logs
DELETE FROM logs WHERE id IN (SELECT id FROM logs WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :limit)

-- name: message_ids
SELECT message_id FROM messages
WHERE session_id = :session_id AND chat_id = :chat_id AND message_id > :above
ORDER BY message_id LIMIT :limit

-- name: chat_states
SELECT * FROM chat_states WHERE session_id = :session_id ORDER BY chat_id

-- name: save_chat_state
INSERT OR REPLACE INTO chat_states VALUES (
    :session_id, :chat_id, :title, :newest_id, :crawled_to, :crawl_until_ms, :crawled, :checked_to, :access, :updated_at_ms
)

-- name: members_now
SELECT * FROM members
WHERE session_id = :session_id AND chat_id = :chat_id AND user_id > :after AND until_ms IS NULL ORDER BY user_id LIMIT :limit

-- name: members_at
SELECT * FROM members
WHERE session_id = :session_id AND chat_id = :chat_id AND user_id > :after
    AND since_ms <= :at_ms AND (until_ms IS NULL OR until_ms > :at_ms)
ORDER BY user_id LIMIT :limit

-- name: save_members
INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

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

-- name: old_messages
SELECT id, session_id, chat_id, message_id FROM messages WHERE created_at_ms < :before_ms ORDER BY created_at_ms LIMIT :limit

-- name: messages_of_sender
SELECT id, session_id, chat_id, message_id FROM messages WHERE sender_id = :user_id OR chat_id = :user_id LIMIT :limit

-- name: remove_message
DELETE FROM messages WHERE id = :id

-- name: remove_versions
DELETE FROM message_versions WHERE session_id = :session_id AND chat_id = :chat_id AND message_id = :message_id

-- name: remove_old_events
DELETE FROM events WHERE id IN (SELECT id FROM events WHERE created_at_ms < :before_ms ORDER BY created_at_ms LIMIT :limit)

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
    (SELECT count(*) FROM messages WHERE sender_id = :user_id OR chat_id = :user_id) AS messages,
    (SELECT count(*) FROM message_versions WHERE sender_id = :user_id OR chat_id = :user_id) AS versions,
    (SELECT count(*) FROM events WHERE user_id = :user_id OR chat_id = :user_id) AS events,
    (SELECT count(*) FROM chat_states WHERE chat_id = :user_id) AS chat_states,
    (SELECT count(*) FROM members WHERE user_id = :user_id) AS members,
    (SELECT count(*) FROM feed WHERE user_id = :user_id OR chat_id = :user_id) AS feed

-- name: drop_logs
DELETE FROM logs WHERE digest IN (VALUES (?)) RETURNING 1

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
SELECT {line_columns} FROM feed
WHERE (session_id, number) > (:session_id, :number) ORDER BY session_id, number LIMIT :limit

-- name: page_places
-- Among them the ends of feeds, as places of nobody: see `is_end` in rules.py.
SELECT reader, session_id, number, at_ms FROM (
    SELECT * FROM reader_places UNION ALL SELECT '' AS reader, session_id, last AS number, 0 AS at_ms FROM feed_ends
)
WHERE (reader, session_id) > (:reader, :session_id) ORDER BY reader, session_id LIMIT :limit

-- name: page_logs
SELECT id, {log_columns} FROM logs WHERE id > :after ORDER BY id LIMIT :limit

-- name: note_progress
INSERT OR REPLACE INTO copying VALUES (1, :progress)

-- name: progress
SELECT progress FROM copying
