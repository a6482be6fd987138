-- What goes when a person is forgotten. Which records are meant is decided elsewhere; here they are named by their keys.

-- name: bots_of
SELECT DISTINCT bot_id FROM letters WHERE id = ANY (:letters::bigint[])

-- name: ended_letters
-- One that is in flight again has a mark, or is back in its lane.
SELECT l.id, l.bot_id, l.phase, l.enclosed FROM letters AS l
WHERE l.id = ANY (:letters::bigint[]) AND l.phase >= 2
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)

-- name: drop_letters
DELETE FROM letters WHERE id = ANY (:letters::bigint[])

-- name: drop_results
DELETE FROM results WHERE letter_id = ANY (:letters::bigint[])

-- name: drop_hooks
-- There is no index by letter: hooks that wait are few, and a person is seldom forgotten.
DELETE FROM hooks WHERE letter_id = ANY (:letters::bigint[])

-- name: drop_keys_of_letters
DELETE FROM idempotency WHERE letter_id = ANY (:letters::bigint[])

-- name: drop_file_ids
DELETE FROM file_ids AS f USING unnest(:bots::bigint[], :digests::text[]) AS g (bot_id, digest)
WHERE f.bot_id = g.bot_id AND f.digest = g.digest

-- name: logged
SELECT id, bot_id, chat_id, user_id, error, text FROM message_log WHERE id > :after ORDER BY id LIMIT :limit

-- name: drop_logged
DELETE FROM message_log WHERE id = ANY (:ids::bigint[])

-- name: kept_keys
SELECT bot_id, key FROM idempotency WHERE (bot_id, key) > (:bot, :key) ORDER BY bot_id, key LIMIT :limit

-- name: drop_keys
DELETE FROM idempotency AS i USING unnest(:bots::bigint[], :keys::text[]) AS g (bot_id, key)
WHERE i.bot_id = g.bot_id AND i.key = g.key

-- name: arrival
-- Locked, so that no two blank it at once.
SELECT bot_id, number, only_for FROM arrivals WHERE id = :id FOR UPDATE

-- name: bots_of_arrivals
SELECT DISTINCT bot_id FROM arrivals WHERE id = ANY (:ids::bigint[])

-- name: blank_theirs
UPDATE arrivals SET payload = :payload, lane = :lane, user_id = NULL, digest = '' WHERE id = :id

-- name: blank_named
UPDATE arrivals SET payload = :payload, digest = '' WHERE id = :id

-- name: stories
SELECT d.consumer_id, d.phase, d.failed_reason, d.history FROM deliveries AS d
JOIN consumers AS c ON c.id = d.consumer_id
WHERE c.bot_id = :bot AND d.number = :number AND (:only_for::bigint = 0 OR d.consumer_id = :only_for)

-- name: drop_story
DELETE FROM deliveries WHERE consumer_id = :consumer AND number = :number

-- name: blank_story
UPDATE deliveries SET failed_reason = :reason, history = :history WHERE consumer_id = :consumer AND number = :number

-- name: count_contacts
SELECT count(*) FROM contacts WHERE bot_id = :bot AND chat_id = :chat

-- name: drop_contacts
DELETE FROM contacts WHERE bot_id = :bot AND chat_id = :chat

-- name: count_chats
SELECT count(*) FROM chats WHERE bot_id = :bot AND (chat = ANY (:keys::text[]) OR same_as = :chat)

-- name: drop_chats
DELETE FROM chats WHERE bot_id = :bot AND (chat = ANY (:keys::text[]) OR same_as = :chat)

-- name: count_handled
SELECT count(*) FROM handled WHERE bot_id = :bot AND chat = :chat

-- name: drop_handled
DELETE FROM handled WHERE bot_id = :bot AND chat = :chat

-- name: drop_jobs
DELETE FROM jobs AS j WHERE j.id = ANY (:jobs::bigint[]) AND j.ended_at IS NOT NULL RETURNING j.kind, j.state

-- name: count_job_days
SELECT count(*) FROM job_days WHERE user_id = ANY (:users::text[])

-- name: kinds_of_days
SELECT DISTINCT kind FROM job_days WHERE user_id = ANY (:users::text[])

-- name: drop_job_days
DELETE FROM job_days WHERE user_id = ANY (:users::text[])
