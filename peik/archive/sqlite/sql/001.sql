-- The first schema. Migrations go forward, are numbered and are never edited; what they add, old code survives.
-- Times are milliseconds since 1970. Enumerations are kept as the words of the port.

CREATE TABLE telegram_sessions (
    session_id      TEXT PRIMARY KEY,
    agent_id        TEXT NOT NULL,
    phone           TEXT,
    user_id         INTEGER,
    username        TEXT,
    state           TEXT NOT NULL,
    state_reason    TEXT,
    state_until_ms  INTEGER,
    is_connected    INTEGER NOT NULL,
    is_active       INTEGER NOT NULL,
    secret          BLOB,
    file            TEXT,
    proxy           BLOB,
    metadata        TEXT NOT NULL,
    version         INTEGER NOT NULL,
    created_at_ms   INTEGER NOT NULL,
    updated_at_ms   INTEGER NOT NULL,
    active_at_ms    INTEGER
) STRICT, WITHOUT ROWID;
-- Listing the sessions of an agent.
CREATE INDEX telegram_sessions_by_agent ON telegram_sessions (agent_id);
-- Finding a session by its phone, also one that is not active any more.
CREATE INDEX telegram_sessions_by_phone ON telegram_sessions (phone) WHERE phone IS NOT NULL;
-- One active session per phone, whoever asks at the same time.
CREATE UNIQUE INDEX telegram_sessions_one_per_phone ON telegram_sessions (phone) WHERE phone IS NOT NULL AND is_active;

-- Written with every batch of updates, and so apart from the record.
CREATE TABLE updates_states (
    session_id  TEXT PRIMARY KEY,
    state       BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    id             INTEGER PRIMARY KEY,
    session_id     TEXT NOT NULL,
    agent_id       TEXT NOT NULL,
    chat_id        INTEGER NOT NULL,
    message_id     INTEGER NOT NULL,
    direction      TEXT NOT NULL,
    sender_id      INTEGER,
    date_ms        INTEGER NOT NULL,
    edited_at_ms   INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    text           TEXT NOT NULL,
    reply_to       INTEGER,
    grouped_id     INTEGER,
    media          TEXT,
    raw            TEXT,
    letter_id      INTEGER,
    deleted_at_ms  INTEGER,
    created_at_ms  INTEGER NOT NULL
) STRICT;
-- A message is here once; and which ids of a chat are here.
CREATE UNIQUE INDEX messages_by_key ON messages (session_id, chat_id, message_id);
-- Telegram tells a deletion without the chat, but for channels and supergroups.
CREATE INDEX messages_without_chat ON messages (session_id, message_id) WHERE chat_id > -1000000000000;
-- Pages, the newest first, by each thing that people ask for. Every index ends with the row's id by itself.
CREATE INDEX messages_by_session ON messages (session_id, date_ms);
CREATE INDEX messages_by_agent ON messages (agent_id, date_ms);
CREATE INDEX messages_by_chat ON messages (chat_id, date_ms);
CREATE INDEX messages_by_sender ON messages (sender_id, date_ms) WHERE sender_id IS NOT NULL;
CREATE INDEX messages_by_date ON messages (date_ms);
-- What retention lets go of.
CREATE INDEX messages_by_age ON messages (created_at_ms);

-- The folded words of each message's text. Only which words are where is kept: no texts, no places of words.
CREATE VIRTUAL TABLE message_words USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

-- What messages were before. `record` is the whole message as JSON.
CREATE TABLE message_versions (
    session_id     TEXT NOT NULL,
    chat_id        INTEGER NOT NULL,
    message_id     INTEGER NOT NULL,
    edited_at_ms   INTEGER NOT NULL,
    agent_id       TEXT NOT NULL,
    sender_id      INTEGER,
    record         TEXT NOT NULL,
    PRIMARY KEY (session_id, chat_id, message_id, edited_at_ms)
) STRICT, WITHOUT ROWID;
-- Forgetting a person.
CREATE INDEX message_versions_by_sender ON message_versions (sender_id) WHERE sender_id IS NOT NULL;

CREATE TABLE events (
    id             INTEGER PRIMARY KEY,
    event_id       TEXT NOT NULL UNIQUE,
    session_id     TEXT NOT NULL,
    agent_id       TEXT NOT NULL,
    event_type     TEXT NOT NULL,
    chat_id        INTEGER,
    user_id        INTEGER,
    payload        TEXT NOT NULL,
    created_at_ms  INTEGER NOT NULL
) STRICT;
CREATE INDEX events_by_session ON events (session_id, created_at_ms);
CREATE INDEX events_by_agent_and_type ON events (agent_id, event_type, created_at_ms);
CREATE INDEX events_by_agent ON events (agent_id, created_at_ms);
CREATE INDEX events_by_chat ON events (chat_id, created_at_ms) WHERE chat_id IS NOT NULL;
-- Pages of everything, and retention.
CREATE INDEX events_by_age ON events (created_at_ms);
-- Forgetting a person.
CREATE INDEX events_by_user ON events (user_id) WHERE user_id IS NOT NULL;

CREATE TABLE chat_states (
    session_id      TEXT NOT NULL,
    chat_id         INTEGER NOT NULL,
    title           TEXT NOT NULL,
    newest_id       INTEGER NOT NULL,
    crawled_to      INTEGER,
    crawl_until_ms  INTEGER,
    crawled         INTEGER NOT NULL,
    checked_to      INTEGER NOT NULL,
    access          BLOB,
    updated_at_ms   INTEGER NOT NULL,
    PRIMARY KEY (session_id, chat_id)
) STRICT, WITHOUT ROWID;

-- One row: how far a copy to this archive is.
CREATE TABLE copying (
    place     INTEGER PRIMARY KEY CHECK (place = 1),
    progress  TEXT NOT NULL
) STRICT;
