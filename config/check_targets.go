package config

import (
	"fmt"
	"net/url"
	"strings"
)

// ownerOf returns the file of a service and the path of its sink.
func (l *loader) ownerOf(s Service) (*document, string) {
	p := &l.config.Projections[s.Projection]
	return l.owner[s.Projection], member(member(member("projections", p.Name), "deliver"), s.Delivery.Name)
}

// checkTargets finds services that would write over one another, and those that
// write into a source.
func (l *loader) checkTargets() {
	c := &l.config
	read, internal := claims{}, claims{}
	main := &c.Kafka.Cluster
	internal.take(TopicTarget(main, main, c.Kafka.Inbox.Topic), "the inbox", l.main.at("kafka.inbox.topic"))
	internal.take(TopicTarget(main, main, c.Kafka.Journal()), "the journal", l.main.at("kafka.prefix"))
	for i := range c.Sources {
		s := &c.Sources[i]
		if s.Input == nil {
			continue
		}
		from := s.Input.Reads(main)
		if first, taken := internal[from]; taken {
			l.main.fault(s.inputPath()+".topic", "is internal: "+first.who, "a topic of the source's own")
		}
		if from != "" {
			read.take(from, "source "+s.Name, s.Pos)
		}
	}
	writers, shapes := claims{}, map[string]string{}
	for _, s := range c.Services() {
		doc, path := l.ownerOf(s)
		if s.Delivery.Sink == nil {
			continue
		}
		written := s.Delivery.Sink.Target(main)
		target, shape := written.Name, written.Shape
		at := path + "." + s.Delivery.Sink.Kind() + "." + written.Key
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
		first, taken := writers.take(target, s.Name, s.Delivery.Pos)
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

// Shape tells columns of one name and type from others.
func (c Columns) Shape() string {
	var b strings.Builder
	for _, column := range c {
		fmt.Fprintf(&b, "%q %q,", column.Name, column.Type)
	}
	return b.String()
}

// server returns a URL without user and parameters, as far as it is one.
func server(secret Secret) string {
	u, err := url.Parse(secret.Reveal())
	if err != nil || u.Host == "" {
		return secret.Reveal()
	}
	return strings.ToLower(u.Host) + u.Path
}
