-- parameters: i *store.Import, to store.ImportPosition, tenant, id, beforeID, options string, after, last []byte, now, before time.Time, limit int

-- name: import
SELECT id, tenant, source, format, options, file, name, actor, created_at, updated_at, bytes_done, rows_done, accepted, duplicate, refused, state
FROM imports WHERE tenant = :tenant AND id = :id

-- name: list_imports
SELECT id, tenant, source, format, options, file, name, actor, created_at, updated_at, bytes_done, rows_done, accepted, duplicate, refused, state
FROM imports WHERE tenant = :tenant
AND (CAST(:beforeID AS text) = '' OR (created_at, id) < (SELECT b.created_at, b.id FROM imports b WHERE b.tenant = :tenant AND b.id = :beforeID))
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: add_import
INSERT INTO imports (id, tenant, source, format, options, file, name, actor, created_at, updated_at, generation)
VALUES (:i.ID, :i.Tenant, :i.Source, :i.Format, :options, :i.File, :i.Name, :i.Actor, :now, :now, (SELECT coalesce(max(generation), 0) FROM inboxes))
ON CONFLICT DO NOTHING

-- name: restart_import
UPDATE imports SET bytes_done = 0, rows_done = 0, accepted = 0, duplicate = 0, refused = 0, state = 'incomplete',
  generation = (SELECT max(generation) FROM inboxes)
WHERE tenant = :i.Tenant AND id = :i.ID AND generation < (SELECT max(generation) FROM inboxes)

-- name: step_import
UPDATE imports SET bytes_done = :to.Bytes, rows_done = :to.Row, accepted = :to.Counts.Accepted, duplicate = :to.Counts.Duplicate, refused = :to.Counts.Refused,
  state = :to.State, updated_at = :now
WHERE tenant = :i.Tenant AND id = :i.ID AND rows_done = :i.Row AND state = 'incomplete'

-- name: import_letters
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers
FROM dead_letters WHERE dedup_key > :after AND dedup_key <= :last ORDER BY dedup_key LIMIT :limit

-- name: prune_imports
DELETE FROM imports WHERE (tenant, id) IN (SELECT tenant, id FROM imports WHERE updated_at < :before LIMIT :limit)
