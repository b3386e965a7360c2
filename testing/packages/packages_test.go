package packages

// This file compares the charts and bases of a program with its objects, as helm and kustomize read them.

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/manifests"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

// input is all that decides about the objects of a program.
type input struct {
	eirinix.ManagerOptions
	Deployment manifests.Options
}

// program returns the objects of a program with these changes of its options.
func program(t *testing.T, changes ...func(*input)) []client.Object {
	t.Helper()
	o := input{
		ManagerOptions: eirinix.ManagerOptions{OperatorFingerprint: "greeter", ServiceName: "greeter", WebhookNamespace: "webhooks", ListenAddress: ":8443", Port: 443},
		Deployment:     manifests.Options{Image: "registry.example.org/greeter:1", Args: []string{"serve"}, RegisterArgs: []string{"register"}},
	}
	for _, change := range changes {
		change(&o)
	}
	x := eirinix.NewManager(o.ManagerOptions)
	if err := x.AddExtension(eirinix.Mutation[*corev1.Pod]{
		ID: "greet", Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
	}); err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Of(x, o.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func split(o *input) { o.RegisterWebHook, o.SetupCertificate = new(false), new(false) }

func audits(o *input) {
	o.Deployment.AuditSchedule, o.Deployment.AuditArgs = "0 3 * * *", []string{"audit", "-q"}
}

func oddly(o *input) {
	o.Deployment.Args = []string{"serve", "-template={{ .Release.Name }}", `-quoted="a'b"`, "-lines=a\nb", "-html=<a&b>", "-number=1", "- dash", "# no comment", "{{", "}}"}
	o.Deployment.Annotations = map[string]string{"example.org/template": `{{ fail "rendered" }}`}
	o.Deployment.Labels = map[string]string{"yes": "true"}
}

func single(o *input) { o.Deployment.Replicas = 1 }

func monitored(o *input) {
	o.MetricsBindAddress, o.Deployment.PodMonitor = ":9090", true
}

var programs = map[string][]func(*input){
	"plain": nil, "split": {split}, "audits": {audits}, "split, audits": {split, audits}, "odd texts": {oddly, split}, "one replica": {single},
	"metrics": {monitored}, "modes": {func(o *input) { o.ModesConfigMap = "modes" }}, "no arguments": {func(o *input) { o.Deployment.Args = nil }},
}

// jobName is the hash in which the name of a Job ends.
var jobName = regexp.MustCompile(`-register-[0-9a-f]{8}$`)

// plain returns objects as text, one for each object, in an order of their own. An empty list counts as none.
func plain(t *testing.T, stream string) (all []string) {
	t.Helper()
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(stream, -1) {
		tree := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(tree) == 0 {
			continue
		}
		drop(tree)
		if tree["kind"] == "Job" {
			metadata := tree["metadata"].(map[string]any)
			metadata["name"] = jobName.ReplaceAllString(metadata["name"].(string), "-register-hash")
		}
		text, err := yaml.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	slices.Sort(all)
	return all
}

// same compares objects, and shows those that differ.
func same(t *testing.T, got, expected []string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(got).NotTo(BeEmpty())
	for of, pair := range map[string][2][]string{"not expected": {got, expected}, "missing": {expected, got}} {
		only := slices.DeleteFunc(slices.Clone(pair[0]), func(text string) bool { return slices.Contains(pair[1], text) })
		g.Expect(strings.Join(only, "---\n")).To(BeEmpty(), of)
	}
}

// drop removes nulls, and empty arguments and environments.
func drop(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			if list, is := member.([]any); member == nil || (key == "args" || key == "env") && is && len(list) == 0 {
				delete(v, key)
				continue
			}
			drop(member)
		}
	case []any:
		for _, item := range v {
			drop(item)
		}
	}
}

func written(t *testing.T, objects []client.Object) []string {
	t.Helper()
	var b bytes.Buffer
	if err := manifests.Write(&b, objects...); err != nil {
		t.Fatal(err)
	}
	return plain(t, b.String())
}

// render renders the chart of objects as helm does.
func render(t *testing.T, objects []client.Object, values map[string]any) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chart")
	if err := manifests.Chart(dir, objects...); err != nil {
		t.Fatal(err)
	}
	chart, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "release", Namespace: "elsewhere"}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, given)
	var stream strings.Builder
	for name, text := range files {
		if filepath.Ext(name) == ".yaml" {
			stream.WriteString("---\n" + text + "\n")
		}
	}
	return stream.String(), err
}

// rendersTo renders the chart of objects with values, and compares it with other objects.
func rendersTo(t *testing.T, objects []client.Object, values map[string]any, expected []client.Object) {
	t.Helper()
	stream, err := render(t, objects, values)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	same(t, plain(t, stream), written(t, expected))
}

func TestTheChartRendersToTheObjects(t *testing.T) {
	for name, changes := range programs {
		t.Run(name, func(t *testing.T) {
			objects := program(t, changes...)
			rendersTo(t, objects, nil, objects)
		})
	}
}

func TestValuesDoWhatOptionsDo(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		option func(*input)
	}{
		"image":     {map[string]any{"image": "other:2"}, func(o *input) { o.Deployment.Image = "other:2" }},
		"replicas":  {map[string]any{"replicas": 1}, single},
		"more":      {map[string]any{"replicas": 5}, func(o *input) { o.Deployment.Replicas = 5 }},
		"namespace": {map[string]any{"namespace": "others"}, func(o *input) { o.WebhookNamespace = "others" }},
		"args":      {map[string]any{"args": []any{"serve", "-v", `{{ "x" }}`}}, func(o *input) { o.Deployment.Args = []string{"serve", "-v", `{{ "x" }}`} }},
		"registerArgs": {map[string]any{"registerArgs": []any{"register", "-v"}}, func(o *input) {
			o.Deployment.RegisterArgs = []string{"register", "-v"}
		}},
		"auditArgs": {map[string]any{"auditArgs": []any{"audit", "-all"}}, func(o *input) { o.Deployment.AuditArgs = []string{"audit", "-all"} }},
		"resources": {map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}, "requests": nil}}, func(o *input) {
			o.Deployment.Resources = memory("1Gi")
		}},
		"imagePullSecrets": {map[string]any{"imagePullSecrets": []any{map[string]any{"name": "registry"}}}, func(o *input) {
			o.Deployment.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		}},
		"nodeSelector": {map[string]any{"nodeSelector": map[string]any{"disk": "fast"}}, func(o *input) {
			o.Deployment.NodeSelector = map[string]string{"disk": "fast"}
		}},
		"tolerations": {
			map[string]any{"tolerations": []any{map[string]any{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}}},
			func(o *input) {
				o.Deployment.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Equal", Value: "b", Effect: "NoExecute", TolerationSeconds: new(int64(5))}}
			},
		},
		"priorityClassName": {map[string]any{"priorityClassName": "high"}, func(o *input) { o.Deployment.PriorityClassName = "high" }},
		"env": {
			map[string]any{"env": []any{map[string]any{"name": "A", "value": "{{ b }}"}, map[string]any{"name": "B", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "spec.nodeName"}}}}},
			func(o *input) {
				o.Deployment.Env = []corev1.EnvVar{{Name: "A", Value: "{{ b }}"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
			},
		},
		"a limit in env": {map[string]any{"env": []any{map[string]any{"name": "GOMEMLIMIT", "value": "1GiB"}}}, func(o *input) {
			o.Deployment.Env = []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "1GiB"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rendersTo(t, program(t, split, audits, monitored), c.values, program(t, split, audits, monitored, c.option))
		})
	}
}

// Values that no option has change the pods alone.
func TestValuesChangePods(t *testing.T) {
	// templates changes the pods of a program, or those that serve alone.
	templates := func(serving bool, change func(*corev1.PodTemplateSpec)) func([]client.Object) []client.Object {
		return func(objects []client.Object) []client.Object {
			for _, o := range objects {
				switch o := o.(type) {
				case *appsv1.Deployment:
					change(&o.Spec.Template)
				case *batchv1.Job:
					if !serving {
						change(&o.Spec.Template)
					}
				case *batchv1.CronJob:
					if !serving {
						change(&o.Spec.JobTemplate.Spec.Template)
					}
				}
			}
			return objects
		}
	}
	for name, c := range map[string]struct {
		values  map[string]any
		objects func([]client.Object) []client.Object
	}{
		"podAnnotations": {map[string]any{"podAnnotations": map[string]any{"a": "{{ b }}"}}, templates(false, func(p *corev1.PodTemplateSpec) {
			p.Annotations = map[string]string{"a": "{{ b }}"}
		})},
		"podLabels, which replace none of the program's own": {
			map[string]any{"podLabels": map[string]any{"a": "b", "app.kubernetes.io/component": "other", "eirinix.cloudfoundry.org/fingerprint": "other"}},
			templates(false, func(p *corev1.PodTemplateSpec) { p.Labels["a"] = "b" }),
		},
		"affinity": {
			map[string]any{"affinity": map[string]any{"podAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{"topologyKey": "{{ rack }}"}}}}},
			templates(true, func(p *corev1.PodTemplateSpec) {
				p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "{{ rack }}"}}}}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			rendersTo(t, program(t, split, audits, monitored), c.values, c.objects(program(t, split, audits, monitored)))
		})
	}
}

// What several replicas have in addition follows the bounds of the autoscaler, and replicas is its to write.
func TestAutoscaling(t *testing.T) {
	for name, c := range map[string]struct {
		values  map[string]any
		bounds  []int32
		objects []func(*input)
		budget  bool
	}{
		"as it is":              {map[string]any{"replicas": 1}, []int32{2, 10, 80}, nil, true},
		"with bounds":           {map[string]any{"autoscaling": map[string]any{"minReplicas": 3, "maxReplicas": 7, "targetCPUUtilizationPercentage": 50}}, []int32{3, 7, 50}, nil, true},
		"down to one":           {map[string]any{"autoscaling": map[string]any{"minReplicas": 1}}, []int32{1, 10, 80}, nil, false},
		"made for one, of one":  {map[string]any{"autoscaling": map[string]any{"minReplicas": 1, "maxReplicas": 1}}, []int32{1, 1, 80}, []func(*input){single}, false},
		"in another namespace":  {map[string]any{"namespace": "others"}, []int32{2, 10, 80}, []func(*input){func(o *input) { o.WebhookNamespace = "others" }}, true},
		"with labels in braces": {nil, []int32{2, 10, 80}, []func(*input){oddly}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g, values, changes := NewWithT(t), map[string]any{"autoscaling": map[string]any{}}, []func(*input){split, audits}
			maps.Copy(values, c.values)
			values["autoscaling"].(map[string]any)["enabled"] = true
			charted := changes
			if values["namespace"] == nil {
				charted = append(charted, c.objects...)
			}
			stream, err := render(t, program(t, charted...), values)
			g.Expect(err).NotTo(HaveOccurred())
			var want []client.Object
			for _, o := range program(t, append(changes, c.objects...)...) {
				if deployment, is := o.(*appsv1.Deployment); is {
					deployment.Spec.Replicas = nil
					want = append(want, &autoscalingv2.HorizontalPodAutoscaler{
						ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: deployment.Namespace, Labels: deployment.Labels},
						Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
							ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "greeter"},
							MinReplicas:    &c.bounds[0], MaxReplicas: c.bounds[1],
							Metrics: []autoscalingv2.MetricSpec{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{
								Name: "cpu", Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &c.bounds[2]},
							}}},
						},
					})
				}
				if _, is := o.(*policyv1.PodDisruptionBudget); !is || c.budget {
					want = append(want, o)
				}
			}
			same(t, plain(t, stream), written(t, want))
			g.Expect(stream).NotTo(MatchRegexp(`(?m)^  replicas:`), "not even null, which helm would write")
		})
	}
}

func memory(size string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(size)}}
}

func cpu(o *input) {
	o.Deployment.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
}

func TestTheMemoryOfGoFollowsTheLimit(t *testing.T) {
	env := func(o *input) { o.Deployment.Env = []corev1.EnvVar{{Name: "A", Value: "{{ b }}"}} }
	chosen := func(o *input) {
		o.Deployment.Env = []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "100MiB"}}
	}
	limited := func(o *input) { o.Deployment.Resources = memory("1Gi") }
	without := map[string]any{"limits": map[string]any{"cpu": "1", "memory": nil}, "requests": nil}
	for name, c := range map[string]struct {
		before    []func(*input)
		resources map[string]any
		after     func(*input)
	}{
		"no limit any more":                 {nil, without, cpu},
		"no limits any more":                {[]func(*input){limited}, map[string]any{"limits": nil, "requests": map[string]any{"cpu": "1"}}, requests},
		"no limit, and an environment":      {[]func(*input){env}, without, cpu},
		"a limit where there was none":      {[]func(*input){cpu}, map[string]any{"limits": map[string]any{"cpu": nil, "memory": "1Gi"}}, limited},
		"limits where there were none":      {[]func(*input){requests, env}, map[string]any{"limits": map[string]any{"memory": "1Gi"}, "requests": nil}, limited},
		"no limit, and a memory of its own": {[]func(*input){chosen}, without, cpu},
	} {
		t.Run(name, func(t *testing.T) {
			changes := append([]func(*input){split, audits}, c.before...)
			rendersTo(t, program(t, changes...), map[string]any{"resources": c.resources}, program(t, append(changes, c.after)...))
		})
	}
}

func requests(o *input) {
	o.Deployment.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
}

func TestObjectsOfTheUserStayAsTheyAre(t *testing.T) {
	own := []client.Object{&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: "webhooks"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))},
	}}
	for name, labels := range map[string]map[string]string{
		"own-register-1": nil,
		"own-audit":      {"app.kubernetes.io/name": "greeter", "app.kubernetes.io/component": "own"},
		"own":            {"app.kubernetes.io/name": "other", "app.kubernetes.io/component": "register"},
	} {
		own = append(own, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "webhooks", Labels: labels},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "own", Image: "registry.example.org/greeter:1", Args: []string{"{{ own }}"}}},
			}}},
		})
	}
	rendersTo(t, append(program(t, split, audits), own...), map[string]any{"replicas": 1, "image": "other:2"},
		append(program(t, split, audits, single, func(o *input) { o.Deployment.Image = "other:2" }), own...))
}

func TestAChangedValueMakesANewJob(t *testing.T) {
	g, names := NewWithT(t), map[string]bool{}
	for _, values := range []map[string]any{
		nil,
		{"image": "other:2"},
		{"registerArgs": []any{}},
		{"resources": map[string]any{"limits": map[string]any{"cpu": "1"}}},
		{"podLabels": map[string]any{"a": "b"}},
		{"replicas": 3},
		{"autoscaling": map[string]any{"enabled": true}},
		{"affinity": map[string]any{"nodeAffinity": map[string]any{}}},
		{"args": []any{"serve", "-v"}},
		{"global": map[string]any{"a": "b"}},
	} {
		stream, err := render(t, program(t, split), values)
		g.Expect(err).NotTo(HaveOccurred())
		names[regexp.MustCompile(`greeter-register-[0-9a-f]{8}\b`).FindString(stream)] = true
	}
	g.Expect(names).To(And(HaveLen(5), Not(HaveKey(""))), "the number of replicas, among others, is none of the Job's business")
	// A chart that is made again replaces the old one with the same values.
	stream, err := render(t, program(t, split, func(o *input) { o.Deployment.Env = []corev1.EnvVar{{Name: "A", Value: "b"}} }), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names).NotTo(HaveKey(regexp.MustCompile(`greeter-register-[0-9a-f]{8}\b`).FindString(stream)), "an option that is no value")
}

// A user's own affinity holds for one replica, too.
func TestAnAffinityOfTheUserStays(t *testing.T) {
	objects := program(t, single)
	for _, object := range objects {
		if deployment, is := object.(*appsv1.Deployment); is {
			deployment.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}},
			}}
		}
	}
	rendersTo(t, objects, map[string]any{"global": map[string]any{"region": "eu"}}, objects) // which a parent chart can set
}

func TestTheSchemaRefusesWhatIsNoValue(t *testing.T) {
	limits := func(limits any) any { return map[string]any{"limits": limits} }
	for name, of := range map[string]struct {
		value string
		is    any
		names string
	}{
		"no such value":               {"imag", "typo", "imag"},
		"no replica":                  {"replicas", 0, "replicas"},
		"half a replica":              {"replicas", 1.5, "replicas"},
		"too many replicas":           {"replicas", 3e9, "replicas"},
		"arguments as text":           {"args", "serve -v", "args"},
		"a number as argument":        {"args", []any{1}, "args"},
		"no name":                     {"namespace", "No Name", "namespace"},
		"no image":                    {"image", "", "image"},
		"spaces in the image":         {"image", "greeter: 1", "image"},
		"no audit":                    {"auditArgs", []any{}, "auditArgs"},
		"no such resources":           {"resources", map[string]any{"limit": map[string]any{"memory": "1Gi"}}, "resources"},
		"no quantity":                 {"resources", limits(map[string]any{"memory": "lots"}), "memory"},
		"less than nothing":           {"resources", limits(map[string]any{"cpu": -1}), "cpu"},
		"a Secret as text":            {"imagePullSecrets", []any{"registry"}, "imagePullSecrets"},
		"a number as a node's label":  {"nodeSelector", map[string]any{"a": 1}, "nodeSelector"},
		"no such toleration":          {"tolerations", []any{map[string]any{"keys": "a"}}, "tolerations"},
		"no such affinity":            {"affinity", map[string]any{"node": map[string]any{}}, "affinity"},
		"a number as annotation":      {"podAnnotations", map[string]any{"a": 1}, "podAnnotations"},
		"true as a label":             {"podLabels", map[string]any{"a": true}, "podLabels"},
		"a number as class":           {"priorityClassName", 1, "priorityClassName"},
		"a variable without a name":   {"env", []any{map[string]any{"value": "a"}}, "env"},
		"no such field of a variable": {"env", []any{map[string]any{"name": "A", "valu": "a"}}, "env"},
		"no such bound":               {"autoscaling", map[string]any{"min": 1}, "autoscaling"},
		"nothing to scale to":         {"autoscaling", map[string]any{"minReplicas": 0}, "minReplicas"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, program(t), map[string]any{of.value: of.is})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(of.names)))
		})
	}
}

func TestTheSchemaTakesQuantities(t *testing.T) {
	for _, quantity := range []any{1, 0.5, "1", "100m", "1.5", ".5", "512Mi", "1e3", "2E"} {
		_, err := render(t, program(t), map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": quantity, "example.org/gpu": 1}}})
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), fmt.Sprint(quantity))
	}
}

func TestHelmFindsNothingToComplainOf(t *testing.T) {
	g, dir := NewWithT(t), filepath.Join(t.TempDir(), "greeter") // helm wants the name of the chart
	g.Expect(manifests.Chart(dir, program(t, split, audits)...)).To(Succeed())
	for _, m := range lint.All(dir, nil, "webhooks", true).Messages {
		if !strings.Contains(m.Error(), "icon is recommended") {
			t.Error(m)
		}
	}
}

func TestTheBaseBuildsToTheObjects(t *testing.T) {
	for name, changes := range programs {
		t.Run(name, func(t *testing.T) {
			g, objects, dir := NewWithT(t), program(t, changes...), t.TempDir()
			g.Expect(manifests.Kustomization(dir, objects...)).To(Succeed())
			same(t, plain(t, build(t, dir)), written(t, objects))
		})
	}
}

func TestAnOverlayMovesTheBase(t *testing.T) {
	page, err := os.ReadFile("../../docs/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	overlay := regexp.MustCompile("(?s)```yaml\n(resources: .*?)```").FindSubmatch(page)
	if overlay == nil {
		t.Fatal("docs/gitops.md shows no overlay")
	}
	for name, changes := range map[string][]func(*input){"plain": {audits, monitored}, "split": {split, audits, monitored}} {
		t.Run(name, func(t *testing.T) {
			g, dir := NewWithT(t), t.TempDir()
			g.Expect(manifests.Kustomization(filepath.Join(dir, "base"), program(t, changes...)...)).To(Succeed())
			g.Expect(os.Mkdir(filepath.Join(dir, "overlay"), 0o700)).To(Succeed())
			text := strings.ReplaceAll(string(overlay[1]), "deploy-example", "greeter")
			if name == "split" { // the half that registers has the right
				text = strings.ReplaceAll(text, "eirinix:greeter", "eirinix:greeter:register")
			}
			g.Expect(os.WriteFile(filepath.Join(dir, "overlay", "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
			same(t, plain(t, build(t, filepath.Join(dir, "overlay"))), written(t, program(t, append(changes, func(o *input) {
				o.WebhookNamespace, o.Deployment.Image = "others", "registry.example.org/greeter:2"
			})...)))
		})
	}
}

func build(t *testing.T, dir string) string {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnAPIServerTakesTheChartAndItsChanges(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	plane := eirinixtest.StartControlPlane(t, eirinixtest.Shared)
	c, err := client.New(plane.Config(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "webhooks"}}))).To(Succeed())
	apply := func(values map[string]any, changes ...func(*input)) (versions []string) {
		stream, err := render(t, program(t, append([]func(*input){split, audits, oddly}, changes...)...), values)
		g.Expect(err).NotTo(HaveOccurred())
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(stream, -1) {
			object := &unstructured.Unstructured{}
			if g.Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed()); len(object.Object) == 0 {
				continue
			}
			g.Expect(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"))).To(Succeed(), document)
			versions = append(versions, fmt.Sprint(object.GetKind(), " ", object.GetName(), " ", object.GetResourceVersion()))
		}
		slices.Sort(versions)
		return versions
	}
	first := apply(nil)
	g.Expect(len(first)).To(BeNumerically(">", 10))
	g.Expect(apply(nil)).To(Equal(first))
	for _, values := range []map[string]any{
		nil,
		{"replicas": 1},
		{"resources": map[string]any{"limits": nil}},
		{"autoscaling": map[string]any{"enabled": true}},
		{"imagePullSecrets": []any{map[string]any{"name": "a"}}, "tolerations": []any{map[string]any{"operator": "Exists"}}, "podLabels": map[string]any{"a": "b"}},
	} {
		g.Expect(apply(values, func(o *input) { o.Deployment.Env = []corev1.EnvVar{{Name: "A", Value: "b"}} })).NotTo(BeEmpty())
	}
}
