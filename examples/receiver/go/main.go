// examples/receiver/go/main.go: takes webhooks of Weir into a table, with the standard library and SQLite.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
)

const tolerance = 5 * time.Minute // that the sender's clock may be off

type change struct {
	Service, Entity, Op, Key string
	Version                  int64
	Doc                      json.RawMessage
}

type result struct {
	Key     string `json:"key"`
	Status  int    `json:"status"`
	Applied bool   `json:"applied"`
}

type receiver struct {
	db     *sql.DB
	secret []byte
}

// isGenuine verifies: the signature covers the id, the time and the exact bytes of the body.
func (r receiver) isGenuine(h http.Header, body []byte) bool {
	seconds, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	mac := hmac.New(sha256.New, r.secret)
	fmt.Fprintf(mac, "%s.%d.%s", h.Get("webhook-id"), seconds, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return slices.ContainsFunc(strings.Fields(h.Get("webhook-signature")), func(given string) bool { // two while a secret is rotated
		return hmac.Equal([]byte(given), []byte(want))
	})
}

// apply deduplicates and orders: one statement, which a known or an older version does not pass.
func apply(ctx context.Context, tx *sql.Tx, c change) (result, error) {
	if c.Op != "upsert" && c.Op != "retract" {
		return result{c.Key, http.StatusUnprocessableEntity, false}, nil
	}
	var doc any // a retraction keeps its row, without a document
	if c.Op == "upsert" {
		doc = string(c.Doc)
	}
	outcome, err := tx.ExecContext(ctx, `INSERT INTO bananas VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET version = excluded.version, doc = excluded.doc
		WHERE excluded.version > version`, c.Service, c.Entity, c.Version, doc)
	if err != nil {
		return result{}, err
	}
	rows, err := outcome.RowsAffected()
	return result{c.Key, http.StatusOK, rows > 0}, err
}

// applyAll applies changes in one transaction. Status is 207 if some are refused.
func (r receiver) applyAll(ctx context.Context, changes []change) (results []result, status int, err error) {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	status = http.StatusOK
	for _, c := range changes {
		one, err := apply(ctx, tx, c)
		if err != nil {
			return nil, 0, err
		}
		if results = append(results, one); one.Status != results[0].Status {
			status = http.StatusMultiStatus
		}
	}
	return results, status, tx.Commit()
}

func (r receiver) post(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	if !r.isGenuine(request.Header, body) {
		http.Error(w, `{"error":"wrong signature"}`, http.StatusUnauthorized)
		return
	}
	var changes []change // with webhook.batch
	batched := bytes.HasPrefix(body, []byte("["))
	if !batched {
		body = slices.Concat([]byte("["), body, []byte("]"))
	}
	if err := json.Unmarshal(body, &changes); err != nil || len(changes) == 0 {
		http.Error(w, `{"error":"no change"}`, http.StatusBadRequest)
		return
	}
	results, status, err := r.applyAll(request.Context(), changes)
	if err != nil {
		http.Error(w, `{"error":"not now"}`, http.StatusServiceUnavailable) // Weir retries
		return
	}
	var answer any = results
	if !batched {
		answer, status = results[0], results[0].Status
	}
	w.WriteHeader(status) // 2xx only after the commit
	_ = json.NewEncoder(w).Encode(answer)
}

func (r receiver) get(w http.ResponseWriter, request *http.Request) {
	var doc sql.NullString
	err := r.db.QueryRowContext(request.Context(), "SELECT doc FROM bananas WHERE entity = ?", request.PathValue("entity")).Scan(&doc)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && !doc.Valid:
		http.Error(w, "{}", http.StatusNotFound)
	case err != nil:
		http.Error(w, "{}", http.StatusInternalServerError)
	default:
		fmt.Fprint(w, doc.String)
	}
}

func main() {
	secret, err := base64.RawStdEncoding.DecodeString(strings.Trim(strings.TrimPrefix(os.Getenv("HOOK_SECRET"), "whsec_"), "="))
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite3", cmp.Or(os.Getenv("DATABASE"), "bananas.db")+"?_pragma=busy_timeout(30000)&_pragma=synchronous(full)")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(context.Background(), `CREATE TABLE IF NOT EXISTS bananas (
		service TEXT, entity TEXT, version INTEGER NOT NULL, doc TEXT, PRIMARY KEY (service, entity))`); err != nil {
		log.Fatal(err)
	}
	r := receiver{db, secret}
	http.HandleFunc("POST /", r.post)
	http.HandleFunc("GET /{entity}", r.get)
	server := http.Server{Addr: "127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "8700"), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
