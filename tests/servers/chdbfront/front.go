package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"
)

// helloQuery is what clickhouse-go asks first on a connection. It reads the answer at helloRevision
// and everything later at the revision that the answer names: 0 makes all of it plain Native, which
// the format of the engine.
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

	// nativeInsert is a statement whose rows come in the body, as clickhouse-go writes it: up to the
	// column list, then settings.
	nativeInsert = regexp.MustCompile(`(?is)^\s*(INSERT\s+INTO\s.+?)(\s+SETTINGS\s+\w+\s*=.+?)?\s+FORMAT\s+Native\s*$`)
)

// front answers ClickHouse's HTTP interface from an engine. It may serve requests concurrently; the
// engine takes one at a time.
type front struct {
	engine  *engine
	inserts string // an existing folder for the rows of inserts, one file each while it runs
}

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
	// An error here is a client that has left; there is no one to tell.
	_, _ = w.Write(output)
}

func (f *front) answer(r *http.Request) ([]byte, error) {
	parameters := r.URL.Query()
	statement, done, err := f.statementOf(r, parameters)
	if err != nil {
		return nil, err
	}
	defer done()
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
		// There is one session for all requests: the settings of each are reset after it.
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

// statementOf returns the engine's statement for a request. The caller calls done after that.
func (f *front) statementOf(r *http.Request, parameters url.Values) (statement []byte, done func(), err error) {
	body, err := bodyOf(r, parameters)
	if err != nil {
		return nil, nil, fmt.Errorf("read the body: %w", err)
	}
	query := parameters.Get("query")
	if insert := nativeInsert.FindStringSubmatch(query); insert != nil {
		return f.insertFromFile(insert[1], insert[2], body)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, nil, fmt.Errorf("read the body: %w", err)
	}
	if query != "" {
		data = append([]byte(query+"\n"), data...)
	}
	return data, func() {}, nil
}

// insertFromFile puts the rows into a file for the engine to read. In the text of a statement it
// takes an empty line for the end of the rows, and Native data may hold the bytes of one.
func (f *front) insertFromFile(into, settings string, rows io.Reader) (statement []byte, done func(), err error) {
	file, err := os.CreateTemp(f.inserts, "*.native")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.Remove(file.Name()) } // what stays goes at the next start
	_, err = io.Copy(file, rows)
	if err := errors.Join(err, file.Close()); err != nil {
		done()
		return nil, nil, fmt.Errorf("keep the rows of an insert: %w", err)
	}
	return fmt.Appendf(nil, "%s FROM INFILE '%s' COMPRESSION 'none'%s FORMAT Native",
		into, inText.Replace(file.Name()), settings), done, nil
}

// bodyOf returns the body without the compression that the request names.
func bodyOf(r *http.Request, parameters url.Values) (io.Reader, error) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	if parameters.Get("decompress") == "1" {
		body = blocks{compress.NewReader(body)}
	}
	return body, nil
}

// blocks reads ClickHouse's own framing of compressed blocks, whose reader wraps the end of the
// file.
type blocks struct{ reader *compress.Reader }

func (b blocks) Read(into []byte) (int, error) {
	n, err := b.reader.Read(into)
	if errors.Is(err, io.EOF) {
		err = io.EOF
	}
	return n, err
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
