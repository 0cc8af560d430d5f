-- Whose a session is, what a client calls its threads, and what passed between clients and providers.

-- Nobody's requests continue somebody else's sessions. The empty name is the one that everybody is without tokens.
ALTER TABLE sessions ADD COLUMN principal TEXT NOT NULL DEFAULT '';

-- The id the client itself gives the thread.
ALTER TABLE threads ADD COLUMN key TEXT;
CREATE INDEX threads_by_key ON threads (key) WHERE key IS NOT NULL;
CREATE INDEX sessions_by_key ON sessions (key) WHERE key IS NOT NULL;

-- What a request names instead of repeating it: an answer, or an item of one.
CREATE INDEX turns_by_answer ON turn_rows (answer) WHERE answer IS NOT NULL;
CREATE INDEX events_by_item ON events (origin) WHERE dialect = 'openai-responses' AND origin IS NOT NULL;

-- One row a request that ended, however it ended. `head` is its last event, a place in the view of its thread.
CREATE TABLE exchanges (
    number INTEGER PRIMARY KEY,
    thread BLOB NOT NULL REFERENCES threads (id),
    head INTEGER NOT NULL CHECK (head >= 0),
    time INTEGER NOT NULL,
    status INTEGER,
    bytes_in INTEGER NOT NULL,
    bytes_out INTEGER NOT NULL,
    first_byte_ms INTEGER,
    took_ms INTEGER NOT NULL,
    client TEXT NOT NULL,
    purpose TEXT NOT NULL,
    format TEXT NOT NULL,
    ending TEXT NOT NULL,
    model TEXT,
    error TEXT,
    observed TEXT
);
CREATE INDEX exchanges_by_thread ON exchanges (thread);

CREATE TRIGGER exchanges_are_never_changed BEFORE UPDATE ON exchanges
BEGIN SELECT raise(ABORT, 'exchanges are never changed'); END;
CREATE TRIGGER exchanges_are_never_deleted BEFORE DELETE ON exchanges
BEGIN SELECT raise(ABORT, 'exchanges are never deleted'); END;
CREATE TRIGGER exchanges_are_never_replaced BEFORE INSERT ON exchanges
WHEN EXISTS (SELECT 1 FROM exchanges WHERE number = NEW.number)
BEGIN SELECT raise(ABORT, 'exchanges are never replaced'); END;

-- A session never changes hands.
CREATE TRIGGER principals_are_never_changed BEFORE UPDATE OF principal ON sessions
BEGIN SELECT raise(ABORT, 'principals are never changed'); END;
