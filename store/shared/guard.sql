-- name: pauses
SELECT service, since, actor, reason, hold FROM pauses ORDER BY service

-- name: pause_of
SELECT service, since, actor, reason, hold FROM pauses WHERE service = :service

-- name: put_pause
INSERT INTO pauses (service, since, actor, reason, hold) VALUES (:service, :since, :actor, :reason, :hold)
ON CONFLICT (service) DO NOTHING

-- name: end_pause
DELETE FROM pauses WHERE service = :service AND hold IS NULL

-- name: end_hold
DELETE FROM pauses WHERE service = :service AND hold IS NOT NULL

-- name: lock_guard
-- The row stays locked until the transaction ends: admissions of one service come one after the other.
INSERT INTO guards (service, base, base_at, extra, extra_till, passes, admissions) VALUES (:service, 0, :never, 0, :never, :passes, 1)
ON CONFLICT (service) DO UPDATE SET admissions = guards.admissions + 1
RETURNING base, base_at, extra, extra_till, passes

-- name: save_guard
UPDATE guards SET base = :base, base_at = :base_at, extra = :extra, extra_till = :extra_till, passes = :passes WHERE service = :service

-- name: expire_guarded
DELETE FROM guarded WHERE service = :service AND kind = :kind AND at <= :before

-- name: count_guarded
SELECT count(*) FROM guarded WHERE service = :service AND kind = :kind AND at > :after

-- name: guarded_of
SELECT entity FROM guarded WHERE service = :service AND kind = :kind AND entity IN {entities}

-- name: put_guarded
INSERT INTO guarded (service, kind, entity, at) VALUES (:service, :kind, :entity, :at)
ON CONFLICT (service, kind, entity) DO UPDATE SET at = excluded.at
