package eirinix_test

// This file holds the rows of the options about the program around the Manager, which are its connection, its kinds and its
// logs, and about the program while it serves and when it stops.

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
	"code.cloudfoundry.org/eirinix/offline"
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

// connected returns a row in which each life uses the connection of the option.
func connected(set func(*scene, *eirinix.ManagerOptions)) row {
	return everywhere(plays(func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		before := s.requests.Load()
		Expect(s.run(ctx, s.life)).To(Succeed())
		Expect(s.requests.Load()).To(BeNumerically(">", before))
	})).with(func(r *row) { r.set = set })
}

// apiService is of a kind that every cluster serves, and that the scheme of client-go does not hold.
type apiService struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

func (a *apiService) DeepCopyObject() runtime.Object {
	return &apiService{TypeMeta: a.TypeMeta, ObjectMeta: *a.ObjectMeta.DeepCopy()}
}

// unknown ends the lives that look at the kinds of the steps, without the option.
var unknown = differs(func(o *eirinix.ManagerOptions) { o.Scheme = nil }, "the scheme does not know")

// logs returns the effect that the log of the option has a text.
func logs(text string) plays {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		before := len(s.logged())
		Expect(s.run(ctx, s.life)).To(Succeed())
		Eventually(func() string { return s.logged()[before:] }).WithContext(ctx).Should(ContainSubstring(text))
	}
}

// logging returns a row in which the lives write their lines to the logger of the option.
func logging(set func(*scene, *eirinix.ManagerOptions)) row {
	return row{
		set:   set,
		Start: logs("ready"), RegisterExtensions: logs("registered"), Unregister: logs("unregistered"), RotateCA: logs("rotating the CA"),
	}
}

var programRows = map[string]row{
	"RestConfig": connected(func(s *scene, o *eirinix.ManagerOptions) { o.RestConfig = s.counted() }),
	"KubeConfig": everywhere(differs(func(o *eirinix.ManagerOptions) { o.KubeConfig = "/nowhere" }, "/nowhere")).with(func(r *row) {
		r.set = func(_ *scene, o *eirinix.ManagerOptions) {
			o.RestConfig, o.KubeConfig = nil, controlPlane().Kubeconfig()
		}
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
		r.Start, r.RegisterExtensions, r.Unregister = hasServices, hasServices, nil
	}),
	"Logger": logging(func(s *scene, o *eirinix.ManagerOptions) { o.Logger = s.logger }),
	"Logr": logging(func(s *scene, o *eirinix.ManagerOptions) {
		o.Logger, o.Logr = nil, logr.FromSlogHandler(slog.NewTextHandler(s.written, nil))
	}),
}

var hasServices = effect(func(ctx SpecContext, s *scene) {
	Expect(s.hooks(ctx)).To(ContainElement(HaveField("Rules", ContainElement(HaveField("Resources", ConsistOf("apiservices"))))))
})

var runningRows = map[string]row{
	"RegisterWebHook": {
		set:    func(_ *scene, o *eirinix.ManagerOptions) { o.RegisterWebHook = new(false) },
		beside: func(_ SpecContext, s *scene) { Expect(s.plain().RegisterExtensions()).To(Succeed()) },
		Start: plays(func(ctx SpecContext, s *scene) {
			s.clean(ctx)
			s.launch(ctx, s.other())
			Eventually(s.logged).WithContext(ctx).Should(ContainSubstring("not ready: serving, but not registered"))
			Expect(s.hooks(ctx)).To(BeEmpty())
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			Eventually(s.manager.Ready()).WithContext(ctx).Should(BeClosed())
			refuses(ctx, s)
		}),
	},
	"UnregisterOnStop": {
		set: func(_ *scene, o *eirinix.ManagerOptions) { o.UnregisterOnStop = true },
		Start: effect(func(ctx SpecContext, s *scene) {
			s.stop(ctx)
			Expect(s.hooks(ctx)).To(BeEmpty())
		}),
	},
	"DrainDelay": {
		set: func(_ *scene, o *eirinix.ManagerOptions) { o.DrainDelay = time.Second },
		Start: effect(func(ctx SpecContext, s *scene) {
			address := s.manager.Addr().String()
			s.manager.Stop()
			Eventually(func() int { return healthOf(address, "/readyz") }).WithContext(ctx).Should(Equal(http.StatusServiceUnavailable), "not ready, and still serving")
			Expect(healthOf(address, "/healthz")).To(Equal(http.StatusOK))
			s.stop(ctx)
		}),
	},
	"MetricsUnauthenticated": {
		set: func(s *scene, o *eirinix.ManagerOptions) {
			o.MetricsBindAddress, o.MetricsUnauthenticated = fmt.Sprint(":", s.second), true
		},
		Start: effect(func(_ SpecContext, s *scene) {
			Eventually(func() string {
				_, body := get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.second))
				return body
			}).WithTimeout(patience).Should(ContainSubstring("eirinix_"))
		}),
	},
	"HealthProbeBindAddress": {
		set: func(s *scene, o *eirinix.ManagerOptions) { o.HealthProbeBindAddress = fmt.Sprint(":", s.second) },
		Start: effect(func(_ SpecContext, s *scene) {
			Eventually(func() int {
				status, _ := get(fmt.Sprintf("http://127.0.0.1:%d/readyz", s.second))
				return status
			}).WithTimeout(patience).Should(Equal(http.StatusOK))
		}),
	},
	"MaxRequestBytes": {
		set: func(_ *scene, o *eirinix.ManagerOptions) { o.MaxRequestBytes = 1 << 20 },
		Start: effect(func(ctx SpecContext, s *scene) {
			url, large := *s.hooks(ctx)[0].ClientConfig.URL, strings.Repeat(" ", 2<<20)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
			Eventually(func() (*http.Response, error) { // a server that refuses a body closes the connection while the client writes
				return client.Post(url, "application/json", strings.NewReader(large))
			}).WithContext(ctx).Should(HaveHTTPStatus(http.StatusRequestEntityTooLarge))

			played, err := offline.Of(s.other(), offline.Options{})
			Expect(err).NotTo(HaveOccurred())
			request, answer := httptest.NewRequest(http.MethodPost, url, strings.NewReader(large)), httptest.NewRecorder()
			request.Header.Set("Content-Type", "application/json")
			played.Handler.ServeHTTP(answer, request)
			Expect(answer).To(HaveHTTPStatus(http.StatusRequestEntityTooLarge), "without a cluster")
		}),
	},
	"Context": {
		set: func(s *scene, o *eirinix.ManagerOptions) {
			if o.Context == nil { // of the row's own, which ends when the row says so
				parent, end := context.WithCancel(context.Background())
				o.Context, s.value = &parent, end
			}
		},
		Start: effect(func(ctx SpecContext, s *scene) {
			s.stop(ctx) // of the Context that the newest Manager has
			s.launch(ctx, s.other())
			s.value.(context.CancelFunc)()
			Eventually(s.ended).WithContext(ctx).Should(Receive(BeNil()))
		}),
		RegisterExtensions: effect(func(_ SpecContext, s *scene) {
			m := s.other()
			s.value.(context.CancelFunc)()
			Expect(m.RegisterExtensions()).To(MatchError(context.Canceled))
		}),
	},
	"WatcherStartRV": {
		prepare: func(ctx SpecContext, s *scene) { // of an object that is older than the pod
			namespace, err := clients().CoreV1().Namespaces().Get(ctx, s.workloads, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			s.value = namespace.ResourceVersion
		},
		set: func(s *scene, o *eirinix.ManagerOptions) { o.WatcherStartRV, _ = s.value.(string) },
		add: func(s *scene, m *eirinix.ExtensionManager) { m.AddWatcher(s) },
		Start: effect(func(ctx SpecContext, s *scene) {
			Eventually(s.watched.Load).WithContext(ctx).Should(BeEquivalentTo(1), "the pod that was there before")
		}),
	},
}
