-- Keys of the API, and webhooks that hear of ended letters.

-- Who may use the API besides the admin. A key's own text is nowhere; `digest` is its hash. A revoked key stays, because
-- letters that it brought may still have to be told to its webhook, signed with its secret.
CREATE TABLE keys (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    digest          BLOB NOT NULL,
    name            TEXT NOT NULL,
    scopes          TEXT NOT NULL,             -- JSON array
    bot_ids         TEXT,                      -- JSON array; NULL: every bot
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER,
    revoked_at      INTEGER,
    last_used_at    INTEGER,
    webhook_url     TEXT,
    webhook_secret  TEXT,
    generation      INTEGER NOT NULL           -- rises with every change of any key but of last_used_at
) STRICT;

-- Every process asks twice a second whether any key has changed: one step to the end of this index.
CREATE UNIQUE INDEX keys_generation ON keys (generation);

-- What this Peik made up once and must keep, by name.
CREATE TABLE secrets (
    name   TEXT PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Who hears how a letter ended: a number is a key with a webhook, a text is an address of the letter's own, NULL nobody.
ALTER TABLE letters ADD COLUMN hook;

-- Ends of letters that somebody still has to be told. `phase` and `at` are the letter's at that moment: it may be retried
-- later. `endpoint` is what waits and fails together: a key, or scheme, host and port of an address. `body` is kept after
-- a failed try, so that every try says the same, whatever became of the letter since.
CREATE TABLE hooks (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used again: receivers know messages by it
    endpoint   TEXT NOT NULL,
    hook       NOT NULL,
    letter_id  INTEGER NOT NULL,
    phase      INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    due_at     INTEGER NOT NULL,
    tries      INTEGER NOT NULL DEFAULT 0,
    body       TEXT
);

-- What is due at each endpoint, one seek per endpoint: a million hooks of one that is down never hide those of another.
CREATE INDEX hooks_endpoint ON hooks (endpoint, due_at);

-- When to look again.
CREATE INDEX hooks_due ON hooks (due_at);

-- The end of a letter and the duty to tell it are one commit, however the letter ends: settled, merged, expired,
-- cancelled, resolved. A trigger and no statement of ours, so that none of those ways can forget it, and so that letters
-- without a webhook pay nothing but this condition (measured: 0.14 µs a letter, a hundredth of what one costs in all).
-- An address always has a slash after its host; the first character of a host stands at the ninth place or before.
CREATE TRIGGER letters_hooked AFTER UPDATE OF phase ON letters
WHEN NEW.hook IS NOT NULL AND NEW.phase >= 2 AND NEW.phase <> OLD.phase
BEGIN
    INSERT INTO hooks (endpoint, hook, letter_id, phase, at, due_at)
    VALUES (
        CASE typeof(NEW.hook)
            WHEN 'integer' THEN 'key:' || NEW.hook
            ELSE substr(NEW.hook, 1, 7 + instr(substr(NEW.hook, 9), '/'))
        END,
        NEW.hook, NEW.id, NEW.phase, NEW.settled_at, NEW.settled_at
    );
END;
