package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	var out bytes.Buffer
	r := &results{out: &out, outputs: map[[2]string][]string{}, times: map[string]float64{"m/c": 9}}
	for line := range strings.SplitSeq(`{"Action":"start","Package":"m/a"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"noise\n"}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"    b_test.go:7: wrong\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":0.1}
{"Action":"pass","Package":"m/a","Elapsed":1.5}
{"Action":"fail","Package":"m/b","Test":"TestBad","Elapsed":0.1}
{"Action":"output","Package":"m/b","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"m/b","Elapsed":2.5}
{"Action":"skip","Package":"m/d","Elapsed":0}
go: a warning`, "\n") {
		r.line([]byte(line))
	}
	r.summary()
	require.Equal(t, `ok        1.5s  m/a
FAIL  m/b.TestBad
    b_test.go:7: wrong
panic: test timed out
FAIL      2.5s  m/b
go: a warning

1 tests and subtests passed, 1 packages failed
  FAIL  m/b
`, out.String())
	require.Equal(t, "9.0 m/c\n2.5 m/b\n1.5 m/a\n", r.order())
}
