package sqlsink

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/config"
)

// Columns returns a copy in which each column has a path. The error has all faults that
// check finds.
func Columns(columns config.Columns, check func(config.Column) error) (config.Columns, error) {
	columns = slices.Clone(columns)
	var errs []error
	for i := range columns {
		c := &columns[i]
		c.Path = cmp.Or(c.Path, c.Name)
		if err := check(*c); err != nil {
			errs = append(errs, fmt.Errorf("columns[%d], %q: %w", i, c.Name, err))
		}
	}
	return columns, errors.Join(errs...)
}
