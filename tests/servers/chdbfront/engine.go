package main

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// engine is a ClickHouse engine in this process: libchdb.so, loaded without cgo. It runs one
// statement at a time; query may be called concurrently and waits for its turn.
type engine struct {
	mu         sync.Mutex
	connection unsafe.Pointer // chdb_connection*, nil after close

	queryN        func(connection uintptr, query *byte, queryLen uintptr, format *byte, formatLen uintptr) uintptr
	destroyResult func(result uintptr)
	resultBuffer  func(result uintptr) unsafe.Pointer
	resultLength  func(result uintptr) uintptr
	resultError   func(result uintptr) string
	closeConn     func(connection unsafe.Pointer)
}

var errClosed = errors.New("the engine is closed")

// open loads the library and opens the data folder, which is created when it is not there.
// A process can open one engine.
func open(library, dataDir string) (*engine, error) {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("load the ClickHouse engine: %w", err)
	}
	var (
		e              engine
		connect        func(argc int32, argv **byte) unsafe.Pointer
		signalHandlers func(enabled bool)
	)
	for name, function := range map[string]any{
		"chdb_query_n":                     &e.queryN,
		"chdb_destroy_query_result":        &e.destroyResult,
		"chdb_result_buffer":               &e.resultBuffer,
		"chdb_result_length":               &e.resultLength,
		"chdb_result_error":                &e.resultError,
		"chdb_close_conn":                  &e.closeConn,
		"chdb_connect":                     &connect,
		"chdb_set_signal_handlers_enabled": &signalHandlers,
	} {
		symbol, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", name, err)
		}
		purego.RegisterFunc(function, symbol)
	}

	// Signals are the Go runtime's; the library's own handlers would take them away.
	signalHandlers(false)

	program, path := cString("chdb"), cString("--path="+dataDir)
	arguments := []*byte{&program[0], &path[0]}
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&program[0])
	pinned.Pin(&path[0])
	pinned.Pin(&arguments[0])
	e.connection = connect(int32(len(arguments)), &arguments[0])
	if e.connection == nil {
		return nil, fmt.Errorf("the ClickHouse engine cannot open %s", dataDir)
	}
	return &e, nil
}

func cString(s string) []byte { return append([]byte(s), 0) }

// session runs f while no other statement runs; f returns statements to run.
func (e *engine) session(f func(run func(statement []byte, format string) ([]byte, error)) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.connection == nil {
		return errClosed
	}
	return f(e.run)
}

// run hands the statement to the engine and returns a copy of its output in the format. The error
// has the engine's own text, which begins with "Code: N.".
func (e *engine) run(statement []byte, format string) ([]byte, error) {
	if len(statement) == 0 {
		return nil, nil
	}
	formatName := []byte(format)
	connection := *(*uintptr)(e.connection)
	result := e.queryN(connection, &statement[0], uintptr(len(statement)), &formatName[0], uintptr(len(formatName)))
	runtime.KeepAlive(statement)
	runtime.KeepAlive(formatName)
	if result == 0 {
		return nil, errors.New("the ClickHouse engine gave no result")
	}
	defer e.destroyResult(result)
	if text := e.resultError(result); text != "" {
		return nil, errors.New(text)
	}
	length := e.resultLength(result)
	if length == 0 {
		return nil, nil
	}
	return append([]byte(nil), unsafe.Slice((*byte)(e.resultBuffer(result)), length)...), nil
}

// close waits for the running statement and flushes the engine.
func (e *engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.connection != nil {
		e.closeConn(e.connection)
		e.connection = nil
	}
}
