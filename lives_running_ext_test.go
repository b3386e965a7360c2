package eirinix_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/manifests"
)

// ownPods has the steps be called for the program's own pods, unless the field prevents that.
func ownPods(o *eirinix.ManagerOptions) { o.Namespace = o.WebhookNamespace }

// allowsOwnPods plays Manifests for a program that is called for its own pods. The field makes that harmless.
var allowsOwnPods = plays(func(ctx SpecContext, s *scene) {
	o := s.options()
	ownPods(&o)
	_, err := manifests.Of(s.newManager(o, nil), s.deployment())
	Expect(err).To(MatchError(ContainSubstring("the program's own pods")))
	Expect(s.run(ctx, deploys, ownPods)).To(Succeed())
})

// urlIs returns the effect that the API server calls this address.
func urlIs(address func(*scene) string) effect {
	return eachHook(func(s *scene) OmegaMatcher {
		return HaveField("ClientConfig.URL", HaveValue(HavePrefix("https://"+address(s)+"/")))
	})
}

var (
	onlyApps = effect(func(ctx SpecContext, s *scene) {
		selects := HaveField("ObjectSelector.MatchLabels", HaveKeyWithValue(eirinix.LabelSourceType, "APP"))
		Expect(s.hooks(ctx)).To(HaveExactElements(selects, Not(selects)))
	})
	atHost    = urlIs(func(s *scene) string { return fmt.Sprint("localhost:", s.port) })
	atPort    = urlIs(func(s *scene) string { return fmt.Sprint("127.0.0.1:", s.second) })
	atService = eachHook(func(s *scene) OmegaMatcher {
		return HaveField("ClientConfig.Service", HaveValue(And(HaveField("Namespace", s.namespace), HaveField("Name", "hooks"), HaveField("Port", HaveValue(Equal(s.port))))))
	})
)

// addressRows are those of the options that decide for which objects and at which address the program is called.
var addressRows = map[string]row{
	"FailurePolicy": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.FailurePolicy = new(admissionregistrationv1.Ignore) },
		Start: ignored, RegisterExtensions: ignored, Offline: ignored, Manifests: allowsOwnPods,
		Unregister: removesAll, RotateCA: onlyCAs, Audit: callsNothing, Diagnose: ownQuestion,
	},
	"ModesConfigMap": {
		set: func(_ *scene, o *eirinix.ManagerOptions) { o.ModesConfigMap = "modes" },
		prepare: func(ctx SpecContext, s *scene) {
			_, err := clients().CoreV1().ConfigMaps(s.namespace).Create(ctx, newConfigMap("modes", map[string]string{"team": "Shadow", "owner": "Shadow"}), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		},
		Start: ignored, RegisterExtensions: ignored,
		Unregister: removesAll, RotateCA: onlyCAs,
		Audit: reason("findings hold the mode of the program: it is about what the steps say, in whatever mode"),
		Diagnose: effect(func(_ SpecContext, s *scene) {
			Expect(s.report.Findings).To(ContainElement(And(HaveField("Code", diagnosis.ModeSet), HaveField("Message", ContainSubstring("owner: Shadow")))))
		}),
		Manifests: effect(func(_ SpecContext, s *scene) {
			Expect(rulesOn(s, "configmaps")).To(ContainElement(HaveField("ResourceNames", ConsistOf("modes"))))
		}),
		Offline: reason("it knows only Settings.Mode, because it has no cluster"),
	},
	"FilterEiriniApps": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.FilterEiriniApps = new(true) },
		Start: onlyApps, RegisterExtensions: onlyApps, Offline: onlyApps, Manifests: allowsOwnPods,
		Unregister: removesAll, RotateCA: onlyCAs,
		Diagnose: finds(func(_ *scene, o *eirinix.ManagerOptions) { o.FilterEiriniApps = nil }, diagnosis.NotRegistered),
		Audit: effect(func(_ SpecContext, s *scene) {
			Expect(s.findings).To(And(Not(BeEmpty()), HaveEach(HaveField("Step", "owner"))), "the only pod is no application")
		}),
	},
	"Host": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.Host = "localhost" },
		Start: atHost, RegisterExtensions: atHost, Offline: atHost,
		Unregister: removesAll, RotateCA: onlyCAs, Audit: callsNothing,
		Diagnose:  finds(func(_ *scene, o *eirinix.ManagerOptions) { o.Host = "127.0.0.1" }, diagnosis.WrongTarget),
		Manifests: differs(func(_ *scene, o *eirinix.ManagerOptions) { o.Host, o.ListenAddress = "127.0.0.1", "" }, "would listen only on 127.0.0.1"),
	},
	"Port": {
		set:   func(s *scene, o *eirinix.ManagerOptions) { o.Port, o.ListenAddress, o.Host = s.second, "", "127.0.0.1" },
		Start: atPort, RegisterExtensions: atPort, Offline: atPort,
		Unregister: removesAll, RotateCA: onlyCAs, Audit: callsNothing,
		Diagnose: finds(func(s *scene, o *eirinix.ManagerOptions) { o.Port = s.port }, diagnosis.WrongTarget),
		Manifests: plays(func(ctx SpecContext, s *scene) {
			Expect(s.run(ctx, deploys, func(o *eirinix.ManagerOptions) { o.Host = "localhost" })).To(Succeed())
			Expect(container(s).Ports).To(ContainElement(HaveField("ContainerPort", s.second)))
		}),
	},
	"ListenAddress": {
		set: func(s *scene, o *eirinix.ManagerOptions) { o.ListenAddress, o.Port = fmt.Sprint(":", s.second), 0 },
		Start: effect(func(ctx SpecContext, s *scene) {
			atPort(ctx, s)
			Expect(portOf(s.manager)).To(Equal(int(s.second)))
		}),
		RegisterExtensions: atPort, Offline: atPort,
		Unregister: removesAll, RotateCA: onlyCAs, Audit: callsNothing,
		Diagnose: finds(func(s *scene, o *eirinix.ManagerOptions) { o.ListenAddress = fmt.Sprint(":", s.port) }, diagnosis.WrongTarget),
		Manifests: effect(func(_ SpecContext, s *scene) {
			Expect(container(s).Ports).To(ContainElement(HaveField("ContainerPort", s.second)))
		}),
	},
	"ServiceName": {
		set: func(_ *scene, o *eirinix.ManagerOptions) { o.ServiceName, o.DrainDelay = "hooks", -1 },
		prepare: func(ctx SpecContext, s *scene) { // the API server resolves such a Service itself
			_, err := clients().CoreV1().Services(s.namespace).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		},
		Start: atService, RegisterExtensions: atService, Offline: atService,
		Unregister: removesAll, RotateCA: onlyCAs, Audit: callsNothing,
		Diagnose: finds(func(_ *scene, o *eirinix.ManagerOptions) { o.ServiceName = "" }, diagnosis.WrongTarget),
		Manifests: effect(func(_ SpecContext, s *scene) {
			Expect(object[*corev1.Service](s).Name).To(Equal("hooks"))
		}),
	},
}

// large sends a request that is larger than the field allows.
func large(ctx SpecContext, s *scene, send func(path, body string) int) {
	GinkgoHelper()
	u, err := url.Parse(*s.hooks(ctx)[0].ClientConfig.URL)
	Expect(err).NotTo(HaveOccurred())
	Expect(send(u.Path, strings.Repeat(" ", 2<<20))).To(Equal(http.StatusRequestEntityTooLarge))
}

// runningRows are those of the options about a program while it serves, and when it stops.
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
		RegisterExtensions: reason("it is the other half, whose job is to register"),
		Unregister:         reason("a person orders it"),
		RotateCA:           reason("a person orders it"),
		Diagnose: effect(func(_ SpecContext, s *scene) {
			Expect(s.report.Findings).To(ContainElement(HaveField("Code", diagnosis.Healthy)))
		}),
		Audit: callsNothing,
		Manifests: effect(func(_ SpecContext, s *scene) {
			for _, half := range []bool{false, true} {
				of := &scene{objects: ofHalf(s.objects, half)}
				Expect(len(rulesOn(of, "mutatingwebhookconfigurations")) > 0).To(Equal(half))
			}
		}),
		Offline: needsNothing,
	},
	"UnregisterOnStop": everywhere(servesNothing).with(func(r *row) {
		r.set = func(_ *scene, o *eirinix.ManagerOptions) { o.UnregisterOnStop = true }
		r.Start = effect(func(ctx SpecContext, s *scene) {
			s.stop(ctx)
			Expect(s.hooks(ctx)).To(BeEmpty())
		})
		r.Manifests = effect(func(_ SpecContext, s *scene) {
			Expect(rulesOn(s, "mutatingwebhookconfigurations")).To(ContainElement(HaveField("Verbs", ContainElement("delete"))))
		})
	}),
	"DrainDelay": everywhere(servesNothing).with(func(r *row) {
		r.set = func(_ *scene, o *eirinix.ManagerOptions) { o.DrainDelay = time.Second }
		r.Start = effect(func(ctx SpecContext, s *scene) {
			address := s.manager.Addr().String()
			s.manager.Stop()
			Eventually(func() int { return healthOf(address, "/readyz") }).WithContext(ctx).Should(Equal(http.StatusServiceUnavailable), "not ready, and still serving")
			Expect(healthOf(address, "/healthz")).To(Equal(http.StatusOK))
			s.stop(ctx)
		})
		r.Manifests = effect(func(_ SpecContext, s *scene) {
			Expect(object[*appsv1.Deployment](s).Spec.Template.Spec.TerminationGracePeriodSeconds).To(HaveValue(BeEquivalentTo(46)))
		})
	}),
	"MetricsBindAddress": everywhere(servesNothing).with(func(r *row) {
		r.set = func(s *scene, o *eirinix.ManagerOptions) { o.MetricsBindAddress = fmt.Sprint(":", s.second) }
		r.Start = effect(func(_ SpecContext, s *scene) {
			Eventually(func() int {
				status, _ := get(fmt.Sprintf("https://127.0.0.1:%d/metrics", s.second))
				return status
			}).WithTimeout(patience).Should(Equal(http.StatusUnauthorized))
		})
		r.Manifests = effect(func(_ SpecContext, s *scene) {
			Expect(container(s).Ports).To(ContainElement(HaveField("ContainerPort", s.second)))
			Expect(rulesOn(s, "tokenreviews")).NotTo(BeEmpty())
		})
	}),
	"MetricsUnauthenticated": everywhere(servesNothing).with(func(r *row) {
		r.set = func(s *scene, o *eirinix.ManagerOptions) {
			o.MetricsBindAddress, o.MetricsUnauthenticated = fmt.Sprint(":", s.second), true
		}
		r.Start = effect(func(_ SpecContext, s *scene) {
			Eventually(func() string {
				_, body := get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.second))
				return body
			}).WithTimeout(patience).Should(ContainSubstring("eirinix_"))
		})
		r.Manifests = effect(func(_ SpecContext, s *scene) { Expect(rulesOn(s, "tokenreviews")).To(BeEmpty()) })
	}),
	"HealthProbeBindAddress": everywhere(servesNothing).with(func(r *row) {
		r.set = func(s *scene, o *eirinix.ManagerOptions) { o.HealthProbeBindAddress = fmt.Sprint(":", s.second) }
		r.Start = effect(func(_ SpecContext, s *scene) {
			Eventually(func() int {
				status, _ := get(fmt.Sprintf("http://127.0.0.1:%d/readyz", s.second))
				return status
			}).WithTimeout(patience).Should(Equal(http.StatusOK))
		})
		r.Manifests = effect(func(_ SpecContext, s *scene) {
			Expect(container(s).Ports).To(ContainElement(HaveField("ContainerPort", s.second)))
		})
	}),
	"MaxRequestBytes": everywhere(servesNothing).with(func(r *row) {
		r.set = func(_ *scene, o *eirinix.ManagerOptions) { o.MaxRequestBytes = 1 << 20 }
		r.Start = effect(func(ctx SpecContext, s *scene) {
			large(ctx, s, func(path, body string) int {
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
				var resp *http.Response
				Eventually(func() (err error) { // a server that refuses a body closes the connection while the client writes
					resp, err = client.Post("https://"+s.manager.Addr().String()+path, "application/json", strings.NewReader(body))
					return err
				}).WithContext(ctx).Should(Succeed())
				return resp.StatusCode
			})
		})
		r.Offline = effect(func(ctx SpecContext, s *scene) {
			large(ctx, s, func(path, body string) int {
				request, answer := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)), httptest.NewRecorder()
				request.Header.Set("Content-Type", "application/json")
				s.played.Handler.ServeHTTP(answer, request)
				return answer.Code
			})
		})
		r.Manifests = effect(func(_ SpecContext, s *scene) {
			limits := container(s).Resources.Limits
			Expect(limits.Memory().Value()).To(BeEquivalentTo(264 << 20))
		})
	}),
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
			s.manager = nil
		}),
		RegisterExtensions: effect(func(_ SpecContext, s *scene) {
			m := s.other()
			s.value.(context.CancelFunc)()
			Expect(m.RegisterExtensions()).To(MatchError(context.Canceled))
		}),
		Unregister: ownContext, RotateCA: ownContext, Diagnose: ownContext, Audit: ownContext,
		Manifests: needsNothing, Offline: needsNothing,
	},
	"WatcherStartRV": everywhere(reason("watchers do not run")).with(func(r *row) {
		r.prepare = func(ctx SpecContext, s *scene) { // of an object that is older than the pod
			namespace, err := clients().CoreV1().Namespaces().Get(ctx, s.workloads, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			s.value = namespace.ResourceVersion
		}
		r.set = func(s *scene, o *eirinix.ManagerOptions) { o.WatcherStartRV, _ = s.value.(string) }
		r.add = func(s *scene, m *eirinix.ExtensionManager) { m.AddWatcher(s) }
		r.Start = effect(func(ctx SpecContext, s *scene) {
			Eventually(s.watched.Load).WithContext(ctx).Should(BeEquivalentTo(1), "the pod that was there before")
		})
	}),
}

const ownContext = reason("its context is an argument")
