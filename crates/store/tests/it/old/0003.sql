-- Rows that the third version of the schema added: a request that ended.
BEGIN;
INSERT INTO exchanges (number, thread, head, time, status, bytes_in, bytes_out, first_byte_ms, took_ms, client, purpose, format, ending, model, error, observed) VALUES (1, x'a8ed2c9e9eb08fb485616edbf935d4d1', 5, 9, 200, 10, 20, 3, 4, 'pi', 'turn', 'anthropic', 'complete', 'm', NULL, NULL);
COMMIT;
