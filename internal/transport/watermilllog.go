package transport

import (
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/seed-86dfc502/weir/internal/reason"
)

// NewWatermillLogger returns a watermill.LoggerAdapter that writes errors to log, each text at
// most once in 10 seconds: a subscriber that cannot reach its topic logs thousands of times a
// second. Info, debug and trace are dropped. They log the life of every message.
func NewWatermillLogger(log *slog.Logger) watermill.LoggerAdapter {
	return watermillLog{log: log, quiet: &logLimiter{}}
}

type watermillLog struct {
	log    *slog.Logger
	quiet  *logLimiter
	fields watermill.LogFields
}

func (l watermillLog) Error(msg string, err error, fields watermill.LogFields) {
	if !l.quiet.allow(msg) {
		return
	}
	args := []any{"event", "watermill.failed", "error", reason.Of(err)}
	for k, v := range l.fields.Add(fields) {
		args = append(args, k, v)
	}
	l.log.Error("watermill: "+msg, args...)
}

func (l watermillLog) Info(string, watermill.LogFields)  {}
func (l watermillLog) Debug(string, watermill.LogFields) {}
func (l watermillLog) Trace(string, watermill.LogFields) {}

func (l watermillLog) With(fields watermill.LogFields) watermill.LoggerAdapter {
	l.fields = l.fields.Add(fields)
	return l
}
