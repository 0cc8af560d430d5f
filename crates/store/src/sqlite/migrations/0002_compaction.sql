-- Calls of models and the making of summaries: records beside the log.
--
-- All but the state of a job is append-only. Whatever names an event names its place in the view of the row's thread:
-- that stays true when an event gets another owner.

-- How many calls a fork shares. It is fixed when the fork is made: its parent may call again at the same event.
ALTER TABLE threads ADD COLUMN base_calls INTEGER NOT NULL DEFAULT 0 CHECK (base_calls >= 0);

-- Policies, profiles and options of a rendering, each stored once.
CREATE TABLE contents (
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    text TEXT NOT NULL
);

-- One row a request. A fork counts on from the calls it shares, and their heads never go back.
CREATE TABLE model_calls (
    id INTEGER PRIMARY KEY,
    thread BLOB NOT NULL REFERENCES threads (id),
    number INTEGER NOT NULL CHECK (number >= 0),
    head INTEGER NOT NULL CHECK (head >= 0),
    time INTEGER,
    epoch INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    summary_seq INTEGER,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    policy BLOB NOT NULL REFERENCES contents (hash),
    profile BLOB REFERENCES contents (hash),
    rendering BLOB NOT NULL REFERENCES contents (hash),
    format TEXT NOT NULL,
    model TEXT,
    cause TEXT,
    pass TEXT,
    plan TEXT,
    steps TEXT NOT NULL,
    sent TEXT NOT NULL,
    UNIQUE (thread, number)
);
CREATE INDEX model_calls_by_head ON model_calls (thread, head, number);
CREATE INDEX model_calls_by_policy ON model_calls (policy);
CREATE INDEX model_calls_by_profile ON model_calls (profile) WHERE profile IS NOT NULL;
CREATE INDEX model_calls_by_rendering ON model_calls (rendering);

CREATE TABLE call_outcomes (
    number INTEGER PRIMARY KEY,
    call INTEGER NOT NULL REFERENCES model_calls (id),
    time INTEGER,
    -- In billionths of a dollar.
    cost INTEGER,
    answer TEXT,
    usage TEXT,
    error TEXT
);
CREATE INDEX call_outcomes_by_call ON call_outcomes (call);

-- Summaries to be written. What is to be done never changes, how far it is does.
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    thread BLOB NOT NULL REFERENCES threads (id),
    key TEXT NOT NULL,
    marker INTEGER NOT NULL,
    first INTEGER NOT NULL,
    through INTEGER NOT NULL,
    first_kept INTEGER,
    base INTEGER,
    link BLOB NOT NULL CHECK (length(link) = 32),
    cause TEXT NOT NULL,
    focus TEXT,
    detail TEXT NOT NULL,
    created INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued'
        CHECK (state IN ('queued', 'running', 'ready', 'adopted', 'failed', 'cancelled')),
    worker TEXT,
    lease INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER,
    compaction INTEGER,
    error TEXT,
    UNIQUE (thread, key),
    CHECK (first >= 1 AND first <= through),
    CHECK ((state = 'running') = (worker IS NOT NULL)),
    CHECK ((state = 'running') = (lease IS NOT NULL)),
    CHECK ((state = 'adopted') = (compaction IS NOT NULL))
);
CREATE INDEX jobs_open ON jobs (number) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_by_thread ON jobs (thread, state);

CREATE TABLE job_attempts (
    number INTEGER PRIMARY KEY,
    job BLOB NOT NULL REFERENCES jobs (id),
    worker TEXT NOT NULL,
    summariser TEXT NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    error TEXT,
    detail TEXT
);
CREATE INDEX job_attempts_by_job ON job_attempts (job);
CREATE INDEX job_attempts_by_summariser ON job_attempts (summariser);

-- Keyed by the events they cover.
CREATE TABLE summaries (
    number INTEGER PRIMARY KEY,
    thread BLOB NOT NULL REFERENCES threads (id),
    first INTEGER NOT NULL,
    through INTEGER NOT NULL,
    job BLOB NOT NULL UNIQUE REFERENCES jobs (id),
    author TEXT NOT NULL,
    prompt_version TEXT NOT NULL,
    created INTEGER NOT NULL,
    text TEXT NOT NULL,
    brief TEXT NOT NULL,
    report TEXT NOT NULL
);
CREATE INDEX summaries_by_span ON summaries (thread, first, through);

---------------------------------------------------------------------------------------------------
-- The database itself refuses to change a record.
---------------------------------------------------------------------------------------------------

CREATE TRIGGER contents_are_never_changed BEFORE UPDATE ON contents
BEGIN SELECT raise(ABORT, 'contents are never changed'); END;
CREATE TRIGGER contents_are_never_deleted BEFORE DELETE ON contents
BEGIN SELECT raise(ABORT, 'contents are never deleted'); END;
CREATE TRIGGER contents_are_never_replaced BEFORE INSERT ON contents
WHEN EXISTS (SELECT 1 FROM contents WHERE hash = NEW.hash)
BEGIN SELECT raise(ABORT, 'contents are never replaced'); END;

CREATE TRIGGER model_calls_are_never_changed BEFORE UPDATE ON model_calls
BEGIN SELECT raise(ABORT, 'calls are never changed'); END;
CREATE TRIGGER model_calls_are_never_deleted BEFORE DELETE ON model_calls
BEGIN SELECT raise(ABORT, 'calls are never deleted'); END;
CREATE TRIGGER model_calls_are_only_appended BEFORE INSERT ON model_calls
WHEN NEW.number <> coalesce(
    (SELECT 1 + max(number) FROM model_calls WHERE thread = NEW.thread),
    (SELECT base_calls FROM threads WHERE id = NEW.thread))
    OR EXISTS (SELECT 1 FROM model_calls WHERE id = NEW.id)
BEGIN SELECT raise(ABORT, 'calls are only appended'); END;

CREATE TRIGGER call_outcomes_are_never_changed BEFORE UPDATE ON call_outcomes
BEGIN SELECT raise(ABORT, 'outcomes are never changed'); END;
CREATE TRIGGER call_outcomes_are_never_deleted BEFORE DELETE ON call_outcomes
BEGIN SELECT raise(ABORT, 'outcomes are never deleted'); END;
CREATE TRIGGER call_outcomes_are_never_replaced BEFORE INSERT ON call_outcomes
WHEN EXISTS (SELECT 1 FROM call_outcomes WHERE number = NEW.number)
BEGIN SELECT raise(ABORT, 'outcomes are never replaced'); END;

CREATE TRIGGER job_attempts_are_never_changed BEFORE UPDATE ON job_attempts
BEGIN SELECT raise(ABORT, 'attempts are never changed'); END;
CREATE TRIGGER job_attempts_are_never_deleted BEFORE DELETE ON job_attempts
BEGIN SELECT raise(ABORT, 'attempts are never deleted'); END;
CREATE TRIGGER job_attempts_are_never_replaced BEFORE INSERT ON job_attempts
WHEN EXISTS (SELECT 1 FROM job_attempts WHERE number = NEW.number)
BEGIN SELECT raise(ABORT, 'attempts are never replaced'); END;

CREATE TRIGGER summaries_are_never_changed BEFORE UPDATE ON summaries
BEGIN SELECT raise(ABORT, 'summaries are never changed'); END;
CREATE TRIGGER summaries_are_never_deleted BEFORE DELETE ON summaries
BEGIN SELECT raise(ABORT, 'summaries are never deleted'); END;
CREATE TRIGGER summaries_are_never_replaced BEFORE INSERT ON summaries
WHEN EXISTS (SELECT 1 FROM summaries WHERE number = NEW.number OR job = NEW.job)
BEGIN SELECT raise(ABORT, 'summaries are never replaced'); END;

CREATE TRIGGER what_jobs_do_is_never_changed BEFORE UPDATE OF
    number, id, thread, key, marker, first, through, first_kept, base, link, cause, focus, detail, created ON jobs
BEGIN SELECT raise(ABORT, 'what a job does is never changed'); END;
CREATE TRIGGER jobs_never_go_back BEFORE UPDATE OF state ON jobs
WHEN (OLD.state, NEW.state) NOT IN (VALUES
    ('queued', 'running'), ('queued', 'cancelled'),
    ('running', 'running'), ('running', 'queued'), ('running', 'ready'), ('running', 'failed'), ('running', 'cancelled'),
    ('ready', 'adopted'), ('ready', 'cancelled'))
BEGIN SELECT raise(ABORT, 'a job never goes from its state to that one'); END;
CREATE TRIGGER jobs_are_never_deleted BEFORE DELETE ON jobs
BEGIN SELECT raise(ABORT, 'jobs are never deleted'); END;
CREATE TRIGGER jobs_are_never_replaced BEFORE INSERT ON jobs
WHEN EXISTS (SELECT 1 FROM jobs
    WHERE number = NEW.number OR id = NEW.id OR (thread = NEW.thread AND key = NEW.key))
BEGIN SELECT raise(ABORT, 'jobs are never replaced'); END;
