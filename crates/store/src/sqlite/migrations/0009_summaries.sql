-- Summaries that no job wrote, and the texts of our own summaries in the view of turns.

-- A built-in summary is written together with its compaction, which the row then names; that of a job waits for one.
CREATE TABLE summaries_of_all (
    number INTEGER PRIMARY KEY,
    thread BLOB NOT NULL REFERENCES threads (id),
    first INTEGER NOT NULL,
    through INTEGER NOT NULL,
    job BLOB UNIQUE REFERENCES jobs (id),
    compaction INTEGER,
    author TEXT NOT NULL,
    prompt_version TEXT NOT NULL,
    created INTEGER NOT NULL,
    text TEXT NOT NULL,
    brief TEXT NOT NULL,
    report TEXT NOT NULL,
    CHECK ((job IS NULL) = (compaction IS NOT NULL)),
    UNIQUE (thread, compaction)
);
INSERT INTO summaries_of_all
    (number, thread, first, through, job, author, prompt_version, created, text, brief, report)
    SELECT number, thread, first, through, job, author, prompt_version, created, text, brief, report FROM summaries;
DROP TABLE summaries;
ALTER TABLE summaries_of_all RENAME TO summaries;
CREATE INDEX summaries_by_span ON summaries (thread, first, through);

CREATE TRIGGER summaries_are_never_changed BEFORE UPDATE ON summaries
BEGIN SELECT raise(ABORT, 'summaries are never changed'); END;
CREATE TRIGGER summaries_are_never_deleted BEFORE DELETE ON summaries
BEGIN SELECT raise(ABORT, 'summaries are never deleted'); END;
CREATE TRIGGER summaries_are_never_replaced BEFORE INSERT ON summaries
WHEN EXISTS (SELECT 1 FROM summaries
    WHERE number = NEW.number OR job = NEW.job OR (thread = NEW.thread AND compaction = NEW.compaction))
BEGIN SELECT raise(ABORT, 'summaries are never replaced'); END;

-- As before, but for the column `summary`.
DROP VIEW turns;
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
        (SELECT coalesce(json_extract(fact, '$.summary.text'), json_extract(fact, '$.summary.structured.text'))
            FROM events WHERE events.thread = turn.thread AND events.seq = turn.seq) END AS summary,
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
