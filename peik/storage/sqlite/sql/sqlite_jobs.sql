-- Every query of jobs. {rows} stands for as many tuples of values as there are, {job} for the columns of a job,
-- {new} for those that a new one has.
-- States stand as words in the conditions: only so does SQLite see that a partial index fits.

-- ---- lines ----

-- name: draw_numbers
UPDATE job_numbers SET last = last + ? RETURNING last

-- name: join_lines
-- Whoever stands in a line already keeps its ticket.
INSERT INTO job_lines (kind, rank, user_id, ticket, jobs) VALUES {rows}
ON CONFLICT (kind, rank, user_id) DO UPDATE SET jobs = job_lines.jobs + excluded.jobs

-- name: leave_lines
-- So many of each line are gone; NULL: the line keeps its ticket.
UPDATE job_lines SET jobs = jobs - v.column4, ticket = coalesce(v.column5, ticket)
FROM (VALUES {rows}) AS v
WHERE kind = v.column1 AND rank = v.column2 AND user_id = v.column3

-- name: drop_empty_line
DELETE FROM job_lines WHERE kind = ? AND rank = ? AND user_id = ? AND jobs <= 0

-- ---- queueing ----

-- name: find_keys
SELECT j.kind, j.key, j.digest, j.id, j.state
FROM (VALUES {rows}) AS v CROSS JOIN jobs AS j ON j.kind = v.column1 AND j.key = v.column2

-- name: used
SELECT d.kind, d.user_id, d.jobs, d.bytes
FROM (VALUES {rows}) AS v
CROSS JOIN job_days AS d ON d.day = v.column1 AND d.kind = v.column2 AND d.user_id = v.column3

-- name: use
INSERT INTO job_days (day, kind, user_id, jobs, bytes) VALUES {rows}
ON CONFLICT (day, kind, user_id) DO UPDATE SET
    jobs = job_days.jobs + excluded.jobs, bytes = job_days.bytes + excluded.bytes

-- name: add
INSERT INTO jobs ({new}) VALUES {rows}

-- ---- taking ----

-- name: due
SELECT id, kind, rank, user_id FROM jobs
WHERE kind = :kind AND state = 'delayed' AND due_at <= :at
ORDER BY due_at, id LIMIT :limit

-- name: join_due
UPDATE jobs SET state = 'waiting', due_at = NULL, place = v.column2
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1

-- name: running
SELECT user_id, count(*) FROM jobs WHERE kind = ? AND state = 'active' GROUP BY user_id

-- name: turns
-- Read only as far as there is room: see `_chosen`.
SELECT rank, user_id, jobs FROM job_lines WHERE kind = ? ORDER BY rank, ticket

-- name: front
SELECT {job} FROM jobs AS j
WHERE j.kind = ? AND j.rank = ? AND j.user_id = ? AND j.state = 'waiting'
ORDER BY j.place LIMIT ?

-- name: begin
UPDATE jobs SET
    state = 'active', place = NULL, run = v.column2, node = v.column3, ends_at = v.column4, lease_ms = v.column5,
    started_at = v.column6, progress = NULL, progress_text = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1

-- name: next_due
SELECT due_at FROM jobs WHERE kind = :kind AND state = 'delayed' ORDER BY due_at LIMIT 1

-- name: next_end
-- By a clock that may have been put back since.
SELECT min(min(ends_at, :now + lease_ms)) FROM jobs WHERE kind = :kind AND state = 'active'

-- ---- runs ----

-- name: by_ids
SELECT {job} FROM (VALUES {rows}) AS v CROSS JOIN jobs AS j ON j.id = v.column1

-- name: runs
SELECT j.id, j.run, j.is_cancelling
FROM (VALUES {rows}) AS v CROSS JOIN jobs AS j ON j.id = v.column1
WHERE j.state = 'active'

-- name: beat
UPDATE jobs SET
    ends_at = v.column2, lease_ms = v.column3, progress = coalesce(v.column4, progress),
    progress_text = coalesce(v.column5, progress_text), notice_state = coalesce(v.column6, notice_state)
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1

-- name: note
UPDATE jobs SET notice_state = ? WHERE id = ? RETURNING id

-- name: save
-- A job after a run, or after a person had a say in it.
UPDATE jobs SET
    state = v.column2, attempts_made = v.column3, due_at = v.column4, node = v.column5, ends_at = v.column6,
    is_cancelling = v.column7, progress = v.column8, progress_text = v.column9, result = v.column10,
    failed_reason = v.column11, history = v.column12, bytes_used = v.column13, started_at = v.column14,
    ended_at = v.column15, place = v.column16
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1

-- name: cap_leases
-- The clock was put back: a lease that would last for longer than it was given for ends when a new one would.
UPDATE jobs SET ends_at = :now + lease_ms WHERE state = 'active' AND ends_at > :now + lease_ms

-- name: lost
SELECT {job} FROM jobs AS j WHERE j.state = 'active' AND j.ends_at <= :now ORDER BY j.ends_at, j.id LIMIT :limit

-- name: mean_run
SELECT mean_run_ms FROM job_kinds WHERE kind = ?

-- name: save_mean_run
INSERT INTO job_kinds (kind, mean_run_ms) VALUES (?, ?)
ON CONFLICT (kind) DO UPDATE SET mean_run_ms = excluded.mean_run_ms

-- ---- people ----

-- name: find
-- {where} stands for the conditions of a filter; every one of them is bound, none is pasted in.
SELECT {job} FROM jobs AS j WHERE {where} ORDER BY j.id DESC LIMIT :limit

-- name: active
SELECT {job} FROM jobs AS j WHERE j.state = 'active' AND (:node IS NULL OR j.node = :node) ORDER BY j.id

-- name: waiting
SELECT j.kind, j.rank, j.user_id, j.place, l.ticket
FROM jobs AS j JOIN job_lines AS l ON l.kind = j.kind AND l.rank = j.rank AND l.user_id = j.user_id
WHERE j.id = :id AND j.state = 'waiting'

-- name: ahead_in_line
SELECT count(*) FROM (
    SELECT 1 FROM jobs
    WHERE kind = :kind AND rank = :rank AND user_id = :user AND state = 'waiting' AND place < :place
    LIMIT :most
)

-- name: ahead_by_rank
SELECT coalesce(sum(jobs), 0) FROM (SELECT jobs FROM job_lines WHERE kind = :kind AND rank < :rank LIMIT :most)

-- name: ahead_by_turns
-- Lines give one in turn. Those with an earlier ticket have had one turn more when it is this one's. Each line that is read
-- counts at least one, so that no more of them need be read than are counted.
SELECT
    (SELECT coalesce(sum(min(jobs, :own + 1)), 0) FROM (
        SELECT jobs FROM job_lines WHERE kind = :kind AND rank = :rank AND ticket < :ticket LIMIT :most))
    + (SELECT coalesce(sum(min(jobs, :own)), 0) FROM (
        SELECT jobs FROM job_lines WHERE kind = :kind AND rank = :rank AND ticket > :ticket AND :own > 0 LIMIT :most))

-- name: tally
SELECT jobs FROM job_tallies WHERE kind = ? AND state = ?

-- name: tallies
SELECT kind, state, jobs FROM job_tallies ORDER BY kind

-- ---- leaving ----

-- name: ended
SELECT id FROM jobs WHERE state = ? AND ended_at IS NOT NULL AND ended_at <= ? ORDER BY ended_at LIMIT ?

-- name: drop
DELETE FROM jobs WHERE id IN (VALUES {rows})

-- name: drop_days
DELETE FROM job_days WHERE day < ?

-- name: drop_tallies
DELETE FROM job_tallies WHERE jobs = 0
