-- parameters: partition int32, after change.Version, before time.Time, bytes, limit int

-- name: tail
WITH page AS (
  SELECT upto, sum(bytes) OVER (ORDER BY upto) AS total, row_number() OVER (ORDER BY upto) AS place
  FROM (SELECT upto, length(body) AS bytes FROM frames WHERE partition = :partition AND upto > :after ORDER BY upto LIMIT 256) AS next)
SELECT coalesce((SELECT max(last_to) FROM watermarks WHERE partition = :partition), 0),
       (SELECT token FROM progress WHERE partition = :partition), f.upto, f.body
FROM (SELECT 1) AS one
LEFT JOIN frames f ON f.partition = :partition AND f.upto > :after AND f.upto <= (SELECT max(upto) FROM page WHERE place = 1 OR total <= :bytes)
ORDER BY f.upto

-- name: marks
SELECT generation, partition, next_offset, last_to FROM watermarks w
WHERE generation = (SELECT max(generation) FROM watermarks n WHERE n.partition = w.partition)

-- name: drop_frames
DELETE FROM frames WHERE (partition, upto) IN (SELECT partition, upto FROM frames WHERE written < :before ORDER BY written LIMIT :limit)
