package imports

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

// File says what comes in and where it goes.
type File struct {
	Tenant  string
	Source  string
	Format  Format
	Options Options
	Name    string // for people
	Actor   string // who asks, for people
	MaxRow  int    // bytes of a row; larger ones are invalid rows
	MaxSize int64  // bytes of the file, and of what its rows become
	MaxOpen int    // imports of the tenant that have not ended, this one included; 0 is no bound
	MaxHeld int64  // bytes of their files, this one included; 0 is no bound
}

// ErrTooLarge says that a file is larger than MaxSize.
var ErrTooLarge = errors.New("the file is larger than the limit")

// ErrHeld says that the tenant's files that have not ended hold MaxHeld.
var ErrHeld = errors.New("the tenant's files to import hold as much as they may")

// ErrRead is what an error of the reader is wrapped with.
var ErrRead = errors.New("the file could not be read to its end")

// Receive reads a file to its end and seals it as an import, which a Worker then
// works off. The import that it gives is an earlier one if that is of the same
// file, with the same options for the same source; fresh tells. It holds one
// chunk of about 1 MiB, or one row, in memory. A file that does not come in
// completely leaves nothing behind, or, after a kill, an import in state
// receiving that is pruned later.
//
// The error is a *BadFile, ErrTooLarge, ErrRead, or one of the store's
// (store.ErrTooMany where MaxOpen is reached, ErrHeld where MaxHeld is).
func Receive(ctx context.Context, s store.Imports, f File, in io.Reader) (i store.Import, fresh bool, err error) {
	if err := f.Options.Check(f.Format); err != nil {
		return i, false, &BadFile{err.Error()}
	}
	i, err = s.CreateImport(ctx, store.Import{
		Tenant: f.Tenant, Source: f.Source, Format: string(f.Format), Options: f.Options.Encode(), Name: f.Name, Actor: f.Actor,
	}, f.MaxOpen)
	if err != nil {
		return i, false, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
			defer cancel()
			// When this fails, too, what is there is pruned when it is old.
			_, _ = s.CancelImport(ctx, f.Tenant, i.ID)
		}
	}()
	whole := &measured{in: in, hash: sha256.New(), left: f.MaxSize}
	if err := f.receive(ctx, s, i.ID, whole); err != nil {
		return i, false, err
	}
	var sealed store.Import
	err = retry(ctx, func() (err error) {
		sealed, err = s.SealImport(ctx, i, whole.hash.Sum(nil))
		return err
	})
	if err != nil {
		return i, false, err
	}
	crash.At(crash.ImportSealed, f.Source)
	return sealed, sealed.ID == i.ID, nil
}

// leastRow is what a row counts as at least, in bytes: however short it is, the store
// keeps a claim of it, or why it was not accepted.
const leastRow = 64

// tidyTimeout bounds the end of an import that did not come in.
const tidyTimeout = 5 * time.Second

// receive stores the chunks of a file.
func (f *File) receive(ctx context.Context, s store.Imports, id store.ClaimID, whole *measured) error {
	rows := newCutter(whole, f.Format, f.Options, f.MaxRow)
	c := chunk{}
	var buffer []byte
	var stored int64 // bytes of the file that were counted
	n := int64(0)
	flush := func() error {
		size := whole.read - int64(rows.in.Buffered()) - stored
		err := retry(ctx, func() error { return s.AddImportChunk(ctx, id, n, size, c.encoded(), f.MaxHeld) })
		if errors.Is(err, store.ErrTooMany) {
			err = ErrHeld
		}
		stored += size
		n++
		c.reset()
		crash.At(crash.ImportReceiving, f.Source)
		return err
	}
	header := f.Format == CSV
	left := f.MaxSize // of what rows become
	for {
		r, err := rows.next(buffer)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return whole.failure(err)
		}
		if r.text != nil {
			buffer = r.text[:0]
		}
		if header {
			if most := min(f.MaxRow, maxHeader); r.large || len(r.text) > most {
				return badFile("the header is larger than %d bytes", most)
			}
			d, err := newDecoder(r.text, f.Options)
			if err != nil {
				return err
			}
			header, c.names = false, d.root.size()
		}
		if left -= int64(max(len(r.text)+c.names, leastRow)); left < 0 {
			return badFile("its rows become more than %d bytes: each has the names of its columns, and counts as %d at least", f.MaxSize, leastRow)
		}
		c.add(r)
		if c.full() {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if header {
		return badFile("the file is empty: its first line names the columns")
	}
	if c.rows > 0 || whole.read > stored {
		return flush()
	}
	return nil
}

// retry repeats an operation that may be repeated while the store is away for a
// moment: the file would have to come in from its start.
func retry(ctx context.Context, op func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := op()
		if class := store.ClassOf(err); err != nil && class != store.Retry && class != store.Unknown {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxElapsedTime(insistence))
	return err
}

const insistence = 30 * time.Second

// measured reads, hashes and bounds a file. Its first error stays: a buffer over
// it may ask again.
type measured struct {
	in         io.Reader
	hash       hash.Hash
	read, left int64
	err        error
}

func (m *measured) Read(b []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.in.Read(b)
	if int64(n) > m.left {
		n, err = 0, ErrTooLarge
	}
	m.left -= int64(n)
	m.read += int64(n)
	_, _ = m.hash.Write(b[:n]) // it never fails
	m.err = err
	return n, err
}

// failure sorts an error of reading.
func (m *measured) failure(err error) error {
	if errors.Is(err, ErrTooLarge) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRead, err)
}
