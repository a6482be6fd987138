-- The bot's own facts. Every statement may run at every start.
CREATE TABLE IF NOT EXISTS people (
    id INTEGER PRIMARY KEY,
    language TEXT NOT NULL,
    campaign TEXT,                          -- the first one that brought them
    is_banned INTEGER NOT NULL DEFAULT 0,
    is_gone INTEGER NOT NULL DEFAULT 0,     -- they blocked the bot
    came_at INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS people_came ON people (came_at);  -- new today
CREATE TABLE IF NOT EXISTS campaigns (name TEXT PRIMARY KEY, starts INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS requests (
    day TEXT PRIMARY KEY,
    asked INTEGER NOT NULL DEFAULT 0,
    at_once INTEGER NOT NULL DEFAULT 0      -- answered from a stored file_id
) STRICT;
CREATE TABLE IF NOT EXISTS sponsors (
    chat TEXT PRIMARY KEY,                  -- @name or number
    title TEXT NOT NULL,
    url TEXT NOT NULL,
    told_at INTEGER NOT NULL DEFAULT 0      -- when admins last heard that the bot cannot see it
) STRICT;
-- Data of buttons has 64 bytes: links are named there by their number.
CREATE TABLE IF NOT EXISTS links (id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE IF NOT EXISTS files (
    link INTEGER NOT NULL,
    quality TEXT NOT NULL,
    kind TEXT NOT NULL,                     -- video, audio, document …: how it is sent again
    file_id TEXT NOT NULL,
    PRIMARY KEY (link, quality)
) STRICT;
CREATE TABLE IF NOT EXISTS broadcasts (
    id INTEGER PRIMARY KEY,
    chat INTEGER NOT NULL,                  -- where the message to be copied is
    message INTEGER NOT NULL,
    begun_at INTEGER NOT NULL,
    UNIQUE (chat, message)                  -- a second press on "send" is no second broadcast
) STRICT;
-- Where each conversation stands: aiogram's FSM.
CREATE TABLE IF NOT EXISTS steps (place TEXT PRIMARY KEY, state TEXT, data TEXT NOT NULL DEFAULT '{}') STRICT;
