-- Nodes among each other: beats, leases, locks, bells. By this server's clock, whatever the nodes' clocks say.

-- name: beat
SELECT bots, epochs, surplus, is_news
FROM beat(:node, :version, :address, make_interval(secs => :lease_s::float8), :is_draining)

-- name: release
-- A commit that just marks under one of these is not waited for: whoever takes the lease leaves it alone meanwhile.
UPDATE leases SET node = NULL WHERE node = :node AND bot_id = ANY (:bots::bigint[])

-- name: leave
-- The node ends, and gives everything back.
WITH gone AS (DELETE FROM nodes WHERE name = :node RETURNING name),
    unlocked AS (DELETE FROM locks WHERE node = :node RETURNING name),
    freed AS (UPDATE leases SET node = NULL WHERE node = :node RETURNING bot_id)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM unlocked) + (SELECT count(*) FROM freed)

-- name: is_followed_in_its_own_time
-- Whether a standby follows, or whatever else reads this server's log, and no commit waits for any. A base backup is none.
SELECT (current_setting('synchronous_standby_names') = ''
    AND EXISTS (SELECT 1 FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'))::int

-- name: take_lock
INSERT INTO locks (name, node, expires_at)
VALUES (:name, :node, clock_timestamp() + make_interval(secs => :lease_s::float8))
ON CONFLICT (name) DO UPDATE SET node = excluded.node, expires_at = excluded.expires_at
WHERE locks.node = excluded.node OR locks.expires_at <= clock_timestamp()
RETURNING 1

-- name: drop_lock
DELETE FROM locks WHERE name = :name AND node = :node

-- name: is_locked
SELECT EXISTS (SELECT 1 FROM locks WHERE name = :name AND expires_at > clock_timestamp())

-- name: nodes
SELECT
    n.name, n.version, n.address, n.is_draining OR n.wants_drain AS is_draining,
    floor(extract(epoch FROM n.started_at) * 1000)::bigint AS started_at,
    floor(extract(epoch FROM n.seen_at) * 1000)::bigint AS seen_at,
    ARRAY(SELECT s.bot_id FROM leases AS s WHERE s.node = n.name ORDER BY s.bot_id) AS bots
FROM nodes AS n WHERE n.ends_at > clock_timestamp()
ORDER BY n.started_at, n.name

-- name: drain_node
UPDATE nodes SET wants_drain = :is_draining WHERE name = :name AND ends_at > clock_timestamp()

-- name: last_numbers
SELECT s.bot_id, t.next_number - 1 FROM leases AS s JOIN tallies AS t ON t.bot_id = s.bot_id WHERE s.node = :node

-- name: new_letters
-- One question for all bots that a line of news names. By the key and by nothing else, which is what `+ 0` is for: plans are
-- kept from the time when the tables were empty, and an index of lanes would be read whole.
SELECT {letter} FROM letters AS l
WHERE l.id = ANY (:ids::bigint[]) AND l.bot_id + 0 = ANY (:bots::bigint[]) AND l.phase + 0 = 0
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)
ORDER BY l.bot_id, l.number

-- name: ring
-- After the commit that it tells of, in a transaction of its own: within one, all commits of the database that ring would
-- wait for each other's fsync.
SELECT pg_notify(:channel, :line)

-- name: ping
SELECT 1
