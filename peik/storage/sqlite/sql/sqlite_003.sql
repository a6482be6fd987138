-- The inbox: arrivals, who reads them, and how far each reader is.

-- One row per bot whose updates come here: where we stand in Telegram's numbering, and our own next number.
CREATE TABLE inboxes (
    bot_id          INTEGER PRIMARY KEY,
    epoch           INTEGER NOT NULL DEFAULT 1,
    epoch_at        INTEGER NOT NULL,         -- when it began: for two days its updates may be those of the one before
    server          TEXT NOT NULL,
    last_update_id  INTEGER,                  -- the last of the last committed batch, never the highest
    started_at      INTEGER,
    seen_at         INTEGER,
    received_at     INTEGER,
    next_number     INTEGER,                  -- NULL before the first update, whose own id seeds it
    expired         INTEGER NOT NULL DEFAULT 0,
    updated_at      INTEGER NOT NULL
) STRICT;

-- The arrivals. `lane` is a number or a text, so the table is not STRICT. `payload` is the update without its update_id.
CREATE TABLE arrivals (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    bot_id       INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    update_id    INTEGER NOT NULL,
    type         TEXT NOT NULL,
    lane         NOT NULL,
    user_id      INTEGER,
    message_id   INTEGER,
    sent_at      INTEGER,
    received_at  INTEGER NOT NULL,
    digest       BLOB NOT NULL,
    payload      TEXT NOT NULL,
    replay_of    INTEGER,
    only_for     INTEGER NOT NULL DEFAULT 0   -- the consumer that a replay is for; 0: all
);

-- The order of a bot's arrivals. A reader merges two walks along it, what is for all and what is for it alone: so a page
-- costs the same at any depth, and a hundred thousand replays for somebody else are not even passed by.
CREATE UNIQUE INDEX arrivals_number ON arrivals (bot_id, only_for, number);

-- Telegram's own key: the second copy of an update is refused here. Replays are copies on purpose.
CREATE UNIQUE INDEX arrivals_update ON arrivals (bot_id, epoch, update_id) WHERE replay_of IS NULL;

-- One chat's arrivals in the order of ids, which within a bot is that of numbers: for a lane that is read by itself, for
-- people who look at a chat, and for finding the same payload under another epoch's id without an index on the digest,
-- which every insert would pay for.
CREATE INDEX arrivals_lane ON arrivals (bot_id, lane);

-- Who reads. `watermark`: everything up to it is over for this reader.
CREATE TABLE consumers (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    bot_id           INTEGER NOT NULL,
    name             TEXT NOT NULL,
    kind             TEXT NOT NULL DEFAULT 'none',
    url              TEXT,
    secret           TEXT,
    allowed          TEXT,                    -- JSON array; NULL: as Telegram's default
    connections_max  INTEGER NOT NULL DEFAULT 40,
    watermark        INTEGER NOT NULL,
    seen_at          INTEGER,
    created_at       INTEGER NOT NULL,
    UNIQUE (bot_id, name)
) STRICT;

-- What is over above the watermark: few rows, since only what is still open parts them (core/spans.py).
CREATE TABLE spans (
    consumer_id  INTEGER NOT NULL,
    first        INTEGER NOT NULL,
    last         INTEGER NOT NULL,
    PRIMARY KEY (consumer_id, first)
) STRICT, WITHOUT ROWID;

-- Where the watermarks stood, once an hour: an arrival goes a week after everybody had it, not a week after it came.
CREATE TABLE watermarks (
    consumer_id  INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    watermark    INTEGER NOT NULL,
    PRIMARY KEY (consumer_id, at)
) STRICT, WITHOUT ROWID;

-- Arrivals with a story of their own: those that failed at least once. 0 put off, 2 completed after all, 3 dead.
CREATE TABLE deliveries (
    consumer_id    INTEGER NOT NULL,
    number         INTEGER NOT NULL,
    phase          INTEGER NOT NULL,
    tries          INTEGER NOT NULL,
    due_at         INTEGER,
    failed_reason  TEXT,
    settled_at     INTEGER,
    history        TEXT NOT NULL,             -- JSON array
    PRIMARY KEY (consumer_id, number)
) STRICT, WITHOUT ROWID;

-- Dead ones for people, put-off ones for a reader that starts; completed ones are in nobody's way.
CREATE INDEX deliveries_open ON deliveries (consumer_id, phase, number) WHERE phase <> 2;

-- What MTProto clients have handled themselves.
CREATE TABLE handled (
    bot_id      INTEGER NOT NULL,
    chat        INTEGER NOT NULL,
    message_id  INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (bot_id, chat, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX handled_age ON handled (at);

CREATE TABLE outages (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    bot_id       INTEGER NOT NULL,
    began_at     INTEGER NOT NULL,
    ended_at     INTEGER NOT NULL,
    last_number  INTEGER NOT NULL,
    settled_at   INTEGER
) STRICT;
CREATE INDEX outages_bot ON outages (bot_id);

-- What a bot does with messages that waited through an outage: process, notify, both, drop; NULL as the settings say.
ALTER TABLE bots ADD COLUMN missed TEXT;

-- What Telegram last answered to getMe, as JSON: a bot that starts while Telegram cannot be reached is answered from here.
ALTER TABLE bots ADD COLUMN me TEXT;

-- For programs that ask as they always did (docs/inbox.md).
CREATE VIEW bot_state AS
SELECT
    bot_id,
    last_update_id,
    epoch,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000.0, 'unixepoch') AS last_startup,
    strftime('%Y-%m-%dT%H:%M:%fZ', seen_at / 1000.0, 'unixepoch') AS last_seen,
    strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1000.0, 'unixepoch') AS updated_at
FROM inboxes;

-- The other view of docs/inbox.md: `SELECT * FROM pending_messages WHERE status = 'pending'`. Status as the bot's
-- default consumer stands with it. Both views keep to what SQLite 3.37 knows, as `telegram_message_logs` does.
CREATE VIEW pending_messages AS
SELECT
    a.id,
    a.bot_id,
    a.update_id,
    a.user_id,
    a.lane AS chat_id,
    a.message_id,
    -- A type that no Bot API has yet may be written in any way; it must not spoil the whole answer.
    CASE WHEN a.type GLOB '[a-z]*' AND a.type NOT GLOB '*[^a-z0-9_]*' AND json_valid(a.payload) THEN coalesce(
        json_extract(a.payload, '$.' || a.type || '.text'),
        json_extract(a.payload, '$.' || a.type || '.caption'),
        json_extract(a.payload, '$.' || a.type || '.data')
    ) END AS text,
    a.type AS message_type,
    CASE
        WHEN d.phase = 3 THEN 'failed'
        WHEN a.number <= c.watermark THEN 'completed'
        WHEN EXISTS (
            SELECT 1 FROM spans AS s WHERE s.consumer_id = c.id AND s.first <= a.number AND s.last >= a.number
        ) THEN 'completed'
        ELSE 'pending'
    END AS status,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(a.sent_at, a.received_at) / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.received_at / 1000.0, 'unixepoch') AS received_at
FROM arrivals AS a
JOIN consumers AS c ON c.bot_id = a.bot_id AND c.name = 'default'
LEFT JOIN deliveries AS d ON d.consumer_id = c.id AND d.number = a.number
WHERE a.only_for IN (0, c.id);
