package eirinix

import (
	"context"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"code.cloudfoundry.org/eirinix/internal/diagnose"
)

var _ = Describe("The program's own pod", func() {
	pod := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "web-1", Labels: labels}}
	}
	marked := map[string]string{"eirinix.cloudfoundry.org/fingerprint": "eirini-x"}

	DescribeTable("causes a warning when the webhook would receive it:", func(change func(*ManagerOptions), p *corev1.Pod, warns bool) {
		o := NewManager(ManagerOptions{Host: "webhook.example.org"}).GetManagerOptions()
		change(&o)
		Expect(o.calledFor("own") && diagnose.Unmarked(context.Background(), fake.NewClientset(p), o.OperatorFingerprint, "own", "web-1")).To(Equal(warns))
	},
		Entry("all namespaces", func(*ManagerOptions) {}, pod(nil), true),
		Entry("with the label", func(*ManagerOptions) {}, pod(marked), false),
		Entry("with that of another program", func(*ManagerOptions) {}, pod(map[string]string{"eirinix.cloudfoundry.org/fingerprint": "other"}), true),
		Entry("its own namespace alone", func(o *ManagerOptions) { o.Namespace = "own" }, pod(nil), true),
		Entry("another namespace", func(o *ManagerOptions) { o.Namespace = "apps" }, pod(nil), false),
		Entry("a Service, whose namespace is left out", func(o *ManagerOptions) { o.ServiceName, o.WebhookNamespace = "hooks", "own" }, pod(nil), false),
		Entry("a Service, whose namespace is asked for", func(o *ManagerOptions) { o.ServiceName, o.WebhookNamespace, o.Namespace = "hooks", "own", "own" }, pod(nil), true),
		Entry("a pod that cannot be read", func(*ManagerOptions) {}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "other"}}, false),
	)
})
