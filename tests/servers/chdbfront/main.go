// Command chdbfront is a test fixture: a current ClickHouse engine behind an HTTP server, for
// machines on which the ClickHouse server itself cannot be had. clickhouse-go with the HTTP protocol
// works against it: definitions, inserts in Native format, selects, FINAL, settings, exceptions.
//
// The engine is the shared library of chDB, which has ClickHouse's storage and SQL but no server.
// The front keeps ClickHouse's HTTP conventions where a client sees them, and falls short of a
// server in this: one statement at a time, no users, no sessions, loopback only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8123", "loopback address to serve on")
	library := flag.String("library", "", "path of libchdb.so")
	data := flag.String("data", "", "folder that keeps the tables")
	flag.Parse()
	if err := serve(*listen, *library, *data); err != nil {
		fmt.Fprintln(os.Stderr, "chdbfront:", err)
		os.Exit(1)
	}
}

func serve(address, library, data string) error {
	if library == "" || data == "" {
		return errors.New("-library and -data are needed")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer listener.Close()
	// There are no users, so only this machine may talk to it.
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return fmt.Errorf("%s is not a loopback address", address)
	}

	engine, err := open(library, data)
	if err != nil {
		return err
	}
	defer engine.close()

	// The remains of a killed process's inserts are of no use.
	inserts := filepath.Join(data, "inserts")
	if err := errors.Join(os.RemoveAll(inserts), os.MkdirAll(inserts, 0o700)); err != nil {
		return err
	}

	server := &http.Server{Handler: &front{engine: engine, inserts: inserts}, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	slog.Info("ready", "address", listener.Addr().String())

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// A client that keeps its connection open must not hold up the end.
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return server.Close()
	}
	return nil
}
