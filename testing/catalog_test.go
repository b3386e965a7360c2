package eirinixtest_test

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	eirinixcatalog "code.cloudfoundry.org/eirinix/testing"
)

// The unit tests of extensions in the field look like these.
var _ = Describe("EiriniX's Catalog", func() {
	catalog := eirinixcatalog.NewCatalog()

	request := func(pod *corev1.Pod) admission.Request {
		raw, err := json.Marshal(pod)
		Expect(err).NotTo(HaveOccurred())
		return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: raw}}}
	}

	It("returns a manager that makes patches without a cluster", func() {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "opi"}}}}
		response := catalog.SimpleExtension().Handle(context.Background(), catalog.SimpleManager(), pod, request(pod))
		Expect(response.Allowed).To(BeTrue())
		Expect(response.Patches).To(HaveLen(1))
		Expect(response.Patches[0].Json()).To(Equal(
			`{"op":"add","path":"/spec/containers/0/env","value":[{"name":"STICKY_MESSAGE","value":"Eirinix is awesome!"}]}`))
	})

	It("reports a request without pod", func() {
		response := catalog.SimpleExtension().Handle(context.Background(), catalog.SimpleManager(), nil, admission.Request{})
		Expect(response.Result.Code).To(BeEquivalentTo(400))
	})

	It("returns managers with the options of EiriniX's", func() {
		Expect(catalog.SimpleManager().GetManagerOptions()).To(And(
			HaveField("Namespace", "namespace"), HaveField("Host", "127.0.0.1"), HaveField("Port", int32(90)),
			HaveField("OperatorFingerprint", "eirini-x"), HaveField("SetupCertificateName", "eirini-x-setupcertificate")))
		Expect(catalog.SimpleManagerService().GetManagerOptions()).To(HaveField("ServiceName", "extension"))
	})

	It("returns a watcher that keeps its events", func() {
		watcher := catalog.SimpleWatcher()
		event := watch.Event{Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
		watcher.Handle(catalog.SimpleManager(), event)
		Expect(watcher.(*eirinixcatalog.SimpleWatch).Handled).To(Equal([]watch.Event{event}))
	})
})
