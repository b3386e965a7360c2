package eirinix_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/manifests"
)

// deployed returns the row of a field. got returns what the Deployment among the manifests has.
func deployed(set func(*manifests.Options), got func(*appsv1.Deployment) any, matcher OmegaMatcher) row {
	return shown(set, func(s *scene) {
		GinkgoHelper()
		Expect(got(object[*appsv1.Deployment](s))).To(matcher)
	})
}

func shown(set func(*manifests.Options), check func(*scene)) row {
	return row{deploy: set, Manifests: effect(func(_ SpecContext, s *scene) { check(s) })}
}

func ofContainer(get func(corev1.Container) any) func(*appsv1.Deployment) any {
	return func(d *appsv1.Deployment) any { return get(d.Spec.Template.Spec.Containers[0]) }
}

func ofPod(get func(corev1.PodSpec) any) func(*appsv1.Deployment) any {
	return func(d *appsv1.Deployment) any { return get(d.Spec.Template.Spec) }
}

// deploymentRows are those of what manifests.Of is given.
var deploymentRows = map[string]row{
	"Image": deployed(func(d *manifests.Options) { d.Image = "other:2" },
		ofContainer(func(c corev1.Container) any { return c.Image }), Equal("other:2")),
	"Command": deployed(func(d *manifests.Options) { d.Command = []string{"/program"} },
		ofContainer(func(c corev1.Container) any { return c.Command }), ConsistOf("/program")),
	"Args": deployed(func(d *manifests.Options) { d.Args = []string{"serve"} },
		ofContainer(func(c corev1.Container) any { return c.Args }), ConsistOf("serve")),
	"RegisterArgs": shown(func(d *manifests.Options) { d.RegisterArgs = []string{"put"} }, nil).with(func(r *row) {
		r.Manifests = plays(func(ctx SpecContext, s *scene) {
			Expect(s.run(ctx, deploys, func(o *eirinix.ManagerOptions) { o.RegisterWebHook = new(false) })).To(Succeed())
			Expect(object[*batchv1.Job](s).Spec.Template.Spec.Containers[0].Args).To(ConsistOf("put"))
		})
	}),
	"Env": deployed(func(d *manifests.Options) { d.Env = []corev1.EnvVar{{Name: "A", Value: "b"}} },
		ofContainer(func(c corev1.Container) any { return c.Env }), ContainElement(corev1.EnvVar{Name: "A", Value: "b"})),
	"Name": deployed(func(d *manifests.Options) { d.Name = "own" },
		func(d *appsv1.Deployment) any { return d.Name }, Equal("own")),
	"ServiceAccountName": deployed(func(d *manifests.Options) { d.ServiceAccountName = "own" },
		ofPod(func(p corev1.PodSpec) any { return p.ServiceAccountName }), Equal("own")),
	"Replicas": deployed(func(d *manifests.Options) { d.Replicas = 5 },
		func(d *appsv1.Deployment) any { return d.Spec.Replicas }, HaveValue(BeEquivalentTo(5))),
	"Labels": deployed(func(d *manifests.Options) { d.Labels = map[string]string{"a": "b"} },
		func(d *appsv1.Deployment) any { return d.Spec.Template.Labels }, HaveKeyWithValue("a", "b")),
	"Annotations": deployed(func(d *manifests.Options) { d.Annotations = map[string]string{"a": "b"} },
		func(d *appsv1.Deployment) any { return d.Spec.Template.Annotations }, HaveKeyWithValue("a", "b")),
	"PriorityClassName": deployed(func(d *manifests.Options) { d.PriorityClassName = "system-cluster-critical" },
		ofPod(func(p corev1.PodSpec) any { return p.PriorityClassName }), Equal("system-cluster-critical")),
	"NodeSelector": deployed(func(d *manifests.Options) { d.NodeSelector = map[string]string{"a": "b"} },
		ofPod(func(p corev1.PodSpec) any { return p.NodeSelector }), HaveKeyWithValue("a", "b")),
	"Tolerations": deployed(func(d *manifests.Options) {
		d.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	},
		ofPod(func(p corev1.PodSpec) any { return p.Tolerations }), HaveLen(1)),
	"ImagePullSecrets": deployed(func(d *manifests.Options) { d.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}} },
		ofPod(func(p corev1.PodSpec) any { return p.ImagePullSecrets }), ConsistOf(HaveField("Name", "pull"))),
	"Resources": deployed(func(d *manifests.Options) {
		d.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	}, ofContainer(func(c corev1.Container) any { return c.Resources.Limits.Memory().String() }), Equal("1Gi")),
	"PodMonitor": shown(func(d *manifests.Options) { d.PodMonitor = true }, func(s *scene) {
		Expect(s.objects).To(ContainElement(HaveField("GetObjectKind().GroupVersionKind().Kind", "PodMonitor")))
	}).with(func(r *row) {
		r.set = func(s *scene, o *eirinix.ManagerOptions) { o.MetricsBindAddress = fmt.Sprint(":", s.second) } // which it requires
	}),
	"AuditSchedule": shown(func(d *manifests.Options) { d.AuditSchedule = "@daily" }, func(s *scene) {
		Expect(object[*batchv1.CronJob](s).Spec.Schedule).To(Equal("@daily"))
		Expect(rulesOn(s, "configmaps")).To(ContainElement(HaveField("Verbs", ContainElement("list"))))
	}),
	"AuditArgs": shown(func(d *manifests.Options) { d.AuditSchedule, d.AuditArgs = "@daily", []string{"look"} }, func(s *scene) {
		Expect(object[*batchv1.CronJob](s).Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args).To(ConsistOf("look"))
	}),
}
