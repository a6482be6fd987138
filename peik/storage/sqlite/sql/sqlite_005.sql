-- Jobs: long work, who waits for it, and who runs it.

CREATE TABLE jobs (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: folders and cursors go by it
    kind           TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    params         TEXT NOT NULL,
    rank           INTEGER NOT NULL,
    state          TEXT NOT NULL,
    place          INTEGER,                            -- in its line, while it waits
    attempts       INTEGER NOT NULL,
    attempts_made  INTEGER NOT NULL DEFAULT 0,
    backoff_ms     INTEGER NOT NULL,
    backoff        TEXT NOT NULL,
    timeout_ms     INTEGER,
    due_at         INTEGER,                            -- while it is delayed
    run            INTEGER NOT NULL DEFAULT 0,
    node           TEXT,
    ends_at        INTEGER,                            -- of its lease, while it is active
    lease_ms       INTEGER,                            -- no lease ends further away than this: clocks are put back
    is_cancelling  INTEGER NOT NULL DEFAULT 0,
    progress       REAL,
    progress_text  TEXT,
    result         TEXT,
    failed_reason  TEXT,
    history        TEXT NOT NULL DEFAULT '[]',
    key            TEXT,
    digest         TEXT NOT NULL DEFAULT '',
    notice         TEXT,
    notice_state   TEXT,
    metadata       TEXT,
    bytes_max      INTEGER NOT NULL DEFAULT 0,
    bytes_used     INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL,
    started_at     INTEGER,
    ended_at       INTEGER
);

-- A line from its front: take reads the first of it, a standing counts those before.
CREATE INDEX jobs_line ON jobs (kind, rank, user_id, place) WHERE state = 'waiting';

-- Those whose time comes next, kind by kind.
CREATE INDEX jobs_due ON jobs (kind, due_at) WHERE state = 'delayed';

-- How many run of a kind, and of each user: counted anew by each take, so that no count can go wrong. They are few.
CREATE INDEX jobs_active ON jobs (kind, user_id) WHERE state = 'active';

-- A key is one job's, for as long as that is here.
CREATE UNIQUE INDEX jobs_key ON jobs (kind, key) WHERE key IS NOT NULL;

-- A user asks for his own, newest first. (The id stands at the end of every index.)
CREATE INDEX jobs_user ON jobs (user_id);

-- A person asks for the few that failed among the many that are done. Leases are looked through by it, too: those that run
-- are few.
CREATE INDEX jobs_state ON jobs (state);

-- The ended leave, oldest first, each state after a time of its own.
CREATE INDEX jobs_ended ON jobs (state, ended_at) WHERE ended_at IS NOT NULL;

-- One row for each line that somebody stands in.
CREATE TABLE job_lines (
    kind     TEXT NOT NULL,
    rank     INTEGER NOT NULL,
    user_id  TEXT NOT NULL,
    ticket   INTEGER NOT NULL,
    jobs     INTEGER NOT NULL,
    PRIMARY KEY (kind, rank, user_id)
) WITHOUT ROWID;

-- Whose turn it is.
CREATE INDEX job_lines_turns ON job_lines (kind, rank, ticket);

-- The one counter of tickets and of places in lines.
CREATE TABLE job_numbers (last INTEGER NOT NULL);
INSERT INTO job_numbers (last) VALUES (0);

-- What a user asked for and used on a day (days since 1970, UTC). The day first: old ones leave together.
CREATE TABLE job_days (
    day      INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    jobs     INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,
    PRIMARY KEY (day, kind, user_id)
) WITHOUT ROWID;

-- How long the last runs of a kind took that were done.
CREATE TABLE job_kinds (kind TEXT PRIMARY KEY, mean_run_ms INTEGER NOT NULL) WITHOUT ROWID;

-- How many of a kind are in each state. Kept by triggers, so that no way from one state to another can forget it.
CREATE TABLE job_tallies (
    kind   TEXT NOT NULL,
    state  TEXT NOT NULL,
    jobs   INTEGER NOT NULL,
    PRIMARY KEY (kind, state)
) WITHOUT ROWID;

CREATE TRIGGER jobs_came AFTER INSERT ON jobs BEGIN
    INSERT INTO job_tallies (kind, state, jobs) VALUES (new.kind, new.state, 1)
    ON CONFLICT (kind, state) DO UPDATE SET jobs = job_tallies.jobs + 1;
END;

CREATE TRIGGER jobs_changed AFTER UPDATE OF state ON jobs WHEN old.state <> new.state BEGIN
    UPDATE job_tallies SET jobs = jobs - 1 WHERE kind = old.kind AND state = old.state;
    INSERT INTO job_tallies (kind, state, jobs) VALUES (new.kind, new.state, 1)
    ON CONFLICT (kind, state) DO UPDATE SET jobs = job_tallies.jobs + 1;
END;

CREATE TRIGGER jobs_left AFTER DELETE ON jobs BEGIN
    UPDATE job_tallies SET jobs = jobs - 1 WHERE kind = old.kind AND state = old.state;
END;
