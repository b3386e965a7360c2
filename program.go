package eirinix

// This file builds the parts of a running Manager from its options: the copies of the cluster's objects, the
// certificates, and the controller that reconciles the webhook configurations. It also checks the program's rights.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/modes"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// program holds the parts of a running Manager, or of a one-off operation such as RegisterExtensions. Its fields do not
// change once it is shared.
type program struct {
	m              *ExtensionManager
	log            logr.Logger
	config         *rest.Config // of the library's own requests
	clients        cluster.Clients
	dynamic        dynamic.Interface
	namespace      string           // of the certificate Secret and the Lease
	objects        *cluster.Objects // nil in a one-off operation, which reads every object from the API server
	cache          cluster.Cache
	configurations []webhookconf.Configuration
	certificates   controller.Certificates
	modes          *modes.Modes
	reads          *reads.Set // nil in a one-off operation
	keys           seam.Keys  // nil if no conversion keeps what a version cannot hold

	resolved   atomic.Pointer[resolved] // the steps as they are served
	canary     diagnose.Canary
	controller *controller.Controller
	reports    *controller.Report  // nil in a one-off operation
	rights     *diagnose.Preflight // nil in a one-off operation
}

// run holds what the parts of a running Manager share.
type run struct {
	m          *ExtensionManager
	background context.Context // ends after the server has been drained
	tasks      sync.WaitGroup  // end with background
	failed     chan error      // receives the errors that end the Manager; it has a slot for each possible sender
	rights     *diagnose.Preflight
	log        logr.Logger
}

// newProgram is called after the connection has been made. rights holds the rights of this process. With rights, the
// objects are followed once the caller runs program.objects. Without, every read goes to the API server.
func (m *ExtensionManager) newProgram(rights *diagnose.Preflight, log logr.Logger) (*program, error) {
	config, clients, err := m.given().own()
	if err != nil {
		return nil, err
	}
	namespace := m.given().secretNamespace()
	p := &program{m: m, log: log, config: config, clients: clients, namespace: namespace, canary: m.newCanary(), rights: rights}
	p.resolved.Store(&resolved{})
	if p.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
	}
	p.configurations, p.modes = m.given().configurations(p.dynamic, p.owner()), m.given().newModes(namespace, log)
	if rights == nil {
		if p.cache, err = cluster.NewDirect(config); err != nil {
			return nil, err
		}
	} else {
		if p.objects, err = cluster.NewObjects(config, log, rights.Followed(m.followed(p.configurations, namespace)...)...); err != nil {
			return nil, err
		}
		p.cache = p.objects
	}
	p.certificates = p.newCertificates()
	return p, nil
}

// configurations returns all objects in which the program may be registered.
func (s setup) configurations(client dynamic.Interface, owner string) []webhookconf.Configuration {
	return slices.Concat(
		webhookconf.Configurations(client, s.options.webhookOptions(0), owner),
		webhookconf.Conversions(client, crdsOf(s.conversions), owner),
	)
}

// followed returns the objects that a running program follows. namespace is that of the Secret and the Lease.
func (m *ExtensionManager) followed(configurations []webhookconf.Configuration, namespace string) []client.Object {
	o := m.GetManagerOptions()
	follow := []client.Object{&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.versionsName()}}}
	if m.certificateSource() == nil {
		follow = append(follow, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.SetupCertificateName}})
	}
	if from := o.modesOf(namespace); from != nil {
		follow = append(follow, from)
	}
	if name, _, err := serving.ParseConfigMap(o.ClientCA.ConfigMap); err == nil {
		follow = append(follow, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}})
	}
	return append(follow, list.Of(configurations, webhookconf.Configuration.Object)...)
}

// owner identifies the deployment in its configurations. It is the name of the certificate Secret, even if that is not
// in use.
func (p *program) owner() string {
	return p.namespace + "/" + p.m.GetManagerOptions().SetupCertificateName
}

// newController completes the program, and is called once the steps and the address are known. changes modify the
// controller's configuration.
func (p *program) newController(steps resolved, r webhookconf.Registration, changes ...func(*controller.Config)) *controller.Controller {
	o, m := p.m.GetManagerOptions(), p.m
	p.resolved.Store(&steps)
	config := controller.Config{
		Cache: p.cache, Configurations: p.configurations,
		Lease:        &rollout.Lease{Client: p.dynamic.Resource(rollout.Resource).Namespace(p.namespace), Namespace: p.namespace, Name: o.versionsName()},
		Certificates: p.certificates, Registration: r,
		Registers: true, Retain: o.retain(), Log: p.log, API: &m.api, Resync: m.resync,
	}
	for _, change := range changes {
		change(&config)
	}
	p.controller = controller.New(config)
	return p.controller
}

// newCanary returns the webhook that a diagnosis makes the API server call. It is zero for a program with conversions
// alone.
func (m *ExtensionManager) newCanary() diagnose.Canary {
	s := m.given()
	if len(s.steps) == 0 && len(s.conversions) > 0 {
		return diagnose.Canary{}
	}
	return diagnose.Canary{
		Fingerprint: s.options.OperatorFingerprint, Namespace: m.given().secretNamespace(), Prefix: m.pathPrefix(), Instance: m.instance,
		Validating: !slices.ContainsFunc(s.steps, definition.mutates),
	}
}

// answerCanary answers the call of a diagnosis.
func (p *program) answerCanary(ctx context.Context, req admission.Request) admission.Response {
	p.reports.AnsweredCanary()
	return p.canary.Answer(ctx, req)
}

// routes returns the paths that this program's Lease records, and those that the API server calls.
func (p *program) routes(ctx context.Context) map[string]rollout.Route {
	var found []webhookconf.Found
	for _, conf := range p.configurations {
		if f, err := conf.Read(ctx, p.cache.Get); err == nil {
			found = append(found, f)
		}
	}
	return rollout.With(rollout.RoutesIn(ctx, p.cache, p.namespace, p.m.GetManagerOptions().versionsName()), webhookconf.InForce(found), nil)
}

// report returns a Report that publishes the program's state as metrics and, with events, as Events, until ctx ends.
func (p *program) report(ctx context.Context, events bool) *controller.Report {
	clients := p.clients
	if !events {
		clients = nil
	}
	return controller.NewReport(ctx, p.namespace, p.m.GetManagerOptions().SetupCertificateName, ctrlmetrics.Registry, clients, p.log)
}

// newMetrics registers metrics of the library. It returns nil if the program has metrics of its own with their names,
// because it can still serve webhooks.
func newMetrics[M any](register func(prometheus.Registerer) (*M, error), what string, log logr.Logger) *M {
	made, err := register(ctrlmetrics.Registry)
	if err != nil {
		log.Error(err, what+" cannot be registered; there will be none")
		return nil
	}
	return made
}

// diagnosis returns the configuration of a diagnosis of this program. listen is the address that this process listens
// on; it is empty if it does not listen.
func (p *program) diagnosis(listen string) diagnose.Config {
	desired := p.controller.State().Desired
	c := diagnose.Config{
		Clients: p.clients, Options: desired.Options, Entries: desired.Entries, Owner: p.owner(), Canary: p.canary,
		Verify: p.certificates.Verify, Listen: listen, Calls: webhookconf.Sharing(p.resolved.Load().entries),
		AsksClients: !p.m.GetManagerOptions().ClientCA.isZero(), ModesFrom: p.modes.ConfigMap, Modes: p.modes.Describe,
		Sends: p.reports.SendsCanary, Network: p.m.network, Registers: listen != "" && *p.m.GetManagerOptions().RegisterWebHook,
		ListsAll: p.rights != nil && p.rights.ListsAll,
	}
	c.Waiting = p.resolved.Load().heldBack(desired)
	if p.reads != nil {
		c.Reads = p.reads.Interruptions
	}
	if all := p.resolved.Load().conversions; len(all) > 0 {
		c.Stored = all[0].Stored
	}
	if p.m.program.Load() == p {
		c.Versions = func() (all []diagnose.VersionInfo) {
			state := p.controller.State()
			for _, v := range state.Versions.InOrder() {
				if r := state.Versions[v]; !r.Removed {
					all = append(all, diagnose.VersionInfo{
						Version: v, Ours: v == state.Desired.Version, Registered: v == state.First, Steps: slices.Concat(slices.Collect(maps.Values(r.Steps))...),
					})
				}
			}
			return all
		}
	}
	return c
}

// heldBack returns the steps that wait and are not registered. One that is in force is, although it waits.
func (r resolved) heldBack(d webhookconf.Desired) (all []diagnose.WaitingStep) {
	registered := slices.Concat(slices.Collect(maps.Values(d.Registered()))...)
	for _, w := range r.waiting {
		if !slices.ContainsFunc(registered, webhookconf.Step{Name: w.name}.Is) {
			all = append(all, diagnose.WaitingStep{Name: w.name, Why: w.why.Error()})
		}
	}
	return all
}

// describeSteps logs the calls that each step is registered for, and why the other steps are held back.
func (p *program) describeSteps(o webhookconf.Options) {
	steps := p.resolved.Load()
	for _, w := range steps.waiting {
		p.log.Info("a step waits until the cluster serves its kind and all that it reads is listed; it is not added to the registration, and where it is in force, it fails",
			"step", w.name, "reason", w.why.Error())
	}
	var unguarded []string
	for _, s := range steps.steps {
		if s.definition.compares && !s.registered.EveryUpdate {
			unguarded = append(unguarded, s.definition.name)
		}
	}
	if len(unguarded) > 0 {
		p.log.Info("these steps do not see how an object that is being deleted loses its finalizers; set Settings.EveryUpdate for one that guards finalizers",
			"steps", strings.Join(unguarded, ","))
	}
	for _, e := range steps.entries {
		p.log.Info("webhook of this version", append([]any{"webhook", e.Name, "steps", strings.Join(e.StepNames(), ",")}, o.Describe(e)...)...)
	}
}

// owningNamespace returns an owner reference to the program's namespace, so that the configurations are deleted with
// the namespace. A webhook that has been deleted with its namespace then blocks no cluster. If the namespace must not be
// read, it returns nil, and a configuration keeps its current owner.
func (p *program) owningNamespace(ctx context.Context) (*metav1.OwnerReference, error) {
	ns, err := p.clients.CoreV1().Namespaces().Get(ctx, p.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		p.log.Info("the webhook configurations, or the reports of audits, will outlive the namespace: grant get on it, or call Unregister before deleting it",
			"namespace", p.namespace, "reason", err.Error())
		return nil, nil //nolint:nilnil // no owner
	case err != nil:
		return nil, err
	}
	return webhookconf.OwnedByNamespace(ns), nil
}

// preflight checks the rights of this process, and logs a manifest that grants the missing ones. A missing right is not
// an error here: the operation that needs it fails later, or falls back to one that does without.
func (m *ExtensionManager) preflight(ctx context.Context, half rights.Half, log logr.Logger) *diagnose.Preflight {
	_, clients, err := m.given().own()
	if err != nil {
		return &diagnose.Preflight{} // reported by the caller that needs the clients
	}
	s := m.given()
	namespace := s.secretNamespace()
	s.options.Certificates = m.certificateSource()
	needed := s.rights(namespace)
	if mapper, err := m.given().restMapper(); err == nil {
		needed.Reads, _ = s.options.readRights(s.steps, mapper) // a kind that the cluster does not serve yet is missing
	}
	var follow []client.Object
	if half != rights.Registering && s.serves() {
		follow = m.followed(m.given().configurations(&dynamic.DynamicClient{} /* sends nothing */, ""), namespace)
	}
	p := diagnose.NewPreflight(ctx, clients, needed.Grants(half, namespace), follow...)
	fingerprint := s.options.OperatorFingerprint
	p.Log(ctx, clients, log, rights.RoleName(fingerprint, half), diagnose.ServiceAccount(namespace, fingerprint))
	return p
}

// rights returns the rights that the steps, conversions and watchers need. namespace is the program's own.
func (s setup) rights(namespace string) rights.Rights {
	o := s.options
	r := rights.Rights{
		// In a split deployment the registering half makes the Secret, regardless of the options of the serving half.
		MakesSecret: *o.SetupCertificate || !*o.RegisterWebHook,
		Unregisters: o.UnregisterOnStop,
		Watches:     len(s.watchers) > 0, WatchNamespace: o.Namespace,
		Reviews: o.reviewsMetrics(),
		CRDs:    crdsOf(s.conversions),
	}
	if s.serves() {
		r.Versions, r.Modes = o.versionsName(), o.ModesConfigMap
		if s.keepsLosses() {
			r.Keys = o.conversionsName()
		}
		if o.Certificates == nil {
			r.Secret = o.SetupCertificateName
		} else {
			r.Source = o.Certificates.rights(namespace)
		}
		r.ClientCA, _, _ = serving.ParseConfigMap(o.ClientCA.ConfigMap) // zero if there is none
		for _, kind := range []webhookconf.Kind{webhookconf.Mutating, webhookconf.Validating} {
			holds := slices.ContainsFunc(s.steps, func(d definition) bool { return d.mutates() == (kind == webhookconf.Mutating) })
			r.Configurations = append(r.Configurations, rights.Configuration{Resource: kind.Resource, Name: kind.ConfigurationName(o.OperatorFingerprint), Left: !holds})
		}
	}
	return r
}
