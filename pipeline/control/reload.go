package control

// Reloaded is the result of a reload.
type Reloaded struct {
	// Changed is false when the files equal the configuration in force.
	Changed  bool     `json:"changed"`
	Revision int64    `json:"revision"`
	Services int      `json:"services"` // that are delivered
	Checks   int      `json:"checks"`   // check services
	Added    []string `json:"added"`    // of both kinds
	Removed  []string `json:"removed"`  // services of both kinds; their state is kept
	// GivenUp are the stages that did not stop within shutdown.timeout: their work in flight
	// is redelivered.
	GivenUp []string `json:"given_up,omitempty"`
	// Pending: the stages are still going over to it.
	Pending bool `json:"pending,omitempty"`
}

// ReloadRefused is the error of a reload that changed nothing because of a fault in the
// files. The process keeps its configuration.
type ReloadRefused struct{ Err error }

const refusedPrefix = "the new configuration is refused: "

func (e *ReloadRefused) Error() string { return refusedPrefix + e.Err.Error() }
func (e *ReloadRefused) Unwrap() error { return e.Err }
