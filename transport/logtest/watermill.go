package logtest

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

//go:linkname watermillTimeout github.com/ThreeDotsLabs/watermill/pubsub/tests.defaultTimeout
var watermillTimeout time.Duration //nolint:gochecknoglobals // it is Watermill's

// PatientWatermill lets Watermill's own suite wait longer for what must come than its
// 15 s, which a busy machine overruns. The suite has no option for it. It is called
// before the tests.
func PatientWatermill() { watermillTimeout = patience }
