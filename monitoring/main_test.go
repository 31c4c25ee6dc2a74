package monitoring

import (
	"testing"

	"github.com/seed-86dfc502/weir/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
