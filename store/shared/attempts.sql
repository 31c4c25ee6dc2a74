-- parameters: a *store.Attempt, f store.AttemptFilter, answer []byte, service int32, services []int64, after, through time.Time, max, step int

-- name: add_attempt
INSERT INTO deliveries (service, entity, at, version, outcome, status, answer, ms)
VALUES (:a.Service, :a.Entity, :a.At, :a.Version, :a.Outcome, :a.Status, :answer, :a.Took.Milliseconds())

-- name: attempts custom plan
SELECT service, entity, at, version, outcome, status, answer, ms FROM deliveries
WHERE at >= :f.Since AND at < :f.Until AND (CAST(:f.Service AS integer) = 0 OR service = :f.Service)
ORDER BY at DESC, version DESC LIMIT :f.Limit

-- name: attempts_of
SELECT service, entity, at, version, outcome, status, answer, ms FROM deliveries
WHERE entity = :f.Entity AND at >= :f.Since AND at < :f.Until AND (CAST(:f.Service AS integer) = 0 OR service = :f.Service)
ORDER BY at DESC, version DESC LIMIT :f.Limit

-- name: count_attempts
SELECT service, count(*) FROM deliveries GROUP BY service

-- name: last_attempt_beyond
SELECT at FROM deliveries WHERE service = :service ORDER BY at DESC LIMIT 1 OFFSET :max

-- name: attempts_step
SELECT at FROM deliveries WHERE at > :after AND at <= :through AND service IN {services} ORDER BY at LIMIT 1 OFFSET :step

-- name: delete_attempts
DELETE FROM deliveries WHERE at > :after AND at <= :through AND service IN {services}
