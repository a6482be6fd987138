-- What is told of what sessions saw, how far who has read it, and Peik's own log.

CREATE TABLE feed (
    id          INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL,
    agent_id    TEXT NOT NULL,
    number      INTEGER NOT NULL,
    key         TEXT NOT NULL,
    kind        TEXT NOT NULL,
    chat_id     INTEGER,
    user_id     INTEGER,
    body        TEXT NOT NULL,
    at_ms       INTEGER NOT NULL
) STRICT;
-- Reading on behind a number; and a number is used once.
CREATE UNIQUE INDEX feed_by_number ON feed (session_id, number);
-- The same is told once.
CREATE UNIQUE INDEX feed_by_key ON feed (session_id, key);
-- What retention lets go of.
CREATE INDEX feed_by_age ON feed (at_ms);
-- Forgetting a person.
CREATE INDEX feed_by_user ON feed (user_id) WHERE user_id IS NOT NULL;

-- The lowest number of each feed that is kept, and the highest there ever was. A row is never removed, so that a number is never
-- used again, whatever became of the lines and of the session. Without lines `first` is one more than `last`, and so a new line
-- changes `last` alone.
CREATE TABLE feed_ends (
    session_id  TEXT PRIMARY KEY,
    first       INTEGER NOT NULL,
    last        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Few, and saved often: no index by age, retention walks them.
CREATE TABLE reader_places (
    reader      TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    number      INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    PRIMARY KEY (reader, session_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE logs (
    id          INTEGER PRIMARY KEY,
    digest      BLOB NOT NULL UNIQUE,  -- of the whole line: one that is handed in again is no second one
    at_ms       INTEGER NOT NULL,
    level       TEXT NOT NULL,
    event       TEXT NOT NULL,
    node        TEXT NOT NULL,
    session_id  TEXT,
    bot_id      INTEGER,
    fields      TEXT NOT NULL
) STRICT;
-- Pages of everything, and retention.
CREATE INDEX logs_by_age ON logs (at_ms);
-- Pages by each thing that people ask for.
CREATE INDEX logs_by_event ON logs (event, at_ms);
CREATE INDEX logs_by_session ON logs (session_id, at_ms) WHERE session_id IS NOT NULL;
CREATE INDEX logs_by_bot ON logs (bot_id, at_ms) WHERE bot_id IS NOT NULL;
-- What went wrong is rare, and asked for most.
CREATE INDEX logs_of_trouble ON logs (at_ms) WHERE level IN ('warning', 'error');
