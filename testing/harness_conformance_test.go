package eirinixtest_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const (
	selected = "harness-selected" // the namespace whose objects are sent to the webhooks
	plain    = "harness-plain"    // and one whose are not

	patience = 2 * time.Minute // for one spec, of which the first starts the control plane
)

// The same Manager is called by a real API server and by the Harness; the outcomes of each request must be equal.
var _ = Describe("The Harness beside a real API server", Label("api-server"), Ordered, ContinueOnFailure, func() {
	var (
		plane *eirinixtest.ControlPlane
		world *bothWorlds
	)

	// No timeout holds here: other packages may use the control plane first.
	BeforeAll(func() { plane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared) })

	BeforeAll(func(ctx SpecContext) {
		world = newWorlds(ctx, plane)
		for _, add := range []func(*bothWorlds){addWorkers, addJudges, addWitnesses, addSubresourceWitnesses} {
			add(world)
		}
		world.start(ctx)
	}, NodeTimeout(2*time.Minute))

	DescribeTable("creates alike", func(ctx SpecContext, object client.Object, options ...eirinixtest.RequestOption) {
		world.compareCreate(ctx, object, options...)
	},
		Entry("a pod that is changed by a Mutation and an Extension", podOf("worked-on", nil), SpecTimeout(patience)),
		Entry("a pod that the objectSelector leaves out", podOf("left-out", map[string]string{"skip": "yes"}), SpecTimeout(patience)),
		Entry("a pod with a generated name", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "gen-"}, Spec: podOf("", nil).Spec}, SpecTimeout(patience)),
		Entry("a pod whose patch does not apply", podOf("bad-patch", map[string]string{"patch": "bad"}), SpecTimeout(patience)),
		Entry("a config map that no step refuses", configMap("fine", nil), SpecTimeout(patience)),
		Entry("a dry run", configMap("dry", map[string]string{"say": "dry-run"}), eirinixtest.DryRun(), SpecTimeout(patience)),
		Entry("a denial", configMap("denied", map[string]string{"verdict": "deny"}), SpecTimeout(patience)),
		Entry("a denial with causes", configMap("invalid", map[string]string{"verdict": "invalid"}), SpecTimeout(patience)),
		Entry("a conflict that the step received", configMap("conflict", map[string]string{"verdict": "conflict"}), SpecTimeout(patience)),
		Entry("a failure", configMap("failing", map[string]string{"verdict": "fail"}), SpecTimeout(patience)),
		Entry("a failure that is ignored", configMap("ignored", map[string]string{"verdict": "fail-ignored"}), SpecTimeout(patience)),
		Entry("a step that is too slow", configMap("slow", map[string]string{"verdict": "slow"}), SpecTimeout(patience)),
		Entry("warnings, one of them twice", configMap("warned", map[string]string{"say": "warn"}), SpecTimeout(patience)),
		Entry("more warnings than fit", configMap("warned-a-lot", map[string]string{"say": "lots"}), SpecTimeout(patience)),
		Entry("a condition that is false", configMap("skip-condition", nil), SpecTimeout(patience)),
		Entry("a condition on the rights of an administrator", configMap("rights", map[string]string{"rights": "asked"}), SpecTimeout(patience)),
		Entry("a condition that is true for some users", configMap("users", nil), eirinixtest.AsUser("joe", "developers", "suspects"), SpecTimeout(patience)),
		Entry("a condition that cannot be evaluated", configMap("broken-condition", map[string]string{"conditions": "broken"}), SpecTimeout(patience)),
		Entry("the user and the groups", configMap("by-user", map[string]string{"say": "user"}), eirinixtest.AsUser("jane", "developers"), SpecTimeout(patience)),
		Entry("an object without namespace", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "harness-role"}}, SpecTimeout(patience)),
		Entry("an object of another version of the resource", gadget("v2", "converted"), SpecTimeout(patience)),
		Entry("an object moved to another namespace", configMap("moved", map[string]string{"say": "move"}), SpecTimeout(patience)),
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
	}, SpecTimeout(patience))

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

// compareChange stores an object, changes it in both worlds, and compares the verdicts. A Job gets its status, too, which the
// API server takes apart from the rest.
func compareChange[T client.Object](ctx context.Context, w *bothWorlds, object T, change func(T)) {
	GinkgoHelper()
	wanted := object.DeepCopyObject()
	stored := w.stored(ctx, object).(T)
	if job, ok := wanted.(*batchv1.Job); ok {
		any(stored).(*batchv1.Job).Status = job.Status
		c, _ := w.as()
		Expect(c.Status().Update(ctx, stored)).To(Succeed())
	}
	updated := stored.DeepCopyObject().(T)
	change(updated)
	w.compare("an update", func(c client.Client) error { return c.Update(ctx, updated.DeepCopyObject().(client.Object)) },
		func(h *eirinixtest.Harness) *eirinixtest.Result { return h.Update(stored, updated) })
}

// heldPod is a pod with one of each field that an update may touch.
func heldPod(changes ...func(*corev1.PodSpec)) *corev1.Pod {
	pod := podOf("", map[string]string{"skip": "yes"})
	pod.GenerateName = "held-"
	pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "first:1"}}
	for _, change := range changes {
		change(&pod.Spec)
	}
	return pod
}

func gated(spec *corev1.PodSpec) {
	spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/one"}, {Name: "example.org/two"}}
}

func tolerating(spec *corev1.PodSpec) {
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: "spot", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(5))})
}

// nodesIn selects nodes by zone, as a required term of node affinity.
func nodesIn(zones ...string) *corev1.Affinity {
	var terms []corev1.NodeSelectorTerm
	for _, zone := range zones {
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{zone}}}})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}

func inZone(spec *corev1.PodSpec) { spec.Affinity = nodesIn("a") }

func onDisks(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"disk": "ssd"} }

// alone asks for nodes without pods of the same kind.
func alone(spec *corev1.PodSpec) {
	spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
	}}}
}

func grace(seconds int64) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.TerminationGracePeriodSeconds = &seconds }
}

func deadline(seconds int64) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.ActiveDeadlineSeconds = &seconds }
}

// podChanges are updates of Pods, of which an API server lets some pass.
var podChanges = []TableEntry{
	change("labels", heldPod(), func(pod *corev1.Pod) { pod.Labels["more"] = "yes" }),
	podChange("the image", heldPod(), func(s *corev1.PodSpec) { s.Containers[0].Image = "app:2" }),
	podChange("the image of an init container", heldPod(), func(s *corev1.PodSpec) { s.InitContainers[0].Image = "first:2" }),
	podChange("the variables", heldPod(), func(s *corev1.PodSpec) { s.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}} }),
	podChange("a new container", heldPod(), func(s *corev1.PodSpec) {
		s.Containers = append(s.Containers, corev1.Container{Name: "more", Image: "more:1", ImagePullPolicy: "Always", TerminationMessagePath: "/log", TerminationMessagePolicy: "File"})
	}),
	podChange("no init container", heldPod(), func(s *corev1.PodSpec) { s.InitContainers = nil }),
	podChange("a first deadline", heldPod(), deadline(60)),
	podChange("a later deadline and other things", heldPod(deadline(60)), func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds, s.Hostname = new(int64(90)), "other" }),
	podChange("no deadline and other things", heldPod(deadline(60)), func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds, s.Hostname = nil, "other" }),
	podChange("one more toleration", heldPod(), tolerating),
	podChange("one toleration less", heldPod(tolerating), func(s *corev1.PodSpec) { s.Tolerations = s.Tolerations[1:] }),
	podChange("a toleration for a longer time", heldPod(tolerating), func(s *corev1.PodSpec) { s.Tolerations[0].TolerationSeconds = new(int64(9)) }),
	podChange("a grace period of 1 instead of -1", heldPod(grace(-1)), grace(1)),
	podChange("a grace period of 2 instead of -1", heldPod(grace(-1)), grace(2)),
	podChange("a grace period of 1 instead of 30", heldPod(grace(30)), grace(1)),
	podChange("a node selector", heldPod(), onDisks),
	// One alone: the API server reports several in no fixed order.
	podChange("a gate, where there was none", heldPod(), func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/one"}} }),
	podChange("one gate less", heldPod(gated), func(s *corev1.PodSpec) { s.SchedulingGates = s.SchedulingGates[1:] }),
	podChange("a node selector behind a gate", heldPod(gated), onDisks),
	podChange("node affinity behind a gate", heldPod(gated), inZone),
	podChange("pod anti-affinity behind a gate", heldPod(gated), alone),
	podChange("node affinity beside pod anti-affinity, behind a gate", heldPod(gated, alone), func(s *corev1.PodSpec) { s.Affinity.NodeAffinity = nodesIn("a").NodeAffinity }),
	podChange("a node selector, with the last gate", heldPod(gated), func(s *corev1.PodSpec) {
		s.SchedulingGates = nil
		onDisks(s)
	}),
	podChange("a node selector, and a container's variables, behind a gate", heldPod(gated), func(s *corev1.PodSpec) {
		s.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
		onDisks(s)
	}),
}

// heldJob is a Job without a controller.
func heldJob(changes ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "held-"},
		Spec:       batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(2)), BackoffLimit: new(int32(3)), Template: corev1.PodTemplateSpec{Spec: heldPod().Spec}},
	}
	job.Spec.Template.Spec.RestartPolicy = "Never"
	for _, change := range changes {
		change(job)
	}
	return job
}

func indexed(job *batchv1.Job) { job.Spec.CompletionMode = new(batchv1.IndexedCompletion) }

func suspended(job *batchv1.Job) { job.Spec.Suspend = new(true) }

func failing(job *batchv1.Job) {
	job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: "FailJob", OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "In", Values: []int32{42}},
	}}}
}

// replacingFailed is needed beside a policy for failures.
func replacingFailed(job *batchv1.Job) { job.Spec.PodReplacementPolicy = new(batchv1.Failed) }

// template makes a change of a Job out of one of its pods.
func template(change func(*corev1.PodSpec)) func(*batchv1.Job) {
	return func(job *batchv1.Job) { change(&job.Spec.Template.Spec) }
}

func started(job *batchv1.Job) { job.Status.StartTime = new(metav1.Now().Rfc3339Copy()) }

func resting(job *batchv1.Job) {
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
}

func active(job *batchv1.Job) { job.Status.Active, job.Status.Ready = 1, new(int32(0)) }

func smaller(spec *corev1.PodSpec) {
	spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
}

// jobChanges are updates of Jobs, of which an API server lets some pass.
var jobChanges = []TableEntry{
	change("parallelism", heldJob(), func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(5)) }),
	change("deadlines and limits", heldJob(), func(j *batchv1.Job) {
		j.Spec.ActiveDeadlineSeconds, j.Spec.BackoffLimit, j.Spec.TTLSecondsAfterFinished = new(int64(9)), new(int32(9)), new(int32(9))
	}),
	change("completions", heldJob(), func(j *batchv1.Job) { j.Spec.Completions = new(int32(5)) }),
	change("completions of an indexed Job", heldJob(indexed), func(j *batchv1.Job) { j.Spec.Completions = new(int32(5)) }),
	change("completions and parallelism of an indexed Job", heldJob(indexed), func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = new(int32(5)), new(int32(5)) }),
	change("the completion mode", heldJob(), indexed),
	change("the selector", heldJob(), func(j *batchv1.Job) { j.Spec.Selector.MatchLabels["job-name"] = j.Name }),
	change("a policy for failures", heldJob(replacingFailed), failing),
	change("who manages it", heldJob(), func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.org/other") }),
	change("a limit per index", heldJob(indexed), func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = new(int32(1)) }),
	change("a policy for success", heldJob(indexed), func(j *batchv1.Job) {
		j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: new(int32(1))}}}
	}),
	change("the image", heldJob(), template(func(s *corev1.PodSpec) { s.Containers[0].Image = "app:2" })),
	change("labels and annotations of the pods of a suspended Job", heldJob(suspended), func(j *batchv1.Job) {
		j.Spec.Template.Labels["more"], j.Spec.Template.Annotations = "yes", map[string]string{"more": "yes"}
	}),
	change("the nodes of the pods of a suspended Job", heldJob(suspended), template(func(s *corev1.PodSpec) {
		onDisks(s)
		inZone(s)
		tolerating(s)
		gated(s)
	})),
	change("no node affinity of the pods of a suspended Job", heldJob(suspended, template(inZone)), template(func(s *corev1.PodSpec) { s.Affinity = nil })),
	change("the pod anti-affinity of a suspended Job", heldJob(suspended), template(alone)),
	change("the resources of the pods of a suspended Job", heldJob(suspended), template(func(s *corev1.PodSpec) {
		smaller(s)
		s.InitContainers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
	})),
	change("the image of a suspended Job", heldJob(suspended), template(func(s *corev1.PodSpec) { s.Containers[0].Image = "app:2" })),
	change("another container of a suspended Job", heldJob(suspended), template(func(s *corev1.PodSpec) { s.Containers[0].Name = "other" })),
	change("the nodes of a Job that is suspended and resumed at once", heldJob(suspended), func(j *batchv1.Job) {
		j.Spec.Suspend = new(false)
		onDisks(&j.Spec.Template.Spec)
	}),
	change("the nodes of a Job that was suspended after its start", heldJob(suspended, started), template(onDisks)),
	change("the nodes of a Job that came to rest after its start", heldJob(suspended, started, resting), template(onDisks)),
	change("the nodes of a suspended Job that still has pods", heldJob(suspended, started, resting, active), template(onDisks)),
}

func change[T client.Object](description string, object T, change func(T)) TableEntry {
	return Entry(description, object, change, SpecTimeout(patience))
}

func podChange(description string, pod *corev1.Pod, changed func(*corev1.PodSpec)) TableEntry {
	return change(description, pod, func(pod *corev1.Pod) { changed(&pod.Spec) })
}

// witnessed labels an object for the witnesses.
func witnessed[T client.Object](object T) T {
	object.SetGenerateName("witnessed-")
	object.SetLabels(map[string]string{"witness": "yes", "old": "label"})
	object.SetAnnotations(map[string]string{"old": "annotation"})
	return object
}

// compareSubresource stores an object and sends a subresource of it in both worlds, with changes, also of its metadata, of
// which an API server drops some.
func compareSubresource[T client.Object](ctx context.Context, w *bothWorlds, subresource string, object T, change func(T)) {
	GinkgoHelper()
	stored := w.stored(ctx, object).(T)
	updated := stored.DeepCopyObject().(T)
	updated.SetLabels(map[string]string{"witness": "yes", "new": "label"})
	updated.SetAnnotations(map[string]string{"new": "annotation"})
	updated.SetFinalizers([]string{"example.org/new"})
	updated.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "new", UID: "new"}})
	updated.SetGeneration(99)
	updated.SetCreationTimestamp(metav1.Unix(1, 0))
	change(updated)
	w.compare(subresource, func(c client.Client) error {
		return c.SubResource(subresource).Update(ctx, updated.DeepCopyObject().(client.Object))
	}, func(h *eirinixtest.Harness) *eirinixtest.Result {
		return h.Send(eirinixtest.Request{Operation: admissionv1.Update, OldObject: stored, Object: updated, Subresource: subresource})
	})
}

func subresource[T client.Object](name, description string, object T, change func(T)) TableEntry {
	return Entry(description, func(ctx context.Context, w *bothWorlds) { compareSubresource(ctx, w, name, witnessed(object), change) }, SpecTimeout(patience))
}

// subresourceUpdates change more than their subresource.
var subresourceUpdates = []TableEntry{
	subresource("status", "the status of a Pod", podOf("", nil), func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image, pod.Spec.Hostname, pod.Status.Message = "app:2", "changed", "changed"
	}),
	subresource("status", "no status of a Pod", podOf("", nil), func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{Phase: "Pending"} }),
	subresource("status", "the status of a Service", &corev1.Service{Spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "localhost"}}, func(s *corev1.Service) {
		s.Spec.ExternalName, s.Status.Conditions = "elsewhere", []metav1.Condition{{Type: "Changed", Status: "True", Reason: "Changed", LastTransitionTime: metav1.Unix(1, 0)}}
	}),
	subresource("status", "the status of a Deployment", &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
		Selector: selector("app", "x"), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: podOf("", nil).Spec},
	}}, func(d *appsv1.Deployment) { d.Spec.Replicas, d.Status.Replicas = new(int32(7)), 7 }),
	subresource("status", "the status of a ServiceCIDR, which keeps its metadata", &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.9.0.0/24"}}}, func(s *networkingv1.ServiceCIDR) {
		s.Spec.CIDRs, s.Status.Conditions = []string{"10.8.0.0/24"}, []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Changed", LastTransitionTime: metav1.Unix(1, 0)}}
	}),
	subresource("status", "the status of a custom resource, which keeps everything else", gadget("v1", ""), func(u *unstructured.Unstructured) {
		u.Object["spec"], u.Object["status"] = map[string]any{"size": int64(9)}, map[string]any{"size": int64(9)}
		u.Object["more"] = "yes"
	}),
	subresource("ephemeralcontainers", "a Pod's ephemeral containers", podOf("", nil), func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image, pod.Spec.Hostname, pod.Status.Message = "app:2", "changed", "changed"
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "debug:1", ImagePullPolicy: "Always", TerminationMessagePath: "/log", TerminationMessagePolicy: "File",
		}}}
	}),
}
