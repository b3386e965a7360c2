package world

// This file is the conversion of custom resources: a definition with two versions, and API servers that list objects of the
// one that is not stored.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// note is what one version of a shop cannot hold.
const note = "only in v1"

const definitionKind, definitionName, group = "CustomResourceDefinition", "shops.example.com", "example.com"

// definition is that of shops, as its user writes it.
func definition() *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definitionName, UID: uuid.NewUUID()}}
	d.Spec.Group, d.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "shops", Singular: "shop", Kind: "Shop", ListKind: "ShopList"}
	for i, version := range []string{"v1", "v2"} {
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
		})
	}
	d.Status.AcceptedNames, d.Status.StoredVersions = d.Spec.Names, []string{"v1"}
	d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}, {Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
	}
	return d
}

// addConversion gives the Manager the conversion of shops: v2 calls the size of v1 replicas, and knows only tens of them. The rest
// comes back, as long as it is not edited.
func addConversion(m *eirinix.ExtensionManager) error {
	type tree = *unstructured.Unstructured
	renames := func(from, to string, by int64) func(context.Context, tree) (tree, error) {
		return func(ctx context.Context, shop tree) (tree, error) {
			if slow, err := time.ParseDuration(shop.GetLabels()[slowLabel]); err == nil {
				select {
				case <-time.After(slow):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			unstructured.RemoveNestedField(shop.Object, "spec", "note") // v1 has it alone, and the library keeps it
			value, found, err := unstructured.NestedFieldNoCopy(shop.Object, "spec", from)
			if err != nil || !found {
				return shop, err
			}
			unstructured.RemoveNestedField(shop.Object, "spec", from)
			n, _ := value.(int64)
			return shop, unstructured.SetNestedField(shop.Object, n-n%by, "spec", to)
		}
	}
	return m.AddExtension(conversion.Of[tree]{
		CRD: definitionName, Version: "v1",
		Spokes: []conversion.Spoke[tree]{conversion.NewSpoke("v2", renames("replicas", "size", 1), renames("size", "replicas", 10))},
	})
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

// conversionTimeout is how long an API server waits for a conversion (k8s.io/apiextensions-apiserver/pkg/apiserver/conversion).
const conversionTimeout = 30 * time.Second

// list has an API server list shops of the version that is not stored, and judges how it does. It converts each object with
// a request of its own, as API servers do.
func (w *World) list(rng *rand.Rand) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	entries := s.entries(definitionKind)
	if len(entries) == 0 {
		return
	}
	ctx, cancel := w.ctx()
	defer cancel()
	listed := time.Now() // with the caBundle of then
	for i := range 1 + rng.IntN(4) {
		shop := newShop(fmt.Sprint("shop", i), int64(7*i+3))
		if rng.IntN(8) == 0 {
			shop["metadata"].(map[string]any)["labels"] = map[string]any{slowLabel: time.Duration(rng.Int64N(int64(4 * time.Second))).String()}
		}
		if i == 0 && rng.IntN(40) == 0 {
			shop["spec"].(map[string]any)["text"] = strings.Repeat("long ", 200_000)
		}
		began := time.Now()
		converted, err := s.convert(ctx, entries[0], shop, "v2")
		size := int64(7*i + 3)
		if err == nil && rng.IntN(2) == 0 {
			size = 50
			err = unstructured.SetNestedField(converted, size, "spec", "replicas")
		}
		if err == nil {
			converted, err = s.convert(ctx, entries[0], converted, "v1")
		}
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		w.look()
		old := w.plan.Issued && time.Since(listed) > 2*time.Second // a version with another source is ready by then, and retries may reach it
		if err != nil && w.reachable(began) && !old && !w.excused(evicted, listed) {
			w.breaks("%s cannot convert a shop although a replica could be reached: %v", s.name, err)
		}
		if spec, _ := converted["spec"].(map[string]any); err == nil && !w.watch.keyless && (spec["note"] != note || spec["size"] != size) {
			w.breaks("%s: a shop has lost something on its way to v2 and back: %v", s.name, converted)
		}
		w.mu.Unlock()
	}
}

func newShop(name string, size int64) map[string]any {
	return map[string]any{
		"apiVersion": group + "/v1", "kind": "Shop", "spec": map[string]any{"size": size, "note": note},
		"metadata": map[string]any{"name": name, "namespace": "shop", "uid": string(uuid.NewUUID())},
	}
}

// loseKey deletes the Secret with the key of conversions, and puts it back when replicas have started without it. What was kept
// under the key before is there again.
func (w *World) loseKey(f Fault, rng *rand.Rand) {
	const name = fingerprint + "-conversions"
	s := w.servers[rng.IntN(len(w.servers))]
	ctx, cancel := w.ctx()
	defer cancel()
	into := func(shop map[string]any, version string) (map[string]any, error) {
		entries := s.entries(definitionKind)
		if failing, frozen := s.state(); len(entries) == 0 || failing != 0 || frozen != nil {
			return nil, errors.New("shops are not converted now")
		}
		return s.convert(ctx, entries[0], shop, version)
	}
	secret := w.find("Secret", namespace, name)
	kept, err := into(newShop("kept", 3), "v2")
	if secret == nil || err != nil || !w.keyless(true) {
		return
	}
	defer w.keyless(false)
	w.tell(fate, "deletes the Secret with the key of conversions")
	w.api.Remove(resources["Secret"], namespace, name)
	w.restart(f, rng)
	if !w.wait(settling + f.For) {
		return
	}
	_, _ = into(kept, "v1") // by a replica that has no key for it
	object := secret.DeepCopy()
	data := map[string]any{}
	for key, value := range object.Object["data"].(map[string]any) {
		data["0"+key] = value
	}
	if now := w.find("Secret", namespace, name); now != nil { // which signs
		maps.Copy(data, now.Object["data"].(map[string]any))
	}
	object.Object["data"] = data
	w.tell(fate, "puts the key of conversions back")
	if err := w.api.Put(object); err != nil {
		w.violate("a Secret cannot be put back: %v", err)
	}
	if !w.wait(settling) {
		return
	}
	for range 4 {
		shop, err := into(kept, "v1")
		if spec, _ := shop["spec"].(map[string]any); err == nil && spec["note"] != note {
			w.violate("%s: a shop has not got its note back %s after its key: %v", s.name, settling, shop)
		}
	}
}

// keyless begins, or ends, a time in which the key of conversions is lost. It returns false if that has begun already.
func (w *World) keyless(on bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.watch.keyless
	w.watch.keyless = on
	return on != was
}

// convert asks for one object in another version.
func (s *apiServer) convert(ctx context.Context, h hook, object map[string]any, version string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, conversionTimeout)
	defer cancel()
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	way := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = s.post(r.Context(), h.ClientConfig, fmt.Sprintf("?timeout=%ds", int(conversionTimeout.Seconds())), body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = w.Write(body) // to memory
	})
	objects, err := (&apiserver.Conversion{CRD: definitionName, Path: "/"}).Convert(ctx, way, group+"/"+version, raw)
	if err != nil {
		return nil, err
	}
	var converted unstructured.Unstructured
	if err := converted.UnmarshalJSON(objects[0].Raw); err != nil {
		return nil, err
	}
	member := map[string]string{"v1": "size", "v2": "replicas"}[version]
	if _, found, _ := unstructured.NestedFieldNoCopy(converted.Object, "spec", member); !found || converted.GetAPIVersion() != group+"/"+version {
		return nil, fmt.Errorf("the object is not one of version %s: %s", version, objects[0].Raw)
	}
	return converted.Object, nil
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
	if err := w.api.Put(definition()); err != nil {
		w.violate("the definition cannot be put back: %v", err)
	}
}

// lists has API servers convert many objects at once.
func (w *World) lists(f Fault, rng *rand.Rand) {
	w.tell(fate, "lists shops again and again for %s", f.For.Round(time.Second))
	for until := time.Now().Add(min(f.For, 20*time.Second)); time.Now().Before(until); {
		w.tasks.Go(func() { w.list(rand.New(rand.NewPCG(rng.Uint64(), 4))) }) //nolint:gosec // a seed decides
		if !w.wait(time.Second) {
			return
		}
	}
}
