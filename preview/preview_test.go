package preview_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/preview"
)

var _ = Describe("A preview", func() {
	It("shows the changes of the extensions, as a diff", func() {
		p := command(program(), "", "-f", file("pod.yaml", pod))
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(And(
			ContainSubstring("pod.yaml: create Pod web in namespace default\n  is allowed, changed\n  warning: labelled\n  ran: label\n"),
			ContainSubstring("   metadata:\n  +  labels:\n  +    seen: \"yes\"\n     name: web\n"),
			HaveSuffix("1 object: 1 changed\n"),
		))
		Expect(p.stdout).NotTo(ContainSubstring("\x1b"), "colours are for terminals")
		Expect(p.stderr).To(BeEmpty())
	})

	It("ends with an error where an object would be denied, and names the step", func() {
		p := command(program(), pod+"---\n"+denied, "-")
		refused, ok := errors.AsType[*preview.RefusedError](p.err)
		Expect(ok).To(BeTrue())
		Expect(*refused).To(Equal(preview.RefusedError{Objects: 2, Denied: 1}))
		Expect(p.err).To(MatchError("of 2 objects, 1 would be denied"))
		Expect(p.stdout).To(And(
			ContainSubstring("standard input, document 2: create Pod bad in namespace default\n  would be denied with 403 Forbidden by label: not here\n"),
			HaveSuffix("2 objects: 1 changed, 1 denied\n"),
		))
	})

	It("names the webhook where several of its steps deny, and each step in the message", func() {
		denies := func(id string) any {
			return eirinix.Validation[*corev1.ConfigMap]{ID: id, Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
				return eirinix.Deny("not so")
			}}
		}
		p := command(program(denies("size"), denies("name")), `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`, "-")
		Expect(p.stdout).To(MatchRegexp(`would be denied with 403 Forbidden by configmaps-\w+\.eirini-x\.eirinix\.cloudfoundry\.org: size: not so; name: not so\n`))
	})

	It("distinguishes failures from denials, and from failures that failurePolicy Ignore lets pass", func() {
		broken := func(policy admissionregistrationv1.FailurePolicyType) any {
			return eirinix.Validation[*corev1.ConfigMap]{ID: "broken", Settings: eirinix.Settings{FailurePolicy: policy}, Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
				return errors.New("out of order")
			}}
		}
		const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`
		p := command(program(broken(admissionregistrationv1.Fail)), configMap, "-")
		Expect(p.err).To(MatchError("of 1 object, 1 would fail"))
		Expect(p.stdout).To(And(ContainSubstring("would fail: "), ContainSubstring("ran: broken: out of order")))
		p = command(program(broken(admissionregistrationv1.Ignore)), configMap, "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(And(ContainSubstring("ignored: "), HaveSuffix("1 object: 0 changed, 1 failure ignored\n")))
		Expect(command(program(broken(admissionregistrationv1.Fail)), configMap+"\n---\n"+denied, "-").err).
			To(MatchError("of 2 objects, 1 would be denied and 1 would fail"))
	})

	DescribeTable("reports the reason why an object is not sent", func(object, why string, settings eirinix.Settings) {
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		Expect(x.AddExtension(eirinix.Mutation[*corev1.Pod]{ID: "step", Settings: settings, Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }})).To(Succeed())
		p := command(x, object, "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(And(ContainSubstring("is not sent to this program"), ContainSubstring(why)))
	},
		Entry("rules", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`, "its rules do not name CREATE of configmaps", eirinix.Settings{}),
		Entry("a namespace", `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: kube-system}}`, `its namespaceSelector leaves out namespace "kube-system"`, eirinix.Settings{}),
		Entry("labels", `{apiVersion: v1, kind: Pod, metadata: {name: a}}`, "its objectSelector leaves out",
			eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}),
		Entry("a condition", `{apiVersion: v1, kind: Pod, metadata: {name: a}}`, `its matchCondition "never" is false`,
			eirinix.Settings{Conditions: []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}}),
	)

	It("has one line for an object that several webhooks are not called for, its rules first", func() {
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		for _, label := range []string{"a", "b"} {
			Expect(x.AddExtension(eirinix.Mutation[*corev1.Pod]{
				ID: "step-" + label, Settings: eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}}},
				Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
			})).To(Succeed())
		}
		Expect(command(x, configMap("apps", "a"), "-").stdout).To(ContainSubstring("\n  is not sent to this program: its rules do not name CREATE of configmaps\n\n"))
		Expect(command(x, `{apiVersion: v1, kind: Pod, metadata: {name: a}}`, "-").stdout).
			To(MatchRegexp(`\n  is not sent to this program: pods-\S+, pods-\S+: its objectSelector leaves out an object with these labels\n\n`))
	})

	It("puts the modes in force that the ConfigMap with modes says, if it is there", func() {
		moded := func() *eirinix.ExtensionManager {
			x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org", WebhookNamespace: "system", ModesConfigMap: "modes"})
			Expect(x.AddExtension(eirinix.Mutation[*corev1.Pod]{ID: "step", Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return eirinix.Deny("seen") }})).To(Succeed())
			return x
		}
		pods := `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: apps}}` + "\n---\n" + `{apiVersion: v1, kind: Pod, metadata: {name: b}}` + "\n---\n" +
			`{apiVersion: v1, kind: Namespace, metadata: {name: apps, labels: {team: a}}}`
		modes := func(namespace, entry string) string {
			return file("modes.yaml", `{apiVersion: v1, kind: ConfigMap, metadata: {name: modes, namespace: `+namespace+`}, data: {step: "`+entry+`"}}`)
		}
		Expect(command(moded(), pods, "-").err).To(MatchError(ContainSubstring("2 would be denied")))
		Expect(command(moded(), pods, "-f", "-", "-with", modes("other", "Warn")).err).To(MatchError(ContainSubstring("2 would be denied")))
		p := command(moded(), pods, "-f", "-", "-with", modes("system", "Warn"))
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(ContainSubstring(`step "step" would deny this: seen`))
		p = command(moded(), pods, "-f", "-", "-with", modes("system", "Shadow where team=a\\nDeny"))
		Expect(p.err).To(MatchError(ContainSubstring("1 would be denied")))
		Expect(p.stdout).To(ContainSubstring("would-deny=step: seen"), "a shadow runs before the answer, to be seen")
		Expect(command(moded(), pods, "-f", "-", "-with", modes("system", "Sometimes")).err).To(MatchError(And(ContainSubstring("ConfigMap system/modes"), ContainSubstring("step: line 1"))))
	})

	It("sends as another user, in a dry run, into another namespace", func() {
		var asked string
		who := eirinix.Validation[*corev1.ConfigMap]{ID: "who", Create: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
			asked = strings.Join([]string{c.UserInfo.Username, strings.Join(c.UserInfo.Groups, " "), m.Namespace}, ",")
			if *c.DryRun {
				asked += ",dry"
			}
			return nil
		}}
		const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`
		Expect(command(program(who), configMap, "-").err).NotTo(HaveOccurred())
		Expect(asked).To(Equal("kubernetes-admin,system:masters system:authenticated,default"))
		Expect(command(program(who), configMap, "-as", "jane", "-as-group", "dev", "-as-group", "ops", "-n", "apps", "-dry-run", "-f", "-").err).NotTo(HaveOccurred())
		Expect(asked).To(Equal("jane,dev ops system:authenticated,apps,dry"))
	})

	It("updates objects that are among the old ones, and deletes", func() {
		guard := eirinix.Validation[*corev1.ConfigMap]{
			ID: "guard",
			Update: func(_ context.Context, _ *eirinix.Call, was, is *corev1.ConfigMap) error {
				return eirinix.Deny("%s becomes %s", was.Data["a"], is.Data["a"])
			},
			Delete: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
				return eirinix.Deny("%s stays", m.Name)
			},
		}
		now := `{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: default}, data: {a: "2"}}`
		old := file("old.yaml", `{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: "1"}}`)
		p := command(program(guard), now+"\n---\n"+pod, "-", "-old", old)
		Expect(p.stdout).To(And(ContainSubstring("update ConfigMap m"), ContainSubstring("by guard: 1 becomes 2"), ContainSubstring("create Pod web")))
		p = command(program(guard), now, "-operation", "delete", "-f", "-")
		Expect(p.stdout).To(And(ContainSubstring("delete ConfigMap m"), ContainSubstring("by guard: m stays")))
		Expect(p.stdout).To(ContainSubstring("in namespace default"))
		Expect(command(program(), now, "-operation", "delete", "-o", "yaml", "-").stdout).To(BeEmpty())
	})

	It("plays how finalizers go, and leaves out an update that changes nothing", func() {
		strict := eirinix.Validation[*corev1.ConfigMap]{ID: "strict", Update: func(context.Context, *eirinix.Call, *corev1.ConfigMap, *corev1.ConfigMap) error {
			return eirinix.Deny("never")
		}}
		now := `{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: default, finalizers: [example.org/a, example.org/b]}}`
		p := command(program(strict), now, "-operation", "delete", "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(And(ContainSubstring("to remove its finalizer example.org/a"), ContainSubstring("to remove its finalizer example.org/b")))
		p = command(program(strict), now, "-", "-old", file("old.yaml", now))
		Expect(p.err).NotTo(HaveOccurred())
		strict.Settings.EveryUpdate = true
		p = command(program(strict), now, "-operation", "delete", "-o", "json", "-")
		Expect(p.err).To(BeAssignableToTypeOf(&preview.RefusedError{}))
		Expect(p.stdout).To(And(ContainSubstring(`"finalizer": "example.org/a"`), Not(ContainSubstring(`"finalizer": "example.org/b"`))))
	})

	DescribeTable("updates as kubectl apply does", func(old, manifest, expected string) {
		p := command(program(), manifest, "-o", "yaml", "-old", file("old.yaml", old), "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(MatchYAML(expected))
	},
		Entry("a field that was applied before and is not any more goes",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: default, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1", "b": "1"}}'}}, data: {a: "1", b: "1", c: "1"}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: "2"}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: default, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1", "b": "1"}}'}}, data: {a: "2", c: "1"}}`),
		Entry("list items are merged by their names, and status stays",
			`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: default}, spec: {template: {spec: {containers: [{name: a, image: old, env: [{name: x, value: z}]}, {name: injected, image: i}]}}}, status: {numberReady: 3}}`,
			`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}, spec: {template: {spec: {containers: [{name: a, image: new}]}}}}`,
			`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: default}, spec: {template: {spec: {containers: [{name: a, image: new, env: [{name: x, value: z}]}, {name: injected, image: i}]}}}, status: {numberReady: 3}}`),
		Entry("a custom resource",
			`{apiVersion: example.org/v1, kind: Gadget, metadata: {name: g, namespace: default}, spec: {list: [1, 2], kept: true}, status: {done: 50}}`,
			`{apiVersion: example.org/v1, kind: Gadget, metadata: {name: g}, spec: {list: [3]}}`,
			`{apiVersion: example.org/v1, kind: Gadget, metadata: {name: g, namespace: default}, spec: {list: [3], kept: true}, status: {done: 50}}`),
	)

	It("lists the old objects that it has no manifest for, and never takes an object without a name for an old one", func() {
		const gen = `{apiVersion: v1, kind: Pod, metadata: {generateName: gen-}}`
		p := command(program(), gen, "-old", file("old.yaml", `{apiVersion: v1, kind: Pod, metadata: {generateName: other-}}`), "-")
		Expect(p.stdout).To(And(ContainSubstring("create Pod gen-*"), ContainSubstring("only -old has this object, so it is not updated: default Pod other-*")))
	})

	DescribeTable("sends the pods that controllers would make, too", func(workload, name, owner, user string) {
		var asked *eirinix.Call
		watch := eirinix.Validation[*corev1.Pod]{ID: "watch", Create: func(_ context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			asked = c
			return nil
		}}
		p := command(program(watch), workload, "-o", "json", "-")
		Expect(p.err).NotTo(HaveOccurred())
		made := p.objects()["Pod "+name]
		Expect(made).NotTo(BeNil(), p.stdout)
		Expect(made["changed"]).To(BeTrue())
		Expect(asked.UserInfo.Username).To(Equal("system:serviceaccount:kube-system:" + user))
		made = made["object"].(map[string]any)
		u := &unstructured.Unstructured{Object: made}
		Expect(metav1.GetControllerOf(u)).To(HaveField("Kind", owner))
		Expect(u.GetLabels()).To(And(HaveKeyWithValue("app", "web"), HaveKeyWithValue("seen", "yes")))
		Expect(u.GetNamespace()).To(Equal("apps"))

		Expect(command(program(), workload, "-no-pods", "-").stdout).NotTo(ContainSubstring("Pod"))
		nothingOfPods := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		Expect(nothingOfPods.AddExtension(eirinix.Validation[*corev1.Secret]{Create: func(context.Context, *eirinix.Call, *corev1.Secret) error { return nil }})).To(Succeed())
		Expect(command(nothingOfPods, workload, "-").stdout).NotTo(ContainSubstring("Pod"))
		Expect(command(program(), strings.Replace(workload, "namespace: apps", "namespace: kube-system", 1), "-").stdout).To(ContainSubstring("create Pod"), "to say why not")
	},
		Entry("a Deployment", workload("apps/v1", "Deployment", "template: %s"), "web-5d4f8c7b9-*", "ReplicaSet", "replicaset-controller"),
		Entry("a ReplicaSet", workload("apps/v1", "ReplicaSet", "template: %s"), "web-*", "ReplicaSet", "replicaset-controller"),
		Entry("a StatefulSet", workload("apps/v1", "StatefulSet", "template: %s"), "web-0", "StatefulSet", "statefulset-controller"),
		Entry("a DaemonSet", workload("apps/v1", "DaemonSet", "template: %s"), "web-*", "DaemonSet", "daemon-set-controller"),
		Entry("a ReplicationController", workload("v1", "ReplicationController", "template: %s"), "web-*", "ReplicationController", "replication-controller"),
		Entry("a Job", workload("batch/v1", "Job", "template: %s"), "web-*", "Job", "job-controller"),
		Entry("a CronJob", workload("batch/v1", "CronJob", "jobTemplate: {spec: {template: %s}}"), "web-29700000-*", "Job", "job-controller"),
	)

	It("sends the objects between a workload and its pods, each made of the admitted one", func() {
		job := eirinix.Mutation[*batchv1.Job]{ID: "job", Settings: eirinix.Settings{AllowClusterCritical: true}, Apply: func(_ context.Context, c *eirinix.Call, j *batchv1.Job) error {
			c.Warn("%s by %s for %s", j.Name, c.UserInfo.Username, metav1.GetControllerOf(j).Name)
			metav1.SetMetaDataLabel(&j.Spec.Template.ObjectMeta, "deny", "by the Job")
			return nil
		}}
		p := command(program(job), workload("batch/v1", "CronJob", "jobTemplate: {spec: {template: %s}}"), "-")
		Expect(p.stdout).To(And(
			ContainSubstring("create Job web-29700000 in namespace apps, which CronJob web creates"),
			ContainSubstring("warning: web-29700000 by system:serviceaccount:kube-system:cronjob-controller for web"),
			ContainSubstring("create Pod web-29700000-* in namespace apps, which Job web-29700000 creates\n  would be denied with 403 Forbidden by label: by the Job"),
		))
		set := eirinix.Validation[*appsv1.ReplicaSet]{ID: "set", Create: func(_ context.Context, c *eirinix.Call, r *appsv1.ReplicaSet) error {
			return eirinix.Deny("%d of %s", *r.Spec.Replicas, r.Spec.Template.Labels["app"])
		}}
		p = command(program(set), workload("apps/v1", "Deployment", "replicas: 3, template: %s"), "-")
		Expect(p.stdout).To(ContainSubstring("create ReplicaSet web-5d4f8c7b9 in namespace apps, which Deployment web creates\n  would be denied with 403 Forbidden by set: 3 of web"))
	})
})

func TestPreview(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Preview")
}

// previewed is the output of a command and its error.
type previewed struct {
	stdout, stderr string
	err            error
}

// objects are those of the JSON report, by kind and name.
func (p previewed) objects() map[string]map[string]any {
	GinkgoHelper()
	var report struct{ Objects []map[string]any }
	Expect(json.Unmarshal([]byte(p.stdout), &report)).To(Succeed(), p.stdout)
	all := map[string]map[string]any{}
	for _, o := range report.Objects {
		all[o["kind"].(string)+" "+o["name"].(string)] = o
	}
	return all
}

// file writes manifests into a folder of the spec's own.
func file(name, text string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), name)
	Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	return path
}

// program is one that labels pods, and denies those with the label deny.
func program(more ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
	steps := append([]any{eirinix.Mutation[*corev1.Pod]{ID: "label", Apply: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		if why := pod.Labels["deny"]; why != "" {
			return eirinix.Deny("%s", why)
		}
		if pod.Labels["quiet"] == "" {
			c.Warn("labelled")
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "seen", "yes")
		}
		return nil
	}}}, more...)
	for _, s := range steps {
		Expect(x.AddExtension(s)).To(Succeed())
	}
	return x
}

// command runs the preview of a program, with a text as standard input.
func command(x *eirinix.ExtensionManager, stdin string, args ...string) previewed {
	GinkgoHelper()
	var out, errs bytes.Buffer
	err := preview.Command(GinkgoT().Context(), x, args, func(o *preview.Options) {
		o.Stdin, o.Stdout, o.Stderr = strings.NewReader(stdin), &out, &errs
	})
	return previewed{out.String(), errs.String(), err}
}

const pod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: nginx, newField: kept}]}
`

const denied = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "labels": {"deny": "not here"}}}`

// workload is an object with the template of a pod in its spec.
func workload(apiVersion, kind, spec string) string {
	template := "{metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: nginx}]}}"
	return "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {name: web, namespace: apps}, spec: {" + strings.Replace(spec, "%s", template, 1) + "}}"
}

var _ = Describe("The output of a preview", func() {
	It("is JSON for programs", func() {
		p := command(program(), pod+"---\n"+denied+"\n"+configMap("apps", "m"), "-o", "json", "-")
		Expect(p.err).To(HaveOccurred())
		Expect(p.objects()).To(And(
			HaveKeyWithValue("Pod web", And(
				HaveKeyWithValue("allowed", true), HaveKeyWithValue("warnings", ConsistOf("labelled")), HaveKeyWithValue("operation", "CREATE"),
				HaveKeyWithValue("patch", ConsistOf(HaveKeyWithValue("op", "add"))),
				HaveKeyWithValue("steps", ConsistOf(HaveKeyWithValue("step", "label"))),
				HaveKeyWithValue("object", HaveKeyWithValue("metadata", HaveKeyWithValue("labels", HaveKeyWithValue("seen", "yes")))),
			)),
			HaveKeyWithValue("ConfigMap m", HaveKeyWithValue("notCalled", ConsistOf(HaveKeyWithValue("why", "its rules do not name CREATE of configmaps")))),
			HaveKeyWithValue("Pod bad", And(
				HaveKeyWithValue("allowed", false), Not(HaveKey("object")),
				HaveKeyWithValue("denial", And(HaveKeyWithValue("message", "not here"), HaveKeyWithValue("step", "label"), HaveKeyWithValue("code", 403.0))),
			)),
		))
		Expect(p.stdout).To(MatchRegexp(`"summary": \{\s+"objects": 3,\s+"changed": 1,\s+"denied": 1,\s+"failed": 0`))
	})

	It("is YAML for kubectl, with every field", func() {
		p := command(program(), pod+"---\n"+denied, "-o", "yaml", "-")
		Expect(p.err).To(HaveOccurred())
		Expect(p.stdout).To(MatchYAML("{apiVersion: v1, kind: Pod, metadata: {labels: {seen: 'yes'}, name: web, namespace: default}, spec: {containers: [{image: nginx, name: main, newField: kept}]}}"))
		Expect(p.stdout).To(ContainSubstring("---\n# standard input, document 2: create Pod bad in namespace default\n# admission webhook"))
		p = command(program(), workload("apps/v1", "Deployment", "template: %s"), "-o", "yaml", "-")
		Expect(p.stdout).To(And(ContainSubstring("kind: Deployment"), Not(ContainSubstring("kind: Pod"))), "the pod is not in the input")
	})

	DescribeTable("shows no data of Secrets, unless it is asked to", func(args ...string) {
		change := eirinix.Mutation[*corev1.Secret]{ID: "change", Apply: func(_ context.Context, _ *eirinix.Call, s *corev1.Secret) error {
			s.Data["changed"] = []byte("new-value")
			s.Data["added"] = []byte("added-value")
			return nil
		}}
		const secret = `{apiVersion: v1, kind: Secret, metadata: {name: s, annotations: {kubectl.kubernetes.io/last-applied-configuration: old-value}}, data: {changed: b2xkLXZhbHVl}, stringData: {kept: kept-value}}`
		values := []string{"old-value", "new-value", "added-value", "kept-value"}
		for _, v := range values {
			values = append(values, base64.StdEncoding.EncodeToString([]byte(v)))
		}
		p := command(program(change), secret, append(args, "-")...)
		Expect(p.err).NotTo(HaveOccurred())
		for _, v := range values {
			Expect(p.stdout).NotTo(ContainSubstring(v))
		}
		Expect(p.stdout).To(And(ContainSubstring("*** (before)"), ContainSubstring("*** (after)"), ContainSubstring("kept: '***'")))
		Expect(command(program(change), secret, append(args, "-show-secrets", "-")...).stdout).To(ContainSubstring(base64.StdEncoding.EncodeToString([]byte("new-value"))))
	},
		Entry("as a diff", "-o", "diff"),
		Entry("as JSON", "-o", "json"),
	)

	It("marks the steps that are called again", func() {
		again := eirinix.Settings{Reinvoke: admissionregistrationv1.IfNeededReinvocationPolicy, Isolated: true}
		one := eirinix.Mutation[*corev1.ConfigMap]{ID: "one", Settings: again, Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil }}
		two := eirinix.Mutation[*corev1.ConfigMap]{ID: "two", Settings: again, Apply: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			metav1.SetMetaDataLabel(&m.ObjectMeta, "two", "yes")
			return nil
		}}
		Expect(command(program(one, two), `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`, "-").stdout).To(ContainSubstring("ran: one\n  ran: two\n  ran: one (again)\n"))
	})

	It("has no line that a reader of YAML takes for one of its own", func() {
		p := command(program(), `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a\u2028---\u2029kind: Evil\u202e", "labels": {"deny": "no"}}}`, "-o", "yaml", "-")
		Expect(p.stdout).To(And(HavePrefix("# "), Not(ContainSubstring("\u2028")), Not(ContainSubstring("\u2029")), Not(ContainSubstring("\u202e"))))
	})

	It("has colours where they are asked for", func() {
		p := command(program(), pod, "-color", "always", "-")
		Expect(p.stdout).To(And(ContainSubstring("\x1b[32m+    seen: \"yes\"\x1b[0m"), ContainSubstring("\x1b[33mwarning: labelled\x1b[0m")))
	})

	It("sends nothing to the terminal that steers it", func() {
		p := command(program(), `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"deny": "\u001b]0;evil\u0007"}}}`, "-")
		Expect(p.stdout).NotTo(ContainSubstring("\x1b"))
		Expect(p.stdout).To(ContainSubstring("]0;evil"))
	})

	It("is help where that is asked for", func() {
		p := command(program(), "", "-h")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stderr).To(And(HavePrefix("Usage: preview -f"), ContainSubstring("-as-group")))
	})

	It("refuses a Manager that runs, and leaves others as they were", func() {
		x := program()
		options := x.GetManagerOptions()
		Expect(command(x, pod, "-").err).NotTo(HaveOccurred())
		Expect(x.GetManagerOptions().RestConfig).To(Equal(options.RestConfig))
		Expect(x.GetManagerOptions().Logger).To(BeIdenticalTo(options.Logger))
	})

	It("ends with its context", func() {
		ctx, cancel := context.WithCancel(GinkgoT().Context())
		x := program(eirinix.Validation[*corev1.Pod]{ID: "cancel", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error {
			cancel()
			return nil
		}})
		err := preview.Command(ctx, x, []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader(pod), GinkgoWriter
		})
		Expect(err).To(MatchError(context.Canceled))
	})
})
