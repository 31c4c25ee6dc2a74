package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestValidateResolves(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "weir.yaml")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("weir.yaml", "sources: {lab: {file: {path: lab.jsonl}, entity: id}}\ncustomers: [acme.yaml]\ndata_dir: \"${OUT}\"\n")
	write("acme.yaml", "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {out: {file: {path: out.jsonl}}}}}\n")
	status, out, errs := call(t, "validate", "-c", main)
	require.Equal(t, exitOK, status, errs)
	require.Contains(t, out, "1 source, 1 customer, 1 projection, 1 service\n")
	status, _, errs = call(t, "validate", "-c", main, "--resolve")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "environment variable OUT is not set")

	write("acme.yaml", "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {out: {file: {path: out.jsonl}}}}}\n")
	status, out, errs = call(t, "validate", "-c", main, "--resolve")
	require.Equal(t, exitFailed, status)
	require.Contains(t, out, "source lab: open "+filepath.Join(dir, "lab.jsonl")+": no such file or directory\nacme/p@out: ok\n")
	require.Equal(t, "error: 1 thing is not usable\n", errs)
	write("lab.jsonl", "")
	status, out, errs = call(t, "validate", "-c", main, "--resolve", "--json")
	require.Equal(t, exitOK, status, errs)
	require.Contains(t, out, `"what": "source lab"`)
}

// What a user of Kafka may not do is said before something runs: what does not work is a
// fault, what promises less a warning.
func TestResolveAsksForRights(t *testing.T) {
	may := func(topic string, o kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: o, Allow: true}
	}
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "in", "feed"), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
		kfake.User("PLAIN", "weir", "secret", may("in", kmsg.ACLOperationDescribe), may("feed", kmsg.ACLOperationWrite), may("gone", kmsg.ACLOperationDescribe)))
	require.NoError(t, err)
	defer brokers.Close()
	dir := t.TempDir()
	cluster := `brokers: ["` + strings.Join(brokers.ListenAddrs(), `", "`) + `"], sasl: {mechanism: plain, username: weir, password: secret}, topic: `
	main := filepath.Join(dir, "weir.yaml")
	require.NoError(t, os.WriteFile(main, []byte("sources: {in: {kafka: {"+cluster+"in}, entity: id}}\ncustomers: [acme.yaml]\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "acme.yaml"), []byte("customer: acme\nprojections: {p: {fields: {id: id}, deliver: {feed: {kafka: {"+cluster+"feed}}, gone: {kafka: {"+cluster+"gone}}}}}\n"), 0o600))
	status, out, errs := call(t, "validate", "-c", main, "--resolve")
	require.Equal(t, exitFailed, status, errs)
	require.Contains(t, out, "source in: its user may not READ the topic in: nothing of it is taken in; kafka-acls.sh --add")
	require.Contains(t, out, "acme/p@feed: ok\n")
	require.Regexp(t, `(?m)^acme/p@gone: .*UNKNOWN_TOPIC_OR_PARTITION`, out, "nobody makes it")
	require.Contains(t, errs, "warning: acme/p@feed: its user may not READ the topic feed: after a take-over")
	require.Contains(t, errs, "error: 2 things are not usable\n")
}
