package preview

// This file parses the command line.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

const usage = `Usage: preview -f <file, folder or -> ... [flags]

Shows what the extensions of this program would do to manifests, without a cluster.
Exits with 1 where an object would be denied.

`

// flags holds the command line.
type flags struct {
	files      paths
	old, with  paths
	recursive  bool
	operation  string
	namespace  string
	user       string
	groups     paths
	dryRun     bool
	noChildren bool
	verbose    bool
	secrets    bool
	output     string
	color      string
}

// paths is a flag that can be given several times.
type paths []string

func (p *paths) String() string { return strings.Join(*p, ",") }

func (p *paths) Set(v string) error {
	*p = append(*p, v)
	return nil
}

// parseFlags parses the command line. If the user asked for help, it prints the help and returns nil flags.
func parseFlags(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("preview", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		_, _ = fmt.Fprint(stderr, usage) // if this fails, an error message would too
		set.PrintDefaults()
	}
	set.Var(&f.files, "f", "`file` or folder with manifests, as YAML or JSON; - for standard input; may be given several times")
	set.Var(&f.old, "old", "`file` or folder with the objects as they are now: those found there are updated, as kubectl apply does it, instead of created")
	set.Var(&f.with, "with", "`file` or folder with other objects in the cluster, for steps that look at them; they are not sent; - for standard input; may be given several times")
	set.BoolVar(&f.recursive, "R", false, "go into the folders of folders")
	set.StringVar(&f.operation, "operation", "create", "create, or delete; with -old, the objects found there are updated")
	set.StringVar(&f.namespace, "n", "", "`namespace` of objects that name none; empty means the Manager's, else default")
	set.StringVar(&f.user, "as", "", "`name` of the user who sends the objects; empty means kubernetes-admin of the group system:masters")
	set.Var(&f.groups, "as-group", "`group` of that user; may be given several times")
	set.BoolVar(&f.dryRun, "dry-run", false, "send the objects as a dry run")
	set.BoolVar(&f.noChildren, "no-pods", false, "leave out the pods, ReplicaSets and Jobs that controllers would make")
	set.BoolVar(&f.verbose, "v", false, "let the program write its log")
	set.BoolVar(&f.secrets, "show-secrets", false, "show the data of Secrets in diffs and JSON; YAML always has them")
	set.StringVar(&f.output, "o", "diff", "diff, json for all that is known, or yaml for the objects as they would be stored")
	set.StringVar(&f.color, "color", "auto", "always, never, or auto: on a terminal, unless NO_COLOR is set")
	for { // a path can precede flags, as in kubectl
		switch err := set.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("%w; -h lists the flags", err)
		case set.NArg() == 0:
			return f, f.check()
		}
		f.files = append(f.files, set.Arg(0))
		args = set.Args()[1:]
	}
}

func (f *flags) check() error {
	one := func(name, value string, values ...string) error {
		for _, v := range values {
			if value == v {
				return nil
			}
		}
		return fmt.Errorf("-%s is %q; give %s", name, value, strings.Join(values, ", "))
	}
	err := errors.Join(
		one("o", f.output, "diff", "json", "yaml"),
		one("color", f.color, "auto", "always", "never"),
		one("operation", f.operation, "create", "delete"),
	)
	switch {
	case len(f.files) == 0:
		err = errors.Join(err, errors.New("there is nothing to preview; give -f and a file, a folder, or - for standard input"))
	case f.operation == "delete" && len(f.old) > 0:
		err = errors.Join(err, errors.New("-old is for updates; leave it out with -operation delete"))
	case len(f.groups) > 0 && f.user == "":
		err = errors.Join(err, errors.New("-as-group is for the user whom -as names; give both"))
	}
	return err
}

func (f *flags) admissionOperation(updated bool) admissionv1.Operation {
	switch {
	case f.operation == "delete":
		return admissionv1.Delete
	case updated:
		return admissionv1.Update
	}
	return admissionv1.Create
}

// printer returns a printer for the requested output format.
func (f *flags) printer(w io.Writer) printer {
	switch f.output {
	case "json":
		return &jsonPrinter{w: w, secrets: f.secrets}
	case "yaml":
		return &yamlPrinter{w: w}
	}
	return &textPrinter{w: w, color: f.colored(w), secrets: f.secrets}
}

// colored reports whether the output uses colours (https://no-color.org).
func (f *flags) colored(w io.Writer) bool {
	if f.color != "auto" {
		return f.color == "always"
	}
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
