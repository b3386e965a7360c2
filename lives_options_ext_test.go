package eirinix_test

// This file holds the rows of the options: for which objects and at which address the program is called and what its own
// objects are called, the program around the Manager, the program while it serves and when it stops, and its certificates.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/offline"
)

// shows returns a row of an option that a registered entry shows.
func shows(set func(*scene, *eirinix.ManagerOptions), shown effect) row {
	return row{set: set, Start: shown, RegisterExtensions: shown}
}

// urlIs returns the effect that the API server calls this address.
func urlIs(address func(*scene) string) effect {
	return eachHook(func(s *scene) OmegaMatcher {
		return HaveField("ClientConfig.URL", HaveValue(HavePrefix("https://"+address(s)+"/")))
	})
}

// hasSecret is the effect that the Secret has this name.
func hasSecret(name func(*scene) string) effect {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		Expect(clients().CoreV1().Secrets(s.namespace).Get(ctx, name(s), metav1.GetOptions{})).To(HaveField("Data", HaveKey("ca.crt")))
	}
}

var (
	ignored = eachHook(func(*scene) OmegaMatcher {
		return HaveField("FailurePolicy", HaveValue(Equal(admissionregistrationv1.Ignore)))
	})
	atPort    = urlIs(func(s *scene) string { return fmt.Sprint("127.0.0.1:", s.second) })
	ownSecret = hasSecret(func(*scene) string { return "own" })
	inSpace   = hasSecret(func(s *scene) string { return s.namespace + "-setupcertificate" })
)

var addressRows = map[string]row{
	"Namespace": shows(func(s *scene, o *eirinix.ManagerOptions) { o.Namespace = s.workloads }, eachHook(func(s *scene) OmegaMatcher {
		return HaveField("NamespaceSelector.MatchLabels", HaveKeyWithValue("kubernetes.io/metadata.name", s.workloads))
	})),
	"OperatorFingerprint": shows(func(s *scene, o *eirinix.ManagerOptions) { o.OperatorFingerprint = s.namespace + "-x" }, eachHook(func(s *scene) OmegaMatcher {
		return HaveField("Name", HaveSuffix("."+s.fingerprint()+".eirinix.cloudfoundry.org"))
	})).with(func(r *row) {
		r.Unregister = plays(func(ctx SpecContext, s *scene) {
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			Expect(s.run(ctx, unregister)).To(Succeed())
			Expect(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, s.namespace+"-mutating-hook", metav1.GetOptions{})).NotTo(BeNil())
			Expect(s.plain().Unregister(ctx)).To(Succeed())
		})
		r.RotateCA = hasSecret(func(s *scene) string { return s.namespace + "-x-setupcertificate" })
	}),
	"Domain": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.Domain = "lives.example.org" }, eachHook(func(s *scene) OmegaMatcher {
		return HaveField("Name", HaveSuffix("."+s.fingerprint()+".lives.example.org"))
	})),
	"SetupCertificateName": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.SetupCertificateName = "own" },
		Start: ownSecret, RegisterExtensions: ownSecret, RotateCA: ownSecret,
		Unregister: plays(func(ctx SpecContext, s *scene) { // a program with another Secret may not
			Expect(s.registered(ctx)).To(Succeed())
			Expect(s.plain().Unregister(ctx)).To(MatchError(ContainSubstring("belongs to")))
			Expect(s.hooks(ctx)).NotTo(BeEmpty())
			Expect(s.run(ctx, unregister)).To(Succeed())
		}),
	},
	"WebhookNamespace": {
		set:   func(s *scene, o *eirinix.ManagerOptions) { o.WebhookNamespace = s.namespace },
		Start: inSpace, RegisterExtensions: inSpace, RotateCA: inSpace,
	},
	"FailurePolicy": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.FailurePolicy = new(admissionregistrationv1.Ignore) }, ignored),
	"ModesConfigMap": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.ModesConfigMap = "modes" }, ignored).with(func(r *row) {
		r.prepare = func(ctx SpecContext, s *scene) {
			Must(clients().CoreV1().ConfigMaps(s.namespace).Create(ctx, newConfigMap("modes", map[string]string{"team": "Shadow", "owner": "Shadow"}), metav1.CreateOptions{}))
		}
	}),
	"FilterEiriniApps": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.FilterEiriniApps = new(true) }, func(ctx SpecContext, s *scene) {
		selects := HaveField("ObjectSelector.MatchLabels", HaveKeyWithValue(eirinix.LabelSourceType, "APP"))
		Expect(s.hooks(ctx)).To(HaveExactElements(selects, Not(selects)))
	}),
	"Host": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.Host = "localhost" },
		urlIs(func(s *scene) string { return fmt.Sprint("localhost:", s.port) })),
	"Port": shows(func(s *scene, o *eirinix.ManagerOptions) { o.Port, o.ListenAddress = s.second, "" }, atPort),
	"ListenAddress": shows(func(s *scene, o *eirinix.ManagerOptions) { o.ListenAddress, o.Port = fmt.Sprint(":", s.second), 0 }, atPort).with(func(r *row) {
		r.Start = effect(func(ctx SpecContext, s *scene) {
			atPort(ctx, s)
			Expect(portOf(s.manager)).To(Equal(int(s.second)))
		})
	}),
	"ServiceName": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.ServiceName, o.DrainDelay = "hooks", -1 }, eachHook(func(s *scene) OmegaMatcher {
		return HaveField("ClientConfig.Service", HaveValue(And(HaveField("Namespace", s.namespace), HaveField("Name", "hooks"), HaveField("Port", HaveValue(Equal(s.port))))))
	})).with(func(r *row) {
		r.prepare = func(ctx SpecContext, s *scene) { // the API server resolves such a Service itself, and speaks HTTP/1.1 as in production
			Must(clients().CoreV1().Services(s.namespace).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
			}, metav1.CreateOptions{}))
		}
		shown := r.Start.(effect)
		r.Start = effect(func(ctx SpecContext, s *scene) {
			shown(ctx, s)
			refuses(ctx, s)
		})
	}),
}

// counted is a connection that counts the requests of a scene.
func (s *scene) counted() *rest.Config {
	return between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		s.requests.Add(1)
		return next.RoundTrip(r)
	})
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

var programRows = map[string]row{
	"RestConfig": connected(func(s *scene, o *eirinix.ManagerOptions) { o.RestConfig = s.counted() }),
	"KubeConfig": { // of which every life makes what RestConfig is
		set: func(_ *scene, o *eirinix.ManagerOptions) {
			o.RestConfig, o.KubeConfig = nil, controlPlane().Kubeconfig()
		},
		Start: differs(func(o *eirinix.ManagerOptions) { o.KubeConfig = "/nowhere" }, "/nowhere"),
	},
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
	"Logger": {
		set:   func(s *scene, o *eirinix.ManagerOptions) { o.Logger = s.logger },
		Start: logs("ready"), RegisterExtensions: logs("registered"), Unregister: logs("unregistered"), RotateCA: logs("rotating the CA"),
	},
	"Logr": { // of which every life makes what Logger is
		set: func(s *scene, o *eirinix.ManagerOptions) {
			o.Logger, o.Logr = nil, logr.FromSlogHandler(slog.NewTextHandler(s.written, nil))
		},
		Start: logs("ready"),
	},
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
		Start: effect(func(ctx SpecContext, s *scene) {
			status, body, err := scrape(ctx, fmt.Sprintf("http://127.0.0.1:%d/metrics", s.second), "", nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Equal(http.StatusOK))
			Expect(body).To(ContainSubstring("eirinix_"))
		}),
	},
	"HealthProbeBindAddress": {
		set: func(s *scene, o *eirinix.ManagerOptions) { o.HealthProbeBindAddress = fmt.Sprint(":", s.second) },
		Start: effect(func(ctx SpecContext, s *scene) {
			status, _, err := scrape(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", s.second), "", nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Equal(http.StatusOK))
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

			played := Must(offline.Of(s.other(), offline.Options{}))
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
			namespace := Must(clients().CoreV1().Namespaces().Get(ctx, s.workloads, metav1.GetOptions{}))
			s.value = namespace.ResourceVersion
		},
		set: func(s *scene, o *eirinix.ManagerOptions) { o.WatcherStartRV, _ = s.value.(string) },
		add: func(s *scene, m *eirinix.ExtensionManager) { m.AddWatcher(s) },
		Start: effect(func(ctx SpecContext, s *scene) {
			Eventually(s.watched.Load).WithContext(ctx).Should(BeEquivalentTo(1), "the pod that was there before")
		}),
	},
}

// newest returns the effect that the CA of the program matches.
func newest(matcher func(*x509.Certificate) bool) effect {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		block, _ := pem.Decode(s.secret(ctx).Data["tls.crt"])
		Expect(block).NotTo(BeNil())
		certificate := Must(x509.ParseCertificate(block.Bytes))
		Expect(matcher(certificate)).To(BeTrue(), "%+v", certificate)
	}
}

var (
	month = newest(func(c *x509.Certificate) bool { return time.Until(c.NotAfter) < 31*24*time.Hour })
	p384  = newest(func(c *x509.Certificate) bool { return c.PublicKey.(*ecdsa.PublicKey).Curve == elliptic.P384() })

	ofIssuer = eachHook(func(s *scene) OmegaMatcher {
		return HaveField("ClientConfig.CABundle", WithTransform(ca.SplitBundle, ConsistOf(HaveField("SubjectKeyId", s.value.(issuer).Certificate.SubjectKeyId))))
	})
)

var certificateRows = map[string]row{
	"SetupCertificate": {
		set:    func(_ *scene, o *eirinix.ManagerOptions) { o.SetupCertificate = new(false) },
		beside: func(_ SpecContext, s *scene) { Expect(s.plain().RegisterExtensions()).To(Succeed()) },
		Start: plays(func(ctx SpecContext, s *scene) {
			s.clean(ctx)
			s.launch(ctx, s.other())
			Eventually(s.logged).WithContext(ctx).Should(ContainSubstring("waiting for the certificate Secret; RegisterExtensions makes it"))
			Expect(s.certificates(ctx)).To(BeEmpty())
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			Eventually(s.manager.Ready()).WithContext(ctx).Should(BeClosed())
			refuses(ctx, s)
		}),
		RegisterExtensions: plays(func(ctx SpecContext, s *scene) {
			Expect(s.run(ctx, s.life)).To(MatchError(ContainSubstring("certificate Secret")))
			Expect(s.certificates(ctx)).To(BeEmpty())
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			Expect(s.run(ctx, s.life)).To(Succeed(), "it adopts the Secret")
		}),
		RotateCA: plays(func(ctx SpecContext, s *scene) {
			s.clean(ctx)
			Expect(s.other().RotateCA(ctx, eirinix.RotateOptions{})).To(MatchError(ContainSubstring("certificate Secret")))
			Expect(s.certificates(ctx)).To(BeEmpty(), "it makes none")
			s.launch(ctx, s.plain())
			Eventually(s.manager.Ready()).WithContext(ctx).Should(BeClosed())
			before := s.certificates(ctx)
			Expect(s.other().RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed(), "beside a running program")
			Expect(s.certificates(ctx)).NotTo(Equal(before))
			refuses(ctx, s)
		}),
	},
	"CALifetime":   {set: func(_ *scene, o *eirinix.ManagerOptions) { o.CALifetime = 30 * 24 * time.Hour }, Start: month, RegisterExtensions: month, RotateCA: month},
	"KeyAlgorithm": {set: func(_ *scene, o *eirinix.ManagerOptions) { o.KeyAlgorithm = "ECDSA-P384" }, Start: p384, RegisterExtensions: p384, RotateCA: p384},
	"Certificates": {
		prepare: func(_ SpecContext, s *scene) {
			i := newIssuer()
			write(s.temporary, i.issue())
			s.value = i
		},
		set: func(s *scene, o *eirinix.ManagerOptions) {
			o.Certificates = eirinix.FromFiles(s.temporary, "", "", "")
		},
		Start: effect(func(ctx SpecContext, s *scene) {
			ofIssuer(ctx, s)
			Expect(servedBy(s.manager)()).To(Equal(s.value.(issuer).Certificate.SubjectKeyId))
			Expect(s.certificates(ctx)).To(BeEmpty())
		}),
		RegisterExtensions: ofIssuer, RotateCA: refusal("the certificates come from"),
	},
	"TLS": {
		set: func(_ *scene, o *eirinix.ManagerOptions) {
			o.TLS = func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }
		},
		Start: effect(func(ctx SpecContext, s *scene) {
			refuses(ctx, s)
			refusesTLS12(s.manager)
		}),
	},
}

// refusesTLS12 asserts that the Manager takes a handshake of TLS 1.3, and none of TLS 1.2.
func refusesTLS12(m *eirinix.ExtensionManager) {
	GinkgoHelper()
	conn := Must(tls.Dial("tcp", m.Addr().String(), &tls.Config{InsecureSkipVerify: true}))
	Expect(conn.Close()).To(Succeed())
	_, err := tls.Dial("tcp", m.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	Expect(err).To(MatchError(ContainSubstring("protocol version not supported")))
}
