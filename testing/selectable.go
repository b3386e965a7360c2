package eirinixtest

// This file refuses selectors of fields that no API server would answer.

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// selectable are the fields of built-in kinds that a selector can name, beside the name and the namespace, in Kubernetes
// 1.37 (AddFieldLabelConversionFunc of its pkg/apis).
var selectable = map[schema.GroupKind][]string{
	{Kind: "Event"}: {
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
		"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
	},
	{Kind: "Namespace"}: {"status.phase"},
	{Kind: "Node"}:      {"spec.unschedulable"},
	{Kind: "Pod"}: {
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase",
		"status.podIP", "status.podIPs", "status.nominatedNodeName",
	},
	{Kind: "ReplicationController"}: {"status.replicas"},
	{Kind: "Secret"}:                {"type"},
	{Kind: "Service"}:               {"spec.clusterIP", "spec.type"},
	{Group: "batch", Kind: "Job"}:   {"status.successful"},
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {"spec.signerName"},
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:        {"spec.signerName"},
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:     {"spec.signerName", "spec.podName", "spec.nodeName"},
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}:                 {"spec.nodeName", "spec.driver", "spec.pool.name"},
	{Group: "events.k8s.io", Kind: "Event"}: {
		"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion", "regarding.resourceVersion",
		"regarding.fieldPath", "reason", "reportingController", "type",
	},
}

// checkFields returns an error for a Read whose selector names a field that API servers do not know. Which fields of a
// custom resource can be selected stands in its definition, which a test does not have.
func (p *program) checkFields() error {
	for step, all := range p.reads {
		for i, read := range all {
			kind, err := apiutil.GVKForObject(read.Object, p.scheme)
			if err != nil || read.Fields == nil || !clientgoscheme.Scheme.Recognizes(kind) {
				continue
			}
			known := append([]string{metav1.ObjectNameField, "metadata.namespace"}, selectable[kind.GroupKind()]...)
			for _, f := range read.Fields.Requirements() {
				if !slices.Contains(known, f.Field) {
					return fmt.Errorf("eirinixtest: step %q: Settings.Reads[%d].Fields selects by %s, and API servers know only %s of a %s; read all, and use Read.Index",
						step, i, f.Field, strings.Join(known, ", "), kind.Kind)
				}
			}
		}
	}
	return nil
}
