-- What people ask of letters: find them, take them back, send them again, clear them away.
-- {where} stands for the conditions of a filter; every one of them is bound, none is pasted in.

-- name: find
-- The newest first. Walks the primary key from the cursor down, so a page costs the same however many letters there are
-- unless a filter finds few.
SELECT
    l.id, l.bot_id, l.method, l.params, l.chat, l.thread, l.phase, l.rank, l.attempts, l.attempts_made, l.uncertain_tries,
    l.failed_reason, r.result, l.history, l.merged_into, l.metadata, l.user_id, l.message_type, l.hold,
    l.created_at, l.due_at, l.expires_at, m.marked_at, l.settled_at
FROM letters AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
WHERE {where}
ORDER BY l.id DESC
LIMIT :limit

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

-- name: revive
-- A dead letter joins the end of its lane with its counters at zero. Its history stays.
UPDATE letters SET
    phase = 0,
    number = v.number,
    due_at = NULL,
    settled_at = NULL,
    failed_reason = NULL,
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
    WHERE phase = 0 AND bot_id = :bot AND rank IN (0, 1, 2, 3) AND (:chat::text IS NULL OR chat = :chat)
    LIMIT :limit
)
SELECT
    lane.chat,
    lane.thread,
    (SELECT l.id FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.chat = lane.chat AND l.thread = lane.thread
        AND l.rank IN (0, 1, 2, 3) ORDER BY l.rank, l.number LIMIT 1),
    (SELECT count(*) FROM (SELECT 1 FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank IN (0, 1, 2, 3)
        AND l.chat = lane.chat AND l.thread = lane.thread LIMIT :most) AS some)
FROM lane

-- name: ahead
-- The letter at the head of a letter's lane.
SELECT l.id FROM letters AS l
WHERE l.phase = 0 AND l.bot_id = :bot AND l.chat = :chat AND l.thread = :thread AND l.rank IN (0, 1, 2, 3)
ORDER BY l.rank, l.number LIMIT 1

-- name: known_chats
-- Chats of which something is still known; a hold that was taken away is stored as 0.
SELECT chat, same_as, shut_reason, shut_at, nullif(held_until, 0) FROM chats
WHERE bot_id = :bot AND chat > :after AND (same_as IS NOT NULL OR shut_reason IS NOT NULL OR held_until > 0)
ORDER BY chat LIMIT :limit
