// Package mapper knows the kinds that a cluster serves, without a cluster: those of a scheme, and those that its caller
// adds.
package mapper

import (
	"reflect"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/resources"
)

// clusterScoped lists the built-in kinds without a namespace, by group. They do not change from version to version.
var clusterScoped = map[string][]string{
	"": {"ComponentStatus", "Namespace", "Node", "PersistentVolume"},
	"admissionregistration.k8s.io": {
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
	},
	"apiextensions.k8s.io":         {"CustomResourceDefinition"},
	"apiregistration.k8s.io":       {"APIService"},
	"authentication.k8s.io":        {"SelfSubjectReview", "TokenReview"},
	"authorization.k8s.io":         {"SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"},
	"certificates.k8s.io":          {"CertificateSigningRequest", "ClusterTrustBundle"},
	"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
	"internal.apiserver.k8s.io":    {"StorageVersion"},
	"networking.k8s.io":            {"IngressClass", "IPAddress", "ServiceCIDR"},
	"node.k8s.io":                  {"RuntimeClass"},
	"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding"},
	"resource.k8s.io":              {"DeviceClass", "DeviceTaintRule", "ResourcePoolStatusRequest", "ResourceSlice"},
	"scheduling.k8s.io":            {"PriorityClass"},
	"storage.k8s.io":               {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
	"storagemigration.k8s.io":      {"StorageVersionMigration"},
}

var endsInVowelAndY = regexp.MustCompile("[aeiou]y$")

// New returns a mapper for the objects of the scheme, by their regular plurals, which all built-in kinds have,
// and for the given resources.
func New(scheme *runtime.Scheme, given []resources.Resource) meta.RESTMapper {
	versions := scheme.PrioritizedVersionsAllGroups()
	for _, r := range given {
		if gv := r.Kind.GroupVersion(); !slices.Contains(versions, gv) {
			versions = append(versions, gv)
		}
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	add := func(kind schema.GroupVersionKind, plural string, global bool) {
		regular, singular := meta.UnsafeGuessKindToResource(kind)
		switch {
		case plural != "":
			regular.Resource = plural
		case endsInVowelAndY.MatchString(singular.Resource): // gateways, for which meta guesses gatewaies
			regular.Resource = singular.Resource + "s"
		}
		scope := meta.RESTScopeNamespace
		if global {
			scope = meta.RESTScopeRoot
		}
		mapper.AddSpecific(kind, regular, singular, scope)
	}
	added := map[schema.GroupVersionKind]bool{}
	for _, r := range given {
		added[r.Kind] = true
		add(r.Kind, r.Resource, r.ClusterScoped)
	}
	object := reflect.TypeFor[metav1.Object]()
	for kind, t := range scheme.AllKnownTypes() {
		if !added[kind] && kind.Version != runtime.APIVersionInternal && reflect.PointerTo(t).Implements(object) {
			add(kind, "", slices.Contains(clusterScoped[kind.Group], kind.Kind))
		}
	}
	return mapper
}
