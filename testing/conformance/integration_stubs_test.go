package conformance_test

import (
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const podTemplate = `{"metadata": {"labels": {"stub": "yes"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}`

const jobTemplate = `{"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "app:1"}]}}`

const workload = `{"spec": {"selector": {"matchLabels": {"stub": "yes"}}, "template": ` + podTemplate + `}}`

const someHook = `{"webhooks": [{"name": "not.called.example", "clientConfig": {"service": {"namespace": "nowhere", "name": "nothing"}},
	"rules": [{"operations": ["CREATE"], "apiGroups": ["nothing.example.com"], "apiVersions": ["v1"], "resources": ["nothings"]}],
	"failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}`

const matchNothing = `"matchConstraints": {"resourceRules": [{"apiGroups": ["nothing.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}]}`

// stubs are the smallest objects that the API server accepts, by group and resource, without apiVersion, kind and
// name, which are filled in. NAMESPACE stands for the spec's.
var stubs = map[string]string{
	"/bindings":                            `{"target": {"kind": "Node", "name": "nowhere"}}`,
	"/configmaps":                          `{"data": {"a": "b"}}`,
	"/endpoints":                           `{"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 8000}]}]}`,
	"/events":                              `{"involvedObject": {"namespace": "NAMESPACE"}, "message": "it happened"}`,
	"/limitranges":                         `{"spec": {"limits": [{"type": "Pod"}]}}`,
	"/namespaces":                          `{"metadata": {"labels": {"resources": "NAMESPACE"}}}`,
	"/nodes":                               `{"spec": {"unschedulable": true}}`,
	"/persistentvolumeclaims":              `{"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1M"}}}}`,
	"/persistentvolumes":                   `{"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1M"}, "hostPath": {"path": "/tmp/stub"}}}`,
	"/pods":                                `{"spec": {"containers": [{"name": "app", "image": "app:1", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}]}}`,
	"/podtemplates":                        `{"template": ` + podTemplate + `}`,
	"/replicationcontrollers":              `{"spec": {"selector": {"stub": "yes"}, "template": ` + podTemplate + `}}`,
	"/resourcequotas":                      `{"spec": {"hard": {"count/stubs.example.com": "5"}}}`,
	"/secrets":                             `{"data": {"a": "Yg=="}}`,
	"/serviceaccounts":                     `{}`,
	"/services":                            `{"spec": {"ports": [{"port": 80}], "selector": {"stub": "yes"}}}`,
	"apps/controllerrevisions":             `{"data": {"a": "b"}, "revision": 1}`,
	"apps/daemonsets":                      workload,
	"apps/deployments":                     workload,
	"apps/replicasets":                     workload,
	"apps/statefulsets":                    workload,
	"autoscaling/horizontalpodautoscalers": `{"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "stub"}}}`,
	"batch/cronjobs":                       `{"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": ` + jobTemplate + `}}}}`,
	"batch/jobs":                           `{"spec": {"template": ` + jobTemplate + `}}`,
	"policy/poddisruptionbudgets":          `{"spec": {"selector": {"matchLabels": {"stub": "none"}}}}`,

	"admissionregistration.k8s.io/mutatingwebhookconfigurations":     someHook,
	"admissionregistration.k8s.io/validatingwebhookconfigurations":   someHook,
	"admissionregistration.k8s.io/mutatingadmissionpolicies":         `{"spec": {` + matchNothing + `, "reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"add\", path: \"/a\", value: \"b\"}]"}}]}}`,
	"admissionregistration.k8s.io/mutatingadmissionpolicybindings":   `{"spec": {"policyName": "nothing"}}`,
	"admissionregistration.k8s.io/validatingadmissionpolicies":       `{"spec": {` + matchNothing + `, "validations": [{"expression": "true"}]}}`,
	"admissionregistration.k8s.io/validatingadmissionpolicybindings": `{"spec": {"policyName": "nothing", "validationActions": ["Warn"]}}`,
	"apiextensions.k8s.io/customresourcedefinitions": `{"metadata": {"name": "stubs.NAMESPACE.example.com"}, "spec": {"group": "NAMESPACE.example.com", "scope": "Cluster",
		"names": {"kind": "Stub", "listKind": "StubList", "plural": "stubs", "singular": "stub"},
		"versions": [{"name": "v1", "served": false, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`,
	"apiregistration.k8s.io/apiservices":                       `{"metadata": {"name": "v9.NAMESPACE.example.com"}, "spec": {"group": "NAMESPACE.example.com", "version": "v9", "groupPriorityMinimum": 100, "versionPriority": 10}}`,
	"authentication.k8s.io/selfsubjectreviews":                 `{}`,
	"authentication.k8s.io/tokenreviews":                       `{"spec": {"token": "none"}}`,
	"authorization.k8s.io/localsubjectaccessreviews":           `{"metadata": {"name": ""}, "spec": {"user": "other", "resourceAttributes": {"name": "a", "namespace": "NAMESPACE"}}}`,
	"authorization.k8s.io/selfsubjectaccessreviews":            `{"metadata": {"name": ""}, "spec": {"resourceAttributes": {"name": "a"}}}`,
	"authorization.k8s.io/selfsubjectrulesreviews":             `{"metadata": {"name": ""}, "spec": {"namespace": "NAMESPACE"}}`,
	"authorization.k8s.io/subjectaccessreviews":                `{"metadata": {"name": ""}, "spec": {"user": "other", "resourceAttributes": {"name": "a", "namespace": "NAMESPACE"}}}`,
	"certificates.k8s.io/certificatesigningrequests":           `{"spec": {"signerName": "example.com/unknown", "usages": ["any"], "request": "REQUEST"}}`,
	"certificates.k8s.io/clustertrustbundles":                  `{"spec": {"trustBundle": "CERTIFICATE"}}`,
	"certificates.k8s.io/podcertificaterequests":               `{"spec": {"signerName": "example.com/stub", "podName": "stub", "podUID": "1", "serviceAccountName": "stub", "serviceAccountUID": "2", "nodeName": "nowhere", "nodeUID": "3", "maxExpirationSeconds": 3600, "stubPKCS10Request": "UNARMORED"}}`,
	"coordination.k8s.io/leases":                               `{"spec": {"holderIdentity": "stub", "leaseDurationSeconds": 5}}`,
	"discovery.k8s.io/endpointslices":                          `{"addressType": "IPv4", "endpoints": [], "ports": []}`,
	"events.k8s.io/events":                                     `{"regarding": {"namespace": "NAMESPACE"}, "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "example.com/stub", "reportingInstance": "stub", "action": "Stub", "reason": "Stub", "type": "Normal"}`,
	"flowcontrol.apiserver.k8s.io/flowschemas":                 `{"spec": {"priorityLevelConfiguration": {"name": "nothing"}}}`,
	"flowcontrol.apiserver.k8s.io/prioritylevelconfigurations": `{"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}}`,
	"networking.k8s.io/ingresses":                              `{"spec": {"defaultBackend": {"service": {"name": "stub", "port": {"number": 80}}}}}`,
	"networking.k8s.io/ingressclasses":                         `{"spec": {"controller": "example.com/stub"}}`,
	"networking.k8s.io/ipaddresses":                            `{"metadata": {"name": "192.0.2.7"}, "spec": {"parentRef": {"resource": "services", "name": "stub", "namespace": "NAMESPACE"}}}`,
	"networking.k8s.io/networkpolicies":                        `{"spec": {"podSelector": {}}}`,
	"networking.k8s.io/servicecidrs":                           `{"spec": {"cidrs": ["198.51.100.0/24"]}}`,
	"node.k8s.io/runtimeclasses":                               `{"handler": "stub"}`,
	"rbac.authorization.k8s.io/clusterrolebindings":            `{"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nothing"}}`,
	"rbac.authorization.k8s.io/clusterroles":                   `{"rules": [{"nonResourceURLs": ["/version"], "verbs": ["get"]}]}`,
	"rbac.authorization.k8s.io/rolebindings":                   `{"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nothing"}}`,
	"rbac.authorization.k8s.io/roles":                          `{"rules": [{"apiGroups": [""], "resources": ["events"], "verbs": ["watch"]}]}`,
	"resource.k8s.io/deviceclasses":                            `{}`,
	"resource.k8s.io/devicetaintrules":                         `{"spec": {"taint": {"key": "example.com/stub", "effect": "NoSchedule"}}}`,
	"resource.k8s.io/resourceclaims":                           `{"spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "nothing", "allocationMode": "ExactCount", "count": 1}}]}}}`,
	"resource.k8s.io/resourceclaimtemplates":                   `{"spec": {"spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "nothing", "allocationMode": "ExactCount", "count": 1}}]}}}}`,
	"resource.k8s.io/resourceslices":                           `{"spec": {"nodeName": "nowhere", "driver": "stub.example.com", "pool": {"name": "stub", "resourceSliceCount": 1}}}`,
	"scheduling.k8s.io/priorityclasses":                        `{"value": 1}`,
	"storage.k8s.io/csidrivers":                                `{"spec": {"attachRequired": true}}`,
	"storage.k8s.io/csinodes":                                  `{"spec": {"drivers": [{"name": "stub", "nodeID": "nowhere", "topologyKeys": ["example.com/zone"]}]}}`,
	"storage.k8s.io/csistoragecapacities":                      `{"storageClassName": "stub"}`,
	"storage.k8s.io/storageclasses":                            `{"provisioner": "example.com/stub"}`,
	"storage.k8s.io/volumeattachments":                         `{"spec": {"attacher": "stub.example.com", "nodeName": "nowhere", "source": {"persistentVolumeName": "stub"}}}`,
	"storage.k8s.io/volumeattributesclasses":                   `{"driverName": "stub.example.com", "parameters": {"a": "b"}}`,
	"storagemigration.k8s.io/storageversionmigrations":         `{"spec": {"resource": {"group": "nothing.example.com", "resource": "nothings"}}}`,
	"widgets.example.com/widgets":                              `{"spec": {"size": 42}}`,
}

// stubOf returns a new object of the resource, and whether there is a stub for it.
func stubOf(resource schema.GroupVersionResource, kind, namespace string) (*unstructured.Unstructured, bool) {
	text, ok := stubs[resource.Group+"/"+resource.Resource]
	if !ok {
		return nil, false
	}
	text = strings.NewReplacer("NAMESPACE", namespace, "REQUEST", certificateRequest, "UNARMORED", unarmoredRequest, "CERTIFICATE", certificate).Replace(text)
	u := &unstructured.Unstructured{}
	Expect(json.Unmarshal([]byte(text), &u.Object)).To(Succeed(), "the stub of %s", resource)
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: kind})
	if _, named, _ := unstructured.NestedString(u.Object, "metadata", "name"); !named {
		u.SetName(fmt.Sprintf("stub-of-%s", resource.Resource))
	}
	return u, true
}
