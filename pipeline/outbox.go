package pipeline

import (
	"context"
	"errors"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sources/outbox"
)

// openOutbox makes the source of an outbox table. A table that cannot be read
// as it is configured is said at once; a database that is away is waited for.
func (p *Pipeline) openOutbox(ctx context.Context, c *config.Source) (*outbox.Source, error) {
	o := c.Outbox
	source, err := outbox.New(outbox.Options{
		Name: c.Name, URL: o.URL.Reveal(), Table: o.Table, Mark: o.After == config.AfterMark,
		Columns: outbox.Columns{
			ID: o.Columns.ID, Entity: o.Columns.Entity, Payload: o.Columns.Payload, EventID: o.Columns.EventID,
			Operation: o.Columns.Operation, Headers: o.Columns.Headers, Processed: o.Columns.Processed,
		},
		Batch: o.Batch, Poll: o.Poll.D(), Channel: o.Channel, Limit: p.end.ingest.ctx, Logger: p.log,
	})
	if err != nil {
		return nil, err
	}
	var setup *outbox.SetupError
	if err := source.Check(ctx); errors.As(err, &setup) {
		return nil, errors.Join(err, source.Close())
	}
	return source, nil
}
