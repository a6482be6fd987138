-- Every query of the inbox: what sources bring, what readers take, what becomes of it. People's are in arrivals.sql.
-- {arrival} stands for the columns of an arrival.

-- ---- sources ----

-- name: lock_inboxes
SELECT 1 FROM inboxes WHERE bot_id = ANY (:bots::bigint[]) ORDER BY bot_id FOR NO KEY UPDATE

-- name: known_bot
-- FOR KEY SHARE: it is not removed before this commit, so that no inbox is left behind.
SELECT 1 FROM bots WHERE bot_id = :bot FOR KEY SHARE

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
    epoch = inboxes.epoch + CASE WHEN inboxes.server <> excluded.server THEN 1 ELSE 0 END,
    epoch_at = CASE WHEN inboxes.server <> excluded.server THEN excluded.epoch_at ELSE inboxes.epoch_at END,
    last_update_id = CASE WHEN inboxes.server <> excluded.server THEN NULL ELSE inboxes.last_update_id END,
    server = excluded.server,
    started_at = excluded.started_at,
    updated_at = excluded.updated_at

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
FROM inboxes AS i WHERE i.bot_id = ANY (:bots::bigint[])

-- name: find_updates
-- Which of these ids are here already, and what came under them.
SELECT a.update_id, a.type, a.lane, a.user_id, a.message_id, a.sent_at
FROM arrivals AS a
WHERE a.bot_id = :bot AND a.epoch = :epoch AND a.update_id = ANY (:updates::bigint[]) AND a.replay_of IS NULL

-- name: find_digests
-- What these lanes got lately under an earlier epoch's ids.
SELECT a.lane, a.digest
FROM unnest(:lanes::text[]) AS v (lane)
JOIN arrivals AS a ON a.bot_id = :bot AND a.lane = v.lane COLLATE "C" AND a.id >= :first
WHERE a.epoch < :epoch AND a.received_at >= :since AND a.replay_of IS NULL

-- name: find_handled
SELECT h.chat, h.message_id, h.at
FROM unnest(:chats::bigint[], :messages::bigint[]) AS v (chat, message_id)
JOIN handled AS h ON h.bot_id = :bot AND h.chat = v.chat AND h.message_id = v.message_id

-- name: take_in
-- Ids rise in the order of the arrays, since they are given after the sort.
INSERT INTO arrivals
    (bot_id, number, epoch, update_id, type, lane, user_id, message_id, sent_at, received_at, digest, payload)
SELECT
    v.bot_id, v.number, v.epoch, v.update_id, v.type, v.lane, v.user_id, v.message_id, v.sent_at, v.received_at, v.digest,
    v.payload
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bytea[], $12::text[]
) WITH ORDINALITY AS v (
    bot_id, number, epoch, update_id, type, lane, user_id, message_id, sent_at, received_at, digest, payload, place
)
ORDER BY v.place

-- name: seed
-- Numbers begin with Telegram's own id; what lies below it will never come.
UPDATE consumers SET watermark = :before WHERE bot_id = :bot AND watermark < :before

-- name: taken_in
UPDATE inboxes SET
    epoch = v.epoch,
    epoch_at = v.epoch_at,
    next_number = v.next_number,
    last_update_id = CASE
        WHEN inboxes.epoch = v.epoch THEN coalesce(v.last_update_id, inboxes.last_update_id) ELSE v.last_update_id
    END,
    seen_at = v.seen_at,
    received_at = coalesce(v.received_at, inboxes.received_at),
    expired = inboxes.expired + v.expired,
    updated_at = v.seen_at
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]
) AS v (bot_id, epoch, epoch_at, next_number, last_update_id, seen_at, received_at, expired)
WHERE inboxes.bot_id = v.bot_id

-- name: note_handled
INSERT INTO handled (bot_id, chat, message_id, at)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
ON CONFLICT (bot_id, chat, message_id) DO UPDATE SET at = greatest(handled.at, excluded.at)

-- name: handled_here
-- Open arrivals of these messages. A press of a button or a reaction names a message too, and is another matter; so is an
-- edit that came after the note.
SELECT a.number
FROM unnest(:chats::bigint[], :messages::bigint[]) AS v (chat, message_id)
JOIN arrivals AS a ON a.bot_id = :bot AND a.lane = v.chat::text COLLATE "C" AND a.id >= :first
WHERE a.message_id = v.message_id AND a.only_for = 0 AND a.type IN (
    'message', 'edited_message', 'channel_post', 'edited_channel_post', 'business_message', 'edited_business_message',
    'guest_message'
) AND (a.sent_at IS NULL OR a.sent_at <= :at OR NOT starts_with(a.type, 'edited_'))

-- name: first_open
-- From where to look in a lane: not through all that was read long ago.
SELECT id FROM arrivals WHERE bot_id = :bot AND only_for = 0 AND number > :watermark ORDER BY number LIMIT 1

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
SELECT id, bot_id, began_at, ended_at, last_number, settled_at FROM outages
WHERE bot_id = :bot ORDER BY id DESC LIMIT 100

-- name: settle_outage
UPDATE outages SET settled_at = :at WHERE id = :outage AND settled_at IS NULL

-- ---- consumers ----

-- name: consumers
SELECT
    c.id, c.bot_id, c.name, c.kind, c.url, c.secret, c.allowed, c.connections_max, c.watermark,
    (SELECT coalesce(json_agg(json_build_array(s.first, s.last) ORDER BY s.first), '[]')::text
        FROM spans AS s WHERE s.consumer_id = c.id),
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
UPDATE consumers SET seen_at = v.at
FROM unnest(:consumers::bigint[], :ats::bigint[]) AS v (id, at)
WHERE consumers.id = v.id AND v.at > coalesce(consumers.seen_at, 0)

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
-- The next arrivals for a reader, as many as fit into :bytes and at least one. The two walks are merged as they go, and stop
-- at the limit; sizes are known without reading the payloads.
SELECT {arrival} FROM (
    SELECT w.id, w.size, sum(w.size) OVER (ORDER BY w.number ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT o.id, o.number, octet_length(o.payload) AS size FROM arrivals AS o
        WHERE o.bot_id = :bot AND o.only_for = 0 AND o.number > :after
        UNION ALL
        SELECT o.id, o.number, octet_length(o.payload) FROM arrivals AS o
        WHERE o.bot_id = :bot AND o.only_for = :consumer AND o.number > :after
        ORDER BY number LIMIT :limit
    ) AS w
) AS p
JOIN arrivals AS a ON a.id = p.id
WHERE p.total <= :bytes OR p.total = p.size
ORDER BY a.id

-- name: lane_page
-- The same of one lane. The number is turned into an id first, since that is what a lane is ordered by.
SELECT {arrival} FROM (
    SELECT w.id, w.size, sum(w.size) OVER (ORDER BY w.id ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT o.id, octet_length(o.payload) AS size FROM arrivals AS o
        WHERE o.bot_id = :bot AND o.lane = :lane AND o.only_for IN (0, :consumer) AND o.id > greatest(
            coalesce((SELECT b.id FROM arrivals AS b WHERE b.bot_id = :bot AND b.only_for = 0
                AND b.number <= :after ORDER BY b.number DESC LIMIT 1), 0),
            coalesce((SELECT b.id FROM arrivals AS b WHERE b.bot_id = :bot AND b.only_for = :consumer
                AND b.number <= :after ORDER BY b.number DESC LIMIT 1), 0)
        )
        ORDER BY o.id LIMIT :limit
    ) AS w
) AS p
JOIN arrivals AS a ON a.id = p.id
WHERE p.total <= :bytes OR p.total = p.size
ORDER BY a.id

-- name: page_of_bot
-- What came to a bot, whoever reads it: one walk along the order of numbers.
SELECT {arrival} FROM arrivals AS a
WHERE a.bot_id = :bot AND a.only_for = 0 AND a.number > :after
ORDER BY a.number LIMIT :limit

-- name: bot_of
SELECT bot_id FROM consumers WHERE id = :consumer

-- name: deferrals
SELECT d.number, d.tries, d.due_at, (
    SELECT a.lane FROM arrivals AS a WHERE a.bot_id = c.bot_id AND a.only_for IN (0, :consumer) AND a.number = d.number
)
FROM consumers AS c JOIN deliveries AS d ON d.consumer_id = c.id
WHERE c.id = :consumer AND d.phase <> 2 AND d.phase = 0
ORDER BY d.number

-- name: id_range
-- Each in a query of its own: a step to either end of the primary key.
SELECT coalesce((SELECT min(id) FROM arrivals), 1), coalesce((SELECT max(id) FROM arrivals), 0) + 1

-- name: received_at
SELECT id, received_at FROM arrivals WHERE id >= :id ORDER BY id LIMIT 1

-- name: lock_consumer
-- In a statement of its own: what is read after it is of the moment after the lock.
SELECT 1 FROM consumers WHERE id = :consumer FOR NO KEY UPDATE

-- name: progress
-- How far a reader is, how far it can be, and whether anything is put off for it.
SELECT
    c.bot_id, c.watermark, coalesce(i.next_number, 1) - 1,
    (SELECT coalesce(json_agg(json_build_array(s.first, s.last) ORDER BY s.first), '[]')::text
        FROM spans AS s WHERE s.consumer_id = c.id),
    EXISTS (SELECT 1 FROM deliveries AS d WHERE d.consumer_id = c.id AND d.phase <> 2 AND d.phase = 0)
FROM consumers AS c LEFT JOIN inboxes AS i ON i.bot_id = c.bot_id
WHERE c.id = :consumer

-- name: next_seen
-- The first number above one that this reader sees: what lies between is for others, or gone.
SELECT least(
    (SELECT min(a.number) FROM arrivals AS a WHERE a.bot_id = :bot AND a.only_for = 0 AND a.number > :after),
    (SELECT min(a.number) FROM arrivals AS a WHERE a.bot_id = :bot AND a.only_for = :consumer AND a.number > :after)
)

-- name: advance
UPDATE consumers SET watermark = :watermark WHERE id = :consumer

-- name: close_spans
DELETE FROM spans WHERE consumer_id = :consumer AND first = ANY (:firsts::bigint[])

-- name: keep_spans
INSERT INTO spans (consumer_id, first, last)
SELECT :consumer, v.first, v.last FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS v (first, last)
ON CONFLICT (consumer_id, first) DO UPDATE SET last = excluded.last

-- name: defer
INSERT INTO deliveries (consumer_id, number, phase, tries, due_at, history)
SELECT :consumer, v.number, 0, v.tries, v.due_at, coalesce('[' || v.line || ']', '[]')
FROM unnest(:numbers::bigint[], :tries::integer[], :dues::bigint[], :lines::text[]) AS v (number, tries, due_at, line)
ON CONFLICT (consumer_id, number) DO UPDATE SET
    phase = 0,
    tries = excluded.tries,
    due_at = excluded.due_at,
    history = with_line(deliveries.history, nullif(substr(excluded.history, 2, length(excluded.history) - 2), ''))

-- name: bury
INSERT INTO deliveries (consumer_id, number, phase, tries, failed_reason, settled_at, history)
SELECT :consumer, v.number, 3, v.tries, v.reason, :at, '[' || v.line || ']'
FROM unnest(:numbers::bigint[], :tries::integer[], :reasons::text[], :lines::text[]) AS v (number, tries, reason, line)
ON CONFLICT (consumer_id, number) DO UPDATE SET
    phase = 3,
    tries = excluded.tries,
    due_at = NULL,
    failed_reason = excluded.failed_reason,
    settled_at = excluded.settled_at,
    history = with_line(deliveries.history, substr(excluded.history, 2, length(excluded.history) - 2))

-- name: complete
-- What was put off and is over now. Its history stays.
UPDATE deliveries SET phase = 2, due_at = NULL, settled_at = :at
FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS s (first, last)
WHERE deliveries.consumer_id = :consumer AND deliveries.phase <> 2 AND deliveries.phase = 0
    AND deliveries.number BETWEEN s.first AND s.last

-- ---- numbers for replays ----

-- name: take_numbers
UPDATE inboxes SET next_number = next_number + :count, updated_at = :at WHERE bot_id = :bot RETURNING next_number

-- name: replay
-- A copy with a number of its own, at the end of its lane, for one reader.
INSERT INTO arrivals (
    bot_id, number, epoch, update_id, type, lane, user_id, message_id, sent_at, received_at, digest, payload, replay_of,
    only_for
)
SELECT
    a.bot_id, :first::bigint + v.place - 1, a.epoch, a.update_id, a.type, a.lane, a.user_id, a.message_id, a.sent_at, :at,
    a.digest, a.payload, a.id, :consumer
FROM unnest(:arrivals::bigint[]) WITH ORDINALITY AS v (id, place)
JOIN arrivals AS a ON a.id = v.id
ORDER BY v.place
RETURNING id
