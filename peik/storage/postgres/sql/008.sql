-- An edit that gave way to a newer one does not end before that one does: it stands apart (phase 1) with `merged_into`, and ends
-- as the newer ends, or comes back to its place. Those that had completed when they were merged stay as they are.

-- An edit that ends finds those that gave way to it.
CREATE INDEX letters_merged ON letters (merged_into) WHERE merged_into IS NOT NULL AND phase = 1;

-- What was merged does not expire by itself.
DROP INDEX letters_expiry;
CREATE INDEX letters_expiry ON letters (expires_at) WHERE expires_at IS NOT NULL AND phase < 2 AND merged_into IS NULL;

-- The outbox does as `accept` of the store does. The path as in 003.sql.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION number_enqueued() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    batch  record;
    after  bigint;
    newer  record;
    gone   bigint;
    merged bigint;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM enqueued AS e WHERE e.transaction = txid_current() AND e.id = NEW.id) THEN
        RETURN NULL;
    END IF;
    FOR batch IN
        SELECT
            e.bot_id, count(*) FILTER (WHERE e.phase = 0) AS in_lane, count(*) FILTER (WHERE e.phase = 1) AS apart,
            min(e.id) FILTER (WHERE e.phase = 0) AS first_id, max(e.id) FILTER (WHERE e.phase = 0) AS last_id,
            least(min(e.due_at), min(e.expires_at)) AS due_at
        FROM enqueued AS e WHERE e.transaction = txid_current() GROUP BY e.bot_id ORDER BY e.bot_id
    LOOP
        UPDATE tallies AS t SET
            next_number = t.next_number + batch.in_lane, in_lane = t.in_lane + batch.in_lane, apart = t.apart + batch.apart
        WHERE t.bot_id = batch.bot_id AND EXISTS (SELECT 1 FROM bots AS b WHERE b.bot_id = t.bot_id)
        RETURNING t.next_number INTO after;
        IF NOT FOUND THEN
            PERFORM refuse('unknown_bot', format('Bot %s is not known here any more.', batch.bot_id), 404);
        END IF;
        INSERT INTO letters (
            id, bot_id, number, rank, chat, thread, weight, method, params, created_at, attempts, backoff_ms, phase, backoff,
            timeout_ms, hold, due_at, expires_at, awaits, target, metadata, user_id, message_type, moved
        )
        SELECT
            e.id, e.bot_id,
            CASE e.phase
                WHEN 0 THEN after - batch.in_lane - 1 + row_number() OVER (PARTITION BY e.phase ORDER BY e.id)
                ELSE 0  -- it gets one when it joins its lane
            END,
            e.rank, coalesce(c.same_as::text, e.chat), e.thread, e.weight, e.method, e.params, e.created_at, e.attempts,
            e.backoff_ms, e.phase, e.backoff, e.timeout_ms, e.hold, e.due_at, e.expires_at, e.awaits, e.target, e.metadata,
            e.user_id, e.message_type, CASE WHEN c.same_as IS NOT NULL THEN 1 END
        FROM enqueued AS e LEFT JOIN chats AS c ON c.bot_id = e.bot_id AND c.chat = e.chat
        WHERE e.transaction = txid_current() AND e.bot_id = batch.bot_id
        ORDER BY e.id;

        merged := 0;
        FOR newer IN
            SELECT l.id, l.number, l.target, l.awaits
            FROM enqueued AS e JOIN letters AS l ON l.id = e.id
            WHERE e.transaction = txid_current() AND e.bot_id = batch.bot_id AND e.target IS NOT NULL AND e.phase = 0
            ORDER BY l.number
        LOOP
            UPDATE letters AS l SET phase = 1, merged_into = newer.id
            WHERE l.bot_id = batch.bot_id AND l.target = newer.target AND l.target IS NOT NULL AND l.phase = 0
                AND l.number < newer.number AND l.id IS DISTINCT FROM newer.awaits
                AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id);
            GET DIAGNOSTICS gone = ROW_COUNT;
            merged := merged + gone;
        END LOOP;
        UPDATE tallies AS t SET in_lane = t.in_lane - merged, apart = t.apart + merged
        WHERE t.bot_id = batch.bot_id AND merged > 0;
        PERFORM tell_enqueued(
            batch.bot_id, batch.in_lane, batch.first_id, batch.last_id, has_merged => merged > 0, due_at => batch.due_at
        );
    END LOOP;
    DELETE FROM enqueued AS e WHERE e.transaction = txid_current();
    RETURN NULL;
END
$$;

-- As in 003.sql; nothing has ended when a letter comes in.
DROP FUNCTION tell_enqueued(bigint, bigint, bigint, bigint, bigint[], bigint);
CREATE FUNCTION tell_enqueued(
    bot_id bigint, in_lane bigint, first_id bigint, last_id bigint, has_merged boolean, due_at bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    is_near  boolean := coalesce(last_id - first_id < 1000 + 2 * in_lane, true);
    accepted jsonb := '[]';
    lanes    jsonb := '[]';
BEGIN
    IF in_lane > 0 AND is_near THEN
        accepted := jsonb_build_array(jsonb_build_array(bot_id, first_id, last_id));
    END IF;
    IF has_merged OR NOT is_near THEN
        lanes := jsonb_build_array(bot_id);
    END IF;
    PERFORM pg_notify(
        'peik_' || current_schema(),
        jsonb_build_array('', accepted, '{}'::jsonb, lanes, '[]'::jsonb, '[]'::jsonb, 0, due_at)::text
    );
END
$$;

SELECT set_config('search_path', quote_ident(current_schema()), true);
