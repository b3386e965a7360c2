package eirinix

// This file specifies the defaults of the options, their faults, and what follows from them.

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// validOptions are those of URL mode.
func validOptions() ManagerOptions {
	return ManagerOptions{Host: "webhook.example.org", Port: 8443, Logger: zap.NewNop().Sugar()}
}

// inPod has the program run in a pod of that namespace until the spec ends, or in none for "".
func inPod(namespace string) {
	GinkgoHelper()
	before := podNamespaceFile
	DeferCleanup(func() { podNamespaceFile = before })
	podNamespaceFile = filepath.Join(GinkgoT().TempDir(), "namespace")
	if namespace != "" {
		Expect(os.WriteFile(podNamespaceFile, []byte(namespace), 0o600)).To(Succeed())
	}
}

// InPod is inPod for specs outside of the package.
var InPod = inPod

// Within returns a Read whose objects may be that old. A spec cannot wait as long as the shortest Read.MaxStale.
func Within(age time.Duration, r Read) Read {
	r.within = age
	return r
}

func serviceOptions() ManagerOptions {
	return ManagerOptions{ServiceName: "logger", WebhookNamespace: "cf", Logger: zap.NewNop().Sugar()}
}

var _ = Describe("ManagerOptions", func() {
	Describe("defaults", func() {
		It("are read back from GetManagerOptions", func() {
			o := NewManager(ManagerOptions{}).GetManagerOptions()
			Expect(o.OperatorFingerprint).To(Equal("eirini-x"))
			Expect(o.SetupCertificateName).To(Equal("eirini-x-setupcertificate"))
			Expect(o.FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)))
			Expect(o.FilterEiriniApps).To(HaveValue(BeFalse()))
			Expect(o.RegisterWebHook).To(HaveValue(BeTrue()))
			Expect(o.SetupCertificate).To(HaveValue(BeTrue()))
			Expect(o.Logger).NotTo(BeNil())
			Expect(o.port()).To(Equal(int32(443)))
		})

		It("log to Logr in place of Logger", func() {
			var lines bytes.Buffer
			m := NewManager(ManagerOptions{Logr: logr.FromSlogHandler(slog.NewTextHandler(&lines, nil))})
			m.SetManagerOptions(m.GetManagerOptions())
			Expect(m.Validate()).NotTo(MatchError(ContainSubstring("Logr")))
			m.given().log().Info("ready", "port", 443)
			m.GetLogger().Debugw("hidden")
			Expect(lines.String()).To(MatchRegexp(`^time=\S+ level=INFO msg=ready logger=eirinix port=443\n$`))

			var logged []string
			m = NewManager(ManagerOptions{Logr: funcr.New(func(prefix, args string) { logged = append(logged, prefix+" "+args) }, funcr.Options{Verbosity: 1})})
			m.given().log().V(1).Info("allowed", "bytes", 7)
			m.given().log().V(2).Info("hidden")
			m.given().log().Error(errors.New("oops"), "failed")
			Expect(logged).To(HaveExactElements(
				And(ContainSubstring(`"level"=1 "msg"="allowed"`), ContainSubstring(`"bytes"=7`)),
				And(ContainSubstring(`"msg"="failed"`), ContainSubstring("oops"))))
		})

		It("do not overwrite fields that are set", func() {
			given := ManagerOptions{
				OperatorFingerprint: "mine", SetupCertificateName: "certificate", Port: 8443,
				FailurePolicy: new(admissionregistrationv1.Ignore), FilterEiriniApps: new(true),
				RegisterWebHook: new(false), SetupCertificate: new(false), Logger: zap.NewNop().Sugar(),
			}
			Expect(NewManager(given).GetManagerOptions()).To(Equal(given))
		})

		DescribeTable("of DrainDelay", func(mode func() ManagerOptions, given, expected time.Duration) {
			o := mode()
			o.DrainDelay = given
			Expect(o.drainDelay()).To(Equal(expected))
		},
			Entry("Service mode", serviceOptions, time.Duration(0), 5*time.Second),
			Entry("URL mode", validOptions, time.Duration(0), time.Duration(0)),
			Entry("given", validOptions, time.Minute, time.Minute),
			Entry("negative means none", serviceOptions, time.Duration(-1), time.Duration(0)),
		)
	})

	type change = func(*ManagerOptions)

	DescribeTable("Validate refuses, with the remedy:",
		func(break_ change, option, remedy string) {
			inPod("")
			o := validOptions()
			break_(&o)
			err := NewManager(o).Validate()
			Expect(err).To(MatchError(And(HavePrefix("eirinix: "), ContainSubstring("ManagerOptions."+option), ContainSubstring(remedy))))
		},
		Entry("two loggers", change(func(o *ManagerOptions) { o.Logr = logr.FromSlogHandler(slog.DiscardHandler) }), "Logger and Logr are both set", "keep one of them"),
		Entry("no Host", change(func(o *ManagerOptions) { o.Host = "" }), "Host", "or set ServiceName and WebhookNamespace"),
		Entry("a Host that no client can call", change(func(o *ManagerOptions) { o.Host = "0.0.0.0" }), "Host", `ListenAddress to "0.0.0.0:8443"`),
		Entry("a Host with scheme", change(func(o *ManagerOptions) { o.Host = "https://example.org" }), "Host", "without scheme or port"),
		Entry("a Host with port", change(func(o *ManagerOptions) { o.Host = "example.org:443" }), "Host", "without scheme or port"),
		Entry("a Host with a dot at its end", change(func(o *ManagerOptions) { o.Host = "example.org." }), "Host", "give a DNS name"),
		Entry("ServiceName alone", change(func(o *ManagerOptions) { o.ServiceName = "logger" }), `ServiceName is "logger" but WebhookNamespace is empty, and this process runs in no pod`, "set it to that Service's namespace"),
		Entry("a ServiceName that is none", change(func(o *ManagerOptions) { o.ServiceName, o.WebhookNamespace = "1_x", "cf" }), `ServiceName is "1_x"`, "must"),
		Entry("a WebhookNamespace that is none", change(func(o *ManagerOptions) { o.WebhookNamespace = "C F" }), `WebhookNamespace is "C F"`, "must"),
		Entry("a Namespace that is none", change(func(o *ManagerOptions) { o.Namespace = "Cf" }), `Namespace is "Cf"`, "must"),
		Entry("a fingerprint that names nothing", change(func(o *ManagerOptions) { o.OperatorFingerprint = "a.b" }), `OperatorFingerprint is "a.b"`, "must"),
		Entry("a SetupCertificateName that is none", change(func(o *ManagerOptions) { o.SetupCertificateName = "a/b" }), `SetupCertificateName is "a/b"`, "must"),
		Entry("a negative Port", change(func(o *ManagerOptions) { o.Port = -1 }), "Port is -1", "from 1 to 65535, or 0 for 443"),
		Entry("metrics on the port of the webhooks", change(func(o *ManagerOptions) { o.ListenAddress, o.MetricsBindAddress = ":8443", "127.0.0.1:8443" }), "MetricsBindAddress", "port 8443, on which webhooks are served; give it another"),
		Entry("probes on the port of the webhooks", change(func(o *ManagerOptions) { o.ListenAddress, o.HealthProbeBindAddress = "127.0.0.1:8443", ":8443" }), "HealthProbeBindAddress", "port 8443"),
		Entry("a Port that is too large", change(func(o *ManagerOptions) { o.Port = 65536 }), "Port is 65536", "from 1 to 65535"),
		Entry("a ListenAddress without port", change(func(o *ManagerOptions) { o.ListenAddress = "localhost" }), `ListenAddress is "localhost"`, `such as "0.0.0.0:9443"`),
		Entry("a ListenAddress with another's port", change(func(o *ManagerOptions) { o.ListenAddress = ":70000" }), "ListenAddress", "0 to 65535"),
		Entry("a ListenAddress with a port's name", change(func(o *ManagerOptions) { o.ListenAddress = ":https" }), "ListenAddress", "not a number"),
		Entry("a FailurePolicy that is none", change(func(o *ManagerOptions) { o.FailurePolicy = new(admissionregistrationv1.FailurePolicyType("fail")) }), `FailurePolicy is "fail"`, "must be Fail or Ignore"),
		Entry("two connections", change(func(o *ManagerOptions) { o.KubeConfig, o.RestConfig = "config", &rest.Config{} }), `KubeConfig is "config"`, "give one of them"),
		Entry("a nil context", change(func(o *ManagerOptions) { o.Context = new(context.Context) }), "Context", "leave it out"),
		Entry("a negative size", change(func(o *ManagerOptions) { o.MaxRequestBytes = -1 }), "MaxRequestBytes is -1", "or 0 for 33554432"),
		Entry("two client CAs", change(func(o *ManagerOptions) { o.ClientCA = ClientCA{PEM: []byte("x"), File: "y"} }), "ClientCA", "set only one of them"),
		Entry("a ConfigMap without namespace", change(func(o *ManagerOptions) { o.ClientCA.ConfigMap = "callers" }), "ClientCA.ConfigMap", "namespace/name"),
		Entry("names without a CA", change(func(o *ManagerOptions) { o.ClientCA.Names = []string{"kube-apiserver"} }), "ClientCA.Names", "set one of PEM"),
		Entry("a Secret without a name", change(func(o *ManagerOptions) { o.Certificates = FromSecret("", "") }), "Certificates: ", "a Namespace and a Name"),
		Entry("files without a folder", change(func(o *ManagerOptions) { o.Certificates = FromFiles("", "", "", "") }), "Certificates: ", "the folder that holds them"),
		Entry("a signer without a name", change(func(o *ManagerOptions) { o.Certificates = FromCSR("", SignerOptions{}) }), "Certificates: ", "SignerName"),
		Entry("a source that is none", change(func(o *ManagerOptions) { o.Certificates = (*source)(nil) }), "Certificates is a nil", "FromFiles"),
		Entry("a key that is none", change(func(o *ManagerOptions) { o.KeyAlgorithm = "DSA" }), "KeyAlgorithm", "ECDSA-P384"),
		Entry("TLS 1.1", change(func(o *ManagerOptions) { o.TLS = func(c *tls.Config) { c.MinVersion = tls.VersionTLS11 } }), "TLS sets MinVersion to TLS 1.1", "raise it"),
		Entry("a negative lifetime", change(func(o *ManagerOptions) { o.CALifetime = -time.Second }), "CALifetime", "or 0 for the defaults"),
		Entry("a leaf that outlives its CA", change(func(o *ManagerOptions) { o.CALifetime = time.Hour }), "CALifetime is 1h0m0s", "still trusted"),
		Entry("a CA that ends while the last one is retained", change(func(o *ManagerOptions) { o.CALifetime = 15 * 24 * time.Hour }), "CALifetime is 360h0m0s", "give more than 369h36m0s"),
	)

	It("have the namespace of the program's own pod by default, in Service mode", func() {
		inPod("  mine\n")
		given := ManagerOptions{ServiceName: "hooks", Logger: zap.NewNop().Sugar()}
		m := NewManager(given)
		Expect(m.AddExtension(valueExtension{})).To(Succeed())
		Expect(m.Validate()).To(Succeed())
		Expect(m.GetManagerOptions().WebhookNamespace).To(Equal("mine"))
		Expect(m.GetManagerOptions().servingHosts()).To(ContainElement("hooks.mine.svc"))
		Expect(m.given().secretNamespace()).To(Equal("mine"))
		given.WebhookNamespace = "other"
		Expect(NewManager(given).GetManagerOptions().WebhookNamespace).To(Equal("other"))
		Expect(NewManager(validOptions()).GetManagerOptions().WebhookNamespace).To(BeEmpty(), "in URL mode the namespace of the pods comes first")
	})

	DescribeTable("Validate accepts", func(change change) {
		o := validOptions()
		change(&o)
		Expect(NewManager(o).Validate()).To(Succeed())
	},
		Entry("URL mode with a name", change(func(*ManagerOptions) {})),
		Entry("an IPv4 address", change(func(o *ManagerOptions) { o.Host = "10.0.0.7" })),
		Entry("an IPv6 address in brackets", change(func(o *ManagerOptions) { o.Host = "[fd00::7]" })),
		Entry("Service mode", change(func(o *ManagerOptions) { *o = serviceOptions() })),
		Entry("Service mode that listens on all addresses", change(func(o *ManagerOptions) { *o = serviceOptions(); o.Host = "0.0.0.0" })),
		Entry("metrics on the same port of another interface", change(func(o *ManagerOptions) { o.ListenAddress, o.MetricsBindAddress = "10.0.0.7:8443", "127.0.0.1:8443" })),
		Entry("three free ports", change(func(o *ManagerOptions) {
			o.ListenAddress, o.MetricsBindAddress, o.HealthProbeBindAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		})),
		Entry("short lives", change(func(o *ManagerOptions) { o.CALifetime, o.lifetimes.Leaf = time.Hour, time.Minute })),
	)

	It("are reported once, also where other names are made of a wrong one", func() {
		o := validOptions()
		o.OperatorFingerprint = "Foo_Bar"
		m := NewManager(o)
		Expect(m.AddExtension(Mutation[*corev1.Pod]{ID: "a", Apply: func(context.Context, *Call, *corev1.Pod) error { return nil }})).To(Succeed())
		Expect(m.Validate()).To(MatchError(And(HavePrefix(`eirinix: ManagerOptions.OperatorFingerprint is "Foo_Bar": a lowercase RFC 1123 label must`),
			Not(ContainSubstring("\n")), Not(ContainSubstring("regex")))))
	})

	It("are reported in one error with all faults, by every method that starts", func() {
		inPod("")
		bad := ManagerOptions{Namespace: "N", ServiceName: "logger", Port: -1, MaxRequestBytes: -1, Logger: zap.NewNop().Sugar()}
		expected := MatchError(And(ContainSubstring("ManagerOptions.Namespace "), ContainSubstring("ManagerOptions.ServiceName "),
			ContainSubstring("ManagerOptions.Port "), ContainSubstring("ManagerOptions.MaxRequestBytes "), ContainSubstring("AddExtension got int")))
		m := NewManager(bad)
		Expect(m.AddExtension(1)).NotTo(Succeed())
		err := m.Validate()
		Expect(err).To(expected)
		Expect(strings.Count(err.Error(), "\n")).To(Equal(4), "a line for each: %v", err)
		Expect(err).To(BeAssignableToTypeOf(errors.Join(errors.New("any"))))

		Expect(m.RegisterExtensions()).To(expected)
		Expect(m.Run(context.Background())).To(expected)
		Expect(m.Start()).To(expected)
		Expect(m.Watch()).To(expected)
	})

	It("need no Host for a program that is never called", func() {
		m := NewManager(ManagerOptions{Logger: zap.NewNop().Sugar()})
		m.AddWatcher(&watcher{})
		Expect(m.Validate()).To(Succeed())
	})

	DescribeTable("resolve addresses:",
		func(o ManagerOptions, listenHost string, listenPort int, registered int32) {
			host, port, err := o.listen()
			Expect(err).NotTo(HaveOccurred())
			Expect(host).To(Equal(listenHost))
			Expect(port).To(Equal(listenPort))
			// A server that has not been started returns port 0.
			Expect(NewManager(o).GetManagerOptions().registeredPort(&serving.Server{})).To(Equal(registered))
		},
		Entry("the IP address that is called", ManagerOptions{Host: "10.0.0.7", Port: 8443}, "10.0.0.7", 8443, int32(8443)),
		Entry("all addresses for a name", ManagerOptions{Host: "example.org", Port: 8443}, "", 8443, int32(8443)),
		Entry("port 443 where it is left out", ManagerOptions{Host: "example.org"}, "", 443, int32(443)),
		Entry("IPv6 in brackets", ManagerOptions{Host: "[fd00::7]", Port: 8443}, "fd00::7", 8443, int32(8443)),
		Entry("the host and port of a Service", ManagerOptions{ServiceName: "s", WebhookNamespace: "n", Host: "0.0.0.0", Port: 8443}, "0.0.0.0", 8443, int32(8443)),
		Entry("all addresses for a Service without host", ManagerOptions{ServiceName: "s", WebhookNamespace: "n"}, "", 443, int32(443)),
		Entry("ListenAddress rather than Host", ManagerOptions{Host: "10.0.0.7", Port: 443, ListenAddress: "127.0.0.1:9443"}, "127.0.0.1", 9443, int32(443)),
		Entry("ListenAddress without host", ManagerOptions{Host: "10.0.0.7", ListenAddress: ":9443"}, "", 9443, int32(9443)),
		Entry("ListenAddress beside a Service", ManagerOptions{ServiceName: "s", WebhookNamespace: "n", Port: 443, ListenAddress: ":9443"}, "", 9443, int32(443)),
		Entry("a free port that is also registered", ManagerOptions{Host: "127.0.0.1", ListenAddress: "127.0.0.1:0"}, "127.0.0.1", 0, int32(0)),
		Entry("a free port behind one that is registered", ManagerOptions{Host: "127.0.0.1", Port: 8443, ListenAddress: "127.0.0.1:0"}, "127.0.0.1", 0, int32(8443)),
	)

	DescribeTable("give the names of the serving certificate:",
		func(o ManagerOptions, expected ...string) { Expect(o.servingHosts()).To(Equal(expected)) },
		Entry("a name", ManagerOptions{Host: "example.org"}, "example.org"),
		Entry("an IPv4 address", ManagerOptions{Host: "10.0.0.7"}, "10.0.0.7"),
		Entry("an IPv6 address without its brackets", ManagerOptions{Host: "[fd00::7]"}, "fd00::7"),
		Entry("a Service, whatever it listens on", ManagerOptions{ServiceName: "s", WebhookNamespace: "n", Host: "0.0.0.0"}, "s.n.svc", "s.n.svc.cluster.local"),
	)
})

var _ = Describe("The program's own pod", func() {
	pod := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "web-1", Labels: labels}}
	}
	marked := map[string]string{"eirinix.cloudfoundry.org/fingerprint": "eirini-x"}

	DescribeTable("causes a warning when the webhook would receive it:", func(change func(*ManagerOptions), p *corev1.Pod, warns bool) {
		o := NewManager(ManagerOptions{Host: "webhook.example.org"}).GetManagerOptions()
		change(&o)
		Expect(o.calledFor("own") && diagnose.Unmarked(context.Background(), fake.NewClientset(p), o.OperatorFingerprint, "own", "web-1")).To(Equal(warns))
	},
		Entry("all namespaces", func(*ManagerOptions) {}, pod(nil), true),
		Entry("with the label", func(*ManagerOptions) {}, pod(marked), false),
		Entry("its own namespace alone", func(o *ManagerOptions) { o.Namespace = "own" }, pod(nil), true),
		Entry("another namespace", func(o *ManagerOptions) { o.Namespace = "apps" }, pod(nil), false),
		Entry("a Service, whose namespace is left out", func(o *ManagerOptions) { o.ServiceName, o.WebhookNamespace = "hooks", "own" }, pod(nil), false),
		Entry("a Service, whose namespace is asked for", func(o *ManagerOptions) { o.ServiceName, o.WebhookNamespace, o.Namespace = "hooks", "own", "own" }, pod(nil), true),
		Entry("a pod that cannot be read", func(*ManagerOptions) {}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "other"}}, false),
	)
})
