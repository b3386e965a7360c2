package eirinix

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

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
	mu             sync.Mutex              // guards the next two
	configurations []webhookconf.Registrar // see current
	giveWayUntil   time.Time               // the steps of another version stay registered until then; zero for no longer

	admissions admissionregistrationv1client.AdmissionregistrationV1Interface
	writer     webhookconf.Writer
	options    webhookconf.Options // without CABundle
	steps      []webhookconf.Step
	entries    []webhookconf.Entry
	canary     diagnose.Canary
	clients    kubernetes.Interface
	certs      trust
	log        logr.Logger
	grows      bool          // what is trusted is only added to
	lag        time.Duration // what other API servers take at most to hear of a write
	spread     time.Time     // until when some of them may not trust what was added to a caBundle in use
	describe   sync.Once
	pass       func(paths []string) // has calls on these paths go to other replicas; nil where nothing is served
	writing    chan struct{}        // one write at a time
	over       atomic.Bool          // it is being removed, and nothing is written any more
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
	var ns *corev1.Namespace
	err = retryTransient(ctx, log, "the namespace "+name, func(ctx context.Context) (err error) {
		ns, err = clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return err
	})
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
// change completes who writes.
func (m *ExtensionManager) newRegistration(certs trust, steps []webhookconf.Step, port int32, log logr.Logger, change ...func(*webhookconf.Writer)) (*registration, error) {
	clients, err := m.clients()
	if err != nil {
		return nil, err
	}
	o := m.GetManagerOptions()
	entries := webhookconf.Group(steps)
	for i := range entries {
		entries[i].Path = m.pathPrefix() + entries[i].Path
	}
	r := &registration{
		options: o.webhookOptions(port),
		steps:   steps,
		entries: entries,
		canary:  m.newCanary(steps),
		clients: clients,
		certs:   certs,
		log:     log,
		lag:     min(apiServerLag, o.retain()/10),
		writing: make(chan struct{}, 1),
	}
	r.writer = webhookconf.Writer{Options: r.options, Entries: r.all(), Sets: setsOf(steps, entries), Started: m.clock.Now(), Now: m.clock.Now}
	for _, c := range change {
		c(&r.writer)
	}
	r.options = r.writer.Options
	r.admissions = clients.AdmissionregistrationV1()
	r.configurations = r.writer.Registrars(r.admissions, certs.owner())
	return r, nil
}

// setsOf tells apart which steps run when an entry is called.
func setsOf(steps []webhookconf.Step, entries []webhookconf.Entry) map[string]string {
	sets := map[string]string{}
	for _, e := range entries {
		hash := sha256.New()
		for _, i := range e.Steps {
			text, _ := json.Marshal(steps[i]) // of the API's own types
			_, _ = hash.Write(text)
		}
		sets[e.Name] = hex.EncodeToString(hash.Sum(nil)[:8])
	}
	return sets
}

// ownedBy has what is registered go away with its owner, if there is one.
func ownedBy(owner *metav1.OwnerReference) func(*webhookconf.Writer) {
	return func(w *webhookconf.Writer) { w.Options.OwnedBy = owner }
}

// insists has what is registered yield to nobody: somebody has asked for it just now.
func insists(w *webhookconf.Writer) { w.Insists = true }

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
	reg, err := m.newRegistration(certs, steps, m.declaredPort(), log, insists, ownedBy(m.owningNamespace(ctx, log)))
	if err != nil {
		return err
	}
	if err := certs.obtainTrust(ctx); err != nil {
		return withGrants(fmt.Errorf("eirinix: %w", err), grants)
	}
	reg.grows = true // whom this program has replaced may still be served
	if _, err := reg.write(ctx, everything); err != nil {
		return withGrants(fmt.Errorf("eirinix: %w", err), grants)
	}
	// A rotation that waited for somebody with the right to publish goes on.
	if _, err := certs.upkeep(m, reg, log).tick(ctx); err != nil {
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// Unregister removes the webhook configurations, so that the API server calls this program no more. The
// certificate Secret stays: the next start adopts it. A configuration that is not there is no error. A Manager that runs
// goes on serving, without putting back what was removed; other replicas do put it back, so stop them first.
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
	m.mu.Lock()
	running := m.registration
	m.mu.Unlock()
	if running != nil {
		running.end(ctx) // or it would be written again at once
	}
	if err := reg.remove(ctx); err != nil {
		if running != nil {
			running.over.Store(false) // what is still registered is looked after again
		}
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// prefixed puts the package's name in front of an error that does not have it yet.
func prefixed(err error) error {
	if strings.HasPrefix(err.Error(), "eirinix: ") {
		return err
	}
	return fmt.Errorf("eirinix: %w", err)
}
