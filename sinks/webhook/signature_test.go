package webhook

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/tests/vectors"
)

func TestEveryAttemptIsSignedAnew(t *testing.T) {
	var stamps []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		stamps = append(stamps, r.Header.Get("webhook-timestamp")+" "+r.Header.Get("webhook-signature"))
	})
	s := newSink(t, Options{URL: url, Secrets: []string{secret}})
	for _, seconds := range []int64{1_700_000_000, 1_700_000_001} {
		s.now = func() time.Time { return time.Unix(seconds, 0) }
		require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1)}))
	}
	require.Len(t, stamps, 2)
	require.True(t, strings.HasPrefix(stamps[0], "1700000000 v1,"))
	require.True(t, strings.HasPrefix(stamps[1], "1700000001 v1,"))
	require.NotEqual(t, stamps[0][11:], stamps[1][11:])
}

// Standard Webhooks: HMAC-SHA256 of "id.timestamp.payload" under the bytes that
// base64 behind whsec_ encodes. The signatures were computed with another
// implementation (hmac and hashlib of Python); the keys are of these rows alone.
func TestStandardWebhooks(t *testing.T) {
	for _, v := range []struct {
		what, secret, id string
		seconds          int64
		payload, want    string
	}{
		{"24 bytes of key, the fewest", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg_banana", 1700000000, `{"banana":"B-007","ripeness_level":3}`, "v1,8gGqUK+sIcpbO0zv0ZyCY5NCFw8jjgld7K5ynm72EKk="},
		{"64 bytes of key, the most", "whsec_QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl9gYWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+fw==", "msg_banana", 1700000000, `{"banana":"B-007","ripeness_level":3}`, "v1,GmhkdtVd5GgjqJUaRQvLZC9caWu2/lDFLLYZfCsEgyY="},
		{"a key without the prefix", "ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg_banana", 1700000000, `{"banana":"B-007","ripeness_level":3}`, "v1,8gGqUK+sIcpbO0zv0ZyCY5NCFw8jjgld7K5ynm72EKk="},
		{"a key whose base64 ends in =", "whsec_nhvU5YvcJ8uav0xViyGWOj8/trCMcV6OK7bHlRYplLw=", "msg_banana", 1700000000, `{"banana":"B-007","ripeness_level":3}`, "v1,rt8DVCEytmUJQhSrwtVrNL033Ab6qsBGoD6OlcF0Mf4="},
		{"the same without its =", "whsec_nhvU5YvcJ8uav0xViyGWOj8/trCMcV6OK7bHlRYplLw", "msg_banana", 1700000000, `{"banana":"B-007","ripeness_level":3}`, "v1,rt8DVCEytmUJQhSrwtVrNL033Ab6qsBGoD6OlcF0Mf4="},
		{"another id", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg_banana.", 1700000000, `{"banana":"B-007","ripeness_level":3}`, "v1,1Q+/wHbHVhROBYxD8flfC455ZCzLAfoJQdaKsgDGOlA="},
		{"another second", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg_banana", 1700000001, `{"banana":"B-007","ripeness_level":3}`, "v1,GTVDAHCyC39HTB3l2TYaI1xAulPwLH5JkP0Cm7OoNDg="},
		{"another white space in the payload", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg_banana", 1700000000, `{"banana": "B-007","ripeness_level":3}`, "v1,z0Vj45k4W5aj+tk2KH0Xj3O2DcjqHz+oJgMfpLqUWtY="},
		{"an id with full stops", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg.banana.1", 1700000000, `{"banana":"B-007","ripeness_level":3}`, "v1,uOEZYu2LUWQZ7/WbybydhyGUeWXKDnDkY7tzfDDY7GY="},
		{"an empty payload", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg_banana", 1700000000, ``, "v1,tW/I1mqdBF6ukIzDQvniyt2Di8SB1SdiQCw8HAt7aNA="},
		{"a payload that is not ASCII", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg_banana", 1700000000, `{"name":"Bäckerei 🍌"}`, "v1,JC+vE85cUKMittU1OAk9O1EmzCDL9dYfFaGXRSjBOB0="},
		{"the first second of the clock", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7", "msg_banana", 0, `{"banana":"B-007","ripeness_level":3}`, "v1,vYiii4Rppq6Myuo1eCB/423CQaHh4HDUsHUYjxqSJ9c="},
	} {
		t.Run(v.what, func(t *testing.T) {
			signer, err := newSigner(v.secret)
			require.NoError(t, err)
			signature, err := signer.Sign(v.id, time.Unix(v.seconds, 0), []byte(v.payload))
			require.NoError(t, err)
			require.Equal(t, v.want, signature)
		})
	}
	for _, refused := range []string{"", "whsec_", "whsec_=", "whsec_%", "whsec_a", "whsec_a b="} {
		_, err := New(Options{URL: "http://localhost", Secrets: []string{secret, refused}})
		require.ErrorContains(t, err, "secrets[1]", "%q", refused)
	}
}

// The published and computed vectors of Standard Webhooks.
func TestPublishedVectors(t *testing.T) {
	raw, err := os.ReadFile(vectors.Published(t, "webhooks/vectors.json")[0])
	require.NoError(t, err)
	var published struct {
		Refused []string `json:"refused_secrets"`
		Sign    []struct {
			Name, Secret, ID, Payload, Signature string
			Timestamp                            int64
		}
	}
	require.NoError(t, json.Unmarshal(raw, &published))
	require.NotEmpty(t, published.Refused)
	require.NotEmpty(t, published.Sign)
	for _, refused := range published.Refused {
		_, err := New(Options{URL: "http://localhost", Secrets: []string{secret, refused}})
		require.ErrorContains(t, err, "secrets[1]")
	}
	for _, v := range published.Sign {
		t.Run(v.Name, func(t *testing.T) {
			signer, err := newSigner(v.Secret)
			require.NoError(t, err)
			signature, err := signer.Sign(v.ID, time.Unix(v.Timestamp, 0), []byte(v.Payload))
			require.NoError(t, err)
			require.Equal(t, v.Signature, signature)
		})
	}
}
