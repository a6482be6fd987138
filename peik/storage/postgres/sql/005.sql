-- Papers and known chats (peik/core/documents.py says what these are).
--
-- Who may write when: whoever files papers holds the rows of their shelves in `paper_shelves`, locked in the order of their names,
-- and whoever saves chats that of their bot in `contact_places`. So what is read under the lock is the truth until the commit, from
-- however many nodes.

-- One row per shelf: its lock, and how many papers lie on it, so that a million need not be counted. An empty one stays: somebody
-- may be waiting for its lock.
CREATE TABLE paper_shelves (
    shelf   text COLLATE "C" PRIMARY KEY,
    papers  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE papers (
    version  bigint NOT NULL DEFAULT 1,          -- one more with every change
    shelf    text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    body     text NOT NULL,                      -- JSON, byte for byte as it came
    PRIMARY KEY (shelf, key)
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- Counts are kept by triggers, once per statement: no way to write can forget them.
CREATE FUNCTION count_papers_in() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO paper_shelves AS s (shelf, papers) SELECT c.shelf, count(*) FROM come AS c GROUP BY c.shelf ORDER BY c.shelf
    ON CONFLICT (shelf) DO UPDATE SET papers = s.papers + excluded.papers;
    RETURN NULL;
END
$$;
CREATE TRIGGER papers_came AFTER INSERT ON papers REFERENCING NEW TABLE AS come
FOR EACH STATEMENT EXECUTE FUNCTION count_papers_in();

CREATE FUNCTION count_papers_out() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE paper_shelves AS s SET papers = s.papers - g.papers
    FROM (SELECT gone.shelf, count(*) AS papers FROM gone GROUP BY gone.shelf) AS g
    WHERE s.shelf = g.shelf;
    RETURN NULL;
END
$$;
CREATE TRIGGER papers_left AFTER DELETE ON papers REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION count_papers_out();

-- How far the arrivals of a bot have been looked through; and the lock of its chats.
CREATE TABLE contact_places (
    bot_id  bigint PRIMARY KEY,
    place   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Chats that have written to a bot, or that it was put into. `words` is what people search: name and username, case folded.
CREATE TABLE contacts (
    bot_id      bigint NOT NULL,
    chat_id     bigint NOT NULL,
    first_seen  bigint NOT NULL,
    last_seen   bigint NOT NULL,
    is_gone     boolean NOT NULL,
    type        text COLLATE "C" NOT NULL,
    name        text,
    username    text,
    language    text COLLATE "C",
    campaign    text COLLATE "C",
    words       text COLLATE "C" NOT NULL,
    PRIMARY KEY (bot_id, chat_id)
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- The last seen first; and how many of them were there since a day, counted without a look at the chats themselves.
CREATE INDEX contacts_seen ON contacts (bot_id, last_seen, chat_id) INCLUDE (type, language, is_gone);

-- What brought those who came since a day.
CREATE INDEX contacts_first ON contacts (bot_id, first_seen) INCLUDE (campaign);

-- How many chats of each kind a bot has: what is asked for most is counted here, in a few rows. Kept by triggers.
CREATE TABLE contact_tallies (
    bot_id    bigint NOT NULL,
    type      text COLLATE "C" NOT NULL,
    language  text COLLATE "C" NOT NULL,         -- '': not known
    is_gone   boolean NOT NULL,
    contacts  bigint NOT NULL,
    PRIMARY KEY (bot_id, type, language, is_gone)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION count_contacts_in() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO contact_tallies AS t (bot_id, type, language, is_gone, contacts)
    SELECT c.bot_id, c.type, coalesce(c.language, ''), c.is_gone, count(*) FROM come AS c GROUP BY 1, 2, 3, 4
    ON CONFLICT (bot_id, type, language, is_gone) DO UPDATE SET contacts = t.contacts + excluded.contacts;
    RETURN NULL;
END
$$;
CREATE TRIGGER contacts_came AFTER INSERT ON contacts REFERENCING NEW TABLE AS come
FOR EACH STATEMENT EXECUTE FUNCTION count_contacts_in();

CREATE FUNCTION count_contacts_out() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE contact_tallies AS t SET contacts = t.contacts - g.contacts
    FROM (
        SELECT gone.bot_id, gone.type, coalesce(gone.language, '') AS language, gone.is_gone, count(*) AS contacts
        FROM gone GROUP BY 1, 2, 3, 4
    ) AS g
    WHERE t.bot_id = g.bot_id AND t.type = g.type AND t.language = g.language AND t.is_gone = g.is_gone;
    RETURN NULL;
END
$$;
CREATE TRIGGER contacts_left AFTER DELETE ON contacts REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION count_contacts_out();

-- Most changes are of when a chat was seen, and move nothing.
CREATE FUNCTION count_contacts_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO contact_tallies AS t (bot_id, type, language, is_gone, contacts)
    SELECT v.bot_id, v.type, v.language, v.is_gone, sum(v.step) FROM (
        SELECT c.bot_id, c.type, coalesce(c.language, '') AS language, c.is_gone, 1 AS step FROM come AS c
        UNION ALL
        SELECT g.bot_id, g.type, coalesce(g.language, ''), g.is_gone, -1 FROM gone AS g
    ) AS v
    GROUP BY 1, 2, 3, 4 HAVING sum(v.step) <> 0
    ON CONFLICT (bot_id, type, language, is_gone) DO UPDATE SET contacts = t.contacts + excluded.contacts;
    RETURN NULL;
END
$$;
CREATE TRIGGER contacts_changed AFTER UPDATE ON contacts REFERENCING OLD TABLE AS gone NEW TABLE AS come
FOR EACH STATEMENT EXECUTE FUNCTION count_contacts_again();
