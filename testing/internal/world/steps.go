package world

// This file is the changes that steps make to pods, and the pods that come of them, which callers work out for themselves.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"code.cloudfoundry.org/eirinix"
)

const (
	keeper     = "keeps"  // has a Rule for changes of pods, with failurePolicy Ignore
	brokenRule = "broken" // the label of a pod that the Rule refuses, and the name of a variable
	dropped    = "drop"   // a label that a step removes, and the begin of the names of variables
	orderKey   = "order"  // the annotation that holds the steps that have changed a pod, in their order
)

// passes waits for as long as the label of a pod says.
func passes(ctx context.Context, pod *corev1.Pod) error {
	slow, err := time.ParseDuration(pod.Labels[slowLabel])
	if err != nil {
		return nil //nolint:nilerr // it has no such label
	}
	select {
	case <-time.After(slow):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// judgesChanges gives the Manager the steps that judge changes of pods. They share a call, and wait in it.
func judgesChanges(m *eirinix.ExtensionManager) error {
	return errors.Join(
		m.AddExtension(eirinix.Validation[*corev1.Pod]{
			ID: lenient, Settings: eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore},
			Update: func(ctx context.Context, c *eirinix.Call, old, pod *corev1.Pod) error {
				err := passes(ctx, pod)
				echo(c, lenient, old, pod)
				scribbles(old)
				scribbles(pod)
				return err
			},
			Delete: func(ctx context.Context, c *eirinix.Call, old *corev1.Pod) error {
				err := passes(ctx, old)
				echo(c, lenient, old, nil)
				return err
			},
		}),
		m.AddExtension(eirinix.Validation[*corev1.Pod]{
			ID: keeper, Settings: eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore, Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update}},
			Rule: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
				err, broken := passes(ctx, pod), pod.Labels[brokenRule] != ""
				echo(c, keeper, nil, pod)
				var all field.ErrorList
				for i, v := range pod.Spec.Containers[0].Env {
					if v.Name == brokenRule {
						all = append(all, field.Invalid(field.NewPath("spec", "containers").Index(0).Child("env").Index(i).Child("value"), v.Value, "it is broken"))
					}
				}
				switch scribbles(pod); {
				case err != nil:
				case broken:
					err = eirinix.Deny("%s denies", keeper)
				default:
					err = eirinix.Invalid(all)
				}
				return err
			},
		}),
	)
}

// among reports whether a list of steps, as it stands in a label, names this one.
func among(label, step string) bool { return slices.Contains(strings.Split(label, "_"), step) }

// lastFirst sorts the variable last before all others.
func lastFirst[T any](name func(T) string) func(a, b T) int {
	rank := func(v T) int {
		if name(v) == "last" {
			return 0
		}
		return 1
	}
	return func(a, b T) int { return rank(a) - rank(b) }
}

// scribbles writes into an object that a step which judges has for itself.
func scribbles(pod *corev1.Pod) {
	pod.Name, pod.Labels = "taken", nil
	delete(pod.Annotations, nonceKey)
}

// changes has a step of a version change a pod: it adds, puts first, and removes items of lists, and members of maps.
func changes(step, version string, pod *corev1.Pod) {
	annotate(pod, "ran-"+step, version)
	before := pod.Annotations[orderKey]
	if len(pod.Spec.Containers) == 0 {
		return
	}
	main := &pod.Spec.Containers[0]
	if among(before, step) { // another call of the same request has run it already
		for i := range main.Env {
			if main.Env[i].Name == step {
				main.Env[i].Value = version
			}
		}
		return
	}
	annotate(pod, orderKey, strings.TrimPrefix(before+"_"+step, "_"))
	switch step {
	case "a":
		main.Env = append(main.Env, corev1.EnvVar{Name: step, Value: version})
	case "b":
		main.Env = slices.Insert(main.Env, 0, corev1.EnvVar{Name: step, Value: version})
	case "c":
		main.Env = slices.DeleteFunc(main.Env, func(v corev1.EnvVar) bool { return strings.HasPrefix(v.Name, dropped) })
		main.Args = []string{step}
	case "d":
		delete(pod.Labels, dropped)
		main.Image = "example.com/" + step
		slices.SortStableFunc(main.Env, lastFirst(func(v corev1.EnvVar) string { return v.Name }))
	}
}

// reckoned is a pod as it is after the steps that it names in their order, by a reckoning of its own. It is nil if that cannot be.
func (w *World) reckoned(sent, got *unstructured.Unstructured) *unstructured.Unstructured {
	text, err := sent.MarshalJSON()
	want := &unstructured.Unstructured{}
	if err != nil || want.UnmarshalJSON(text) != nil {
		return nil
	}
	notes, order := got.GetAnnotations(), strings.Split(got.GetAnnotations()[orderKey], "_")
	set := func(key, value string) {
		_ = unstructured.SetNestedField(want.Object, value, "metadata", "annotations", key) // it is an object
	}
	for _, key := range []string{"ran-" + reader, halfway} {
		if value, ok := notes[key]; ok {
			set(key, value)
		}
	}
	if notes[orderKey] == "" {
		return want
	}
	set(orderKey, notes[orderKey])
	containers, _, _ := unstructured.NestedSlice(want.Object, "spec", "containers")
	main := containers[0].(map[string]any)
	for _, step := range order {
		version := notes["ran-"+step]
		if !slices.ContainsFunc(w.releases, func(r release) bool { return r.name == strings.TrimSuffix(version, " (broken)") && r.has(step) }) {
			return nil
		}
		set("ran-"+step, version)
		env, _ := main["env"].([]any)
		switch step {
		case "a":
			main["env"] = append(env, map[string]any{"name": step, "value": version})
			if sent.GetLabels()[longLabel] != "" {
				set(longLabel, strings.Repeat("long ", 5000))
			}
		case "b":
			main["env"] = slices.Insert(env, 0, any(map[string]any{"name": step, "value": version}))
		case "c":
			main["env"] = slices.DeleteFunc(env, func(v any) bool { return strings.HasPrefix(v.(map[string]any)["name"].(string), dropped) })
			main["args"] = []any{step}
		case "d":
			unstructured.RemoveNestedField(want.Object, "metadata", "labels", dropped)
			main["image"] = "example.com/" + step
			slices.SortStableFunc(env, lastFirst(func(v any) string { return v.(map[string]any)["name"].(string) }))
		}
	}
	_ = unstructured.SetNestedSlice(want.Object, containers, "spec", "containers") // it is an object
	return want
}

// changesWell compares a pod as it was admitted with the pod that the steps had to make of it. The caller holds mu.
func (w *World) changesWell(s *apiServer, sent *unstructured.Unstructured, v verdict) {
	if sent == nil || v.object == nil {
		return
	}
	want := w.reckoned(sent, v.object)
	text, _ := v.object.MarshalJSON()
	got := &unstructured.Unstructured{}
	if want == nil || got.UnmarshalJSON(text) != nil || !equality.Semantic.DeepEqual(want.Object, got.Object) {
		was, _ := sent.MarshalJSON()
		w.breaks("%s: the steps have not made of a pod what they do (called: %s): %.1500s became %.1500s", s.name, v.entries(), was, text)
	}
}
