-- Every query of the SQLite store. A name, a line of purpose, then the query as a person would type it.
-- {rows} stands for as many tuples of values as a commit brings: one statement then does the work of hundreds with the
-- interpreter lock released all the while, which is what makes one writer thread fast beside a busy event loop.

-- name: number
-- Take numbers of the bots' orders and count the letters that come in. Answers the first free number after them; a bot
-- that is not served any more does not answer.
UPDATE tallies SET
    next_number = next_number + v.column2,
    in_lane = in_lane + v.column3,
    apart = apart + v.column4
FROM (VALUES {rows}) AS v
WHERE tallies.bot_id = v.column1 AND EXISTS (SELECT 1 FROM bots AS b WHERE b.bot_id = v.column1)
RETURNING bot_id, next_number

-- name: accept_plain
-- Letters with the usual terms: most of them.
INSERT INTO letters (bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms)
VALUES {rows}

-- name: accept_traced
-- The same for what answers an update: most of what a bot says.
INSERT INTO letters (bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, trace)
VALUES {rows}

-- name: accept_full
-- Letters with any terms.
INSERT INTO letters (
    bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms,
    phase, backoff, timeout_ms, hold, due_at, expires_at, awaits, target, enclosed, metadata, user_id, message_type, moved,
    hook, trace
)
VALUES {rows}

-- name: find_aliases
-- Which of these chats are known under another key by now.
SELECT c.bot_id, c.chat, c.same_as
FROM (VALUES {rows}) AS v
CROSS JOIN chats AS c ON c.bot_id = v.column1 AND c.chat = v.column2
WHERE c.same_as IS NOT NULL

-- name: find_keys
-- Which of these idempotency keys are taken. A key is taken for as long as it is here: `clean_keys` ends it, by settled time.
SELECT i.bot_id, i.key, i.digest, i.letter_id
FROM idempotency AS i
JOIN (VALUES {rows}) AS v ON i.bot_id = v.column1 AND i.key = v.column2

-- name: keep_keys
INSERT OR REPLACE INTO idempotency (bot_id, key, digest, letter_id, expires_at) VALUES {rows}

-- name: lift_before
-- What waits in a lane before a letter whose priority was judged, and must not be passed by it: normal letters and unasked ones
-- (`LIFTED_RANKS`) take its rank. Whatever a letter is worth, it is lifted twice at most.
UPDATE letters SET rank = :rank
WHERE phase = 0 AND bot_id = :bot AND rank IN (2, 4) AND rank > :rank AND chat = :chat AND thread = :thread
    AND number < :number

-- name: find_named
-- A letter that another one names, if it has not ended; and what it waits for itself.
SELECT bot_id, chat, thread, number, rank, phase, coalesce(merged_into, awaits) FROM letters WHERE id = ? AND phase < 2

-- name: lift_named
UPDATE letters SET rank = ? WHERE id = ?

-- name: find_superseded
-- Waiting edits that a newer one of the same method and target replaces. One in flight is left alone, and so is the
-- one that the newer refers to: it needs the answer.
SELECT l.id, l.bot_id, l.chat, l.thread
FROM letters AS l
WHERE l.bot_id = ? AND l.target = ? AND l.phase = 0 AND l.id < ? AND l.id IS NOT ?
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)

-- name: supersede
-- It stands apart until the newer one ends. It keeps its number and its time, since it may come back.
UPDATE letters SET phase = 1, merged_into = ? WHERE id = ?

-- name: pass_on
-- Edits that gave way to one that was taken back after it had itself given way: they wait for the newest.
UPDATE letters SET merged_into = n.merged_into
FROM (VALUES {rows}) AS v
JOIN letters AS n ON n.id = v.column1 AND n.phase = 4 AND n.merged_into IS NOT NULL
JOIN letters AS o ON o.merged_into = n.id AND o.merged_into IS NOT NULL AND o.phase = 1
WHERE letters.id = o.id
RETURNING id

-- name: come_back
-- Edits that gave way to one that was taken back, or expired and certainly never arrived, stand at their old places again. The
-- lane may have moved in the meantime.
UPDATE letters SET
    phase = 0,
    merged_into = NULL,
    moved = CASE WHEN c.same_as IS NULL THEN letters.moved ELSE 1 END,
    chat = coalesce(c.same_as, letters.chat)
FROM (VALUES {rows}) AS v
JOIN letters AS n ON n.id = v.column1 AND n.merged_into IS NULL
    AND (n.phase = 4 OR (n.phase = 3 AND n.failed_reason = 'expired' AND n.uncertain_tries = 0))
JOIN letters AS o ON o.merged_into = n.id AND o.merged_into IS NOT NULL AND o.phase = 1
LEFT JOIN chats AS c ON c.bot_id = o.bot_id AND c.chat = o.chat
WHERE letters.id = o.id
RETURNING bot_id, id, chat, thread

-- name: followers
-- All edits that gave way to one of these, at once or over others.
WITH RECURSIVE gave_way (id, newest) AS (
    SELECT o.id, v.column1
    FROM (VALUES {rows}) AS v
    CROSS JOIN letters AS n ON n.id = v.column1 AND n.phase IN (2, 3)
    CROSS JOIN letters AS o INDEXED BY letters_merged ON o.merged_into = n.id AND o.merged_into IS NOT NULL AND o.phase = 1
    UNION ALL
    SELECT o.id, gave_way.newest
    FROM gave_way
    CROSS JOIN letters AS o INDEXED BY letters_merged ON o.merged_into = gave_way.id AND o.merged_into IS NOT NULL AND o.phase = 1
)
SELECT
    gave_way.newest, o.id, o.bot_id, o.method, o.chat, n.phase, n.failed_reason, o.uncertain_tries, o.merged_into, o.trace
FROM gave_way CROSS JOIN letters AS o ON o.id = gave_way.id CROSS JOIN letters AS n ON n.id = gave_way.newest

-- name: follow
-- They end as the newest did.
UPDATE letters SET phase = n.phase, settled_at = n.settled_at, failed_reason = n.failed_reason, due_at = NULL
FROM (VALUES {rows}) AS v CROSS JOIN letters AS n ON n.id = v.column2
WHERE letters.id = v.column1

-- name: share_results
-- Its answer is theirs.
INSERT OR REPLACE INTO results (letter_id, result)
SELECT v.column1, r.result FROM (VALUES {rows}) AS v CROSS JOIN results AS r ON r.letter_id = v.column2

-- name: settle
-- The new truth after a try. Only what this owner has marked may be settled: a late settlement changes nothing.
UPDATE letters SET
    phase = v.column2,
    settled_at = v.column3,
    due_at = v.column4,
    attempts_made = v.column5,
    uncertain_tries = v.column6,
    failed_reason = v.column7,
    history = CASE
        WHEN v.column8 IS NULL THEN history
        WHEN history IS NULL THEN '[' || v.column8 || ']'
        -- Bounded: the first 50 lines tell how it began, the last 50 how it stands.
        WHEN json_array_length(history) >= 100 THEN json_insert(json_remove(history, '$[50]'), '$[#]', json(v.column8))
        ELSE json_insert(history, '$[#]', json(v.column8))
    END
FROM (VALUES {rows}) AS v
WHERE letters.id = v.column1
    AND EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = v.column1 AND m.epoch = v.column9)

-- name: end_unsent
-- Letters that end without a try. Only those that still wait and are not in flight; one that was merged waits for the newer.
UPDATE letters SET
    phase = v.column2,
    settled_at = v.column3,
    failed_reason = v.column4,
    history = CASE
        WHEN history IS NULL THEN '[' || v.column5 || ']'
        WHEN json_array_length(history) >= 100 THEN json_insert(json_remove(history, '$[50]'), '$[#]', json(v.column5))
        ELSE json_insert(history, '$[#]', json(v.column5))
    END
FROM (VALUES {rows}) AS v
WHERE letters.id = v.column1 AND letters.phase < 2 AND letters.merged_into IS NULL
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = v.column1)
RETURNING id

-- name: phases
SELECT id, bot_id, phase FROM letters WHERE id IN (VALUES {rows}) AND phase < 2

-- name: only_marked
-- Which of these this owner has in flight. Asked only if it was not all of them: then it is a zombie.
SELECT letter_id FROM marks WHERE epoch = ? AND letter_id IN (SELECT value FROM json_each(?))

-- name: keep_results
INSERT OR REPLACE INTO results (letter_id, result)
SELECT v.column1, v.column2 FROM (VALUES {rows}) AS v WHERE v.column1 IS NOT NULL

-- name: has_company
-- Whether there is a letter at all that stands apart for another, one with files, and one that was merged: most stores have none,
-- and then nobody need look for those of each letter that ends. One step each: the first of an index that holds only such letters.
SELECT
    EXISTS (SELECT 1 FROM letters INDEXED BY letters_awaits WHERE awaits IS NOT NULL AND phase = 1 AND awaits > 0),
    EXISTS (SELECT 1 FROM letters INDEXED BY letters_enclosed WHERE enclosed IS NOT NULL AND phase >= 0),
    EXISTS (SELECT 1 FROM letters INDEXED BY letters_merged WHERE merged_into IS NOT NULL AND phase = 1 AND merged_into > 0)

-- name: unmark
DELETE FROM marks WHERE letter_id IN (VALUES {rows})

-- name: mark
-- Right before a try. A mark takes only if the letter waits at the place and as the sender last saw it, is not in flight
-- already, and nobody has become the owner after this one.
INSERT INTO marks (letter_id, bot_id, epoch, marked_at)
SELECT v.column1, v.column2, v.column6, v.column7
FROM (VALUES {rows}) AS v
CROSS JOIN letters AS l ON l.id = v.column1
WHERE l.phase = 0 AND l.number = v.column3 AND l.attempts_made = v.column4 AND l.uncertain_tries = v.column5
    AND v.column6 = (SELECT max(epoch) FROM epochs)
ON CONFLICT (letter_id) DO NOTHING

-- name: has_older
-- Whether letters wait in a lane that came before a number.
SELECT 1 FROM letters INDEXED BY letters_lane
WHERE bot_id = ? AND rank IN (0, 1, 2, 3, 4) AND chat = ? AND thread = ? AND phase = 0 AND number < ?
LIMIT 1

-- name: tally
-- Count the letters that went from one phase to another.
UPDATE tallies SET
    in_lane = in_lane + v.column2,
    apart = apart + v.column3,
    completed = completed + v.column4,
    failed = failed + v.column5,
    cancelled = cancelled + v.column6
FROM (VALUES {rows}) AS v
WHERE tallies.bot_id = v.column1

-- name: release_dependents
-- Letters that stood apart for one of these join their lanes at their old place. Scheduled ones go on waiting for their
-- time: they have no place yet. Merged ones wait for the newer edit.
UPDATE letters SET
    phase = 0,
    moved = CASE WHEN c.same_as IS NULL THEN letters.moved ELSE 1 END,
    chat = coalesce(c.same_as, letters.chat)
FROM (VALUES {rows}) AS v
JOIN letters AS p ON p.awaits = v.column1 AND p.awaits IS NOT NULL AND p.phase = 1 AND p.due_at IS NULL
    AND p.merged_into IS NULL
LEFT JOIN chats AS c ON c.bot_id = p.bot_id AND c.chat = p.chat
WHERE letters.id = p.id
RETURNING bot_id, id, chat, thread

-- name: left_in_flight
SELECT {letter}
FROM marks AS m JOIN letters AS l ON l.id = m.letter_id
WHERE m.bot_id = ?
ORDER BY l.id

-- name: adopt_marks
-- The new owner takes over what the dead one had marked, so that its settlement is accepted.
UPDATE marks SET epoch = ? WHERE bot_id = ?

-- name: sweep
-- The next lanes of a rank in the order of their keys, one seek each however long they are, with the front of each.
-- The key is compared in two steps (same chat and later thread, else later chat) because SQLite would otherwise walk
-- through a whole lane of 50,000 letters to find the next one. To begin at the beginning :chat is the least integer: an
-- OR for that case would walk from the first lane to the cursor each time.
WITH RECURSIVE lane (chat, thread) AS (
    SELECT chat, thread FROM (
        SELECT l.chat, l.thread FROM letters AS l
        WHERE l.phase = 0 AND l.id = coalesce(
            (SELECT a.id FROM letters AS a WHERE a.phase = 0 AND a.bot_id = :bot AND a.rank = :rank
                AND a.chat = :chat AND a.thread > :thread ORDER BY a.thread LIMIT 1),
            (SELECT b.id FROM letters AS b WHERE b.phase = 0 AND b.bot_id = :bot AND b.rank = :rank
                AND b.chat > :chat ORDER BY b.chat, b.thread LIMIT 1)
        )
    )
    UNION ALL
    SELECT n.chat, n.thread
    FROM lane
    JOIN letters AS n ON n.id = coalesce(
        (SELECT a.id FROM letters AS a WHERE a.phase = 0 AND a.bot_id = :bot AND a.rank = :rank
            AND a.chat = lane.chat AND a.thread > lane.thread ORDER BY a.thread LIMIT 1),
        (SELECT b.id FROM letters AS b WHERE b.phase = 0 AND b.bot_id = :bot AND b.rank = :rank
            AND b.chat > lane.chat ORDER BY b.chat, b.thread LIMIT 1)
    )
    LIMIT :lanes
)
SELECT lane.chat, lane.thread, {front} FROM lane

-- name: fronts
-- The fronts of the lanes in a JSON array of [chat, thread].
SELECT lane.value ->> 0, lane.value ->> 1, {front} FROM json_each(:lanes) AS lane

-- name: front
-- The first letters of one lane over all ranks, as one JSON value: many rows in one step. It is put into `sweep` and
-- `fronts`. One branch per rank, so that each is a short walk along the index; the order is made by the reader.
(
    SELECT json_group_array(json_array({columns})) FROM (
        SELECT * FROM (SELECT {columns} FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank = 0
            AND l.chat = {chat} AND l.thread = {thread} ORDER BY l.number LIMIT :letters)
        UNION ALL
        SELECT * FROM (SELECT {columns} FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank = 1
            AND l.chat = {chat} AND l.thread = {thread} ORDER BY l.number LIMIT :letters)
        UNION ALL
        SELECT * FROM (SELECT {columns} FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank = 2
            AND l.chat = {chat} AND l.thread = {thread} ORDER BY l.number LIMIT :letters)
        UNION ALL
        SELECT * FROM (SELECT {columns} FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank = 3
            AND l.chat = {chat} AND l.thread = {thread} ORDER BY l.number LIMIT :letters)
        UNION ALL
        SELECT * FROM (SELECT {columns} FROM letters AS l WHERE l.phase = 0 AND l.bot_id = :bot AND l.rank = 4
            AND l.chat = {chat} AND l.thread = {thread} ORDER BY l.number LIMIT :letters)
    )
)

-- name: recent_tries
-- What Telegram may have counted since then: deliveries, and every try that may have arrived, of letters that were
-- delivered later, are dead, or still wait. Of all who ask at once, since those of a minute are looked through for it.
WITH asked (bot_id) AS MATERIALIZED (SELECT value FROM json_each(:bots))
SELECT l.bot_id, l.chat, l.weight, l.method, l.settled_at AS at FROM letters AS l INDEXED BY letters_done
WHERE l.phase IN (2, 4) AND l.settled_at >= :since AND l.bot_id IN asked AND l.phase = 2 AND l.merged_into IS NULL
UNION ALL
SELECT l.bot_id, l.chat, l.weight, l.method, h.value ->> 'at' FROM (
    SELECT l.bot_id, l.chat, l.weight, l.method, l.history FROM letters AS l INDEXED BY letters_done
    WHERE l.phase IN (2, 4) AND l.settled_at >= :since AND l.bot_id IN asked AND l.history IS NOT NULL
    UNION ALL
    SELECT l.bot_id, l.chat, l.weight, l.method, l.history FROM letters AS l INDEXED BY letters_dead
    WHERE l.phase = 3 AND l.settled_at >= :since AND l.bot_id IN asked AND l.history IS NOT NULL
    UNION ALL
    SELECT l.bot_id, l.chat, l.weight, l.method, l.history FROM letters AS l INDEXED BY letters_doubted
    WHERE l.phase < 2 AND l.uncertain_tries > 0 AND l.bot_id IN asked
) AS l, json_each(l.history) AS h
WHERE h.value ->> 'outcome' = 'uncertain' AND h.value ->> 'at' >= :since
ORDER BY at

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
UPDATE letters SET chat = :new, moved = 1 WHERE bot_id = :bot AND chat = :old AND phase = 0 AND rank IN (0, 1, 2, 3, 4)

-- name: keep_alias
INSERT INTO chats (bot_id, chat, same_as) VALUES (:bot, :old, :new)
ON CONFLICT (bot_id, chat) DO UPDATE SET same_as = excluded.same_as

-- name: flatten_aliases
-- Every alias names the last key at once, and the last key is nobody's alias: following one is one step, never a circle.
UPDATE chats SET same_as = nullif(:new, chat)
WHERE bot_id = :bot AND same_as IS NOT NULL AND (same_as = :old OR chat = :new)

-- name: due
SELECT id, bot_id FROM letters
WHERE due_at IS NOT NULL AND phase < 2 AND phase = 1 AND due_at <= ? AND merged_into IS NULL
ORDER BY due_at, id LIMIT ?

-- name: next_due
SELECT min(due_at) FROM letters WHERE due_at IS NOT NULL AND phase < 2 AND phase = 1 AND merged_into IS NULL

-- name: join
-- A scheduled letter joins the end of its lane, which may have moved in the meantime.
UPDATE letters SET
    phase = 0,
    due_at = NULL,
    number = v.column2,
    moved = CASE WHEN c.same_as IS NULL THEN letters.moved ELSE 1 END,
    chat = coalesce(c.same_as, letters.chat)
FROM (VALUES {rows}) AS v
JOIN letters AS s ON s.id = v.column1
LEFT JOIN chats AS c ON c.bot_id = s.bot_id AND c.chat = s.chat
WHERE letters.id = s.id

-- name: letters
SELECT {letter} FROM letters AS l WHERE l.id IN (VALUES {rows}) ORDER BY l.number

-- name: expired
SELECT id FROM letters
WHERE expires_at IS NOT NULL AND phase < 2 AND merged_into IS NULL AND expires_at <= ?
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = letters.id)
ORDER BY expires_at LIMIT ?

-- name: next_expiry
SELECT min(expires_at) FROM letters WHERE expires_at IS NOT NULL AND phase < 2 AND merged_into IS NULL

-- name: view
-- One letter as people see it.
SELECT
    l.id, l.bot_id, l.method, l.params, l.chat, l.thread, l.phase, l.rank, l.attempts, l.attempts_made, l.uncertain_tries,
    l.failed_reason, r.result, l.history, l.merged_into, l.metadata, l.user_id, l.message_type, l.hold,
    l.created_at, l.due_at, l.expires_at, m.marked_at, l.settled_at, l.trace
FROM letters AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
WHERE l.id = ?

-- name: tallies
-- Counts per bot. What is in flight and what backs off is few, and counted as it stands.
SELECT t.bot_id, t.in_lane, t.apart, t.completed, t.failed, t.cancelled
FROM tallies AS t JOIN bots AS b ON b.bot_id = t.bot_id

-- name: in_flight
SELECT bot_id, count(*) FROM marks GROUP BY bot_id

-- name: backing_off
SELECT l.bot_id, count(*) FROM letters AS l INDEXED BY letters_due
WHERE l.due_at IS NOT NULL AND l.phase < 2 AND l.phase = 0 AND l.due_at > ?
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)
GROUP BY l.bot_id

-- name: ended_by_minute
-- How many letters were delivered and how many failed, minute by minute.
SELECT minute, sum(delivered), sum(failed) FROM (
    SELECT settled_at / 60000 AS minute, count(*) AS delivered, 0 AS failed FROM letters INDEXED BY letters_done
    WHERE phase IN (2, 4) AND settled_at >= :since AND settled_at < :until AND phase = 2 AND merged_into IS NULL
    GROUP BY 1
    UNION ALL
    SELECT settled_at / 60000, 0, count(*) FROM letters INDEXED BY letters_dead
    WHERE phase = 3 AND settled_at >= :since AND settled_at < :until
    GROUP BY 1
) AS ended GROUP BY minute

-- name: bots
SELECT bot_id, token, username, inbound, paused, limits, missed, me, created_at FROM bots ORDER BY created_at, bot_id

-- name: save_bot
INSERT INTO bots (bot_id, token, username, inbound, paused, limits, missed, me, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (bot_id) DO UPDATE SET
    token = excluded.token, username = coalesce(excluded.username, bots.username), inbound = excluded.inbound,
    paused = excluded.paused, limits = excluded.limits, missed = excluded.missed,
    me = excluded.me

-- name: save_tally
INSERT INTO tallies (bot_id) VALUES (?) ON CONFLICT (bot_id) DO NOTHING

-- name: waiting_of_bot
SELECT in_lane + apart FROM tallies WHERE bot_id = ?

-- name: remove_bot
DELETE FROM bots WHERE bot_id = ?

-- name: chats
SELECT chat, same_as, shut_reason, shut_at, held_until FROM chats
WHERE bot_id = ? AND (same_as IS NOT NULL OR shut_reason IS NOT NULL OR held_until IS NOT NULL)

-- name: shut_chat
INSERT INTO chats (bot_id, chat, shut_reason, shut_at) VALUES (?, ?, ?, ?)
ON CONFLICT (bot_id, chat) DO UPDATE SET shut_reason = excluded.shut_reason, shut_at = excluded.shut_at

-- name: hold_chat
INSERT INTO chats (bot_id, chat, held_until) VALUES (?, ?, ?)
ON CONFLICT (bot_id, chat) DO UPDATE SET held_until = excluded.held_until

-- name: hold_bot
INSERT INTO bot_holds (bot_id, held_until) VALUES (?, ?)
ON CONFLICT (bot_id) DO UPDATE SET held_until = excluded.held_until

-- name: bot_held_until
SELECT held_until FROM bot_holds WHERE bot_id = ?

-- name: file_id
SELECT file_id FROM file_ids WHERE bot_id = ? AND digest = ? AND kind = ?

-- name: keep_file_id
INSERT OR REPLACE INTO file_ids (bot_id, digest, kind, file_id, at) VALUES (?, ?, ?, ?, ?)

-- name: forget_file_id
DELETE FROM file_ids WHERE bot_id = ? AND digest = ? AND kind = ?

-- name: blobs
-- Files that letters still need: all but those of completed and cancelled ones.
SELECT enclosed FROM letters WHERE enclosed IS NOT NULL AND phase IN (0, 1, 3)

-- name: enclosed_of
SELECT enclosed FROM letters WHERE id IN (VALUES {rows}) AND enclosed IS NOT NULL

-- name: old_letters
-- Ended letters whose time is over: completed and cancelled ones, then dead ones.
SELECT id, bot_id, phase, enclosed FROM (
    SELECT id, bot_id, phase, enclosed FROM letters WHERE phase IN (2, 4) AND settled_at < ? ORDER BY settled_at LIMIT ?
)
UNION ALL
SELECT id, bot_id, phase, enclosed FROM (
    SELECT id, bot_id, phase, enclosed FROM letters WHERE phase = 3 AND settled_at < ? ORDER BY settled_at LIMIT ?
)

-- name: logged_status
SELECT status FROM message_log WHERE id = ?

-- name: logged
SELECT id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, text, created_at, finished_at
FROM message_log WHERE (created_at, id) < (:at, :id) ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: log_letters
INSERT OR REPLACE INTO message_log
    (
        id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id, text, created_at, finished_at
    )
SELECT
    l.id, l.bot_id, l.chat, l.user_id, l.message_type, l.method,
    CASE l.phase WHEN 2 THEN 'completed' WHEN 3 THEN 'failed' ELSE 'cancelled' END,
    max(l.attempts_made, 0), l.failed_reason,
    CASE WHEN json_valid(r.result) THEN coalesce(r.result ->> '$.message_id', r.result ->> '$[0].message_id') END,
    CASE WHEN json_valid(l.params) THEN coalesce(l.params ->> '$.text', l.params ->> '$.caption') END,
    l.created_at, l.settled_at
FROM letters AS l LEFT JOIN results AS r ON r.letter_id = l.id
WHERE l.id IN (VALUES {rows})

-- name: drop_letters
DELETE FROM letters WHERE id IN (VALUES {rows})

-- name: drop_results
DELETE FROM results WHERE letter_id IN (VALUES {rows})

-- name: clean_log
DELETE FROM message_log WHERE id IN (SELECT id FROM message_log WHERE created_at < ? ORDER BY created_at LIMIT ?)

-- name: clean_keys
DELETE FROM idempotency WHERE (bot_id, key) IN (
    SELECT bot_id, key FROM idempotency WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
)

-- name: new_epoch
INSERT INTO epochs (opened_at) VALUES (?) RETURNING epoch
