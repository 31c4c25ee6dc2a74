package linearizable

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-86dfc502/weir/store"
)

// defect is the deliberate fault of a store.
type defect string

const (
	sound defect = ""
	// blindSwap: Decide writes entities before it compares the watermark, and
	// however they are.
	blindSwap defect = "swap without compare"
	// noWatermark: Decide takes any caller's decisions, for records that were
	// decided already too.
	noWatermark defect = "no watermark"
	// oldMemory: owners that take over keep their cache, and Decide overwrites
	// entities in any state.
	oldMemory defect = "memory kept at a takeover"
	// noFence: Decide forgets which changes of a table an entity has.
	noFence defect = "no fence"
	// noToken: SwapProgress swaps what others took over since.
	noToken defect = "no token"
)

// broken is a PostgreSQL store with a defect.
type broken struct {
	store.Store
	defect defect
	pool   *pgxpool.Pool
}

func breakStore(ctx context.Context, s store.Store, url string, d defect) (store.Store, error) {
	if d == sound {
		return s, nil
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return &broken{s, d, pool}, err
}

func (b *broken) Close() error {
	b.pool.Close()
	return b.Store.Close()
}

// write puts an entity in place of any other.
func (b *broken) write(ctx context.Context, e store.Entity) error {
	_, err := b.pool.Exec(ctx, `
INSERT INTO entities (id, docs, fence, version, fingerprint, writes, states) VALUES ($1, $2, $3, $4, $5, 1, coalesce($6::bytea, ''))
ON CONFLICT (id) DO UPDATE SET docs = excluded.docs, fence = excluded.fence, version = excluded.version, fingerprint = excluded.fingerprint,
       writes = entities.writes + 1, states = coalesce($6, entities.states)`,
		e.ID, string(e.Docs), e.Fence, int64(e.Version), e.Fingerprint, e.RowPage())
	return err
}

// overwrite makes entities match, however often they were written since.
func (b *broken) overwrite(ctx context.Context, entities []store.Entity) error {
	for i := range entities {
		err := b.pool.QueryRow(ctx, `SELECT coalesce((SELECT writes FROM entities WHERE id = $1), 0)`, entities[i].ID).Scan(&entities[i].Writes)
		if err != nil {
			return err
		}
	}
	return nil
}

// others lets other processes run between a read and a write.
func others(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *broken) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	switch b.defect {
	case blindSwap:
		return b.Store.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
			out, err := decide(loaded)
			if err == nil {
				err = others(ctx)
			}
			for _, e := range out.Entities {
				if err == nil {
					err = b.write(ctx, e)
				}
			}
			out.Entities = nil
			return out, err
		})
	case oldMemory:
		return b.Store.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
			out, err := decide(loaded)
			if err == nil {
				err = b.overwrite(ctx, out.Entities)
			}
			return out, err
		})
	case noFence:
		return b.Store.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
			out, err := decide(loaded)
			for i := range out.Entities {
				out.Entities[i].Fence = nil
			}
			return out, err
		})
	case noWatermark:
		return b.decideUnfenced(ctx, d, decide)
	}
	return b.Store.Decide(ctx, d, decide)
}

// decideUnfenced decides without a watermark: it only follows.
func (b *broken) decideUnfenced(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	moves := d.Moves
	d.Moves = nil
	var frames []store.Frame
	err := b.Store.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
		out, err := decide(loaded)
		if err == nil {
			err = b.overwrite(ctx, out.Entities)
		}
		frames, out.Frames = out.Frames, nil
		return out, err
	})
	if err != nil {
		return err
	}
	for _, m := range moves {
		_, err := b.pool.Exec(ctx, `UPDATE watermarks SET next_offset = greatest(next_offset, $3) WHERE generation = $1 AND partition = $2`,
			int32(m.Partition.Generation), m.Partition.Number, m.To)
		if err != nil {
			return err
		}
	}
	for _, f := range frames {
		_, err := b.pool.Exec(ctx, `INSERT INTO frames (partition, upto, written, body, total) VALUES ($1, $2, now(), $3, 0) ON CONFLICT DO NOTHING`,
			f.Partition.Number, int64(f.To), f.Body)
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *broken) SwapProgress(ctx context.Context, revision int64, swaps []store.ProgressSwap) ([]bool, error) {
	if b.defect != noToken {
		return b.Store.SwapProgress(ctx, revision, swaps)
	}
	swapped := make([]bool, len(swaps))
	for i, s := range swaps {
		_, err := b.pool.Exec(ctx, `UPDATE progress SET token = $2, positions = $3 WHERE partition = $1`,
			s.Partition, s.Token[:], store.AppendPositions(nil, s.Positions))
		if err != nil {
			return nil, store.WithClass(err, store.Unknown)
		}
		swapped[i] = true
	}
	return swapped, nil
}
