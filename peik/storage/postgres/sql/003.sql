-- The transactional outbox: other programs put letters in, each inside a transaction of its own, by SELECT enqueue(…).
--
-- `enqueue` reads a call (002.sql) and keeps it in `enqueued`. A deferred trigger makes letters of what stands there when the
-- caller commits. Only then is the bot locked and are its numbers taken: a transaction that stays open keeps no bot waiting,
-- numbers follow the order of commits, and one that is rolled back leaves no gap.
--
-- Two of these functions run with the rights of Peik's own role. So pg_temp stands last in their path: a table that a caller
-- made for itself is never taken for ours. The same for the trigger that a merged letter may set off.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
ALTER FUNCTION hook_ended_letter() SET search_path FROM CURRENT;

-- Calls of transactions that are still open; when one ends, none of its rows is left. By transaction first: nobody looks at the
-- rows, live or dead, of another. Wide, so that `letters` never holds a row without a number.
CREATE TABLE enqueued (
    LIKE letters INCLUDING DEFAULTS,
    transaction bigint NOT NULL DEFAULT txid_current(),
    PRIMARY KEY (transaction, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Puts a letter in; its id, or that of the letter which the same idempotency key made before. It is there when the caller's
-- transaction commits. The terms are those of POST /v1/letters; their bounds are the desk's.
CREATE FUNCTION enqueue(
    method           text,
    params           jsonb,
    bot_id           bigint DEFAULT NULL,          -- NULL: the only one there is
    priority         integer DEFAULT 0,
    idempotency_key  text DEFAULT NULL,
    send_at          timestamptz DEFAULT NULL,
    expires_at       timestamptz DEFAULT NULL,
    metadata         jsonb DEFAULT NULL,
    on_uncertain     text DEFAULT NULL,
    attempts         integer DEFAULT NULL,
    backoff_ms       integer DEFAULT NULL,
    backoff          text DEFAULT NULL,
    timeout_ms       integer DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    at           bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    rule         record;
    made         enqueued%ROWTYPE;
    is_too_late  boolean;
    letter_id    bigint;
BEGIN
    made.bot_id := bot_named(enqueue.bot_id);
    SELECT * INTO rule FROM rule_of(enqueue.method);
    made.method := rule.name;
    IF enqueue.params IS NULL OR jsonb_typeof(enqueue.params) <> 'object' THEN
        PERFORM refuse('bad_params', 'The parameters are not a JSON object.');
    END IF;
    made.params := enqueue.params::text;
    IF octet_length(made.params) > 1048576 THEN
        PERFORM refuse('params_too_large', 'Telegram takes at most 1 MiB of parameters; send files as files.');
    END IF;
    PERFORM check_types(enqueue.params);
    made.chat := addressee(enqueue.params);
    IF made.chat = 'bot' AND rule.kind = 'send' AND rule.name NOT IN ('postStory', 'repostStory') THEN
        PERFORM refuse('missing_chat_id', rule.name || ' needs a chat_id: a number, or @name of a public chat.');
    END IF;
    PERFORM check_lengths(rule.name, enqueue.params);

    made.thread := thread_of(enqueue.params -> 'message_thread_id');
    made.weight := weight_of(rule.name, rule.kind, enqueue.params);
    made.target := target_of(rule.name, rule.target, enqueue.params);
    made.awaits := reference_in(enqueue.params);

    made.created_at := at;
    made.due_at := instant_ms('send_at', enqueue.send_at);
    made.expires_at := instant_ms('expires_at', enqueue.expires_at);
    is_too_late := coalesce(made.expires_at <= at, false);
    PERFORM check_bounds(enqueue.priority, enqueue.attempts, enqueue.backoff_ms, enqueue.timeout_ms);
    PERFORM check_words(enqueue.backoff, enqueue.on_uncertain);
    IF is_too_late AND enqueue.idempotency_key IS NULL THEN
        PERFORM refuse('already_expired', 'expires_at is in the past.');
    ELSIF made.due_at >= made.expires_at THEN
        PERFORM refuse('expires_before_sent', 'expires_at is before send_at: it could never be sent.');
    END IF;
    PERFORM check_labels(enqueue.idempotency_key, enqueue.metadata);
    PERFORM check_reference(made.awaits, made.bot_id);
    made.due_at := CASE WHEN made.due_at > at THEN made.due_at END;
    made.phase := CASE WHEN made.due_at IS NULL THEN 0 ELSE 1 END;
    made.rank := 2 - coalesce(enqueue.priority, 0);
    made.attempts := coalesce(enqueue.attempts, 5);
    made.backoff_ms := coalesce(enqueue.backoff_ms, 2000);
    made.backoff := nullif(enqueue.backoff, 'exponential');
    made.timeout_ms := enqueue.timeout_ms;
    made.hold := CASE WHEN coalesce(enqueue.on_uncertain = 'hold', rule.is_at_most_once) THEN 1 END;
    made.metadata := enqueue.metadata::text;
    made.user_id := enqueue.metadata ->> 'user_id';
    made.message_type := enqueue.metadata ->> 'message_type';
    made.number := 0;
    made.attempts_made := 0;
    made.uncertain_tries := 0;
    made.transaction := txid_current();
    made.id := nextval(pg_get_serial_sequence('letters', 'id'));
    IF enqueue.idempotency_key IS NOT NULL THEN
        letter_id := keep_key(made.bot_id, enqueue.idempotency_key, digest_of(rule.name, enqueue.params), made.id, at);
        IF letter_id <> made.id THEN
            RETURN letter_id;
        END IF;
    END IF;
    IF is_too_late THEN  -- under a key only now: whoever asks again must hear what became of the first
        PERFORM refuse('already_expired', 'expires_at is in the past.');
    END IF;
    INSERT INTO enqueued SELECT made.*;
    RETURN made.id;
END
$$;

CREATE FUNCTION bot_named(asked bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    known bigint[] := ARRAY(SELECT b.bot_id FROM bots AS b WHERE asked IS NULL OR b.bot_id = asked LIMIT 2);
BEGIN
    IF cardinality(known) = 1 THEN
        RETURN known[1];
    ELSIF asked IS NOT NULL THEN
        PERFORM refuse('unknown_bot', format('Bot %s is not known here. Add it with its token first.', asked), 404);
    ELSIF cardinality(known) = 0 THEN
        PERFORM refuse('no_bot', 'No bot is known yet. Add one with its token first.', 404);
    END IF;
    PERFORM refuse('which_bot', 'There are several bots: say which with bot_id.');
END
$$;

CREATE FUNCTION rule_of(asked text) RETURNS methods LANGUAGE plpgsql AS $$
DECLARE
    rule methods;
BEGIN
    IF asked IS NULL OR asked !~ '^[A-Za-z][A-Za-z0-9]{0,63}$' THEN
        PERFORM refuse('bad_method', format('%L is not the name of a Bot API method.', left(asked, 80)));
    END IF;
    SELECT m.* INTO rule FROM methods AS m WHERE m.spelling = lower(asked COLLATE "C");
    IF NOT FOUND THEN
        SELECT lower(asked COLLATE "C"), asked, v.kind, v.is_queued, v.is_at_most_once, NULL INTO rule
        FROM method_verbs AS v WHERE starts_with(lower(asked COLLATE "C"), v.verb) ORDER BY v.place LIMIT 1;
    END IF;
    IF rule.is_queued IS NOT TRUE THEN
        PERFORM refuse('not_queueable', format(
            '%s is not sent by letter (its class is %s): it cannot wait in a queue. Call it directly.',
            coalesce(rule.name, asked), coalesce(rule.kind, 'unknown')
        ));
    END IF;
    RETURN rule;
END
$$;

-- The bounds are those of peik/outbox/service.py.
CREATE FUNCTION check_bounds(priority integer, attempts integer, backoff_ms integer, timeout_ms integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    CASE
        WHEN priority NOT BETWEEN -1 AND 2 THEN
            PERFORM refuse('bad_priority', 'priority is one of -1, 0, 1, 2.');
        WHEN attempts NOT BETWEEN 1 AND 100 THEN
            PERFORM refuse('bad_attempts', 'attempts must be between 1 and 100.');
        WHEN backoff_ms NOT BETWEEN 0 AND 86400000 THEN
            PERFORM refuse('bad_backoff_ms', 'backoff_ms must be between 0 and 86400000.');
        WHEN timeout_ms NOT BETWEEN 1 AND 3600000 THEN
            PERFORM refuse('bad_timeout_ms', 'timeout_ms must be between 1 and 3600000.');
        ELSE
            NULL;
    END CASE;
END
$$;

CREATE FUNCTION check_words(backoff text, on_uncertain text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF backoff NOT IN ('exponential', 'fixed') THEN
        PERFORM refuse('bad_request', 'backoff is one of exponential, fixed.');
    ELSIF on_uncertain NOT IN ('resend', 'hold') THEN
        PERFORM refuse('bad_request', 'on_uncertain is one of resend, hold.');
    END IF;
END
$$;

CREATE FUNCTION check_labels(idempotency_key text, metadata jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF length(idempotency_key) NOT BETWEEN 1 AND 255 THEN
        PERFORM refuse('bad_idempotency_key', 'An idempotency key has 1 to 255 characters.');
    ELSIF octet_length(metadata::text) > 8192 THEN
        PERFORM refuse('metadata_too_large', 'Metadata holds at most 8192 bytes of JSON.');
    ELSIF jsonb_typeof(metadata) <> 'object' THEN
        PERFORM refuse('bad_metadata', 'metadata must be a JSON object.');
    ELSIF jsonb_typeof(metadata -> 'user_id') NOT IN ('string', 'number', 'null')
        OR jsonb_typeof(metadata -> 'message_type') NOT IN ('string', 'number', 'null')
    THEN
        PERFORM refuse('bad_metadata', 'user_id and message_type in metadata are texts or numbers.');
    END IF;
END
$$;

CREATE FUNCTION instant_ms(name text, given timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF given NOT BETWEEN 'epoch' AND '5138-11-16 09:46:39+00' THEN
        PERFORM refuse('bad_time', name || ' is out of range.');
    END IF;
    RETURN floor(extract(epoch FROM given) * 1000);
END
$$;

-- A letter that the same transaction has put in may be referred to as well.
CREATE FUNCTION check_reference(awaits bigint, bot_id bigint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF awaits IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM letters AS l WHERE l.id = check_reference.awaits AND l.bot_id = check_reference.bot_id)
        AND NOT EXISTS (
            SELECT 1 FROM enqueued AS e
            WHERE e.transaction = txid_current() AND e.id = check_reference.awaits AND e.bot_id = check_reference.bot_id
        )
    THEN
        PERFORM refuse('unknown_reference', format('There is no letter %s of this bot to refer to.', awaits));
    END IF;
END
$$;

-- The letter of an idempotency key: the new one, or the one that it made within 48 hours. The bot is not locked here: two
-- transactions that bring a new key meet at its row, and the second waits until the first has ended.
CREATE FUNCTION keep_key(bot_id bigint, key text, digest text, letter_id bigint, at bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known idempotency;
BEGIN
    SELECT i.* INTO known FROM idempotency AS i
    WHERE i.bot_id = keep_key.bot_id AND i.key = keep_key.key AND i.expires_at > at;
    IF NOT FOUND THEN
        INSERT INTO idempotency AS i (bot_id, key, digest, letter_id, expires_at)
        VALUES (keep_key.bot_id, keep_key.key, keep_key.digest, keep_key.letter_id, at + 172800000)
        ON CONFLICT (bot_id, key) DO UPDATE SET
            digest = excluded.digest, letter_id = excluded.letter_id, expires_at = excluded.expires_at
        WHERE i.expires_at <= at;
        IF FOUND THEN
            RETURN keep_key.letter_id;
        END IF;
        SELECT i.* INTO known FROM idempotency AS i WHERE i.bot_id = keep_key.bot_id AND i.key = keep_key.key;
    END IF;
    IF known.digest <> keep_key.digest THEN
        PERFORM refuse(
            'idempotency_key_reused',
            'This idempotency key was used within 48 hours for another call. Use a new key for a new call.', 409
        );
    END IF;
    RETURN known.letter_id;
END
$$;

-- At the commit: the first row of a transaction does it for all of them, the others find nothing left. Bots in the order of
-- their ids, as every node locks them. What `accept` of the store does, in the same order; then the bell rings.
CREATE FUNCTION number_enqueued() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    at     bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    batch  record;
    after  bigint;
    newer  record;
    gone   bigint[];
    ended  bigint[];
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

        ended := '{}';
        FOR newer IN
            SELECT l.id, l.number, l.target, l.awaits
            FROM enqueued AS e JOIN letters AS l ON l.id = e.id
            WHERE e.transaction = txid_current() AND e.bot_id = batch.bot_id AND e.target IS NOT NULL AND e.phase = 0
            ORDER BY l.number
        LOOP
            WITH older AS (
                UPDATE letters AS l SET phase = 2, merged_into = newer.id, settled_at = at
                WHERE l.bot_id = batch.bot_id AND l.target = newer.target AND l.target IS NOT NULL AND l.phase = 0
                    AND l.number < newer.number AND l.id IS DISTINCT FROM newer.awaits
                    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)
                RETURNING l.id
            ), waiting AS (
                UPDATE letters AS l SET awaits = newer.id FROM older
                WHERE l.awaits = older.id AND l.awaits IS NOT NULL AND l.phase = 1
            )
            SELECT array_agg(older.id) INTO gone FROM older;
            ended := ended || coalesce(gone, '{}');
        END LOOP;
        UPDATE tallies AS t SET in_lane = t.in_lane - cardinality(ended), completed = t.completed + cardinality(ended)
        WHERE t.bot_id = batch.bot_id AND cardinality(ended) > 0;
        PERFORM tell_enqueued(batch.bot_id, batch.in_lane, batch.first_id, batch.last_id, ended, batch.due_at);
    END LOOP;
    DELETE FROM enqueued AS e WHERE e.transaction = txid_current();
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER enqueued_numbered AFTER INSERT ON enqueued DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION number_enqueued();

-- In the words of peik/storage/news.py, from no node: so every node hears it. Ends that are too many to name are told without
-- names. Ids that lie far apart, since the transaction was open for long, would send a node through all letters between them:
-- it is told to look at the bot's lanes instead.
CREATE FUNCTION tell_enqueued(
    bot_id bigint, in_lane bigint, first_id bigint, last_id bigint, ended bigint[], due_at bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    is_near  boolean := coalesce(last_id - first_id < 1000 + 2 * in_lane, true);
    accepted jsonb := '[]';
    named    jsonb := '{}';
    lanes    jsonb := '[]';
BEGIN
    IF in_lane > 0 AND is_near THEN
        accepted := jsonb_build_array(jsonb_build_array(bot_id, first_id, last_id));
    END IF;
    IF cardinality(ended) > 0 THEN
        named := jsonb_build_object(bot_id, CASE WHEN cardinality(ended) > 300 THEN '[]' ELSE to_jsonb(ended) END);
    END IF;
    IF cardinality(ended) > 0 OR NOT is_near THEN
        lanes := jsonb_build_array(bot_id);
    END IF;
    PERFORM pg_notify(
        'peik_' || current_schema(),
        jsonb_build_array('', accepted, named, lanes, '[]'::jsonb, '[]'::jsonb, 0, due_at)::text
    );
END
$$;

-- Only whom Peik's owner grants it.
REVOKE EXECUTE ON FUNCTION enqueue FROM PUBLIC;

SELECT set_config('search_path', quote_ident(current_schema()), true);
