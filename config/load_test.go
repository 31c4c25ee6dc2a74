package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks/file"
	"github.com/seed-86dfc502/weir/sinks/postgres"
	"github.com/seed-86dfc502/weir/sources/kafka"
	"github.com/seed-86dfc502/weir/sources/push"
)

const smallMain = `
sources:
  registry: {http: {}, entity: id}
  lab: {kafka: {brokers: ["127.0.0.1:9092"], topic: lab}, entity: key, mount: lab}
customers: [acme.yaml]
`

const smallCustomer = `
customer: acme
projections:
  ripeness:
    fields: {banana_id: id}
    deliver:
      archive: {file: {path: out/acme.jsonl}}
      table: {postgres: {url: "postgres://db/x?sslmode=verify-full", table: t, columns: {banana_id: text}}}
`

func loadSmall(t *testing.T, extra string) *config.Config {
	t.Helper()
	path := write(t, map[string]string{"weir.yaml": smallMain + extra, "acme.yaml": smallCustomer})
	c, err := assemble.Load(path, env)
	require.NoError(t, err)
	return c
}

func TestDefaults(t *testing.T) {
	c := loadSmall(t, "")
	dir := filepath.Dir(c.File)

	require.Nil(t, c.Store.Postgres)
	require.Equal(t, filepath.Join(dir, "data/state.db"), c.Store.File)
	require.Nil(t, c.Gate.Valkey)
	require.Equal(t, 1_000_000, c.Gate.Memory.MaxEntries)
	require.Equal(t, 24*time.Hour, c.Gate.TTL.D())
	require.Empty(t, c.Kafka.Brokers)
	require.Equal(t, "weir.inbox", c.Kafka.Inbox.Topic)
	require.Equal(t, 8, c.Kafka.Inbox.Partitions)
	require.Equal(t, -1, c.Kafka.Replication)
	require.Equal(t, "registry", c.Sources.Find("registry").Input.(*push.Config).Path)
	require.Equal(t, "weir.source.lab", c.Sources.Find("lab").Input.(*kafka.Config).Group)
	require.Nil(t, c.Sources.Find("none"))
	require.True(t, c.Sources[1].Entity.Key)
	require.Equal(t, config.Size(8<<20), c.Limits.Change)
	require.Equal(t, "127.0.0.1:9600", c.Admin.Listen)
	require.Equal(t, []string{"acme"}, c.Customers)

	services := c.Services()
	require.Equal(t, "acme/ripeness@archive", services[0].Name)
	require.Equal(t, filepath.Join(dir, "out/acme.jsonl"), services[0].Delivery.Sink.(*file.Config).Path)
	require.Equal(t, 24*time.Hour, services[0].Delivery.Retry.For.D())
	require.True(t, services[1].Delivery.Sink.(*postgres.Config).Create)
	require.Equal(t, "banana_id", services[1].Delivery.Sink.(*postgres.Config).Columns[0].Path)
	require.Equal(t, config.Position{File: filepath.Join(dir, "acme.yaml"), Line: 7, Column: 7}, services[0].Delivery.Pos)
}

// An explicit zero must not get the default.
func TestUnsetIsNotZero(t *testing.T) {
	c := loadSmall(t, `
gate: {valkey: {address: "127.0.0.1:6379", prefix: ""}}
data_dir: ../data
admin: {listen: off}
`)
	require.Empty(t, c.Gate.Valkey.Prefix)
	require.True(t, c.Admin.Off())
	require.Equal(t, filepath.Join(filepath.Dir(filepath.Dir(c.File)), "data"), c.DataDir)
	require.True(t, loadSmall(t, `admin: {listen: ""}`).Admin.Off())
}

func TestReferences(t *testing.T) {
	path := write(t, map[string]string{
		"weir.yaml": smallMain + `
gate:
  valkey:
    address: "${VALKEY_HOST:-127.0.0.1}:6379"
    username: "a$b$$c$${SET}"
    password: "${file:secrets/password}"
    db: "${DB}"
kafka: {prefix: "${EMPTY:-ours}", inbox: {topic: "${SET}"}}
`,
		"acme.yaml":        smallCustomer,
		"secrets/password": "hunter2\n",
	})
	c, err := assemble.Load(path, func(name string) (string, bool) {
		if name == "DB" {
			return "3", true
		}
		return env(name)
	})
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:6379"}, c.Gate.Valkey.Address)
	require.Equal(t, "a$b$c${SET}", c.Gate.Valkey.Username)
	require.Equal(t, "hunter2", c.Gate.Valkey.Password.Reveal())
	require.Equal(t, 3, c.Gate.Valkey.DB)
	require.Equal(t, "ours", c.Kafka.Prefix)
	require.Equal(t, "value-from-environment", c.Kafka.Inbox.Topic)

	t.Run("unset ones can be allowed", func(t *testing.T) {
		path := write(t, map[string]string{
			"weir.yaml": smallMain + `
store: {postgres: {url: "${NOT_SET}", max_connections: "${NOT_SET}"}}
admin: {token: "${file:not-there}"}
kafka: {brokers: ["${NOT_SET}:9092"], tls: {ca: not-there.pem}}
`,
			"acme.yaml": smallCustomer,
		})
		_, err := assemble.Load(path, env)
		require.Error(t, err)
		c, err := assemble.Load(path, env, config.AllowUnsetEnv())
		require.NoError(t, err)
		require.Equal(t, 8, c.Store.Postgres.MaxConnections)
	})
}

// A reference within a constant is reported as any other, and nothing else is wrong
// for it.
func TestReferencesInConstants(t *testing.T) {
	path := write(t, map[string]string{"weir.yaml": smallMain, "acme.yaml": `
customer: acme
projections:
  p:
    fields: {a: {const: "${NOT_SET}"}, b: {path: b, default: ["${NOT_SET}"]}, c: {const: .inf}}
    deliver: {out: {file: {path: out.jsonl}}}
`})
	_, err := assemble.Load(path, env)
	var faults *config.Faults
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults.List, 3, err)
	for _, f := range faults.List {
		require.NotEmpty(t, f.Want+f.Fix, f)
	}
}

// A text is read as the file has it, or refused.
func TestNothingIsMisread(t *testing.T) {
	for text, want := range map[string]string{
		`"\x41\u00e9\U0001F600\\x4\""`: `"Aé😀\\x4\""`, `'\x4 x'`: `"\\x4 x"`, "'a\tb'": `"a\tb"`, "a\tb": `"a\tb"`, "\ta \t# c\td": `"a"`,
		"|\n          a\tb": `"a\tb\n"`, "a\n          b\tc": `"a b\tc"`, `"\x4 x"`: "", `"\U00110000"`: "", "\"a\\\n          \\x4 x\"": "",
	} {
		path := write(t, map[string]string{"weir.yaml": smallMain, "acme.yaml": `customer: acme
projections:
  p:
    fields:
      a:
        const: ` + text + `
      b: b
    deliver: {out: {file: {path: out.jsonl}}}
`})
		c, err := assemble.Load(path, env)
		if want == "" {
			require.ErrorContains(t, err, "acme.yaml:6:16: is not YAML: ", text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want, string(c.Projections[0].Fields[0].Const))
	}
}

// The mistake that this catches: a member whose name is not UTF-8 in every document.
func TestMountOfAVariableIsText(t *testing.T) {
	path := write(t, map[string]string{
		"weir.yaml": strings.Replace(smallMain, "mount: lab", `mount: "lab${PART}"`, 1), "acme.yaml": smallCustomer,
	})
	for part, want := range map[string]string{"": "", "oratory": "", "\xff": "has an empty part", ".": "has an empty part"} {
		_, err := assemble.Load(path, func(string) (string, bool) { return part, true })
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

func TestMissingMainFile(t *testing.T) {
	_, err := assemble.Load(filepath.Join(t.TempDir(), "weir.yaml"), env)
	var faults *config.Faults
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults.List, 1)
	require.Contains(t, err.Error(), "cannot be read")
}

func TestDurationsAndSizes(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "24h": 24 * time.Hour, "30d": 720 * time.Hour,
		"1d12h": 36 * time.Hour, "1h30m": 90 * time.Minute, "0s": 0, "1.5s": 1500 * time.Millisecond,
	} {
		var d config.Duration
		require.NoError(t, d.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, d.D(), text)
	}
	for _, text := range []string{"", "5", "1.5", "d", "-1d", "-1s", "+1s", "1d-1h", "1w", "s", "1d1d", "99999999999d", "200000000h", "106751d24h", "1 d", "0x1d"} {
		var d config.Duration
		require.Error(t, d.UnmarshalText([]byte(text)), text)
	}
	for text, want := range map[string]config.Size{"8MiB": 8 << 20, "64KB": 64000, "512B": 512, "1 GiB": 1 << 30, "0B": 0} {
		var s config.Size
		require.NoError(t, s.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, s, text)
	}
	for _, text := range []string{"", "8", "8M", "MiB", "-1B", "1.5GiB", "9999999999GiB", "8mib", "1e3B"} {
		var s config.Size
		require.Error(t, s.UnmarshalText([]byte(text)), text)
	}
	rapid.Check(t, func(t *rapid.T) {
		d := config.Duration(rapid.Int64Min(0).Draw(t, "duration"))
		var back config.Duration
		require.NoError(t, back.UnmarshalText([]byte(d.String())), d.String())
		require.Equal(t, d, back)
		s := config.Size(rapid.Int64Min(0).Draw(t, "size"))
		var again config.Size
		require.NoError(t, again.UnmarshalText([]byte(s.String())))
		require.Equal(t, s, again)
	})
}

func TestLocator(t *testing.T) {
	for text, want := range map[string]config.Locator{
		"banana.id":                {Path: "banana.id"},
		"header:ce_id":             {Header: "ce_id"},
		"key":                      {Key: true},
		`\key`:                     {Path: `\key`},
		`a\.b.c`:                   {Path: `a\.b.c`},
		`items.#(kind=="a.b").id`:  {Path: `items.#(kind=="a.b").id`},
		"items.@reverse.0.id":      {Path: "items.@reverse.0.id"},
		`{"a":x.y,"b":z}|@tostr`:   {Path: `{"a":x.y,"b":z}|@tostr`},
		`names.#(first%"(*").last`: {Path: `names.#(first%"(*").last`},
	} {
		var l config.Locator
		require.NoError(t, l.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, l)
		require.Equal(t, text, l.String())
	}
	for _, text := range []string{"", " ", ".a", "a.", "a..b", "a||b", "header:", `a\`, "a.#(b", "a)", "(a]", "@nosuch", "a.@nosuch:1", `#(a=="b)`} {
		var l config.Locator
		require.Error(t, l.UnmarshalText([]byte(text)), text)
	}
}

func TestIsDelete(t *testing.T) {
	s := loadSmall(t, "").Sources[0]
	for _, op := range []string{"delete", "DELETE", "d", "tombstone"} {
		require.True(t, s.IsDelete(op), op)
	}
	for _, op := range []string{"", "c", "upsert", "del"} {
		require.False(t, s.IsDelete(op), op)
	}
}

// A file that makes the parser work for minutes must be refused at once.
func TestDeepNesting(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("[", 100_000), strings.Repeat("{a: ", 100_000), strings.Repeat("- ", 100_000), strings.Repeat("? ", 100_000),
		"a:\n  b: [" + strings.Repeat("[", 64) + strings.Repeat("]", 65),
	} {
		_, err := assemble.Load(write(t, map[string]string{"weir.yaml": text}), env)
		require.ErrorContains(t, err, "exceeded max depth of 64")
	}
	_, err := assemble.Load(write(t, map[string]string{"weir.yaml": strings.Repeat("#", 1<<20+1)}), env)
	require.ErrorContains(t, err, "is too large")
}

// Editors of other systems end lines with CR LF and begin files with a mark.
func TestForeignEditors(t *testing.T) {
	path := write(t, map[string]string{
		"weir.yaml": "\ufeff" + strings.ReplaceAll(smallMain[1:], "\n", "\r\n"),
		"acme.yaml": strings.ReplaceAll(smallCustomer, "\n", "\r\n"),
	})
	c, err := assemble.Load(path, env)
	require.NoError(t, err)
	require.Equal(t, loadSmall(t, "").Fingerprint(), c.Fingerprint())
}

// A named pipe among the customers' files, and a file without an end, are faults and
// not waited for: a reload would block, and so would all after it.
func TestFilesWithoutAnEnd(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"is empty":     func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"is too large": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		main := write(t, map[string]string{"weir.yaml": smallMain})
		require.NoError(t, make(filepath.Join(filepath.Dir(main), "acme.yaml")))
		_, err := assemble.Load(main, env)
		require.ErrorContains(t, err, name)
	}
}

// loadAny loads a main and a customer's file and checks that for any
// content the answer is a configuration or faults with places in the files.
func loadAny(t require.TestingT, dir string, main, customer []byte) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, "weir.yaml"), main, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "acme.yaml"), customer, 0o644))
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), env)
	if err == nil {
		require.NotNil(t, c)
		_ = c.Fingerprint()
		_ = c.Services()
		return
	}
	var faults *config.Faults
	require.ErrorAs(t, err, &faults)
	require.NotEmpty(t, faults.List)
	for _, f := range faults.List {
		require.NotEmpty(t, f.File)
		require.NotEmpty(t, f.Problem)
		require.GreaterOrEqual(t, f.Line, 0)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(smallMain), []byte(smallCustomer))
	f.Add([]byte(mainFile), []byte(acmeFile))
	f.Add([]byte("a: &a [*a]\n? [x]: y\n--- |\n..."), []byte("customer: {}\nprojections: [[[[]]]]"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, main, customer []byte) {
		loadAny(t, dir, main, customer)
	})
}

// Files that are nearly right reach further than random bytes.
func TestDamagedFilesNeverPanic(t *testing.T) {
	everything, err := os.ReadFile("testdata/faults/everything/weir.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		damage := func(name, text string) []byte {
			data := []byte(text)
			for range rapid.IntRange(0, 4).Draw(t, name) {
				at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
				with := rapid.SampledFrom([]string{"", ":", "\n", "{", "}", "[", "]", "\"", "${", "&a ", "*a ", "!!int ", "null", "- ", "  ", "|\n", "0", "ä", "\x00", "#", "<<: "}).Draw(t, "with")
				end := min(len(data), at+rapid.IntRange(0, 20).Draw(t, "length"))
				data = append(append(append([]byte{}, data[:at]...), with...), data[end:]...)
				if len(data) == 0 {
					data = []byte(" ")
				}
			}
			return data
		}
		main := rapid.SampledFrom([]string{smallMain, mainFile, string(everything)}).Draw(t, "main")
		customer := rapid.SampledFrom([]string{smallCustomer, acmeFile}).Draw(t, "customer")
		loadAny(t, dir, damage("main damage", main), damage("customer damage", customer))
	})
}
