package settled_test

// This file specifies which requests no step sees. The API server's own evaluator plays the condition beside it, which may
// only call too often.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"code.cloudfoundry.org/eirinix/internal/conditions"
	"code.cloudfoundry.org/eirinix/internal/settled"
)

func TestSettled(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Settled requests")
}

const (
	alive = `{"apiVersion":"v1","kind":"W","metadata":{"name":"w","labels":{"a":"1"},"finalizers":["x/y"],"generation":1,"managedFields":[{"time":"1"}],"resourceVersion":"7"},"spec":{"n":1,"list":[{"a":1},{"b":null}]},"status":{"s":1}}`
	dying = `{"apiVersion":"v1","kind":"W","metadata":{"name":"w","labels":{"a":"1"},"finalizers":["x/y"],"deletionTimestamp":"2026-01-01T00:00:00Z","generation":2,"managedFields":[],"resourceVersion":"7"},"spec":{"n":1,"list":[{"a":1},{"b":null}]},"status":{"s":1}}`

	dyingMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","finalizers":["x/y"],"deletionTimestamp":"2026-01-01T00:00:00Z","resourceVersion":"7"},"data":{"n":"1"}}`
)

// request is an UPDATE of an object, with texts of it replaced in pairs.
func request(was string, replaced ...string) *admissionv1.AdmissionRequest {
	is := strings.NewReplacer(replaced...).Replace(was)
	Expect(is != was || len(replaced) == 0).To(BeTrue(), "nothing was replaced")
	return &admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: []byte(is)}, OldObject: runtime.RawExtension{Raw: []byte(was)}}
}

func deletion(of string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{Operation: admissionv1.Delete, OldObject: runtime.RawExtension{Raw: []byte(of)}}
}

var matcher = conditions.Matcher(admissionregistrationv1.MutatingWebhook{
	MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "dying", Expression: settled.Condition}},
})

// calls evaluates the condition as an API server does.
func calls(req *admissionv1.AdmissionRequest) bool {
	GinkgoHelper()
	tree := func(raw []byte) runtime.Object {
		if raw == nil {
			return nil
		}
		if strings.Contains(string(raw), `"kind":"ConfigMap"`) { // the API server holds built-in kinds as Go values
			m := &corev1.ConfigMap{}
			Expect(json.Unmarshal(raw, m)).To(Succeed())
			return m
		}
		u := &unstructured.Unstructured{}
		Expect(json.Unmarshal(raw, &u.Object)).To(Succeed())
		return u
	}
	object, old := tree(req.Object.Raw), tree(req.OldObject.Raw)
	attributes := admission.NewAttributesRecord(object, old, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, req.SubResource, admission.Operation(req.Operation), nil, false, &user.DefaultInfo{})
	result := matcher.Match(context.Background(), &admission.VersionedAttributes{
		Attributes: attributes, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old),
	}, nil, nil)
	Expect(result.Error).NotTo(HaveOccurred())
	return result.Matches
}

var _ = DescribeTable("A request is settled", func(of func() *admissionv1.AdmissionRequest, calledToo ...bool) {
	Expect(settled.Is(of())).To(BeTrue())
	Expect(calls(of())).To(Equal(len(calledToo) > 0), "calls")
},
	Entry("if it removes a finalizer of a dying object", func() *admissionv1.AdmissionRequest { return request(dying, `["x/y"]`, `[]`) }),
	Entry("if it removes the member of finalizers", func() *admissionv1.AdmissionRequest { return request(dying, `"finalizers":["x/y"],`, ``) }),
	Entry("if it writes the status, and all that the API server and collectors write, of a dying object", func() *admissionv1.AdmissionRequest {
		return request(dying, `"s":1`, `"s":2`, `"generation":2,`, `"generation":3,"ownerReferences":[{"uid":"1"}],`, `"managedFields":[],`, ``, `"7"`, `"8"`)
	}),
	Entry("if it deletes a dying object", func() *admissionv1.AdmissionRequest { return deletion(dying) }),
	Entry("if it removes a finalizer of a dying object of a built-in kind", func() *admissionv1.AdmissionRequest {
		return request(dyingMap, `["x/y"]`, `[]`, `"7"`, `"8"`)
	}),
	Entry("if it changes nothing", func() *admissionv1.AdmissionRequest { return request(alive) }, true),
	Entry("if it changes nothing of a dying object", func() *admissionv1.AdmissionRequest { return request(dying) }),
	Entry("if it changes only managedFields and the resourceVersion", func() *admissionv1.AdmissionRequest {
		return request(alive, `"time":"1"`, `"time":"2"`, `,"resourceVersion":"7"`, ``)
	}, true),
)

var _ = DescribeTable("A request is not settled", func(of func() *admissionv1.AdmissionRequest) {
	Expect(settled.Is(of())).To(BeFalse())
	Expect(calls(of())).To(BeTrue(), "calls")
},
	Entry("if it creates a dying object", func() *admissionv1.AdmissionRequest {
		req := request(dying)
		req.Operation, req.OldObject.Raw = admissionv1.Create, nil
		return req
	}),
	Entry("if it deletes", func() *admissionv1.AdmissionRequest { return deletion(alive) }),
	Entry("if it removes a finalizer", func() *admissionv1.AdmissionRequest { return request(alive, `["x/y"]`, `[]`) }),
	Entry("if it claims to be dying", func() *admissionv1.AdmissionRequest {
		return request(alive, `"finalizers":["x/y"]`, `"deletionTimestamp":"2026-01-01T00:00:00Z"`)
	}),
	Entry("if a deletionTimestamp is null", func() *admissionv1.AdmissionRequest {
		return request(strings.Replace(dying, `"2026-01-01T00:00:00Z"`, `null`, 1), `["x/y"]`, `[]`)
	}),
	Entry("if it writes status", func() *admissionv1.AdmissionRequest { return request(alive, `"s":1`, `"s":2`) }),
	Entry("if it changes the generation", func() *admissionv1.AdmissionRequest { return request(alive, `"generation":1`, `"generation":2`) }),
	Entry("if it changes a member in front of metadata", func() *admissionv1.AdmissionRequest {
		return request(strings.Replace(alive, `"metadata"`, `"data":1,"metadata"`, 1), `"data":1`, `"data":2`)
	}),
	Entry("if it adds a member behind metadata", func() *admissionv1.AdmissionRequest { return request(alive, `,"spec"`, `,"extra":1,"spec"`) }),
	Entry("if it changes spec", func() *admissionv1.AdmissionRequest { return request(alive, `"n":1`, `"n":2`) }),
	Entry("if it changes spec of a dying object", func() *admissionv1.AdmissionRequest { return request(dying, `"n":1`, `"n":2`, `["x/y"]`, `[]`) }),
	Entry("if it changes deep in spec", func() *admissionv1.AdmissionRequest { return request(dying, `"b":null`, `"b":0`) }),
	Entry("if it changes a dying object of a built-in kind", func() *admissionv1.AdmissionRequest { return request(dyingMap, `"n":"1"`, `"n":"2"`) }),
	Entry("if it adds to a dying object of a built-in kind", func() *admissionv1.AdmissionRequest {
		return request(dyingMap, `"data"`, `"immutable":true,"data"`)
	}),
	Entry("if it removes from spec", func() *admissionv1.AdmissionRequest { return request(dying, `"n":1,`, ``) }),
	Entry("if it removes spec", func() *admissionv1.AdmissionRequest {
		return request(dying, `,"spec":{"n":1,"list":[{"a":1},{"b":null}]}`, ``)
	}),
	Entry("if it adds a member", func() *admissionv1.AdmissionRequest { return request(dying, `"spec"`, `"specs":1,"spec"`) }),
	Entry("if it labels a dying object", func() *admissionv1.AdmissionRequest { return request(dying, `"a":"1"`, `"a":"2"`) }),
	Entry("if it removes the labels of a dying object", func() *admissionv1.AdmissionRequest { return request(dying, `"labels":{"a":"1"},`, ``) }),
	Entry("if it annotates a dying object", func() *admissionv1.AdmissionRequest {
		return request(dying, `"labels"`, `"annotations":{"a":"1"},"labels"`)
	}),
	Entry("if it is about a subresource of a dying object", func() *admissionv1.AdmissionRequest {
		req := request(dying, `"s":1`, `"s":2`)
		req.SubResource = "status"
		return req
	}),
	Entry("if the new object is none", func() *admissionv1.AdmissionRequest {
		req := request(dying)
		req.Object.Raw = []byte(`{"metadata":{}}`)
		return req
	}),
)

// The budget of a condition is 1,000,000, and an API server refuses the request beyond it.
var _ = DescribeTable("The condition stays within the API server's budget", func(members, text int, wantCall bool) {
	var spec strings.Builder
	for i := range members {
		fmt.Fprintf(&spec, `,"m%d":%q`, i, strings.Repeat("x", text))
	}
	large := strings.Replace(dying, `,"status"`, spec.String()+`,"status"`, 1)
	Expect(calls(request(large, `["x/y"]`, `[]`))).To(Equal(wantCall))
},
	Entry("for 3 MB in sixty members", 58, 52_000, false),
	Entry("for 3 MB in one member", 1, 3_000_000, false),
	Entry("for 300,000 members", 300_000, 1, true),
)
