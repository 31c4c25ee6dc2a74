package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// SoleDelivery reports whether one of several processes has to deliver for all services: one
// of them writes a file.
func (c *Config) SoleDelivery() bool {
	return !c.Kafka.Embedded() && slices.ContainsFunc(c.Services(), func(s Service) bool {
		_, file := s.Delivery.Sink.(FileWriter)
		return file
	})
}

// Warnings returns settings that are allowed and probably not intended: private keys that every
// user of the machine may read, and tokens that never expire or have expired. It looks at the
// files that the configuration names, and passes over those that it cannot.
func (c *Config) Warnings() (all []string) {
	var keys []string
	note := func(file string) {
		if file != "" && !slices.Contains(keys, file) {
			keys = append(keys, file)
		}
	}
	client := func(t *TLS) {
		if t != nil {
			note(t.Key)
		}
	}
	if t := c.Admin.TLS; t != nil {
		note(t.Key)
	}
	if t := c.API.TLS; t != nil {
		note(t.Key)
	}
	if v := c.Gate.Valkey; v != nil {
		client(v.TLS)
	}
	client(c.Kafka.TLS)
	for i := range c.Sources {
		if s, ok := c.Sources[i].Input.(Secured); ok {
			client(s.ClientTLS())
		}
	}
	for _, s := range c.Services() {
		if s, ok := s.Delivery.Sink.(Secured); ok {
			client(s.ClientTLS())
		}
	}
	for _, file := range keys {
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o007 != 0 {
			all = append(all, fmt.Sprintf("every user of this machine may read or change the private key %s: chmod o= %[1]s", file))
		}
	}
	if c.SoleDelivery() {
		all = append(all, "one process writes a file: of several, one delivers for all services while the others stand by, each to its own disk unless they share the folder; another sink lets them share the work")
	}
	if c.API.Tokens == "" {
		return all
	}
	tokens, err := LoadTokens(c.API.Tokens, nil)
	if err != nil {
		return all // the start says so
	}
	var endless, expired []string
	for _, t := range tokens.Tokens {
		switch until := time.Time(t.Expires); {
		case until.IsZero():
			endless = append(endless, t.ID)
		case !time.Now().Before(until):
			expired = append(expired, t.ID)
		}
	}
	if len(endless) > 0 {
		all = append(all, "tokens that never expire: "+someOf(endless))
	}
	if len(expired) > 0 {
		all = append(all, "tokens that have expired: "+someOf(expired))
	}
	return all
}

// someOf names the first few of a list.
func someOf(ids []string) string { return strings.Join(ids[:min(len(ids), 5)], ", ") }

// Notes returns questions that a configuration leaves open: which tables of PostgreSQL, read
// by Debezium, may have to log whole rows.
func (c *Config) Notes() (all []string) {
	var tables []string
	for i := range c.Sources {
		s := &c.Sources[i]
		if s.OfDebezium() && s.RowImage == "" && len(s.UnchangedAsNull) == 0 {
			tables = append(tables, s.Name)
		}
	}
	if len(tables) > 0 {
		all = append(all, fmt.Sprintf("if Debezium reads PostgreSQL, a table needs REPLICA IDENTITY FULL, then row_image: full, "+
			"where the entity is not its primary key or large values are of other types than text: %s. weir doctor reads the tables that it reaches",
			strings.Join(tables, ", ")))
	}
	return all
}
