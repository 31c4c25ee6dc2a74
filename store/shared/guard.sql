-- parameters: service string, kind store.GuardKind, entity string, entities []string
-- parameters: before, after, from, to, at, seen time.Time

-- name: expire_guarded
DELETE FROM guarded WHERE service = :service AND kind = :kind AND seen <= :before

-- name: count_guarded
SELECT at, count(*) FROM guarded WHERE service = :service AND kind = :kind AND at BETWEEN :from AND :to GROUP BY at

-- name: count_admitted
SELECT count(*) FROM guarded WHERE service = :service AND kind = :kind AND seen > :after

-- name: guarded_of
SELECT entity, at FROM guarded WHERE service = :service AND kind = :kind AND entity IN {entities}

-- name: put_guarded
INSERT INTO guarded (service, kind, entity, at, seen) VALUES (:service, :kind, :entity, :at, :seen)
ON CONFLICT (service, kind, entity) DO UPDATE SET at = excluded.at, seen = excluded.seen
