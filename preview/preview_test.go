package preview_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/preview"
)

// roundTrip is a transport that a function plays.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// previewed is what a command printed and how it ended.
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

var _ = Describe("A preview", func() {
	It("shows what the extensions would do, as a diff", func() {
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

	It("ends with an error where an object would be denied, and says by which step", func() {
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

	It("tells failures from denials, and what failurePolicy Ignore lets pass", func() {
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

	DescribeTable("says why an object is not sent", func(object, why string, settings eirinix.Settings) {
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

	It("sees the labels of Namespaces that are among the manifests", func() {
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		Expect(x.AddExtension(eirinix.Mutation[*corev1.Pod]{
			ID: "step", Settings: eirinix.Settings{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
			Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return eirinix.Deny("seen") },
		})).To(Succeed())
		const inApps = `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: apps}}`
		Expect(command(x, inApps, "-").err).NotTo(HaveOccurred())
		Expect(command(x, inApps+"\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: apps, labels: {team: a}}}", "-").err).To(MatchError(ContainSubstring("1 would be denied")))
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

	It("updates what is among the old objects, and deletes", func() {
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

	DescribeTable("updates as kubectl apply does", func(old, manifest, expected string) {
		p := command(program(), manifest, "-o", "yaml", "-old", file("old.yaml", old), "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(MatchYAML(expected))
	},
		Entry("what others have set stays",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: default, uid: u, labels: {theirs: "1"}}, data: {a: "1", b: "1"}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: m, labels: {ours: "1"}}, data: {a: "2"}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: default, uid: u, labels: {theirs: "1", ours: "1"}}, data: {a: "2", b: "1"}}`),
		Entry("what was applied and is not any more goes",
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

	It("tells which old objects it has no manifest for, and takes none for another that has no name", func() {
		const gen = `{apiVersion: v1, kind: Pod, metadata: {generateName: gen-}}`
		p := command(program(), gen, "-old", file("old.yaml", `{apiVersion: v1, kind: Pod, metadata: {generateName: other-}}`), "-")
		Expect(p.stdout).To(And(ContainSubstring("create Pod gen-*"), ContainSubstring("in -old alone, so not updated: default Pod other-*")))
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

	It("sends what stands between a workload and its pods, each made of the admitted one", func() {
		job := eirinix.Mutation[*batchv1.Job]{ID: "job", Settings: eirinix.Settings{ClusterCritical: true}, Apply: func(_ context.Context, c *eirinix.Call, j *batchv1.Job) error {
			c.Warn("%s by %s for %s", j.Name, c.UserInfo.Username, metav1.GetControllerOf(j).Name)
			metav1.SetMetaDataLabel(&j.Spec.Template.ObjectMeta, "deny", "by the Job")
			return nil
		}}
		p := command(program(job), workload("batch/v1", "CronJob", "jobTemplate: {spec: {template: %s}}"), "-")
		Expect(p.stdout).To(And(
			ContainSubstring("create Job web-29700000 in namespace apps, which CronJob web makes"),
			ContainSubstring("warning: web-29700000 by system:serviceaccount:kube-system:cronjob-controller for web"),
			ContainSubstring("create Pod web-29700000-* in namespace apps, which Job web-29700000 makes\n  would be denied with 403 Forbidden by label: by the Job"),
		))
		set := eirinix.Validation[*appsv1.ReplicaSet]{ID: "set", Create: func(_ context.Context, c *eirinix.Call, r *appsv1.ReplicaSet) error {
			return eirinix.Deny("%d of %s", *r.Spec.Replicas, r.Spec.Template.Labels["app"])
		}}
		p = command(program(set), workload("apps/v1", "Deployment", "replicas: 3, template: %s"), "-")
		Expect(p.stdout).To(ContainSubstring("create ReplicaSet web-5d4f8c7b9 in namespace apps, which Deployment web makes\n  would be denied with 403 Forbidden by set: 3 of web"))
	})

	It("makes pods of what the extensions have made of a workload", func() {
		template := eirinix.Mutation[*unstructured.Unstructured]{
			ID: "template", Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}}},
			Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
				return unstructured.SetNestedField(u.Object, "changed", "spec", "template", "metadata", "labels", "deny")
			},
		}
		p := command(program(template), workload("apps/v1", "Deployment", "template: %s"), "-")
		Expect(p.stdout).To(ContainSubstring("would be denied with 403 Forbidden by label: changed"))
	})
})

// workload is an object with the template of a pod in its spec.
func workload(apiVersion, kind, spec string) string {
	template := "{metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: nginx}]}}"
	return "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {name: web, namespace: apps}, spec: {" + strings.Replace(spec, "%s", template, 1) + "}}"
}

var _ = Describe("Extensions with a client", func() {
	reader := eirinix.Validation[*corev1.Pod]{ID: "reader", Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		kube, err := c.Manager.GetKubeClient()
		if err != nil {
			return err
		}
		if _, err := kube.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.New("the pod is there before it is created")
		}
		settings, err := kube.ConfigMaps(pod.Namespace).Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return eirinix.Deny("no settings")
		}
		if _, err := kube.Secrets(pod.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		return eirinix.Deny("settings say %s", settings.Data["a"])
	}}
	const settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}`

	It("find the manifests in the cluster, whatever their order, and are told on", func() {
		p := command(program(reader), pod+"---\n"+settings, "-")
		Expect(p.stdout).To(And(ContainSubstring("by reader: settings say b"), ContainSubstring("would write: create secrets default/")))
	})

	It("read directly through a controller-runtime manager, and never through the program's own", func() {
		elsewhere := false
		theirs, err := manager.New(&rest.Config{Host: "http://cluster.invalid", Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			elsewhere = true
			return nil, errors.New("this is the cluster")
		})}, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		}})
		Expect(err).NotTo(HaveOccurred())
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org", KubeManager: theirs})
		Expect(x.AddExtension(eirinix.Validation[*corev1.Pod]{ID: "cached", Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			found := &corev1.ConfigMap{}
			if err := c.Manager.GetKubeManager().GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "settings"}, found); err != nil {
				return err
			}
			return eirinix.Deny("settings say %s", found.Data["a"])
		}})).To(Succeed())
		Expect(command(x, pod+"---\n"+settings, "-").stdout).To(ContainSubstring("by cached: settings say b"))
		Expect(elsewhere).To(BeFalse())
		Expect(x.GetKubeManager()).To(BeIdenticalTo(theirs), "the Manager is as it was")
	})

	It("find what became of the manifests before", func() {
		mark := eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Apply: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			m.Data["a"] = "changed"
			return nil
		}}
		Expect(command(program(mark, reader), settings+"\n---\n"+pod, "-").stdout).To(ContainSubstring("by reader: settings say changed"))
	})

	It("find what the program has put there", func() {
		var out bytes.Buffer
		err := preview.Command(GinkgoT().Context(), program(reader), []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader(pod), &out
			c := &corev1.ConfigMap{Data: map[string]string{"a": "c"}}
			c.Name, c.Namespace = "settings", "default"
			o.Objects = append(o.Objects, c)
		})
		Expect(err).To(HaveOccurred())
		Expect(out.String()).To(ContainSubstring("settings say c"))
	})

	It("are told on where they ask for what is not among the manifests", func() {
		Expect(command(program(reader), pod, "-").stdout).To(And(
			ContainSubstring("by reader: no settings"), ContainSubstring("not among the manifests: get configmaps default/settings")))
	})
})

var _ = Describe("Manifests", func() {
	It("come from folders, as kubectl reads them, and from lists", func() {
		folder := GinkgoT().TempDir()
		write := func(name, text string) {
			Expect(os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)).To(Succeed())
		}
		write("b.yml", strings.ReplaceAll(pod, "web", "b"))
		write("a.json", `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a1"}}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a2-"}}]}`)
		write("notes.txt", "no manifest")
		write("below/c.yaml", strings.ReplaceAll(pod, "web", "c"))
		Expect(command(program(), "", "-o", "json", "-f", folder).objects()).To(And(HaveLen(3), HaveKey("Pod a1"), HaveKey("Pod a2-*"), HaveKey("Pod b")))
		Expect(command(program(), "", "-o", "json", "-R", folder).objects()).To(And(HaveLen(4), HaveKey("Pod c")))
	})

	It("come from links to folders, lists within lists, and one stream of JSON", func() {
		folder := GinkgoT().TempDir()
		Expect(os.MkdirAll(filepath.Join(folder, "real"), 0o700)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "real", "pod.yaml"), []byte(pod), 0o600)).To(Succeed())
		Expect(os.Symlink("real", filepath.Join(folder, "link"))).To(Succeed())
		Expect(command(program(), "", "-o", "json", filepath.Join(folder, "link")).objects()).To(HaveKey("Pod web"))
		Expect(os.Symlink("..", filepath.Join(folder, "real", "back"))).To(Succeed())
		Expect(command(program(), "", "-R", folder).err).To(MatchError(Or(ContainSubstring("does a link lead back?"), ContainSubstring("too many levels of symbolic links"))))
		lists := `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "inner"}}]}]}{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}}`
		Expect(command(program(), lists, "-o", "json", "-").objects()).To(And(HaveLen(2), HaveKey("Pod inner"), HaveKey("Pod second")))
	})

	It("that an API server could not read fail, and the others are previewed", func() {
		p := command(program(), "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: {}}}\n---\n{apiVersion: v1, kind: Pod}\n---\n"+pod, "-o", "json", "-")
		Expect(p.err).To(MatchError("of 3 objects, 2 would fail"))
		Expect(p.objects()).To(And(
			HaveKeyWithValue("Pod bad", HaveKeyWithValue("failure", ContainSubstring("cannot unmarshal"))),
			HaveKeyWithValue("Pod *", HaveKeyWithValue("failure", ContainSubstring("name or generateName is required"))),
			HaveKeyWithValue("Pod web", HaveKeyWithValue("changed", true)),
		))
	})

	It("may be of kinds that nobody knows, and are what CustomResourceDefinitions say", func() {
		touch := eirinix.Mutation[*unstructured.Unstructured]{
			ID: "goose", Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v1"}, Resources: []string{"geese"}},
			}}},
			Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
				u.SetLabels(map[string]string{"seen": "yes"})
				return nil
			},
		}
		const goose = "{apiVersion: example.org/v1, kind: Goose, metadata: {name: g}}\n---\n{apiVersion: example.org/v1, kind: Duck, metadata: {name: d}}\n"
		const crd = "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: geese.example.org}, spec: {group: example.org, scope: Cluster, names: {kind: Goose, plural: geese}, versions: [{name: v1}]}}\n"
		p := command(program(touch), goose+crd, "-o", "json", "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.objects()).To(And(
			HaveKeyWithValue("Goose g", And(HaveKeyWithValue("changed", true), Not(HaveKey("namespace")))),
			HaveKeyWithValue("Duck d", And(HaveKeyWithValue("changed", false), HaveKeyWithValue("namespace", "default"))),
			HaveKeyWithValue("CustomResourceDefinition geese.example.org", Not(HaveKey("namespace"))),
		))
		Expect(command(program(touch), pod, "-").err).To(MatchError(And(ContainSubstring("geese"), ContainSubstring("give CustomResourceDefinitions with -f"))))

		err := preview.Command(GinkgoT().Context(), program(touch), []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader(pod), GinkgoWriter
			o.Resources = []eirinix.OfflineResource{{Kind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Goose"}, Resource: "geese"}}
		})
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("that cannot be previewed are named, with the remedy", func(message string, args ...string) {
		p := command(program(), "just: text", args...)
		Expect(p.err).To(MatchError(And(HavePrefix("preview: "), ContainSubstring(message))))
		Expect(errors.As(p.err, new(*preview.RefusedError))).To(BeFalse())
		Expect(p.stdout).To(BeEmpty())
	},
		Entry("none", "there is nothing to preview; give -f"),
		Entry("no object", "standard input: the object has no apiVersion", "-"),
		Entry("no file", "no such file", "-f", "missing.yaml"),
		Entry("standard input twice", "standard input can be read once", "-", "-old", "-"),
		Entry("an unknown flag", "-h lists the flags", "-x"),
		Entry("another output", `-o is "xml"; give diff, json, yaml`, "-o", "xml", "-"),
		Entry("another operation", `give create, delete`, "-operation", "update", "-"),
		Entry("groups of nobody", "-as-group is for the user whom -as names", "-as-group", "a", "-"),
	)

	It("and a folder without any", func() {
		Expect(command(program(), "", "-f", GinkgoT().TempDir()).err).To(MatchError(ContainSubstring("holds no .yaml, .yml or .json; -R")))
		Expect(command(program(), "# nothing\n", "-").err).To(MatchError(ContainSubstring("-: no object in it")))
	})
})

var _ = Describe("The output of a preview", func() {
	It("is JSON for programs", func() {
		p := command(program(), pod+"---\n"+denied, "-o", "json", "-")
		Expect(p.err).To(HaveOccurred())
		Expect(p.objects()).To(And(
			HaveKeyWithValue("Pod web", And(
				HaveKeyWithValue("allowed", true), HaveKeyWithValue("warnings", ConsistOf("labelled")), HaveKeyWithValue("operation", "CREATE"),
				HaveKeyWithValue("patch", ConsistOf(HaveKeyWithValue("op", "add"))),
				HaveKeyWithValue("steps", ConsistOf(HaveKeyWithValue("step", "label"))),
				HaveKeyWithValue("object", HaveKeyWithValue("metadata", HaveKeyWithValue("labels", HaveKeyWithValue("seen", "yes")))),
			)),
			HaveKeyWithValue("Pod bad", And(
				HaveKeyWithValue("allowed", false), Not(HaveKey("object")),
				HaveKeyWithValue("denial", And(HaveKeyWithValue("message", "not here"), HaveKeyWithValue("step", "label"), HaveKeyWithValue("code", 403.0))),
			)),
		))
		Expect(p.stdout).To(MatchRegexp(`"summary": \{\s+"objects": 2,\s+"changed": 1,\s+"denied": 1,\s+"failed": 0`))
	})

	It("is YAML for kubectl, with every field", func() {
		p := command(program(), pod+"---\n"+denied, "-o", "yaml", "-")
		Expect(p.err).To(HaveOccurred())
		Expect(p.stdout).To(MatchYAML("{apiVersion: v1, kind: Pod, metadata: {labels: {seen: 'yes'}, name: web, namespace: default}, spec: {containers: [{image: nginx, name: main, newField: kept}]}}"))
		Expect(p.stdout).To(ContainSubstring("---\n# standard input, document 2: create Pod bad in namespace default\n# admission webhook"))
		p = command(program(), workload("apps/v1", "Deployment", "template: %s"), "-o", "yaml", "-")
		Expect(p.stdout).To(And(ContainSubstring("kind: Deployment"), Not(ContainSubstring("kind: Pod"))), "nobody wrote the pod")
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

	It("tells apart the steps that are called again", func() {
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
