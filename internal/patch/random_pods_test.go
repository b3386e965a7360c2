package patch_test

// This file makes random pods, and JSON of them with members that no type knows.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
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
	return corev1.ResourceList{
		"cpu":    resource.MustParse(fmt.Sprintf("%dm", 100*r.IntN(30))),
		"memory": resource.MustParse(fmt.Sprintf("%dMi", 256*(1+r.IntN(8)))),
	}
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
