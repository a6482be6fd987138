-- Every query of the letters but people's. A name, a line of purpose, then the query as a person would type it; a :name stands
-- for a value. What a commit brings comes in arrays, one for each column: one round trip does the work of hundreds.

-- name: begin
-- A transaction that holds these bots: their letters' rows and their inboxes' rows, in the order of ids, so that two nodes
-- never wait for each other in a circle. One round trip; {tallies} and {inboxes} are ids, nothing else.
BEGIN;
SELECT 1 FROM tallies WHERE bot_id = ANY ('{{tallies}}'::bigint[]) ORDER BY bot_id FOR NO KEY UPDATE;
SELECT 1 FROM inboxes WHERE bot_id = ANY ('{{inboxes}}'::bigint[]) ORDER BY bot_id FOR NO KEY UPDATE

-- name: lock_bots
SELECT 1 FROM tallies WHERE bot_id = ANY (:bots::bigint[]) ORDER BY bot_id FOR NO KEY UPDATE

-- name: forget_marks
-- Marks of a commit whose answer was lost: nobody believed them, so none of these letters is in flight.
DELETE FROM marks USING unnest(:letters::bigint[], :epochs::bigint[]) AS v (id, epoch)
WHERE marks.letter_id = v.id AND marks.epoch = v.epoch AND marks.step = :step

-- name: number
-- Take numbers of the bots' orders and count the letters that come in. Answers the first free number after them; a bot that
-- is not served any more does not answer.
UPDATE tallies SET
    next_number = tallies.next_number + v.taken,
    in_lane = tallies.in_lane + v.in_lane,
    apart = tallies.apart + v.apart
FROM unnest(:bots::bigint[], :taken::bigint[], :in_lane::bigint[], :apart::bigint[]) AS v (bot_id, taken, in_lane, apart)
WHERE tallies.bot_id = v.bot_id AND EXISTS (SELECT 1 FROM bots AS b WHERE b.bot_id = v.bot_id)
RETURNING tallies.bot_id, tallies.next_number

-- name: accept_numbered
-- Only letters with the usual terms, as most commits have: `number` and `accept_plain` in one round trip. The bots are locked by
-- a statement before, so that this one sees what became of chats until then. `place_of_bot` counts the letters of a bot; those of a bot
-- that is not served any more are missing in the answer.
WITH numbered AS (
    UPDATE tallies SET next_number = tallies.next_number + v.taken, in_lane = tallies.in_lane + v.taken
    FROM unnest($1::bigint[], $2::bigint[]) AS v (bot_id, taken)
    WHERE tallies.bot_id = v.bot_id AND EXISTS (SELECT 1 FROM bots AS b WHERE b.bot_id = v.bot_id)
    RETURNING tallies.bot_id, tallies.next_number - v.taken AS first
)
INSERT INTO letters (bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, moved)
SELECT
    v.bot_id, n.first + v.place_of_bot, v.rank, coalesce(c.same_as::text, v.chat), v.thread, v.weight, v.method, v.params,
    v.created_at, v.attempts, v.backoff_ms, CASE WHEN c.same_as IS NOT NULL THEN 1 END
FROM unnest(
    $3::bigint[], $4::bigint[], $5::smallint[], $6::text[], $7::bigint[], $8::integer[], $9::text[], $10::text[],
    $11::bigint[], $12::integer[], $13::integer[]
) WITH ORDINALITY AS v (
    bot_id, place_of_bot, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, place
)
JOIN numbered AS n ON n.bot_id = v.bot_id
LEFT JOIN chats AS c ON c.bot_id = v.bot_id AND c.chat = v.chat COLLATE "C"
ORDER BY v.place
RETURNING id, chat, moved, number

-- name: accept_at_once
-- The same with its locks and its commit, which outlives a power cut when this has answered: see 013.sql.
CALL accept_at_once($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, NULL, NULL, NULL)

-- name: accept_plain
-- Letters with the usual terms beside others. One whose chat has another key by now waits under that one. Ids rise in the
-- order of the arrays, since they are given after the sort.
INSERT INTO letters (bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, moved)
SELECT
    v.bot_id, v.number, v.rank, coalesce(c.same_as::text, v.chat), v.thread, v.weight, v.method, v.params, v.created_at,
    v.attempts, v.backoff_ms, CASE WHEN c.same_as IS NOT NULL THEN 1 END
FROM unnest(
    $1::bigint[], $2::bigint[], $3::smallint[], $4::text[], $5::bigint[], $6::integer[], $7::text[], $8::text[],
    $9::bigint[], $10::integer[], $11::integer[]
) WITH ORDINALITY AS v (
    bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, place
)
LEFT JOIN chats AS c ON c.bot_id = v.bot_id AND c.chat = v.chat COLLATE "C"
ORDER BY v.place
RETURNING id, chat, moved

-- name: accept_full
-- Letters with any terms.
INSERT INTO letters (
    bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, phase, backoff, timeout_ms,
    hold, due_at, expires_at, awaits, target, enclosed, metadata, user_id, message_type, moved, hook_key, hook_url,
    trace
)
SELECT
    v.bot_id, v.number, v.rank, coalesce(c.same_as::text, v.chat), v.thread, v.weight, v.method, v.params, v.created_at,
    v.attempts, v.backoff_ms, v.phase, v.backoff, v.timeout_ms, v.hold, v.due_at, v.expires_at, v.awaits, v.target,
    v.enclosed, v.metadata, v.user_id, v.message_type, CASE WHEN c.same_as IS NOT NULL THEN 1 ELSE v.moved END,
    v.hook_key, v.hook_url, v.trace
FROM unnest(
    $1::bigint[], $2::bigint[], $3::smallint[], $4::text[], $5::bigint[], $6::integer[], $7::text[], $8::text[],
    $9::bigint[], $10::integer[], $11::integer[], $12::smallint[], $13::text[], $14::integer[], $15::smallint[],
    $16::bigint[], $17::bigint[], $18::bigint[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[],
    $24::smallint[], $25::bigint[], $26::text[], $27::text[]
) WITH ORDINALITY AS v (
    bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, phase, backoff, timeout_ms,
    hold, due_at, expires_at, awaits, target, enclosed, metadata, user_id, message_type, moved, hook_key, hook_url,
    trace, place
)
LEFT JOIN chats AS c ON c.bot_id = v.bot_id AND c.chat = v.chat COLLATE "C"
ORDER BY v.place
RETURNING id, chat, moved

-- name: lift_before
-- What waits in the lanes of new letters whose priority was judged, and must not be passed by them: normal letters and unasked
-- ones (`LIFTED_RANKS`) take their rank. Whatever a letter is worth, it is lifted twice at most. The bots are locked, and the new
-- letters are not here yet.
WITH lane AS (
    SELECT v.bot_id, coalesce(c.same_as::text, v.chat) COLLATE "C" AS chat, v.thread, min(v.rank) AS rank
    FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::smallint[]) AS v (bot_id, chat, thread, rank)
    LEFT JOIN chats AS c ON c.bot_id = v.bot_id AND c.chat = v.chat COLLATE "C"
    GROUP BY 1, 2, 3
), lifted AS (
    UPDATE letters AS l SET rank = lane.rank FROM lane
    WHERE l.phase = 0 AND l.bot_id = lane.bot_id AND l.rank IN (2, 4) AND l.rank > lane.rank
        AND l.chat = lane.chat AND l.thread = lane.thread
    RETURNING l.bot_id, l.chat, l.thread, l.id
)
SELECT bot_id, chat, thread, min(id) FROM lifted GROUP BY bot_id, chat, thread

-- name: lift_named
-- Letters that new ones name, and what those wait for themselves; and what must not be passed in their lanes.
WITH RECURSIVE named (id, rank) AS (
    SELECT v.id, v.rank FROM unnest(:letters::bigint[], :ranks::smallint[]) AS v (id, rank)
    UNION
    SELECT coalesce(l.merged_into, l.awaits), named.rank
    FROM named JOIN letters AS l ON l.id = named.id AND l.phase < 2
    WHERE coalesce(l.merged_into, l.awaits) IS NOT NULL
), best AS (
    SELECT id, min(rank) AS rank FROM named GROUP BY id
), wanted AS (
    SELECT l.id, b.rank FROM best AS b JOIN letters AS l ON l.id = b.id AND l.phase < 2 AND l.rank > b.rank
    UNION ALL
    SELECT o.id, b.rank
    FROM best AS b
    JOIN letters AS l ON l.id = b.id AND l.phase = 0 AND l.rank > b.rank
    JOIN letters AS o ON o.phase = 0 AND o.bot_id = l.bot_id AND o.rank IN (2, 4) AND o.rank > b.rank
        AND o.chat = l.chat AND o.thread = l.thread AND o.number < l.number
), lifted AS (
    UPDATE letters AS l SET rank = w.rank
    FROM (SELECT id, min(rank) AS rank FROM wanted GROUP BY id) AS w
    WHERE l.id = w.id
    RETURNING l.bot_id, l.chat, l.thread, l.id
)
SELECT bot_id, chat, thread, min(id) FROM lifted GROUP BY bot_id, chat, thread

-- name: find_keys
-- Which of these idempotency keys are taken. Under the bots' locks: another node may just have taken one. A key is taken for as
-- long as it is here: `clean_keys` ends it, by settled time.
SELECT i.bot_id, i.key, i.digest, i.letter_id
FROM unnest(:bots::bigint[], :keys::text[]) AS v (bot_id, key)
JOIN idempotency AS i ON i.bot_id = v.bot_id AND i.key = v.key COLLATE "C"

-- name: keep_keys
INSERT INTO idempotency (bot_id, key, digest, letter_id, expires_at)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
ON CONFLICT (bot_id, key) DO UPDATE SET
    digest = excluded.digest, letter_id = excluded.letter_id, expires_at = excluded.expires_at

-- name: waiting_edits
-- Waiting edits of these targets, the new ones among them. One in flight is left alone.
SELECT l.id, l.bot_id, l.target, l.chat, l.thread
FROM (SELECT DISTINCT bot_id, target FROM unnest(:bots::bigint[], :targets::text[]) AS u (bot_id, target)) AS v
JOIN letters AS l ON l.bot_id = v.bot_id AND l.target = v.target COLLATE "C" AND l.target IS NOT NULL AND l.phase = 0
WHERE NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)
ORDER BY l.id

-- name: supersede
-- They stand apart until the newer ones end. They keep their numbers and times, since they may come back.
UPDATE letters SET phase = 1, merged_into = v.into_id
FROM unnest(:letters::bigint[], :into::bigint[]) AS v (id, into_id)
WHERE letters.id = v.id

-- name: pass_on
-- Edits that gave way to one that was taken back after it had itself given way: they wait for the newest.
UPDATE letters SET merged_into = n.merged_into
FROM letters AS n
WHERE n.id = ANY (:ended::bigint[]) AND n.phase = 4 AND n.merged_into IS NOT NULL
    AND letters.merged_into = n.id AND letters.merged_into IS NOT NULL AND letters.phase = 1
RETURNING letters.id

-- name: come_back
-- Edits that gave way to one that was taken back, or expired and certainly never arrived, stand at their old places again. The
-- lane may have moved in the meantime.
UPDATE letters SET
    phase = 0,
    merged_into = NULL,
    moved = CASE WHEN c.same_as IS NULL THEN letters.moved ELSE 1 END,
    chat = coalesce(c.same_as::text, letters.chat)
FROM letters AS n
JOIN letters AS o ON o.merged_into = n.id AND o.merged_into IS NOT NULL AND o.phase = 1
LEFT JOIN chats AS c ON c.bot_id = o.bot_id AND c.chat = o.chat
WHERE n.id = ANY (:ended::bigint[]) AND n.merged_into IS NULL
    AND (n.phase = 4 OR (n.phase = 3 AND n.failed_reason = 'expired' AND n.uncertain_tries = 0))
    AND letters.id = o.id
RETURNING letters.bot_id, letters.id, letters.chat, letters.thread

-- name: follow
-- All edits that gave way to one of these, at once or over others, end as it did, and its answer is theirs.
WITH RECURSIVE gave_way (id, newest) AS (
    SELECT o.id, n.id FROM letters AS n
    JOIN letters AS o ON o.merged_into = n.id AND o.merged_into IS NOT NULL AND o.phase = 1
    WHERE n.id = ANY (:ended::bigint[]) AND n.phase IN (2, 3)
    UNION ALL
    SELECT o.id, g.newest FROM gave_way AS g
    JOIN letters AS o ON o.merged_into = g.id AND o.merged_into IS NOT NULL AND o.phase = 1
), ended AS (
    UPDATE letters SET phase = n.phase, settled_at = n.settled_at, failed_reason = n.failed_reason, due_at = NULL
    FROM gave_way AS g JOIN letters AS n ON n.id = g.newest
    WHERE letters.id = g.id
    RETURNING
        letters.id, letters.bot_id, letters.method, letters.chat, letters.phase, letters.failed_reason,
        letters.uncertain_tries, letters.merged_into, letters.trace, letters.enclosed, g.newest
), kept AS (
    INSERT INTO results (letter_id, result)
    SELECT ended.id, r.result FROM ended JOIN results AS r ON r.letter_id = ended.newest
    ON CONFLICT (letter_id) DO UPDATE SET result = excluded.result
)
SELECT * FROM ended

-- name: settle
-- The new truth after a try. Only what was marked, or adopted, under the very epoch may be settled: the mark is taken away by
-- the same statement, and a late settlement, or a second one, finds none and changes nothing.
WITH ours AS (
    -- All that is known of a try goes along: joined to it again, a thousand rows would be compared with a thousand, since the
    -- planner takes both for a handful.
    DELETE FROM marks USING unnest(
        $1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::text[], $8::text[],
        $9::text[], $10::bigint[]
    ) AS v (id, phase, settled_at, due_at, attempts_made, uncertain_tries, failed_reason, line, result, epoch)
    WHERE marks.letter_id = v.id AND marks.epoch = v.epoch
    RETURNING v.*
), kept AS (
    INSERT INTO results (letter_id, result)
    SELECT ours.id, ours.result FROM ours WHERE ours.result IS NOT NULL
    ON CONFLICT (letter_id) DO UPDATE SET result = excluded.result
)
UPDATE letters SET
    phase = v.phase,
    settled_at = v.settled_at,
    due_at = v.due_at,
    attempts_made = v.attempts_made,
    uncertain_tries = v.uncertain_tries,
    failed_reason = v.failed_reason,
    history = with_line(letters.history, v.line)
FROM ours AS v
WHERE letters.id = v.id
RETURNING letters.id, v.epoch, letters.enclosed, {has_merged}

-- name: has_merged
-- Whether edits gave way to a letter. It is put into what ends letters: sends are done with the first condition.
letters.target IS NOT NULL AND EXISTS (
    SELECT 1 FROM letters AS o WHERE o.merged_into = letters.id AND o.merged_into IS NOT NULL AND o.phase = 1
)

-- name: hold_leases
-- Which of these epochs are still their bots' last. The lock as in `mark`.
SELECT s.bot_id, s.epoch FROM leases AS s
JOIN unnest(:bots::bigint[], :epochs::bigint[]) AS v (bot_id, epoch) ON v.bot_id = s.bot_id AND v.epoch = s.epoch
FOR KEY SHARE OF s

-- name: end_unsent
-- Letters that end without a try. Only those that still wait and are not in flight; the phase in which they stood. One that was
-- merged waits for the newer.
UPDATE letters SET
    phase = v.phase,
    settled_at = v.at,
    failed_reason = v.reason,
    history = with_line(letters.history, v.line)
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::text[], $5::text[]) AS v (id, phase, at, reason, line)
JOIN letters AS before ON before.id = v.id
WHERE letters.id = v.id AND letters.phase < 2 AND letters.merged_into IS NULL
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = v.id)
RETURNING letters.id, letters.bot_id, before.phase

-- name: mark
-- Right before a try. A mark takes only if the letter waits at the place and as the sender last saw it, is not in flight
-- already, and the bot's lease is of the very epoch and its holder's for some time yet, by this server's clock. The lock on
-- the lease: nobody takes it before this commit, and so the next one sees these marks.
WITH live AS MATERIALIZED (
    SELECT s.bot_id, s.epoch
    FROM (SELECT DISTINCT u.bot_id, u.epoch FROM unnest(:bots::bigint[], :epochs::bigint[]) AS u (bot_id, epoch)) AS v
    JOIN leases AS s ON s.bot_id = v.bot_id AND s.epoch = v.epoch
    JOIN nodes AS n ON n.name = s.node AND n.ends_at > clock_timestamp()
    FOR KEY SHARE OF s
)
INSERT INTO marks (letter_id, bot_id, epoch, marked_at, step)
SELECT v.id, v.bot_id, v.epoch, v.at, :step
FROM unnest(
    :letters::bigint[], :bots::bigint[], :epochs::bigint[], :numbers::bigint[], :attempts_made::integer[],
    :uncertain_tries::integer[], :ats::bigint[]
) AS v (id, bot_id, epoch, number, attempts_made, uncertain_tries, at)
JOIN live ON live.bot_id = v.bot_id AND live.epoch = v.epoch
JOIN letters AS l ON l.id = v.id
WHERE l.phase = 0 AND l.number = v.number AND l.attempts_made = v.attempts_made
    AND l.uncertain_tries = v.uncertain_tries
ON CONFLICT (letter_id) DO NOTHING
RETURNING letter_id

-- name: tally
-- Count the letters that went from one phase to another.
UPDATE tallies SET
    in_lane = tallies.in_lane + v.in_lane,
    apart = tallies.apart + v.apart,
    completed = tallies.completed + v.completed,
    failed = tallies.failed + v.failed,
    cancelled = tallies.cancelled + v.cancelled
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
    AS v (bot_id, in_lane, apart, completed, failed, cancelled)
WHERE tallies.bot_id = v.bot_id

-- name: release_dependents
-- Letters that stood apart for one of these join their lanes at their old place. Scheduled ones go on waiting for their time:
-- they have no place yet. Merged ones wait for the newer edit.
UPDATE letters SET
    phase = 0,
    moved = CASE WHEN c.same_as IS NULL THEN letters.moved ELSE 1 END,
    chat = coalesce(c.same_as::text, letters.chat)
FROM letters AS p
LEFT JOIN chats AS c ON c.bot_id = p.bot_id AND c.chat = p.chat
WHERE p.awaits = ANY (:ended::bigint[]) AND p.awaits IS NOT NULL AND p.phase = 1 AND p.due_at IS NULL
    AND p.merged_into IS NULL
    AND letters.id = p.id
RETURNING letters.bot_id, letters.id, letters.chat, letters.thread

-- name: enclosed_of
SELECT enclosed FROM letters WHERE id = ANY (:letters::bigint[]) AND enclosed IS NOT NULL

-- name: left_in_flight
SELECT {letter}
FROM marks AS m JOIN letters AS l ON l.id = m.letter_id
WHERE m.bot_id = :bot
ORDER BY l.id

-- name: adopt_marks
-- The new holder takes over what the one before had marked, so that its settlement is accepted. Only the holder: one that was
-- it once, and does not know it yet, must not take them from the next. The lock as in `mark`.
WITH live AS MATERIALIZED (
    SELECT s.epoch FROM leases AS s WHERE s.bot_id = :bot AND s.epoch = :epoch FOR KEY SHARE
)
UPDATE marks SET epoch = live.epoch FROM live WHERE marks.bot_id = :bot RETURNING letter_id

-- name: sweep
-- The next lanes of a rank in the order of their keys, one seek each however long they are, with the front of each.
WITH RECURSIVE lane (chat, thread, place) AS (
    (
        SELECT l.chat, l.thread, 1 FROM letters AS l
        WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank = :rank AND (l.chat, l.thread) > (:chat, :thread)
        ORDER BY l.chat, l.thread LIMIT 1
    )
    UNION ALL
    SELECT n.chat, n.thread, lane.place + 1
    FROM lane CROSS JOIN LATERAL (
        SELECT l.chat, l.thread FROM letters AS l
        WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank = :rank AND (l.chat, l.thread) > (lane.chat, lane.thread)
        ORDER BY l.chat, l.thread LIMIT 1
    ) AS n
    WHERE lane.place < :lanes::integer
)
SELECT {letter} FROM lane {front}
ORDER BY lane.place, l.rank, l.number

-- name: fronts
-- The fronts of given lanes.
SELECT {letter}
FROM (
    SELECT DISTINCT u.chat COLLATE "C" AS chat, u.thread
    FROM unnest(:chats::text[], :threads::bigint[]) AS u (chat, thread)
) AS lane {front}
ORDER BY l.rank, l.number

-- name: front
-- The first letters of one lane over all ranks; it is put into `sweep` and `fronts`. Rank by rank, so that each is a short walk
-- along the index.
CROSS JOIN generate_series(0, 4) AS r (rank)
CROSS JOIN LATERAL (
    SELECT f.* FROM letters AS f
    WHERE f.phase = 0 AND f.bot_id = :bot AND f.rank = r.rank AND f.chat = lane.chat AND f.thread = lane.thread
    ORDER BY f.number LIMIT :letters
) AS l

-- name: recent_sends
SELECT l.chat, l.weight, l.method, l.settled_at FROM letters AS l
WHERE l.phase IN (2, 4) AND l.settled_at >= :since AND l.bot_id = :bot AND l.phase = 2 AND l.merged_into IS NULL

-- name: recent_histories
-- Stories in which a try may have arrived since then: of letters that were delivered later, are dead, or still wait.
SELECT l.chat, l.weight, l.method, l.history FROM letters AS l
WHERE l.phase IN (2, 4) AND l.settled_at >= :since AND l.bot_id = :bot AND l.history IS NOT NULL
UNION ALL
SELECT l.chat, l.weight, l.method, l.history FROM letters AS l
WHERE l.phase = 3 AND l.settled_at >= :since AND l.bot_id = :bot AND l.history IS NOT NULL
UNION ALL
SELECT l.chat, l.weight, l.method, l.history FROM letters AS l
WHERE l.phase < 2 AND l.uncertain_tries > 0 AND l.bot_id = :bot AND l.history IS NOT NULL

-- name: park
-- Set a letter apart, unless the one that it awaits has ended. One that completed when it was merged, as it once was, has no
-- answer of its own: there the newest edit counts.
WITH RECURSIVE other (id, phase, merged_into) AS (
    SELECT r.id, r.phase, r.merged_into FROM letters AS r
    WHERE r.id = :awaits
    UNION ALL
    SELECT r.id, r.phase, r.merged_into FROM other JOIN letters AS r ON r.id = other.merged_into AND other.phase = 2
)
UPDATE letters SET phase = 1, due_at = NULL, awaits = (SELECT o.id FROM other AS o WHERE o.phase < 2)
WHERE id = :letter AND phase = 0
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = :letter)
    AND EXISTS (SELECT 1 FROM other AS o WHERE o.phase < 2 AND o.id <> :letter)

-- name: readdress
UPDATE letters SET chat = :new::bigint::text, moved = 1
WHERE bot_id = :bot AND chat = :old AND phase = 0 AND rank IN (0, 1, 2, 3, 4)

-- name: keep_alias
INSERT INTO chats (bot_id, chat, same_as) VALUES (:bot, :old, :new)
ON CONFLICT (bot_id, chat) DO UPDATE SET same_as = excluded.same_as

-- name: flatten_aliases
-- Every alias names the last key at once, and the last key is nobody's alias: following one is one step, never a circle.
UPDATE chats SET same_as = CASE WHEN chat = :new::bigint::text THEN NULL ELSE :new::bigint END
WHERE bot_id = :bot AND same_as IS NOT NULL AND (same_as::text = :old OR chat = :new::bigint::text)

-- name: due
SELECT id, bot_id FROM letters
WHERE due_at IS NOT NULL AND phase < 2 AND phase = 1 AND due_at <= :at AND merged_into IS NULL
ORDER BY due_at, id LIMIT :limit

-- name: next_due
SELECT min(due_at) FROM letters WHERE due_at IS NOT NULL AND phase < 2 AND phase = 1 AND merged_into IS NULL

-- name: join
-- A scheduled letter joins the end of its lane, which may have moved in the meantime.
UPDATE letters SET
    phase = 0,
    due_at = NULL,
    number = v.number,
    moved = CASE WHEN c.same_as IS NULL THEN letters.moved ELSE 1 END,
    chat = coalesce(c.same_as::text, letters.chat)
FROM unnest(:letters::bigint[], :numbers::bigint[]) AS v (id, number)
JOIN letters AS s ON s.id = v.id
LEFT JOIN chats AS c ON c.bot_id = s.bot_id AND c.chat = s.chat
WHERE letters.id = s.id

-- name: letters
SELECT {letter} FROM letters AS l WHERE l.id = ANY (:letters::bigint[]) ORDER BY l.number

-- name: expired
SELECT id, bot_id FROM letters
WHERE expires_at IS NOT NULL AND phase < 2 AND merged_into IS NULL AND expires_at <= :at
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = letters.id)
ORDER BY expires_at LIMIT :limit

-- name: next_expiry
SELECT min(expires_at) FROM letters WHERE expires_at IS NOT NULL AND phase < 2 AND merged_into IS NULL

-- name: view
-- Letters as people see them.
SELECT
    l.id, l.bot_id, l.method, l.params, l.chat, l.thread, l.phase, l.rank, l.attempts, l.attempts_made, l.uncertain_tries,
    l.failed_reason, r.result, l.history, l.merged_into, l.metadata, l.user_id, l.message_type, l.hold,
    l.created_at, l.due_at, l.expires_at, m.marked_at, l.settled_at, l.trace
FROM letters AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
WHERE l.id = ANY (:letters::bigint[])
ORDER BY array_position(:letters::bigint[], l.id)

-- name: bot_of_letter
SELECT bot_id FROM letters WHERE id = :letter

-- name: phase_of
SELECT phase FROM letters WHERE id = :letter

-- name: tallies
-- Counts per bot. What is in flight and what backs off is few, and counted as it stands; one query, one moment.
SELECT
    t.bot_id, t.in_lane, t.apart, t.completed, t.failed, t.cancelled,
    coalesce(o.letters, 0) AS backs_off, coalesce(f.letters, 0) AS active
FROM tallies AS t
JOIN bots AS b ON b.bot_id = t.bot_id
LEFT JOIN (SELECT bot_id, count(*) AS letters FROM marks GROUP BY bot_id) AS f ON f.bot_id = t.bot_id
LEFT JOIN (
    SELECT l.bot_id, count(*) AS letters FROM letters AS l
    WHERE l.due_at IS NOT NULL AND l.phase < 2 AND l.phase = 0 AND l.due_at > :at
        AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)
    GROUP BY l.bot_id
) AS o ON o.bot_id = t.bot_id

-- name: ended_by_minute
-- How many letters were delivered and how many failed, minute by minute.
SELECT minute, sum(delivered), sum(failed) FROM (
    SELECT settled_at / 60000 AS minute, count(*) AS delivered, 0 AS failed FROM letters
    WHERE phase IN (2, 4) AND settled_at >= :since AND settled_at < :until AND phase = 2 AND merged_into IS NULL
    GROUP BY 1
    UNION ALL
    SELECT settled_at / 60000, 0, count(*) FROM letters
    WHERE phase = 3 AND settled_at >= :since AND settled_at < :until
    GROUP BY 1
) AS ended GROUP BY minute

-- name: bots
SELECT bot_id, token, username, inbound, paused, limits, missed, me, created_at FROM bots ORDER BY created_at, bot_id

-- name: save_bot
INSERT INTO bots (bot_id, token, username, inbound, paused, limits, missed, me, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (bot_id) DO UPDATE SET
    token = excluded.token, username = coalesce(excluded.username, bots.username), inbound = excluded.inbound,
    paused = excluded.paused, limits = excluded.limits, missed = excluded.missed, me = excluded.me

-- name: save_tally
INSERT INTO tallies (bot_id) VALUES (:bot) ON CONFLICT (bot_id) DO NOTHING

-- name: waiting_of_bot
SELECT in_lane + apart FROM tallies WHERE bot_id = :bot

-- name: remove_bot
DELETE FROM bots WHERE bot_id = :bot

-- name: chats
SELECT chat, same_as, shut_reason, shut_at, held_until FROM chats
WHERE bot_id = :bot AND (same_as IS NOT NULL OR shut_reason IS NOT NULL OR held_until IS NOT NULL)

-- name: shut_chat
INSERT INTO chats (bot_id, chat, shut_reason, shut_at) VALUES (:bot, :chat, :reason, :at)
ON CONFLICT (bot_id, chat) DO UPDATE SET shut_reason = excluded.shut_reason, shut_at = excluded.shut_at

-- name: hold_chat
INSERT INTO chats (bot_id, chat, held_until) VALUES (:bot, :chat, :until)
ON CONFLICT (bot_id, chat) DO UPDATE SET held_until = excluded.held_until

-- name: hold_bot
INSERT INTO bot_holds (bot_id, held_until) VALUES (:bot, :until)
ON CONFLICT (bot_id) DO UPDATE SET held_until = excluded.held_until

-- name: bot_held_until
SELECT held_until FROM bot_holds WHERE bot_id = :bot

-- name: file_id
SELECT file_id FROM file_ids WHERE bot_id = :bot AND digest = :digest AND kind = :kind

-- name: keep_file_id
INSERT INTO file_ids (bot_id, digest, kind, file_id, at) VALUES (:bot, :digest, :kind, :file_id, :at)
ON CONFLICT (bot_id, digest, kind) DO UPDATE SET file_id = excluded.file_id, at = excluded.at

-- name: forget_file_id
DELETE FROM file_ids WHERE bot_id = :bot AND digest = :digest AND kind = :kind

-- name: blobs
-- Files that letters still need: all but those of completed and cancelled ones.
SELECT enclosed FROM letters WHERE enclosed IS NOT NULL AND phase IN (0, 1, 3)

-- name: old_letters
-- Ended letters whose time is over: completed and cancelled ones, then dead ones.
SELECT id, bot_id, phase, enclosed FROM (
    SELECT id, bot_id, phase, enclosed FROM letters
    WHERE phase IN (2, 4) AND settled_at < :completed_before ORDER BY settled_at LIMIT :limit
) AS done
UNION ALL
SELECT id, bot_id, phase, enclosed FROM (
    SELECT id, bot_id, phase, enclosed FROM letters
    WHERE phase = 3 AND settled_at < :dead_before ORDER BY settled_at LIMIT :limit
) AS dead

-- name: logged_status
SELECT status FROM message_log WHERE id = :letter

-- name: logged
SELECT id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, text, created_at, finished_at
FROM message_log WHERE (created_at, id) < (:at::bigint, :id::bigint) ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: log_letters
INSERT INTO message_log
    (
        id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, text, created_at, finished_at
    )
SELECT
    l.id, l.bot_id, l.chat, l.user_id, l.message_type, l.method,
    CASE l.phase WHEN 2 THEN 'completed' WHEN 3 THEN 'failed' ELSE 'cancelled' END,
    greatest(l.attempts_made, 0), l.failed_reason, message_id_in(r.result), text_in(l.params), l.created_at,
    l.settled_at
FROM letters AS l LEFT JOIN results AS r ON r.letter_id = l.id
WHERE l.id = ANY (:letters::bigint[])
ON CONFLICT (id) DO NOTHING

-- name: drop_letters
DELETE FROM letters WHERE id = ANY (:letters::bigint[])

-- name: drop_results
DELETE FROM results WHERE letter_id = ANY (:letters::bigint[])

-- name: clean_log
DELETE FROM message_log WHERE id IN (
    SELECT id FROM message_log WHERE created_at < :before ORDER BY created_at LIMIT :limit
)

-- name: clean_keys
DELETE FROM idempotency WHERE (bot_id, key) IN (
    SELECT bot_id, key FROM idempotency WHERE expires_at <= :at ORDER BY expires_at LIMIT :limit
)
