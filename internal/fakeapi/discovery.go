package fakeapi

// This file answers discovery requests.

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
		for _, gv := range a.groupVersions() {
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

func (a *API) groupVersions() []schema.GroupVersion { return a.scheme.PrioritizedVersionsAllGroups() }

func (a *API) resourcesOf(gv schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, kind := range slices.Sorted(maps.Keys(a.scheme.KnownTypes(gv))) {
		mapping, err := a.mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind}, gv.Version)
		if err != nil {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: mapping.Resource.Resource, Kind: kind, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
			Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update"},
		})
	}
	return list
}
