package diagnose

// This file reads the registered webhook configurations, and compares them with the expected ones.

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
func (d *diagnosis) registered(ctx context.Context) {
	d.looked = true
	for _, k := range d.kinds() {
		found, err := within(ctx, d.timeout(), func(ctx context.Context) (configuration, error) { return k.get(ctx, k.name) })
		object := k.kind + " " + k.name
		switch {
		case apierrors.IsNotFound(err):
			d.add(Finding{
				Code: NotRegistered, Severity: Problem, Object: object,
				Message: object + " does not exist, so the API server does not know of this program",
				Remedy:  "run a Manager with RegisterWebHook, or call RegisterExtensions",
			})
		case err != nil:
			d.looked = false
			d.noteMissingRight(err, rightOn(k.resource)("get", k.name))
		case d.Owner != "" && found.owner != "" && found.owner != d.Owner:
			d.add(Finding{
				Code: OwnedElsewhere, Severity: Problem, Object: object,
				Message: fmt.Sprintf("%s belongs to the deployment whose certificate Secret is %s, not to this one (%s)", object, found.owner, d.Owner),
				Remedy:  "set ManagerOptions.OperatorFingerprint to another name, or delete that configuration if its deployment is gone",
			})
		default:
			d.compare(k, found)
		}
	}
}

// compare looks for the entries of one kind in the configuration.
func (d *diagnosis) compare(k kindOf, found configuration) {
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
			d.add(Finding{
				Code: NotRegistered, Severity: Warning, Object: "webhook " + name,
				Message: fmt.Sprintf("%s does not hold the canary's entry %s, so the path is only looked at from this process", object, name),
				Remedy:  "call RegisterExtensions of this version",
			})
		default:
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		d.add(Finding{
			Code: NotRegistered, Severity: Problem, Object: object,
			Message: fmt.Sprintf("%s does not hold %s, so the API server does not call for them", object, strings.Join(missing, ", ")),
			Remedy:  "call RegisterExtensions of this version, and see whether another version or tool writes that configuration too",
		})
	}
}

func (d *diagnosis) compareEntry(live, expected hook) {
	is, path := live.target()
	should, expectedPath := expected.target()
	if is != should || path != expectedPath {
		d.add(Finding{
			Code: WrongTarget, Severity: Problem, Object: live.where(), // all entries have one address, so one finding is enough
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
func (d *diagnosis) trust(h hook) {
	bundle := h.ClientConfig.CABundle
	const remedy = "let a Manager with RegisterWebHook run, or call RegisterExtensions, and see which other program writes that configuration"
	f := Finding{Severity: Problem, Object: h.where(), Remedy: remedy} // entries share a caBundle, so one finding is enough
	switch {
	case len(bytes.TrimSpace(bundle)) == 0:
		f.Code, f.Message = BundleEmpty, fmt.Sprintf("the caBundle of %s is empty, so the API server trusts only public CAs", h)
	case !readable(bundle):
		f.Code, f.Message = BundleUnreadable, fmt.Sprintf("the caBundle of %s holds no readable certificate, so the API server cannot call", h)
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
