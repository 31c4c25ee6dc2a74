-- name: add_attempt
INSERT INTO deliveries (service, entity, at, version, outcome, status, answer, ms)
VALUES (:service, :entity, :at, :version, :outcome, :status, :answer, :ms)

-- name: attempts custom plan
SELECT service, entity, at, version, outcome, status, answer, ms FROM deliveries
WHERE at >= :since AND at < :until AND (CAST(:service AS integer) = 0 OR service = :service)
ORDER BY at DESC, version DESC LIMIT :limit

-- name: attempts_of
SELECT service, entity, at, version, outcome, status, answer, ms FROM deliveries
WHERE entity = :entity AND at >= :since AND at < :until AND (CAST(:service AS integer) = 0 OR service = :service)
ORDER BY at DESC, version DESC LIMIT :limit

-- name: count_attempts
SELECT service, count(*) FROM deliveries GROUP BY service

-- name: last_attempt_beyond
SELECT at FROM deliveries WHERE service = :service ORDER BY at DESC LIMIT 1 OFFSET :max

-- name: attempts_step
SELECT at FROM deliveries WHERE at > :after AND at <= :through AND service IN {services} ORDER BY at LIMIT 1 OFFSET :step

-- name: delete_attempts
DELETE FROM deliveries WHERE at > :after AND at <= :through AND service IN {services}
