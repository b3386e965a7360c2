package eirinixtest_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const (
	selected = "harness-selected" // the namespace whose objects are sent to the webhooks
	plain    = "harness-plain"    // and one whose are not

	patience = 30 * time.Second // for one spec
)

// The same Managers are called by a real API server and by the Harness; the outcomes of each request must be equal.
var _ = Describe("The Harness beside a real API server", Label("api-server"), Ordered, ContinueOnFailure, func() {
	var world *bothWorlds

	BeforeAll(func(ctx SpecContext) {
		world = newWorlds(ctx, eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared))
		for _, add := range []func(*bothWorlds){addWorkers, addJudges, addRivals, addWitnesses, addSubresourceWitnesses} {
			add(world)
		}
		world.start(ctx)
	}, NodeTimeout(2*time.Minute))

	DescribeTable("creates alike", func(ctx SpecContext, object client.Object, options ...eirinixtest.RequestOption) {
		world.compareCreate(ctx, object, options...)
	},
		Entry("a pod that is changed by a Mutation and an Extension", podOf("worked-on", nil), SpecTimeout(patience)),
		Entry("a pod that the objectSelector leaves out", podOf("left-out", map[string]string{"skip": "yes"}), SpecTimeout(patience)),
		Entry("a pod in another namespace", inNamespace(plain, podOf("elsewhere", nil)), SpecTimeout(patience)),
		Entry("a pod with a generated name", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "gen-"}, Spec: podOf("", nil).Spec}, SpecTimeout(patience)),
		Entry("a pod whose patch does not apply", podOf("bad-patch", map[string]string{"patch": "bad"}), SpecTimeout(patience)),
		Entry("a config map that no step refuses", configMap("fine", nil), SpecTimeout(patience)),
		Entry("a dry run", configMap("dry", map[string]string{"say": "dry-run"}), eirinixtest.DryRun(), SpecTimeout(patience)),
		Entry("a denial", configMap("denied", map[string]string{"verdict": "deny"}), SpecTimeout(patience)),
		Entry("a denial with causes", configMap("invalid", map[string]string{"verdict": "invalid"}), SpecTimeout(patience)),
		Entry("a conflict that the step received", configMap("conflict", map[string]string{"verdict": "conflict"}), SpecTimeout(patience)),
		Entry("a failure", configMap("failing", map[string]string{"verdict": "fail"}), SpecTimeout(patience)),
		Entry("a panic", configMap("panicking", map[string]string{"verdict": "panic"}), SpecTimeout(patience)),
		Entry("a failure that is ignored", configMap("ignored", map[string]string{"verdict": "fail-ignored"}), SpecTimeout(patience)),
		Entry("a step that is too slow", configMap("slow", map[string]string{"verdict": "slow"}), SpecTimeout(patience)),
		Entry("a step that is too slow, ignored", configMap("slow-ignored", map[string]string{"verdict": "slow-ignored"}), SpecTimeout(patience)),
		Entry("warnings, one of them twice", configMap("warned", map[string]string{"say": "warn"}), SpecTimeout(patience)),
		Entry("more warnings than fit", configMap("warned-a-lot", map[string]string{"say": "lots"}), SpecTimeout(patience)),
		Entry("a condition that is false", configMap("skip-condition", nil), SpecTimeout(patience)),
		Entry("a condition on the rights of an administrator", configMap("rights", map[string]string{"rights": "asked"}), SpecTimeout(patience)),
		Entry("a condition that is true for some users", configMap("users", nil), eirinixtest.AsUser("joe", "developers", "suspects"), SpecTimeout(patience)),
		Entry("a condition that cannot be evaluated", configMap("broken-condition", map[string]string{"conditions": "broken"}), SpecTimeout(patience)),
		Entry("reinvocation after another program's change", configMap("rivals", map[string]string{"rivals": "stages"}), SpecTimeout(patience)),
		Entry("two programs that never agree", configMap("fighters", map[string]string{"rivals": "fight"}), SpecTimeout(patience)),
		Entry("the user and the groups", configMap("by-user", map[string]string{"say": "user"}), eirinixtest.AsUser("jane", "developers"), SpecTimeout(patience)),
		Entry("an object without namespace", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "harness-role"}}, SpecTimeout(patience)),
		Entry("an object of another version of the resource", gadget("v2", "converted"), SpecTimeout(patience)),
		Entry("an object moved to another namespace", configMap("moved", map[string]string{"say": "move"}), SpecTimeout(patience)),
		Entry("an object that is renamed", configMap("renamed", map[string]string{"say": "rename"}), SpecTimeout(patience)),
	)

	DescribeTable("updates alike", func(ctx SpecContext, name string, data map[string]string) {
		stored := world.stored(ctx, configMap(name, map[string]string{"version": "1"}))
		updated := merged(stored, configMap(name, data))
		world.compare("update", func(c client.Client) error { return c.Update(ctx, updated.DeepCopy()) },
			func(h *eirinixtest.Harness) *eirinixtest.Result { return h.Update(stored, updated) })
	},
		Entry("an update that a Validation allows", "grown", map[string]string{"version": "1", "more": "x"}, SpecTimeout(patience)),
		Entry("an update that a Validation refuses", "aged", map[string]string{"version": "2"}, SpecTimeout(patience)),
	)

	DescribeTable("lets a Pod be changed alike", func(ctx SpecContext, pod *corev1.Pod, change func(*corev1.Pod)) {
		compareChange(ctx, world, pod, change)
	}, podChanges)

	DescribeTable("lets a Job be changed alike", func(ctx SpecContext, job *batchv1.Job, change func(*batchv1.Job)) {
		compareChange(ctx, world, job, change)
	}, jobChanges)

	DescribeTable("updates subresources alike", func(ctx SpecContext, compare func(context.Context, *bothWorlds)) {
		compare(ctx, world)
	}, subresourceUpdates)

	It("shows webhooks alike the fields that an update left out, and those that users cannot set", func(ctx SpecContext) {
		labels := map[string]string{"witness": "yes"}
		secret := func() *corev1.Secret {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "witnessed", Namespace: selected, Labels: labels}, Data: map[string][]byte{"a": nil}, StringData: map[string]string{"b": "text"}}
		}
		world.compareCreate(ctx, secret())
		stored, err := world.admin.CoreV1().Secrets(selected).Get(ctx, "witnessed", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		update := secret() // as kubectl replace sends it
		update.StringData["b"] = "other"
		world.compare("a Secret", func(c client.Client) error { return c.Update(ctx, update.DeepCopy()) },
			func(h *eirinixtest.Harness) *eirinixtest.Result { return h.Update(stored, update) })

		deployment := func(replicas int32) *appsv1.Deployment {
			return &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "witnessed", Namespace: selected, Labels: labels},
				Spec: appsv1.DeploymentSpec{
					Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podOf("", nil).Spec},
				},
				Status: appsv1.DeploymentStatus{Replicas: replicas},
			}
		}
		before := world.stored(ctx, deployment(1))
		world.compare("a Deployment", func(c client.Client) error { return c.Update(ctx, deployment(2)) },
			func(h *eirinixtest.Harness) *eirinixtest.Result { return h.Update(before, deployment(2)) })
	}, SpecTimeout(2*patience))

	It("deletes alike", func(ctx SpecContext) {
		for _, name := range []string{"deletable", "keep-me"} {
			stored := world.stored(ctx, configMap(name, nil))
			world.compare(name, func(c client.Client) error { return c.Delete(ctx, stored) },
				func(h *eirinixtest.Harness) *eirinixtest.Result { return h.Delete(stored) })
		}
	}, SpecTimeout(patience))

	It("scales alike", func(ctx SpecContext) {
		stored := world.stored(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "scaled", Namespace: selected},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: podOf("", nil).Spec},
			},
		})
		for _, replicas := range []int32{30, 3} { // refused, so that the next one begins where this one did
			world.compare(fmt.Sprint(replicas), func(c client.Client) error {
				return c.SubResource("scale").Update(ctx, stored.DeepCopyObject().(client.Object),
					client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}))
			}, func(h *eirinixtest.Harness) *eirinixtest.Result { return h.Scale(stored, replicas) })
		}
	}, SpecTimeout(patience))

	It("evicts alike", func(ctx SpecContext) {
		for _, name := range []string{"evicted", "pinned"} {
			stored := world.stored(ctx, podOf(name, map[string]string{"skip": "yes"}))
			world.compare(name, func(c client.Client) error {
				return c.SubResource("eviction").Create(ctx, stored.DeepCopyObject().(client.Object), &policyv1.Eviction{})
			}, func(h *eirinixtest.Harness) *eirinixtest.Result { return h.Evict(stored) })
		}
	}, SpecTimeout(patience))

	It("requests tokens alike", func(ctx SpecContext) {
		stored := world.stored(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "token-holder"}})
		for _, named := range []string{"", stored.GetName()} {
			request := &authenticationv1.TokenRequest{
				ObjectMeta: metav1.ObjectMeta{Name: named, Labels: map[string]string{"witness": "yes"}},
				Spec:       authenticationv1.TokenRequestSpec{Audiences: []string{"api"}, ExpirationSeconds: new(int64(3600))},
			}
			world.compare("a request with the name "+named, func(c client.Client) error {
				return c.SubResource("token").Create(ctx, stored.DeepCopyObject().(client.Object), request.DeepCopy())
			}, func(h *eirinixtest.Harness) *eirinixtest.Result {
				return h.Send(eirinixtest.Request{
					Operation: "CREATE", Resource: corev1.SchemeGroupVersion.WithResource("serviceaccounts"), Subresource: "token",
					Namespace: selected, Name: stored.GetName(), Object: request,
				})
			})
		}
	}, SpecTimeout(patience))

	It("connects alike", func(ctx SpecContext) {
		stored := world.stored(ctx, podOf("attached", map[string]string{"skip": "yes"}))
		// It is refused before a node is looked for, which an unscheduled pod has not.
		world.compare("exec", func(client.Client) error {
			return world.admin.CoreV1().RESTClient().Post().Namespace(selected).Resource("pods").Name("attached").SubResource("exec").
				Param("command", "sh").Param("container", "app").Param("stdin", "true").Do(ctx).Error()
		}, func(h *eirinixtest.Harness) *eirinixtest.Result {
			return h.Connect(stored, "exec", &corev1.PodExecOptions{Command: []string{"sh"}, Container: "app", Stdin: true})
		})
	}, SpecTimeout(patience))
})
