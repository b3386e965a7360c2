package eirinix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
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

// registration writes and reads the webhook configuration of one Manager.
type registration struct {
	client  webhookconf.Client
	name    string
	options webhookconf.Options // without CABundle
	certs   *certificates
	log     logr.Logger
}

// newRegistration is called after the connection is made. port is the one that the API server calls.
func (m *ExtensionManager) newRegistration(certs *certificates, port int32, log logr.Logger) (*registration, error) {
	clients, err := m.clients()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.options
	options := webhookconf.Options{
		Fingerprint:   o.OperatorFingerprint,
		Target:        webhookconf.Target{Service: o.ServiceName, Namespace: o.WebhookNamespace, Host: o.host(), Port: port},
		FailurePolicy: *o.FailurePolicy,
		Timeout:       callTimeout,
		Namespace:     o.Namespace,
	}
	if *o.FilterEiriniApps {
		options.ObjectLabels = map[string]string{LabelSourceType: sourceTypeApp}
	}
	for _, s := range m.steps {
		options.Entries = append(options.Entries, webhookconf.Entry{Name: s.name, Path: admit.Path(s.name)})
	}
	return &registration{
		client:  clients.AdmissionregistrationV1().MutatingWebhookConfigurations(),
		name:    o.configurationName(),
		options: options,
		certs:   certs,
		log:     log,
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
	o := m.GetManagerOptions()
	if _, port, _ := o.listen(); port == 0 && o.Port == 0 && !o.serviceMode() {
		return fmt.Errorf("eirinix: ManagerOptions.ListenAddress is %q, so the port is only known when the Manager serves; set Port to register without serving", o.ListenAddress)
	}
	ctx := m.GetContext()
	log := m.logr()
	certs, err := m.newCertificates(log)
	if err != nil {
		return err // names itself
	}
	reg, err := m.newRegistration(certs, o.port(), log)
	if err != nil {
		return err
	}
	if err := certs.obtain(ctx, false); err != nil {
		return fmt.Errorf("eirinix: %w", err)
	}
	if err := reg.write(ctx, certs.state); err != nil {
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// Unregister removes the webhook configuration, so that the API server calls this program no more. The
// certificate Secret stays: the next start adopts it. A configuration that is not there is no error.
func (m *ExtensionManager) Unregister(ctx context.Context) error {
	log := m.logr()
	certs, err := m.newCertificates(log)
	if err != nil {
		return err
	}
	reg, err := m.newRegistration(certs, 0, log)
	if err != nil {
		return err
	}
	if err := reg.remove(ctx); err != nil {
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// write registers every step with the CAs of state, and leaves word in the Secret for serving halves that may
// not read webhook configurations.
func (r *registration) write(ctx context.Context, state *certsecret.State) error {
	options := r.options
	options.CABundle = state.Bundle()
	_, outcome, err := webhookconf.Apply(ctx, r.client, r.name, r.certs.owner(), webhookconf.Build(options))
	if err != nil {
		return err
	}
	r.log.Info("registered", "configuration", r.name, "outcome", outcome, "calls", options.Target.String(),
		"extensions", r.entryNames(), "pods", r.selection(), "failurePolicy", options.FailurePolicy)
	return r.certs.store.RecordRegistered(ctx, options.CABundle)
}

func (r *registration) remove(ctx context.Context) error {
	outcome, err := webhookconf.Delete(ctx, r.client, r.name, r.certs.owner())
	if err != nil {
		return err
	}
	r.log.Info("unregistered", "configuration", r.name, "outcome", outcome)
	return nil
}

// verify tells what still keeps the API server from calling this process: nil means that every step is
// registered and that the certificate served here verifies against the caBundle that is in force.
func (r *registration) verify(ctx context.Context) error {
	configuration, err := webhookconf.Read(ctx, r.client, r.name)
	if apierrors.IsForbidden(err) {
		return r.verifyRecorded(ctx)
	}
	if err != nil {
		return err
	}
	if configuration == nil {
		return fmt.Errorf("MutatingWebhookConfiguration %q does not exist; call RegisterExtensions", r.name)
	}
	return r.verifyAgainst(configuration)
}

func (r *registration) verifyAgainst(c *admissionregistrationv1.MutatingWebhookConfiguration) error {
	if missing := webhookconf.Missing(c, r.options.Fingerprint, r.options.Entries); len(missing) > 0 {
		return fmt.Errorf("MutatingWebhookConfiguration %q does not hold %s; call RegisterExtensions of this version", r.name, strings.Join(missing, ", "))
	}
	for _, bundle := range webhookconf.Bundles(c, r.options.Fingerprint, r.options.Entries) {
		if err := r.certs.leaf.Verify(bundle); err != nil {
			return fmt.Errorf("MutatingWebhookConfiguration %q holds another caBundle than the Secret %s; call RegisterExtensions: %w", r.name, r.certs.owner(), err)
		}
	}
	return nil
}

// verifyRecorded goes by what RegisterExtensions left in the Secret, for a serving half without the right to
// read webhook configurations.
func (r *registration) verifyRecorded(ctx context.Context) error {
	state, err := r.certs.store.Load(ctx)
	if err != nil {
		return err
	}
	if len(state.RegisteredBundle) == 0 {
		return fmt.Errorf("the Secret %s tells of no registration yet, and MutatingWebhookConfigurations may not be read here; call RegisterExtensions", r.certs.owner())
	}
	if err := r.certs.leaf.Verify(state.RegisteredBundle); err != nil {
		return fmt.Errorf("what RegisterExtensions registered last is another caBundle than that of Secret %s; call it again: %w", r.certs.owner(), err)
	}
	return nil
}

// trusted tells whether the API server trusts the CAs of state already, for a serving half: it is the other
// half that registers them.
func (r *registration) trusted(ctx context.Context, state *certsecret.State) error {
	live := [][]byte{state.RegisteredBundle}
	configuration, err := webhookconf.Read(ctx, r.client, r.name)
	switch {
	case apierrors.IsForbidden(err): // go by what RegisterExtensions has written down
	case err != nil:
		return err
	case configuration != nil:
		live = webhookconf.Bundles(configuration, r.options.Fingerprint, r.options.Entries)
	}
	for _, bundle := range live {
		if !ca.Contains(bundle, state.Bundle()) {
			return fmt.Errorf("MutatingWebhookConfiguration %q does not hold the new CA of the Secret %s; call RegisterExtensions", r.name, r.certs.owner())
		}
	}
	return nil
}

func (r *registration) entryNames() string {
	names := make([]string, 0, len(r.options.Entries))
	for _, e := range r.options.Entries {
		names = append(names, e.Name)
	}
	return strings.Join(names, ",")
}

// selection says in words which pods are sent.
func (r *registration) selection() string {
	where := "of every namespace but the cluster's own"
	if r.options.Namespace != "" {
		where = "of namespace " + r.options.Namespace
	}
	if len(r.options.ObjectLabels) == 0 {
		return "all " + where
	}
	return fmt.Sprintf("with %s=%s, %s", LabelSourceType, sourceTypeApp, where)
}

// awaitRegistered returns when verify is content, and says meanwhile what it waits for.
func (r *registration) awaitRegistered(ctx context.Context, waiting func(error)) error {
	said := reminder{log: r.log}
	for {
		err := r.verify(ctx)
		if err == nil {
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
