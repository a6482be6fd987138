-- Every query of the inbox: what sources bring, what readers take, what becomes of it. People's are in sqlite_arrivals.sql.
-- {rows} stands for as many tuples of values as there are, {arrival} for the columns of an arrival.

-- ---- sources ----

-- name: known_bot
SELECT 1 FROM bots WHERE bot_id = :bot

-- name: inbox
SELECT
    i.bot_id, i.epoch, i.server, i.last_update_id,
    (SELECT max(a.update_id) FROM arrivals AS a
        WHERE a.bot_id = i.bot_id AND a.epoch = i.epoch AND a.replay_of IS NULL),
    i.started_at, i.seen_at, i.received_at, coalesce(i.next_number, 1) - 1, i.expired
FROM inboxes AS i WHERE i.bot_id = :bot

-- name: open_inbox
-- Another server numbers its updates by itself: another epoch, read from its head.
INSERT INTO inboxes (bot_id, epoch_at, server, started_at, updated_at) VALUES (:bot, :at, :server, :at, :at)
ON CONFLICT (bot_id) DO UPDATE SET
    epoch = inboxes.epoch + (inboxes.server <> :server),
    epoch_at = CASE WHEN inboxes.server <> :server THEN :at ELSE inboxes.epoch_at END,
    last_update_id = CASE WHEN inboxes.server <> :server THEN NULL ELSE inboxes.last_update_id END,
    server = :server,
    started_at = :at,
    updated_at = :at

-- name: note_seen
UPDATE inboxes SET seen_at = :at, updated_at = :at WHERE bot_id = :bot

-- name: intake
-- Where these bots stand. The highest id of the epoch: what is above it cannot be here yet. And whether there are notes of
-- MTProto clients at all.
SELECT
    i.bot_id, i.epoch, i.epoch_at, i.next_number,
    (SELECT max(a.update_id) FROM arrivals AS a
        WHERE a.bot_id = i.bot_id AND a.epoch = i.epoch AND a.replay_of IS NULL),
    EXISTS (SELECT 1 FROM handled AS h WHERE h.bot_id = i.bot_id)
FROM inboxes AS i WHERE i.bot_id IN (VALUES {rows})

-- name: find_updates
-- Which of these ids are here already, and what came under them.
SELECT a.update_id, a.type, a.lane, a.user_id, a.message_id, a.sent_at
FROM (VALUES {rows}) AS v
CROSS JOIN arrivals AS a ON a.bot_id = v.column1 AND a.epoch = v.column2 AND a.update_id = v.column3
WHERE a.replay_of IS NULL

-- name: find_digests
-- What these lanes got under an earlier epoch's ids, in these stretches. Not by arrivals_update, which would look at whole epochs.
SELECT a.lane, a.digest
FROM (VALUES {rows}) AS v
CROSS JOIN arrivals AS a INDEXED BY arrivals_lane
    ON a.bot_id = v.column1 AND a.number >> 12 = v.column2 AND a.lane = v.column3 AND a.id >= v.column4
WHERE a.epoch < v.column5 AND a.received_at >= v.column6 AND a.replay_of IS NULL

-- name: find_handled
SELECT h.chat, h.message_id, h.at
FROM (VALUES {rows}) AS v
CROSS JOIN handled AS h ON h.bot_id = v.column1 AND h.chat = v.column2 AND h.message_id = v.column3

-- name: take_in
INSERT INTO arrivals
    (bot_id, number, epoch, update_id, type, lane, user_id, message_id, sent_at, received_at, digest, payload)
VALUES {rows}

-- name: seed
-- Numbers begin with Telegram's own id; what lies below it will never come.
UPDATE consumers SET watermark = :before WHERE bot_id = :bot AND watermark < :before

-- name: taken_in
UPDATE inboxes SET
    epoch = v.column2,
    epoch_at = v.column3,
    next_number = v.column4,
    last_update_id = CASE WHEN epoch = v.column2 THEN coalesce(v.column5, last_update_id) ELSE v.column5 END,
    seen_at = v.column6,
    received_at = coalesce(v.column7, received_at),
    expired = expired + v.column8,
    updated_at = v.column6
FROM (VALUES {rows}) AS v
WHERE inboxes.bot_id = v.column1

-- name: note_handled
INSERT INTO handled (bot_id, chat, message_id, at) VALUES {rows}
ON CONFLICT (bot_id, chat, message_id) DO UPDATE SET at = max(at, excluded.at)

-- name: handled_here
-- Open arrivals of these messages. A press of a button or a reaction names a message too, and is another matter; so is
-- an edit that came after the note.
SELECT a.number
FROM (VALUES {rows}) AS v
CROSS JOIN arrivals AS a INDEXED BY arrivals_lane
    ON a.bot_id = v.column1 AND a.number >> 12 = v.column2 AND a.lane = v.column3 AND a.id >= v.column4
WHERE a.message_id = v.column5 AND a.only_for = 0 AND a.type IN (
    'message', 'edited_message', 'channel_post', 'edited_channel_post', 'business_message', 'edited_business_message',
    'guest_message'
) AND (a.sent_at IS NULL OR a.sent_at <= v.column6 OR a.type NOT GLOB 'edited_*')

-- name: from_number
-- The first of a bot's arrivals for all that has this number or a higher one.
SELECT id, number, epoch, received_at FROM arrivals
WHERE bot_id = ? AND only_for = 0 AND number >= ? ORDER BY number LIMIT 1

-- name: open_outage
INSERT INTO outages (bot_id, began_at, ended_at, last_number) VALUES (:bot, :began_at, :ended_at, :last) RETURNING id

-- name: forget_outages
-- The newest thousand tell enough.
DELETE FROM outages WHERE bot_id = :bot AND settled_at IS NOT NULL
    AND id <= (SELECT o.id FROM outages AS o WHERE o.bot_id = :bot ORDER BY o.id DESC LIMIT 1 OFFSET 1000)

-- name: open_outages
SELECT id, bot_id, began_at, ended_at, last_number, settled_at FROM outages
WHERE bot_id = :bot AND settled_at IS NULL ORDER BY id

-- name: outages
SELECT id, bot_id, began_at, ended_at, last_number, settled_at FROM outages WHERE bot_id = :bot ORDER BY id DESC LIMIT 100

-- name: settle_outage
UPDATE outages SET settled_at = :at WHERE id = :outage AND settled_at IS NULL

-- ---- consumers ----

-- name: consumers
SELECT
    c.id, c.bot_id, c.name, c.kind, c.url, c.secret, c.allowed, c.connections_max, c.watermark,
    (SELECT json_group_array(json_array(s.first, s.last)) FROM spans AS s WHERE s.consumer_id = c.id),
    c.seen_at, c.created_at
FROM consumers AS c
WHERE {where}
ORDER BY c.id

-- name: make_consumer
-- It begins with the oldest arrival still kept.
INSERT INTO consumers (bot_id, name, watermark, created_at)
VALUES (:bot, :name, coalesce(
    (SELECT min(a.number) - 1 FROM arrivals AS a WHERE a.bot_id = :bot AND a.only_for = 0),
    (SELECT i.next_number - 1 FROM inboxes AS i WHERE i.bot_id = :bot),
    0
), :at)
ON CONFLICT (bot_id, name) DO NOTHING

-- name: save_consumer
UPDATE consumers SET
    kind = :kind, url = :url, secret = :secret, allowed = :allowed, connections_max = :connections_max
WHERE id = :consumer

-- name: touch_consumers
UPDATE consumers SET seen_at = v.column2
FROM (VALUES {rows}) AS v
WHERE consumers.id = v.column1 AND v.column2 > coalesce(consumers.seen_at, 0)

-- name: drop_consumer
DELETE FROM consumers WHERE id = :consumer

-- name: drop_spans
DELETE FROM spans WHERE consumer_id = :consumer

-- name: drop_watermarks
DELETE FROM watermarks WHERE consumer_id = :consumer

-- name: drop_deliveries
DELETE FROM deliveries WHERE consumer_id = :consumer

-- ---- handing on ----

-- name: page
-- The next arrivals for a reader, as many as fit into :bytes and at least one, as one JSON value: many rows in one step.
-- The two walks are merged as they go, and stop at the limit; sizes are known without reading the payloads.
SELECT json_group_array(json_array({arrival})) FROM (
    SELECT id, size, sum(size) OVER (ORDER BY number ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT o.id, o.number, octet_length(o.payload) AS size FROM arrivals AS o
        WHERE o.bot_id = (SELECT c.bot_id FROM consumers AS c WHERE c.id = :consumer)
            AND o.only_for = 0 AND o.number > :after
        UNION ALL
        SELECT o.id, o.number, octet_length(o.payload) FROM arrivals AS o
        WHERE o.bot_id = (SELECT c.bot_id FROM consumers AS c WHERE c.id = :consumer)
            AND o.only_for = :consumer AND o.number > :after
        ORDER BY number LIMIT :limit
    )
) AS p
CROSS JOIN arrivals AS a ON a.id = p.id
WHERE p.total <= :bytes OR p.total = p.size

-- name: stretches
-- Each in a query of its own, a step to an end of the index.
SELECT
    (SELECT min(a.number >> 12) FROM arrivals AS a WHERE a.bot_id = :bot),
    (SELECT max(a.number >> 12) FROM arrivals AS a WHERE a.bot_id = :bot)

-- name: lane_stretch
-- What a reader sees of one lane above a number, in one stretch. The number is turned into an id first, since that is what a
-- lane is ordered by there.
SELECT o.id, octet_length(o.payload) FROM arrivals AS o
WHERE o.bot_id = :bot AND o.number >> 12 = :stretch AND o.lane = :lane AND o.only_for IN (0, :consumer) AND o.id > max(
    coalesce((SELECT b.id FROM arrivals AS b WHERE b.bot_id = :bot AND b.only_for = 0
        AND b.number <= :after ORDER BY b.number DESC LIMIT 1), 0),
    coalesce((SELECT b.id FROM arrivals AS b WHERE b.bot_id = :bot AND b.only_for = :consumer
        AND b.number <= :after ORDER BY b.number DESC LIMIT 1), 0)
)
ORDER BY o.id LIMIT :limit

-- name: page_of_bot
-- What came to a bot, whoever reads it: one walk along the order of numbers.
SELECT json_group_array(json_array({arrival})) FROM (
    SELECT o.id FROM arrivals AS o
    WHERE o.bot_id = :bot AND o.only_for = 0 AND o.number > :after
    ORDER BY o.number LIMIT :limit
) AS p
CROSS JOIN arrivals AS a ON a.id = p.id

-- name: bot_of
SELECT bot_id FROM consumers WHERE id = :consumer

-- name: id_of
SELECT id FROM consumers WHERE bot_id = ? AND name = ?

-- name: deferrals
SELECT d.number, d.tries, d.due_at, (
    SELECT a.lane FROM arrivals AS a WHERE a.bot_id = c.bot_id AND a.only_for IN (0, :consumer) AND a.number = d.number
)
FROM consumers AS c CROSS JOIN deliveries AS d INDEXED BY deliveries_open ON d.consumer_id = c.id
WHERE c.id = :consumer AND d.consumer_id = :consumer AND d.phase <> 2 AND d.phase = 0
ORDER BY d.number

-- name: id_range
-- Each in a query of its own: two at once would look at every row.
SELECT coalesce((SELECT min(id) FROM arrivals), 1), coalesce((SELECT max(id) FROM arrivals), 0) + 1

-- name: received_at
SELECT id, received_at FROM arrivals WHERE id >= :id ORDER BY id LIMIT 1

-- name: progress
-- How far a reader is, how far it can be, and whether anything is put off for it.
SELECT
    c.bot_id, c.watermark, coalesce(i.next_number, 1) - 1,
    (SELECT json_group_array(json_array(s.first, s.last)) FROM spans AS s WHERE s.consumer_id = c.id),
    EXISTS (SELECT 1 FROM deliveries AS d WHERE d.consumer_id = c.id AND d.phase <> 2 AND d.phase = 0)
FROM consumers AS c LEFT JOIN inboxes AS i ON i.bot_id = c.bot_id
WHERE c.id = ?

-- name: next_seen
-- The first number above one that this reader sees: what lies between is for others, or gone.
SELECT min(number) FROM (
    SELECT min(a.number) AS number FROM arrivals AS a
    WHERE a.bot_id = :bot AND a.only_for = 0 AND a.number > :after
    UNION ALL
    SELECT min(a.number) FROM arrivals AS a
    WHERE a.bot_id = :bot AND a.only_for = :consumer AND a.number > :after
)

-- name: advance
UPDATE consumers SET watermark = ? WHERE id = ?

-- name: close_spans
DELETE FROM spans WHERE consumer_id = :consumer AND first IN (SELECT value FROM json_each(:firsts))

-- name: keep_spans
INSERT OR REPLACE INTO spans (consumer_id, first, last) VALUES {rows}

-- name: defer
-- Bounded like a letter's history: the first 50 lines tell how it began, the last 50 how it stands.
INSERT INTO deliveries (consumer_id, number, phase, tries, due_at, history)
SELECT column1, column2, 0, column3, column4, CASE WHEN column5 IS NULL THEN '[]' ELSE '[' || column5 || ']' END
FROM (VALUES {rows}) WHERE true
ON CONFLICT (consumer_id, number) DO UPDATE SET
    phase = 0,
    tries = excluded.tries,
    due_at = excluded.due_at,
    history = CASE
        WHEN excluded.history = '[]' THEN history
        WHEN json_array_length(history) >= 100
            THEN json_insert(json_remove(history, '$[50]'), '$[#]', excluded.history -> '$[0]')
        ELSE json_insert(history, '$[#]', excluded.history -> '$[0]')
    END

-- name: bury
INSERT INTO deliveries (consumer_id, number, phase, tries, failed_reason, settled_at, history)
SELECT column1, column2, 3, column3, column4, column5, '[' || column6 || ']'
FROM (VALUES {rows}) WHERE true
ON CONFLICT (consumer_id, number) DO UPDATE SET
    phase = 3,
    tries = excluded.tries,
    due_at = NULL,
    failed_reason = excluded.failed_reason,
    settled_at = excluded.settled_at,
    history = CASE
        WHEN json_array_length(history) >= 100
            THEN json_insert(json_remove(history, '$[50]'), '$[#]', excluded.history -> '$[0]')
        ELSE json_insert(history, '$[#]', excluded.history -> '$[0]')
    END

-- name: complete
-- What was put off and is over now. Its history stays.
UPDATE deliveries SET phase = 2, due_at = NULL, settled_at = :at
FROM json_each(:spans) AS s
WHERE deliveries.consumer_id = :consumer AND deliveries.phase <> 2 AND deliveries.phase = 0
    AND deliveries.number BETWEEN s.value ->> 0 AND s.value ->> 1

-- ---- numbers for replays ----

-- name: take_numbers
UPDATE inboxes SET next_number = next_number + :count, updated_at = :at WHERE bot_id = :bot RETURNING next_number

-- name: replay
-- A copy with a number of its own, at the end of its lane, for one reader. json_each gives them in their order.
INSERT INTO arrivals (
    bot_id, number, epoch, update_id, type, lane, user_id, message_id, sent_at, received_at, digest, payload, replay_of,
    only_for
)
SELECT
    a.bot_id, :first + v.key, a.epoch, a.update_id, a.type, a.lane, a.user_id, a.message_id, a.sent_at, :at, a.digest,
    a.payload, a.id, :consumer
FROM json_each(:arrivals) AS v
CROSS JOIN arrivals AS a ON a.id = v.value
WHERE true
RETURNING id
