package modes

// This file specifies by which name an object draws its number, in every request that carries it.

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/decode"
)

func controlledBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "1"},
		{APIVersion: "v1", Kind: kind, Name: name, UID: "2", Controller: new(true)},
	}
}

// carrying returns every request that carries an object, by a description, as API servers send them.
func carrying(resource string, o metav1.ObjectMeta) map[string]*admissionv1.AdmissionRequest {
	GinkgoHelper()
	raw := func(o metav1.ObjectMeta) runtime.RawExtension {
		text, err := json.Marshal(corev1.Pod{ObjectMeta: o})
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: text}
	}
	unnamed, edited := o, o
	if o.GenerateName != "" {
		unnamed.Name = ""
	}
	edited.OwnerReferences, edited.GenerateName, edited.Labels = controlledBy("ConfigMap", "mine"), "mine-", nil
	namespace := o.Namespace
	if resource == "namespaces" {
		namespace = o.Name
	}
	all := map[string]*admissionv1.AdmissionRequest{
		"CREATE, mutating":   {Operation: admissionv1.Create, Name: unnamed.Name, Object: raw(unnamed)},
		"CREATE, validating": {Operation: admissionv1.Create, Name: o.Name, Object: raw(o), OldObject: runtime.RawExtension{Raw: []byte("null")}},
		"UPDATE":             {Operation: admissionv1.Update, Name: o.Name, Object: raw(o), OldObject: raw(o)},
		"UPDATE of metadata": {Operation: admissionv1.Update, Name: o.Name, Object: raw(edited), OldObject: raw(o)},
		"DELETE":             {Operation: admissionv1.Delete, Name: o.Name, OldObject: raw(o)},
		"deletecollection":   {Operation: admissionv1.Delete, OldObject: raw(o)},
	}
	for _, sub := range []string{"status", "ephemeralcontainers", "resize", "finalize"} {
		all[sub] = &admissionv1.AdmissionRequest{Operation: admissionv1.Update, SubResource: sub, Name: o.Name, Object: raw(edited), OldObject: raw(o)}
	}
	for when, r := range all {
		r.Namespace, r.Resource = namespace, metav1.GroupVersionResource{Version: "v1", Resource: resource}
		if when == "CREATE, mutating" && resource == "namespaces" {
			r.Namespace = unnamed.Name
		}
	}
	return all
}

var _ = Describe("The number that an object draws", func() {
	It("is the same for all requests that carry the object", func() {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test wants the same every time
		word := func() string { return fmt.Sprintf("%x", random.Uint32()) }
		drawn := map[string]bool{}
		for range 100 {
			o, resource := metav1.ObjectMeta{Name: word(), Namespace: "a", Labels: map[string]string{"app": word()}}, "pods"
			if random.IntN(2) > 0 {
				o.GenerateName = word() + "-"
			}
			switch random.IntN(4) {
			case 0:
				hash := word()
				o.OwnerReferences, o.Labels["pod-template-hash"] = controlledBy("ReplicaSet", word()+"-"+hash), hash
			case 1:
				o.OwnerReferences = controlledBy("Job", word())
			case 2:
				resource, o.Namespace = "namespaces", ""
			}
			first := ""
			for when, r := range carrying(resource, o) {
				by := drawnBy(r)
				if first == "" {
					first = by
				}
				Expect(by).To(Equal(first), "%s of %+v", when, o)
			}
			drawn[first] = true
		}
		Expect(drawn).To(HaveLen(100), "different objects draw by different names")
	})

	DescribeTable("is drawn by", func(o metav1.ObjectMeta, by string) {
		for when, r := range carrying("pods", o) {
			Expect(drawnBy(r)).To(Equal(by), when)
		}
	},
		Entry("its generateName", metav1.ObjectMeta{Name: "x-1", Namespace: "a", GenerateName: "x-"}, "a/x-"),
		Entry("its controller, such as the Deployment of a ReplicaSet",
			metav1.ObjectMeta{Name: "web-6d4cf56db6", Namespace: "a", OwnerReferences: controlledBy("Deployment", "web"), Labels: map[string]string{"pod-template-hash": "6d4cf56db6"}}, "a/web"),
		Entry("the ReplicaSet of a pod, without its hash",
			metav1.ObjectMeta{Name: "web-6d4cf56db6-x7f2k", Namespace: "a", GenerateName: "web-6d4cf56db6-", OwnerReferences: controlledBy("ReplicaSet", "web-6d4cf56db6"), Labels: map[string]string{"pod-template-hash": "6d4cf56db6"}}, "a/web"),
		Entry("the whole name of a ReplicaSet with another hash",
			metav1.ObjectMeta{Name: "web-x7f2k", Namespace: "a", OwnerReferences: controlledBy("ReplicaSet", "web-1"), Labels: map[string]string{"pod-template-hash": "2"}}, "a/web-1"),
		Entry("the whole name of a controller that is no ReplicaSet",
			metav1.ObjectMeta{Name: "x", Namespace: "a", OwnerReferences: controlledBy("StatefulSet", "db-1"), Labels: map[string]string{"pod-template-hash": "1"}}, "a/db-1"),
		Entry("its generateName, if its controller's name is all hash",
			metav1.ObjectMeta{Name: "x-1", Namespace: "a", GenerateName: "x-", OwnerReferences: controlledBy("ReplicaSet", "-1"), Labels: map[string]string{"pod-template-hash": "1"}}, "a/x-"),
	)

	DescribeTable("is drawn by the name in the URL, if the request does not carry the object",
		func(operation admissionv1.Operation, sub string, object, old any) {
			r := &admissionv1.AdmissionRequest{
				Operation: operation, SubResource: sub, Name: "x", Namespace: "a", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			}
			for into, from := range map[*runtime.RawExtension]any{&r.Object: object, &r.OldObject: old} {
				if from != nil {
					var err error
					into.Raw, err = json.Marshal(from)
					Expect(err).NotTo(HaveOccurred())
				}
			}
			Expect(drawnBy(r)).To(Equal("a/x"))
		},
		Entry("exec", admissionv1.Connect, "exec", corev1.PodExecOptions{Command: []string{"ls"}}, nil),
		Entry("eviction, whatever the user has written", admissionv1.Create, "eviction",
			policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "x", GenerateName: "mine-", OwnerReferences: controlledBy("Job", "mine")}}, nil),
		Entry("scale", admissionv1.Update, "scale",
			autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "x", OwnerReferences: controlledBy("Job", "mine")}}, autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "x"}}),
		Entry("an object that does not decode", admissionv1.Delete, "", nil, map[string]any{"metadata": map[string]any{"name": 7}}),
	)

	It("is a number, whatever a user writes into ownerReferences", func() {
		for _, owners := range []string{
			"null", "{}", "7", `"x"`, "[", "[null]", "[7]", "[[]]", `[{"controller":"yes","name":7}]`, `[{"controller":true}]`, `[{"controller":true,"name":null}]`,
			`[{"controller":true,"name":"a"},{"controller":true,"name":"b"}]`, strings.Repeat("[", 20000), `[{"name":` + strings.Repeat(`{"a":`, 20000),
		} {
			r := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "x", Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"ownerReferences":` + owners + `,"name":"x"}}`)}}
			Expect(drawnBy(r)).To(BeElementOf("/x", "/a"), "%.80s", owners)
		}
	})

	It("costs nothing where no line has a percentage, and otherwise a look at the metadata", func() {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a", OwnerReferences: controlledBy("Job", "j")}}
		small, err := json.Marshal(pod)
		Expect(err).NotTo(HaveOccurred())
		for range 1000 {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c", Command: []string{"a", "b"}})
		}
		large, err := json.Marshal(pod)
		Expect(err).NotTo(HaveOccurred())
		m := New([]Step{{Name: "owner"}})
		cost := func(entry string, raw []byte) float64 {
			m.Set(from("owner", entry))
			r := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "x", Namespace: "a", Object: runtime.RawExtension{Raw: raw}}
			return testing.AllocsPerRun(10, func() {
				if mode, err := m.Choose(context.Background(), "owner", r); err != nil || mode == chain.ModeDeny {
					panic("not chosen") //nolint:forbidigo // it is
				}
			})
		}
		Expect(cost("Warn", large)).To(BeZero())
		Expect(cost("Warn 0%\nAudit", large)).To(BeNumerically("<", cost("Warn 0%\nAudit", small)+20), "the race detector drops pooled objects")

		By("decoding less than the step does, with many owners too")
		for i := range 20000 {
			pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint(i), UID: "3"})
		}
		large, err = json.Marshal(pod)
		Expect(err).NotTo(HaveOccurred())
		step := testing.AllocsPerRun(10, func() { _ = decode.Into(large, &corev1.Pod{}) })
		Expect(cost("Warn 0%\nAudit", large)).To(BeNumerically("<", step))
	})
})
