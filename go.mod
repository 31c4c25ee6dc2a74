module github.com/seed-86dfc502/weir

go 1.26.0

toolchain go1.26.11

require (
	github.com/ClickHouse/ch-go v0.75.0 // ClickHouse's column types and wire protocol, whose parser decides which types can be written
	github.com/ClickHouse/clickhouse-go/v2 v2.51.0 // the ClickHouse sink's client
	github.com/IBM/sarama v1.61.1 // the configuration of watermill-kafka has its types
	github.com/KimMachineGun/automemlimit v1.0.1 // memory of the control group and of the machine, for the default memory limit
	github.com/ThreeDotsLabs/watermill v1.5.3 // routers and messages of all stages. Pinned: @latest is older
	github.com/ThreeDotsLabs/watermill-kafka/v3 v3.1.3 // sources with one message in flight per partition. Pinned: @latest is older
	github.com/agnivade/levenshtein v1.2.2 // the key probably meant, in faults
	github.com/anishathalye/porcupine v1.3.1 // tests alone: linearizability, properties
	github.com/aymanbagabas/go-udiff v0.4.1 // diffs of golden tests
	github.com/cenkalti/backoff/v5 v5.0.3 // waits between attempts, with jitter
	github.com/chromedp/cdproto v0.159.3 // tests alone: a browser
	github.com/chromedp/chromedp v0.23.0 // tests alone: a browser
	github.com/dustin/go-humanize v1.1.0 // sizes and counts in texts for people
	github.com/ebitengine/purego v0.11.3 // tests alone: ClickHouse and Kafka in process
	github.com/expr-lang/expr v1.17.8 // filters and computed fields: no statements, no side effects; operators can be replaced
	github.com/getkin/kin-openapi v0.153.0 // tests alone: OpenAPI and JSON schema checks
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // reads JSON with duplicate names and invalid UTF-8 refused
	github.com/gofrs/flock v0.13.2 // one process per data folder
	github.com/google/uuid v1.6.0 // ids that order by time
	github.com/invopop/jsonschema v0.14.0 // the schemas of the configuration, from its types
	github.com/jackc/pglogrepl v0.0.0-20251213150135-2e8d0df862c1 // PostgreSQL sources: replication commands and the messages of pgoutput; thin; forked if its upkeep ends
	github.com/jackc/pgx/v5 v5.13.0 // PostgreSQL: store, sinks, outbox sources
	github.com/klauspost/compress v1.20.4 // frames and imports: zstd and s2, faster than gzip
	github.com/modelcontextprotocol/go-sdk v1.8.0 // weir mcp: the read-only commands for assistants
	github.com/ncruces/go-sqlite3 v0.37.0 // SQLite without C, so the binary is static; its VFS is a Go interface
	github.com/pressly/goose/v3 v3.29.0 // migrations: plain SQL files, embedded, with a lock, for both stores
	github.com/prometheus/client_golang v1.25.0 // metrics; the last two read them back for status and the history
	github.com/prometheus/client_model v0.6.3 // reads metrics back for status and history
	github.com/prometheus/common v0.73.1 // reads metrics back for status and history
	github.com/prometheus/procfs v0.23.0 // tests alone: processor time and memory of servers in benchmarks
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // tests alone: OpenAPI and JSON schema checks
	github.com/spf13/cobra v1.10.2 // the command line
	github.com/spf13/pflag v1.0.10 // the command line. Pinned: 1.1 prints each flag without a value as --json[=true|false]
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1 // signatures of webhooks
	github.com/stretchr/testify v1.12.1 // tests alone: assertions, leaks
	github.com/tidwall/gjson v1.20.0 // paths with queries and modifiers. Pinned: newer versions change the values of some paths
	github.com/twmb/franz-go v1.22.3 // Kafka inside: many records in flight, offsets that the store decides, idempotent producer
	github.com/twmb/franz-go/pkg/kadm v1.20.0 // Kafka inside
	github.com/twmb/franz-go/pkg/kfake v0.0.0-20260918054303-01f206a7e32c // tests alone: ClickHouse and Kafka in process
	github.com/twmb/franz-go/pkg/kmsg v1.15.1 // Kafka inside
	github.com/valkey-io/valkey-go v1.0.79 // the gate; pipelines a batch of look-ups
	go.opentelemetry.io/otel v1.47.0 // traces; the protocol's messages are what tests read
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.47.0 // traces; the protocol's messages are what tests read
	go.opentelemetry.io/otel/sdk v1.47.0 // traces; the protocol's messages are what tests read
	go.opentelemetry.io/otel/trace v1.47.0 // traces; the protocol's messages are what tests read
	go.opentelemetry.io/proto/otlp v1.11.1 // traces; the protocol's messages are what tests read
	go.uber.org/goleak v1.3.0 // tests alone: assertions, leaks
	go.yaml.in/yaml/v4 v4.0.0 // YAML with line and column of every value, for faults
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d // certificate authorities for an image without any
	golang.org/x/net v0.62.0 // connections of a listener in bounds; HTTP/2 frames in tests
	golang.org/x/sync v0.25.0 // weighted semaphores, groups
	golang.org/x/sys v0.50.0 // file systems and terminals
	golang.org/x/term v0.48.0 // file systems and terminals
	golang.org/x/time v0.16.0 // rates
	google.golang.org/protobuf v1.36.12 // the messages of traces
	pgregory.net/rapid v1.3.0 // tests alone: linearizability, properties
)

require (
	github.com/andybalholm/brotli v1.3.0 // indirect
	github.com/bahlo/generic-list-go v0.2.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/buger/jsonparser v1.1.2 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/dnwe/otelsarama v0.0.0-20240308230250-9388d9d40bc0 // indirect
	github.com/eapache/go-resiliency v1.7.0 // indirect
	github.com/go-chi/chi/v5 v5.2.5 // indirect
	github.com/go-faster/city v1.0.1 // indirect
	github.com/go-faster/errors v0.8.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v1.0.1 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.31.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/hashicorp/go-uuid v1.0.3 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgio v1.0.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jcmturner/aescts/v2 v2.0.0 // indirect
	github.com/jcmturner/dnsutils/v2 v2.0.0 // indirect
	github.com/jcmturner/gofork v1.7.6 // indirect
	github.com/jcmturner/gokrb5/v8 v8.4.4 // indirect
	github.com/jcmturner/rpc/v2 v2.0.3 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/ncruces/go-sqlite3-wasm/v6 v6.5.35401 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pandatix/go-abnf v0.5.3 // indirect
	github.com/paulmach/orb v0.14.0 // indirect
	github.com/pb33f/ordered-map/v2 v2.3.1 // indirect
	github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/rcrowley/go-metrics v0.0.0-20250401214520-65e299d6c5c9 // indirect
	github.com/segmentio/asm v1.2.1 // indirect
	github.com/segmentio/encoding v0.5.4 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/shopspring/decimal v1.6.0 // indirect
	github.com/sony/gobreaker v1.0.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.0 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/grpc v1.85.0 // indirect
)
