// Package policyreport holds the kinds of the reports that an audit writes into the cluster: Reports and ClusterReports of
// openreports.io, or else PolicyReports and ClusterPolicyReports of wgpolicyk8s.io. It also removes them. Both have the same
// fields (github.com/openreports/reports-api, github.com/kubernetes-sigs/wg-policy-prototypes).
package policyreport

import (
	"context"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// Label marks the reports of a program. Its value is the fingerprint.
const Label = "eirinix.cloudfoundry.org/audit"

// Kinds are those of reports in a namespace and of others, for both groups. The first group that is served has the reports.
var Kinds = []schema.GroupVersionKind{
	{Group: "openreports.io", Version: "v1alpha1", Kind: "Report"},
	{Group: "openreports.io", Version: "v1alpha1", Kind: "ClusterReport"},
	{Group: "wgpolicyk8s.io", Version: "v1alpha2", Kind: "PolicyReport"},
	{Group: "wgpolicyk8s.io", Version: "v1alpha2", Kind: "ClusterPolicyReport"},
}

// Resources are the resources that an audit with reports lists, writes and deletes.
func Resources() []schema.GroupVersionResource {
	return list.Of(Kinds, func(k schema.GroupVersionKind) schema.GroupVersionResource {
		plural, _ := meta.UnsafeGuessKindToResource(k)
		return plural
	})
}

// Remove deletes all reports of a program, however many there are. Without the rights for that it logs what does it. The
// transport of c bounds each request.
func Remove(ctx context.Context, c dynamic.Interface, fingerprint string, log logr.Logger) {
	if err := remove(ctx, c, fingerprint); err != nil {
		log.Info("the reports of audits, if there are any, stay; remove them with kubectl delete -A -l "+Label+"="+fingerprint, "reason", err.Error())
	}
}

func remove(ctx context.Context, c dynamic.Interface, fingerprint string) error {
	for _, resource := range Resources() {
		page := metav1.ListOptions{LabelSelector: Label + "=" + fingerprint, Limit: 500}
		for more := true; more; more = page.Continue != "" {
			found, err := c.Resource(resource).List(ctx, page)
			if apierrors.IsNotFound(err) {
				break // the cluster does not serve the kind
			} else if err != nil {
				return err
			}
			for i := range found.Items {
				report := &found.Items[i]
				if err := c.Resource(resource).Namespace(report.GetNamespace()).Delete(ctx, report.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			page.Continue = found.GetContinue()
		}
	}
	return nil
}
