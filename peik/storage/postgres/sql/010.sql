-- A letter that was enqueued with `attempts` counts uncertain tries among them, as one that was accepted otherwise does
-- (`hold` 2). The function is long, and this is its one line that changes.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DO $$
DECLARE
    old text := 'THEN 1 END;';
    new text := 'THEN 1 WHEN enqueue.attempts IS NOT NULL THEN 2 END;';
    said text;
BEGIN
    SELECT pg_get_functiondef(p.oid) INTO STRICT said
    FROM pg_proc AS p
    WHERE p.proname = 'enqueue' AND p.pronamespace = current_schema()::regnamespace;
    IF strpos(said, old) = 0 THEN
        RAISE EXCEPTION 'enqueue is not as 003.sql has made it';
    END IF;
    EXECUTE replace(said, old, new);
END
$$;
