//go:build linux

package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I7, I8: while Weir is halted, clients that give up and post the same again
// and again do not fill its memory; it refuses requests above its limit. The budget
// for bodies, which follows from the largest one, is small beside the total posted:
// after a pause of the machine it is used up at once, in either half of the test.
func TestPostsWhileHalted(t *testing.T) {
	const posts = 900
	onSmallDisk(t, 128<<20, func(t *testing.T, disk smallDisk) {
		p := harness.NewProject(t, map[string]string{
			"weir.yaml": fmt.Sprintf(`
data_dir: %q
sources:
  events: {http: {}, entity: id, event_id: event, strip: [event]}
api: {listen: "127.0.0.1:0", max_body: 2MiB}
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
`, disk.dir+"/data"),
			"customers/acme.yaml": "customer: acme\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver: {out: {file: {path: ../out/acme.jsonl}}}\n",
		})
		run := p.Start("run")
		url := "http://" + run.Address("ingest") + "/v1/sources/events/events"
		event := []byte(large(1, "L", 1<<20))
		post := func(patience time.Duration) (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(event))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0, err
			}
			return resp.StatusCode, resp.Body.Close()
		}
		status, err := post(harness.Patience)
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, status)
		disk.leave(0)
		event = []byte(large(2, "M", 1<<20))
		harness.Eventually(t, "it halts", func() error {
			_, _ = post(time.Second) // that the disk is full shows when something is written
			status, why := run.Get("/readyz")
			return errors.Join(harness.Want(status, 503), harness.Want(strings.Contains(why, "disk is full"), true))
		})
		var half int64
		for n := range posts {
			if status, err := post(20 * time.Millisecond); err == nil {
				require.Equal(t, http.StatusServiceUnavailable, status, "taken although halted")
			}
			if n == posts/2 {
				half = run.Memory("VmHWM")
			}
		}
		most := run.Memory("VmHWM")
		t.Logf("peak of resident memory: %d MiB after %d posts of 1 MiB, %d MiB after %d", half>>20, posts/2, most>>20, posts)
		require.LessOrEqual(t, most, half+half/4+128<<20, "memory grows with the posts")
		disk.clear()
		run.Ready(200)
		for _, event = range [][]byte{event, []byte(harness.Event(3, "after", "all"))} {
			harness.Eventually(t, "posts are taken again", func() error {
				status, err := post(harness.Patience)
				return errors.Join(err, harness.Want(status, http.StatusAccepted))
			})
		}
		harness.Eventually(t, "the changes", func() error {
			got := p.Whole("out/acme.jsonl")
			return errors.Join(harness.Want(fmt.Sprint(harness.States(got, "L")), "[1]"),
				harness.Want(fmt.Sprint(harness.States(got, "M")), "[2]"), harness.Want(fmt.Sprint(harness.States(got, "after")), "[all]"))
		})
		run.Terminate()
		run.Ok()
	})
}
