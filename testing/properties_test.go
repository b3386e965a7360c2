package eirinixtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// check is one of the Check methods.
type check = func(h *eirinixtest.Harness, object any, options ...eirinixtest.RequestOption)

var checks = map[string]check{
	"idempotent":           (*eirinixtest.Harness).CheckIdempotent,
	"lossless":             (*eirinixtest.Harness).CheckLossless,
	"deterministic":        (*eirinixtest.Harness).CheckDeterministic,
	"on time":              (*eirinixtest.Harness).CheckDeadline,
	"without side effects": (*eirinixtest.Harness).CheckDryRun,
	"race-free":            (*eirinixtest.Harness).CheckRaceFree,
	"total":                (*eirinixtest.Harness).CheckTotal,

	"prepared for the loss of objects": (*eirinixtest.Harness).CheckReads,
}

// example is a pod with something in every part that the steps below look at.
func example() *corev1.Pod {
	pod := podOf("example", map[string]string{"app": "web", "tier": "front", "zone": "a"})
	pod.Annotations = map[string]string{"note": "n"}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "a"}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000))}
	return pod
}

// mutation is a step that changes pods, with the client of the harness's API where it wants one.
func mutation(apply func(context.Context, *eirinix.Call, *corev1.Pod) error) any {
	return eirinix.Mutation[*corev1.Pod]{ID: "under-test", Settings: eirinix.Settings{Operations: everyOperation}, Apply: apply}
}

// unhurried has a check take as long as it needs, on a busy machine too.
func unhurried(o *eirinixtest.HarnessOptions) { o.CheckTime = time.Hour }

// everyOperation has steps about pods called for updates too.
var everyOperation = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}

// good keeps every promise, and does all that the broken ones try.
func good(api client.Client) any {
	return eirinix.Mutation[*corev1.Pod]{
		ID: "under-test", Settings: eirinix.Settings{SideEffects: "NoneOnDryRun"},
		Apply: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			config := &corev1.ConfigMap{}
			if err := api.Get(ctx, client.ObjectKey{Namespace: "default", Name: "settings"}, config); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.RunAsUser != nil {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "user", fmt.Sprint(*pod.Spec.SecurityContext.RunAsUser))
			}
			for i := range pod.Spec.Containers {
				if pod.Spec.Containers[i].Name == "sidecar" {
					return nil
				}
			}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
			if *c.DryRun {
				return nil
			}
			return client.IgnoreAlreadyExists(api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen-" + pod.Name, Namespace: "default"}}))
		},
	}
}

var _ = Describe("The properties", func() {
	// Each is broken by one extension, and its own check must name the necessary change.
	DescribeTable("catch the extension that breaks them", func(property string, broken func(*eirinixtest.API) any, fault, remedy string) {
		failure := failureOf(func(t *fakeTest) {
			api := eirinixtest.NewAPI(t)
			h := eirinixtest.NewHarness(t, broken(api), func(o *eirinixtest.HarnessOptions) { o.API = api }, unhurried)
			checks[property](h, example())
		})
		Expect(failure).To(And(
			HavePrefix("eirinixtest: not "+property+": "), ContainSubstring(fault),
			ContainSubstring("under-test"), ContainSubstring("What to change: "), ContainSubstring(remedy)))
	},
		Entry("an extension that adds to a list each time", "idempotent", func(*eirinixtest.API) any {
			return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "B", Value: "b"})
				return nil
			})
		}, "+    - name: B", "look whether what you are about to add is there already"),
		Entry("an extension that only rests on an object that is exactly its own", "idempotent", func(*eirinixtest.API) any {
			return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				if len(pod.Annotations) != 2 {
					metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "count", fmt.Sprint(len(pod.Annotations)))
				}
				return nil
			})
		}, "called again after another webhook had added an annotation", "reinvocation"),
		Entry("an extension that goes by positions", "idempotent", func(*eirinixtest.API) any {
			return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				if last := len(pod.Spec.Containers) - 1; pod.Spec.Containers[last].Name != "app" && len(pod.Spec.Containers)%2 == 0 {
					pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("added-%d", last)})
				} else if len(pod.Spec.Containers)%3 == 0 {
					pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("more-%d", last)})
				}
				return nil
			})
		}, "had added a container", "by its name and not by its position"),
		Entry("an extension that changes every update", "idempotent", func(*eirinixtest.API) any {
			return mutation(func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
				if c.Operation == "UPDATE" {
					metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "updates", pod.Annotations["updates"]+"x")
				}
				return nil
			})
		}, "an update of an annotation changed its own result again", "with every update"),
		Entry("an extension that marshals the pod it has decoded", "lossless", func(*eirinixtest.API) any {
			return handler{func(_ context.Context, _ eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
				metav1.SetMetaDataLabel(&pod.ObjectMeta, "changed", "yes")
				raw, err := json.Marshal(pod)
				if err != nil {
					return admission.Errored(500, err)
				}
				return admission.PatchResponseFromRaw(req.Object.Raw, raw)
			}}
		}, "spec.containers[0].fieldThatGoTypesDoNotKnow", "return Manager.PatchFromPod"),
		Entry("an extension that replaces all labels", "lossless", func(*eirinixtest.API) any {
			return eirinix.Mutation[*corev1.Pod]{ID: "under-test", Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				pod.Labels = map[string]string{"app": "web"}
				return nil
			}}
		}, "what others had put on the object was lost (step under-test), at metadata.labels", "metav1.SetMetaDataLabel"),
		Entry("an extension that lists a map", "deterministic", func(*eirinixtest.API) any {
			return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				all := ""
				for key := range pod.Labels {
					all += key
				}
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "labels", all)
				return nil
			})
		}, "was answered differently a moment later", "sort the keys"),
		Entry("an extension that writes in a dry run", "without side effects", func(api *eirinixtest.API) any {
			return mutation(func(ctx context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				return client.IgnoreAlreadyExists(api.Client().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "record", Namespace: pod.Namespace}}))
			})
		}, "create configmaps default/", "look at the request's DryRun"),
		Entry("an extension that writes in the background, by the Manager's connection", "without side effects", func(*eirinixtest.API) any {
			return handler{func(ctx context.Context, m eirinix.Manager, _ *corev1.Pod, _ admission.Request) admission.Response {
				kube, err := m.GetKubeClient()
				if err != nil {
					return admission.Errored(500, err)
				}
				go func() {
					<-time.After(10 * time.Millisecond)
					_ = kube.Pods("default").Delete(context.WithoutCancel(ctx), "victim", metav1.DeleteOptions{})
				}()
				return admission.Allowed("")
			}}
		}, "delete pods default/victim", "pass client.DryRunAll"),
		Entry("an extension that says it has no side effects", "without side effects", func(api *eirinixtest.API) any {
			return mutation(func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
				if *c.DryRun {
					return nil
				}
				return api.Client().DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace("default"))
			})
		}, "registered with sideEffects None", "Settings.SideEffects: NoneOnDryRun"),
		Entry("an extension that keeps the data of a request in a field", "race-free", func(*eirinixtest.API) any {
			var mu sync.Mutex // so that the race detector sees nothing, as in a field of an atomic type
			var current string
			note := func(name string) { mu.Lock(); defer mu.Unlock(); current = name }
			noted := func() string { mu.Lock(); defer mu.Unlock(); return current }
			return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				note(pod.Name)
				<-time.After(time.Millisecond)
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "name", noted())
				return nil
			})
		}, "concurrent requests influenced each other", "keep what belongs to one request in local variables"),
		Entry("an extension that expects a container", "total", func(*eirinixtest.API) any {
			return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				pod.Spec.Containers[0].Image = "other"
				return nil
			})
		}, "properties_test.go:", "lists may be empty"),
		Entry("an extension that fails on fields that the example does not have", "total", func(*eirinixtest.API) any {
			return mutation(func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
				if a := pod.Spec.Affinity; a != nil {
					c.Warn("nodes: %v", a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
				}
				return nil
			})
		}, "on random object", "pointers and maps of an object may be nil"),
		Entry("an extension that expects a pod at every DELETE", "total", func(*eirinixtest.API) any {
			return handlerOf{handler{func(_ context.Context, _ eirinix.Manager, pod *corev1.Pod, _ admission.Request) admission.Response {
				_ = pod.Name
				return admission.Allowed("")
			}}, eirinix.Settings{Rules: []rule{{Operations: ops("DELETE"), Rule: podsRule}}}}
		}, "DELETE", "invalid memory address"),
	)

	It("are broken by a step that adds a container to older pods, as the API server says", func() {
		adds := func(operations ...admissionregistrationv1.OperationType) any {
			return eirinix.Mutation[*corev1.Pod]{ID: "proxy", Settings: eirinix.Settings{Operations: operations, FailurePolicy: "Ignore"}, Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "proxy" }) {
					pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
				}
				return nil
			}}
		}
		failure := failureOf(func(t *fakeTest) { eirinixtest.NewHarness(t, adds("CREATE", "UPDATE")).CheckIdempotent(example()) })
		Expect(failure).To(And(
			ContainSubstring("an update of an object that it has not changed"), ContainSubstring("pod updates may not add or remove containers"), ContainSubstring("Settings.Operations")))
		eirinixtest.NewHarness(GinkgoTB(), adds()).CheckIdempotent(example())
	})

	It("fail where no step runs, because they would prove nothing", func() {
		uncalled := labeller("seen", "yes")
		uncalled.Settings.Objects = selector("app", "another")
		for property, check := range checks {
			Expect(failureOf(func(t *fakeTest) { check(eirinixtest.NewHarness(t, uncalled), example()) })).
				To(ContainSubstring("no step ran for this object, so that nothing was checked"), property)
		}
	})

	It("hold for a validation that denies, also updates and deletions", func() {
		own := func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			if len(pod.Spec.Containers) > 1 {
				return eirinix.Deny("no container but ours")
			}
			return nil
		}
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Validation[*corev1.Pod]{
			Create: own, Delete: own,
			Update: func(ctx context.Context, c *eirinix.Call, _, pod *corev1.Pod) error { return own(ctx, c, pod) },
		}, unhurried)
		h.CheckIdempotent(example())
		h.CheckLossless(example())
	})

	It("take requests that are no CREATE, UPDATE or DELETE of an object", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Subresource[*corev1.PodExecOptions]{
			Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec", Settings: eirinix.Settings{Operations: ops("CONNECT")},
			Check: func(_ context.Context, _ *eirinix.Call, _, o *corev1.PodExecOptions) error {
				if len(o.Command) > 0 && o.Command[0] == "sh" {
					return eirinix.Deny("no shell")
				}
				return nil
			},
		}, unhurried)
		h.CheckProperties(eirinixtest.Request{
			Operation: "CONNECT", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec", Namespace: "default", Name: "x",
			Object: &corev1.PodExecOptions{Command: []string{"ls"}},
		})
	})

	It("find the fault of an update of an old object that lacks a field", func() {
		failure := failureOf(func(t *fakeTest) {
			h := eirinixtest.NewHarness(t, eirinix.Validation[*corev1.Pod]{Update: func(_ context.Context, _ *eirinix.Call, oldObj, _ *corev1.Pod) error {
				_ = oldObj.Spec.SecurityContext.RunAsUser
				return nil
			}})
			h.CheckTotal(example())
		})
		Expect(failure).To(And(ContainSubstring("not total"), ContainSubstring("UPDATE"), Not(ContainSubstring("securityContext:"))))
	})
})

// handler is an Extension made of a function.
type handler struct {
	handle func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response
}

func (handler) Name() string { return "under-test" }
func (h handler) Handle(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	return h.handle(ctx, m, pod, req)
}

// handlerOf is a handler with settings.
type handlerOf struct {
	handler
	settings eirinix.Settings
}

func (h handlerOf) Settings() eirinix.Settings { return h.settings }

// The checks of steps that are late run in bubbles of synctest, so that no time passes. Those need a *testing.T.

const unchecked = "idempotent (in part), lossless (in part), deterministic, race-free, without side effects"

const remedyOfLate = "What to change: pass the handler's context to every call that waits"

// inBubble runs a check of a step, whose hung runs end when release is closed, and returns the test and its duration.
func inBubble(
	t *testing.T, step func(api *eirinixtest.API, release <-chan struct{}) any, check func(*eirinixtest.Harness), options ...any,
) (played *fakeTest, took time.Duration) {
	t.Helper()
	RegisterTestingT(t)
	synctest.Test(t, func(*testing.T) {
		release, done, began := make(chan struct{}), make(chan struct{}), time.Now()
		played = &fakeTest{}
		go func() {
			defer close(done)
			api := eirinixtest.NewAPI(played)
			parts := append(options, step(api, release), func(o *eirinixtest.HarnessOptions) { o.API = api })
			check(eirinixtest.NewHarness(played, parts...))
		}()
		<-done
		took = time.Since(began)
		close(release)
		time.Sleep(time.Minute) // of the bubble's time, until what was left behind has ended
		for _, f := range played.cleanups {
			f()
		}
	})
	return played, took
}

func properties(h *eirinixtest.Harness) { h.CheckProperties(example()) }

// hanging is a step that ignores its context where an object is as is told.
func hanging(when func(*corev1.Pod) bool) func(*eirinixtest.API, <-chan struct{}) any {
	return func(_ *eirinixtest.API, release <-chan struct{}) any {
		return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			if when(pod) {
				<-release
			}
			return nil
		})
	}
}

func always(*corev1.Pod) bool { return true }

func (t *fakeTest) said() string { return strings.Join(t.log, "\n") }

func TestStepThatHangs(t *testing.T) {
	played, took := inBubble(t, hanging(always), properties)
	Expect(took).To(BeNumerically("<=", 30*time.Second))
	Expect(played.errors).To(HaveLen(2))
	Expect(played.errors[0].text).To(And(HavePrefix("eirinixtest: not on time: CREATE was called with a timeout of 200ms, and step under-test was still running 1s later"), ContainSubstring(remedyOfLate)))
	last := played.errors[len(played.errors)-1]
	Expect(last.at.Sub(played.errors[0].at)).To(BeNumerically(">", 20*time.Second), "the first failure is reported when it is found")
	Expect(last.text).To(Equal("eirinixtest: not checked, because the answers came too late: " + unchecked + ". Let the step answer sooner, or raise HarnessOptions.CheckTime, which is 25s"))
	Expect(played.said()).To(ContainSubstring("not checked: total, prepared for the loss of objects. The step is not on time"))
}

func TestStepThatHangsForLargeObjects(t *testing.T) {
	large := func(pod *corev1.Pod) bool { return pod.Size() > 4<<10 }
	played, took := inBubble(t, hanging(large), properties)
	Expect(took).To(BeNumerically("<", 10*time.Second))
	Expect(played.failure).To(And(
		HavePrefix("eirinixtest: not on time: CREATE was called with a timeout of 1s, and step under-test was still running 1s later"),
		ContainSubstring("\n  kind: Pod\n"), MatchRegexp(`\.\.\. and \d+ more lines`), ContainSubstring(remedyOfLate), Not(ContainSubstring("CheckTime"))))
}

func TestStepThatHangsForChangedObjects(t *testing.T) {
	played, took := inBubble(t, hanging(func(pod *corev1.Pod) bool { return len(pod.Annotations) > 1 }), properties)
	Expect(took).To(BeNumerically("<=", 30*time.Second))
	Expect(played.errors[len(played.errors)-1].text).To(ContainSubstring("not checked, because the answers came too late: "))
}

func TestStepThatWaitsForTheEndOfItsTime(t *testing.T) {
	played, took := inBubble(t, func(*eirinixtest.API, <-chan struct{}) any {
		return mutation(func(ctx context.Context, _ *eirinix.Call, _ *corev1.Pod) error {
			<-ctx.Done()
			return nil
		})
	}, properties)
	Expect(took).To(BeNumerically("~", 25*time.Second, time.Second))
	Expect(played.failure).To(And(Not(ContainSubstring("not on time")), ContainSubstring("deterministic, race-free, without side effects, total, prepared for the loss of objects. "), HaveSuffix("which is 25s")))
}

func TestCheckOfOnePropertyOfAStepThatHangs(t *testing.T) {
	for property, check := range checks {
		t.Run(property, func(t *testing.T) {
			played, took := inBubble(t, hanging(always), func(h *eirinixtest.Harness) { check(h, example()) }, func(o *eirinixtest.HarnessOptions) { o.CheckTime = 5 * time.Second })
			Expect(took).To(BeNumerically("<=", 5*time.Second))
			if property == "on time" {
				Expect(played.failure).To(And(HavePrefix("eirinixtest: not on time: "), ContainSubstring(remedyOfLate)))
			} else {
				Expect(played.failure).To(Equal("eirinixtest: not checked, because the answers came too late: " + property + " (in part). Let the step answer sooner, or raise HarnessOptions.CheckTime, which is 5s"))
			}
		})
	}
}

func TestStepWhoseClientHasAnotherContext(t *testing.T) {
	played, _ := inBubble(t, func(api *eirinixtest.API, _ <-chan struct{}) any {
		return mutation(func(context.Context, *eirinix.Call, *corev1.Pod) error {
			return api.Client().Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.ConfigMap{})
		})
	}, func(h *eirinixtest.Harness) { h.CheckDeadline(example()) })
	Expect(played.failure).To(And(HavePrefix("eirinixtest: not on time: "), ContainSubstring("was still running 1s later"), ContainSubstring("context.Background")))
}

func TestStepThatNotesTheTime(t *testing.T) {
	played, _ := inBubble(t, func(*eirinixtest.API, <-chan struct{}) any {
		return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "time", time.Now().Truncate(time.Second).Format(time.RFC3339))
			return nil
		})
	}, func(h *eirinixtest.Harness) {
		h.CheckProperties(eirinixtest.Request{Operation: "CREATE", Object: example()})
	})
	Expect(played.failure).To(And(HavePrefix("eirinixtest: not deterministic: "), ContainSubstring("a second later"), ContainSubstring("nor the time")))
	Expect(played.said()).To(ContainSubstring("not checked: race-free. The step is not deterministic"))
}

func TestStepThatKeepsAllProperties(t *testing.T) {
	var writes []eirinixtest.APIRequest
	played, took := inBubble(t, func(api *eirinixtest.API, _ <-chan struct{}) any { return good(api.Client()) }, func(h *eirinixtest.Harness) {
		properties(h)
		writes = h.API().Writes()
	})
	Expect(took).To(BeNumerically("<", 5*time.Second))
	Expect(played.failure).To(BeEmpty())
	Expect(played.said()).NotTo(ContainSubstring("not checked"))
	Expect(writes).NotTo(BeEmpty(), "so that the absence of writes in dry runs means something")
}

// ginkgoTest is a test whose Errorf does not return, as that of ginkgo.
type ginkgoTest struct{ *fakeTest }

func (ginkgoTest) GinkgoRecover() {}
func (t ginkgoTest) Errorf(format string, args ...any) {
	t.fakeTest.Errorf(format, args...)
	runtime.Goexit()
}

func TestFailuresInGinkgo(t *testing.T) {
	RegisterTestingT(t)
	synctest.Test(t, func(*testing.T) {
		played, done := ginkgoTest{&fakeTest{}}, make(chan struct{})
		go func() {
			defer close(done)
			properties(eirinixtest.NewHarness(played, mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				pod.Labels = map[string]string{"seen": pod.Labels["seen"] + "x"}
				return nil
			})))
		}()
		<-done
		Expect(played.errors).To(BeEmpty())
		Expect(played.failure).To(And(HavePrefix("eirinixtest: not idempotent: "), ContainSubstring("\n\neirinixtest: not lossless: ")))
		Expect(played.said()).To(And(ContainSubstring("eirinixtest: not idempotent: "), ContainSubstring("eirinixtest: not lossless: ")))
		for _, f := range played.cleanups {
			f()
		}
	})
}
