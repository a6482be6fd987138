-- What goes when a person is forgotten. Which records are meant is decided elsewhere; here they are named by their keys.

-- name: ended_letters
-- One that is in flight again has a mark, or is back in its lane.
SELECT l.id, l.bot_id, l.phase, l.enclosed FROM letters AS l
WHERE l.id IN (VALUES {rows}) AND l.phase >= 2 AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)

-- name: drop_letters
DELETE FROM letters WHERE id IN (VALUES {rows})

-- name: drop_results
DELETE FROM results WHERE letter_id IN (VALUES {rows})

-- name: drop_hooks
-- There is no index by letter: hooks that wait are few, and a person is seldom forgotten.
DELETE FROM hooks WHERE letter_id IN (VALUES {rows})

-- name: drop_keys_of_letters
DELETE FROM idempotency WHERE letter_id IN (VALUES {rows})

-- name: drop_file_ids
DELETE FROM file_ids WHERE (bot_id, digest) IN (VALUES {rows})

-- name: logged
SELECT id, bot_id, chat_id, user_id, error, text FROM message_log WHERE id > :after ORDER BY id LIMIT :limit

-- name: drop_logged
DELETE FROM message_log WHERE id IN (SELECT value FROM json_each(:ids))

-- name: kept_keys
SELECT bot_id, key FROM idempotency WHERE (bot_id, key) > (:bot, :key) ORDER BY bot_id, key LIMIT :limit

-- name: drop_keys
DELETE FROM idempotency WHERE (bot_id, key) IN (VALUES {rows})

-- name: arrival
SELECT bot_id, number, only_for FROM arrivals WHERE id = :id

-- name: bots_of_arrivals
SELECT DISTINCT bot_id FROM arrivals WHERE id IN (SELECT value FROM json_each(:ids))

-- name: blank_theirs
UPDATE arrivals SET payload = :payload, lane = :lane, user_id = NULL, digest = x'' WHERE id = :id

-- name: blank_named
UPDATE arrivals SET payload = :payload, digest = x'' WHERE id = :id

-- name: stories
SELECT d.consumer_id, d.phase, d.failed_reason, d.history FROM deliveries AS d
JOIN consumers AS c ON c.id = d.consumer_id
WHERE c.bot_id = :bot AND d.number = :number AND (:only_for = 0 OR d.consumer_id = :only_for)

-- name: drop_story
DELETE FROM deliveries WHERE consumer_id = :consumer AND number = :number

-- name: blank_story
UPDATE deliveries SET failed_reason = :reason, history = :history WHERE consumer_id = :consumer AND number = :number

-- name: count_contacts
SELECT count(*) FROM contacts WHERE bot_id = :bot AND chat_id = :chat

-- name: drop_contacts
DELETE FROM contacts WHERE bot_id = :bot AND chat_id = :chat

-- name: count_chats
SELECT count(*) FROM chats WHERE bot_id = :bot AND (chat = :chat OR same_as = :chat OR chat = 'user:' || :chat)

-- name: drop_chats
DELETE FROM chats WHERE bot_id = :bot AND (chat = :chat OR same_as = :chat OR chat = 'user:' || :chat)

-- name: count_handled
SELECT count(*) FROM handled WHERE bot_id = :bot AND chat = :chat

-- name: drop_handled
DELETE FROM handled WHERE bot_id = :bot AND chat = :chat

-- name: drop_jobs
DELETE FROM jobs WHERE id IN (VALUES {rows}) AND ended_at IS NOT NULL RETURNING id

-- name: count_job_days
SELECT count(*) FROM job_days WHERE user_id IN (SELECT value FROM json_each(:users))

-- name: drop_job_days
DELETE FROM job_days WHERE user_id IN (SELECT value FROM json_each(:users))
