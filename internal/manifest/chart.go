package manifest

// This file makes a Helm chart of objects. Each object is YAML in which a few values are replaced by expressions.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The names of the values of a chart.
const (
	valueImage        = "image"
	valueNamespace    = "namespace"
	valueReplicas     = "replicas"
	valueResources    = "resources"
	valueArgs         = "args"
	valueRegisterArgs = "registerArgs"
	valueAuditArgs    = "auditArgs"
)

// chart is a chart that is being made.
type chart struct {
	values      map[string]any
	expressions map[string]string // by the token that stands for them in YAML
	deployment  map[string]any
}

// Chart returns the files of a Helm chart, by their paths. With its own values it renders to the objects, which must hold
// one Deployment. The name of a Job, which ends in a hash of what the Job is, ends in another one.
func Chart(objects ...client.Object) (map[string][]byte, error) {
	trees, err := treesOf(objects...)
	if err != nil {
		return nil, err
	}
	c := &chart{values: map[string]any{}, expressions: map[string]string{}}
	for _, tree := range trees {
		if tree["kind"] != "Deployment" {
			continue
		}
		if c.deployment != nil {
			return nil, fmt.Errorf("there are two Deployments, %q and %q; a chart is of one program", nameOf(c.deployment), nameOf(tree))
		}
		c.deployment = tree
	}
	if c.deployment == nil {
		return nil, errors.New("there is no Deployment among the objects; give those that Manifests returns")
	}
	c.readValues(trees)
	files := map[string][]byte{}
	for file, tree := range filesOf(trees) {
		text, err := c.template(tree)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		files[path.Join("templates", file)] = text
	}
	name := nameOf(c.deployment)
	files["Chart.yaml"] = fmt.Appendf(nil, "%s\napiVersion: v2\nname: %s\ndescription: The admission webhook %s, with the rights that it needs.\ntype: application\n"+
		"version: 0.1.0 # helm package --version sets another one\n", madeForHelm, name, name)
	files["values.yaml"], files["values.schema.json"] = c.valuesFile(), c.schema()
	files["templates/NOTES.txt"] = fmt.Appendf(nil, "{{/* %s */}}\n%s is in Namespace {{ .Values.namespace }}. It registers its webhooks when it runs.\n"+
		"Its log says whether the API server calls it:\n  kubectl logs -n {{ .Values.namespace }} deployment/%s\n", strings.TrimPrefix(madeForHelm, "# "), name, name)
	return files, nil
}

// valueAt returns the value at a path, to be changed in place; the zero value if there is none of that type.
func valueAt[T any](tree map[string]any, fields ...string) T {
	found, _, _ := unstructured.NestedFieldNoCopy(tree, fields...)
	value, _ := found.(T)
	return value
}

func member(tree map[string]any, fields ...string) map[string]any {
	return valueAt[map[string]any](tree, fields...)
}

// containerOf returns the first container of a workload, to be changed in place; nil if there is none.
func containerOf(tree map[string]any) map[string]any {
	at := map[string][]string{
		"Deployment": {"spec", "template", "spec"}, "Job": {"spec", "template", "spec"},
		"CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
	}[fmt.Sprint(tree["kind"])]
	list := valueAt[[]any](tree, append(at, "containers")...)
	if len(at) == 0 || len(list) == 0 {
		return nil
	}
	first, _ := list[0].(map[string]any)
	return first
}

// argsValue returns the value that holds the arguments of a workload, or "" for a workload that the user has added.
func (c *chart) argsValue(tree map[string]any) string {
	if tree["kind"] == "Deployment" {
		return valueArgs
	}
	labels, program := member(tree, "metadata", "labels"), member(c.deployment, "metadata", "labels")
	if labels[LabelName] == program[LabelName] {
		switch labels[LabelComponent] {
		case component{half: Registering}.label():
			return valueRegisterArgs
		case component{half: Auditing}.label():
			return valueAuditArgs
		}
	}
	return ""
}

// readValues takes the values from the objects.
func (c *chart) readValues(trees []map[string]any) {
	c.values[valueNamespace] = member(c.deployment, "metadata")["namespace"]
	c.values[valueReplicas] = member(c.deployment, "spec")["replicas"]
	if first := containerOf(c.deployment); first != nil {
		c.values[valueImage], c.values[valueResources] = first["image"], cmp.Or[any](first["resources"], map[string]any{})
	}
	for _, tree := range trees {
		if first, value := containerOf(tree), c.argsValue(tree); value != "" && first != nil {
			c.values[value] = cmp.Or[any](first["args"], []any{})
		}
	}
}

// stands returns a token that stands for an expression.
func (c *chart) stands(expression string) string {
	token := fmt.Sprintf("EIRINIX-VALUE-%d-", len(c.expressions))
	c.expressions[token] = expression
	return token
}

func (c *chart) stand(value string) string { return c.stands("{{ toJson .Values." + value + " }}") }

const (
	severalReplicas = "{{ if gt (int .Values.replicas) 1 }}"
	memoryLimited   = "{{ if hasKey (.Values.resources.limits | default dict) \"memory\" }}"
)

// jobName returns the name of a Job with another hash. It changes with the values that the Job's template depends on, and
// with the old hash for everything else, because a template cannot be changed.
func jobName(name string) string {
	before, old := name[:len(name)-hashLength], name[len(name)-hashLength:]
	return fmt.Sprintf("%s{{ list %q .Values.image .Values.namespace .Values.resources .Values.registerArgs | toJson | sha256sum | trunc %d }}", escape(before), old, hashLength)
}

// jsonOf returns JSON, which is YAML too, of what treesOf returns, of a part, or of a type of the API.
func jsonOf(tree any) string {
	text, _ := json.Marshal(tree) // none of them fails
	return string(text)
}

// container replaces the values in a container of the program.
func (c *chart) container(container map[string]any, args string) error {
	container["image"], container["resources"], container["args"] = c.stand(valueImage), c.stand(valueResources), c.stand(args)
	var own []corev1.EnvVar
	if err := json.Unmarshal([]byte(jsonOf(container["env"])), &own); err != nil {
		return err
	}
	limited := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: {}}}
	if derived := environment(nil, limited); len(own) >= len(derived) && equality.Semantic.DeepEqual(own[:len(derived)], derived) {
		own = append([]corev1.EnvVar(nil), own[len(derived):]...) // nil if there are no more
	}
	if with, without := jsonOf(environment(own, limited)), jsonOf(own); with != without { // otherwise the user has chosen
		container["env"] = c.stands(memoryLimited + escape(with) + "{{ else }}" + escape(without) + "{{ end }}")
	}
	return nil
}

// template returns an object as a template. The tree is changed.
func (c *chart) template(tree map[string]any) ([]byte, error) {
	c.replaceNamespace(tree)
	args := c.argsValue(tree)
	if first := containerOf(tree); args != "" && first != nil {
		if err := c.container(first, args); err != nil {
			return nil, err
		}
	}
	switch tree["kind"] {
	case "Deployment":
		member(tree, "spec")["replicas"] = c.stands("{{ int .Values.replicas }}")
		pod := member(tree, "spec", "template", "spec")
		for _, field := range []string{"affinity", "topologySpreadConstraints"} { // which spread several replicas
			if pod[field] == nil || fmt.Sprint(c.values[valueReplicas]) == "1" {
				continue
			}
			pod[field] = c.stands(severalReplicas + escape(jsonOf(pod[field])) + "{{ else }}null{{ end }}")
		}
	case "Job":
		if name := nameOf(tree); args == valueRegisterArgs && strings.Contains(name, registerInfix) {
			member(tree, "metadata")["name"] = c.stands(jobName(name))
		}
	}
	written := escape(string(textOf(tree)))
	for token, expression := range c.expressions {
		written = strings.ReplaceAll(written, token, expression)
	}
	if tree["kind"] == "PodDisruptionBudget" && nameOf(tree) == nameOf(c.deployment) { // with a single replica, it would never allow a node to be drained
		written = severalReplicas + "\n" + written + "{{ end }}\n"
	}
	return append([]byte(madeForHelm+"\n"), written...), nil
}

// replaceNamespace replaces the namespace of the program: that of the object, of accounts in bindings, and in rights.
func (c *chart) replaceNamespace(tree map[string]any) {
	members := []map[string]any{member(tree, "metadata")}
	for _, s := range valueAt[[]any](tree, "subjects") {
		if m, ok := s.(map[string]any); ok {
			members = append(members, m)
		}
	}
	for _, r := range valueAt[[]any](tree, "rules") { // a right on the namespace itself
		rule, _ := r.(map[string]any)
		names := valueAt[[]any](rule, "resourceNames")
		for i, name := range names {
			if name == c.values[valueNamespace] && slices.Contains(valueAt[[]any](rule, "resources"), any("namespaces")) {
				names[i] = c.stand(valueNamespace)
			}
		}
	}
	for _, m := range members {
		if m["namespace"] == c.values[valueNamespace] {
			m["namespace"] = c.stand(valueNamespace)
		}
	}
}

// escape returns text that a template renders to the text.
func escape(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

// The schemas of resources, and of the quantities of requests and limits.
const (
	quantitiesSchema = `{"type": "object", "additionalProperties": {"type": ["string", "number"], "minimum": 0,
		"pattern": "^([0-9]+[.]?[0-9]*|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"}}`
	resourcesSchema = `{"type": "object", "additionalProperties": false, "properties": {
		"limits": ` + quantitiesSchema + `, "requests": ` + quantitiesSchema + `, "claims": {"type": "array", "items": {"type": "object"}}}}`
)

// about documents the values, in the order of the file.
var about = []struct{ name, comment, schema string }{
	{valueImage, "The image that holds the program.", `{"type": "string", "pattern": "^[^\\s]+$"}`},
	{valueNamespace, "The namespace that the program runs in. It must exist. If the program takes it as a flag, change args too.", `{"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}`},
	{valueReplicas, "The number of pods that serve.", `{"type": "integer", "minimum": 1, "maximum": 2147483647}`},
	{valueResources, "Requests and limits of the container. GOMEMLIMIT follows the memory limit.", resourcesSchema},
	{valueArgs, "The arguments of the pods that serve.", `{"type": "array", "items": {"type": "string"}}`},
	{valueRegisterArgs, "The arguments of the Jobs that register.", `{"type": "array", "items": {"type": "string"}}`},
	{valueAuditArgs, "The arguments of the CronJob that audits.", `{"type": "array", "items": {"type": "string"}}`},
}

func (c *chart) valuesFile() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, madeForHelm)
	for _, v := range about {
		if value, has := c.values[v.name]; has {
			fmt.Fprintf(&b, "\n# %s\n%s", v.comment, textOf(map[string]any{v.name: value}))
		}
	}
	return b.Bytes()
}

// schema returns the schema that helm checks values with. It refuses values that the chart does not have.
func (c *chart) schema() []byte {
	properties := map[string]any{"global": map[string]any{}} // which helm sets in subcharts
	for _, v := range about {
		if _, has := c.values[v.name]; has {
			property := map[string]any{"description": v.comment}
			_ = json.Unmarshal([]byte(v.schema), &property) // a constant
			properties[v.name] = property
		}
	}
	required := slices.Sorted(maps.Keys(c.values))
	text, _ := json.MarshalIndent(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "$comment": strings.TrimPrefix(madeForHelm, "# "), "type": "object",
		"properties": properties, "required": required, "additionalProperties": false,
	}, "", "  ")
	return append(text, '\n')
}
