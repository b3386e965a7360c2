package modes

// This file specifies which mode the entries of a ConfigMap give a step for an object, and by which name the object draws its number.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/chain"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestModes(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/modes")
}

var version int

// from returns a ConfigMap with entries, as a new version.
func from(entries ...string) *corev1.ConfigMap {
	version++
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: fmt.Sprint(version)}, Data: map[string]string{}}
	for i := 0; i < len(entries); i += 2 {
		m.Data[entries[i]] = entries[i+1]
	}
	return m
}

func request(namespace, name string, change ...func(*metav1.ObjectMeta)) *admissionv1.AdmissionRequest {
	GinkgoHelper()
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	for _, c := range change {
		c(&object.ObjectMeta)
	}
	raw := Must(json.Marshal(object))
	return &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: namespace, Name: object.Name, Object: runtime.RawExtension{Raw: raw},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
	}
}

var _ = Describe("The modes of steps", func() {
	var (
		m    *Modes
		logs []string
	)
	BeforeEach(func() {
		m, logs = New([]Step{{Name: "owner"}, {Name: "stage", Mode: chain.ModeShadow}, {Name: "fixed", Fixed: true}}), nil
		m.ConfigMap, m.Log = "eirini/modes", funcr.New(func(_, args string) { logs = append(logs, args) }, funcr.Options{})
		m.Labels = func(_ context.Context, name string) (labels.Set, error) {
			if name == "gone" {
				return nil, errors.New("forbidden")
			}
			return labels.Set{"team": name, corev1.LabelMetadataName: name}, nil
		}
	})
	mode := func(step string, req *admissionv1.AdmissionRequest) chain.Mode {
		GinkgoHelper()
		return Must(m.Choose(context.Background(), step, req))
	}

	It("are the program's own without an entry, and those of the first line that fits otherwise", func() {
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeDeny))
		m.Set(from("owner", "# two teams first\nDeny where team in (a, b)\n\nWARN 0%\naudit where kubernetes.io/metadata.name=c\nShadow"))
		Expect(logs).To(HaveLen(1))
		for namespace, expected := range map[string]chain.Mode{"a": chain.ModeDeny, "b": chain.ModeDeny, "c": chain.ModeAudit, "d": chain.ModeShadow, "": chain.ModeShadow} {
			Expect(mode("owner", request(namespace, "x"))).To(Equal(expected), namespace)
		}
		m.Set(from("owner", "Warn where team=a"))
		Expect(mode("owner", request("d", "x"))).To(Equal(chain.ModeDeny), "the program's own where no line fits")
		m.Set(nil)
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeDeny))
	})

	It("select a Namespace by its own labels", func() {
		m.Set(from("owner", "Warn where team=new\nAudit"))
		req := request("", "some", func(o *metav1.ObjectMeta) { o.Labels = map[string]string{"team": "new"} })
		req.Resource.Resource = "namespaces"
		Expect(mode("owner", req)).To(Equal(chain.ModeWarn))
	})

	It("fail where they depend on labels that cannot be read, and only there", func() {
		m.Set(from("owner", "Warn where team=x\nAudit", "stage", "Warn where kubernetes.io/metadata.name=gone"))
		_, err := m.Choose(context.Background(), "owner", request("gone", "x"))
		Expect(err).To(MatchError(ContainSubstring("grant get, list and watch on namespaces: forbidden")))
		Expect(mode("stage", request("gone", "x"))).To(Equal(chain.ModeWarn))
	})

	It("hold for a percentage of objects, the same ones at any time and in any process", func() {
		requests := map[string]*admissionv1.AdmissionRequest{}
		for i := range 2000 {
			name := fmt.Sprintf("pod-%d", i)
			requests[name] = request("a", name)
		}
		count := func(entry string) (in int, chosen map[string]chain.Mode) {
			m.Set(from("owner", entry))
			chosen = map[string]chain.Mode{}
			for name, r := range requests {
				var err error
				if chosen[name], err = m.Choose(context.Background(), "owner", r); err != nil {
					Fail(err.Error())
				}
				if chosen[name] == chain.ModeDeny {
					in++
				}
			}
			return in, chosen
		}
		ten, first := count("Deny 10%\nAudit")
		Expect(ten).To(BeNumerically("~", 200, 60))
		thirty, second := count("Deny 30%\nAudit")
		Expect(thirty).To(BeNumerically("~", 600, 90))
		for name, was := range first {
			if was == chain.ModeDeny && second[name] != was {
				Fail("a higher percentage keeps those of a lower one, but not " + name)
			}
		}
		_, both := count("Deny 10%\nWarn 50%\nAudit")
		of := map[chain.Mode]int{}
		for name, chosen := range both {
			of[chosen]++
			if (chosen == chain.ModeDeny) != (first[name] == chain.ModeDeny) {
				Fail("the same number serves all lines, but not for " + name)
			}
		}
		Expect(of).To(And(HaveKeyWithValue(chain.ModeWarn, BeNumerically("~", 800, 90)), HaveKeyWithValue(chain.ModeAudit, BeNumerically("~", 1000, 90))))
		none, _ := count("Deny 0%\nAudit")
		all, _ := count("Deny 100%")
		Expect([]int{none, all}).To(Equal([]int{0, 2000}))
		Expect(draw("owner", "a/x")).To(BeNumerically("~", 26.305, 0.001), "every process draws this number")
	})

	DescribeTable("keep the last good entry, and log the line of a bad one once",
		func(entry, problem string) {
			m.Set(from("owner", "Warn", "stage", "Audit"))
			logs = nil
			bad := from("owner", entry, "stage", "Deny")
			m.Set(bad)
			m.Set(bad)
			Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeWarn))
			Expect(mode("stage", request("a", "x"))).To(Equal(chain.ModeDeny), "the good entry beside it")
			Expect(logs).To(ConsistOf(And(ContainSubstring("owner"), ContainSubstring(strings.ReplaceAll(problem, `"`, `\"`))), ContainSubstring("stage")))
			entries, problems := m.Describe()
			Expect(entries).To(Equal([]string{"owner: Warn", "stage: Deny"}))
			Expect(problems).To(ConsistOf(And(HavePrefix("owner: "+problem), HaveSuffix(`the last good entry applies: "Warn"`))))
		},
		Entry("an unknown mode", "Audit where a=b\nDney", `line 2: "Dney": "Dney" is no mode; give Deny, Warn, Audit or Shadow`),
		Entry("nothing", "\n# nothing\n", "line 1: no mode"),
		Entry("a percentage above all", "Deny 101%", `line 1: "Deny 101%": "101%" is no percentage`),
		Entry("a percentage below none", "Deny -1%", `line 1: "Deny -1%": "-1%" is no percentage`),
		Entry("a percentage that is no number", "Deny NaN%", `line 1: "Deny NaN%": "NaN%" is no percentage`),
		Entry("a percentage in words", "Deny ten%", `line 1: "Deny ten%": "ten%" is no percentage`),
		Entry("an empty selector", "Deny where ", `line 1: "Deny where": there is no selector`),
		Entry("a word", "Deny team=a", `line 1: "Deny team=a": "team=a" is not understood`),
		Entry("a line after one for all objects", "Deny\nWarn 10%", `line 2: "Warn 10%" is never reached`),
	)

	It("are the program's own if the first entry is a bad one", func() {
		m.Set(from("stage", "Dney"))
		Expect(mode("stage", request("a", "x"))).To(Equal(chain.ModeShadow))
		_, problems := m.Describe()
		Expect(problems).To(ConsistOf(And(HavePrefix("stage: line 1: "), HaveSuffix("the program's own mode applies"))))
	})

	It("refuse entries for unknown steps and for those whose mode is fixed", func() {
		m.Set(from("fixed", "Warn", "onwer", "Warn"))
		Expect(mode("fixed", request("a", "x"))).To(Equal(chain.ModeDeny))
		_, problems := m.Describe()
		Expect(problems).To(ConsistOf(
			HavePrefix("fixed: line 1: the step has Settings.FixedMode"),
			HavePrefix("onwer: line 1: this program has no step of this name; it has fixed, owner, stage"),
		))
	})

	It("make a step a shadow only if all of its objects are in ModeShadow", func() {
		changed := func() bool { return len(m.Changed()) > 0 && <-m.Changed() == struct{}{} }
		Expect([]bool{m.Shadow("owner"), m.Shadow("stage")}).To(Equal([]bool{false, true}))
		for _, play := range []struct {
			entry            string
			shadows, changes bool
		}{
			{"Shadow", true, true},
			{"Shadow where team=a\nShadow", true, false},
			{"Deny 10%\nShadow", false, true},
			{"Shadow where team=a", false, false},
			{"Audit", false, false},
		} {
			m.Set(from("owner", play.entry))
			Expect(m.Shadow("owner")).To(Equal(play.shadows), play.entry)
			Expect(changed()).To(Equal(play.changes), play.entry)
		}
		m.Set(from("stage", "Shadow where team=a"))
		Expect(m.Shadow("stage")).To(BeTrue(), "its own mode is Shadow")
	})

	It("stay Shadow until API servers have observed the failurePolicy of the step", func() {
		m.Log, m.Lag = logr.Discard(), time.Hour
		m.Set(from("stage", "Deny"))
		Expect(mode("stage", request("a", "x"))).To(Equal(chain.ModeDeny), "it begins so")
		m.Set(from("stage", "Shadow"))
		m.Set(from("stage", "Deny"))
		Expect(mode("stage", request("a", "x"))).To(Equal(chain.ModeShadow), "another replica may just have registered it so")
		m.Registered(map[string]bool{"owner": true}, false)
		m.Set(from("owner", "Deny"))
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeShadow))
		entries, _ := m.Describe()
		Expect(entries).To(ContainElement("owner: Shadow, until its own failurePolicy is registered"))
		m.Registered(map[string]bool{}, false)
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeShadow), "an API server may not know yet")
		m.Lag = 0
		m.Registered(map[string]bool{"owner": true}, false)
		m.Registered(map[string]bool{}, true)
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeShadow), "the registration cannot be read")
		m.Registered(map[string]bool{}, false)
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeDeny))
	})
})

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
		return runtime.RawExtension{Raw: Must(json.Marshal(corev1.Pod{ObjectMeta: o}))}
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
					into.Raw = Must(json.Marshal(from))
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
		small := Must(json.Marshal(pod))
		for range 1000 {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c", Command: []string{"a", "b"}})
		}
		large := Must(json.Marshal(pod))
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
	})
})
