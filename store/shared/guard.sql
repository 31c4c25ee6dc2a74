-- parameters: p *store.Pause, service string, kind store.GuardKind, entity string, entities []string, state, hold []byte
-- parameters: before, after, from, to, at, seen time.Time

-- name: pauses
SELECT service, since, actor, reason, hold FROM guards WHERE since IS NOT NULL ORDER BY service

-- name: put_pause
INSERT INTO guards (service, state, since, actor, reason, hold) VALUES (:p.Service, :state, :p.Since, :p.Actor, :p.Reason, :hold)
ON CONFLICT (service) DO UPDATE SET since = excluded.since, actor = excluded.actor, reason = excluded.reason, hold = excluded.hold
WHERE guards.since IS NULL

-- name: end_pause
UPDATE guards SET since = NULL WHERE service = :service AND hold IS NULL

-- name: end_hold
UPDATE guards SET since = NULL, hold = NULL WHERE service = :service

-- name: lock_guard
-- The row stays locked until the transaction ends: admissions of one service come one after the other.
INSERT INTO guards (service, state) VALUES (:service, :state) ON CONFLICT (service) DO UPDATE SET state = guards.state
RETURNING service, since, actor, reason, hold, state

-- name: save_guard
UPDATE guards SET state = :state WHERE service = :service

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
