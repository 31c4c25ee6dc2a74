package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/clickhouse"
	"github.com/seed-86dfc502/weir/sinks/file"
	"github.com/seed-86dfc502/weir/sinks/kafka"
	"github.com/seed-86dfc502/weir/sinks/postgres"
	"github.com/seed-86dfc502/weir/sinks/webhook"
	"github.com/seed-86dfc502/weir/transport"
)

// Sinks makes the sinks of a configuration; none of them connects before it is
// opened. Its methods may be called concurrently.
type Sinks struct {
	Config *config.Config
	Logger *slog.Logger
	// Targets are the clients that the sinks share; nil: each has its own.
	Targets *sinks.Targets
	// Cluster is the main cluster, for sinks that name none.
	Cluster transport.Config
	// CloseProducer ends a producer whose sinks are closed; nil waits for what
	// is under way, however long that takes.
	CloseProducer func(*transport.Producer) error
}

// New makes the sink of a service.
func (a *Sinks) New(s config.Service) (sinks.Sink, error) {
	sink, err := a.make(s)
	if err != nil {
		return nil, err
	}
	if kind := s.Delivery.Kind; kind != "" && sinks.Kind(kind) != sink.Traits().Kind {
		return ofKind{sink, sinks.Kind(kind)}, nil
	}
	return sink, nil
}

// Check makes and closes the sinks of all services: it finds what opening them
// would fail by without a server.
func (a *Sinks) Check() error {
	var errs []error
	for _, s := range a.Config.Services() {
		sink, err := a.New(s)
		if err == nil {
			err = sink.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("service %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// ofKind feeds a sink as the configuration wants it: a log sink may be told
// that the newest change of an entity is enough.
type ofKind struct {
	sinks.Sink
	kind sinks.Kind
}

func (k ofKind) Traits() sinks.Traits {
	t := k.Sink.Traits()
	t.Kind = k.kind
	t.Guarded = false // the guard of a log is its keys; a state needs the versions
	return t
}

func (a *Sinks) make(s config.Service) (sinks.Sink, error) {
	d := s.Delivery
	switch {
	case d.File != nil:
		return file.New(file.Options{Path: d.File.Path})
	case d.Webhook != nil:
		w := d.Webhook
		secrets := make([]string, len(w.Secret))
		for i, secret := range w.Secret {
			secrets[i] = secret.Reveal()
		}
		headers := make(map[string]string, len(w.Headers))
		for name, value := range w.Headers {
			headers[name] = value.Reveal()
		}
		t, identity, err := ClientTLS(w.TLS)
		if err != nil {
			return nil, err
		}
		return webhook.New(webhook.Options{
			URL: w.URL.Reveal(), Secrets: secrets, Headers: headers, Kind: sinks.Kind(w.Mode),
			Timeout: w.Timeout.D(), Concurrency: w.Concurrency, DenyPrivate: w.DenyPrivate, TLS: t, TLSIdentity: identity,
			Service: s.Name, Targets: a.Targets, MaxConnections: w.MaxConnections,
		})
	case d.Kafka != nil:
		producer, err := a.producer(d.Kafka.Cluster)
		if err != nil {
			return nil, err
		}
		client, err := producer.Client()
		if err != nil {
			return nil, errors.Join(err, producer.Close())
		}
		sink, err := kafka.New(kafka.Options{
			Producer: client, Release: producer.Close, Topic: d.Kafka.Topic, Tombstones: d.Kafka.Tombstones,
			MaxMessageBytes: int(a.Config.Limits.Change) + recordOverhead, Concurrency: kafkaInFlight,
		})
		if err != nil {
			return nil, errors.Join(err, producer.Close())
		}
		return sink, nil
	case d.ClickHouse != nil:
		c := d.ClickHouse
		columns := make([]clickhouse.Column, len(c.Columns))
		for i, col := range c.Columns {
			columns[i] = clickhouse.Column{Name: col.Name, Path: col.Path, Type: col.Type}
		}
		return clickhouse.New(clickhouse.Options{
			URL: c.URL.Reveal(), Table: c.Table, Service: s.Name, Columns: columns, CreateTable: &c.Create,
			PartitionBy: c.PartitionBy, MaxBatch: c.MaxBatch, Linger: c.Linger.D(),
			Targets: a.Targets, MaxConnections: c.MaxConnections,
		})
	case d.Postgres != nil:
		c := d.Postgres
		columns := make([]postgres.Column, len(c.Columns))
		for i, col := range c.Columns {
			columns[i] = postgres.Column{Name: col.Name, Path: col.Path, Type: col.Type}
		}
		return postgres.New(postgres.Options{
			URL: c.URL.Reveal(), Table: c.Table, Service: s.Name, Mode: postgres.Mode(c.Mode), Columns: columns,
			CreateTable: &c.Create, Retention: c.Retention.D(), Logger: a.Logger,
			Targets: a.Targets, MaxConnections: c.MaxConnections,
		})
	}
	return nil, fmt.Errorf("service %s has no sink", s.Name)
}

// producer returns a service's share in the producer of a cluster. Two services
// have one only if they reach it in the same way, as the same user and under the same
// certificate.
func (a *Sinks) producer(c config.Cluster) (*sinks.Lease[*transport.Producer], error) {
	if len(c.Brokers) == 0 {
		c = a.Config.Kafka.Cluster
	}
	cluster, identity := a.Cluster, ""
	if len(c.Brokers) > 0 {
		var err error
		if cluster, identity, err = Cluster(a.Config, c, a.Logger); err != nil {
			return nil, err
		}
	}
	return sinks.Share(a.Targets, sinks.ClientConfig[*transport.Producer]{
		Key: sinks.ClientKey("kafka", cluster.Brokers, cluster.ClientID, cluster.SASL, identity, MaxRecord(a.Config)),
		Open: func() (*transport.Producer, error) {
			return transport.NewProducer(cluster, transport.ProducerConfig{MaxRecordBytes: MaxRecord(a.Config)})
		},
		Close: a.closeProducer,
	}), nil
}

func (a *Sinks) closeProducer(producer *transport.Producer) error {
	if a.CloseProducer != nil {
		return a.CloseProducer(producer)
	}
	return producer.Close(context.Background())
}

// kafkaInFlight is how many records a Kafka sink has in flight: the windowed
// producer sends in one request what waits, so the more the better.
const kafkaInFlight = 1000
