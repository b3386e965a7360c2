package audit

// Specs of the requests that steps are asked with, of steps and Conversions that are played, and of the answers.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/seam"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = DescribeTable("An object that is created again lacks what the cluster has added, and nothing else", func(stored, expected string) {
	typed := func(text string) string {
		return strings.TrimSuffix(`{"apiVersion":"v1","kind":"A",`+text[1:len(text)-1], ",") + "}"
	}
	_, created := resource{}.texts([]byte(typed(stored)))
	Expect(created).To(MatchJSON(typed(expected)))
	for _, member := range []string{`"n":12345678901234567890`, `"f":1.0`, `"t":"<a>\u00e9\/é"`} {
		if strings.Contains(stored, member) {
			Expect(string(created)).To(ContainSubstring(member), "its text stays as it is")
		}
	}
},
	Entry("the members of metadata",
		`{"metadata":{"name":"a","uid":"1","resourceVersion":"2","generation":3,"creationTimestamp":"x","deletionTimestamp":"x","deletionGracePeriodSeconds":4,"managedFields":[{}],"selfLink":"/","labels":{"uid":"kept"},"generateName":"g","finalizers":["f"],"ownerReferences":[{"uid":"kept"}]}}`,
		`{"metadata":{"finalizers":["f"],"generateName":"g","labels":{"uid":"kept"},"name":"a","ownerReferences":[{"uid":"kept"}]}}`),
	Entry("the status", `{"status":{"phase":"x"},"spec":{"status":{"kept":1}}}`, `{"spec":{"status":{"kept":1}}}`),
	Entry("numbers and texts stay as they are", `{"spec":{"n":12345678901234567890,"f":1.0,"t":"<a>\u00e9\/é"},"metadata":null}`, `{"metadata":null,"spec":{"n":12345678901234567890,"f":1.0,"t":"<a>\u00e9\/é"}}`),
	Entry("odd names", `{"a\"b":1,"<":2}`, `{"<":2,"a\"b":1}`),
	Entry("metadata that is a text", `{"metadata":"x"}`, `{"metadata":"x"}`),
	Entry("nothing", `{}`, `{}`),
)

var _ = DescribeTable("A request carries the namespace", func(group, resources, namespace, expected string) {
	o := &object{target: &target{resource: resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resources}}}, head: &head{}}
	o.head.Metadata.Name, o.head.Metadata.Namespace = "x", namespace
	Expect(o.request(admissionv1.Create).Namespace).To(Equal(expected))
},
	Entry("of the object", "", "pods", "a", "a"),
	Entry("that the object is", "", "namespaces", "", "x"),
	Entry("of no object of another group", "shop.example.org", "namespaces", "", ""),
)

var _ = Describe("An answer", func() {
	denied := func(message string) Verdict { return Verdict{Denied: &metav1.Status{Message: message}} }
	failed := func(text string) Verdict { return Verdict{Err: errors.New(text)} }
	patched := func(patch string) Verdict { return Verdict{Patch: []byte(patch)} }
	panicked := Verdict{Err: &hang.PanicError{Value: "x"}}

	DescribeTable("is the same for two users", func(a, b Verdict, same bool) {
		Expect(alike(a, b)).To(Equal(same))
		Expect(alike(b, a)).To(Equal(same))
	},
		Entry("if both admit", Verdict{}, Verdict{}, true),
		Entry("if both deny for the same reason", denied("no"), denied("no"), true),
		Entry("not if one denies", denied("no"), Verdict{}, false),
		Entry("not if the reasons differ", denied("no"), denied("not you"), false),
		Entry("if both make the same patch", patched("[1]"), patched("[1]"), true),
		Entry("not if the patches differ", patched("[1]"), patched("[2]"), false),
		Entry("not if one makes no patch", patched("[1]"), Verdict{}, false),
		Entry("if both fail, for any reason", failed("port 1"), failed("port 2"), true),
		Entry("not if one fails", failed("no"), denied("no"), false),
		Entry("not if one panics", failed("no"), panicked, false),
	)

	DescribeTable("holds", func(v Verdict, result Result, message string, paths ...string) {
		a := answerOf(v)
		Expect(a.Result).To(Equal(result))
		Expect(a.Message).To(Equal(message))
		Expect(strings.Join(a.Paths, " ")).To(Equal(strings.Join(paths, " ")))
	},
		Entry("nothing", Verdict{}, Passed, ""),
		Entry("the denial's message", denied("no"), Denied, "no"),
		Entry("the failure's text", failed("down"), Failed, "down"),
		Entry("a part of a long text, which stays UTF-8", failed(strings.Repeat("é", 600)), Failed, strings.Repeat("é", 500)+"..."),
		Entry("the panic's value", panicked, Failed, "it panicked: x. Later panics of the step are only counted"),
		Entry("paths in order, each once", patched(`[{"op":"add","path":"/b","value":"s3cret"},{"op":"remove","path":"/a"},{"op":"test","path":"/t"},{"op":"add","path":"/b"}]`), Drift, "it would change the object", "/a", "/b"),
		Entry("both ends of a move", patched(`[{"op":"move","from":"/a","path":"/c"},{"op":"copy","from":"/x","path":"/d"}]`), Drift, "it would change the object", "/a", "/c", "/d"),
	)

	It("names the field that does not decode, but no value", func() {
		var into struct {
			Spec struct {
				Replicas int `json:"replicas"`
			} `json:"spec"`
		}
		err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(`{"spec":{"replicas":"hunter2"}}`), &into)
		Expect(err).To(HaveOccurred())
		a := answerOf(Verdict{Err: fmt.Errorf("%w: %w", chain.ErrUnreadable, err)})
		Expect(a.Message).To(Equal("the object does not decode into the type of the step: the field spec.replicas is no int"))
		a = answerOf(Verdict{Err: fmt.Errorf("%w: hunter2", chain.ErrUnreadable)})
		Expect(a.Message).To(Equal("the object does not decode into the type of the step"))
	})
})

var _ = Describe("A step that is played", func() {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web"}]}}`
	// sent is the API server's request for a pod, after changes.
	sent := func(changes ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
		req := &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "cf", Name: "web-0", Object: runtime.RawExtension{Raw: []byte(pod)},
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		}
		for _, change := range changes {
			change(req)
		}
		return req
	}
	newPod := func() runtime.Object { return &corev1.Pod{} }
	play := func(s chain.Step) Verdict { return NewPlayer(s, logr.Discard()).Play(context.Background(), sent()) }
	check := func(name string, decide func() error) chain.Step {
		return chain.Step{Name: name, New: newPod, Run: func(context.Context, *chain.Call, runtime.Object, runtime.Object) error { return decide() }}
	}
	refuse := check("refuse", func() error { return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large")) })

	It("can change nothing", func() {
		v := play(chain.Step{Name: "nothing", New: newPod, Mutates: true, Run: func(context.Context, *chain.Call, runtime.Object, runtime.Object) error { return nil }})
		Expect(v).To(BeZero())
		Expect(chain.Paths(v.Patch)).To(BeEmpty())
		Expect(v.Changed([]byte(pod))).To(BeEquivalentTo(pod))
	})

	It("distinguishes a panic, and an object that does not decode", func() {
		v := play(check("panics", func() error { panic("no") }))
		panicked, ok := errors.AsType[*hang.PanicError](v.Err)
		Expect(ok).To(BeTrue())
		Expect(panicked.Value).To(Equal("no"))
		Expect(string(panicked.Stack)).To(ContainSubstring("play_test.go"))
		v = NewPlayer(refuse, logr.Discard()).Play(context.Background(), sent(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"spec":{"containers":5}}`)
		}))
		Expect(v.Err).To(And(MatchError(chain.ErrUnreadable), MatchError(ContainSubstring("*v1.Pod"))))
	})

	It("ends at the step's timeout, and with its caller's context", func() {
		s := check("hangs", nil)
		s.Run = func(ctx context.Context, _ *chain.Call, _, _ runtime.Object) error { <-ctx.Done(); return ctx.Err() }
		s.Timeout = 20 * time.Millisecond
		Expect(play(s).Err).To(MatchError(context.DeadlineExceeded))
		s.Timeout = time.Hour
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		Expect(NewPlayer(s, logr.Discard()).Play(ctx, sent()).Err).To(HaveOccurred())
	})

	It("leaves the request as it was, even if the step writes into its text", func() {
		req := sent()
		was := bytes.Clone(req.Object.Raw)
		p := NewPlayer(chain.Step{Name: "writes", Pods: &chain.Pods{}, Handle: func(_ context.Context, r admission.Request) admission.Response {
			clear(r.Object.Raw)
			return admission.Allowed("")
		}}, logr.Discard())
		for range 2 {
			Expect(p.Play(context.Background(), req)).To(BeZero())
			Expect(req.Object.Raw).To(Equal(was))
		}
	})

	It("wants the requests of its Matcher, but for an object that a controller of Kubernetes can have made, if the step leaves it alone", func() {
		matcher := Must(chain.NewMatcher([]admissionregistrationv1.RuleWithOperations{ruleFor("*", "*", "*")}, nil, nil))
		set := sent(func(r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
			r.Object.Raw = []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","controller":true}]}}`)
		})
		s := refuse
		s.Matcher = matcher
		wants := func(r *admissionv1.AdmissionRequest) bool { return NewPlayer(s, logr.Discard()).Wants(r) }
		Expect(wants(sent(func(r *admissionv1.AdmissionRequest) { r.Operation = "UPDATE" }))).To(BeFalse())
		Expect(wants(set)).To(BeTrue())
		matcher.Leave(false)
		Expect(wants(set)).To(BeFalse())
		Expect(wants(sent())).To(BeTrue())
		s.Matcher = nil
		Expect(wants(set)).To(BeTrue(), "a nil Matcher matches every request")
	})
})

// shops converts shops of v1 to v2 and v3. v2 lacks their color, and v3 their size and what is in their rooms.
func shops() *convert.Kind {
	without := func(change func(*unstructured.Unstructured) error) convert.Func {
		return func(_ context.Context, o runtime.Object) (runtime.Object, error) {
			return o, change(o.(*unstructured.Unstructured))
		}
	}
	same := without(func(*unstructured.Unstructured) error { return nil })
	return &convert.Kind{Group: "shop.example.org", Versions: []convert.Version{
		{Name: "v1"},
		{Name: "v2", ToHub: without(func(o *unstructured.Unstructured) error {
			if o.GetName() == "stuck-back" {
				return errors.New("not back")
			}
			return nil
		}), FromHub: without(func(o *unstructured.Unstructured) error {
			switch strings.TrimRight(o.GetName(), "0123456789") {
			case "odd":
				return errors.New("not this one")
			case "bad":
				panic("boom")
			case "ended":
				goruntime.Goexit()
			case "moved":
				o.SetName("elsewhere")
			}
			unstructured.RemoveNestedField(o.Object, "color")
			return nil
		})},
		{Name: "v3", ToHub: same, FromHub: without(func(o *unstructured.Unstructured) error {
			unstructured.RemoveNestedField(o.Object, "spec", "size")
			rooms, _, _ := unstructured.NestedSlice(o.Object, "spec", "rooms")
			for _, room := range rooms {
				delete(room.(map[string]any), "a/b")
			}
			if rooms != nil {
				return unstructured.SetNestedSlice(o.Object, rooms, "spec", "rooms")
			}
			return nil
		})},
	}}
}

func shop(name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"shop.example.org/v1","kind":"Shop","metadata":{"name":%q}%s}`, name, rest)
}

// converting shows a kind to an audit, as package conversion does.
func converting(kind *convert.Kind) *seam.Conversion {
	c := &seam.Conversion{Lossy: kind.Forget, RoundTrip: kind.RoundTrip}
	for _, v := range kind.Versions {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion(kind.Group + "/" + v.Name)
		c.Versions = append(c.Versions, object)
	}
	return c
}

// play audits these objects of v1.
func play(ctx context.Context, kind *convert.Kind, objects ...string) (Summary, []Finding, error) {
	const crd = "shops.shop.example.org"
	s, _, _ := newStep(Step{Name: crd, Webhook: Converted(crd, "v1"), Converts: converting(kind)}, nil, GinkgoLogr)
	var found []Finding
	e := &engine{
		Config:  Config{Finding: func(f Finding) error { found = append(found, f); return nil }, Log: GinkgoLogr},
		summary: Summary{Asked: map[string]int{}, Findings: map[string]map[Result]int{}}, gaps: map[Gap]int{},
	}
	t := &target{resource: resource{GroupVersionResource: schema.GroupVersionResource{Group: "shop.example.org", Version: "v1", Resource: "shops"}}, steps: []*step{s}}
	for _, text := range objects {
		i := &item{raw: []byte(text)}
		_ = json.Unmarshal(i.raw, &i.head) // as a list does
		if err := e.object(ctx, t, i); err != nil {
			return e.summary, found, err
		}
	}
	return e.summary, found, nil
}

var _ = Describe("The audit of a Conversion", func() {
	audit := func(ctx context.Context, kind *convert.Kind, objects ...string) (Summary, []Finding) {
		GinkgoHelper()
		s, found, err := play(ctx, kind, objects...)
		Expect(err).NotTo(HaveOccurred())
		return s, found
	}

	annotated := fmt.Sprintf(`{"apiVersion":"shop.example.org/v1","kind":"Shop","metadata":{"name":"a","annotations":{%q:"12345678.x.{}",%q:"{\"v1\":[\".color\"]}"}}}`,
		convert.Prefix+"a", convert.Incomplete)
	DescribeTable("says what becomes of an object", func(ctx SpecContext, object string, change func(*convert.Kind), result Result, message string, paths ...string) {
		kind := shops()
		if change != nil {
			change(kind)
		}
		s, found := audit(ctx, kind, object)
		Expect(s.Objects).To(Equal(1))
		Expect(s.Gaps).To(BeEmpty(), "the answer is known")
		if result == Passed {
			Expect(found).To(BeEmpty())
			return
		}
		Expect(found).To(HaveLen(1), "it is one object")
		Expect(found[0].Result).To(Equal(result))
		Expect(found[0].Text()).To(Equal(message))
		Expect(found[0].Paths).To(Equal(append([]string(nil), paths...)))
		Expect(found[0].Step).To(Equal("shops.shop.example.org"))
	},
		Entry("that every version holds", shop("a", `,"spec":{"door":1}`), nil, Passed, ""),
		Entry("that a version cannot hold", shop("a", `,"color":"hunter2"`), nil, Drift, "v2 cannot hold /color, which annotations keep", "/color"),
		Entry("that no version can hold", shop("a", `,"color":"red","spec":{"size":1,"door":1,"rooms":[{"name":"x","a/b":1},{"name":"y","a/b":2}]}`), nil, Drift,
			"v2 cannot hold /color, which annotations keep; v3 cannot hold /spec/rooms/*/a~1b, /spec/size, which annotations keep", "/color", "/spec/rooms/*/a~1b", "/spec/size"),
		Entry("that a lossy version cannot hold", shop("a", `,"color":"red"`), func(k *convert.Kind) { k.Forget = true }, Drift, "v2 cannot hold /color, which is lost", "/color"),
		Entry("that annotations cannot hold either", shop("a", `,"color":"`+strings.Repeat("x", 300<<10)+`"`), nil, Drift, "v2 cannot hold /color, which is lost", "/color"),
		Entry("with what earlier conversions have kept, and lost, which no function sees", annotated, func(k *convert.Kind) {
			k.Versions[1].FromHub = func(_ context.Context, o runtime.Object) (runtime.Object, error) {
				o.(*unstructured.Unstructured).SetAnnotations(nil)
				return o, nil
			}
		}, Passed, ""),
		Entry("that fails", shop("odd", ""), nil, Failed, "to v2: the conversion from v1 to v2 failed: not this one"),
		Entry("that fails on the way back", shop("stuck-back", ""), nil, Failed, "back from v2: the conversion from v2 to v1 failed: not back"),
		Entry("that panics", shop("bad", ""), nil, Failed, "to v2: the conversion panicked: boom"),
		Entry("that ends its goroutine", shop("ended", ""), nil, Failed, "a conversion ended its goroutine (runtime.Goexit); return an error instead"),
		Entry("whose metadata is changed", shop("moved", ""), nil, Failed,
			`to v2: the conversion from v1 to v2: it changed metadata.name from "moved" to "elsewhere"; a conversion can change labels and annotations alone`),
		Entry("that is none", "5", nil, Failed, "to v2: it cannot be read as v1: json: cannot unmarshal number into Go value of type map[string]interface {}; to v3: it cannot be read as v1: json: cannot unmarshal number into Go value of type map[string]interface {}"),
	)

	It("names no more than a part of very many paths", func(ctx SpecContext) {
		kind := shops()
		kind.Versions[1].FromHub = func(_ context.Context, o runtime.Object) (runtime.Object, error) {
			unstructured.RemoveNestedField(o.(*unstructured.Unstructured).Object, "spec")
			return o, unstructured.SetNestedMap(o.(*unstructured.Unstructured).Object, map[string]any{"kept": true}, "spec")
		}
		var members []string
		for n := range 200 {
			members = append(members, fmt.Sprintf(`"m%03d":1`, n))
		}
		_, found := audit(ctx, kind, shop("a", `,"spec":{"kept":true,`+strings.Join(members, ",")+`}`))
		Expect(found).To(HaveLen(1))
		Expect(found[0].Paths).To(And(HaveLen(maxPaths), HaveEach(HavePrefix("/spec/m"))))
		Expect(len(found[0].Message)).To(BeNumerically("<=", maxText+len("...")))
	})
})

// A test in a bubble of synctest needs a *testing.T.
func TestConversionsThatDoNotEnd(t *testing.T) {
	for name, waits := range map[string]func(context.Context, chan struct{}) error{
		"that ignores its context": func(_ context.Context, end chan struct{}) error { <-end; return nil },
		"that returns with it":     func(ctx context.Context, _ chan struct{}) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, end, began, runs := NewWithT(t), make(chan struct{}), time.Now(), new(atomic.Int64)
				defer close(end)
				kind := shops()
				kind.Versions[1].FromHub = func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
					runs.Add(1)
					return o, waits(ctx, end)
				}
				s, found, err := play(t.Context(), kind, shop("a", ""), shop("b", ""))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(time.Since(began)).To(Equal(conversionTime))
				g.Expect(runs.Load()).To(BeEquivalentTo(1), "the others would take as long")
				reason := "the conversions of a from v1 and back do not end within 1m0s, so no further one begins"
				g.Expect(s.Gaps).To(HaveExactElements(And(HaveField("Reason", reason), HaveField("Objects", 0), HaveField("Resource.Resource", "shops"))))
				g.Expect(found).To(HaveExactElements(And(HaveField("Result", Unknown), HaveField("Message", HavePrefix(reason)))))
			})
		})
	}
	t.Run("with the audit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, kind := NewWithT(t), shops()
			ctx, cancel := context.WithCancelCause(t.Context())
			kind.Versions[1].FromHub = func(ctx context.Context, _ runtime.Object) (runtime.Object, error) {
				cancel(errors.New("enough"))
				return nil, ctx.Err()
			}
			_, found, err := play(ctx, kind, shop("a", ""))
			g.Expect(err).To(MatchError("enough"))
			g.Expect(found).To(BeEmpty())
		})
	})
}
