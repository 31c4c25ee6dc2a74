// Package control forwards commands to a running process. Without servers one process at a
// time has the data folder open. [Find] reads its address, [Running.Forward] sends the
// command line and prints the answer. In the process a [Server] runs commands and reloads
// behind a token. It closes first: commands use the open state of the process.
package control
