// Command controlplane creates a folder with the binaries of a Kubernetes control plane (kube-apiserver, etcd,
// kube-controller-manager), as controller-runtime's envtest expects it, and prints the folder's path.
//
//	export KUBEBUILDER_ASSETS="$(go -C testing/controlplane run .)"
//
// It needs only the go command and a Go module proxy. Where the index of setup-envtest can be reached, kube-apiserver
// and etcd are downloaded from there, after a comparison of their checksums. Otherwise, and in CI, the binaries are built
// from the sources that this module's go.mod requires; kube-controller-manager always is. This takes minutes the first
// time and far less than a second afterwards. If KUBEBUILDER_ASSETS is set, it checks that folder, prints it and builds
// nothing. With -k8s=1.34 it takes an older release, whose sources are named in the folder releases.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

	err := run(ctx, os.Args[1:], os.Getenv("KUBEBUILDER_ASSETS"), os.Stdout, os.Stderr)
	stop()

	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

const usage = `usage: controlplane [flags]

Prints the path of a folder with kube-apiserver, etcd and kube-controller-manager, the only line on standard
output, and builds them first if need be (progress on standard error). KUBEBUILDER_ASSETS wins where set,
unless -k8s says which release it must be.

`

func run(ctx context.Context, args []string, assets string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.SetOutput(stderr)

	printVersion := flags.Bool("print-version", false,
		"print the version of Kubernetes that would be built, for example v1.37.1, and build nothing")
	name := flags.String("k8s", "",
		"build this minor release of Kubernetes, for example 1.34, whatever KUBEBUILDER_ASSETS is (default the newest)")
	list := flags.Bool("list", false,
		"print the minor releases of Kubernetes that -k8s takes, the oldest first, and build nothing")
	dir := flags.String("dir", "",
		"build below this folder, one folder per release (default eirinix/controlplane in the user's cache folder)")
	index := flags.String("index", cmp.Or(os.Getenv(indexVariable), envtestIndex),
		"take kube-apiserver and etcd from the releases in this index of setup-envtest, and build them only if that fails; "+
			"off always builds (also "+indexVariable+")")
	need := flags.String("need", strings.Join(allNames(), ","),
		"the binaries that are needed; without kube-controller-manager, nothing is built if the index can be reached")
	parallel := flags.Int("p", runtime.GOMAXPROCS(0),
		"packages to compile at a time; 1 needs the least memory")

	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}

	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() > 0 {
		return fmt.Errorf("see -help: unexpected argument %q", flags.Arg(0))
	}

	if *list {
		return printReleases(stdout)
	}

	chosen, err := releaseNamed(*name)
	if err != nil {
		return fmt.Errorf("-k8s: %w", err)
	}

	b := &builder{goCommand: "go", release: chosen, root: *dir, parallel: *parallel, progress: newProgress(stderr)}
	b.downloads, b.needed = newDownloader(*index, b.progress), strings.Split(*need, ",")

	for _, name := range b.needed {
		if !slices.Contains(allNames(), name) {
			return fmt.Errorf("-need: there is no binary %q; name some of %s", name, strings.Join(allNames(), ","))
		}
	}

	if *printVersion {
		return b.inModule(func() error {
			version, err := b.version(ctx)
			if err == nil {
				_, err = fmt.Fprintln(stdout, version)
			}

			return err
		})
	}

	if assets != "" && *name == "" {
		if err := checkAssets(assets, b.progress); err != nil {
			return err
		}
	} else if assets, err = b.assets(ctx); err != nil {
		return err
	}

	_, err = fmt.Fprintln(stdout, assets)

	return err
}

func printReleases(out io.Writer) error {
	all, err := releases()
	if err != nil {
		return err
	}

	for _, r := range all {
		if _, err := fmt.Fprintln(out, r.name); err != nil {
			return err
		}
	}

	return nil
}

// checkAssets returns an error if the user's folder lacks a binary that a control plane cannot do without.
func checkAssets(dir string, progress *progress) error {
	var missing []string

	for _, binary := range binaries {
		if info, err := os.Stat(filepath.Join(dir, binary.name)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			continue
		}

		if binary.optional {
			progress.printf("KUBEBUILDER_ASSETS (%s) has no %s: what needs one will not work", dir, binary.name)
		} else {
			missing = append(missing, binary.name)
		}
	}

	if missing != nil {
		return fmt.Errorf("unset KUBEBUILDER_ASSETS to have them built, or set it to a folder that has them: %s has no executable %s",
			dir, strings.Join(missing, " and no "))
	}

	return nil
}
