package manifests

import (
	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A program's manifests, for those who read its metrics,", func() {
	// reading are the objects that are for them.
	reading := func(objects []client.Object) (all []string) {
		for _, o := range kinds(objects) {
			switch o {
			case "ClusterRole eirinix:eirini-x:metrics", "ClusterRoleBinding eirinix:eirini-x:metrics", "ServiceAccount eirini-x-metrics", "Secret eirini-x-metrics", "PodMonitor eirini-x":
				all = append(all, o)
			}
		}
		return all
	}
	// reviews says whether the program may ask about callers.
	reviews := func(objects []client.Object) (granted bool) {
		for _, role := range allOf[*rbacv1.ClusterRole](objects) {
			for _, r := range role.Rules {
				granted = granted || len(r.Resources) > 0 && r.Resources[0] == "tokenreviews"
			}
		}
		return granted
	}

	DescribeTable("hold rights only where callers are asked for them:",
		func(change func(*input), asked bool, expected ...string) {
			o := deployedOptions()
			change(&o)
			objects := manifestsOf(o, valueExtension{})
			Expect(reading(objects)).To(HaveExactElements(expected))
			Expect(reviews(objects)).To(Equal(asked))
		},
		Entry("without metrics", func(*input) {}, false),
		Entry("on loopback", func(o *input) { o.MetricsBindAddress = "localhost:9090" }, false),
		Entry("for every client", func(o *input) { o.MetricsBindAddress, o.MetricsUnauthenticated = ":9090", true }, false),
		Entry("for some", func(o *input) { o.MetricsBindAddress = ":9090" }, true, "ClusterRole eirinix:eirini-x:metrics"),
		Entry("for Prometheus", func(o *input) { o.MetricsBindAddress, o.Deployment.PodMonitor = ":9090", true }, true,
			"ClusterRole eirinix:eirini-x:metrics", "ServiceAccount eirini-x-metrics", "ClusterRoleBinding eirinix:eirini-x:metrics", "Secret eirini-x-metrics", "PodMonitor eirini-x"),
		Entry("for Prometheus and every client", func(o *input) {
			o.MetricsBindAddress, o.MetricsUnauthenticated, o.Deployment.PodMonitor = ":9090", true, true
		}, false, "PodMonitor eirini-x"),
	)

	It("grant the half that serves the rights to review callers, and not the other", func() {
		o := deployedOptions()
		o.RegisterWebHook, o.MetricsBindAddress = new(false), ":9090"
		for _, role := range allOf[*rbacv1.ClusterRole](manifestsOf(o, valueExtension{})) {
			Expect(reviews([]client.Object{role})).To(Equal(role.Name == "eirinix:eirini-x"), role.Name)
		}
	})

	It("hold an account of Prometheus' own, whose token a Secret gets", func() {
		o := deployedOptions()
		o.MetricsBindAddress, o.Deployment.PodMonitor, o.Deployment.Annotations = ":9090", true, map[string]string{"a": "b"}
		objects := manifestsOf(o, valueExtension{})
		secret := the[*corev1.Secret](objects)
		Expect(secret.Type).To(Equal(corev1.SecretTypeServiceAccountToken))
		Expect(secret.Annotations).To(Equal(map[string]string{"kubernetes.io/service-account.name": "eirini-x-metrics", "a": "b"}))
		for _, binding := range allOf[*rbacv1.ClusterRoleBinding](objects) {
			if binding.Name == "eirinix:eirini-x:metrics" {
				Expect(binding.Subjects).To(Equal([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "eirini-x-metrics", Namespace: "system"}}))
				Expect(binding.RoleRef.Name).To(Equal(binding.Name))
			}
		}
	})

	It("have a PodMonitor that finds the pods that serve, their port and the token", func() {
		o := deployedOptions()
		o.MetricsBindAddress, o.RegisterWebHook = ":9090", new(false)
		o.Deployment.PodMonitor, o.Deployment.Labels, o.Deployment.Annotations = true, map[string]string{"release": "prometheus"}, map[string]string{"a": "b"}
		objects := manifestsOf(o, valueExtension{})
		monitor := the[*unstructured.Unstructured](objects)
		Expect(monitor.GetLabels()).To(HaveKeyWithValue("release", "prometheus"))
		Expect(monitor.GetAnnotations()).To(Equal(map[string]string{"a": "b"}))
		Expect(monitor.GetNamespace()).To(Equal("system"))
		selected, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
		Expect(err).NotTo(HaveOccurred())
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: selected})
		Expect(err).NotTo(HaveOccurred())
		serving := the[*appsv1.Deployment](objects).Spec.Template
		Expect(selector.Matches(labels.Set(serving.Labels))).To(BeTrue())
		Expect(selector.Matches(labels.Set(the[*batchv1.Job](objects).Spec.Template.Labels))).To(BeFalse())
		Expect(serving.Spec.Containers[0].Ports).To(ContainElement(corev1.ContainerPort{Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}))
		Expect(asJSON(monitor.Object["spec"].(map[string]any)["podMetricsEndpoints"])).To(MatchJSON(`[{
			"port": "metrics", "path": "/metrics", "scheme": "https", "tlsConfig": {"insecureSkipVerify": true},
			"authorization": {"type": "Bearer", "credentials": {"name": "eirini-x-metrics", "key": "token"}}
		}]`))
		o.MetricsUnauthenticated = true
		monitor = the[*unstructured.Unstructured](manifestsOf(o, valueExtension{}))
		Expect(asJSON(monitor.Object["spec"].(map[string]any)["podMetricsEndpoints"])).To(MatchJSON(`[{"port": "metrics", "path": "/metrics", "scheme": "http"}]`))
	})
})
