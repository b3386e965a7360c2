package fakeapi

// This file answers the requests of clients, and their discovery requests.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix/internal/snapshots"
)

// serve answers one request of a client.
func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	if a.await(r.Context()) != nil {
		return
	}
	if document, ok := a.discovery(r.URL.Path); ok {
		reply(w, http.StatusOK, document)
		return
	}
	q, err := parseRequest(r)
	if err != nil {
		refuse(w, err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	answer, err := a.answer(r, q)
	if q.Status = http.StatusOK; q.Verb == "create" {
		q.Status = http.StatusCreated
	}
	if err != nil {
		q.Status = refuse(w, err)
	} else {
		reply(w, q.Status, answer)
	}
	a.requests = append(a.requests, q)
}

func reply(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // to memory
}

// refuse responds with an error, and returns its HTTP code.
func refuse(w http.ResponseWriter, err error) int {
	status := apierrors.NewInternalError(err).Status()
	if s, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // our own, never wrapped
		status = s.Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	reply(w, int(status.Code), status)
	return int(status.Code)
}

// verbs are those that are served.
var verbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update"}

// answer executes a request. The caller holds mu.
func (a *API) answer(r *http.Request, q Request) (any, error) {
	resource, key := q.Resource.GroupResource(), objectKey{q.Resource.GroupResource(), q.Namespace, q.Name}
	existing, found := a.objects[key]
	applied := types.PatchType(strings.Split(r.Header.Get("Content-Type"), ";")[0])
	switch {
	case q.Verb == "list", q.Verb == "deletecollection":
		return a.list(r, q)
	case q.Verb == "create", q.Verb == "patch" && !found && applied == types.ApplyYAMLPatchType:
		return a.create(q, key)
	case !slices.Contains(verbs, q.Verb):
		return nil, apierrors.NewMethodNotSupported(resource, q.Verb+" (an API in memory has no watches; read directly, without a cache)")
	case !found:
		return nil, apierrors.NewNotFound(resource, q.Name)
	case q.Verb == "get":
		return inVersion(existing, q.Resource).Object, nil
	case q.Verb == "delete":
		if !q.DryRun {
			delete(a.objects, key)
		}
		return existing.Object, nil
	}
	changed, err := a.changed(q, existing, applied)
	if err != nil {
		return nil, err
	}
	changed.SetUID(existing.GetUID())
	changed.SetCreationTimestamp(existing.GetCreationTimestamp())
	if !q.DryRun {
		a.store(key, changed)
	}
	return changed.Object, nil
}

// changed returns an object after a patch or an update.
func (a *API) changed(q Request, existing *unstructured.Unstructured, applied types.PatchType) (*unstructured.Unstructured, error) {
	if q.Verb == "patch" {
		return a.patched(existing, applied, q.Body)
	}
	changed, err := parseObject(q.Body)
	if err == nil && changed.GetResourceVersion() != "" && changed.GetResourceVersion() != existing.GetResourceVersion() {
		err = apierrors.NewConflict(q.Resource.GroupResource(), q.Name, fmt.Errorf("resourceVersion is %s by now", existing.GetResourceVersion()))
	}
	return changed, err
}

func (a *API) list(r *http.Request, q Request) (any, error) {
	byLabels, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byFields, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	items := []any{}
	for _, key := range a.keys() {
		object := a.objects[key]
		if key.GroupResource != q.Resource.GroupResource() || q.Namespace != "" && key.namespace != q.Namespace {
			continue
		}
		if !byLabels.Matches(labels.Set(object.GetLabels())) || !byFields.Matches(snapshots.FieldsOf{Unstructured: object}) {
			continue
		}
		items = append(items, inVersion(object, q.Resource).Object)
		if q.Verb == "deletecollection" && !q.DryRun {
			delete(a.objects, key)
		}
	}
	kind := "List"
	if item, err := a.mapper.KindFor(q.Resource); err == nil {
		kind = item.Kind + "List"
	}
	return map[string]any{
		"apiVersion": q.Resource.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version)}, "items": items,
	}, nil
}

// keys returns the keys in the order of namespace and name, as in an API server, and then of the resource.
func (a *API) keys() []objectKey {
	return slices.SortedFunc(maps.Keys(a.objects), func(a, b objectKey) int {
		return cmp.Or(
			strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name),
			strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource),
		)
	})
}

func (a *API) create(q Request, key objectKey) (any, error) {
	created, err := parseObject(q.Body)
	if err != nil {
		return nil, err
	}
	if q.isReview() {
		created.Object["status"] = map[string]any{"allowed": true, "authenticated": true}
		return created.Object, nil
	}
	if q.Subresource != "" { // an eviction, a binding, a token
		return created.Object, nil
	}
	if key.name = created.GetName(); key.name == "" {
		key.name = fmt.Sprintf("%s%05d", created.GetGenerateName(), a.version+1)
		created.SetName(key.name)
	}
	if _, taken := a.objects[key]; taken {
		return nil, apierrors.NewAlreadyExists(key.GroupResource, key.name)
	}
	created.SetNamespace(key.namespace)
	created.SetUID(uuid.NewUUID())
	created.SetCreationTimestamp(metav1.Now())
	if !q.DryRun {
		a.store(key, created)
	}
	return created.Object, nil
}

func (a *API) store(key objectKey, object *unstructured.Unstructured) {
	a.version++
	object.SetResourceVersion(fmt.Sprint(a.version))
	a.objects[key] = object
}

func parseObject(body []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	text, err := yaml.YAMLToJSON(body) // server-side apply sends YAML
	if err == nil {
		err = u.UnmarshalJSON(text)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the body is no object: " + err.Error())
	}
	return u, nil
}

// inVersion returns a copy of the object in the requested version.
func inVersion(object *unstructured.Unstructured, resource schema.GroupVersionResource) *unstructured.Unstructured {
	object = object.DeepCopy()
	object.SetAPIVersion(resource.GroupVersion().String())
	return object
}

// discovery returns the discovery document for a path, if there is one.
func (a *API) discovery(path string) (any, bool) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	version := func(gv schema.GroupVersion) metav1.GroupVersionForDiscovery {
		return metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	}
	switch {
	case path == "/version":
		return map[string]string{"major": "1", "minor": "0", "gitVersion": "v1.0.0-eirinixtest"}, true
	case path == "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}}, true
	case path == "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, gv := range a.scheme.PrioritizedVersionsAllGroups() {
			if gv.Group == "" {
				continue
			}
			i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
			if i < 0 {
				i = len(list.Groups)
				list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, PreferredVersion: version(gv)})
			}
			list.Groups[i].Versions = append(list.Groups[i].Versions, version(gv))
		}
		return list, true
	case segments[0] == "api" && len(segments) == 2:
		return a.resourcesOf(schema.GroupVersion{Version: segments[1]}), true
	case segments[0] == "apis" && len(segments) == 3:
		return a.resourcesOf(schema.GroupVersion{Group: segments[1], Version: segments[2]}), true
	}
	return nil, false
}

func (a *API) resourcesOf(gv schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, kind := range slices.Sorted(maps.Keys(a.scheme.KnownTypes(gv))) {
		mapping, err := a.mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind}, gv.Version)
		if err != nil {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: mapping.Resource.Resource, Kind: kind, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace, Verbs: verbs,
		})
	}
	return list
}
