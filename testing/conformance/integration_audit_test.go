package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [create]
  resources:
  - group: ""
    resources: [pods, configmaps]
- level: None
`

// audited is an API server of the suite's control plane that keeps an audit log.
type audited struct {
	*eirinixtest.APIServer
	log string
}

// theAudited is started when the first spec asks for it, and stops with the control plane.
var theAudited *audited

func auditedServer(ctx context.Context) *audited {
	GinkgoHelper()
	if theAudited != nil {
		return theAudited
	}
	dir, err := os.MkdirTemp("", "conformance-audit")
	Expect(err).NotTo(HaveOccurred())
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	Expect(os.WriteFile(policy, []byte(auditPolicy), 0o600)).To(Succeed())
	server, err := controlPlane().AddAPIServer(ctx,
		"--audit-policy-file="+policy, "--audit-log-path="+log, "--audit-log-mode=blocking", "--audit-log-version=audit.k8s.io/v1")
	Expect(err).NotTo(HaveOccurred())
	theAudited = &audited{APIServer: server, log: log}
	return theAudited
}

var _ = AfterSuite(func() {
	if theAudited != nil {
		Expect(theAudited.Stop()).To(Succeed())
		Expect(os.RemoveAll(filepath.Dir(theAudited.log))).To(Succeed())
	}
})

// await returns when this API server, too, calls the steps that count: serve has waited for the first one alone.
// It forgets the calls that were counted in the meantime.
func (a *audited) await(ctx context.Context, namespace, resource string, calls *callLog) {
	GinkgoHelper()
	client, err := dynamic.NewForConfig(a.Config())
	Expect(err).NotTo(HaveOccurred())
	probe := map[string]any{"metadata": map[string]any{"name": "probe"}}
	if resource == "pods" {
		probe["spec"] = map[string]any{"containers": []any{map[string]any{"name": "probe", "image": "probe:1"}}}
	}
	Eventually(func() []string {
		object := &unstructured.Unstructured{Object: probe}
		object = object.DeepCopy()
		object.SetAPIVersion("v1")
		object.SetKind(map[string]string{"pods": "Pod", "configmaps": "ConfigMap"}[resource])
		_, _ = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(namespace).
			Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return calls.list()
	}).WithContext(ctx).WithPolling(pollMarker).ShouldNot(BeEmpty())
	calls.take()
}

// annotations returns the annotations in the audit log about the creation of an object.
func (a *audited) annotations(ctx context.Context, namespace, name string) map[string]string {
	GinkgoHelper()
	var found map[string]string
	Eventually(func(g Gomega) { // the event is written after the answer
		f, err := os.Open(a.log)
		g.Expect(err).NotTo(HaveOccurred())
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var event struct {
				RequestURI    string                     `json:"requestURI"`
				ObjectRef     struct{ Namespace string } `json:"objectRef"`
				RequestObject struct {
					Metadata struct{ Name string } `json:"metadata"`
				} `json:"requestObject"`
				Annotations map[string]string `json:"annotations"`
			}
			g.Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
			if event.ObjectRef.Namespace == namespace && event.RequestObject.Metadata.Name == name && !strings.Contains(event.RequestURI, "dryRun") {
				found = event.Annotations
			}
		}
		g.Expect(lines.Err()).NotTo(HaveOccurred())
		g.Expect(found).NotTo(BeNil(), "no event about %s/%s", namespace, name)
	}).WithContext(ctx).Should(Succeed())
	return found
}

// mutations returns round and index of each webhook that was called, and whether it mutated. Where it did, the
// patch must be there too.
func (a *audited) mutations(ctx context.Context, namespace, name string) map[string]bool {
	GinkgoHelper()
	mutated := map[string]bool{}
	annotations := a.annotations(ctx, namespace, name)
	for key, value := range annotations {
		if at, ok := strings.CutPrefix(key, "mutation.webhook.admission.k8s.io/"); ok {
			var said struct {
				Configuration, Webhook string
				Mutated                bool
			}
			Expect(json.Unmarshal([]byte(value), &said)).To(Succeed())
			Expect(said.Configuration).To(Equal(namespace + "-mutating-hook"))
			Expect(said.Webhook).To(HaveSuffix("." + namespace + ".eirinix.cloudfoundry.org"))
			mutated[at] = said.Mutated
			patch, patched := annotations["patch.webhook.admission.k8s.io/"+at]
			Expect(patched).To(Equal(said.Mutated), "%s: %s", at, patch)
		}
	}
	return mutated
}
