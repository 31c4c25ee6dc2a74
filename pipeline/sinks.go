package pipeline

import (
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/clickhouse"
	"github.com/seed-86dfc502/weir/sinks/file"
	"github.com/seed-86dfc502/weir/sinks/kafka"
	"github.com/seed-86dfc502/weir/sinks/postgres"
	"github.com/seed-86dfc502/weir/sinks/webhook"
	"github.com/seed-86dfc502/weir/transport"
)

// newSink makes the sink of a service; it does not connect yet.
func (p *Pipeline) newSink(s config.Service) (sinks.Sink, error) {
	sink, err := p.makeSink(s)
	if err != nil {
		return nil, err
	}
	if kind := s.Delivery.Kind; kind != "" && sinks.Kind(kind) != sink.Traits().Kind {
		return ofKind{sink, sinks.Kind(kind)}, nil
	}
	return sink, nil
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

func (p *Pipeline) makeSink(s config.Service) (sinks.Sink, error) {
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
		t, identity, err := loadTLS(w.TLS)
		if err != nil {
			return nil, err
		}
		return webhook.New(webhook.Options{
			URL: w.URL.Reveal(), Secrets: secrets, Headers: headers, Kind: sinks.Kind(w.Mode),
			Timeout: w.Timeout.D(), Concurrency: w.Concurrency, DenyPrivate: w.DenyPrivate, TLS: t, TLSIdentity: identity,
			Service: s.Name, Targets: &p.targets, MaxConnections: w.MaxConnections,
		})
	case d.Kafka != nil:
		producer, err := p.sinkProducer(d.Kafka.Cluster)
		if err != nil {
			return nil, err
		}
		client, err := producer.Client()
		if err != nil {
			return nil, errors.Join(err, producer.Close())
		}
		sink, err := kafka.New(kafka.Options{
			Publisher: transport.NewPublisher(client), Release: producer.Close, Topic: d.Kafka.Topic, Tombstones: d.Kafka.Tombstones,
			MaxMessageBytes: int(p.cfg.Limits.Change) + recordOverhead, Concurrency: kafkaInFlight,
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
			Targets: &p.targets, MaxConnections: c.MaxConnections,
		})
	case d.Postgres != nil:
		c := d.Postgres
		columns := make([]postgres.Column, len(c.Columns))
		for i, col := range c.Columns {
			columns[i] = postgres.Column{Name: col.Name, Path: col.Path, Type: col.Type}
		}
		return postgres.New(postgres.Options{
			URL: c.URL.Reveal(), Table: c.Table, Service: s.Name, Mode: postgres.Mode(c.Mode), Columns: columns,
			CreateTable: &c.Create, Retention: c.Retention.D(), Logger: p.log,
			Targets: &p.targets, MaxConnections: c.MaxConnections,
		})
	}
	return nil, fmt.Errorf("service %s has no sink", s.Name)
}

// sinkProducer returns a service's share in the producer of a cluster. Two services
// have one only if they reach it in the same way, as the same user and under the same
// certificate.
func (p *Pipeline) sinkProducer(c config.Cluster) (*sinks.Lease[*transport.Producer], error) {
	if len(c.Brokers) == 0 {
		c = p.cfg.Kafka.Cluster
	}
	cluster, identity := p.kafka, ""
	if len(c.Brokers) > 0 {
		files := c.TLS
		c.TLS = nil // read once: the key is that of the certificates that are used
		var err error
		if cluster, err = p.cluster(c); err != nil {
			return nil, err
		}
		if cluster.TLS, identity, err = loadTLS(files); err != nil {
			return nil, err
		}
	}
	return sinks.Share(&p.targets, sinks.ClientConfig[*transport.Producer]{
		Key: sinks.ClientKey("kafka", cluster.Brokers, cluster.ClientID, cluster.SASL, identity, p.maxRecord()),
		Open: func() (*transport.Producer, error) {
			return transport.NewProducer(cluster, transport.ProducerConfig{MaxRecordBytes: p.maxRecord()})
		},
		Close: func(producer *transport.Producer) error { return p.closeProducer(producer)() },
	}), nil
}

// kafkaInFlight is how many records a Kafka sink has in flight: the windowed
// producer sends in one request what waits, so the more the better.
const kafkaInFlight = 1000
