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
		if x.ID == 0 {
			calls[i] = call("replace_letters", args{"stage": string(x.Stage), "service": x.Service, "entity": x.Entity, "state": string(x.State), "version": int64(x.Version)})
			continue
		}
		calls[i] = call("settle_letter", args{"id": x.ID, "state": string(x.State), "version": int64(x.Version)})
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
		a := letterArgs(l)
		a["next_try"], a["since"] = l.NextTry.UTC(), a["now"]
		if !l.Created.IsZero() {
			a["since"] = l.Created.UTC()
		}
		calls = append(calls, call("put_retrying", a))
	}
	for i := range p.Letters {
		c := &p.Letters[i]
		if c.Row == "" {
			calls = append(calls, addLetter(&c.DeadLetter, ""))
			continue
		}
		a := letterArgs(&c.DeadLetter)
		setDue(a, c.Later)
		a["row"] = []byte(c.Row)
		delete(a, "empty")
		calls = append(calls, call("conclude_retrying", a), addLetter(&c.DeadLetter, c.Row), endRetrying(c.Row))
	}
	return calls
}

func endRetrying(key string) Call {
	return call("end_retrying", args{"dedup_key": []byte(key)})
}

func addLetter(l *store.DeadLetter, row string) Call {
	a := letterArgs(l)
	setDue(a, l.Later)
	a["row"], a["later_max"] = []byte(row), store.LaterMax.Microseconds()
	delete(a, "keep")
	return call("add_letter", a)
}

func setDue(a args, later time.Duration) {
	a["later"], a["now_us"] = later.Microseconds(), a["now"].(time.Time).UnixMicro()
}

// letterArgs are the columns of a letter. A letter without payload keeps that of its row.
func letterArgs(l *store.DeadLetter) args {
	var payload any
	keep := 1
	if l.Payload != nil {
		payload, keep = l.Payload, 0
	}
	return args{"now": now(), "stage": store.SanitizeText(string(l.Stage)), "code": store.SanitizeText(l.Code), "reason": store.SanitizeText(l.Reason),
		"source": store.SanitizeText(l.Source), "service": store.SanitizeText(l.Service), "entity": store.SanitizeText(l.Entity),
		"event_id": store.SanitizeText(l.EventID), "version": int64(l.Version), "topic": store.SanitizeText(l.Topic), "part": l.Part, "offset": l.Offset,
		"payload": payload, "keep": keep, "empty": []byte{}, "headers": l.Headers, "dedup_key": []byte(l.DedupKey), "position": int64(l.Position), "attempts": l.Attempts}
}

// AddLetters implements store.DeadLetters.
func (s *Store) AddLetters(ctx context.Context, letters []store.DeadLetter) error {
	_, err := s.write(ctx, "add dead letters", Letters(letters)...)
	return err
}

// ListLetters implements store.DeadLetters.
func (s *Store) ListLetters(ctx context.Context, f store.LetterFilter) ([]store.DeadLetter, error) {
	name, after := "list_letters", f.AfterID
	if f.NewestFirst {
		name, after = "newest_letters", cmp.Or(f.AfterID, math.MaxInt64)
	}
	a := filterArgs(f)
	a["after"], a["limit"] = after, f.Limit
	if f.Limit <= 0 {
		a["limit"] = defaultLimit
	}
	return list(ctx, s, "list dead letters", call(name, a), scanListed)
}

func filterArgs(f store.LetterFilter) args {
	return args{"stage": string(f.Stage), "source": f.Source, "service": f.Service, "entity": f.Entity, "code": f.Code, "state": string(f.State)}
}

// GroupLetters implements store.DeadLetters.
func (s *Store) GroupLetters(ctx context.Context, f store.LetterFilter, limit int) ([]store.LetterGroup, error) {
	a := filterArgs(f)
	a["looked_at"], a["limit"], a["by_entity"] = store.GroupedLetters, max(limit, 0), ""
	if f.ByEntity {
		a["by_entity"] = "yes"
	}
	return list(ctx, s, "group dead letters", call("group_letters", a), func(row Row) (g store.LetterGroup, err error) {
		err = row.Scan(&g.Stage, &g.Source, &g.Service, &g.Code, &g.Entity, &g.Reason, &g.Letters, &g.First, &g.Last)
		return g, err
	})
}

// DueLetters implements store.DeadLetters.
func (s *Store) DueLetters(ctx context.Context, services []string, after int64, limit int) ([]store.DeadLetter, error) {
	return list(ctx, s, "read due dead letters", call("due_letters", args{"services": services, "now_us": now().UnixMicro(), "after": after, "limit": limit}), scanListed)
}

// Offered implements store.DeadLetters.
func (s *Store) Offered(ctx context.Context, ids []int64) error {
	_, err := s.write(ctx, "note offered dead letters", call("offered_letters", args{"ids": ids}))
	return err
}

// Letter implements store.DeadLetters.
func (s *Store) Letter(ctx context.Context, id int64) (store.DeadLetter, error) {
	return one(ctx, s, "read dead letter", call("letter", args{"id": id}), scanLetter)
}

// Retrying implements store.Deliveries.
func (s *Store) Retrying(ctx context.Context, keys []string) (found []store.DeadLetter, err error) {
	for _, key := range keys {
		l, err := list(ctx, s, "read retrying changes", call("retrying_by_key", args{"dedup_key": []byte(key)}), scanLetter)
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
	return call("retrying_of", args{"partitions": numbers})
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
		n, err := one(ctx, s, "count dead letters", call("count_letters", args{"stage": string(stage), "most": store.CountedLetters + 1}), scanCount)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			counts[stage] = n
		}
	}
	return counts, nil
}

func scanCount(row Row) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}
