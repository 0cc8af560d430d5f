-- What an event costs as it is written, and afterwards.

-- For a list of more than two SQLite makes a table of its own with every row that is written; for comparisons it does not.
DROP INDEX events_by_kind;
CREATE INDEX events_by_kind ON events (thread, kind, seq)
    WHERE kind <> 'user_said' AND kind <> 'assistant_said' AND kind <> 'tool_returned' AND kind <> 'usage_reported'
    AND kind <> 'carried';

-- Only an erasure asks whose scripts name a content. It makes its own.
DROP INDEX script_contents_by_hash;

-- The search index is merged out of eight pieces at a time instead of four: each word is copied a third less often, and
-- there are no more pieces to search, because they are larger.
INSERT INTO search (search, rank) VALUES ('automerge', 8);
