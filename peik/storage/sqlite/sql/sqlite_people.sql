-- What people ask of letters: find them, take them back, send them again, clear them away.
-- {where} stands for the conditions of a filter; every one of them is bound, none is pasted in.

-- name: page
-- The newest first, among so many as are looked at. CROSS JOIN: those are walked, and each letter is one step from there.
SELECT
    l.id, l.bot_id, l.method, l.params, l.chat, l.thread, l.phase, l.rank, l.attempts, l.attempts_made, l.uncertain_tries,
    l.failed_reason, r.result, l.history, l.merged_into, l.metadata, l.user_id, l.message_type, l.hold,
    l.created_at, l.due_at, l.expires_at, m.marked_at, l.settled_at, l.trace
FROM ({looked}) AS n
CROSS JOIN letters AS l ON l.id = n.id
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
WHERE {where}
ORDER BY n.id DESC
LIMIT :limit

-- name: count
SELECT count(*) FROM (
    SELECT 1 FROM ({looked}) AS n
    CROSS JOIN letters AS l ON l.id = n.id
    LEFT JOIN marks AS m ON m.letter_id = l.id
    WHERE {where}
    LIMIT :limit
)

-- name: looked
-- How many are looked at, and the oldest of them.
SELECT count(*), min(id) FROM ({looked})

-- name: newest
-- What is looked at, if nothing else is known: letters from the newest down.
SELECT o.id FROM letters AS o NOT INDEXED WHERE {within} ORDER BY o.id DESC LIMIT :looked

-- name: newest_traced
-- The few that answer one update, for certain or likely.
SELECT o.id FROM letters AS o INDEXED BY letters_trace
WHERE o.trace IS NOT NULL AND o.trace IN (:trace, '~' || :trace) AND {within} ORDER BY o.id DESC LIMIT :looked

-- name: newest_ended
SELECT o.id FROM letters AS o INDEXED BY letters_ended
WHERE o.phase >= 2 AND o.phase = :ended AND {within} ORDER BY o.id DESC LIMIT :looked

-- name: newest_active
SELECT o.id FROM (SELECT letter_id AS id FROM marks) AS o WHERE {within} ORDER BY o.id DESC LIMIT :looked

-- name: newest_listed
-- What was found before: see walking.py.
SELECT value AS id FROM json_each(:ids)

-- name: standing
SELECT coalesce(sum({column}), 0) FROM tallies AS b WHERE {of_bots}

-- name: heads
-- The newest open letter of each bot that has any there.
SELECT b.bot_id, (
    SELECT o.id FROM letters AS o INDEXED BY letters_open
    WHERE o.phase < 2 AND o.bot_id = b.bot_id AND o.phase = :phase AND {within}
    ORDER BY o.id DESC LIMIT 1
)
FROM tallies AS b WHERE b.{column} > 0 AND {of_bots}

-- name: stretch
-- The next of one bot.
SELECT o.id FROM letters AS o INDEXED BY letters_open
WHERE o.phase < 2 AND o.bot_id = :bot AND o.phase = :phase AND o.id < :below AND {within}
ORDER BY o.id DESC LIMIT :many

-- name: newest_backing_off
SELECT o.id FROM letters AS o INDEXED BY letters_due
WHERE o.due_at IS NOT NULL AND o.phase < 2 AND o.phase = 0 AND o.due_at > :now AND {within}
ORDER BY o.id DESC LIMIT :looked

-- name: newest_waiting_of_chat
SELECT o.id FROM tallies AS b
CROSS JOIN letters AS o INDEXED BY letters_lane
    ON o.phase = 0 AND o.bot_id = b.bot_id AND o.rank IN (0, 1, 2, 3, 4) AND o.chat = :chat AND {within}
WHERE b.in_lane > 0 AND {of_bots}
ORDER BY o.id DESC LIMIT :looked

-- name: id_range
-- Each in a query of its own: two at once would look at every row.
SELECT coalesce((SELECT min(id) FROM letters), 1), coalesce((SELECT max(id) FROM letters), 0) + 1

-- name: created_at
-- The first letter from this id on.
SELECT id, created_at FROM letters WHERE id >= ? ORDER BY id LIMIT 1

-- name: views
SELECT
    l.id, l.bot_id, l.method, l.params, l.chat, l.thread, l.phase, l.rank, l.attempts, l.attempts_made, l.uncertain_tries,
    l.failed_reason, r.result, l.history, l.merged_into, l.metadata, l.user_id, l.message_type, l.hold,
    l.created_at, l.due_at, l.expires_at, m.marked_at, l.settled_at, l.trace
FROM letters AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
WHERE l.id IN (VALUES {rows})
ORDER BY l.id

-- name: causes
-- What the last that died give as their reasons, and which methods they called.
SELECT failed_reason, method, count(*), max(id), max(settled_at) FROM (
    SELECT l.failed_reason, l.method, l.id, l.settled_at FROM letters AS l INDEXED BY letters_dead
    WHERE l.phase = 3 AND l.settled_at >= :since AND (:bot_ids IS NULL OR l.bot_id IN (SELECT value FROM json_each(:bot_ids)))
    ORDER BY l.settled_at DESC LIMIT :looked
)
GROUP BY failed_reason, method

-- name: oldest_waiting
SELECT b.bot_id, l.created_at FROM tallies AS b
CROSS JOIN letters AS l ON l.id = (
    SELECT o.id FROM letters AS o INDEXED BY letters_open
    WHERE o.phase < 2 AND o.bot_id = b.bot_id AND o.phase = 0 ORDER BY o.id LIMIT 1
)
WHERE b.in_lane > 0

-- name: find_dead
-- Dead letters by a filter, oldest first: they go back into their lanes in the order in which they were accepted.
SELECT l.id, l.bot_id
FROM letters AS l INDEXED BY letters_ended
LEFT JOIN marks AS m ON m.letter_id = l.id
WHERE l.phase >= 2 AND l.phase = 3 AND {where}
ORDER BY l.id
LIMIT :limit

-- name: cancel
-- Only what waits and is not in flight can be taken back.
UPDATE letters SET phase = 4, settled_at = :at
WHERE id = :id AND phase < 2 AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = :id)

-- name: cancel_many
-- The same for many; those that it found so.
UPDATE letters SET phase = 4, settled_at = v.column2
FROM (VALUES {rows}) AS v
WHERE letters.id = v.column1 AND letters.phase < 2
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = v.column1)
RETURNING id

-- name: change
-- Another rank, place or time, by hand. A letter that joins its lane may find that its chat has moved in the meantime.
UPDATE letters SET
    rank = coalesce(:rank, rank),
    phase = :phase,
    due_at = :due_at,
    number = coalesce(:number, number),
    moved = CASE WHEN :phase = 0 AND c.same_as IS NOT NULL THEN 1 ELSE letters.moved END,
    chat = CASE WHEN :phase = 0 THEN coalesce(c.same_as, letters.chat) ELSE letters.chat END,
    history = CASE
        WHEN history IS NULL THEN '[' || :line || ']'
        WHEN json_array_length(history) >= 100 THEN json_insert(json_remove(history, '$[50]'), '$[#]', json(:line))
        ELSE json_insert(history, '$[#]', json(:line))
    END
FROM (SELECT 1) AS one
LEFT JOIN chats AS c ON c.bot_id = :bot AND c.chat = :chat
WHERE letters.id = :id

-- name: revise
-- An edit changed what was never tried. The count below zero: a mark of the letter as it was must not take.
UPDATE letters SET
    params = :params,
    attempts_made = attempts_made - 1,
    history = CASE
        WHEN history IS NULL THEN '[' || :line || ']'
        WHEN json_array_length(history) >= 100 THEN json_insert(json_remove(history, '$[50]'), '$[#]', json(:line))
        ELSE json_insert(history, '$[#]', json(:line))
    END
WHERE id = :id

-- name: revive
-- A dead letter joins the end of its lane with its counters at zero. Its history stays.
UPDATE letters SET
    phase = 0,
    number = v.column2,
    due_at = NULL,
    settled_at = NULL,
    failed_reason = NULL,
    merged_into = NULL,
    attempts_made = 0,
    uncertain_tries = 0,
    moved = CASE WHEN c.same_as IS NULL THEN letters.moved ELSE 1 END,
    chat = coalesce(c.same_as, letters.chat),
    history = json_insert(coalesce(letters.history, '[]'), '$[#]', json(v.column3))
FROM (VALUES {rows}) AS v
JOIN letters AS d ON d.id = v.column1
LEFT JOIN chats AS c ON c.bot_id = d.bot_id AND c.chat = d.chat
WHERE letters.id = d.id

-- name: resolve
-- Somebody saw that an uncertain letter had arrived.
UPDATE letters SET
    phase = 2,
    settled_at = :at,
    failed_reason = NULL,
    history = json_insert(coalesce(history, '[]'), '$[#]', json(:line))
WHERE id = :id AND phase = 3

-- name: lanes
-- The lanes of a bot that have letters, with their first letter and how many wait (counted up to a bound).
WITH lane AS (
    SELECT DISTINCT chat, thread FROM letters
    WHERE phase = 0 AND bot_id = :bot AND rank IN (0, 1, 2, 3, 4) AND (:chat IS NULL OR chat = :chat)
    LIMIT :limit
)
SELECT
    lane.chat,
    lane.thread,
    (SELECT l.id FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.chat = lane.chat AND l.thread = lane.thread
        AND l.rank IN (0, 1, 2, 3, 4) ORDER BY l.rank, l.number LIMIT 1),
    (SELECT count(*) FROM (SELECT 1 FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank IN (0, 1, 2, 3, 4)
        AND l.chat = lane.chat AND l.thread = lane.thread LIMIT :most))
FROM lane

-- name: ahead
-- The letter at the head of a letter's lane.
SELECT l.id FROM letters AS l
WHERE l.phase = 0 AND l.bot_id = :bot AND l.chat = :chat AND l.thread = :thread AND l.rank IN (0, 1, 2, 3, 4)
ORDER BY l.rank, l.number LIMIT 1

-- name: known_chats
-- Chats of which something is still known; a hold that was taken away is stored as 0.
SELECT chat, same_as, shut_reason, shut_at, nullif(held_until, 0) FROM chats
WHERE bot_id = :bot AND (:after IS NULL OR chat > :after)
    AND (same_as IS NOT NULL OR shut_reason IS NOT NULL OR held_until > 0)
ORDER BY chat LIMIT :limit
