package eirinix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// callTimeout is what a call may take: half of the API's default, because every pod waits for it.
	callTimeout = 5 * time.Second

	// pollRegistration is how often a serving half looks whether it has been registered.
	pollRegistration = time.Second

	// unregisterTimeout bounds the removal of the configuration when a Manager stops.
	unregisterTimeout = 10 * time.Second
)

// registration writes and reads the webhook configurations of one Manager.
type registration struct {
	configurations []webhookconf.Configuration
	options        webhookconf.Options // without CABundle
	steps          []webhookconf.Step
	entries        []webhookconf.Entry
	canary         diagnose.Canary
	clients        kubernetes.Interface
	certs          trust
	log            logr.Logger
	grows          bool          // what is trusted is only added to
	lag            time.Duration // what other API servers take at most to hear of a write
	spread         time.Time     // until when some of them may not trust what was added to a caBundle in use
	describe       sync.Once
}

// apiServerLag is how long other API servers are given to hear of what was written through one: they watch the same
// etcd, which takes milliseconds.
const apiServerLag = 2 * time.Second

// trust is what a registration must know of certificates, wherever they come from.
type trust interface {
	fmt.Stringer
	// owner names the deployment in its configurations: by its certificate Secret, whether that is in use or not.
	owner() string
	// bundle gives what must be trusted, in PEM, and what of the caBundles that are registered keep says is to stay.
	bundle(ctx context.Context, live [][]byte, keep func([]byte) []byte) ([]byte, error)
	// record leaves word of what was registered for those who may not read configurations.
	record(ctx context.Context, bundle []byte) error
	// recorded gives the word that was left.
	recorded(ctx context.Context) ([]byte, error)
	// Verify tells whether the API server, with this caBundle, trusts what is served here.
	Verify(bundle []byte) error
}

// owningNamespace refers to the namespace that the program lives in, so that what is registered goes when it goes: nothing
// blocks a cluster whose webhook has been deleted with everything that was around it. Without the right to read it, or
// without such a namespace, the owner that a configuration has stays.
func (m *ExtensionManager) owningNamespace(ctx context.Context, log logr.Logger) *metav1.OwnerReference {
	clients, err := m.clients()
	if err != nil {
		return nil // whoever needs them says so
	}
	name := m.secretNamespace()
	ns, err := clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		log.Info("what is registered does not go away with its namespace; grant get on that, or call Unregister before it is deleted", "namespace", name, "because", err.Error())
		return nil
	}
	return webhookconf.OwnedByNamespace(ns)
}

// all is what is registered: our own entries, and the canary's behind them.
func (r *registration) all() []webhookconf.Entry {
	if len(r.entries) == 0 {
		return nil
	}
	return append(slices.Clone(r.entries), r.canary.Entry())
}

// everything keeps all CAs that are registered.
func everything(live []byte) []byte { return live }

// webhookOptions is what the options say of the configurations. port is the one that the API server calls.
func (o ManagerOptions) webhookOptions(port int32) webhookconf.Options {
	return webhookconf.Options{
		Fingerprint: o.OperatorFingerprint,
		Target:      webhookconf.Target{Service: o.ServiceName, Namespace: o.WebhookNamespace, Host: o.host(), Port: port},
		Namespace:   o.Namespace,
	}
}

// newRegistration is called after the connection is made. port is the one that the API server calls.
func (m *ExtensionManager) newRegistration(certs trust, steps []webhookconf.Step, port int32, log logr.Logger) (*registration, error) {
	clients, err := m.clients()
	if err != nil {
		return nil, err
	}
	o := m.GetManagerOptions()
	entries := webhookconf.Group(steps)
	return &registration{
		configurations: webhookconf.Configurations(clients.AdmissionregistrationV1(), o.OperatorFingerprint, certs.owner()),
		options:        o.webhookOptions(port),
		steps:          steps,
		entries:        entries,
		canary:         newCanary(o, m.secretNamespace(), entries),
		clients:        clients,
		certs:          certs,
		log:            log,
		lag:            min(apiServerLag, o.retain()/10),
	}, nil
}

// RegisterExtensions makes or adopts the certificate Secret and writes the webhook configuration, once, and a
// second call changes nothing. It does not serve, and does not wait for an API server: after some seconds
// without one it returns the error. It is the registering half of a split
// deployment; the serving half runs with RegisterWebHook set to false and the same extensions, options and
// fingerprint.
func (m *ExtensionManager) RegisterExtensions() error {
	if err := m.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	m.onlyRegisters = true
	m.mu.Unlock()
	o := m.GetManagerOptions()
	if _, port, _ := o.listen(); port == 0 && o.Port == 0 && !o.serviceMode() {
		return fmt.Errorf("eirinix: ManagerOptions.ListenAddress is %q, so the port is only known when the Manager serves; set Port to register without serving", o.ListenAddress)
	}
	ctx := m.GetContext()
	log := m.logr()
	certs, err := m.newCertifier(log)
	if err != nil {
		return err // names itself
	}
	grants := m.preflight(ctx, manifest.Registering, log)
	steps, err := m.resolveAll()
	if err != nil {
		return prefixed(err)
	}
	reg, err := m.newRegistration(certs, steps, m.declaredPort(), log)
	if err != nil {
		return err
	}
	if err := certs.obtainTrust(ctx); err != nil {
		return withGrants(fmt.Errorf("eirinix: %w", err), grants)
	}
	reg.options.OwnedBy = m.owningNamespace(ctx, log)
	reg.grows = true // whom this program has replaced may still be served
	if err := reg.write(ctx, everything); err != nil {
		return withGrants(fmt.Errorf("eirinix: %w", err), grants)
	}
	// A rotation that waited for somebody with the right to publish goes on.
	if _, err := m.newUpkeep(certs, reg, log).tick(ctx); err != nil {
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// Unregister removes the webhook configurations, so that the API server calls this program no more. The
// certificate Secret stays: the next start adopts it. A configuration that is not there is no error.
func (m *ExtensionManager) Unregister(ctx context.Context) error {
	log := m.logr()
	certs, err := m.newCertifier(log)
	if err != nil {
		return err
	}
	reg, err := m.newRegistration(certs, nil, 0, log)
	if err != nil {
		return err
	}
	if err := reg.remove(ctx); err != nil {
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// write registers every step, with the CAs that must be trusted, and leaves word of that. keep picks from a caBundle that
// is registered what else is to stay: a process that has just started, or finds its CA missing, knows nothing of other
// replicas and what they serve.
func (r *registration) write(ctx context.Context, keep func(live []byte) []byte) error {
	if r.grows {
		keep = everything
	}
	var registered []byte
	for _, c := range r.configurations {
		// What must be trusted is read after the configuration, which is then replaced in the version that was read: a
		// replica that was slow cannot take back what a faster one has published or pruned.
		outcome, err := c.Apply(ctx, r.options, r.all(), func(live [][]byte) (bundle []byte, err error) {
			registered, err = r.certs.bundle(ctx, live, keep)
			for _, l := range live {
				if len(ca.SplitBundle(l)) > 0 && !ca.Contains(l, registered) {
					r.spread = time.Now().Add(r.lag)
				}
			}
			return registered, err
		})
		if apierrors.IsForbidden(err) && !c.Holds(r.entries) {
			continue // what we have nothing to do with, we need no right on
		}
		if err != nil {
			return err
		}
		if outcome != webhookconf.Absent {
			r.log.Info("registered", "configuration", c.String(), "outcome", outcome, "calls", r.options.Target.String())
		}
	}
	r.describe.Do(r.describeSteps)
	if registered == nil {
		return nil
	}
	return r.certs.record(ctx, registered)
}

// describeSteps logs what will be sent to each step.
func (r *registration) describeSteps() {
	for _, e := range r.entries {
		names := make([]string, 0, len(e.Steps))
		for _, i := range e.Steps {
			names = append(names, r.steps[i].Name)
		}
		r.log.Info("called for", "webhook", e.Name, "extensions", strings.Join(names, ","), "rules", describeRules(e.Rules),
			"namespaces", r.describeNamespaces(e), "objects", metav1.FormatLabelSelector(e.Objects), "failurePolicy", e.FailurePolicy)
	}
}

func describeRules(rules []admissionregistrationv1.RuleWithOperations) string {
	var all []string
	for _, r := range rules {
		operations := make([]string, 0, len(r.Operations))
		for _, o := range r.Operations {
			operations = append(operations, string(o))
		}
		all = append(all, strings.Join(operations, ",")+" of "+strings.Join(r.Resources, ","))
	}
	return strings.Join(all, "; ")
}

func (r *registration) describeNamespaces(e webhookconf.Entry) string {
	switch {
	case e.Namespaces != nil && len(e.Namespaces.MatchLabels)+len(e.Namespaces.MatchExpressions) > 0:
		return metav1.FormatLabelSelector(e.Namespaces)
	case r.options.Namespace != "":
		return r.options.Namespace
	}
	return "all but the cluster's own"
}

func (r *registration) remove(ctx context.Context) error {
	for _, c := range r.configurations {
		outcome, err := c.Delete(ctx)
		if apierrors.IsForbidden(err) && !c.Holds(r.entries) {
			continue
		}
		if err != nil {
			return err
		}
		if outcome != webhookconf.Absent {
			r.log.Info("unregistered", "configuration", c.String(), "outcome", outcome)
		}
	}
	return nil
}

// live looks at every configuration that holds steps of ours. forbidden tells that they may not be read here.
func (r *registration) live(ctx context.Context, look func(webhookconf.Configuration, webhookconf.Live) error) (forbidden bool, err error) {
	for _, c := range r.configurations {
		if !c.Holds(r.entries) {
			continue
		}
		live, err := c.Look(ctx, r.options.Fingerprint, r.entries)
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		if err == nil {
			err = look(c, live)
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// verify tells what still keeps the API server from calling this process: nil means that every step is
// registered and that the certificate served here verifies against the caBundle that is in force.
func (r *registration) verify(ctx context.Context) error {
	forbidden, err := r.live(ctx, func(c webhookconf.Configuration, live webhookconf.Live) error {
		switch {
		case !live.Exists:
			return fmt.Errorf("%s does not exist; call RegisterExtensions", c)
		case len(live.Missing) > 0:
			return fmt.Errorf("%s does not hold %s; call RegisterExtensions of this version", c, strings.Join(live.Missing, ", "))
		}
		for _, bundle := range live.Bundles {
			if err := r.certs.Verify(bundle); err != nil {
				return fmt.Errorf("%s holds another caBundle than the %s; call RegisterExtensions: %w", c, r.certs, err)
			}
		}
		return nil
	})
	if forbidden {
		return r.verifyRecorded(ctx)
	}
	return err
}

// verifyRecorded goes by the word that RegisterExtensions left, for a serving half without the right to read webhook
// configurations.
func (r *registration) verifyRecorded(ctx context.Context) error {
	bundle, err := r.certs.recorded(ctx)
	if err != nil {
		return err
	}
	if err := r.certs.Verify(bundle); err != nil {
		return fmt.Errorf("what RegisterExtensions registered last is another caBundle than that of the %s; call it again: %w", r.certs, err)
	}
	return nil
}

// registered gives the caBundles that are in force; none for a configuration that lacks what we register. unseen tells
// that they may not be read here.
func (r *registration) registered(ctx context.Context) (all []ca.Registered, unseen bool, err error) {
	unseen, err = r.live(ctx, func(c webhookconf.Configuration, live webhookconf.Live) error {
		if !live.Exists || len(live.Missing) > 0 {
			all = append(all, ca.Registered{Name: c.String()})
		}
		for _, bundle := range live.Bundles {
			all = append(all, ca.Registered{Name: c.String(), Bundle: bundle})
		}
		return nil
	})
	return all, unseen, err
}

// watches are the configurations that hold steps of ours.
func (r *registration) watches() (all []watched) {
	for _, c := range r.configurations {
		if c.Holds(r.entries) {
			all = append(all, watched{c.String(), c.Watch})
		}
	}
	return all
}

// awaitRegistered returns when verify is content, but not before spread, and says meanwhile what it waits for.
func (r *registration) awaitRegistered(ctx context.Context, spread time.Time, waiting func(error)) error {
	said := reminder{log: r.log}
	for {
		err := r.verify(ctx)
		if err == nil {
			if left := time.Until(spread); left > 0 {
				return pause(ctx, left)
			}
			return nil
		}
		if owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err); ok {
			return owned
		}
		waiting(err)
		said.say("not ready: serving, but not registered", err)
		if err := pause(ctx, pollRegistration); err != nil {
			return err
		}
	}
}

// prefixed puts the package's name in front of an error that does not have it yet.
func prefixed(err error) error {
	if strings.HasPrefix(err.Error(), "eirinix: ") {
		return err
	}
	return fmt.Errorf("eirinix: %w", err)
}
