-- What a connection says of itself and of the schema.

-- name: settle_in
-- A commit is on the disk when it returns, whatever the server's own default; one that waits for a standby as well stays so.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> 'remote_apply'

-- name: promises
-- What this server does with a commit by its own settings: `reset_val` is what a session has before it changes anything.
SELECT name, reset_val FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')

-- name: is_new
-- Whether nothing stands in the schema yet.
SELECT NOT EXISTS (
    SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = :schema
)

-- name: is_ours
SELECT EXISTS (
    SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = 'peik_schema'
)

-- name: encoding
SELECT current_setting('server_encoding')

-- name: has_schema
SELECT EXISTS (SELECT 1 FROM pg_namespace AS n WHERE n.nspname = :schema)

-- name: lock_schema
-- Two nodes that start at once make the schema one after the other. The lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtext('peik schema ' || :schema::text))

-- name: version
SELECT coalesce(max(version), 0) FROM peik_schema

-- name: note_version
INSERT INTO peik_schema (version) VALUES (:version)
