-- A call that was woven from what a client sent, after the one that is there.
INSERT INTO model_calls (thread, number, head, time, epoch, estimated, bytes, summary_seq, hash, policy, profile, rendering,
    format, model, cause, pass, plan, steps, sent, script)
SELECT thread, number + 1, head, time, epoch, estimated, bytes, summary_seq, hash, policy, profile, rendering, format, model,
    cause, pass, plan, steps, sent, '{}' FROM model_calls ORDER BY id LIMIT 1;
INSERT INTO script_contents (thread, hash, call) SELECT thread, policy, number FROM model_calls WHERE script IS NOT NULL;
