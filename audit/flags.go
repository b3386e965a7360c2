package audit

// This file parses the command line.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const usage = `Usage: audit [flags]

Asks the extensions of this program about the objects that the cluster holds.
Exits with 1 if an object would be denied today, or if an extension fails, and with 2 if it could not ask about all.

`

// flags holds the command line.
type flags struct {
	namespace string
	steps     names
	output    string
	color     string
	reports   bool
	drift     bool
	all       bool
	quiet     bool
	verbose   bool
	pageSize  int
	rate      float64
	requests  float64
}

// names is a flag that can be given several times.
type names []string

func (n *names) String() string { return strings.Join(*n, ",") }

func (n *names) Set(v string) error {
	*n = append(*n, v)
	return nil
}

// parseFlags parses the command line. If the user asked for help, it prints the help and returns nil flags.
func parseFlags(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("audit", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		_, _ = fmt.Fprint(stderr, usage) // if this fails, an error message would too
		set.PrintDefaults()
	}
	set.StringVar(&f.namespace, "n", "", "`namespace` whose objects are audited; empty means all")
	set.Var(&f.steps, "step", "`name` of an extension to ask; may be given several times; none means all")
	set.StringVar(&f.output, "o", "text", "text, json, or sarif for code scanning")
	set.StringVar(&f.color, "color", "auto", "always, never, or auto: on a terminal, unless NO_COLOR is set")
	set.BoolVar(&f.reports, "policy-reports", false, "also write PolicyReports into the cluster")
	set.BoolVar(&f.drift, "drift", false, "exit with 1 also if an extension would change an object")
	set.BoolVar(&f.all, "all", false, "list every finding as text; otherwise 20 of each extension and result")
	set.BoolVar(&f.quiet, "q", false, "show no progress")
	set.BoolVar(&f.verbose, "v", false, "let the program write its log, and progress without a terminal")
	set.IntVar(&f.pageSize, "page-size", 500, "`objects` of one list request")
	set.Float64Var(&f.rate, "pages-per-second", 10, "most list `requests` in a second")
	set.Float64Var(&f.requests, "step-requests-per-second", 50, "most `requests` of extensions in a second, on average")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w; -h lists the flags", err)
	case set.NArg() > 0:
		return nil, fmt.Errorf("%q is not a flag; -h lists the flags", set.Arg(0))
	}
	return f, f.check()
}

func (f *flags) check() (err error) {
	one := func(name, value string, values ...string) {
		if !slices.Contains(values, value) {
			err = errors.Join(err, fmt.Errorf("-%s is %q; give %s", name, value, strings.Join(values, ", ")))
		}
	}
	one("o", f.output, "text", "json", "sarif")
	one("color", f.color, "auto", "always", "never")
	if f.pageSize < 1 {
		err = errors.Join(err, fmt.Errorf("-page-size is %d; give 1 or more", f.pageSize))
	}
	for name, rate := range map[string]float64{"pages-per-second": f.rate, "step-requests-per-second": f.requests} {
		if !(rate > 0) { // NaN too
			err = errors.Join(err, fmt.Errorf("-%s is %v; give more than 0", name, rate))
		}
	}
	return err
}

// options returns the options of the audit.
func (f *flags) options() Options {
	return Options{
		Namespace: f.namespace, Steps: f.steps, PageSize: f.pageSize, PagesPerSecond: f.rate,
		StepRequestsPerSecond: f.requests, PolicyReports: f.reports,
	}
}

// printer returns a printer for the requested output format.
func (f *flags) printer(w io.Writer) printer {
	switch f.output {
	case "json":
		return &jsonPrinter{w: w}
	case "sarif":
		return &sarifPrinter{w: w}
	}
	return &textPrinter{w: w, color: f.colored(w), all: f.all, shown: map[key]int{}}
}

// progress returns a printer of the progress.
func (f *flags) progress(w io.Writer) *progress {
	return &progress{w: w, off: f.quiet, terminal: terminal(w), verbose: f.verbose}
}

// terminal reports whether w is a terminal that can rewrite a line.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// colored reports whether the output to w uses colours (https://no-color.org).
func (f *flags) colored(w io.Writer) bool {
	if f.color != "auto" {
		return f.color == "always"
	}
	return terminal(w) && os.Getenv("NO_COLOR") == ""
}
