package eirinix

// This file specifies which steps a Manager takes, what they may read, and when they are registered.

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/mapper"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// foreign is an object that no scheme knows.
type foreign struct{ corev1.Pod }

var _ = Describe("A typed step", func() {
	apply := func(context.Context, *Call, *corev1.Pod) error { return nil }
	check := func(context.Context, *Call, *corev1.PodExecOptions, *corev1.PodExecOptions) error { return nil }
	validate := func(steps ...any) error {
		m := NewManager(ManagerOptions{Host: "webhook.example.org"})
		for _, s := range steps {
			_ = m.AddExtension(s) // reported again by Validate
		}
		return m.Validate()
	}
	rules := func(resource string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}

	It("may be added by value and by pointer, with and without ID", func() {
		s := Mutation[*corev1.Pod]{Apply: apply}
		Expect(validate(s, &s, s, Mutation[*corev1.Pod]{ID: "named", Apply: apply})).To(Succeed())
	})

	DescribeTable("is refused, with the remedy,",
		func(step any, parts ...string) {
			err := validate(step)
			for _, part := range parts {
				Expect(err).To(MatchError(ContainSubstring(part)))
			}
		},
		Entry("without Apply", Mutation[*corev1.Pod]{ID: "x"}, `"x" has no Apply`),
		Entry("without any callback", Validation[*corev1.Pod]{}, "has no callback", "set Rule, Create, Update or Delete"),
		Entry("without Check", Subresource[*corev1.PodExecOptions]{}, "has no Check"),
		Entry("without Resource", Subresource[*corev1.PodExecOptions]{Check: check}, "has no Resource"),
		Entry("without Subresource", Subresource[*corev1.PodExecOptions]{Check: check, Resource: corev1.SchemeGroupVersion.WithResource("pods")}, "has no Subresource"),
		Entry("for an interface", Mutation[client.Object]{Apply: func(context.Context, *Call, client.Object) error { return nil }}, "must be a pointer to an API type"),
		Entry("for a type that the scheme does not know", Mutation[*foreign]{Apply: func(context.Context, *Call, *foreign) error { return nil }}, "ManagerOptions.Scheme"),
		Entry("for anything at all", Mutation[*unstructured.Unstructured]{Apply: func(context.Context, *Call, *unstructured.Unstructured) error { return nil }}, "set Settings.Rules"),
		Entry("for a type, with rules for any resource", Mutation[*corev1.Pod]{Apply: apply, Settings: Settings{Rules: rules("*")}}, "may yield another kind"),
		Entry("with an empty condition", Mutation[*corev1.Pod]{ID: "cel", Apply: apply, Settings: Settings{
			Conditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: " "}},
		}}, `"cel"`, "correct Settings.Conditions: matchConditions[0].expression: Required value"),
		Entry("with a timeout beyond the API's", Mutation[*corev1.Pod]{ID: "slow", Apply: apply, Settings: Settings{Timeout: 31e9}}, `"slow"`, "30"),
		Entry("with an unknown policy", Mutation[*corev1.Pod]{ID: "odd", Apply: apply, Settings: Settings{FailurePolicy: "Maybe"}}, `"odd"`, "Maybe"),
	)

	It("may be of a type of the KubeManager's scheme, or of a built-in one", func() {
		scheme := runtime.NewScheme()
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Foreign"}, &foreign{})
		kube := Must(manager.New(&rest.Config{Host: "https://192.0.2.1"}, manager.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}}))
		m := NewManager(ManagerOptions{Host: "webhook.example.org", KubeManager: kube})
		Expect(m.AddExtension(Mutation[*foreign]{ID: "foreign", Apply: func(context.Context, *Call, *foreign) error { return nil }})).To(Succeed())
		Expect(m.AddExtension(Mutation[*corev1.Pod]{ID: "pod", Apply: apply})).To(Succeed())
		Expect(m.Validate()).To(Succeed())
	})

	It("may not have the name of another", func() {
		Expect(validate(Mutation[*corev1.Pod]{ID: "one", Apply: apply}, Mutation[*corev1.Pod]{ID: "one", Apply: apply})).
			To(MatchError(ContainSubstring(`"one" is already added`)))
	})
})

var _ = Describe("Invalid", func() {
	It("is nothing without faults, and names each of them else", func() {
		Expect(Invalid(nil)).To(Succeed())
		err := Invalid(field.ErrorList{field.Required(field.NewPath("spec", "a"), "say which"), field.Forbidden(field.NewPath("spec", "b"), "not here")})
		Expect(err).To(MatchError(And(ContainSubstring("spec.a"), ContainSubstring("spec.b"))))
		status, ok := err.(interface{ Status() metav1.Status })
		Expect(ok).To(BeTrue())
		Expect(status.Status().Code).To(BeEquivalentTo(422))
		Expect(status.Status().Details.Causes).To(HaveLen(2))
	})
})

// reading pods refuses none, and declares Reads.
func readingStep(reads ...Read) Validation[*corev1.Pod] {
	return Validation[*corev1.Pod]{ID: "looks", Settings: Settings{Reads: reads}, Create: func(context.Context, *Call, *corev1.Pod) error { return nil }}
}

// configured is an Extension that declares Reads, although it gets no Call.
type configured struct{}

func (configured) Settings() Settings { return Settings{Reads: []Read{{Object: &corev1.Secret{}}}} }
func (configured) Handle(context.Context, Manager, *corev1.Pod, admission.Request) admission.Response {
	return admission.Allowed("")
}

var _ = Describe("Settings.Reads", func() {
	DescribeTable("are refused, with the remedy,",
		func(step any, parts ...string) {
			m := NewManager(ManagerOptions{Host: "webhook.example.org"})
			Expect(m.AddExtension(step)).To(Succeed())
			for _, part := range parts {
				Expect(m.Validate()).To(MatchError(ContainSubstring(part)))
			}
		},
		Entry("without Object", readingStep(Read{}), `step "looks": Settings.Reads[0].Object is nil`, "&corev1.ConfigMap{}"),
		Entry("with a nil pointer", readingStep(Read{Object: (*corev1.Pod)(nil)}), "Object is nil"),
		Entry("of a kind that the scheme does not know", readingStep(Read{Object: &foreign{}}), "*eirinix.foreign", "ManagerOptions.Scheme"),
		Entry("of unstructured objects without kind", readingStep(Read{Object: &unstructured.Unstructured{}}), "Settings.Reads[0]"),
		Entry("of metadata without kind", readingStep(Read{Object: &metav1.PartialObjectMetadata{}}), "without apiVersion and kind"),
		Entry("in a namespace that cannot exist", readingStep(Read{Object: &corev1.Secret{}}, Read{Object: &corev1.Secret{}, Namespaces: []string{"A"}}), `Settings.Reads[1].Namespaces has "A"`),
		Entry("in the empty namespace", readingStep(Read{Object: &corev1.Secret{}, Namespaces: []string{""}}), "leave it out for all"),
		Entry("in a namespace twice", readingStep(Read{Object: &corev1.Secret{}, Namespaces: []string{"a", "a"}}), `has "a" twice`),
		Entry("with a negative age", readingStep(Read{Object: &corev1.Secret{}, MaxStale: -time.Second}), "MaxStale is -1s", "AnyAge"),
		Entry("with an age that cannot be kept", readingStep(Read{Object: &corev1.Secret{}, MaxStale: 59 * time.Second}), "MaxStale is 59s, which cannot be kept", "at least 1m0s"),
		Entry("with a selector of labels that is none", readingStep(Read{Object: &corev1.Secret{}, Labels: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Near"}}}}), "Settings.Reads[0]", "Near"),
		Entry("with fields that select nothing", readingStep(Read{Object: &corev1.Secret{}, Fields: fields.Nothing()}), ".Fields selects nothing"),
		Entry("with an index without a function", readingStep(Read{Object: &corev1.Secret{}, Index: map[string]client.IndexerFunc{"x": nil}}), `Index has "x"`),
		Entry("of an Extension", configured{}, "gets no Call", "a Mutation or a Validation"),
	)

	It("pass every other setting on to the registration", func() {
		var s Settings
		fill := reflect.ValueOf(&s).Elem()
		for i := range fill.NumField() {
			f := fill.Field(i)
			switch f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int64:
				f.SetInt(1)
			case reflect.Pointer:
				f.Set(reflect.New(f.Type().Elem()))
			case reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			default:
				Fail("a field of another type: " + fill.Type().Field(i).Name)
			}
		}
		registered := reflect.ValueOf(s.registered())
		for i := range registered.NumField() {
			name := registered.Type().Field(i).Name
			Expect(registered.Field(i).Interface()).To(Equal(fill.FieldByName(name).Interface()), name)
		}
		Expect(registered.NumField()).To(Equal(fill.NumField()-1), "all but Reads")
	})

	It("register a step once it waits no longer, also if another one waits by then", func() {
		a, b := waitingStep{name: "a"}, waitingStep{name: "b"}
		one, other, both := resolved{waiting: []waitingStep{a}}, resolved{waiting: []waitingStep{b}}, resolved{waiting: []waitingStep{a, b}}
		Expect(one.changes(both)).To(BeTrue())
		Expect(other.changes(one)).To(BeTrue())
		Expect(one.changes(one)).To(BeFalse())
		Expect(both.changes(one)).To(BeFalse())
		shadow := resolved{steps: []resolvedStep{{registered: webhookconf.Step{Shadow: true}}}}
		Expect(shadow.changes(resolved{})).To(BeTrue())
		Expect(resolved{}.changes(shadow)).To(BeTrue())
	})

	It("do not make a step that is in force count as held back", func() {
		r := resolved{waiting: []waitingStep{{"inforce", errors.New("no right")}, {"in", errors.New("no kind")}}}
		registered := webhookconf.Desired{Kept: map[string][]string{"/validate/pods-1": {"inforce@v1/Pod"}}}
		Expect(r.heldBack(registered)).To(Equal([]diagnose.WaitingStep{{Name: "in", Why: "no kind"}}))
	})

	DescribeTable("have an age that can be kept", func(r Read, age time.Duration) {
		r.Object = &corev1.Secret{}
		m := NewManager(ManagerOptions{Host: "webhook.example.org"})
		Expect(m.AddExtension(readingStep(r))).To(Succeed())
		Expect(m.Validate()).To(Succeed())
		declared := Must(newResolver(m.options, resources.Cluster{}).declaration(&r))
		Expect(declared.MaxStale).To(Equal(age))
	},
		Entry("of a minute", Read{}, time.Minute),
		Entry("as given", Read{MaxStale: time.Hour}, time.Hour),
		Entry("or any", Read{MaxStale: AnyAge}, time.Duration(0)),
	)

	DescribeTable("select all labels, or those asked for, and never nothing by mistake", func(l *metav1.LabelSelector, selected string) {
		declared := Must(newResolver(ManagerOptions{}, resources.Cluster{}).declaration(&Read{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}, Labels: l}))
		Expect(fmt.Sprint(declared.Labels)).To(Equal(selected))
	},
		Entry("without a selector", nil, "<nil>"),
		Entry("with an empty one", &metav1.LabelSelector{}, ""),
		Entry("with one", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, "app=web"),
	)

	It("write nothing to the registration", func() {
		registered := func(declared ...Read) []webhookconf.Entry {
			m := NewManager(ManagerOptions{Host: "webhook.example.org"})
			Expect(m.AddExtension(readingStep(declared...))).To(Succeed())
			made := Must(m.offline(seam.World{NewMapper: mapper.New, Reads: func(*reads.Set, *runtime.Scheme) seam.Reading { return nil }}))
			return made.Entries
		}
		Expect(registered(Read{Object: &corev1.Secret{}})).To(Equal(registered()))
	})

	It("are not for a Call that a unit test makes", func() {
		var pod corev1.Pod
		c := &Call{}
		c.Warn("unsent")
		c.Annotate("key", "unsent")
		Expect(c.Reader().Get(context.Background(), client.ObjectKey{Name: "x"}, &pod)).To(MatchError(ContainSubstring("Harness")))
		Expect(c.Reader().List(context.Background(), &corev1.PodList{})).To(MatchError(ContainSubstring("Settings.Reads")))
	})
})

// unreadable is what steps read from if nothing can be listed.
type unreadable struct{ *reads.Set }

func (u unreadable) Waiting(string) error { return errors.New("secrets cannot be listed") }

var _ = Describe("A step whose Reads cannot be listed", func() {
	It("is not registered, and fails on the path of a version that has registered it", func() {
		m := NewManager(ManagerOptions{Host: "webhook.example.org"})
		looks := readingStep(Read{Object: &corev1.Secret{}})
		looks.Create = func(ctx context.Context, c *Call, _ *corev1.Pod) error {
			_ = c.Reader().List(ctx, &corev1.SecretList{}) // dropping the error does not help
			return nil
		}
		Expect(m.AddExtension(looks)).To(Succeed())
		r := newResolver(m.options, resources.Cluster{})
		set := Must(r.newReads(m.steps, logr.Discard(), nil))
		r.reads = unreadable{set}
		all := Must(r.all(m.steps))
		Expect(all.entries).To(BeEmpty())
		Expect(all.waiting).To(HaveLen(1))
		Expect(all.waiting[0].why).To(MatchError("secrets cannot be listed"))

		const path = admit.ValidatePrefix + "pods-1"
		chains := Must(m.chains(all, map[string]rollout.Route{path: {Steps: []string{all.unread[0].registered.Key()}, All: true}}, nil, r.reads))
		Expect(chains[path].Steps).To(HaveLen(1))
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		call := &chain.Call{Request: &admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create}}
		Expect(chains[path].Steps[0].Run(ctx, call, nil, &corev1.Pod{})).To(MatchError("Secret have not been listed yet"))
	})
})
