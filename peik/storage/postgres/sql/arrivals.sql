-- What people and time ask of arrivals: find them, hand them on again, count them, let old ones go.
-- {where} stands for the conditions of a filter (every value is bound, none is pasted in), {order} for DESC or ASC.

-- name: find_any
-- Walks the primary key from the cursor on: a page costs the same however many there are, unless a filter finds few.
SELECT a.id, a.number FROM arrivals AS a
WHERE {where}
ORDER BY a.id {order} LIMIT :limit

-- name: of_bot
-- Plus nought keeps the planner from sorting all that a bot has: this walk ends when the page is full.
a.bot_id + 0 = :bot_id

-- name: of_bots
a.bot_id + 0 = ANY (:bot_ids::bigint[])

-- name: find_in_lane
-- One chat of one bot, along its own index.
SELECT a.id, a.number FROM arrivals AS a
WHERE a.bot_id = :bot AND a.lane = :chat AND {where}
ORDER BY a.id {order} LIMIT :limit

-- name: find_for_consumer
-- What one consumer sees: two walks along the order of numbers, which within a bot is that of ids, merged as they go. Each
-- has an order and an end of its own: else the planner reads and sorts all that a bot has.
(SELECT a.id, a.number FROM arrivals AS a
WHERE a.bot_id = :bot AND a.only_for = 0 AND a.number > :above AND {where}
ORDER BY a.number {order} LIMIT :limit)
UNION ALL
(SELECT a.id, a.number FROM arrivals AS a
WHERE a.bot_id = :bot AND a.only_for = :consumer AND a.number > :above AND {where}
ORDER BY a.number {order} LIMIT :limit)
ORDER BY number {order} LIMIT :limit

-- name: find_with_story
-- Dead ones and put-off ones of one consumer, found by their own index.
SELECT a.id, a.number
FROM deliveries AS d
JOIN arrivals AS a ON a.bot_id = :bot AND a.only_for IN (0, :consumer) AND a.number = d.number
WHERE d.consumer_id = :consumer AND d.phase <> 2 AND d.phase = :phase AND {where}
ORDER BY d.number {order} LIMIT :limit

-- name: count
SELECT count(*) FROM ({walk}) AS walk

-- name: is_over
-- Whether an arrival is over for a consumer. It is put into the queries of this file.
(a.number <= {watermark} OR coalesce((
    SELECT s.last FROM spans AS s WHERE s.consumer_id = {consumer} AND s.first <= a.number ORDER BY s.first DESC LIMIT 1
), 0) >= a.number)

-- name: those
SELECT {arrival} FROM arrivals AS a WHERE a.id = ANY (:ids::bigint[]) ORDER BY a.id

-- name: deliveries
-- How each of these arrivals stands with the consumers that see it, or with one of them.
SELECT a.id, c.name, {is_over}::integer, d.phase, d.tries, d.due_at, d.failed_reason, d.settled_at, d.history
FROM arrivals AS a
JOIN consumers AS c ON c.bot_id = a.bot_id
LEFT JOIN deliveries AS d ON d.consumer_id = c.id AND d.number = a.number
WHERE a.id = ANY (:ids::bigint[]) AND a.only_for IN (0, c.id) AND (:name::text IS NULL OR c.name = :name)
ORDER BY a.id, c.id

-- name: filtered_consumers
SELECT c.id, c.bot_id, c.watermark FROM consumers AS c
WHERE c.name = :name AND (:bot_id::bigint IS NULL OR c.bot_id = :bot_id)
    AND (:bot_ids::bigint[] IS NULL OR c.bot_id = ANY (:bot_ids))

-- name: filtered_bots
SELECT i.bot_id FROM inboxes AS i
WHERE (:bot_id::bigint IS NULL OR i.bot_id = :bot_id) AND (:bot_ids::bigint[] IS NULL OR i.bot_id = ANY (:bot_ids))

-- name: last_id
SELECT coalesce(max(id), 0) FROM arrivals

-- name: still_here
SELECT a.id FROM arrivals AS a WHERE a.id = ANY (:ids::bigint[]) AND a.bot_id = :bot ORDER BY a.id

-- name: drop_stories
DELETE FROM deliveries WHERE consumer_id = :consumer AND number = ANY (:numbers::bigint[])

-- name: tally
-- One consumer's backlog, counted along the order of numbers without a look at the arrivals themselves.
SELECT
    (SELECT count(*) FROM arrivals AS a WHERE a.bot_id = :bot AND a.only_for IN (0, :consumer) AND a.number > :watermark)
    - (SELECT count(*) FROM spans AS s JOIN arrivals AS a ON a.bot_id = :bot AND a.only_for IN (0, :consumer)
        AND a.number BETWEEN s.first AND s.last WHERE s.consumer_id = :consumer),
    (SELECT count(*) FROM deliveries AS d
        WHERE d.consumer_id = :consumer AND d.phase <> 2 AND d.phase = 0 AND d.due_at > :now),
    (SELECT count(*) FROM deliveries AS d WHERE d.consumer_id = :consumer AND d.phase <> 2 AND d.phase = 3),
    (SELECT a.received_at FROM arrivals AS a WHERE a.id = least(
        (SELECT o.id FROM arrivals AS o WHERE o.bot_id = :bot AND o.only_for = 0
            AND o.number > :watermark ORDER BY o.number LIMIT 1),
        (SELECT o.id FROM arrivals AS o WHERE o.bot_id = :bot AND o.only_for = :consumer
            AND o.number > :watermark ORDER BY o.number LIMIT 1)
    ))

-- ---- upkeep ----

-- name: checkpoint
-- Where every reader stands, once an hour.
INSERT INTO watermarks (consumer_id, at, watermark)
SELECT c.id, :at, c.watermark FROM consumers AS c
WHERE NOT EXISTS (SELECT 1 FROM watermarks AS w WHERE w.consumer_id = c.id AND w.at > :at::bigint - 3600000)
ON CONFLICT (consumer_id, at) DO NOTHING

-- name: forget_checkpoints
-- The newest one that is old enough is what counts. Those of the future were made by a clock that was wrong.
DELETE FROM watermarks WHERE at > :at OR at < (
    SELECT max(w.at) FROM watermarks AS w WHERE w.consumer_id = watermarks.consumer_id AND w.at <= :before
)

-- name: floors
-- How far every reader was at that time; a reader without an answer is too young to have had anything for so long.
SELECT c.bot_id, c.id, (
    SELECT w.watermark FROM watermarks AS w WHERE w.consumer_id = c.id AND w.at <= :before ORDER BY w.at DESC LIMIT 1
)
FROM consumers AS c

-- name: replay_owners
-- Whose replays a bot's arrivals hold, one seek each.
WITH RECURSIVE owner (id) AS (
    SELECT min(a.only_for) FROM arrivals AS a WHERE a.bot_id = :bot AND a.only_for > 0
    UNION ALL
    SELECT (SELECT min(a.only_for) FROM arrivals AS a WHERE a.bot_id = :bot AND a.only_for > owner.id)
    FROM owner WHERE owner.id IS NOT NULL
)
SELECT id FROM owner WHERE id IS NOT NULL

-- name: read_ones
-- Read by everybody for long enough, and no dead arrival that people may still look at.
SELECT a.id, a.number FROM arrivals AS a
WHERE a.bot_id = :bot AND a.only_for = :only_for AND a.number <= :floor AND a.id < :id_end
    AND NOT EXISTS (
        SELECT 1 FROM consumers AS c JOIN deliveries AS d ON d.consumer_id = c.id AND d.number = a.number
        WHERE c.bot_id = :bot AND d.phase = 3 AND d.settled_at >= :died_since
    )
ORDER BY a.number LIMIT :limit

-- name: old_ones
-- Too old to be kept, read or not, and whether somebody has not read it.
SELECT a.id, a.number, EXISTS (
    SELECT 1 FROM consumers AS c WHERE c.bot_id = :bot AND a.only_for IN (0, c.id) AND NOT {is_over}
)
FROM arrivals AS a
WHERE a.bot_id = :bot AND a.only_for = :only_for AND a.id < :id_end AND a.received_at < :received_before
    AND NOT EXISTS (
        SELECT 1 FROM consumers AS c JOIN deliveries AS d ON d.consumer_id = c.id AND d.number = a.number
        WHERE c.bot_id = :bot AND d.phase = 3 AND d.settled_at >= :died_since
    )
ORDER BY a.number LIMIT :limit

-- name: drop_arrivals
DELETE FROM arrivals WHERE id = ANY (:ids::bigint[])

-- name: drop_their_stories
DELETE FROM deliveries WHERE consumer_id IN (SELECT c.id FROM consumers AS c WHERE c.bot_id = :bot)
    AND number = ANY (:numbers::bigint[])

-- name: idle_consumers
SELECT c.id FROM consumers AS c
WHERE c.name <> 'default' AND greatest(coalesce(c.seen_at, 0), c.created_at) < :before
ORDER BY c.id LIMIT :limit

-- name: forget_handled
DELETE FROM handled WHERE (bot_id, chat, message_id) IN (
    SELECT h.bot_id, h.chat, h.message_id FROM handled AS h WHERE h.at < :before ORDER BY h.at LIMIT :limit
)

-- name: inboxes
SELECT bot_id FROM inboxes ORDER BY bot_id

-- name: forget_bot_arrivals
DELETE FROM arrivals WHERE bot_id = :bot

-- name: forget_bot_outages
DELETE FROM outages WHERE bot_id = :bot

-- name: forget_bot_handled
DELETE FROM handled WHERE bot_id = :bot

-- name: forget_bot_inbox
DELETE FROM inboxes WHERE bot_id = :bot
