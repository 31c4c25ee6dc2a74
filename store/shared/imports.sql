-- name: import
SELECT id, tenant, source, format, options, file, name, actor, created_at, updated_at, attempt,
  bytes_done, rows_done, cursor, accepted, duplicate, invalid, conflicting, state, failure, generation
FROM imports WHERE tenant = :tenant AND id = :id

-- name: list_imports
SELECT id, tenant, source, format, options, file, name, actor, created_at, updated_at, attempt,
  bytes_done, rows_done, cursor, accepted, duplicate, invalid, conflicting, state, failure, generation
FROM imports WHERE tenant = :tenant
AND (CAST(:before AS text) = '' OR (created_at, id) < (SELECT b.created_at, b.id FROM imports b WHERE b.tenant = :tenant AND b.id = :before))
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: count_incomplete_imports
SELECT count(*) FROM imports WHERE tenant = :tenant AND state = 'incomplete' AND id <> :id

-- name: add_import
INSERT INTO imports (id, tenant, source, format, options, file, name, actor, created_at, updated_at)
VALUES (:id, :tenant, :source, :format, :options, :file, :name, :actor, :now, :now)
ON CONFLICT DO NOTHING

-- name: restart_import
UPDATE imports SET bytes_done = 0, rows_done = 0, cursor = NULL, accepted = 0, duplicate = 0, invalid = 0, conflicting = 0, generation = :generation
WHERE tenant = :tenant AND id = :id

-- name: drop_import_results
DELETE FROM import_results WHERE tenant = :tenant AND import = :id

-- name: begin_import
UPDATE imports SET state = 'incomplete', failure = '', attempt = attempt + 1, name = :name, actor = :actor, updated_at = :now
WHERE tenant = :tenant AND id = :id

-- name: step_import
UPDATE imports SET bytes_done = :bytes, rows_done = :row, cursor = :cursor,
  accepted = :accepted, duplicate = :duplicate, invalid = :invalid, conflicting = :conflicting,
  state = :state, failure = :failure, updated_at = :now
WHERE tenant = :tenant AND id = :id AND attempt = :attempt AND rows_done <= :row AND state IN ('incomplete', :state)

-- name: add_import_results
INSERT INTO import_results (tenant, import, last_row, body) VALUES (:tenant, :id, :last, :body) ON CONFLICT DO NOTHING

-- name: import_results
SELECT body FROM import_results WHERE tenant = :tenant AND import = :id AND last_row > :after ORDER BY last_row LIMIT 1

-- name: cancel_import
UPDATE imports SET state = 'cancelled', updated_at = :now WHERE tenant = :tenant AND id = :id AND state = 'incomplete'

-- name: prune_import_results
DELETE FROM import_results WHERE (tenant, import, last_row) IN (
  SELECT r.tenant, r.import, r.last_row FROM imports i JOIN import_results r ON r.tenant = i.tenant AND r.import = i.id
  WHERE i.updated_at < :before LIMIT :limit)

-- name: prune_imports
DELETE FROM imports WHERE (tenant, id) IN (SELECT tenant, id FROM imports WHERE updated_at < :before LIMIT :limit)
