-- Fewer indexes: each is a page or two more for every event and every call, and most of these were hardly ever asked.

-- What is looked for by its kind is rare. Messages and usage are not, and are found by their places.
DROP INDEX events_by_kind;
CREATE INDEX events_by_kind ON events (thread, kind, seq)
    WHERE kind NOT IN ('user_said', 'assistant_said', 'tool_returned', 'usage_reported', 'carried');

-- The heads of a thread's calls never go back, so that their numbers find them.
DROP INDEX model_calls_by_head;

-- Only an erasure asks who names a content. It makes its own.
DROP INDEX model_calls_by_policy;
DROP INDEX model_calls_by_profile;
DROP INDEX model_calls_by_rendering;
