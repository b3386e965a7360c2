package manifests

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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/rights"
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
	valueAffinity     = "affinity"
	valueEnv          = "env"
)

// chart is a chart that is being made.
type chart struct {
	values      map[string]any
	expressions map[string]string // by the token that stands for them in YAML
	deployment  map[string]any
}

// Chart writes objects into a folder as a Helm chart, in the way of Kustomization. There must be one Deployment, that of
// Of. With its own values, the chart renders to the objects. docs/gitops.md lists the values, among them a
// HorizontalPodAutoscaler that is off. The name of a Job ends in a hash of the values, because a Job cannot be changed.
//
// What several replicas have in addition, such as a PodDisruptionBudget, is in the chart only if the objects are for
// several replicas.
func Chart(dir string, objects ...client.Object) error {
	return named("Chart", writeFolder(dir, forHelm, helmChart, objects))
}

// helmChart returns the files of a Helm chart, by their paths. With its own values it renders to the objects, which must hold
// one Deployment. The name of a Job, which ends in a hash of what the Job is, ends in another one.
func helmChart(objects ...client.Object) (map[string][]byte, error) {
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
		return nil, errors.New("there is no Deployment among the objects; give those that manifests.Of returns")
	}
	c.readValues(trees)
	files := map[string][]byte{}
	for file, tree := range filesOf(trees) {
		files[path.Join("templates", file)] = c.template(tree)
	}
	name := nameOf(c.deployment)
	files["Chart.yaml"] = fmt.Appendf(nil, "%s\napiVersion: v2\nname: %s\ndescription: The admission webhook %s, with the rights that it needs.\ntype: application\n"+
		"version: 0.1.0 # helm package --version sets another one\n", forHelm, name, name)
	files["values.yaml"], files["values.schema.json"] = c.valuesFile(), c.schema()
	files["templates/autoscaler.yaml"] = fmt.Appendf(nil, autoscaler, forHelm, name, escape(jsonOf(member(c.deployment, "metadata", "labels"))))
	files["templates/NOTES.txt"] = fmt.Appendf(nil, "{{/* %s */}}\n%s is in Namespace {{ .Values.namespace }}. It registers its webhooks when it runs.\n"+
		"Its log says whether the API server calls it:\n  kubectl logs -n {{ .Values.namespace }} deployment/%s\n", strings.TrimPrefix(forHelm, "# "), name, name)
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

// podOf returns the pod template of a workload, to be changed in place; nil if there is none.
func podOf(tree map[string]any) map[string]any {
	if tree["kind"] == "CronJob" {
		tree = member(tree, "spec", "jobTemplate")
	}
	return member(tree, "spec", "template")
}

// containerOf returns the first container of a workload, to be changed in place; nil if there is none.
func containerOf(tree map[string]any) map[string]any {
	list := valueAt[[]any](podOf(tree), "spec", "containers")
	if len(list) == 0 {
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
	if labels[labelName] == program[labelName] {
		switch labels[labelComponent] {
		case rights.Registering.String():
			return valueRegisterArgs
		case rights.Auditing.String():
			return valueAuditArgs
		}
	}
	return ""
}

// readValues takes the values from the objects.
func (c *chart) readValues(trees []map[string]any) {
	c.values[valueNamespace] = member(c.deployment, "metadata")["namespace"]
	c.values[valueReplicas] = member(c.deployment, "spec")["replicas"]
	for _, v := range about {
		if v.empty != nil {
			c.values[v.name] = v.in(podOf(c.deployment))
		}
	}
	if first := containerOf(c.deployment); first != nil {
		c.values[valueImage], c.values[valueResources] = first["image"], cmp.Or[any](first["resources"], map[string]any{})
		c.values[valueEnv] = ownEnv(first)
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

// These begin a part of a template: for several replicas, where %s is the number of the autoscaler that counts, and for a
// memory limit that the environment does not replace.
const (
	several       = "{{ if gt (int (ternary .Values.autoscaling.%s .Values.replicas .Values.autoscaling.enabled)) 1 }}"
	memoryLimited = `{{ if and (hasKey (.Values.resources.limits | default dict) "memory") (not (regexMatch "\"name\":\"(GOMEMLIMIT|MEMORY_LIMIT_MIB)\"" (toJson .Values.env))) }}`
)

// jobName returns the name of a Job with another hash. It changes with the values that the Job's template depends on, and
// with the old hash for everything else, because a template cannot be changed.
func jobName(name string) string {
	before, old := name[:len(name)-hashLength], name[len(name)-hashLength:]
	return fmt.Sprintf(`%s{{ list %q (omit .Values "replicas" "autoscaling" "affinity" "args" "auditArgs" "global") | toJson | sha256sum | trunc %d }}`, escape(before), old, hashLength)
}

// jsonOf returns JSON, which is YAML too, of what treesOf returns, of a part, or of a type of the API.
func jsonOf(tree any) string {
	text, _ := json.Marshal(tree) // none of them fails
	return string(text)
}

// limitEnv is what environment adds for a memory limit, as JSON.
const limitEnv = `{"name":"` + memoryLimit + `","valueFrom":{"resourceFieldRef":{"divisor":"1Mi","resource":"limits.memory"}}},{"name":"` + goMemory + `","value":"$(` + memoryLimit + `)000000B"}`

// ownEnv returns the environment of a container without limitEnv.
func ownEnv(container map[string]any) []any {
	own := valueAt[[]any](container, "env")
	if head := own[:min(len(own), 2)]; jsonOf(head) == "["+limitEnv+"]" {
		own = own[len(head):]
	}
	return append([]any{}, own...)
}

// workload replaces the values in a workload of the program. What the user has changed in it alone stays.
func (c *chart) workload(pod, container map[string]any, args string) {
	container["image"], container["resources"], container["args"] = c.stand(valueImage), c.stand(valueResources), c.stand(args)
	if jsonOf(ownEnv(container)) == jsonOf(c.values[valueEnv]) {
		container["env"] = c.stands("[" + memoryLimited + limitEnv + ",{{ end }}{{ range .Values.env }}{{ toJson . }},{{ end }}]")
	}
	for _, v := range about {
		if v.pod != nil && jsonOf(v.in(pod)) == jsonOf(c.values[v.name]) {
			member(pod, v.pod[0])[v.pod[1]] = c.stands("{{ with .Values." + v.name + " }}{{ toJson . }}{{ else }}null{{ end }}")
		}
	}
	metadata := member(pod, "metadata") // labels that the program needs cannot be replaced
	metadata["labels"] = c.stands(fmt.Sprintf("{{ merge (fromJson %q) .Values.podLabels | toJson }}", jsonOf(metadata["labels"])))
}

// template returns an object as a template. The tree is changed.
func (c *chart) template(tree map[string]any) []byte {
	c.replaceNamespace(tree)
	args := c.argsValue(tree)
	if first := containerOf(tree); args != "" && first != nil {
		c.workload(podOf(tree), first, args)
	}
	switch tree["kind"] {
	case "Deployment":
		const replicas = "EIRINIX-REPLICAS"
		member(tree, "spec")["replicas"] = replicas
		c.expressions["  replicas: "+replicas+"\n"] = "{{ if not .Values.autoscaling.enabled }}  replicas: {{ int .Values.replicas }}\n{{ end }}"
		pod := member(tree, "spec", "template", "spec")
		for _, field := range []string{valueAffinity, "topologySpreadConstraints"} { // which spread several replicas
			text := escape(jsonOf(pod[field]))
			if pod[field] != nil && fmt.Sprint(c.values[valueReplicas]) != "1" {
				text = fmt.Sprintf(several, "maxReplicas") + text + "{{ else }}null{{ end }}"
			}
			if field == valueAffinity {
				text = "{{ with .Values.affinity }}{{ toJson . }}{{ else }}" + text + "{{ end }}"
			}
			pod[field] = c.stands(text)
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
		written = fmt.Sprintf(several, "minReplicas") + "\n" + written + "{{ end }}\n"
	}
	return append([]byte(forHelm+"\n"), written...)
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

// autoscaler is the template of a HorizontalPodAutoscaler, for the mark of the file, the name and the labels.
const autoscaler = `%s
{{ if .Values.autoscaling.enabled }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[2]s, namespace: {{ toJson .Values.namespace }}, labels: %[3]s}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[2]s}
  minReplicas: {{ int .Values.autoscaling.minReplicas }}
  maxReplicas: {{ int .Values.autoscaling.maxReplicas }}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ int .Values.autoscaling.targetCPUUtilizationPercentage }} }}}]
{{ end }}
`

// The schemas of several values, and of the quantities of requests and limits.
const (
	quantitiesSchema = `{"type": "object", "additionalProperties": {"type": ["string", "number"], "minimum": 0,
		"pattern": "^([0-9]+[.]?[0-9]*|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"}}`
	resourcesSchema = `{"type": "object", "additionalProperties": false, "properties": {
		"limits": ` + quantitiesSchema + `, "requests": ` + quantitiesSchema + `, "claims": {"type": "array", "items": {"type": "object"}}}}`
	count   = `{"type": "integer", "minimum": 1, "maximum": 2147483647}`
	text    = `{"type": "string"}`
	texts   = `{"type": "array", "items": ` + text + `}`
	textMap = `{"type": "object", "additionalProperties": ` + text + `}`
	strict  = `"type": "object", "additionalProperties": false, "properties": `
)

// value is a value of charts, with its comment in values.yaml. pod is the field of pod templates that holds it, and empty
// stands for none.
type value struct {
	name, comment, schema string
	empty                 any
	pod                   []string
}

// in returns the value in a pod template.
func (v value) in(pod map[string]any) any {
	if v.pod == nil {
		return v.empty
	}
	return cmp.Or(valueAt[any](pod, v.pod...), v.empty)
}

// about holds the values, in the order of the file.
var about = []value{
	{name: valueImage, comment: "The image that holds the program.", schema: `{"type": "string", "pattern": "^[^\\s]+$"}`},
	{"imagePullSecrets", "The Secrets with which the image is pulled.", `{"type": "array", "items": {` + strict + `{"name": ` + text + `}}}`, []any{}, []string{"spec", "imagePullSecrets"}},
	{name: valueNamespace, comment: "The namespace that the program runs in. It must exist. If the program takes it as a flag, change args too.", schema: `{"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}`},
	{name: valueReplicas, comment: "The number of pods that serve.", schema: count},
	{"autoscaling", "A HorizontalPodAutoscaler in place of replicas.", `{` + strict + `{"enabled": {"type": "boolean"}, "minReplicas": ` + count + `, "maxReplicas": ` + count + `, "targetCPUUtilizationPercentage": ` + count + `}}`, map[string]any{"enabled": false, "minReplicas": 2, "maxReplicas": 10, "targetCPUUtilizationPercentage": 80}, nil},
	{name: valueResources, comment: "Requests and limits of the container. GOMEMLIMIT follows the memory limit.", schema: resourcesSchema},
	{name: valueEnv, comment: "The environment of the container. GOMEMLIMIT is added if it is not here.", schema: `{"type": "array", "items": {"required": ["name"], ` + strict + `{"name": ` + text + `, "value": ` + text + `, "valueFrom": {"type": "object"}}}}`},
	{name: valueArgs, comment: "The arguments of the pods that serve.", schema: texts},
	{name: valueRegisterArgs, comment: "The arguments of the Jobs that register.", schema: texts},
	{name: valueAuditArgs, comment: "The arguments of the CronJob that audits.", schema: texts},
	{"podAnnotations", "The annotations of the pods.", textMap, map[string]any{}, []string{"metadata", "annotations"}},
	{"podLabels", "More labels of the pods. They replace none that the program sets.", textMap, map[string]any{}, nil},
	{"priorityClassName", "The PriorityClass of the pods.", text, "", []string{"spec", "priorityClassName"}},
	{"nodeSelector", "The labels of the nodes for the pods.", textMap, map[string]any{}, []string{"spec", "nodeSelector"}},
	{"tolerations", "The tolerations of the pods.", `{"type": "array", "items": {` + strict + `{"key": ` + text + `, "operator": ` + text + `, "value": ` + text + `, "effect": ` + text + `, "tolerationSeconds": {"type": "integer"}}}}`, []any{}, []string{"spec", "tolerations"}},
	{valueAffinity, "The affinity of the pods that serve, in place of the one that spreads several replicas.", `{` + strict + `{"nodeAffinity": {"type": "object"}, "podAffinity": {"type": "object"}, "podAntiAffinity": {"type": "object"}}}`, map[string]any{}, nil},
}

func (c *chart) valuesFile() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, forHelm)
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
		"$schema": "http://json-schema.org/draft-07/schema#", "$comment": strings.TrimPrefix(forHelm, "# "), "type": "object",
		"properties": properties, "required": required, "additionalProperties": false,
	}, "", "  ")
	return append(text, '\n')
}
