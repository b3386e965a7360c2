package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// The test uses a real API server, and a Harness beside it.
func TestOnAnAPIServer(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	cluster := eirinixtest.StartControlPlane(t, eirinixtest.Shared)
	c, err := client.New(cluster.Config(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := cluster.NewNamespace(t)
	definition := read(g, "config/batch.example.com_cronjobs.yaml")
	g.Expect(c.Create(t.Context(), definition)).To(Succeed())
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("batch.example.com/v1")
	list.SetKind("CronJobList")
	g.Eventually(func() error { return c.List(t.Context(), list) }).Should(Succeed(), "the step needs the kind")

	m := eirinix.NewManager(eirinix.ManagerOptions{
		RestConfig: cluster.Config(), Namespace: namespace, Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", OperatorFingerprint: "multiversion-test",
	})
	g.Expect(m.AddExtension(cronJobs)).To(Succeed())
	g.Expect(m.AddExtension(zoned)).To(Succeed())
	eirinixtest.StartManager(t, m)
	t.Cleanup(func() { // before the Manager is stopped
		g.Expect(c.Delete(context.Background(), definition)).To(Succeed())
		g.Eventually(func() error { return c.Get(context.Background(), client.ObjectKeyFromObject(definition), definition) }).ShouldNot(Succeed())
	})

	weekly := read(g, "testdata/weekly.v1beta1.yaml")
	weekly.SetNamespace(namespace)
	created := weekly.DeepCopy()
	g.Eventually(func() error {
		created = weekly.DeepCopy()
		return c.Create(t.Context(), created)
	}).Should(Succeed())
	newer := weekly.DeepCopy()
	newer.SetAPIVersion("batch.example.com/v1")
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(newer), newer)).To(Succeed())
	g.Expect(newer.GetAnnotations()).To(BeEmpty())
	g.Expect(newer.Object["spec"]).To(HaveKeyWithValue("timeZone", "UTC"))

	// The Harness returns the same object, in the version that was sent.
	simulated := &unstructured.Unstructured{}
	h := eirinixtest.NewHarness(t, cronJobs, zoned)
	g.Expect(simulated.UnmarshalJSON(h.Create(weekly).JSON)).To(Succeed())
	for _, u := range []*unstructured.Unstructured{created, simulated} {
		g.Expect(u.GetAPIVersion()).To(Equal("batch.example.com/v1beta1"))
		g.Expect(u.GetAnnotations()).To(HaveLen(1))
		for name, value := range u.GetAnnotations() {
			g.Expect(name).To(HavePrefix("conversion.eirinix.cloudfoundry.org/"))
			g.Expect(value).To(HaveSuffix(`.{"version":"v1","path":[".spec",".timeZone"],"value":"UTC"}`))
		}
		g.Expect(u.Object["spec"]).To(Equal(weekly.Object["spec"]))
	}

	// Admission converts an object before the API server checks its schema.
	refused := weekly.DeepCopy()
	refused.SetName("refused")
	g.Expect(unstructured.SetNestedField(refused.Object, "hourly", "spec", "schedule")).To(Succeed())
	const failure = "conversion webhook for batch.example.com/v1beta1, Kind=CronJob failed: "
	g.Expect(c.Create(t.Context(), refused.DeepCopy())).To(MatchError(ContainSubstring(failure)))
	g.Expect(h.Create(refused)).To(eirinixtest.HaveFailed(failure))
}

// zoned sets a time zone. Its rule names v1, so the API server converts objects of v1beta1 for it.
var zoned = eirinix.Mutation[*unstructured.Unstructured]{
	ID: "zoned",
	Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"batch.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"cronjobs"}},
	}}},
	Apply: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
		if c.RequestKind.Version != "v1beta1" || u.GetAPIVersion() != "batch.example.com/v1" {
			return nil
		}
		return unstructured.SetNestedField(u.Object, "UTC", "spec", "timeZone")
	},
}

// read reads the object in a file.
func read(g *WithT, path string) *unstructured.Unstructured {
	text, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	u := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(strings.TrimPrefix(string(text), "---\n")), &u.Object)).To(Succeed())
	return u
}

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }
