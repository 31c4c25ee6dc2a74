package clickhouse

import (
	"encoding/json"
	"math/big"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/config"
)

// fits converts and tries a value as Write does.
func fits(t require.TestingT, typeName, literal string) (any, error) {
	s := &Sink{options: Options{Columns: config.Columns{{Name: "c", Path: "c", Type: typeName}}}}
	convert, err := newConverter(typeName)
	require.NoError(t, err)
	s.converters = []converter{convert}
	trial, err := column.Type(canonicalType(typeName)).Column("c", &column.ServerContext{Timezone: time.UTC})
	require.NoError(t, err)
	values, err := s.convert([]byte(`{"c":`+literal+`}`), []column.Interface{trial})
	return values[0], err
}

func TestConvertTakes(t *testing.T) {
	leap := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		typeName, literal string
		want              any
	}{
		{"String", `"a\u0000\n"`, "a\x00\n"},
		{"String", `{"k": [1]}`, `{"k": [1]}`},
		{"String", `1.50`, "1.50"},
		{"LowCardinality(Nullable(String))", `null`, nil},
		{"Bool", `true`, true},
		{"UInt8", `true`, uint8(1)},
		{"UInt8", `255`, uint8(255)},
		{"Int8", `-128`, int8(-128)},
		{"Int64", `"-9223372036854775808"`, int64(-1 << 63)},
		{"UInt64", `18446744073709551615`, uint64(1<<64 - 1)},
		{"Int128", `-170141183460469231731687303715884105728`, new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 127))},
		{"Float64", `1e3`, 1000.0},
		{"Float32", `0.5`, float32(0.5)},
		{"Decimal(9, 2)", `1.50`, "1.50"},
		{"Decimal64(3)", `"-12e-1"`, "-1.200"},
		{"Decimal(5, 2)", `-999.990`, "-999.99"},
		{"Date", `"2024-02-29"`, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"DateTime", `"2024-02-29T13:00:00+01:00"`, leap},
		{"DateTime('UTC')", `"2024-02-29 12:00:00"`, leap},
		{"DateTime64(3)", `1709208000.25`, leap.Add(250 * time.Millisecond)},
		{"UUID", `"61f0c404-5cb3-11e7-907b-a6006ad3dba0"`, "61f0c404-5cb3-11e7-907b-a6006ad3dba0"},
		{"IPv4", `"127.0.0.1"`, "127.0.0.1"},
		{"Enum8('green' = 1, 'a b' = 2)", `"green"`, "green"},
		{"Enum8('green' = 1, 'a b' = 2)", `"a b"`, "a b"},
		{"Nullable(Enum16('it\\'s  red (' = 300))", `"it's  red ("`, "it's  red ("},
		{"Nullable(Int32)", `null`, nil},
		{"Array(Nullable(Int32))", `[1,null]`, []any{int32(1), nil}},
		{"Array(String)", `[]`, []any{}},
		{"Array(Array(UInt8))", `[[1],[]]`, []any{[]any{uint8(1)}, []any{}}},
	} {
		got, err := fits(t, tc.typeName, tc.literal)
		require.NoError(t, err, "%s %s", tc.typeName, tc.literal)
		require.Equal(t, tc.want, got, "%s %s", tc.typeName, tc.literal)
	}
}

func TestConvertRefuses(t *testing.T) {
	for _, tc := range [][2]string{
		{"String", `null`}, {"Bool", `1`}, {"Bool", `"true"`},
		{"UInt8", `256`}, {"UInt8", `-1`}, {"Int8", `128`}, {"Int8", `-129`}, {"Int16", `true`},
		{"Int64", `9223372036854775808`}, {"Int64", `1.0`}, {"Int64", `1e3`}, {"Int64", `""`}, {"Int64", `[1]`}, {"UInt64", `-1`},
		{"Float64", `1e400`}, {"Float32", `1e39`}, {"Float64", `"x"`},
		{"Decimal(9, 2)", `1.501`}, {"Decimal(9, 2)", `12345678901`}, {"Decimal(9, 2)", `1e999999999`}, {"Decimal(9, 2)", `"1/2"`},
		{"Decimal(9, 2)", `10000000`}, {"Decimal(5, 2)", `-1000.00`}, {"Decimal(3, 3)", `1`}, {"Decimal64(2)", `"10000000000000000"`},
		{"Date", `"2024-02-30"`}, {"Date", `"1960-01-01"`}, {"DateTime", `"1960-01-01T00:00:00Z"`}, {"DateTime64(3)", `"3000-01-01T00:00:00Z"`},
		{"DateTime64(3)", `1e999999999`}, {"DateTime", `true`}, {"DateTime", `99999999999999999999`},
		{"UUID", `"x"`}, {"UUID", `1`}, {"IPv4", `"1.2.3"`}, {"IPv4", `"::"`}, {"Array(IPv4)", `["1.2.3.4", "::"]`}, {"IPv6", `"::g"`},
		{"Enum8('green' = 1)", `"red"`}, {"Enum8('green' = 1)", `1`},
		{"Array(Int8)", `[1,"x"]`}, {"Array(Int8)", `{}`}, {"Array(Int8)", `null`}, {"Array(Int8)", `[null]`},
	} {
		_, err := fits(t, tc[0], tc[1])
		require.Error(t, err, "%s %s", tc[0], tc[1])
		require.ErrorContains(t, err, "column c "+tc[0])
	}
}

func TestTypesThatNoColumnHas(t *testing.T) {
	for _, name := range []string{"", "text", "Map(String, String)", "Tuple(Int8)", "Nullable(", "Array(Nope)", "FixedString(3)", "Decimal", "Int7", "AggregateFunction(max, Int8)"} {
		_, err := newConverter(name)
		require.Error(t, err, name)
	}
}

// Whole numbers arrive as they are or not at all, whatever their size.
func TestConvertKeepsWholeNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n")
		typeName := rapid.SampledFrom([]string{"Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64"}).Draw(t, "type")
		literal, err := json.Marshal(n)
		require.NoError(t, err)
		got, err := fits(t, typeName, string(literal))
		if err != nil {
			return
		}
		back, err := json.Marshal(got)
		require.NoError(t, err)
		require.Equal(t, string(literal), string(back))
	})
}

// No JSON makes a converter panic, and none leaves its value in an error.
func FuzzConvert(f *testing.F) {
	for _, seed := range []string{`"canary-7c1f"`, `-0.0e-0`, `[["1e999"]]`, `{"a":null}`, `"2024-02-29T12:00:00Z"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		if !gjson.Valid(literal) {
			return
		}
		for _, name := range []string{"String", "Bool", "Int8", "UInt256", "Float32", "Decimal(38, 5)", "Date", "Date32", "DateTime", "DateTime64(9)",
			"UUID", "IPv4", "IPv6", "Enum8('a' = 1)", "Nullable(Int64)", "Array(Array(Int64))", "LowCardinality(String)"} {
			if _, err := fits(t, name, literal); err != nil {
				require.NotContains(t, err.Error(), "canary-7c1f")
			}
		}
	})
}
