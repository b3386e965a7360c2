package diagnose

// This file compares the registered webhook configurations and conversion webhooks with the expected ones, and reports the
// versions of this program that run side by side.

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// hook is one entry of a webhook configuration of either kind. It has the mutating form, of which a validating entry is
// a part.
type hook struct {
	configuration
	admissionregistrationv1.MutatingWebhook
	orphan bool // see checkOrphans
}

// configuration is an object that registers webhooks.
type configuration struct {
	kind webhookconf.Kind
	name string
}

func (c configuration) String() string { return c.kind.Name + " " + c.name }

func (c configuration) right(verb, name string) diagnosis.Right {
	return diagnosis.Right{Group: c.kind.Group, Resource: c.kind.Resource, Verb: verb, Name: name}
}

// deletes returns the command that deletes the configuration.
func (c configuration) deletes() string {
	return "kubectl delete " + strings.ToLower(c.kind.Name) + " " + c.name
}

// String names the entry and its configuration.
func (h hook) String() string { return fmt.Sprintf("webhook %s of %s", h.Name, h.configuration) }

func (h hook) ignores() bool {
	return h.FailurePolicy != nil && *h.FailurePolicy == admissionregistrationv1.Ignore
}

// bothKinds returns this program's configurations.
func (c Config) bothKinds() []configuration {
	return list.Of([]webhookconf.Kind{webhookconf.Mutating, webhookconf.Validating}, func(k webhookconf.Kind) configuration {
		return configuration{k, k.ConfigurationName(c.Options.Fingerprint)}
	})
}

// kinds returns the configurations in which an entry should be registered.
func (c Config) kinds() []configuration {
	return slices.DeleteFunc(c.bothKinds(), func(k configuration) bool { return !slices.ContainsFunc(c.Entries, k.kind.Holds) })
}

// hooks returns the entries of a configuration. It has the mutating form: in JSON, a validating configuration has no
// field that a mutating one lacks.
func (c configuration) hooks(found *admissionregistrationv1.MutatingWebhookConfiguration) []hook {
	of := configuration{c.kind, found.Name}
	return list.Of(found.Webhooks, func(w admissionregistrationv1.MutatingWebhook) hook {
		return hook{configuration: of, MutatingWebhook: w}
	})
}

// allHooks returns the entries of every configuration of the cluster, as they were when it was called first. A missing
// right is noted.
func (d *diagnostic) allHooks(ctx context.Context) []hook {
	if d.others != nil {
		return d.others
	}
	all := []hook{}
	for _, k := range d.bothKinds() {
		list, _ := read[admissionregistrationv1.MutatingWebhookConfigurationList](ctx, d, k.right("list", ""))
		for i := range list.Items {
			all = append(all, k.hooks(&list.Items[i])...)
		}
	}
	d.others = all
	return all
}

func findHook(hooks []hook, name string) (hook, bool) {
	i := slices.IndexFunc(hooks, func(h hook) bool { return h.Name == name })
	if i < 0 {
		return hook{}, false
	}
	return hooks[i], true
}

// liveCanary returns the registered entry of the canary. That of another version may have another path.
func (d *diagnostic) liveCanary() (hook, bool) {
	return findHook(slices.Collect(maps.Values(d.live)), d.Options.WebhookName(CanaryName))
}

// register returns the remedy for a registration that is not this program's.
func (d *diagnostic) register() string {
	const writer = "; if it comes back, find out which other program or tool writes it too"
	switch {
	case d.waits:
		return "wait: the version that is registered repairs it" + writer
	case d.Registers:
		return "wait: this process repairs it" + writer
	}
	return "run a Manager with RegisterWebHook; if no Manager registers, call RegisterExtensions of the version that all replicas run" + writer
}

// checkRegistration reads our own configurations, and looks for the entries in them. While another version is
// registered, entries of either kind may be.
func (d *diagnostic) checkRegistration(ctx context.Context) {
	d.looked = true
	kinds, exists := d.kinds(), false
	if d.waits {
		kinds = d.bothKinds()
	}
	for i, k := range kinds {
		right := k.right("get", k.name)
		found, err := get[admissionregistrationv1.MutatingWebhookConfiguration](ctx, d, right)
		exists = exists || !apierrors.IsNotFound(err)
		switch {
		case apierrors.IsNotFound(err) && d.waits && (exists || i+1 < len(kinds)):
		case apierrors.IsNotFound(err):
			d.add(problem(diagnosis.NotRegistered, k.String(),
				k.String()+" does not exist, so the API server does not know this program", d.register()))
		case apierrors.IsForbidden(err) && d.waits && !slices.Contains(d.kinds(), k):
		case err != nil:
			d.looked = false
			d.noteMissingRight(err, right)
		case d.ownedElsewhere(k, found.Annotations, "if that deployment lives, give this one an OperatorFingerprint of its own; if it is gone for good, "+k.deletes()):
		default:
			d.compare(k, k.hooks(&found))
			d.checkInjectors(k.String(), found.Annotations)
		}
	}
}

// ownedElsewhere reports whether an object belongs to another deployment, and adds the finding.
func (d *diagnostic) ownedElsewhere(c configuration, annotations map[string]string, remedy string) bool {
	owner := annotations[webhookconf.OwnerAnnotation]
	if d.Owner == "" || owner == "" || owner == d.Owner {
		return false
	}
	d.add(problem(diagnosis.OwnedElsewhere, c.String(),
		fmt.Sprintf("%s belongs to the deployment whose certificate Secret is %s, not to this one (%s)", c, owner, d.Owner), remedy))
	return true
}

// compare looks for the entries of one kind among those of the configuration. While another version is registered, it
// compares the addresses and caBundles of that version's entries alone.
func (d *diagnostic) compare(k configuration, found []hook) {
	var missing []string
	entries := d.Entries
	if d.waits {
		entries = nil
		for _, h := range found {
			if _, path := webhookconf.TargetOf(h.ClientConfig); strings.HasSuffix(h.Name, d.Options.WebhookName("")) {
				d.live[path] = h
				d.compareTarget(h, path)
				d.checkBundle(h)
			}
		}
	}
	for _, e := range entries {
		if !k.kind.Holds(e) {
			continue
		}
		name := d.Options.WebhookName(e.Name)
		live, ok := findHook(found, name)
		switch {
		case ok:
			d.live[e.Path] = live
			d.compareEntry(live, e)
		case e.Name == CanaryName:
			d.add(warning(diagnosis.NotRegistered, "webhook "+name,
				fmt.Sprintf("%s does not hold the canary's entry %s, so the path is checked only from this process", k, name),
				d.register()))
		default:
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		d.add(problem(diagnosis.NotRegistered, k.String(),
			fmt.Sprintf("%s does not hold %s, so the API server does not call for them",
				k, strings.Join(missing, ", ")),
			d.register()))
	}
}

func (d *diagnostic) compareTarget(live hook, expectedPath string) {
	is, path := webhookconf.TargetOf(live.ClientConfig)
	should := d.Options.Target
	if is.String() == should.String() && path == expectedPath || d.waits && is.Program() == should.Program() {
		return // the port of a Service may change with the version
	}
	d.add(problem(diagnosis.WrongTarget, live.configuration.String(), // all entries share an address: one finding is enough
		fmt.Sprintf("%s makes the API server call %s%s instead of %s%s", live, is, path, should, expectedPath),
		"if another program runs there, give one of the two an OperatorFingerprint of its own; otherwise "+d.register()))
}

func (d *diagnostic) compareEntry(live hook, e webhookconf.Entry) {
	expected := d.Options.Webhook(e)
	d.compareTarget(live, e.Path)
	d.checkBundle(live)
	compare := func(name string, is, should *metav1.LabelSelector) {
		if equality.Semantic.DeepEqual(is, should) {
			return
		}
		d.add(warning(diagnosis.Excluded, live.String()+" "+name,
			fmt.Sprintf("the %s of %s is %q instead of %q, so the API server calls for other objects", name, live,
				metav1.FormatLabelSelector(is), metav1.FormatLabelSelector(should)),
			d.register()))
	}
	compare("namespaceSelector", live.NamespaceSelector, expected.NamespaceSelector)
	compare("objectSelector", live.ObjectSelector, expected.ObjectSelector)
}

// checkBundle checks the caBundle of an entry.
func (d *diagnostic) checkBundle(h hook) {
	bundle := h.ClientConfig.CABundle
	// Entries share a caBundle, so one finding is enough.
	f := diagnosis.Finding{Severity: diagnosis.Problem, Object: h.configuration.String(), Remedy: d.register()}
	switch {
	case len(bytes.TrimSpace(bundle)) == 0:
		f.Code, f.Message = diagnosis.BundleEmpty, fmt.Sprintf("the caBundle of %s is empty, so the API server trusts only public CAs", h)
	case !x509.NewCertPool().AppendCertsFromPEM(bundle):
		f.Code, f.Message = diagnosis.BundleUnreadable, fmt.Sprintf("the caBundle of %s holds no readable certificate, so the API server cannot call", h)
	case d.Verify == nil:
		return
	default:
		err := d.Verify(bundle)
		if err == nil {
			return
		}
		f.Code, f.Evidence = classify(err.Error()), err.Error()
		f.Message = fmt.Sprintf("the serving certificate of this process does not verify against the caBundle of %s", h)
		f.Remedy = d.whyUntrusted(f.Code)
	}
	d.untrusted = true
	d.add(f)
}

// checkNamespaces checks whether the namespaces that the entries select exist.
func (d *diagnostic) checkNamespaces(ctx context.Context) {
	if name := d.Options.Namespace; name != "" && len(d.Entries) > 0 {
		ns, err := read[corev1.Namespace](ctx, d, diagnosis.Right{Resource: "namespaces", Verb: "get", Name: name})
		switch {
		case apierrors.IsNotFound(err):
			d.add(warning(diagnosis.Excluded, "Namespace "+name,
				fmt.Sprintf("Namespace %s, the only one that is selected, does not exist, so the API server never calls", name),
				"create it, or correct ManagerOptions.Namespace"))
			return
		case err != nil:
			d.labels = labels.Set{corev1.LabelMetadataName: name} // which the API server sets on every namespace
		default:
			d.labels = ns.Labels
		}
	}
	var all *corev1.NamespaceList
	for _, e := range d.Entries {
		h, live := d.live[e.Path]
		if !live || d.waits || e.Name == CanaryName || webhookconf.Selects(h.NamespaceSelector, d.labels) {
			continue // without a namespace in Options, that is a selector that only excludes some
		}
		if all == nil {
			list, err := read[corev1.NamespaceList](ctx, d, diagnosis.Right{Resource: "namespaces", Verb: "list"})
			if all = &list; err != nil {
				return
			}
		}
		selected := func(ns corev1.Namespace) bool { return webhookconf.Selects(h.NamespaceSelector, ns.Labels) }
		if !slices.ContainsFunc(all.Items, selected) {
			d.add(warning(diagnosis.Excluded, h.String(),
				fmt.Sprintf("the namespaceSelector %q of %s matches none of the %d namespaces",
					metav1.FormatLabelSelector(h.NamespaceSelector), h, len(all.Items)),
				"label the namespaces of the objects, or change Settings.Namespaces"))
		}
	}
}

// Definition holds the fields of a CustomResourceDefinition that a diagnosis looks at.
type Definition struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Conversion webhookconf.ConversionSpec `json:"conversion"`
		Versions   []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		StoredVersions []string           `json:"storedVersions"`
		Conditions     []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// checkDefinitions checks the definition of each Conversion. No canary reaches a conversion webhook: an API server calls it
// for stored objects alone.
func (d *diagnostic) checkDefinitions(ctx context.Context) {
	for _, e := range d.conversions {
		crd := configuration{webhookconf.CRD, e.Converts}
		object := crd.String()
		found, err := read[Definition](ctx, d, crd.right("get", e.Converts))
		switch {
		case apierrors.IsNotFound(err):
			d.add(warning(diagnosis.DefinitionMissing, object, object+" does not exist, so this program waits for it",
				"create it, or correct conversion.Of.CRD"))
		case err == nil:
			d.checkConversion(crd, found, e)
			d.checkInjectors(object, found.Metadata.Annotations)
			d.checkStored(ctx, found, e)
		}
	}
}

// checkStored checks the versions of the definition and, if others are looked at, the objects that are stored.
func (d *diagnostic) checkStored(ctx context.Context, found Definition, e webhookconf.Entry) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	var objects rest.Interface
	if d.Others {
		objects = d.Clients.Discovery().RESTClient()
	}
	findings, err := d.Stored(ctx, found, e.StepNames(), objects)
	d.findings = append(d.findings, findings...)
	if err != nil {
		plural, group, _ := strings.Cut(e.Converts, ".")
		d.noteMissingRight(err, diagnosis.Right{Group: group, Resource: plural, Verb: "list"})
	}
}

// checkConversion compares the registered conversion webhook with this program.
func (d *diagnostic) checkConversion(crd configuration, found Definition, e webhookconf.Entry) {
	annotations, registered := found.Metadata.Annotations, found.Spec.Conversion
	switch {
	case d.ownedElsewhere(crd, annotations,
		fmt.Sprintf("add the Conversion to one program alone; if that deployment is gone for good, kubectl annotate crd %s %s-, and this one takes it over",
			e.Converts, webhookconf.OwnerAnnotation)):
		return
	case annotations[webhookconf.OwnerAnnotation] == "" || registered.Strategy != webhookconf.WebhookStrategy:
		if !d.waits { // the version that is registered may have no Conversion
			d.add(problem(diagnosis.NotRegistered, crd.String(),
				fmt.Sprintf("%s has the conversion strategy %q and not this program's webhook, so its objects are not converted here", crd, registered.Strategy),
				d.register()))
		}
		return
	}
	d.converting = append(d.converting, e.Converts)
	live := hook{configuration: crd, MutatingWebhook: admissionregistrationv1.MutatingWebhook{Name: "spec.conversion", ClientConfig: registered.Webhook.ClientConfig}}
	d.compareTarget(live, e.Path)
	if d.checkBundle(live); d.Verify != nil {
		return
	}
	// This process does not serve, so it cannot verify the certificate. But it knows which bundle was registered.
	pins := annotations[webhookconf.PinsAnnotation]
	if now := webhookconf.HashesOf(live.ClientConfig.CABundle); pins != "" && len(now) > 0 && strings.Join(now, ",") != pins {
		d.add(problem(diagnosis.UnknownAuthority, crd.String(),
			fmt.Sprintf("the caBundle of %s is not the one that this program has registered", live), d.register()))
	}
}

// injectors are annotations by which another tool writes the caBundle of the object that has them, and their tool.
var injectors = map[string]string{
	"cert-manager.io/inject-ca-from":             "cert-manager",
	"cert-manager.io/inject-ca-from-secret":      "cert-manager",
	"cert-manager.io/inject-apiserver-ca":        "cert-manager",
	"service.beta.openshift.io/inject-cabundle":  "OpenShift's service CA operator",
	"service.alpha.openshift.io/inject-cabundle": "OpenShift's service CA operator",
}

// checkInjectors looks for annotations that make another tool write the caBundle too.
func (d *diagnostic) checkInjectors(object string, annotations map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		tool := injectors[key]
		if tool == "" {
			continue
		}
		d.add(warning(diagnosis.OtherInjector, object+" annotation "+key,
			fmt.Sprintf("the annotation %s of %s makes %s write its caBundle too, so calls fail until this program has repaired it", key, object, tool),
			"remove the annotation from the manifest and from the object"))
	}
}

// VersionInfo is one live version of this program. A version is a set of steps: replicas with equal steps are of one
// version.
type VersionInfo struct {
	Version    string   // its digest
	Ours       bool     // the version of this process
	Registered bool     // the API server calls its paths
	Steps      []string // its steps
}

// String names the version in a sentence.
func (v VersionInfo) String() string {
	if v.Ours {
		return "this version " + v.Version
	}
	return "version " + v.Version
}

// checkVersions reports which version waits for which. That is normal during a rollout, but new steps of a waiting
// version are not in force.
func (d *diagnostic) checkVersions() {
	all := d.versions
	at := slices.IndexFunc(all, func(v VersionInfo) bool { return v.Registered })
	if at < 0 {
		return // the registration itself is missing, which is another finding
	}
	first := all[at]
	for i, v := range all {
		if i == at {
			continue
		}
		before := "it" // the registered version, which the sentence has named
		if i > 0 && i-1 != at {
			before = "version " + all[i-1].Version
		}
		f := note(diagnosis.SeveralVersions, "version "+v.Version,
			fmt.Sprintf("%s keeps the registration as long as its replicas answer; %s comes after %s",
				first, v, before),
			"let the rollout finish, or undo it")
		if v.Ours {
			f.Severity = diagnosis.Warning
			old := func(step string) bool { return slices.Contains(first.Steps, step) }
			if added := slices.DeleteFunc(slices.Clone(v.Steps), old); len(added) > 0 {
				f.Message += ", and until then its new steps are not called: " + strings.Join(added, ", ")
			}
		}
		d.add(f)
	}
	if d.waits && !d.Registers && !slices.ContainsFunc(all, func(v VersionInfo) bool { return v.Ours }) {
		d.add(warning(diagnosis.SeveralVersions, "this version",
			fmt.Sprintf("%s is registered, and this process serves another one, so its new steps are not called", first),
			"once all replicas run this version, call its RegisterExtensions"))
	}
}
