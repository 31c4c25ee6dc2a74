package shared

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const defaultLimit = 100

// Letters returns the calls that add letters as AddLetters does. Their texts come from
// broken records and must not be refused; payload, headers and key are kept as bytes.
func Letters(letters []store.DeadLetter) []Call {
	calls := make([]Call, len(letters))
	for i := range letters {
		calls[i] = addLetter(&letters[i], "")
	}
	return calls
}

// Settled returns the calls that write resolutions.
func Settled(settled []store.LetterResolution) []Call {
	calls := make([]Call, len(settled))
	for i, x := range settled {
		if calls[i] = sqlSettleLetter(x); x.ID == 0 {
			calls[i] = sqlReplaceLetters(x)
		}
	}
	return calls
}

// Retrying returns the calls that write the retrying rows of a swap that was done.
func Retrying(p *store.ProgressSwap) (calls []Call) {
	for _, key := range p.Ended {
		calls = append(calls, endRetrying(key))
	}
	for i := range p.Progress.Retrying {
		l := &p.Progress.Retrying[i]
		at := now()
		since := at
		if !l.Created.IsZero() {
			since = l.Created
		}
		calls = append(calls, sanitized(sqlPutRetrying(l, at, since, []byte(l.DedupKey))))
	}
	for i := range p.Letters {
		c := &p.Letters[i]
		l := &c.DeadLetter
		if c.Row != "" {
			calls = append(calls, sanitized(sqlConcludeRetrying(l, now(), []byte(l.DedupKey), []byte(c.Row), l.Later.Microseconds())))
		}
		calls = append(calls, addLetter(l, c.Row))
		if c.Row != "" {
			calls = append(calls, endRetrying(c.Row))
		}
	}
	return calls
}

func endRetrying(key string) Call { return sqlEndRetrying([]byte(key)) }

func addLetter(l *store.DeadLetter, row string) Call {
	return sanitized(sqlAddLetter(l, now(), []byte(l.DedupKey), []byte(row), l.Later.Microseconds(), store.LaterMax.Microseconds()))
}

// AddLetters implements store.DeadLetters.
func (s *Store) AddLetters(ctx context.Context, letters []store.DeadLetter) error {
	_, err := s.write(ctx, "add dead letters", Letters(letters)...)
	return err
}

// ListLetters implements store.DeadLetters.
func (s *Store) ListLetters(ctx context.Context, f store.LetterFilter) ([]store.DeadLetter, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	c := sqlListLetters(f)
	if f.NewestFirst {
		f.AfterID = cmp.Or(f.AfterID, math.MaxInt64)
		c = sqlNewestLetters(f)
	}
	return list(ctx, s, "list dead letters", c, scanListed)
}

// GroupLetters implements store.DeadLetters.
func (s *Store) GroupLetters(ctx context.Context, f store.LetterFilter, limit int) ([]store.LetterGroup, error) {
	return list(ctx, s, "group dead letters", sqlGroupLetters(f, store.GroupedLetters, max(limit, 0)), func(row Row) (g store.LetterGroup, err error) {
		err = row.Scan(&g.Stage, &g.Source, &g.Service, &g.Code, &g.Entity, &g.Reason, &g.Letters, &g.First, &g.Last)
		return g, err
	})
}

// DueLetters implements store.DeadLetters.
func (s *Store) DueLetters(ctx context.Context, services []string, after int64, limit int) ([]store.DeadLetter, error) {
	return list(ctx, s, "read due dead letters", sqlDueLetters(services, now(), after, limit), scanListed)
}

// Offered implements store.DeadLetters.
func (s *Store) Offered(ctx context.Context, ids []int64) error {
	_, err := s.write(ctx, "note offered dead letters", sqlOfferedLetters(ids))
	return err
}

// LettersByKey implements store.Operations.
func (s *Store) LettersByKey(ctx context.Context, after, last string, limit int) ([]store.DeadLetter, error) {
	return list(ctx, s, "read dead letters by key", sqlLettersByKey([]byte(after), []byte(last), max(limit, 0)), scanListed)
}

// Letter implements store.DeadLetters.
func (s *Store) Letter(ctx context.Context, id int64) (store.DeadLetter, error) {
	return one(list(ctx, s, "read dead letter", sqlLetter(id), scanLetter))
}

// Retrying implements store.Deliveries.
func (s *Store) Retrying(ctx context.Context, keys []string) (found []store.DeadLetter, err error) {
	for _, key := range keys {
		l, err := list(ctx, s, "read retrying changes", sqlRetryingByKey([]byte(key)), scanLetter)
		if err != nil {
			return nil, err
		}
		found = append(found, l...)
	}
	return found, nil
}

// RetryingOf reads the retrying rows of partitions, by partition, service and position.
func RetryingOf(partitions []int32) Call {
	numbers := make([]int64, len(partitions))
	for i, p := range partitions {
		numbers[i] = int64(p)
	}
	return sqlRetryingOf(numbers)
}

// ScanRetrying scans a row of RetryingOf.
func ScanRetrying(row Row) (store.DeadLetter, error) { return scanHead(row) }

func scanListed(row Row) (l store.DeadLetter, err error) {
	var headers []byte
	l, err = scanHead(row, &headers)
	l.Headers = headers
	return l, err
}

func scanLetter(row Row) (l store.DeadLetter, err error) {
	var headers, payload, original []byte
	var edited int
	l, err = scanHead(row, &headers, &payload, &original, &edited)
	if l.Headers, l.Payload = headers, payload; edited > 0 {
		l.Original = notNil(original) // SQLite's driver returns an empty value as nil
	}
	return l, err
}

func scanHead(row Row, more ...any) (l store.DeadLetter, err error) {
	var version, position int64
	var key []byte
	var next *time.Time
	err = row.Scan(append([]any{&l.ID, &l.Created, &l.Last, &l.Count, &l.Stage, &l.Code, &l.Reason, &l.Source, &l.Service, &l.Entity, &l.EventID,
		&version, &l.Topic, &l.Part, &l.Offset, &l.State, &key, &position, &l.Attempts, &next, &l.Size}, more...)...)
	l.Version, l.Position, l.DedupKey = change.Version(version), change.Version(position), string(key)
	if next != nil {
		l.NextTry = *next
	}
	return l, err
}

// CountLetters implements store.DeadLetters.
func (s *Store) CountLetters(ctx context.Context) (map[store.Stage]int64, error) {
	counts := make(map[store.Stage]int64)
	for _, stage := range store.Stages {
		n, err := one(list(ctx, s, "count dead letters", sqlCountLetters(stage, store.CountedLetters+1), scanValue[int64]))
		if err != nil {
			return nil, err
		}
		if n > 0 {
			counts[stage] = n
		}
	}
	return counts, nil
}
