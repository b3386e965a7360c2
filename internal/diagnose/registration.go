package diagnose

// This file compares the registered webhook configurations with the expected ones.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// hook is one entry of a webhook configuration, of either kind. It has the mutating form. The fields that a validating
// entry lacks are empty.
type hook struct {
	kind, configuration string
	name                string
	admissionregistrationv1.MutatingWebhook
}

// String names the entry and its configuration.
func (h hook) String() string { return fmt.Sprintf("webhook %s of %s", h.name, h.where()) }

func (h hook) where() string { return h.kind + " " + h.configuration }

func (h hook) ignores() bool {
	return h.FailurePolicy != nil && *h.FailurePolicy == admissionregistrationv1.Ignore
}

// target returns the address that the API server calls for the entry, in the form that a user would write, and the
// path.
func (h hook) target() (string, string) {
	c := h.ClientConfig
	if c.Service == nil {
		if c.URL == nil {
			return "", ""
		}
		address := *c.URL
		if scheme := strings.Index(address, "://"); scheme >= 0 {
			if slash := strings.Index(address[scheme+3:], "/"); slash >= 0 {
				return address[:scheme+3+slash], address[scheme+3+slash:]
			}
		}
		return address, ""
	}
	t := webhookconf.Target{Service: c.Service.Name, Namespace: c.Service.Namespace, Port: 443}
	if c.Service.Port != nil {
		t.Port = *c.Service.Port
	}
	path := ""
	if c.Service.Path != nil {
		path = *c.Service.Path
	}
	return t.String(), path
}

// configuration is one webhook configuration of the cluster.
type configuration struct {
	kind, name string
	owner      string
	hooks      []hook
}

// kindOf is one of the two kinds of configuration, with the functions that read it.
type kindOf struct {
	kind, resource, name string
	validating           bool
	get                  func(context.Context, string) (configuration, error)
	list                 func(context.Context) ([]configuration, error)
}

// kinds returns the kinds in which an entry should be registered.
func (c Config) kinds() []kindOf {
	var some []kindOf
	for _, k := range c.bothKinds() {
		for _, e := range c.Entries {
			if e.Validating == k.validating {
				some = append(some, k)
				break
			}
		}
	}
	return some
}

func (c Config) bothKinds() []kindOf {
	return []kindOf{mutating(c.Clients, c.Options.Fingerprint), validating(c.Clients, c.Options.Fingerprint)}
}

func mutating(clients cluster.Clients, fingerprint string) kindOf {
	k := webhookconf.Mutating
	read := func(c *admissionregistrationv1.MutatingWebhookConfiguration) configuration {
		found := configuration{kind: k.Name, name: c.Name, owner: c.Annotations[webhookconf.OwnerAnnotation]}
		for _, w := range c.Webhooks {
			found.hooks = append(found.hooks, hook{kind: k.Name, configuration: c.Name, name: w.Name, MutatingWebhook: w})
		}
		return found
	}
	return kindOf{
		kind: k.Name, resource: k.Resource, name: k.ConfigurationName(fingerprint),
		get: func(ctx context.Context, name string) (configuration, error) {
			c, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return configuration{}, err
			}
			return read(c), nil
		},
		list: func(ctx context.Context) ([]configuration, error) {
			l, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var all []configuration
			for i := range l.Items {
				all = append(all, read(&l.Items[i]))
			}
			return all, nil
		},
	}
}

func validating(clients cluster.Clients, fingerprint string) kindOf {
	k := webhookconf.Validating
	read := func(c *admissionregistrationv1.ValidatingWebhookConfiguration) configuration {
		found := configuration{kind: k.Name, name: c.Name, owner: c.Annotations[webhookconf.OwnerAnnotation]}
		for _, w := range c.Webhooks {
			found.hooks = append(found.hooks, hook{kind: k.Name, configuration: c.Name, name: w.Name, MutatingWebhook: admissionregistrationv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, MatchConditions: w.MatchConditions,
			}})
		}
		return found
	}
	return kindOf{
		kind: k.Name, resource: k.Resource, name: k.ConfigurationName(fingerprint), validating: true,
		get: func(ctx context.Context, name string) (configuration, error) {
			c, err := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return configuration{}, err
			}
			return read(c), nil
		},
		list: func(ctx context.Context) ([]configuration, error) {
			l, err := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var all []configuration
			for i := range l.Items {
				all = append(all, read(&l.Items[i]))
			}
			return all, nil
		},
	}
}

// registered reads our own configurations, and looks for the entries in them.
func (d *diagnostic) registered(ctx context.Context) {
	d.looked = true
	for _, k := range d.kinds() {
		found, err := within(ctx, d.timeout(), func(ctx context.Context) (configuration, error) { return k.get(ctx, k.name) })
		object := k.kind + " " + k.name
		switch {
		case apierrors.IsNotFound(err):
			d.add(diagnosis.Finding{
				Code: diagnosis.NotRegistered, Severity: diagnosis.Problem, Object: object,
				Message: object + " does not exist, so the API server does not know of this program",
				Remedy:  "run a Manager with RegisterWebHook, or call RegisterExtensions",
			})
		case err != nil:
			d.looked = false
			d.noteMissingRight(err, rightOn(k.resource)("get", k.name))
		case d.Owner != "" && found.owner != "" && found.owner != d.Owner:
			d.add(diagnosis.Finding{
				Code: diagnosis.OwnedElsewhere, Severity: diagnosis.Problem, Object: object,
				Message: fmt.Sprintf("%s belongs to the deployment whose certificate Secret is %s, not to this one (%s)", object, found.owner, d.Owner),
				Remedy:  "set ManagerOptions.OperatorFingerprint to another name, or delete that configuration if its deployment is gone",
			})
		default:
			d.compare(k, found)
		}
	}
}

// compare looks for the entries of one kind in the configuration.
func (d *diagnostic) compare(k kindOf, found configuration) {
	expected := map[string]hook{}
	for _, w := range d.Options.Mutating(asMutating(d.Entries, k.validating)) {
		expected[w.Name] = hook{name: w.Name, MutatingWebhook: w}
	}
	object := k.kind + " " + k.name
	var missing []string
	for _, e := range d.Entries {
		if e.Validating != k.validating {
			continue
		}
		name := d.Options.WebhookName(e.Name)
		h, ok := find(found.hooks, name)
		switch {
		case ok:
			d.live[e.Path] = h
			d.compareEntry(h, expected[name])
		case e.Name == CanaryName:
			d.add(diagnosis.Finding{
				Code: diagnosis.NotRegistered, Severity: diagnosis.Warning, Object: "webhook " + name,
				Message: fmt.Sprintf("%s does not hold the canary's entry %s, so the path is only looked at from this process", object, name),
				Remedy:  "call RegisterExtensions of this version",
			})
		default:
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		d.add(diagnosis.Finding{
			Code: diagnosis.NotRegistered, Severity: diagnosis.Problem, Object: object,
			Message: fmt.Sprintf("%s does not hold %s, so the API server does not call for them", object, strings.Join(missing, ", ")),
			Remedy:  "call RegisterExtensions of this version, and see whether another version or tool writes that configuration too",
		})
	}
}

func (d *diagnostic) compareEntry(live, expected hook) {
	is, path := live.target()
	should, expectedPath := expected.target()
	if is != should || path != expectedPath {
		d.add(diagnosis.Finding{
			Code: diagnosis.WrongTarget, Severity: diagnosis.Problem, Object: live.where(), // all entries have one address, so one finding is enough
			Message: fmt.Sprintf("%s makes the API server call %s%s instead of %s%s", live, is, path, should, expectedPath),
			Remedy:  "call RegisterExtensions with the options of this program, and see which other program writes that configuration",
		})
	}
	d.trust(live)
	d.compareSelectors(live, expected)
}

func find(hooks []hook, name string) (hook, bool) {
	for _, h := range hooks {
		if h.name == name {
			return h, true
		}
	}
	return hook{}, false
}

// asMutating returns the entries of one kind as mutating ones, so that one builder serves both kinds.
func asMutating(entries []webhookconf.Entry, validating bool) []webhookconf.Entry {
	var all []webhookconf.Entry
	for _, e := range entries {
		if e.Validating == validating {
			e.Validating = false
			all = append(all, e)
		}
	}
	return all
}

// trust checks the caBundle of an entry.
func (d *diagnostic) trust(h hook) {
	bundle := h.ClientConfig.CABundle
	const remedy = "let a Manager with RegisterWebHook run, or call RegisterExtensions, and see which other program writes that configuration"
	f := diagnosis.Finding{Severity: diagnosis.Problem, Object: h.where(), Remedy: remedy} // entries share a caBundle, so one finding is enough
	switch {
	case len(bytes.TrimSpace(bundle)) == 0:
		f.Code, f.Message = diagnosis.BundleEmpty, fmt.Sprintf("the caBundle of %s is empty, so the API server trusts only public CAs", h)
	case !readable(bundle):
		f.Code, f.Message = diagnosis.BundleUnreadable, fmt.Sprintf("the caBundle of %s holds no readable certificate, so the API server cannot call", h)
	case d.Verify == nil:
		return
	default:
		err := d.Verify(bundle)
		if err == nil {
			return
		}
		f.Code, f.Evidence = codeOf(err), err.Error()
		f.Message = fmt.Sprintf("the certificate that is served here does not verify against the caBundle of %s", h)
		f.Remedy = remedyFor(f.Code, d.serverName(), remedy)
	}
	d.untrusted = true
	d.add(f)
}

// Subject describes an object by the properties that the rules and selectors of a webhook match.
type Subject struct {
	Namespace   string // empty for a cluster-scoped object
	Name        string // only for the message
	Labels      map[string]string
	Resource    schema.GroupVersionResource
	Subresource string
	Operation   admissionregistrationv1.OperationType
}

func (s Subject) String() string {
	name := strings.TrimPrefix(s.Namespace+"/"+s.Name, "/")
	return strings.TrimSpace(fmt.Sprintf("%s of %s %s", s.Operation, s.Resource.Resource, name))
}

// labelsOf holds the labels of a namespace. missing means that the namespace does not exist.
type labelsOf struct {
	labels  labels.Set
	missing bool
	unknown bool
}

// namespace reads the labels of a namespace, and caches them.
func (d *diagnostic) namespace(ctx context.Context, name string) labelsOf {
	if known, ok := d.namespaces[name]; ok {
		return known
	}
	ns, err := within(ctx, d.timeout(), func(ctx context.Context) (*corev1.Namespace, error) {
		return d.Clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	})
	var found labelsOf
	switch {
	case apierrors.IsNotFound(err):
		found.missing = true
	case err != nil:
		d.noteMissingRight(err, diagnosis.Right{Resource: "namespaces", Verb: "get", Name: name})
		// The API server sets this label on every namespace.
		found = labelsOf{labels: labels.Set{corev1.LabelMetadataName: name}, unknown: true}
	default:
		found.labels = ns.Labels
	}
	d.namespaces[name] = found
	return found
}

// excludes names the selector of the entry that excludes the subject. It is empty if none does. If the namespace's
// labels have not been read, it assumes only the label that every namespace has.
func (d *diagnostic) excludes(h hook, s Subject) string {
	if s.Namespace != "" {
		ns, read := d.namespaces[s.Namespace]
		if !read {
			ns.labels = labels.Set{corev1.LabelMetadataName: s.Namespace}
		}
		if !matches(h.NamespaceSelector, ns.labels) {
			return fmt.Sprintf("namespaceSelector %q", metav1.FormatLabelSelector(h.NamespaceSelector))
		}
	}
	if !matches(h.ObjectSelector, s.Labels) {
		return fmt.Sprintf("objectSelector %q", metav1.FormatLabelSelector(h.ObjectSelector))
	}
	return ""
}

func matches(s *metav1.LabelSelector, set labels.Set) bool {
	if s == nil {
		return true // the API server defaults it to the empty selector, which selects everything
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set)
}

// compareSelectors reports the selectors of an entry that differ from the expected ones.
func (d *diagnostic) compareSelectors(live, expected hook) {
	differ := func(name string, is, should *metav1.LabelSelector) {
		if equality.Semantic.DeepEqual(is, should) {
			return
		}
		d.add(diagnosis.Finding{
			Code: diagnosis.Excluded, Severity: diagnosis.Warning, Object: live.String() + " " + name,
			Message: fmt.Sprintf("the %s of %s is %q instead of %q, so that the API server calls for other objects", name, live,
				metav1.FormatLabelSelector(is), metav1.FormatLabelSelector(should)),
			Remedy: "call RegisterExtensions, and see which other program writes that configuration",
		})
	}
	differ("namespaceSelector", live.NamespaceSelector, expected.NamespaceSelector)
	differ("objectSelector", live.ObjectSelector, expected.ObjectSelector)
}

// selected checks whether the namespaces that the entries select exist.
func (d *diagnostic) selected(ctx context.Context) {
	if ns := d.Options.Namespace; ns != "" && d.namespace(ctx, ns).missing {
		d.add(diagnosis.Finding{
			Code: diagnosis.Excluded, Severity: diagnosis.Warning, Object: "Namespace " + ns,
			Message: fmt.Sprintf("Namespace %s, the only one that is selected, does not exist, so the API server calls for nothing", ns),
			Remedy:  "create it, or set ManagerOptions.Namespace to another one",
		})
		return
	}
	var all []corev1.Namespace
	listed := false
	for _, e := range d.Entries {
		h, live := d.live[e.Path]
		if !live || e.Name == CanaryName || !narrow(h.NamespaceSelector, d.Options.Namespace) {
			continue
		}
		if !listed {
			list, err := within(ctx, d.timeout(), func(ctx context.Context) (*corev1.NamespaceList, error) {
				return d.Clients.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			})
			if err != nil {
				d.noteMissingRight(err, diagnosis.Right{Resource: "namespaces", Verb: "list"})
				return
			}
			all, listed = list.Items, true
		}
		if !slices.ContainsFunc(all, func(ns corev1.Namespace) bool { return matches(h.NamespaceSelector, ns.Labels) }) {
			d.add(diagnosis.Finding{
				Code: diagnosis.Excluded, Severity: diagnosis.Warning, Object: h.String(),
				Message: fmt.Sprintf("the namespaceSelector %q of %s matches none of the %d namespaces there are", metav1.FormatLabelSelector(h.NamespaceSelector), h, len(all)),
				Remedy:  "label the namespaces that are meant, or change Settings.Namespaces",
			})
		}
	}
}

// narrow reports whether a namespaceSelector does more than exclude namespaces. The name of the namespace one does not
// count, because selected has checked it already.
func narrow(s *metav1.LabelSelector, one string) bool {
	if s == nil {
		return false
	}
	for key, value := range s.MatchLabels {
		if key != corev1.LabelMetadataName || value != one {
			return true
		}
	}
	return slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Operator != metav1.LabelSelectorOpNotIn && r.Operator != metav1.LabelSelectorOpDoesNotExist
	})
}

// checkSubject reports which entries exclude the subject, and why.
func (d *diagnostic) checkSubject(ctx context.Context) {
	if d.Subject == nil {
		return
	}
	s := *d.Subject
	if s.Namespace != "" {
		d.namespace(ctx, s.Namespace)
	}
	ruled := false
	for _, e := range d.Entries {
		h, live := d.live[e.Path]
		if !live || !slices.ContainsFunc(h.Rules, s.matchedBy) {
			continue
		}
		ruled = true
		if why := d.excludes(h, s); why != "" {
			d.add(diagnosis.Finding{
				Code: diagnosis.Excluded, Severity: diagnosis.Warning, Object: h.String() + " " + s.String(),
				Message: fmt.Sprintf("the API server does not call for the %s, because the %s of %s leaves it out", s, why, h),
				Remedy:  "change the labels of the object or of its namespace, or Settings.Namespaces, Settings.Objects and ManagerOptions.Namespace",
			})
		}
	}
	if !ruled && d.looked {
		d.add(diagnosis.Finding{
			Code: diagnosis.Excluded, Severity: diagnosis.Warning, Object: s.String(),
			Message: fmt.Sprintf("the API server does not call for the %s, because no rule that is registered matches it", s),
			Remedy:  "name the resource and the operation in Settings.Rules",
		})
	}
}

func (s Subject) matchedBy(r admissionregistrationv1.RuleWithOperations) bool {
	resource := s.Resource.Resource
	if s.Subresource != "" {
		resource += "/" + s.Subresource
	}
	return overlap(r, admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{s.Operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{s.Resource.Group}, Resources: []string{resource}},
	})
}

// VersionInfo is one live version of this program. A version is a set of steps: replicas with equal steps are of one
// version.
type VersionInfo struct {
	Version    string   // its digest
	Ours       bool     // the version of this process
	Registered bool     // the API server calls its paths
	Came       int64    // increases in the order of arrival
	Steps      []string // its steps
}

// versions reports which version waits for which. That is normal during a rollout, but new steps of a waiting version
// are not in force.
func (d *diagnostic) versions() {
	if d.Versions == nil {
		return
	}
	all := slices.Clone(d.Versions())
	slices.SortStableFunc(all, func(a, b VersionInfo) int { return cmp.Compare(a.Came, b.Came) })
	at := slices.IndexFunc(all, func(v VersionInfo) bool { return v.Registered })
	if at < 0 {
		return // the registration itself is missing, which is another finding
	}
	first := all[at]
	for i, v := range all {
		if i == at {
			continue
		}
		f := diagnosis.Finding{
			Code: diagnosis.SeveralVersions, Severity: diagnosis.Note, Object: "version " + v.Version,
			Message: fmt.Sprintf("the registration of %s stands as long as its replicas answer; %s comes after %s", first, v, before(all, i, at)),
			Remedy:  "finish the rollout, or stop the other version",
		}
		if v.Ours {
			f.Severity = diagnosis.Warning
			f.Message += v.newSteps(first)
		}
		d.add(f)
	}
}

// String names the version in a sentence.
func (v VersionInfo) String() string {
	if v.Ours {
		return "this version " + v.Version
	}
	return "version " + v.Version
}

// before names the version that came before the i-th. first is the registered one, which the sentence has already
// named.
func before(all []VersionInfo, i, first int) string {
	if i == 0 || i-1 == first {
		return "it"
	}
	return "version " + all[i-1].Version
}

// newSteps names the steps that are not in force yet.
func (v VersionInfo) newSteps(first VersionInfo) string {
	added := slices.DeleteFunc(slices.Clone(v.Steps), func(s string) bool { return slices.Contains(first.Steps, s) })
	if len(added) == 0 {
		return ""
	}
	return ", and until then its new steps are not called: " + strings.Join(added, ", ")
}
