package operate_test

import (
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
)

// The binary has crash points, which do nothing unless the environment names one.
func TestMain(m *testing.M) { harness.Main(m, "crash") }
