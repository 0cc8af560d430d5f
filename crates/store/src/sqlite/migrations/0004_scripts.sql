-- Calls that were not rendered but woven from what a client sent.

-- How the client's request was taken over: JSON.
ALTER TABLE model_calls ADD COLUMN script TEXT;

-- The texts that the scripts of a thread name, each with the first call that does, so that they go when it is erased.
CREATE TABLE script_contents (
    thread BLOB NOT NULL REFERENCES threads (id),
    hash BLOB NOT NULL REFERENCES contents (hash),
    call INTEGER NOT NULL CHECK (call >= 0),
    PRIMARY KEY (thread, hash)
) WITHOUT ROWID;
CREATE INDEX script_contents_by_hash ON script_contents (hash);
