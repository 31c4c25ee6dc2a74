package config

import (
	"reflect"
	"slices"
	"strings"
)

// SameSettings reports whether two configurations of Load are the same, wherever their
// files have the sources.
func SameSettings(a, b *Config) bool { return reflect.DeepEqual(a.settled(), b.settled()) }

// MainChanges names the keys of the main file that differ, other than where customers'
// files are.
func MainChanges(a, b *Config) (keys []string) {
	x, y := reflect.ValueOf(*a.settled()), reflect.ValueOf(*b.settled())
	for i := range x.NumField() {
		key, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("yaml"), ",")
		if key == "-" || key == "customers" {
			continue
		}
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			keys = append(keys, key)
		}
	}
	return keys
}

// settled is a copy in which nothing depends on the place of a source in the main file,
// on the memory left by customers' files, or on who compiled the projections.
func (c *Config) settled() *Config {
	copied := *c
	copied.compiled = nil
	copied.Sources = slices.Clone(c.Sources)
	for i := range copied.Sources {
		copied.Sources[i].Pos = Position{}
	}
	return &copied
}
