package store

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxUnpacked bounds what Unpack makes of a few bytes.
const maxUnpacked = 1 << 30

// Encoder and decoder are made once: they are large, and any number of goroutines
// may use them for whole texts. The defaults are valid, so making them cannot fail.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxUnpacked))
		return d
	})
)

// Pack compresses b (zstd, RFC 8878) for columns of bytes that the database
// does not compress by itself.
func Pack(b []byte) []byte { return encoder().EncodeAll(b, nil) }

// Unpack returns what Pack was given.
func Unpack(b []byte) ([]byte, error) {
	whole, err := decoder().DecodeAll(b, nil)
	if err != nil {
		return nil, WithClass(fmt.Errorf("unpack: %w", err), Fatal)
	}
	return whole, nil
}

// PackImportRows returns the results of rows as one value.
func PackImportRows(rows []ImportRow) ([]byte, error) {
	text, err := json.Marshal(rows)
	if err != nil {
		return nil, fmt.Errorf("pack results: %w", err)
	}
	return Pack(text), nil
}

// AppendImportRows appends those of a packed value that are after the given row.
func AppendImportRows(rows []ImportRow, packed []byte, after int64) ([]ImportRow, error) {
	text, err := Unpack(packed)
	if err != nil {
		return nil, err
	}
	var chunk []ImportRow
	if err := json.Unmarshal(text, &chunk); err != nil {
		return nil, WithClass(fmt.Errorf("results of an import: %w", err), Fatal)
	}
	for _, r := range chunk {
		if r.Row > after {
			rows = append(rows, r)
		}
	}
	return rows, nil
}
