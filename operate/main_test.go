package operate_test

import (
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
