-- What a connection says of itself, of the schema and of the right to send.

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

-- name: take_lease
-- Take a right that is free or over, under the next epoch. After `hold_lease`.
INSERT INTO leases (name, epoch, node, expires_at)
VALUES (:name, 1, :node, clock_timestamp() + make_interval(secs => :ttl_s))
ON CONFLICT (name) DO UPDATE SET
    epoch = leases.epoch + 1, node = excluded.node, expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
WHERE leases.expires_at <= clock_timestamp()
RETURNING epoch

-- name: hold_lease
-- Before it changes hands: FOR UPDATE waits for whoever is just marking under it (FOR KEY SHARE, in `mark`), so that the next
-- holder sees every mark of the one before. Renewing needs no such lock, and no mark waits for it.
SELECT epoch FROM leases WHERE name = :name FOR UPDATE

-- name: renew_lease
-- As long as nobody else has taken it, it is still ours, even if it was over for a moment.
UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => :ttl_s) WHERE name = :name AND epoch = :epoch
RETURNING epoch

-- name: end_lease
UPDATE leases SET expires_at = '-infinity' WHERE name = :name AND epoch = :epoch

-- name: lease_holder
SELECT node, extract(epoch FROM expires_at - clock_timestamp())::float8 FROM leases
WHERE name = :name AND expires_at > clock_timestamp()
