-- The letter of an idempotency key: the new one, or the one that it made before. A key is taken for as long as it is here, and
-- only the upkeep ends one, by settled time: a clock that jumps must not make a second letter. The bot is not locked here: two
-- transactions that bring a new key meet at its row, and the second waits until the first has ended.
CREATE OR REPLACE FUNCTION keep_key(bot_id bigint, key text, digest text, letter_id bigint, at bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known idempotency;
BEGIN
    INSERT INTO idempotency AS i (bot_id, key, digest, letter_id, expires_at)
    VALUES (keep_key.bot_id, keep_key.key, keep_key.digest, keep_key.letter_id, at + 172800000)
    ON CONFLICT (bot_id, key) DO NOTHING;
    IF FOUND THEN
        RETURN keep_key.letter_id;
    END IF;
    SELECT i.* INTO known FROM idempotency AS i WHERE i.bot_id = keep_key.bot_id AND i.key = keep_key.key;
    IF NOT FOUND THEN  -- the upkeep took it away this very moment
        RETURN keep_key(keep_key.bot_id, keep_key.key, keep_key.digest, keep_key.letter_id, at);
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
