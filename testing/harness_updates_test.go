package eirinixtest_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

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
	podChange("another name of the container", heldPod(), func(s *corev1.PodSpec) { s.Containers[0].Name = "other" }),
	podChange("a first deadline", heldPod(), deadline(60)),
	podChange("an earlier deadline", heldPod(deadline(60)), deadline(30)),
	podChange("a later deadline", heldPod(deadline(60)), deadline(90)),
	podChange("no deadline", heldPod(deadline(60)), func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = nil }),
	podChange("a later deadline and other things", heldPod(deadline(60)), func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds, s.Hostname = new(int64(90)), "other" }),
	podChange("no deadline and other things", heldPod(deadline(60)), func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds, s.Hostname = nil, "other" }),
	podChange("one more toleration", heldPod(), tolerating),
	podChange("one toleration less", heldPod(tolerating), func(s *corev1.PodSpec) { s.Tolerations = s.Tolerations[1:] }),
	podChange("a toleration for a longer time", heldPod(tolerating), func(s *corev1.PodSpec) { s.Tolerations[0].TolerationSeconds = new(int64(9)) }),
	podChange("a toleration of another effect", heldPod(tolerating), func(s *corev1.PodSpec) {
		s.Tolerations[0] = corev1.Toleration{Key: "spot", Operator: "Exists", Effect: "NoSchedule"}
	}),
	podChange("tolerations in another order", heldPod(tolerating), func(s *corev1.PodSpec) {
		s.Tolerations[0], s.Tolerations[1] = s.Tolerations[1], s.Tolerations[0]
	}),
	podChange("a grace period of 1 instead of -1", heldPod(grace(-1)), grace(1)),
	podChange("a grace period of 2 instead of -1", heldPod(grace(-1)), grace(2)),
	podChange("a grace period of 1 instead of 30", heldPod(grace(30)), grace(1)),
	podChange("the node", heldPod(), func(s *corev1.PodSpec) { s.NodeName = "elsewhere" }),
	podChange("a node selector", heldPod(), onDisks),
	// One alone: the API server reports several in no fixed order.
	podChange("a gate, where there was none", heldPod(), func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/one"}} }),
	podChange("one gate less", heldPod(gated), func(s *corev1.PodSpec) { s.SchedulingGates = s.SchedulingGates[1:] }),
	podChange("no gates", heldPod(gated), func(s *corev1.PodSpec) { s.SchedulingGates = nil }),
	podChange("another gate", heldPod(gated), func(s *corev1.PodSpec) { s.SchedulingGates[1].Name = "example.org/three" }),
	podChange("a node selector behind a gate", heldPod(gated), onDisks),
	podChange("one more label of nodes behind a gate", heldPod(gated, onDisks), func(s *corev1.PodSpec) { s.NodeSelector["zone"] = "a" }),
	podChange("node affinity", heldPod(), inZone),
	podChange("node affinity behind a gate", heldPod(gated), inZone),
	podChange("narrower node affinity behind a gate", heldPod(gated, inZone), func(s *corev1.PodSpec) {
		terms := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		terms[0].MatchExpressions = append(terms[0].MatchExpressions, corev1.NodeSelectorRequirement{Key: "disk", Operator: "Exists"})
	}),
	podChange("preferred nodes behind a gate", heldPod(gated, inZone), func(s *corev1.PodSpec) {
		s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{
			{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: "Exists"}}}},
		}
	}),
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
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(2)), Completions: new(int32(2)), BackoffLimit: new(int32(3)),
			Template: corev1.PodTemplateSpec{Spec: heldPod().Spec},
		},
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
	change("suspension", heldJob(), suspended),
	change("an end of suspension", heldJob(suspended), func(j *batchv1.Job) { j.Spec.Suspend = new(false) }),
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
	change("the image and the completions", heldJob(), func(j *batchv1.Job) {
		j.Spec.Completions, j.Spec.Template.Spec.Containers[0].Image = new(int32(5)), "app:2"
	}),
	change("labels of its pods", heldJob(), func(j *batchv1.Job) { j.Spec.Template.Labels["more"] = "yes" }),
	change("the nodes of its pods", heldJob(), template(onDisks)),
	change("the resources of its pods", heldJob(), template(smaller)),
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
	change("no pod anti-affinity of a suspended Job", heldJob(suspended, template(alone)), template(func(s *corev1.PodSpec) { s.Affinity = nil })),
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
	change("the resources of a Job that is suspended and resumed at once", heldJob(suspended), func(j *batchv1.Job) {
		j.Spec.Suspend = new(false)
		smaller(&j.Spec.Template.Spec)
	}),
	change("the nodes of a Job that was suspended after its start", heldJob(suspended, started), template(onDisks)),
	change("the nodes of a Job that came to rest after its start", heldJob(suspended, started, resting), template(onDisks)),
	change("the resources of a Job that came to rest after its start", heldJob(suspended, started, resting), template(smaller)),
	change("the nodes of a suspended Job that still has pods", heldJob(suspended, started, resting, active), template(onDisks)),
}

func change[T client.Object](description string, object T, change func(T)) TableEntry {
	return Entry(description, object, change, SpecTimeout(patience))
}

func podChange(description string, pod *corev1.Pod, changed func(*corev1.PodSpec)) TableEntry {
	return change(description, pod, func(pod *corev1.Pod) { changed(&pod.Spec) })
}
