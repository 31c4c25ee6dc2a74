package docs

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/harness"
)

// Each receiver takes what Weir sends: it knows a forged request, a repetition and
// an older version, also after a kill.
func TestReceivers(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an interpreter for each language")
	}
	folder, err := filepath.Abs(filepath.Join(root, "examples", "receiver"))
	require.NoError(t, err)
	compiled := filepath.Join(t.TempDir(), "receiver")
	for language, start := range map[string][]string{
		"Python":     {"python3", filepath.Join(folder, "receiver.py")},
		"JavaScript": {"node", filepath.Join(folder, "receiver.mjs")},
		"Go":         {compiled},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if language == "Go" {
				build := exec.Command("go", "build", "-o", compiled, ".")
				build.Dir = filepath.Join(folder, "go")
				out, err := build.CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			testReceiver(t, start)
		})
	}
}

func testReceiver(t *testing.T, start []string) {
	t.Helper()
	secret := []byte("a secret of twenty-four bytes or more")
	r := receiver{t: t, address: harness.FreeAddress(t), key: secret}
	_, port, err := net.SplitHostPort(r.address)
	require.NoError(t, err)
	env := []string{"HOOK_SECRET=whsec_" + base64.StdEncoding.EncodeToString(secret), "PORT=" + port,
		"DATABASE=" + filepath.Join(t.TempDir(), "bananas"), "HOOK_URL=http://" + r.address + "/"}
	kill := r.start(start, env)

	dir := t.TempDir()
	for name, text := range map[string]string{
		"weir.yaml":    "sources: {registry: {file: {path: events.jsonl}, entity: id}}\ncustomers: [acme.yaml]\ncustomers_env: [\"HOOK_*\"]\nadmin: {listen: \"off\"}\n",
		"acme.yaml":    "customer: acme\nprojections:\n  all:\n    fields: {ripeness: ripeness}\n    deliver: {hook: {webhook: {url: \"${HOOK_URL}\", secret: \"${HOOK_SECRET}\"}}}\n",
		"events.jsonl": `{"id":"B-007","ripeness":2}` + "\n" + `{"id":"B-007","ripeness":3}` + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	out, ok := shellIn(t, dir, env, "weir run -c weir.yaml --until-idle")
	require.True(t, ok, out)
	r.holds("B-007", `{"ripeness":3}`)

	// Two versions that a double does not tell apart.
	const newest = 32<<48 + 1
	r.posts(newest-1, `{"ripeness":4}`, true)
	r.posts(newest, `{"ripeness":5}`, true)
	r.posts(newest, `{"ripeness":5}`, false)
	r.posts(newest-1, `{"ripeness":4}`, false)
	r.holds("B-007", `{"ripeness":5}`)
	r.posts(newest+1, "", true)
	r.posts(newest, `{"ripeness":5}`, false)
	r.holds("B-007", "")

	// Arrays, with an answer to each change.
	later := strings.ReplaceAll(r.body(newest+2, `{"ripeness":6}`), "B-007", "B-008")
	r.postsArray([]string{r.body(newest, `{"ripeness":5}`), later}, 200, map[string]int{fmt.Sprint("k", newest): 200, fmt.Sprint("k", newest+2): 200})
	r.holds("B-007", "")
	r.holds("B-008", `{"ripeness":6}`)
	r.postsArray([]string{strings.ReplaceAll(r.body(newest+3, "1"), "upsert", "paint"), strings.ReplaceAll(r.body(newest+4, ""), "B-007", "B-008")},
		207, map[string]int{fmt.Sprint("k", newest+3): 422, fmt.Sprint("k", newest+4): 200})
	r.holds("B-008", "")

	body := r.body(newest+9, `{"ripeness":9}`)
	stamp := time.Now().Unix()
	assert.Equal(t, 401, r.post(body, stamp, "v1,"+base64.StdEncoding.EncodeToString(make([]byte, 32))).status)
	assert.Equal(t, 401, r.post(body, stamp, "").status)
	assert.Equal(t, 401, r.post(strings.Replace(body, "9}", "8}", 1), stamp, r.sign(body, stamp)).status)
	assert.Equal(t, 401, r.post(body, stamp-3600, r.sign(body, stamp-3600)).status)
	assert.Equal(t, 401, r.post(body, stamp, r.sign(body, stamp-1)).status)
	r.holds("B-007", "")

	kill()
	r.start(start, env)
	r.posts(newest+1, "", false)
	got := r.post(body, stamp, "v1,bm8= "+r.sign(body, stamp))
	assert.Equal(t, 200, got.status)
	assert.Contains(t, got.body, `"applied":true`)
	r.holds("B-007", `{"ripeness":9}`)
}

type receiver struct {
	t       *testing.T
	address string
	key     []byte
}

type answer struct {
	status int
	body   string
}

// start starts the receiver and waits until it listens.
func (r receiver) start(command, env []string) (kill func()) {
	r.t.Helper()
	_, err := exec.LookPath(command[0])
	require.NoError(r.t, err, "make servers installs python3 and nodejs")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = environment(env)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(r.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	kill = func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		<-ended
	}
	r.t.Cleanup(kill)
	harness.Eventually(r.t, "the receiver listens", func() error {
		c, err := net.DialTimeout("tcp", r.address, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
	return kill
}

func (r receiver) body(version int64, doc string) string {
	if doc == "" {
		return fmt.Sprintf(`{"service":"acme/all@hook","entity":"B-007","op":"retract","version":%d,"key":"k%d"}`, version, version)
	}
	return fmt.Sprintf(`{"service":"acme/all@hook","entity":"B-007","op":"upsert","version":%d,"key":"k%d","doc":%s}`, version, version, doc)
}

func (r receiver) sign(body string, stamp int64) string {
	mac := hmac.New(sha256.New, r.key)
	fmt.Fprintf(mac, "key.%d.%s", stamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (r receiver) post(body string, stamp int64, signature string) answer {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.address+"/", strings.NewReader(body))
	require.NoError(r.t, err)
	request.Header.Set("webhook-id", "key")
	request.Header.Set("webhook-timestamp", fmt.Sprint(stamp))
	request.Header.Set("webhook-signature", signature)
	return r.do(request)
}

func (r receiver) do(request *http.Request) answer {
	r.t.Helper()
	response, err := http.DefaultClient.Do(request)
	require.NoError(r.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	return answer{response.StatusCode, string(text)}
}

// posts sends a change as Weir would; without a document, a retraction.
func (r receiver) posts(version int64, doc string, applied bool) {
	r.t.Helper()
	body, stamp := r.body(version, doc), time.Now().Unix()
	got := r.post(body, stamp, r.sign(body, stamp))
	assert.Equal(r.t, 200, got.status)
	assert.Contains(r.t, got.body, fmt.Sprintf(`"applied":%t`, applied))
}

// postsArray sends changes as one array, and compares the status of each by its key.
func (r receiver) postsArray(bodies []string, status int, want map[string]int) {
	r.t.Helper()
	body, stamp := "["+strings.Join(bodies, ",")+"]", time.Now().Unix()
	got := r.post(body, stamp, r.sign(body, stamp))
	assert.Equal(r.t, status, got.status)
	var results []struct {
		Key    string
		Status int
	}
	require.NoError(r.t, json.Unmarshal([]byte(got.body), &results), got.body)
	statuses := map[string]int{}
	for _, result := range results {
		statuses[result.Key] = result.Status
	}
	assert.Equal(r.t, want, statuses)
}

// holds asks for the receiver's content of an entity; "" is nothing.
func (r receiver) holds(entity, doc string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.address+"/"+entity, nil)
	require.NoError(r.t, err)
	got := r.do(request)
	if doc == "" {
		assert.Equal(r.t, 404, got.status)
		return
	}
	assert.Equal(r.t, 200, got.status)
	assert.JSONEq(r.t, doc, got.body)
}
