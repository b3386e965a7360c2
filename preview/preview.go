// Package preview provides a command for programs with extensions. Without a cluster, it shows the effect of the
// extensions on manifests:
//
//	$ webhook preview -f deployment.yaml
//
// A program needs one line for it:
//
//	case "preview":
//		return preview.Command(ctx, x, os.Args[2:])
//
// Every object passes through the complete admission phase of an API server in memory: rules, selectors,
// matchConditions, the wire protocol and the patch. The objects that controllers would create for Deployments,
// CronJobs and similar kinds are sent too. Neither defaults nor schemas are applied, and built-in admission plugins do
// not run.
package preview

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/offline"
)

// Options configures Command. The zero value is right for extensions of built-in kinds in a command-line program.
type Options struct {
	// Resources lists custom resources that are cluster-scoped or have an irregular plural, if the manifests do not
	// contain their CustomResourceDefinitions.
	Resources []offline.Resource

	// Objects are the objects in the cluster, in addition to the manifests and those of -with, for extensions that use
	// the Manager's clients or Settings.Reads.
	Objects []client.Object

	Stdin  io.Reader // default os.Stdin
	Stdout io.Writer // default os.Stdout
	Stderr io.Writer // default os.Stderr
}

// RefusedError is the error of Command if an object would not be admitted.
type RefusedError struct {
	Objects int // number of objects sent
	Denied  int // refused by a step
	Failed  int // without an answer: a step failed, and its failurePolicy is Fail
}

func (e *RefusedError) Error() string {
	what := ""
	switch {
	case e.Failed == 0:
		what = fmt.Sprintf("%d would be denied", e.Denied)
	case e.Denied == 0:
		what = fmt.Sprintf("%d would fail", e.Failed)
	default:
		what = fmt.Sprintf("%d would be denied and %d would fail", e.Denied, e.Failed)
	}
	return fmt.Sprintf("of %s, %s", plural(e.Objects, "object"), what)
}

// Command runs the command with args, such as -f pod.yaml -o json; -h prints all flags. Options.Stdout receives only
// the results. The error is a *RefusedError if an object would not be admitted. So a program that exits with code 1 on
// errors, as log.Fatal does, also does so on denials.
//
// While Command runs, the Manager is connected to an API in memory, which holds the manifests,
// the objects of -with and Options.Objects. Steps read from it what they declare in Settings.Reads.
// Clients that a step gets from the Manager during a call (GetKubeClient, GetKubeConnection, GetKubeManager) connect
// to that API. Clients that the program created or got earlier keep their connection. A Manager that was started is
// refused.
//
//	err := preview.Command(ctx, x, os.Args[2:], func(o *preview.Options) { o.Objects = defaults })
func Command(ctx context.Context, m *eirinix.ExtensionManager, args []string, configure ...func(*Options)) error {
	o := Options{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	for _, f := range configure {
		f(&o)
	}
	err := run(ctx, m, args, o)
	if _, refused := err.(*RefusedError); err == nil || refused { //nolint:errorlint // it is never wrapped
		return err
	}
	return fmt.Errorf("preview: %w", err)
}

func run(ctx context.Context, m *eirinix.ExtensionManager, args []string, o Options) error {
	f, err := parseFlags(args, o.Stderr)
	if err != nil || f == nil {
		return err
	}
	in, err := readInput(f, o.Stdin)
	if err != nil {
		return err
	}
	defer keepOptions(m)()
	c, err := newCluster(m, in, f, o)
	if err != nil {
		return err
	}
	requests, unmatched, err := in.requests(c, f)
	if err != nil {
		return err
	}
	show := f.printer(o.Stdout)
	total := summary{Unmatched: unmatched}
	for _, sent := range requests {
		all, err := c.send(ctx, sent)
		if err != nil {
			return err
		}
		for _, s := range all {
			total.count(s)
			if err := show.object(s); err != nil {
				return err
			}
		}
	}
	total.Empty = c.empty()
	if err := show.end(total); err != nil {
		return err
	}
	return total.err()
}

// summary counts the results of all objects.
type summary struct {
	Objects int `json:"objects"`
	Changed int `json:"changed"`
	Denied  int `json:"denied"`
	Failed  int `json:"failed"`
	Ignored int `json:"ignored"` // failures that failurePolicy Ignore let pass

	Unmatched []string    `json:"unmatched,omitempty"`  // old objects that have no manifest
	Empty     []emptyRead `json:"emptyReads,omitempty"` // declarations without an object
}

func (t *summary) count(s *result) {
	t.Objects++
	for _, c := range s.outcome.Calls {
		if c.Ignored {
			t.Ignored++
		}
	}
	switch {
	case s.outcome.Denial != nil:
		t.Denied++
	case !s.outcome.Allowed():
		t.Failed++
	case s.changed():
		t.Changed++
	}
}

func (t *summary) err() error {
	if t.Denied+t.Failed == 0 {
		return nil
	}
	return &RefusedError{Objects: t.Objects, Denied: t.Denied, Failed: t.Failed}
}

func plural(n int, thing string) string {
	return fmt.Sprintf("%d %s", n, cmp.Or(map[int]string{1: thing}[n], thing+"s"))
}
