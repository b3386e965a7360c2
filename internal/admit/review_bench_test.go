package admit

import (
	"encoding/json"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// arrivedReviews are reviews as kube-apiserver sends them for the creation of pods, by size. Two
// fifths of each pod are managed fields.
func arrivedReviews() map[string][]byte {
	return map[string][]byte{"4KB": arrivedReview(1, 12), "22KB": arrivedReview(5, 25), "300KB": arrivedReview(68, 26)}
}

func arrivedReview(containers, env int) []byte {
	raw := arrivedPod(containers, env)
	return encoded(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": arrivedRequest(raw)})
}

func arrivedRequest(raw []byte) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		UID:             "705ab4f5-6393-11e8-b7cc-42010a800002",
		Kind:            metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:        metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		RequestKind:     &metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		RequestResource: &metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Name:            "app-7d4b9c6f8-x2x5k",
		Namespace:       "cf-workloads",
		Operation:       admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{
			Username: "system:serviceaccount:kube-system:replicaset-controller",
			UID:      "a1b2c3d4-0000-4000-8000-0123456789ab",
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{
				"authentication.kubernetes.io/credential-id": {"JTI=2c1f7f4e-0000-4000-8000-0123456789ab"},
			},
		},
		Object:  runtime.RawExtension{Raw: raw},
		DryRun:  new(bool),
		Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
	}
}

func arrivedPod(containers, env int) []byte {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "app-7d4b9c6f8-x2x5k", GenerateName: "app-7d4b9c6f8-", Namespace: "cf-workloads",
			UID:         "6f1c1bb5-0000-4000-8000-0123456789ab",
			Labels:      map[string]string{"app": "app", "pod-template-hash": "7d4b9c6f8", "cloudfoundry.org/guid": "0123-4567"},
			Annotations: map[string]string{"prometheus.io/scrape": "true"},
		},
	}
	var fields []byte
	for i := range containers {
		c := corev1.Container{Name: fmt.Sprintf("container-%d", i), Image: "registry.example.org/images/app:1.2.3"}
		c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("512Mi")}
		fields = fmt.Appendf(fields, `,"k:{\"name\":\"%s\"}":{".":{},"f:image":{},"f:name":{},"f:env":{".":{}`, c.Name)
		for e := range env {
			v := corev1.EnvVar{Name: fmt.Sprintf("ENVIRONMENT_%d", e), Value: "http://example.org/?some=value&of=length"}
			fields = fmt.Appendf(fields, `,"k:{\"name\":\"%s\"}":{".":{},"f:name":{},"f:value":{}}`, v.Name)
			c.Env = append(c.Env, v)
		}
		fields = append(fields, "}}"...)
		for m := range 5 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", m), MountPath: fmt.Sprintf("/mnt/%d", m)})
		}
		c.Ports = []corev1.ContainerPort{{ContainerPort: 8080, Protocol: "TCP"}}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	for m := range 5 {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", m)})
	}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: append(append([]byte(`{"f:spec":{"f:containers":{".":{}`), fields...), "}}}"...)},
	}}
	return encoded(p)
}

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// BenchmarkReview compares the cut with the decoder.
func BenchmarkReview(b *testing.B) {
	reviews := arrivedReviews()
	for _, size := range []string{"4KB", "22KB", "300KB"} {
		body := reviews[size]
		b.Run(size+"/cut", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if scanReview(body) == nil {
					b.Fatal("left to the decoder")
				}
			}
		})
		b.Run(size+"/decoder", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeReview(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
