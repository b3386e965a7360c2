package eirinix

// This file specifies what may be added to a Manager, what extensions are called, which pod they get, and the patch that
// PatchFromPod makes of it.

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/stepname"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

type valueExtension struct{ label string }

func (valueExtension) Handle(context.Context, Manager, *corev1.Pod, admission.Request) admission.Response {
	return admission.Allowed("")
}

// methodsOnPointer is an extension only as a pointer.
type methodsOnPointer struct{}

func (*methodsOnPointer) Handle(context.Context, Manager, *corev1.Pod, admission.Request) admission.Response {
	return admission.Allowed("")
}

type namedExtension struct {
	valueExtension
	name string
}

func (n namedExtension) Name() string { return n.name }

type genericExtension[T any] struct{ valueExtension }

// contextFreeExtension has the signature of EiriniX's first releases.
type contextFreeExtension struct{}

func (*contextFreeExtension) Handle(Manager, *corev1.Pod, admission.Request) admission.Response {
	return admission.Allowed("")
}

type watcher struct{}

func (*watcher) Handle(Manager, watch.Event) {}

type reconciler struct{}

func (*reconciler) Reconcile(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}
func (*reconciler) Register(Manager) error { return nil }

type contextFreeReconciler struct{ asked []string }

func (r *contextFreeReconciler) Reconcile(req reconcile.Request) (reconcile.Result, error) {
	r.asked = append(r.asked, req.Name)
	return reconcile.Result{RequeueAfter: 1}, nil
}
func (*contextFreeReconciler) Register(Manager) error { return nil }

func stepNames(m *ExtensionManager) []string {
	names := []string{}
	for _, s := range m.steps {
		names = append(names, s.name)
	}
	return names
}

var _ = Describe("AddExtension", func() {
	var m *ExtensionManager

	BeforeEach(func() { m = NewManager(validOptions()) })

	It("takes extensions, as values and as pointers, and lists them in order", func() {
		first, second := valueExtension{"first"}, &methodsOnPointer{}
		Expect(m.AddExtension(first)).To(Succeed())
		Expect(m.AddExtension(second)).To(Succeed())
		Expect(m.ListExtensions()).To(HaveExactElements(Equal(first), BeIdenticalTo(second)))
		Expect(m.Validate()).To(Succeed())
	})

	It("takes watchers and reconcilers", func() {
		w, r := &watcher{}, &reconciler{}
		Expect(m.AddExtension(w)).To(Succeed())
		Expect(m.AddExtension(r)).To(Succeed())
		Expect(m.ListWatchers()).To(HaveExactElements(BeIdenticalTo(w)))
		Expect(m.ListReconcilers()).To(HaveExactElements(BeIdenticalTo(r)))
		Expect(m.ListExtensions()).To(And(BeEmpty(), Not(BeNil())))
	})

	It("adapts a reconciler whose Reconcile takes no context", func(ctx SpecContext) {
		r := &contextFreeReconciler{}
		Expect(m.AddExtension(r)).To(Succeed())
		Expect(m.ListReconcilers()).To(HaveLen(1))
		request := reconcile.Request{}
		request.Name = "web-0"
		result := Must(m.ListReconcilers()[0].Reconcile(ctx, request))
		Expect(result.RequeueAfter).To(BeEquivalentTo(1))
		Expect(r.asked).To(Equal([]string{"web-0"}))
	})

	DescribeTable("refuses, at once and again in Validate:",
		func(v any, parts ...string) {
			err := m.AddExtension(v)
			Expect(err).To(MatchError(HavePrefix("eirinix: AddExtension got ")))
			for _, part := range parts {
				Expect(err).To(MatchError(ContainSubstring(part)))
			}
			Expect(err).NotTo(MatchError(ContainSubstring("&*")), "no Go expression")
			Expect(err).NotTo(MatchError(ContainSubstring("<nil>")), "no word of a user's")
			Expect(m.Validate()).To(MatchError(err))
			Expect(m.ListExtensions()).To(BeEmpty())
		},
		Entry("nil", nil, "nil"),
		Entry("a nil watcher", (*watcher)(nil), "nil *eirinix.watcher"),
		Entry("a value whose pointer would do", methodsOnPointer{}, "eirinix.methodsOnPointer", "add &eirinix.methodsOnPointer{}"),
		Entry("the signature of EiriniX's first releases", &contextFreeExtension{}, "*eirinix.contextFreeExtension",
			"Handle(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response"),
		Entry("something else", 42, "got int", "Handle(eirinix.Manager, watch.Event)", "Reconcile and Register"),
	)

	It("refuses extensions and reconcilers after Start", func() {
		m.started = true
		Expect(m.AddExtension(valueExtension{})).To(MatchError(And(ContainSubstring("after Start"), ContainSubstring("eirinix.valueExtension"))))
		m.AddReconciler(&reconciler{})
		Expect(m.Validate()).To(MatchError(And(ContainSubstring("AddReconciler"), ContainSubstring("after Start"))))
	})

	It("reports the errors that AddWatcher and AddReconciler cannot return", func() {
		m.AddWatcher(nil)
		m.AddWatcher((*watcher)(nil))
		m.AddReconciler(nil)
		Expect(m.Validate()).To(MatchError(And(ContainSubstring("AddWatcher got nil"), ContainSubstring("AddReconciler got nil"))))
		Expect(m.ListWatchers()).To(BeEmpty())
		Expect(m.ListReconcilers()).To(BeEmpty())
	})

	It("hands out copies of its lists", func() {
		Expect(m.AddExtension(valueExtension{"first"})).To(Succeed())
		m.AddReconciler(&reconciler{})
		m.ListExtensions()[0], m.ListReconcilers()[0] = nil, nil
		Expect(m.ListExtensions()).To(Equal([]Extension{valueExtension{"first"}}))
		Expect(m.ListReconcilers()).To(Equal([]Reconciler{&reconciler{}}))
	})
})

var _ = Describe("The name of an extension", func() {
	DescribeTable("comes", func(expected []string, extensions ...Extension) {
		m := NewManager(validOptions())
		for _, e := range extensions {
			Expect(m.AddExtension(e)).To(Succeed())
		}
		Expect(stepNames(m)).To(Equal(expected))
	},
		Entry("from the type", []string{"value-extension"}, valueExtension{}),
		Entry("from a generic type without its parameters", []string{"generic-extension"}, genericExtension[map[string]int]{}),
		Entry("from Name", []string{"volumes"}, namedExtension{name: "volumes"}),
		Entry("from Name, cleaned", []string{"my-volumes-v2"}, namedExtension{name: "My Volumes_V2"}),
		Entry("from the type with a number when it is taken", []string{"value-extension", "value-extension-2", "value-extension-3"},
			valueExtension{}, valueExtension{}, valueExtension{}),
		Entry("from the type beside others of that name", []string{"value-extension", "value-extension-2"},
			namedExtension{name: "value-extension"}, valueExtension{}),
	)

	It("is that of the package for a type called Extension", func() {
		type Extension struct{ valueExtension }
		Expect(stepname.OfType(Extension{})).To(Equal("eirinix"))
		Expect(stepname.OfType(&Extension{})).To(Equal("eirinix"))
	})

	DescribeTable("that the user chose must be free and usable:",
		func(name, expected string) {
			m := NewManager(validOptions())
			Expect(m.AddExtension(namedExtension{name: "volumes"})).To(Succeed())
			err := m.AddExtension(namedExtension{name: name})
			Expect(err).To(MatchError(And(HavePrefix("eirinix: step "), ContainSubstring(expected))))
			Expect(m.Validate()).To(MatchError(err))
			Expect(stepNames(m)).To(Equal([]string{"volumes"}))
		},
		Entry("taken", "volumes", `"volumes" is already added; names become webhook paths and must be unique`),
		Entry("empty", "", "no letter or digit"),
	)

	DescribeTable("is cleaned to a DNS label:",
		func(given, expected string) {
			cleaned := stepname.Clean(given)
			Expect(cleaned).To(Equal(expected))
			Expect(validation.IsDNS1123Label(cleaned)).To(BeEmpty())
			Expect(stepname.Clean(cleaned)).To(Equal(cleaned))
		},
		Entry("words", "MyExtension", "my-extension"),
		Entry("letters of an abbreviation", "HTTPProxy", "http-proxy"),
		Entry("an abbreviation within", "MyXMLParser", "my-xml-parser"),
		Entry("other signs", "a_b.c/d e", "a-b-c-d-e"),
		Entry("signs around", "--a--", "a"),
		Entry("other letters", "größe", "gr-e"),
		Entry("one that is too long", strings.Repeat("a", 100), strings.Repeat("a", 63)),
		Entry("one that would end in a dash", strings.Repeat("a", 62)+"-b", strings.Repeat("a", 62)),
	)
})

var _ = DescribeTable("The package that names an extension called plainly Extension",
	func(path, name string) { Expect(stepname.Package(path)).To(Equal(name)) },
	Entry("is the last of the import path", "example.org/volumes", "volumes"),
	Entry("and not its major version", "example.org/volumes/v2", "volumes"),
	Entry("which a package may be called all the same", "v2", "v2"),
)

// rawPod holds members that today's Go types know, and others.
const rawPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","creationTimestamp":null},` +
	`"spec":{"futureField":{"a":1},"hostNetwork":false,"containers":[{"name":"web","image":"web:1","futureToo":true,"env":[{"name":"A","value":"1"}]}]}}`

func podRequest(raw string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(raw)}}}
}

var _ = Describe("PatchFromPod", func() {
	// patched changes the pod of the request and returns the operations as EiriniX's users see them.
	patched := func(change func(*corev1.Pod)) (admission.Response, []string) {
		GinkgoHelper()
		req := podRequest(rawPod)
		p := Must(new(chain.Pods).Pod(req))
		p = p.DeepCopy()
		change(p)
		resp := NewManager(ManagerOptions{}).PatchFromPod(req, p)
		ops := []string{}
		for _, op := range resp.Patches {
			ops = append(ops, op.Json())
		}
		return resp, ops
	}

	It("keeps members that the Go types do not know, and leaves the rest as it was written", func() {
		resp, _ := patched(func(p *corev1.Pod) {
			p.Spec.Containers = append([]corev1.Container{{Name: "proxy"}}, p.Spec.Containers...)
		})
		text := Must(json.Marshal(resp.Patches))
		decoded := Must(jsonpatch.DecodePatch(text))
		result := Must(decoded.Apply([]byte(rawPod)))
		Expect(result).To(MatchJSON(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","creationTimestamp":null},
			"spec":{"futureField":{"a":1},"hostNetwork":false,"containers":[
				{"name":"proxy","resources":{}},
				{"name":"web","image":"web:1","futureToo":true,"env":[{"name":"A","value":"1"}]}]}}`))
	})

	It("has no operations for an equal pod", func() {
		resp, ops := patched(func(*corev1.Pod) {})
		Expect(resp).To(And(HaveField("Allowed", true), HaveField("Patch", BeNil()), HaveField("PatchType", BeNil())))
		Expect(ops).To(BeEmpty())
	})

	DescribeTable("answers with an error in words for",
		func(raw string, pod *corev1.Pod, why string) {
			resp := NewManager(ManagerOptions{}).PatchFromPod(podRequest(raw), pod)
			Expect(resp.Allowed).To(BeFalse())
			Expect(resp.Patches).To(BeEmpty())
			Expect(resp.Result.Code).To(BeNumerically(">=", http.StatusBadRequest))
			Expect(resp.Result.Message).To(And(HavePrefix("eirinix: PatchFromPod: "), ContainSubstring(why)))
		},
		Entry("a nil pod", rawPod, nil, "pod is nil"),
		Entry("a request without object", "", &corev1.Pod{}, "carries no pod"),
		Entry("an object that is no pod", `{"spec":"none"}`, &corev1.Pod{}, "not a pod"),
		Entry("an object that is no JSON", `{`, &corev1.Pod{}, "not a pod"),
	)
})

var _ = DescribeTable("The pod that an extension gets is nil when", func(change func(*admission.Request)) {
	req := podRequest(rawPod)
	change(&req)
	Expect(new(chain.Pods).Pod(req)).To(BeNil())
},
	Entry("there is no object", func(r *admission.Request) { r.Object.Raw = nil }),
	Entry("the object is of another kind", func(r *admission.Request) { r.Kind.Kind = "Binding" }),
	Entry("the object is of another group's Pod", func(r *admission.Request) { r.Kind.Group, r.Kind.Kind = "metrics.k8s.io", "Pod" }),
)

var _ = It("The pod that an extension gets is decoded with regard to case, as the API server does", func() {
	Expect(new(chain.Pods).Pod(podRequest(`{"metadata":{"Name":"no","name":"yes"}}`))).To(HaveField("Name", "yes"))
})
