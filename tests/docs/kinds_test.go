package docs

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	sinkkinds "github.com/seed-86dfc502/weir/sinks/registry"
	sourcekinds "github.com/seed-86dfc502/weir/sources/registry"
)

// Each kind of sink and source brings its page, and the page of all of them links to it.
func TestEachKindHasAPage(t *testing.T) {
	all := pages(t)
	check := func(kind any, list string) {
		page := strings.TrimPrefix(reflect.TypeOf(kind).Elem().PkgPath(), module) + "/README.md"
		assert.Contains(t, all, page)
		assert.Contains(t, all[list], "(../"+page+")")
	}
	for _, kind := range sinkkinds.Kinds() {
		check(kind, "docs/sinks.md")
	}
	for _, kind := range sourcekinds.Kinds() {
		check(kind, "docs/sources.md")
	}
}
