package imports

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/seed-86dfc502/weir/store"
)

// File is a file and its target.
type File struct {
	Tenant  string
	Source  string
	Format  Format
	Options Options
	SHA256  [sha256.Size]byte // of the content
	Name    string            // for people
	Actor   string            // for people
	MaxRow  int               // bytes of a row; larger ones are refused rows
}

// Import returns the import of the file, without position. Its id is a hash of all that
// identifies it.
func (f *File) Import() Import {
	content := "sha256:" + hex.EncodeToString(f.SHA256[:])
	h := sha256.New()
	for _, part := range []string{content, f.Tenant, f.Source, string(f.Format), string(f.Options.Encode())} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	id := hex.EncodeToString(h.Sum(nil)[:16])
	return Import{
		ID: id, Parameters: Parameters{Source: f.Source, Format: f.Format, Options: f.Options.Encode(), File: content, Name: f.Name},
		job: store.Job{Tenant: f.Tenant, Kind: kind, Key: id, Actor: f.Actor},
	}
}

// Row is a row of a file.
type Row struct {
	Number int64 // from 1, headers not counted
	Line   int64 // in the file, from 1
	// Value is the JSON of its event, or with a Code the row as in the file, nil if that is too
	// large.
	Value []byte
	Code  string // of a row that is no event, else ""
	// Reason goes with Code, and holds no payload.
	Reason string
}

// Batch is rows of a file that are ingested together, in their order and without a gap.
type Batch struct {
	Import Import // without position
	After  int64  // the row before the first one
	Rows   []Row
	Bytes  int64 // of the file, up to the last row
	Last   bool  // no row follows
}

// Ingest ingests a batch and returns the import with the position that it has then. A batch
// that is not behind the position changes nothing. After an error that is not Final the same
// batch is to be repeated.
type Ingest func(ctx context.Context, b Batch) (Import, error)

// Final reports whether importing the same file again would fail again.
func Final(err error) bool {
	if bad := (*BadFile)(nil); errors.As(err, &bad) {
		return true
	}
	class := store.ClassOf(err)
	return err != nil && (class == store.Poison || class == store.Superseded || class == store.Fatal)
}

// A batch is full with this much.
const (
	batchBytes = 256 << 10 // of its events
	batchRows  = 1000
)

// Run imports a file, or continues its import, with one batch in memory, and returns the
// import. Its error is a *BadFile, one of the reader or one of ingest.
func Run(ctx context.Context, f File, in io.Reader, ingest Ingest) (i Import, err error) {
	r := run{f: f}
	if r.cutter, err = newCutter(in, f.Format, f.Options, f.MaxRow); err != nil {
		return i, err
	}
	if f.Format == CSV {
		if err := r.header(); err != nil {
			return i, err
		}
	}
	wanted := f.Import()
	if i, err = ingest(ctx, Batch{Import: wanted}); err != nil {
		return i, err
	}
	for i.State != Done {
		b, err := r.fill(i.Rows)
		if err != nil {
			return i, err
		}
		b.Import = wanted
		if i, err = ingest(ctx, b); err != nil {
			return i, err
		}
		if b.Last && i.State != Done {
			return i, errors.New("another run of the import began anew: run it again")
		}
	}
	return i, nil
}

// run is one reading of a file.
type run struct {
	f       File
	cutter  *cutter
	decoder *decoder // of CSV
	row     int64    // rows that were cut
}

// header reads the first row of a CSV file.
func (r *run) header() error {
	head, err := r.cutter.next()
	if errors.Is(err, io.EOF) {
		return badFile("the file is empty: its first line names the columns")
	} else if err != nil {
		return err
	}
	if most := min(r.f.MaxRow, maxHeader); head.large || len(head.text) > most {
		return badFile("the header is larger than %d bytes", most)
	}
	r.decoder, err = newDecoder(head.text, r.f.Options)
	r.cutter.lone = err == nil && len(r.decoder.columns) == 1
	return err
}

// fill cuts the batch behind a row. Rows before it are skipped.
func (r *run) fill(after int64) (b Batch, err error) {
	if b.After = after; r.row > after {
		return b, fmt.Errorf("the import is at row %d, before row %d of this run: run it again", after, r.row)
	}
	for size := 0; size < batchBytes && len(b.Rows) < batchRows; {
		x, err := r.cutter.next()
		if errors.Is(err, io.EOF) {
			b.Last = true
			break
		} else if err != nil {
			return b, err
		}
		if r.row++; r.row <= after {
			continue
		}
		made := Row{Number: r.row, Line: x.line, Value: x.text}
		if x.large {
			made.Code, made.Reason = "oversized", "the row is larger than an event of the source may be"
		} else if r.decoder != nil {
			event, err := r.decoder.decode(make([]byte, 0, len(x.text)+r.decoder.root.size()), x.text)
			if made.Value = event; err != nil {
				made.Value, made.Code, made.Reason = x.text, "bad_csv", err.Error()
			}
		}
		size += len(made.Value)
		b.Rows = append(b.Rows, made)
	}
	if sum := r.cutter.hash.Sum(nil); b.Last && [sha256.Size]byte(sum) != r.f.SHA256 {
		return b, badFile("the SHA-256 of the file is %x, not the one from before: it changed meanwhile", sum)
	}
	if r.row < after {
		return b, badFile("the import is at row %d, behind the end of the file", after)
	}
	b.Bytes = r.cutter.read
	return b, nil
}
