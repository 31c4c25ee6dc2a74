-- parameters: partition int32, after change.Version, before time.Time, size int64, bytes, limit int

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
SELECT generation, partition, next_offset, last_to,
       coalesce((SELECT min(upto) FROM frames f WHERE f.partition = w.partition), 0)
FROM watermarks w
WHERE generation = (SELECT max(generation) FROM watermarks n WHERE n.partition = w.partition)

-- name: drop_frames
-- Of the oldest frames those before a time, and those by which the log exceeds its size: in each
-- partition the totals of the newest and the oldest frame tell how large it is.
DELETE FROM frames WHERE (partition, upto) IN (
  SELECT partition, upto FROM (
    SELECT partition, upto, written, sum(length(body)) OVER (ORDER BY written ROWS UNBOUNDED PRECEDING) - length(body) AS older
    FROM (SELECT partition, upto, written, body FROM frames ORDER BY written LIMIT :limit) AS oldest) AS page
  WHERE written < :before OR older < (
    SELECT sum((SELECT total FROM frames f WHERE f.partition = p.partition ORDER BY upto DESC LIMIT 1)
      - (SELECT total - length(body) FROM frames f WHERE f.partition = p.partition ORDER BY upto LIMIT 1))
    FROM (SELECT DISTINCT partition FROM watermarks) AS p) - CAST(:size AS bigint))
