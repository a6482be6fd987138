-- What people ask of letters: find them, take them back, send them again, clear them away.
-- {where} stands for the conditions of a filter; every one of them is bound, none is pasted in.

-- name: page
-- The newest first, among so many as are looked at. OFFSET 0 keeps the planner to one step for each of them: where it expects
-- few to fit, it would rather read the whole table.
SELECT
    l.id, l.bot_id, l.method, l.params, l.chat, l.thread, l.phase, l.rank, l.attempts, l.attempts_made, l.uncertain_tries,
    l.failed_reason, r.result, l.history, l.merged_into, l.metadata, l.user_id, l.message_type, l.hold,
    l.created_at, l.due_at, l.expires_at, m.marked_at, l.settled_at, l.trace
FROM ({looked}) AS n
CROSS JOIN LATERAL (SELECT * FROM letters AS one WHERE one.id = n.id OFFSET 0) AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
WHERE {where}
ORDER BY n.id DESC
LIMIT :limit

-- name: count
SELECT count(*) FROM (
    SELECT 1 FROM ({looked}) AS n
    CROSS JOIN LATERAL (SELECT * FROM letters AS one WHERE one.id = n.id OFFSET 0) AS l
    LEFT JOIN marks AS m ON m.letter_id = l.id
    WHERE {where}
    LIMIT :limit
) AS found

-- name: looked
-- How many are looked at, and the oldest of them.
SELECT count(*), min(id) FROM ({looked}) AS n

-- name: newest
-- What is looked at, if nothing else is known: letters from the newest down.
SELECT o.id FROM letters AS o WHERE {within} ORDER BY o.id DESC LIMIT :looked

-- name: newest_traced
-- The few that answer one update, for certain or likely.
SELECT o.id FROM letters AS o
WHERE o.trace IS NOT NULL AND o.trace IN (:trace, '~' || :trace) AND {within} ORDER BY o.id DESC LIMIT :looked

-- name: newest_ended
SELECT o.id FROM letters AS o WHERE o.phase >= 2 AND o.phase = :ended AND {within} ORDER BY o.id DESC LIMIT :looked

-- name: newest_active
SELECT o.id FROM (SELECT letter_id AS id FROM marks) AS o WHERE {within} ORDER BY o.id DESC LIMIT :looked

-- name: newest_waiting
-- Bot by bot, since the index is; what the bots give is put in order.
SELECT c.id FROM tallies AS b
CROSS JOIN LATERAL (
    SELECT o.id FROM letters AS o
    WHERE o.phase < 2 AND o.bot_id = b.bot_id AND o.phase = 0 AND {within} ORDER BY o.id DESC LIMIT :looked
) AS c
WHERE b.in_lane > 0 AND {of_bots}
ORDER BY c.id DESC LIMIT :looked

-- name: newest_waiting_of_chat
SELECT o.id FROM tallies AS b
JOIN letters AS o ON o.phase = 0 AND o.bot_id = b.bot_id AND o.rank IN (0, 1, 2, 3, 4) AND o.chat = :chat AND {within}
WHERE b.in_lane > 0 AND {of_bots}
ORDER BY o.id DESC LIMIT :looked

-- name: newest_delayed
-- The same for what is scheduled or waits for another letter, and the few that back off.
SELECT d.id FROM (
    SELECT c.id FROM tallies AS b
    CROSS JOIN LATERAL (
        SELECT o.id FROM letters AS o
        WHERE o.phase < 2 AND o.bot_id = b.bot_id AND o.phase = 1 AND {within} ORDER BY o.id DESC LIMIT :looked
    ) AS c
    WHERE b.apart > 0 AND {of_bots}
    UNION ALL
    SELECT o.id FROM letters AS o
    WHERE o.due_at IS NOT NULL AND o.phase < 2 AND o.phase = 0 AND o.due_at > :now AND {within}
) AS d
ORDER BY d.id DESC LIMIT :looked

-- name: standing
-- How many letters stand in lanes, and how many apart.
SELECT coalesce(sum(b.in_lane), 0)::bigint, coalesce(sum(b.apart), 0)::bigint FROM tallies AS b WHERE {of_bots}

-- name: id_range
-- Each in a query of its own: a step to either end of the primary key.
SELECT coalesce((SELECT min(id) FROM letters), 1), coalesce((SELECT max(id) FROM letters), 0) + 1

-- name: created_at
-- The first letter from this id on.
SELECT id, created_at FROM letters WHERE id >= :id ORDER BY id LIMIT 1

-- name: causes
-- What the last that died give as their reasons, and which methods they called.
SELECT failed_reason, method, count(*), max(id), max(settled_at) FROM (
    SELECT l.failed_reason, l.method, l.id, l.settled_at FROM letters AS l
    WHERE l.phase = 3 AND l.settled_at >= :since AND (:bot_ids::bigint[] IS NULL OR l.bot_id = ANY (:bot_ids))
    ORDER BY l.settled_at DESC LIMIT :looked
) AS dead
GROUP BY failed_reason, method

-- name: oldest_waiting
SELECT b.bot_id, l.created_at FROM tallies AS b
CROSS JOIN LATERAL (
    SELECT o.created_at FROM letters AS o
    WHERE o.phase < 2 AND o.bot_id = b.bot_id AND o.phase = 0 ORDER BY o.id LIMIT 1
) AS l
WHERE b.in_lane > 0

-- name: find_dead
-- Dead letters by a filter, oldest first: they go back into their lanes in the order in which they were accepted.
SELECT l.id, l.bot_id
FROM letters AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
WHERE l.phase = 3 AND {where}
ORDER BY l.id
LIMIT :limit

-- name: cancel
-- Only what waits and is not in flight can be taken back.
UPDATE letters SET phase = 4, settled_at = :at
WHERE id = :letter AND phase < 2 AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = :letter)

-- name: cancel_many
-- The same for many, under their bots' locks; those that it found so, and where they had stood.
UPDATE letters SET phase = 4, settled_at = :at
FROM letters AS o
WHERE letters.id = ANY (:letters::bigint[]) AND o.id = letters.id AND letters.phase < 2
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = letters.id)
RETURNING letters.id, letters.bot_id, o.phase

-- name: bots_of
SELECT DISTINCT bot_id FROM letters WHERE id = ANY (:letters::bigint[])

-- name: change
-- Another rank, place or time, by hand. A letter that joins its lane may find that its chat has moved in the meantime.
UPDATE letters SET
    rank = coalesce(:rank::smallint, rank),
    phase = :phase::smallint,
    due_at = :due_at::bigint,
    number = coalesce(:number::bigint, number),
    moved = CASE WHEN :phase::smallint = 0 AND c.same_as IS NOT NULL THEN 1 ELSE letters.moved END,
    chat = CASE WHEN :phase::smallint = 0 THEN coalesce(c.same_as::text, letters.chat) ELSE letters.chat END,
    history = with_line(letters.history, :line)
FROM (SELECT 1) AS one
LEFT JOIN chats AS c ON c.bot_id = :bot AND c.chat = :chat
WHERE letters.id = :letter

-- name: revise
-- An edit changed what was never tried. The count below zero: a mark of the letter as it was must not take.
UPDATE letters SET params = :params, attempts_made = attempts_made - 1, history = with_line(letters.history, :line)
WHERE id = :letter

-- name: revive
-- A dead letter joins the end of its lane with its counters at zero. Its history stays.
UPDATE letters SET
    phase = 0,
    number = v.number,
    due_at = NULL,
    settled_at = NULL,
    failed_reason = NULL,
    merged_into = NULL,
    attempts_made = 0,
    uncertain_tries = 0,
    moved = CASE WHEN c.same_as IS NULL THEN letters.moved ELSE 1 END,
    chat = coalesce(c.same_as::text, letters.chat),
    history = with_line(letters.history, :line)
FROM unnest(:letters::bigint[], :numbers::bigint[]) AS v (id, number)
JOIN letters AS d ON d.id = v.id
LEFT JOIN chats AS c ON c.bot_id = d.bot_id AND c.chat = d.chat
WHERE letters.id = d.id

-- name: resolve
-- Somebody saw that an uncertain letter had arrived.
UPDATE letters SET phase = 2, settled_at = :at, failed_reason = NULL, history = with_line(history, :line)
WHERE id = :letter AND phase = 3

-- name: lanes
-- The lanes of a bot that have letters, with their first letter and how many wait (counted up to a bound).
WITH lane AS (
    SELECT DISTINCT chat, thread FROM letters
    WHERE phase = 0 AND bot_id = :bot AND rank IN (0, 1, 2, 3, 4) AND (:chat::text IS NULL OR chat = :chat)
    LIMIT :limit
)
SELECT
    lane.chat,
    lane.thread,
    (SELECT l.id FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.chat = lane.chat AND l.thread = lane.thread
        AND l.rank IN (0, 1, 2, 3, 4) ORDER BY l.rank, l.number LIMIT 1),
    (SELECT count(*) FROM (SELECT 1 FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank IN (0, 1, 2, 3, 4)
        AND l.chat = lane.chat AND l.thread = lane.thread LIMIT :most) AS counted)
FROM lane

-- name: ahead
-- The letter at the head of a letter's lane.
SELECT l.id FROM letters AS l
WHERE l.phase = 0 AND l.bot_id = :bot AND l.chat = :chat AND l.thread = :thread AND l.rank IN (0, 1, 2, 3, 4)
ORDER BY l.rank, l.number LIMIT 1

-- name: known_chats
-- Chats of which something is still known; a hold that was taken away is stored as 0.
SELECT chat, same_as, shut_reason, shut_at, nullif(held_until, 0) FROM chats
WHERE bot_id = :bot AND chat > :after AND (same_as IS NOT NULL OR shut_reason IS NOT NULL OR held_until > 0)
ORDER BY chat LIMIT :limit
