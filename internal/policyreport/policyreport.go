// Package policyreport writes the findings of an audit into the cluster: as Reports and ClusterReports of openreports.io,
// or else as PolicyReports and ClusterPolicyReports of wgpolicyk8s.io. Both have the same fields
// (github.com/openreports/reports-api, github.com/kubernetes-sigs/wg-policy-prototypes).
//
// There is one report for each namespace and resource with findings. A second audit with the same findings changes
// nothing.
package policyreport

import (
	"context"
	"encoding/json"
	"fmt"
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
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// Label marks the reports of a program. Its value is the fingerprint.
	Label = "eirinix.cloudfoundry.org/audit"

	// leftOutAnnotation is the number of findings that a report has no room for.
	leftOutAnnotation = "eirinix.cloudfoundry.org/left-out"

	// mostResults, mostMessage and mostBytes bound a report to half of what etcd stores. The last two are in bytes.
	mostResults, mostMessage, mostBytes = 500, 1000, 768 << 10

	mostExpired = 5 // lists of reports that expire before their end, in a row

	requestTimeout = 30 * time.Second
	pageSize       = 500
)

// NoKinds is logged if New returns nil.
const NoKinds = "the cluster has no kind for reports, so none are written; install the CustomResourceDefinitions of openreports.io or wgpolicyk8s.io"

// results maps the results of an audit to those of reports.
var results = map[audit.Result]string{audit.Denied: "fail", audit.Drift: "warn", audit.Failed: "error", audit.Untold: "skip"}

// kinds are the kinds of a group: of reports in a namespace, and of those without one.
type kinds struct{ namespaced, cluster schema.GroupVersionKind }

var groups = []kinds{
	{
		schema.GroupVersionKind{Group: "openreports.io", Version: "v1alpha1", Kind: "Report"},
		schema.GroupVersionKind{Group: "openreports.io", Version: "v1alpha1", Kind: "ClusterReport"},
	},
	{
		schema.GroupVersionKind{Group: "wgpolicyk8s.io", Version: "v1alpha2", Kind: "PolicyReport"},
		schema.GroupVersionKind{Group: "wgpolicyk8s.io", Version: "v1alpha2", Kind: "ClusterPolicyReport"},
	},
}

// Resources are the resources that a Writer lists, writes and deletes, by group.
func Resources() map[string][]string {
	all := map[string][]string{}
	for _, g := range groups {
		for _, k := range []schema.GroupVersionKind{g.namespaced, g.cluster} {
			plural, _ := meta.UnsafeGuessKindToResource(k)
			all[k.Group] = append(all[k.Group], plural.Resource)
		}
	}
	return all
}

// Writer writes reports, as the audit.Reports of an audit. It is for one goroutine.
type Writer struct {
	client      client.Client
	kinds       kinds                     // of the first group that the cluster serves; cluster can be empty
	served      []schema.GroupVersionKind // the kinds of all groups
	fingerprint string
	namespace   string // the only one of the audit; empty for all
	log         logr.Logger

	at      place
	pending []any              // results
	size    int                // of these, as JSON
	counts  map[string]int64   // by a report's result
	wrote   map[place]struct{} // reports of this audit
	asked   map[place]struct{} // all objects of these have been audited; an empty namespace means all
}

// place identifies a report.
type place struct{ namespace, name string }

// New returns a Writer of the first group that the cluster serves, or nil if it serves none, which is logged. namespace is
// the only one of the audit; it is empty for an audit of all.
func New(ctx context.Context, config *rest.Config, fingerprint, namespace string, log logr.Logger) (*Writer, error) {
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	w := &Writer{fingerprint: fingerprint, namespace: namespace, log: log, wrote: map[place]struct{}{}, asked: map[place]struct{}{}}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, g := range groups {
		var found *metav1.APIResourceList
		err := wait.Retry(ctx, log, "the kinds of reports", func(context.Context) (err error) {
			found, err = discover.ServerResourcesForGroupVersion(g.namespaced.GroupVersion().String())
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err != nil || !serves(found, g.namespaced) {
			continue
		}
		mapper.Add(g.namespaced, meta.RESTScopeNamespace)
		mapper.Add(g.cluster, meta.RESTScopeRoot)
		w.served = append(w.served, g.namespaced)
		if serves(found, g.cluster) {
			w.served = append(w.served, g.cluster)
		} else {
			g.cluster = schema.GroupVersionKind{}
		}
		if w.kinds.namespaced.Empty() {
			w.kinds = g
		}
	}
	if w.kinds.namespaced.Empty() {
		log.Info(NoKinds)
		return nil, nil
	}
	if w.kinds.cluster.Empty() {
		log.Info("the cluster has no kind for reports about objects without a namespace, so none are written about them", "group", w.kinds.namespaced.Group)
	}
	w.client, err = client.New(config, client.Options{Mapper: mapper})
	return w, err
}

func serves(found *metav1.APIResourceList, kind schema.GroupVersionKind) bool {
	return slices.ContainsFunc(found.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind })
}

// Add adds a finding, unless it is about a step as a whole. Findings must come by resource, and those of a resource by
// namespace: Add writes a report when the next one begins.
func (w *Writer) Add(ctx context.Context, f audit.Finding) error {
	if f.Name == "" || w.kindAt(f.Namespace).Empty() {
		return nil
	}
	if at := (place{f.Namespace, w.nameOf(f.Resource)}); at != w.at {
		if err := w.flush(ctx); err != nil {
			return err
		}
		w.at, w.counts, w.size = at, map[string]int64{}, 0
	}
	w.counts[results[f.Result]]++
	if len(w.pending) == mostResults || w.size > mostBytes {
		return nil
	}
	result := w.result(f)
	text, err := json.Marshal(result)
	w.pending, w.size = append(w.pending, result), w.size+len(text)
	return err
}

// nameOf returns the name of the reports of a resource: a DNS subdomain.
func (w *Writer) nameOf(r schema.GroupVersionResource) string {
	return strings.TrimSuffix(w.fingerprint+"-"+r.Resource+"."+r.Version+"."+r.Group, ".")
}

// cut shortens a message, at the end of a character.
func cut(message string) string {
	message = strings.ToValidUTF8(message, "\uFFFD")
	return strings.ToValidUTF8(message[:min(len(message), mostMessage)], "")
}

// flush writes the report of the findings so far.
func (w *Writer) flush(ctx context.Context) error {
	if len(w.pending) == 0 {
		return nil
	}
	if _, again := w.wrote[w.at]; again {
		return fmt.Errorf("report %s: its findings do not come one after another", describe(w.kindAt(w.at.namespace), w.at))
	}
	report := w.report()
	err := w.request(ctx, func(ctx context.Context) error {
		return w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(report.DeepCopy()), client.ForceOwnership, client.FieldOwner(w.fingerprint+"-audit"))
	})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || wait.NamespaceMissing(err):
		w.log.V(1).Info("a namespace is gone, and so is its report", "namespace", w.at.namespace)
	case err != nil:
		return w.explain("patch and create", w.kindAt(w.at.namespace), w.at, err)
	}
	w.wrote[w.at], w.pending = struct{}{}, nil
	return nil
}

// kindAt returns the kind of a report.
func (w *Writer) kindAt(namespace string) schema.GroupVersionKind {
	if namespace == "" {
		return w.kinds.cluster
	}
	return w.kinds.namespaced
}

func describe(kind schema.GroupVersionKind, at place) string {
	return kind.Kind + " " + strings.TrimPrefix(at.namespace+"/"+at.name, "/")
}

// explain names the report and, if rights are missing, the rule that grants them.
func (w *Writer) explain(verbs string, kind schema.GroupVersionKind, at place, err error) error {
	if apierrors.IsForbidden(err) {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		return fmt.Errorf("%s (needs %s on %s.%s in a ClusterRole): %w", describe(kind, at), verbs, plural.Resource, plural.Group, err)
	}
	return fmt.Errorf("%s: %w", describe(kind, at), err)
}

// report returns the report of the pending findings.
func (w *Writer) report() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(w.kindAt(w.at.namespace))
	u.SetNamespace(w.at.namespace)
	u.SetName(w.at.name)
	u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "eirinix", Label: w.fingerprint})
	total := int64(0)
	summary := map[string]any{}
	for _, result := range []string{"pass", "fail", "warn", "error", "skip"} {
		summary[result] = w.counts[result]
		total += w.counts[result]
	}
	if more := total - int64(len(w.pending)); more > 0 {
		u.SetAnnotations(map[string]string{leftOutAnnotation: strconv.FormatInt(more, 10)})
	}
	u.Object["summary"], u.Object["results"] = summary, w.pending
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
		"message": cut(f.Text()), "resources": []any{object}, "properties": properties,
	}
}

// Asked records that all objects of a resource in a namespace have been audited. An empty namespace means all.
func (w *Writer) Asked(r schema.GroupVersionResource, namespace string) {
	w.asked[place{namespace, w.nameOf(r)}] = struct{}{}
}

// wasAsked reports whether all objects of a report have been audited.
func (w *Writer) wasAsked(at place) bool {
	_, everywhere := w.asked[place{"", at.name}]
	_, there := w.asked[at]
	return everywhere || there
}

// Close ends an audit. It writes the last report, unless only some of its objects have been audited. It deletes the
// reports of earlier audits that have no finding now. If the audit is not complete, it keeps those whose objects have not
// been audited. After the end of ctx it does nothing.
func (w *Writer) Close(ctx context.Context, complete bool) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the audit reports the end of ctx
	}
	if complete || w.wasAsked(w.at) {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	for _, kind := range w.served {
		if isCluster := strings.HasPrefix(kind.Kind, "Cluster"); isCluster && w.namespace != "" {
			continue
		}
		if err := w.clean(ctx, kind, complete); err != nil {
			return err
		}
	}
	return nil
}

// clean deletes the reports of a kind that this audit did not write. Those of a group that the cluster served first in
// an earlier audit are among them.
func (w *Writer) clean(ctx context.Context, kind schema.GroupVersionKind, complete bool) error {
	old, err := w.stale(ctx, kind, complete)
	for expired := 0; apierrors.IsResourceExpired(err) && expired < mostExpired; expired++ {
		old, err = w.stale(ctx, kind, complete)
	}
	if err != nil {
		return w.explain("list", kind, place{w.namespace, w.fingerprint + "-*"}, err)
	}
	for _, report := range old {
		err := w.request(ctx, func(ctx context.Context) error {
			err := w.client.Delete(ctx, report, client.Preconditions{UID: &report.UID, ResourceVersion: &report.ResourceVersion})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another audit has written it
				return nil
			}
			return err
		})
		if err != nil {
			return w.explain("delete", kind, place{report.Namespace, report.Name}, err)
		}
	}
	return nil
}

// stale returns the reports of a kind that this audit did not write, and whose objects have been audited.
func (w *Writer) stale(ctx context.Context, kind schema.GroupVersionKind, complete bool) (old []*metav1.PartialObjectMetadata, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for more := true; more; more = list.Continue != "" {
		err := w.request(ctx, func(ctx context.Context) error {
			return w.client.List(ctx, list, client.InNamespace(w.namespace), client.MatchingLabels{Label: w.fingerprint}, client.Limit(pageSize), client.Continue(list.Continue))
		})
		if err != nil {
			return nil, err
		}
		for _, report := range list.Items {
			at := place{report.Namespace, report.Name}
			_, current := w.wrote[at]
			if current && kind == w.kindAt(at.namespace) || !complete && !w.wasAsked(at) {
				continue
			}
			stale := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: at.name, UID: report.UID, ResourceVersion: report.ResourceVersion}}
			stale.SetGroupVersionKind(kind)
			old = append(old, stale)
		}
	}
	return old, nil
}

// request bounds a request, and repeats it while the API server is not available.
func (w *Writer) request(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return wait.Retry(ctx, w.log, "the reports of the audit", do)
}
