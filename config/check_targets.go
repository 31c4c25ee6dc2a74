package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// ownerOf gives the file of a service and the path of its sink.
func (l *loader) ownerOf(s Service) (*document, string) {
	p := &l.config.Projections[s.Projection]
	return l.owner[s.Projection], member(member(member("projections", p.Name), "deliver"), s.Delivery.Name)
}

// checkTargets finds services that would write over one another, and those that
// write into what is read.
func (l *loader) checkTargets() {
	c := &l.config
	read, internal := claims{}, claims{}
	main := clusterOf(&c.Kafka.Cluster)
	cluster := func(own *Cluster) string {
		if name := clusterOf(own); name != "" {
			return name
		}
		return main
	}
	topicOf := func(cluster, topic string) string { return "topic " + cluster + " " + topic }
	internal.take(topicOf(main, c.Kafka.Inbox.Topic), "the inbox", l.main.at("kafka.inbox.topic"))
	internal.take(topicOf(main, c.Kafka.Changes.Topic), "the changes", l.main.at("kafka.changes.topic"))
	for i := range c.Sources {
		s := &c.Sources[i]
		switch {
		case s.Kafka != nil:
			topic := topicOf(cluster(&s.Kafka.Cluster), s.Kafka.Topic)
			if first, taken := internal[topic]; taken {
				l.main.fault(member("sources", s.Name)+".kafka.topic", "is internal: "+first.who, "a topic of the source's own")
			}
			read.take(topic, "source "+s.Name, s.Pos)
		case s.File != nil:
			read.take("file "+absolute(s.File.Path), "source "+s.Name, s.Pos)
		}
	}
	written, shapes := claims{}, map[string]string{}
	for _, s := range c.Services() {
		doc, path := l.ownerOf(s)
		key, target, shape := l.target(s.Delivery, cluster, topicOf)
		at := path + "." + key
		if target == "" || !doc.has(at) || doc.values[at].raw == "" {
			continue
		}
		if first, taken := read[target]; taken {
			doc.fault(at, "is what "+first.String()+" reads", "a target of its own")
			continue
		}
		if first, taken := internal[target]; taken {
			doc.fault(at, "is internal: "+first.who, "a target of its own")
			continue
		}
		first, taken := written.take(target, s.Name, s.Delivery.Pos)
		switch {
		case !taken:
			shapes[target] = shape
		case first.who == s.Name: // a name twice is a fault already
		case shape == "":
			doc.fault(at, "is the target of "+first.String()+" too", "a target of its own")
		case shape != shapes[target]:
			doc.fault(at, "is shared with "+first.String()+", but with another mode or other columns", "the same mode and columns, or a table of its own")
		}
	}
}

// target gives the key that names a sink's target and a name for the target.
// The shape is empty for a target that takes one service only; services may
// share one of the same shape: rows of a table are keyed by service.
func (l *loader) target(d *Delivery, cluster func(*Cluster) string, topicOf func(cluster, topic string) string) (key, target, shape string) {
	switch {
	case d.File != nil:
		return "file.path", "file " + absolute(d.File.Path), ""
	case d.Kafka != nil:
		return "kafka.topic", topicOf(cluster(&d.Kafka.Cluster), d.Kafka.Topic), ""
	case d.ClickHouse != nil:
		return "clickhouse.table", "clickhouse " + server(d.ClickHouse.URL) + " " + d.ClickHouse.Table,
			"table " + d.ClickHouse.Columns.shape()
	case d.Postgres != nil:
		return "postgres.table", "postgres " + server(d.Postgres.URL) + " " + d.Postgres.Table,
			d.Postgres.Mode + " " + d.Postgres.Columns.shape()
	}
	return "", "", "" // a webhook: every request says which service it is of
}

func (c Columns) shape() string {
	var b strings.Builder
	for _, column := range c {
		fmt.Fprintf(&b, "%q %q,", column.Name, column.Type)
	}
	return b.String()
}

// server gives a URL without user and parameters, as far as it is one.
func server(secret Secret) string {
	u, err := url.Parse(secret.Reveal())
	if err != nil || u.Host == "" {
		return secret.Reveal()
	}
	return strings.ToLower(u.Host) + u.Path
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
