-- parameters: names []string, numbers []int64, partition int32, p store.EntityPage, old, positions, states []byte, after, to string, limit int

-- name: forget_letters
DELETE FROM dead_letters WHERE service IN {names}

-- name: forget_guards
DELETE FROM reports WHERE kind = 'guard' AND name IN {names}

-- name: forget_guarded
DELETE FROM guarded WHERE service IN {names}

-- name: forget_checks
DELETE FROM checks WHERE service IN {numbers}

-- name: forget_attempts
DELETE FROM deliveries WHERE service IN {numbers}

-- name: forget_marks
DELETE FROM progress_marks WHERE service IN {numbers}

-- name: forget_services
DELETE FROM services WHERE number IN {numbers}

-- name: replace_positions
-- Ends the owner's token: its next swap fails, and it takes the row over again.
UPDATE progress SET positions = :positions, token = {empty} WHERE partition = :partition AND positions = :old

-- name: states_after
SELECT id, 0, states FROM entities WHERE id > :after ORDER BY id LIMIT :limit

-- name: pages_between
SELECT entity, page, states FROM dam WHERE entity > :after AND entity <= :to ORDER BY entity, page

-- name: replace_states
UPDATE entities SET states = :states WHERE id = :p.Entity AND states = :p.Body

-- name: replace_page
UPDATE dam SET states = :states WHERE entity = :p.Entity AND page = :p.Number AND states = :p.Body

-- name: drop_page
DELETE FROM dam WHERE entity = :p.Entity AND page = :p.Number AND states = :p.Body
