-- What the model of a server keeps beside the production tables: nodes, leases, locks, files. By its own clock.

-- name: schema
CREATE TABLE IF NOT EXISTS model_nodes (
    name         TEXT PRIMARY KEY,
    version      TEXT NOT NULL,
    address      TEXT,
    started_at   INTEGER NOT NULL,
    seen_at      INTEGER NOT NULL,
    ends_at      INTEGER NOT NULL,
    is_draining  INTEGER NOT NULL,
    wants_drain  INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
-- A lease lives as long as its node's row says. The epoch stays when the lease is let go.
CREATE TABLE IF NOT EXISTS model_leases (
    bot_id      INTEGER PRIMARY KEY,
    node        TEXT,
    epoch       INTEGER NOT NULL DEFAULT 0,
    free_since  INTEGER  -- when a beat first saw that no living node holds it
);
-- Never reset, so that a bot that is removed and comes back has a new epoch.
CREATE TABLE IF NOT EXISTS model_epochs (epoch INTEGER PRIMARY KEY AUTOINCREMENT, bot_id INTEGER NOT NULL, node TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS model_locks (name TEXT PRIMARY KEY, node TEXT NOT NULL, ends_at INTEGER NOT NULL) WITHOUT ROWID;
-- Commits that marked something: whether one is there tells a node that has lost its answer.
CREATE TABLE IF NOT EXISTS model_steps (node TEXT NOT NULL, step INTEGER NOT NULL, PRIMARY KEY (node, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS model_parts (
    blob TEXT NOT NULL, place INTEGER NOT NULL, kept_at INTEGER NOT NULL, part BLOB NOT NULL, PRIMARY KEY (blob, place)
) WITHOUT ROWID;

-- name: mark
-- As SQLite's own, but for the last condition: the bot's lease is of this very epoch, and its holder lives.
INSERT INTO marks (letter_id, bot_id, epoch, marked_at)
SELECT v.column1, v.column2, v.column6, v.column7
FROM (VALUES {rows}) AS v
CROSS JOIN letters AS l ON l.id = v.column1
WHERE l.phase = 0 AND l.number = v.column3 AND l.attempts_made = v.column4 AND l.uncertain_tries = v.column5
    AND EXISTS (
        SELECT 1 FROM model_leases AS s JOIN model_nodes AS n ON n.name = s.node
        WHERE s.bot_id = v.column2 AND s.epoch = v.column6 AND n.ends_at > server_now()
    )
ON CONFLICT (letter_id) DO NOTHING

-- name: forget_mark
DELETE FROM marks WHERE letter_id = ? AND epoch = ?

-- name: steps
SELECT step FROM model_steps WHERE node = ?

-- name: forget_step
DELETE FROM model_steps WHERE node = ? AND step = ?

-- name: forget_steps
DELETE FROM model_steps WHERE node = ? AND step < ?

-- name: note_step
INSERT OR IGNORE INTO model_steps (node, step) VALUES (?, ?)

-- name: is_last
-- Whether nobody has taken the lease since it was taken under this epoch.
SELECT 1 FROM model_leases WHERE bot_id = ? AND epoch = ?

-- name: is_known
SELECT 1 FROM model_nodes WHERE name = ? AND ends_at > server_now() AND is_draining = ?

-- name: live_on
INSERT INTO model_nodes (name, version, address, started_at, seen_at, ends_at, is_draining)
VALUES (:node, :version, :address, server_now(), server_now(), server_now() + :lease_ms, :is_draining)
ON CONFLICT (name) DO UPDATE SET
    seen_at = excluded.seen_at, ends_at = excluded.ends_at, is_draining = excluded.is_draining
RETURNING is_draining OR wants_drain

-- name: lock_on
UPDATE model_locks SET ends_at = server_now() + ? WHERE node = ?

-- name: forget_bots
DELETE FROM model_leases WHERE bot_id <> 0 AND bot_id NOT IN (SELECT bot_id FROM bots)

-- name: note_bots
INSERT OR IGNORE INTO model_leases (bot_id) SELECT 0 UNION ALL SELECT bot_id FROM bots

-- name: held
SELECT bot_id, epoch FROM model_leases WHERE node = ? ORDER BY bot_id

-- name: note_held
UPDATE model_leases SET free_since = NULL WHERE free_since IS NOT NULL AND node = ?

-- name: note_free
UPDATE model_leases SET free_since = server_now() WHERE free_since IS NULL
    AND NOT EXISTS (SELECT 1 FROM model_nodes AS n WHERE n.name = model_leases.node AND n.ends_at > server_now())

-- name: members
-- Who takes part: this node, and those that were heard of within the time.
SELECT n.name, n.seen_at - n.started_at, (SELECT count(*) FROM model_leases AS s WHERE s.node = n.name)
FROM model_nodes AS n
WHERE n.ends_at > server_now() AND NOT n.is_draining AND NOT n.wants_drain
    AND (n.name = :node OR n.seen_at > server_now() - :young_ms)

-- name: counted
-- All leases, and those that were free for longer than this.
SELECT count(*), count(*) FILTER (WHERE free_since < server_now() - ?) FROM model_leases

-- name: free
SELECT bot_id FROM model_leases WHERE free_since IS NOT NULL ORDER BY free_since, bot_id LIMIT ?

-- name: new_epoch
INSERT INTO model_epochs (bot_id, node) VALUES (?, ?) RETURNING epoch

-- name: take
UPDATE model_leases SET node = ?, epoch = ?, free_since = NULL WHERE bot_id = ?

-- name: release
UPDATE model_leases SET node = NULL WHERE node = ? AND bot_id = ?

-- name: leave
DELETE FROM model_nodes WHERE name = ?

-- name: leave_leases
UPDATE model_leases SET node = NULL WHERE node = ?

-- name: leave_locks
DELETE FROM model_locks WHERE node = ?

-- name: take_lock
INSERT INTO model_locks (name, node, ends_at) VALUES (:name, :node, server_now() + :lease_ms)
ON CONFLICT (name) DO UPDATE SET node = excluded.node, ends_at = excluded.ends_at
WHERE model_locks.node = excluded.node OR model_locks.ends_at <= server_now()
RETURNING 1

-- name: drop_lock
DELETE FROM model_locks WHERE name = ? AND node = ?

-- name: is_locked
SELECT 1 FROM model_locks WHERE name = ? AND ends_at > server_now()

-- name: nodes
SELECT name, version, address, started_at, seen_at, is_draining OR wants_drain
FROM model_nodes WHERE ends_at > server_now() ORDER BY started_at, name

-- name: drain
UPDATE model_nodes SET wants_drain = ? WHERE name = ? AND ends_at > server_now()

-- name: last_numbers
SELECT s.bot_id, t.next_number - 1 FROM model_leases AS s JOIN tallies AS t ON t.bot_id = s.bot_id WHERE s.node = ?

-- name: new_letters
SELECT id FROM letters AS l
WHERE id BETWEEN ? AND ? AND bot_id = ? AND phase = 0
    AND NOT EXISTS (SELECT 1 FROM marks AS m WHERE m.letter_id = l.id)
ORDER BY number

-- name: keep_part
INSERT INTO model_parts (blob, place, kept_at, part) VALUES (?, ?, server_now(), ?)
ON CONFLICT (blob, place) DO UPDATE SET part = excluded.part

-- name: part
SELECT part FROM model_parts WHERE blob = ? AND place = ?

-- name: drop_file
DELETE FROM model_parts WHERE blob = ?

-- name: kept_files
SELECT blob, kept_at FROM model_parts WHERE place = 0
