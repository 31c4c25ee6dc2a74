package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// Import is a file that is loaded into a source, as commands show it. Its job keeps it; the file
// itself is not stored.
type Import struct {
	ID string `json:"id"` // derived from all that identifies the import
	Parameters
	State string `json:"state"`
	Position
	Actor   string    `json:"actor,omitempty"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`

	job        store.Job
	generation uint16 // of the inbox that has the rows
}

// Parameters are those of the job.
type Parameters struct {
	Source  string          `json:"source"`
	Format  Format          `json:"format"`
	Options json.RawMessage `json:"options"`
	File    string          `json:"file"` // "sha256:" and the hash
	Name    string          `json:"name,omitempty"`
}

// Position is the state of an import up to a row.
type Position struct {
	Bytes     int64 `json:"bytes"` // of the file, up to the last row that has a result
	Rows      int64 `json:"rows"`  // that have a result
	Accepted  int64 `json:"accepted"`
	Duplicate int64 `json:"duplicate"` // event id known, with the same content
	Refused   int64 `json:"refused"`   // a dead letter
}

// The states of an import.
const (
	Incomplete = "incomplete" // the same file continues it
	Done       = "done"
)

// Store is the part of the store that imports need.
type Store interface {
	store.Jobs
	Inboxes(ctx context.Context) ([]store.Inbox, error)
	LettersByKey(ctx context.Context, after, last string, limit int) ([]store.DeadLetter, error)
}

// kind is that of the jobs.
const kind = "import"

// cursor is that of the job.
type cursor struct {
	Position
	Generation uint16 `json:"generation"`
}

// Find returns an import; store.ErrNotFound, also for one of another tenant.
func Find(ctx context.Context, s Store, tenant, id string) (Import, error) {
	found, err := listed(ctx, s, store.JobFilter{Tenant: tenant, Key: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return Import{}, err
	}
	return found[0], nil
}

// List pages through the imports of a tenant, the latest first; before is an id or empty.
func List(ctx context.Context, s Store, tenant, before string, limit int) ([]Import, error) {
	f := store.JobFilter{Tenant: tenant, Limit: limit}
	if before != "" {
		i, err := Find(ctx, s, tenant, before)
		if err != nil {
			return nil, err
		}
		f.Before = i.job.ID
	}
	return listed(ctx, s, f)
}

func listed(ctx context.Context, s Store, f store.JobFilter) ([]Import, error) {
	f.Kind = kind
	jobs, err := s.ListJobs(ctx, f)
	all := make([]Import, len(jobs))
	for n, j := range jobs {
		if all[n], err = importOf(j); err != nil {
			return nil, err
		}
	}
	return all, err
}

func importOf(j store.Job) (Import, error) {
	i := Import{ID: j.Key, State: Incomplete, Actor: j.Actor, Created: j.Created, Updated: j.Updated, job: j}
	if j.State == store.JobDone {
		i.State = Done
	}
	var at cursor
	err := errors.Join(json.Unmarshal(j.Parameters, &i.Parameters), json.Unmarshal(j.Cursor, &at))
	i.Position, i.generation = at.Position, at.Generation
	return i, err
}

// begin returns an import, and creates it if there is none. One of an earlier generation of the
// inbox, where its rows may be lost, begins again at its first row, in any state.
func begin(ctx context.Context, s Store, wanted Import) (Import, error) {
	inboxes, err := s.Inboxes(ctx)
	if err != nil {
		return Import{}, err
	}
	var newest uint16
	for _, x := range inboxes {
		newest = max(newest, x.Generation)
	}
	i, err := Find(ctx, s, wanted.job.Tenant, wanted.ID)
	switch missing := errors.Is(err, store.ErrNotFound); {
	case err != nil && !missing:
		return i, err
	case missing || i.State == Done && i.generation < newest:
		return create(ctx, s, wanted, newest)
	case i.generation < newest:
		i.Position, i.generation = Position{}, newest
	}
	return i, nil
}

func create(ctx context.Context, s Store, wanted Import, generation uint16) (Import, error) {
	j := wanted.job
	at, err := json.Marshal(cursor{Generation: generation})
	if err != nil {
		return Import{}, err
	}
	j.Cursor = at
	if j.Parameters, err = json.Marshal(wanted.Parameters); err != nil {
		return Import{}, err
	}
	if j, err = s.OpenJob(ctx, j); err != nil {
		return Import{}, err
	}
	return importOf(j)
}

// save moves an import and adds dead letters of rows before its position, in one transaction.
// store.ErrFenced if another run moved it.
func (i *Import) save(ctx context.Context, s Store, letters []store.DeadLetter) (err error) {
	j := &i.job
	if j.Cursor, err = json.Marshal(cursor{i.Position, i.generation}); err != nil {
		return err
	}
	if j.Done = i.Rows; i.State == Done {
		j.State = store.JobDone
	}
	return s.SaveJob(ctx, j, letters...)
}

// letterKey returns the DedupKey of the dead letter of a refused row; keys of an import order by
// row.
func letterKey(id string, row int64) string { return fmt.Sprintf("import/%s/%019d", id, row) }
