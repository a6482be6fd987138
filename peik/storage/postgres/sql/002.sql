-- A call as peik/core/call.py reads it, for those who bring it by SQL: what `enqueue` (003.sql) asks. Each function says no by
-- `refuse`, in the words of the other doors.

-- The classes of methods, written by Python from peik/core/methods.py whenever they differ: see peik/storage/postgres/session.py.
CREATE TABLE methods (
    spelling         text COLLATE "C" PRIMARY KEY,   -- in small letters, as anybody may write it
    name             text NOT NULL,
    kind             text NOT NULL,
    is_queued        boolean NOT NULL,
    is_at_most_once  boolean NOT NULL,
    target           text[]                          -- the parameters that name what an edit replaces
);

-- The class of a method that is not known by name: its verb decides, the first that fits.
CREATE TABLE method_verbs (
    place            integer PRIMARY KEY,
    verb             text NOT NULL,
    kind             text NOT NULL,
    is_queued        boolean NOT NULL,
    is_at_most_once  boolean NOT NULL
);

-- The SQLSTATE is PK and the status that REST would answer with; DETAIL is the stable code.
CREATE FUNCTION refuse(code text, words text, status integer DEFAULT 422) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'PK' || status, MESSAGE = words, DETAIL = code;
END
$$;

-- Without the white space around it: all that Python takes for such.
CREATE FUNCTION stripped(given text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT btrim(given, E'\t\n\x0b\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007'
        '\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000')
$$;

CREATE FUNCTION is_given(given jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT given IS NOT NULL AND given NOT IN ('null', '""')
$$;

-- What a text holds if it is a JSON object or array. Anything else as it is.
CREATE FUNCTION opened(given jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    IF jsonb_typeof(given) <> 'string' OR ltrim(given #>> '{}', E' \t\n\r') !~ '^[[{]' THEN
        RETURN given;
    END IF;
    BEGIN
        RETURN (given #>> '{}')::jsonb;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        RETURN given;
    END;
END
$$;

-- JSON that is equal for equal values: keys in order, no spaces, fractions without zeros at their end.
CREATE FUNCTION canonical(given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    CASE jsonb_typeof(given)
        WHEN 'object' THEN
            RETURN (
                SELECT '{' || coalesce(string_agg(e.part, ',' ORDER BY e.key COLLATE "C"), '') || '}'
                FROM (SELECT key, to_json(key)::text || ':' || canonical(value) AS part FROM jsonb_each(given)) AS e
            );
        WHEN 'array' THEN
            RETURN (
                SELECT '[' || coalesce(string_agg(canonical(e.value), ',' ORDER BY e.place), '') || ']'
                FROM jsonb_array_elements(given) WITH ORDINALITY AS e (value, place)
            );
        WHEN 'number' THEN
            RETURN CASE
                WHEN strpos(given::text, '.') = 0 THEN given::text
                WHEN given::numeric = trunc(given::numeric) THEN trunc(given::numeric) || '.0'
                ELSE trim_scale(given::numeric)::text
            END;
        ELSE
            RETURN given::text;
    END CASE;
END
$$;

-- A number as a number, however it was written.
CREATE FUNCTION plain(given jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN jsonb_typeof(given) = 'string' AND stripped(given #>> '{}') ~ '^-?[0-9]{1,18}$'
            THEN to_jsonb(stripped(given #>> '{}')::bigint)
        ELSE given
    END
$$;

CREATE FUNCTION check_types(params jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wrong text;
BEGIN
    SELECT e.key INTO wrong
    FROM (VALUES
        ('chat_id', '{number,string,"null"}'::text[]),
        ('message_thread_id', '{number,string,"null"}'),
        ('user_id', '{number,string,"null"}'),
        ('inline_message_id', '{string,"null"}'),
        ('business_connection_id', '{string,"null"}'),
        ('message_id', '{number,string,object,"null"}'),
        ('text', '{number,fraction,string,boolean,"null"}'),
        ('caption', '{number,fraction,string,boolean,"null"}'),
        ('parse_mode', '{number,fraction,string,boolean,"null"}')
    ) AS known (name, types)
    JOIN jsonb_each(params) AS e ON e.key = known.name
    WHERE CASE
        WHEN jsonb_typeof(e.value) = 'number' AND strpos(e.value::text, '.') > 0 THEN 'fraction'
        ELSE jsonb_typeof(e.value)
    END <> ALL (known.types)
    LIMIT 1;
    IF FOUND THEN
        PERFORM refuse('bad_params', format('A parameter has the wrong type: %s.', wrong));
    END IF;
END
$$;

CREATE FUNCTION chat_key(given jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    written text := stripped(given #>> '{}');
BEGIN
    IF jsonb_typeof(given) = 'number' THEN
        IF abs(given::numeric) > 9223372036854775807 THEN
            PERFORM refuse('bad_params', 'chat_id is larger than any chat''s number.');
        END IF;
        RETURN written;
    END IF;
    IF written ~ '^-?[0-9]{1,18}$' THEN
        RETURN written::bigint::text;
    END IF;
    IF written = '' THEN
        PERFORM refuse('missing_chat_id', 'chat_id is empty: give a number, or @name of a public chat.');
    END IF;
    RETURN lower(CASE WHEN left(written, 1) = '@' THEN written ELSE '@' || written END COLLATE "C");
END
$$;

-- Whose lane it waits in. Keys are plain ASCII: so are all that Telegram gives, and every server writes them in small letters
-- alike.
CREATE FUNCTION addressee(params jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    key text := CASE
        WHEN is_given(params -> 'chat_id') THEN chat_key(params -> 'chat_id')
        WHEN is_given(params -> 'user_id') THEN 'user:' || (plain(params -> 'user_id') #>> '{}')
        WHEN is_given(params -> 'inline_message_id') THEN 'inline:' || (params ->> 'inline_message_id')
        WHEN is_given(params -> 'business_connection_id') THEN 'business:' || (params ->> 'business_connection_id')
        ELSE 'bot'
    END;
BEGIN
    IF key !~ '^[ -~]+$' OR length(key) > 256 THEN
        PERFORM refuse('bad_params', 'chat_id, or what stands for it, is not a name that Telegram gives.');
    END IF;
    RETURN key;
END
$$;

CREATE FUNCTION thread_of(given jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    written text := coalesce(stripped(given #>> '{}'), '');
BEGIN
    IF written = '' THEN
        RETURN 0;
    END IF;
    IF written !~ '^[+-]?[0-9]+$' OR length(written) > 1000 OR abs(written::numeric) > 9223372036854775807 THEN
        PERFORM refuse('bad_params', 'message_thread_id must be a whole number.');
    END IF;
    RETURN written::bigint;
END
$$;

-- With entities or a parse mode only Telegram can count what is left of a text.
CREATE FUNCTION check_lengths(name text, params jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    is_unparsed boolean := coalesce(params -> 'parse_mode', 'null') = 'null';
BEGIN
    IF is_unparsed AND jsonb_typeof(params -> 'text') = 'string' AND coalesce(params -> 'entities', 'null') = 'null' THEN
        IF length(params ->> 'text') > 4096 AND name IN ('sendMessage', 'editMessageText') THEN
            PERFORM refuse('text_too_long', format(
                'The text has %s characters; Telegram takes 4096. Split it.', length(params ->> 'text')
            ));
        END IF;
        IF stripped(params ->> 'text') = '' AND name = 'sendMessage' THEN
            PERFORM refuse('text_empty', 'The text is empty; Telegram refuses empty messages.');
        END IF;
    END IF;
    IF is_unparsed AND jsonb_typeof(params -> 'caption') = 'string'
        AND coalesce(params -> 'caption_entities', 'null') = 'null' AND length(params ->> 'caption') > 4096
    THEN
        PERFORM refuse('caption_too_long', 'The caption is longer than Telegram takes. Shorten it.');
    END IF;
END
$$;

CREATE FUNCTION items_of(given jsonb) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(opened(given)) = 'array' THEN greatest(1, jsonb_array_length(opened(given))) ELSE 1 END
$$;

-- How many messages Telegram will count.
CREATE FUNCTION weight_of(name text, kind text, params jsonb) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN name = 'sendMediaGroup' THEN items_of(params -> 'media')
        WHEN name IN ('forwardMessages', 'copyMessages') THEN items_of(params -> 'message_ids')
        WHEN kind = 'write' AND name NOT LIKE 'edit%' THEN 0
        ELSE 1
    END
$$;

-- The letter that {"letter": "<id>"} names; NULL for anything that is no reference.
CREATE FUNCTION reference_of(given jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    named jsonb := given -> 'letter';
BEGIN
    IF jsonb_typeof(given) IS DISTINCT FROM 'object' OR named IS NULL OR given - 'letter' <> '{}' THEN
        RETURN NULL;
    END IF;
    IF jsonb_typeof(named) = 'string' AND named #>> '{}' ~ '^[0-9]{1,18}$' THEN
        RETURN named #>> '{}';
    END IF;
    IF jsonb_typeof(named) = 'number' AND strpos(named::text, '.') = 0
        AND named::numeric BETWEEN 1 AND 9223372036854775807
    THEN
        RETURN named::bigint;
    END IF;
    PERFORM refuse('bad_reference', 'A letter reference looks like {"letter": "<id of the letter>"}.');
END
$$;

CREATE FUNCTION references_in(params jsonb) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    found bigint[] := ARRAY[
        reference_of(opened(params -> 'message_id')), reference_of(opened(params -> 'reply_to_message_id'))
    ];
    replied jsonb := opened(params -> 'reply_parameters');
BEGIN
    IF jsonb_typeof(replied) = 'object' THEN
        found := found || references_in(replied);
    END IF;
    RETURN found;
END
$$;

CREATE FUNCTION reference_in(params jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found bigint[] := ARRAY(SELECT DISTINCT f.id FROM unnest(references_in(params)) AS f (id) WHERE f.id IS NOT NULL);
BEGIN
    IF cardinality(found) > 1 THEN
        PERFORM refuse('many_references', 'A letter may refer to one other letter, not to several.');
    END IF;
    RETURN found[1];
END
$$;

-- The thing that an edit replaces, equal for equal targets; NULL for what is never merged.
CREATE FUNCTION target_of(name text, fields text[], params jsonb) RETURNS text LANGUAGE plpgsql STRICT AS $$
DECLARE
    parts jsonb := '{}';
    field text;
    given jsonb;
    letter_id bigint;
BEGIN
    FOREACH field IN ARRAY fields LOOP
        given := params -> field;
        CONTINUE WHEN NOT is_given(given);
        IF field = 'chat_id' THEN
            given := plain(to_jsonb(chat_key(given)));
        ELSIF field NOT IN ('inline_message_id', 'business_connection_id') THEN
            letter_id := CASE WHEN field = 'message_id' THEN reference_of(opened(given)) END;
            given := CASE WHEN letter_id IS NULL THEN plain(given) ELSE jsonb_build_object('letter', letter_id) END;
        END IF;
        parts := parts || jsonb_build_object(field, given);
    END LOOP;
    RETURN name || canonical(parts);
END
$$;

-- Equal for the same call, whatever the order and the encoding of its parameters; the same as peik/outbox/service.py makes.
CREATE FUNCTION digest_of(name text, params jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left(encode(sha256(
        convert_to(name, 'UTF8') || decode('00', 'hex') || convert_to(canonical(e.written), 'UTF8') || decode('00', 'hex')
    ), 'hex'), 32)
    FROM (
        SELECT coalesce(jsonb_object_agg(p.key, CASE jsonb_typeof(p.value)
            WHEN 'string' THEN p.value #>> '{}'
            ELSE canonical(p.value)
        END), '{}') AS written
        FROM (SELECT key, opened(value) AS value FROM jsonb_each(params)) AS p
    ) AS e
$$;
