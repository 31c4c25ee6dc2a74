-- name: add_audit
INSERT INTO audit (time, actor, action, reason, entity, service, detail)
VALUES (:now, :actor, :action, :reason, :entity, :service, :detail)

-- name: audits custom plan
SELECT id, time, actor, action, reason, entity, service, detail
FROM audit
WHERE (CAST(:actor AS text) = '' OR actor = :actor) AND (CAST(:action AS text) = '' OR action = :action)
AND (CAST(:entity AS text) = '' OR entity = :entity) AND (CAST(:service AS text) = '' OR service = :service)
AND id > :after ORDER BY id LIMIT :limit

-- name: newest_audits custom plan
SELECT id, time, actor, action, reason, entity, service, detail
FROM audit
WHERE (CAST(:actor AS text) = '' OR actor = :actor) AND (CAST(:action AS text) = '' OR action = :action)
AND (CAST(:entity AS text) = '' OR entity = :entity) AND (CAST(:service AS text) = '' OR service = :service)
AND id < :after ORDER BY id DESC LIMIT :limit

-- name: open_job
-- The conflict is with the open job of the same work, which stays locked until the
-- transaction ends.
INSERT INTO jobs (kind, key, parameters, cursor, done, total, actor, created_at, updated_at)
VALUES (:kind, :key, :parameters, :cursor, :done, :total, :actor, :now, :now)
ON CONFLICT (kind, key) WHERE state = 'open' DO UPDATE SET turn = jobs.turn + 1, updated_at = excluded.updated_at
RETURNING id, kind, key, parameters, cursor, done, total, state, actor, created_at, updated_at, turn

-- name: save_job
UPDATE jobs SET cursor = :cursor, done = :done, total = :total, state = :state, updated_at = :now
WHERE id = :id AND turn = :turn AND state = 'open'

-- name: list_jobs
SELECT id, kind, key, parameters, cursor, done, total, state, actor, created_at, updated_at, turn FROM jobs
WHERE (CAST(:kind AS text) = '' OR kind = :kind) AND (CAST(:state AS text) = '' OR state = :state) ORDER BY id DESC LIMIT :limit
