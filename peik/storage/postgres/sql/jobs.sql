-- Jobs. Whatever writes does so under the locks of the kinds (`lock_kinds`), and so reads the truth.
-- {job} stands for the columns of a job, {new} for those that a new one has, {values} for an array of each.

-- name: seek
-- Everything here is found by seeks, or by walks along an index in its order, and is to be planned so. A plan is kept, even from
-- the time when the tables were empty: what is cheapest then reads everything when there are a hundred thousand. For the same
-- reason `|| ''` and `+ 0` hide a column from an index that is not meant.
SELECT set_config(v.name, 'off', :is_local)
FROM unnest(ARRAY[
    'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'enable_sort', 'enable_incremental_sort'
]) AS v (name)

-- ---- locks and numbers ----

-- name: keep_kinds
-- Before any lock is held, and in the order of names: whoever makes the same kind just now is waited for.
INSERT INTO job_kinds (kind) SELECT v.kind FROM unnest(:kinds::text[]) AS v (kind) ORDER BY v.kind COLLATE "C"
ON CONFLICT DO NOTHING

-- name: kinds_of
-- A job's kind never changes, so that this may be asked without a lock.
SELECT DISTINCT j.kind FROM jobs AS j WHERE j.id = ANY (:jobs::bigint[])

-- name: lock_kinds
-- In one order everywhere, so that nobody waits in a circle.
SELECT k.kind FROM job_kinds AS k WHERE k.kind = ANY (:kinds::text[]) ORDER BY k.kind FOR UPDATE

-- name: draw_ids
SELECT nextval('job_ids') FROM generate_series(1, :count::integer)

-- name: draw_numbers
SELECT nextval('job_numbers') FROM generate_series(1, :count::integer)

-- ---- lines, counts, days ----

-- name: join_lines
-- A line that is there keeps its ticket.
INSERT INTO job_lines (kind, rank, user_id, ticket, waiting)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::bigint[], $5::integer[])
ON CONFLICT (kind, user_id, rank) DO UPDATE SET waiting = job_lines.waiting + excluded.waiting

-- name: leave_lines
-- With a ticket, one of its jobs has begun, and the line goes to the end.
WITH v AS (
    SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::bigint[], $5::integer[])
        AS u (kind, rank, user_id, ticket, gone)
), emptied AS (
    DELETE FROM job_lines AS l USING v
    WHERE l.kind = v.kind COLLATE "C" AND l.user_id = v.user_id COLLATE "C" AND l.rank + 0 = v.rank AND l.waiting <= v.gone
)
UPDATE job_lines AS l SET waiting = l.waiting - v.gone, ticket = coalesce(v.ticket, l.ticket)
FROM v
WHERE l.kind = v.kind COLLATE "C" AND l.user_id = v.user_id COLLATE "C" AND l.rank + 0 = v.rank AND l.waiting > v.gone

-- name: count
UPDATE job_kinds AS k SET
    waiting = k.waiting + v.waiting,
    delayed = k.delayed + v.delayed,
    active = k.active + v.active,
    completed = k.completed + v.completed,
    failed = k.failed + v.failed,
    cancelled = k.cancelled + v.cancelled,
    mean_run_ms = coalesce(v.mean_run_ms, k.mean_run_ms)
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]
) AS v (kind, waiting, delayed, active, completed, failed, cancelled, mean_run_ms)
WHERE k.kind = v.kind COLLATE "C"

-- name: means
SELECT k.kind, k.mean_run_ms FROM job_kinds AS k WHERE k.kind = ANY (:kinds::text[])

-- name: use_days
INSERT INTO job_days (kind, user_id, day, jobs, bytes)
SELECT * FROM unnest($1::text[], $2::text[], $3::integer[], $4::bigint[], $5::bigint[])
ON CONFLICT (kind, user_id, day) DO UPDATE SET jobs = job_days.jobs + excluded.jobs, bytes = job_days.bytes + excluded.bytes

-- name: used
SELECT d.kind, d.user_id, d.jobs, d.bytes
FROM unnest(:kinds::text[], :users::text[]) AS v (kind, user_id)
JOIN job_days AS d ON d.kind = v.kind COLLATE "C" AND d.user_id = v.user_id COLLATE "C" AND d.day + 0 = :day

-- ---- queueing ----

-- name: find_keys
SELECT j.kind, j.key, j.digest, j.id, j.state
FROM unnest(:kinds::text[], :keys::text[]) AS v (kind, key)
JOIN jobs AS j ON j.kind = v.kind COLLATE "C" AND j.key = v.key COLLATE "C" AND j.key IS NOT NULL

-- name: queue
INSERT INTO jobs (id, {new}) SELECT * FROM unnest($1::bigint[], {values})

-- ---- taking ----

-- name: is_worth_taking
-- Whether a lock is worth while: something is due, or waits while there is room.
SELECT EXISTS (SELECT 1 FROM jobs AS j WHERE j.kind = :kind AND j.state = 'delayed' AND j.due_at <= :at)
    OR (
        EXISTS (SELECT 1 FROM job_lines AS l WHERE l.kind = :kind)
        AND EXISTS (SELECT 1 FROM job_kinds AS k WHERE k.kind = :kind AND k.active < :concurrency)
    )

-- name: due
SELECT j.id, j.rank, j.user_id FROM jobs AS j
WHERE j.kind = :kind AND j.state = 'delayed' AND j.due_at <= :at
ORDER BY j.due_at, j.id LIMIT :most

-- name: join_due
UPDATE jobs SET state = 'waiting', due_at = NULL, place = v.place
FROM unnest(:jobs::bigint[], :places::bigint[]) AS v (id, place)
WHERE jobs.id = v.id AND jobs.state || '' = 'delayed'

-- name: running
-- Along the index of what runs: as many rows as the terms allow.
SELECT j.user_id, count(*) FROM jobs AS j WHERE j.kind = :kind AND j.state = 'active' GROUP BY j.user_id

-- name: lines
-- In the order in which they go. Those of users who are full are walked over: there are fewer of them than run.
SELECT l.rank, l.user_id, l.waiting FROM job_lines AS l
WHERE l.kind = :kind AND NOT l.user_id = ANY (:full::text[])
ORDER BY l.rank, l.ticket LIMIT :most

-- name: heads
-- The first jobs of each line, as many as it gives: one seek for each line.
SELECT v.rank, v.user_id, h.id
FROM unnest(:ranks::smallint[], :users::text[], :counts::bigint[]) AS v (rank, user_id, count)
CROSS JOIN LATERAL (
    SELECT j.id, j.place FROM jobs AS j
    WHERE j.kind = :kind AND j.rank = v.rank AND j.user_id = v.user_id COLLATE "C" AND j.state = 'waiting'
    ORDER BY j.place LIMIT v.count
) AS h
ORDER BY h.place

-- name: begin
-- One look at the clock for all of them.
WITH clock AS MATERIALIZED (SELECT job_clock() AS now)
UPDATE jobs AS j SET
    state = 'active',
    place = NULL,
    run = j.run + 1,
    node = :node,
    ends_at = clock.now + :lease_ms::bigint,
    started_at = :at,
    progress = NULL,
    progress_text = NULL
FROM clock
WHERE j.id = ANY (:jobs::bigint[]) AND j.state || '' = 'waiting'
RETURNING {job}

-- ---- runs ----

-- name: beat
-- A run that was given up finds no row.
WITH clock AS MATERIALIZED (SELECT job_clock() AS now)
UPDATE jobs AS j SET
    ends_at = clock.now + :lease_ms::bigint,
    progress = coalesce(v.progress, j.progress),
    progress_text = coalesce(v.progress_text, j.progress_text),
    notice_state = coalesce(v.notice_state, j.notice_state)
FROM clock, unnest(
    :jobs::bigint[], :runs::bigint[], :progress::float8[], :texts::text[], :notices::text[]
) AS v (id, run, progress, progress_text, notice_state)
WHERE j.id = v.id AND j.run = v.run AND j.state || '' = 'active'
RETURNING j.id, j.run, j.is_cancelling

-- name: note
UPDATE jobs SET notice_state = :notice_state WHERE id = :job

-- name: those
SELECT {job} FROM jobs AS j WHERE j.id = ANY (:jobs::bigint[])

-- name: put
-- Jobs as they are now. Only if each still is as it was read: in the same state, at the same run.
UPDATE jobs AS j SET
    state = v.state,
    place = v.place,
    attempts_made = v.attempts_made,
    due_at = v.due_at,
    node = v.node,
    ends_at = v.ends_at,
    is_cancelling = v.is_cancelling,
    progress = v.progress,
    progress_text = v.progress_text,
    result = v.result,
    failed_reason = v.failed_reason,
    history = v.history,
    bytes_used = v.bytes_used,
    started_at = v.started_at,
    ended_at = v.ended_at
FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::integer[], $7::bigint[], $8::text[], $9::bigint[],
    $10::boolean[], $11::float8[], $12::text[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::bigint[],
    $18::bigint[]
) AS v (
    id, run, was, state, place, attempts_made, due_at, node, ends_at, is_cancelling, progress, progress_text, result,
    failed_reason, history, bytes_used, started_at, ended_at
)
WHERE j.id = v.id AND j.run = v.run AND j.state || '' = v.was COLLATE "C"
RETURNING j.id

-- name: lost
-- Whose leases are over, the longest ago first.
SELECT j.id FROM jobs AS j WHERE j.state = 'active' AND j.ends_at <= job_clock() ORDER BY j.ends_at, j.id LIMIT :limit

-- name: still_lost
SELECT {job} FROM jobs AS j
WHERE j.id = ANY (:jobs::bigint[]) AND j.state || '' = 'active' AND j.ends_at <= job_clock()
ORDER BY j.ends_at, j.id

-- ---- people's ----

-- name: job
SELECT {job} FROM jobs AS j WHERE j.id = :job

-- name: find
-- The newest first. Walks an index of ids from the cursor down, so a page costs the same however many jobs there are unless a
-- filter finds few.
SELECT {job} FROM jobs AS j WHERE {where} ORDER BY j.id DESC LIMIT :limit

-- name: next_due
-- One seek for each kind, and a look at what runs of it.
SELECT min(least(d.at, r.at))
FROM unnest(:kinds::text[]) AS v (kind)
LEFT JOIN LATERAL (
    SELECT j.due_at AS at FROM jobs AS j
    WHERE j.kind = v.kind COLLATE "C" AND j.state = 'delayed' ORDER BY j.due_at LIMIT 1
) AS d ON true
LEFT JOIN LATERAL (
    SELECT min(j.ends_at) AS at FROM jobs AS j WHERE j.kind = v.kind COLLATE "C" AND j.state = 'active'
) AS r ON true

-- name: standing
-- Where a waiting job stands, by the rule of peik.jobs.store.turns_ahead. No walk is longer than the bound: what lies
-- behind it could only add to a number that is at the bound already, since each line of it holds at least one.
SELECT
    least(better.count + own.count + earlier.count + later.count, :most)::bigint AS ahead, k.active AS running, k.mean_run_ms
FROM jobs AS j
JOIN job_kinds AS k ON k.kind = j.kind
JOIN job_lines AS mine ON mine.kind = j.kind AND mine.user_id = j.user_id AND mine.rank + 0 = j.rank
CROSS JOIN LATERAL (
    SELECT coalesce(sum(b.waiting), 0) AS count
    FROM (SELECT l.waiting FROM job_lines AS l WHERE l.kind = j.kind AND l.rank < j.rank LIMIT :most) AS b
) AS better
CROSS JOIN LATERAL (
    SELECT count(*) AS count
    FROM (
        SELECT 1 FROM jobs AS o
        WHERE o.kind = j.kind AND o.rank = j.rank AND o.user_id = j.user_id AND o.place < j.place AND o.state = 'waiting'
        LIMIT :most
    ) AS b
) AS own
CROSS JOIN LATERAL (
    SELECT coalesce(sum(least(b.waiting, own.count + 1)), 0) AS count
    FROM (
        SELECT l.waiting FROM job_lines AS l
        WHERE l.kind = j.kind AND l.rank = j.rank AND l.ticket < mine.ticket LIMIT :most
    ) AS b
) AS earlier
CROSS JOIN LATERAL (
    SELECT coalesce(sum(least(b.waiting, own.count)), 0) AS count
    FROM (
        SELECT l.waiting FROM job_lines AS l
        WHERE l.kind = j.kind AND l.rank = j.rank AND l.ticket > mine.ticket AND own.count > 0 LIMIT :most
    ) AS b
) AS later
WHERE j.id = :job AND j.state || '' = 'waiting'

-- name: tallies
SELECT k.kind, k.waiting, k.delayed, k.active, k.completed, k.failed, k.cancelled FROM job_kinds AS k

-- name: active
SELECT {job} FROM jobs AS j WHERE j.state = 'active' AND (:node::text IS NULL OR j.node = :node) ORDER BY j.id

-- ---- leaving ----

-- name: over
-- Ended jobs whose time is over, the oldest first: one walk for each state, merged.
SELECT e.id FROM (
    (SELECT j.id, j.ended_at FROM jobs AS j WHERE j.state = 'completed' AND j.ended_at <= :done_at ORDER BY j.ended_at LIMIT :limit)
    UNION ALL
    (SELECT j.id, j.ended_at FROM jobs AS j WHERE j.state = 'cancelled' AND j.ended_at <= :done_at ORDER BY j.ended_at LIMIT :limit)
    UNION ALL
    (SELECT j.id, j.ended_at FROM jobs AS j WHERE j.state = 'failed' AND j.ended_at <= :failed_at ORDER BY j.ended_at LIMIT :limit)
) AS e
ORDER BY e.ended_at, e.id LIMIT :limit

-- name: drop
-- Somebody may have had one run again meanwhile.
DELETE FROM jobs AS j
WHERE j.id = ANY (:jobs::bigint[]) AND j.ended_at + 0 <= CASE j.state WHEN 'failed' THEN :failed_at::bigint ELSE :done_at::bigint END
RETURNING j.kind, j.state

-- name: drop_days
-- What another node is just about to drop is left to it.
DELETE FROM job_days AS d
USING (SELECT o.ctid FROM job_days AS o WHERE o.day < :day LIMIT :limit FOR UPDATE SKIP LOCKED) AS o
WHERE d.ctid = o.ctid
