package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"
)

// helloQuery is what clickhouse-go asks first on a connection. It reads the answer at helloRevision
// and everything later at the revision that the answer names: 0 makes all of it plain Native, which
// is what the engine writes.
const (
	helloQuery    = "SELECT displayName(), version(), revision(), timezone()"
	helloRevision = 54460
)

// notSettings are the URL parameters of ClickHouse's HTTP interface that are no settings of a query.
var notSettings = map[string]bool{
	"query": true, "database": true, "default_format": true, "client_protocol_version": true,
	"query_id": true, "quota_key": true, "compress": true, "decompress": true, "user": true,
	"password": true, "session_id": true, "session_timeout": true, "session_check": true, "role": true,
	"buffer_size": true, "wait_end_of_query": true, "stacktrace": true,
}

var (
	settingName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	exceptionCode = regexp.MustCompile(`Code:\s*(\d+)\.`)
	inText        = strings.NewReplacer(`\`, `\\`, `'`, `\'`)
)

// front answers ClickHouse's HTTP interface from an engine. It may serve requests concurrently; the
// engine takes one at a time.
type front struct{ engine *engine }

// ServeHTTP runs the statement of the request: its query parameter, then its body. A failure is
// answered with status 500, the engine's text and, where the text has one, its code in
// X-ClickHouse-Exception-Code.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ping" {
		fmt.Fprintln(w, "Ok.")
		return
	}
	output, err := f.answer(r)
	if err != nil {
		if code := exceptionCode.FindStringSubmatch(err.Error()); code != nil {
			w.Header().Set("X-ClickHouse-Exception-Code", code[1])
		}
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.URL.Query().Get("compress") == "1" {
		output, err = compressed(output)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(output)))
	// An error here is a client that has left; there is nobody to tell.
	_, _ = w.Write(output)
}

func (f *front) answer(r *http.Request) ([]byte, error) {
	parameters := r.URL.Query()
	statement, err := statementOf(r, parameters)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(statement[:min(len(statement), 2*len(helloQuery))])) == helloQuery {
		return f.hello()
	}
	format := parameters.Get("default_format")
	if format == "" {
		format = "TabSeparated"
	}

	var output []byte
	err = f.engine.session(func(run func([]byte, string) ([]byte, error)) error {
		database := parameters.Get("database")
		if database == "" {
			database = "default"
		}
		if _, err := run(fmt.Appendf(nil, "USE %s", quoteName(database)), "Null"); err != nil {
			return err
		}
		// There is one session for everybody: what a request sets is taken back after it.
		for name := range parameters {
			if notSettings[name] || !settingName.MatchString(name) {
				continue
			}
			set := fmt.Appendf(nil, "SET %s = '%s'", name, inText.Replace(parameters.Get(name)))
			if _, err := run(set, "Null"); err == nil && !strings.HasPrefix(name, "param_") {
				defer func() { _, _ = run(fmt.Appendf(nil, "SET %s = DEFAULT", name), "Null") }()
			}
		}
		var err error
		output, err = run(statement, format)
		return err
	})
	return output, err
}

func statementOf(r *http.Request, parameters url.Values) ([]byte, error) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fmt.Errorf("read the body: %w", err)
		}
		body = unzipped
	}
	if parameters.Get("decompress") == "1" {
		body = compress.NewReader(body)
	}
	data, err := io.ReadAll(body)
	// The reader of compressed blocks wraps the end of the file.
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	query := parameters.Get("query")
	if query == "" {
		return data, nil
	}
	return append([]byte(query+"\n"), data...), nil
}

func quoteName(name string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"
}

// hello answers helloQuery.
func (f *front) hello() ([]byte, error) {
	var version []byte
	err := f.engine.session(func(run func([]byte, string) ([]byte, error)) (err error) {
		version, err = run([]byte("SELECT version()"), "TabSeparated")
		return err
	})
	if err != nil {
		return nil, err
	}
	var displayName, versionText, timezone proto.ColStr
	var revision proto.ColUInt32
	displayName.Append("chdb")
	versionText.Append(string(bytes.TrimSpace(version)))
	revision.Append(0)
	timezone.Append("UTC")

	block := proto.Block{Info: proto.BlockInfo{BucketNum: -1}, Columns: 4, Rows: 1}
	var output proto.Buffer
	block.Info.Encode(&output)
	err = block.EncodeRawBlock(&output, helloRevision, []proto.InputColumn{
		{Name: "displayName()", Data: &displayName},
		{Name: "version()", Data: &versionText},
		{Name: "revision()", Data: &revision},
		{Name: "timezone()", Data: &timezone},
	})
	return output.Buf, err
}

// compressed writes data in ClickHouse's own framing of LZ4 blocks.
func compressed(data []byte) ([]byte, error) {
	const blockSize = 1 << 20
	var output []byte
	writer := compress.NewWriter(compress.LevelZero, compress.LZ4)
	for len(data) > 0 {
		size := min(len(data), blockSize)
		if err := writer.Compress(data[:size]); err != nil {
			return nil, err
		}
		output = append(output, writer.Data...)
		data = data[size:]
	}
	return output, nil
}
