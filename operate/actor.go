package operate

import (
	"os"
	"os/user"
)

// Actor names the user that the process runs as, and its machine, for the audit:
// user@host.
func Actor() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
