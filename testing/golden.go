package eirinixtest

// This file implements Golden and GoldenConversions, which compare the results for YAML files with golden files.

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix/internal/diff"
)

// UpdateGoldenVariable is the environment variable that makes Golden write the golden files.
const UpdateGoldenVariable = "EIRINIX_UPDATE_GOLDEN"

const (
	goldenSuffix = ".golden.yaml"
	inputSuffix  = ".yaml"
	directive    = "# eirinixtest:"
)

// Golden sends every document of every file <name>.yaml in a folder and compares the results with the file
// <name>.golden.yaml beside it. Each document is sent as a CREATE, unless its first line requests something else:
//
//	# eirinixtest: {operation: DELETE, user: jane, groups: [developers], namespace: apps, dryRun: true}
//
// The old object of an UPDATE is the preceding document, which must have the directive {old: true}. The golden file
// holds each object as admitted. Comments above the object hold its warnings and audit annotations, or the reason why
// it was not admitted.
//
// To write the golden files, run the test with EIRINIX_UPDATE_GOLDEN=1. The flag -update works too if the package
// under test defines it: var _ = flag.Bool("update", false, "write golden files"). This package does not define the
// flag, because a program cannot have two flags of the same name.
func (h *Harness) Golden(folder string, options ...RequestOption) {
	h.t.Helper()
	h.report(h.golden("Golden", folder, func(text []byte) (string, error) { return h.goldenText(text, options) }))
}

// golden compares the results for the files of a folder with their golden files. The name is that of the method.
func (h *Harness) golden(name, folder string, resultOf func(text []byte) (string, error)) error {
	inputs, err := goldenInputs(folder)
	if err != nil {
		return fmt.Errorf("eirinixtest: %s: %w", name, err)
	}
	var broken []string
	for _, input := range inputs {
		if err := h.compareGolden(name, input, resultOf); err != nil {
			broken = append(broken, fmt.Sprintf("eirinixtest: %s: %v", name, err))
		}
	}
	if len(broken) > 0 {
		return errors.New(strings.Join(broken, "\n\n"))
	}
	return nil
}

// goldenInputs returns the input files of a folder.
func goldenInputs(folder string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(folder, "*"+inputSuffix))
	if err != nil {
		return nil, err
	}
	var inputs []string
	for _, path := range all {
		if !strings.HasSuffix(path, goldenSuffix) {
			inputs = append(inputs, path)
			continue
		}
		if input := strings.TrimSuffix(path, goldenSuffix) + inputSuffix; !exists(input) {
			return nil, fmt.Errorf("%s has no %s beside it that it would be the result of; remove it", path, filepath.Base(input))
		}
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("the folder %q holds no *%s to send", folder, inputSuffix)
	}
	return inputs, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// compareGolden compares the result for one input file with its golden file, or updates the golden file.
func (h *Harness) compareGolden(name, input string, resultOf func(text []byte) (string, error)) error {
	text, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	got, err := resultOf(text)
	if err != nil {
		return fmt.Errorf("%s: %w", input, err)
	}
	path := strings.TrimSuffix(input, inputSuffix) + goldenSuffix
	want, err := os.ReadFile(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if !missing && normalised(want) == got {
		return nil
	}
	if updateGolden() {
		h.t.Logf("eirinixtest: %s: wrote %s", name, path)
		return os.WriteFile(path, []byte(got), 0o644) //nolint:gosec // it is checked in
	}
	accept := "to take the new result for right, run the test with " + UpdateGoldenVariable + "=1 and look at what git diff shows"
	if missing {
		return fmt.Errorf("%s does not exist; %s. It would be\n%s", path, accept, indented(got))
	}
	return fmt.Errorf("%s gives another result; %s\n%s", input, accept, indented(diff.Unified(path, normalised(want), "now", got)))
}

func normalised(text []byte) string { return strings.ReplaceAll(string(text), "\r\n", "\n") }

// updateGolden reports whether golden files are to be written. The flag "update" can be any package's, of any type.
func updateGolden() bool {
	if v := os.Getenv(UpdateGoldenVariable); v != "" && v != "0" && v != "false" {
		return true
	}
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// goldenDirective is the directive in the first line of a document.
type goldenDirective struct {
	Operation admissionv1.Operation `json:"operation"`
	Old       bool                  `json:"old"`
	User      string                `json:"user"`
	Groups    []string              `json:"groups"`
	Namespace string                `json:"namespace"`
	DryRun    bool                  `json:"dryRun"`
}

// goldenText sends the documents of a file and joins their results.
func (h *Harness) goldenText(text []byte, options []RequestOption) (string, error) {
	var results []string
	var old any
	err := eachDocument(text, func(part []byte) error {
		asked, err := readDirective(part)
		if err != nil || isBlank(part) {
			return err
		}
		if asked.Old {
			old = part
			return nil
		}
		result, err := h.send(asked.request(part, old), options...)
		if err != nil {
			return err
		}
		old = nil
		results = append(results, result.golden())
		return nil
	})
	return joined(results, err)
}

// eachDocument calls use for each document of a file. It adds the number of the document to an error.
func eachDocument(text []byte, use func(part []byte) error) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := use(part); err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
	}
}

// joined returns the text of a golden file.
func joined(results []string, err error) (string, error) {
	if err == nil && len(results) == 0 {
		err = errors.New("it holds no document to send")
	}
	return strings.Join(results, "---\n"), err
}

func readDirective(part []byte) (goldenDirective, error) {
	var d goldenDirective
	for line := range strings.Lines(string(part)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, directive); ok {
			if err := yaml.UnmarshalStrict([]byte(rest), &d); err != nil {
				return d, fmt.Errorf("the text after %s is not a directive: %w", directive, err)
			}
			return d, nil
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			break
		}
	}
	return d, nil
}

func (d goldenDirective) request(object, old any) Request {
	r := Request{Operation: admissionv1.Operation(strings.ToUpper(string(d.Operation))), Object: object, OldObject: old, Namespace: d.Namespace, DryRun: d.DryRun}
	switch {
	case r.Operation == admissionv1.Delete:
		r.Object, r.OldObject = nil, object
	case r.Operation == "" && old != nil:
		r.Operation = admissionv1.Update
	case r.Operation == "":
		r.Operation = admissionv1.Create
	}
	if d.User != "" {
		AsUser(d.User, d.Groups...)(&r)
	}
	return r
}

// isBlank reports whether a document holds nothing but comments.
func isBlank(part []byte) bool {
	for line := range strings.Lines(string(part)) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// golden formats the result for a golden file.
func (r *Result) golden() string {
	var b strings.Builder
	comment := func(format string, args ...any) { b.WriteString(remark(format, args...)) }
	switch {
	case r.Denial != nil:
		comment("denied with %d %s: %s", r.Denial.Code, r.Denial.Reason, r.Denial.Message)
	case !r.Allowed:
		comment("failed: %v", r.Err)
	case r.after().Absent():
		comment("allowed")
	}
	for _, c := range r.Calls {
		if c.Ignored {
			comment("ignored: %v", c.Err)
		}
	}
	for _, w := range r.Warnings {
		comment("warning: %s", w)
	}
	for _, key := range slices.Sorted(maps.Keys(r.AuditAnnotations)) {
		comment("audit: %s=%s", key, r.AuditAnnotations[key])
	}
	if r.Allowed {
		b.WriteString(r.after().YAML())
	}
	return b.String()
}

// remark returns a comment of a golden file.
func remark(format string, args ...any) string {
	text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
	return "# " + strings.ReplaceAll(text, "\n", "\n#   ") + "\n"
}
