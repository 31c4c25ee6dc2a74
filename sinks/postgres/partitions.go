package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/sinks"
)

const (
	// sweepInterval is how often expired partitions are looked for.
	sweepInterval = time.Hour
	// dropLockTimeout bounds the wait for readers of a partition that goes.
	dropLockTimeout = "2s"
)

// month counts months since year 0, in UTC.
type month int

func monthOf(t time.Time) month {
	t = t.UTC()
	return month(t.Year()*12 + int(t.Month()) - 1)
}

func (m month) start() time.Time {
	return time.Date(int(m)/12, time.Month(int(m)%12+1), 1, 0, 0, 0, 0, time.UTC)
}

// suffix makes a partition's name from the table's.
func (m month) suffix() string { return fmt.Sprintf("_y%04dm%02d", int(m)/12, int(m)%12+1) }

// partitions are the months of a table with a retention. They belong to the goroutine of Open and
// Write.
type partitions struct {
	*table
	months  map[month]bool // known to exist
	swept   time.Time      // the last search for expired ones
	present func() time.Time
}

var partitionSuffix = regexp.MustCompile(`_y(\d{4})m(\d{2})$`)

// ensure makes the partitions that the changes fall in, the current
// month's and the next one's. Its errors are classified, and never a Reject:
// they are about the table, not about a change.
func (p *partitions) ensure(ctx context.Context, pool *pgpool.Pool, changes []change.Change) error {
	now := monthOf(p.present())
	needed := map[month]bool{now: true, now + 1: true}
	for i := range changes {
		needed[monthOf(changes[i].Time)] = true
	}
	for m := range needed {
		if p.months[m] {
			delete(needed, m)
		}
	}
	if len(needed) == 0 || !*p.options.CreateTable {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errors.New("postgres sink: creating a partition took too long"))
	defer cancel()
	err := p.inDDL(ctx, pool, func(tx pgx.Tx) error {
		for m := range needed {
			if oid, err := p.lookUp(ctx, tx, m.suffix()); err != nil || oid != 0 {
				if err != nil {
					return err
				}
				continue
			}
			// ATTACH does not wait for the table's readers, nor make them wait, as
			// CREATE TABLE … PARTITION OF would.
			partition, table := p.sibling(m.suffix()), p.name.Sanitize()
			for _, statement := range []string{
				fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL)", partition, table),
				fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')",
					table, partition, m.start().Format(time.RFC3339), (m + 1).start().Format(time.RFC3339)),
			} {
				if _, err := tx.Exec(ctx, statement); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		e := classify("create partition", err)
		if e.Class == sinks.Reject || e.Class == sinks.RetryBounded {
			e.Class, e.Hint = sinks.Pause, "the partition of a month cannot be attached; does another one, perhaps the default partition, hold rows of it?"
		}
		return e
	}
	if p.months == nil {
		p.months = map[month]bool{}
	}
	for m := range needed {
		p.months[m] = true
	}
	return nil
}

// sweep makes partitions ahead and drops those whose every row is older than
// the retention. A drop that fails is logged and tried again at the next sweep:
// it must not hold up deliveries.
func (p *partitions) sweep(ctx context.Context, pool *pgpool.Pool) error {
	if p.options.Retention == 0 {
		return nil
	}
	// Another process may have dropped partitions that this one knows.
	p.months = nil
	if err := p.ensure(ctx, pool, nil); err != nil {
		return err
	}
	p.swept = p.present()
	if !*p.options.CreateTable {
		return nil
	}
	if err := p.dropExpired(ctx, pool); err != nil {
		p.options.Logger.WarnContext(ctx, "expired partitions remain", slog.String("event", "postgres_sink.partitions_remain"), slog.String("service", p.options.Service),
			slog.String("table", p.options.Table), slog.Any("error", classify("drop partition", err)))
	}
	return nil
}

func (p *partitions) dropExpired(ctx context.Context, pool *pgpool.Pool) error {
	rows, err := pool.Query(ctx, `SELECT n.nspname::text, c.relname::text FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = to_regclass($1) ORDER BY c.relname`, p.name.Sanitize())
	if err != nil {
		return err
	}
	type name struct{ Schema, Table string }
	existing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[name])
	if err != nil {
		return err
	}
	oldest := p.present().Add(-p.options.Retention)
	for _, one := range existing {
		// Only names of this sink. Other partitions belong to the customer.
		match := partitionSuffix.FindStringSubmatch(one.Table)
		if match == nil || one.Table != p.name[len(p.name)-1]+match[0] {
			continue
		}
		year, _ := strconv.Atoi(match[1]) // digits by the pattern
		number, _ := strconv.Atoi(match[2])
		m := month(year*12 + number - 1)
		if (m + 1).start().After(oldest) {
			continue
		}
		err := p.inDDL(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+dropLockTimeout+"'"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+pgx.Identifier{one.Schema, one.Table}.Sanitize())
			return err
		})
		if err != nil {
			return err
		}
		delete(p.months, m)
		p.options.Logger.InfoContext(ctx, "expired partition dropped", slog.String("event", "postgres_sink.partition_dropped"), slog.String("service", p.options.Service),
			slog.String("partition", one.Table))
	}
	return nil
}
