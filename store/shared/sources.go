package shared

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// SourceLog implements store.SourceLogs.
func (s *Store) SourceLog(ctx context.Context, log string) (store.SourceLog, error) {
	return one(list(ctx, s, "read source log", sqlSourceLog(log), func(row Row) (l store.SourceLog, err error) {
		var torn int64
		l.Log = log
		err = row.Scan(&l.Number, &l.Name, &l.Version, &torn, &l.State)
		l.Torn = torn != 0
		return l, err
	}))
}

// SwapSourceLog implements store.SourceLogs.
func (s *Store) SwapSourceLog(ctx context.Context, old, next store.SourceLog, positions ...store.SourcePosition) (version int64, err error) {
	swap := sqlInsertSourceLog(next)
	if old.Version > 0 {
		swap = sqlUpdateSourceLog(next, old)
	}
	return old.Version + 1, s.DB.WriteOnce(ctx, "swap source log", func(t Tx) ([]Call, error) {
		switch n, err := t.Exec(swap); {
		case err != nil:
			return nil, err
		case n == 0:
			return nil, store.ErrFenced
		}
		calls := make([]Call, len(positions))
		for i, p := range positions {
			calls[i] = sqlSetSourcePosition(p)
		}
		return calls, nil
	})
}

// Floors implements store.SourceLogs.
func (s *Store) Floors(ctx context.Context, log string) ([]store.Floor, error) {
	of, err := list(ctx, s, "read floors", ReadFloors(), ScanFloors)
	return slices.DeleteFunc(slices.Concat(of...), func(f store.Floor) bool { return log != "" && f.Log != log }), err
}

// ReadFloors reads the floors of all partitions. ScanFloors scans those of one.
func ReadFloors() Call { return sqlFloors() }

// ScanFloors scans a row of ReadFloors.
func ScanFloors(row Row) (floors []store.Floor, err error) {
	var text string
	if err := row.Scan(&text); err != nil {
		return nil, err
	}
	return floors, json.Unmarshal([]byte(text), &floors)
}

// Heard are the writes of an outcome about logs, in one order for all processes.
func Heard(out store.Outcome) []Call {
	calls := make([]Call, 0, len(out.Floors)+len(out.Barriers))
	barriers := slices.SortedFunc(slices.Values(out.Barriers), func(a, b change.Session) int { return strings.Compare(a.Log, b.Log) })
	for _, b := range barriers {
		calls = append(calls, sqlTearSourceLog(b))
	}
	floors := map[store.Partition][]store.Floor{}
	for _, f := range out.Floors {
		floors[f.Partition] = append(floors[f.Partition], f)
	}
	for p, all := range floors {
		text, _ := json.Marshal(all) // texts and numbers always have a JSON form
		calls = append(calls, sqlPutFloors(string(text), p))
	}
	return calls
}
