package preview_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/preview"
)

func TestPreview(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Preview")
}

// previewed is the output of a command and its error.
type previewed struct {
	stdout, stderr string
	err            error
}

// objects are those of the JSON report, by kind and name.
func (p previewed) objects() map[string]map[string]any {
	GinkgoHelper()
	var report struct{ Objects []map[string]any }
	Expect(json.Unmarshal([]byte(p.stdout), &report)).To(Succeed(), p.stdout)
	all := map[string]map[string]any{}
	for _, o := range report.Objects {
		all[o["kind"].(string)+" "+o["name"].(string)] = o
	}
	return all
}

// file writes manifests into a folder of the spec's own.
func file(name, text string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), name)
	Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	return path
}

// program is one that labels pods, and denies those with the label deny.
func program(more ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
	steps := append([]any{eirinix.Mutation[*corev1.Pod]{ID: "label", Apply: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		if why := pod.Labels["deny"]; why != "" {
			return eirinix.Deny("%s", why)
		}
		if pod.Labels["quiet"] == "" {
			c.Warn("labelled")
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "seen", "yes")
		}
		return nil
	}}}, more...)
	for _, s := range steps {
		Expect(x.AddExtension(s)).To(Succeed())
	}
	return x
}

// command runs the preview of a program, with a text as standard input.
func command(x *eirinix.ExtensionManager, stdin string, args ...string) previewed {
	GinkgoHelper()
	var out, errs bytes.Buffer
	err := preview.Command(GinkgoT().Context(), x, args, func(o *preview.Options) {
		o.Stdin, o.Stdout, o.Stderr = strings.NewReader(stdin), &out, &errs
	})
	return previewed{out.String(), errs.String(), err}
}

const pod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: nginx, newField: kept}]}
`

const denied = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "labels": {"deny": "not here"}}}`

// workload is an object with the template of a pod in its spec.
func workload(apiVersion, kind, spec string) string {
	template := "{metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: nginx}]}}"
	return "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {name: web, namespace: apps}, spec: {" + strings.Replace(spec, "%s", template, 1) + "}}"
}
