-- name: check_rows
SELECT entity, service, revision, content, version, delivered_version, delivered, memory
FROM checks WHERE entity IN {entities} AND service IN {services}

-- name: swap_check lock timeout
UPDATE checks SET revision = revision + 1, content = :content, version = :version, delivered_version = :delivered_version,
  delivered = :delivered, memory = :memory
WHERE entity = :entity AND service = :service AND revision = :revision

-- name: insert_check lock timeout
INSERT INTO checks (entity, service, revision, content, version, delivered_version, delivered, memory)
VALUES (:entity, :service, CAST(:revision AS bigint) + 1, :content, :version, :delivered_version, :delivered, :memory)
ON CONFLICT (entity, service) DO NOTHING

-- name: service_checks
SELECT entity, service, revision, content, version, delivered_version, delivered, memory
FROM checks WHERE entity > :after AND service = :service ORDER BY entity LIMIT :limit
