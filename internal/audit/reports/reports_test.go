package reports_test

// This file writes the reports of audits into an API server.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/audit/reports"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const patience = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestReports(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "internal/audit/reports")
}

var (
	plane *eirinixtest.ControlPlane
	admin client.Client
)

// No timeout holds here: other packages may use the control plane first.
var _ = BeforeSuite(func() {
	if RunsAPIServer() {
		plane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared)
		admin = Must(client.New(plane.Config(), client.Options{}))
	}
})

var (
	pods  = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	roles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	sets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
)

func finding(r schema.GroupVersionResource, namespace, name string, result audit.Result) audit.Finding {
	return audit.Finding{
		Step: "no-root", Mode: "Audit", Operation: "CREATE", Result: result, Message: name + " would run as root",
		Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: r, Namespace: namespace, Name: name, UID: "1",
	}
}

var _ = Describe("The reports of an audit", Ordered, Label("api-server"), func() {
	var logs []string
	install := func(group string) {
		GinkgoHelper()
		Must(envtest.InstallCRDs(plane.Config(), envtest.CRDInstallOptions{Paths: []string{filepath.Join("testdata", group+".yaml")}, ErrorIfPathMissing: true}))
		admin = Must(client.New(plane.Config(), client.Options{}))
	}
	writerAs := func(ctx context.Context, config *rest.Config, namespace string) *reports.Writer {
		GinkgoHelper()
		logs = nil
		w := Must(reports.New(ctx, config, "eirini-x", namespace, funcr.New(func(_, args string) { logs = append(logs, args) }, funcr.Options{})))
		return w
	}
	writer := func(ctx context.Context, namespace string) *reports.Writer {
		return writerAs(ctx, plane.Config(), namespace)
	}
	// write plays a complete audit.
	write := func(ctx context.Context, w *reports.Writer, all ...audit.Finding) {
		GinkgoHelper()
		for _, f := range all {
			Expect(w.Add(ctx, f)).To(Succeed())
		}
		Expect(w.Close(ctx)).To(Succeed())
	}
	reports := func(ctx context.Context, apiVersion, kind string) (names []string, all []unstructured.Unstructured) {
		GinkgoHelper()
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(apiVersion)
		list.SetKind(kind + "List")
		Expect(admin.List(ctx, list)).To(Succeed())
		for _, r := range list.Items {
			names = append(names, strings.TrimPrefix(r.GetNamespace()+"/"+r.GetName(), "/"))
		}
		return names, list.Items
	}

	It("are not written into a cluster without their kinds", func(ctx SpecContext) {
		Expect(writer(ctx, "")).To(BeNil())
	}, SpecTimeout(patience))

	It("are written about objects in namespaces where only their kind is served", func(ctx SpecContext) {
		install("wgpolicyk8s.io")
		clusterKind := &unstructured.Unstructured{}
		clusterKind.SetAPIVersion("apiextensions.k8s.io/v1")
		clusterKind.SetKind("CustomResourceDefinition")
		clusterKind.SetName("clusterpolicyreports.wgpolicyk8s.io")
		Expect(admin.Delete(ctx, clusterKind)).To(Succeed())
		Eventually(func(g Gomega) {
			w := writer(ctx, "")
			g.Expect(w).NotTo(BeNil())
			g.Expect(logs).To(ConsistOf(ContainSubstring("no kind for reports about objects without a namespace")))
			g.Expect(w.Add(ctx, finding(roles, "", "admin", "denied"))).To(Succeed())
			g.Expect(w.Add(ctx, finding(pods, "default", "web", "denied"))).To(Succeed())
			g.Expect(w.Close(ctx)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		names, _ := reports(ctx, "wgpolicyk8s.io/v1alpha2", "PolicyReport")
		Expect(names).To(ConsistOf("default/eirini-x-no-root-pods.v1"))
		write(ctx, writer(ctx, ""))
	}, SpecTimeout(patience))

	for _, g := range []struct{ group, apiVersion, namespaced, cluster string }{
		{"wgpolicyk8s.io", "wgpolicyk8s.io/v1alpha2", "PolicyReport", "ClusterPolicyReport"},
		{"openreports.io", "openreports.io/v1alpha1", "Report", "ClusterReport"},
	} {
		It("are written, kept and removed: "+g.group, func(ctx SpecContext) {
			install(g.group)
			a, b := NewNamespace(ctx, Clients(plane.Config()), nil).Name, NewNamespace(ctx, Clients(plane.Config()), nil).Name
			if a > b {
				a, b = b, a
			}
			all := []audit.Finding{
				finding(roles, "", "admin", "failed"),
				finding(pods, a, "db", "denied"), finding(pods, a, "web", "drift"), finding(pods, a, "x", "passed"), finding(pods, b, "web", "failed"),
				finding(sets, a, "web", "denied"),
			}
			write(ctx, writer(ctx, ""), all...)
			names, found := reports(ctx, g.apiVersion, g.namespaced)
			Expect(names).To(ConsistOf(a+"/eirini-x-no-root-pods.v1", b+"/eirini-x-no-root-pods.v1", a+"/eirini-x-no-root-replicasets.v1.apps"))
			Expect(found[0].Object["summary"]).To(Equal(map[string]any{"pass": int64(1), "fail": int64(1), "warn": int64(1), "error": int64(0), "skip": int64(0)}))
			Expect(found[0].Object["results"]).To(HaveLen(2))
			Expect(found[0].Object["results"].([]any)[0]).To(Equal(map[string]any{
				"source": "eirinix", "policy": "eirini-x", "rule": "no-root", "category": "admission", "result": "fail",
				"message": "db would run as root", "properties": map[string]any{"mode": "Audit", "operation": "CREATE"},
				"resources": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": a, "name": "db", "uid": "1"}},
			}))
			Expect(found[0].GetLabels()).To(Equal(map[string]string{"app.kubernetes.io/managed-by": "eirinix", policyreport.Label: "eirini-x"}))
			names, _ = reports(ctx, g.apiVersion, g.cluster)
			Expect(names).To(ConsistOf("eirini-x-no-root-clusterroles.v1.rbac.authorization.k8s.io"))
			By("changing nothing where nothing has changed")
			versions := func() (all []string) {
				_, found := reports(ctx, g.apiVersion, g.namespaced)
				_, cluster := reports(ctx, g.apiVersion, g.cluster)
				for _, r := range append(found, cluster...) {
					all = append(all, r.GetNamespace()+"/"+r.GetName()+" "+r.GetResourceVersion())
				}
				return all
			}
			before := versions()
			write(ctx, writer(ctx, ""), all...)
			Expect(versions()).To(Equal(before))

			By("leaving the reports of other programs, and of what could not be listed")
			other := found[0].DeepCopy()
			other.SetResourceVersion("")
			other.SetName("other")
			other.SetLabels(map[string]string{policyreport.Label: "another"})
			Expect(admin.Create(ctx, other)).To(Succeed())
			write(ctx, writer(ctx, ""), all...)
			names, _ = reports(ctx, g.apiVersion, g.namespaced)
			Expect(names).To(HaveLen(4))
			count := func() (n int) {
				names, _ := reports(ctx, g.apiVersion, g.namespaced)
				others, _ := reports(ctx, g.apiVersion, g.cluster)
				return len(names) + len(others)
			}
			for _, gap := range []struct {
				audit.Gap
				kept int // of three reports about objects in namespaces, and one of the cluster
			}{
				{audit.Gap{Step: "no-root"}, 4},
				{audit.Gap{Step: "no-root", Resource: pods}, 2},
				{audit.Gap{Step: "no-root", Resource: pods, Namespace: b}, 1},
				{audit.Gap{Step: "no-root", Resource: schema.GroupVersionResource{Group: "apps", Version: "v1"}}, 1},
				{audit.Gap{Step: "another"}, 0},
				{audit.Gap{Step: "no-root", Objects: 1}, 0},
			} {
				write(ctx, writer(ctx, ""), all...)
				before := versions()
				w := writer(ctx, "")
				w.Gap(gap.Gap)
				Expect(w.Close(ctx)).To(Succeed())
				Expect(count()).To(Equal(gap.kept+1), "%+v", gap.Gap)
				after := versions()
				Expect(before).To(ContainElements(after), "they are as they were")
			}

			By("writing no part of a report")
			write(ctx, writer(ctx, ""), all...)
			w := writer(ctx, "")
			Expect(w.Add(ctx, all[2])).To(Succeed())
			w.Gap(audit.Gap{Step: "no-root", Resource: pods})
			Expect(w.Close(ctx)).To(Succeed())
			_, found = reports(ctx, g.apiVersion, g.namespaced)
			Expect(found[0].Object["results"]).To(HaveLen(2))

			By("touching one namespace alone in an audit of that one")
			write(ctx, writer(ctx, ""), all...)
			write(ctx, writer(ctx, b))
			names, _ = reports(ctx, g.apiVersion, g.namespaced)
			Expect(names).To(ConsistOf(a+"/eirini-x-no-root-pods.v1", a+"/eirini-x-no-root-replicasets.v1.apps", a+"/other"))
			names, _ = reports(ctx, g.apiVersion, g.cluster)
			Expect(names).To(HaveLen(1))

			By("removing all that are clean")
			write(ctx, writer(ctx, ""))
			names, _ = reports(ctx, g.apiVersion, g.namespaced)
			Expect(names).To(ConsistOf(a + "/other"))
			names, _ = reports(ctx, g.apiVersion, g.cluster)
			Expect(names).To(BeEmpty())
		}, SpecTimeout(4*patience))
	}

	It("belong to their owner, and one for each step", func(ctx SpecContext) {
		ns := NewNamespace(ctx, Clients(plane.Config()), nil)
		w := writer(ctx, "")
		w.Owner = &metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}
		other := finding(pods, ns.Name, "web", "passed")
		other.Step = "content"
		third := finding(pods, ns.Name, "web", "denied")
		third.Step = "third"
		write(ctx, w, finding(pods, ns.Name, "web", "denied"), other, third)
		_, found := reports(ctx, "openreports.io/v1alpha1", "Report")
		found = slices.DeleteFunc(found, func(u unstructured.Unstructured) bool { return u.GetNamespace() != ns.Name })
		Expect(found).To(HaveLen(2), "none for a step that has no finding")
		for _, report := range found {
			Expect(report.GetOwnerReferences()).To(ConsistOf(*w.Owner))
			Expect(report.Object["results"]).To(HaveExactElements(HaveKeyWithValue("rule", report.GetAnnotations()["eirinix.cloudfoundry.org/step"])))
		}
	}, SpecTimeout(patience))

	It("of another group are removed, too", func(ctx SpecContext) { // both groups are served by now
		ns := NewNamespace(ctx, Clients(plane.Config()), nil).Name
		old := &unstructured.Unstructured{Object: map[string]any{}}
		old.SetAPIVersion("wgpolicyk8s.io/v1alpha2")
		old.SetKind("PolicyReport")
		old.SetNamespace(ns)
		old.SetName("eirini-x-no-root-pods.v1")
		old.SetLabels(map[string]string{policyreport.Label: "eirini-x"})
		old.SetFinalizers([]string{"example.org/held"}) // so the answer to its deletion is the report
		Expect(admin.Create(ctx, old)).To(Succeed())
		write(ctx, writer(ctx, ""), finding(pods, ns, "web", "denied"))
		Expect(admin.Patch(ctx, old, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		names, _ := reports(ctx, "wgpolicyk8s.io/v1alpha2", "PolicyReport")
		Expect(names).NotTo(ContainElement(ns + "/eirini-x-no-root-pods.v1"))
		names, _ = reports(ctx, "openreports.io/v1alpha1", "Report")
		Expect(names).To(ContainElement(ns + "/eirini-x-no-root-pods.v1"))
	}, SpecTimeout(patience))

	It("are left out for a namespace that is gone", func(ctx SpecContext) {
		ns := NewNamespace(ctx, Clients(plane.Config()), nil)
		w := writer(ctx, "")
		Expect(w.Add(ctx, finding(pods, ns.Name, "web", "denied"))).To(Succeed())
		Expect(admin.Delete(ctx, ns)).To(Succeed()) // no controller ends the deletion here
		Expect(w.Add(ctx, finding(pods, "zz-missing", "web", "denied"))).To(Succeed())
		Expect(w.Close(ctx)).To(Succeed())
	}, SpecTimeout(patience))

	It("stay small, whatever the findings", func(ctx SpecContext) {
		ns := NewNamespace(ctx, Clients(plane.Config()), nil).Name
		w := writer(ctx, "")
		for i := range 1200 {
			f := finding(pods, ns, fmt.Sprintf("web-%04d", i), "denied")
			f.Message = strings.Repeat("ä", 1<<16) + "\xff"
			if i < 200 {
				f.Message = strings.Repeat("\x00", 1<<16) // each is six bytes of JSON
			}
			Expect(w.Add(ctx, f)).To(Succeed())
		}
		Expect(w.Close(ctx)).To(Succeed())
		_, found := reports(ctx, "openreports.io/v1alpha1", "Report")
		at := slices.IndexFunc(found, func(r unstructured.Unstructured) bool { return r.GetNamespace() == ns })
		Expect(at).To(BeNumerically(">=", 0))
		text := Must(found[at].MarshalJSON())
		Expect(len(text)).To(And(BeNumerically(">", 700<<10), BeNumerically("<", 900<<10)))
		Expect(found[at].Object["summary"]).To(HaveKeyWithValue("fail", int64(1200)))
		Expect(found[at].GetAnnotations()).To(HaveKeyWithValue("eirinix.cloudfoundry.org/left-out", fmt.Sprint(1200-len(found[at].Object["results"].([]any)))))
	}, SpecTimeout(patience))

	It("name the right that is missing", func(ctx SpecContext) {
		user := Must(plane.User("reporter"))
		w := writerAs(ctx, user, "")
		Expect(w.Add(ctx, finding(pods, "default", "web", "denied"))).To(Succeed())
		err := w.Close(ctx)
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(HavePrefix("Report default/eirini-x-no-root-pods.v1 (needs patch and create on reports.openreports.io in a ClusterRole): ")))
	}, SpecTimeout(patience))

	It("refuse findings that are out of order", func(ctx SpecContext) {
		w := writer(ctx, "")
		Expect(w.Add(ctx, finding(pods, "default", "a", "denied"))).To(Succeed())
		Expect(w.Add(ctx, finding(sets, "default", "a", "denied"))).To(Succeed())
		Expect(w.Add(ctx, finding(pods, "default", "b", "denied"))).To(Succeed())
		Expect(w.Close(ctx)).To(MatchError("report Report default/eirini-x-no-root-pods.v1: its findings do not come one after another"))
	}, SpecTimeout(patience))
})
