package golden

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// The elements of a JUnit report.
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		junitSums
		Suite junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name string `xml:"name,attr"`
		junitSums
		Cases []junitCase `xml:"testcase"`
	}
	junitSums struct {
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Time     string `xml:"time,attr"`
	}
	junitCase struct {
		Name    string       `xml:"name,attr"`
		Class   string       `xml:"classname,attr"`
		Time    string       `xml:"time,attr"`
		Error   *junitResult `xml:"error"`
		Failure *junitResult `xml:"failure"`
	}
	junitResult struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",cdata"`
	}
)

// WriteJUnit writes results as a JUnit XML report, which CI systems read: one
// test case per case, a failure with its diff, an error for one that could not
// be run. suite names the whole, for instance the configuration file.
func WriteJUnit(w io.Writer, suite string, results []Result) error {
	s := junitSuite{Name: suite, junitSums: junitSums{Tests: len(results)}}
	var total time.Duration
	for _, r := range results {
		c := junitCase{Name: r.Name, Class: suite, Time: seconds(r.Took)}
		switch {
		case r.Error != "":
			s.Errors++
			c.Error = &junitResult{Message: "the case could not be run", Text: xmlText(r.Error)}
		case r.Diff != "":
			s.Failures++
			c.Failure = &junitResult{Message: "not as expected", Text: xmlText(r.Diff)}
		}
		total += r.Took
		s.Cases = append(s.Cases, c)
	}
	s.Time = seconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "\t")
	return e.Encode(junitSuites{junitSums: s.junitSums, Suite: s})
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// xmlText replaces characters that XML 1.0 (section 2.2) cannot represent.
func xmlText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return '\uFFFD'
		}
		return r
	}, s)
}
