-- parameters: kind, name, topic, topicID, source, identity, log, floors string, fingerprint, token, body []byte, names []string
-- parameters: p store.SourcePosition, l, old store.SourceLog, s change.Session, at store.Partition, r store.Revision, i *store.Inbox, noted store.Noted
-- parameters: of store.Partition, generation, from, to uint16, partition int32, next, end int64, now, before time.Time, limit int

-- name: active_revision
SELECT number, fingerprint, activated_at FROM revisions ORDER BY number DESC LIMIT 1

-- name: revisions
SELECT number, fingerprint, activated_at FROM revisions ORDER BY number DESC LIMIT :limit

-- name: history
-- Numbers below 1 are none of revisions: the newest generation.
SELECT 0, generation, journal, void FROM (SELECT generation, journal, void FROM inboxes ORDER BY generation DESC LIMIT 1) AS newest
UNION ALL
SELECT number, 0, '', 0 FROM revisions
WHERE number > coalesce((SELECT void FROM inboxes ORDER BY generation DESC LIMIT 1), 0) OR number = (SELECT max(number) FROM revisions)

-- name: count_revisions
SELECT count(*) FROM revisions WHERE fingerprint = :fingerprint

-- name: add_revision
INSERT INTO revisions (number, fingerprint, activated_at) VALUES (:r.Number, :r.Fingerprint, :r.Activated)

-- name: positions
SELECT partition, positions FROM progress

-- name: inboxes
SELECT generation, topic, topic_id, partitions FROM inboxes ORDER BY generation

-- name: inbox
SELECT generation, topic, topic_id, partitions FROM inboxes WHERE topic = :topic AND topic_id = :topicID ORDER BY generation DESC LIMIT 1

-- name: open_inbox
INSERT INTO inboxes (generation, topic, topic_id, partitions, opened_at, session, journal, void)
VALUES (:noted.Generation, :i.Topic, :i.TopicID, :i.Partitions, :now, {session}, :noted.Journal, :noted.Void)

-- name: in_doubt
-- A partition without a row is, unless the generation was opened in this session.
SELECT count(w.partition) < CASE WHEN i.session = {session} THEN count(w.partition) ELSE i.partitions END
  OR count(CASE WHEN w.session <> {session} OR w.doubt > w.next_offset THEN 1 END) > 0
FROM inboxes i LEFT JOIN watermarks w ON w.generation = i.generation AND w.partition < i.partitions
WHERE i.generation = :generation GROUP BY i.session, i.partitions

-- name: end_doubt
UPDATE watermarks SET doubt = :end
WHERE generation = :of.Generation AND partition = :of.Number AND token = :token AND session = {session} AND doubt = 9223372036854775807

-- name: end_owners
UPDATE watermarks SET token = {empty} WHERE token <> {empty}

-- name: continue_watermarks
INSERT INTO watermarks (generation, partition, next_offset, last_to, token, session, doubt)
SELECT CAST(:to AS integer), partition, next_offset, last_to, {empty}, {session}, 0 FROM watermarks WHERE generation = :from

-- name: begin_watermarks
-- By a row older generations are known to be over.
INSERT INTO watermarks (generation, partition, next_offset, last_to, token, session, doubt)
SELECT CAST(:generation AS integer), 0, 0, coalesce((
  SELECT last_to FROM watermarks WHERE partition = 0 AND generation < :generation ORDER BY generation DESC LIMIT 1), 0), {empty}, {session}, 0
WHERE NOT EXISTS (SELECT 1 FROM watermarks WHERE generation = :generation)

-- name: continue_at
UPDATE watermarks SET next_offset = :next WHERE generation = :generation AND partition = :partition

-- name: add_service
INSERT INTO services (name) SELECT CAST(:name AS text) WHERE NOT EXISTS (SELECT 1 FROM services WHERE name = :name)

-- name: services
SELECT name, number FROM services WHERE name IN {names}

-- name: known_services
SELECT name, number FROM services

-- name: watermarks
SELECT generation, partition, next_offset FROM watermarks

-- name: count_entities
SELECT count(*) FROM entities

-- name: source_position
SELECT next_offset, state FROM source_positions WHERE source = :source AND identity = :identity

-- name: set_source_position
INSERT INTO source_positions (source, identity, next_offset, state) VALUES (:p.Source, :p.Identity, :p.Offset, :p.State)
ON CONFLICT (source, identity) DO UPDATE SET next_offset = excluded.next_offset, state = excluded.state
WHERE source_positions.next_offset <= excluded.next_offset

-- name: source_log
-- The row of a log is the position of its source without an identity.
SELECT number, name, next_offset, torn, state FROM source_positions WHERE source = :log AND identity = ''

-- name: insert_source_log
INSERT INTO source_positions (source, identity, next_offset, state, number, name, torn)
VALUES (:l.Log, '', 1, :l.State, :l.Number, :l.Name, CASE WHEN :l.Torn THEN 1 ELSE 0 END)
ON CONFLICT (source, identity) DO NOTHING

-- name: update_source_log
UPDATE source_positions SET number = :l.Number, name = :l.Name, next_offset = next_offset + 1, torn = CASE WHEN :l.Torn THEN 1 ELSE 0 END, state = :l.State
WHERE source = :l.Log AND identity = '' AND number = :old.Number AND name = :old.Name AND next_offset = :old.Version

-- name: tear_source_log
INSERT INTO source_positions (source, identity, next_offset, number, name, torn) VALUES (:s.Log, '', 1, :s.Number, :s.Name, 1)
ON CONFLICT (source, identity) DO UPDATE SET number = excluded.number, name = excluded.name, next_offset = source_positions.next_offset + 1, torn = 1
WHERE source_positions.number < excluded.number OR source_positions.number = excluded.number AND source_positions.name <> excluded.name

-- name: floors
SELECT floors FROM watermarks WHERE floors <> '[]' ORDER BY generation, partition

-- name: put_floors
UPDATE watermarks SET floors = :floors WHERE partition = :at.Number AND generation = :at.Generation

-- name: open_report
-- Keeps the row locked until the transaction ends.
INSERT INTO reports (kind, name, updated_at) VALUES (:kind, :name, :now)
ON CONFLICT (kind, name) DO UPDATE SET updated_at = excluded.updated_at RETURNING body

-- name: write_report
UPDATE reports SET body = :body WHERE kind = :kind AND name = :name

-- name: reports
SELECT kind, name, body, updated_at FROM reports WHERE kind = :kind ORDER BY name

-- name: prune_reports
DELETE FROM reports WHERE kind = :kind AND updated_at < :before
