-- Papers and known chats: what broadcasts, notifications, sign-ins and the audit log are made of, and who has written to a bot.

-- Small JSON documents on shelves. The key compares byte by byte, as texts do here unless told otherwise.
CREATE TABLE papers (
    shelf    TEXT NOT NULL,
    key      TEXT NOT NULL,
    body     TEXT NOT NULL,                    -- JSON
    version  INTEGER NOT NULL DEFAULT 1,       -- one more with every change
    PRIMARY KEY (shelf, key)
) STRICT, WITHOUT ROWID;

-- How many papers lie on each shelf, so that a million need not be counted. Kept by triggers: no way to write can forget it.
CREATE TABLE paper_shelves (
    shelf   TEXT PRIMARY KEY,
    papers  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER papers_came AFTER INSERT ON papers BEGIN
    INSERT INTO paper_shelves (shelf, papers) VALUES (new.shelf, 1)
    ON CONFLICT (shelf) DO UPDATE SET papers = paper_shelves.papers + 1;
END;

CREATE TRIGGER papers_left AFTER DELETE ON papers BEGIN
    UPDATE paper_shelves SET papers = papers - 1 WHERE shelf = old.shelf;
    DELETE FROM paper_shelves WHERE shelf = old.shelf AND papers = 0;
END;

-- Chats that have written to a bot, or that it was put into. `words` is what people search: name and username, case folded.
CREATE TABLE contacts (
    bot_id      INTEGER NOT NULL,
    chat_id     INTEGER NOT NULL,
    type        TEXT NOT NULL,
    name        TEXT,
    username    TEXT,
    language    TEXT,
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    is_gone     INTEGER NOT NULL,
    campaign    TEXT,
    words       TEXT NOT NULL,
    PRIMARY KEY (bot_id, chat_id)
) STRICT, WITHOUT ROWID;

-- The last seen first; and how many of them were there since a day, counted without a look at the chats themselves.
CREATE INDEX contacts_seen ON contacts (bot_id, last_seen, chat_id, type, language, is_gone);

-- What brought those who came since a day.
CREATE INDEX contacts_first ON contacts (bot_id, first_seen, campaign);

-- How far the arrivals of a bot have been looked through.
CREATE TABLE contact_places (bot_id INTEGER PRIMARY KEY, place INTEGER NOT NULL) STRICT;

-- How many chats of each kind a bot has: what is asked for most is counted here, in a few rows. Kept by triggers.
CREATE TABLE contact_tallies (
    bot_id    INTEGER NOT NULL,
    type      TEXT NOT NULL,
    language  TEXT NOT NULL,                   -- '': not known
    is_gone   INTEGER NOT NULL,
    contacts  INTEGER NOT NULL,
    PRIMARY KEY (bot_id, type, language, is_gone)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER contacts_came AFTER INSERT ON contacts BEGIN
    INSERT INTO contact_tallies (bot_id, type, language, is_gone, contacts)
    VALUES (new.bot_id, new.type, coalesce(new.language, ''), new.is_gone, 1)
    ON CONFLICT (bot_id, type, language, is_gone) DO UPDATE SET contacts = contact_tallies.contacts + 1;
END;

CREATE TRIGGER contacts_changed AFTER UPDATE ON contacts
WHEN old.type <> new.type OR old.language IS NOT new.language OR old.is_gone <> new.is_gone
BEGIN
    UPDATE contact_tallies SET contacts = contacts - 1
    WHERE bot_id = old.bot_id AND type = old.type AND language = coalesce(old.language, '') AND is_gone = old.is_gone;
    INSERT INTO contact_tallies (bot_id, type, language, is_gone, contacts)
    VALUES (new.bot_id, new.type, coalesce(new.language, ''), new.is_gone, 1)
    ON CONFLICT (bot_id, type, language, is_gone) DO UPDATE SET contacts = contact_tallies.contacts + 1;
END;

CREATE TRIGGER contacts_left AFTER DELETE ON contacts BEGIN
    UPDATE contact_tallies SET contacts = contacts - 1
    WHERE bot_id = old.bot_id AND type = old.type AND language = coalesce(old.language, '') AND is_gone = old.is_gone;
END;
