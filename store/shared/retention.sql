-- parameters: before, last time.Time, after store.Tombstone, id int64, ids []int64, limit int

-- name: tombstones
SELECT id, version, deleted_at FROM entities e
WHERE deleted_at IS NOT NULL AND deleted_at < :before AND (deleted_at, id) > (:after.Deleted, CAST(:after.Entity AS text))
AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.entity = e.id AND (d.state = 'retrying' OR d.state = 'open' AND d.stage = 'deliver'))
ORDER BY deleted_at, id LIMIT :limit

-- name: prune_letters
-- A letter may die again meanwhile: its time is compared again on the row that is deleted.
DELETE FROM dead_letters WHERE last_at < :before AND id IN (
  SELECT id FROM dead_letters WHERE last_at < :before AND state <> 'retrying' AND NOT (state = 'open' AND stage = 'deliver')
  ORDER BY last_at LIMIT :limit)

-- name: old_open_letters
-- By the index of times: state || '' keeps off the one of open letters.
SELECT l.id, l.last_at, l.entity, l.version, coalesce(s.number, 0)
FROM dead_letters l LEFT JOIN services s ON s.name = l.service
WHERE l.last_at < :before AND (l.last_at, l.id) > (:last, :id) AND l.state || '' = 'open' AND l.stage = 'deliver'
ORDER BY l.last_at, l.id LIMIT :limit

-- name: prune_open_letters
DELETE FROM dead_letters WHERE id IN {ids} AND last_at < :before AND state = 'open'

-- name: prune_audit
DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE time < :before ORDER BY time LIMIT :limit)

-- name: prune_jobs
DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE (state <> 'open' OR tenant <> '') AND updated_at < :before ORDER BY updated_at LIMIT :limit)
