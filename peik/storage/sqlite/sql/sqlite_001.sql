-- The first schema. Migrations go forward, are numbered and are never edited; what they add, old code survives.

-- Who we send for. The token is here and nowhere else.
CREATE TABLE bots (
    bot_id      INTEGER PRIMARY KEY,
    token       TEXT NOT NULL,
    username    TEXT,
    inbound     TEXT NOT NULL DEFAULT 'off',
    paused      TEXT,                        -- why it is paused; NULL while it runs
    limits      TEXT,                        -- JSON; NULL for Telegram's figures
    created_at  INTEGER NOT NULL
) STRICT;

-- One row per bot: the next number of its order, and how many letters stand where. Kept in the same transaction as the
-- letters themselves, so that counting a million letters costs one row. It outlives its bot, as the bot's ended letters do.
CREATE TABLE tallies (
    bot_id       INTEGER PRIMARY KEY,
    next_number  INTEGER NOT NULL DEFAULT 1,
    in_lane      INTEGER NOT NULL DEFAULT 0,
    apart        INTEGER NOT NULL DEFAULT 0,
    completed    INTEGER NOT NULL DEFAULT 0,
    failed       INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The letters. `phase`: 0 in its lane, 1 apart (scheduled, or waiting for the letter it refers to), 2 completed,
-- 3 failed, 4 cancelled. `chat` is a number or a text, so the table is not STRICT. NULL takes no room on disk.
CREATE TABLE letters (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used again, even after the newest was removed
    bot_id           INTEGER NOT NULL,
    number           INTEGER NOT NULL,
    phase            INTEGER NOT NULL DEFAULT 0,
    rank             INTEGER NOT NULL,
    chat             NOT NULL,
    thread           INTEGER NOT NULL,
    weight           INTEGER NOT NULL,
    method           TEXT NOT NULL,
    params           TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    attempts         INTEGER NOT NULL,
    backoff_ms       INTEGER NOT NULL,
    backoff          TEXT,                   -- NULL: exponential
    timeout_ms       INTEGER,
    hold             INTEGER,                -- 1: at most once
    due_at           INTEGER,
    expires_at       INTEGER,
    awaits           INTEGER,
    target           TEXT,
    enclosed         TEXT,
    metadata         TEXT,
    user_id          TEXT,
    message_type     TEXT,
    moved            INTEGER,
    attempts_made    INTEGER NOT NULL DEFAULT 0,
    uncertain_tries  INTEGER NOT NULL DEFAULT 0,
    failed_reason    TEXT,
    merged_into      INTEGER,
    history          TEXT,
    settled_at       INTEGER
);

-- The order of every lane, and the way to find lanes: by priority first, so that a broadcast of a million letters never
-- hides one that a person waits for. Partial: it holds the backlog only and shrinks as letters end.
CREATE INDEX letters_lane ON letters (bot_id, rank, chat, thread, number) WHERE phase = 0;

-- Scheduled letters and those that back off, by the time when they are due; `phase` first, so that neither has to be
-- looked for among the other.
CREATE INDEX letters_due ON letters (phase, due_at) WHERE due_at IS NOT NULL AND phase < 2;

-- Letters that must be given up at some instant.
CREATE INDEX letters_expiry ON letters (expires_at) WHERE expires_at IS NOT NULL AND phase < 2;

-- A newer edit finds the waiting one that it replaces.
CREATE INDEX letters_target ON letters (bot_id, target) WHERE target IS NOT NULL AND phase = 0;

-- A letter that was sent finds those that refer to it and stand apart.
CREATE INDEX letters_awaits ON letters (awaits) WHERE awaits IS NOT NULL AND phase = 1;

-- Letters with files are few among many: which files are still needed must not take a look at every letter.
CREATE INDEX letters_enclosed ON letters (phase) WHERE enclosed IS NOT NULL;

-- Dead letters by time, for people; ended letters by time, for retention.
CREATE INDEX letters_dead ON letters (settled_at) WHERE phase = 3;
CREATE INDEX letters_done ON letters (settled_at) WHERE phase IN (2, 4);

-- What is in flight. Written right before a try, removed by its settlement, so what an owner left behind when it died
-- is uncertain and nothing else. Small and hot: a mark does not touch the letter itself.
CREATE TABLE marks (
    letter_id  INTEGER PRIMARY KEY,
    bot_id     INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    marked_at  INTEGER NOT NULL
) STRICT;

-- Telegram's answers, apart from the letters: appending here is cheaper than making a letter's row grow.
CREATE TABLE results (
    letter_id  INTEGER PRIMARY KEY,
    result     TEXT NOT NULL
) STRICT;

CREATE TABLE idempotency (
    bot_id      INTEGER NOT NULL,
    key         TEXT NOT NULL,
    digest      TEXT NOT NULL,
    letter_id   INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (bot_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_expiry ON idempotency (expires_at);

-- What is known of chats: another name or number of the same chat, whether it can be reached, how long it is held.
CREATE TABLE chats (
    bot_id         INTEGER NOT NULL,
    chat           NOT NULL,
    same_as        INTEGER,
    shut_reason    TEXT,
    shut_at        INTEGER,
    held_until     INTEGER,
    PRIMARY KEY (bot_id, chat)
) WITHOUT ROWID;

CREATE TABLE bot_holds (
    bot_id      INTEGER PRIMARY KEY,
    held_until  INTEGER NOT NULL
) STRICT;

-- Files that were uploaded once are sent by id afterwards.
CREATE TABLE file_ids (
    bot_id   INTEGER NOT NULL,
    digest   TEXT NOT NULL,
    kind     TEXT NOT NULL,
    file_id  TEXT NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (bot_id, digest, kind)
) STRICT, WITHOUT ROWID;

-- Each owner of this file gets an epoch; marks and settlements carry it.
CREATE TABLE epochs (
    epoch      INTEGER PRIMARY KEY AUTOINCREMENT,
    opened_at  INTEGER NOT NULL
) STRICT;

-- The message log outlives the letters: retention moves a letter's line here when the letter itself goes.
CREATE TABLE message_log (
    id            INTEGER PRIMARY KEY,
    bot_id        INTEGER NOT NULL,
    chat_id       ,
    user_id       TEXT,
    message_type  TEXT,
    method        TEXT NOT NULL,
    status        TEXT NOT NULL,
    attempts      INTEGER NOT NULL,
    error         TEXT,
    message_id    INTEGER,
    created_at    INTEGER NOT NULL,
    finished_at   INTEGER
);
CREATE INDEX message_log_age ON message_log (created_at);

-- Every message by status and time, for programs that read the file: `SELECT * FROM telegram_message_logs
-- WHERE status = 'failed' ORDER BY created_at DESC`. Letters still here and the log of those that went, in one view.
-- Other programs read it with whatever SQLite they have, so it keeps to what 3.37 knows (no `->>`, no 'subsec').
CREATE VIEW telegram_message_logs AS
SELECT
    l.id,
    l.bot_id,
    l.chat AS chat_id,
    l.user_id,
    l.message_type,
    l.method,
    CASE
        WHEN m.letter_id IS NOT NULL THEN 'active'
        WHEN l.phase = 0 AND (l.due_at IS NULL OR l.due_at <= (julianday('now') - 2440587.5) * 86400000) THEN 'waiting'
        WHEN l.phase < 2 THEN 'delayed'
        WHEN l.phase = 2 THEN 'completed'
        WHEN l.phase = 3 THEN 'failed'
        ELSE 'cancelled'
    END AS status,
    l.attempts_made AS attempts,
    l.failed_reason AS error,
    CASE
        WHEN json_valid(r.result) THEN coalesce(json_extract(r.result, '$.message_id'), json_extract(r.result, '$[0].message_id'))
    END AS message_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.settled_at / 1000.0, 'unixepoch') AS finished_at
FROM letters AS l
LEFT JOIN marks AS m ON m.letter_id = l.id
LEFT JOIN results AS r ON r.letter_id = l.id
UNION ALL
SELECT
    id, bot_id, chat_id, user_id, message_type, method, status, attempts, error, message_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch'),
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch')
FROM message_log;
