// Package control is how a command reaches a running process. Without servers one
// process at a time has the data folder open, so a command that needs it asks that
// process: [Find] reads how to reach it, [Running.Forward] sends the command line
// and prints what comes back. In the process a [Server] takes commands and reloads
// behind a token, and is the first to end, since what they work with is closed
// after it.
package control
