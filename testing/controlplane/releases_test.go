package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

func all(t *testing.T) []release {
	t.Helper()

	releases, err := releases()
	if err != nil {
		t.Fatal(err)
	}

	return releases
}

// sources returns the version of Kubernetes in the module at hand, as go.mod and go.sum agree on it.
func sources() string {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		panic(err)
	}

	sum, err := os.ReadFile("go.sum")
	if err != nil {
		panic(err)
	}

	if version := required(mod); bytes.Contains(sum, []byte(kubernetesModule+" "+version+" h1:")) {
		return version
	}

	return "two minds"
}

func TestThereAreFiveReleasesAtLeastTheOldestFirstWithoutAHole(t *testing.T) {
	var names []string
	for _, r := range all(t) {
		names = append(names, r.name)
	}

	for i := range names {
		if minorNumber(names[i]) != minorNumber(names[0])+i {
			t.Errorf("releases: %q, want each minor release after the first", names)
		}
	}

	if len(names) < 5 {
		t.Errorf("releases: %q, want five", names)
	}

	if last := names[len(names)-1]; newest(t).name != last || !bytes.Equal(newest(t).mod, goMod) {
		t.Errorf("the newest is %s, want %s, which this module is", newest(t).name, last)
	}

	var stdout bytes.Buffer

	if err := run(t.Context(), []string{"-list"}, "", &stdout, io.Discard); err != nil {
		t.Fatal(err)
	}

	if want := strings.Join(names, "\n") + "\n"; stdout.String() != want {
		t.Errorf("printed %q, want %q", stdout.String(), want)
	}
}

// A release made of another one's modules would pass for what it is not.
func TestEachReleaseIsOfOneVersion(t *testing.T) {
	replacement := regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) => (k8s\.io/\S+) (v\S+)$`)
	needed := regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) v0\.(?:0\.0|[0-9]+\.[0-9]+) `)
	keyed := map[string]string{}

	for _, r := range all(t) {
		version := required(r.mod)
		if minorOf(version) != r.name {
			t.Errorf("%s requires %s %q", r.name, kubernetesModule, version)
		}

		if !bytes.Contains(r.sum, []byte(kubernetesModule+" "+version+" h1:")) {
			t.Errorf("the go.sum of %s has no %s %s", r.name, kubernetesModule, version)
		}

		replaced := map[string]bool{}

		for _, match := range replacement.FindAllSubmatch(r.mod, -1) {
			replaced[string(match[1])] = true

			if staged := strings.Replace(version, "v1.", "v0.", 1); string(match[3]) != staged || !bytes.Equal(match[1], match[2]) {
				t.Errorf("%s: %s, want it replaced by its own %s", r.name, match[0], staged)
			}
		}

		for _, match := range needed.FindAllSubmatch(r.mod, -1) {
			// These are released by themselves.
			if name := string(match[1]); name != "k8s.io/kube-openapi" && name != "k8s.io/utils" && !replaced[name] {
				t.Errorf("%s: %s is not replaced", r.name, name)
			}
		}

		for _, binary := range binaries {
			if !bytes.Contains(r.mod, []byte("\t"+binary.pkg+"\n")) {
				t.Errorf("%s: %s is no tool", r.name, binary.pkg)
			}
		}

		if key := r.folderName("v1.2.3"); keyed[key] != "" {
			t.Errorf("%s and %s would share a folder", r.name, keyed[key])
		} else {
			keyed[key] = r.name
		}
	}
}

func TestAReleaseIsChosenByName(t *testing.T) {
	for _, r := range all(t) {
		for _, name := range []string{r.name, "v" + r.name} {
			if chosen, err := releaseNamed(name); err != nil || chosen.name != r.name {
				t.Errorf("%s: got %q, %v", name, chosen.name, err)
			}
		}
	}

	for _, unknown := range []string{"1.2", "34", "v", "latest", "../go"} {
		err := run(t.Context(), []string{"-k8s", unknown}, "", io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), `no Kubernetes "`+unknown+`"`) {
			t.Errorf("%s: %v", unknown, err)

			continue
		}

		for _, r := range all(t) {
			if !strings.Contains(err.Error(), r.name) {
				t.Errorf("%s is not named: %v", r.name, err)
			}
		}
	}
}

func TestBuildsTheReleaseThatWasAskedFor(t *testing.T) {
	root := t.TempDir()
	folders := map[string]bool{}

	for _, r := range all(t) {
		b, _ := fake(t, "ok", root, io.Discard)
		b.release = r

		assets, err := b.assets(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		folders[assets] = true

		if got := content(t, assets+"/kube-apiserver"); !strings.HasSuffix(got, "of "+required(r.mod)) {
			t.Errorf("%s: built by %q", r.name, got)
		}
	}

	if len(folders) != len(all(t)) {
		t.Errorf("built in %v", folders)
	}
}

// A release on the command line has precedence over the environment.
func TestTheReleaseGoesBeforeTheAssetsOfTheUser(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no go command, so that nothing is built here

	var stdout bytes.Buffer

	err := run(t.Context(), []string{"-k8s", newest(t).name, "-dir", t.TempDir()}, t.TempDir(), &stdout, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "install Go") || stdout.Len() > 0 {
		t.Errorf("printed %q, error %v", stdout.String(), err)
	}
}
