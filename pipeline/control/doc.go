// Package control asks a running process for what only that process can do: to reload its
// configuration, to retry now, to sign in to its page, to ingest a file. [Find] reads the
// address of a process without servers. In the process a [Server] answers behind a token. It
// closes first: requests use the open state of the process.
package control
