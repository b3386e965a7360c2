// Package reports writes the findings of an audit into the cluster: as Reports and ClusterReports of openreports.io,
// or else as PolicyReports and ClusterPolicyReports of wgpolicyk8s.io. Both have the same fields
// (github.com/openreports/reports-api, github.com/kubernetes-sigs/wg-policy-prototypes).
//
// There is one report for each step, resource and namespace with findings. A second audit with the same findings changes
// nothing, and an audit with gaps leaves the reports of what it could not ask as they are.
package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// leftOutAnnotation is the number of findings that a report has no room for.
	leftOutAnnotation = "eirinix.cloudfoundry.org/left-out"

	// stepAnnotation and resourceAnnotation say what a report is about.
	stepAnnotation     = "eirinix.cloudfoundry.org/step"
	resourceAnnotation = "eirinix.cloudfoundry.org/resource"

	// maxResults, maxMessage and maxBytes bound a report to half of what etcd stores. The last two are in bytes.
	maxResults, maxMessage, maxBytes = 500, 1000, 768 << 10

	requestTimeout = 30 * time.Second
	pageSize       = 500
)

// NoKinds is why New returns nil.
const NoKinds = "the cluster has no kind for reports, so none are written; install the CustomResourceDefinitions of openreports.io or wgpolicyk8s.io"

// results maps the results of an audit to those of reports.
var results = map[audit.Result]string{audit.Passed: "pass", audit.Denied: "fail", audit.Drift: "warn", audit.Failed: "error"}

// ofCluster reports whether a kind is about objects without a namespace.
func ofCluster(kind schema.GroupVersionKind) bool { return strings.HasPrefix(kind.Kind, "Cluster") }

// Writer writes reports, as the audit.Reports of an audit. It is for one goroutine.
type Writer struct {
	Owner *metav1.OwnerReference // of the reports; may be nil

	client      client.Client
	served      []schema.GroupVersionKind // of policyreport.Kinds
	fingerprint string
	namespace   string // the only one of the audit; empty for all
	log         logr.Logger

	at      place              // of the findings that come now
	pending map[string]*report // by step
	wrote   map[string]bool    // reports of this audit, as describe returns them
	gaps    []audit.Gap
}

// place is a resource in a namespace.
type place struct {
	resource  schema.GroupVersionResource
	namespace string
}

// report holds the findings of a step at a place.
type report struct {
	results []any
	size    int              // of these, as JSON
	counts  map[string]int64 // by a report's result
}

// New returns a Writer of the first group that the cluster serves, or nil if it serves none. namespace is the only one of
// the audit; it is empty for an audit of all.
func New(ctx context.Context, config *rest.Config, fingerprint, namespace string, log logr.Logger) (*Writer, error) {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	w := &Writer{client: c, fingerprint: fingerprint, namespace: namespace, log: log, pending: map[string]*report{}, wrote: map[string]bool{}}
	for _, kind := range policyreport.Kinds {
		err := w.request(ctx, func(context.Context) error {
			_, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
			return err
		})
		switch {
		case meta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, err
		}
		w.served = append(w.served, kind)
	}
	if len(w.served) == 0 {
		return nil, nil
	}
	if w.kindAt("").Empty() {
		log.Info("the cluster has no kind for reports about objects without a namespace, so none are written about them", "group", w.served[0].Group)
	}
	return w, nil
}

// Add adds a finding about an object. Findings must come by resource, and those of a resource by namespace: Add writes the
// reports of a place when the next one begins.
func (w *Writer) Add(ctx context.Context, f audit.Finding) error {
	if w.kindAt(f.Namespace).Empty() {
		return nil
	}
	if at := (place{f.Resource, f.Namespace}); at != w.at {
		if err := w.flush(ctx); err != nil {
			return err
		}
		w.at = at
	}
	r := w.pending[f.Step]
	if r == nil {
		r = &report{counts: map[string]int64{}}
		w.pending[f.Step] = r
	}
	r.counts[results[f.Result]]++
	if f.Result == audit.Passed || len(r.results) == maxResults || r.size > maxBytes {
		return nil
	}
	result := w.result(f)
	text, err := json.Marshal(result)
	r.results, r.size = append(r.results, result), r.size+len(text)
	return err
}

// Gap keeps the reports of what could not be asked, also instead of a part of a new one.
func (w *Writer) Gap(g audit.Gap) {
	if g.Objects > 0 {
		return // a failure is a result
	}
	w.gaps = append(w.gaps, g)
	if covers(g, g.Step, groupVersionResource(w.at.resource), w.at.namespace) {
		delete(w.pending, g.Step)
	}
}

// covers reports whether a report is about something in a gap.
func covers(g audit.Gap, step, resource, namespace string) bool {
	of := groupVersionResource(g.Resource)
	if g.Resource.Resource == "" && !g.Resource.Empty() { // a whole group
		_, resource, _ = strings.Cut(resource, ".")
		of = strings.TrimPrefix(of, ".")
	}
	return step == g.Step && (g.Resource.Empty() || resource == of) && (g.Namespace == "" || namespace == g.Namespace)
}

// groupVersionResource returns the name of a resource: pods.v1, deployments.v1.apps.
func groupVersionResource(r schema.GroupVersionResource) string {
	return strings.TrimSuffix(r.Resource+"."+r.Version+"."+r.Group, ".")
}

// flush writes the reports of the present place.
func (w *Writer) flush(ctx context.Context) error {
	for _, step := range slices.Sorted(maps.Keys(w.pending)) {
		if len(w.pending[step].results) == 0 {
			continue
		}
		report := w.report(step)
		if w.wrote[describe(report)] {
			return fmt.Errorf("report %s: its findings do not come one after another", describe(report))
		}
		err := w.request(ctx, func(ctx context.Context) error {
			return w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(report.DeepCopy()), client.ForceOwnership, client.FieldOwner(w.fingerprint+"-audit"))
		})
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || wait.NamespaceMissing(err):
			w.log.V(1).Info("a namespace is gone, and so is its report", "namespace", w.at.namespace)
		case err != nil:
			return explain("patch and create", report, err)
		}
		w.wrote[describe(report)] = true
	}
	clear(w.pending)
	return nil
}

// kindAt returns the kind of the reports in a namespace, or of the others. It is empty if the cluster has none.
func (w *Writer) kindAt(namespace string) (found schema.GroupVersionKind) {
	for _, kind := range w.served {
		if kind.Group == w.served[0].Group && ofCluster(kind) == (namespace == "") {
			found = kind
		}
	}
	return found
}

// describe names a report.
func describe(report client.Object) string {
	kind := report.GetObjectKind().GroupVersionKind().Kind
	return kind + " " + strings.TrimPrefix(report.GetNamespace()+"/"+report.GetName(), "/")
}

// explain names the report and, if rights are missing, the rule that grants them. It returns nil for nil.
func explain(verbs string, report client.Object, err error) error {
	if err == nil {
		return nil
	}
	if apierrors.IsForbidden(err) {
		plural, _ := meta.UnsafeGuessKindToResource(report.GetObjectKind().GroupVersionKind())
		return fmt.Errorf("%s (needs %s on %s.%s in a ClusterRole): %w", describe(report), verbs, plural.Resource, plural.Group, err)
	}
	return fmt.Errorf("%s: %w", describe(report), err)
}

// report returns the report of a step at the present place.
func (w *Writer) report(step string) *unstructured.Unstructured {
	found := w.pending[step]
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(w.kindAt(w.at.namespace))
	u.SetNamespace(w.at.namespace)
	u.SetName(w.fingerprint + "-" + step + "-" + groupVersionResource(w.at.resource)) // a DNS subdomain
	u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "eirinix", policyreport.Label: w.fingerprint})
	if w.Owner != nil {
		u.SetOwnerReferences([]metav1.OwnerReference{*w.Owner})
	}
	annotations := map[string]string{stepAnnotation: step, resourceAnnotation: groupVersionResource(w.at.resource)}
	total := int64(0)
	summary := map[string]any{}
	for _, result := range []string{"pass", "fail", "warn", "error", "skip"} {
		summary[result] = found.counts[result]
		total += found.counts[result]
	}
	if more := total - found.counts["pass"] - int64(len(found.results)); more > 0 {
		annotations[leftOutAnnotation] = strconv.FormatInt(more, 10)
	}
	u.SetAnnotations(annotations)
	u.Object["summary"], u.Object["results"] = summary, found.results
	return u
}

func (w *Writer) result(f audit.Finding) map[string]any {
	apiVersion, kind := f.Kind.ToAPIVersionAndKind()
	object := map[string]any{"apiVersion": apiVersion, "kind": kind, "name": f.Name}
	if f.Namespace != "" {
		object["namespace"] = f.Namespace
	}
	if f.UID != "" {
		object["uid"] = string(f.UID)
	}
	properties := map[string]any{}
	for name, value := range map[string]string{"mode": string(f.Mode), "operation": string(f.Operation)} {
		if value != "" {
			properties[name] = value
		}
	}
	return map[string]any{
		"source": "eirinix", "policy": w.fingerprint, "rule": f.Step, "category": "admission", "result": results[f.Result],
		"message": lograte.Brief(strings.ToValidUTF8(f.Text(), "\uFFFD"), maxMessage), "resources": []any{object}, "properties": properties,
	}
}

// Close ends an audit. It writes the last reports, and deletes those of earlier audits that have no finding now, unless
// they are about something that could not be asked. Without an audit, it deletes all.
func (w *Writer) Close(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	for _, kind := range w.served {
		if ofCluster(kind) && w.namespace != "" {
			continue
		}
		if err := w.clean(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

// clean deletes the reports of a kind that this audit did not write, and that are in no gap. Those of a group that the
// cluster served first in an earlier audit are among them.
func (w *Writer) clean(ctx context.Context, kind schema.GroupVersionKind) error {
	for next, more := "", true; more; more = next != "" {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := w.request(ctx, func(ctx context.Context) error {
			return w.client.List(ctx, list, client.InNamespace(w.namespace), client.MatchingLabels{policyreport.Label: w.fingerprint}, client.Limit(pageSize), client.Continue(next))
		})
		if err != nil {
			every := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.fingerprint + "-*"}}
			every.SetGroupVersionKind(kind)
			return explain("list", every, err)
		}
		next = list.Continue
		for i := range list.Items {
			if err := w.remove(ctx, kind, &list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes a report, unless it stays.
func (w *Writer) remove(ctx context.Context, kind schema.GroupVersionKind, report *metav1.PartialObjectMetadata) error {
	report.SetGroupVersionKind(kind)
	about := report.GetAnnotations()
	if w.wrote[describe(report)] || slices.ContainsFunc(w.gaps, func(g audit.Gap) bool {
		return covers(g, about[stepAnnotation], about[resourceAnnotation], report.GetNamespace())
	}) {
		return nil
	}
	object := &unstructured.Unstructured{} // the answer is the report, where finalizers hold it, and is of an unknown type
	object.SetGroupVersionKind(kind)
	object.SetNamespace(report.Namespace)
	object.SetName(report.Name)
	err := w.request(ctx, func(ctx context.Context) error {
		err := w.client.Delete(ctx, object, client.Preconditions{UID: &report.UID, ResourceVersion: &report.ResourceVersion})
		if apierrors.IsConflict(err) { // another audit has written it
			return nil
		}
		return client.IgnoreNotFound(err)
	})
	return explain("delete", report, err)
}

// request bounds a request, and repeats it while the API server is not available.
func (w *Writer) request(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return wait.Retry(ctx, w.log, "the reports of the audit", do)
}
