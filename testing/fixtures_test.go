package eirinixtest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// envExtension is an extension as EiriniX's programs have them.
type envExtension struct{}

func (envExtension) Handle(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	pod = pod.DeepCopy()
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Env = append(pod.Spec.Containers[i].Env, corev1.EnvVar{Name: "SEEN", Value: string(req.Operation)})
	}
	return m.PatchFromPod(req, pod)
}

func podOf(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func inNamespace[T client.Object](name string, object T) T {
	object.SetNamespace(name)
	return object
}

// merged returns the stored config map with the data of another one.
func merged(stored client.Object, other *corev1.ConfigMap) *corev1.ConfigMap {
	m := stored.DeepCopyObject().(*corev1.ConfigMap)
	m.Data = other.Data
	return m
}

func gadgetKind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: version, Kind: "Gadget"}
}

func gadget(version, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}}
	u.SetGroupVersionKind(gadgetKind(version))
	u.SetName(name)
	return u
}

func rulesFor(group, version, resource string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: ops("CREATE", "UPDATE"),
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}}
}

type rule = admissionregistrationv1.RuleWithOperations

var podsRule = admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}

func ops(all ...admissionregistrationv1.OperationType) []admissionregistrationv1.OperationType {
	return all
}

func conditions(expression string) []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{Name: "condition", Expression: expression}}
}

func invalidField() error {
	return eirinix.Invalid(field.ErrorList{field.Invalid(field.NewPath("data", "verdict"), "invalid", "must not be that")})
}

// fakeTest is a test that may fail without failing the spec.
type fakeTest struct {
	mu       sync.Mutex
	failure  string
	errors   []reported
	log      []string
	cleanups []func()
}

// reported is a failure, with the time at which it was reported.
type reported struct {
	at   time.Time
	text string
}

var _ eirinixtest.TB = (*fakeTest)(nil)

func (t *fakeTest) Helper()          {}
func (t *fakeTest) Failed() bool     { return t.failure != "" }
func (t *fakeTest) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *fakeTest) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

func (t *fakeTest) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = strings.TrimPrefix(t.failure+"\n\n"+fmt.Sprintf(format, args...), "\n\n")
	t.errors = append(t.errors, reported{time.Now(), fmt.Sprintf(format, args...)})
}

func (t *fakeTest) Fatalf(format string, args ...any) {
	t.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf runs a test to its end and returns its failure, "" if it passed.
func failureOf(test func(t *fakeTest)) string {
	GinkgoHelper()
	t := &fakeTest{}
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(t.cleanups) {
				f()
			}
		}()
		test(t)
	}()
	<-done
	if t.failure != "" {
		AddReportEntry("the test failed with", ReportEntryVisibilityFailureOrVerbose, strings.TrimSpace(t.failure))
	}
	return t.failure
}
