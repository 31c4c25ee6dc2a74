package golden

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jstemmer/go-junit-report/v2/junit"
)

// WriteJUnit writes results as a JUnit XML report, which CI systems read: one
// test case per case, a failure with its diff, an error for one that could not
// be run. suite names the whole, for instance the configuration file.
func WriteJUnit(w io.Writer, suite string, results []Result) error {
	s := junit.Testsuite{Name: suite}
	var total time.Duration
	for _, r := range results {
		c := junit.Testcase{Name: r.Name, Classname: suite, Time: seconds(r.Took)}
		switch {
		case r.Error != "":
			c.Error = &junit.Result{Message: "the case could not be run", Data: xmlText(r.Error)}
		case r.Diff != "":
			c.Failure = &junit.Result{Message: "not as expected", Data: xmlText(r.Diff)}
		}
		total += r.Took
		s.AddTestcase(c)
	}
	s.Time = seconds(total)
	all := junit.Testsuites{Time: s.Time}
	all.AddSuite(s)
	return all.WriteXML(w)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// xmlText replaces what XML 1.0 (section 2.2) has no way to write.
func xmlText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return '\uFFFD'
		}
		return r
	}, s)
}
