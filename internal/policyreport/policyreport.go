// Package policyreport writes the findings of an audit into the cluster: as Reports and ClusterReports of openreports.io,
// or else as PolicyReports and ClusterPolicyReports of wgpolicyk8s.io. Both have the same fields
// (github.com/openreports/reports-api, github.com/kubernetes-sigs/wg-policy-prototypes).
//
// There is one report for each namespace and resource with findings. A second audit with the same findings changes
// nothing.
package policyreport

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// Label marks the reports of a program. Its value is the fingerprint.
	Label = "eirinix.cloudfoundry.org/audit"

	// leftOutAnnotation is the number of findings that a report has no room for.
	leftOutAnnotation = "eirinix.cloudfoundry.org/left-out"

	// mostResults and mostMessage (in bytes) bound a report to less than half of what etcd stores.
	mostResults, mostMessage = 500, 1000

	requestTimeout = 30 * time.Second
	pageSize       = 500
)

// NoKinds is logged if New returns nil.
const NoKinds = "the cluster has no kind for reports, so none are written; install the CustomResourceDefinitions of openreports.io or wgpolicyk8s.io"

// Finding is a finding about one object.
type Finding struct {
	Step, Mode, Operation string
	Result                string // denied, drift, failed or untold
	Message               string

	Kind            schema.GroupVersionKind
	Resource        schema.GroupVersionResource
	Namespace, Name string
	UID             string
}

// results maps the results of an audit to those of reports.
var results = map[string]string{"denied": "fail", "drift": "warn", "failed": "error", "untold": "skip"}

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

// Writer writes reports. It is for one goroutine.
type Writer struct {
	client      client.Client
	kinds       kinds
	fingerprint string
	namespace   string // the only one of the audit; empty for all
	log         logr.Logger

	at      place
	pending []Finding
	counts  map[string]int64   // by a report's result
	wrote   map[place]struct{} // reports of this audit
	asked   map[place]struct{} // all objects of these have been audited; an empty namespace means all
}

// place identifies a report.
type place struct{ namespace, name string }

// New returns a Writer of the group that the cluster serves, or nil if it serves none, which is logged. namespace is the
// only one of the audit; it is empty for an audit of all.
func New(ctx context.Context, config *rest.Config, fingerprint, namespace string, log logr.Logger) (*Writer, error) {
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		err := wait.Retry(ctx, log, "the kinds of reports", func(context.Context) error {
			_, err := served.ServerResourcesForGroupVersion(g.namespaced.GroupVersion().String())
			return err
		})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, err
		}
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(g.namespaced, meta.RESTScopeNamespace)
		mapper.Add(g.cluster, meta.RESTScopeRoot)
		c, err := client.New(config, client.Options{Mapper: mapper})
		return &Writer{client: c, kinds: g, fingerprint: fingerprint, namespace: namespace, log: log, wrote: map[place]struct{}{}, asked: map[place]struct{}{}}, err
	}
	log.Info(NoKinds)
	return nil, nil
}

// Add adds a finding. Findings must come by resource, and those of a resource by namespace: Add writes a report when
// the next one begins.
func (w *Writer) Add(ctx context.Context, f Finding) error {
	if at := (place{f.Namespace, w.nameOf(f.Resource)}); at != w.at {
		if err := w.flush(ctx); err != nil {
			return err
		}
		w.at, w.counts = at, map[string]int64{}
	}
	w.counts[results[f.Result]]++
	if len(w.pending) < mostResults {
		f.Message = cut(f.Message)
		w.pending = append(w.pending, f)
	}
	return nil
}

// nameOf returns the name of the reports of a resource: a DNS subdomain.
func (w *Writer) nameOf(r schema.GroupVersionResource) string {
	return strings.TrimSuffix(w.fingerprint+"-"+r.Resource+"."+r.Version+"."+r.Group, ".")
}

// cut shortens a message, at the end of a character.
func cut(message string) string {
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= mostMessage {
		return message
	}
	end := mostMessage
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end]
}

// flush writes the report of the findings so far.
func (w *Writer) flush(ctx context.Context) error {
	if len(w.pending) == 0 {
		return nil
	}
	if _, again := w.wrote[w.at]; again {
		return fmt.Errorf("report %s: its findings do not come one after another", w.describe(w.at))
	}
	report := w.report()
	err := w.request(ctx, func(ctx context.Context) error {
		return w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(report.DeepCopy()), client.ForceOwnership, client.FieldOwner(w.fingerprint+"-audit"))
	})
	if err != nil {
		return w.explain("patch and create", w.at, err)
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

func (w *Writer) describe(at place) string {
	return w.kindAt(at.namespace).Kind + " " + strings.TrimPrefix(at.namespace+"/"+at.name, "/")
}

// explain names the report and, if rights are missing, the rule that grants them.
func (w *Writer) explain(verbs string, at place, err error) error {
	if apierrors.IsForbidden(err) {
		plural, _ := meta.UnsafeGuessKindToResource(w.kindAt(at.namespace))
		return fmt.Errorf("%s (needs %s on %s.%s in a ClusterRole): %w", w.describe(at), verbs, plural.Resource, plural.Group, err)
	}
	return fmt.Errorf("%s: %w", w.describe(at), err)
}

// report returns the report of the pending findings.
func (w *Writer) report() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(w.kindAt(w.at.namespace))
	u.SetNamespace(w.at.namespace)
	u.SetName(w.at.name)
	u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "eirinix", Label: w.fingerprint})
	all, total := make([]any, 0, len(w.pending)), int64(0)
	for _, f := range w.pending {
		all = append(all, w.result(f))
	}
	summary := map[string]any{}
	for _, result := range []string{"pass", "fail", "warn", "error", "skip"} {
		summary[result] = w.counts[result]
		total += w.counts[result]
	}
	if more := total - int64(len(all)); more > 0 {
		u.SetAnnotations(map[string]string{leftOutAnnotation: strconv.FormatInt(more, 10)})
	}
	u.Object["summary"], u.Object["results"] = summary, all
	return u
}

func (w *Writer) result(f Finding) map[string]any {
	apiVersion, kind := f.Kind.ToAPIVersionAndKind()
	object := map[string]any{"apiVersion": apiVersion, "kind": kind, "name": f.Name}
	if f.Namespace != "" {
		object["namespace"] = f.Namespace
	}
	if f.UID != "" {
		object["uid"] = f.UID
	}
	properties := map[string]any{}
	for name, value := range map[string]string{"mode": f.Mode, "operation": f.Operation} {
		if value != "" {
			properties[name] = value
		}
	}
	return map[string]any{
		"source": "eirinix", "policy": w.fingerprint, "rule": f.Step, "category": "admission", "result": results[f.Result],
		"message": f.Message, "resources": []any{object}, "properties": properties,
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
	if err := w.clean(ctx, w.kinds.namespaced, complete); err != nil || w.namespace != "" {
		return err
	}
	return w.clean(ctx, w.kinds.cluster, complete)
}

// clean deletes the reports of a kind that this audit did not write.
func (w *Writer) clean(ctx context.Context, kind schema.GroupVersionKind, complete bool) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	var old []*metav1.PartialObjectMetadata
	for more := true; more; more = list.Continue != "" {
		err := w.request(ctx, func(ctx context.Context) error {
			return w.client.List(ctx, list, client.InNamespace(w.namespace), client.MatchingLabels{Label: w.fingerprint}, client.Limit(pageSize), client.Continue(list.Continue))
		})
		if err != nil {
			return w.explain("list", place{w.namespace, w.fingerprint + "-*"}, err)
		}
		for _, report := range list.Items {
			at := place{report.Namespace, report.Name}
			if _, current := w.wrote[at]; current || !complete && !w.wasAsked(at) {
				continue
			}
			stale := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: at.name, UID: report.UID, ResourceVersion: report.ResourceVersion}}
			stale.SetGroupVersionKind(kind)
			old = append(old, stale)
		}
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
			return w.explain("delete", place{report.Namespace, report.Name}, err)
		}
	}
	return nil
}

// request bounds a request, and repeats it while the API server is not available.
func (w *Writer) request(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return wait.Retry(ctx, w.log, "the reports of the audit", do)
}
