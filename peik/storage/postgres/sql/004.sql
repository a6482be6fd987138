-- Jobs: long work, in lines and by tickets (peik/jobs/store.py says what these are).
--
-- Who may write when: whoever changes anything of jobs holds the rows of their kinds in `job_kinds`, locked in the order of
-- their names. So all writes of one kind come one after the other, from however many nodes, and what is read under the lock
-- is the truth until the commit.

-- One row per kind: its lock, how many jobs stand where, and how long runs take. Counting a million jobs costs one row.
CREATE TABLE job_kinds (
    kind         text COLLATE "C" PRIMARY KEY,
    waiting      bigint NOT NULL DEFAULT 0,
    delayed      bigint NOT NULL DEFAULT 0,
    active       bigint NOT NULL DEFAULT 0,
    completed    bigint NOT NULL DEFAULT 0,
    failed       bigint NOT NULL DEFAULT 0,
    cancelled    bigint NOT NULL DEFAULT 0,
    mean_run_ms  bigint                      -- of the last runs that were done; NULL: none yet
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE SEQUENCE job_ids AS bigint;

-- Tickets of lines and places in them. Drawn under the lock of a kind, so that within it a later number is a larger one.
CREATE SEQUENCE job_numbers AS bigint;

-- Times are milliseconds since 1970: `ends_at` by the server's clock, all others by the clocks of those who ask. A quarter of
-- each page stays free: a beat changes nothing that an index knows of, and so finds its next place on its own page.
CREATE TABLE jobs (
    id             bigint PRIMARY KEY,
    bytes_max      bigint NOT NULL,
    bytes_used     bigint NOT NULL DEFAULT 0,
    backoff_ms     bigint NOT NULL,
    timeout_ms     bigint,
    due_at         bigint,                       -- while it is delayed
    place          bigint,                       -- in its line, while it waits
    ends_at        bigint,                       -- of its lease, while it is active
    created_at     bigint NOT NULL,
    started_at     bigint,
    ended_at       bigint,
    run            bigint NOT NULL DEFAULT 0,
    progress       double precision,
    attempts       integer NOT NULL,
    attempts_made  integer NOT NULL DEFAULT 0,
    rank           smallint NOT NULL,
    is_cancelling  boolean NOT NULL DEFAULT false,
    kind           text COLLATE "C" NOT NULL,
    user_id        text COLLATE "C" NOT NULL,
    state          text COLLATE "C" NOT NULL,
    backoff        text NOT NULL,
    params         text NOT NULL,
    node           text,
    progress_text  text,
    result         text,
    failed_reason  text,
    history        text NOT NULL DEFAULT '[]',
    key            text COLLATE "C",
    digest         text NOT NULL,
    notice         text,
    notice_state   text,
    metadata       text
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- The order of every line. Partial, as the next two: it holds the backlog only and shrinks as jobs begin.
CREATE INDEX jobs_in_line ON jobs (kind, rank, user_id, place) WHERE state = 'waiting';

-- Delayed jobs in the order in which they join their lines.
CREATE INDEX jobs_due ON jobs (kind, due_at, id) WHERE state = 'delayed';

-- What runs, by user: there are never more than the terms allow. Leases are not in it, so that beats leave it alone, and who
-- looks for those that are over looks at all that runs.
CREATE INDEX jobs_active ON jobs (kind, user_id) WHERE state = 'active';

-- Idempotency keys live as long as their jobs.
CREATE UNIQUE INDEX jobs_key ON jobs (kind, key) WHERE key IS NOT NULL;

-- Ended jobs by time, for retention: each state apart, since they stay for different times.
CREATE INDEX jobs_ended ON jobs (state, ended_at) WHERE ended_at IS NOT NULL;

-- What people look for, the newest first: somebody's jobs, and the few of a state among many others.
CREATE INDEX jobs_of_user ON jobs (user_id, id);
CREATE INDEX jobs_of_state ON jobs (state, id);

-- Lines with jobs in them. One that got empty is gone, and with it its ticket.
CREATE TABLE job_lines (
    kind     text COLLATE "C" NOT NULL,
    rank     smallint NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    ticket   bigint NOT NULL,
    waiting  integer NOT NULL,
    PRIMARY KEY (kind, user_id, rank)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The order in which lines go.
CREATE INDEX job_lines_turn ON job_lines (kind, rank, ticket);

-- What each user asked for and used of a kind on a day (days since 1970, UTC). It outlives the jobs.
CREATE TABLE job_days (
    kind     text COLLATE "C" NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    day      integer NOT NULL,
    jobs     bigint NOT NULL DEFAULT 0,
    bytes    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, user_id, day)
) WITH (fillfactor = 75);

-- Days that are over leave.
CREATE INDEX job_days_over ON job_days (day);

-- The server's clock, as leases of jobs go by it.
CREATE FUNCTION job_clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;
