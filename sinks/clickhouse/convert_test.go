package clickhouse

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// fits converts and tries a value as Write does.
func fits(t require.TestingT, typeName, literal string) (any, error) {
	typeName, unit, _ := strings.Cut(typeName, " in ")
	s := &Sink{options: Options{Columns: config.Columns{{Name: "c", Path: "c", Type: typeName}}}}
	convert, err := newConverter(typeName, sqlsink.Unit(unit))
	require.NoError(t, err)
	s.converters = []converter{convert}
	trial, err := libraryColumn(typeName)
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
		{"Int64", `12.0`, int64(12)}, {"Int64", `"1e2"`, int64(100)}, {"UInt64", `1.8446744073709551615e19`, uint64(1<<64 - 1)}, {"Int8", `-0.0`, int8(0)},
		{"Bool", `1`, true}, {"Bool", `0.0`, false},
		{"DateTime", `"2024-02-29 14:00:00+02"`, leap},
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
		{"FixedString(3)", `"ab"`, "ab\x00"},
		{"Map(LowCardinality(String), Nullable(UInt8))", `{"b":1,"a":null}`, &pairs{[]any{"b", "a"}, []any{uint8(1), nil}}},
		{"Tuple(String, Nullable(UInt8))", `["a",null]`, []any{"a", nil}},
		{"Tuple(a String, b Nullable(DateTime64(3, 'UTC')))", `{"a":"x"}`, []any{"x", nil}},
		{"SimpleAggregateFunction(max, UInt8)", `1`, uint8(1)},
		{"DateTime64(3,'UTC')", `"2024-02-29 12:00:00"`, leap},
		// Rounded down, before 1970 as after.
		{"Date32", `"1960-05-05T12:00:00Z"`, time.Date(1960, 5, 5, 0, 0, 0, 0, time.UTC)},
		{"Date", `"2024-02-29T23:59:59.999Z"`, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"DateTime64(3)", `"1960-05-05T12:00:00.0009Z"`, time.Date(1960, 5, 5, 12, 0, 0, 0, time.UTC)},
		{"DateTime64(3)", `-0.0005`, time.Date(1969, 12, 31, 23, 59, 59, 999e6, time.UTC)},
		{"DateTime64(0) in millis", `-1`, time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC)},
		// Numbers count the declared unit.
		{"Date in days", `20123`, time.Date(2025, 2, 4, 0, 0, 0, 0, time.UTC)},
		{"Nullable(Date32) in days", `-1`, time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC)},
		{"Date32 in micros", `-1`, time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC)},
		{"Date in days", `"20123"`, time.Date(2025, 2, 4, 0, 0, 0, 0, time.UTC)},
		{"Date in days", `"2025-02-04"`, time.Date(2025, 2, 4, 0, 0, 0, 0, time.UTC)},
		{"DateTime64(6) in micros", `1709208000000001`, leap.Add(time.Microsecond)},
		{"DateTime in millis", `1709208000999`, leap},
		{"Array(DateTime64(9)) in nanos", `[1709208000000000001]`, []any{leap.Add(1)}},
		{"DateTime", `"2024-02-29 13:00:00+01:00"`, leap},
		{"Time64(6) in micros", `1500000`, 1500 * time.Millisecond},
		{"Time", `"10:30:00.9Z"`, 10*time.Hour + 30*time.Minute},
	} {
		got, err := fits(t, tc.typeName, tc.literal)
		require.NoError(t, err, "%s %s", tc.typeName, tc.literal)
		require.Equal(t, tc.want, got, "%s %s", tc.typeName, tc.literal)
	}
}

func TestConvertRefuses(t *testing.T) {
	for _, tc := range [][2]string{
		{"String", `null`}, {"Bool", `2`}, {"Bool", `0.5`}, {"Bool", `"true"`},
		{"UInt8", `256`}, {"UInt8", `-1`}, {"Int8", `128`}, {"Int8", `-129`}, {"Int16", `true`},
		{"Int64", `9223372036854775808`}, {"Int64", `9223372036854775807.5`}, {"Int64", `1e19`}, {"Int64", `1e-1`}, {"Int64", `1e99999`}, {"UInt8", `2.56e2`}, {"Int64", `""`}, {"Int64", `[1]`}, {"UInt64", `-1`},
		{"Float64", `1e400`}, {"Float32", `1e39`}, {"Float64", `"x"`},
		{"Decimal(9, 2)", `1.501`}, {"Decimal(9, 2)", `12345678901`}, {"Decimal(9, 2)", `1e999999999`}, {"Decimal(9, 2)", `"1/2"`},
		{"Decimal(9, 2)", `10000000`}, {"Decimal(5, 2)", `-1000.00`}, {"Decimal(3, 3)", `1`}, {"Decimal64(2)", `"10000000000000000"`},
		{"Date", `"2024-02-30"`}, {"Date", `"1960-01-01"`}, {"DateTime", `"1960-01-01T00:00:00Z"`}, {"DateTime64(3)", `"3000-01-01T00:00:00Z"`},
		{"DateTime64(3)", `1e999999999`}, {"DateTime", `true`}, {"DateTime", `99999999999999999999`},
		{"UUID", `"x"`}, {"UUID", `1`}, {"IPv4", `"1.2.3"`}, {"IPv4", `"::"`}, {"Array(IPv4)", `["1.2.3.4", "::"]`}, {"IPv6", `"::g"`},
		{"Enum8('green' = 1)", `"red"`}, {"Enum8('green' = 1)", `1`},
		{"Date", `20123`}, {"Date32", `20123`}, {"Date", `"20123"`}, {"Time", `3600`}, {"Time", `"10:30"`}, {"Time", `"10:30:00+02:00"`}, {"Time", `"10:60:00"`},
		{"FixedString(3)", `"abcd"`}, {"Map(String, UInt8)", `{"a":"x"}`}, {"Map(UInt8, UInt8)", `{"a":1}`}, {"Map(String, UInt8)", `[]`},
		{"Tuple(String, UInt8)", `["a"]`}, {"Tuple(String, UInt8)", `{"a":1}`}, {"Tuple(a String)", `{}`},
		{"Array(Int8)", `[1,"x"]`}, {"Array(Int8)", `{}`}, {"Array(Int8)", `null`}, {"Array(Int8)", `[null]`},
	} {
		_, err := fits(t, tc[0], tc[1])
		require.Error(t, err, "%s %s", tc[0], tc[1])
		require.ErrorContains(t, err, "column c "+tc[0])
	}
}

// The reason tells a value outside of a type from one that is not read at all.
func TestReasonsOfDates(t *testing.T) {
	for _, tc := range [][3]string{
		{"Date32", `"9999-12-31"`, "outside the range of Date32 (1900-01-01 to 2299-12-31)"},
		{"Date", `"9999-12-31"`, "outside the range of Date (1970-01-01 to 2149-06-06)"},
		{"DateTime64(3)", `"2280-01-01T00:00:00Z"`, "outside the range of DateTime64 (1900-01-01 to 2262-04-10)"},
		{"DateTime", `1709208000000`, "outside the range of DateTime (1970-01-01 to 2106-02-07)"},
		{"DateTime64(3)", `"infinity"`, "a form of a date or time that is not read"},
		{"DateTime64(3)", `"2024-02-29T12:00:00+0100"`, "a form of a date or time that is not read"},
		{"DateTime64(3)", `"2024-02-29T10:30Z"`, "a form of a date or time that is not read"},
		{"DateTime64(3)", `"2024-02-29T10:30:00,5Z"`, "a form of a date or time that is not read"},
		{"DateTime64(3)", `"2024-02-29T1:30:00Z"`, "a form of a date or time that is not read"},
		{"Date", `"05/06/2026"`, "a form of a date or time that is not read"},
		{"Date", `"2026-02-29"`, "does not exist"},
		{"Date", `20123`, "the column says no unit"},
		{"Decimal(12, 3)", `1.0e-4`, "more digits after the point"},
		{"Decimal(12, 3)", `"AeJA"`, "a text that is no number"}, {"Float64", `"AeJA"`, "a text that is no number"}, {"Int32", `"12 pcs"`, "a text that is no number"},
		{"Int32", `1.5`, "a number with a fraction"}, {"Int32", `1e10`, "a number that does not fit"},
		{"Date32 in days", `-719162`, "outside the range of Date32"}, {"Date32", `"0044-03-15 BC"`, "outside the range of Date32"}, {"Date32", `"0000-03-15 BC"`, "does not exist"},
		{"Date32", `"+12026-02-28"`, "outside the range of Date32"}, {"DateTime64(6) in micros", `9223372036825200000`, "outside the range of DateTime64"},
	} {
		_, err := fits(t, tc[0], tc[1])
		require.ErrorContains(t, err, tc[2], "%s %s", tc[0], tc[1])
	}
	_, err := newConverter("String", "days")
	require.ErrorContains(t, err, "no unit")
	_, err = newConverter("Date", "weeks")
	require.ErrorContains(t, err, "not a unit")
}

func TestSameType(t *testing.T) {
	for _, same := range [][2]string{
		{"DateTime64(3,'UTC')", "DateTime64(3, 'Europe/Berlin')"}, {"DateTime", "DateTime('UTC')"}, {"Decimal64(3)", "Decimal(18, 3)"},
		{"Enum8('a b'=1,'c'=2)", "Enum8('a b' = 1, 'c' = 2)"}, {"Nullable(DateTime64(3))", "Nullable(DateTime64(3, 'UTC'))"},
		{"Map(String,Array(Decimal32(2)))", "Map(String, Array(Decimal(9, 2)))"}, {"Tuple(a  DateTime64(3),b Int8)", "Tuple(a DateTime64(3, 'UTC'), b Int8)"},
	} {
		require.True(t, sameType(same[0], same[1]), same)
	}
	for _, other := range [][2]string{
		{"DateTime64(3)", "DateTime64(6)"}, {"Decimal(9,2)", "Decimal(9,3)"}, {"Tuple(a Int8)", "Tuple(b Int8)"}, {"Tuple(Int8)", "Tuple(Int8, Int8)"},
		{"Enum8('a b' = 1)", "Enum8('ab' = 1)"}, {"String", "Nullable(String)"}, {"FixedString(3)", "FixedString(4)"},
	} {
		require.False(t, sameType(other[0], other[1]), other)
	}
}

func TestTypesThatNoColumnHas(t *testing.T) {
	for _, name := range []string{"", "text", "Nullable(", "Array(Nope)", "Map(String)", "Tuple(a Nope)", "Variant(String, Int8)", "Int7", "AggregateFunction(max, Int8)"} {
		_, err := newConverter(name, "")
		require.Error(t, err, name)
	}
}

// Whole numbers arrive as they are or not at all, of any size.
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
