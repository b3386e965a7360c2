package eirinix_test

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"
)

var _ = Describe("The CronJob that audits", Label("api-server"), func() {
	It("can do with the rights of its manifests what it is for", func(ctx SpecContext) {
		apps, system := newNamespace(ctx), newNamespace(ctx)
		o := eirinix.ManagerOptions{
			Namespace: apps, ServiceName: "hooks", WebhookNamespace: system, OperatorFingerprint: apps, ModesConfigMap: "modes",
		}
		refuse := eirinix.Validation[*corev1.ConfigMap]{
			ID: "owner", Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("set an owner") },
		}
		group := apps + ".example.com"
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(refuse)).To(Succeed())
		Expect(m.AddExtension(shopConversion(group))).To(Succeed())
		objects, err := manifests.Of(m, manifests.Options{Image: "registry.example.org/hooks:1.0", AuditSchedule: "@daily"})
		Expect(err).NotTo(HaveOccurred())
		admin := Must(client.New(controlPlane().Config(), client.Options{}))
		for _, object := range objects {
			if object.GetLabels()["app.kubernetes.io/component"] == "audit" {
				Expect(admin.Create(ctx, object)).To(Succeed())
				DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(admin.Delete(ctx, object))).To(Succeed()) })
			}
		}
		local := eirinix.NewManager(eirinix.ManagerOptions{Namespace: apps, Host: "127.0.0.1", OperatorFingerprint: apps, RestConfig: controlPlane().Config()})
		Expect(local.AddExtension(refuse)).To(Succeed())
		summary, err := audit.Run(ctx, local, audit.Options{PolicyReports: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(summary.Notes).To(ConsistOf(ContainSubstring("install the CustomResourceDefinitions of openreports.io")))
		installReports()
		_, err = clients().CoreV1().ConfigMaps(apps).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		Expect(admin.Create(ctx, twoVersions(group))).To(Succeed())
		DeferCleanup(admin.Delete, twoVersions(group))
		odd := newShop(group, apps, "odd")
		odd.Object["price"] = "a lot"
		Eventually(func() error { return admin.Create(ctx, odd.DeepCopy()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())

		refused := 0
		o.RestConfig = rest.CopyConfig(controlPlane().Config())
		o.RestConfig.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + system + ":" + apps + "-audit", Groups: []string{"system:serviceaccounts", "system:authenticated"},
		}
		o.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil && resp.StatusCode == http.StatusForbidden {
					refused++
				}
				return resp, err
			})
		})
		ask := func() (audit.Summary, error) {
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(refuse)).To(Succeed())
			Expect(m.AddExtension(shopConversion(group))).To(Succeed())
			return audit.Run(ctx, m, audit.Options{PolicyReports: true})
		}
		report := &unstructured.Unstructured{}
		report.SetAPIVersion("openreports.io/v1alpha1")
		report.SetKind("Report")
		key := client.ObjectKey{Namespace: apps, Name: apps + "-owner-configmaps.v1"}
		Eventually(func(g Gomega) { // the authorizer learns of roles from a watch
			refused = 0
			summary, err := ask()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(summary.Findings["owner"]).To(Equal(map[audit.Result]int{audit.Denied: 1}))
			g.Expect(summary.Findings["shops."+group]).To(Equal(map[audit.Result]int{audit.Failed: 1}))
			g.Expect(refused).To(BeZero())
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(admin.Get(ctx, key, report)).To(Succeed())
		Expect(report.Object["results"]).To(ConsistOf(And(HaveKeyWithValue("rule", "owner"), HaveKeyWithValue("message", "set an owner"))))
		Expect(reportsIn(ctx, admin, apps)[apps+"-shops."+group+"-shops.v1."+group].Object["results"]).To(ConsistOf(And(
			HaveKeyWithValue("rule", "shops."+group), HaveKeyWithValue("result", "error"), HaveKeyWithValue("message", ContainSubstring(`price "a lot" is no amount`)))))

		Expect(clients().CoreV1().ConfigMaps(apps).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		_, err = ask()
		Expect(err).NotTo(HaveOccurred())
		Expect(client.IgnoreNotFound(admin.Get(ctx, key, report))).To(Succeed())
		Expect(admin.Get(ctx, key, report)).NotTo(Succeed(), "it is clean")
		Expect(refused).To(BeZero())
	}, SpecTimeout(2*patience))
})
