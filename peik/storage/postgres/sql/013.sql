-- Letters with the usual terms come in by one call, one round trip: `begin`, `accept_numbered` and the commit of letters.sql. The
-- bots are locked while the server works, and neither while it answers nor while it waits for its disk: nodes that accept for
-- the same bot would else wait for each other's fsync. So the commit itself does not wait; the next one does, of a message
-- that nobody reads, and whoever gets the answer finds everything before it on the disk (and at the standbys that a commit
-- waits for). Another node may see the letters a moment before. What it does about them is written after them in the log, so
-- that no crash keeps that and loses them.
--
-- `bots` and `taken`: how many letters each bot gets. `places` count the letters of a bot from 0. `ids` rise in the order of the
-- arrays; `chats` say who stands under another key, or are NULL. A bot that is not served any more undoes all of it (P0002).
CREATE PROCEDURE accept_at_once(
    bots bigint[], taken bigint[], of_bots bigint[], places bigint[], ranks smallint[], to_chats text[], threads bigint[],
    weights integer[], methods text[], all_params text[], times bigint[], all_attempts integer[], backoffs integer[],
    INOUT ids bigint[], INOUT numbers bigint[], INOUT chats text[]
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tallies AS t WHERE t.bot_id = ANY (bots) ORDER BY t.bot_id FOR NO KEY UPDATE;
    -- A statement of its own: it sees what became of chats until the bots were locked.
    WITH numbered AS (
        UPDATE tallies AS t SET next_number = t.next_number + v.taken, in_lane = t.in_lane + v.taken
        FROM unnest(bots, taken) AS v (bot_id, taken)
        WHERE t.bot_id = v.bot_id AND EXISTS (SELECT 1 FROM bots AS b WHERE b.bot_id = v.bot_id)
        RETURNING t.bot_id, t.next_number - v.taken AS first
    ), came AS (
        INSERT INTO letters AS l
            (bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, moved)
        SELECT
            v.bot_id, n.first + v.place_of_bot, v.rank, coalesce(c.same_as::text, v.chat), v.thread, v.weight, v.method,
            v.params, v.created_at, v.attempts, v.backoff_ms, CASE WHEN c.same_as IS NOT NULL THEN 1 END
        FROM unnest(
            of_bots, places, ranks, to_chats, threads, weights, methods, all_params, times, all_attempts, backoffs
        ) WITH ORDINALITY AS v (
            bot_id, place_of_bot, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, place
        )
        JOIN numbered AS n ON n.bot_id = v.bot_id
        LEFT JOIN chats AS c ON c.bot_id = v.bot_id AND c.chat = v.chat COLLATE "C"
        ORDER BY v.place
        RETURNING l.id, l.number, CASE WHEN l.moved = 1 THEN l.chat END AS chat
    )
    SELECT
        array_agg(came.id ORDER BY came.id), array_agg(came.number ORDER BY came.id),
        CASE WHEN count(came.chat) > 0 THEN array_agg(came.chat ORDER BY came.id) END
    INTO ids, numbers, chats FROM came;
    IF coalesce(cardinality(ids), 0) <> cardinality(of_bots) THEN
        RAISE no_data_found USING MESSAGE = 'a bot is not served here any more';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    COMMIT;
    PERFORM pg_logical_emit_message(true, 'peik', '');
END
$$;
