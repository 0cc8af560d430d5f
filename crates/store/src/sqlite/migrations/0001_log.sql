-- The log, the records beside it, and what is derived from both.
--
-- Ids are 16-byte blobs. Small columns come before large ones, so that reading a link never walks the pages
-- of a long message.

---------------------------------------------------------------------------------------------------
-- Records
---------------------------------------------------------------------------------------------------

-- What a person names. Titles, labels and heads are the only things here that change.
CREATE TABLE sessions (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    uuid TEXT GENERATED ALWAYS AS (
        lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-'
            || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21))) VIRTUAL,
    title TEXT NOT NULL,
    key TEXT,
    source TEXT NOT NULL,
    created INTEGER,
    head_thread BLOB REFERENCES threads (id) DEFERRABLE INITIALLY DEFERRED
) WITHOUT ROWID;

CREATE TABLE labels (
    session BLOB NOT NULL REFERENCES sessions (id),
    label TEXT NOT NULL,
    PRIMARY KEY (session, label)
) WITHOUT ROWID;

-- A fork is one row: whose thread it continues, and after which event.
CREATE TABLE threads (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    uuid TEXT GENERATED ALWAYS AS (
        lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-'
            || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21))) VIRTUAL,
    session BLOB NOT NULL REFERENCES sessions (id),
    name TEXT NOT NULL,
    start TEXT NOT NULL CHECK (start IN ('root', 'fork', 'spawned')),
    parent BLOB REFERENCES threads (id),
    base_seq INTEGER NOT NULL CHECK (base_seq >= 0),
    base_raw_link BLOB NOT NULL,
    base_normal_link BLOB NOT NULL,
    by_thread BLOB,
    by_seq INTEGER,
    by_call TEXT,
    CHECK ((start = 'fork') = (parent IS NOT NULL)),
    CHECK (start = 'fork' OR base_seq = 0)
);
CREATE INDEX threads_by_session ON threads (session);
CREATE INDEX threads_by_parent ON threads (parent) WHERE parent IS NOT NULL;

-- `raw` is NULL where it equals `fact`. `media` says how many media were taken out of it.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    thread BLOB NOT NULL REFERENCES threads (id),
    seq INTEGER NOT NULL,
    time INTEGER,
    kind TEXT NOT NULL,
    dialect TEXT NOT NULL,
    media INTEGER NOT NULL,
    normal_digest BLOB,
    raw_link BLOB NOT NULL,
    normal_link BLOB NOT NULL,
    origin TEXT,
    fact TEXT NOT NULL,
    raw TEXT,
    UNIQUE (thread, seq)
);
CREATE INDEX events_by_kind ON events (thread, kind, seq);
CREATE INDEX events_by_history ON events (normal_link) WHERE normal_digest IS NOT NULL;

CREATE TABLE media (
    hash BLOB NOT NULL UNIQUE,
    bytes BLOB NOT NULL
);

CREATE TABLE media_uses (
    event INTEGER NOT NULL REFERENCES events (id),
    hash BLOB NOT NULL REFERENCES media (hash),
    PRIMARY KEY (event, hash)
) WITHOUT ROWID;
CREATE INDEX media_uses_by_hash ON media_uses (hash);

-- What happened outside any session. Numbers count down from -1, so that one search index holds both ledgers.
CREATE TABLE ledger (
    number INTEGER PRIMARY KEY CHECK (number < 0),
    channel TEXT NOT NULL,
    id TEXT NOT NULL,
    time INTEGER NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL,
    raw TEXT NOT NULL,
    UNIQUE (channel, id)
);
CREATE INDEX ledger_by_time ON ledger (time);
CREATE INDEX ledger_by_channel ON ledger (channel, time);

CREATE TABLE ledger_links (
    entry INTEGER NOT NULL REFERENCES ledger (number),
    thread BLOB NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (entry, thread, seq)
) WITHOUT ROWID;
CREATE INDEX ledger_links_by_turn ON ledger_links (thread, seq);

CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    what TEXT NOT NULL
);

CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

---------------------------------------------------------------------------------------------------
-- The database itself refuses to change a record. REPLACE deletes without asking the delete trigger,
-- hence the third kind.
---------------------------------------------------------------------------------------------------

CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT raise(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT raise(ABORT, 'events are never deleted'); END;
CREATE TRIGGER events_are_only_appended BEFORE INSERT ON events
WHEN NEW.seq <> 1 + coalesce(
    (SELECT max(seq) FROM events WHERE thread = NEW.thread),
    (SELECT base_seq FROM threads WHERE id = NEW.thread))
    OR EXISTS (SELECT 1 FROM events WHERE id = NEW.id)
BEGIN SELECT raise(ABORT, 'events are only appended'); END;

CREATE TRIGGER threads_are_never_changed BEFORE UPDATE ON threads
BEGIN SELECT raise(ABORT, 'threads are never changed'); END;
CREATE TRIGGER threads_are_never_deleted BEFORE DELETE ON threads
BEGIN SELECT raise(ABORT, 'threads are never deleted'); END;
CREATE TRIGGER threads_are_never_replaced BEFORE INSERT ON threads
WHEN EXISTS (SELECT 1 FROM threads WHERE id = NEW.id OR number = NEW.number)
BEGIN SELECT raise(ABORT, 'threads are never replaced'); END;

CREATE TRIGGER media_are_never_changed BEFORE UPDATE ON media
BEGIN SELECT raise(ABORT, 'media are never changed'); END;
CREATE TRIGGER media_are_never_deleted BEFORE DELETE ON media
BEGIN SELECT raise(ABORT, 'media are never deleted'); END;
CREATE TRIGGER media_are_never_replaced BEFORE INSERT ON media
WHEN EXISTS (SELECT 1 FROM media WHERE hash = NEW.hash)
BEGIN SELECT raise(ABORT, 'media are never replaced'); END;

CREATE TRIGGER media_uses_are_never_changed BEFORE UPDATE ON media_uses
BEGIN SELECT raise(ABORT, 'media uses are never changed'); END;
CREATE TRIGGER media_uses_are_never_deleted BEFORE DELETE ON media_uses
BEGIN SELECT raise(ABORT, 'media uses are never deleted'); END;

CREATE TRIGGER ledger_is_never_changed BEFORE UPDATE ON ledger
BEGIN SELECT raise(ABORT, 'the ledger is never changed'); END;
CREATE TRIGGER ledger_is_never_deleted BEFORE DELETE ON ledger
BEGIN SELECT raise(ABORT, 'the ledger is never deleted'); END;
CREATE TRIGGER ledger_is_never_replaced BEFORE INSERT ON ledger
WHEN EXISTS (SELECT 1 FROM ledger WHERE number = NEW.number OR (channel = NEW.channel AND id = NEW.id))
BEGIN SELECT raise(ABORT, 'the ledger is never replaced'); END;

CREATE TRIGGER ledger_links_are_never_changed BEFORE UPDATE ON ledger_links
BEGIN SELECT raise(ABORT, 'ledger links are never changed'); END;
CREATE TRIGGER ledger_links_are_never_deleted BEFORE DELETE ON ledger_links
BEGIN SELECT raise(ABORT, 'ledger links are never deleted'); END;

CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'the audit is never changed'); END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN SELECT raise(ABORT, 'the audit is never deleted'); END;
CREATE TRIGGER audit_is_never_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE number = NEW.number)
BEGIN SELECT raise(ABORT, 'the audit is never replaced'); END;

---------------------------------------------------------------------------------------------------
-- Derived: everything below can be dropped and made again from the above.
---------------------------------------------------------------------------------------------------

-- One row a turn, owned by the thread that owns its first assistant event.
CREATE TABLE turn_rows (
    thread BLOB NOT NULL,
    seq INTEGER NOT NULL,
    parent_thread BLOB,
    parent_seq INTEGER,
    turn_type TEXT NOT NULL CHECK (turn_type IN ('normal', 'compaction')),
    loop_index INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    time INTEGER,
    tool_calls INTEGER NOT NULL,
    through_thread BLOB,
    through_seq INTEGER,
    kept_thread BLOB,
    kept_seq INTEGER,
    answer TEXT,
    model TEXT,
    usage TEXT,
    asked TEXT NOT NULL,
    PRIMARY KEY (thread, seq)
) WITHOUT ROWID;
CREATE INDEX turns_by_compaction ON turn_rows (thread, seq) WHERE turn_type = 'compaction';
CREATE INDEX turns_by_parent ON turn_rows (parent_thread, parent_seq);

CREATE TABLE counts (
    thread BLOB NOT NULL,
    seq INTEGER NOT NULL,
    tokenizer TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    -- The count of each text of the event, in order, as LEB128 numbers; `tokens` is their sum.
    pieces BLOB NOT NULL,
    PRIMARY KEY (thread, tokenizer, seq)
) WITHOUT ROWID;

-- Sums over a thread's own events, so that a list of sessions reads one row a thread.
CREATE TABLE totals (
    thread BLOB PRIMARY KEY,
    events INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    loops INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL,
    compactions INTEGER NOT NULL,
    first_time INTEGER,
    last_time INTEGER
) WITHOUT ROWID;

-- For each fork: who owns the event it starts at, and the sums over that owner's own events up to there.
CREATE TABLE shared_totals (
    thread BLOB PRIMARY KEY,
    owner BLOB NOT NULL,
    until INTEGER NOT NULL,
    events INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    loops INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL,
    compactions INTEGER NOT NULL,
    first_time INTEGER,
    last_time INTEGER
) WITHOUT ROWID;
CREATE INDEX shared_totals_by_owner ON shared_totals (owner, until);

CREATE TABLE token_totals (
    thread BLOB NOT NULL,
    tokenizer TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (thread, tokenizer)
) WITHOUT ROWID;

-- The index keeps no copy of the text: it asks this view for it.
CREATE VIEW search_text (id, text) AS
SELECT id, fact_text(fact) FROM events
UNION ALL
SELECT number, text FROM ledger;

CREATE VIRTUAL TABLE search USING fts5 (
    text, content = 'search_text', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO search (search, rank) VALUES ('secure-delete', 1);

-- Turns for people who read the file with other tools: ids are written as text, `thread:seq`. `token_count` is
-- by the first tokenizer that counted in this file, over the turn's events in its own thread.
CREATE VIEW turns AS
SELECT
    owner.uuid || ':' || turn.seq AS id,
    session.uuid AS session_id,
    parent.uuid || ':' || turn.parent_seq AS parent_turn_id,
    turn.asked AS query_message_ids,
    owner.uuid || ':' || turn.seq AS response_message_id,
    turn.model AS model,
    (SELECT sum(tokens) FROM counts
        WHERE counts.thread = turn.thread AND counts.seq BETWEEN turn.first AND turn.last
        AND counts.tokenizer = (SELECT value FROM settings WHERE name = 'tokenizer')) AS token_count,
    turn.time AS timestamp,
    EXISTS (SELECT 1 FROM turn_rows AS child
        WHERE child.parent_thread = turn.thread AND child.parent_seq = turn.seq) AS has_children,
    turn.tool_calls AS tool_call_count,
    turn.turn_type AS turn_type,
    CASE turn.turn_type WHEN 'compaction' THEN
        (SELECT json_extract(fact, '$.summary.text') FROM events
            WHERE events.thread = turn.thread AND events.seq = turn.seq) END AS summary,
    through.uuid || ':' || turn.through_seq AS summarized_through_turn_id,
    kept.uuid || ':' || turn.kept_seq AS first_kept_turn_id,
    CASE turn.turn_type WHEN 'compaction' THEN
        (SELECT json_extract(fact, '$.tokens_before') FROM events
            WHERE events.thread = turn.thread AND events.seq = turn.seq) END AS tokens_before,
    CASE turn.turn_type WHEN 'compaction' THEN
        (SELECT json_extract(fact, '$.tokens_after') FROM events
            WHERE events.thread = turn.thread AND events.seq = turn.seq) END AS tokens_after,
    owner.uuid AS thread,
    turn.seq AS seq,
    turn.first AS first,
    turn.last AS last,
    turn.loop_index AS loop_index,
    turn.usage AS usage
FROM turn_rows AS turn
JOIN threads AS owner ON owner.id = turn.thread
JOIN sessions AS session ON session.id = owner.session
LEFT JOIN threads AS parent ON parent.id = turn.parent_thread
LEFT JOIN threads AS through ON through.id = turn.through_thread
LEFT JOIN threads AS kept ON kept.id = turn.kept_thread;
