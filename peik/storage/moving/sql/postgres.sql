-- What moving reads in a PostgreSQL store. Columns stand in the order of the fields of peik/storage/moving/records.py.
-- Pages are read along primary keys, so that each costs the same at any depth. Writing is COPY, which needs no query.

-- name: make_moved
CREATE TABLE IF NOT EXISTS moved_away (
    one     integer PRIMARY KEY CHECK (one = 1),
    target  text NOT NULL
)

-- name: has_moved
SELECT to_regclass('moved_away') IS NOT NULL

-- name: moved_to
SELECT target FROM moved_away

-- name: keep_moved
INSERT INTO moved_away (one, target) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET target = excluded.target

-- name: take_back
DROP TABLE IF EXISTS moved_away

-- name: make_marker
CREATE TABLE IF NOT EXISTS moving (
    one       integer PRIMARY KEY CHECK (one = 1),
    progress  text NOT NULL
)

-- name: has_marker
SELECT to_regclass('moving') IS NOT NULL

-- name: is_store
SELECT to_regclass('peik_schema') IS NOT NULL

-- name: progress
SELECT progress FROM moving

-- name: progress_held
-- FOR UPDATE: a second process that moves to this store waits for the commit of the first, and then finds out.
SELECT progress FROM moving FOR UPDATE

-- name: keep_progress
INSERT INTO moving (one, progress) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET progress = excluded.progress

-- name: used_by
-- A node that gave a sign of life within the time of its leases.
SELECT name FROM nodes WHERE ends_at > clock_timestamp() ORDER BY name LIMIT 1

-- name: lives
SELECT coalesce(pg_sequence_last_value('epochs'), 0)

-- name: count
SELECT count(*) FROM {table}

-- name: analyze
-- So many rows came at once that the planner would guess until somebody counts.
ANALYZE {tables}

-- name: job_states
SELECT state, count(*) FROM jobs GROUP BY state

-- name: blobs
SELECT enclosed FROM letters WHERE enclosed IS NOT NULL AND phase IN (0, 1, 3)

-- name: read_tallies
SELECT bot_id, next_number, in_lane, apart, completed, failed, cancelled FROM tallies
WHERE bot_id > $1 AND (next_number > 1 OR in_lane <> 0 OR apart <> 0 OR completed <> 0 OR failed <> 0 OR cancelled <> 0)
ORDER BY bot_id LIMIT $2

-- name: count_tallies
SELECT count(*) FROM tallies
WHERE next_number > 1 OR in_lane <> 0 OR apart <> 0 OR completed <> 0 OR failed <> 0 OR cancelled <> 0

-- name: read_bots
SELECT bot_id, token, username, inbound, paused, limits, missed, me, created_at FROM bots
WHERE bot_id > $1 ORDER BY bot_id LIMIT $2

-- name: fill_tallies
-- Every bot has one.
INSERT INTO tallies (bot_id) SELECT bot_id FROM bots ON CONFLICT (bot_id) DO NOTHING

-- name: read_secrets
SELECT name, value FROM secrets WHERE name COLLATE "C" > $1 ORDER BY name COLLATE "C" LIMIT $2

-- name: read_keys
SELECT id, digest, name, scopes, bot_ids, created_at, expires_at, revoked_at, last_used_at, webhook_url, webhook_secret
FROM keys WHERE id > $1 ORDER BY id LIMIT $2

-- name: read_bot_holds
SELECT bot_id, held_until FROM bot_holds WHERE bot_id > $1 ORDER BY bot_id LIMIT $2

-- name: read_chats
-- A row of which nothing is known any more says nothing.
SELECT
    bot_id, chat, same_as, shut_reason, CASE WHEN shut_reason IS NOT NULL THEN shut_at END, nullif(held_until, 0)
FROM chats
WHERE (bot_id, chat) > ($1, $2) AND (same_as IS NOT NULL OR shut_reason IS NOT NULL OR nullif(held_until, 0) IS NOT NULL)
ORDER BY bot_id, chat LIMIT $3

-- name: count_chats
SELECT count(*) FROM chats WHERE same_as IS NOT NULL OR shut_reason IS NOT NULL OR nullif(held_until, 0) IS NOT NULL

-- name: read_file_ids
SELECT bot_id, digest, kind, file_id, at FROM file_ids
WHERE (bot_id, digest, kind) > ($1, $2, $3) ORDER BY bot_id, digest, kind LIMIT $4

-- name: read_letters
SELECT
    l.id, l.bot_id, l.number, l.phase, l.rank, l.chat, l.thread, l.weight, l.method, l.params, l.created_at, l.attempts,
    l.backoff_ms, l.backoff, nullif(l.timeout_ms, 0), nullif(l.hold, 0), nullif(l.due_at, 0), nullif(l.expires_at, 0), l.awaits,
    l.target, l.enclosed, l.metadata, l.user_id, l.message_type, nullif(l.moved, 0), l.attempts_made, l.uncertain_tries,
    l.failed_reason, l.merged_into, nullif(l.history, '[]'), l.settled_at, l.trace, l.hook_key, l.hook_url, r.result, m.marked_at
FROM letters AS l
LEFT JOIN results AS r ON r.letter_id = l.id
LEFT JOIN marks AS m ON m.letter_id = l.id
WHERE l.id > $1 ORDER BY l.id LIMIT $2

-- name: read_idempotency
SELECT bot_id, key, digest, letter_id, expires_at FROM idempotency
WHERE (bot_id, key) > ($1, $2) ORDER BY bot_id, key LIMIT $3

-- name: read_message_log
SELECT
    id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, created_at, finished_at,
    text
FROM message_log WHERE id > $1 ORDER BY id LIMIT $2

-- name: read_hooks
SELECT id, endpoint, hook_key, hook_url, letter_id, phase, at, due_at, tries, body FROM hooks
WHERE id > $1 ORDER BY id LIMIT $2

-- name: read_inboxes
SELECT
    bot_id, epoch, epoch_at, server, last_update_id, started_at, seen_at, received_at, next_number, expired, updated_at
FROM inboxes WHERE bot_id > $1 ORDER BY bot_id LIMIT $2

-- name: read_consumers
SELECT
    c.id, c.bot_id, c.name, c.kind, c.url, c.secret, c.allowed, c.connections_max, c.watermark, c.seen_at, c.created_at,
    coalesce(
        (SELECT json_agg(json_build_array(s.first, s.last) ORDER BY s.first) FROM spans AS s WHERE s.consumer_id = c.id)::text,
        '[]'
    )
FROM consumers AS c WHERE c.id > $1 ORDER BY c.id LIMIT $2

-- name: read_watermarks
SELECT consumer_id, at, watermark FROM watermarks
WHERE (consumer_id, at) > ($1, $2) ORDER BY consumer_id, at LIMIT $3

-- name: read_arrivals
SELECT
    id, bot_id, number, epoch, update_id, type, lane, user_id, message_id, sent_at, received_at, digest, payload, replay_of,
    only_for
FROM arrivals WHERE id > $1 ORDER BY id LIMIT $2

-- name: read_deliveries
SELECT consumer_id, number, phase, tries, due_at, failed_reason, settled_at, history FROM deliveries
WHERE (consumer_id, number) > ($1, $2) ORDER BY consumer_id, number LIMIT $3

-- name: read_handled
SELECT bot_id, chat, message_id, at FROM handled
WHERE (bot_id, chat, message_id) > ($1, $2, $3) ORDER BY bot_id, chat, message_id LIMIT $4

-- name: read_outages
SELECT id, bot_id, began_at, ended_at, last_number, settled_at FROM outages WHERE id > $1 ORDER BY id LIMIT $2

-- name: read_jobs
-- A digest is that of a key.
SELECT {job}, CASE WHEN key IS NULL THEN '' ELSE digest END, place FROM jobs WHERE id > $1 ORDER BY id LIMIT $2

-- name: count_jobs_in
-- Of each kind a row that says how many stand where.
INSERT INTO job_kinds AS k (kind, waiting, delayed, active, completed, failed, cancelled)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
ON CONFLICT (kind) DO UPDATE SET
    waiting = k.waiting + excluded.waiting,
    delayed = k.delayed + excluded.delayed,
    active = k.active + excluded.active,
    completed = k.completed + excluded.completed,
    failed = k.failed + excluded.failed,
    cancelled = k.cancelled + excluded.cancelled

-- name: read_job_lines
-- One in which nobody stands is none. A rank is a small number, and the least of all is none of these.
SELECT l.kind, l.rank, l.ticket, l.user_id FROM job_lines AS l
WHERE (l.kind, l.rank, l.ticket) > ($1, $2::bigint, $3) AND EXISTS (
    SELECT 1 FROM jobs AS j
    WHERE j.kind = l.kind AND j.rank = l.rank AND j.user_id = l.user_id AND j.state = 'waiting'
)
ORDER BY l.kind, l.rank, l.ticket LIMIT $4

-- name: count_job_lines
SELECT count(*) FROM job_lines AS l
WHERE EXISTS (
    SELECT 1 FROM jobs AS j
    WHERE j.kind = l.kind AND j.rank = l.rank AND j.user_id = l.user_id AND j.state = 'waiting'
)

-- name: write_job_lines
INSERT INTO job_lines (kind, rank, ticket, user_id, waiting)
SELECT
    v.kind, v.rank, v.ticket, v.user_id,
    (
        SELECT count(*) FROM jobs AS j
        WHERE j.kind = v.kind COLLATE "C" AND j.rank = v.rank AND j.user_id = v.user_id COLLATE "C" AND j.state = 'waiting'
    )
FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::text[]) AS v (kind, rank, ticket, user_id)

-- name: read_job_days
-- In the order of their primary key here, which is another than that of the record.
SELECT day, kind, user_id, jobs, bytes FROM job_days
WHERE (kind, user_id, day) > ($2, $3, $1::bigint) AND (jobs <> 0 OR bytes <> 0) ORDER BY kind, user_id, day LIMIT $4

-- name: count_job_days
SELECT count(*) FROM job_days WHERE jobs <> 0 OR bytes <> 0

-- name: read_job_means
SELECT kind, mean_run_ms FROM job_kinds WHERE kind > $1 AND mean_run_ms IS NOT NULL ORDER BY kind LIMIT $2

-- name: count_job_means
SELECT count(*) FROM job_kinds WHERE mean_run_ms IS NOT NULL

-- name: write_job_means
INSERT INTO job_kinds (kind, mean_run_ms) SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (kind) DO UPDATE SET mean_run_ms = excluded.mean_run_ms

-- name: read_papers
SELECT shelf, key, body, version FROM papers WHERE (shelf, key) > ($1, $2) ORDER BY shelf, key LIMIT $3

-- name: read_contacts
SELECT bot_id, chat_id, type, name, username, language, first_seen, last_seen, is_gone, campaign FROM contacts
WHERE (bot_id, chat_id) > ($1, $2) ORDER BY bot_id, chat_id LIMIT $3

-- name: read_contact_places
SELECT bot_id, place FROM contact_places WHERE bot_id > $1 AND place > 0 ORDER BY bot_id LIMIT $2

-- name: count_contact_places
SELECT count(*) FROM contact_places WHERE place > 0

-- name: read_sequences
SELECT s.name, s.last FROM (
    SELECT t.name, pg_sequence_last_value({sequence}::regclass) AS last FROM unnest($3::text[]) AS t (name)
) AS s
WHERE s.last > 0 AND s.name COLLATE "C" > $1 ORDER BY s.name COLLATE "C" LIMIT $2

-- name: write_sequence
SELECT setval({sequence}::regclass, $2) FROM (SELECT $1::text AS name) AS t

-- name: sequence
-- Jobs' are not those of a column.
CASE t.name WHEN 'jobs' THEN 'job_ids' WHEN 'job_numbers' THEN 'job_numbers' ELSE pg_get_serial_sequence(t.name, 'id') END
