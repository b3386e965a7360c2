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
)

// deployed returns the row of a field of Deployment. got returns what the Deployment among the manifests has.
func deployed(set func(*eirinix.DeploymentOptions), got func(*appsv1.Deployment) any, matcher OmegaMatcher) row {
	return shown(set, func(s *scene) {
		GinkgoHelper()
		Expect(got(object[*appsv1.Deployment](s))).To(matcher)
	})
}

// inputs are the fields of Deployment.
var inputs = &group{}

func shown(set func(*eirinix.DeploymentOptions), check func(*scene)) row {
	return everywhere(forManifests).with(func(r *row) {
		r.group = inputs
		r.set = func(_ *scene, o *eirinix.ManagerOptions) { set(&o.Deployment) }
		r.Manifests = effect(func(_ SpecContext, s *scene) { check(s) })
	})
}

func ofContainer(get func(corev1.Container) any) func(*appsv1.Deployment) any {
	return func(d *appsv1.Deployment) any { return get(d.Spec.Template.Spec.Containers[0]) }
}

func ofPod(get func(corev1.PodSpec) any) func(*appsv1.Deployment) any {
	return func(d *appsv1.Deployment) any { return get(d.Spec.Template.Spec) }
}

// deploymentRows are those of the inputs of Manifests.
var deploymentRows = map[string]row{
	"Deployment.Image": deployed(func(d *eirinix.DeploymentOptions) { d.Image = "other:2" },
		ofContainer(func(c corev1.Container) any { return c.Image }), Equal("other:2")),
	"Deployment.Command": deployed(func(d *eirinix.DeploymentOptions) { d.Command = []string{"/program"} },
		ofContainer(func(c corev1.Container) any { return c.Command }), ConsistOf("/program")),
	"Deployment.Args": deployed(func(d *eirinix.DeploymentOptions) { d.Args = []string{"serve"} },
		ofContainer(func(c corev1.Container) any { return c.Args }), ConsistOf("serve")),
	"Deployment.RegisterArgs": shown(func(d *eirinix.DeploymentOptions) { d.RegisterArgs = []string{"put"} }, nil).with(func(r *row) {
		r.Manifests = plays(func(ctx SpecContext, s *scene) {
			Expect(s.run(ctx, manifests, func(o *eirinix.ManagerOptions) { o.RegisterWebHook = new(false) })).To(Succeed())
			Expect(object[*batchv1.Job](s).Spec.Template.Spec.Containers[0].Args).To(ConsistOf("put"))
		})
	}),
	"Deployment.Env": deployed(func(d *eirinix.DeploymentOptions) { d.Env = []corev1.EnvVar{{Name: "A", Value: "b"}} },
		ofContainer(func(c corev1.Container) any { return c.Env }), ContainElement(corev1.EnvVar{Name: "A", Value: "b"})),
	"Deployment.Name": deployed(func(d *eirinix.DeploymentOptions) { d.Name = "own" },
		func(d *appsv1.Deployment) any { return d.Name }, Equal("own")),
	"Deployment.ServiceAccountName": deployed(func(d *eirinix.DeploymentOptions) { d.ServiceAccountName = "own" },
		ofPod(func(p corev1.PodSpec) any { return p.ServiceAccountName }), Equal("own")),
	"Deployment.Replicas": deployed(func(d *eirinix.DeploymentOptions) { d.Replicas = 5 },
		func(d *appsv1.Deployment) any { return d.Spec.Replicas }, HaveValue(BeEquivalentTo(5))),
	"Deployment.Labels": deployed(func(d *eirinix.DeploymentOptions) { d.Labels = map[string]string{"a": "b"} },
		func(d *appsv1.Deployment) any { return d.Spec.Template.Labels }, HaveKeyWithValue("a", "b")),
	"Deployment.Annotations": deployed(func(d *eirinix.DeploymentOptions) { d.Annotations = map[string]string{"a": "b"} },
		func(d *appsv1.Deployment) any { return d.Spec.Template.Annotations }, HaveKeyWithValue("a", "b")),
	"Deployment.PriorityClassName": deployed(func(d *eirinix.DeploymentOptions) { d.PriorityClassName = "system-cluster-critical" },
		ofPod(func(p corev1.PodSpec) any { return p.PriorityClassName }), Equal("system-cluster-critical")),
	"Deployment.NodeSelector": deployed(func(d *eirinix.DeploymentOptions) { d.NodeSelector = map[string]string{"a": "b"} },
		ofPod(func(p corev1.PodSpec) any { return p.NodeSelector }), HaveKeyWithValue("a", "b")),
	"Deployment.Tolerations": deployed(func(d *eirinix.DeploymentOptions) {
		d.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	},
		ofPod(func(p corev1.PodSpec) any { return p.Tolerations }), HaveLen(1)),
	"Deployment.ImagePullSecrets": deployed(func(d *eirinix.DeploymentOptions) { d.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}} },
		ofPod(func(p corev1.PodSpec) any { return p.ImagePullSecrets }), ConsistOf(HaveField("Name", "pull"))),
	"Deployment.Resources": deployed(func(d *eirinix.DeploymentOptions) {
		d.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	}, ofContainer(func(c corev1.Container) any { return c.Resources.Limits.Memory().String() }), Equal("1Gi")),
	"Deployment.PodMonitor": shown(func(d *eirinix.DeploymentOptions) { d.PodMonitor = true }, func(s *scene) {
		Expect(s.objects).To(ContainElement(HaveField("GetObjectKind().GroupVersionKind().Kind", "PodMonitor")))
	}).with(func(r *row) {
		set := r.set
		r.set = func(s *scene, o *eirinix.ManagerOptions) {
			set(s, o)
			o.MetricsBindAddress = fmt.Sprint(":", s.second) // which it requires
		}
	}),
	"Deployment.AuditSchedule": shown(func(d *eirinix.DeploymentOptions) { d.AuditSchedule = "@daily" }, func(s *scene) {
		Expect(object[*batchv1.CronJob](s).Spec.Schedule).To(Equal("@daily"))
		Expect(rulesOn(s, "configmaps")).To(ContainElement(HaveField("Verbs", ContainElement("list"))))
	}),
	"Deployment.AuditArgs": shown(func(d *eirinix.DeploymentOptions) { d.AuditSchedule, d.AuditArgs = "@daily", []string{"look"} }, func(s *scene) {
		Expect(object[*batchv1.CronJob](s).Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args).To(ConsistOf("look"))
	}),
}
