package config

import (
	"net/url"
	"strconv"
	"strings"
)

// Tracing says which events are traced, and where to the traces go.
type Tracing struct {
	// OTLP is the receiver of the traces.
	OTLP OTLP `yaml:"otlp" required:"true"`
	// Sample is the share of events that are traced, 0 to 1. An event that comes
	// with a trace context is traced if that says so, and only then.
	Sample Share `yaml:"sample" default:"0.01"`
	// ServiceName is the name of this service in traces.
	ServiceName string `yaml:"service_name" default:"weir"`
	// EntityIDs puts the ids of entities into traces, which otherwise have a hash
	// of them.
	EntityIDs bool `yaml:"entity_ids" default:"false"`
}

// OTLP is a receiver of OpenTelemetry's protocol over HTTP, with protobuf.
type OTLP struct {
	// Endpoint is its URL. Without a path, spans go to /v1/traces.
	Endpoint Secret `yaml:"endpoint" required:"true"`
	// Headers are sent with every request.
	Headers map[string]Secret `yaml:"headers"`
	// Timeout of one request.
	Timeout Duration `yaml:"timeout" default:"10s" range:"10ms..5m"`
	// TLS, if given, replaces the system's certificate authorities.
	TLS *TLS `yaml:"tls"`
	// Insecure allows an http endpoint on another machine.
	Insecure bool `yaml:"insecure" default:"false"`
}

// Share is a part of a whole, 0 to 1.
type Share float64

// MarshalText returns the form that a file has.
func (s Share) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(s), 'g', -1, 64), nil
}

// UnmarshalText reads a decimal number.
func (s *Share) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	switch want := "a number from 0 to 1, like 0.01"; {
	case err != nil:
		return &mistake{problem: "is not a number", want: want}
	case !(f >= 0 && f <= 1): // no number at all is neither
		return &mistake{problem: "is out of range", want: want}
	}
	*s = Share(f)
	return nil
}

func (l *loader) checkTracing() {
	t := l.config.Tracing
	if t == nil {
		return
	}
	const path, want = "tracing.otlp.endpoint", `http://host:port or https://host:port`
	if l.main.known(path) && !t.OTLP.Endpoint.IsZero() {
		u, err := url.Parse(t.OTLP.Endpoint.Reveal())
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			l.main.fault(path, "is not a URL of http or https", want)
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			l.main.fault(path, "has more than scheme, host, port and path", want+"; credentials are headers")
		case u.Scheme == "http" && t.OTLP.TLS != nil:
			l.main.faultKey("tracing.otlp.tls", "has no effect with http", "an https endpoint")
		}
	}
	for name, value := range t.OTLP.Headers {
		path := member("tracing.otlp.headers", name)
		if name == "" || strings.ContainsAny(name, " \t\r\n:\x00") {
			l.main.faultKey(path, "is not the name of a header", "a name like authorization")
		}
		if l.main.known(path) && strings.ContainsAny(value.Reveal(), "\r\n\x00") {
			l.main.fault(path, "has a line break or NUL", "one line")
		}
	}
	l.checkTLS(l.main, "tracing.otlp.tls", t.OTLP.TLS)
}
