package drills_test

// This file holds a kind with two versions, and the program about it.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

const (
	sizedGroup  = "drill.example.org"
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	spares      = 200 // objects, see churn
)

// sized is a kind with two versions that are alike, and the program about it. Every other object has the size 0.
type sized struct {
	plural   string
	plane    *eirinixtest.ControlPlane
	requests rest.Interface
	churned  int // spare objects that are deleted
	judged   atomic.Int32
}

func (s *sized) name() string { return s.plural + "." + sizedGroup }

func (s *sized) path(version string) string {
	return "/apis/" + sizedGroup + "/" + version + "/namespaces/default/" + s.plural
}

// versions is the part of the definition that says in which version objects are stored.
func versions(stored string) string {
	const schema = `{"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}`
	return fmt.Sprintf(`"versions": [{"name": "v1", "served": true, "storage": %t, "schema": %s}, {"name": "v2", "served": true, "storage": %t, "schema": %[2]s}]`,
		stored == "v1", schema, stored == "v2")
}

// define creates the kind, and n objects that are stored in v1.
func (s *sized) define(ctx context.Context, n int) {
	GinkgoHelper()
	kind := strings.TrimSuffix(s.plural, "s")
	post := func(path, format string, args ...any) error {
		return s.requests.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(fmt.Appendf(nil, format, args...)).Do(ctx).Error()
	}
	Expect(post(definitions, `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": %q}, "spec": {
		"group": %q, "scope": "Namespaced", "names": {"plural": %q, "singular": %q, "kind": %[4]q, "listKind": "%[4]slist"}, %[5]s}}`,
		s.name(), sizedGroup, s.plural, kind, versions("v1"))).To(Succeed())
	create := func(name string, size int) error {
		return post(s.path("v1"), `{"apiVersion": "%s/v1", "kind": %q, "metadata": {"name": %q}, "spec": {"size": %d}}`, sizedGroup, kind, name, size)
	}
	Eventually(create).WithArguments("o0", 0).WithContext(ctx).Should(Succeed(), "the kind is served")
	var all errgroup.Group
	all.SetLimit(8)
	for i := 1; i < n; i++ {
		all.Go(func() error { return create(fmt.Sprintf("o%d", i), i%2) })
	}
	for i := range spares {
		all.Go(func() error { return create(fmt.Sprintf("spare-%d", i), 1) })
	}
	Expect(all.Wait()).To(Succeed())
}

// churn changes the kind, which no step is asked about. Without changes, the migrator waits for minutes: it compares
// resourceVersions with those that the garbage collector has seen.
func (s *sized) churn(ctx context.Context) {
	err := s.requests.Delete().AbsPath(s.path("v2"), fmt.Sprintf("spare-%d", s.churned)).Do(ctx).Error()
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	s.churned++
}

// storeInV2 changes the storage version, and returns the resourceVersion of that moment.
func (s *sized) storeInV2(ctx context.Context) string {
	GinkgoHelper()
	patch := fmt.Appendf(nil, `{"spec": {%s}}`, versions("v2"))
	Expect(s.requests.Patch(types.MergePatchType).AbsPath(definitions, s.name()).Body(patch).Do(ctx).Error()).To(Succeed())
	return s.list(ctx).ResourceVersion
}

func (s *sized) list(ctx context.Context) (all metav1.PartialObjectMetadataList) {
	Expect(json.Unmarshal(Must(s.requests.Get().AbsPath(s.path("v2")).DoRaw(ctx)), &all)).To(Succeed())
	return all
}

// written counts the objects that were written later, without the spare ones.
func (s *sized) written(ctx context.Context, since string) (n int) {
	GinkgoHelper()
	for _, o := range s.list(ctx).Items {
		if strings.HasPrefix(o.Name, "o") && Must(resourceversion.CompareResourceVersion(o.ResourceVersion, since)) > 0 {
			n++
		}
	}
	return n
}

func (s *sized) judge(_ context.Context, _ *eirinix.Call, o *unstructured.Unstructured) error {
	s.judged.Add(1)
	if size, _, _ := unstructured.NestedInt64(o.Object, "spec", "size"); size < 1 {
		return eirinix.Invalid(field.ErrorList{field.Invalid(field.NewPath("spec", "size"), size, "must be positive")})
	}
	return nil
}

// run runs the program with the step, and extensions.
func (s *sized) run(ctx context.Context, every bool, step eirinix.Validation[*unstructured.Unstructured], more ...any) *load.Replica {
	GinkgoHelper()
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: metav1.NamespaceDefault, WebhookNamespace: metav1.NamespaceDefault, OperatorFingerprint: s.plural,
		Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", RestConfig: s.plane.Config(), Logger: zap.New(Log()).Named(s.plural).Sugar(), DrainDelay: -time.Second,
	})
	step.Settings = eirinix.Settings{EveryUpdate: every, Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{sizedGroup}, APIVersions: []string{"v2"}, Resources: []string{s.plural}},
	}}}
	for _, e := range append(more, step) {
		Expect(m.AddExtension(e)).To(Succeed())
	}
	return load.Start(ctx, s.plural, m)
}
