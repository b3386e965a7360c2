package patch_test

// This file specifies, with random objects, that a patch makes the wanted object, and that each item keeps what only raw knows.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// A potter makes random pods, and changes them at random.
type potter struct {
	*rand.Rand
	serial  int
	renamed map[string]bool // lists in which an item has been renamed
	shaped  map[string]bool // lists whose items have come, gone or moved
	doubled bool            // there are two variables of one name
}

func newPotter(seed uint64) *potter {
	return &potter{Rand: rand.New(rand.NewPCG(seed, 7)), renamed: map[string]bool{}, shaped: map[string]bool{}}
}

func (r *potter) name(prefix string) string {
	r.serial++
	return fmt.Sprintf("%s-%d", prefix, r.serial)
}

func (r *potter) maybe() bool { return r.IntN(2) == 0 }

func (r *potter) strings(prefix string) map[string]string {
	m := map[string]string{}
	for range r.IntN(4) {
		m[r.name(prefix+"/~")] = r.name("<value> & more")
	}
	return m
}

func (r *potter) quantities() corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprintf("%dm", 100*r.IntN(30))), "memory": resource.MustParse(fmt.Sprintf("%dMi", 256*(1+r.IntN(8))))}
}

func (r *potter) env() corev1.EnvVar {
	e := corev1.EnvVar{Name: r.name("ENV"), Value: "v"}
	switch r.IntN(4) {
	case 0:
		e.Value = ""
		e.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	case 1:
		e.Value = ""
		e.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k", Optional: ptr.To(r.maybe())}}
	}
	return e
}

func (r *potter) container() corev1.Container {
	c := corev1.Container{Name: r.name("c"), Image: r.name("image"), Args: []string{"a", "b", "a"}[:r.IntN(4)]}
	for range r.IntN(5) {
		c.Env = append(c.Env, r.env())
	}
	for range r.IntN(3) {
		r.serial++
		c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: int32(1000 + r.serial), Protocol: "TCP"})
	}
	for range r.IntN(3) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: r.name("/m")})
	}
	if r.maybe() {
		c.Resources.Limits = r.quantities()
	}
	if r.maybe() {
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}}
	}
	if r.maybe() {
		c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(r.maybe())}
	}
	return c
}

func (r *potter) volume() corev1.Volume {
	v := corev1.Volume{Name: r.name("v")}
	if r.maybe() {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1024Mi"))}
	} else {
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{}}}}
	}
	return v
}

func (r *potter) toleration() corev1.Toleration {
	return corev1.Toleration{Key: r.name("t"), Operator: "Exists", TolerationSeconds: ptr.To(int64(r.IntN(100)))}
}

func (r *potter) pod() *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: r.strings("l"), Annotations: r.strings("a")},
	}
	if r.maybe() {
		p.CreationTimestamp = metav1.Unix(1e9, 0)
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:a":{".":{}}}`)}}}
	}
	for range 1 + r.IntN(4) {
		p.Spec.Containers = append(p.Spec.Containers, r.container())
	}
	for range r.IntN(3) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, r.container())
	}
	for range r.IntN(4) {
		p.Spec.Volumes = append(p.Spec.Volumes, r.volume())
	}
	for range r.IntN(4) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, r.toleration())
	}
	if r.maybe() {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(9007199254740993))}
	}
	if r.maybe() {
		p.Spec.NodeSelector = r.strings("n")
	}
	return p
}

// shape inserts, removes or moves items.
func shape[T any](r *potter, list string, items []T, fresh func() T) []T {
	if r.renamed[list] {
		return items
	}
	r.shaped[list] = true
	items = slices.Clone(items)
	switch n := r.IntN(6); {
	case n < 2 || len(items) == 0:
		items = slices.Insert(items, r.IntN(len(items)+1), fresh())
	case n == 2:
		items = append(items, fresh())
	case n == 3:
		at := r.IntN(len(items))
		items = slices.Delete(items, at, at+1)
	case n == 4:
		r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	default:
		i, j := r.IntN(len(items)), r.IntN(len(items))
		items[i], items[j] = items[j], items[i]
	}
	return items
}

// edit changes something, somewhere; which kind of change is up to the caller.
func (r *potter) edit(p *corev1.Pod, kind byte) {
	lists := []*[]corev1.Container{&p.Spec.Containers, &p.Spec.Containers, &p.Spec.InitContainers}
	list := r.IntN(len(lists))
	listName := []string{"containers", "containers", "initContainers"}[list]
	cs := lists[list]
	var c *corev1.Container
	if len(*cs) > 0 {
		c = &(*cs)[r.IntN(len(*cs))]
	}
	switch kind % 16 {
	case 0:
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[r.name("a/~1")] = "added"
		for k := range p.Annotations {
			if r.maybe() {
				p.Annotations[k] += "!"
			}
		}
	case 1:
		p.Labels = nil
	case 2, 3:
		*cs = shape(r, listName, *cs, r.container)
	case 4:
		p.Spec.Volumes = shape(r, "volumes", p.Spec.Volumes, r.volume)
	case 5:
		p.Spec.Tolerations = shape(r, "tolerations", p.Spec.Tolerations, r.toleration)
	case 6:
		if len(p.Spec.Tolerations) > 0 && !r.shaped["tolerations"] {
			r.renamed["tolerations"] = true
			p.Spec.Tolerations[r.IntN(len(p.Spec.Tolerations))].Value = r.name("x")
		}
	case 7:
		p.Spec.SecurityContext = nil
		p.Spec.NodeSelector = map[string]string{"only": "this"}
	case 8:
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
		p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(r.IntN(3)))
	}
	if c == nil {
		return
	}
	in := listName + "/" + c.Name + "/"
	switch kind % 16 {
	case 9:
		if r.shaped[listName] {
			return
		}
		r.renamed[listName] = true
		c.Name = r.name("renamed")
	case 10:
		c.Image = r.name("image")
		c.Args = shape(r, in+"args", c.Args, func() string { return "c" })
	case 11, 12:
		switch {
		case r.doubled:
		case len(c.Env) > 0 && r.IntN(6) == 0:
			r.doubled = true // from here on, no variable may change its place among those of its name
			again := c.Env[r.IntN(len(c.Env))]
			again.Value = "again"
			c.Env = append(c.Env, again)
		default:
			c.Env = shape(r, in+"env", c.Env, r.env)
		}
	case 13:
		if len(c.Env) > 0 {
			c.Env[r.IntN(len(c.Env))].Value = "changed"
		}
		c.Ports = shape(r, in+"ports", c.Ports, func() corev1.ContainerPort {
			r.serial++
			return corev1.ContainerPort{ContainerPort: int32(1000 + r.serial)}
		})
	case 14:
		c.Resources.Limits = r.quantities()
		c.Resources.Requests = nil
		c.VolumeMounts = shape(r, in+"mounts", c.VolumeMounts, func() corev1.VolumeMount { return corev1.VolumeMount{MountPath: r.name("/m")} })
	case 15:
		if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet == nil {
			c.SecurityContext = nil
			c.LivenessProbe = &corev1.Probe{}
			return
		}
		c.LivenessProbe.HTTPGet.Port = intstr.FromString("http")
		c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
	}
}

// identities are the members by which items of a list are known, for the lists that the potter makes.
var identities = map[string]string{
	"containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "ports": "containerPort", "volumeMounts": "mountPath",
}

// opaque members hold no objects of a Go type.
var opaque = map[string]bool{
	"labels": true, "annotations": true, "nodeSelector": true, "limits": true, "requests": true, "fieldsV1": true,
}

// visit calls f for every object that is a Go struct, with the path of names that identify it wherever it moves.
func visit(v any, path string, f func(path string, object map[string]any)) {
	object, ok := v.(map[string]any)
	if !ok {
		return
	}
	f(path, object)
	for name, member := range object {
		if opaque[name] {
			continue
		}
		at := path + "/" + name
		if items, ok := member.([]any); ok {
			seen := map[string]int{}
			for _, item := range items {
				id := identity(name, item)
				seen[id]++
				visit(item, fmt.Sprintf("%s[%s#%d]", at, id, seen[id]), f)
			}
			continue
		}
		visit(member, at, f)
	}
}

func identity(list string, item any) string {
	object, ok := item.(map[string]any)
	if !ok {
		return ""
	}
	if key := identities[list]; key != "" {
		return fmt.Sprint(object[key])
	}
	text, _ := json.Marshal(known(item))
	return string(text)
}

// known is a tree without planted members.
func known(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, member := range v {
			if !strings.HasPrefix(k, "x-") {
				out[k] = known(member)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = known(item)
		}
		return out
	}
	return v
}

// arrive turns a pod into JSON as it might come from an API server of another version than our types: with members that they
// do not know at every level, without some that they always write, and with some that they never do.
func (r *potter) arrive(p *corev1.Pod) (raw []byte, planted map[string]bool) {
	tree := treeOf(p)
	spec := tree["spec"].(map[string]any)
	if r.maybe() {
		delete(tree, "status")
		for _, c := range spec["containers"].([]any) {
			if res := c.(map[string]any)["resources"].(map[string]any); len(res) == 0 {
				delete(c.(map[string]any), "resources")
			}
		}
	}
	if r.maybe() {
		spec["hostNetwork"], spec["nodeName"], spec["overhead"], spec["imagePullSecrets"] = false, "", nil, []any{}
	}
	planted = map[string]bool{}
	visit(tree, "", func(path string, object map[string]any) {
		planted[path] = true
		object["x-unknown"] = path
	})
	raw, _ = json.Marshal(tree)
	if r.IntN(4) == 0 {
		raw, _ = json.MarshalIndent(tree, "", "\t")
	}
	return raw, planted
}

func treeOf(v any) map[string]any {
	text, _ := json.Marshal(v)
	var tree map[string]any
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		panic(err)
	}
	return tree
}

// tally counts members that only raw knew, over many patches.
type tally struct{ patched, kept, lost, misplaced int }

// try makes a random pod, has it edited, and checks everything that must be true of the patch.
func try(seed uint64, script []byte, sum *tally) error {
	r := newPotter(seed)
	raw, planted := r.arrive(r.pod())
	before, err := decode[corev1.Pod](raw)
	if err != nil {
		return err
	}
	after := before.DeepCopy()
	for _, kind := range script {
		r.edit(after, kind)
	}
	ops, err := patch.Diff(raw, &before, after)
	if err != nil {
		return fmt.Errorf("diff: %w", err)
	}
	text := patch.AppendJSON(nil, ops)
	applied, err := apply(raw, text)
	if err != nil {
		return fmt.Errorf("apply: %w\n%s", err, text)
	}
	made, err := patch.Compare(raw, jsontext.Index{}, &before, after)
	if err != nil {
		return err
	}
	if !made.Is(ops) {
		return fmt.Errorf("two patches of one change differ: %s", text)
	}
	if seed%2 == 0 {
		if err := agrees(raw, text, made.Apply); err != nil {
			return err
		}
	}
	want, err := becomes(applied, after, text)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before, want) && ops != nil {
		return fmt.Errorf("operations without a change: %s", text)
	}
	if len(ops) > 0 {
		sum.patched++
	}
	var tree map[string]any
	if err := json.Unmarshal(applied, &tree); err != nil {
		return err
	}
	return survey(tree, treeOf(after), planted, sum, string(text))
}

// becomes compares the result of a patch with the wanted pod as an API server stores it, which it returns.
func becomes(applied []byte, wanted *corev1.Pod, text []byte) (want corev1.Pod, err error) {
	have, err := decode[corev1.Pod](applied)
	if err != nil {
		return want, err
	}
	plain, err := json.Marshal(wanted)
	if err != nil {
		return want, err
	}
	if want, err = decode[corev1.Pod](plain); err == nil && !equality.Semantic.DeepEqual(have, want) {
		err = fmt.Errorf("the patch\n%s\ngives\n%s\ninstead of\n%s", text, applied, plain)
	}
	return want, err
}

// survey looks for the planted members: each must stand where its object is now.
func survey(applied, after map[string]any, planted map[string]bool, sum *tally, text string) error {
	survivors := map[string]bool{}
	visit(after, "", func(path string, _ map[string]any) { survivors[path] = planted[path] })
	seen := map[string]bool{}
	var problems []string
	visit(applied, "", func(path string, object map[string]any) {
		origin, ok := object["x-unknown"].(string)
		switch {
		case ok && seen[origin]:
			sum.misplaced++
			problems = append(problems, "twice: "+origin)
		case ok && origin == path:
			sum.kept++
		case ok && survivors[origin]:
			sum.misplaced++
			problems = append(problems, origin+" found at "+path)
		case !ok && survivors[path]:
			sum.lost++
			problems = append(problems, "lost: "+path)
		}
		seen[origin] = seen[origin] || ok
	})
	if problems != nil {
		return fmt.Errorf("%s\nafter %s", strings.Join(problems, "\n"), text)
	}
	return nil
}

var _ = It("Random pods lose nothing and mix nothing up, in hundreds of edits", Label("sequential"), func() {
	runs := 400
	if os.Getenv("EIRINIX_SOAK") != "" {
		runs = 100_000
	}
	var sum tally
	for seed := range uint64(runs) {
		r := newPotter(seed + 1e6)
		script := make([]byte, r.IntN(7)) // none needs no patch
		for i := range script {
			script[i] = byte(r.IntN(16))
		}
		Expect(try(seed, script, &sum)).To(Succeed(), "seed %d, script %v", seed, script)
	}
	Expect(sum.lost).To(BeZero())
	Expect(sum.misplaced).To(BeZero())
	Expect(sum.patched).To(BeNumerically(">", runs*3/4))
	Expect(sum.kept).To(BeNumerically(">", runs*10))
})

func FuzzDiffPodEdits(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(seed, []byte{byte(seed), byte(seed + 5), byte(seed * 3)})
	}
	f.Fuzz(func(t *testing.T, seed uint64, script []byte) {
		if err := try(seed, script[:min(len(script), 24)], &tally{}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzDiffRaw takes any two documents as a pod before and after a change.
func FuzzDiffRaw(f *testing.F) {
	for seed := range uint64(16) {
		r := newPotter(seed)
		p := r.pod()
		raw, _ := r.arrive(p)
		r.edit(p, byte(seed))
		r.edit(p, byte(seed+3))
		other, _ := r.arrive(p)
		f.Add(raw, other)
	}
	f.Add([]byte(`{"spec":{"containers":[{"name":"a"},null]}}`), []byte(`{"spec":{"containers":[{"name":"b","args":["\ud800"]},{}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"a":null,"":"x"}},"metadata":{}}`), []byte(`{"metadata":{"labels":{"a\/b":"~"}}}`))
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		before, err := decode[corev1.Pod](raw)
		if err != nil {
			before = corev1.Pod{} // whatever it is, it must not make us panic
		}
		after, errAfter := decode[corev1.Pod](other)
		if errAfter != nil {
			return
		}
		ops, errDiff := patch.Diff(raw, &before, &after)
		if err != nil || errDiff != nil {
			mayFail(t, errDiff)
			return
		}
		text := patch.AppendJSON(nil, ops)
		applied, err := apply(raw, text)
		if err != nil {
			t.Fatalf("%v\n%s\non %s", err, text, raw)
		}
		plain, err := json.Marshal(&after)
		if _, errAgain := decode[corev1.Pod](plain); err != nil || errAgain != nil {
			return // no API server stores that
		}
		if _, err := becomes(applied, &after, text); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzDiffTrees does the same without types: the result must be the other document, member for member.
func FuzzDiffTrees(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"name":"x","v":1}],"b":{"c":null}}`), []byte(`{"a":[{"name":"x","v":2},1,2.5],"b":{"c":{}}}`))
	f.Add([]byte(`{"a":[1,2,3,4,5]}`), []byte(`{"a":[5,4,3,2,1,0]}`))
	f.Add([]byte(`{"a~b":{"/":[]},"":""}`), []byte(`{"a~b":{"/":[null,[]]},"":{"":0}}`))
	f.Add([]byte(`{"i":[{"name":"a","n":1},{"name":"a","n":2},{"name":"b"}]}`), []byte(`{"i":[{"name":"b","x":1e3},{"name":"a","n":2}]}`))
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		var before, after unstructured.Unstructured
		if json.Unmarshal(raw, &before.Object) != nil || json.Unmarshal(other, &after.Object) != nil {
			return
		}
		ops, err := patch.Diff(raw, &before, &after)
		if err != nil {
			mayFail(t, err)
			return
		}
		text := patch.AppendJSON(nil, ops)
		applied, err := apply(raw, text)
		if err != nil {
			t.Fatalf("%v\n%s\non %s", err, text, raw)
		}
		var have map[string]any
		if err := json.Unmarshal(applied, &have); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(have, after.Object) {
			t.Fatalf("the patch\n%s\non\n%s\ngives\n%s\ninstead of\n%s", text, raw, applied, other)
		}
	})
}

// mayFail allows the errors that are promised, and none but those.
func mayFail(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, patch.ErrMismatch) && !errors.Is(err, patch.ErrDuplicate) && !errors.Is(err, jsontext.ErrSyntax) {
		t.Fatalf("unexpected kind of error: %v", err)
	}
}
