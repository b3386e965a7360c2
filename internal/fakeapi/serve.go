package fakeapi

// This file answers the requests of clients, and their discovery requests.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix/internal/snapshots"
)

// serve answers one request of a client, to the server if it is not nil.
func (a *API) serve(w http.ResponseWriter, r *http.Request, s *Server) {
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
	if q.Verb == "watch" && s != nil {
		s.watch(w, r, q)
		return
	}
	text, warnings, status, err := a.execute(r, q, s)
	for _, warning := range warnings {
		if header, headerErr := utilnet.NewWarningHeader(299, "-", warning); headerErr == nil {
			w.Header().Add("Warning", header)
		}
	}
	if err != nil {
		refuse(w, err)
		return
	}
	reply(w, status, text)
}

// execute answers a request and records it. The response is written later without mu, because a writer can wait.
func (a *API) execute(r *http.Request, q Request, s *Server) (text []byte, warnings []string, status int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, warnings, err = a.answer(r, q, s)
	if q.Status = http.StatusOK; q.Verb == "create" {
		q.Status = http.StatusCreated
	}
	if err != nil {
		q.Status = int(statusOf(err).Code)
	}
	a.requests = append(a.requests, q)
	return text, warnings, q.Status, err
}

// reply responds with a document, or with its text.
func reply(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if text, ok := document.([]byte); ok {
		_, _ = w.Write(text)
		return
	}
	_ = json.NewEncoder(w).Encode(document) // to memory
}

// refuse responds with an error, and returns its HTTP code.
func refuse(w http.ResponseWriter, err error) int {
	status := statusOf(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 { // for which client-go waits, and tries again
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	reply(w, int(status.Code), status)
	return int(status.Code)
}

func statusOf(err error) metav1.Status {
	status := apierrors.NewInternalError(err).Status()
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		status = s.Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}

// verbs are those that are served.
var verbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update"}

// answer executes a request, and returns the response as JSON, and warnings. The caller holds mu. Admission waits without
// it.
func (a *API) answer(r *http.Request, q Request, s *Server) (text []byte, warnings []string, err error) {
	resource, existing := q.Resource.GroupResource(), a.objects[objectKey{q.Resource.GroupResource(), q.Namespace, q.Name}]
	switch {
	case !slices.Contains(verbs, q.Verb):
		return nil, nil, apierrors.NewMethodNotSupported(resource, q.Verb+" (an API in memory has no watches; read directly, without a cache)")
	case q.Verb == "list", q.Verb == "deletecollection":
		return a.list(r, q, s)
	case q.Verb == "create" && (q.isReview() || q.Subresource != ""): // an eviction, a binding, a token
		created, parseErr := parseObject(q.Body)
		if parseErr != nil {
			return nil, nil, parseErr
		}
		if q.isReview() {
			created.Object["status"] = map[string]any{"allowed": true, "authenticated": true}
		}
		text, err = json.Marshal(created.Object)
		return text, nil, err
	case q.Verb == "get" && existing != nil:
		return existing.text(q.Resource.GroupVersion()), nil, nil
	case q.Verb == "get":
		return nil, nil, apierrors.NewNotFound(resource, q.Name)
	}
	written, warnings, err := a.write(r, q, s)
	if err != nil {
		return nil, warnings, err
	}
	return written.text(q.Resource.GroupVersion()), warnings, nil
}

// attempts is how often a write begins again because its object has changed since it was read.
const attempts = 5

// write makes an object, has the server admit it and stores it, or removes one. It returns what is stored then, or was.
// The caller holds mu. The object can change during admission; the write then begins again, as in an API server.
func (a *API) write(r *http.Request, q Request, s *Server) (written *object, warnings []string, err error) {
	for range attempts {
		key, made, err := a.made(r, q)
		if err != nil {
			return nil, warnings, err
		}
		old := a.objects[key]
		if s != nil && s.options.Admit != nil {
			if made, warnings, err = s.admit(r.Context(), q, old, made); err != nil {
				return nil, warnings, err
			}
		}
		switch {
		case a.objects[key] != old:
			continue
		case made == nil && !q.DryRun:
			a.commit(key, nil)
			fallthrough
		case made == nil:
			return old, warnings, nil
		case old != nil:
			if made.SetResourceVersion(old.GetResourceVersion()); equality.Semantic.DeepEqual(made.Object, old.Object) {
				return old, warnings, nil
			}
		}
		if q.DryRun {
			return &object{Unstructured: made}, warnings, nil
		}
		return a.commit(key, made), warnings, nil
	}
	return nil, warnings, apierrors.NewConflict(q.Resource.GroupResource(), q.Name, errors.New("the object changes all the time"))
}

// made returns the object that a write would store, and its key; nil for a deletion.
func (a *API) made(r *http.Request, q Request) (objectKey, *unstructured.Unstructured, error) {
	key := objectKey{q.Resource.GroupResource(), q.Namespace, q.Name}
	existing, applied := a.objects[key], types.PatchType(strings.Split(r.Header.Get("Content-Type"), ";")[0])
	switch {
	case q.Verb == "create", q.Verb == "patch" && existing == nil && applied == types.ApplyYAMLPatchType:
		return a.created(q, key)
	case existing == nil:
		return key, nil, apierrors.NewNotFound(key.GroupResource, q.Name)
	case q.Verb == "delete":
		return key, nil, q.precondition(existing)
	}
	changed, err := a.changed(q, existing.Unstructured, applied)
	if err != nil {
		return key, nil, err
	}
	changed.SetUID(existing.GetUID())
	changed.SetCreationTimestamp(existing.GetCreationTimestamp())
	return key, changed, nil
}

// precondition returns a Conflict if a deletion is meant for another object or state.
func (q Request) precondition(existing *object) error {
	var options metav1.DeleteOptions
	_ = json.Unmarshal(q.Body, &options) // without a body there are none
	is := options.Preconditions
	switch {
	case is == nil:
	case is.UID != nil && *is.UID != existing.GetUID():
		return apierrors.NewConflict(q.Resource.GroupResource(), q.Name, fmt.Errorf("the UID is %s, and the precondition is %s", existing.GetUID(), *is.UID))
	case is.ResourceVersion != nil && *is.ResourceVersion != existing.GetResourceVersion():
		return apierrors.NewConflict(q.Resource.GroupResource(), q.Name, fmt.Errorf("the resourceVersion is %s, and the precondition is %s", existing.GetResourceVersion(), *is.ResourceVersion))
	}
	return nil
}

// changed returns an object after a patch or an update.
func (a *API) changed(q Request, existing *unstructured.Unstructured, applied types.PatchType) (changed *unstructured.Unstructured, err error) {
	if q.Verb == "patch" {
		changed, err = a.patched(existing, applied, q.Body)
	} else {
		changed, err = parseObject(q.Body)
	}
	if err == nil && changed.GetResourceVersion() != "" && changed.GetResourceVersion() != existing.GetResourceVersion() {
		err = apierrors.NewConflict(q.Resource.GroupResource(), q.Name, fmt.Errorf("resourceVersion is %s by now", existing.GetResourceVersion()))
	}
	return changed, err
}

// scope selects objects.
type scope struct {
	schema.GroupResource
	namespace, name string // empty for all
	labels          labels.Selector
	fields          fields.Selector
}

// scopeOf returns the objects to which a request for a collection is restricted, its options, and the resourceVersion
// among them; 0 for none.
func scopeOf(r *http.Request, q Request) (scope, *internalversion.ListOptions, int, error) {
	o := &internalversion.ListOptions{}
	err := internalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, o)
	version := 0
	if err == nil && o.ResourceVersion != "" {
		version, err = strconv.Atoi(o.ResourceVersion)
	}
	if err != nil {
		return scope{}, nil, 0, apierrors.NewBadRequest(err.Error())
	}
	selected := scope{GroupResource: q.Resource.GroupResource(), namespace: q.Namespace}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		selected.labels = o.LabelSelector
	}
	if by := o.FieldSelector; by != nil && !by.Empty() {
		name, only := by.RequiresExactMatch(metav1.ObjectNameField)
		if selected.name = name; !only || len(by.Requirements()) > 1 { // most watches are of one object
			selected.fields = by
		}
	}
	return selected, o, version, nil
}

// covers reports whether an object is selected. None is if it is nil.
func (s scope) covers(key objectKey, o *object) bool {
	return o != nil && key.GroupResource == s.GroupResource && (s.namespace == "" || s.namespace == key.namespace) && (s.name == "" || s.name == key.name) &&
		(s.fields == nil || s.fields.Matches(snapshots.FieldsOf{Unstructured: o.Unstructured})) &&
		(s.labels == nil || s.labels.Matches(labels.Set(o.GetLabels())))
}

// list answers a list or a deletecollection.
func (a *API) list(r *http.Request, q Request, s *Server) (text []byte, warnings []string, err error) {
	selected, o, wanted, err := scopeOf(r, q)
	if err != nil {
		return nil, nil, err
	}
	objects, version := a.objects, a.version
	if s != nil && q.Verb == "list" && o.ResourceVersion != "" {
		c, err := s.reach(r.Context(), selected.GroupResource, wanted)
		if err != nil {
			return nil, nil, err
		}
		objects, version = c.objects, c.version
	}
	kind := "List"
	if item, err := a.mapper.KindFor(q.Resource); err == nil {
		kind = item.Kind + "List"
	}
	text = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d"},"items":[`, q.Resource.GroupVersion(), kind, version)
	all := keys(objects, selected)
	for i, key := range all {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, objects[key].text(q.Resource.GroupVersion())...)
	}
	for _, key := range all {
		if q.Verb == "list" {
			break
		}
		one := q
		one.Verb, one.Namespace, one.Name, one.Body = "delete", key.namespace, key.name, nil
		_, more, err := a.write(r, one, s)
		if warnings = append(warnings, more...); err != nil && !apierrors.IsNotFound(err) { // it may be gone by now
			return nil, warnings, err
		}
	}
	return append(text, "]}"...), warnings, nil
}

// keys returns the keys of all or the selected objects in the order of namespace and name, as in an API server, and then
// of the resource.
func keys(objects map[objectKey]*object, selected ...scope) (all []objectKey) {
	for key, o := range objects {
		if len(selected) == 0 || selected[0].covers(key, o) {
			all = append(all, key)
		}
	}
	slices.SortFunc(all, func(a, b objectKey) int {
		return cmp.Or(
			strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name),
			strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource),
		)
	})
	return all
}

// created returns the object that a request creates.
func (a *API) created(q Request, key objectKey) (objectKey, *unstructured.Unstructured, error) {
	created, err := parseObject(q.Body)
	if err != nil {
		return key, nil, err
	}
	if key.name = created.GetName(); key.name == "" {
		key.name = fmt.Sprintf("%s%05d", created.GetGenerateName(), a.version+1)
		created.SetName(key.name)
	}
	if a.objects[key] != nil {
		return key, nil, apierrors.NewAlreadyExists(key.GroupResource, key.name)
	}
	created.SetNamespace(key.namespace)
	created.SetUID(uuid.NewUUID())
	created.SetCreationTimestamp(metav1.Now())
	return key, created, nil
}

// commit stores an object, or removes it if it is nil, and returns what is stored. The caller holds mu.
func (a *API) commit(key objectKey, made *unstructured.Unstructured) *object {
	a.version++
	c := &change{key: key, old: a.objects[key]}
	if made == nil {
		delete(a.objects, key)
	} else {
		made.SetResourceVersion(strconv.Itoa(a.version))
		c.object = &object{Unstructured: made}
		a.objects[key] = c.object
	}
	if len(a.servers) > 0 {
		a.changes = append(a.changes, c)
	}
	for _, s := range a.servers {
		s.learn(c)
	}
	return c.object
}

// change returns the change to a version. The caller holds mu.
func (a *API) change(version int) *change { return a.changes[version-a.base-1] }

func parseObject(body []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	err := u.UnmarshalJSON(body)
	if !json.Valid(body) { // server-side apply sends YAML
		if body, err = yaml.YAMLToJSON(body); err == nil {
			err = u.UnmarshalJSON(body)
		}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the body is no object: " + err.Error())
	}
	return u, nil
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
