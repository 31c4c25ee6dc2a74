-- parameters: a *store.Audit, detail *string, f store.AuditFilter, j *store.Job, parameters string, jobs store.JobFilter, now time.Time

-- name: add_audit
INSERT INTO audit (time, actor, action, reason, entity, service, detail)
VALUES (:now, :a.Actor, :a.Action, :a.Reason, :a.Entity, :a.Service, :detail)

-- name: audits custom plan
SELECT id, time, actor, action, reason, entity, service, detail
FROM audit
WHERE (CAST(:f.Actor AS text) = '' OR actor = :f.Actor) AND (CAST(:f.Action AS text) = '' OR action = :f.Action)
AND (CAST(:f.Entity AS text) = '' OR entity = :f.Entity) AND (CAST(:f.Service AS text) = '' OR service = :f.Service)
AND id > :f.AfterID ORDER BY id LIMIT :f.Limit

-- name: newest_audits custom plan
SELECT id, time, actor, action, reason, entity, service, detail
FROM audit
WHERE (CAST(:f.Actor AS text) = '' OR actor = :f.Actor) AND (CAST(:f.Action AS text) = '' OR action = :f.Action)
AND (CAST(:f.Entity AS text) = '' OR entity = :f.Entity) AND (CAST(:f.Service AS text) = '' OR service = :f.Service)
AND id < :f.AfterID ORDER BY id DESC LIMIT :f.Limit

-- name: open_job
-- The conflict is with the open job of the same work, which stays locked until the
-- transaction ends.
INSERT INTO jobs (tenant, kind, key, parameters, cursor, done, total, actor, created_at, updated_at)
VALUES (:j.Tenant, :j.Kind, :j.Key, :parameters, :j.Cursor, :j.Done, :j.Total, :j.Actor, :now, :now)
ON CONFLICT (tenant, kind, key) WHERE state = 'open' DO UPDATE SET turn = jobs.turn + 1, updated_at = excluded.updated_at
RETURNING id, tenant, kind, key, parameters, cursor, done, total, state, actor, created_at, updated_at, turn

-- name: save_job
UPDATE jobs SET cursor = :j.Cursor, done = :j.Done, total = :j.Total, state = :j.State, updated_at = :now, turn = turn + 1
WHERE tenant = :j.Tenant AND id = :j.ID AND turn = :j.Epoch AND state = 'open'

-- name: list_jobs
SELECT id, tenant, kind, key, parameters, cursor, done, total, state, actor, created_at, updated_at, turn FROM jobs
WHERE tenant = :jobs.Tenant AND (CAST(:jobs.Kind AS text) = '' OR kind = :jobs.Kind) AND (CAST(:jobs.Key AS text) = '' OR key = :jobs.Key)
AND (CAST(:jobs.State AS text) = '' OR state = :jobs.State) AND id < :jobs.Before ORDER BY id DESC LIMIT :jobs.Limit
