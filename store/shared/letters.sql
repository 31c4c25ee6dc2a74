-- parameters: l *store.DeadLetter, f store.LetterFilter, x store.LetterResolution, id int64, ids, partitions []int64, services []string
-- parameters: stage store.Stage, from, to store.LetterState, now, since time.Time, key, row, seen, payload, last []byte
-- parameters: later, laterMax, after int64, most, limit int

-- name: add_letter
-- Without a payload the letter has that of the retrying row :row, if there is one.
INSERT INTO dead_letters (created_at, last_at, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, headers, dedup_key, position, attempts, due_at)
VALUES (:now, :now, :l.Stage, :l.Code, :l.Reason, :l.Source, :l.Service, :l.Entity, :l.EventID, :l.Version, :l.Topic, :l.Part, :l.Offset,
        coalesce(:l.Payload, (SELECT payload FROM dead_letters WHERE dedup_key = :row AND state = 'retrying'), {empty}),
        coalesce(:l.Headers, (SELECT headers FROM dead_letters WHERE dedup_key = :row AND state = 'retrying')),
        :key, :l.Position,
        CASE WHEN CAST(:l.Attempts AS integer) > 0 THEN :l.Attempts ELSE coalesce((SELECT attempts FROM dead_letters WHERE dedup_key = :row AND state = 'retrying'), 0) END,
        CASE WHEN CAST(:later AS bigint) > 0 THEN CAST(:now.UnixMicro() AS bigint) + :later END)
ON CONFLICT (dedup_key) DO UPDATE
SET last_at = excluded.last_at, count = dead_letters.count + 1, code = excluded.code, reason = excluded.reason, version = excluded.version,
    payload = excluded.payload, headers = excluded.headers, position = excluded.position, attempts = excluded.attempts, state = 'open',
    due_at = CASE WHEN :later = 0 THEN NULL
                  WHEN dead_letters.count > 20 OR :later * (CAST(1 AS bigint) << CAST(dead_letters.count AS integer)) > :laterMax THEN :now.UnixMicro() + :laterMax
                  ELSE :now.UnixMicro() + :later * (CAST(1 AS bigint) << CAST(dead_letters.count AS integer)) END
WHERE excluded.position > dead_letters.position

-- name: put_retrying
-- Without a payload the stored one stays, with its headers. A newer change of an entity keeps the time of its first failure.
INSERT INTO dead_letters (created_at, last_at, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, headers, dedup_key, position, attempts, next_try, state)
VALUES (:since, :now, :l.Stage, :l.Code, :l.Reason, :l.Source, :l.Service, :l.Entity, :l.EventID, :l.Version, :l.Topic, :l.Part, :l.Offset,
        coalesce(:l.Payload, (SELECT payload FROM dead_letters WHERE dedup_key = :key), {empty}),
        CASE WHEN :l.Payload IS NULL THEN (SELECT headers FROM dead_letters WHERE dedup_key = :key) ELSE :l.Headers END,
        :key, :l.Position, :l.Attempts, :l.NextTry, 'retrying')
ON CONFLICT (dedup_key) DO UPDATE
SET last_at = excluded.last_at, stage = excluded.stage, code = excluded.code, reason = excluded.reason, source = excluded.source,
    service = excluded.service, entity = excluded.entity, event_id = excluded.event_id, version = excluded.version, topic = excluded.topic,
    part = excluded.part, "offset" = excluded."offset", payload = excluded.payload, headers = excluded.headers,
    position = excluded.position, attempts = excluded.attempts, next_try = excluded.next_try
WHERE dead_letters.state = 'retrying'

-- name: end_retrying
DELETE FROM dead_letters WHERE dedup_key = :key AND state = 'retrying'

-- name: conclude_retrying
-- The row becomes the letter in place, unless that is stored already.
UPDATE dead_letters
SET last_at = :now, state = 'open', stage = :l.Stage, code = :l.Code, reason = :l.Reason, source = :l.Source, service = :l.Service,
    entity = :l.Entity, event_id = :l.EventID, version = :l.Version, topic = :l.Topic, part = :l.Part, "offset" = :l.Offset,
    payload = coalesce(:l.Payload, payload), headers = CASE WHEN :l.Payload IS NULL THEN headers ELSE :l.Headers END,
    dedup_key = :key, position = :l.Position, attempts = CASE WHEN CAST(:l.Attempts AS integer) > 0 THEN :l.Attempts ELSE attempts END,
    next_try = NULL, due_at = CASE WHEN CAST(:later AS bigint) > 0 THEN CAST(:now.UnixMicro() AS bigint) + :later END
WHERE dedup_key = :row AND state = 'retrying' AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE dedup_key = :key)

-- name: retrying_of
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload)
FROM dead_letters WHERE state = 'retrying' AND part IN {partitions} ORDER BY part, service, position

-- name: retrying_by_key
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers, payload, original, CASE WHEN original IS NULL THEN 0 ELSE 1 END
FROM dead_letters WHERE dedup_key = :key AND state = 'retrying'

-- name: list_letters custom plan
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers
FROM dead_letters
WHERE (CAST(:f.Stage AS text) = '' OR stage = :f.Stage) AND (CAST(:f.Source AS text) = '' OR source = :f.Source) AND (CAST(:f.Service AS text) = '' OR service = :f.Service)
AND (CAST(:f.Entity AS text) = '' OR entity = :f.Entity) AND (CAST(:f.Code AS text) = '' OR code = :f.Code) AND (CAST(:f.State AS text) = '' OR state = :f.State)
AND id > :f.AfterID ORDER BY id LIMIT :f.Limit

-- name: newest_letters custom plan
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers
FROM dead_letters
WHERE (CAST(:f.Stage AS text) = '' OR stage = :f.Stage) AND (CAST(:f.Source AS text) = '' OR source = :f.Source) AND (CAST(:f.Service AS text) = '' OR service = :f.Service)
AND (CAST(:f.Entity AS text) = '' OR entity = :f.Entity) AND (CAST(:f.Code AS text) = '' OR code = :f.Code) AND (CAST(:f.State AS text) = '' OR state = :f.State)
AND id < :f.AfterID ORDER BY id DESC LIMIT :f.Limit

-- name: group_letters custom plan
SELECT stage, source, service, code, entity, max(reason), count(*) AS n, min(created_at), max(last_at) FROM (
  SELECT stage, source, service, code, CASE WHEN :f.ByEntity THEN entity ELSE '' END AS entity, reason, created_at, last_at
  FROM dead_letters
  WHERE (CAST(:f.Stage AS text) = '' OR stage = :f.Stage) AND (CAST(:f.Source AS text) = '' OR source = :f.Source) AND (CAST(:f.Service AS text) = '' OR service = :f.Service)
  AND (CAST(:f.Entity AS text) = '' OR entity = :f.Entity) AND (CAST(:f.Code AS text) = '' OR code = :f.Code) AND (CAST(:f.State AS text) = '' OR state = :f.State)
  LIMIT :most) AS few
GROUP BY stage, source, service, code, entity ORDER BY n DESC, stage, source, service, code, entity LIMIT :limit

-- name: due_letters
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers
FROM dead_letters
WHERE state = 'open' AND service IN {services} AND due_at <= :now.UnixMicro() AND id > :after
ORDER BY id LIMIT :limit

-- name: offered_letters
-- Due no more: the next death makes it due again.
UPDATE dead_letters SET due_at = NULL WHERE id IN {ids} AND state = 'open'

-- name: letter
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers, payload, original, CASE WHEN original IS NULL THEN 0 ELSE 1 END
FROM dead_letters WHERE id = :id

-- name: count_letters
SELECT count(*) FROM (SELECT 1 FROM dead_letters WHERE state = 'open' AND stage = :stage LIMIT :most) AS few

-- name: settle_letter
UPDATE dead_letters SET state = :x.State WHERE id = :x.ID AND state IN ('open', 'discarded') AND (CAST(:x.Version AS bigint) = 0 OR version <= :x.Version)

-- name: replace_letters
UPDATE dead_letters SET state = :x.State WHERE entity = :x.Entity AND service = :x.Service AND state = 'open' AND stage = :x.Stage AND version < :x.Version

-- name: amend_letter
UPDATE dead_letters SET original = coalesce(original, payload), payload = :payload WHERE id = :id AND state = 'open' AND payload = :seen

-- name: move_letters
UPDATE dead_letters SET state = :to WHERE id IN {ids} AND state = :from AND state <> 'retrying'

-- name: letters_by_key
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers
FROM dead_letters WHERE dedup_key > :key AND dedup_key <= :last ORDER BY dedup_key LIMIT :limit
