-- parameters: r *store.CheckRow, entities []string, services []int64, service int32, after string, limit int

-- name: check_rows
SELECT entity, service, revision, content, version, delivered_version, delivered, memory
FROM checks WHERE entity IN {entities} AND service IN {services}

-- name: swap_check lock timeout
UPDATE checks SET revision = revision + 1, content = :r.Content, version = :r.Version, delivered_version = :r.DeliveredVersion,
  delivered = :r.Delivered, memory = :r.Memory
WHERE entity = :r.Entity AND service = :r.Service AND revision = :r.Revision

-- name: insert_check lock timeout
INSERT INTO checks (entity, service, revision, content, version, delivered_version, delivered, memory)
VALUES (:r.Entity, :r.Service, CAST(:r.Revision AS bigint) + 1, :r.Content, :r.Version, :r.DeliveredVersion, :r.Delivered, :r.Memory)
ON CONFLICT (entity, service) DO NOTHING

-- name: service_checks
SELECT entity, service, revision, content, version, delivered_version, delivered, memory
FROM checks WHERE entity > :after AND service = :service ORDER BY entity LIMIT :limit
