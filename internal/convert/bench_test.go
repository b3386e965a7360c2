package convert_test

// This file compares the answer with that of controller-runtime's handler, for the same types and conversions.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	peer "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

// arrivedObject is an object of some 2 KB, of which a fourth are managed fields, as an API server sends it.
func arrivedObject(i int) *Alpha {
	a := &Alpha{
		TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1alpha1", Kind: "CronJob"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("job-%d", i), Namespace: "cf-workloads", UID: "6f1c1bb5-0000-4000-8000-0123456789ab", ResourceVersion: "123456", Generation: 2,
			CreationTimestamp: metav1.Unix(1700000000, 0),
			Labels:            map[string]string{"app": "app", "cloudfoundry.org/guid": "0123-4567", "app.kubernetes.io/name": "nightly"},
			Annotations:       map[string]string{"example.org/owner": "team"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kubectl-client-side-apply", Operation: "Update", APIVersion: group + "/v1alpha1", FieldsType: "FieldsV1",
				Time: &metav1.Time{Time: metav1.Unix(1700000000, 0).Time},
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:example.org/owner":{}},"f:labels":{".":{},"f:app":{},"f:cloudfoundry.org/guid":{}}},` +
					`"f:spec":{".":{},"f:schedule":{},"f:limit":{},"f:steps":{".":{},"k:{\"name\":\"build\"}":{".":{},"f:image":{},"f:name":{}}},"f:template":{".":{},"f:containers":{}}}}`),
			}},
		},
		Spec: AlphaSpec{
			Schedule: "5 4", Limit: 10,
			Steps: []AlphaStep{{Name: "build", Image: "registry.example.org/images/build:1"}, {Name: "test", Image: "registry.example.org/images/test:1"}},
			Rules: []AlphaRule{{Match: "a", Weight: 1}, {Match: "b", Weight: 2}},
			Template: &corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyOnFailure,
				Volumes:       []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			},
		},
		Status: &JobsStatus{Active: 1},
	}
	c := corev1.Container{Name: "main", Image: "registry.example.org/images/app:1.2.3", Args: []string{"--verbose", "--retries=3"}}
	for e := range 8 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("ENVIRONMENT_%d", e), Value: "a value of common length"})
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	a.Spec.Template.Containers = []corev1.Container{c}
	return a
}

// arrivedReview returns a review of objects that some functions have changed.
func arrivedReview(tb testing.TB, objects int, change ...func(*Alpha)) []byte {
	tb.Helper()
	raws := make([]runtime.RawExtension, objects)
	for i := range raws {
		a := arrivedObject(i)
		for _, f := range change {
			f(a)
		}
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
		if err != nil {
			tb.Fatal(err)
		}
		if raws[i].Raw, err = json.Marshal(tree); err != nil { // sorted, as an API server sends it
			tb.Fatal(err)
		}
	}
	return reviewOf(tb, "v1", raws)
}

// sentBack returns the review that asks for the objects of an answer in v1alpha1.
func sentBack(tb testing.TB, answer []byte) []byte {
	tb.Helper()
	var rev apiextensionsv1.ConversionReview
	if err := json.Unmarshal(answer, &rev); err != nil {
		tb.Fatal(err)
	}
	return reviewOf(tb, "v1alpha1", rev.Response.ConvertedObjects)
}

func reviewOf(tb testing.TB, to string, objects []runtime.RawExtension) []byte {
	tb.Helper()
	rev := &apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "ConversionReview"},
		Request:  &apiextensionsv1.ConversionRequest{UID: "705ab4f5-6393-11e8-b7cc-42010a800002", DesiredAPIVersion: group + "/" + to, Objects: objects},
	}
	body, err := json.Marshal(rev)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// peerHandler returns controller-runtime's handler for the same versions.
func peerHandler() http.Handler {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: "CronJob"}, &Alpha{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "CronJob"}, &Job{})
	return peer.NewWebhookHandler(scheme, peer.NewRegistry())
}

func ask(h http.Handler, body []byte) []byte {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/convert", bytes.NewReader(body)))
	return w.Body.Bytes()
}

// BenchmarkAnswer converts one object, as an API server asks for it. The peer keeps nothing of what is lost.
func BenchmarkAnswer(b *testing.B) {
	body := arrivedReview(b, 1)
	run := func(name string, answer func() []byte) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if !bytes.Contains(answer(), []byte(`"status":"Success"`)) {
					b.Fatalf("%.300s", answer())
				}
			}
		})
	}
	for _, forget := range []bool{false, true} {
		k := cronJobs()
		k.Forget = forget
		run(fmt.Sprintf("ours/forget=%t", forget), func() []byte { return answerOf(b, k, body) })
	}
	h := peerHandler()
	run("controller-runtime", func() []byte { return ask(h, body) })
}

func answerOf(tb testing.TB, k *convert.Kind, body []byte) []byte {
	answer, err := k.Answer(context.Background(), body, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return answer
}
