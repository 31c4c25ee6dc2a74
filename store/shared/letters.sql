-- name: add_letter
-- Without a payload the letter has that of the retrying row :row, if there is one.
INSERT INTO dead_letters (created_at, last_at, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, headers, dedup_key, position, attempts, due_at)
VALUES (:now, :now, :stage, :code, :reason, :source, :service, :entity, :event_id, :version, :topic, :part, :offset,
        coalesce(:payload, (SELECT payload FROM dead_letters WHERE dedup_key = :row AND state = 'retrying'), :empty),
        coalesce(:headers, (SELECT headers FROM dead_letters WHERE dedup_key = :row AND state = 'retrying')),
        :dedup_key, :position,
        CASE WHEN CAST(:attempts AS integer) > 0 THEN :attempts ELSE coalesce((SELECT attempts FROM dead_letters WHERE dedup_key = :row AND state = 'retrying'), 0) END,
        CASE WHEN CAST(:later AS bigint) > 0 THEN CAST(:now_us AS bigint) + :later END)
ON CONFLICT (dedup_key) DO UPDATE
SET last_at = excluded.last_at, count = dead_letters.count + 1, code = excluded.code, reason = excluded.reason, version = excluded.version,
    payload = excluded.payload, headers = excluded.headers, position = excluded.position, attempts = excluded.attempts, state = 'open',
    due_at = CASE WHEN :later = 0 THEN NULL
                  WHEN dead_letters.count > 20 OR :later * (CAST(1 AS bigint) << CAST(dead_letters.count AS integer)) > :later_max THEN :now_us + :later_max
                  ELSE :now_us + :later * (CAST(1 AS bigint) << CAST(dead_letters.count AS integer)) END
WHERE excluded.position > dead_letters.position

-- name: put_retrying
-- Without a payload the stored one stays, with its headers. A newer change of an entity keeps the time of its first failure.
INSERT INTO dead_letters (created_at, last_at, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, headers, dedup_key, position, attempts, next_try, state)
VALUES (:since, :now, :stage, :code, :reason, :source, :service, :entity, :event_id, :version, :topic, :part, :offset,
        coalesce(:payload, (SELECT payload FROM dead_letters WHERE dedup_key = :dedup_key), :empty),
        CASE WHEN CAST(:keep AS integer) = 1 THEN (SELECT headers FROM dead_letters WHERE dedup_key = :dedup_key) ELSE :headers END,
        :dedup_key, :position, :attempts, :next_try, 'retrying')
ON CONFLICT (dedup_key) DO UPDATE
SET last_at = excluded.last_at, stage = excluded.stage, code = excluded.code, reason = excluded.reason, source = excluded.source,
    service = excluded.service, entity = excluded.entity, event_id = excluded.event_id, version = excluded.version, topic = excluded.topic,
    part = excluded.part, "offset" = excluded."offset", payload = excluded.payload, headers = excluded.headers,
    position = excluded.position, attempts = excluded.attempts, next_try = excluded.next_try
WHERE dead_letters.state = 'retrying'

-- name: end_retrying
DELETE FROM dead_letters WHERE dedup_key = :dedup_key AND state = 'retrying'

-- name: conclude_retrying
-- The row becomes the letter in place, unless that is stored already.
UPDATE dead_letters
SET last_at = :now, state = 'open', stage = :stage, code = :code, reason = :reason, source = :source, service = :service,
    entity = :entity, event_id = :event_id, version = :version, topic = :topic, part = :part, "offset" = :offset,
    payload = coalesce(:payload, payload), headers = CASE WHEN CAST(:keep AS integer) = 1 THEN headers ELSE :headers END,
    dedup_key = :dedup_key, position = :position, attempts = CASE WHEN CAST(:attempts AS integer) > 0 THEN :attempts ELSE attempts END,
    next_try = NULL, due_at = CASE WHEN CAST(:later AS bigint) > 0 THEN CAST(:now_us AS bigint) + :later END
WHERE dedup_key = :row AND state = 'retrying' AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE dedup_key = :dedup_key)

-- name: retrying_of
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload)
FROM dead_letters WHERE state = 'retrying' AND part IN {partitions} ORDER BY part, service, position

-- name: retrying_by_key
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers, payload, original, CASE WHEN original IS NULL THEN 0 ELSE 1 END
FROM dead_letters WHERE dedup_key = :dedup_key AND state = 'retrying'

-- name: list_letters custom plan
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers
FROM dead_letters
WHERE (CAST(:stage AS text) = '' OR stage = :stage) AND (CAST(:source AS text) = '' OR source = :source) AND (CAST(:service AS text) = '' OR service = :service)
AND (CAST(:entity AS text) = '' OR entity = :entity) AND (CAST(:code AS text) = '' OR code = :code) AND (CAST(:state AS text) = '' OR state = :state)
AND id > :after ORDER BY id LIMIT :limit

-- name: newest_letters custom plan
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers
FROM dead_letters
WHERE (CAST(:stage AS text) = '' OR stage = :stage) AND (CAST(:source AS text) = '' OR source = :source) AND (CAST(:service AS text) = '' OR service = :service)
AND (CAST(:entity AS text) = '' OR entity = :entity) AND (CAST(:code AS text) = '' OR code = :code) AND (CAST(:state AS text) = '' OR state = :state)
AND id < :after ORDER BY id DESC LIMIT :limit

-- name: group_letters custom plan
SELECT stage, source, service, code, entity, max(reason), count(*) AS n, min(created_at), max(last_at) FROM (
  SELECT stage, source, service, code, CASE WHEN CAST(:by_entity AS text) = '' THEN '' ELSE entity END AS entity, reason, created_at, last_at
  FROM dead_letters
  WHERE (CAST(:stage AS text) = '' OR stage = :stage) AND (CAST(:source AS text) = '' OR source = :source) AND (CAST(:service AS text) = '' OR service = :service)
  AND (CAST(:entity AS text) = '' OR entity = :entity) AND (CAST(:code AS text) = '' OR code = :code) AND (CAST(:state AS text) = '' OR state = :state)
  LIMIT :looked_at) AS few
GROUP BY stage, source, service, code, entity ORDER BY n DESC, stage, source, service, code, entity LIMIT :limit

-- name: due_letters
SELECT id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", state, dedup_key, position, attempts, next_try, length(payload), headers
FROM dead_letters
WHERE state = 'open' AND service IN {services} AND due_at <= :now_us AND id > :after
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
UPDATE dead_letters SET state = :state WHERE id = :id AND state IN ('open', 'discarded') AND (CAST(:version AS bigint) = 0 OR version <= :version)

-- name: replace_letters
UPDATE dead_letters SET state = :state WHERE entity = :entity AND service = :service AND state = 'open' AND stage = :stage AND version < :version

-- name: amend_letter
UPDATE dead_letters SET original = coalesce(original, payload), payload = :payload WHERE id = :id AND state = 'open' AND payload = :seen

-- name: move_letters
UPDATE dead_letters SET state = :to WHERE id IN {ids} AND state = :from AND state <> 'retrying'
