package world

// This file is the definition of shops: its user, and the changes that the program may make.

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const definitionKind, definitionName, group = "CustomResourceDefinition", "shops.example.com", "example.com"

// definition is that of shops, as its user writes it. In half of the worlds, objects may be stored in an older version.
func definition(p Plan) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definitionName, UID: uuid.NewUUID(), Annotations: map[string]string{owner: "alice"}}}
	d.Spec.Group, d.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "shops", Singular: "shop", Kind: "Shop", ListKind: "ShopList"}
	d.Spec.Versions = definedVersions(false)
	d.Status.AcceptedNames, d.Status.StoredVersions = d.Spec.Names, []string{first}
	if p.Seed%2 == 1 {
		d.Status.StoredVersions = []string{second, first}
	}
	d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}, {Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
	}
	return d
}

// definedVersions are the versions in the definition, with the third or without.
func definedVersions(thirds bool) (all []apiextensionsv1.CustomResourceDefinitionVersion) {
	names := []string{first, second}
	if thirds {
		names = append(names, third)
	}
	for i, version := range names {
		all = append(all, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
		})
	}
	return all
}

// versionsIn returns the names of the versions in a definition, or none.
func versionsIn(object *unstructured.Unstructured) (names []string) {
	if object == nil {
		return nil
	}
	versions, _ := object.Object["spec"].(map[string]any)["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		names = append(names, name)
	}
	return names
}

// served returns the versions of shops in the copy of this API server.
func (s *apiServer) served() []string {
	s.mu.Lock()
	shown := s.upTo()
	s.mu.Unlock()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return versionsIn(s.w.history[definitionKind].at(shown))
}

// conversionOf returns the entry of a definition, or nothing if an API server converts by itself.
func conversionOf(object *unstructured.Unstructured) []hook {
	var d apiextensionsv1.CustomResourceDefinition
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &d) != nil || d.Spec.Conversion == nil ||
		d.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter || d.Spec.Conversion.Webhook == nil || d.Spec.Conversion.Webhook.ClientConfig == nil {
		return nil
	}
	config := d.Spec.Conversion.Webhook.ClientConfig
	h := hook{}
	h.Name, h.ClientConfig.URL, h.ClientConfig.CABundle = "the conversion of shops", config.URL, config.CABundle
	if s := config.Service; s != nil {
		h.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: s.Path, Port: s.Port}
	}
	return []hook{h}
}

// adapts is the user of the definition, who adds the third version once a replica converts it, and takes it away when none
// does.
func (w *World) adapts() {
	for w.learns() && w.wait(time.Second) {
		w.mu.Lock()
		converts := w.teaches(time.Now())
		if slices.ContainsFunc(w.processes, func(p *process) bool { return p.release.thirds }) {
			w.watch.taught = time.Now()
		}
		w.mu.Unlock()
		found := w.find(definitionKind, "", definitionName)
		if found == nil || slices.Contains(versionsIn(found), third) == converts {
			continue
		}
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": definedVersions(converts)}})
		if err == nil {
			w.tell(named("a user"), "has the definition of shops serve %d versions", len(definedVersions(converts)))
			_ = w.api.Client().Patch(context.Background(), definition(w.plan), client.RawPatch(types.MergePatchType, patch)) // it may have gone meanwhile
			w.observe()
		}
	}
}

// teaches reports whether a replica that has been ready since then converts the third version, and is not stopping. The caller
// holds mu.
func (w *World) teaches(then time.Time) bool {
	return slices.ContainsFunc(w.processes, func(p *process) bool {
		return p.release.thirds && p.endpoint && !p.leaving && p.readySince.Before(then)
	})
}

// defined looks at the definition at rest: it has the conversion, and is otherwise as its user has written it. The caller holds
// mu.
func (w *World) defined() {
	object := w.history[definitionKind].last()
	if object == nil || len(webhooksOf(object)) == 0 {
		w.breaks("at rest, the definition of shops has no conversion webhook")
		return
	}
	wanted := definition(w.plan)
	wanted.Spec.Versions = definedVersions(slices.Contains(versionsIn(object), third))
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		w.breaks("no definition: %v", err)
		return
	}
	for _, part := range []string{"spec", "status"} {
		is, _ := object.DeepCopy().Object[part].(map[string]any)
		was, _ := tree[part].(map[string]any)
		delete(is, "conversion")
		delete(was, "conversion")
		if !reflect.DeepEqual(is, was) {
			w.breaks("at rest, the %s of the definition of shops is not as its user has written it: %v", part, is)
		}
	}
	if object.GetAnnotations()[owner] == "" {
		w.breaks("at rest, the definition of shops has lost an annotation of its user")
	}
	reviews, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "conversion", "webhook", "conversionReviewVersions")
	if !slices.Contains(reviews, "v1") {
		w.breaks("at rest, the definition of shops asks for reviews of the versions %v", reviews)
	}
	if knows := w.teaches(time.Now()); knows != slices.Contains(versionsIn(object), third) {
		w.breaks("at rest, the definition of shops serves %v", versionsIn(object))
	}
}

// redefine deletes the definition, and puts it back after a while.
func (w *World) redefine(f Fault, _ *rand.Rand) {
	w.excuse(spoiled, f.For+settling)
	w.expects(f.For, "waiting for objects that this program does not create", func() bool { return w.find(definitionKind, "", definitionName) == nil })
	w.tell(fate, "deletes the definition of shops for %s", f.For.Round(time.Second))
	w.api.Remove(resources[definitionKind], "", definitionName)
	w.observe()
	w.wait(f.For)
	w.define()
	w.observe()
}

// define puts the definition back, as its user does.
func (w *World) define() {
	if err := w.api.Put(definition(w.plan)); err != nil {
		w.violate("the definition cannot be put back: %v", err)
	}
}

// redefinedWithin is how long it takes at most until a definition has its conversion again that a tool reverts again and again: a
// repair waits up to 15 s.
const redefinedWithin = 20 * time.Second

// undefine has a tool take the conversion from the definition, whenever that is repaired.
func (w *World) undefine(f Fault) {
	lasts := min(3*f.For, 5*time.Minute)
	w.excuse(spoiled, lasts+settling)
	w.tell(fate, "has a tool take the conversion from the definition of shops again and again, for %s", lasts.Round(time.Second))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
	since := time.Now()
	for end := since.Add(lasts); time.Now().Before(end); {
		found := w.find(definitionKind, "", definitionName)
		w.mu.Lock()
		calm := found != nil && slices.ContainsFunc(w.processes, func(p *process) bool { return !p.leaving && !p.readySince.IsZero() && p.readySince.Before(since) }) &&
			!w.troubledSince(since.Add(-settling), rough, slow, lapsed, apart)
		if calm && time.Since(since) > redefinedWithin+2*w.plan.Lag {
			w.breaks("a tool has taken the conversion from the definition of shops %s ago, and it is not back", time.Since(since).Round(time.Second))
		}
		w.mu.Unlock()
		if whole := webhooksOf(found); len(whole) > 0 && len(whole[0].ClientConfig.CABundle) > 0 {
			_ = w.api.Client().Patch(context.Background(), definition(w.plan), patch) // the definition may have gone meanwhile
			w.observe()
			since = time.Now()
		} else if !calm {
			since = time.Now()
		}
		if !w.wait(time.Second) {
			return
		}
	}
}
