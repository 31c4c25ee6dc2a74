package config

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// shareConnections gives all services of a target the bound of its connections
// that one of them names, and finds those that name another one.
func (l *loader) shareConnections() {
	type bound struct {
		claim
		value int
	}
	named, widest := map[string]bound{}, map[string]int{}
	services := l.config.Services()
	for _, s := range services {
		target, kind, most := clientOf(s.Delivery)
		if most == nil {
			continue
		}
		doc, path := l.ownerOf(s)
		if kind == "postgres" && strings.Contains(s.Delivery.Postgres.URL.Reveal(), "pool_max_conns") {
			doc.fault(path+".postgres.url", "has pool_max_conns", "max_connections, beside the URL")
		}
		if w := s.Delivery.Webhook; w != nil {
			widest[target] = max(widest[target], w.Concurrency)
		}
		at := member(path, kind) + ".max_connections"
		if !doc.has(at) {
			continue
		}
		first, taken := named[target]
		if !taken {
			named[target] = bound{claim{s.Name, doc.at(at)}, *most}
		} else if first.value != *most {
			doc.fault(at, fmt.Sprintf("shares its connections with %s, which has %d", first, first.value), "one number for all services of a target")
		}
	}
	for _, s := range services {
		target, _, most := clientOf(s.Delivery)
		if most == nil {
			continue
		}
		if b, ok := named[target]; ok {
			*most = b.value
		} else {
			*most = max(*most, widest[target])
		}
	}
}

// clientOf names the client that a sink shares with others, by all that makes two of
// them one: the target as whoever connects to it. Most is nil for sinks whose
// connections nobody bounds.
func clientOf(d *Delivery) (target, kind string, most *int) {
	switch {
	case d.Webhook != nil:
		w := d.Webhook
		host, user := w.URL.Reveal(), ""
		if u, err := url.Parse(host); err == nil && u.Host != "" {
			host = u.Scheme + "://" + strings.ToLower(u.Host)
			if u.User != nil {
				user = u.User.String()
			}
		}
		headers := make(map[string]string, len(w.Headers))
		for name, value := range w.Headers {
			headers[name] = value.Reveal()
		}
		parts, _ := json.Marshal([]any{host, user, headers, w.DenyPrivate, w.TLS}) // texts can be marshalled
		return "webhook " + string(parts), "webhook", &w.MaxConnections
	case d.ClickHouse != nil:
		return "clickhouse " + d.ClickHouse.URL.Reveal(), "clickhouse", &d.ClickHouse.MaxConnections
	case d.Postgres != nil:
		return "postgres " + d.Postgres.URL.Reveal(), "postgres", &d.Postgres.MaxConnections
	}
	return "", "", nil
}
