package main

import (
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

func newDlqCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "dlq",
		Short: "Dead letters: what could not be ingested, decided or delivered",
	}
	c.AddCommand(newDlqListCommand(a), newDlqEditCommand(a), newDlqReplayCommand(a), newDlqDiscardCommand(a))
	return c
}

// letterJSON is a dead letter as --json prints it.
type letterJSON struct {
	ID            int64             `json:"id"`
	Created       time.Time         `json:"created"` // when it died first
	Last          time.Time         `json:"last"`    // when it died last
	Count         int64             `json:"count"`   // how often it died
	State         store.LetterState `json:"state"`
	Stage         store.Stage       `json:"stage"`
	Code          string            `json:"code"`
	Reason        string            `json:"reason"`
	Source        string            `json:"source,omitempty"`
	Service       string            `json:"service,omitempty"`
	Entity        string            `json:"entity,omitempty"`
	EventID       string            `json:"event_id,omitempty"`
	Version       string            `json:"version,omitempty"` // generation:offset
	Topic         string            `json:"topic,omitempty"`
	Partition     int32             `json:"partition"`
	Offset        int64             `json:"offset"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 string            `json:"payload_base64,omitempty"` // when the bytes are not UTF-8
	Edited        bool              `json:"edited,omitempty"`         // the first payload is kept in the store
}

func toLetterJSON(l store.DeadLetter) letterJSON {
	version := ""
	if l.Version != 0 {
		version = l.Version.String()
	}
	j := letterJSON{
		ID: l.ID, Created: l.Created, Last: l.Last, Count: l.Count, State: l.State, Stage: l.Stage, Code: l.Code, Reason: l.Reason, Source: l.Source,
		Service: l.Service, Entity: l.Entity, EventID: l.EventID, Version: version, Topic: l.Topic, Partition: l.Part, Offset: l.Offset,
		Edited: l.Original != nil,
	}
	switch {
	case l.Payload == nil:
	case utf8.Valid(l.Payload):
		text := string(l.Payload)
		j.Payload = &text
	default:
		j.PayloadBase64 = base64.StdEncoding.EncodeToString(l.Payload)
	}
	return j
}
