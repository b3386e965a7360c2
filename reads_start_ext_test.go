package eirinix_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// counting refuses pods, with the number of shops in a version.
func counting(group, version string) eirinix.Validation[*corev1.Pod] {
	shops := &unstructured.Unstructured{}
	shops.SetAPIVersion(group + "/" + version)
	shops.SetKind("Shop")
	return eirinix.Validation[*corev1.Pod]{
		ID: "counting", Settings: eirinix.Settings{Reads: []eirinix.Read{eirinix.Within(time.Second, eirinix.Read{Object: shops})}},
		Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(group + "/" + version)
			list.SetKind("ShopList")
			if err := c.Reader().List(ctx, list); err != nil {
				return err
			}
			return eirinix.Deny("%d shops", len(list.Items))
		},
	}
}

var _ = Describe("A start whose reads fail", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	status := func(err *apierrors.StatusError) func(*http.Request, http.RoundTripper) (*http.Response, error) {
		return func(r *http.Request, _ http.RoundTripper) (*http.Response, error) { return answered(r, err) }
	}
	resource := corev1.Resource("configmaps")

	DescribeTable("holds back its own steps, says why, and is ready with all others", func(ctx SpecContext, fails func(*http.Request, http.RoundTripper) (*http.Response, error), reason string) {
		setGate(ctx, namespace, "open")
		for _, alone := range []bool{true, false} {
			var broken atomic.Bool
			broken.Store(true)
			o := urlOptions(namespace)
			o.OperatorFingerprint = namespace + map[bool]string{true: "-alone", false: "-together"}[alone]
			o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if broken.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/configmaps") {
					return fails(r, next)
				}
				return next.RoundTrip(r)
			})
			logger, logs := Observed()
			o.Logger = logger
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
			if !alone {
				Expect(m.AddExtension(addEnv{})).To(Succeed())
			}
			runManager(ctx, m)
			Expect(logs.FilterMessageSnippet("cannot be listed; the steps wait").All()).To(ContainElement(HaveField("ContextMap()", HaveKeyWithValue("reason", ContainSubstring(reason)))))
			finding, found := m.Diagnose(ctx).Find(diagnosis.ReadsNotListed)
			Expect(found).To(BeTrue())
			Expect(finding.Evidence).To(ContainSubstring(reason))
			Expect(tryPod(ctx, namespace)).To(Succeed(), "the gate is not in force")
			if !alone {
				Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
			}
			setGate(ctx, namespace, "shut")
			broken.Store(false)
			Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring(`the gate is "shut"`)))
			m.Stop()
			Expect(m.Unregister(ctx)).To(Succeed())
			setGate(ctx, namespace, "open")
		}
	},
		Entry("with 403", status(apierrors.NewForbidden(resource, "", errors.New("no right"))), "no right", SpecTimeout(6*patience)),
		Entry("with 404", status(apierrors.NewNotFound(resource, "gate")), "not found", SpecTimeout(6*patience)),
		Entry("with 500", status(apierrors.NewInternalError(errors.New("the disk is full"))), "the disk is full", SpecTimeout(6*patience)),
		Entry("with 503", status(apierrors.NewServiceUnavailable("etcd is away")), "etcd is away", SpecTimeout(6*patience)),
		Entry("with 429, and when to come back", func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
			response, err := answered(r, apierrors.NewTooManyRequestsError("slow down"))
			response.Header.Set("Retry-After", "60")
			return response, err
		}, "slow down", SpecTimeout(6*patience)),
		Entry("with silence", func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, "has not answered in full", SpecTimeout(6*patience)))

	It("holds back a step that requires an object which is missing, and tells so", func(ctx SpecContext) {
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger = logger
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Read{Required: true}))).To(Succeed())
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed(), "the gate is not in force")
		missing := func() (bool, float64) {
			finding, _ := m.Diagnose(ctx).Find(diagnosis.ReadsNotListed)
			return strings.Contains(finding.Message, "there is no object of those of which steps require one"), certificateMetrics(namespace)["eirinix_registration_waiting reads"]
		}
		told, waits := missing()
		Expect(told).To(BeTrue())
		Expect(waits).To(BeEquivalentTo(1))
		Expect(logs.FilterMessageSnippet("an object is missing that steps require").Len()).To(Equal(1))
		setGate(ctx, namespace, "shut")
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(ContainSubstring(`the gate is "shut"`)))
		told, _ = missing()
		Expect(told).To(BeFalse())
		Expect(clients().CoreV1().ConfigMaps(namespace).Delete(ctx, "gate", metav1.DeleteOptions{})).To(Succeed())
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(And(ContainSubstring("there is no ConfigMap in namespace "+namespace), ContainSubstring("create it"))))
		told, _ = missing()
		Expect(told).To(BeTrue())
		setGate(ctx, namespace, "open")
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(4*patience))

	It("does not lock itself out if it reads a kind in a version that it converts to", func(ctx SpecContext) {
		group := namespace + ".example.com"
		cluster := anyClient()
		Expect(cluster.Create(ctx, twoVersions(group))).To(Succeed())
		DeferCleanup(cluster.Delete, twoVersions(group))
		stored := newShop(group, namespace, "corner")
		stored.Object["price"] = "12 EUR"
		Eventually(func() error { return cluster.Create(ctx, stored.DeepCopy()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		DeferCleanup(func(ctx SpecContext) { // without its conversion, it could not be deleted with the definition
			crd := definition(group)
			Expect(cluster.Patch(ctx, crd, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)))).To(Succeed())
		})
		port := FreePort()
		for range 2 { // the second one finds its conversion registered, and down
			o := urlOptions(namespace)
			o.ListenAddress, o.Port = "", port
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(shopConversion(group))).To(Succeed())
			Expect(m.AddExtension(counting(group, "v1beta1"))).To(Succeed())
			done := startManager(ctx, m)
			Eventually(m.Ready()).WithContext(ctx).WithTimeout(2 * patience).Should(BeClosed())
			Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring("1 shops")))
			m.Stop()
			Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()))
			older := newShop(group, namespace, "corner")
			older.SetAPIVersion(group + "/v1beta1")
			Expect(cluster.Get(ctx, client.ObjectKeyFromObject(older), older)).To(MatchError(ContainSubstring("conversion webhook")))
		}
	}, SpecTimeout(8*patience))

	It("says what the API server says about another program's conversion that is down", func(ctx SpecContext) {
		group := namespace + ".example.com"
		cluster := anyClient()
		crd := twoVersions(group)
		Expect(unstructured.SetNestedMap(crd.Object, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": "https://127.0.0.1:1/convert"},
		}}, "spec", "conversion")).To(Succeed())
		Expect(cluster.Create(ctx, crd)).To(Succeed())
		DeferCleanup(cluster.Delete, twoVersions(group))
		Eventually(func() error { return cluster.Create(ctx, newShop(group, namespace, "corner")) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		mended := func(ctx context.Context) error {
			return cluster.Patch(ctx, definition(group), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)))
		}
		DeferCleanup(mended)
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger = logger
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(counting(group, "v1beta1"))).To(Succeed())
		Expect(m.AddExtension(addEnv{})).To(Succeed())
		runManager(ctx, m)
		Expect(logs.FilterMessageSnippet("cannot be listed").All()).To(ContainElement(HaveField("ContextMap()", HaveKeyWithValue("reason", ContainSubstring("conversion webhook")))))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Expect(mended(ctx)).To(Succeed())
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring("1 shops")))

		By("deleting the definition, which fails the step, and making it anew")
		Expect(cluster.Delete(ctx, definition(group))).To(Succeed())
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring("Read.MaxStale")))
		_, err := createPod(ctx, namespace, NewPod("another", nil))
		Expect(err).To(MatchError(ContainSubstring("Read.MaxStale")), "a step in force stays in force")
		Eventually(func() error { return cluster.Create(ctx, twoVersions(group)) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring("0 shops")))
	}, SpecTimeout(10*patience))
})

// front is an API server behind a certificate that can change.
type front struct {
	*httptest.Server
	ca string // a file
}

// newFront passes requests on to the control plane, as its administrator.
func newFront() *front {
	GinkgoHelper()
	config := controlPlane().Config()
	transport := Must(rest.TransportFor(config))
	proxy := httputil.NewSingleHostReverseProxy(Must(url.Parse(config.Host)))
	proxy.Transport, proxy.FlushInterval = transport, -1
	f := &front{Server: httptest.NewUnstartedServer(proxy), ca: filepath.Join(GinkgoT().TempDir(), "ca.crt")}
	f.EnableHTTP2 = true
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	return f
}

var _ = Describe("What a step looks at, on connections as client-go makes them", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("is followed on across a rotation of the cluster's CA", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		f := newFront()
		first, firstCA := newServing()
		second, secondCA := newServing()
		var now atomic.Pointer[tls.Certificate]
		now.Store(&first)
		f.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*now.Load()}, NextProtos: []string{"h2", "http/1.1"}}, nil
		}, Certificates: []tls.Certificate{first}}
		f.StartTLS()
		DeferCleanup(f.Close)
		Expect(os.WriteFile(f.ca, firstCA, 0o600)).To(Succeed())
		config := &rest.Config{Host: f.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: f.ca}}
		uncompressed := rest.CopyConfig(config) // as reads are asked for
		uncompressed.DisableCompression = true
		shortenRefresh(config)
		shortenRefresh(uncompressed)
		o := urlOptions(namespace)
		o.RestConfig = config
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Within(time.Second, eirinix.Read{})))).To(Succeed())
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed())

		now.Store(&second)
		f.CloseClientConnections()
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(And(ContainSubstring("Read.MaxStale"), ContainSubstring("x509"))))
		Expect(os.WriteFile(f.ca, secondCA, 0o600)).To(Succeed())
		setGate(ctx, namespace, "shut")
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring(`the gate is "shut"`)))
	}, SpecTimeout(5*patience))

	It("is watched for a short time over HTTP/1.1, where nothing notices a dead connection", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		for _, protocol := range []string{"http/1.1", "h2"} {
			lasts := make(chan string, 10)
			o := urlOptions(namespace)
			o.OperatorFingerprint = namespace + strings.NewReplacer("/", "", ".", "").Replace(protocol)
			o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if strings.Contains(r.URL.Path, "/configmaps") && r.URL.Query().Get("watch") != "" {
					lasts <- r.URL.Query().Get("timeoutSeconds")
				}
				return next.RoundTrip(r)
			})
			o.RestConfig.NextProtos = []string{protocol}
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
			runManager(ctx, m)
			var seconds string
			Expect(lasts).To(Receive(&seconds))
			if protocol == "h2" {
				Expect(len(seconds)).To(Equal(3), seconds)
			} else {
				Expect(seconds).To(Equal("25"))
			}
			m.Stop()
			Expect(m.Unregister(ctx)).To(Succeed())
		}
	}, SpecTimeout(4*patience))
})

// newServing returns a serving certificate for 127.0.0.1, and its CA.
func newServing() (tls.Certificate, []byte) {
	GinkgoHelper()
	authority := NewCA(time.Hour, time.Now())
	certificate, key := Issue(authority, ForServer("127.0.0.1"))
	return Must(tls.X509KeyPair(certificate, key)), PEM("CERTIFICATE", authority.Certificate.Raw)
}

// shortenRefresh makes client-go look for a new CA every tenth of a second, in place of every five minutes.
func shortenRefresh(config *rest.Config) {
	GinkgoHelper()
	v := reflect.ValueOf(Must(rest.TransportFor(config)))
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
		if v.Kind() != reflect.Struct {
			continue
		}
		if field := v.FieldByName("caRefreshDuration"); field.IsValid() {
			*(*time.Duration)(unsafe.Pointer(field.UnsafeAddr())) = 100 * time.Millisecond
			return
		}
		v = v.FieldByName("rt")
	}
	Fail("client-go keeps the interval elsewhere")
}
