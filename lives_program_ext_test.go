package eirinix_test

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// counted is a connection that counts the requests of a scene.
func (s *scene) counted() *rest.Config {
	config := controlPlane().Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			s.requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	return config
}

// connects plays a life, and asserts that it uses the connection of the field, or none.
func connects(uses bool) plays {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		before := s.requests.Load()
		Expect(s.run(ctx, s.life)).To(Succeed())
		Expect(s.requests.Load() > before).To(Equal(uses))
	}
}

// connected returns a row in which each life that needs a cluster uses the connection of the field.
func connected(set func(*scene, *eirinix.ManagerOptions)) row {
	return everywhere(connects(true)).with(func(r *row) {
		r.set, r.Manifests, r.Offline = set, connects(false), connects(false)
		r.RotateCA = effect(func(_ SpecContext, s *scene) { Expect(s.requests.Load()).NotTo(BeZero()) })
	})
}

// apiService is of a kind that every cluster serves, and that the scheme of client-go does not hold.
type apiService struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

func (a *apiService) DeepCopyObject() runtime.Object {
	return &apiService{TypeMeta: a.TypeMeta, ObjectMeta: *a.ObjectMeta.DeepCopy()}
}

// unknown ends the lives that look at the kinds of the steps, without the field.
var unknown = differs(func(_ *scene, o *eirinix.ManagerOptions) { o.Scheme = nil }, "the scheme does not know")

// logs returns the effect that the log of the field has a text.
func logs(text string) plays {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		before := len(s.logged())
		Expect(s.run(ctx, s.life)).To(Succeed())
		Eventually(func() string { return s.logged()[before:] }).WithContext(ctx).Should(ContainSubstring(text))
	}
}

// logging returns a row in which each life writes its lines to the logger of the field.
func logging(set func(*scene, *eirinix.ManagerOptions)) row {
	return row{
		set: func(s *scene, o *eirinix.ManagerOptions) {
			o.Logger = nil
			set(s, o)
		},
		deploy: func(o *manifests.Options) { o.Args = nil },
		Start:  logs("ready"), RegisterExtensions: logs("registered"), Unregister: logs("unregistered"), RotateCA: effect(func(_ SpecContext, s *scene) { Expect(s.logged()).To(ContainSubstring("rotating the CA")) }),
		Diagnose: reason("its findings are the result"), Audit: reason("its findings are the result"),
		Manifests: logs("its manifests pass none to the pods"),
		Offline: plays(func(_ SpecContext, s *scene) {
			h := eirinixtest.NewHarness(GinkgoT(), s.other())
			h.Create(newConfigMap("new", nil), eirinixtest.InNamespace(s.workloads))
			Expect(s.logged()).To(ContainSubstring("set the label owner"))
		}),
	}
}

// tracing is a TracerProvider that counts spans.
type tracing struct {
	noop.TracerProvider
	s *scene
}

func (t tracing) Tracer(string, ...trace.TracerOption) trace.Tracer { return spans{s: t.s} }

type spans struct {
	noop.Tracer
	s *scene
}

func (t spans) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	t.s.requests.Add(1)
	return t.Tracer.Start(ctx, name, o...)
}

// programRows are those of the options about the program around the Manager: its connection, its kinds, its logs.
var programRows = map[string]row{
	"RestConfig": connected(func(s *scene, o *eirinix.ManagerOptions) { o.RestConfig = s.counted() }),
	"KubeConfig": everywhere(differs(func(_ *scene, o *eirinix.ManagerOptions) { o.KubeConfig = "/nowhere" }, "/nowhere")).with(func(r *row) {
		r.set = func(_ *scene, o *eirinix.ManagerOptions) {
			o.RestConfig, o.KubeConfig = nil, controlPlane().Kubeconfig()
		}
		r.Manifests, r.Offline = needsNothing, needsNothing
	}),
	"KubeManager": connected(func(s *scene, o *eirinix.ManagerOptions) {
		o.RestConfig = nil
		o.KubeManager = Must(manager.New(s.counted(), manager.Options{
			Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		}))
	}),
	"Scheme": everywhere(unknown).with(func(r *row) {
		r.set = func(_ *scene, o *eirinix.ManagerOptions) {
			o.Scheme = runtime.NewScheme()
			Expect(clientgoscheme.AddToScheme(o.Scheme)).To(Succeed())
			o.Scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}, &apiService{})
		}
		r.add = func(s *scene, m *eirinix.ExtensionManager) {
			Expect(m.AddExtension(eirinix.Validation[*apiService]{
				Settings: eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"lives": s.namespace}}},
				Create:   func(context.Context, *eirinix.Call, *apiService) error { return nil },
			})).To(Succeed())
		}
		r.Start, r.RegisterExtensions, r.Offline = hasServices, hasServices, hasServices
		r.Unregister = removesAll
	}),
	"Logger": logging(func(s *scene, o *eirinix.ManagerOptions) { o.Logger = s.logger }),
	"Logr": logging(func(s *scene, o *eirinix.ManagerOptions) {
		o.Logr = logr.FromSlogHandler(slog.NewTextHandler(s.written, nil))
	}),
	"TracerProvider": everywhere(servesNothing).with(func(r *row) {
		r.set = func(s *scene, o *eirinix.ManagerOptions) { o.TracerProvider = tracing{s: s} }
		r.Start = effect(func(ctx SpecContext, s *scene) {
			refuses(ctx, s)
			Expect(s.requests.Load()).To(BeNumerically(">=", 2), "one of the call, and one of the step")
		})
		r.Offline = reason("who calls its Handler plays the API server, and makes the spans")
	}),
}

var hasServices = effect(func(ctx SpecContext, s *scene) {
	Expect(s.hooks(ctx)).To(ContainElement(HaveField("Rules", ContainElement(HaveField("Resources", ConsistOf("apiservices"))))))
})
