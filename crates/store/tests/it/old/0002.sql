-- Rows that the second version of the schema added: a call with its outcome, and a job with its summary.
BEGIN;
INSERT INTO contents (hash, text) VALUES (x'8ec212baa68a37a60cd75116cbcfde38c0df88a4b94feefa832420b3f2543a76', 'name = "epitome"');
INSERT INTO model_calls (id, thread, number, head, time, epoch, estimated, bytes, summary_seq, hash, policy, profile, rendering, format, model, cause, pass, plan, steps, sent) VALUES (1, x'a8ed2c9e9eb08fb485616edbf935d4d1', 0, 5, NULL, 0, 0, 9, NULL, x'4da94ab5dc750d7c43f11b2c5968d0f122370474aa0cbad3c4a089298a19e6c9', x'8ec212baa68a37a60cd75116cbcfde38c0df88a4b94feefa832420b3f2543a76', NULL, x'8ec212baa68a37a60cd75116cbcfde38c0df88a4b94feefa832420b3f2543a76', 'anthropic', NULL, NULL, NULL, NULL, '[]', '[]');
INSERT INTO call_outcomes (number, call, time, cost, answer, usage, error) VALUES (1, 1, 9, NULL, 'msg', NULL, NULL);
INSERT INTO jobs (number, id, thread, key, marker, first, through, first_kept, base, link, cause, focus, detail, created, state, worker, lease, attempts, not_before, compaction, error) VALUES (1, x'6046eef606bf8931b4deea37bc85ad33', x'a8ed2c9e9eb08fb485616edbf935d4d1', 'key', 4, 1, 4, NULL, NULL, x'a5ae80a6672a48374ca91d5eca7ba2123f710c705d0a76612881005aad1c8d87', 'threshold', NULL, '{}', 0, 'ready', NULL, NULL, 1, NULL, NULL, NULL);
INSERT INTO job_attempts (number, job, worker, summariser, started, ended, error, detail) VALUES (1, x'6046eef606bf8931b4deea37bc85ad33', 'worker', 'model', 1, 2, NULL, '{"usage":1}');
INSERT INTO summaries (number, thread, first, through, job, author, prompt_version, created, text, brief, report) VALUES (1, x'a8ed2c9e9eb08fb485616edbf935d4d1', 1, 4, x'6046eef606bf8931b4deea37bc85ad33', 'worker', '1', 3, 'in short', '{"items":[]}', '{}');
COMMIT;
