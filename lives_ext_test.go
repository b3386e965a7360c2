package eirinix_test

// This file specifies that each option of a Manager works in each life: in every method for which a program makes a
// Manager and which asks the API server. That the registration without a cluster is the same is in offline_test.go, what
// options do in manifests is in that package, and what a diagnosis finds is in internal/diagnose.

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// life is one of the things for which a program makes a Manager.
type life string

const (
	registerExtensions life = "RegisterExtensions"
	unregister         life = "Unregister"
	start              life = "Start"
	auditing           life = "Audit"
	rotateCA           life = "RotateCA"
)

// lives are in the order in which they are played. Unregister finds what RegisterExtensions has registered. Start begins
// without objects of an earlier life. A program runs in no other life.
var lives = []life{registerExtensions, unregister, start, auditing, rotateCA}

// row says what one option does in each life, but for those in which it does nothing. A cell is one of:
//
//   - an effect, which is asserted after the life has passed without an error,
//   - plays, which run the life themselves and assert more than that,
//   - a refusal.
type row struct {
	set     func(*scene, *eirinix.ManagerOptions)   // sets the option to an example
	add     func(*scene, *eirinix.ExtensionManager) // adds what the option is about
	prepare func(SpecContext, *scene)               // makes what the option needs
	beside  func(SpecContext, *scene)               // does what a start with the option waits for

	Start, RegisterExtensions, Unregister, RotateCA, Audit any
}

type (
	effect func(SpecContext, *scene)
	plays  func(SpecContext, *scene)

	// refusal is a part of the error with which the life ends.
	refusal string
)

// everywhere returns a row with one cell for all lives.
func everywhere(cell any) row {
	return row{Start: cell, RegisterExtensions: cell, Unregister: cell, RotateCA: cell, Audit: cell}
}

// with returns a copy of a row with other cells.
func (r row) with(change func(*row)) row {
	change(&r)
	return r
}

func (r row) cell(l life) any { return reflect.ValueOf(r).FieldByName(string(l)).Interface() }

// fieldsOf returns the names of the exported fields of a struct, and those of its fields that are structs of this
// module, as in "ClientCA.File".
func fieldsOf(t reflect.Type, prefix string) (all []string) {
	for f := range t.Fields() {
		switch {
		case !f.IsExported():
		case f.Type.Kind() == reflect.Struct && strings.HasPrefix(f.Type.PkgPath(), reflect.TypeFor[eirinix.ManagerOptions]().PkgPath()):
			all = append(all, fieldsOf(f.Type, prefix+f.Name+".")...)
		default:
			all = append(all, prefix+f.Name)
		}
	}
	return all
}

// elsewhere are the options without a row, and the files that hold their specs.
var elsewhere = map[string]string{
	"ClientCA.ConfigMap": "certs_ext_test.go", "ClientCA.Names": "certs_ext_test.go",
	"ClientCA.File": "options_test.go", "ClientCA.PEM": "options_test.go", // which reach the server as ConfigMap does
	"MetricsBindAddress": "metrics_ext_test.go", "TracerProvider": "testing/traces/traces_test.go",
}

var _ = Describe("Every option of a Manager", func() {
	rows, fields := map[string]row{}, fieldsOf(reflect.TypeFor[eirinix.ManagerOptions](), "")
	for _, table := range []map[string]row{addressRows, programRows, runningRows, certificateRows} {
		maps.Copy(rows, table)
	}

	It("has a row, with what it does in some life, or specs elsewhere", func() {
		Expect(slices.AppendSeq(slices.Collect(maps.Keys(rows)), maps.Keys(elsewhere))).To(ConsistOf(fields))
		for field, r := range rows {
			Expect(slices.ContainsFunc(lives, func(l life) bool { return r.cell(l) != nil })).To(BeTrue(), field)
		}
	})

	for _, field := range slices.Sorted(maps.Keys(rows)) {
		Describe("", Label("api-server"), Ordered, ContinueOnFailure, func() {
			s := &scene{row: rows[field]}
			BeforeAll(func(ctx SpecContext) { s.begin(ctx) }, NodeTimeout(patience))
			AfterAll(func(ctx SpecContext) { s.end(ctx) }, NodeTimeout(patience))
			for _, l := range lives {
				if s.cell(l) != nil {
					It(fmt.Sprintf("%s in %s", field, l), func(ctx SpecContext) { s.play(ctx, l) }, SpecTimeout(2*patience))
				}
			}
		})
	}
})

// play plays a life, and asserts what its cell says.
func (s *scene) play(ctx SpecContext, l life) {
	GinkgoHelper()
	s.life = l
	switch cell := s.cell(l).(type) {
	case plays:
		cell(ctx, s)
	case effect:
		Expect(s.run(ctx, l)).To(Succeed())
		cell(ctx, s)
	case refusal:
		Expect(s.run(ctx, l)).To(MatchError(ContainSubstring(string(cell))))
	default:
		Fail(fmt.Sprintf("a cell of type %T", cell))
	}
}

// scene is where the lives of one option are played: two namespaces, and a program with two steps.
type scene struct {
	row
	life life // that is played

	namespace string // of the program; also its fingerprint
	workloads string // of the objects
	port      int32
	second    int32          // another free port
	temporary string         // a folder
	value     any            // that the row needs
	requests  atomic.Int64   // of a connection that counts
	watched   atomic.Int64   // events of a watcher
	written   *gbytes.Buffer // by loggers other than Logger
	logger    *zap.SugaredLogger
	logs      *observer.ObservedLogs

	manager *eirinix.ExtensionManager // that runs until the life ends
	ended   <-chan error              // receives the result of Run
}

// begin makes the namespaces, and a pod.
func (s *scene) begin(ctx SpecContext) {
	GinkgoHelper()
	s.namespace, s.workloads, s.port, s.second = newNamespace(ctx), newNamespace(ctx), FreePort(), FreePort()
	s.temporary = Must(os.MkdirTemp("", "lives"))
	s.logger, s.logs = Observed()
	s.written = gbytes.NewBuffer()
	Must(createPod(ctx, s.workloads, NewPod("old", nil)))
	if s.prepare != nil {
		s.prepare(ctx, s)
	}
}

// options are those of a program in URL mode, with which each life passes.
func (s *scene) options() eirinix.ManagerOptions {
	return eirinix.ManagerOptions{
		Namespace: s.workloads, WebhookNamespace: s.namespace, OperatorFingerprint: s.namespace,
		Host: "127.0.0.1", Port: s.port, ListenAddress: fmt.Sprint(":", s.port),
		RestConfig: controlPlane().Config(), Logger: s.logger,
	}
}

// fingerprint and certificateName are those of the program with the option.
func (s *scene) fingerprint() string { return s.changed().OperatorFingerprint }

func (s *scene) certificateName() string {
	o := s.changed()
	return cmp.Or(o.SetupCertificateName, o.OperatorFingerprint+"-setupcertificate")
}

// changed returns the options with the option.
func (s *scene) changed(changes ...func(*eirinix.ManagerOptions)) eirinix.ManagerOptions {
	o := s.options()
	if s.set != nil {
		s.set(s, &o)
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// plain returns a Manager without the option.
func (s *scene) plain() *eirinix.ExtensionManager { return s.newManager(s.options()) }

// other returns a Manager with the option, and with further changes.
func (s *scene) other(changes ...func(*eirinix.ManagerOptions)) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := s.newManager(s.changed(changes...))
	if s.add != nil {
		s.add(s, m)
	}
	return m
}

func (s *scene) newManager(o eirinix.ManagerOptions) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := eirinix.NewManager(o)
	eirinixtest.SetLifetimes(m, eirinixtest.Lifetimes{Retain: time.Second}) // a rotation waits for a tenth of that
	Expect(m.AddExtension(eirinix.Mutation[*corev1.Pod]{ID: "team", Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", "a")
		return nil
	}})).To(Succeed())
	Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{ID: "owner", Create: func(_ context.Context, c *eirinix.Call, cm *corev1.ConfigMap) error {
		if cm.Labels["owner"] == "" {
			return eirinix.Deny("set the label owner")
		}
		return nil
	}})).To(Succeed())
	return m
}

// run plays a life, with the option set, and with further changes. It asserts what the life does in any case.
func (s *scene) run(ctx SpecContext, l life, changes ...func(*eirinix.ManagerOptions)) (err error) {
	GinkgoHelper()
	if l == start {
		return s.start(ctx, changes...)
	}
	m := s.other(changes...)
	switch l {
	case registerExtensions:
		if err = m.RegisterExtensions(); err == nil {
			Expect(s.hooks(ctx)).NotTo(BeEmpty())
		}
	case unregister:
		if err = s.registered(ctx); err != nil {
			return err
		}
		if err = m.Unregister(ctx); err == nil {
			Expect(s.hooks(ctx)).To(BeEmpty())
		}
	case auditing:
		_, err = audit.Run(ctx, m, audit.Options{PagesPerSecond: 1000})
	case rotateCA:
		if err = s.registered(ctx); err != nil {
			return err
		}
		before := s.certificates(ctx)
		if err = m.RotateCA(ctx, eirinix.RotateOptions{}); err == nil {
			Expect(s.certificates(ctx)).NotTo(Equal(before))
		}
	}
	return err
}

// start runs a Manager until it is ready. Objects of earlier lives are deleted before.
func (s *scene) start(ctx SpecContext, changes ...func(*eirinix.ManagerOptions)) error {
	GinkgoHelper()
	s.clean(ctx)
	s.launch(ctx, s.other(changes...))
	if s.beside != nil {
		s.beside(ctx, s)
	}
	select {
	case err := <-s.ended:
		return err
	case <-s.manager.Ready():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("not ready in time; the log:\n%s", s.logged())
	}
}

// launch runs a Manager, and does not wait for anything.
func (s *scene) launch(ctx context.Context, m *eirinix.ExtensionManager) {
	s.manager, s.ended = m, startManager(ctx, m)
}

// registered registers the program, unless it is registered.
func (s *scene) registered(ctx SpecContext) error {
	GinkgoHelper()
	if len(s.hooks(ctx)) > 0 {
		return nil
	}
	if s.beside != nil {
		s.beside(ctx, s)
	}
	return s.other().RegisterExtensions()
}

// stop stops the program.
func (s *scene) stop(ctx context.Context) {
	GinkgoHelper()
	s.manager.Stop()
	Eventually(s.ended).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()))
}

// clean deletes all objects of the program.
func (s *scene) clean(ctx context.Context) {
	GinkgoHelper()
	hooks, fingerprint := clients().AdmissionregistrationV1(), s.fingerprint()
	for _, err := range []error{
		hooks.MutatingWebhookConfigurations().Delete(ctx, fingerprint+"-mutating-hook", metav1.DeleteOptions{}),
		hooks.ValidatingWebhookConfigurations().Delete(ctx, fingerprint+"-validating-hook", metav1.DeleteOptions{}),
		clients().CoreV1().Secrets(s.namespace).Delete(ctx, s.certificateName(), metav1.DeleteOptions{}),
		clients().CoordinationV1().Leases(s.namespace).Delete(ctx, fingerprint+"-versions", metav1.DeleteOptions{}),
	} {
		Expect(client.IgnoreNotFound(err)).To(Succeed())
	}
}

func (s *scene) end(ctx context.Context) {
	GinkgoHelper()
	s.clean(ctx)
	Expect(os.RemoveAll(s.temporary)).To(Succeed())
}

// hooks returns the registered entries of the steps, the mutating ones first.
func (s *scene) hooks(ctx context.Context) (all []admissionregistrationv1.MutatingWebhook) {
	GinkgoHelper()
	registered, fingerprint := clients().AdmissionregistrationV1(), s.fingerprint()
	mutating, err := registered.MutatingWebhookConfigurations().Get(ctx, fingerprint+"-mutating-hook", metav1.GetOptions{})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	validating, err := registered.ValidatingWebhookConfigurations().Get(ctx, fingerprint+"-validating-hook", metav1.GetOptions{})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	for _, hook := range mutating.Webhooks {
		if !strings.HasPrefix(hook.Name, diagnose.CanaryName) {
			all = append(all, hook)
		}
	}
	for _, hook := range validating.Webhooks {
		if !strings.HasPrefix(hook.Name, diagnose.CanaryName) {
			all = append(all, admissionregistrationv1.MutatingWebhook{
				Name: hook.Name, ClientConfig: hook.ClientConfig, Rules: hook.Rules, FailurePolicy: hook.FailurePolicy,
				NamespaceSelector: hook.NamespaceSelector, ObjectSelector: hook.ObjectSelector,
			})
		}
	}
	return all
}

// eachHook returns the effect that the entry of each step matches.
func eachHook(matcher func(*scene) OmegaMatcher) effect {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		Expect(s.hooks(ctx)).To(And(HaveLen(2), HaveEach(matcher(s))))
	}
}

// differs returns the effect that the life, with another value of the option, ends with this error.
func differs(change func(*eirinix.ManagerOptions), text string) effect {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		Expect(s.run(ctx, s.life, change)).To(MatchError(ContainSubstring(text)))
	}
}

// secret returns the certificate Secret of the program.
func (s *scene) secret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret, err := clients().CoreV1().Secrets(s.namespace).Get(ctx, s.certificateName(), metav1.GetOptions{})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return secret
}

// certificates returns the CA of the program, or nil if it has none.
func (s *scene) certificates(ctx context.Context) []byte { return s.secret(ctx).Data["ca.crt"] }

// logged returns the lines of the log.
func (s *scene) logged() string {
	var all strings.Builder
	for _, line := range s.logs.All() {
		fmt.Fprintln(&all, line.Message, line.ContextMap())
	}
	return all.String() + string(s.written.Contents())
}

// refuses waits until the program refuses an object.
func refuses(ctx SpecContext, s *scene) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := clients().CoreV1().ConfigMaps(s.workloads).Create(ctx, newConfigMap("new", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).WithContext(ctx).WithTimeout(patience).Should(Satisfy(apierrors.IsForbidden))
}

// Handle counts the events of a watcher.
func (s *scene) Handle(eirinix.Manager, watch.Event) { s.watched.Add(1) }
