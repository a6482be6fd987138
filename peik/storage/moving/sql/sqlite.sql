-- What moving reads and writes in a SQLite store. Columns stand in the order of the fields of peik/storage/moving/records.py.
-- Pages are read along primary keys, so that each costs the same at any depth.

-- name: make_moved
CREATE TABLE IF NOT EXISTS moved_away (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    target  TEXT NOT NULL
) STRICT

-- name: has_moved
SELECT count(*) FROM sqlite_schema WHERE name = 'moved_away'

-- name: moved_to
SELECT target FROM moved_away

-- name: keep_moved
INSERT INTO moved_away (one, target) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET target = excluded.target

-- name: take_back
DROP TABLE IF EXISTS moved_away

-- name: make_marker
CREATE TABLE IF NOT EXISTS moving (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    progress  TEXT NOT NULL
) STRICT

-- name: has_marker
SELECT count(*) FROM sqlite_schema WHERE name = 'moving'

-- name: progress
SELECT progress FROM moving

-- name: keep_progress
INSERT INTO moving (one, progress) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET progress = excluded.progress

-- name: lives
SELECT coalesce(max(epoch), 0) FROM epochs

-- name: count
SELECT count(*) FROM {table}

-- name: job_states
SELECT state, count(*) FROM jobs GROUP BY state

-- name: blobs
SELECT enclosed FROM letters WHERE enclosed IS NOT NULL AND phase IN (0, 1, 3)

-- name: read_tallies
SELECT bot_id, next_number, in_lane, apart, completed, failed, cancelled FROM tallies
WHERE bot_id > ? AND (next_number > 1 OR in_lane <> 0 OR apart <> 0 OR completed <> 0 OR failed <> 0 OR cancelled <> 0)
ORDER BY bot_id LIMIT ?

-- name: count_tallies
SELECT count(*) FROM tallies
WHERE next_number > 1 OR in_lane <> 0 OR apart <> 0 OR completed <> 0 OR failed <> 0 OR cancelled <> 0

-- name: write_tallies
INSERT INTO tallies (bot_id, next_number, in_lane, apart, completed, failed, cancelled) VALUES {rows}

-- name: read_bots
SELECT bot_id, token, username, inbound, paused, limits, missed, me, created_at FROM bots
WHERE bot_id > ? ORDER BY bot_id LIMIT ?

-- name: write_bots
INSERT INTO bots (bot_id, token, username, inbound, paused, limits, missed, me, created_at) VALUES {rows}

-- name: fill_tallies
-- Every bot has one.
INSERT INTO tallies (bot_id) SELECT bot_id FROM bots WHERE true ON CONFLICT (bot_id) DO NOTHING

-- name: read_secrets
-- The admin key lies in a file, whatever stands here.
SELECT name, value FROM secrets WHERE name <> 'admin_key' ORDER BY name

-- name: write_secrets
INSERT INTO secrets (name, value) VALUES {rows}

-- name: read_keys
SELECT id, digest, name, scopes, bot_ids, created_at, expires_at, revoked_at, last_used_at, webhook_url, webhook_secret
FROM keys WHERE id > ? ORDER BY id LIMIT ?

-- name: write_keys
-- The generation is a bell for processes that run; it has to be different for each, and to rise from here.
INSERT INTO keys (
    id, digest, name, scopes, bot_ids, created_at, expires_at, revoked_at, last_used_at, webhook_url, webhook_secret, generation
)
VALUES {rows}

-- name: read_bot_holds
SELECT bot_id, held_until FROM bot_holds WHERE bot_id > ? ORDER BY bot_id LIMIT ?

-- name: write_bot_holds
INSERT INTO bot_holds (bot_id, held_until) VALUES {rows}

-- name: read_chats
-- A row of which nothing is known any more says nothing.
SELECT
    bot_id, chat, same_as, shut_reason, CASE WHEN shut_reason IS NOT NULL THEN shut_at END, nullif(held_until, 0)
FROM chats
WHERE (bot_id, chat) > (?, ?) AND (same_as IS NOT NULL OR shut_reason IS NOT NULL OR nullif(held_until, 0) IS NOT NULL)
ORDER BY bot_id, chat LIMIT ?

-- name: count_chats
SELECT count(*) FROM chats WHERE same_as IS NOT NULL OR shut_reason IS NOT NULL OR nullif(held_until, 0) IS NOT NULL

-- name: write_chats
INSERT INTO chats (bot_id, chat, same_as, shut_reason, shut_at, held_until) VALUES {rows}

-- name: read_file_ids
SELECT bot_id, digest, kind, file_id, at FROM file_ids
WHERE (bot_id, digest, kind) > (?, ?, ?) ORDER BY bot_id, digest, kind LIMIT ?

-- name: write_file_ids
INSERT INTO file_ids (bot_id, digest, kind, file_id, at) VALUES {rows}

-- name: read_letters
SELECT
    l.id, l.bot_id, l.number, l.phase, l.rank, l.chat, l.thread, l.weight, l.method, l.params, l.created_at, l.attempts,
    l.backoff_ms, l.backoff, nullif(l.timeout_ms, 0), nullif(l.hold, 0), nullif(l.due_at, 0), nullif(l.expires_at, 0), l.awaits,
    l.target, l.enclosed, l.metadata, l.user_id, l.message_type, nullif(l.moved, 0), l.attempts_made, l.uncertain_tries,
    l.failed_reason, l.merged_into, nullif(l.history, '[]'), l.settled_at, l.trace, l.hook, r.result, m.marked_at
FROM letters AS l
LEFT JOIN results AS r ON r.letter_id = l.id
LEFT JOIN marks AS m ON m.letter_id = l.id
WHERE l.id > ? ORDER BY l.id LIMIT ?

-- name: write_letters
INSERT INTO letters (
    id, bot_id, number, phase, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, backoff, timeout_ms,
    hold, due_at, expires_at, awaits, target, enclosed, metadata, user_id, message_type, moved, attempts_made, uncertain_tries,
    failed_reason, merged_into, history, settled_at, trace, hook
)
VALUES {rows}

-- name: write_results
INSERT INTO results (letter_id, result) VALUES {rows}

-- name: write_marks
-- Under no owner's epoch: the next owner finds them as those of one who died.
INSERT INTO marks (letter_id, bot_id, epoch, marked_at) VALUES {rows}

-- name: read_idempotency
SELECT bot_id, key, digest, letter_id, expires_at FROM idempotency
WHERE (bot_id, key) > (?, ?) ORDER BY bot_id, key LIMIT ?

-- name: write_idempotency
INSERT INTO idempotency (bot_id, key, digest, letter_id, expires_at) VALUES {rows}

-- name: read_message_log
SELECT
    id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, created_at, finished_at,
    text
FROM message_log WHERE id > ? ORDER BY id LIMIT ?

-- name: write_message_log
INSERT INTO message_log (
    id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, created_at, finished_at,
    text
)
VALUES {rows}

-- name: read_hooks
SELECT id, endpoint, hook, letter_id, phase, at, due_at, tries, body FROM hooks WHERE id > ? ORDER BY id LIMIT ?

-- name: write_hooks
INSERT INTO hooks (id, endpoint, hook, letter_id, phase, at, due_at, tries, body) VALUES {rows}

-- name: read_inboxes
SELECT
    bot_id, epoch, epoch_at, server, last_update_id, started_at, seen_at, received_at, next_number, expired, updated_at
FROM inboxes WHERE bot_id > ? ORDER BY bot_id LIMIT ?

-- name: write_inboxes
INSERT INTO inboxes (
    bot_id, epoch, epoch_at, server, last_update_id, started_at, seen_at, received_at, next_number, expired, updated_at
)
VALUES {rows}

-- name: read_consumers
SELECT
    id, bot_id, name, kind, url, secret, allowed, connections_max, watermark, seen_at, created_at,
    (SELECT json_group_array(json_array(s.first, s.last) ORDER BY s.first) FROM spans AS s WHERE s.consumer_id = consumers.id)
FROM consumers WHERE id > ? ORDER BY id LIMIT ?

-- name: write_consumers
INSERT INTO consumers (
    id, bot_id, name, kind, url, secret, allowed, connections_max, watermark, seen_at, created_at
)
VALUES {rows}

-- name: write_spans
INSERT INTO spans (consumer_id, first, last) VALUES {rows}

-- name: read_watermarks
SELECT consumer_id, at, watermark FROM watermarks
WHERE (consumer_id, at) > (?, ?) ORDER BY consumer_id, at LIMIT ?

-- name: write_watermarks
INSERT INTO watermarks (consumer_id, at, watermark) VALUES {rows}

-- name: read_arrivals
SELECT
    id, bot_id, number, epoch, update_id, type, lane, user_id, message_id, sent_at, received_at, digest, payload, replay_of,
    only_for
FROM arrivals WHERE id > ? ORDER BY id LIMIT ?

-- name: write_arrivals
INSERT INTO arrivals (
    id, bot_id, number, epoch, update_id, type, lane, user_id, message_id, sent_at, received_at, digest, payload, replay_of,
    only_for
)
VALUES {rows}

-- name: read_deliveries
SELECT consumer_id, number, phase, tries, due_at, failed_reason, settled_at, history FROM deliveries
WHERE (consumer_id, number) > (?, ?) ORDER BY consumer_id, number LIMIT ?

-- name: write_deliveries
INSERT INTO deliveries (consumer_id, number, phase, tries, due_at, failed_reason, settled_at, history) VALUES {rows}

-- name: read_handled
SELECT bot_id, chat, message_id, at FROM handled
WHERE (bot_id, chat, message_id) > (?, ?, ?) ORDER BY bot_id, chat, message_id LIMIT ?

-- name: write_handled
INSERT INTO handled (bot_id, chat, message_id, at) VALUES {rows}

-- name: read_outages
SELECT id, bot_id, began_at, ended_at, last_number, settled_at FROM outages WHERE id > ? ORDER BY id LIMIT ?

-- name: write_outages
INSERT INTO outages (id, bot_id, began_at, ended_at, last_number, settled_at) VALUES {rows}

-- name: read_jobs
-- A digest is that of a key.
SELECT {job}, CASE WHEN key IS NULL THEN '' ELSE digest END, place FROM jobs WHERE id > ? ORDER BY id LIMIT ?

-- name: write_jobs
INSERT INTO jobs ({job}, digest, place, lease_ms) VALUES {rows}

-- name: read_job_lines
-- One in which nobody stands is none.
SELECT l.kind, l.rank, l.ticket, l.user_id FROM job_lines AS l
WHERE (l.kind, l.rank, l.ticket) > (?, ?, ?) AND EXISTS (
    SELECT 1 FROM jobs AS j
    WHERE j.kind = l.kind AND j.rank = l.rank AND j.user_id = l.user_id AND j.state = 'waiting'
)
ORDER BY l.kind, l.rank, l.ticket LIMIT ?

-- name: count_job_lines
SELECT count(*) FROM job_lines AS l
WHERE EXISTS (
    SELECT 1 FROM jobs AS j
    WHERE j.kind = l.kind AND j.rank = l.rank AND j.user_id = l.user_id AND j.state = 'waiting'
)

-- name: write_job_lines
INSERT INTO job_lines (kind, rank, ticket, user_id, jobs)
SELECT
    v.column1, v.column2, v.column3, v.column4,
    (
        SELECT count(*) FROM jobs AS j
        WHERE j.kind = v.column1 AND j.rank = v.column2 AND j.user_id = v.column4 AND j.state = 'waiting'
    )
FROM (VALUES {rows}) AS v

-- name: read_job_days
SELECT day, kind, user_id, jobs, bytes FROM job_days
WHERE (day, kind, user_id) > (?, ?, ?) AND (jobs <> 0 OR bytes <> 0) ORDER BY day, kind, user_id LIMIT ?

-- name: count_job_days
SELECT count(*) FROM job_days WHERE jobs <> 0 OR bytes <> 0

-- name: write_job_days
INSERT INTO job_days (day, kind, user_id, jobs, bytes) VALUES {rows}

-- name: read_job_means
SELECT kind, mean_run_ms FROM job_kinds WHERE kind > ? ORDER BY kind LIMIT ?

-- name: count_job_means
SELECT count(*) FROM job_kinds

-- name: write_job_means
INSERT INTO job_kinds (kind, mean_run_ms) VALUES {rows}

-- name: read_papers
SELECT shelf, key, body, version FROM papers WHERE (shelf, key) > (?, ?) ORDER BY shelf, key LIMIT ?

-- name: write_papers
-- How many lie on each shelf is counted by triggers, and so it is with chats.
INSERT INTO papers (shelf, key, body, version) VALUES {rows}

-- name: read_contacts
SELECT bot_id, chat_id, type, name, username, language, first_seen, last_seen, is_gone, campaign FROM contacts
WHERE (bot_id, chat_id) > (?, ?) ORDER BY bot_id, chat_id LIMIT ?

-- name: write_contacts
INSERT INTO contacts (bot_id, chat_id, type, name, username, language, first_seen, last_seen, is_gone, campaign, words)
VALUES {rows}

-- name: read_contact_places
SELECT bot_id, place FROM contact_places WHERE bot_id > ? AND place > 0 ORDER BY bot_id LIMIT ?

-- name: count_contact_places
SELECT count(*) FROM contact_places WHERE place > 0

-- name: write_contact_places
INSERT INTO contact_places (bot_id, place) VALUES {rows}

-- name: read_sequences
SELECT s.name, s.last FROM (
    SELECT name, seq AS last FROM sqlite_sequence
    WHERE name IN ('letters', 'keys', 'hooks', 'arrivals', 'consumers', 'outages', 'jobs')
    UNION ALL SELECT 'job_numbers', last FROM job_numbers
) AS s
WHERE s.name > ? AND s.last > 0 ORDER BY s.name LIMIT ?

-- name: count_sequences
SELECT
    (
        SELECT count(*) FROM sqlite_sequence
        WHERE seq > 0 AND name IN ('letters', 'keys', 'hooks', 'arrivals', 'consumers', 'outages', 'jobs')
    )
    + (SELECT count(*) FROM job_numbers WHERE last > 0)

-- name: forget_sequences
-- What the ids that were written here have left behind.
DELETE FROM sqlite_sequence WHERE name IN (VALUES {rows})

-- name: write_sequences
INSERT INTO sqlite_sequence (name, seq) VALUES {rows}

-- name: write_job_numbers
UPDATE job_numbers SET last = ?
