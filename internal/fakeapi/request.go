package fakeapi

// This file parses requests and applies patches.

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// parseRequest reads a Request from method, path, query and body.
func parseRequest(r *http.Request) (Request, error) {
	q := Request{DryRun: r.URL.Query().Get("dryRun") != ""}
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case segments[0] == "api" && len(segments) > 2:
		q.Resource.Version, segments = segments[1], segments[2:]
	case segments[0] == "apis" && len(segments) > 3:
		q.Resource.Group, q.Resource.Version, segments = segments[1], segments[2], segments[3:]
	default:
		return q, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	}
	if segments[0] == "namespaces" && len(segments) > 2 && segments[2] != "status" && segments[2] != "finalize" {
		q.Namespace, segments = segments[1], segments[2:]
	}
	q.Resource.Resource = segments[0]
	if len(segments) > 1 {
		q.Name = segments[1]
	}
	if len(segments) > 2 {
		q.Subresource = strings.Join(segments[2:], "/")
	}
	switch r.Method {
	case http.MethodGet:
		q.Verb = "get"
		if q.Name == "" {
			q.Verb = "list"
		}
		if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			q.Verb = "watch"
		}
	case http.MethodPost:
		q.Verb = "create"
	case http.MethodPut:
		q.Verb = "update"
	case http.MethodPatch:
		q.Verb = "patch"
	case http.MethodDelete:
		q.Verb = "delete"
		if q.Name == "" {
			q.Verb = "deletecollection"
		}
	default:
		return q, apierrors.NewMethodNotSupported(q.Resource.GroupResource(), r.Method)
	}
	body, err := io.ReadAll(r.Body)
	if len(body) > 0 {
		q.Body = body
	}
	if r.Method == http.MethodDelete { // its options are in the body
		var options metav1.DeleteOptions
		if len(body) > 0 && json.Unmarshal(body, &options) == nil {
			q.DryRun = q.DryRun || len(options.DryRun) > 0
		}
	}
	return q, err
}

// patched applies a patch of any of the four types. Server-side apply is treated as a merge, because no other manager
// owns fields here.
func (a *API) patched(existing *unstructured.Unstructured, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error) {
	before, err := json.Marshal(existing.Object)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind {
	case types.JSONPatchType:
		operations, decodeErr := jsonpatchv4.DecodePatch(patch)
		if decodeErr != nil {
			return nil, apierrors.NewBadRequest(decodeErr.Error())
		}
		after, err = operations.Apply(before)
	case types.StrategicMergePatchType, types.ApplyYAMLPatchType:
		if patch, err = yaml.YAMLToJSON(patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if object, schemeErr := a.scheme.New(existing.GroupVersionKind()); schemeErr == nil {
			after, err = strategicpatch.StrategicMergePatch(before, patch, object)
			break
		}
		fallthrough
	default:
		after, err = jsonpatchv4.MergePatch(before, patch)
	}
	if err != nil {
		return nil, apierrors.NewInvalid(existing.GroupVersionKind().GroupKind(), existing.GetName(), nil)
	}
	return parseObject(after)
}
