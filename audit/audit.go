// Package audit tells what the extensions of a program would say of the objects that a cluster holds already. Run returns
// findings. Command prints them:
//
//	$ webhook audit
//	denied   default/web (Pod)  no-root: web would run as root
//
// A program needs some lines for it:
//
//	case "audit":
//		err := audit.Command(ctx, x, os.Args[2:])
//		if err != nil {
//			fmt.Fprintln(os.Stderr, err)
//		}
//		os.Exit(audit.ExitCode(err))
//
// The objects are listed, and pass through the steps in this process. No webhook is called. Nothing is written, except
// PolicyReports if they are requested.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.uber.org/zap"

	"code.cloudfoundry.org/eirinix"
)

// CommandOptions configures Command. The zero value is right for a command-line program.
type CommandOptions struct {
	Stdout io.Writer // default os.Stdout
	Stderr io.Writer // default os.Stderr

	// Run audits. Default: the function Run, for the Manager.
	Run func(context.Context, Options) (Summary, error)
}

// FindingsError is the error of Command if steps would refuse objects that exist, or fail for them.
type FindingsError struct {
	Objects int // that steps were asked about
	Denied  int // denials
	Failed  int // failures of steps
	Drifted int // changes that steps would make; 0 unless -drift makes them count
}

func (e *FindingsError) Error() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{e.Denied, "denied"}, {e.Failed, "failed"}, {e.Drifted, "drifted"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return fmt.Sprintf("%s: %s", plural(e.Objects, "object"), strings.Join(parts, ", "))
}

// ExitCode returns the exit code for an error of Command: 0 if the objects are clean, 1 if there are findings, and 2 if the
// audit is not complete, whatever it has found.
func ExitCode(err error) int {
	_, incomplete := errors.AsType[*IncompleteError](err)
	_, found := errors.AsType[*FindingsError](err)
	switch {
	case err == nil:
		return 0
	case found && !incomplete:
		return 1
	}
	return 2
}

// Command runs the command with args, such as -n default -o json; -h prints all flags. CommandOptions.Stdout receives only the
// results. The error is a *FindingsError if a step denied or failed, and an *IncompleteError if the audit has gaps.
// ExitCode tells them apart. Findings that an audit cannot tell are no error. When ctx ends, the findings so far have been
// printed, and the error wraps the cause.
func Command(ctx context.Context, m *eirinix.ExtensionManager, args []string, configure ...func(*CommandOptions)) error {
	o := CommandOptions{Stdout: os.Stdout, Stderr: os.Stderr}
	o.Run = func(ctx context.Context, o Options) (Summary, error) { return Run(ctx, m, o) }
	for _, f := range configure {
		f(&o)
	}
	f, err := parseFlags(args, o.Stderr)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if f == nil {
		return nil
	}
	if !f.verbose {
		options := m.GetManagerOptions()
		defer m.SetManagerOptions(options)
		options.Logger = zap.NewNop().Sugar()
		m.SetManagerOptions(options)
	}
	err = run(ctx, f, o)
	if _, found := errors.AsType[*FindingsError](err); err == nil || found {
		return err
	}
	return fmt.Errorf("audit: %w", err)
}

func run(ctx context.Context, f *flags, o CommandOptions) error {
	p, out := f.progress(o.Stderr), f.printer(o.Stdout)
	if err := out.begin(); err != nil {
		return err
	}
	options := f.options()
	options.Finding = func(finding Finding) error {
		p.hide()
		return out.finding(finding)
	}
	options.Progress = p.show
	summary, failed := o.Run(ctx, options)
	p.hide()
	for _, note := range summary.Notes {
		_, _ = fmt.Fprintln(o.Stderr, "audit: "+printable(note)) // a note that cannot be shown is no error
	}
	if err := out.end(summary, failed); err != nil && failed == nil {
		failed = err
	}
	if failed == nil {
		return f.verdict(summary)
	}
	if _, incomplete := errors.AsType[*IncompleteError](failed); incomplete {
		failed = errors.Join(f.verdict(summary), failed)
	}
	return failed
}

// verdict returns a FindingsError if there are findings that count.
func (f *flags) verdict(s Summary) error {
	e := &FindingsError{Objects: s.Objects}
	for _, results := range s.Findings {
		e.Denied += results[Denied]
		e.Failed += results[Failed]
		if f.drift {
			e.Drifted += results[Drift]
		}
	}
	if e.Denied+e.Failed+e.Drifted == 0 {
		return nil
	}
	return e
}

// printer prints findings, one after another.
type printer interface {
	begin() error
	finding(Finding) error
	// end prints the summary, and the reason why the audit did not finish, if any.
	end(s Summary, failed error) error
}

func plural(n int, thing string) string {
	return fmt.Sprintf("%d %s", n, cmp.Or(map[int]string{1: thing}[n], thing+"s"))
}
